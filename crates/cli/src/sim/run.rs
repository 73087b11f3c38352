//! `sherwood sim run`: one policy in one scenario.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use sherwood_sim::TraceStop;
use sherwood_sim::zoolander::Scenario;

use super::flags::{Flags, known_policy};
use super::onerf::subject::Subject;
use super::play::{self, Played};
use super::study::{KeptOf, Run, Shared, Study};
use super::{microfuge, progress, spare, tenants, zoolander};
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
  sherwood sim run --scenario spare-mediawiki --policy none --set pattern=1
  sherwood sim run --scenario zoolander-diurnal --policy sherwood
  sherwood sim run --scenario zoolander-model --policy mix --set load=0.2
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
    /// Policy that divides the caches, within a tenant or between tenants; or set-up of cache,
    /// queues and admission in microfuge, of servers and copies in scenarios of sPARE, of nodes in
    /// those of Zoolander
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

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let scenario = std::slice::from_ref(&args.scenario);
    if microfuge::is_asked_for(scenario)? {
        one(&microfuge::Microfuge, args)
    } else if spare::is_asked_for(scenario)? {
        one(&spare::Application::find(&args.scenario)?, args)
    } else if let Some(scenario) = zoolander::asked_for(scenario)? {
        match scenario {
            Scenario::Diurnal => one(&zoolander::Diurnal, args),
            Scenario::Model => one(&zoolander::Model, args),
        }
    } else if tenants::is_asked_for(scenario)? {
        one(&tenants::Subject::find(&args.scenario)?, args)
    } else {
        one(&Subject::named(&args.scenario)?, args)
    }
}

/// Simulates the run, after the run of the baseline that it is compared with.
fn one<S: Study>(study: &S, args: &Args) -> Result<(), Failure> {
    let new = |policy: &str| Run::new(study, &args.flags, args.flags.all_settings(), policy, args.seed);
    let run = new(&args.policy)?;
    // Invalid setups are refused before a lengthy learning phase.
    run.check()?;
    let base = S::BASELINE.filter(|policy| *policy != args.policy).map(new).transpose()?;
    let stop = interrupt::stop_flag()?;
    let base = base.map(|base| play(&base, &stop, "the baseline")).transpose()?;
    let Ended { mut kept, world, cut } = play(&run, &stop, "the simulated time")?;
    if let Some(base) = &base {
        S::judge(&mut kept, &base.kept);
    }
    match &args.series {
        // A CSV file could not show that it is incomplete.
        Some(path) if cut.is_some() => out::say(format_args!(
            "sherwood: {} is not written: the run ended before its time, and what there is would look like all of it",
            path.display()
        )),
        Some(path) => out::write_file(path, &S::series(&run.setup, &world))?,
        None => {}
    }
    out::print(&if args.json {
        out::json(&kept.outcome) + "\n"
    } else {
        incomplete(S::trace_stop(&world)).to_owned() + &S::text(&kept.outcome)
    })?;
    // The results of a trace that ended too early are printed, but the command fails.
    cut.map_or(Ok(()), Err)
}

/// A run at its end.
struct Ended<S: Study> {
    kept: KeptOf<S>,
    world: S::World,
    /// The failure of a run whose trace ended too early.
    cut: Option<Failure>,
}

/// Simulates a run, and shows its progress under the name `of`.
fn play<S: Study>(run: &Run<S>, stop: &AtomicBool, of: &str) -> Result<Ended<S>, Failure> {
    let shared = S::Shared::of(&[run], 1)?;
    let Some(mut world) = S::begin(run, &shared, None, stop)? else {
        return Err(Failure::interrupted("stopped before the simulation began: there is no result"));
    };
    let began = Instant::now();
    let bar = progress::bar(of, run.seconds());
    let seen = |passed: Duration, world: &S::World| {
        bar.inc(passed.as_secs());
        let rate = world.queries() as f64 / began.elapsed().as_secs_f64();
        bar.set_message(format!(", {:.1} million queries/s", rate / 1e6));
    };
    let played = play::play(&mut world, stop, seen);
    bar.finish_and_clear();
    let cut = match played {
        Ok(true) => None,
        Ok(false) => {
            let minutes = world.now().as_nanos() as f64 / 60e9;
            return Err(Failure::interrupted(format!(
                "stopped after {minutes:.1} simulated minutes, before the end: there is no result"
            )));
        }
        Err(failure) if S::trace_stop(&world).is_some() => Some(failure),
        Err(failure) => return Err(failure),
    };
    let kept = run.kept(&world, world.queries(), began.elapsed());
    Ok(Ended { kept, world, cut })
}

/// Returns a warning for results of a trace that ended too early.
fn incomplete(stop: Option<&TraceStop>) -> &'static str {
    match stop {
        None => "",
        Some(TraceStop::Ended { .. }) => "INCOMPLETE: the trace ended before the run did\n\n",
        Some(TraceStop::Unreadable { .. }) => {
            "INCOMPLETE: the trace could not be read to the end of the run\n\n"
        }
    }
}
