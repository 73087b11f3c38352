//! `sherwood sim run`: one policy in one scenario.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::Serialize;
use sherwood_sim::{Results, Setup, TraceStop, World};
use sherwood_workload::onerf::Model;

use super::flags::{Flags, known_policy};
use super::onerf::learning::{Learned, Learning};
use super::onerf::series;
use super::onerf::subject::Subject;
use super::runs::Run;
use super::{microfuge, play, progress, tenants};
use crate::exit::Failure;
use crate::interrupt;
use crate::out;

/// Simulates one policy in one scenario
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood sim run --scenario onerf-spikes --policy robinhood
  sherwood sim run --scenario ramp-7-quick --policy shared-lru --seed 2 --json
  sherwood sim run --scenario none --policy equal --set minutes=5+5 --series none.csv
  sherwood sim run --scenario our-shop.json --policy robinhood
  sherwood sim run --scenario microfuge --policy memcached --set clients=96
  sherwood sim run --scenario hare-working-set --policy hare --set keys=16
  sherwood sim run --scenario examples/tenants/two-levels.json --policy hare --set within=robinhood
  sherwood sim run --scenario onerf-spikes --policy robinhood --scale 1 --sample 1/16

Equal seeds give equal results on every machine, and meet the same requests whatever the policy.
`sherwood sim list` shows scenarios, policies and settings.

Exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted.")]
pub(crate) struct Args {
    /// Scenario of the list, or of a file: what happens to the backends, or what tenants ask for
    #[arg(long, value_name = "NAME|FILE.json[#NAME]|FILE.toml")]
    scenario: String,
    /// Policy that divides the caches, within a tenant or between tenants; or, in microfuge, set-up
    /// of cache, queues and admission
    #[arg(long, value_name = "NAME", value_parser = known_policy())]
    policy: String,
    /// Seed of every draw
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    flags: Flags,
    /// Print the results as one JSON document
    #[arg(long)]
    json: bool,
    /// Write what was observed over time into this file, as CSV
    #[arg(long, value_name = "FILE")]
    series: Option<PathBuf>,
}

/// The results and the cost of computing them.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    results: &'a Results,
    wall_s: f64,
    queries_per_s: f64,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if microfuge::is_asked_for(std::slice::from_ref(&args.scenario))? {
        return microfuge::run(&args.flags, &args.policy, args.seed, args.json, args.series.as_deref());
    }
    if tenants::is_asked_for(std::slice::from_ref(&args.scenario))? {
        let Args { scenario, flags, policy, seed, json, series } = args;
        return tenants::run(scenario, flags, policy, *seed, *json, series.as_deref());
    }
    let subject = Subject::find(&args.scenario, &Arc::new(Model::onerf()))?;
    let run = Run::new(&args.flags, &subject, &args.policy, args.seed)?;
    // Invalid setups are refused before a lengthy learning phase.
    World::new(&run.setup).map_err(Failure::usage)?;
    let stop = interrupt::stop_flag()?;
    let Some(setup) = learned(run, &stop)? else {
        return Err(Failure::interrupted("stopped while policy tao learnt its sizes: there is no result"));
    };
    let mut world = World::new(&setup).map_err(Failure::usage)?;
    let began = Instant::now();
    let duration = setup.duration().map_err(Failure::usage)?;
    let bar = progress::bar("the simulated time", duration.as_secs());
    let seen = |passed: Duration, world: &World| {
        bar.inc(passed.as_secs());
        let rate = world.queries() as f64 / began.elapsed().as_secs_f64();
        bar.set_message(format!(", {:.1} million queries/s", rate / 1e6));
    };
    let played = play::play(&mut world, &stop, seen);
    bar.finish_and_clear();
    if let Ok(false) = played {
        let minutes = world.now().as_nanos() as f64 / 60e9;
        return Err(Failure::interrupted(format!(
            "stopped after {minutes:.1} simulated minutes, before the end: there is no result"
        )));
    }
    // The results of a trace that ended too early are printed, but the command fails.
    if world.trace_stop().is_none() {
        played?;
        return show(args, &setup, &world, began.elapsed());
    }
    show(args, &setup, &world, began.elapsed())?;
    played.map(|_| ())
}

fn show(args: &Args, setup: &Setup, world: &World, wall: Duration) -> Result<(), Failure> {
    let (results, wall) = (world.results(), wall.as_secs_f64());
    match (&args.series, world.trace_stop()) {
        (Some(path), None) => write_series(path, setup, world)?,
        // A CSV file could not show that it is incomplete.
        (Some(path), Some(_)) => out::say(format_args!(
            "sherwood: {} is not written: the run ended before its time, and what there is would look like all of it",
            path.display()
        )),
        (None, _) => {}
    }
    let report = Report { results: &results, wall_s: wall, queries_per_s: world.queries() as f64 / wall };
    let text = if args.json {
        serde_json::to_string(&report).expect("results have string keys only") + "\n"
    } else {
        text(&report, world.trace_stop())
    };
    out::print(&text)
}

fn write_series(path: &Path, setup: &Setup, world: &World) -> Result<(), Failure> {
    let names: Vec<_> = setup.model.backends().iter().map(|backend| backend.name.as_str()).collect();
    out::write_file(path, &series::csv(&names, world.samples()))
}

/// Returns the setup with the learned allocation, if the policy needs one; none when learning was
/// stopped.
fn learned(run: Run, stop: &AtomicBool) -> Result<Option<Setup>, Failure> {
    let learning = Learning::of(&run)?;
    let mut setup = run.setup;
    if let Some(learning) = learning {
        let duration = learning.setup().duration().map_err(Failure::usage)?;
        let bar = progress::bar("what RobinHood finds", duration.as_secs());
        let world = World::new(learning.setup()).map_err(Failure::usage)?;
        let sizes = match learning.learn(world, stop, |passed| bar.inc(passed.as_secs()))? {
            Learned::Sizes(sizes) => sizes,
            Learned::Ended(why) => return Err(Failure::failed(why)),
            Learned::Stopped => return Ok(None),
        };
        bar.finish_and_clear();
        setup.knobs.control.tao.budgets_bytes = sizes;
    }
    Ok(Some(setup))
}

fn text(report: &Report<'_>, stop: Option<&TraceStop>) -> String {
    let Report { results, wall_s, queries_per_s } = report;
    let incomplete = match stop {
        None => "",
        Some(TraceStop::Ended { .. }) => "INCOMPLETE: the trace ended before the run did\n\n",
        Some(TraceStop::Unreadable { .. }) => {
            "INCOMPLETE: the trace could not be read to the end of the run\n\n"
        }
    };
    let mut text = format!(
        "{incomplete}{} under {} at scale {}, seed {}\n\n\
         {:>10.2}%  of the observations violated the SLO (P99 above {:.0} ms)\n\
         {:>8.1} ms  P50 of request latency, P90 {:.1}, P99 {:.1}; the worst P99 observed {:.1}\n\
         {:>10.0}%  of the slow requests waited for one backend, on average; at most {:.0}%\n\
         {:>11.2}  caches a division would need that never changes\n\n",
        results.scenario,
        results.policy,
        results.scale,
        results.seed,
        results.slo_violation_ratio * 100.0,
        results.slo_bound_ms,
        results.p50_ms,
        results.p90_ms,
        results.p99_ms,
        results.p99_max_ms,
        results.dominant_rbc.mean * 100.0,
        results.dominant_rbc.max * 100.0,
        results.static_equivalent_ratio,
    );
    text += "backend   hit ratio   query P99   mean allocation   largest\n";
    for ((name, ratio), allocation) in results.hit_ratio.iter().zip(results.allocation_bytes.values()) {
        let p99 = results.query_p99_ms[name].map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
        let mib = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
        text += &format!(
            "{name:<8} {:>9.1}%  {p99:>10}  {:>16}  {:>8}\n",
            ratio * 100.0,
            mib(allocation.mean),
            mib(allocation.max),
        );
    }
    text += &format!(
        "\n{} requests with {} queries measured, {} keys failed; {wall_s:.1} s, {:.2} million queries/s\n",
        results.requests,
        results.queries,
        results.errors,
        queries_per_s / 1e6,
    );
    text
}
