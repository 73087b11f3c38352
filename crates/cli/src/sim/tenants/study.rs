//! Scenarios of tenants and their runs.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use sherwood_sim::tenants::{self, Measured, Results, Sample, Setup, World};

use super::subject::{Subject, is_of_tenants};
use crate::exit::Failure;
use crate::sim::comparison;
use crate::sim::flags::Flags;
use crate::sim::study::{KeptOf, Outcome, Study};

/// Returns true if these are scenarios of tenants.
///
/// # Errors
/// If some are and others are not, since their results cannot be compared.
pub(in crate::sim) fn is_asked_for(scenarios: &[String]) -> Result<bool, Failure> {
    let mut of_tenants = 0;
    for scenario in scenarios {
        of_tenants += usize::from(is_of_tenants(scenario)?);
    }
    if of_tenants > 0 && of_tenants < scenarios.len() {
        return Err(Failure::usage(
            "--scenario: scenarios of tenants have policies and results of their own; simulate them in a command of their own",
        ));
    }
    Ok(of_tenants > 0)
}

/// Returns the names of all policies.
pub(in crate::sim) fn policies() -> impl Iterator<Item = &'static str> {
    tenants::policies().iter().map(|policy| policy.name)
}

/// Runs that differ in their seeds alone.
pub(super) type Group<'a> = comparison::Group<'a, Results, Observed>;
/// The finished runs of policies in scenarios.
pub(super) type Comparison = comparison::Comparison<Results, Observed>;

/// Observations of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sim) struct Observed {
    pub(super) measured: Measured,
    pub(super) samples: Vec<Sample>,
}

impl Study for Subject {
    type World = World;
    type Results = Results;
    type Shared = ();
    type Observed = Observed;

    const BASELINE: Option<&str> = Some(tenants::BASELINE);

    fn name(&self) -> &str {
        &self.name
    }

    fn document(&self) -> Option<&str> {
        self.document.as_deref()
    }

    fn scale<'a>(&self, flags: &'a Flags) -> &'a str {
        flags.scale.as_deref().unwrap_or(self.default_scale())
    }

    fn setup(&self, flags: &Flags, settings: &[String], policy: &str, seed: u64) -> Result<Setup, Failure> {
        self.setup(self.scale(flags), settings, policy, seed)
    }

    fn results(world: &World) -> Results {
        world.results(&world.measured())
    }

    fn observed(_: &Setup, world: &World) -> Observed {
        Observed { measured: world.measured(), samples: world.samples().to_vec() }
    }

    fn judge(kept: &mut KeptOf<Self>, base: &KeptOf<Self>) {
        kept.outcome.results.judge(&kept.observed.measured, &base.observed.measured);
    }

    fn headline(results: &Results) -> String {
        format!("{:.3} predicted gain", results.predicted_gain)
    }

    fn text(outcome: &Outcome<Results>) -> String {
        text(&outcome.results)
    }

    fn series(_: &Setup, world: &World) -> String {
        csv(&Self::results(world), world.samples())
    }
}

fn text(results: &Results) -> String {
    let within = results.within.as_ref().map(|within| format!(", {within} within")).unwrap_or_default();
    let mut text = format!(
        "{} under {}{within} at scale {}, seed {}\n\n\
         tenant        requests/s  normalized  in 10 s    hits     P99 ms   P99.9 ms      cache",
        results.scenario, results.policy, results.scale, results.seed,
    );
    results.resources.iter().for_each(|resource| {
        let _ = write!(text, " {:>12}", format!("{}/s", resource.name));
    });
    text.push('\n');
    for tenant in &results.tenants {
        let _ = write!(
            text,
            "{:<12} {:>11.1} {:>11.3} {:>8.3} {:>6.1}% {:>10.1} {:>10.1} {:>6.0} MiB",
            tenant.name,
            tenant.throughput,
            tenant.normalized,
            tenant.normalized_min,
            tenant.hit_ratio * 100.0,
            tenant.p99_ms,
            tenant.p999_ms,
            tenant.holdings.cache_bytes as f64 / f64::from(1 << 20),
        );
        for resource in &results.resources {
            let _ = write!(text, " {:>12.1}", tenant.holdings.rates.get(&resource.name).unwrap_or(&0.0));
        }
        text.push('\n');
    }
    let _ =
        write!(text, "\nleast gain {:.3}, predicted {:.3}", results.normalized_least, results.predicted_gain);
    if let Some(bound) = results.bound {
        let _ = write!(text, ", at most {bound:.3} is possible");
    }
    let _ = writeln!(text, "; {} decisions, {} applied", results.decisions, results.applied);
    text
}

/// Formats a CSV line for each tenant and each period of ten seconds.
fn csv(results: &Results, samples: &[Sample]) -> String {
    let mut text = "second,tenant,throughput,hit_ratio,cache_bytes".to_owned();
    results.resources.iter().for_each(|resource| text += &format!(",{}", resource.name));
    text += ",gain,bound\n";
    for sample in samples {
        for (of, tenant) in sample.tenants.iter().zip(&results.tenants) {
            let _ = write!(
                text,
                "{},{},{},{:.6},{}",
                sample.second, tenant.name, of.throughput, of.hit_ratio, of.holdings.cache_bytes
            );
            for resource in &results.resources {
                let _ = write!(text, ",{}", of.holdings.rates.get(&resource.name).unwrap_or(&0.0));
            }
            let bound = sample.bound.map(|bound| bound.to_string()).unwrap_or_default();
            let _ = writeln!(text, ",{},{bound}", sample.gain);
        }
    }
    text
}
