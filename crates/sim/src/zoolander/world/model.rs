//! Results of a run of the model's scenario: levels measured and predicted.

use serde::{Deserialize, Serialize};
use sherwood_dispatch::BalanceChoice;
use sherwood_policy::slo::{
    CORRELATION_MAX, Objective, PlanFigures, StorePlan, doubt, predict, predict_by_mean,
};

use super::{MEASURED, World, Zoolander};
use crate::zoolander::pairs::Pairs;
use crate::zoolander::results::BOUNDS_MS;

/// Figures of a run of the model's scenario; the fields of `sherwood sim run --json`. Accesses
/// count if they began after the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelResults {
    /// The scenario's name.
    pub scenario: String,
    /// The policy's name.
    pub policy: String,
    /// The seed of every draw.
    pub seed: u64,
    /// Part of the time for which nodes would be busy without duplicates.
    pub load: f64,
    /// Partitions at the end.
    pub partitions: u32,
    /// Duplicates of each.
    pub duplicates: u32,
    /// Duplicates that an access asks at once.
    pub asked: u32,
    /// Time after which one more duplicate is asked, milliseconds; none if none is.
    pub hedge_ms: Option<f64>,
    /// Number of accesses.
    pub accesses: u64,
    /// Predicted part of the time for which a node is busy; 1 and more if it cannot follow.
    pub utilisation: f64,
    /// Calls beyond one for each access, measured.
    pub extra_load_ratio: f64,
    /// The same, predicted.
    pub predicted_extra_load_ratio: f64,
    /// Service levels by bound.
    pub levels: Vec<Level>,
    /// Greatest difference of a measured and a predicted level.
    pub error_max: f64,
    /// The same for the prediction by the mean wait; none if not all duplicates are asked.
    pub error_by_mean_max: Option<f64>,
    /// Correlation of the service times of an access at two duplicates; none without duplicates.
    pub correlation: Option<f64>,
    /// Greatest correlation at which predictions are claimed.
    pub correlation_max: f64,
    /// True if the predictions are claimed.
    pub model_applies: bool,
    /// Reason why they are not claimed, if so.
    pub doubt: Option<String>,
    /// Share of the accesses by the quartile of their service time at one duplicate and at another.
    pub quartiles: [[f64; 4]; 4],
    /// Number of accesses that reached their timeout.
    pub errors: u64,
    /// Decisions of the manager and their measured effects, in sentences.
    pub decisions: Vec<String>,
    /// False if the run stopped before its end.
    pub complete: bool,
}

/// The service level for a bound: the share of accesses that end within it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// The bound, milliseconds.
    pub bound_ms: f64,
    /// The measured level.
    pub measured: f64,
    /// The level predicted with the distribution of waits.
    pub predicted: f64,
    /// The level predicted with the mean wait; none if not all duplicates are asked.
    pub by_mean: Option<f64>,
}

impl Zoolander {
    /// Returns the reason why a prediction is not claimed; none if it is.
    fn doubt(&self, plan: &StorePlan, figures: &PlanFigures, correlation: Option<f64>) -> Option<String> {
        if plan.asked < plan.duplicates && self.setup.knobs.balance != BalanceChoice::Random {
            let reason = "accesses choose a duplicate by its load; the model has balance=random";
            return Some(reason.to_owned());
        }
        doubt(plan, figures, correlation).map(|doubt| doubt.to_string())
    }
}

impl World {
    /// Percentiles, 0 to 1, of the service times of the first accesses at one duplicate and at
    /// another, in the model's scenario.
    #[must_use]
    pub fn percentiles(&self) -> &[[f64; 2]] {
        self.family.pairs.as_ref().map_or(&[], |pairs| &pairs.percentiles)
    }

    /// Returns the results of a run of the model's scenario so far; none in other scenarios.
    #[must_use]
    pub fn model_results(&self) -> Option<ModelResults> {
        let family = &self.family;
        let pairs = family.pairs.as_ref()?;
        let (plan, objective) = (family.in_use.0.plan(), family.objectives[MEASURED]);
        let within = |bound_ms| Objective { bound_ms, ..objective };
        let (accesses, measured, extra_load_ratio) = family.recorder.levels(MEASURED);
        let level = |(bound_ms, measured): (u64, f64)| {
            let objective = within(bound_ms as f64);
            Level {
                bound_ms: objective.bound_ms,
                measured,
                predicted: predict(pairs.times(), &objective, &plan).service_level,
                by_mean: (plan.asked == plan.duplicates)
                    .then(|| predict_by_mean(pairs.times(), &objective, &plan)),
            }
        };
        let levels: Vec<Level> = BOUNDS_MS.into_iter().zip(measured).map(level).collect();
        let figures = predict(pairs.times(), &objective, &plan);
        let correlation = pairs.correlation.coefficient().filter(|_| plan.duplicates > 1);
        let doubt = family.doubt(&plan, &figures, correlation);
        Some(ModelResults {
            scenario: family.setup.scenario.name().to_owned(),
            policy: family.setup.policy.clone(),
            seed: family.setup.seed,
            load: family.setup.knobs.load,
            partitions: plan.partitions,
            duplicates: plan.duplicates,
            asked: plan.asked,
            hedge_ms: plan.hedge_ms,
            accesses,
            utilisation: figures.utilisation,
            extra_load_ratio,
            predicted_extra_load_ratio: figures.extra_load_ratio,
            error_max: error_max(&levels, |level| Some(level.predicted)).unwrap_or_default(),
            error_by_mean_max: error_max(&levels, |level| level.by_mean),
            levels,
            correlation,
            correlation_max: CORRELATION_MAX,
            model_applies: doubt.is_none(),
            doubt,
            quartiles: quartiles(pairs),
            errors: family.recorder.errors(),
            decisions: family.decisions.clone(),
            complete: self.now >= self.end,
        })
    }
}

/// Returns the greatest difference of a measured level and its prediction; none if one has none.
fn error_max(levels: &[Level], predicted: impl Fn(&Level) -> Option<f64>) -> Option<f64> {
    let error = |level: &Level| Some((predicted(level)? - level.measured).abs());
    levels.iter().map(error).try_fold(0.0, |most, error| Some(f64::max(most, error?)))
}

fn quartiles(pairs: &Pairs) -> [[f64; 4]; 4] {
    let all: u64 = pairs.quartiles.iter().flatten().sum();
    pairs.quartiles.map(|row| row.map(|count| count as f64 / all.max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zoolander::{Scenario, Setup};

    fn results(policy: &str, settings: &[(&str, &str)]) -> ModelResults {
        let mut setup = Setup::new(Scenario::Model, policy, 1);
        settings.iter().for_each(|(key, value)| setup.set(key, value).expect("a setting"));
        let mut world = World::new(&setup).expect("a setup");
        world.advance(world.end()).expect("counters balance");
        world.model_results().expect("the scenario of the model")
    }

    #[test]
    fn measured_levels_are_within_half_a_point_of_the_model() {
        let seconds = ("seconds", "1+6");
        for (policy, load) in [("divide", "0.3"), ("mix", "0.2"), ("replicate", "0.1"), ("hedge-3", "0.3")] {
            let results = results(policy, &[seconds, ("load", load)]);
            assert!(results.model_applies && results.error_max < 0.005, "{results:?}");
            let extra = results.extra_load_ratio - results.predicted_extra_load_ratio;
            assert!(results.accesses > 30_000 && extra.abs() < 0.01, "{results:?}");
        }
    }

    #[test]
    fn mean_wait_predicts_worse_than_the_distribution_of_waits() {
        let results = results("divide", &[("seconds", "1+3"), ("load", "0.5")]);
        assert!(results.error_by_mean_max > Some(10.0 * results.error_max), "{results:?}");
    }

    #[test]
    fn stalls_of_both_duplicates_are_a_correlation_with_which_the_model_does_not_apply() {
        let of = |correlation, policy| {
            results(policy, &[("seconds", "1+2"), ("stall", "0.002"), ("correlation", correlation)])
        };
        let [none, half] = ["0", "0.5"].map(|correlation| of(correlation, "mix"));
        assert!(none.model_applies && none.correlation.is_some_and(|r| r.abs() < 0.05), "{none:?}");
        assert!(!half.model_applies && half.correlation.is_some_and(|r| (r - 0.5).abs() < 0.2), "{half:?}");
        assert!(half.doubt.is_some_and(|doubt| doubt.contains("it has to be at most 0.1")));
        let alone = of("0.5", "divide");
        assert!(alone.model_applies && alone.correlation.is_none(), "{alone:?}");
    }

    #[test]
    fn independent_runs_have_a_sixteenth_of_the_accesses_in_each_pair_of_quartiles() {
        let results = results("mix", &[("seconds", "1+3")]);
        let shares = results.quartiles.iter().flatten();
        assert!(shares.clone().all(|share| (share - 0.0625).abs() < 0.01), "{results:?}");
        assert!((shares.sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
