//! Tenants whose fetches take units from their own rates.

use super::*;
use crate::CopiesChoice;
use crate::{OverRate, TenantOptions, TenantRefusal};
use sherwood_model::TenantId;

/// A machine of two tenants with rates per second of their own, without lending.
fn shared(over: OverRate, per_s: [f64; 2], change: impl FnOnce(&mut Options)) -> Machine {
    let mut machine = machine(1, |o| {
        o.in_flight_calls_max = 100;
        o.tenants = Some(TenantOptions { tenants: 2, burst_units: 0, lends: false, over });
        change(o);
    });
    machine.set_rates(at(0), per_s.iter().sum(), &per_s);
    machine
}

fn fetch_as(
    machine: &mut Machine,
    ms: u64,
    tenant: u16,
    keys: &[(&'static str, u32)],
    deadline: Option<u64>,
) -> Vec<Act> {
    let demand = Demand { tenant: TenantId(tenant), deadline: deadline.map(at), ..Demand::default() };
    machine.handle_fetch(at(ms), &demand, keys.iter().copied(), 0x9E37);
    drain(machine)
}

fn reads(machine: &Machine, tenant: u16) -> crate::TenantUse {
    machine.tenant_reads(TenantId(tenant)).expect("there are tenants")
}

#[test]
fn fetch_of_a_tenant_waits_until_its_units_are_paid_for() {
    let mut machine = shared(OverRate::Wait, [100.0, 100.0], |_| ());
    // The burst pays for one unit, and the debt of the other two is paid for 20 ms later.
    assert_eq!(calls(&fetch_as(&mut machine, 1_000, 0, &[("a", 1), ("b", 2), ("c", 3)], None)).len(), 1);
    assert_eq!(fetch_as(&mut machine, 1_001, 0, &[("d", 4)], None), []);
    assert_eq!(reads(&machine, 0).waiting, 1);
    assert_eq!(machine.next_timeout(), Some(at(1_020)));
    assert_eq!(calls(&fetch_as(&mut machine, 1_002, 1, &[("x", 5)], None)).len(), 1, "another tenant");
    assert_eq!(wake(&mut machine, 1_019), []);
    assert_eq!(calls(&wake(&mut machine, 1_020)).len(), 1);
    assert_eq!((reads(&machine, 0).own_units, reads(&machine, 1).own_units), (4.0, 1.0));
}

#[test]
fn keys_that_join_a_fetch_cost_nothing_even_while_it_waits() {
    let mut machine = shared(OverRate::Wait, [100.0, 100.0], |_| ());
    fetch_as(&mut machine, 1_000, 0, &[("a", 1), ("b", 2)], None);
    assert_eq!(fetch_as(&mut machine, 1_000, 0, &[("c", 3)], None), []);
    assert_eq!(fetch_as(&mut machine, 1_001, 0, &[("a", 4), ("c", 5)], None), []);
    assert_eq!((reads(&machine, 0).own_units, reads(&machine, 0).waiting), (2.0, 1));
    let (id, _) = call(&wake(&mut machine, 1_010));
    let told = deliveries(&reply(&mut machine, 1_011, id, Reply::Ok(vec![Some(9)])));
    assert_eq!(told, [("c", Ok(Some(9)), true, vec![3, 5])]);
    assert_eq!(reads(&machine, 0).own_units, 3.0);
}

#[test]
fn units_beyond_the_keys_are_a_debt_that_the_next_fetch_waits_for() {
    let mut machine = shared(OverRate::Wait, [1_000.0, 1_000.0], |_| ());
    let (id, _) = call(&fetch_as(&mut machine, 1_000, 0, &[("a", 1)], None));
    assert_eq!(machine.keys_of(id).map(|keys| keys.collect()), Some(vec![Some(&"a")]));
    machine.charge(at(1_005), id, 49.0);
    reply(&mut machine, 1_005, id, Reply::Ok(vec![Some(1)]));
    machine.charge(at(1_005), id, 49.0);
    assert_eq!(reads(&machine, 0).own_units, 50.0, "a reply is charged once");
    machine.charge_late(at(1_005), TenantId(9), 1.0);
    assert_eq!(fetch_as(&mut machine, 1_006, 0, &[("b", 2)], None), []);
    assert_eq!(machine.next_timeout(), Some(at(1_044)), "50 units less the burst of 10 ms, from 1,000");
}

#[test]
fn wait_beyond_the_deadline_or_the_timeout_is_refused_with_the_time_to_try_again() {
    let mut machine = shared(OverRate::Wait, [10.0, 10.0], |_| ());
    fetch_as(&mut machine, 1_000, 0, &[("a", 1)], None);
    let refused = |retry_ms| {
        FetchError::OverRate(TenantRefusal::TooLate { starts_in: Duration::from_millis(retry_ms) })
    };
    let early = error(&fetch_as(&mut machine, 1_000, 0, &[("b", 2)], Some(1_050)));
    assert_eq!(early, refused(90));
    assert!(early.to_string().contains("the tenant's rate of reads"), "{early}");
    assert!(early.to_string().contains("a start in 90ms"), "{early}");
    assert_eq!(fetch_as(&mut machine, 1_000, 0, &[("c", 3)], Some(1_095)), []);
    // Two units are before it, and the backend's timeout is 100 ms.
    assert_eq!(error(&fetch_as(&mut machine, 1_000, 0, &[("d", 4)], None)), refused(190));
    assert_eq!(reads(&machine, 0).refused, 2);
    // A deadline that has passed refuses nothing that may start at once.
    assert_eq!(calls(&fetch_as(&mut machine, 1_000, 1, &[("x", 5)], Some(900))).len(), 1);
}

#[test]
fn work_beyond_the_rate_is_refused_at_once_where_it_may_not_wait() {
    let mut machine = shared(OverRate::Refuse, [100.0, 100.0], |_| ());
    assert_eq!(calls(&fetch_as(&mut machine, 1_000, 0, &[("a", 1), ("b", 2)], None)).len(), 1);
    let starts_in = Duration::from_millis(10);
    let refusal = FetchError::OverRate(TenantRefusal::TooLate { starts_in });
    assert_eq!(error(&fetch_as(&mut machine, 1_000, 0, &[("c", 3)], None)), refusal);
    assert_eq!(calls(&fetch_as(&mut machine, 1_010, 0, &[("c", 4)], None)).len(), 1);
    let counters = machine.stats().counters;
    assert_eq!((counters.refused, counters.over_rate), (1, 1));
}

#[test]
fn fetch_that_waits_for_units_times_out_and_leaves_the_queue() {
    let mut machine = shared(OverRate::Wait, [100.0, 100.0], |_| ());
    fetch_as(&mut machine, 1_000, 0, &[("a", 1), ("b", 2), ("c", 3)], None);
    fetch_as(&mut machine, 1_001, 0, &[("d", 4)], None);
    machine.set_rates(at(1_002), 2.0, &[1.0, 1.0]);
    let ended = deliveries(&wake(&mut machine, 1_101));
    assert!(matches!(ended.last(), Some(("d", Err(FetchError::Timeout { .. }), false, _))), "{ended:?}");
    assert_eq!(reads(&machine, 0).waiting, 0);
    assert_eq!(machine.next_timeout(), None);
    assert_empty(&machine);
}

#[test]
fn flood_of_a_tenant_leaves_the_others_their_part_of_the_waiters() {
    let mut machine = shared(OverRate::Wait, [100.0, 100.0], |o| o.timeout = Duration::from_secs(10));
    let flood: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].into_iter().zip(0..).collect();
    let refused = deliveries(&fetch_as(&mut machine, 1_000, 0, &flood, None));
    // Of ten waiters each tenant has two, and six are common.
    let retry_in = Duration::from_millis(20 + 30);
    let full = Err(FetchError::OverRate(TenantRefusal::Full { limit: 10, retry_in }));
    assert_eq!(refused, [("i", full, false, vec![8])]);
    assert_eq!(calls(&fetch_as(&mut machine, 1_001, 1, &[("x", 9), ("y", 10)], None)).len(), 1);
    assert_eq!((reads(&machine, 0).refused, reads(&machine, 1).refused), (1, 0));
    assert_eq!(machine.stats().counters.over_rate, 1);
    machine.set_rates(at(1_002), f64::INFINITY, &[f64::INFINITY; 2]);
    assert_eq!(calls(&drain(&mut machine)).len(), 2, "new rates start what waits");
}

#[test]
fn nothing_is_charged_for_a_fetch_that_no_replica_takes() {
    let mut machine = shared(OverRate::Wait, [100.0, 100.0], |o| {
        (o.in_flight_calls_max, o.queued_calls_max, o.timeout) = (1, 0, Duration::from_secs(1));
    });
    let (id, _) = call(&fetch_as(&mut machine, 1_000, 0, &[("a", 1)], None));
    machine.charge(at(1_000), id, 10.0);
    let full = |actions: &[Act]| {
        assert!(matches!(error(actions), FetchError::Overloaded { bound: Bound::QueuedCalls, .. }));
    };
    full(&fetch_as(&mut machine, 1_000, 0, &[("b", 2)], None));
    reply(&mut machine, 1_001, id, Reply::Ok(vec![None]));
    for (key, waiter) in [("c", 3), ("d", 4)] {
        assert_eq!(fetch_as(&mut machine, 1_001, 0, &[(key, waiter)], None), []);
    }
    assert_eq!(calls(&wake(&mut machine, 1_100)).len(), 1);
    full(&wake(&mut machine, 1_110));
    let charged = reads(&machine, 0).own_units;
    assert_eq!(charged, 13.0);
    machine.charge_late(at(1_110), TenantId(0), 1.0);
    assert_eq!(reads(&machine, 0).own_units, charged, "the unit that was given back");
}

#[test]
fn retry_is_charged_and_does_not_wait() {
    let mut machine = machine(2, |o| {
        o.tenants = Some(TenantOptions { tenants: 1, burst_units: 0, lends: true, over: OverRate::Wait });
    });
    machine.set_rates(at(0), 10.0, &[10.0]);
    let (id, _) = call(&fetch(&mut machine, 1_000, &[("a", 1), ("b", 2)]));
    assert_eq!(calls(&reply(&mut machine, 1_001, id, failed(FailureKind::Reset))).len(), 1);
    assert_eq!(reads(&machine, 0).own_units, 4.0);
}

#[test]
fn copy_is_charged_when_it_becomes_a_call() {
    for (copies, expected) in
        [(CopiesChoice::Tied { factor: 2 }, 1.0), (CopiesChoice::Fixed { factor: 2 }, 2.0)]
    {
        let mut machine = machine(2, |o| {
            o.tenants =
                Some(TenantOptions { tenants: 2, burst_units: 9, lends: false, over: OverRate::Wait });
            o.in_flight_calls_max = 1;
        });
        machine.set_rates(at(0), 2_000.0, &[1_000.0; 2]);
        let busy = ["x", "y"].map(|key| call(&fetch_as(&mut machine, 1_000, 1, &[(key, 1)], None)).0);
        machine.replication = copies.into();
        assert_eq!(fetch_as(&mut machine, 1_001, 0, &[("a", 1)], None), []);
        assert_eq!(reads(&machine, 0).own_units, 1.0, "both attempts wait");
        for attempt in busy {
            reply(&mut machine, 1_002, attempt, Reply::Ok(vec![None]));
        }
        assert_eq!(reads(&machine, 0).own_units, expected);
    }
}
