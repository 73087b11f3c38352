//! `sherwood demo`: the whole system in one process, nothing to install.
//!
//! A request mix of a page-rendering service goes over HTTP to a node with twenty embedded backends. Each backend does its
//! real work and has the capacity of a remote server ([`paced`]); four times in three hours, compressed into minutes, some
//! of them lose most of it. Every policy meets the same requests in the same order at the same times.

mod catalogue;
mod judge;
mod live;
mod paced;
mod report;
mod screen;
mod time;
mod world;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sherwood_load::http::{self, Workload};
use sherwood_load::{Control, Gaps, Pace};
use sherwood_node::Node;
use sherwood_workload::onerf::Model;

use self::catalogue::Catalogue;
use self::judge::Judge;
use self::live::{Live, RunLabel};
use self::paced::Timer;
use self::report::{Report, Run, ms};
use self::screen::Screen;
use self::time::Times;
use self::world::Backends;
use crate::exit::Failure;
use crate::{descriptors, interrupt, logs};

/// Later than this at P99, and the figures say more about the machine than about the policy.
const LATE_MAX: Duration = Duration::from_millis(10);
/// Open files of a run: both ends of the 4,096 connections that the load opens at most, and the stores' own.
const FILES_MIN: u64 = 10_000;
/// How often the screen is drawn and limits are set.
const TICK: Duration = Duration::from_millis(50);
/// Without a screen, how often a line says how things stand.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Shows a service of twenty backends hold its request P99 while backends slow down
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood demo                                        watch it
  sherwood demo --compare shared-lru,robinhood         the same load with each policy, then the difference
  sherwood demo --duration 60s --headless              shorter, without the screen
  sherwood demo --headless --json > demo.json          for programs

The first run loads about 1.6 GB of values into the user's cache directory. A third of the measured time is
spent on warming up before it. Exit status: 0 done, 1 failed, 2 bad usage.")]
pub(crate) struct Args {
    /// Policy that sizes the partitions
    #[arg(long, value_name = "NAME", default_value = "robinhood", conflicts_with = "compare")]
    policy: String,
    /// Measured time of one policy, 10s to 3h; the scenario's three hours are compressed into it
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = duration)]
    duration: Duration,
    /// Seed of the requests, their arrival times and the service times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// No screen: a line now and then on standard error
    #[arg(long)]
    headless: bool,
    /// The result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Policies to run one after the other on the same load
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    compare: Vec<String>,
    /// Where the backends' values are kept [default: the user's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let span: sherwood_node::config::Span = text.parse().map_err(|error| format!("{error}"))?;
    let accepted = Duration::from_secs(10)..=Duration::from_secs(3 * 3_600);
    if accepted.contains(&span.0) { Ok(span.0) } else { Err(format!("{text} is not between 10s and 3h")) }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let policies = if args.compare.is_empty() { vec![args.policy.clone()] } else { args.compare.clone() };
    for policy in &policies {
        sherwood_policy::by_name(policy, &sherwood_policy::Options::default()).map_err(Failure::usage)?;
    }
    let files = descriptors::raise_limit();
    if files < FILES_MIN {
        return Err(Failure::failed(format!(
            "the demo needs {FILES_MIN} open files, for both ends of each connection, and {files} are allowed; raise the hard \
             limit (ulimit -Hn {FILES_MIN})"
        )));
    }
    let model = Arc::new(Model::onerf());
    let directory = match &args.cache_dir {
        Some(directory) => directory.clone(),
        None => Catalogue::default_directory().map_err(Failure::failed)?,
    };
    let catalogue = Catalogue::new(&model, world::PROFILE, directory);
    catalogue.load().map_err(Failure::failed)?;
    catalogue.warm().map_err(Failure::failed)?;
    let times = Times::of(args.duration);
    let mut report = Report::new(args.seed, &times, time::bound(&model.slo()));
    let show = !args.headless && std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
    logs::start(logs::Format::Text, if show { "off" } else { "warn" });
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::on_interrupt(&stop).map_err(Failure::failed)?;
    for (index, policy) in policies.iter().enumerate() {
        let run = RunLabel {
            policy: policy.clone(),
            run: (index + 1, policies.len()),
            times,
            bound: time::bound(&model.slo()),
        };
        let stage = Stage { model: &model, catalogue: &catalogue, run, seed: args.seed, show, stop: &stop };
        report.runs.push(stage.play()?);
        if stop.load(Relaxed) {
            break;
        }
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report).expect("plain data"));
    } else {
        println!("{}", report.words());
    }
    // Leaving the screen is an end like another; a script that is interrupted must not take the result for a whole one.
    if stop.load(Relaxed) && !show {
        return Err(Failure::failed("interrupted: the last run is incomplete"));
    }
    Ok(())
}

/// One policy's run, from an empty cache to its figures.
struct Stage<'a> {
    model: &'a Arc<Model>,
    catalogue: &'a Catalogue,
    run: RunLabel,
    seed: u64,
    show: bool,
    stop: &'a Arc<AtomicBool>,
}

impl Stage<'_> {
    fn play(&self) -> Result<Run, Failure> {
        let timer = Timer::start().map_err(Failure::failed)?;
        let stores = self.catalogue.open().map_err(Failure::failed)?;
        let backends = Backends::new(self.model, stores, self.seed, &timer);
        let setup = world::setup(self.model, &backends, &self.run.policy, &self.run.times, self.seed);
        let node = Node::start(setup).map_err(Failure::failed)?;
        let address = node.admin().expect("the setup opens it");
        let Times { warm_up, measured, .. } = self.run.times;
        let judge = Mutex::new(Judge::new(self.run.times.slo(&self.model.slo()), warm_up, measured));
        let (load, ended) = (Control::default(), AtomicBool::new(false));
        let began = Instant::now();
        let (outcome, cpu) = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let watched = self.watch(&node, &backends, &judge, &ended, began);
                // Whatever ended the watch, the load has no use without it.
                load.stop();
                watched
            });
            let ends = Ends(&ended);
            let outcome = self.load(&address.to_string(), &load, &judge, began);
            drop(ends);
            (outcome, watch.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let outcome = outcome.map_err(Failure::failed)?;
        node.stop();
        if let Some(error) = &outcome.first_error {
            eprintln!("sherwood: {}: the first request that failed: {error}", self.run.policy);
        }
        let judge = judge.into_inner().expect("no panics while held");
        Ok(self.figures(&outcome, &judge, cpu?))
    }

    /// Sends the requests. Blocks until the run has ended.
    fn load(
        &self,
        address: &str,
        control: &Control,
        judge: &Mutex<Judge>,
        began: Instant,
    ) -> Result<http::Outcome, sherwood_load::LoadError> {
        let profile = self.model.profile(world::PROFILE).expect("the model that is built in has the profile");
        let options = http::Options {
            address: address.to_owned(),
            pace: Pace::Open { rate_per_s: profile.request_rate, gaps: Gaps::Poisson },
            phases: vec![self.run.times.warm_up, self.run.times.measured],
            failed_latency: self.model.timeout(),
            seed: self.seed,
            ..http::Options::default()
        };
        let (model, profile) = (Arc::clone(self.model), world::PROFILE.to_owned());
        let workload = Workload::Mix { model, profile, seed: self.seed };
        http::run(&options, workload, control, |request| {
            let failed = request.failed || request.failed_keys > 0;
            let mut judge = judge.lock().expect("no panics while held");
            judge.finished(began.elapsed(), request.latency, failed);
        })
    }

    /// Moves the limits, shows how things stand, and passes an interrupt on. Gives the processor time of the measured part.
    fn watch(
        &self,
        node: &Node,
        backends: &Backends,
        judge: &Mutex<Judge>,
        ended: &AtomicBool,
        began: Instant,
    ) -> Result<Duration, Failure> {
        let mut view = View::new(self.show).map_err(Failure::failed)?;
        let (mut cpu_before, mut next_view) = (None, Duration::ZERO);
        while !ended.load(Relaxed) {
            let elapsed = began.elapsed();
            backends.set_minute(self.run.times.minute(elapsed));
            if elapsed >= self.run.times.warm_up {
                cpu_before.get_or_insert_with(cpu_time);
            }
            if self.stop.load(Relaxed) || view.quit_asked() {
                self.stop.store(true, Relaxed);
                break;
            }
            if elapsed >= next_view {
                // The load waits for the judge to say that a request has ended: nothing else is done under its lock.
                let seen = {
                    let mut judge = judge.lock().expect("no panics while held");
                    judge.observe(elapsed);
                    judge.seen(elapsed)
                };
                let live = Live::read(&self.run, node, backends, seen, elapsed);
                next_view = elapsed + view.show(&live).map_err(Failure::failed)?;
            }
            thread::sleep(TICK);
        }
        Ok(cpu_before.map_or(Duration::ZERO, |before| cpu_time().saturating_sub(before)))
    }

    fn figures(&self, outcome: &http::Outcome, judge: &Judge, cpu: Duration) -> Run {
        let measured = outcome.phases.get(1).cloned().unwrap_or_default();
        let standing = judge.standing();
        let late = measured.lateness.percentile(99.0);
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
        let (hits, misses) =
            measured.by_backend.values().fold((0, 0), |(h, m), b| (h + b.hits, m + b.misses));
        Run {
            policy: self.run.policy.clone(),
            requests: measured.requests,
            queries: measured.queries,
            slo_violation_ratio: standing.violation_ratio(),
            p50_ms: ms(measured.latency.percentile(50.0)),
            p99_ms: ms(measured.latency.percentile(99.0)),
            p99_max_ms: standing.max.map_or(0.0, ms),
            errors: measured.errors + measured.failed_keys,
            cpu_ratio: cpu.as_secs_f64() / self.run.times.measured.as_secs_f64() / cores,
            late_p99_ms: ms(late),
            valid: late <= LATE_MAX && measured.requests > 0 && outcome.incomplete_because.is_none(),
            hit_ratio: hits as f64 / (hits + misses).max(1) as f64,
            incomplete_because: outcome.incomplete_because.clone(),
        }
    }
}

/// Says that the load has ended when it is dropped, by a panic too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Where a run is shown: on a screen, or as a line now and then.
enum View {
    Screen(Box<Screen>),
    Log,
}

impl View {
    fn new(screen: bool) -> std::io::Result<Self> {
        Ok(if screen { Self::Screen(Box::new(Screen::start()?)) } else { Self::Log })
    }

    /// Shows the run, and says how long it may stay so.
    fn show(&mut self, live: &Live) -> std::io::Result<Duration> {
        match self {
            Self::Screen(screen) => {
                screen.draw(live)?;
                Ok(4 * TICK)
            }
            Self::Log => {
                eprintln!("{}", live.line());
                Ok(LOG_EVERY)
            }
        }
    }

    fn quit_asked(&mut self) -> bool {
        match self {
            Self::Screen(screen) => screen.quit_asked().unwrap_or(false),
            Self::Log => false,
        }
    }
}

/// Processor time of this process so far.
fn cpu_time() -> Duration {
    // SAFETY: `rusage` is plain numbers, for which zero is a value, and the call writes to nothing else.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1_000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
