//! Exchange of statistics between servers that may know different things.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use sherwood_control::Report as NodeReport;
use sherwood_control::cluster::{ClusterStatistics, KnownNames, Members, SnapshotDraft, Wants};
use sherwood_model::{CollectedRequests, Instant, RequestCollector};
use sherwood_policy::{Needs, Observation};
use sherwood_workload::{Rng, uniform};

use crate::bus::Bus;
use crate::key::Key;
use crate::statistics::{Known, KnownPartition, Report, Statistics, name};
use crate::world::Node;

/// Servers that send each other reports and snapshots over a bus, as nodes of a cluster do.
///
/// What a server decides on is chosen by the node's own code, [`ClusterStatistics`].
///
/// # Memory
/// That of [`ClusterStatistics`] and of [`Statistics`] for each server.
#[derive(Clone)]
pub(super) struct Exchange {
    /// Probability that a report is lost on its way to a receiver.
    loss: f64,
    draws: Rng,
    /// The time in which nothing arrives.
    down: Range<Instant>,
    servers: Vec<Server>,
}

#[derive(Clone)]
struct Server {
    /// Statistics of the server's own requests and cache.
    own: Statistics,
    cluster: ClusterStatistics,
}

/// Parts of an exchange that all servers share.
pub(super) struct Shared {
    pub(super) servers: u32,
    pub(super) names: KnownNames,
    pub(super) rbc_window: Duration,
    /// Statistics of one server without a report.
    pub(super) empty: Statistics,
}

impl Exchange {
    /// Returns the exchange before the first reports. The statistics servers are the first ones.
    pub(super) fn new(bus: &Bus, down: Range<Instant>, draws: Rng, shared: Shared) -> Self {
        let Shared { servers, names, rbc_window, empty } = shared;
        let nodes: Vec<String> = (0..servers as usize).map(name).collect();
        let statistics = nodes[..bus.statistics as usize].to_vec();
        let server = |own: &String| {
            let (nodes, statistics) = (nodes.clone(), statistics.clone());
            let members = Members { own: own.clone(), nodes, statistics };
            let cluster = ClusterStatistics::new(members, names.clone(), rbc_window, 1);
            Server { own: empty.clone(), cluster }
        };
        let servers = nodes.iter().map(server).collect();
        Self { loss: bus.report_loss, draws, down, servers }
    }

    /// Sends a server's report of its requests and its cache to all servers that merge reports, and
    /// counts it among the server's own.
    pub(super) fn send(
        &mut self,
        now: Instant,
        from: usize,
        report: &Report,
        counts: Vec<(u64, u64)>,
        cache: NodeReport,
    ) {
        let is_up = self.is_up(now);
        let Self { loss, draws, servers, .. } = self;
        let Server { own, cluster } = &mut servers[from];
        own.receive(now, report);
        own.count(counts);
        let message = cluster.publish(now, collected(report), cache);
        let others = servers.iter_mut().enumerate().filter(|(to, _)| *to != from);
        for cluster in others.map(|(_, server)| &mut server.cluster).filter(|of| of.members().merges()) {
            // While the bus is down, as many draws are made, so that later losses are the same.
            let is_lost = *loss > 0.0 && uniform(draws) < *loss;
            if is_up && !is_lost {
                cluster.handle_batch(now, &name(from), &message).expect("it is the sender's newest");
            }
        }
    }

    /// Sends a snapshot of each statistics server to all servers.
    pub(super) fn publish(&mut self, now: Instant, needs: &Needs, total_bytes: u64) {
        let (is_up, wants) = (self.is_up(now), wants(needs));
        for from in 0..self.servers.len() {
            let draft = self.servers[from].cluster.begin_snapshot(now, &wants, total_bytes);
            let Some(snapshot) = draft.map(SnapshotDraft::finish) else { continue };
            for (to, Server { cluster, .. }) in self.servers.iter_mut().enumerate() {
                if to == from || is_up {
                    let taken = cluster.handle_snapshot(now, &name(from), snapshot.clone());
                    taken.expect("it is the sender's newest");
                }
            }
        }
    }

    /// Returns the statistics that each of the `nodes` decides on at `now`, for `backends`
    /// backends.
    pub(super) fn known(
        &mut self,
        now: Instant,
        needs: &Needs,
        nodes: &[Node<Key>],
        backends: usize,
    ) -> Vec<Arc<Known>> {
        let wants = wants(needs);
        let known = |(server, node): (&mut Server, &Node<Key>)| {
            let partitions = server.partitions(now, &wants, node);
            Arc::new(Known { at: now, requests: server.requests(now, &wants, backends), partitions })
        };
        self.servers.iter_mut().zip(nodes).map(known).collect()
    }

    /// Returns the finished requests that each server has reported itself, for a decision.
    #[cfg(test)]
    pub(super) fn own_requests(&self, now: Instant, needs: &Needs) -> Vec<Observation> {
        self.servers.iter().filter_map(|server| server.own.requests(now, needs)).collect()
    }

    fn is_up(&self, now: Instant) -> bool {
        !self.down.contains(&now)
    }
}

impl Server {
    /// Returns the finished requests for a decision, its own ones if it knows of no others.
    fn requests(&self, now: Instant, wants: &Wants, backends: usize) -> Vec<Observation> {
        let needs = &wants.needs;
        match self.cluster.requests(now, wants).filter(|_| needs.requests) {
            Some(known) => known.observations(needs, backends),
            None => self.own.requests(now, needs).into_iter().collect(),
        }
    }

    /// Returns the partitions for a decision: look-ups of the servers that it knows of, latencies
    /// of its own.
    fn partitions(&mut self, now: Instant, wants: &Wants, node: &Node<Key>) -> Vec<KnownPartition> {
        let own = self.own.partitions(now, &wants.needs, [(0, node)]);
        let look_ups = own.iter().map(|partition| partition.look_ups.clone()).collect();
        let look_ups = self.cluster.partitions(now, wants, node.cache.total_bytes(), look_ups);
        let known = |(own, look_ups)| KnownPartition { look_ups, ..own };
        own.into_iter().zip(look_ups).map(known).collect()
    }
}

fn wants(needs: &Needs) -> Wants {
    Wants { needs: needs.clone(), by_tenant: false }
}

/// Returns the requests of a report as a node sends them.
fn collected(report: &Report) -> CollectedRequests {
    let mut collector = RequestCollector::default();
    report.requests.iter().for_each(|(_, request)| collector.record(*request, 1));
    collector.into()
}
