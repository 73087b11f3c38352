//! `sherwood sim run --scenario microfuge`.

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use sherwood_sim::microfuge::{Results, Sample, World};

use super::runs::Outcome;
use crate::exit::Failure;
use crate::interrupt;
use crate::out;
use crate::sim::flags::Flags;
use crate::sim::{play, progress};

/// Simulates one policy and prints the results; writes what was observed over time into `series`.
pub(in crate::sim) fn run(
    flags: &Flags,
    policy: &str,
    seed: u64,
    json: bool,
    series: Option<&Path>,
) -> Result<(), Failure> {
    let setup = super::setup(flags, &flags.all_settings(), policy, seed)?;
    let mut world = World::new(&setup).map_err(Failure::usage)?;
    let stop = interrupt::stop_flag()?;
    let bar = progress::bar("the simulated time", setup.duration().as_secs());
    let began = Instant::now();
    let is_finished = play::play(&mut world, &stop, |passed, _| bar.inc(passed.as_secs()))?;
    bar.finish_and_clear();
    if !is_finished {
        return Err(Failure::interrupted("stopped before the end: there is no result"));
    }
    let outcome = Outcome::of(&world, began.elapsed());
    if let Some(path) = series {
        out::write_file(path, &csv(world.samples()))?;
    }
    if json {
        return out::print(&(serde_json::to_string(&outcome).expect("results have string keys only") + "\n"));
    }
    out::print(&text(&outcome.results))
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
    let mut row = |head: &str, requests: u64, ratios: [f64; 3]| {
        let [missed, rejected, hits] = ratios.map(|ratio| ratio * 100.0);
        let _ = writeln!(text, "{head:<13} {requests:>10}  {missed:>6.2}%   {rejected:>6.2}%  {hits:>6.2}%");
    };
    for of in &results.by_deadline {
        let head = format!("{:>4} to {}", of.lo_ms, of.hi_ms);
        row(&head, of.requests, [of.miss_ratio, of.rejection_ratio, of.hit_ratio]);
    }
    for of in &results.tenants {
        row(&of.name, of.requests, [of.miss_ratio, of.rejection_ratio, of.hit_ratio]);
    }
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
