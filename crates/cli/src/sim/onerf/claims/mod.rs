//! Claims of RobinHood's paper about each policy, compared with our results.
//!
//! A claim is a figure with a direction: at most, or at least. It is checked against the figure as
//! printed in the paper, and holds if it does with every seed. A row exists if all runs it refers
//! to exist. The paper's claims apply only to its own settings; with other settings there are no
//! rows, and the differing settings are listed.

mod measure;
mod stated;

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;
use sherwood_sim::{Knobs, LimitLine};

use crate::sim::onerf::kept::Kept;
use measure::{Measure, Unit};
use stated::Stated;

/// A claim of RobinHood's paper about a policy, with the paper's figure and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(in crate::sim) struct Claim {
    pub(in crate::sim) scenario: &'static str,
    /// Policy that the claim is about.
    pub(in crate::sim) policy: &'static str,
    /// True when the paper found this policy the best competitor of RobinHood.
    pub(in crate::sim) next_best: bool,
    pub(in crate::sim) measure: Measure,
    pub(in crate::sim) unit: Unit,
    pub(in crate::sim) relation: Relation,
    pub(in crate::sim) paper: f64,
    /// Mean of our figure over the seeds.
    pub(in crate::sim) ours: f64,
    pub(in crate::sim) by_seed: Vec<f64>,
    /// Number of seeds with which the claim holds.
    pub(in crate::sim) seeds_held: usize,
    /// True when the claim holds with all seeds.
    pub(in crate::sim) holds: bool,
}

/// The expected relation of our figure to the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::sim) enum Relation {
    AtMost,
    AtLeast,
}

/// Returns the paper's claims for which `runs` suffice. `limits` contains each scenario's limits.
pub(in crate::sim) fn of(runs: &[Kept], limits: &BTreeMap<String, Vec<LimitLine>>) -> Vec<Claim> {
    let published = |run: &&Kept| run.inputs.document.is_none() && unlike(&run.inputs.settings).is_empty();
    let runs: Vec<&Kept> = runs.iter().filter(published).collect();
    stated::all().iter().filter_map(|stated| row(stated, &runs, limits)).collect()
}

/// Returns the settings because of which no claims are compared with `runs`; none when the paper
/// has no figures for their scenarios anyway.
pub(in crate::sim) fn left_out(runs: &[Kept]) -> Vec<String> {
    let stated = stated::all();
    let of_paper = |run: &&Kept| {
        let inputs = &run.inputs;
        inputs.document.is_none() && stated.iter().any(|stated| stated.scenario == inputs.scenario)
    };
    runs.iter().find(of_paper).map_or(Vec::new(), |run| unlike(&run.inputs.settings))
}

/// Returns the settings that differ from the paper's. The walk of the random scenario does not
/// count: the paper's is unknown.
fn unlike(settings: &[String]) -> Vec<String> {
    let key = |setting: &String| setting.split('=').next().unwrap_or_default().to_owned();
    let changes = |setting: &str| {
        let mut knobs = Knobs::default();
        let turned = setting.split_once('=').and_then(|(key, value)| knobs.set(key, value).ok());
        turned.is_none() || Knobs { walk: Knobs::default().walk, ..knobs } != Knobs::default()
    };
    let mut unlike = Vec::new();
    for (index, setting) in settings.iter().enumerate() {
        // A later setting takes precedence.
        let last = !settings[index + 1..].iter().any(|later| key(later) == key(setting));
        if last && changes(setting) {
            unlike.push(setting.clone());
        }
    }
    unlike
}

fn row(stated: &Stated, runs: &[&Kept], limits: &BTreeMap<String, Vec<LimitLine>>) -> Option<Claim> {
    let Stated { scenario, policy, next_best, measure, relation, paper } = *stated;
    let limits = limits.get(scenario).map_or(&[][..], Vec::as_slice);
    let by_seed = by_seed(runs, scenario, policy, measure, limits)?;
    let seeds_held = by_seed.iter().filter(|&&ours| relation.holds(ours, paper)).count();
    Some(Claim {
        scenario,
        policy,
        next_best,
        measure,
        unit: measure.unit(),
        relation,
        paper,
        ours: by_seed.iter().sum::<f64>() / by_seed.len() as f64,
        seeds_held,
        holds: seeds_held == by_seed.len(),
        by_seed,
    })
}

/// Returns the claimed quantity of a policy for each seed; none when a run is missing.
fn by_seed(
    runs: &[&Kept],
    scenario: &str,
    policy: &str,
    measure: Measure,
    limits: &[LimitLine],
) -> Option<Vec<f64>> {
    let run = |policy: &str, seed: u64| {
        runs.iter().copied().find(|run| {
            run.inputs.scenario == scenario && run.inputs.policy == policy && run.inputs.seed == seed
        })
    };
    let of = runs.iter().filter(|run| run.inputs.scenario == scenario && run.inputs.policy == policy);
    let values: Option<Vec<f64>> =
        of.map(|own| measure.of(own, run("robinhood", own.inputs.seed), limits)).collect();
    values.filter(|values| !values.is_empty())
}

impl Relation {
    fn holds(self, ours: f64, paper: f64) -> bool {
        match self {
            Self::AtMost => ours <= paper,
            Self::AtLeast => ours >= paper,
        }
    }
}

impl Claim {
    /// Describes the policy that the claim is about.
    pub(in crate::sim) fn subject(&self) -> String {
        if self.next_best { format!("next best, {}", self.policy) } else { self.policy.to_owned() }
    }

    /// Describes the paper's claim.
    pub(in crate::sim) fn paper_words(&self) -> String {
        let relation = match (self.relation, self.paper == 0.0) {
            (Relation::AtMost, true) => "",
            (Relation::AtMost, false) => "at most ",
            (Relation::AtLeast, _) => "at least ",
        };
        format!("{relation}{}", self.unit.words(self.paper, false))
    }

    /// Describes our result: the mean, and the range over seeds when there are several.
    pub(in crate::sim) fn ours_words(&self) -> String {
        let mean = self.unit.words(self.ours, true);
        if self.by_seed.len() < 2 {
            return mean;
        }
        let low = self.by_seed.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.by_seed.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{mean} ({} to {})", self.unit.words(low, true), self.unit.words(high, true))
    }

    /// Describes whether the claim holds.
    pub(in crate::sim) fn verdict(&self) -> String {
        match (self.holds, self.seeds_held) {
            (true, _) => "holds".to_owned(),
            (false, 0) => "does not".to_owned(),
            (false, held) => format!("with {held} of {} seeds", self.by_seed.len()),
        }
    }
}

/// Explains the absence of claims when settings are `unlike` the paper's; none when none are.
pub(in crate::sim) fn reason(unlike: &[String]) -> Option<String> {
    (!unlike.is_empty()).then(|| {
        format!("RobinHood's paper has other settings, so nothing is compared with it: {}", unlike.join(", "))
    })
}

/// Formats the claims as a table, or the reason for their absence.
pub(in crate::sim) fn text(claims: &[Claim], unlike: &[String]) -> String {
    let mut text = String::new();
    if let Some(reason) = reason(unlike) {
        let _ = writeln!(text, "{reason}\n");
    }
    if claims.is_empty() {
        return text;
    }
    let held = claims.iter().filter(|claim| claim.holds).count();
    let _ = writeln!(text, "What RobinHood's paper says, and ours: {held} of {} rows hold", claims.len());
    for scenario in claims.chunk_by(|a, b| a.scenario == b.scenario) {
        let _ = writeln!(text, "{}", scenario[0].scenario);
        for claim in scenario {
            let _ = writeln!(
                text,
                "  {:<24} {:<42} {:>15} | {:<24} {}",
                claim.subject(),
                claim.measure.words(),
                claim.paper_words(),
                claim.ours_words(),
                claim.verdict()
            );
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
