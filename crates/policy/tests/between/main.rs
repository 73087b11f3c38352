//! Policies between tenants on a thousand drawn problems.
//!
//! `SEED=n cargo test -p sherwood-policy --test between` replays one problem.

mod draw;

use draw::{Problem, Shape};
use sherwood_model::TenantId;
use sherwood_policy::tenants::{Division, TenantOptions, Tenants, available, by_name};

const PROBLEMS: u64 = 1_000;
/// Chunks of the divisions that a decision among a few tenants is compared with.
const CHUNKS: u64 = 32;

#[expect(clippy::disallowed_methods, reason = "the seed of a failed problem is given by hand")]
fn seeds() -> Vec<u64> {
    match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (0..PROBLEMS).collect(),
    }
}

fn divide(policy: &str, tenants: &Tenants) -> Division {
    let chunk_bytes = (tenants.total().bytes / tenants.len() as u64 / 64).max(1);
    by_name(policy, TenantOptions { chunk_bytes, conserving: true }).expect("it is available").divide(tenants)
}

#[test]
fn drawn_problems_are_divided_by_hare_near_the_optimum_and_above_every_baseline() {
    for seed in seeds() {
        let Problem { tenants, shape, .. } = Problem::draw(seed);
        let division = divide("hare", &tenants);
        let count = tenants.len();
        let about = format!("seed {seed}, {shape:?}, {count} tenants, {} resources", tenants.kinds().len());
        check_sums(&tenants, &division, &about);
        for (index, seen) in tenants.seen().iter().enumerate() {
            let base = tenants.throughput(index, seen.base.bytes, &seen.base.rates);
            let rates = division.rates.row(TenantId::from_index(index));
            let throughput = tenants.throughput(index, division.bytes[index], rates);
            assert!(throughput >= base * (1.0 - 1e-6), "{about}: tenant {index}: {throughput} < {base}");
        }
        let (gain, bound) = (division.gain, division.bound.expect("hare has a bound"));
        assert!(gain <= bound * (1.0 + 1e-6), "{about}: {gain} above the bound {bound}");
        if count <= 4 {
            let best = best_of_chunks(&tenants);
            assert!(gain >= best * 0.999, "{about}: {gain} of {best}");
        }
        if count >= 16 && shape == Shape::Convex {
            assert!(gain >= bound * 0.995, "{about}: {gain} of at most {bound}");
        }
    }
}

#[test]
fn drawn_problems_are_divided_by_every_policy_within_the_totals() {
    for seed in seeds().into_iter().step_by(10) {
        let Problem { tenants, shape, .. } = Problem::draw(seed);
        let drf = divide("drf", &tenants).gain;
        let published = divide("hare-published", &tenants).gain;
        for policy in available() {
            let division = divide(policy, &tenants);
            let about = format!("seed {seed}, {shape:?}, {} tenants, {policy}", tenants.len());
            check_sums(&tenants, &division, &about);
            let least = match *policy {
                "hare" => published,
                "hare-published" => drf,
                "memshare" => 0.0,
                _ => 1.0,
            };
            assert!(division.gain >= least * (1.0 - 1e-6), "{about}: {} < {least}", division.gain);
        }
    }
}

fn check_sums(tenants: &Tenants, division: &Division, about: &str) {
    let total = tenants.total();
    let bytes: u128 = division.bytes.iter().map(|&bytes| u128::from(bytes)).sum();
    assert!(bytes <= total.bytes.into(), "{about}: {bytes} bytes of {}", total.bytes);
    for (i, &total) in total.rates.iter().enumerate() {
        let rates = (0..tenants.len()).map(|index| division.rates.row(TenantId::from_index(index))[i]);
        let sum: f64 = rates.inspect(|&rate| assert!(rate >= 0.0 && rate.is_finite(), "{about}")).sum();
        assert!(sum <= total * (1.0 + 1e-9), "{about}: {sum} of {total} units of resource {i}");
    }
    for (tenant, &bytes) in tenants.seen().iter().zip(&division.bytes) {
        assert!(bytes >= tenant.floor.bytes, "{about}: {bytes} bytes below the floor");
    }
}

/// The gain of the best of all divisions into chunks that respect the floors.
fn best_of_chunks(tenants: &Tenants) -> f64 {
    let mut best = f64::INFINITY;
    let sums = vec![0.0; tenants.kinds().len()];
    try_chunks(tenants, 0, CHUNKS, &sums, &mut best);
    1.0 / best
}

fn try_chunks(tenants: &Tenants, index: usize, left: u64, sums: &[f64], best: &mut f64) {
    let largest = sums.iter().copied().fold(0.0, f64::max);
    if largest >= *best {
        return;
    }
    if index == tenants.len() {
        *best = largest;
        return;
    }
    let seen = &tenants.seen()[index];
    for chunks in 0..=left {
        let bytes =
            u64::try_from(u128::from(tenants.total().bytes) * u128::from(chunks) / u128::from(CHUNKS))
                .expect("at most the total");
        if bytes >= seen.floor.bytes {
            let units = |i: usize| tenants.base_throughput()[index] * seen.demand[i].at(bytes);
            let add = |(i, sum): (usize, &f64)| {
                let total = tenants.total().rates[i];
                sum + if total > 0.0 { units(i) / total } else { 0.0 }
            };
            let sums: Vec<f64> = sums.iter().enumerate().map(add).collect();
            try_chunks(tenants, index + 1, left - chunks, &sums, best);
        }
    }
}
