//! Tests of the way from one division to another.

use sherwood_model::{BackendId, DemandCurve, ResourceKind};

use super::*;
use crate::tenants::{TenantOptions, TenantSeen, by_name};

/// The way of two tenants with a base of 640 bytes and 100 reads per second each. With 640 bytes,
/// half of the first one's reads miss; the second gives it 320 bytes.
struct Way {
    goal: Goal,
    moving: Moving,
}

impl Way {
    fn new(second: DemandCurve) -> Self {
        let first = DemandCurve::new([(0, 1.0), (1_280, 0.0)]);
        let seen = [first, second].map(|demand| TenantSeen {
            base: Share { bytes: 640, rates: vec![100.0] },
            floor: Share::default(),
            miss_ratio: demand.clone(),
            demand: vec![demand],
        });
        let total = Share { bytes: 1_280, rates: vec![200.0] };
        let tenants = Tenants::new(vec![ResourceKind::Reads(BackendId(0))], total, seen.to_vec());
        let policy = by_name("hare", TenantOptions { chunk_bytes: 1, conserving: true }).unwrap();
        let bytes = vec![960, 320];
        let rates = policy.rates(&tenants, &bytes);
        let moving = Moving::new(vec![640; 2], base_rates(&tenants));
        Self { goal: Goal { tenants, bytes, rates, policy, careful: true, is_refused: false }, moving }
    }

    /// A way on which the donor loses little.
    fn gentle() -> Self {
        Self::new(DemandCurve::new([(0, 1.2), (640, 1.0)]))
    }

    /// Makes steps in which the first tenant uses at most `filled` bytes.
    fn run(&mut self, steps: usize, filled: u64, is_slow: bool) {
        for _ in 0..steps {
            let used = [self.moving.bytes[0].min(filled), self.moving.bytes[1]];
            let states = used.map(|used_bytes| State { used_bytes, is_slow });
            self.moving.step(&self.goal, &states).expect("the rates are valid");
        }
    }

    fn reads(&self, index: usize) -> f64 {
        self.moving.rates.row(TenantId::from_index(index))[0]
    }
}

#[test]
fn bytes_move_after_their_compensation() {
    let mut way = Way::gentle();
    let donor = way.goal.tenants.seen()[1].demand[0].clone();
    for _ in 0..200 {
        way.run(1, u64::MAX, false);
        let need = way.goal.tenants.base_throughput()[1] * donor.at(way.moving.bytes[1]);
        // Nothing is idle at the baselines, so a step's compensation comes when the one before has
        // warmed.
        assert!(way.reads(1) >= need * 0.98, "{} of {need}", way.reads(1));
    }
    assert_eq!(way.moving.bytes, way.goal.bytes);
    let wanted = way.goal.rates.row(TenantId(0))[0];
    assert!((way.reads(0) - wanted).abs() < 1e-9, "{} and {wanted}", way.reads(0));
}

#[test]
fn step_that_nobody_can_compensate_is_not_made() {
    // With ten bytes less, the second would need 200 reads per second.
    let mut way = Way::new(DemandCurve::new([(0, 1.0), (630, 1.0), (640, 0.5), (2_000, 0.5)]));
    way.run(200, u64::MAX, false);
    assert_eq!(way.moving.bytes, [640; 2]);
}

#[test]
fn receiver_returns_units_only_when_it_has_filled_its_cache() {
    let mut way = Way::gentle();
    way.run(30, 640, false);
    let cold = way.reads(0);
    assert!(way.moving.bytes[0] > 640 && cold > 90.0, "{cold}");
    way.run(60, u64::MAX, false);
    assert!(way.reads(0) < cold - 10.0, "{} after {cold}", way.reads(0));
}

#[test]
fn slow_donor_gives_nothing_except_on_the_way_to_the_baselines() {
    let mut way = Way::gentle();
    way.run(100, u64::MAX, true);
    assert_eq!(way.moving.bytes, [640; 2]);
    way.goal.careful = false;
    way.run(100, u64::MAX, true);
    assert_eq!(way.moving.bytes, way.goal.bytes);
}

#[test]
fn cache_that_all_keys_fit_into_counts_as_filled_after_a_while() {
    let mut way = Way::gentle();
    way.run(20, 640, false);
    assert!(way.moving.cold[0] > 0);
    way.run(2_000, 640, false);
    assert_eq!(way.moving.bytes, way.goal.bytes);
}
