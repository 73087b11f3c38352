//! Measures how fast a partition reaches a new budget, and the latency of hits meanwhile.
//!
//!     resize MEMCACHED ADMIN (addresses of a node whose policy is `static`; see scripts/bench.sh
//!     resize)
//!
//! Fills the node, keeps an open load on all of its partitions, and meanwhile alternates the first
//! partition's budget by a tenth: a move every 300 ms. After each growth a second connection
//! refills the partition at a constant rate, so that each reduction has to evict a full tenth.
//!
//! A hit is assigned by its intended start: *inside* a move (from the request to change the budget
//! to the first poll that finds it reached), within 20 ms *after* one, during a *refill*, or
//! *between* all these. Prints one JSON document. The exit status is 1 if a budget was not reached
//! in time or the load failed.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns clocks, sockets and threads"
)]

mod node;
mod seen;

use std::error::Error;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use sherwood_load::cache::{self, Ended};
use sherwood_load::{Control, Gaps, Pace, Report};
use sherwood_workload::{KeyNames, KeyValueOptions, ValueSizes};

use node::{Admin, Filler, Partition};
use seen::{Move, Results, Span};

/// Number of keys. The partitions hold a large part of them: 1 GiB holds 790,000 items of 1 KiB.
const KEYS: u64 = 1_000_000;
/// Bytes of a key after its prefix.
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 1_024;
const RATE_PER_S: f64 = 20_000.0;
const MOVES: u32 = 200;
const MOVE_INTERVAL: Duration = Duration::from_millis(300);
/// Time for which load runs before the first move of the budget, so that connections and memory are
/// in use.
const LEAD: Duration = Duration::from_secs(2);
/// Interval between two polls of the partition: short against 20 ms, and long enough not to affect
/// the hits.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [memcached, admin] = arguments.as_slice() else {
        eprintln!("resize: give the addresses of a node's memcached listener and of its admin API");
        return ExitCode::from(2);
    };
    match measure(memcached, admin) {
        Ok((json, sound)) => {
            println!("{json}");
            ExitCode::from(u8::from(!sound))
        }
        Err(error) => {
            eprintln!("resize: {error}");
            ExitCode::from(1)
        }
    }
}

/// Runs the measurement; returns its result as JSON, and true if it is valid: every budget was
/// reached and no operation failed.
fn measure(memcached: &str, admin: &str) -> Result<(serde_json::Value, bool), Box<dyn Error>> {
    let mut admin = Admin::connect(admin)?;
    let partitions = admin.partitions()?;
    let prefixes: Vec<String> = partitions.iter().map(|partition| format!("{}/", partition.name)).collect();
    let mut filler = Filler::connect(memcached, VALUE_BYTES)?;
    for key in 0..KEYS {
        filler.set(&key_text(&prefixes, key))?;
    }
    filler.finish()?;
    check_full(&admin.partitions()?)?;
    let origin = Instant::now();
    thread::scope(|scope| {
        let load = scope.spawn(|| load(memcached, prefixes.clone(), origin));
        thread::sleep(LEAD);
        let moves = move_budgets(&mut admin, &mut filler, &prefixes, origin);
        let (report, hits) = load.join().expect("the load does not panic")?;
        let seen = Results { moves: moves?, hits };
        let sound = report.errors == 0 && report.complete && seen.all_reached();
        Ok((seen.to_json(&report), sound))
    })
}

/// The text of the key with this number, as the load generates it.
fn key_text(prefixes: &[String], key: u64) -> String {
    let width = KEY_BYTES - 1;
    format!("{}k{key:0width$}", prefixes[key as usize % prefixes.len()])
}

fn check_full(partitions: &[Partition]) -> Result<(), String> {
    match partitions.iter().find(|partition| partition.used_bytes < partition.allocated_bytes / 100 * 99) {
        Some(Partition { name, used_bytes, allocated_bytes }) => {
            Err(format!("{name} holds {used_bytes} of its {allocated_bytes} bytes; the node has to be full"))
        }
        None => Ok(()),
    }
}

/// Runs the open load; returns the intended start and latency of every hit.
fn load(memcached: &str, prefixes: Vec<String>, origin: Instant) -> Result<(Report, Vec<Span>), String> {
    let options = cache::Options {
        protocol: cache::Protocol::Memcached,
        address: memcached.to_owned(),
        pace: Pace::Open { rate_per_s: RATE_PER_S, gaps: Gaps::Poisson },
        connections: 16,
        pipeline: 64,
        duration: Some(LEAD + MOVE_INTERVAL * MOVES),
        operations_max: None,
        look_aside: true,
        deadline: None,
        tls: None,
        login: None,
        seed: 1,
    };
    let workload = cache::Workload::KeyValue {
        options: KeyValueOptions {
            keys: KEYS,
            key_bytes: KEY_BYTES,
            names: KeyNames::Padded,
            value_sizes: ValueSizes::fixed(VALUE_BYTES as u32),
            zipf: 0.0,
            get_ratio: 1.0,
        },
        batch: 1,
        prefixes,
        seed: 1,
    };
    let mut hits = Vec::new();
    let observe = |ended: &Ended| {
        if ended.hits > 0 {
            let start = origin.elapsed().saturating_sub(ended.latency);
            hits.push(Span { start, length: ended.latency });
        }
    };
    let report = cache::run(&options, workload, &Control::default(), observe);
    Ok((report.map_err(|error| error.to_string())?, hits))
}

/// Alternates the first partition's budget; returns the start and duration of each move.
fn move_budgets(
    admin: &mut Admin,
    filler: &mut Filler,
    prefixes: &[String],
    origin: Instant,
) -> Result<Vec<Move>, Box<dyn Error>> {
    let large = admin.partitions()?[0].allocated_bytes;
    let mut keys = (0..KEYS).step_by(prefixes.len()).cycle().map(|key| key_text(prefixes, key));
    let first = origin.elapsed();
    let mut moves = Vec::new();
    for number in 0..MOVES {
        let due = first + MOVE_INTERVAL * number;
        thread::sleep(due.saturating_sub(origin.elapsed()));
        let shrinks = number % 2 == 0;
        let budget = if shrinks { large / 10 * 9 } else { large };
        let start = origin.elapsed();
        let reached = reach(admin, budget, due + MOVE_INTERVAL, origin)?;
        if !shrinks {
            refill(admin, filler, &mut keys, due + MOVE_INTERVAL, origin)?;
        }
        moves.push(Move { shrinks, start, reached: reached.map(|at| at - start), settled: origin.elapsed() });
    }
    Ok(moves)
}

/// Sets the budget and polls until it is in force and kept; returns the time, or none at the
/// deadline.
fn reach(
    admin: &mut Admin,
    budget: u64,
    deadline: Duration,
    origin: Instant,
) -> Result<Option<Duration>, Box<dyn Error>> {
    admin.resize(0, budget)?;
    loop {
        let Partition { allocated_bytes, used_bytes, .. } = admin.partitions()?[0];
        let now = origin.elapsed();
        if allocated_bytes == budget && used_bytes <= budget {
            return Ok(Some(now));
        }
        if now >= deadline {
            return Ok(None);
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Keys of a refill that are set at once; with the pause after them a tenth of a partition takes
/// about 120 ms.
const REFILL_KEYS: usize = 32;
const REFILL_PAUSE: Duration = Duration::from_millis(1);
/// Rounds of a refill between two polls.
const REFILL_ROUNDS: usize = 8;

/// Sets the partition's keys, the least recently set first, until it is full or the deadline is
/// near.
fn refill(
    admin: &mut Admin,
    filler: &mut Filler,
    keys: &mut impl Iterator<Item = String>,
    deadline: Duration,
    origin: Instant,
) -> Result<(), Box<dyn Error>> {
    while origin.elapsed() + MOVE_INTERVAL / 3 < deadline {
        for _ in 0..REFILL_ROUNDS {
            for key in keys.by_ref().take(REFILL_KEYS) {
                filler.set(&key)?;
            }
            filler.finish()?;
            thread::sleep(REFILL_PAUSE);
        }
        let Partition { allocated_bytes, used_bytes, .. } = admin.partitions()?[0];
        if used_bytes >= allocated_bytes / 1_000 * 999 {
            break;
        }
    }
    Ok(())
}
