//! Tests of two levels over three tenants with two backends each.

use std::time::Duration;

use proptest::prelude::*;
use sherwood_model::{
    BackendId, Band, DemandCurve, FinishedRequest, RequestWindow, ResourceKind, TenantId, WindowOptions,
};

use super::*;
use crate::tenants::{
    MissCurve, ReadCounts, Share, TenantControlOptions, TenantOptions, TenantPartition, TenantResource,
    UnitCounts,
};
use crate::{BandCounts, Options};

const MIB: u64 = 1 << 20;
const TENANTS: usize = 3;
const BACKENDS: usize = 2;

fn options() -> Options {
    Options { page_bytes: Some(MIB / 4), floor_pages: 1, ..Options::default() }
}

fn terms(weights: [f64; TENANTS]) -> Vec<TenantTerms> {
    let term = |weight| TenantTerms { name: String::new(), weight, base: None, min: Share::default() };
    weights.map(term).to_vec()
}

fn controller(within: &str) -> Controller {
    let policy = crate::by_name(within, &options()).unwrap();
    Controller::new(policy, &options(), Vec::new(), vec![0; BACKENDS])
}

fn between(name: &str) -> TenantController {
    let policy = crate::tenants::by_name(name, TenantOptions { chunk_bytes: MIB, conserving: true }).unwrap();
    let reads = |backend| TenantResource {
        name: format!("b{backend} reads"),
        kind: ResourceKind::Reads(BackendId(backend)),
        total_per_s: 3_000.0,
    };
    let options = TenantControlOptions::default();
    TenantController::new(policy, options, vec![reads(0), reads(1)], 192 * MIB, terms([1.0; 3])).unwrap()
}

fn levels(name: &str, within: &str) -> TwoLevels {
    // Tenants take turns in the order of partitions.
    let of = |tenant: usize| {
        let partitions = (0..BACKENDS).map(|backend| PartitionId::from_index(backend * TENANTS + tenant));
        (controller(within), partitions.collect())
    };
    TwoLevels::new(between(name), (0..TENANTS).map(of).collect()).unwrap()
}

/// Checks that each tenant's budgets sum to its bytes.
fn assert_sums(levels: &TwoLevels) {
    let budgets = levels.budgets();
    for (tenant, &bytes) in levels.between().bytes().iter().enumerate() {
        let sum: u64 = (0..BACKENDS).map(|backend| budgets[backend * TENANTS + tenant]).sum();
        assert_eq!(sum, bytes, "tenant {tenant} of {budgets:?}");
    }
    assert!(levels.between().bytes().iter().sum::<u64>() <= 192 * MIB);
}

/// The observation of all partitions; the first has a pin.
fn observed_together(levels: &TwoLevels, pin: u64) -> Observation {
    let partition = |(index, &allocated_bytes): (usize, &u64)| PartitionObservation {
        allocated_bytes,
        used_bytes: allocated_bytes,
        min_bytes: if index == 0 { pin } else { 0 },
        hits: 500,
        misses: 500,
        queries: 1_000,
        ..PartitionObservation::new(
            TenantId::from_index(index % TENANTS),
            BackendId::from_index(index / TENANTS),
        )
    };
    Observation {
        total_bytes: 192 * MIB,
        partitions: levels.budgets().iter().enumerate().map(partition).collect(),
        requests: 1_000,
        latency_range: Some((Duration::from_millis(1), Duration::from_millis(200))),
        ..Observation::default()
    }
}

/// The observations of all tenants, in which `blocked` counts the requests that each backend of
/// each tenant blocked.
fn observed(levels: &TwoLevels, blocked: &[[u64; BACKENDS]; TENANTS], pin: u64) -> Vec<Observation> {
    let mut split = levels.split(&observed_together(levels, pin));
    for (seen, counts) in split.iter_mut().zip(blocked) {
        seen.blocking = vec![BandCounts { band: Band::TAIL, counts: counts.to_vec() }];
    }
    split
}

/// Counters of all tenants.
struct Traffic(Vec<TenantObservation>);

impl Traffic {
    fn new() -> Self {
        Self(vec![TenantObservation::default(); TENANTS])
    }

    /// Adds so many requests to each backend of each tenant, which miss as often as the curve that
    /// ends at so many bytes says.
    fn add(&mut self, levels: &TwoLevels, asked: [(u64, u64); TENANTS]) -> &[TenantObservation] {
        let budgets = levels.budgets();
        for (tenant, (seen, (requests, ends_at))) in self.0.iter_mut().zip(asked).enumerate() {
            seen.waiting = 1;
            seen.counts.requests += requests * BACKENDS as u64;
            seen.counts.units.resize(BACKENDS, UnitCounts::default());
            let before: Vec<_> = seen.partitions.iter().map(|part| part.reads).collect();
            let part = |backend: usize| {
                let budget_bytes = budgets[backend * TENANTS + tenant];
                let curve = DemandCurve::new([(0, 1.0), (ends_at, 0.05)]);
                let misses = (requests as f64 * curve.at(budget_bytes)) as u64;
                seen.counts.units[backend].add_read(0.0, requests as f64, misses as f64);
                let ReadCounts { hits, misses: missed, joined } =
                    before.get(backend).copied().unwrap_or_default();
                TenantPartition {
                    backend: BackendId::from_index(backend),
                    budget_bytes,
                    used_bytes: budget_bytes,
                    reads: ReadCounts { hits: hits + requests - misses, misses: missed + misses, joined },
                    curve: Some(MissCurve::exact(curve)),
                }
            };
            seen.partitions = (0..BACKENDS).map(part).collect();
        }
        &self.0
    }
}

#[test]
fn inner_policy_moves_bytes_within_a_tenant_only() {
    let mut levels = levels("hare", "robinhood");
    assert_eq!(levels.budgets(), [32 * MIB; 6]);
    let blocked = [[100, 0], [50, 50], [0, 100]];
    let decisions = levels.decide(Instant::from_secs(5), observed(&levels, &blocked, 0));
    assert_sums(&levels);
    let budgets = levels.budgets();
    assert!(budgets[0] > budgets[3] && budgets[2] < budgets[5], "{budgets:?}");
    assert_eq!(budgets[1], budgets[4]);
    let moved: Vec<_> = decisions[2].moves.iter().map(|step| step.partition).collect();
    assert_eq!(moved, [PartitionId(2), PartitionId(5)], "ids are those of all partitions");
    assert_eq!(levels.plan().cache, CachePlan::Budgets(budgets));
}

#[test]
fn decision_about_all_partitions_divides_each_tenants_bytes() {
    let mut levels = levels("hare", "robinhood");
    let mut seen = observed_together(&levels, 0);
    seen.blocking = vec![BandCounts { band: Band::TAIL, counts: vec![100, 0] }];
    let decision = levels.decide_all(Instant::from_secs(5), &seen, &[]);
    assert_sums(&levels);
    assert_eq!(decision.plan, levels.plan());
    let moved: Vec<_> = decision.moves.iter().map(|step| step.partition.0).collect();
    assert_eq!(moved, [0, 1, 2, 3, 4, 5]);
    assert!(decision.moves[0].after_bytes > decision.moves[0].before_bytes, "{decision:?}");
    assert_eq!(decision.kept, None);
}

#[test]
fn policy_within_a_tenant_sees_the_requests_of_that_tenant_alone() {
    let mut levels = levels("hare", "robinhood");
    let second = Duration::from_secs(1);
    let blocked_by = |backend: u16| {
        let mut window = RequestWindow::new(WindowOptions::of(60 * second));
        for millis in 1..=1_000 {
            let request = FinishedRequest::new(Duration::from_millis(millis), Some(BackendId(backend)));
            window.record(Instant::ZERO, Instant::ZERO, request);
        }
        window.snapshot(Instant::ZERO, second)
    };
    let finished = [blocked_by(0), sherwood_model::RequestSnapshot::default(), blocked_by(1)];
    let seen = observed_together(&levels, 0);
    let needs = levels.needs();
    let finished = finished.map(|finished| Observation::of_requests(&finished, &needs, 2));
    levels.decide_all(Instant::from_secs(5), &seen, &finished);
    assert_sums(&levels);
    let budgets = levels.budgets();
    assert!(budgets[0] > budgets[3] && budgets[2] < budgets[5], "{budgets:?}");
    assert_eq!(budgets[1], budgets[4]);
}

#[test]
fn policy_of_either_level_is_replaced_alone() {
    let mut levels = levels("hare", "robinhood");
    let static_ = crate::by_name("static", &options()).unwrap();
    levels.set_within(&*static_).unwrap();
    let drf = TenantOptions { chunk_bytes: MIB, conserving: true };
    levels.set_between(crate::tenants::by_name("drf", drf).unwrap());
    assert_eq!(levels.within(2).unwrap().policy(), "static");
    assert_eq!(levels.between().policy().name(), "drf");
    assert!(!levels.needs().requests);
    let shared = crate::by_name("shared-lru", &options()).unwrap();
    let error = levels.set_within(&*shared).unwrap_err().to_string();
    assert!(error.starts_with("cannot use shared-lru within a tenant"), "{error}");
    assert_eq!(levels.within(0).unwrap().policy(), "static");
}

#[test]
fn outer_policy_moves_bytes_between_tenants_and_keeps_the_parts_within() {
    let mut levels = levels("hare", "robinhood");
    for _ in 0..3 {
        levels.decide(Instant::from_secs(5), observed(&levels, &[[100, 0]; 3], 0));
    }
    let parts = |levels: &TwoLevels, tenant: usize| {
        let budgets = levels.budgets();
        budgets[tenant] as f64 / (budgets[tenant] + budgets[TENANTS + tenant]) as f64
    };
    let before = [0, 1, 2].map(|tenant| parts(&levels, tenant));
    hold(&mut levels);
    let mut traffic = Traffic::new();
    for step in 0..4 * 200 {
        let seen = traffic.add(&levels, [60 * MIB, 60 * MIB, 4_000 * MIB].map(|ends_at| (750, ends_at)));
        levels.advance(Instant::from_millis(6_000 + 250 * step), seen);
        assert_sums(&levels);
    }
    let bytes = levels.between().bytes();
    assert!(bytes[0] > 64 * MIB && bytes[1] > 64 * MIB && bytes[2] < 32 * MIB, "{bytes:?}");
    for (tenant, before) in before.into_iter().enumerate() {
        assert!((parts(&levels, tenant) - before).abs() < 0.01);
    }
}

#[test]
fn tenant_keeps_its_baseline_while_a_policy_divides_its_cache_among_backends() {
    let mut levels = levels("hare", "robinhood");
    let base = [64 * MIB; TENANTS];
    let mut traffic = Traffic::new();
    // Requests of all tenants wait, then of the first alone, then of all again.
    for (phase, waiting) in [3, 1, 3].into_iter().enumerate() {
        for step in 0..400 {
            let now = Instant::from_millis(1_000 + 250 * (400 * phase as u64 + step));
            if step % 20 == 0 {
                let mut seen = observed(&levels, &[[100, 0]; TENANTS], 0);
                seen[waiting..].iter_mut().for_each(|seen| seen.requests = 0);
                levels.decide(now, seen);
            }
            let ends_at = [4_000 * MIB, 60 * MIB, 4_000 * MIB];
            levels.advance(now, traffic.add(&levels, ends_at.map(|ends_at| (750, ends_at))));
            assert_sums(&levels);
            let rates = levels.between().rates().row(TenantId(0));
            assert!(levels.between().bytes()[0] >= base[0] && rates.iter().all(|&rate| rate >= 1_000.0));
        }
        let (bytes, latest) = (levels.between().bytes(), levels.between().latest().unwrap());
        if waiting == 1 {
            assert!(bytes[1] > base[1] && bytes[2] < base[2], "the others exchange: {bytes:?}");
        } else {
            assert_eq!(bytes, base, "phase {phase}");
            let why = "3 tenants keep their baselines while policies divide their cache among backends";
            assert!(latest.line.ends_with(why), "{}", latest.line);
        }
    }
}

/// Has the division within each tenant stay as it is.
fn hold(levels: &mut TwoLevels) {
    levels.set_within(&*crate::by_name("static", &options()).unwrap()).unwrap();
}

#[test]
fn pins_of_partitions_are_floors_of_their_tenant() {
    let mut levels = levels("hare", "robinhood");
    let pin = 32 * MIB;
    levels.decide(Instant::from_secs(5), observed(&levels, &[[0, 100], [0, 100], [0, 100]], pin));
    assert_eq!(levels.budgets()[0], pin);
    hold(&mut levels);
    let mut traffic = Traffic::new();
    for step in 0..4 * 100 {
        let seen = traffic.add(&levels, [4_000 * MIB, 60 * MIB, 60 * MIB].map(|ends_at| (750, ends_at)));
        levels.advance(Instant::from_millis(6_000 + 250 * step), seen);
        assert_sums(&levels);
        assert!(levels.budgets()[0] >= pin);
    }
    assert!(levels.between().bytes()[0] < 64 * MIB);
}

#[test]
fn policy_that_shares_one_lru_is_accepted_between_tenants_only() {
    let shared = levels("non-partitioned", "robinhood").plan();
    assert_eq!(shared.cache, CachePlan::Shared);
    assert_eq!(shared.rates.unwrap().row(TenantId(2)), [1_000.0; 2]);
    let within = (0..TENANTS).map(|tenant| (controller("shared-lru"), vec![PartitionId::from_index(tenant)]));
    let error = TwoLevels::new(between("hare"), within.collect()).err().expect("it shares").to_string();
    assert!(error.starts_with("cannot use shared-lru within a tenant"), "{error}");
    let error = TwoLevels::new(between("hare"), Vec::new()).err().expect("none is given").to_string();
    assert_eq!(error, "cannot divide among 3 tenants by 0 policies: give one policy for each tenant");
    let mut levels = levels("hare", "robinhood");
    let error = levels.set_terms(terms([1.0; 3])[1..].to_vec()).unwrap_err().to_string();
    assert_eq!(error, "cannot set the terms of 2 tenants: there are 3, which only a restart changes");
}

/// Something that happens to two levels.
#[derive(Clone, Debug)]
enum Event {
    /// Requests of each tenant, and the end of its curve in MiB.
    Advance([(u64, u64); TENANTS]),
    /// Requests that each backend of each tenant blocked, and a pin in MiB.
    Decide([[u64; BACKENDS]; TENANTS], u64),
    Terms([f64; TENANTS]),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => prop::array::uniform3((0..2_000_u64, 1..500_u64)).prop_map(Event::Advance),
        2 => (prop::array::uniform3(prop::array::uniform2(0..100_u64)), 0..40_u64)
            .prop_map(|(blocked, pin)| Event::Decide(blocked, pin)),
        1 => prop::array::uniform3(0.0..4.0_f64).prop_map(Event::Terms),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn budgets_of_each_tenant_sum_to_its_bytes_at_every_moment(
        events in prop::collection::vec(event(), 1..200), within in 0..4_usize,
    ) {
        let within = ["robinhood", "equal", "static", "lama"][within];
        let mut levels = levels("hare", within);
        let (mut now, mut traffic) = (Instant::from_secs(1), Traffic::new());
        for event in events {
            now += Duration::from_millis(900);
            match event {
                Event::Advance(counts) => {
                    let seen = traffic.add(&levels, counts.map(|(more, ends_at)| (more, ends_at * MIB)));
                    levels.advance(now, seen);
                }
                Event::Decide(blocked, pin) => {
                    levels.decide(now, observed(&levels, &blocked, pin * MIB));
                }
                Event::Terms(weights) => levels.set_terms(terms(weights)).unwrap(),
            }
            assert_sums(&levels);
        }
    }
}
