//! Scenarios of sPARE and their runs.

use std::fmt::Write;

use sherwood_sim::spare::{self, Results, Sample, Scenario, Setup, World};

use crate::exit::Failure;
use crate::sim::comparison;
use crate::sim::flags::{Flags, apply};
use crate::sim::study::{Outcome, Study};
use crate::sim::sweep::{listed, single};

/// Returns true if these are scenarios of sPARE.
///
/// # Errors
/// If some are and others are not, since their results cannot be compared.
pub(in crate::sim) fn is_asked_for(scenarios: &[String]) -> Result<bool, Failure> {
    let is_one = |scenario: &&String| Scenario::by_name(scenario).is_some();
    let of_spare = scenarios.iter().filter(is_one).count();
    if of_spare > 0 && of_spare < scenarios.len() {
        return Err(Failure::usage(
            "--scenario: scenarios of sPARE have policies and results of their own; simulate them in a command of their own",
        ));
    }
    Ok(of_spare > 0)
}

/// Returns the names of all policies.
pub(in crate::sim) fn policies() -> impl Iterator<Item = &'static str> {
    spare::policies().iter().map(|policy| policy.name)
}

/// Returns the values of a setting that are simulated: those of a list, but for the copies of both
/// tiers, which are one value.
pub(in crate::sim) fn values(key: &str, value: &str) -> Vec<String> {
    if key == "r" { single(key, value) } else { listed(key, value) }
}

/// A scenario: an application of two tiers.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Application(Scenario);

/// Runs that differ in their seeds alone.
pub(super) type Group<'a> = comparison::Group<'a, Results, Vec<Sample>>;
/// The finished runs of policies in scenarios.
pub(super) type Comparison = comparison::Comparison<Results, Vec<Sample>>;

impl Application {
    /// Returns the scenario called `name`.
    pub(in crate::sim) fn find(name: &str) -> Result<Self, Failure> {
        let unknown = || Failure::usage(format!("--scenario {name}: no scenario of sPARE has that name"));
        Scenario::by_name(name).map(Self).ok_or_else(unknown)
    }

    /// Returns the scenario itself.
    pub(super) fn scenario(self) -> Scenario {
        self.0
    }
}

impl Study for Application {
    type World = World;
    type Results = Results;
    type Shared = ();
    type Observed = Vec<Sample>;

    fn name(&self) -> &str {
        self.0.name
    }

    fn setup(&self, flags: &Flags, settings: &[String], policy: &str, seed: u64) -> Result<Setup, Failure> {
        flags.check_single_size(
            "scenarios of sPARE have a single size; change it with --set servers=N+N and --set rate=RATE",
        )?;
        let mut setup = Setup::new(self.0, policy, seed);
        apply(settings, |key, value| setup.set(key, value))?;
        Ok(setup)
    }

    fn results(world: &World) -> Results {
        world.results()
    }

    fn observed(_: &Setup, world: &World) -> Vec<Sample> {
        world.samples().to_vec()
    }

    fn headline(results: &Results) -> String {
        format!("pages {:.1} ms, P99 {:.1} ms", results.page_mean_ms, results.page_p99_ms)
    }

    fn text(outcome: &Outcome<Results>) -> String {
        text(&outcome.results)
    }

    fn series(_: &Setup, world: &World) -> String {
        csv(world.samples())
    }
}

fn text(results: &Results) -> String {
    let [pages, queries] = results.factors;
    format!(
        "{} under {}, seed {}\n\n\
         latency    number   mean ms    P95 ms    P99 ms\n\
         pages   {:>9} {:>9.1} {:>9.1} {:>9.1}\n\
         queries {:>9} {:>9.2} {:>9.2} {:>9.2}\n\n\
         copies of a page {pages}, of a query {queries}, after {} tries; {:.1}% extra load; {} pages timed out\n",
        results.scenario,
        results.policy,
        results.seed,
        results.requests,
        results.page_mean_ms,
        results.page_p95_ms,
        results.page_p99_ms,
        results.queries,
        results.query_mean_ms,
        results.query_p95_ms,
        results.query_p99_ms,
        results.tries,
        results.extra_load_ratio * 100.0,
        results.errors,
    )
}

/// Formats a line for each ten seconds.
fn csv(samples: &[Sample]) -> String {
    let mut text = "second,page_mean_ms,query_mean_ms,page_copies,query_copies\n".to_owned();
    for Sample { second, page_mean_ms, query_mean_ms, factors: [pages, queries] } in samples {
        let _ = writeln!(text, "{second},{page_mean_ms:.3},{query_mean_ms:.4},{pages},{queries}");
    }
    text
}
