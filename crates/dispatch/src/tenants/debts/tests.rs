use std::collections::VecDeque;
use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::TenantGate;

const T0: TenantId = TenantId(0);
const T1: TenantId = TenantId(1);
const NEVER: DebtWork = DebtWork { units: 0.0, latest: Instant::NEVER };

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A stub of the rates: the test sets the times at which the debts of two tenants are paid.
#[derive(Default)]
struct Debts {
    paid_at: Mutex<[Instant; 2]>,
    looks: Mutex<u32>,
}

impl Debts {
    fn set(&self, paid_at: [u64; 2]) {
        *self.paid_at.lock().unwrap() = paid_at.map(at);
        *self.looks.lock().unwrap() = 0;
    }
}

impl Charged for Debts {
    fn charge(&self, now: Instant, tenant: TenantId, _: f64) -> Option<Instant> {
        *self.looks.lock().unwrap() += 1;
        Some(self.paid_at.lock().unwrap()[tenant.index()]).filter(|paid_at| *paid_at > now)
    }

    fn expected_start(&self, now: Instant, _: TenantId, _: f64, _: f64) -> Instant {
        now
    }

    fn is_shared(&self, _: Instant, _: TenantId) -> bool {
        false
    }

    fn note_waiting(&self, _: TenantId, _: bool) {}

    fn note_refused(&self, _: TenantId) {}
}

/// Returns queues of two tenants whose debts are paid at these times, in milliseconds.
fn queues<T>(paid_at: [u64; 2]) -> (Arc<Debts>, DebtQueues<T>) {
    let debts = Arc::new(Debts::default());
    debts.set(paid_at);
    (debts.clone(), DebtQueues::new(debts, DebtOptions::default()))
}

/// Enters work that has to wait, and returns its place.
fn hold<T>(queues: &mut DebtQueues<T>, now: Instant, tenant: TenantId, work: T) -> DebtPlace {
    queues.enter(now, tenant, NEVER, || work).unwrap().expect("the tenant is in debt, or others wait")
}

fn gate(tenants: u16, per_s: f64, each: &[f64]) -> Arc<TenantGate> {
    let gate = Arc::new(TenantGate::new(tenants, false));
    gate.set_rates(at(500), per_s, each);
    gate
}

#[test]
fn work_that_never_started_precedes_work_that_waits_again_after_a_start() {
    let (debts, mut queues) = queues([1, 0]);
    for work in ["a", "b", "c"] {
        hold(&mut queues, at(0), T0, work);
    }
    assert_eq!(queues.start_next(at(1)), Some((T0, "a")));
    // It has left a debt, and waits again.
    debts.set([3, 0]);
    hold(&mut queues, at(1), T0, "a");
    assert_eq!(queues.start_next(at(1)), None);
    assert_eq!(queues.next_timeout(), Some(at(3)));
    let order: Vec<_> = std::iter::from_fn(|| queues.start_next(at(3))).collect();
    assert_eq!(order, [(T0, "b"), (T0, "c"), (T0, "a")]);
}

#[test]
fn unpaid_debt_is_checked_once_no_matter_how_much_work_waits_for_it() {
    let (debts, mut queues) = queues([1, 0]);
    for work in 0..1_000 {
        hold(&mut queues, at(0), T0, work);
    }
    debts.set([9, 0]);
    assert_eq!(queues.start_next(at(2)), None);
    assert_eq!(queues.start_next(at(2)), None);
    assert_eq!((*debts.looks.lock().unwrap(), queues.waiting(T0)), (1, 1_000));
}

#[test]
fn tenants_with_paid_debts_start_their_work_alternately() {
    let (_, mut queues) = queues([1, 2]);
    for work in 0..2 {
        hold(&mut queues, at(0), T0, work);
        hold(&mut queues, at(0), T1, work);
    }
    let order: Vec<_> = std::iter::from_fn(|| queues.start_next(at(5))).collect();
    assert_eq!(order, [(T0, 0), (T1, 0), (T0, 1), (T1, 1)]);
}

#[test]
fn tenants_that_share_one_rate_start_in_order_of_arrival() {
    let gate = gate(3, 1_000.0, &[]);
    let mut queues = DebtQueues::new(gate.clone(), DebtOptions::default());
    let mut now = at(1_000);
    let work = DebtWork { units: 100.0, ..NEVER };
    gate.charge(now, T0, 100.0);
    // Each waits again after its turn, which leaves a debt of all.
    for id in [2, 0, 1] {
        assert!(queues.enter(now, TenantId(id), work, || ()).unwrap().is_some());
    }
    let mut order = Vec::new();
    while order.len() < 9 {
        match queues.start_next(now) {
            Some((tenant, ())) => {
                order.push(tenant.0);
                assert!(queues.enter(now, tenant, work, || ()).unwrap().is_some());
            }
            None => now = queues.next_timeout().expect("three wait"),
        }
    }
    assert_eq!(order, [2, 0, 1, 2, 0, 1, 2, 0, 1]);
}

#[test]
fn withdrawn_work_never_starts_and_triggers_no_wake_up() {
    let (_, mut queues) = queues([1, 2]);
    let place = hold(&mut queues, at(0), T0, "gone");
    hold(&mut queues, at(0), T1, "stays");
    assert_eq!(queues.give_up(place), Some("gone"));
    assert_eq!((queues.give_up(place), queues.refuse(at(0), place)), (None, None));
    assert_eq!((queues.next_timeout(), queues.len()), (Some(at(2)), 1));
    assert_eq!(queues.start_next(at(2)), Some((T1, "stays")));
    assert!(queues.is_empty() && queues.next_timeout().is_none());
}

#[test]
fn work_is_refused_on_arrival_if_waiting_work_would_delay_it_past_its_latest_start() {
    let gate = gate(2, 2_000.0, &[1_000.0, 1_000.0]);
    let mut queues = DebtQueues::new(gate.clone(), DebtOptions::default());
    let now = at(1_000);
    gate.charge(now, T0, 110.0);
    let mut enter = |units, latest| queues.enter(now, T0, DebtWork { units, latest: at(latest) }, || ());
    assert!(enter(500.0, 1_100).unwrap().is_some(), "the debt is paid after 100 ms");
    let starts_in = Duration::from_millis(600);
    assert_eq!(enter(1.0, 1_599), Err(TenantRefusal::TooLate { starts_in }));
    assert!(enter(1.0, 1_600).unwrap().is_some());
    assert_eq!((gate.used(T0).waiting, gate.used(T0).refused), (2, 1));
    // With one rate for all, what waits of the other tenant comes first, too.
    gate.set_rates(now, 1_000.0, &[]);
    let other = queues.enter(now, T1, DebtWork { units: 1.0, latest: at(1_600) }, || ());
    assert!(matches!(other, Err(TenantRefusal::TooLate { .. })), "{other:?}");
}

#[test]
fn work_of_a_tenant_in_debt_starts_early_when_lent_units_become_available() {
    let gate = Arc::new(TenantGate::new(2, true));
    gate.set_rates(at(500), 100_000.0, &[1_000.0, 99_000.0]);
    let mut queues = DebtQueues::new(gate.clone(), DebtOptions::default());
    let now = at(1_000);
    gate.charge(now, T0, 10_000.0);
    assert!(gate.expected_start(now, T0, 0.0, 0.0) > now, "the total is used for now");
    // The tenant's own rate pays in 10 s; the total of both has units again in 90 ms.
    let work = DebtWork { units: 100.0, latest: at(3_000) };
    assert!(queues.enter(now, T0, work, || ()).unwrap().is_some());
    assert_eq!(queues.next_timeout(), Some(at(1_090)));
    assert_eq!(queues.start_next(at(1_090)), Some((T0, ())));
    assert_eq!(gate.used(T0).lent_units, 100.0);
    // The owner of the other units has no debt.
    assert_eq!(queues.enter(at(1_090), T1, work, || ()), Ok(None));
}

#[test]
fn work_that_would_use_units_due_to_waiting_work_starts_after_that_work() {
    let work = DebtWork { units: 10.0, ..NEVER };
    let common = || gate(3, 1_000.0, &[]);
    let lending = || {
        let gate = Arc::new(TenantGate::new(3, true));
        gate.set_rates(at(500), 1_000.0, &[100.0, 100.0, 800.0]);
        gate
    };
    for gate in [common(), lending()] {
        let mut queues = DebtQueues::new(gate.clone(), DebtOptions::default());
        let now = at(1_000);
        [T0, T1].into_iter().for_each(|tenant| _ = gate.charge(now, tenant, 100.0));
        hold(&mut queues, now, T1, "first");
        let now = queues.next_timeout().expect("it waits");
        assert_eq!(gate.charge(now, T0, 0.0), None, "units are there for one of the two");
        let second = queues.enter(now, T0, work, || "second");
        assert!(second.unwrap().is_some());
        assert_eq!(queues.start_next(now), Some((T1, "first")));
        assert_eq!(queues.start_next(now), Some((T0, "second")));
        assert_eq!(queues.enter(now + LOOK_AGAIN, T0, work, || "third"), Ok(None));
    }
    // A tenant without debt takes no units of others.
    let gate = lending();
    let mut queues = DebtQueues::new(gate.clone(), DebtOptions::default());
    gate.charge(at(1_000), T1, 100.0);
    hold(&mut queues, at(1_000), T1, "waits");
    let now = queues.next_timeout().expect("it waits");
    assert_eq!(queues.enter(now, T0, work, || "owner"), Ok(None));
}

#[test]
fn refusal_of_waiting_work_reports_a_start_time_that_includes_the_work_still_waiting() {
    for (each, starts_in) in [(&[1_000.0, 1_000.0][..], 200), (&[][..], 510)] {
        let gate = gate(2, 1_000.0, each);
        let mut queues = DebtQueues::new(gate.clone(), DebtOptions::default());
        gate.charge(at(1_000), T0, 10.0);
        gate.charge(at(1_000), T0, 100.0);
        gate.charge(at(1_000), T1, 10.0);
        let place = hold(&mut queues, at(1_000), T0, ());
        for (tenant, units) in [(T0, 100.0), (T1, 300.0)] {
            let work = DebtWork { units, ..NEVER };
            _ = queues.enter(at(1_000), tenant, work, || ());
        }
        let refusal = TenantRefusal::TooLate { starts_in: Duration::from_millis(starts_in) };
        assert_eq!(queues.refuse(at(1_000), place), Some(refusal));
    }
}

#[test]
fn work_is_refused_if_it_may_not_wait_or_if_too_much_work_waits() {
    let gate = gate(2, 2_000.0, &[1_000.0, 1_000.0]);
    let now = at(1_000);
    [T0, T1].into_iter().for_each(|tenant| _ = gate.charge(now, tenant, 110.0));
    let refusing = DebtOptions { over: OverRate::Refuse, ..DebtOptions::default() };
    let mut queues = DebtQueues::new(gate.clone(), refusing);
    let starts_in = Duration::from_millis(100);
    assert_eq!(queues.enter(now, T0, NEVER, || ()), Err(TenantRefusal::TooLate { starts_in }));
    // Of four, each tenant has one, and two are common.
    let bounded = DebtOptions { waiting_max: Some((4, 2)), ..DebtOptions::default() };
    let mut queues = DebtQueues::new(gate, bounded);
    let places = [(); 3].map(|()| hold(&mut queues, now, T0, ()));
    let full = Err(TenantRefusal::Full { limit: 4, retry_in: starts_in });
    assert_eq!(queues.enter(now, T0, NEVER, || ()), full);
    hold(&mut queues, now, T1, ());
    assert_eq!(queues.enter(now, T1, NEVER, || ()), full);
    queues.give_up(places[1]);
    hold(&mut queues, now, T1, ());
}

proptest! {
    /// Whatever work enters and leaves, each tenant's work starts exactly once and in order of
    /// arrival, and the tenant uses at most what its rate allows plus its last use.
    #[test]
    fn each_tenants_work_starts_in_order_of_arrival_and_within_its_rate(
        steps in prop::collection::vec((0_u16..3, 1_u64..2_000, 0_u8..10), 1..300),
    ) {
        let rates = [10_000.0, 20_000.0, 40_000.0];
        let gate = gate(3, rates.iter().sum(), &rates);
        let mut queues = DebtQueues::new(gate.clone(), DebtOptions::default());
        let mut expected: [VecDeque<(usize, DebtPlace)>; 3] = Default::default();
        let begin = Instant::from_secs(1);
        let (mut now, mut largest) = (begin, 0);
        for (step, &(id, bytes, action)) in steps.iter().enumerate() {
            let tenant = TenantId(id);
            largest = largest.max(bytes);
            if action == 0 && let Some((_, place)) = expected[usize::from(id)].pop_back() {
                prop_assert!(queues.give_up(place).is_some());
            } else {
                let work = DebtWork { units: bytes as f64, ..NEVER };
                if let Some(place) = queues.enter(now, tenant, work, || step).unwrap() {
                    expected[usize::from(id)].push_back((step, place));
                }
            }
            now += Duration::from_millis(u64::from(action));
            while let Some((tenant, step)) = queues.start_next(now) {
                let (first, _) = expected[tenant.index()].pop_front().expect("it waits");
                prop_assert_eq!(step, first);
            }
            prop_assert!(queues.next_timeout().is_none_or(|due| due > now));
        }
        for (id, rate) in rates.iter().enumerate() {
            let used = gate.used(TenantId::from_index(id)).units();
            let most = rate * ((now - begin).as_secs_f64() + 0.01) + largest as f64;
            prop_assert!(used <= most + 1.0, "{} of at most {}", used, most);
            prop_assert_eq!(gate.used(TenantId::from_index(id)).waiting as usize, expected[id].len());
        }
        let left: usize = expected.iter().map(VecDeque::len).sum();
        prop_assert_eq!(queues.len(), left);
        queues.give_up_all();
        prop_assert!(queues.is_empty() && gate.used(T0).waiting == 0);
    }
}
