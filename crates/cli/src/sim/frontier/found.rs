//! Results of the search for the hardest conditions that policies stand, as text, JSON and a plot.

use std::fmt::Write;

use serde::Serialize;
use sherwood_sim::{Axis, Board, Bracket, STEPS_MAX, Tally};

use super::trials::Trials;
use crate::chart::{Panel, Range, Ranges};
use crate::out;

/// Results of the search as far as they are known.
pub(super) struct Found<'a> {
    trials: &'a Trials,
    seeds: &'a [u64],
    /// Limits of each policy for each condition: depth, cache size and load.
    policies: Vec<[Option<Limit>; 3]>,
}

/// For one varied condition (depth of limits, cache size or load): the hardest value at which a
/// policy meets the SLO, with each seed.
struct Limit {
    /// For each seed, the steps of the condition between which the SLO stops being met.
    brackets: Vec<Bracket>,
}

/// A policy's entry in the JSON document.
#[derive(Serialize)]
struct PolicyLine<'a> {
    policy: &'a str,
    /// Largest depth of the limits at which the SLO is met with every seed; none when it never is.
    limit_depth: Option<f64>,
    /// Smallest share of the caches' size at which the SLO is met with every seed; none when it
    /// never is.
    cache_ratio: Option<f64>,
    /// Largest share of the load at which the SLO is met with every seed; none when it never is.
    load_ratio: Option<f64>,
    brackets: Brackets,
}

/// Results by varied condition, with an element for each seed.
#[derive(Serialize)]
struct Brackets {
    limit_depth: Vec<Seed>,
    cache_ratio: Vec<Seed>,
    load_ratio: Vec<Seed>,
}

/// Results with one seed: the hardest condition at which the SLO is met, and the mildest at which
/// it is violated, 5% further. None when it was not found within the range, or not searched beyond
/// the violation of the first seed.
#[derive(Serialize)]
struct Seed {
    seed: u64,
    kept: Option<f64>,
    broken: Option<f64>,
    /// The mildest condition without a verdict, because the trace ended before the run; omitted
    /// when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    unjudged: Option<f64>,
}

impl Limit {
    /// Returns the hardest step at which the SLO is met with all seeds.
    fn kept(&self) -> Option<i32> {
        self.brackets.iter().map(|bracket| bracket.kept).min().flatten()
    }

    /// Returns the mildest step at which the SLO is violated with all seeds.
    fn broken(&self) -> Option<i32> {
        let broken: Option<Vec<i32>> = self.brackets.iter().map(|bracket| bracket.broken).collect();
        broken?.into_iter().max()
    }

    /// Returns true when a trace ended too early for a verdict that the search needed.
    fn is_cut(&self) -> bool {
        self.brackets.iter().any(|bracket| bracket.broken.is_none() && bracket.unjudged.is_some())
    }

    /// Returns the hardest step at which the SLO is met with some seed.
    fn kept_by_some(&self) -> Option<i32> {
        self.brackets.iter().filter_map(|bracket| bracket.kept).max()
    }
}

impl<'a> Found<'a> {
    pub(super) fn of(trials: &'a Trials, board: &Board, seeds: &'a [u64]) -> Self {
        let limit = |policy, axis| board.found(policy, axis).map(|brackets| Limit { brackets });
        let policies = (0..trials.policies().len()).map(|policy| Axis::ALL.map(|axis| limit(policy, axis)));
        Self { trials, seeds, policies: policies.collect() }
    }

    pub(super) fn searches(&self) -> usize {
        self.policies.len() * Axis::ALL.len()
    }

    pub(super) fn finished(&self) -> usize {
        self.policies.iter().flatten().flatten().count()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.finished() == self.searches()
    }

    /// Formats a line for each finished search.
    pub(super) fn so_far(&self) -> String {
        let mut text = String::new();
        for (policy, limits) in self.trials.policies().iter().zip(&self.policies) {
            for (axis, limit) in Axis::ALL.into_iter().zip(limits) {
                if let Some(limit) = limit {
                    let _ = write!(text, "\n{policy} {axis}: {}", self.cell(axis, limit));
                }
            }
        }
        text
    }

    pub(super) fn json(&self) -> String {
        let lines: Vec<PolicyLine<'_>> = self
            .trials
            .policies()
            .iter()
            .zip(&self.policies)
            .map(|(policy, limits)| self.line(policy, limits))
            .collect();
        out::json(&lines) + "\n"
    }

    fn line<'b>(&self, policy: &'b str, limits: &[Option<Limit>; 3]) -> PolicyLine<'b> {
        let value = |axis: Axis, step: Option<i32>| step.map(|step| self.trials.value(axis, step));
        let kept = |axis: Axis| value(axis, limits[axis as usize].as_ref().and_then(Limit::kept));
        let seeds = |axis: Axis| {
            let brackets = limits[axis as usize].iter().flat_map(|limit| &limit.brackets);
            let seed = |(&seed, bracket): (&u64, &Bracket)| Seed {
                seed,
                kept: value(axis, bracket.kept),
                broken: value(axis, bracket.broken),
                unjudged: value(axis, bracket.unjudged),
            };
            self.seeds.iter().zip(brackets).map(seed).collect()
        };
        PolicyLine {
            policy,
            limit_depth: kept(Axis::Depth),
            cache_ratio: kept(Axis::Cache),
            load_ratio: kept(Axis::Load),
            brackets: Brackets {
                limit_depth: seeds(Axis::Depth),
                cache_ratio: seeds(Axis::Cache),
                load_ratio: seeds(Axis::Load),
            },
        }
    }

    pub(super) fn text(&self) -> String {
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        let observations = self.trials.observations();
        let mut text = format!(
            "{} at scale {}, seeds {}: at most {}% of the observations above {} ms, {} of {observations}\n\n\
             {:<18} {:>18} {:>18} {:>18}\n",
            self.trials.scenario(),
            self.trials.scale(),
            seeds.join(", "),
            self.trials.violation() * 100.0,
            self.trials.bound_ms(),
            Tally::allowed(self.trials.violation(), observations),
            "",
            "depth of limits",
            "size of caches",
            "load",
        );
        for (policy, limits) in self.trials.policies().iter().zip(&self.policies) {
            let _ = write!(text, "{policy:<18}");
            for (axis, limit) in Axis::ALL.into_iter().zip(limits) {
                let cell = limit.as_ref().map_or(String::new(), |limit| self.cell(axis, limit));
                let _ = write!(text, " {cell:>18}");
            }
            text.push('\n');
        }
        text += "\nThe first value is the hardest that keeps the promise with every seed, the second the mildest that breaks it with\n\
                 every one (beyond one that some still keep, after > or <), where 1 is the scenario as it is; the other two conditions are\n\
                 as they are.\n";
        if self.policies.iter().flatten().flatten().any(Limit::is_cut) {
            text +=
                "?: the trace ends before runs under harder conditions do, so nothing is known of them.\n";
        }
        text
    }

    pub(super) fn plot(&self) -> String {
        let panel = |axis: Axis| Panel { name: panel_name(axis), ranges: self.ranges(axis) };
        let title = format!("How far the promise is kept: {}", self.trials.scenario());
        let note = "Dots: the hardest that keeps the promise with every seed. Lines lead to the mildest that breaks it with every one.";
        let panels = Axis::ALL.map(panel).into();
        Ranges { title: &title, note, rows: self.trials.policies().to_vec(), panels }.svg()
    }

    fn ranges(&self, axis: Axis) -> Vec<Range> {
        let value = |step: Option<i32>| step.map(|step| self.trials.value(axis, step));
        let range = |(policy, limits): (&String, &[Option<Limit>; 3])| {
            let none = Range { from: None, to: None, label: String::new(), words: policy.clone() };
            let Some(limit) = &limits[axis as usize] else { return none };
            let (from, to) = (value(limit.kept()), value(limit.broken()));
            let cell = self.cell(axis, limit);
            // Where a line is drawn, the value at its start is enough.
            let label = from.filter(|_| to.is_some()).map_or(cell.clone(), |from| from.to_string());
            Range { from, to, label, words: format!("{policy}: {cell}") }
        };
        self.trials.policies().iter().zip(&self.policies).map(range).collect()
    }

    /// Formats a limit as `1.477 .. 1.551`, or as lying above or below the range.
    fn cell(&self, axis: Axis, limit: &Limit) -> String {
        let value = |step| self.trials.value(axis, step);
        let (less, more) = if axis == Axis::Cache { ('>', '<') } else { ('<', '>') };
        match (limit.kept(), limit.broken()) {
            (Some(STEPS_MAX), _) => format!("{more}= {}", value(STEPS_MAX)),
            (Some(kept), Some(broken)) => format!("{} .. {}", value(kept), value(broken)),
            (Some(kept), None) if limit.is_cut() => format!("{} .. ?", value(kept)),
            (Some(kept), None) => {
                format!("{} .. {more} {}", value(kept), value(limit.kept_by_some().unwrap_or(kept)))
            }
            (None, _) if limit.is_cut() => "?".to_owned(),
            (None, Some(broken)) if limit.kept_by_some().is_some() => {
                format!("{less} {} .. {}", value(-STEPS_MAX), value(broken))
            }
            (None, _) => format!("{less} {}", value(-STEPS_MAX)),
        }
    }
}

/// Returns the name of a varied condition, and the direction in which a policy stands more.
fn panel_name(axis: Axis) -> &'static str {
    match axis {
        Axis::Depth => "depth of limits (more stands more)",
        Axis::Cache => "size of caches (less stands more)",
        Axis::Load => "load (more stands more)",
    }
}
