//! The limits within which predictions are claimed.

use thiserror::Error;

use super::{CORRELATION_MAX, PlanFigures, StorePlan};

/// Greatest utilisation of duplicates at which predictions are claimed.
const UTILISATION_MAX: f64 = 0.5;
/// The same, of hedged duplicates while another one is slow.
const UTILISATION_SLOW_MAX: f64 = 0.6;
/// Greatest share of hedged accesses.
const HEDGED_MAX: f64 = 0.1;

/// Reason why a prediction may be off by more than half a percentage point.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum Doubt {
    /// Duplicates are slow together.
    #[error("the correlation of duplicates is {0:.2}; it has to be at most {CORRELATION_MAX}")]
    Correlation(f64),
    /// Duplicates are busy, so that waits matter more than services.
    #[error("nodes are busy for {0:.2} of the time; it has to be at most {UTILISATION_MAX}")]
    Utilisation(f64),
    /// A slow duplicate leaves all of its accesses to the others, which are late for that.
    #[error(
        "with one duplicate slow, hedges keep the others busy for {0:.2} of the time; it has to be at most \
         {UTILISATION_SLOW_MAX}"
    )]
    Slow(f64),
    /// Accesses are hedged because of queues, which two duplicates then have at the same time.
    #[error("{0:.2} of the accesses are hedged; it has to be at most {HEDGED_MAX}")]
    Hedged(f64),
}

/// Returns the reason why the figures of a plan may be off; none if they are claimed. `correlation`
/// is that of its duplicates' service times, if it is known.
#[must_use]
pub fn doubt(plan: &StorePlan, figures: &PlanFigures, correlation: Option<f64>) -> Option<Doubt> {
    let above = |value: f64, most: f64, doubt: fn(f64) -> Doubt| {
        // A limit is kept if rounding alone exceeds it.
        (value > most + 1e-9).then(|| doubt(value))
    };
    let others = f64::from(plan.duplicates.saturating_sub(1));
    let correlated =
        correlation.and_then(|correlation| above(correlation, CORRELATION_MAX, Doubt::Correlation));
    let busy = || above(figures.utilisation, UTILISATION_MAX, Doubt::Utilisation);
    let hedged = || {
        plan.hedge_ms?;
        let slow = figures.utilisation * (1.0 + 1.0 / others);
        let many = above(figures.extra_load_ratio, HEDGED_MAX, Doubt::Hedged);
        above(slow, UTILISATION_SLOW_MAX, Doubt::Slow).or(many)
    };
    correlated.filter(|_| others > 0.0).or_else(busy).or_else(hedged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_doubted_beyond_each_limit() {
        let all = StorePlan::all_asked(10, 2);
        let hedged = StorePlan { asked: 1, hedge_ms: Some(8.0), ..all };
        let figures = |utilisation, extra_load_ratio| PlanFigures {
            utilisation,
            extra_load_ratio,
            ..PlanFigures::default()
        };
        for (plan, figures, correlation, expected) in [
            (all, figures(0.5, 1.0), Some(0.1), None),
            (all, figures(0.5 + 1e-12, 1.0), None, None),
            (all, figures(0.5, 1.0), Some(0.2), Some(Doubt::Correlation(0.2))),
            (all, figures(0.6, 1.0), None, Some(Doubt::Utilisation(0.6))),
            (StorePlan::all_asked(20, 1), figures(0.5, 0.0), Some(0.2), None),
            (hedged, figures(0.3, 0.1), None, None),
            (hedged, figures(0.4, 0.1), None, Some(Doubt::Slow(0.8))),
            (StorePlan { duplicates: 4, ..hedged }, figures(0.4, 0.1), None, None),
            (hedged, figures(0.3, 0.2), None, Some(Doubt::Hedged(0.2))),
        ] {
            assert_eq!(doubt(&plan, &figures, correlation), expected, "{plan:?} {figures:?}");
        }
    }
}
