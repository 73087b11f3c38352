//! Statistics, decisions on them, and observations of the SLO.

use std::time::Duration;

use sherwood_control::{CacheSeen, Seen};
use sherwood_model::{BackendId, Instant};
use sherwood_policy::MissRatioCurve;

use super::{Event, World};
use crate::backend::left_of;
use crate::key::Key;
use crate::record::Backlog;
use crate::statistics::Known;
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

    pub(super) fn report(&mut self) {
        let mut counts = vec![(0, 0); self.family.partitions.len()];
        for index in 0..self.nodes.len() {
            self.family.statistics.receive(self.now, &mut self.family.reports[index]);
            let seen = self.nodes[index].cache_seen(self.now);
            for (partition, (hits, misses)) in seen.partitions.iter().zip(&mut counts) {
                (*hits, *misses) = (*hits + partition.hits, *misses + partition.misses);
            }
            self.go_on_resizing(index);
        }
        self.family.statistics.count(counts);
        self.schedule(self.now + REPORT_EVERY, Event::Report);
    }

    pub(super) fn ask_statistics(&mut self) {
        // All servers have the same policy and thus the same needs.
        let needs = self.nodes[0].control.levels().needs();
        let known = self.family.statistics.known(self.now, &needs, &self.nodes);
        self.family.told.push_back(known);
        match self.family.setup.knobs.stale {
            Duration::ZERO => self.decide_all(),
            age => self.schedule(self.now + age, Event::Decide),
        }
        self.schedule(self.now + self.family.setup.knobs.control.delta, Event::Ask);
    }

    /// Makes every server decide, on the statistics of all servers and the usage of its own cache.
    pub(super) fn decide_all(&mut self) {
        let Some(known) = self.family.told.pop_front() else { return };
        for index in 0..self.nodes.len() {
            let seen = seen(&self.nodes[index], &known);
            let acts = self.decide(index, Seen { cache: Some(seen), ..Seen::default() });
            self.carry_out(index, acts);
        }
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

/// Returns the input of a server's control loop: the statistics of all servers and the usage of its
/// own cache.
fn seen(node: &Node<Key>, known: &Known) -> CacheSeen {
    let needs = node.control.levels().needs();
    let mut seen = CacheSeen { requests: known.requests.clone(), ..node.cache_seen(known.at) };
    for (own, known) in seen.partitions.iter_mut().zip(&known.partitions) {
        let slope = |curve: &MissRatioCurve| curve.hit_ratio_slope(own.allocated_bytes, seen.total_bytes);
        let curve = &known.estimates.curve;
        own.hit_ratio_slope = curve.as_ref().filter(|_| needs.hit_ratio_slope).map(slope);
        own.miss_ratio_curve = curve.clone().filter(|_| needs.miss_ratio_curves);
        (own.hits, own.misses) = known.counts;
        own.query_p99 = known.query_p99;
        own.shadow_hits = known.estimates.shadow_hits;
        own.miss_latency.clone_from(&known.miss_latency);
    }
    seen
}
