//! Fences (times in which fetched values are not cached) and order of writes of single keys. The
//! fault simulation in tests/ shows their effect on cached values.

use super::*;

const OPTIONS: FenceOptions = FenceOptions {
    writes_max: 3,
    fenced_keys_max: 2,
    in_turn: false,
    settle: Duration::ZERO,
    landing: Duration::from_millis(10),
    turn_timeout: Duration::from_millis(10),
};

fn fences(options: FenceOptions) -> Fences<&'static str> {
    Fences::new(options, SeededState::new(1))
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A write and its key.
type Writing = (WriteId, &'static str);

/// Begins a write that may be sent at once and returns it.
fn begin(fences: &mut Fences<&'static str>, now: u64, key: &'static str) -> Writing {
    let Begun { write, may_start } = fences.begin(at(now), key).expect("there is room");
    assert!(may_start);
    (write, key)
}

/// Begins a write that has to wait for another one and returns it.
fn begin_later(fences: &mut Fences<&'static str>, now: u64, key: &'static str) -> Writing {
    let Begun { write, may_start } = fences.begin(at(now), key).expect("there is room");
    assert!(!may_start);
    (write, key)
}

fn end(fences: &mut Fences<&'static str>, now: u64, (write, key): Writing, outcome: WriteOutcome) -> Ended {
    fences.end(at(now), write, &key, outcome)
}

#[test]
fn acknowledged_value_is_cached_and_its_key_no_longer_fenced() {
    let mut fences = fences(OPTIONS);
    assert!(!fences.is_fenced(&"a"));
    let write = begin(&mut fences, 0, "a");
    assert!(fences.is_fenced(&"a") && !fences.is_fenced(&"b"));
    assert_eq!(end(&mut fences, 1, write, WriteOutcome::Acknowledged), Ended { keep: true, next: None });
    assert!(!fences.is_fenced(&"a"));
    assert_eq!((fences.in_flight, fences.keys(), fences.poll_lifted(at(99))), (0, 0, None));
}

#[test]
fn value_of_a_write_that_was_not_done_is_not_cached() {
    let mut fences = fences(OPTIONS);
    let write = begin(&mut fences, 0, "a");
    assert!(!end(&mut fences, 1, write, WriteOutcome::NotDone).keep);
    assert!(!fences.is_fenced(&"a"));
}

#[test]
fn values_of_two_concurrent_writes_are_not_cached() {
    let mut fences = fences(OPTIONS);
    let (first, second) = (begin(&mut fences, 0, "a"), begin(&mut fences, 0, "a"));
    assert!(!end(&mut fences, 1, first, WriteOutcome::Acknowledged).keep);
    assert!(fences.is_fenced(&"a"), "the other is in flight");
    assert!(!end(&mut fences, 2, second, WriteOutcome::Acknowledged).keep);
    let third = begin(&mut fences, 0, "a");
    assert!(end(&mut fences, 3, third, WriteOutcome::Acknowledged).keep, "no other was in flight");
}

#[test]
fn written_value_is_not_cached_if_its_key_was_fenced_meanwhile() {
    let mut fences = fences(OPTIONS);
    fences.fence(at(0), &"a");
    let (first, other) = (begin(&mut fences, 0, "a"), begin(&mut fences, 0, "b"));
    fences.fence(at(0), &"a");
    assert!(!end(&mut fences, 1, first, WriteOutcome::Acknowledged).keep);
    fences.fence_where(at(1), |key| *key == "b");
    assert!(!end(&mut fences, 1, other, WriteOutcome::Acknowledged).keep);
    let next = begin(&mut fences, 0, "a");
    assert!(end(&mut fences, 2, next, WriteOutcome::Acknowledged).keep);
}

#[test]
fn a_changed_key_is_fenced_while_replicas_may_lag() {
    let mut fences = fences(FenceOptions { settle: Duration::from_millis(5), fenced_keys_max: 1, ..OPTIONS });
    fences.fence(at(0), &"a");
    assert!(fences.is_fenced(&"a") && !fences.is_fenced(&"b"));
    let write = begin(&mut fences, 1, "a");
    assert!(end(&mut fences, 2, write, WriteOutcome::Acknowledged).keep, "it began after the change");
    fences.fence(at(2), &"b");
    assert!(fences.is_fenced(&"c"), "one key is fenced by itself at most");
    assert_eq!(
        (fences.poll_lifted(at(7)), fences.poll_lifted(at(7))),
        (Some(Lifted::All), Some(Lifted::Key("a")))
    );
    assert!(!fences.is_fenced(&"a") && fences.keys() == 0);
    fences.fence_where(at(8), |key| *key == "a");
    assert!(fences.is_fenced(&"c"), "other keys may be meant too");
    assert_eq!((fences.poll_lifted(at(12)), fences.poll_lifted(at(13))), (None, Some(Lifted::All)));
}

#[test]
fn writes_of_one_key_in_turn_are_never_concurrent() {
    let mut fences = fences(FenceOptions { in_turn: true, writes_max: 16, ..OPTIONS });
    let first = begin(&mut fences, 0, "a");
    let second = begin_later(&mut fences, 0, "a");
    let third = begin_later(&mut fences, 0, "a");
    // The second write is abandoned.
    assert_eq!(end(&mut fences, 1, second, WriteOutcome::NotDone), Ended { keep: false, next: None });
    let ended = end(&mut fences, 2, first, WriteOutcome::Acknowledged);
    assert_eq!(ended, Ended { keep: true, next: Some(third.0) });
    assert!(fences.is_fenced(&"a"));
    assert!(end(&mut fences, 3, third, WriteOutcome::Acknowledged).keep);
    assert_eq!(fences.keys(), 0);
}

#[test]
fn waiting_writes_of_one_key_leave_room_for_other_keys() {
    let mut fences = fences(FenceOptions { in_turn: true, ..OPTIONS });
    let first = begin(&mut fences, 0, "a");
    let waits = begin_later(&mut fences, 0, "a");
    let refused = fences.begin(at(0), "a").expect_err("one in eight may wait, but one at least");
    assert_eq!(refused, WriteRefused::KeyFull { limit: 1 });
    let other = begin(&mut fences, 0, "b");
    assert_eq!(fences.begin(at(0), "c").expect_err("full"), WriteRefused::Full { limit: 3 });
    assert_eq!(fences.in_flight, 3);
    assert_eq!(end(&mut fences, 1, first, WriteOutcome::Acknowledged).next, Some(waits.0));
    let next = begin_later(&mut fences, 1, "a");
    for write in [other, waits, next] {
        let _ = end(&mut fences, 2, write, WriteOutcome::Acknowledged);
    }
    assert_eq!((fences.keys(), fences.in_flight), (0, 0));
}

#[test]
fn write_that_would_wait_too_long_for_earlier_ones_is_refused() {
    let turn_timeout = Duration::from_millis(4);
    let mut fences = fences(FenceOptions { in_turn: true, fenced_keys_max: 1, turn_timeout, ..OPTIONS });
    let lost = begin(&mut fences, 0, "a");
    let _ = end(&mut fences, 0, lost, WriteOutcome::Unknown);
    let refused = fences.begin(at(5), "a").expect_err("it may land until 10");
    assert_eq!(refused, WriteRefused::NoTurn(Duration::from_millis(5)));
    assert_eq!((fences.in_flight, fences.next_turn()), (0, None));
    let other = begin(&mut fences, 5, "b");
    let waits = begin_later(&mut fences, 6, "a");
    assert_eq!(fences.poll_turn(at(10)), Some(waits.0));
    // There is no room to fence its key by itself.
    let _ = end(&mut fences, 10, other, WriteOutcome::Unknown);
    assert_eq!(fences.poll_lifted(at(10)), Some(Lifted::Key("a")));
    let _ = end(&mut fences, 10, waits, WriteOutcome::Unknown);
    assert!(matches!(fences.begin(at(11), "c"), Err(WriteRefused::NoTurn(_))));
}

#[test]
fn write_of_a_key_does_not_start_while_an_earlier_one_may_be_applied() {
    let mut fences = fences(FenceOptions { in_turn: true, writes_max: 16, ..OPTIONS });
    let lost = begin(&mut fences, 0, "a");
    let late = begin_later(&mut fences, 1, "a");
    assert_eq!(end(&mut fences, 2, lost, WriteOutcome::Unknown), Ended { keep: false, next: None });
    let turn = begin_later(&mut fences, 3, "a");
    assert_eq!((fences.next_turn(), fences.poll_turn(at(11))), (Some(at(12)), None));
    // Other keys need not wait.
    let _ = begin(&mut fences, 4, "b");
    // The first waiting write is abandoned.
    assert_eq!(end(&mut fences, 11, late, WriteOutcome::NotDone), Ended { keep: false, next: None });
    assert_eq!(
        (fences.poll_lifted(at(12)), fences.poll_turn(at(12))),
        (Some(Lifted::Key("a")), Some(turn.0))
    );
    assert_eq!((fences.next_turn(), fences.poll_turn(at(12))), (None, None));
    let next = begin_later(&mut fences, 12, "a");
    assert_eq!(
        end(&mut fences, 13, turn, WriteOutcome::Acknowledged),
        Ended { keep: true, next: Some(next.0) }
    );
    assert!(end(&mut fences, 14, next, WriteOutcome::Acknowledged).keep);
}

#[test]
fn write_abandoned_while_it_waits_is_forgotten() {
    let mut fences = fences(FenceOptions { in_turn: true, fenced_keys_max: 0, ..OPTIONS });
    let lost = begin(&mut fences, 0, "a");
    let _ = end(&mut fences, 0, lost, WriteOutcome::Unknown);
    // The key is not remembered, so that all wait.
    let write = begin_later(&mut fences, 1, "b");
    let other = begin_later(&mut fences, 2, "c");
    let _ = end(&mut fences, 3, write, WriteOutcome::NotDone);
    assert_eq!((fences.keys(), fences.next_turn()), (1, Some(at(10))));
    assert_eq!(fences.poll_turn(at(10)), Some(other.0));
    assert_eq!(fences.poll_lifted(at(10)), Some(Lifted::All));
    assert!(end(&mut fences, 11, other, WriteOutcome::Acknowledged).keep);
    assert_eq!((fences.keys(), fences.in_flight), (0, 0));
}

#[test]
fn write_that_may_still_be_applied_fences_its_key_and_later_writes_are_not_cached() {
    let mut fences = fences(FenceOptions { settle: Duration::from_millis(5), ..OPTIONS });
    let lost = begin(&mut fences, 0, "a");
    assert!(!end(&mut fences, 0, lost, WriteOutcome::Unknown).keep);
    let write = begin(&mut fences, 9, "a");
    assert!(
        !end(&mut fences, 11, write, WriteOutcome::Acknowledged).keep,
        "the lost one may have landed after it"
    );
    let write = begin(&mut fences, 11, "a");
    assert!(end(&mut fences, 12, write, WriteOutcome::Acknowledged).keep);
    assert_eq!(fences.poll_lifted(at(16)), None);
    assert!(fences.is_fenced(&"a"), "a replica may lag");
    assert_eq!(fences.poll_lifted(at(17)), Some(Lifted::Key("a")));
    assert!(!fences.is_fenced(&"a"));
}

#[test]
fn writes_of_the_previous_process_may_be_applied_as_long_as_without_a_restart() {
    let settle = Duration::from_millis(5);
    let mut before = fences(FenceOptions { settle, ..OPTIONS });
    assert_eq!(before.unsettled(at(0)), None);
    let (lost, running) = (begin(&mut before, 0, "a"), begin(&mut before, 0, "b"));
    assert_eq!(before.unsettled(at(2)), Some(at(12)), "it is given up");
    let _ = (
        end(&mut before, 3, lost, WriteOutcome::Unknown),
        end(&mut before, 3, running, WriteOutcome::Acknowledged),
    );
    assert_eq!((before.unsettled(at(4)), before.unsettled(at(13))), (Some(at(13)), None));

    let mut after = fences(FenceOptions { settle, ..OPTIONS });
    after.fence_all(at(4), at(4));
    assert!(after.is_fenced(&"a"), "a replica may lag");
    let write = begin(&mut after, 4, "a");
    assert!(end(&mut after, 5, write, WriteOutcome::Acknowledged).keep);
    after.fence_all(at(5), at(13));
    let write = begin(&mut after, 12, "a");
    assert!(!end(&mut after, 12, write, WriteOutcome::Acknowledged).keep, "the lost one may land after it");
    assert_eq!((after.poll_lifted(at(17)), after.is_fenced(&"c")), (Some(Lifted::Key("a")), true));
    assert_eq!((after.poll_lifted(at(18)), after.is_fenced(&"c")), (Some(Lifted::All), false));

    let mut after = fences(OPTIONS);
    after.fence_all(at(4), at(4));
    assert!(!after.is_fenced(&"a"), "there is nothing to wait for");
    after.fence_all(at(4), at(99));
    assert_eq!(after.unsettled(at(4)), Some(at(14)), "no write is given longer than that");
}

#[test]
fn all_keys_are_fenced_when_more_keys_are_than_the_bound() {
    let mut fences = fences(OPTIONS);
    for (key, now) in [("a", 0), ("b", 1), ("c", 2), ("a", 3)] {
        let write = begin(&mut fences, now, key);
        let _ = end(&mut fences, now, write, WriteOutcome::Unknown);
    }
    assert_eq!(fences.keys(), 2);
    assert!(fences.is_fenced(&"d"));
    let write = begin(&mut fences, 0, "d");
    assert!(
        !end(&mut fences, 11, write, WriteOutcome::Acknowledged).keep,
        "its key may be the one that is not remembered"
    );
    let mut settled = Vec::new();
    for now in [11, 12, 13] {
        settled.extend(std::iter::from_fn(|| fences.poll_lifted(at(now))));
    }
    assert_eq!(settled, [Lifted::Key("b"), Lifted::All, Lifted::Key("a")]);
    assert!(!fences.is_fenced(&"d") && fences.keys() == 0);
}

#[test]
fn replicas_that_disagree_make_the_outcome_unknown() {
    use WriteOutcome::{Acknowledged, NotDone, Unknown};
    assert_eq!(WriteOutcome::of_all([Acknowledged, Acknowledged]), Acknowledged);
    assert_eq!(WriteOutcome::of_all([NotDone, NotDone]), NotDone);
    assert_eq!(WriteOutcome::of_all([Acknowledged, NotDone]), Unknown);
    assert_eq!(WriteOutcome::of_all([Unknown, Acknowledged]), Unknown);
}
