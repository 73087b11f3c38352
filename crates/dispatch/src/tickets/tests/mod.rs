mod simulation;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn within(ms: u64) -> TicketRequest {
    TicketRequest { within: Some(Duration::from_millis(ms)), ..TicketRequest::default() }
}

fn tickets(change: impl FnOnce(&mut TicketOptions)) -> Tickets {
    let mut options = TicketOptions { timeout: ms(100), ..TicketOptions::default() };
    change(&mut options);
    Tickets::new(options, 0x5eed).unwrap()
}

fn actions(tickets: &mut Tickets) -> Vec<TicketAction> {
    std::iter::from_fn(|| tickets.poll_action()).collect()
}

#[test]
fn turn_passes_to_the_earliest_deadline_when_a_ticket_is_released_or_cancelled() {
    let mut tickets = tickets(|_| ());
    let mut get = |request| tickets.get_and_wait(at(0), &request).unwrap().id;
    let [first, late, early, last] =
        [within(50), within(60), within(40), TicketRequest::default()].map(&mut get);
    assert_eq!(actions(&mut tickets), [TicketAction::Turn(first)]);
    tickets.release(at(1), first, Some(ms(1))).unwrap();
    assert_eq!(actions(&mut tickets), [TicketAction::Turn(early)]);
    tickets.cancel(at(2), early).unwrap();
    assert_eq!(actions(&mut tickets), [TicketAction::Turn(late)]);
    tickets.cancel(at(2), last).unwrap();
    tickets.release(at(3), late, None).unwrap();
    assert_eq!(actions(&mut tickets), []);
    assert_eq!(tickets.next_timeout(), None);
}

#[test]
fn turn_that_came_before_the_client_waits_is_reported_by_the_wait() {
    let mut tickets = tickets(|_| ());
    let [first, second] = [0, 0].map(|now| tickets.get(at(now), &within(50)).unwrap());
    assert_eq!([first, second].map(|given| given.estimate.starts_at_once), [true, false]);
    assert_eq!([first, second].map(|given| tickets.wait(at(1), given.id)), [Ok(true), Ok(false)]);
    assert_eq!(actions(&mut tickets), []);
}

#[test]
fn unknown_ended_and_waiting_tickets_are_refused_with_the_reason() {
    let mut tickets = tickets(|_| ());
    let first = tickets.get(at(0), &within(50)).unwrap().id;
    let second = tickets.get(at(0), &within(50)).unwrap().id;
    assert_eq!(tickets.release(at(0), second, None), Err(TicketError::Waiting { id: second }));
    tickets.release(at(0), first, None).unwrap();
    for id in [first, TicketId::from_bits(7), TicketId::from_bits(first.to_bits() ^ 1 << 40)] {
        let unknown = TicketError::Unknown { id };
        assert_eq!(tickets.release(at(0), id, None), Err(unknown));
        assert_eq!(tickets.cancel(at(0), id), Err(unknown));
        assert_eq!(tickets.wait(at(0), id), Err(unknown));
    }
    assert_eq!(tickets.stats().started, 1, "the second");
}

#[test]
fn deadline_out_of_range_and_tickets_over_the_limit_are_refused() {
    let mut tickets = tickets(|options| options.tickets_max = 2);
    for wrong in [Duration::ZERO, Duration::from_secs(24 * 3_600 + 1)] {
        let request = TicketRequest { within: Some(wrong), ..TicketRequest::default() };
        assert_eq!(tickets.get(at(0), &request), Err(TicketError::Within { within: wrong }));
    }
    let first = tickets.get(at(0), &within(5)).unwrap();
    tickets.get(at(0), &within(5)).unwrap();
    assert_eq!(tickets.get(at(0), &within(5)), Err(TicketError::Full { limit: 2 }));
    tickets.cancel(at(0), first.id).unwrap();
    tickets.get(at(0), &within(5)).unwrap();
    let none = TicketOptions { slots: 0, ..TicketOptions::default() };
    assert_eq!(Tickets::new(none, 0).unwrap_err(), OptionsError::Zero { option: "slots" });
}

#[test]
fn turn_of_a_client_that_vanished_passes_on_at_the_end_of_its_lease() {
    let mut tickets = tickets(|_| ());
    let vanished = tickets.get(at(0), &within(10)).unwrap().id;
    let waiting = tickets.get_and_wait(at(60), &within(30)).unwrap().id;
    let forgotten = tickets.get_and_wait(at(60), &within(30)).unwrap().id;
    assert_eq!(tickets.next_timeout(), Some(at(100)));
    tickets.handle_timeout(at(99));
    assert_eq!(actions(&mut tickets), []);
    tickets.handle_timeout(at(100));
    assert_eq!(actions(&mut tickets), [TicketAction::Turn(waiting)]);
    assert_eq!(tickets.release(at(100), vanished, None), Err(TicketError::Unknown { id: vanished }));
    // Both leases are over: that of the turn at 200, and of the ticket without one at 160.
    tickets.handle_timeout(at(160));
    assert_eq!(actions(&mut tickets), [TicketAction::Lapse(forgotten)]);
    tickets.handle_timeout(at(200));
    let stats = tickets.stats();
    assert_eq!((stats.waiting, stats.started, stats.lapsed), (0, 0, 3));
}

#[test]
fn released_latencies_make_estimates_and_absurd_ones_are_dropped() {
    let mut tickets = tickets(|_| ());
    for latency in [ms(10), Duration::MAX] {
        for _ in 0..64 {
            let ticket = tickets.get(at(0), &within(5)).unwrap();
            tickets.release(at(0), ticket.id, Some(latency)).unwrap();
        }
    }
    assert_eq!(tickets.stats().dropped_latencies, 64);
    assert!(!tickets.get(at(0), &within(5)).unwrap().estimate.meets_deadline);
    assert!(!tickets.get(at(0), &within(15)).unwrap().estimate.meets_deadline);
    assert!(tickets.get(at(0), &within(50)).unwrap().estimate.fits());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Get { request: TicketRequest, waits: bool },
    Wait(usize),
    Cancel(usize),
    Release(usize, u64),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let request = (proptest::option::of(1..150_u64), any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        |(within, is_write, best_effort)| TicketRequest {
            kind: if is_write { DemandKind::Write } else { DemandKind::Read },
            within: within.map(ms),
            best_effort,
            keys: 1,
        },
    );
    let step = prop_oneof![
        6 => (request, any::<bool>()).prop_map(|(request, waits)| Step::Get { request, waits }),
        3 => (0..80_usize).prop_map(Step::Wait),
        1 => (0..80_usize).prop_map(Step::Cancel),
        6 => (0..80_usize, 0..30_u64).prop_map(|(ticket, ms)| Step::Release(ticket, ms)),
        2 => (0..60_u64).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 0..250)
}

/// A ticket as its client knows it.
#[derive(Clone, Copy, Debug)]
struct Held {
    is_write: bool,
    waits: bool,
    has_turn: bool,
}

proptest! {
    #[test]
    fn every_ticket_ends_once_slots_are_never_exceeded_and_writes_take_turns_in_order(
        slots in 1..4_u32, steps in steps()
    ) {
        let mut tickets = tickets(|options| options.slots = slots);
        let (mut now, mut ended, mut reads) = (at(0), 0, 0);
        let mut all: Vec<TicketId> = Vec::new();
        let mut held: BTreeMap<TicketId, Held> = BTreeMap::new();
        for step in steps.into_iter().chain([Step::Pass(100), Step::Pass(100)]) {
            let id = |index: usize| all.get(index).copied();
            match step {
                Step::Get { request, waits } => {
                    let given = if waits {
                        tickets.get_and_wait(now, &request)
                    } else {
                        tickets.get(now, &request)
                    };
                    let id = given.unwrap().id;
                    prop_assert!(!all.contains(&id), "an id was given out twice");
                    let is_write = request.kind == DemandKind::Write;
                    reads += u64::from(!is_write);
                    all.push(id);
                    held.insert(id, Held { is_write, waits, has_turn: false });
                }
                Step::Wait(index) => {
                    let Some(id) = id(index) else { continue };
                    let waited = tickets.wait(now, id);
                    prop_assert_eq!(waited.is_ok(), held.contains_key(&id));
                    if let (Ok(has_turn), Some(held)) = (waited, held.get_mut(&id)) {
                        prop_assert!(has_turn || !held.has_turn, "a turn was taken back");
                        (held.has_turn, held.waits) = (has_turn, !has_turn);
                    }
                }
                Step::Cancel(index) => {
                    let Some(id) = id(index) else { continue };
                    let is_held = held.remove(&id).is_some();
                    prop_assert_eq!(tickets.cancel(now, id).is_ok(), is_held);
                    ended += u64::from(is_held);
                }
                Step::Release(index, latency) => {
                    let Some(id) = id(index) else { continue };
                    match tickets.release(now, id, Some(ms(latency))) {
                        Ok(()) => {
                            prop_assert!(held.remove(&id).is_some(), "released twice");
                            ended += 1;
                        }
                        Err(TicketError::Waiting { .. }) => {
                            prop_assert!(held.get(&id).is_some_and(|held| !held.has_turn));
                        }
                        Err(error) => {
                            prop_assert_eq!(error, TicketError::Unknown { id });
                            prop_assert!(!held.contains_key(&id));
                        }
                    }
                }
                Step::Pass(passed) => {
                    now += ms(passed);
                    tickets.handle_timeout(now);
                }
            }
            for action in actions(&mut tickets) {
                match action {
                    TicketAction::Turn(id) => {
                        let held = held.get_mut(&id).expect("a ticket that is held");
                        prop_assert!(std::mem::take(&mut held.waits), "told a client that does not wait");
                        held.has_turn = true;
                    }
                    TicketAction::Lapse(id) => {
                        prop_assert!(held.get(&id).is_some_and(|held| held.waits));
                    }
                }
            }
            let live: BTreeSet<TicketId> =
                held.keys().copied().filter(|id| tickets.tickets.get(tickets.private(*id)).is_some()).collect();
            held.retain(|id, _| live.contains(id));
            let stats = tickets.stats();
            prop_assert_eq!((stats.waiting + stats.started) as usize, held.len());
            prop_assert!(stats.started <= slots);
            prop_assert!(stats.waiting == 0 || stats.started == slots, "an idle slot while tickets wait");
            prop_assert_eq!(all.len() as u64, ended + stats.lapsed + held.len() as u64);
            prop_assert!(stats.deferred <= reads, "a read was deferred twice, or a write");
            // No write has its turn while an earlier one waits.
            let has_turn = |id: &TicketId| tickets.tickets.get(tickets.private(*id)).map(|one| one.has_turn);
            let writes = all.iter().filter(|id| held.get(id).is_some_and(|held| held.is_write));
            let order: Vec<_> = writes.filter_map(has_turn).collect();
            prop_assert!(order.is_sorted_by_key(|has_turn| !has_turn), "{order:?}");
        }
        prop_assert_eq!(held.len(), 0, "every lease is over");
        prop_assert_eq!(tickets.next_timeout(), None);
    }
}
