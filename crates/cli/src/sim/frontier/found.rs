//! What was found, for people and for programs.

use std::fmt::Write;

use serde::Serialize;
use sherwood_sim::{Axis, Board, Bracket, STEPS_MAX};

use super::plot::{Panel, Plot, Row};
use super::trials::Trials;

/// The frontier, as far as it is known.
pub(super) struct Found<'a> {
    trials: &'a Trials,
    seeds: &'a [u64],
    /// Of each policy, along each axis.
    policies: Vec<[Option<Limit>; 3]>,
}

/// How far a policy keeps the promise along an axis, in steps.
struct Limit {
    /// Of each seed.
    brackets: Vec<Bracket>,
}

/// A policy's line of the JSON document.
#[derive(Serialize)]
struct Line<'a> {
    policy: &'a str,
    /// Largest depth of the limits at which the promise is kept with every seed; none when it never is.
    limit_depth: Option<f64>,
    /// Smallest share of the caches.
    cache_ratio: Option<f64>,
    /// Largest share of the load.
    load_ratio: Option<f64>,
    brackets: Brackets,
}

/// One element for each seed.
#[derive(Serialize)]
struct Brackets {
    limit_depth: Vec<Seed>,
    cache_ratio: Vec<Seed>,
    load_ratio: Vec<Seed>,
}

/// With one seed: the hardest at which the promise is kept, and the mildest at which it is broken, 5% further; none when it was
/// not found within the range.
#[derive(Serialize)]
struct Seed {
    seed: u64,
    kept: Option<f64>,
    broken: Option<f64>,
}

impl Limit {
    /// The hardest step at which all seeds keep it.
    fn kept(&self) -> Option<i32> {
        self.brackets.iter().map(|bracket| bracket.kept).min().flatten()
    }

    /// The mildest step at which all seeds break it.
    fn broken(&self) -> Option<i32> {
        let broken: Option<Vec<i32>> = self.brackets.iter().map(|bracket| bracket.broken).collect();
        broken?.into_iter().max()
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

    /// A line for each search that is finished.
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
        let lines: Vec<Line<'_>> = self
            .trials
            .policies()
            .iter()
            .zip(&self.policies)
            .map(|(policy, limits)| self.line(policy, limits))
            .collect();
        serde_json::to_string(&lines).expect("lines have string keys only") + "\n"
    }

    fn line<'b>(&self, policy: &'b str, limits: &[Option<Limit>; 3]) -> Line<'b> {
        let value = |axis: Axis, step: Option<i32>| step.map(|step| self.trials.value(axis, step));
        let kept = |axis: Axis| value(axis, limits[axis as usize].as_ref().and_then(Limit::kept));
        let seeds = |axis: Axis| {
            let brackets = limits[axis as usize].iter().flat_map(|limit| &limit.brackets);
            let seed = |(&seed, bracket): (&u64, &Bracket)| Seed {
                seed,
                kept: value(axis, bracket.kept),
                broken: value(axis, bracket.broken),
            };
            self.seeds.iter().zip(brackets).map(seed).collect()
        };
        Line {
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
            (self.trials.violation() * observations as f64).floor(),
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
        text + "\nThe first value is the hardest that keeps the promise with every seed, the second the mildest that breaks it with\n\
                every one, where 1 is the scenario as it is; the other two conditions are as they are.\n"
    }

    pub(super) fn plot(&self) -> String {
        let panel = |axis: Axis| Panel { name: panel_name(axis), rows: self.rows(axis).collect() };
        let title = format!("How far the promise is kept: {}", self.trials.scenario());
        Plot { title, panels: Axis::ALL.map(panel).into() }.svg()
    }

    fn rows(&self, axis: Axis) -> impl Iterator<Item = Row> {
        let value = move |step: Option<i32>| step.map(|step| self.trials.value(axis, step));
        self.trials.policies().iter().zip(&self.policies).filter_map(move |(policy, limits)| {
            let limit = limits[axis as usize].as_ref()?;
            let (kept, broken) = (value(limit.kept()), value(limit.broken()));
            Some(Row { policy: policy.clone(), kept, broken, words: self.cell(axis, limit) })
        })
    }

    /// `1.477 .. 1.551`, or on which side of the range the limit is.
    fn cell(&self, axis: Axis, limit: &Limit) -> String {
        let value = |step| self.trials.value(axis, step);
        let (less, more) = if axis == Axis::Cache { ('>', '<') } else { ('<', '>') };
        match (limit.kept(), limit.broken()) {
            (Some(STEPS_MAX), _) => format!("{more}= {}", value(STEPS_MAX)),
            (Some(kept), Some(broken)) => format!("{} .. {}", value(kept), value(broken)),
            (Some(kept), None) => format!("{} .. {more} {}", value(kept), value(STEPS_MAX)),
            (None, _) => format!("{less} {}", value(-STEPS_MAX)),
        }
    }
}

/// What is on an axis, and which end of it is good.
fn panel_name(axis: Axis) -> &'static str {
    match axis {
        Axis::Depth => "depth of limits (more stands more)",
        Axis::Cache => "size of caches (less stands more)",
        Axis::Load => "load (more stands more)",
    }
}
