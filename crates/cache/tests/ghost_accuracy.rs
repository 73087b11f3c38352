//! Sampled curves compared with exact stack distances: the median error over five hash seeds is
//! below a percentage point.
//!
//! `examples/ghost.rs` does the same at full length and prints the figures.

use sherwood_cache::{Curve, Ghost, GhostOptions, charge};
use sherwood_model::{SeededState, SplitMix64};
use sherwood_workload::trace::{built_in, cache2k};
use sherwood_workload::{Popularity, rng_from_seed};

/// Accesses per generated workload; few enough for an unoptimised build.
const ACCESSES: usize = 300_000;
/// Accesses of the recorded trace, which begins with a few popular objects; sampling needs more
/// variety.
const ORM_ACCESSES: usize = 800_000;
const KEYS: u64 = 100_000;
const SIZES: u64 = 500;

fn drawn(alpha: f64) -> Vec<u32> {
    let (popularity, mut rng) = (Popularity::new(KEYS, alpha), rng_from_seed(1));
    (0..ACCESSES).map(|_| popularity.draw(&mut rng) as u32).collect()
}

fn orm_busy() -> Vec<u32> {
    let trace = cache2k::read(built_in("orm-busy").unwrap()).unwrap().take(ORM_ACCESSES);
    trace.map(|access| access.unwrap().word()).collect()
}

/// Charge of the object `key`, whose size is fixed by its number: 64 bytes to 64 KiB, each doubling
/// equally likely.
fn mixed(key: u32) -> u64 {
    let draw = SplitMix64::new(u64::from(key) << 8).next_u64();
    let least = 64 << (draw % 10);
    charge(20, least + (draw >> 32) as usize % least)
}

fn curve(accesses: &[u32], weight: fn(u32) -> u64, seed: u64, rate: f64) -> Curve {
    let hash = SeededState::new(seed);
    let mut ghost = Ghost::new(GhostOptions { rate, ..GhostOptions::exact() });
    for (gets, &key) in (1..).zip(accesses) {
        let hash = hash.hash_bytes(&key.to_be_bytes());
        ghost.get(hash, || gets);
        ghost.store(hash, weight(key), || gets);
    }
    ghost.curve(accesses.len() as u64)
}

/// The least size at which each reuse hits, ascending: exact stack distances from a tree over all
/// accesses.
fn distances(accesses: &[u32], weight: fn(u32) -> u64) -> Vec<u64> {
    let mut tree = vec![0_u64; accesses.len() + 1];
    let mut last = std::collections::BTreeMap::new();
    let mut found = Vec::new();
    let mut total = 0;
    for (at, &key) in accesses.iter().enumerate() {
        if let Some(before) = last.insert(key, at) {
            // The tree is indexed from 1, so this sums what precedes the key's last use.
            found.push(total - sum(&tree, before));
            add(&mut tree, before, weight(key).wrapping_neg());
            total -= weight(key);
        }
        add(&mut tree, at, weight(key));
        total += weight(key);
    }
    found.sort_unstable();
    found
}

fn sum(tree: &[u64], mut node: usize) -> u64 {
    let mut sum = 0_u64;
    while node > 0 {
        sum = sum.wrapping_add(tree[node]);
        node &= node - 1;
    }
    sum
}

fn add(tree: &mut [u64], at: usize, bytes: u64) {
    let mut node = at + 1;
    while node < tree.len() {
        tree[node] = tree[node].wrapping_add(bytes);
        node += node & node.wrapping_neg();
    }
}

/// Mean absolute error of the curve `found` over sizes from 0 to the longest distance, in
/// percentage points.
fn error(distances: &[u64], accesses: usize, found: &Curve) -> f64 {
    let longest = *distances.last().unwrap();
    let off = (0..=SIZES).map(|i| {
        let bytes = longest / SIZES * i;
        let hits = distances.partition_point(|&distance| distance <= bytes);
        (1.0 - hits as f64 / accesses as f64 - found.at(bytes)).abs()
    });
    off.sum::<f64>() / (SIZES + 1) as f64 * 100.0
}

fn check(name: &str, accesses: &[u32]) {
    for (sizes, weight) in [("equal", (|_| charge(20, 100)) as fn(u32) -> u64), ("mixed", mixed)] {
        let distances = distances(accesses, weight);
        let exact = error(&distances, accesses.len(), &curve(accesses, weight, 0, 1.0));
        assert!(exact < 0.05, "{name}, {sizes} sizes: {exact} points off without sampling");
        let of_seed = |seed| error(&distances, accesses.len(), &curve(accesses, weight, seed, 1.0 / 32.0));
        let mut errors: Vec<f64> = (1..=5).map(of_seed).collect();
        errors.sort_by(f64::total_cmp);
        assert!(errors[2] < 1.0, "{name}, {sizes} sizes: {errors:?} points off");
    }
}

#[test]
fn sampled_curve_of_trace_orm_busy_is_within_a_percentage_point() {
    check("orm-busy", &orm_busy());
}

#[test]
fn sampled_curve_of_uniform_traffic_is_within_a_percentage_point() {
    check("uniform", &drawn(0.0));
}

#[test]
fn sampled_curve_of_zipf_099_traffic_is_within_a_percentage_point() {
    check("Zipf 0.99", &drawn(0.99));
}

#[test]
fn sampled_curve_of_zipf_05_traffic_is_within_a_percentage_point() {
    check("Zipf 0.5", &drawn(0.5));
}
