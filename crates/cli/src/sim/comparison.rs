//! Runs of policies in scenarios with several seeds, and statistics over the seeds.

use std::time::Instant;

use serde::{Serialize, Serializer};

use super::batch::make_all;
use super::estimate::Estimate;
use super::flags::BatchFlags;
use super::inputs::distinct;
use super::keep::Keep;
use super::study::{Kept, KeptOf, Run, Study};
use super::sweep::Sweep;
use crate::exit::Failure;

/// The finished runs of policies in scenarios.
pub(super) struct Comparison<R, O> {
    /// The runs, ordered by scenario, value of the swept setting, policy and seed.
    pub(super) kept: Vec<Kept<R, O>>,
    /// Value of the swept setting (the one with several values) for each group; none without such a
    /// setting.
    pub(super) values: Vec<Option<String>>,
    pub(super) seeds: Vec<u64>,
    pub(super) settings: Vec<String>,
    /// Key of the swept setting, if there is one.
    pub(super) swept: Option<String>,
    /// Time in seconds that the runs took whose results were not kept before.
    pub(super) wall_s: f64,
}

/// Runs that differ only in their seeds; there is at least one.
pub(super) struct Group<'a, R, O> {
    /// Value of the swept setting; none without such a setting.
    pub(super) value: Option<&'a str>,
    /// Text that distinguishes the values of the swept setting, such as ` beta=88`; empty without
    /// such a setting.
    pub(super) suffix: String,
    pub(super) kept: &'a [Kept<R, O>],
}

/// A figure of a run that is estimated over the seeds.
pub(super) struct Measure<R> {
    /// Name of the figure in JSON documents.
    pub(super) name: &'static str,
    of: fn(&R) -> f64,
    is_share: bool,
}

/// Estimates by the names of their measures.
pub(super) struct Figures(pub(super) Vec<(&'static str, Estimate)>);

/// Results of a policy in a scenario with certain settings.
#[derive(Serialize)]
pub(super) struct SummaryLine<'a> {
    scenario: &'a str,
    policy: &'a str,
    value: Option<&'a str>,
    seeds: usize,
    #[serde(flatten)]
    figures: Figures,
}

/// Returns the lines of the JSON document with these measures, one for each group.
pub(super) fn summary<'a, R, O>(
    measures: &[Measure<R>],
    groups: &'a [Group<'_, R, O>],
) -> impl Serialize + use<'a, R, O> {
    groups.iter().map(|group| SummaryLine::of(measures, group)).collect::<Vec<_>>()
}

impl<'a> SummaryLine<'a> {
    /// Estimates `measures` from the runs of a group.
    pub(super) fn of<R, O>(measures: &[Measure<R>], group: &'a Group<'_, R, O>) -> Self {
        Self {
            scenario: group.scenario(),
            policy: group.policy(),
            value: group.value,
            seeds: group.kept.len(),
            figures: Figures::of(measures, group),
        }
    }
}

impl<R, O> Comparison<R, O> {
    /// Simulates `policies` in each scenario, with several seeds and each value of the setting for
    /// which `values` returns several. The baseline is simulated even if `policies` does not
    /// contain it.
    pub(super) fn of<S: Study<Results = R, Observed = O>>(
        studies: &[S],
        policies: &[String],
        batch: &BatchFlags,
        values: impl Fn(&str, &str) -> Vec<String>,
    ) -> Result<Self, Failure> {
        let (policies, seeds) = (distinct(policies), distinct(&batch.seeds));
        let settings = batch.flags.all_settings();
        let sweep = Sweep::of(&settings, values)?;
        let base = S::BASELINE.filter(|base| !policies.iter().any(|policy| policy == base));
        let of_case: Vec<&str> = base.into_iter().chain(policies.iter().map(String::as_str)).collect();
        let mut runs = Vec::new();
        let mut values = Vec::new();
        for study in studies {
            for (value, settings) in sweep.values() {
                for policy in &of_case {
                    for &seed in &seeds {
                        runs.push(Run::new(study, &batch.flags, settings.clone(), policy, seed)?);
                    }
                    values.push(value.clone());
                }
            }
        }
        // The seed has no influence on whether a setup is valid.
        runs.iter().step_by(seeds.len()).try_for_each(Run::check)?;
        let keep = Keep::open(batch.results.as_deref())?;
        let began = Instant::now();
        let mut kept = make_all(&keep, &runs, batch.threads())?;
        let wall_s = began.elapsed().as_secs_f64();
        if let Some(base) = S::BASELINE {
            let cases = kept.chunks_mut(of_case.len() * seeds.len());
            cases.for_each(|case| judge::<S>(case, base));
        }
        if let Some(base) = base {
            values = values
                .into_iter()
                .zip(kept.chunks(seeds.len()))
                .filter(|(_, group)| group[0].inputs.policy != base)
                .map(|(value, _)| value)
                .collect();
            kept.retain(|run| run.inputs.policy != base);
        }
        Ok(Self { kept, values, seeds, settings, swept: sweep.swept.map(|(key, _)| key), wall_s })
    }

    /// Returns the groups of runs, ordered by scenario, value of the swept setting, and policy.
    pub(super) fn groups(&self) -> Vec<Group<'_, R, O>> {
        let suffix = |value: Option<&str>| match (&self.swept, value) {
            (Some(key), Some(value)) => format!(" {key}={value}"),
            _ => String::new(),
        };
        let group = |(value, kept)| Group { value, suffix: suffix(value), kept };
        self.values.iter().map(Option::as_deref).zip(self.kept.chunks(self.seeds.len())).map(group).collect()
    }
}

/// Compares the runs of a scenario with those of `base` with the same seeds.
fn judge<S: Study>(case: &mut [KeptOf<S>], base: &str) {
    let bases: Vec<KeptOf<S>> = case.iter().filter(|run| run.inputs.policy == base).cloned().collect();
    for run in case.iter_mut().filter(|run| run.inputs.policy != base) {
        if let Some(base) = bases.iter().find(|base| base.inputs.seed == run.inputs.seed) {
            S::judge(run, base);
        }
    }
}

impl<R, O> Group<'_, R, O> {
    pub(super) fn scenario(&self) -> &str {
        &self.kept[0].inputs.scenario
    }

    pub(super) fn policy(&self) -> &str {
        &self.kept[0].inputs.policy
    }

    /// Name of the policy, with the value of the swept setting.
    pub(super) fn label(&self) -> String {
        self.policy().to_owned() + &self.suffix
    }

    /// Returns the results with the first seed.
    pub(super) fn first(&self) -> &R {
        &self.kept[0].outcome.results
    }

    /// Returns a figure of each run, in the order of the seeds.
    pub(super) fn each(&self, of: impl Fn(&R) -> f64) -> Vec<f64> {
        self.kept.iter().map(|run| of(&run.outcome.results)).collect()
    }

    /// Estimates a figure from its values with all seeds.
    pub(super) fn estimate(&self, of: impl Fn(&R) -> f64) -> Estimate {
        Estimate::of(&self.each(of))
    }
}

/// Returns the groups, divided by scenario.
pub(super) fn by_scenario<'a, 'b, R, O>(
    groups: &'a [Group<'b, R, O>],
) -> impl Iterator<Item = &'a [Group<'b, R, O>]> {
    groups.chunk_by(|one, other| one.scenario() == other.scenario())
}

impl<R> Measure<R> {
    pub(super) const fn new(name: &'static str, of: fn(&R) -> f64) -> Self {
        Self { name, of, is_share: false }
    }

    /// Creates the measure of a share from 0 to 1, which tables show in percent.
    pub(super) const fn share(name: &'static str, of: fn(&R) -> f64) -> Self {
        Self { name, of, is_share: true }
    }

    /// Estimates the figure from its values with all seeds.
    pub(super) fn estimate<O>(&self, group: &Group<'_, R, O>) -> Estimate {
        let values = group.each(self.of);
        if self.is_share { Estimate::of_shares(&values) } else { Estimate::of(&values) }
    }

    /// Mean of the figure over the seeds.
    pub(super) fn mean<O>(&self, group: &Group<'_, R, O>) -> f64 {
        group.estimate(self.of).mean
    }

    /// Formats the estimate for a table.
    pub(super) fn cell<O>(&self, group: &Group<'_, R, O>, decimals: usize) -> String {
        let estimate = self.estimate(group).times(if self.is_share { 100.0 } else { 1.0 });
        format!("{estimate:.decimals$}")
    }
}

impl Figures {
    /// Estimates `measures` from the runs of a group.
    pub(super) fn of<R, O>(measures: &[Measure<R>], group: &Group<'_, R, O>) -> Self {
        Self(measures.iter().map(|measure| (measure.name, measure.estimate(group))).collect())
    }
}

impl Serialize for Figures {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.collect_map(self.0.iter().map(|(name, estimate)| (name, estimate)))
    }
}
