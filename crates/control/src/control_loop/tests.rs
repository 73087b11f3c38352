//! Tests of the control loop with drivers that observe late, twice or never, refuse plans, or have
//! a clock that jumps.

use std::time::Duration;

use proptest::prelude::*;
use sherwood_model::{FinishedRequest, Percent, RequestWindow, WindowOptions};
use sherwood_policy::{Controller, by_name};

use super::*;
use crate::{AdmissionSeen, DeadlineCounts, LossesSeen};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const TOTAL: u64 = 64 * MIB;
const DELTA: Duration = Duration::from_secs(5);

pub(super) fn at(seconds: u64) -> Instant {
    Instant::from_secs(seconds)
}

pub(super) fn rounds(policy: &str, options: &Options) -> ControlLoop {
    let budgets = vec![TOTAL / 2; 2];
    let controller = Controller::new(by_name(policy, options).unwrap(), options, Vec::new(), budgets);
    let admission = Admission::new([(BackendId(1), Percent::new("target", 3.0).unwrap())]);
    let levels = Levels::One(Box::new(controller));
    ControlLoop::new(levels, admission, options.clone(), vec![Pin::default(); 2], at(0))
}

pub(super) fn options() -> Options {
    Options { delta: DELTA, ..Options::default() }
}

fn partition(index: u16, budget: u64) -> PartitionSeen {
    let seen = PartitionSeen::new(TenantId(0), BackendId(index));
    PartitionSeen { allocated_bytes: budget, used_bytes: budget, ..seen }
}

/// Returns an observation of requests that all waited for this backend.
fn blocked_by(backend: u16, now: Instant) -> Observation {
    latencies(backend, now, 1, &by_name("robinhood", &options()).unwrap().needs())
}

/// Returns an observation of requests of up to `slowdown` times two seconds that all waited for
/// this backend.
pub(super) fn latencies(
    backend: u16,
    now: Instant,
    slowdown: u64,
    needs: &sherwood_policy::Needs,
) -> Observation {
    let mut window = RequestWindow::new(WindowOptions::of(Duration::from_secs(60)));
    for number in 0..2_000 {
        let latency = Duration::from_millis((1 + number) * slowdown);
        window.record(now, now, FinishedRequest::new(latency, Some(BackendId(backend))));
    }
    let mut seen = Observation::default();
    seen.see_requests(&window.snapshot(now, Duration::from_secs(60)), needs, 2);
    seen
}

/// Returns the observations of a node whose requests wait for the second backend, and whose
/// deadlines are all missed.
pub(super) fn seen(rounds: &ControlLoop, now: Instant, beta: Percent) -> Seen {
    let budgets = rounds.levels().budgets();
    let missed = 500 * (now.as_nanos() / DELTA.as_nanos() as u64);
    let cache = CacheSeen {
        total_bytes: TOTAL,
        at: now,
        partitions: (0..2).map(|index| partition(index, budgets[usize::from(index)])).collect(),
        requests: vec![blocked_by(1, now)],
        losses: LossesSeen::default(),
        admissions: vec![AdmissionSeen {
            backend: BackendId(1),
            beta,
            ended: DeadlineCounts { met: 0, missed, rejected: 0 },
        }],
    };
    Seen { cache: Some(cache), ..Seen::default() }
}

pub(super) fn acts(rounds: &mut ControlLoop) -> Vec<Act> {
    std::iter::from_fn(|| rounds.poll_act()).collect()
}

pub(super) fn plan(acts: &[Act]) -> Option<&Plan> {
    acts.iter().find_map(|act| if let Act::Apply(plan) = act { Some(plan) } else { None })
}

pub(super) fn budgets(acts: &[Act]) -> Option<Vec<u64>> {
    match &plan(acts)?.cache {
        CachePlan::Budgets(budgets) => Some(budgets.clone()),
        CachePlan::Shared => None,
    }
}

#[test]
fn plan_moves_bytes_to_the_blocking_backend_and_raises_its_beta() {
    let mut rounds = rounds("robinhood", &options());
    assert_eq!(rounds.next_timeout(), at(5));
    assert_eq!(rounds.needs(at(4)), Needs::default(), "nothing is due");
    assert!(rounds.needs(at(5)).cache.is_some_and(|needs| needs.requests));
    rounds.handle_seen(at(5), seen(&rounds, at(5), Percent::BETA));
    let acts = acts(&mut rounds);
    let beta = Percent::new("beta", 94.0).unwrap();
    let plan = plan(&acts).unwrap();
    assert_eq!(
        plan.backends,
        [sherwood_model::BackendPlan {
            beta: Some(beta),
            ..sherwood_model::BackendPlan::unchanged(BackendId(1))
        }]
    );
    let budgets = budgets(&acts).unwrap();
    assert!(budgets[1] > TOTAL / 2, "{budgets:?}");
    let [Act::Apply(_), Act::Say(Said::Beta(_)), Act::Say(Said::Division(said))] = &acts[..] else {
        panic!("{acts:?}")
    };
    assert_eq!(rounds.latest(), Some(said));
    assert_eq!(rounds.next_timeout(), at(10));
}

#[test]
fn dry_run_reports_beta_and_budget_decisions_without_applying_them() {
    let mut rounds = rounds("robinhood", &Options { dry_run: true, ..options() });
    rounds.handle_seen(at(5), seen(&rounds, at(5), Percent::BETA));
    let acts = acts(&mut rounds);
    assert_eq!(plan(&acts), None);
    let [Act::Say(Said::Beta(change)), Act::Say(Said::Division(_))] = &acts[..] else { panic!("{acts:?}") };
    assert!(!change.applied);
}

#[test]
fn refused_plan_is_not_reported_and_the_next_decision_starts_from_the_budgets_in_force() {
    let mut rounds = rounds("robinhood", &options());
    rounds.handle_seen(at(5), seen(&rounds, at(5), Percent::BETA));
    assert!(matches!(rounds.poll_act(), Some(Act::Apply(_))));
    rounds.handle_refusal(Some(vec![TOTAL / 4, TOTAL / 4 * 3]));
    assert_eq!((rounds.poll_act(), rounds.latest(), rounds.decisions()), (None, None, 0));
    assert_eq!(rounds.levels().budgets(), [TOTAL / 4, TOTAL / 4 * 3]);
    assert_eq!(rounds.next_timeout(), at(10), "the next round comes as usual");
}

#[test]
fn missed_decisions_are_skipped_and_a_stopped_clock_moves_nothing() {
    let mut rounds = rounds("robinhood", &options());
    let day = 24 * 3_600;
    rounds.handle_seen(at(day + 3), seen(&rounds, at(day + 3), Percent::BETA));
    let first = budgets(&acts(&mut rounds)).unwrap();
    assert_eq!(rounds.next_timeout(), at(day + 8), "one interval after the late round");
    for now in [day + 3, day, 0] {
        let mut again = seen(&rounds, at(day + 3), Percent::BETA);
        again.cache.iter_mut().flat_map(|seen| &mut seen.admissions).for_each(|seen| seen.ended.missed *= 2);
        rounds.handle_seen(at(now), again);
        let acts = acts(&mut rounds);
        assert_eq!(budgets(&acts), Some(first.clone()), "at {now}");
        assert_eq!(plan(&acts).unwrap().backends, [], "at {now}");
    }
}

#[test]
fn observation_of_an_unknown_backend_plans_no_change_for_it() {
    let mut rounds = rounds("robinhood", &options());
    let mut unknown = seen(&rounds, at(5), Percent::BETA);
    for seen in unknown.cache.iter_mut().flat_map(|seen| &mut seen.admissions) {
        seen.backend = BackendId(900);
    }
    rounds.handle_seen(at(5), unknown);
    assert_eq!(plan(&acts(&mut rounds)).unwrap().backends, []);
}

#[test]
fn loop_without_observed_traffic_keeps_its_budgets() {
    let mut rounds = rounds("robinhood", &options());
    rounds.handle_seen(at(5), Seen::default());
    assert_eq!(acts(&mut rounds), []);
    let nothing = CacheSeen {
        total_bytes: TOTAL,
        partitions: (0..2).map(|i| partition(i, 0)).collect(),
        ..CacheSeen::default()
    };
    rounds.handle_seen(at(5), Seen { cache: Some(nothing), tenants: Some(Vec::new()), ..Seen::default() });
    assert_eq!(budgets(&acts(&mut rounds)), Some(vec![TOTAL / 2; 2]));
}

proptest! {
    /// Whatever a driver reports and when, the budgets never sum to more than the total, and no
    /// observation is requested before it is due.
    #[test]
    fn budgets_never_exceed_the_total(
        steps in proptest::collection::vec((0_u64..100_000, 0_u64..4, any::<[u64; 4]>(), 0_usize..3), 1..20),
        policy in proptest::sample::select(vec!["robinhood", "equal", "static", "shared-lru"]),
    ) {
        let mut rounds = rounds(policy, &options());
        for (now, blocked, [allocated, used, hits, misses], partitions) in steps {
            let now = at(now);
            let partitions = (0..partitions as u16).map(|index| PartitionSeen {
                used_bytes: used,
                hits,
                misses,
                reached: blocked != 3,
                ..partition(index, allocated)
            });
            let cache = CacheSeen {
                total_bytes: TOTAL,
                at: now,
                partitions: partitions.collect(),
                requests: (blocked < 2).then(|| blocked_by(blocked as u16, now)).into_iter().collect(),
                ..CacheSeen::default()
            };
            rounds.handle_seen(now, Seen { cache: Some(cache), ..Seen::default() });
            let shape = rounds.levels().budgets().len();
            while let Some(act) = rounds.poll_act() {
                if let Act::Apply(Plan { cache: CachePlan::Budgets(budgets), .. }) = act {
                    prop_assert_eq!(budgets.len(), shape);
                    prop_assert!(budgets.iter().map(|&bytes| u128::from(bytes)).sum::<u128>() <= u128::from(TOTAL));
                }
            }
            prop_assert!(rounds.needs(now).cache.is_none(), "decided, so that nothing is due");
        }
    }
}
