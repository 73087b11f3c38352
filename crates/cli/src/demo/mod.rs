//! `sherwood demo`: the whole system in one process, with nothing to install.
//!
//! The requests of a page-rendering service go over HTTP to a node with twenty embedded backends.
//! Each backend does real work and has the capacity of a remote server ([`paced`]). Four times in
//! three hours, compressed into minutes, some backends lose most of their capacity. Every policy
//! receives the same requests in the same order at the same times.

mod catalogue;
mod cpu;
mod judge;
mod lateness;
mod live;
mod node;
mod paced;
mod policy_run;
mod report;
mod screen;
mod share;
mod time;
mod view;

use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use sherwood_workload::onerf::Model;

use self::catalogue::Catalogue;
use self::live::RunLabel;
use self::policy_run::{Played, PolicyRun};
use self::report::Report;
use self::share::LoadShare;
use self::time::Times;
use crate::exit::Failure;
use crate::{cache_dir, descriptors, duration, interrupt, logs, out};

/// Open files of a run: both ends of the load's connections, at most 4,096, and the files of the
/// stores.
const FILES_MIN: u64 = 10_000;

/// Shows a service of twenty backends hold its request P99 while backends slow down
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood demo                                        watch it
  sherwood demo --compare shared-lru,robinhood         the same load with each policy, then the difference
  sherwood demo --duration 60s --headless              shorter, without the screen
  sherwood demo --headless --json > demo.json          for programs

The first run loads about 1.6 GB of values into the user's cache directory. A third of the measured time is \
spent on warming up before it. On a busy machine the demo shows a share of the load, or ends with exit status 3. SHERWOOD_LOG=info logs \
decisions, where there is no screen. Exit status: 0 done, 1 failed, 2 bad usage, 3 a run does not count, 130 interrupted.")]
pub(crate) struct Args {
    /// Policy that sizes the partitions
    #[arg(long, value_name = "NAME", default_value = "robinhood", conflicts_with = "compare")]
    policy: String,
    /// Measured time of one policy, 10s to 3h; the scenario's three hours are compressed into it
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = measured_time)]
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
    /// Address of the dashboard and the admin API, on loopback [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR:PORT", value_parser = loopback)]
    admin: Option<SocketAddr>,
    /// Where the backends' values are kept [default: the user's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

fn measured_time(text: &str) -> Result<Duration, String> {
    duration::between(Duration::from_secs(10), Duration::from_secs(3 * 3_600), text)
}

/// Reads an address of this machine that others cannot reach, since the demo asks for no token.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|error| format!("{error}; give an address and a port, such as 127.0.0.1:8080"))?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("the demo's port has no access control: give an address on loopback, such as 127.0.0.1:8080"
            .to_owned())
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let policies = if args.compare.is_empty() { vec![args.policy.clone()] } else { args.compare.clone() };
    for policy in &policies {
        sherwood_policy::by_name(policy, &sherwood_policy::Options::default()).map_err(Failure::usage)?;
    }
    let filter = logs::filter("error")?;
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
        None => cache_dir::default("demo-v1", "--cache-dir")?,
    };
    let catalogue = Catalogue::new(&model, node::PROFILE, directory);
    catalogue.load().map_err(Failure::failed)?;
    catalogue.warm().map_err(Failure::failed)?;
    let began = Instant::now();
    // The screen is drawn on standard output, wherever errors go.
    let show = !args.headless && std::io::stdout().is_terminal();
    // Log lines would overwrite the screen.
    if !show || !std::io::stderr().is_terminal() {
        logs::start(logs::Format::Text, filter);
    }
    let stop = interrupt::stop_flag()?;
    let mut demo = Demo {
        args,
        model: &model,
        catalogue: &catalogue,
        show,
        stop: &stop,
        admin: args.admin.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        share: LoadShare::WHOLE,
        began,
    };
    let report = demo.play(&policies)?;
    let result =
        if args.json { serde_json::to_string_pretty(&report).expect("plain data") } else { report.words() };
    out::print(&format!("{result}\n"))?;
    // Leaving the screen is a normal end; an interrupted script must not treat the result as
    // complete.
    if stop.load(Relaxed) {
        return if show {
            Ok(())
        } else {
            Err(Failure::interrupted("interrupted: the last run is incomplete"))
        };
    }
    let Some(reason) = report.invalid_because() else { return Ok(()) };
    Err(Failure::Invalid(if args.json {
        format!("the result does not count: {reason}")
    } else {
        "the result does not count, for the reason above".to_owned()
    }))
}

/// The runs of the demo, one after the other.
struct Demo<'a> {
    args: &'a Args,
    model: &'a Arc<Model>,
    catalogue: &'a Catalogue,
    show: bool,
    stop: &'a Arc<AtomicBool>,
    /// Address of the admin API; a browser that shows one run shows the next as well.
    admin: SocketAddr,
    /// Share of the load that the machine carries, found in the warm-up of the first run.
    share: LoadShare,
    /// Time at which the values were there, read from the disk.
    began: Instant,
}

impl Demo<'_> {
    /// Plays the runs until one is stopped or does not count.
    fn play(&mut self, policies: &[String]) -> Result<Report, Failure> {
        let times = Times::of(self.args.duration);
        let bound = time::bound(&self.model.slo());
        let profile = self.model.profile(node::PROFILE).expect("the model that is built in has the profile");
        let mut report = Report::new(self.args.seed, &times, bound, profile.request_rate);
        let mut tried_since = Some(self.began);
        for (index, policy) in policies.iter().enumerate() {
            let label = RunLabel {
                policy: policy.clone(),
                run: (index + 1, policies.len()),
                share: self.share,
                times,
                bound,
            };
            let run = self.play_one(label, tried_since.take())?;
            let invalid = run.invalid_because.is_some();
            report.runs.push(run);
            if invalid || self.stop.load(Relaxed) {
                break;
            }
        }
        report.load_share = self.share;
        Ok(report)
    }

    /// Plays a run, again with a smaller share of the load if the machine does not carry this one.
    fn play_one(
        &mut self,
        mut label: RunLabel,
        tried_since: Option<Instant>,
    ) -> Result<report::Run, Failure> {
        loop {
            let mut policy_run = PolicyRun {
                model: self.model,
                catalogue: self.catalogue,
                run: label.clone(),
                admin: self.admin,
                seed: self.args.seed,
                show: self.show,
                tried_for: tried_since.map(|since| since.elapsed()),
                stop: self.stop,
            };
            let played = policy_run.play()?;
            self.admin = policy_run.admin;
            match played {
                Played::Ended(run) => return Ok(*run),
                Played::Lower(share) => (self.share, label.share) = (share, share),
            }
            if !self.show {
                out::say(format_args!("your machine is busy: showing {}", self.share));
            }
        }
    }
}
