//! Scenario `microfuge` and its runs.

use std::fmt::Write;

use sherwood_sim::microfuge::{self, Results, Sample, Setup, Shares, World};

use crate::exit::Failure;
use crate::sim::comparison;
use crate::sim::flags::{Flags, apply};
use crate::sim::study::{Outcome, Study};

/// Returns true if these scenarios are `microfuge` alone.
///
/// # Errors
/// If it is one of several scenarios, since their results cannot be compared.
pub(in crate::sim) fn is_asked_for(scenarios: &[String]) -> Result<bool, Failure> {
    if !scenarios.iter().any(|scenario| scenario == microfuge::SCENARIO) {
        return Ok(false);
    }
    if scenarios.iter().any(|scenario| scenario != microfuge::SCENARIO) {
        return Err(Failure::usage(
            "--scenario: microfuge has policies and results of its own; simulate it in a command of its own",
        ));
    }
    Ok(true)
}

/// Returns the names of all policies.
pub(in crate::sim) fn policies() -> impl Iterator<Item = &'static str> {
    microfuge::policies().iter().map(|policy| policy.name)
}

/// The scenario.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Microfuge;

/// Runs that differ in their seeds alone.
pub(super) type Group<'a> = comparison::Group<'a, Results, Vec<Sample>>;
/// The finished runs of policies.
pub(super) type Comparison = comparison::Comparison<Results, Vec<Sample>>;

impl Study for Microfuge {
    type World = World;
    type Results = Results;
    type Shared = ();
    type Observed = Vec<Sample>;

    fn name(&self) -> &str {
        microfuge::SCENARIO
    }

    fn setup(&self, flags: &Flags, settings: &[String], policy: &str, seed: u64) -> Result<Setup, Failure> {
        flags.check_single_size(
            "microfuge has a single size; change it with --set records=N and --set clients=N",
        )?;
        let mut setup = Setup::new(policy, seed);
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
        let [missed, rejected] =
            [results.deadline_miss_ratio, results.rejection_ratio].map(|share| share * 100.0);
        format!("{missed:.2}% missed, {rejected:.2}% rejected")
    }

    fn text(outcome: &Outcome<Results>) -> String {
        text(&outcome.results)
    }

    fn series(_: &Setup, world: &World) -> String {
        csv(world.samples())
    }
}

fn text(results: &Results) -> String {
    let mut text = format!(
        "microfuge under {}, seed {}\n\n\
         {:>9.2}%  of the requests were answered after their deadline\n\
         {:>9.2}%  of the requests were rejected\n\
         {:>9.2}%  of the requests were hits\n\
         {:>7.1} ms  P50 of latency, P90 {:.1}, P99 {:.1}\n\
         {:>10.0}  requests a second\n\n\
         deadline ms     requests   missed  rejected     hits\n",
        results.policy,
        results.seed,
        results.deadline_miss_ratio * 100.0,
        results.rejection_ratio * 100.0,
        results.hit_ratio_overall * 100.0,
        results.p50_ms,
        results.p90_ms,
        results.p99_ms,
        results.requests_per_s,
    );
    let mut row = |head: &str, shares: Shares| {
        let Shares { requests, .. } = shares;
        let [missed, rejected, hits] =
            [shares.miss_ratio, shares.rejection_ratio, shares.hit_ratio].map(|ratio| ratio * 100.0);
        let _ = writeln!(text, "{head:<13} {requests:>10}  {missed:>6.2}%   {rejected:>6.2}%  {hits:>6.2}%");
    };
    results.by_deadline.iter().for_each(|of| row(&format!("{:>4} to {}", of.lo_ms, of.hi_ms), of.shares));
    results.tenants.iter().for_each(|of| row(&of.name, of.shares));
    text
}

/// Formats a line for each second, with a column for each deadline class of the cache.
fn csv(samples: &[Sample]) -> String {
    let mut text = "second,deadline_miss_ratio,rejection_ratio,hit_ratio,beta".to_owned();
    let classes = samples.first().map_or(0, |sample| sample.multipliers.len());
    (0..classes).for_each(|class| text += &format!(",multiplier_{class}"));
    text.push('\n');
    for Sample { second, deadline_miss_ratio, rejection_ratio, hit_ratio, beta, multipliers } in samples {
        let _ = write!(text, "{second},{deadline_miss_ratio:.6},{rejection_ratio:.6},{hit_ratio:.6},{beta}");
        multipliers.iter().for_each(|multiplier| text += &format!(",{multiplier:.6}"));
        text.push('\n');
    }
    text
}
