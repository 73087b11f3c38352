//! Measures a decision between tenants.
//!
//! `cargo run --release -p sherwood-policy --example between` prints a line of JSON for each kind
//! of curves, number of tenants and policy: the median time of a decision in microseconds, its gain
//! and, where the policy has one, the bound of the gain. There are three resources, and curves have
//! 64 points: `smooth` ones bend like those of skewed popularity, `noisy` ones in addition have
//! errors of measurement, and `steps` have plateaus and cliffs.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "this measures time")]

use std::time::Instant;

use sherwood_model::{BackendId, DemandCurve, ResourceKind, SplitMix64};
use sherwood_policy::tenants::{Division, Share, TenantOptions, TenantSeen, Tenants, by_name};

const BASE_BYTES: u64 = 2 << 30;
const POINTS: u64 = 64;
/// Decisions that a median is taken of.
const DECISIONS: usize = 31;

#[derive(Clone, Copy, Debug)]
enum Curves {
    Smooth,
    Noisy,
    Steps,
}

fn main() {
    for (name, curves) in [("smooth", Curves::Smooth), ("noisy", Curves::Noisy), ("steps", Curves::Steps)] {
        for count in [2, 4, 16, 128, 1_000] {
            let tenants = tenants(count, curves);
            for policy in ["hare", "hare-published", "drf", "memshare"] {
                let (division, time_us) = measure(policy, &tenants);
                let bound = division.bound.map_or("null".to_owned(), |bound| format!("{bound:.4}"));
                println!(
                    r#"{{"case":"between","curves":"{name}","tenants":{count},"policy":"{policy}","decision_us":{time_us:.1},"gain":{:.4},"bound":{bound}}}"#,
                    division.gain,
                );
            }
        }
    }
}

fn measure(policy: &str, tenants: &Tenants) -> (Division, f64) {
    let options = TenantOptions { chunk_bytes: BASE_BYTES / POINTS, conserving: true };
    let mut policy = by_name(policy, options).unwrap();
    let division = policy.divide(tenants);
    let mut times: Vec<f64> = (0..DECISIONS)
        .map(|_| {
            let begun = Instant::now();
            std::hint::black_box(policy.divide(std::hint::black_box(tenants)));
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (division, times[DECISIONS / 2])
}

/// Tenants with equal baselines, and working sets and mixes of their own.
fn tenants(count: u64, curves: Curves) -> Tenants {
    let mut random = SplitMix64::new(1);
    let mut ratio = move || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    // Reads and network bind alike, so that both have a price.
    let rates = vec![1_000.0, 1_000.0, (3 << 20) as f64];
    let total =
        Share { bytes: BASE_BYTES * count, rates: rates.iter().map(|rate| rate * count as f64).collect() };
    let seen = (0..count).map(|_| {
        let range = (BASE_BYTES as f64 * (0.5 + 3.5 * ratio())) as u64;
        let (bend, low) = (1.0 + 6.0 * ratio(), 0.2 * ratio());
        let steps = 2.0 + (4.0 * ratio()).floor();
        let points = (1..=POINTS).map(|point| {
            let at = point as f64 / POINTS as f64;
            let smooth = low + (1.0 - low) * libm::pow(1.0 - at, bend) + 0.01;
            let misses = match curves {
                Curves::Smooth => smooth,
                Curves::Noisy => smooth + 0.02 * ratio(),
                Curves::Steps => 1.0 - (1.0 - low) * (at * steps).floor() / steps,
            };
            (range / POINTS * point, misses.min(1.0))
        });
        let miss_ratio = DemandCurve::new([(0, 1.0)].into_iter().chain(points.collect::<Vec<_>>()));
        let (writes, value) = (0.1 * ratio(), 100.0 + 2_000.0 * ratio());
        let demand = vec![
            DemandCurve::of_misses(1.0 - writes, 1.0, &miss_ratio),
            DemandCurve::constant(writes * (value / 1_024.0).ceil()),
            DemandCurve::of_misses(2.0 * value, 0.5 * (1.0 - writes), &miss_ratio),
        ];
        let base = Share { bytes: BASE_BYTES, rates: rates.clone() };
        TenantSeen { base, floor: Share { bytes: 10 << 20, rates: vec![] }, miss_ratio, demand }
    });
    let kinds =
        vec![ResourceKind::Reads(BackendId(0)), ResourceKind::Writes(BackendId(0)), ResourceKind::Network];
    let seen = seen.collect();
    Tenants::new(kinds, total, seen)
}
