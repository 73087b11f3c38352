//! The guard in a small model of backends: misses follow bytes, and slowness is set by the test.

use sherwood_model::TenantId;

use super::*;
use crate::{BandCounts, Controller, Kept, Options, PartitionObservation, Policy, Proposal, View, by_name};

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 400 * MIB;
const DELTA: u64 = 5;

/// Four backends. A backend's miss ratio falls as its bytes grow, its latency is its misses times
/// its slowness, and the tail is the largest of these latencies.
struct Model {
    slow: [f64; 4],
    /// Look-ups at each backend in one window.
    look_ups: u64,
    /// Factor by which all miss ratios are multiplied; changing it simulates a change of
    /// popularity.
    misses: f64,
    bytes: Vec<u64>,
}

impl Model {
    fn new() -> Self {
        Self { slow: [1.0; 4], look_ups: 100_000, misses: 1.0, bytes: vec![TOTAL / 4; 4] }
    }

    fn miss_ratio(&self, backend: usize) -> f64 {
        let more = TOTAL as f64 / 4.0 / self.bytes[backend] as f64;
        (0.1 * more * self.misses).min(1.0)
    }

    fn seen(&self) -> Observation {
        let partition = |backend: usize| {
            let misses = (self.look_ups as f64 * self.miss_ratio(backend)) as u64;
            PartitionObservation {
                used_bytes: self.bytes[backend],
                misses,
                hits: self.look_ups - misses,
                ..PartitionObservation::new(TenantId(0), BackendId::from_index(backend))
            }
        };
        // A backend serves its misses one after another, so latency grows with their number.
        let wait =
            |backend: usize| self.slow[backend] * self.miss_ratio(backend) * self.look_ups as f64 / 100.0;
        let waits: Vec<f64> = (0..4).map(wait).collect();
        let weight = |wait: &f64| (wait * wait) as u64;
        Observation {
            total_bytes: TOTAL,
            partitions: (0..4).map(partition).collect(),
            requests: 10_000,
            latency_range: Some((Duration::from_millis(1), Duration::from_secs(1))),
            tail: waits.iter().copied().max_by(f64::total_cmp).map(|ms| Duration::from_secs_f64(ms / 1e3)),
            blocking: vec![BandCounts { band: Band::TAIL, counts: waits.iter().map(weight).collect() }],
        }
    }
}

fn guard() -> Guard {
    Guard::new(GuardOptions::default(), Band::TAIL, Duration::from_secs(60))
}

fn at(seconds: u64) -> Instant {
    Instant::from_secs(seconds)
}

/// Runs rounds from `from` to `to` seconds, in each of which `moves` changes the model before the
/// guard evaluates it. Returns time and budgets of the rollback, if any.
fn run(
    guard: &mut Guard,
    model: &mut Model,
    (from, to): (u64, u64),
    mut moves: impl FnMut(&mut Model, u64),
) -> Option<(u64, Vec<u64>)> {
    for now in (from..to).step_by(DELTA as usize) {
        moves(model, now);
        if let Verdict::Back(budgets, _) =
            guard.watch(at(now), &model.seen(), &model.bytes.clone(), <[u64]>::to_vec)
        {
            return Some((now, budgets));
        }
    }
    None
}

fn take(model: &mut Model, from: usize, to: usize, bytes: u64) {
    model.bytes[from] -= bytes;
    model.bytes[to] += bytes;
}

/// Returns guard and model after two minutes without changes, which make the allocation in force
/// the good one.
fn settled() -> (Guard, Model) {
    let (mut guard, mut model) = (guard(), Model::new());
    assert_eq!(run(&mut guard, &mut model, (0, 130), |_, _| {}), None);
    assert_eq!(guard.standing().good_bytes, [TOTAL / 4; 4]);
    (guard, model)
}

#[test]
fn harmful_moves_are_rolled_back_after_a_window_and_frozen() {
    let (mut guard, mut model) = settled();
    let harmful = |model: &mut Model, now| {
        if now < 180 {
            take(model, 0, 1, 4 * MIB);
        }
    };
    let (when, budgets) = run(&mut guard, &mut model, (130, 400), harmful).expect("harm is seen");
    assert_eq!(budgets, [TOTAL / 4; 4]);
    assert!((190..260).contains(&when), "{when}");
    model.bytes = budgets;
    let until = when + 600;
    for now in (when + 5..until).step_by(5) {
        assert_eq!(guard.watch(at(now), &model.seen(), &model.bytes, <[u64]>::to_vec), Verdict::Frozen);
    }
    assert_eq!(guard.watch(at(until), &model.seen(), &model.bytes, <[u64]>::to_vec), Verdict::Free);
    let GuardStanding { trips, frozen_until, good_bytes, .. } = guard.standing();
    assert_eq!((trips, frozen_until, good_bytes.len()), (1, None, 0), "restarted");
}

#[test]
fn rollback_that_could_not_be_applied_is_repeated_in_the_next_decision() {
    let (mut guard, mut model) = settled();
    let harmful = |model: &mut Model, now| {
        if now < 180 {
            take(model, 0, 1, 4 * MIB);
        }
    };
    let (when, budgets) = run(&mut guard, &mut model, (130, 400), harmful).expect("harm is seen");
    guard.take_back();
    let GuardStanding { trips, frozen_until, good_bytes, worse_since, .. } = guard.standing();
    assert_eq!((trips, frozen_until, good_bytes), (0, None, budgets.clone()));
    assert!(worse_since.is_some());
    assert_eq!(run(&mut guard, &mut model, (when + 5, 400), |_, _| {}), Some((when + 5, budgets)));
    // Later rounds do not take it back.
    assert_eq!(guard.watch(at(when + 10), &model.seen(), &model.bytes, <[u64]>::to_vec), Verdict::Frozen);
    guard.take_back();
    assert!(guard.standing().frozen_until.is_some());
}

#[test]
fn rollback_names_the_blamed_backends_and_the_former_tail_latency() {
    let (mut guard, mut model) = settled();
    take(&mut model, 2, 1, 40 * MIB);
    let verdicts =
        (130..400).step_by(5).map(|now| guard.watch(at(now), &model.seen(), &model.bytes, <[u64]>::to_vec));
    let harm = verdicts.filter_map(|verdict| match verdict {
        Verdict::Back(_, harm) => Some(harm),
        Verdict::Free | Verdict::Frozen => None,
    });
    let harm = harm.last().expect("harm is seen");
    assert_eq!(harm.blamed, [BackendId(2)]);
    assert!(harm.tail > harm.good_tail.mul_f64(1.5));
    assert_eq!(harm.until.since(at(190)), Duration::from_secs(600), "freeze begins a window after the onset");
}

#[test]
fn loss_of_bytes_to_another_tenant_of_the_backend_is_rolled_back() {
    let (mut guard, mut model) = (guard(), Model::new());
    let shared = |model: &Model| {
        let mut seen = model.seen();
        seen.partitions[1].backend = BackendId(0);
        let counts = &mut seen.blocking[0].counts;
        counts[0] += std::mem::take(&mut counts[1]);
        seen
    };
    let mut blamed = Vec::new();
    for now in (0..400).step_by(5) {
        if now == 130 {
            take(&mut model, 0, 1, 40 * MIB);
        }
        if let Verdict::Back(budgets, harm) =
            guard.watch(at(now), &shared(&model), &model.bytes, <[u64]>::to_vec)
        {
            assert_eq!(budgets, [TOTAL / 4; 4]);
            blamed.push(harm.blamed);
        }
    }
    assert_eq!(blamed, [[BackendId(0)]], "although the backend's total is unchanged");
}

#[test]
fn loss_of_items_discards_the_good_allocation_but_continues_a_freeze() {
    let (mut guard, mut model) = settled();
    take(&mut model, 0, 1, 40 * MIB);
    let (when, budgets) = run(&mut guard, &mut model, (130, 400), |_, _| {}).expect("harm is seen");
    guard.forget();
    let frozen = guard.watch(at(when + 5), &model.seen(), &budgets, <[u64]>::to_vec);
    assert_eq!((frozen, guard.standing().good_bytes.len()), (Verdict::Frozen, 0));
}

#[test]
fn tail_longer_for_less_than_a_window_is_not_rolled_back() {
    let (mut guard, mut model) = settled();
    let back_and_forth = |model: &mut Model, now: u64| match now % 100 {
        0 => take(model, 0, 1, 40 * MIB),
        50 => take(model, 1, 0, 40 * MIB),
        _ => {}
    };
    let mut moves_from_200 = |model: &mut Model, now| {
        if now >= 200 {
            back_and_forth(model, now)
        }
    };
    assert_eq!(run(&mut guard, &mut model, (130, 1_200), &mut moves_from_200), None);
}

#[test]
fn longer_tail_within_the_slo_bound_is_not_rolled_back() {
    let (mut guard, mut model) = settled();
    model.slow = [0.4; 4];
    assert_eq!(run(&mut guard, &mut model, (130, 400), |_, _| {}), None);
    take(&mut model, 0, 1, 15 * MIB);
    assert_eq!(run(&mut guard, &mut model, (400, 800), |_, _| {}), None);
}

#[test]
fn slowness_by_higher_load_or_changed_popularity_is_not_rolled_back() {
    let (mut guard, mut model) = settled();
    take(&mut model, 0, 1, 3 * MIB);
    model.look_ups *= 5;
    assert_eq!(run(&mut guard, &mut model, (130, 400), |_, _| {}), None);
    model.misses = 2.0;
    assert_eq!(run(&mut guard, &mut model, (400, 700), |_, _| {}), None);
    assert!(model.seen().tail > Some(Duration::from_secs(1)), "requests were slow indeed");
}

#[test]
fn too_few_requests_cause_no_rollback() {
    let (mut guard, mut model) = settled();
    take(&mut model, 0, 1, 40 * MIB);
    for now in (130..400).step_by(5) {
        let seen = Observation { requests: 299, ..model.seen() };
        assert_eq!(guard.watch(at(now), &seen, &model.bytes, <[u64]>::to_vec), Verdict::Free);
    }
}

/// Checks moves that are needed: each backend in turn slows down by itself and gains bytes from all
/// others while it is slow.
#[test]
fn gradual_moves_to_slow_backends_are_not_rolled_back() {
    let options =
        Options { guard: Some(GuardOptions::default()), page_bytes: Some(MIB / 16), ..Options::default() };
    let policy = by_name("robinhood", &options).expect("it exists");
    let mut controller = Controller::new(policy, &options, Vec::new(), vec![TOTAL / 4; 4]);
    let mut model = Model::new();
    let mut slow_for = 0;
    for round in 1_u64..2_000 {
        // Three minutes slow, five minutes none, then the next backend, slower each time.
        let (turn, minute) = ((round / 96) as usize, round % 96 / 12);
        model.slow = [1.0; 4];
        if minute < 3 {
            model.slow[turn % 4] = 2.0 + turn as f64;
        }
        slow_for += u64::from(model.seen().tail > Some(Duration::from_millis(150)));
        let decision = controller.decide(at(round * DELTA), &model.seen());
        assert_eq!(decision.harm, None, "round {round}: {}", decision.line);
        model.bytes = controller.budgets().to_vec();
    }
    assert!(slow_for > 300, "the SLO was violated in {slow_for} rounds only");
}

/// A deliberately faulty policy for tests: every round it takes bytes from the first partition.
#[derive(Clone)]
struct Wrong;

impl Policy for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        let mut budgets = view.budgets.to_vec();
        let bytes = if view.elapsed >= Duration::from_secs(125) { 4 * MIB.min(budgets[0] / 8) } else { 0 };
        budgets[0] -= bytes;
        budgets[1] += bytes;
        Proposal::Budgets(budgets)
    }
}

/// A policy that proposes equal budgets for all partitions.
#[derive(Clone)]
struct Equal;

impl Policy for Equal {
    fn name(&self) -> &'static str {
        "equal"
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        Proposal::Budgets(vec![view.total_bytes / 4; 4])
    }
}

#[test]
fn controller_rolls_back_harmful_moves_reports_them_and_freezes() {
    let options = Options {
        guard: Some(GuardOptions::default()),
        page_bytes: Some(MIB),
        floor_pages: 0,
        ..Options::default()
    };
    let mut controller = Controller::new(Box::new(Wrong), &options, Vec::new(), vec![TOTAL / 4; 4]);
    let mut model = Model::new();
    let mut decide = |controller: &mut Controller, round: u64| {
        let decision = controller.decide(at(round * DELTA), &model.seen());
        model.bytes = controller.budgets().to_vec();
        decision
    };
    let back = (1..100).map(|round| decide(&mut controller, round)).find(|decision| decision.harm.is_some());
    let back = back.expect("the policy does harm");
    assert!(back.apply && back.line.contains("(back to the last good allocation)"), "{}", back.line);
    assert_eq!(controller.budgets(), [TOTAL / 4; 4]);
    let GuardStanding { trips, frozen_until, .. } = controller.guard().expect("there is one");
    assert_eq!(trips, 1);
    let until = frozen_until.expect("it holds still").since(Instant::ZERO).as_secs() / DELTA;
    let held = decide(&mut controller, until - 1);
    assert_eq!((held.kept, held.moves), (Some(Kept::Frozen), Vec::new()));
    controller.set_policy(Box::new(Wrong));
    let standing = controller.guard().expect("there is one");
    assert_eq!((standing.trips, standing.frozen_until), (1, None), "a change of policy ends the freeze");
}

#[test]
fn rollback_forbidden_by_pins_is_not_reported_and_does_not_freeze() {
    let options = Options {
        guard: Some(GuardOptions::default()),
        page_bytes: Some(MIB),
        floor_pages: 0,
        ..Options::default()
    };
    let mut controller = Controller::new(Box::new(Equal), &options, Vec::new(), vec![TOTAL / 4; 4]);
    let mut model = Model::new();
    for round in 1..200 {
        let mut seen = model.seen();
        if round > 26 {
            // The guard is not restarted after this change of pins.
            seen.partitions[0].max_bytes = Some(TOTAL / 8);
        }
        let decision = controller.decide(at(round * DELTA), &seen);
        assert_eq!((decision.harm, controller.guard().unwrap().trips), (None, 0), "{}", decision.line);
        assert_ne!(decision.kept, Some(Kept::Frozen));
        model.bytes = controller.budgets().to_vec();
    }
    assert_eq!(model.bytes[0], TOTAL / 8);
    assert_eq!(controller.guard().unwrap().good_bytes, model.bytes, "restarted from the present budgets");
}
