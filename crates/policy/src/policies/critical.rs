//! RobinHood: memory goes to the backends that make slow requests slow.
//!
//! A request is as slow as its slowest query. For the requests in a band around the 99th
//! percentile, the policy counts for each backend how often its query ended last: the request
//! blocking count. Memory is allocated in proportion to this count, because only there can a hit
//! make a slow request faster. Popularity, query latency and hit ratio do not show this: a slow
//! backend need not block any request.
//!
//! Berger, Berg, Zhu, Sen, Harchol-Balter: *RobinHood: Tail Latency Aware Caching*, OSDI 2018,
//! section 4. The band excludes the most extreme outliers, which no allocation makes faster.
//!
//! Cases that the paper leaves open: shares are rounded by largest remainder, ties to the lower id;
//! if several tenants have a partition of one backend, the backend's count is divided among them in
//! proportion to their queries in the window (equally if none had any), before unfilled partitions
//! lose their claim.

use sherwood_model::Band;

use super::Fill;
use crate::{Needs, Observation, Options, PartitionObservation, Policy, Proposal, Signal, View};

/// Words around a percentage in the log: a partition's share of the request blocking counts.
const BLOCKED: Signal = Signal { before: "blocked ", after: " of the slow requests" };

/// Percentile band of the slowest hundredth of the requests, outliers included.
const TOP: Band = Band { low: 99.0, high: 100.0 };

/// Weight of the old average of blocking counts in each round of `crit_smooth`.
const SMOOTH_OLD: f64 = 0.7;

/// Policies whose weights are the request blocking counts of one percentile band.
#[derive(Clone)]
pub(crate) struct Critical {
    name: &'static str,
    band: Band,
    fill: Fill,
}

impl Critical {
    /// Returns policy `robinhood`: the algorithm of the RobinHood paper.
    pub(crate) fn robinhood(options: &Options) -> Self {
        Self { name: "robinhood", band: options.band, fill: Fill::robinhood(options) }
    }

    /// `crit_path`: the slowest hundredth, as in the authors' example configuration.
    pub(crate) fn path(options: &Options) -> Self {
        Self { name: "crit_path", band: TOP, fill: Fill::critical(options) }
    }

    /// `crit_path_window`: always the paper's band, whatever the options say. It differs from
    /// `robinhood` otherwise only for partitions that use two pages or less, which never count as
    /// unfilled.
    pub(crate) fn window(options: &Options) -> Self {
        Self { name: "crit_path_window", band: Band::TAIL, fill: Fill::critical(options) }
    }

    /// Returns policy `crit_path_small_window`, which counts requests in the upper half of the
    /// paper's percentile band.
    pub(crate) fn small_window(options: &Options) -> Self {
        let band = Band { low: 99.0, high: 99.5 };
        Self { name: "crit_path_small_window", band, fill: Fill::critical(options) }
    }
}

impl Policy for Critical {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> Needs {
        needs(self.band)
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        let weights = blocking_weights(view.seen, self.band);
        Proposal::Claims(self.fill.claims(view, weights, BLOCKED))
    }
}

/// `crit_smooth`: an exponential average of the blocking counts of the paper's band, reset to zero
/// while a partition is unfilled.
#[derive(Clone)]
pub(crate) struct CriticalSmooth {
    fill: Fill,
    averages: Vec<f64>,
}

impl CriticalSmooth {
    pub(crate) fn new(options: &Options) -> Self {
        Self { fill: Fill::critical(options), averages: Vec::new() }
    }
}

impl Policy for CriticalSmooth {
    fn name(&self) -> &'static str {
        "crit_smooth"
    }

    fn needs(&self) -> Needs {
        needs(Band::TAIL)
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        let counts = blocking_weights(view.seen, Band::TAIL);
        self.averages.resize(counts.len(), 0.0);
        for (average, count) in self.averages.iter_mut().zip(counts) {
            *average = smooth(*average, count);
        }
        let signal = Signal { before: "blocked ", after: " of the slow requests of late" };
        let claims = self.fill.claims(view, self.averages.clone(), signal);
        self.averages.clone_from(&claims.weights);
        Proposal::Claims(claims)
    }
}

/// `crit_path_w_delta`: blocking counts of the slowest hundredth times the hit ratio gained per
/// byte.
#[derive(Clone)]
pub(crate) struct CriticalSlope {
    fill: Fill,
}

impl CriticalSlope {
    pub(crate) fn new(options: &Options) -> Self {
        Self { fill: Fill::critical(options) }
    }
}

impl Policy for CriticalSlope {
    fn name(&self) -> &'static str {
        "crit_path_w_delta"
    }

    fn needs(&self) -> Needs {
        Needs { hit_ratio_slope: true, ..needs(TOP) }
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        let counts = blocking_weights(view.seen, TOP);
        let slopes = view.seen.partitions.iter().map(|seen| seen.hit_ratio_slope.unwrap_or(0.0));
        let weights = counts.into_iter().zip(slopes).map(|(count, slope)| count * slope).collect();
        let signal = Signal { before: "", after: " of the blocking that a byte would relieve" };
        Proposal::Claims(self.fill.claims(view, weights, signal))
    }
}

pub(super) fn smooth(old: f64, new: f64) -> f64 {
    SMOOTH_OLD * old + (1.0 - SMOOTH_OLD) * new
}

fn needs(band: Band) -> Needs {
    Needs { requests: true, bands: vec![band], ..Needs::default() }
}

/// Request blocking counts per partition: each backend's count divided among its partitions by
/// their queries.
pub(super) fn blocking_weights(seen: &Observation, band: Band) -> Vec<f64> {
    let counts = seen.blocking(band);
    let backends = seen.partitions.iter().map(|partition| partition.backend.index() + 1).max().unwrap_or(0);
    let mut queries = vec![0_u128; backends];
    let mut partitions = vec![0_u32; backends];
    for partition in &seen.partitions {
        queries[partition.backend.index()] += u128::from(partition.queries);
        partitions[partition.backend.index()] += 1;
    }
    let weight = |partition: &PartitionObservation| {
        let backend = partition.backend.index();
        let count = counts.get(backend).copied().unwrap_or(0) as f64;
        match (queries[backend], partitions[backend]) {
            (_, 1) => count,
            (0, several) => count / f64::from(several),
            (all, _) => count * (partition.queries as f64 / all as f64),
        }
    };
    seen.partitions.iter().map(weight).collect()
}
