//! Statistics server, which collects the reports of the application servers for their controllers.
//!
//! The servers of RobinHood share only these statistics: once a second each reports its finished
//! requests and queries, and each controller reads the totals before it decides. So a decision is
//! based on statistics up to a second old, and the inputs of two servers differ only in the
//! contents of their caches.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_control::{Merged, MergedNames, Merger, Report as NodeReport};
use sherwood_model::{FinishedRequest, Instant, LatencyWindow, RequestSnapshot};
pub(crate) use sherwood_path::LatencyGroup;
use sherwood_policy::{MissLatency, Needs, Observation, RequestLog};

use crate::key::Key;
use crate::partitions::Partitions;
use crate::world::Node;

/// Pending report of one server; emptied once a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) requests: Vec<(Instant, FinishedRequest)>,
    pub(crate) queries: Vec<(Instant, LatencyGroup)>,
}

/// Statistics of all servers.
#[derive(Clone, Debug)]
pub(crate) struct Statistics {
    partitions: Partitions,
    log: RequestLog,
    queries: Vec<LatencyWindow>,
    /// Latencies of misses; empty unless the policy needs them.
    misses: Vec<LatencyWindow>,
    merger: Merger,
    /// Hits and misses of each partition, over all servers, as last reported.
    counts: Vec<(u64, u64)>,
}

/// Statistics that a controller decides on.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The time at which the statistics were read.
    pub(crate) at: Instant,
    /// Observation of the finished requests; none if the policy does not need them.
    pub(crate) requests: Vec<Observation>,
    pub(crate) partitions: Vec<KnownPartition>,
}

/// Statistics of one partition in the window of requests used for decisions.
#[derive(Clone, Debug)]
pub(crate) struct KnownPartition {
    /// Hits and misses of the partition since the start.
    pub(crate) counts: (u64, u64),
    /// 99th percentile of the latency of queries to the partition's backend; none without queries.
    pub(crate) query_p99: Option<Duration>,
    /// Latency of misses at the partition's backend; none if the policy does not need it.
    pub(crate) miss_latency: Option<MissLatency>,
    /// Estimated effects of other cache sizes.
    pub(crate) estimates: Merged,
}

impl Statistics {
    /// Creates the statistics of `servers` servers that a policy with these `needs` requires.
    pub(crate) fn new(
        partitions: Partitions,
        servers: u32,
        slo_window: Duration,
        rbc_window: Duration,
        needs: &Needs,
    ) -> Self {
        let backends = partitions.backends();
        let timed = if needs.miss_latency { backends } else { 0 };
        Self {
            partitions,
            log: RequestLog::new(slo_window, rbc_window),
            queries: vec![LatencyWindow::new(rbc_window); backends],
            misses: vec![LatencyWindow::new(rbc_window); timed],
            merger: Merger::of_new((0..servers as usize).map(name)),
            counts: vec![(0, 0); partitions.len()],
        }
    }

    /// Records and empties one server's report.
    pub(crate) fn receive(&mut self, now: Instant, report: &mut Report) {
        for (at, request) in report.requests.drain(..) {
            self.log.record(now, at, request);
        }
        for (at, LatencyGroup { backend, latency, hits, keys }) in report.queries.drain(..) {
            self.queries[backend.index()].record_times(at, latency, keys);
            if let Some(misses) = self.misses.get_mut(backend.index()) {
                misses.record_times(at, latency, keys - hits);
            }
        }
    }

    /// Sets the hits and misses of each partition since the start, over all servers.
    pub(crate) fn count(&mut self, counts: Vec<(u64, u64)>) {
        self.counts = counts;
    }

    /// Returns the 99th percentile of the latency of queries to each backend in the window of
    /// requests used for decisions; none without queries.
    pub(crate) fn query_p99(&self, now: Instant) -> Vec<Option<Duration>> {
        self.queries.iter().map(|window| window.sketch(now).quantile(0.99)).collect()
    }

    /// Returns the statistics on which decisions at `now` are based, for the caches of `nodes`.
    pub(crate) fn known(&mut self, now: Instant, needs: &Needs, nodes: &[Node<Key>]) -> Known {
        let estimates = self.estimates(needs, nodes);
        let query_p99 = self.query_p99(now);
        let miss_latency = |window: &LatencyWindow| MissLatency::of(&window.sketch(now));
        let miss_latencies: Vec<_> = self.misses.iter().map(miss_latency).collect();
        let known = |((partition, &counts), estimates): ((_, _), _)| {
            let backend = self.partitions.pair(partition).1.index();
            let miss_latency = miss_latencies.get(backend).cloned().flatten();
            KnownPartition { counts, query_p99: query_p99[backend], miss_latency, estimates }
        };
        let partitions = self.partitions.all().zip(&self.counts).zip(estimates).map(known).collect();
        let requests = needs.requests.then(|| {
            let finished = RequestSnapshot::from(self.log.for_decision(now));
            Observation::of_requests(&finished, needs, self.queries.len())
        });
        Known { at: now, requests: requests.into_iter().collect(), partitions }
    }

    /// Returns the estimated effects of other cache sizes, over all servers. Each server measures
    /// its own cache, as a node does. Slopes of hit ratios, for which a node simulates two further
    /// caches, are computed from the miss ratio curves here.
    fn estimates(&mut self, needs: &Needs, nodes: &[Node<Key>]) -> Vec<Merged> {
        if !needs_curves(needs) {
            return vec![Merged::default(); self.partitions.len()];
        }
        let names: Vec<String> = self.partitions.all().map(|partition| partition.0.to_string()).collect();
        let report = |(number, node): (usize, &Node<Key>)| {
            let caches = self.partitions.all().map(|partition| node.report(partition));
            NodeReport {
                node: name(number),
                partitions: names.iter().cloned().zip(caches).collect(),
                deadlines: BTreeMap::new(),
            }
        };
        let reports: Vec<NodeReport> = nodes.iter().enumerate().map(report).collect();
        let partitions: Vec<&str> = names.iter().map(String::as_str).collect();
        let names = MergedNames { partitions: &partitions, backends: &[] };
        let total_bytes = nodes.first().map_or(0, |node| node.cache.total_bytes());
        self.merger.merge(names, needs, total_bytes, &reports).partitions
    }
}

/// Returns the name of a server in reports. Curves are averaged in the order of names.
fn name(server: usize) -> String {
    format!("{server:05}")
}

/// True if a policy with these needs uses miss ratio curves.
pub(crate) fn needs_curves(needs: &Needs) -> bool {
    needs.shadow_ratio.is_some() || needs.miss_ratio_curves || needs.hit_ratio_slope
}
