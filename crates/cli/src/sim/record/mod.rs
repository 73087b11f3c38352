//! `sherwood sim record`: creation of a scenario from a running node.

mod describe;
mod observed;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use sherwood_workload::onerf::Model;

use crate::admin::Access;
use crate::exit::Failure;
use crate::{duration, interrupt, out};
use describe::{Described, describe};
use observed::Observed;

/// Makes a scenario file of a running node: what is asked of it, and how long its backends take
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood sim record shop.json
  sherwood sim record --node http://127.0.0.1:8080 --for 10m shop.json
  sherwood sim run --scenario shop.json --policy robinhood

It asks the node's admin API, whose figures do not say all: popularity is fitted to the miss
ratio curves, and what was assumed is printed and noted in the file. Record under the usual load,
after the cache is full. The file has no limits: write those you are interested in under
`scenarios`.

Exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted.")]
pub(crate) struct Args {
    /// The file to write; one that is there is replaced
    #[arg(value_name = "FILE.json")]
    file: PathBuf,
    /// The node's admin API
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    node: String,
    /// How long to watch: 30s, 10m, 2h
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = watch_time)]
    time: Duration,
    #[command(flatten)]
    access: Access,
}

/// Interval between checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn watch_time(text: &str) -> Result<Duration, String> {
    duration::between(Duration::from_secs(1), Duration::from_secs(24 * 3_600), text)
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let stop = interrupt::stop_flag()?;
    let admin = args.access.client("--node", &args.node)?;
    let Some(observed) = Observed::watch(&admin, args.time, || wait(args.time, &stop))? else {
        return Err(Failure::interrupted("stopped before the time was over: nothing was written"));
    };
    let Described { document, notes } = describe(&observed)?;
    let text = serde_json::to_string_pretty(&document).expect("it has string keys only") + "\n";
    Model::from_json(&text)
        .map_err(|error| Failure::failed(format!("what was recorded makes no scenario: {error}")))?;
    let path = args.file.display();
    out::write_file(&args.file, &text)?;
    let mut told =
        format!("wrote {path}; simulate it: sherwood sim run --scenario {path} --policy robinhood\n\n");
    for note in notes {
        told += &format!("- {note}\n");
    }
    out::print(&told)
}

/// Waits for `time`; returns false when interrupted.
fn wait(time: Duration, stop: &AtomicBool) -> bool {
    let style =
        ProgressStyle::with_template("watching the node {bar:40} {eta} left").expect("a valid template");
    // Shown only on a terminal.
    let bar = ProgressBar::new(time.as_millis() as u64).with_style(style);
    let began = Instant::now();
    while began.elapsed() < time && !stop.load(Relaxed) {
        std::thread::sleep(POLL_INTERVAL.min(time.saturating_sub(began.elapsed())));
        bar.set_position(began.elapsed().as_millis() as u64);
    }
    bar.finish_and_clear();
    !stop.load(Relaxed)
}
