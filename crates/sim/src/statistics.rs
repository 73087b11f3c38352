//! Statistics of application servers, collected from their reports for their controllers.
//!
//! The servers of RobinHood share only these statistics: once a second each reports its finished
//! requests and queries, and each controller reads the totals before it decides. So a decision is
//! based on statistics up to a second old, and the inputs of two servers differ only in the
//! contents of their caches.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_control::{CacheReport, Merged, MergedNames, Merger, Report as NodeReport};
use sherwood_model::{FinishedRequest, Instant, LatencyWindow, RequestSnapshot};
pub(crate) use sherwood_path::LatencyGroup;
use sherwood_policy::{MissLatency, Needs, Observation, RequestLog};

use crate::key::Key;
use crate::partitions::Partitions;
use crate::world::Node;

/// Requests and queries of one server since its last report; emptied once a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) requests: Vec<(Instant, FinishedRequest)>,
    pub(crate) queries: Vec<(Instant, LatencyGroup)>,
}

impl Report {
    pub(crate) fn clear(&mut self) {
        let Self { requests, queries } = self;
        requests.clear();
        queries.clear();
    }
}

/// Statistics of all servers, or of one.
#[derive(Clone, Debug)]
pub(crate) struct Statistics {
    partitions: Partitions,
    log: RequestLog,
    /// Latencies of queries; empty unless the policy needs them.
    queries: Vec<LatencyWindow>,
    /// Latencies of misses; empty unless the policy needs them.
    misses: Vec<LatencyWindow>,
    merger: Merger,
    /// Hits and misses of each partition since the start, as last reported.
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
    /// Hits and misses since the start, and estimated effects of other cache sizes.
    pub(crate) look_ups: Merged,
    /// 99th percentile of the latency of queries to the partition's backend; none without queries.
    pub(crate) query_p99: Option<Duration>,
    /// Latency of misses at the partition's backend; none if the policy does not need it.
    pub(crate) miss_latency: Option<MissLatency>,
}

impl Statistics {
    /// Returns empty statistics of `servers` servers, which a policy with these `needs` requires.
    pub(crate) fn new(
        partitions: Partitions,
        servers: u32,
        slo_window: Duration,
        rbc_window: Duration,
        needs: &Needs,
    ) -> Self {
        let windows = |needed: bool| {
            let backends = if needed { partitions.backends() } else { 0 };
            vec![LatencyWindow::new(rbc_window); backends]
        };
        Self {
            partitions,
            log: RequestLog::new(slo_window, rbc_window),
            queries: windows(needs.query_p99),
            misses: windows(needs.miss_latency),
            merger: Merger::of_new((0..servers as usize).map(name)),
            counts: vec![(0, 0); partitions.len()],
        }
    }

    /// Records one server's report.
    pub(crate) fn receive(&mut self, now: Instant, report: &Report) {
        for &(at, request) in &report.requests {
            self.log.record(now, at, request);
        }
        for &(at, LatencyGroup { backend, latency, hits, keys }) in &report.queries {
            if let Some(queries) = self.queries.get_mut(backend.index()) {
                queries.record_times(at, latency, keys);
            }
            if let Some(misses) = self.misses.get_mut(backend.index()) {
                misses.record_times(at, latency, keys - hits);
            }
        }
    }

    /// Sets the hits and misses of each partition since the start, over the servers.
    pub(crate) fn count(&mut self, counts: Vec<(u64, u64)>) {
        self.counts = counts;
    }

    /// Returns the 99th percentile of the latency of queries to each backend in the window of
    /// requests used for decisions; none without queries, or if the policy does not need it.
    pub(crate) fn query_p99(&self, now: Instant) -> Vec<Option<Duration>> {
        let mut each: Vec<_> = self.queries.iter().map(|window| window.sketch(now).quantile(0.99)).collect();
        each.resize(self.partitions.backends(), None);
        each
    }

    /// Returns the finished requests on which decisions at `now` are based; none if the policy does
    /// not need them.
    pub(crate) fn requests(&self, now: Instant, needs: &Needs) -> Option<Observation> {
        needs.requests.then(|| {
            let finished = RequestSnapshot::from(self.log.for_decision(now));
            Observation::of_requests(&finished, needs, self.partitions.backends())
        })
    }

    /// Returns the partitions for decisions at `now`, for the caches of these nodes, each with its
    /// number.
    pub(crate) fn partitions<'a>(
        &mut self,
        now: Instant,
        needs: &Needs,
        nodes: impl IntoIterator<Item = (usize, &'a Node<Key>)>,
    ) -> Vec<KnownPartition> {
        let estimates = self.estimates(needs, nodes);
        let query_p99 = self.query_p99(now);
        let miss_latency = |window: &LatencyWindow| MissLatency::of(&window.sketch(now));
        let miss_latencies: Vec<_> = self.misses.iter().map(miss_latency).collect();
        let known = |((partition, &(hits, misses)), estimates): ((_, _), _)| {
            let backend = self.partitions.pair(partition).1.index();
            let miss_latency = miss_latencies.get(backend).cloned().flatten();
            let look_ups = Merged { hits, misses, ..estimates };
            KnownPartition { look_ups, query_p99: query_p99[backend], miss_latency }
        };
        self.partitions.all().zip(&self.counts).zip(estimates).map(known).collect()
    }

    /// Returns the estimated effects of other cache sizes, over these nodes. Each measures its own
    /// cache. Slopes of hit ratios, for which a node simulates two further caches, are computed
    /// from the miss ratio curves here.
    fn estimates<'a>(
        &mut self,
        needs: &Needs,
        nodes: impl IntoIterator<Item = (usize, &'a Node<Key>)>,
    ) -> Vec<Merged> {
        if !needs_curves(needs) {
            return vec![Merged::default(); self.partitions.len()];
        }
        let mut total_bytes = 0;
        let report = |(number, node): (usize, &Node<Key>)| {
            total_bytes = node.cache.total_bytes();
            node_report(number, node, self.partitions, true)
        };
        let reports: Vec<NodeReport> = nodes.into_iter().map(report).collect();
        let names = names(self.partitions);
        let partitions: Vec<&str> = names.iter().map(String::as_str).collect();
        let names = MergedNames { partitions: &partitions, backends: &[] };
        self.merger.merge(names, needs, total_bytes, &reports).partitions
    }
}

/// Returns the report of a server's cache, with curves or without.
pub(crate) fn node_report(
    server: usize,
    node: &Node<Key>,
    partitions: Partitions,
    has_curves: bool,
) -> NodeReport {
    let cache = |partition| {
        if has_curves {
            return node.report(partition);
        }
        let usage = node.cache.usage(partition);
        CacheReport { budget_bytes: usage.budget_bytes, hits: usage.hits, misses: usage.misses, curve: None }
    };
    NodeReport {
        node: name(server),
        partitions: names(partitions).into_iter().zip(partitions.all().map(cache)).collect(),
        deadlines: BTreeMap::new(),
    }
}

/// Returns the names of the partitions in reports.
pub(crate) fn names(partitions: Partitions) -> Vec<String> {
    partitions.all().map(|partition| partition.0.to_string()).collect()
}

/// Returns the name of a server in reports. Curves are averaged in the order of names.
pub(crate) fn name(server: usize) -> String {
    format!("{server:05}")
}

/// True if a policy with these needs uses miss ratio curves.
pub(crate) fn needs_curves(needs: &Needs) -> bool {
    needs.shadow_ratio.is_some() || needs.miss_ratio_curves || needs.hit_ratio_slope
}
