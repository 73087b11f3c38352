//! `fair`: equal miss ratios for all backends.
//!
//! Between backends that share no objects, fairness means that none misses more than the others for
//! lack of space. That suits customers who pay equally, but not a latency tail: space goes to
//! objects that cannot be cached, and is taken from partitions that hit easily and that every
//! request reads.
//!
//! Two methods: `feedback` needs only hits and misses, and gives each round's pool to the
//! partitions that hit less than the mean. `waterfill` uses the miss ratio curves: it finds the
//! lowest miss ratio that all partitions can reach together, except those that cannot reach it at
//! any size, and divides the remaining space equally.
//!
//! After Pu, Li, Zaharia, Ghodsi, Stoica: *FairRide*, NSDI 2016, which reduces to max-min fairness
//! if nothing is shared, and Brock, Ye, Ding, Li, Wang, Luo: *Optimal Cache Partition-Sharing*,
//! ICPP 2015; the policies with which RobinHood's paper compares.

use super::hit_ratio;
use crate::share::share_equally;
use crate::{
    Aim, Claims, FairMode, Kept, MissRatioCurve, Needs, Options, Policy, Proposal, Reason, Signal, Target,
    View,
};

/// Bisection steps in the search for the miss ratio that all partitions can reach: a finer result
/// than the precision of any curve.
const HALVINGS: u32 = 40;

/// Allocation that makes the partitions' miss ratios equal.
#[derive(Clone)]
pub(crate) struct Fair {
    mode: FairMode,
}

impl Fair {
    pub(crate) fn new(options: &Options) -> Self {
        Self { mode: options.fair.mode }
    }
}

impl Policy for Fair {
    fn name(&self) -> &'static str {
        "fair"
    }

    fn needs(&self) -> Needs {
        let miss_ratio_curves = self.mode == FairMode::Waterfill;
        Needs { look_ups: true, miss_ratio_curves, ..Needs::default() }
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        match self.mode {
            FairMode::Feedback => feedback(view),
            FairMode::Waterfill => waterfill(view),
        }
    }
}

fn feedback(view: &View<'_>) -> Proposal {
    let ratios: Vec<Option<f64>> = view.seen.partitions.iter().map(|seen| seen.hit_ratio()).collect();
    let weights = hit_ratio::weights(&ratios, &vec![true; ratios.len()]);
    let signal = Signal { before: "", after: " of what is missing to the mean hit ratio" };
    Proposal::Claims(Claims { weights, unfilled: Vec::new(), signal })
}

fn waterfill(view: &View<'_>) -> Proposal {
    // A partition without a curve keeps its budget, and the others share the rest.
    let curves: Vec<Option<&MissRatioCurve>> =
        view.seen.partitions.iter().map(|seen| seen.miss_ratio_curve.as_ref()).collect();
    if curves.iter().flatten().next().is_none() {
        return Proposal::Keep(Kept::NotMeasured);
    }
    let kept: u128 = curves
        .iter()
        .zip(view.budgets)
        .filter(|(curve, _)| curve.is_none())
        .map(|(_, &bytes)| u128::from(bytes))
        .sum();
    let known: Vec<&MissRatioCurve> = curves.iter().flatten().copied().collect();
    let total = u64::try_from(u128::from(view.total_bytes).saturating_sub(kept)).unwrap_or(0);
    let mut levelled = levelled(&known, total).into_iter();
    let budgets: Vec<u64> = curves
        .iter()
        .zip(view.budgets)
        .map(|(curve, &bytes)| if curve.is_some() { levelled.next().unwrap_or(bytes) } else { bytes })
        .collect();
    let reason = |(curve, (&now, &then)): (&Option<&MissRatioCurve>, (&u64, &u64))| match curve {
        Some(curve) => aim(curve, now, then),
        None => Reason::Planned,
    };
    let reasons = curves.iter().zip(view.budgets.iter().zip(&budgets)).map(reason).collect();
    Proposal::Toward(Target { budgets, reasons })
}

fn aim(curve: &MissRatioCurve, now: u64, then: u64) -> Reason {
    let percent = |bytes| curve.at(bytes) * 100.0;
    Reason::Aim(Aim { what: "misses", now: percent(now), then: percent(then), unit: "%" })
}

/// Returns the sizes at which every curve is at the lowest miss ratio that all can reach together
/// in `total` bytes, or at its own minimum if that is higher; the remaining bytes are divided
/// equally. O(n log points).
pub(super) fn levelled(curves: &[&MissRatioCurve], total: u64) -> Vec<u64> {
    let sizes = |level: f64| -> Vec<u64> {
        // `level` is raised to the curve's minimum, for which a size exists.
        curves.iter().map(|curve| curve.bytes_for(level.max(curve.least())).unwrap_or(0)).collect()
    };
    let needed = |sizes: &[u64]| crate::bounds::sum(sizes);
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let level = (low + high) / 2.0;
        if needed(&sizes(level)) <= total.into() { high = level } else { low = level }
    }
    // `high` always fits: a miss ratio of 1 needs no bytes.
    let least = sizes(if needed(&sizes(0.0)) <= total.into() { 0.0 } else { high });
    let left = u128::from(total).saturating_sub(needed(&least));
    let caps: Vec<u64> = least.iter().map(|bytes| u64::MAX - bytes).collect();
    crate::bounds::add(&least, &share_equally(left, &caps))
}
