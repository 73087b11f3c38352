//! Statistics, decisions on them, and observations of the SLO.

use std::sync::Arc;
use std::time::Duration;

use sherwood_control::{CacheSeen, Seen};
use sherwood_model::{BackendId, Instant};
use sherwood_policy::{MissRatioCurve, Needs};

use super::{Event, OneRf, World};
use crate::backend::left_of;
use crate::key::Key;
use crate::record::Backlog;
use crate::statistics::{Known, needs_curves, node_report};
use crate::world::Node;

const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Time between the servers' report and the controllers' reading of the statistics.
const ASK_AFTER: Duration = Duration::from_millis(500);

impl World {
    pub(super) fn begin_rounds(&mut self) {
        self.schedule(Instant::ZERO + REPORT_EVERY, Event::Report);
        let delta = self.family.setup.knobs.control.delta;
        self.schedule(Instant::ZERO + delta + ASK_AFTER, Event::Ask);
        self.schedule(self.family.recorder.due(), Event::Observe);
    }

    /// Makes every server report the last second.
    pub(super) fn report(&mut self) {
        let (now, partitions, needs) = (self.now, self.family.partitions, self.needs());
        let mut sums = vec![(0, 0); partitions.len()];
        for index in 0..self.nodes.len() {
            let OneRf { statistics, exchange, reports, .. } = &mut self.family;
            let (node, report) = (&self.nodes[index], &mut reports[index]);
            statistics.receive(now, report);
            let usage = partitions.all().map(|partition| node.cache.usage(partition));
            let counts: Vec<_> = usage.map(|usage| (usage.hits, usage.misses)).collect();
            for ((hits, misses), (more_hits, more_misses)) in sums.iter_mut().zip(&counts) {
                (*hits, *misses) = (*hits + more_hits, *misses + more_misses);
            }
            if let Some(exchange) = exchange {
                let cache = node_report(index, node, partitions, needs_curves(&needs));
                exchange.send(now, index, report, counts, cache);
            }
            report.clear();
            self.go_on_resizing(index);
        }
        self.family.statistics.count(sums);
        if let Some(exchange) = &mut self.family.exchange {
            exchange.publish(now, &needs, self.nodes[0].cache.total_bytes());
        }
        self.schedule(now + REPORT_EVERY, Event::Report);
    }

    pub(super) fn ask_statistics(&mut self) {
        let (now, needs) = (self.now, self.needs());
        let OneRf { statistics, exchange, partitions, told, .. } = &mut self.family;
        told.push_back(match exchange {
            Some(exchange) => exchange.known(now, &needs, &self.nodes, partitions.backends()),
            None => {
                let requests = statistics.requests(now, &needs).into_iter().collect();
                let partitions = statistics.partitions(now, &needs, self.nodes.iter().enumerate());
                let known = Arc::new(Known { at: now, requests, partitions });
                vec![known; self.nodes.len()]
            }
        });
        match self.family.setup.knobs.stale {
            Duration::ZERO => self.decide_all(),
            age => self.schedule(self.now + age, Event::Decide),
        }
        self.schedule(self.now + self.family.setup.knobs.control.delta, Event::Ask);
    }

    /// Makes every server decide, on the statistics that it read and the usage of its own cache.
    pub(super) fn decide_all(&mut self) {
        let Some(told) = self.family.told.pop_front() else { return };
        for (index, known) in told.iter().enumerate() {
            let seen = seen(&self.nodes[index], known);
            let acts = self.decide(index, Seen { cache: Some(seen), ..Seen::default() });
            self.carry_out(index, acts);
        }
    }

    /// The observations that decisions need; the same ones on all servers, which have one policy.
    fn needs(&self) -> Needs {
        self.nodes[0].control.levels().needs()
    }

    pub(super) fn observe(&mut self) {
        let family = &mut self.family;
        let backends = (0..family.backends.len()).map(BackendId::from_index);
        let limit = |backend| {
            left_of(self.servers.replicas(backend), |replica| family.limit(self.now, backend, replica))
        };
        let limits = backends.clone().map(limit).collect();
        let waiting = backends.map(|backend| self.servers.waiting(backend)).collect();
        let query_p99 = family.statistics.query_p99(self.now);
        let stands_for = f64::from(family.setup.knobs.sample);
        let backlog = Backlog { limits, waiting, query_p99, stands_for };
        family.recorder.observe(self.now, &self.nodes, backlog);
        self.schedule(self.family.recorder.due(), Event::Observe);
    }
}

/// Returns the input of a server's control loop: the statistics that it read and the usage of its
/// own cache.
fn seen(node: &Node<Key>, known: &Known) -> CacheSeen {
    let needs = node.control.levels().needs();
    let mut seen = CacheSeen { requests: known.requests.clone(), ..node.cache_seen(known.at) };
    for (own, known) in seen.partitions.iter_mut().zip(&known.partitions) {
        let slope = |curve: &MissRatioCurve| curve.hit_ratio_slope(own.allocated_bytes, seen.total_bytes);
        let look_ups = &known.look_ups;
        let curve = &look_ups.curve;
        own.hit_ratio_slope = curve.as_ref().filter(|_| needs.hit_ratio_slope).map(slope);
        own.miss_ratio_curve = curve.clone().filter(|_| needs.miss_ratio_curves);
        (own.hits, own.misses) = (look_ups.hits, look_ups.misses);
        own.query_p99 = known.query_p99;
        own.shadow_hits = look_ups.shadow_hits;
        own.miss_latency.clone_from(&known.miss_latency);
    }
    seen
}
