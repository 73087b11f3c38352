//! RobinHood: memory for the backends that make slow requests slow.
//!
//! A request is as slow as its slowest query. So of the requests in a band around the 99th
//! percentile one asks which backend's query came last, and counts: the request blocking count.
//! Memory goes where the count is, because only there can a hit make a slow request faster. Neither
//! popularity, nor query latency, nor hit ratio tells that: a slow backend that few requests wait
//! for blocks nobody.
//!
//! Berger, Berg, Zhu, Sen, Harchol-Balter: *RobinHood: Tail Latency Aware Caching*, OSDI 2018,
//! section 4. The band is not "everything above the 99th percentile", since the extreme outliers
//! would stay outliers whatever is done.
//!
//! What the paper leaves open, and the answer here: shares are rounded by largest remainder, ties
//! to the lower id; where several tenants have a partition of one backend, the backend's count is
//! shared over them in proportion to their queries in the window (equally when none had any),
//! before those that are not filled lose their claim.

use sherwood_model::Band;

use super::Fill;
use crate::{Needs, Observation, Options, PartitionSeen, Policy, Proposal, Signal, View};

/// The words of a blocking count.
const BLOCKED: Signal = Signal { before: "blocked ", after: " of the slow requests" };

/// The slowest hundredth, outliers included.
const TOP: Band = Band { low: 99.0, high: 100.0 };

/// What the old average keeps each round in `crit_smooth`.
const SMOOTH_OLD: f64 = 0.7;

/// Weights are the blocking counts of one band.
#[derive(Clone)]
pub(crate) struct Critical {
    name: &'static str,
    band: Band,
    fill: Fill,
}

impl Critical {
    /// `robinhood`: the paper's loop.
    pub(crate) fn robinhood(options: &Options) -> Self {
        Self { name: "robinhood", band: options.band, fill: Fill::robinhood(options) }
    }

    /// `crit_path`: the slowest hundredth, as the authors' example configuration runs it.
    pub(crate) fn path(options: &Options) -> Self {
        Self { name: "crit_path", band: TOP, fill: Fill::critical(options) }
    }

    /// `crit_path_window`: the paper's band always, whatever the options say. It differs from
    /// `robinhood` only for partitions that use two pages or less: those are not held to have room
    /// left.
    pub(crate) fn window(options: &Options) -> Self {
        Self { name: "crit_path_window", band: Band::TAIL, fill: Fill::critical(options) }
    }

    /// `crit_path_small_window`: half of the paper's band.
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

/// `crit_smooth`: an exponential average of the paper's band, forgotten while a partition has room
/// left to fill.
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

/// `crit_path_w_delta`: blocking counts of the slowest hundredth times what a byte would add to the
/// hit ratio.
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

/// Blocking counts per partition: each backend's count over its partitions, by their queries.
pub(super) fn blocking_weights(seen: &Observation, band: Band) -> Vec<f64> {
    let counts = seen.blocking(band);
    let backends = seen.partitions.iter().map(|partition| partition.backend.index() + 1).max().unwrap_or(0);
    let mut queries = vec![0_u128; backends];
    let mut partitions = vec![0_u32; backends];
    for partition in &seen.partitions {
        queries[partition.backend.index()] += u128::from(partition.queries);
        partitions[partition.backend.index()] += 1;
    }
    let weight = |partition: &PartitionSeen| {
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
