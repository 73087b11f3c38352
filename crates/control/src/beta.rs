//! The choice of β for a wanted share of missed deadlines.

use serde::{Deserialize, Serialize};
use sherwood_model::Percent;

/// Chooses the percentile of latencies that estimates take (β), so that a given share of deadlines
/// is missed.
///
/// A greater β assumes longer calls, and so rejects more and misses less; by how much depends on
/// the load. The controller looks at the deadlines of an interval and multiplies what β leaves out
/// (100% − β) by the fourth root of the ratio of the wanted share to the observed one: by at least
/// a half, since missed deadlines are to end soon, and at most 1.1, since few of them in one
/// interval may be chance. Near saturation the observed share grows with about the seventh power of
/// what β leaves out, so that the whole ratio would overshoot again and again. Within a tenth of
/// the wanted share it keeps β. While nothing is rejected it does not lower β: that would admit
/// nothing more now, and miss more deadlines in the next burst. It suggests 50% to 99.5%.
///
/// ```
/// use sherwood_control::{BetaController, DeadlineCounts};
/// use sherwood_model::{Percent, PercentError};
/// let controller = BetaController::new(Percent::new("target", 3.0)?);
/// let decision = controller.decide(Percent::BETA, &DeadlineCounts { met: 1_800, missed: 120, rejected: 80 });
/// assert_eq!(decision.beta, Percent::new("beta", 89.91)?);
/// assert_eq!(
///     decision.reason,
///     "6% of 2000 deadlines were missed, where 3% are wanted: beta rises from 88% to 89.91%"
/// );
/// # Ok::<(), PercentError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BetaController {
    target: Percent,
}

/// Requests with a deadline that ended within an interval, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineCounts {
    /// Requests that were answered by their deadline.
    pub met: u64,
    /// Requests that were answered later, or failed.
    pub missed: u64,
    /// Requests that were rejected, and so did not miss their deadline. A dispatcher counts them
    /// itself.
    pub rejected: u64,
}

impl DeadlineCounts {
    pub(crate) fn plus(&self, more: &Self) -> Self {
        Self {
            met: self.met.saturating_add(more.met),
            missed: self.missed.saturating_add(more.missed),
            rejected: self.rejected.saturating_add(more.rejected),
        }
    }

    fn total(&self) -> u64 {
        self.met.saturating_add(self.missed).saturating_add(self.rejected)
    }
}

/// The β for the next interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BetaDecision {
    /// The percentile, which may be the present one.
    pub beta: Percent,
    /// The reason, in words.
    pub reason: String,
}

impl BetaController {
    /// Returns a controller for this share of missed deadlines.
    #[must_use]
    pub const fn new(target: Percent) -> Self {
        Self { target }
    }

    /// Chooses the next β, after an interval with the present one.
    #[must_use]
    pub fn decide(&self, beta: Percent, seen: &DeadlineCounts) -> BetaDecision {
        let DeadlineCounts { missed, rejected, .. } = *seen;
        let (target, total) = (self.target, seen.total());
        if total < SEEN_MIN {
            let reason = format!("only {total} deadlines were seen, of {SEEN_MIN} needed: beta stays {beta}");
            return BetaDecision { beta, reason };
        }
        let ratio = missed as f64 / total as f64;
        let seen = format!(
            "{}% of {total} deadlines were missed, where {target} are wanted",
            (ratio * 10_000.0).round() / 100.0
        );
        if (ratio / target.ratio() - 1.0).abs() <= KEEP {
            return BetaDecision { beta, reason: format!("{seen}: beta stays {beta}") };
        }
        if rejected == 0 && ratio < target.ratio() {
            let reason = format!("{seen}, and none was rejected: beta stays {beta}");
            return BetaDecision { beta, reason };
        }
        let wanted = target.ratio() / ratio.max(f64::MIN_POSITIVE);
        let factor = wanted.sqrt().sqrt().clamp(FACTOR_MIN, FACTOR_MAX);
        let left = ((100.0 - beta.percent()) * factor).clamp(LEFT_MIN, LEFT_MAX);
        let next = Percent::new("beta", 100.0 - left).unwrap_or(beta);
        let change = match next.cmp(&beta) {
            std::cmp::Ordering::Greater => format!("beta rises from {beta} to {next}"),
            std::cmp::Ordering::Less => format!("beta falls from {beta} to {next}"),
            std::cmp::Ordering::Equal => format!("beta stays {beta}, its limit"),
        };
        BetaDecision { beta: next, reason: format!("{seen}: {change}") }
    }
}

/// Number of deadlines below which the share of missed ones is not evaluated.
const SEEN_MIN: u64 = 100;

/// Relative distance from the wanted share within which β stays. Chance alone moves a share of 3%
/// of ten thousand deadlines by about half as much.
const KEEP: f64 = 0.1;

/// β for the target of a dispatcher, from counts since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdaptiveBeta {
    controller: BetaController,
    /// The counts at the end of the latest interval.
    last: DeadlineCounts,
}

impl AdaptiveBeta {
    /// Returns the choice of β for this share of missed deadlines.
    pub(crate) const fn new(target: Percent) -> Self {
        Self {
            controller: BetaController::new(target),
            last: DeadlineCounts { met: 0, missed: 0, rejected: 0 },
        }
    }

    /// Chooses the next β, after `total` since the start with the present one last. An interval in
    /// which too few deadlines were seen goes on.
    pub(crate) fn decide(&mut self, beta: Percent, total: DeadlineCounts) -> BetaDecision {
        let DeadlineCounts { met, missed, rejected } = self.last;
        let seen = DeadlineCounts {
            met: total.met.saturating_sub(met),
            missed: total.missed.saturating_sub(missed),
            rejected: total.rejected.saturating_sub(rejected),
        };
        if seen.total() >= SEEN_MIN {
            self.last = total;
        }
        self.controller.decide(beta, &seen)
    }
}

/// Bounds of the factor by which what β leaves out changes.
const FACTOR_MIN: f64 = 0.5;
const FACTOR_MAX: f64 = 1.1;

/// Bounds of what β leaves out, in percent. Lower percentiles say little about long calls, and
/// higher ones are those of a handful of latencies.
const LEFT_MIN: f64 = 0.5;
const LEFT_MAX: f64 = 50.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(percent: f64) -> Percent {
        Percent::new("beta", percent).unwrap()
    }

    /// Deadlines of which one that was not missed was rejected, if there is one.
    fn counts(met: u64, missed: u64) -> DeadlineCounts {
        let rejected = met.min(1);
        DeadlineCounts { met: met - rejected, missed, rejected }
    }

    fn decide(beta: f64, met: u64, missed: u64) -> BetaDecision {
        BetaController::new(percent(3.0)).decide(percent(beta), &counts(met, missed))
    }

    #[test]
    fn beta_stays_while_few_deadlines_were_seen_or_the_share_is_about_right() {
        for (met, missed) in [(0, 0), (0, 99), (970, 30), (972, 28), (968, 32)] {
            let decision = decide(88.0, met, missed);
            assert_eq!(decision.beta, percent(88.0), "{decision:?}");
            assert!(decision.reason.ends_with("beta stays 88%"), "{decision:?}");
        }
    }

    #[test]
    fn beta_rises_quickly_falls_slowly_and_stops_at_its_limits() {
        assert_eq!(decide(88.0, 0, 1_000).beta, percent(94.0));
        assert_eq!(decide(88.0, 1_000, 0).beta, percent(86.8));
        assert_eq!(decide(88.0, 940, 60).beta, percent(89.91));
        for (start, met, missed, limit) in [(88.0, 0, 1_000, 99.5), (88.0, 1_000, 0, 50.0)] {
            let mut beta = start;
            for _ in 0..20 {
                beta = decide(beta, met, missed).beta.percent();
            }
            let last = decide(beta, met, missed);
            assert_eq!(last.beta, percent(limit));
            assert!(last.reason.ends_with("its limit"), "{last:?}");
        }
    }

    #[test]
    fn interval_goes_on_until_enough_deadlines_were_seen() {
        let mut adaptive = AdaptiveBeta::new(percent(3.0));
        let mut decide = |met, missed| adaptive.decide(percent(88.0), counts(met, missed)).beta;
        assert_eq!(decide(0, 99), percent(88.0));
        assert_eq!(decide(1, 99), percent(94.0), "100 since the start");
        assert_eq!(decide(1, 198), percent(88.0), "99 more");
        assert_eq!(decide(1_001, 199), percent(90.9), "an eleventh of 1,100 more");
    }

    #[test]
    fn beta_does_not_fall_while_nothing_is_rejected() {
        let counts = DeadlineCounts { met: 1_000, missed: 0, rejected: 0 };
        let decision = BetaController::new(percent(3.0)).decide(percent(88.0), &counts);
        assert_eq!(decision.beta, percent(88.0));
        assert!(decision.reason.ends_with("none was rejected: beta stays 88%"), "{decision:?}");
    }

    #[test]
    fn beta_settles_where_the_wanted_share_is_missed() {
        // A backend that misses a third of what beta leaves out, and one that misses 3% at 82 and
        // otherwise the seventh power of it, both until the end.
        let third = |left: f64| left / 300.0;
        let seventh = |left: f64| (0..7).fold(0.03, |share, _| share * left / 18.0).min(0.5);
        let shares: [(&dyn Fn(f64) -> f64, f64); 2] = [(&third, 91.0), (&seventh, 82.0)];
        for (share, expected) in shares {
            for start in [60.0, 99.0] {
                let mut beta = start;
                for _ in 0..40 {
                    let missed = (share(100.0 - beta) * 10_000.0) as u64;
                    beta = decide(beta, 10_000 - missed, missed).beta.percent();
                }
                assert!((beta - expected).abs() < 1.5, "{start}: {beta}");
            }
        }
    }
}
