//! The counts from which a tenant's demand is derived.

use std::time::Duration;

use sherwood_cache::{Access, Cache, Options as CacheOptions, Partition};
use sherwood_dispatch::{Failure, FailureKind, Options, OverRate, Reply, TenantOptions};
use sherwood_model::{BackendId, Demand, Instant, Legs, PartitionId, SeededState, TenantId, Unit};
use sherwood_path::{
    Action, Backend, BackendOptions, CallCost, Change, DemandCounts, FetchKey, Units, Write, WriteOptions,
    WriteOutcome,
};

use crate::world::{Sized, SizedCache};

const NOW: Instant = Instant::from_secs(1);
const KIB: u32 = 1_024;

type Machine = Backend<&'static str, Sized, u32>;

fn start() -> (Cache, Machine) {
    let unit = Unit::DYNAMODB_READ;
    let partition =
        |tenant| Partition { metered: Some(unit), ..Partition::new(TenantId(tenant), BackendId(0), 1 << 20) };
    let partitions = [partition(0), partition(1)];
    let cache = Cache::new(CacheOptions::default(), &partitions, SeededState::new(1)).expect("valid");
    let tenants = Some(TenantOptions { tenants: 2, burst_units: 0, lends: false, over: OverRate::Wait });
    let options = BackendOptions {
        units: Units { reads: unit, writes: Unit::DYNAMODB_WRITE },
        ..BackendOptions::new(
            Options { tenants, ..Options::default() },
            1,
            vec![PartitionId(0), PartitionId(1)],
        )
    };
    (cache, Backend::new(options, NOW, SeededState::new(2)).expect("valid options"))
}

fn read(machine: &mut Machine, cache: &Cache, tenant: u16, keys: &[(&'static str, u32)]) {
    let demand = Demand { tenant: TenantId(tenant), ..Demand::default() };
    let partition = PartitionId(tenant);
    let keys = keys.iter().map(|&(key, waiter)| (FetchKey { partition, key }, waiter));
    machine.handle_fetch(NOW, &SizedCache(cache), &demand, keys, 7);
}

/// Answers all calls with values of two KiB, and writes with success.
fn serve(machine: &mut Machine, cache: &Cache) -> usize {
    let mut calls = 0;
    while let Some(action) = machine.poll_action() {
        match action {
            Action::Call { attempt, keys, .. } => {
                calls += 1;
                let reply = Reply::Ok(
                    keys.iter().map(|key| (key.key != "gone").then_some(Sized(2 * KIB - 1))).collect(),
                );
                machine.handle_reply(NOW, &SizedCache(cache), attempt, reply);
            }
            Action::StartWrite(write) => {
                let order = machine.take_write(NOW, write).expect("its turn has come");
                let done = WriteOutcome::Acknowledged;
                machine.handle_write_reply(NOW, &SizedCache(cache), write, order.replicas[0], done);
            }
            _ => {}
        }
    }
    calls
}

fn write(machine: &mut Machine, cache: &Cache, bytes: u32) {
    let options = WriteOptions { tenant: TenantId(0), ..WriteOptions::default() };
    let (partition, change) = (Some(PartitionId(0)), Change::Put(Sized(bytes)));
    let write = Write { key: "w", change, partition, options };
    machine.handle_write(NOW, &SizedCache(cache), write).expect("accepted");
}

#[test]
fn counts_give_the_demand_of_nine_reads_and_a_write() {
    // Nine reads of 2 KiB and a write of 1 KiB (HARE, section 3: 3.8 KB, 0.9 and 0.1 units).
    let (cache, mut machine) = start();
    read(&mut machine, &cache, 0, &[("a", 0), ("b", 1), ("c", 2)]);
    read(&mut machine, &cache, 0, &[("a", 3)]);
    serve(&mut machine, &cache);
    for key in ["a", "b", "c", "a", "b"] {
        assert!(cache.get(PartitionId(0), key.as_bytes(), &Access::at(NOW), |_| ()).is_some());
    }
    write(&mut machine, &cache, KIB - 1);
    serve(&mut machine, &cache);
    let counts = |tenant| machine.demand(&SizedCache(&cache), TenantId(tenant), PartitionId(tenant)).unwrap();
    let (kib, counts) = (u64::from(KIB), counts(0));
    let expected = DemandCounts {
        hits: 5,
        misses: 3,
        joined: 1,
        writes: 1,
        read_units_if_miss: 9,
        write_units: 1,
        read_bytes: 18 * kib,
        fetched_bytes: 6 * kib,
        written_bytes: kib,
    };
    assert_eq!((counts, counts.requests()), (expected, 10));
    assert_eq!(counts.network_if_miss(Legs::Both), 38 * kib);
    assert_eq!(counts.network_if_hit(Legs::Both), 20 * kib);
    assert_eq!(counts.network(Legs::Both), 26 * kib);
    assert_eq!(counts.network(Legs::Client), 19 * kib);
    let used = machine.used(TenantId(0)).unwrap();
    assert_eq!(
        (used.reads.own_units, used.writes.own_units),
        (3.0, 1.0),
        "joined keys and hits cost nothing"
    );
    let other = machine.demand(&SizedCache(&cache), TenantId(1), PartitionId(1));
    assert_eq!(other, Some(DemandCounts::default()));
}

#[test]
fn removal_from_all_partitions_is_charged_to_the_tenant_that_asks_for_it() {
    let (cache, mut machine) = start();
    let options = WriteOptions { tenant: TenantId(1), ..WriteOptions::default() };
    let write = Write { key: "w", change: Change::Delete, partition: None, options };
    machine.handle_write(NOW, &SizedCache(&cache), write).expect("accepted");
    assert!(matches!(machine.poll_action(), Some(Action::StartWrite(_))));
    let units = [0, 1].map(|tenant| machine.used(TenantId(tenant)).unwrap().writes.own_units);
    assert_eq!(units, [0.0, 1.0]);
    let counts = machine.demand(&SizedCache(&cache), TenantId(0), PartitionId(0));
    assert_eq!(counts, Some(DemandCounts::default()));
}

#[test]
fn equal_keys_of_two_tenants_are_fetched_and_paid_for_by_each() {
    let (cache, mut machine) = start();
    read(&mut machine, &cache, 0, &[("a", 0)]);
    read(&mut machine, &cache, 1, &[("a", 1)]);
    assert_eq!(serve(&mut machine, &cache), 2);
    for tenant in [0, 1] {
        assert_eq!(machine.used(TenantId(tenant)).unwrap().reads.own_units, 1.0);
    }
}

#[test]
fn absent_key_costs_a_unit_and_counts_as_a_miss() {
    let (cache, mut machine) = start();
    read(&mut machine, &cache, 0, &[("gone", 0)]);
    serve(&mut machine, &cache);
    let counts = machine.demand(&SizedCache(&cache), TenantId(0), PartitionId(0)).unwrap();
    assert_eq!((counts.misses, counts.read_units_if_miss, counts.read_bytes), (1, 1, 4));
}

#[test]
fn flush_of_a_tenant_keeps_only_its_own_fetches_and_writes_out_of_the_cache() {
    let (cache, mut machine) = start();
    read(&mut machine, &cache, 0, &[("a", 0)]);
    read(&mut machine, &cache, 1, &[("a", 1)]);
    write(&mut machine, &cache, KIB);
    machine.handle_flush(NOW, &SizedCache(&cache), PartitionId(0), NOW);
    serve(&mut machine, &cache);
    let has =
        |partition, key: &str| cache.peek(partition, key.as_bytes(), &Access::at(NOW), |_| ()).is_some();
    assert_eq!([0, 1].map(|tenant| has(PartitionId(tenant), "a")), [false, true]);
    assert!(!has(PartitionId(0), "w"), "the write began before the flush");
    write(&mut machine, &cache, KIB);
    machine.handle_flush(NOW, &SizedCache(&cache), PartitionId(1), NOW);
    serve(&mut machine, &cache);
    assert!(has(PartitionId(0), "w"), "the other tenant's flush does not concern it");
}

#[test]
fn units_that_the_store_reports_are_charged_in_place_of_those_of_the_size() {
    let (cache, mut machine) = start();
    let mut charged = |keys: &[(&'static str, u32)], reply: Reply<Sized>, units| {
        let used = |machine: &Machine| machine.used(TenantId(0)).expect("tenants have rates").reads.own_units;
        let before = used(&machine);
        let mut answer = |keys: &[(&'static str, u32)], reply, units| {
            read(&mut machine, &cache, 0, keys);
            let Some(Action::Call { attempt, .. }) = machine.poll_action() else {
                panic!("no call: {keys:?}")
            };
            let cost = CallCost { tenant: TenantId(0), units };
            machine.handle_costed_reply(NOW, &SizedCache(&cache), attempt, reply, cost);
            while machine.poll_action().is_some() {}
        };
        answer(keys, reply, units);
        // What is given back is taken off the units of this one.
        answer(&[("last", 9)], Reply::Each(vec![Err(Failure::new(FailureKind::Rejected, "as told"))]), None);
        used(&machine) - before - 1.0
    };
    let value = || Ok(Some(Sized(6 * KIB)));
    let throttled = || Err(Failure::new(FailureKind::Throttled, "throttled"));
    assert_eq!(charged(&[("a", 1)], Reply::Each(vec![value()]), None), 2.0, "by its size");
    let eventual = charged(&[("b", 1), ("c", 2)], Reply::Each(vec![value(), Ok(None)]), Some(1.5));
    assert_eq!(eventual, 1.5, "half a unit for four KiB, and for an absent key");
    assert_eq!(charged(&[("d", 1)], Reply::Each(vec![value()]), Some(7.0)), 7.0);
    let some = charged(&[("e", 1), ("f", 2)], Reply::Each(vec![value(), throttled()]), Some(1.0));
    assert_eq!(some, 1.0, "a throttled key costs nothing");
    assert_eq!(charged(&[("g", 1)], Reply::Each(vec![throttled()]), Some(0.0)), 0.0);
    for (key, invalid) in [("h", f64::NAN), ("i", f64::INFINITY), ("j", -1.0)] {
        assert_eq!(charged(&[(key, 1)], Reply::Each(vec![value()]), Some(invalid)), 2.0, "{invalid}");
    }
}

#[test]
fn large_answer_that_comes_late_is_charged_to_its_tenant() {
    for (units, expected) in [(Some(50.0), 50.0), (Some(0.5), 1.0), (None, 3.0)] {
        let (cache, mut machine) = start();
        read(&mut machine, &cache, 1, &[("big", 0)]);
        let Some(Action::Call { attempt, .. }) = machine.poll_action() else { panic!("a call") };
        let late = NOW + Duration::from_secs(60);
        machine.handle_timeout(late, &SizedCache(&cache));
        let used =
            |machine: &Machine| [0, 1].map(|tenant| machine.used(TenantId(tenant)).unwrap().reads.own_units);
        assert_eq!(used(&machine), [0.0, 1.0]);
        let cost = CallCost { tenant: TenantId(1), units };
        let reply = Reply::Each(vec![Ok(Some(Sized(12 * KIB)))]);
        machine.handle_costed_reply(late, &SizedCache(&cache), attempt, reply, cost);
        assert_eq!(used(&machine), [0.0, expected], "{units:?}");
    }
}

#[test]
fn write_that_costs_the_store_nothing_gives_its_units_back() {
    for (case, expected) in [("never sent", 1.0), ("throttled", 1.0), ("declined", 2.0)] {
        let (cache, mut machine) = start();
        write(&mut machine, &cache, 10);
        let Some(Action::StartWrite(id)) = machine.poll_action() else { panic!("its turn has come") };
        if case == "never sent" {
            machine.handle_shutdown(NOW, &SizedCache(&cache));
        } else {
            let order = machine.take_write(NOW, id).expect("its turn has come");
            if case == "throttled" {
                machine.note_throttled_write(id);
            }
            let done = WriteOutcome::NotDone;
            machine.handle_write_reply(NOW, &SizedCache(&cache), id, order.replicas[0], done);
        }
        assert!(matches!(
            machine.poll_action(),
            Some(Action::EndWrite { outcome: WriteOutcome::NotDone, .. })
        ));
        write(&mut machine, &cache, 10);
        assert_eq!(machine.used(TenantId(0)).unwrap().writes.own_units, expected, "{case}");
    }
}
