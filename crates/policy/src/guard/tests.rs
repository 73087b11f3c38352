//! The guard beside a small world: backends whose misses follow their bytes, and whose slowness is
//! set by hand.

use sherwood_model::TenantId;

use super::*;
use crate::{BandCounts, Controller, Kept, Options, PartitionSeen, Policy, Proposal, View, by_name};

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 400 * MIB;
const DELTA: u64 = 5;

/// Four backends. A backend's miss ratio falls as its bytes grow, its part in the tail is its
/// misses and how slow they are, and the tail is as long as the slowest part of it.
struct World {
    slow: [f64; 4],
    /// What is asked for: look-ups of a window at each backend, and what a change of popularity
    /// does to all miss ratios.
    look_ups: u64,
    misses: f64,
    bytes: Vec<u64>,
}

impl World {
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
            PartitionSeen {
                used_bytes: self.bytes[backend],
                misses,
                hits: self.look_ups - misses,
                ..PartitionSeen::new(TenantId(0), BackendId::from_index(backend))
            }
        };
        // A backend works through its misses; the more of them, the longer each waits.
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

/// Rounds from `from` to `to` seconds, in each of which `moves` changes the world before the guard
/// looks; the moment at which it went back, and to what.
fn run(
    guard: &mut Guard,
    world: &mut World,
    (from, to): (u64, u64),
    mut moves: impl FnMut(&mut World, u64),
) -> Option<(u64, Vec<u64>)> {
    for now in (from..to).step_by(DELTA as usize) {
        moves(world, now);
        if let Verdict::Back(budgets, _) =
            guard.watch(at(now), &world.seen(), &world.bytes.clone(), <[u64]>::to_vec)
        {
            return Some((now, budgets));
        }
    }
    None
}

fn take(world: &mut World, from: usize, to: usize, bytes: u64) {
    world.bytes[from] -= bytes;
    world.bytes[to] += bytes;
}

/// Two minutes in which nothing happens: what is in force is good.
fn settled() -> (Guard, World) {
    let (mut guard, mut world) = (guard(), World::new());
    assert_eq!(run(&mut guard, &mut world, (0, 130), |_, _| {}), None);
    assert_eq!(guard.standing().good_bytes, [TOTAL / 4; 4]);
    (guard, world)
}

#[test]
fn moves_that_made_requests_slower_are_taken_back_after_a_window_and_held() {
    let (mut guard, mut world) = settled();
    let harmful = |world: &mut World, now| {
        if now < 180 {
            take(world, 0, 1, 4 * MIB);
        }
    };
    let (when, budgets) = run(&mut guard, &mut world, (130, 400), harmful).expect("harm is seen");
    assert_eq!(budgets, [TOTAL / 4; 4]);
    assert!((190..260).contains(&when), "{when}");
    world.bytes = budgets;
    let until = when + 600;
    for now in (when + 5..until).step_by(5) {
        assert_eq!(guard.watch(at(now), &world.seen(), &world.bytes, <[u64]>::to_vec), Verdict::Frozen);
    }
    assert_eq!(guard.watch(at(until), &world.seen(), &world.bytes, <[u64]>::to_vec), Verdict::Free);
    let GuardStanding { trips, frozen_until, good_bytes, .. } = guard.standing();
    assert_eq!((trips, frozen_until, good_bytes.len()), (1, None, 0), "it begins anew");
}

#[test]
fn harm_says_who_is_to_blame_and_how_it_was_before() {
    let (mut guard, mut world) = settled();
    take(&mut world, 2, 1, 40 * MIB);
    let verdicts =
        (130..400).step_by(5).map(|now| guard.watch(at(now), &world.seen(), &world.bytes, <[u64]>::to_vec));
    let harm = verdicts.filter_map(|verdict| match verdict {
        Verdict::Back(_, harm) => Some(harm),
        Verdict::Free | Verdict::Frozen => None,
    });
    let harm = harm.last().expect("harm is seen");
    assert_eq!(harm.blamed, [BackendId(2)]);
    assert!(harm.tail > harm.good_tail.mul_f64(1.5));
    assert_eq!(harm.until.since(at(190)), Duration::from_secs(600), "held for a window before");
}

#[test]
fn a_tenant_that_gave_bytes_to_another_of_its_backend_is_seen_to_suffer() {
    let (mut guard, mut world) = (guard(), World::new());
    let shared = |world: &World| {
        let mut seen = world.seen();
        seen.partitions[1].backend = BackendId(0);
        let counts = &mut seen.blocking[0].counts;
        counts[0] += std::mem::take(&mut counts[1]);
        seen
    };
    let mut blamed = Vec::new();
    for now in (0..400).step_by(5) {
        if now == 130 {
            take(&mut world, 0, 1, 40 * MIB);
        }
        if let Verdict::Back(budgets, harm) =
            guard.watch(at(now), &shared(&world), &world.bytes, <[u64]>::to_vec)
        {
            assert_eq!(budgets, [TOTAL / 4; 4]);
            blamed.push(harm.blamed);
        }
    }
    assert_eq!(blamed, [[BackendId(0)]], "though its backend has as much as ever");
}

#[test]
fn what_went_away_is_forgotten_and_a_freeze_goes_on() {
    let (mut guard, mut world) = settled();
    take(&mut world, 0, 1, 40 * MIB);
    let (when, budgets) = run(&mut guard, &mut world, (130, 400), |_, _| {}).expect("harm is seen");
    guard.forget();
    let frozen = guard.watch(at(when + 5), &world.seen(), &budgets, <[u64]>::to_vec);
    assert_eq!((frozen, guard.standing().good_bytes.len()), (Verdict::Frozen, 0));
}

#[test]
fn what_ends_within_a_window_is_no_harm() {
    let (mut guard, mut world) = settled();
    let back_and_forth = |world: &mut World, now: u64| match now % 100 {
        0 => take(world, 0, 1, 40 * MIB),
        50 => take(world, 1, 0, 40 * MIB),
        _ => {}
    };
    let mut world_moves = |world: &mut World, now| {
        if now >= 200 {
            back_and_forth(world, now)
        }
    };
    assert_eq!(run(&mut guard, &mut world, (130, 1_200), &mut world_moves), None);
}

#[test]
fn a_longer_tail_within_the_bound_breaks_no_promise() {
    let (mut guard, mut world) = settled();
    world.slow = [0.4; 4];
    assert_eq!(run(&mut guard, &mut world, (130, 400), |_, _| {}), None);
    take(&mut world, 0, 1, 15 * MIB);
    assert_eq!(run(&mut guard, &mut world, (400, 800), |_, _| {}), None);
}

#[test]
fn neither_more_requests_nor_other_requests_are_the_fault_of_moves() {
    let (mut guard, mut world) = settled();
    take(&mut world, 0, 1, 3 * MIB);
    world.look_ups *= 5;
    assert_eq!(run(&mut guard, &mut world, (130, 400), |_, _| {}), None);
    world.misses = 2.0;
    assert_eq!(run(&mut guard, &mut world, (400, 700), |_, _| {}), None);
    assert!(world.seen().tail > Some(Duration::from_secs(1)), "requests were slow indeed");
}

#[test]
fn few_requests_prove_nothing() {
    let (mut guard, mut world) = settled();
    take(&mut world, 0, 1, 40 * MIB);
    for now in (130..400).step_by(5) {
        let seen = Observation { requests: 299, ..world.seen() };
        assert_eq!(guard.watch(at(now), &seen, &world.bytes, <[u64]>::to_vec), Verdict::Free);
    }
}

/// A backend that gets slow by itself gets bytes of all others for as long as it is; then it is
/// another one's turn.
#[test]
fn gradual_moves_to_backends_that_slow_down_by_themselves_go_on() {
    let options =
        Options { guard: Some(GuardOptions::default()), page_bytes: Some(MIB / 16), ..Options::default() };
    let policy = by_name("robinhood", &options).expect("it exists");
    let mut controller = Controller::new(policy, &options, Vec::new(), vec![TOTAL / 4; 4]);
    let mut world = World::new();
    let mut slow_for = 0;
    for round in 1_u64..2_000 {
        // Three minutes of one, five of none, then the next, ever slower.
        let (turn, minute) = ((round / 96) as usize, round % 96 / 12);
        world.slow = [1.0; 4];
        if minute < 3 {
            world.slow[turn % 4] = 2.0 + turn as f64;
        }
        slow_for += u64::from(world.seen().tail > Some(Duration::from_millis(150)));
        let decision = controller.decide(at(round * DELTA), &world.seen());
        assert_eq!(decision.harm, None, "round {round}: {}", decision.line);
        world.bytes = controller.budgets().to_vec();
    }
    assert!(slow_for > 300, "the promise was broken in {slow_for} rounds, and moves were not to blame");
}

/// A policy that takes from the first partition whatever it sees.
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

/// A policy that wants the same for all.
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
fn a_controller_goes_back_says_so_and_holds_still() {
    let options = Options {
        guard: Some(GuardOptions::default()),
        page_bytes: Some(MIB),
        floor_pages: 0,
        ..Options::default()
    };
    let mut controller = Controller::new(Box::new(Wrong), &options, Vec::new(), vec![TOTAL / 4; 4]);
    let mut world = World::new();
    let mut decide = |controller: &mut Controller, round: u64| {
        let decision = controller.decide(at(round * DELTA), &world.seen());
        world.bytes = controller.budgets().to_vec();
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
    assert_eq!((standing.trips, standing.frozen_until), (1, None), "a word of the operator ends the freeze");
}

#[test]
fn a_step_back_that_pins_forbid_is_neither_claimed_nor_followed_by_a_freeze() {
    let options = Options {
        guard: Some(GuardOptions::default()),
        page_bytes: Some(MIB),
        floor_pages: 0,
        ..Options::default()
    };
    let mut controller = Controller::new(Box::new(Equal), &options, Vec::new(), vec![TOTAL / 4; 4]);
    let mut world = World::new();
    for round in 1..200 {
        let mut seen = world.seen();
        if round > 26 {
            // Nobody told the guard of this.
            seen.partitions[0].max_bytes = Some(TOTAL / 8);
        }
        let decision = controller.decide(at(round * DELTA), &seen);
        assert_eq!((decision.harm, controller.guard().unwrap().trips), (None, 0), "{}", decision.line);
        assert_ne!(decision.kept, Some(Kept::Frozen));
        world.bytes = controller.budgets().to_vec();
    }
    assert_eq!(world.bytes[0], TOTAL / 8);
    assert_eq!(controller.guard().unwrap().good_bytes, world.bytes, "what is now is what it begins with");
}
