//! Service levels of replicated stores, predicted from their service times (Zoolander).
//!
//! A logical store has `R` partitions of `D` duplicates. A duplicate is an M/G/1 queue: it serves
//! the accesses of its partition one after the other. Of the duplicates some are asked, and the
//! first answer counts; or one is asked, and another one when it has not answered after a delay.
//! Duplicates are assumed to be slow independently of each other.

mod cdf;
mod correlation;
mod doubt;
mod lattice;
mod search;

use std::time::Duration;

use serde::Serialize;
use sherwood_model::StoreLayout;

pub use cdf::{CdfError, ServiceTimes};
pub use correlation::{CORRELATION_MAX, Correlation};
pub use doubt::{Doubt, doubt};
use lattice::Lattice;
pub use search::{Costs, PricedPlan, cheapest, plans, ways};

/// Most duplicates of a partition.
pub const DUPLICATES_MAX: u32 = 8;
/// Steps of the grid on which distributions are computed.
const STEPS: usize = 320;
/// Steps of the grid where duplicates wait together, which takes longer.
const STEPS_TOGETHER: usize = 112;
/// Accesses that are played where duplicates wait together.
const PLAYED: usize = 1_020;
/// Rounds in which the load of hedges is fed back, at most.
const ROUNDS_MAX: usize = 40;

/// The accesses that requests make, and the time within which a request is to end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Accesses a second, of all requests.
    pub rate_per_s: f64,
    /// Accesses of a request, at least 1.
    pub accesses: u32,
    /// The order of a request's accesses.
    pub composition: Composition,
    /// Time within which a request is to end, milliseconds.
    pub bound_ms: f64,
}

/// The order of the accesses of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Composition {
    /// All at once; the request ends with the last one.
    #[default]
    Parallel,
    /// Each after the one before.
    Sequence,
}

/// A layout of a logical store, and how its duplicates are asked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StorePlan {
    /// Partitions, each with a part of the keys.
    pub partitions: u32,
    /// Duplicates of each partition.
    pub duplicates: u32,
    /// Duplicates that each access asks at once: one or all.
    pub asked: u32,
    /// Time after which one more duplicate is asked, milliseconds; none if none is.
    pub hedge_ms: Option<f64>,
}

/// The figures of a plan, predicted. All are ratios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PlanFigures {
    /// Part of the time for which a duplicate is busy; 1 and more if it cannot follow.
    pub utilisation: f64,
    /// Share of requests that end within the bound; 0 where duplicates cannot follow.
    pub service_level: f64,
    /// Attempts beyond one for each access.
    pub extra_load_ratio: f64,
}

impl StorePlan {
    /// A plan that asks all duplicates of each partition.
    #[must_use]
    pub fn all_asked(partitions: u32, duplicates: u32) -> Self {
        Self { partitions, duplicates, asked: duplicates, hedge_ms: None }
    }

    /// Returns the plan as a backend carries it out.
    #[must_use]
    pub fn layout(&self) -> StoreLayout {
        let hedge = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX);
        StoreLayout {
            partitions: u16::try_from(self.partitions).unwrap_or(u16::MAX),
            duplicates: u8::try_from(self.duplicates).unwrap_or(u8::MAX),
            asked: u8::try_from(self.asked).unwrap_or(u8::MAX),
            hedge: self.hedge_ms.map(hedge),
        }
    }

    /// Returns the plan that a backend carries out.
    #[must_use]
    pub fn of_layout(layout: &StoreLayout) -> Self {
        let &StoreLayout { partitions, duplicates, asked, hedge } = layout;
        Self {
            partitions: partitions.into(),
            duplicates: duplicates.into(),
            asked: asked.into(),
            hedge_ms: hedge.map(|hedge| hedge.as_secs_f64() * 1e3),
        }
    }

    /// The number of nodes that it needs.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.partitions * self.duplicates
    }
}

/// Returns the figures of a plan for stores with these service times.
///
/// A request's time is the convolution of its accesses' times, an access's time the least of the
/// asked duplicates', each a wait by Pollaczek and Khinchine and a service. Duplicates that are all
/// asked wait at the same times. Levels are within half a percentage point of queues that are
/// played, unless there is a [`doubt`]. Either one duplicate is asked, or all are; a number in
/// between counts as all. Takes some milliseconds.
#[must_use]
pub fn predict(times: &ServiceTimes, objective: &Objective, plan: &StorePlan) -> PlanFigures {
    let Some(loaded) = loaded(times, objective, plan) else {
        let utilisation = utilisation(times, objective, plan, f64::from(plan.asked));
        return PlanFigures { utilisation: utilisation.max(1.0), service_level: 0.0, extra_load_ratio: 0.0 };
    };
    let access = loaded.first_answer(objective, plan);
    let service_level = match objective.composition {
        Composition::Parallel => {
            let each = access.share_within(objective.bound_ms);
            power(each, objective.accesses)
        }
        Composition::Sequence => access.times(objective.accesses).share_within(objective.bound_ms),
    };
    let service_level = service_level.clamp(0.0, 1.0);
    let Loaded { utilisation, copies, .. } = loaded;
    PlanFigures { utilisation, service_level, extra_load_ratio: copies - 1.0 }
}

/// The slides' model: `1 - (1 - Φ(τ - F))^D`, where `F` is the mean wait of the queue in front of
/// each of `D` duplicates that are all asked. For one access a request.
#[must_use]
pub fn predict_by_mean(times: &ServiceTimes, objective: &Objective, plan: &StorePlan) -> f64 {
    let busy = utilisation(times, objective, plan, f64::from(plan.duplicates));
    if busy >= 1.0 {
        return 0.0;
    }
    let wait_ms = busy * times.mean_square_ms2() / (2.0 * times.mean_ms() * (1.0 - busy));
    let longer = 1.0 - times.share_within(objective.bound_ms - wait_ms);
    1.0 - power(longer, plan.duplicates)
}

/// The queue in front of each duplicate, with the load of hedges.
struct Loaded {
    utilisation: f64,
    /// Attempts for each access.
    copies: f64,
    service: Lattice,
    response: Lattice,
}

impl Loaded {
    /// Returns the times of accesses, each of which ends with the first answer.
    fn first_answer(&self, objective: &Objective, plan: &StorePlan) -> Lattice {
        let step_ms = self.response.step_ms();
        let alone = self.response.map_longer(|step, longer| {
            let hedged = plan
                .hedge_ms
                .map_or(0.0, |hedge_ms| self.response.share_within((step as f64 + 0.5) * step_ms - hedge_ms));
            power(longer, plan.asked) * (1.0 - hedged)
        });
        if plan.asked == 1 {
            return alone;
        }
        self.first_of_all(objective, plan)
    }

    /// Returns the times of accesses that ask all duplicates. These get the same accesses, so they
    /// wait at the same time, for services that are independent: a sequence of accesses is played,
    /// and the distribution of what is left to do at a duplicate computed before each of them.
    fn first_of_all(&self, objective: &Objective, plan: &StorePlan) -> Lattice {
        let rate_per_ms = objective.rate_per_s / 1e3 / f64::from(plan.partitions);
        let mut response = self.response.clone();
        // Means, at each step, of the share that is longer and of its powers.
        let mut means = vec![vec![0.0; plan.duplicates as usize]; STEPS_TOGETHER + 1];
        for share in even_shares() {
            response = response.whole().less(-libm::log(1.0 - share) / rate_per_ms).plus(&self.service);
            let mut within = 0.0;
            for (means, share) in means.iter_mut().zip(response.shares()) {
                within += share;
                let longer = (1.0_f64 - within).max(0.0);
                let mut power = 1.0;
                for mean in means {
                    power *= longer;
                    *mean += power / PLAYED as f64;
                }
            }
        }
        self.response.map_longer(|step, longer| of_all(&means[step], longer).clamp(0.0, longer))
    }
}

/// Returns the mean share of accesses that are longer at all duplicates, from the mean powers of
/// the share at one in the accesses played and its exact mean, `longer`.
///
/// Rare services that are longer than the grid keep a duplicate busy for longer than in the
/// accesses played. What these lack is the probability that a duplicate is late for that reason,
/// independently of the others.
fn of_all(means: &[f64], longer: f64) -> f64 {
    let late = if means[0] < 1.0 { (longer - means[0]) / (1.0 - means[0]) } else { 0.0 };
    // The mean of (late + (1 - late) share)^D, by the binomial theorem.
    let duplicates = means.len() as u32;
    let mut coefficient = 1.0;
    let mut sum = power(late, duplicates);
    for (count, mean) in (1..).zip(means) {
        coefficient *= f64::from(duplicates + 1 - count) / f64::from(count);
        sum += coefficient * power(late, duplicates - count) * power(1.0 - late, count) * mean;
    }
    sum
}

/// Returns one share from each of as many equal parts as accesses are played, in an order in which
/// successive ones are evenly distributed as well: the whole period of a small linear congruential
/// generator (modulus and multiplier from L'Ecuyer, "Tables of linear congruential generators of
/// different sizes and good lattice structure", 1999).
fn even_shares() -> impl Iterator<Item = f64> {
    let numbers = std::iter::successors(Some(1_u32), |number| Some(number * 65 % 1_021));
    numbers.take(PLAYED).map(|number| (f64::from(number) - 0.5) / PLAYED as f64)
}

fn power(base: f64, exponent: u32) -> f64 {
    (0..exponent).fold(1.0, |all, _| all * base)
}

/// Returns the part of the time for which each duplicate is busy.
fn utilisation(times: &ServiceTimes, objective: &Objective, plan: &StorePlan, copies: f64) -> f64 {
    objective.rate_per_s / 1e3 * copies / f64::from(plan.nodes()) * times.mean_ms()
}

/// Returns the times of answers under the load that the plan makes; none if it is too high.
fn loaded(times: &ServiceTimes, objective: &Objective, plan: &StorePlan) -> Option<Loaded> {
    // What is longer than the bound may have ended when the next access comes.
    let (span_ms, steps) = match plan.asked {
        // The grid has to show how many accesses are hedged, too.
        1 => (objective.bound_ms.max(plan.hedge_ms.unwrap_or(0.0)), STEPS),
        _ => (objective.bound_ms + times.quantile_ms(0.995), STEPS_TOGETHER),
    };
    let service = Lattice::of(times, span_ms, steps);
    let mut copies = f64::from(plan.asked);
    for _ in 0..ROUNDS_MAX {
        let utilisation = utilisation(times, objective, plan, copies);
        if !(0.0..1.0).contains(&utilisation) {
            return None;
        }
        let response = Lattice::waiting(times, utilisation, span_ms, steps).plus(&service);
        let hedged = plan.hedge_ms.map_or(0.0, |hedge_ms| 1.0 - response.share_within(hedge_ms));
        let next = f64::from(plan.asked) + hedged;
        // More copies make more of them late: the sum rises to its limit, or beyond capacity.
        if next - copies < 1e-4 {
            return Some(Loaded { utilisation, copies, service, response });
        }
        copies = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use sherwood_model::SplitMix64;

    use super::*;

    fn objective(rate_per_s: f64, bound_ms: f64) -> Objective {
        Objective { rate_per_s, accesses: 1, composition: Composition::Parallel, bound_ms }
    }

    fn times(points: &[(f64, f64)]) -> ServiceTimes {
        ServiceTimes::new(points.to_vec()).unwrap()
    }

    #[track_caller]
    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-3, "{a} and {b}");
    }

    #[test]
    fn without_queueing_the_level_is_that_of_the_fastest_duplicate() {
        // 90% take 2 ms, the others 50 ms.
        let times = times(&[(2.0, 0.9), (49.999, 0.9), (50.0, 1.0)]);
        for (duplicates, level) in [(1, 0.9), (2, 0.99), (3, 0.999)] {
            let plan = StorePlan::all_asked(1, duplicates);
            close(predict(&times, &objective(1e-9, 15.0), &plan).service_level, level);
            close(predict_by_mean(&times, &objective(1e-9, 15.0), &plan), level);
        }
        let sequence = Objective { accesses: 3, composition: Composition::Sequence, ..objective(1e-9, 15.0) };
        close(predict(&times, &sequence, &StorePlan::all_asked(1, 1)).service_level, 0.729);
        let parallel = Objective { accesses: 3, ..objective(1e-9, 15.0) };
        close(predict(&times, &parallel, &StorePlan::all_asked(1, 2)).service_level, 0.970_299);
    }

    #[test]
    fn hedge_adds_a_copy_of_the_late_accesses_to_the_load() {
        let times = times(&[(2.0, 0.9), (49.999, 0.9), (50.0, 1.0)]);
        let plan = StorePlan { hedge_ms: Some(5.0), ..StorePlan { asked: 1, ..StorePlan::all_asked(1, 2) } };
        let figures = predict(&times, &objective(1e-9, 15.0), &plan);
        close(figures.service_level, 0.99);
        close(figures.extra_load_ratio, 0.1);
        // The second copy is too late to help.
        let late = StorePlan { hedge_ms: Some(14.0), ..plan };
        close(predict(&times, &objective(1e-9, 15.0), &late).service_level, 0.9);
    }

    #[test]
    fn load_of_hedges_does_not_depend_on_the_bound() {
        let times = times(&[(1.0, 0.0), (3.0, 0.98), (30.0, 1.0)]);
        let plan = StorePlan { asked: 1, hedge_ms: Some(5.0), ..StorePlan::all_asked(1, 2) };
        let extra = |bound_ms| predict(&times, &objective(200.0, bound_ms), &plan).extra_load_ratio;
        for bound_ms in [2.0, 5.0, 30.0] {
            close(extra(bound_ms), extra(10.0));
        }
    }

    #[test]
    fn level_is_zero_where_duplicates_cannot_follow() {
        let times = times(&[(10.0, 1.0)]);
        let figures = predict(&times, &objective(100.0, 1_000.0), &StorePlan::all_asked(1, 2));
        assert_eq!((figures.service_level, figures.utilisation), (0.0, 1.0));
        assert_eq!(predict_by_mean(&times, &objective(100.0, 1_000.0), &StorePlan::all_asked(1, 2)), 0.0);
        assert!(predict(&times, &objective(99.0, 3_000.0), &StorePlan::all_asked(1, 2)).service_level > 0.9);
    }

    /// Plays accesses that arrive at random at a partition's duplicates, which serve them in turn.
    /// Returns the share whose first answer comes within each bound.
    fn played(times: &ServiceTimes, rate_per_ms: f64, duplicates: usize, bounds_ms: &[f64]) -> Vec<f64> {
        const ACCESSES: u32 = 300_000;
        let mut draws = SplitMix64::new(7);
        let mut draw = || (draws.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let (mut busy_ms, mut within) = (vec![0.0_f64; duplicates], vec![0_u32; bounds_ms.len()]);
        for _ in 0..ACCESSES {
            let passed_ms = -libm::log(1.0 - draw()) / rate_per_ms;
            let mut first_ms = f64::INFINITY;
            for left_ms in &mut busy_ms {
                *left_ms = (*left_ms - passed_ms).max(0.0) + times.quantile_ms(draw());
                first_ms = first_ms.min(*left_ms);
            }
            for (within, bound_ms) in within.iter_mut().zip(bounds_ms) {
                *within += u32::from(first_ms <= *bound_ms);
            }
        }
        within.iter().map(|within| f64::from(*within) / f64::from(ACCESSES)).collect()
    }

    #[test]
    fn prediction_is_within_half_a_point_of_queues_that_are_played() {
        // One in 1,000 takes far longer than the bounds.
        let times = times(&[(1.0, 0.0), (3.0, 0.98), (30.0, 0.999), (200.0, 1.0)]);
        let bounds_ms = [2.0, 4.0, 8.0, 15.0, 25.0];
        for busy in [0.1, 0.3, 0.5] {
            for duplicates in 1..=4 {
                let rate_per_ms = busy / times.mean_ms();
                let played = played(&times, rate_per_ms, duplicates as usize, &bounds_ms);
                for (bound_ms, played) in bounds_ms.into_iter().zip(played) {
                    let objective = objective(rate_per_ms * 1e3, bound_ms);
                    let level =
                        predict(&times, &objective, &StorePlan::all_asked(1, duplicates)).service_level;
                    let place = format!("{busy} busy, {duplicates} duplicates, {bound_ms} ms");
                    assert!((level - played).abs() < 0.005, "{place}: {level} in place of {played}");
                }
            }
        }
    }

    #[test]
    fn heavy_arrivals_want_division_and_light_ones_replication() {
        let times = times(&[(1.0, 0.0), (3.0, 0.98), (30.0, 1.0)]);
        let best = |rate_per_s| {
            let level = |plan: &StorePlan| predict(&times, &objective(rate_per_s, 12.0), plan).service_level;
            let all = [1, 2, 4].map(|duplicates| StorePlan::all_asked(4 / duplicates, duplicates));
            all.into_iter().max_by(|a, b| level(a).total_cmp(&level(b))).unwrap().duplicates
        };
        assert_eq!([1.0, 400.0, 1_200.0].map(best), [4, 2, 1]);
    }
}
