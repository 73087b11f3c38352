//! Service times of accesses.

use std::time::Duration;

use sherwood_model::SplitMix64;
use sherwood_policy::slo::ServiceTimes;
use sherwood_workload::normal_quantile;

use super::setup::Knobs;
use crate::traffic::stream;

/// The service time of each access at each duplicate, the same under all policies.
#[derive(Clone, Debug)]
pub(super) struct Services {
    knobs: Knobs,
    seed: u64,
}

/// Median of the service times without stalls, milliseconds.
const MEDIAN_MS: f64 = 2.0;
/// The Pareto distribution of stalls: the least one in milliseconds, and the exponent.
const STALL_MIN_MS: f64 = 100.0;
const STALL_ALPHA: f64 = 1.5;
/// The longest stall, milliseconds.
const STALL_MAX_MS: f64 = 1_000.0;

/// Number of the stream of draws for service times.
const SERVICES: u64 = 2;
/// Numbers of the draws for an access, beside the number of a duplicate.
const BASE: u64 = 0;
const STALL: u64 = 1;
const COMMON: u64 = 2;
/// Number that stands for all duplicates of an access.
const ALL: u8 = u8::MAX;
/// Parts of equal probability in which a distribution is tabulated.
const PARTS: u32 = 2_000;

impl Services {
    pub(super) fn new(knobs: &Knobs, seed: u64) -> Self {
        Self { knobs: *knobs, seed: rand_core::Rng::next_u64(&mut stream(seed, SERVICES)) }
    }

    /// Returns the service time of an access at a duplicate.
    pub(super) fn time(&self, access: u64, duplicate: u8) -> Duration {
        // With that probability all duplicates stall together, or none does.
        let is_common = self.draw(access, ALL, COMMON) < self.knobs.correlation;
        let stall = self.draw(access, if is_common { ALL } else { duplicate }, STALL);
        let ms = self.base_ms(self.draw(access, duplicate, BASE)) + self.stall_ms(stall);
        Duration::from_secs_f64(ms / 1e3)
    }

    /// Returns the distribution of service times as a table.
    ///
    /// # Panics
    /// If the table is no distribution, which is a bug.
    pub(super) fn table(&self) -> ServiceTimes {
        let stall = self.knobs.stall;
        let middle = |part: u32| (f64::from(part % PARTS) + 0.5) / f64::from(PARTS);
        // Stalls are combined with the times of other parts, in an order that is mixed.
        let parts = (0..PARTS).flat_map(|part| {
            let stalled = self.base_ms(middle(part * 1_237)) + self.stall_ms(middle(part) * stall);
            [(self.base_ms(middle(part)), 1.0 - stall), (stalled, stall)]
        });
        let mut times: Vec<(f64, f64)> = parts.filter(|(_, share)| *share > 0.0).collect();
        times.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (mut points, mut sum) = (Vec::<(f64, f64)>::with_capacity(times.len()), 0.0);
        for (ms, share) in times {
            sum += share / f64::from(PARTS);
            match points.last_mut() {
                Some(last) if last.0 >= ms => last.1 = f64::min(sum, 1.0),
                _ => points.push((ms, f64::min(sum, 1.0))),
            }
        }
        if let Some((_, whole)) = points.last_mut() {
            *whole = 1.0;
        }
        ServiceTimes::new(points).expect("times rise, and the last share is 1")
    }

    /// Returns the quantile of service times without stalls.
    fn base_ms(&self, p: f64) -> f64 {
        MEDIAN_MS * libm::exp(self.knobs.sigma * normal_quantile(p))
    }

    /// Returns the stall for a draw from 0 to 1: 0 in most cases.
    fn stall_ms(&self, draw: f64) -> f64 {
        if draw >= self.knobs.stall {
            return 0.0;
        }
        let p = draw / self.knobs.stall;
        f64::min(STALL_MIN_MS * libm::pow(p, -1.0 / STALL_ALPHA), STALL_MAX_MS)
    }

    /// Returns a draw from above 0 to below 1.
    fn draw(&self, access: u64, duplicate: u8, number: u64) -> f64 {
        let bits = SplitMix64::new(self.seed ^ ((access << 10) | (u64::from(duplicate) << 2) | number));
        ((bits.clone().next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scenario, Setup};
    use super::*;

    fn services(change: impl FnOnce(&mut Knobs)) -> Services {
        let mut knobs = Setup::new(Scenario::Diurnal, "idle", 1).knobs;
        change(&mut knobs);
        Services::new(&knobs, 7)
    }

    #[test]
    fn table_has_the_distribution_of_the_drawn_times() {
        let services = services(|knobs| knobs.stall = 0.02);
        let table = services.table();
        const ACCESSES: u32 = 200_000;
        let ms = |access: u32| services.time(access.into(), 1).as_secs_f64() * 1e3;
        let mean = (0..ACCESSES).map(ms).sum::<f64>() / f64::from(ACCESSES);
        assert!((table.mean_ms() / mean - 1.0).abs() < 0.02, "{} for {mean}", table.mean_ms());
        for bound in [1.0, 2.0, 4.0, 100.0, 200.0, 900.0, 1_002.0] {
            let within = (0..ACCESSES).filter(|access| ms(*access) <= bound).count();
            let within = within as f64 / f64::from(ACCESSES);
            let predicted = table.share_within(bound);
            assert!((predicted - within).abs() < 0.004, "{bound} ms: {predicted} for {within}");
        }
    }

    #[test]
    fn share_of_stalls_that_hit_both_duplicates_is_the_correlation() {
        for correlation in [0.0, 0.3, 1.0] {
            let services = services(|knobs| (knobs.stall, knobs.correlation) = (0.02, correlation));
            let stalls = |access, duplicate| services.time(access, duplicate) > Duration::from_millis(100);
            let first: Vec<u64> = (0..200_000).filter(|access| stalls(*access, 0)).collect();
            let both = first.iter().filter(|access| stalls(**access, 1)).count() as f64 / first.len() as f64;
            // Two in a hundred of the others meet by chance.
            let expected = correlation + (1.0 - correlation) * 0.02;
            assert!((both - expected).abs() < 0.03, "{correlation}: {both}");
        }
    }

    #[test]
    fn without_stalls_or_spread_the_table_is_that_of_the_rest() {
        let table = services(|knobs| (knobs.stall, knobs.sigma) = (0.0, 0.0)).table();
        assert_eq!((table.mean_ms(), table.quantile_ms(1.0)), (MEDIAN_MS, MEDIAN_MS));
        let table = services(|knobs| (knobs.stall, knobs.sigma) = (1.0, 0.0)).table();
        assert_eq!((table.share_within(101.0), table.share_within(1_002.0)), (0.0, 1.0));
    }
}
