//! Tests of the control loop with drivers that refuse plans, hand in an observation twice or never
//! carry out an act, and with policies that propose invalid divisions.

use std::time::Duration;

use proptest::prelude::*;
use sherwood_model::{DemandCurve, Percent, Rates, ResourceKind};
use sherwood_policy::TwoLevels;
use sherwood_policy::tenants::{
    Division, MissCurve, ReadCounts, Share, TenantControlOptions, TenantController, TenantCounts, TenantKept,
    TenantPartition, TenantResource, Tenants, UnitCounts,
};

use super::tests::{MIB, TOTAL, acts, at, budgets, options, plan, rounds, seen};
use super::*;
use crate::check::check_levels;

/// Units per second of the tenants' resource.
const PER_S: f64 = 1_000.0;
const STEP_MS: u64 = 250;

/// A policy between tenants that returns the answers given by the test.
#[derive(Clone)]
struct Told {
    division: fn(&Tenants) -> Division,
    rates: fn(&Tenants) -> Rates,
}

impl TenantPolicy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn divide(&mut self, tenants: &Tenants) -> Division {
        (self.division)(tenants)
    }

    fn rates(&self, tenants: &Tenants, _: &[u64]) -> Rates {
        (self.rates)(tenants)
    }

    fn keeps_baselines(&self) -> bool {
        false
    }
}

fn rates_of(tenants: usize, per_s: f64) -> Rates {
    let mut rates = Rates::zero(tenants, 1);
    (0..tenants).for_each(|index| rates.row_mut(TenantId::from_index(index))[0] = per_s);
    rates
}

fn half(_: &Tenants) -> Rates {
    rates_of(2, PER_S / 2.0)
}

fn division(bytes: Vec<u64>, rates: Rates) -> Division {
    Division { bytes, rates, normalized: vec![1.0; 2], gain: 1.0, bound: None, trades: Vec::new() }
}

/// Returns a division that gives the first tenant a quarter of the cache and of the rate.
fn quarter(_: &Tenants) -> Division {
    let mut rates = rates_of(2, PER_S / 4.0);
    rates.row_mut(TenantId(1))[0] = PER_S * 0.75;
    division(vec![TOTAL / 4, TOTAL / 4 * 3], rates)
}

fn told(division: fn(&Tenants) -> Division) -> Box<Told> {
    Box::new(Told { division, rates: |tenants| quarter(tenants).rates })
}

/// A control loop with two tenants, each with half of the cache, half of one rate and one
/// partition.
struct Pair {
    rounds: ControlLoop,
    now: Instant,
    seen: Vec<TenantObservation>,
}

impl Pair {
    fn new(policy: Box<dyn TenantPolicy>) -> Self {
        let reads = ResourceKind::Reads(BackendId(0));
        let resource = TenantResource { name: "reads".to_owned(), kind: reads, total_per_s: PER_S };
        let terms = |name: &str| TenantTerms {
            name: name.to_owned(),
            weight: 1.0,
            base: None,
            min: Share::default(),
        };
        let control = TenantControlOptions::default();
        let terms = vec![terms("a"), terms("b")];
        let between = TenantController::new(policy, control, vec![resource], TOTAL, terms).unwrap();
        let within = |index: u16| {
            let policy = sherwood_policy::by_name("equal", &options()).unwrap();
            let controller = sherwood_policy::Controller::new(policy, &options(), Vec::new(), vec![0]);
            (controller, vec![PartitionId(index)])
        };
        let levels = TwoLevels::new(between, vec![within(0), within(1)]).unwrap();
        let levels = Levels::Two(Box::new(levels));
        let pins = vec![Pin::default(); 2];
        let rounds = ControlLoop::new(levels, Admission::default(), options(), pins, at(0));
        Self { rounds, now: at(1), seen: vec![observation(); 2] }
    }

    /// Runs the next step and returns its acts.
    fn step(&mut self) -> Vec<Act> {
        self.see();
        acts(&mut self.rounds)
    }

    /// Hands in an observation without polling the resulting acts.
    fn see(&mut self) {
        self.now += Duration::from_millis(STEP_MS);
        let budgets = self.rounds.levels().budgets();
        for (seen, &bytes) in self.seen.iter_mut().zip(&budgets) {
            grow(seen, bytes);
        }
        let seen = Seen { tenants: Some(self.seen.clone()), ..Seen::default() };
        self.rounds.handle_seen(self.now, seen);
    }

    /// Runs steps until the loop has a new plan, which is not polled, and returns the plan before
    /// it.
    fn until_planned(&mut self) -> Plan {
        for _ in 0..1_000 {
            let before = self.rounds.levels().plan();
            self.see();
            if self.rounds.levels().plan() != before {
                return before;
            }
            acts(&mut self.rounds);
        }
        panic!("nothing moves")
    }
}

fn observation() -> TenantObservation {
    let curve = MissCurve {
        misses_per_read: DemandCurve::new([(0, 1.0), (2 * TOTAL, 0.1)]),
        sampled_reads: f64::INFINITY,
    };
    let partition = TenantPartition {
        backend: BackendId(0),
        budget_bytes: 0,
        used_bytes: 0,
        reads: ReadCounts::default(),
        curve: Some(curve),
    };
    TenantObservation {
        counts: TenantCounts { requests: 0, units: vec![UnitCounts::default()] },
        partitions: vec![partition],
        ..TenantObservation::default()
    }
}

/// Adds a hundred requests, half of which miss, of a tenant that has filled its `bytes`.
fn grow(seen: &mut TenantObservation, bytes: u64) {
    seen.counts.requests += 100;
    seen.counts.units[0].add_read(0.0, 100.0, 50.0);
    let partition = &mut seen.partitions[0];
    partition.reads.hits += 50;
    partition.reads.misses += 50;
    (partition.budget_bytes, partition.used_bytes) = (bytes, bytes);
}

/// Polls acts up to the next plan, and refuses that plan.
fn refuse(rounds: &mut ControlLoop, in_force: Option<Vec<u64>>) {
    while let Some(act) = rounds.poll_act() {
        if matches!(act, Act::Apply(_)) {
            return rounds.handle_refusal(in_force);
        }
    }
    panic!("there was no plan")
}

#[test]
fn refused_step_leaves_bytes_rates_and_goal_unchanged_and_is_retried() {
    let mut pair = Pair::new(told(quarter));
    // The decision, whose first step moves at once.
    let before = pair.until_planned();
    assert_eq!(pair.rounds.levels().tenants().unwrap().between().latest().unwrap().kept, None);
    refuse(&mut pair.rounds, None);
    assert_eq!(pair.rounds.levels().plan(), before);
    let between = pair.rounds.levels().tenants().unwrap().between();
    assert!(!between.is_moving() && between.latest().is_none(), "the goal is that before");
    assert_eq!(acts(&mut pair.rounds), [], "the decision is not reported");
    // The decision is made again, and then a step in the middle of the way is refused.
    for refused in [false, true, true, false] {
        let before = pair.until_planned();
        if refused {
            refuse(&mut pair.rounds, None);
            assert_eq!(pair.rounds.levels().plan(), before);
        } else {
            acts(&mut pair.rounds);
        }
        assert!(pair.rounds.levels().tenants().unwrap().between().is_moving());
    }
    (0..1_000).for_each(|_| drop(pair.step()));
    assert_eq!(pair.rounds.levels().budgets(), [TOTAL / 4, TOTAL / 4 * 3]);
}

#[test]
fn refused_change_of_tenant_terms_leaves_plan_terms_and_total_unchanged() {
    let mut pair = Pair::new(told(quarter));
    let before = pair.rounds.levels().plan();
    let mut terms = pair.rounds.levels().tenants().unwrap().between().terms().to_vec();
    terms[0].weight = 3.0;
    pair.rounds.set_terms(terms.clone());
    refuse(&mut pair.rounds, None);
    let levels = pair.rounds.levels();
    assert_eq!((levels.plan(), levels.tenants().unwrap().between().terms()[0].weight), (before, 1.0));
    // The driver cannot have another total, either.
    pair.rounds.resize(TOTAL / 2, Some(terms), std::iter::empty(), false);
    pair.rounds.handle_refusal(None);
    let between = pair.rounds.levels().tenants().unwrap().between();
    assert_eq!((between.total().bytes, between.bytes()), (TOTAL, &[TOTAL / 2; 2][..]));
}

#[test]
fn invalid_division_among_tenants_is_refused_and_reported_and_changes_nothing() {
    let cases: [fn(&Tenants) -> Division; 6] = [
        |_| division(vec![TOTAL, 1], rates_of(2, PER_S / 2.0)),
        |_| division(vec![TOTAL / 2], rates_of(2, PER_S / 2.0)),
        |_| division(vec![MIB; 2], rates_of(3, 1.0)),
        |_| division(vec![MIB; 2], rates_of(2, f64::NAN)),
        |_| division(vec![MIB; 2], rates_of(2, f64::INFINITY)),
        |_| division(vec![MIB; 2], rates_of(2, PER_S)),
    ];
    for (index, case) in cases.into_iter().enumerate() {
        let mut pair = Pair::new(told(case));
        let mut refused = 0;
        for _ in 0..400 {
            for act in pair.step() {
                if let Act::Say(Said::Tenants(decision)) = act {
                    assert!(matches!(decision.kept, Some(TenantKept::Refused(_))), "{index}: {decision:?}");
                    assert!(decision.line.contains("was refused"), "{}", decision.line);
                    refused += 1;
                }
            }
        }
        assert!(refused > 1);
        assert_eq!(pair.rounds.levels().budgets(), [TOTAL / 2; 2], "case {index}");
        let between = pair.rounds.levels().tenants().unwrap().between();
        assert!(between.what_if(between.terms(), &[]).is_err(), "case {index}");
    }
}

#[test]
fn invalid_rates_during_a_gradual_move_are_refused_and_reported_and_change_nothing() {
    let cases: [fn(&Tenants) -> Rates; 3] =
        [|_| rates_of(2, f64::NAN), |_| rates_of(1, 1.0), |_| rates_of(2, PER_S)];
    for rates in cases {
        let mut pair = Pair::new(Box::new(Told { division: quarter, rates }));
        let (mut divisions, mut refused) = (0, Vec::new());
        for _ in 0..1_000 {
            for act in pair.step() {
                match act {
                    Act::Say(Said::Refused(said)) => refused.push(said),
                    Act::Say(Said::Tenants(decision)) => divisions += usize::from(decision.kept.is_none()),
                    Act::Apply(plan) => panic!("{plan:?}"),
                    _ => {}
                }
            }
        }
        assert!(divisions > 1 && refused.len() == divisions, "said once for each: {refused:?}");
        let is_told = |said: &Refused| said.lever == "told" && matches!(said.fault, PlanFault::Tenants(_));
        assert!(refused.iter().all(is_told), "{refused:?}");
        let between = pair.rounds.levels().tenants().unwrap().between();
        assert_eq!(between.rates(), &rates_of(2, PER_S / 2.0));
        assert_eq!(between.bytes(), [TOTAL / 2; 2]);
    }
}

#[test]
fn plan_that_does_not_fit_the_partitions_totals_or_tenants_is_refused() {
    let one = rounds("robinhood", &options());
    let pair = Pair::new(Box::new(Told { division: quarter, rates: half }));
    let check = |plan: &Plan, rounds: &ControlLoop| check_levels(plan, rounds.levels(), 2, TOTAL);
    let budgets = |bytes: &[u64]| Plan::from(CachePlan::Budgets(bytes.to_vec()));
    let with = |rates| Plan { rates: Some(rates), ..budgets(&[1, 1]) };
    assert_eq!(check(&budgets(&[TOTAL, 0]), &one), Ok(()));
    assert_eq!(check(&CachePlan::Shared.into(), &one), Ok(()));
    let sum = u128::from(TOTAL) + 1;
    assert_eq!(check(&budgets(&[TOTAL, 1]), &one), Err(PlanFault::OverTotal { sum, total: TOTAL }));
    assert_eq!(check(&budgets(&[1; 3]), &one), Err(PlanFault::Partitions { given: 3, partitions: 2 }));
    assert_eq!(check(&with(rates_of(2, 1.0)), &one), Err(PlanFault::Rates));
    assert_eq!(check(&budgets(&[1, 1]), &pair.rounds), Err(PlanFault::Rates));
    assert_eq!(check(&with(rates_of(2, 1.0)), &pair.rounds), Ok(()));
    for rates in [rates_of(2, f64::NAN), rates_of(2, -1.0), rates_of(2, PER_S), rates_of(3, 1.0)] {
        assert!(matches!(check(&with(rates), &pair.rounds), Err(PlanFault::Tenants(_))));
    }
    let backend = BackendId(1);
    let beta = sherwood_model::BackendPlan {
        beta: Some(Percent::BETA),
        ..sherwood_model::BackendPlan::unchanged(backend)
    };
    let plan = Plan { backends: vec![beta], ..budgets(&[1, 1]) };
    assert_eq!(check(&plan, &one), Err(PlanFault::Backend(backend)));
}

#[test]
fn observation_with_a_wrong_number_of_partitions_is_refused_and_the_last_plan_is_kept() {
    let mut rounds = rounds("robinhood", &options());
    for count in [0, 1, 3] {
        let mut other = seen(&rounds, at(5), Percent::BETA);
        let cache = other.cache.as_mut().unwrap();
        cache.partitions.resize(count, PartitionSeen::new(TenantId(0), BackendId(0)));
        rounds.handle_seen(at(5), other);
        let fault = PlanFault::Observed { given: count, partitions: 2 };
        assert_eq!(acts(&mut rounds), [Act::Say(Said::Refused(Refused { lever: "robinhood", fault }))]);
    }
    assert_eq!((rounds.levels().budgets(), rounds.decisions()), (vec![TOTAL / 2; 2], 0));
    assert_eq!(rounds.next_timeout(), at(10));
}

#[test]
fn observation_handed_in_twice_causes_no_second_move() {
    let mut rounds = rounds("robinhood", &options());
    let first = seen(&rounds, at(5), Percent::BETA);
    rounds.handle_seen(at(5), first.clone());
    let moved = budgets(&acts(&mut rounds)).unwrap();
    for now in [10, 15] {
        rounds.handle_seen(at(now), first.clone());
        let acts = acts(&mut rounds);
        assert_eq!((budgets(&acts), &plan(&acts).unwrap().backends[..]), (Some(moved.clone()), &[][..]));
    }
}

#[test]
fn driver_that_never_polls_accumulates_the_actions_of_only_one_decision() {
    let mut rounds = rounds("robinhood", &options());
    for round in 1..1_000 {
        let seen = seen(&rounds, at(5 * round), Percent::BETA);
        rounds.handle_seen(at(5 * round), seen);
    }
    assert_eq!(rounds.levels().budgets().iter().sum::<u64>(), TOTAL);
    let acts = acts(&mut rounds);
    assert!(
        matches!(&acts[..], [Act::Apply(_), Act::Say(Said::Beta(_)), Act::Say(Said::Division(_))]),
        "{acts:?}"
    );
    assert_eq!(rounds.decisions(), 1);
}

#[test]
fn refusal_reverts_only_the_last_plan_and_a_second_refusal_has_no_effect() {
    let mut rounds = rounds("robinhood", &options());
    rounds.handle_seen(at(5), seen(&rounds, at(5), Percent::BETA));
    refuse(&mut rounds, None);
    assert_eq!(rounds.levels().budgets(), [TOTAL / 2; 2]);
    rounds.handle_refusal(Some(vec![1, 1]));
    rounds.handle_refusal(Some(vec![1, 1]));
    assert_eq!(rounds.levels().budgets(), [TOTAL / 2; 2], "there is no plan to refuse");
    // The same deadlines are evidence again, since the choice that they led to has no effect.
    rounds.handle_seen(at(10), seen(&rounds, at(10), Percent::BETA));
    let acts = acts(&mut rounds);
    let [Act::Apply(plan), Act::Say(Said::Beta(choice)), _] = &acts[..] else { panic!("{acts:?}") };
    assert_eq!(choice.before, Percent::BETA);
    assert!(choice.reason.contains("of 1000 deadlines"), "{}", choice.reason);
    assert_eq!(plan.backends[0].beta, Some(choice.beta));
}

#[test]
fn reported_budgets_for_a_wrong_number_of_partitions_are_ignored() {
    let mut rounds = rounds("robinhood", &options());
    rounds.handle_seen(at(5), seen(&rounds, at(5), Percent::BETA));
    refuse(&mut rounds, Some(vec![1, 2, 3]));
    assert_eq!(rounds.levels().budgets(), [TOTAL / 2; 2]);
}

#[test]
fn refused_division_within_tenants_keeps_the_step_among_tenants_from_the_same_observation() {
    let mut pair = Pair::new(told(quarter));
    pair.until_planned();
    acts(&mut pair.rounds);
    let held = pair.rounds.levels().budgets();
    pair.now += Duration::from_millis(STEP_MS);
    let partitions = held.iter().zip(0..).map(|(&bytes, index)| PartitionSeen {
        allocated_bytes: bytes,
        used_bytes: bytes,
        ..PartitionSeen::new(TenantId(index), BackendId(0))
    });
    let cache = CacheSeen {
        at: pair.now,
        total_bytes: TOTAL,
        partitions: partitions.collect(),
        ..CacheSeen::default()
    };
    pair.seen.iter_mut().zip(&held).for_each(|(seen, &bytes)| grow(seen, bytes));
    let seen = Seen { cache: Some(cache), tenants: Some(pair.seen.clone()), ..Seen::default() };
    pair.rounds.handle_seen(pair.now, seen);
    refuse(&mut pair.rounds, Some(held.clone()));
    let acts = acts(&mut pair.rounds);
    let [Act::Apply(plan)] = &acts[..] else { panic!("{acts:?}") };
    assert_eq!(plan, &pair.rounds.levels().plan());
    let CachePlan::Budgets(budgets) = &plan.cache else { panic!("{plan:?}") };
    assert!(budgets[0] < held[0] && budgets.iter().sum::<u64>() == TOTAL, "{budgets:?} after {held:?}");
}

#[test]
fn stopped_or_jumping_clock_moves_tenants_by_at_most_one_step() {
    let mut pair = Pair::new(told(quarter));
    pair.until_planned();
    acts(&mut pair.rounds);
    let day = Duration::from_secs(86_400);
    let held = pair.rounds.levels().plan();
    for now in [pair.now, pair.now - Duration::from_secs(1), at(0)] {
        let seen = Seen { tenants: Some(pair.seen.clone()), ..Seen::default() };
        pair.rounds.handle_seen(now, seen);
        acts(&mut pair.rounds);
        assert_eq!(pair.rounds.levels().plan(), held, "at {now:?}");
    }
    pair.now += day;
    pair.step();
    let step = TOTAL / 2 / 64;
    let after = pair.rounds.levels().budgets();
    let CachePlan::Budgets(before) = held.cache else { panic!("budgets") };
    assert!(before[0].abs_diff(after[0]) <= step, "{before:?} {after:?}");
}

proptest! {
    /// Whatever a driver refuses, repeats, delays or leaves unpolled, the tenants' bytes and rates
    /// never exceed the totals, and a refused plan is not in force.
    #[test]
    fn bytes_and_rates_of_tenants_never_exceed_the_totals(
        events in proptest::collection::vec((0_u8..8, 0_u64..100_000), 1..400),
    ) {
        let mut pair = Pair::new(told(quarter));
        for (event, ms) in events {
            match event {
                0 => pair.now += Duration::from_millis(ms),
                1 => pair.now = pair.now - Duration::from_millis(ms),
                2 => {
                    let before = pair.rounds.levels().plan();
                    acts(&mut pair.rounds);
                    pair.see();
                    let mut refused = false;
                    while let Some(act) = pair.rounds.poll_act() {
                        if matches!(act, Act::Apply(_)) {
                            pair.rounds.handle_refusal(None);
                            refused = true;
                        }
                    }
                    if refused {
                        prop_assert_eq!(pair.rounds.levels().plan(), before);
                    }
                }
                3 => pair.see(),
                _ => drop(pair.step()),
            }
            let between = pair.rounds.levels().tenants().unwrap().between();
            prop_assert!(between.bytes().iter().sum::<u64>() <= TOTAL);
            let rates: f64 = (0..2).map(|index| between.rates().row(TenantId(index))[0]).sum();
            prop_assert!(rates <= PER_S * (1.0 + 1e-9), "{rates}");
            prop_assert_eq!(pair.rounds.levels().budgets(), between.bytes());
        }
    }
}
