//! `sherwood sim run` of a scenario of tenants.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use sherwood_sim::tenants::{Results, Sample, World};

use super::runs::{BASELINE, Outcome};
use super::subject::Subject;
use crate::exit::Failure;
use crate::interrupt;
use crate::out;
use crate::sim::flags::Flags;
use crate::sim::{play, progress};

/// Simulates one policy, with a run of `baseline` before it, and prints the results; writes what
/// was observed over time into `series`.
pub(in crate::sim) fn run(
    scenario: &str,
    flags: &Flags,
    policy: &str,
    seed: u64,
    json: bool,
    series: Option<&Path>,
) -> Result<(), Failure> {
    let setup = Subject::find(scenario)?.setup(flags, &flags.all_settings(), policy, seed)?;
    let mut world = World::new(&setup).map_err(Failure::usage)?;
    let stop = interrupt::stop_flag()?;
    let runs = if policy == BASELINE { 1 } else { 2 };
    let bar = progress::bar("the simulated time", runs * setup.duration().as_secs());
    let seen = |passed: Duration, _: &World| bar.inc(passed.as_secs());
    let stopped = || Failure::interrupted("stopped before the end: there is no result");
    let base = if policy == BASELINE {
        None
    } else {
        let mut base = World::new(&setup.baseline()).map_err(Failure::usage)?;
        play::play(&mut base, &stop, seen)?.then(|| base.measured()).map(Some).ok_or_else(stopped)?
    };
    let began = Instant::now();
    if !play::play(&mut world, &stop, seen)? {
        return Err(stopped());
    }
    bar.finish_and_clear();
    let outcome = Outcome::of(&world, base.as_ref(), began.elapsed());
    if let Some(path) = series {
        out::write_file(path, &csv(&outcome.results, world.samples()))?;
    }
    if json {
        return out::print(&(serde_json::to_string(&outcome).expect("results have string keys only") + "\n"));
    }
    out::print(&text(&outcome.results))
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

/// Formats a line for each tenant and ten seconds.
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
