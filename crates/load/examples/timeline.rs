//! Runs an open load on a cache and records the end of each hit.
//!
//!     timeline TARGET RATE SECONDS KEYS OUT (TARGET: memcached://host:port or redis://host:port)
//!
//! Gets keys of 20 bytes with Zipf's law of exponent 0.99; keys that miss are set, with values of
//! 1,024 bytes. Every hit is two 64-bit numbers in the file OUT, in native byte order: nanoseconds
//! from the start of the run to the end of the hit, and its latency from its intended start.
//!
//! Another program that acts on the target meanwhile can read this clock: each line on stdin is
//! answered by a line with the nanoseconds since the start, except `end`, which ends the run before
//! its SECONDS. Prints the report as JSON at the end.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns clocks, files and threads"
)]

use std::error::Error;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sherwood_load::cache::{self, Ended};
use sherwood_load::{Control, Gaps, Pace, Target, TargetKind};
use sherwood_workload::{KeyNames, KeyValueOptions, ValueSizes};

const KEY_BYTES: usize = 20;
const VALUE_BYTES: usize = 1_024;
const ZIPF: f64 = 0.99;
const CONNECTIONS: usize = 16;
const PIPELINE: usize = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, rate, seconds, keys, out] = arguments.as_slice() else {
        eprintln!("timeline: give TARGET, RATE, SECONDS, KEYS and OUT");
        return ExitCode::from(2);
    };
    match run(target, rate, seconds, keys, out) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("timeline: {error}");
            ExitCode::from(1)
        }
    }
}

fn run(
    target: &str,
    rate: &str,
    seconds: &str,
    keys: &str,
    out: &str,
) -> Result<serde_json::Value, Box<dyn Error>> {
    let (protocol, address) = match target.parse()? {
        Target { kind: TargetKind::Cache(protocol), tls: false, address } => (protocol, address),
        _ => return Err("a gateway is no cache: give memcached:// or redis://".into()),
    };
    let (rate_per_s, seconds): (f64, f64) = (rate.parse()?, seconds.parse()?);
    let options = cache::Options {
        protocol,
        address,
        pace: Pace::Open { rate_per_s, gaps: Gaps::Poisson },
        connections: CONNECTIONS,
        pipeline: PIPELINE,
        duration: Some(Duration::from_secs_f64(seconds)),
        operations_max: None,
        look_aside: true,
        deadline: None,
        tls: None,
        login: None,
        seed: 1,
    };
    let workload = cache::Workload::KeyValue {
        options: KeyValueOptions {
            keys: keys.parse()?,
            key_bytes: KEY_BYTES,
            names: KeyNames::Padded,
            value_sizes: ValueSizes::fixed(VALUE_BYTES as u32),
            zipf: ZIPF,
            get_ratio: 1.0,
        },
        batch: 1,
        prefixes: Vec::new(),
        seed: 1,
    };
    // Kept in memory and written at the end, so that no I/O delays the load.
    let mut hits = Vec::with_capacity((rate_per_s * seconds * 16.0 * 1.1) as usize);
    let origin = Instant::now();
    let control = Arc::new(Control::default());
    serve_clock(origin, Arc::clone(&control));
    let nanos = |time: Duration| (time.as_nanos() as u64).to_ne_bytes();
    let report = cache::run(&options, workload, &control, |ended: &Ended| {
        if ended.hits > 0 {
            hits.extend_from_slice(&nanos(origin.elapsed()));
            hits.extend_from_slice(&nanos(ended.latency));
        }
    })?;
    std::fs::write(out, hits)?;
    Ok(serde_json::to_value(&report)?)
}

/// Answers each line on stdin with the time since `origin`, until the end of stdin; stops the run
/// when a line says so.
fn serve_clock(origin: Instant, control: Arc<Control>) {
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_ok_and(|line| line == "end") {
                control.stop();
                continue;
            }
            let mut stdout = std::io::stdout();
            let told = writeln!(stdout, "{}", origin.elapsed().as_nanos()).and_then(|()| stdout.flush());
            if told.is_err() {
                return;
            }
        }
    });
}
