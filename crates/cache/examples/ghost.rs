//! Measures a ghost's cost and the error of its curve: nanoseconds per access and mean absolute
//! error in percentage points.
//!
//! `cargo run --release -p sherwood-cache --example ghost` prints the figures of
//! docs/src/miss-ratio-curves.md, one line of JSON per workload: the error of a curve sampled at
//! 1/32, with and without correction, over five hash seeds, and the processor time per access
//! (hash, get and store) beside that of hashing the key alone. A last line gives the latency of the
//! slowest accesses with as many keys as 2 GiB hold at 100 bytes each, while the sample grows, is
//! halved and drops keys.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "this measures time")]

use std::time::Instant;

use sherwood_cache::{Curve, Ghost, GhostOptions, charge};
use sherwood_model::{SeededState, SplitMix64};
use sherwood_workload::trace::{built_in, cache2k};
use sherwood_workload::{Popularity, rng_from_seed};

const RATE: f64 = 1.0 / 32.0;
const SEEDS: u64 = 5;
const DRAWN: usize = 5_000_000;
const KEYS: u64 = 1_000_000;
/// Sizes at which curves are compared, evenly from 0 to the bytes of all objects.
const SIZES: u64 = 1_000;

/// Cache size for the measurement of the slowest accesses, and number of keys drawn, which is more
/// than it can hold.
const STALL_TOTAL_BYTES: u64 = 2 << 30;
const STALL_KEYS: u64 = 40_000_000;
const STALL_ACCESSES: u64 = 120_000_000;
/// Repetitions of that measurement. They differ only by interference from other processes, so the
/// least time of each access counts.
const STALL_RUNS: usize = 3;

/// Objects in the order of their gets, each with its charge.
type Accesses = Vec<(u32, u32)>;

fn main() {
    for (name, accesses) in workloads() {
        let ([exact, _], _) = run(&accesses, 0, 1.0);
        let footprint = *exact.bytes.last().unwrap();
        let mut errors = Vec::new();
        let mut uncorrected = Vec::new();
        let mut costs = Vec::new();
        for seed in 1..=SEEDS {
            let ([curve, raw], cost_ns) = run(&accesses, seed, RATE);
            errors.push(error(&exact, footprint, |bytes| curve.at(bytes)));
            uncorrected.push(error(&exact, footprint, |bytes| raw.at(bytes)));
            costs.push(cost_ns);
        }
        for list in [&mut errors, &mut uncorrected, &mut costs] {
            list.sort_by(f64::total_cmp);
        }
        let middle = errors.len() / 2;
        let worst = errors.last().unwrap();
        let raw = uncorrected[middle];
        // The least of all runs, since interference from other processes only adds to it.
        let (median, cost) = (errors[middle], costs[0]);
        let hashing = (0..SEEDS).map(|_| hashing(&accesses)).fold(f64::INFINITY, f64::min);
        println!(
            r#"{{"case":"ghost","workload":"{name}","sample":{RATE},"error_points":{median:.3},"error_points_worst":{worst:.3},"error_points_uncorrected":{raw:.3},"access_ns":{cost:.2},"hash_ns":{hashing:.2}}}"#
        );
    }
    stalls();
}

/// Prints the latency of the slowest accesses, each a get and a store.
fn stalls() {
    let mut slowest: Vec<u32> = (0..STALL_RUNS).map(|_| sampled_accesses_ns()).reduce(least).unwrap();
    slowest.sort_unstable_by(|a, b| b.cmp(a));
    // The slowest accesses are all sampled ones.
    let rank = STALL_ACCESSES as usize / 100_000;
    let [worst, p99999] = [0, rank].map(|rank| f64::from(slowest[rank]) / 1e3);
    println!(
        r#"{{"case":"ghost","workload":"uniform, {STALL_KEYS} keys","sample":{RATE},"worst_us":{worst:.1},"p99999_us":{p99999:.1}}}"#
    );
}

fn least(mut a: Vec<u32>, b: Vec<u32>) -> Vec<u32> {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = (*a).min(b));
    a
}

/// Duration of each access to a key that the ghost samples, in nanoseconds.
fn sampled_accesses_ns() -> Vec<u32> {
    let mut ghost = Ghost::new(GhostOptions {
        rate: RATE,
        depth_bytes: 2 * STALL_TOTAL_BYTES,
        memory_bytes: STALL_TOTAL_BYTES as usize / 32,
        fades: true,
    });
    let mut draw = SplitMix64::new(1);
    let mut took = Vec::new();
    for gets in 1..=STALL_ACCESSES {
        let hash = SplitMix64::new(draw.next_u64() % STALL_KEYS).next_u64();
        if !ghost.samples(hash) {
            continue;
        }
        let started = Instant::now();
        ghost.get(hash, || gets);
        ghost.store(hash, charge(20, 100), || gets);
        took.push(started.elapsed().as_nanos() as u32);
    }
    took
}

fn workloads() -> Vec<(&'static str, Accesses)> {
    let mut workloads = Vec::new();
    let same = |_| charge(20, 100) as u32;
    for (name, bytes) in [("orm-busy", same as fn(u32) -> u32), ("orm-busy, mixed", mixed)] {
        let trace = cache2k::read(built_in("orm-busy").unwrap()).unwrap();
        workloads
            .push((name, trace.map(|access| access.unwrap().word()).map(|key| (key, bytes(key))).collect()));
    }
    for (name, alpha, bytes) in [
        ("uniform", 0.0, same as fn(u32) -> u32),
        ("Zipf 0.99", 0.99, same),
        ("Zipf 0.5", 0.5, same),
        ("uniform, mixed", 0.0, mixed),
        ("Zipf 0.99, mixed", 0.99, mixed),
        ("Zipf 0.5, mixed", 0.5, mixed),
    ] {
        let (popularity, mut rng) = (Popularity::new(KEYS, alpha), rng_from_seed(1));
        let drawn = (0..DRAWN).map(|_| popularity.draw(&mut rng) as u32);
        workloads.push((name, drawn.map(|key| (key, bytes(key))).collect()));
    }
    workloads
}

/// Charge of the object `key`, whose size is fixed by its number: 64 bytes to 64 KiB, each doubling
/// equally likely.
fn mixed(key: u32) -> u32 {
    let draw = SplitMix64::new(u64::from(key) << 8).next_u64();
    let least = 64 << (draw % 10);
    charge(20, least + (draw >> 32) as usize % least) as u32
}

/// Miss ratio curves of `accesses` with and without correction of the sampling error, and
/// nanoseconds per access.
fn run(accesses: &Accesses, seed: u64, rate: f64) -> ([Curve; 2], f64) {
    let hash = SeededState::new(seed);
    let mut ghost = Ghost::new(GhostOptions { rate, ..GhostOptions::exact() });
    let started = processor_ns();
    for (gets, &(key, bytes)) in (1..).zip(accesses) {
        let hash = hash.hash_bytes(&key.to_be_bytes());
        ghost.get(hash, || gets);
        ghost.store(hash, u64::from(bytes), || gets);
    }
    let took = processor_ns() - started;
    let mut uncorrected = ghost.clone();
    let curve = ghost.curve(accesses.len() as u64);
    // As many gets as the sample suggests, so that nothing is corrected.
    let raw = uncorrected.curve((curve.sampled_gets / rate) as u64);
    ([curve, raw], took as f64 / accesses.len() as f64)
}

/// Nanoseconds per access that only hashes the key.
fn hashing(accesses: &Accesses) -> f64 {
    let hash = SeededState::new(1);
    let started = processor_ns();
    let sum = accesses.iter().fold(0, |sum: u64, (key, _)| sum ^ hash.hash_bytes(&key.to_be_bytes()));
    std::hint::black_box(sum);
    (processor_ns() - started) as f64 / accesses.len() as f64
}

/// Processor time of this process in nanoseconds, as reported by Linux; other processes are not
/// included.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("this measures on Linux only");
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("it begins with a number")
}

/// Mean absolute difference between the miss ratio curves `exact` and `found`, in percentage
/// points.
fn error(exact: &Curve, footprint: u64, found: impl Fn(u64) -> f64) -> f64 {
    let at = |i: u64| (footprint as u128 * u128::from(i) / u128::from(SIZES)) as u64;
    let off = (0..=SIZES).map(|i| (exact.at(at(i)) - found(at(i))).abs());
    off.sum::<f64>() / (SIZES + 1) as f64 * 100.0
}
