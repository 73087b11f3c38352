//! Scenarios of Zoolander, and runs of the one by day and at night.

use std::fmt::Write;

use sherwood_sim::zoolander::{Results, Sample, Scenario, Setup, World};

use crate::exit::Failure;
use crate::sim::comparison;
use crate::sim::flags::{Flags, apply};
use crate::sim::study::{Outcome, Study};

/// Returns the scenario of Zoolander that is asked for; none if another kind is.
///
/// # Errors
/// If there are others beside it, since their results cannot be compared.
pub(in crate::sim) fn asked_for(scenarios: &[String]) -> Result<Option<Scenario>, Failure> {
    let asked = scenarios.iter().find_map(|name| Scenario::by_name(name));
    if let Some(name) = asked.map(Scenario::name)
        && scenarios.iter().any(|scenario| scenario != name)
    {
        return Err(Failure::usage(format!(
            "--scenario: {name} has policies and results of its own; simulate it in a command of its own"
        )));
    }
    Ok(asked)
}

/// Returns the names of the scenario's policies.
pub(in crate::sim) fn policies(scenario: Scenario) -> impl Iterator<Item = &'static str> {
    scenario.policies().iter().map(|policy| policy.name)
}

/// Returns the setup of a run of the scenario.
pub(super) fn setup(
    scenario: Scenario,
    flags: &Flags,
    settings: &[String],
    policy: &str,
    seed: u64,
) -> Result<Setup, Failure> {
    flags.check_single_size(&format!(
        "{} has a single size; change its length with --set seconds=N+N",
        scenario.name()
    ))?;
    let mut setup = Setup::new(scenario, policy, seed);
    apply(settings, |key, value| setup.set(key, value))?;
    Ok(setup)
}

/// The scenario: a replicated store by day and at night.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Diurnal;

/// Runs that differ in their seeds alone.
pub(super) type Group<'a> = comparison::Group<'a, Results, Vec<Sample>>;
/// The finished runs of policies.
pub(super) type Comparison = comparison::Comparison<Results, Vec<Sample>>;

impl Study for Diurnal {
    type World = World;
    type Results = Results;
    type Shared = ();
    type Observed = Vec<Sample>;

    fn name(&self) -> &str {
        Scenario::Diurnal.name()
    }

    fn setup(&self, flags: &Flags, settings: &[String], policy: &str, seed: u64) -> Result<Setup, Failure> {
        setup(Scenario::Diurnal, flags, settings, policy, seed)
    }

    fn results(world: &World) -> Results {
        world.results()
    }

    fn observed(_: &Setup, world: &World) -> Vec<Sample> {
        world.samples().to_vec()
    }

    fn headline(results: &Results) -> String {
        let violations = &results.violations;
        format!("violated {:.3}% by day, {:.3}% at night", violations.day * 100.0, violations.night * 100.0)
    }

    fn text(outcome: &Outcome<Results>) -> String {
        text(&outcome.results)
    }

    fn series(_: &Setup, world: &World) -> String {
        csv(world.samples())
    }
}

fn text(results: &Results) -> String {
    let Results { scenario, policy, seed, violations, p99_ms, extra_load_ratio, .. } = results;
    let mut text =
        format!("{scenario} under {policy}, seed {seed}\n\n          violated, %   P99 ms  extra load, %\n");
    for (name, violated, p99_ms, extra) in [
        ("day", violations.day, p99_ms.day, extra_load_ratio.day),
        ("night", violations.night, p99_ms.night, extra_load_ratio.night),
        ("whole", violations.whole, p99_ms.whole, extra_load_ratio.whole),
    ] {
        let _ = writeln!(text, "{name:<8} {:>12.3} {p99_ms:>8.1} {:>14.2}", violated * 100.0, extra * 100.0);
    }
    let _ = writeln!(
        text,
        "\n{} requests; {:.1}% of the violations at night; {:.2} node-hours; {} requests timed out",
        results.requests,
        results.night_share * 100.0,
        results.node_hours,
        results.errors,
    );
    for decision in &results.decisions {
        let _ = writeln!(text, "{decision}");
    }
    text
}

/// Formats a line for each ten seconds.
pub(super) fn csv(samples: &[Sample]) -> String {
    let mut text = "second,requests,violated,partitions,duplicates,asked\n".to_owned();
    for Sample { second, requests, violated, partitions, duplicates, asked } in samples {
        let _ = writeln!(text, "{second},{requests},{violated},{partitions},{duplicates},{asked}");
    }
    text
}
