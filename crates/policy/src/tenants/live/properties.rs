//! Holdings under random sequences of observations, terms, totals and policies.

use std::time::Duration;

use proptest::prelude::*;
use sherwood_model::{BackendId, DemandCurve, Instant, TenantId};

use super::world::{MIB, assert_sums, policy, resources, terms};
use super::*;
use crate::tenants::available;

/// Something that happens to a level between tenants.
#[derive(Clone, Debug)]
enum Event {
    /// Time passes, in milliseconds, and every tenant does something.
    Advance(u64, Vec<Growth>),
    /// Tenants have these weights; joining and leaving ones included.
    Terms(Vec<f64>),
    Total(u64),
    Policy(usize),
}

/// Work of a tenant between two observations.
#[derive(Clone, Debug)]
struct Growth {
    requests: u64,
    writes: u64,
    misses: u64,
    units: f64,
    used: f64,
    waiting: bool,
    points: Option<Vec<(u64, f64)>>,
}

fn growth() -> impl Strategy<Value = Growth> {
    let units = prop_oneof![8 => 0.1..10.0_f64, 1 => Just(0.0), 1 => Just(f64::NAN), 1 => Just(-1.0)];
    let ratio = prop_oneof![8 => 0.0..1.0_f64, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)];
    let points = prop::option::weighted(0.8, prop::collection::vec((0..200 * MIB, ratio), 0..8));
    (0..20_000_u64, 0..20_u64, 0..20_u64, units, 0.0..2.0_f64, any::<bool>(), points).prop_map(
        |(requests, writes, misses, units, used, waiting, points)| Growth {
            requests,
            writes: requests * writes / 20,
            misses,
            units,
            used,
            waiting,
            points,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let time = prop_oneof![6 => 100..1_000_u64, 3 => 1_000..40_000_u64, 1 => Just(0)];
    let weight = prop_oneof![6 => 0.1..5.0_f64, 1 => Just(0.0), 1 => Just(f64::NAN)];
    prop_oneof![
        30 => (time, prop::collection::vec(growth(), 5)).prop_map(|(ms, growth)| Event::Advance(ms, growth)),
        2 => prop::collection::vec(weight, 1..5).prop_map(Event::Terms),
        1 => (0..400 * MIB).prop_map(Event::Total),
        1 => (0..available().len()).prop_map(Event::Policy),
    ]
}

/// Adds what a tenant did to its observation.
fn grow(seen: &mut TenantObservation, growth: Growth, bytes: u64) {
    let Growth { requests, writes, misses, units, used, waiting, points } = growth;
    let (reads, misses) = (requests - writes, (requests - writes) * misses / 20);
    seen.counts.requests += requests;
    seen.counts.units.resize(3, UnitCounts::default());
    let ratio = misses as f64 / reads.max(1) as f64;
    seen.counts.units[0].add_read(0.0, units * reads as f64, units * reads as f64 * ratio);
    seen.counts.units[1].add_write(units * writes as f64);
    seen.counts.units[2].add_read(100.0 * reads as f64, 200.0 * reads as f64, 100.0);
    seen.waiting = u32::from(waiting);
    let before = seen.partitions.first().map_or(ReadCounts::default(), |part| part.reads);
    seen.partitions = vec![TenantPartition {
        backend: BackendId(0),
        budget_bytes: bytes,
        used_bytes: (bytes as f64 * used) as u64,
        reads: ReadCounts { hits: before.hits + reads - misses, misses: before.misses + misses, ..before },
        curve: points.map(|points| MissCurve {
            misses_per_read: DemandCurve::new(points),
            sampled_reads: requests as f64,
        }),
    }];
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn holdings_sum_to_at_most_the_totals_whatever_happens(events in prop::collection::vec(event(), 1..120)) {
        let options = TenantControlOptions::default();
        let mut controller =
            TenantController::new(policy("hare"), options, resources(3_000.0), 200 * MIB, terms(&[1.0; 3])).unwrap();
        let mut seen = vec![TenantObservation::default(); 5];
        let mut now = Instant::from_secs(1);
        for event in events {
            match event {
                Event::Advance(ms, growths) => {
                    now += Duration::from_millis(ms);
                    let count = controller.bytes().len();
                    for (index, growth) in growths.into_iter().enumerate().take(count) {
                        grow(&mut seen[index], growth, controller.bytes()[index]);
                    }
                    let (bytes, rates) = (controller.bytes().to_vec(), controller.rates().clone());
                    let round = controller.advance(now, &seen[..count]);
                    if ms == 0 {
                        prop_assert!(!round.changed && round.decision.is_none(), "the clock stood still");
                    }
                    prop_assert_eq!(round.refused, None);
                    check_steps(&controller, &bytes, &rates)?;
                    if let Some(decision) = round.decision {
                        prop_assert!(decision.line.len() <= 2_000, "{}", decision.line);
                    }
                }
                Event::Terms(weights) => controller.set_terms(terms(&weights)).unwrap(),
                Event::Total(bytes) => controller.set_total_bytes(bytes),
                Event::Policy(index) => controller.set_policy(policy(available()[index])),
            }
            assert_sums(&controller);
            prop_assert!(controller.next_timeout() <= now + options.period);
            for standing in controller.standings() {
                prop_assert!(standing.predicted.is_none_or(|times| (0.0..1e3).contains(&times)), "{:?}", standing);
            }
        }
    }
}

/// Checks that no tenant's holdings changed by more than a 64th of its baseline.
fn check_steps(controller: &TenantController, bytes: &[u64], rates: &Rates) -> Result<(), TestCaseError> {
    for (index, base) in controller.bases.iter().enumerate() {
        let mean = controller.total.bytes / bytes.len() as u64;
        let most = (if base.bytes > 0 { base.bytes } else { mean }) / 64 + 1;
        let moved = controller.bytes()[index].abs_diff(bytes[index]);
        prop_assert!(moved <= most, "{} bytes of a baseline of {}", moved, base.bytes);
        let id = TenantId::from_index(index);
        for (i, (now, before)) in controller.rates().row(id).iter().zip(rates.row(id)).enumerate() {
            let mean = controller.total.rates[i] / bytes.len() as f64;
            let most = (if base.rates[i] > 0.0 { base.rates[i] } else { mean }) / 64.0;
            prop_assert!(
                (now - before).abs() <= most * (1.0 + 1e-9),
                "{} to {} of {}",
                before,
                now,
                base.rates[i]
            );
        }
    }
    Ok(())
}
