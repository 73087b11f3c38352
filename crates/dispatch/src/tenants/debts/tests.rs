use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::TenantGate;

const T0: TenantId = TenantId(0);
const T1: TenantId = TenantId(1);

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

#[test]
fn work_without_a_turn_keeps_its_place_before_work_that_had_a_turn() {
    let mut queues = DebtQueues::new();
    for work in ["a", "b", "c"] {
        queues.wait(T0, at(1), work);
    }
    assert_eq!(queues.start_next(at(1), |_| None), Some((T0, "a")));
    // It has left a debt, and waits again.
    queues.wait(T0, at(3), "a");
    assert_eq!(queues.start_next(at(1), |_| Some(at(3))), None);
    assert_eq!(queues.next_timeout(), Some(at(3)));
    let order: Vec<_> = std::iter::from_fn(|| queues.start_next(at(3), |_| None)).collect();
    assert_eq!(order, [(T0, "b"), (T0, "c"), (T0, "a")]);
}

#[test]
fn debt_is_looked_at_once_however_much_waits_for_it() {
    let mut queues = DebtQueues::new();
    for work in 0..1_000 {
        queues.wait(T0, at(1), work);
    }
    let mut looks = 0;
    let mut look = |_| {
        looks += 1;
        Some(at(9))
    };
    assert_eq!(queues.start_next(at(2), &mut look), None);
    assert_eq!(queues.start_next(at(2), &mut look), None);
    assert_eq!((looks, queues.waiting(T0)), (1, 1_000));
}

#[test]
fn tenants_whose_debts_are_paid_start_in_turn() {
    let mut queues = DebtQueues::new();
    for work in 0..2 {
        queues.wait(T0, at(1), work);
        queues.wait(T1, at(2), work);
    }
    let order: Vec<_> = std::iter::from_fn(|| queues.start_next(at(5), |_| None)).collect();
    assert_eq!(order, [(T0, 0), (T1, 0), (T0, 1), (T1, 1)]);
}

#[test]
fn tenants_with_one_rate_start_in_the_order_of_arrival() {
    let mut gate = TenantGate::new(3, false);
    gate.set_rates(at(500), 1_000.0, &[]);
    let mut queues = DebtQueues::new();
    let mut now = at(1_000);
    // Each waits again after its turn, which leaves a debt of all.
    for id in [2, 0, 1] {
        queues.wait(TenantId(id), now, ());
    }
    let mut order = Vec::new();
    while order.len() < 9 {
        match queues.start_next(now, |id| gate.charge(now, id, 0.0)) {
            Some((tenant, ())) => {
                order.push(tenant.0);
                let paid_at = gate.charge(now, tenant, 100.0).unwrap_or(now);
                queues.wait(tenant, paid_at, ());
            }
            None => now = queues.next_timeout().expect("three wait"),
        }
    }
    assert_eq!(order, [2, 0, 1, 2, 0, 1, 2, 0, 1]);
}

#[test]
fn cancelled_work_does_not_start_and_wakes_nobody() {
    let mut queues = DebtQueues::new();
    let place = queues.wait(T0, at(1), "gone");
    queues.wait(T1, at(2), "stays");
    assert_eq!((place.tenant(), queues.cancel(place)), (T0, Some("gone")));
    assert_eq!(queues.cancel(place), None);
    assert_eq!((queues.next_timeout(), queues.len()), (Some(at(2)), 1));
    assert_eq!(queues.start_next(at(2), |_| None), Some((T1, "stays")));
    assert!(queues.is_empty() && queues.next_timeout().is_none());
}

proptest! {
    /// Whatever waits and leaves, each tenant's work starts once, in the order of arrival, and
    /// its use is at most what the rate allows and the last use.
    #[test]
    fn each_tenant_starts_in_order_and_keeps_to_its_rate(
        steps in prop::collection::vec((0_u16..3, 1_u64..2_000, 0_u8..10), 1..300),
    ) {
        let rates = [10_000.0, 20_000.0, 40_000.0];
        let mut gate = TenantGate::new(3, false);
        gate.set_rates(Instant::ZERO, rates.iter().sum(), &rates);
        let mut queues = DebtQueues::new();
        let mut expected: [VecDeque<(u64, DebtPlace)>; 3] = Default::default();
        let begin = Instant::from_secs(1);
        let (mut now, mut used, mut largest) = (begin, [0; 3], 0);
        for (step, &(id, bytes, action)) in steps.iter().enumerate() {
            let (tenant, number) = (TenantId(id), step as u64);
            largest = largest.max(bytes);
            if action == 0 && let Some((_, place)) = expected[usize::from(id)].pop_back() {
                prop_assert!(queues.cancel(place).is_some());
            } else {
                let paid_at = gate.charge(now, tenant, 0.0).unwrap_or(now);
                let place = queues.wait(tenant, paid_at, (number, bytes));
                expected[usize::from(id)].push_back((number, place));
            }
            now += Duration::from_millis(u64::from(action));
            while let Some((tenant, (number, bytes))) =
                queues.start_next(now, |id| gate.charge(now, id, 0.0))
            {
                let (first, _) = expected[tenant.index()].pop_front().expect("it waits");
                prop_assert_eq!(number, first);
                used[tenant.index()] += bytes;
                gate.charge(now, tenant, bytes as f64);
            }
            prop_assert!(queues.next_timeout().is_none_or(|due| due > now));
        }
        for (used, rate) in used.iter().zip(rates) {
            let most = rate * ((now - begin).as_secs_f64() + 0.01) + largest as f64;
            prop_assert!(*used as f64 <= most + 1.0, "{} of at most {}", used, most);
        }
        let left: usize = expected.iter().map(VecDeque::len).sum();
        prop_assert_eq!(queues.len(), left);
    }
}
