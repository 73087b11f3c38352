//! What RobinHood's paper says of each policy, beside what came out here.
//!
//! A claim is a figure and a direction: at most so much, or at least. It holds or does not, by the figure as the paper prints it, and
//! with several seeds it holds where it does with each. A row is there when all runs it speaks of are. Where a setting makes a
//! scenario another one, nothing is claimed of it.

mod measure;
mod stated;

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;
use sherwood_sim::LimitLine;

use super::keep::Kept;
use measure::{Measure, Unit};
use stated::{COMPETITORS, Stated, Who};

/// One row: the paper's figure and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Claim {
    pub(super) scenario: &'static str,
    /// Whom it is about.
    pub(super) policy: &'static str,
    /// Whether that is the best of those RobinHood is compared with, found out here.
    pub(super) next_best: bool,
    pub(super) measure: Measure,
    pub(super) unit: Unit,
    pub(super) relation: Relation,
    pub(super) paper: f64,
    /// Mean over the seeds.
    pub(super) ours: f64,
    pub(super) by_seed: Vec<f64>,
    /// Seeds with which it holds.
    pub(super) seeds_held: usize,
    /// Whether it holds with all of them.
    pub(super) holds: bool,
}

/// On which side of the paper's figure ours is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Relation {
    AtMost,
    AtLeast,
}

/// Settings after which a scenario is no longer the paper's.
const OTHERWISE: [&str; 4] = ["minutes", "depth", "load", "cache"];

/// The rows that `runs` can answer. `limits` is what each scenario leaves of its backends.
pub(super) fn of(runs: &[Kept], limits: &BTreeMap<String, Vec<LimitLine>>) -> Vec<Claim> {
    let published = |run: &&Kept| {
        let settings = &run.inputs.settings;
        let key = |setting: &String| setting.split('=').next().unwrap_or_default().to_owned();
        run.inputs.document.is_none() && !settings.iter().any(|setting| OTHERWISE.contains(&&*key(setting)))
    };
    let runs: Vec<&Kept> = runs.iter().filter(published).collect();
    stated::all().iter().filter_map(|stated| row(stated, &runs, limits)).collect()
}

fn row(stated: &Stated, runs: &[&Kept], limits: &BTreeMap<String, Vec<LimitLine>>) -> Option<Claim> {
    let Stated { scenario, who, measure, relation, paper } = *stated;
    let limits = limits.get(scenario).map_or(&[][..], Vec::as_slice);
    let of = |policy: &'static str| Some((policy, by_seed(runs, scenario, policy, measure, limits)?));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (policy, by_seed) = match who {
        Who::Policy(policy) => of(policy)?,
        Who::NextBest => {
            let all = COMPETITORS.into_iter().map(of).collect::<Option<Vec<_>>>()?;
            all.into_iter().min_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)))?
        }
    };
    let seeds_held = by_seed.iter().filter(|&&ours| relation.holds(ours, paper)).count();
    Some(Claim {
        scenario,
        policy,
        next_best: who == Who::NextBest,
        measure,
        unit: measure.unit(),
        relation,
        paper,
        ours: mean(&by_seed),
        seeds_held,
        holds: seeds_held == by_seed.len(),
        by_seed,
    })
}

/// The measure of a policy with each seed; none where there is no run of it.
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
    /// Whom it is about, in words.
    pub(super) fn who(&self) -> String {
        if self.next_best { format!("next best: {}", self.policy) } else { self.policy.to_owned() }
    }

    /// What the paper says, in words.
    pub(super) fn paper_words(&self) -> String {
        let relation = match (self.relation, self.paper == 0.0) {
            (Relation::AtMost, true) => "",
            (Relation::AtMost, false) => "at most ",
            (Relation::AtLeast, _) => "at least ",
        };
        format!("{relation}{}", self.unit.words(self.paper, false))
    }

    /// What came out here, in words: the mean, and the range of the seeds where there are several.
    pub(super) fn ours_words(&self) -> String {
        let mean = self.unit.words(self.ours, true);
        if self.by_seed.len() < 2 {
            return mean;
        }
        let low = self.by_seed.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.by_seed.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{mean} ({} to {})", self.unit.words(low, true), self.unit.words(high, true))
    }

    /// Whether it holds, in words.
    pub(super) fn verdict(&self) -> String {
        match (self.holds, self.seeds_held) {
            (true, _) => "holds".to_owned(),
            (false, 0) => "does not".to_owned(),
            (false, held) => format!("with {held} of {} seeds", self.by_seed.len()),
        }
    }
}

/// The rows as a table; nothing where there are none.
pub(super) fn text(claims: &[Claim]) -> String {
    let mut text = String::new();
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
                claim.who(),
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
