//! Quantities that the paper reports.

use serde::Serialize;
use sherwood_sim::LimitLine;

use crate::sim::onerf::kept::Kept;

/// A quantity that can be computed from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::sim) enum Measure {
    /// Share of the observations of the SLO with P99 above the bound.
    SloViolation,
    /// Share of the observations of the SLO with P90 above 50 ms.
    P90Above50Ms,
    /// Largest P99 at an observation of the SLO.
    P99Max,
    /// Share of slow requests blocked by the backend that blocked most, at the largest of minutes
    /// 50, 100 and 150.
    DominantRbcAt,
    /// Mean share of slow requests blocked by the backend that blocked most.
    DominantRbcMean,
    /// Largest share of slow requests blocked by the backend that blocked most.
    DominantRbcMax,
    /// Largest P99 in a spike divided by RobinHood's in the same spike, for the spike with the
    /// largest quotient.
    P99AgainstRobinhood,
    /// Cache size that a constant division would need, as a multiple of the actual size.
    StaticEquivalent,
}

/// The unit of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::sim) enum Unit {
    /// A share from 0 to 1.
    Ratio,
    Ms,
    /// A factor, such as 1.5×.
    Times,
}

/// The paper's bound on P90.
const P90_MS: f64 = 50.0;
/// Number of minutes at which the paper reports the shares of blocked requests.
const BLOCKING_TIMES: usize = 3;

impl Measure {
    /// Computes the quantity for the run `own`. `robinhood` is the run of that policy with the same
    /// seed, if there is one.
    pub(super) fn of(self, own: &Kept, robinhood: Option<&Kept>, limits: &[LimitLine]) -> Option<f64> {
        let results = &own.outcome.results;
        let dominant = &results.dominant_rbc;
        match self {
            Self::SloViolation => Some(results.slo_violation_ratio),
            Self::P90Above50Ms => above(&own.observed.p90_ms, P90_MS),
            Self::P99Max => Some(results.p99_max_ms),
            Self::DominantRbcAt => {
                (dominant.at.len() == BLOCKING_TIMES).then(|| dominant.at.iter().copied().fold(0.0, f64::max))
            }
            Self::DominantRbcMean => Some(dominant.mean),
            Self::DominantRbcMax => Some(dominant.max),
            Self::P99AgainstRobinhood => {
                let robinhood = robinhood?;
                let ratio = |spike: (f64, f64)| Some(worst(own, spike)? / worst(robinhood, spike)?);
                spikes(limits).into_iter().filter_map(ratio).max_by(f64::total_cmp)
            }
            Self::StaticEquivalent => Some(results.static_equivalent_ratio),
        }
    }

    pub(in crate::sim) const fn unit(self) -> Unit {
        match self {
            Self::P99Max => Unit::Ms,
            Self::P99AgainstRobinhood | Self::StaticEquivalent => Unit::Times,
            Self::SloViolation
            | Self::P90Above50Ms
            | Self::DominantRbcAt
            | Self::DominantRbcMean
            | Self::DominantRbcMax => Unit::Ratio,
        }
    }

    pub(in crate::sim) const fn words(self) -> &'static str {
        match self {
            Self::SloViolation => "P99 above the SLO",
            Self::P90Above50Ms => "P90 above 50 ms",
            Self::P99Max => "worst P99",
            Self::DominantRbcAt => "one backend's blocking, min. 50, 100, 150",
            Self::DominantRbcMean => "one backend's blocking, on average",
            Self::DominantRbcMax => "one backend's blocking, at some time",
            Self::P99AgainstRobinhood => "P99 over robinhood's, in some spike",
            Self::StaticEquivalent => "space if allocations never changed",
        }
    }
}

impl Unit {
    /// Formats a value; one computed by us, not stated by the paper, gets more digits.
    pub(super) fn words(self, value: f64, ours: bool) -> String {
        match (self, ours) {
            (Self::Ratio, true) => format!("{:.2}%", value * 100.0),
            (Self::Ratio, false) => format!("{}%", (value * 1e3).round() / 10.0),
            (Self::Ms, _) => format!("{value:.0} ms"),
            (Self::Times, true) => format!("{value:.2}×"),
            (Self::Times, false) => format!("{value}×"),
        }
    }
}

/// Share of the values above `bound`; none without values.
fn above(values: &[Option<f64>], bound: f64) -> Option<f64> {
    let seen: Vec<f64> = values.iter().flatten().copied().collect();
    let above = seen.iter().filter(|&&value| value > bound).count();
    (!seen.is_empty()).then(|| above as f64 / seen.len() as f64)
}

/// Largest P99 observed between two minutes.
fn worst(run: &Kept, (from, to): (f64, f64)) -> Option<f64> {
    let seen = run.observed.minute.iter().zip(&run.observed.p99_ms);
    let within = seen.filter(|&(&minute, _)| from <= minute && minute <= to);
    within.filter_map(|(_, p99)| *p99).max_by(f64::total_cmp)
}

/// Periods during which at least one backend is limited.
pub(super) fn spikes(limits: &[LimitLine]) -> Vec<(f64, f64)> {
    let points = limits.first().map_or(0, |line| line.points.len());
    let limited = |point: usize| limits.iter().any(|line| line.points[point].1 < 1.0);
    let mut spikes: Vec<(f64, f64)> = Vec::new();
    let mut within = false;
    for point in 0..points {
        let minute = limits[0].points[point].0;
        match spikes.last_mut().filter(|_| within) {
            Some(spike) if limited(point) => spike.1 = minute,
            None if limited(point) => spikes.push((minute, minute)),
            _ => {}
        }
        within = limited(point);
    }
    spikes
}
