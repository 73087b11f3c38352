//! The scenario that compares service levels with the model's, and its runs.

use std::fmt::Write;

use sherwood_sim::zoolander::{Level, ModelResults, Scenario, Setup, World};

use super::study::{csv, setup};
use crate::exit::Failure;
use crate::sim::flags::Flags;
use crate::sim::study::{Outcome, Study};

/// The scenario: a replicated store at a constant load.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Model;

impl Study for Model {
    type World = World;
    type Results = ModelResults;
    type Shared = ();
    type Observed = Vec<[f64; 2]>;

    fn name(&self) -> &str {
        Scenario::Model.name()
    }

    fn setup(&self, flags: &Flags, settings: &[String], policy: &str, seed: u64) -> Result<Setup, Failure> {
        setup(Scenario::Model, flags, settings, policy, seed)
    }

    fn results(world: &World) -> ModelResults {
        world.model_results().expect("the world is of the model's scenario")
    }

    fn observed(_: &Setup, world: &World) -> Vec<[f64; 2]> {
        world.percentiles().to_vec()
    }

    fn headline(results: &ModelResults) -> String {
        format!("off by {:.2} points at most", results.error_max * 100.0)
    }

    fn text(outcome: &Outcome<ModelResults>) -> String {
        text(&outcome.results)
    }

    fn series(_: &Setup, world: &World) -> String {
        csv(world.samples())
    }
}

fn text(results: &ModelResults) -> String {
    let ModelResults { scenario, policy, seed, load, partitions, duplicates, asked, .. } = results;
    let hedge = results.hedge_ms.map_or(String::new(), |ms| format!(", another after {ms} ms"));
    let mut text = format!(
        "{scenario} under {policy}, seed {seed}, load {load}: {partitions} × {duplicates}, {asked} asked{hedge}\n\n\
         bound, ms  in time, %  predicted, %  by mean, %\n"
    );
    for Level { bound_ms, measured, predicted, by_mean } in &results.levels {
        let by_mean = by_mean.map_or("-".to_owned(), |level| format!("{:.3}", level * 100.0));
        let [measured, predicted] = [measured, predicted].map(|level| level * 100.0);
        let _ = writeln!(text, "{bound_ms:>9} {measured:>11.3} {predicted:>13.3} {by_mean:>11}");
    }
    let _ = writeln!(
        text,
        "\n{} accesses; nodes are busy for {:.3} of the time; extra load {:.3}, predicted {:.3}; {} timed out",
        results.accesses,
        results.utilisation,
        results.extra_load_ratio,
        results.predicted_extra_load_ratio,
        results.errors,
    );
    text += &validity(results);
    text += "accesses by the quartile of their service at one duplicate, %, for each quartile at another:\n";
    for row in results.quartiles {
        let _ = writeln!(text, " {}", row.map(|share| format!("{:>6.2}", share * 100.0)).join(""));
    }
    for decision in &results.decisions {
        let _ = writeln!(text, "{decision}");
    }
    text
}

/// Formats the sentence that says whether the model applies.
fn validity(results: &ModelResults) -> String {
    let correlation = results.correlation.map_or(String::new(), |correlation| {
        format!("; duplicates have a correlation of {correlation:.3} (at most {})", results.correlation_max)
    });
    let off = format!("the prediction is off by at most {:.3} points", results.error_max * 100.0);
    match &results.doubt {
        None => format!("the model applies{correlation}; {off}\n"),
        Some(doubt) => format!("the model does not apply: {doubt}; {off}\n"),
    }
}
