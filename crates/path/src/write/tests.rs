//! The life of a key, turn by turn; what it protects is shown by the simulation.

use super::*;

const OPTIONS: WriteOptions = WriteOptions {
    under_way_max: 3,
    held_keys_max: 2,
    in_turn: false,
    settle: Duration::ZERO,
    landing: Duration::from_millis(10),
    patience: Duration::from_millis(10),
};

fn writes(options: WriteOptions) -> Writes<&'static str> {
    Writes::new(options, SeededState::new(1))
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A write whose turn it is at once.
fn begin(writes: &mut Writes<&'static str>, now: u64, key: &'static str) -> Write<&'static str> {
    let Begun { write, may_start } = writes.begin(at(now), key).expect("there is room");
    assert!(may_start);
    write
}

/// A write that has to wait.
fn begin_later(writes: &mut Writes<&'static str>, now: u64, key: &'static str) -> Write<&'static str> {
    let Begun { write, may_start } = writes.begin(at(now), key).expect("there is room");
    assert!(!may_start);
    write
}

#[test]
fn an_acknowledged_write_is_kept_and_its_key_forgotten() {
    let mut writes = writes(OPTIONS);
    assert!(writes.may_fill(&"a"));
    let write = begin(&mut writes, 0, "a");
    assert!(!writes.may_fill(&"a") && writes.may_fill(&"b"));
    assert_eq!(writes.end(at(1), write, Outcome::Acknowledged), Ended { keep: true, next: None });
    assert!(writes.may_fill(&"a"));
    assert_eq!((writes.under_way(), writes.keys(), writes.poll_settled(at(99))), (0, 0, None));
}

#[test]
fn a_write_that_was_not_done_is_not_kept() {
    let mut writes = writes(OPTIONS);
    let write = begin(&mut writes, 0, "a");
    assert!(!writes.end(at(1), write, Outcome::NotDone).keep);
    assert!(writes.may_fill(&"a"));
}

#[test]
fn of_two_writes_at_once_none_is_kept_whoever_ends_first() {
    let mut writes = writes(OPTIONS);
    let (first, second) = (begin(&mut writes, 0, "a"), begin(&mut writes, 0, "a"));
    assert!(!writes.end(at(1), first, Outcome::Acknowledged).keep);
    assert!(!writes.may_fill(&"a"), "the other is still under way");
    assert!(!writes.end(at(2), second, Outcome::Acknowledged).keep);
    let third = begin(&mut writes, 0, "a");
    assert!(writes.end(at(3), third, Outcome::Acknowledged).keep, "it was alone");
}

#[test]
fn what_was_changed_otherwise_meanwhile_is_not_kept() {
    let mut writes = writes(OPTIONS);
    writes.doubt(at(0), &"a");
    let (first, other) = (begin(&mut writes, 0, "a"), begin(&mut writes, 0, "b"));
    writes.doubt(at(0), &"a");
    assert!(!writes.end(at(1), first, Outcome::Acknowledged).keep);
    writes.doubt_where(at(1), |key| *key == "b");
    assert!(!writes.end(at(1), other, Outcome::Acknowledged).keep);
    let next = begin(&mut writes, 0, "a");
    assert!(writes.end(at(2), next, Outcome::Acknowledged).keep);
}

#[test]
fn what_was_changed_otherwise_is_held_off_while_replicas_may_lag() {
    let mut writes = writes(WriteOptions { settle: Duration::from_millis(5), held_keys_max: 1, ..OPTIONS });
    writes.doubt(at(0), &"a");
    assert!(!writes.may_fill(&"a") && writes.may_fill(&"b"));
    let write = begin(&mut writes, 1, "a");
    assert!(writes.end(at(2), write, Outcome::Acknowledged).keep, "it came after that");
    writes.doubt(at(2), &"b");
    assert!(!writes.may_fill(&"c"), "one key is held off at most");
    assert_eq!(
        (writes.poll_settled(at(7)), writes.poll_settled(at(7))),
        (Some(Settled::All), Some(Settled::Key("a")))
    );
    assert!(writes.may_fill(&"a") && writes.keys() == 0);
    writes.doubt_where(at(8), |key| *key == "a");
    assert!(!writes.may_fill(&"c"), "which others are meant is not known");
    assert_eq!((writes.poll_settled(at(12)), writes.poll_settled(at(13))), (None, Some(Settled::All)));
}

#[test]
fn writes_in_turn_are_alone_each() {
    let mut writes = writes(WriteOptions { in_turn: true, under_way_max: 16, ..OPTIONS });
    let first = begin(&mut writes, 0, "a");
    let second = writes.begin(at(0), "a").expect("room");
    let third = writes.begin(at(0), "a").expect("room");
    assert!(!second.may_start && !third.may_start);
    // The second has no time left to wait.
    assert_eq!(writes.end(at(1), second.write, Outcome::NotDone), Ended { keep: false, next: None });
    let ended = writes.end(at(2), first, Outcome::Acknowledged);
    assert_eq!(ended, Ended { keep: true, next: Some(third.write.id()) });
    assert!(!writes.may_fill(&"a"));
    assert!(writes.end(at(3), third.write, Outcome::Acknowledged).keep);
    assert_eq!(writes.keys(), 0);
}

#[test]
fn writes_of_one_key_leave_room_for_others() {
    let mut writes = writes(WriteOptions { in_turn: true, ..OPTIONS });
    let first = begin(&mut writes, 0, "a");
    let waits = begin_later(&mut writes, 0, "a");
    let refused = writes.begin(at(0), "a").expect_err("one in eight may wait, but one at least");
    assert_eq!(refused, WriteRefused::KeyFull { limit: 1 });
    let other = begin(&mut writes, 0, "b");
    assert_eq!(writes.begin(at(0), "c").expect_err("full"), WriteRefused::Full { limit: 3 });
    assert_eq!(writes.under_way(), 3);
    assert_eq!(writes.end(at(1), first, Outcome::Acknowledged).next, Some(waits.id()));
    let next = begin_later(&mut writes, 1, "a");
    for write in [other, waits, next] {
        let _ = writes.end(at(2), write, Outcome::Acknowledged);
    }
    assert_eq!((writes.keys(), writes.under_way()), (0, 0));
}

#[test]
fn a_write_that_would_wait_in_vain_is_refused_at_once() {
    let patience = Duration::from_millis(4);
    let mut writes = writes(WriteOptions { in_turn: true, held_keys_max: 1, patience, ..OPTIONS });
    let lost = begin(&mut writes, 0, "a");
    let _ = writes.end(at(0), lost, Outcome::Unknown);
    let refused = writes.begin(at(5), "a").expect_err("it may land until 10");
    assert_eq!(refused, WriteRefused::NoTurn(Duration::from_millis(5)));
    assert_eq!((writes.under_way(), writes.next_turn()), (0, None));
    let other = begin(&mut writes, 5, "b");
    let waits = begin_later(&mut writes, 6, "a");
    assert_eq!(writes.poll_turn(at(10)), Some(waits.id()));
    // Which key it is, is not remembered.
    let _ = writes.end(at(10), other, Outcome::Unknown);
    assert_eq!(writes.poll_settled(at(10)), Some(Settled::Key("a")));
    let _ = writes.end(at(10), waits, Outcome::Unknown);
    assert!(matches!(writes.begin(at(11), "c"), Err(WriteRefused::NoTurn(_))));
}

#[test]
fn in_turn_no_write_starts_while_an_earlier_one_may_still_land() {
    let mut writes = writes(WriteOptions { in_turn: true, under_way_max: 16, ..OPTIONS });
    let lost = begin(&mut writes, 0, "a");
    let late = writes.begin(at(1), "a").expect("room").write;
    assert_eq!(writes.end(at(2), lost, Outcome::Unknown), Ended { keep: false, next: None });
    let waits = writes.begin(at(3), "a").expect("room");
    assert!(!waits.may_start);
    assert_eq!((writes.next_turn(), writes.poll_turn(at(11))), (Some(at(12)), None));
    assert!(begin(&mut writes, 4, "b").key() == &"b", "others need not wait");
    // The time of the first is over.
    assert_eq!(writes.end(at(11), late, Outcome::NotDone), Ended { keep: false, next: None });
    let turn = waits.write;
    assert_eq!(
        (writes.poll_settled(at(12)), writes.poll_turn(at(12))),
        (Some(Settled::Key("a")), Some(turn.id()))
    );
    assert_eq!((writes.next_turn(), writes.poll_turn(at(12))), (None, None));
    let next = writes.begin(at(12), "a").expect("room").write;
    assert_eq!(writes.end(at(13), turn, Outcome::Acknowledged), Ended { keep: true, next: Some(next.id()) });
    assert!(writes.end(at(14), next, Outcome::Acknowledged).keep);
}

#[test]
fn a_turn_that_nobody_waits_for_any_more_is_forgotten() {
    let mut writes = writes(WriteOptions { in_turn: true, held_keys_max: 0, ..OPTIONS });
    let lost = begin(&mut writes, 0, "a");
    let _ = writes.end(at(0), lost, Outcome::Unknown);
    let Begun { write, may_start } = writes.begin(at(1), "b").expect("room");
    assert!(!may_start, "which key it is, is not remembered");
    let other = begin_later(&mut writes, 2, "c");
    let _ = writes.end(at(3), write, Outcome::NotDone);
    assert_eq!((writes.keys(), writes.next_turn()), (1, Some(at(10))));
    assert_eq!(writes.poll_turn(at(10)), Some(other.id()));
    assert_eq!(writes.poll_settled(at(10)), Some(Settled::All));
    assert!(writes.end(at(11), other, Outcome::Acknowledged).keep);
    assert_eq!((writes.keys(), writes.under_way()), (0, 0));
}

#[test]
fn a_write_that_may_still_land_holds_its_key_off_and_what_others_write() {
    let mut writes = writes(WriteOptions { settle: Duration::from_millis(5), ..OPTIONS });
    let lost = begin(&mut writes, 0, "a");
    assert!(!writes.end(at(0), lost, Outcome::Unknown).keep);
    let write = begin(&mut writes, 9, "a");
    assert!(!writes.end(at(11), write, Outcome::Acknowledged).keep, "the lost one may have landed after it");
    let write = begin(&mut writes, 11, "a");
    assert!(writes.end(at(12), write, Outcome::Acknowledged).keep);
    assert_eq!(writes.poll_settled(at(16)), None);
    assert!(!writes.may_fill(&"a"), "a replica may lag behind");
    assert_eq!(writes.poll_settled(at(17)), Some(Settled::Key("a")));
    assert!(writes.may_fill(&"a"));
}

#[test]
fn what_was_written_before_a_start_is_given_the_time_that_it_was_promised() {
    let settle = Duration::from_millis(5);
    let mut before = writes(WriteOptions { settle, ..OPTIONS });
    assert_eq!(before.unsettled(at(0)), None);
    let (lost, running) = (begin(&mut before, 0, "a"), begin(&mut before, 0, "b"));
    assert_eq!(before.unsettled(at(2)), Some(at(12)), "it is given up");
    let _ = (before.end(at(3), lost, Outcome::Unknown), before.end(at(3), running, Outcome::Acknowledged));
    assert_eq!((before.unsettled(at(4)), before.unsettled(at(13))), (Some(at(13)), None));

    let mut after = writes(WriteOptions { settle, ..OPTIONS });
    after.hold_all(at(4), at(4));
    assert!(!after.may_fill(&"a"), "a replica may lag behind");
    let write = begin(&mut after, 4, "a");
    assert!(after.end(at(5), write, Outcome::Acknowledged).keep);
    after.hold_all(at(5), at(13));
    let write = begin(&mut after, 12, "a");
    assert!(!after.end(at(12), write, Outcome::Acknowledged).keep, "the lost one may land after it");
    assert_eq!((after.poll_settled(at(17)), after.may_fill(&"c")), (Some(Settled::Key("a")), false));
    assert_eq!((after.poll_settled(at(18)), after.may_fill(&"c")), (Some(Settled::All), true));

    let mut after = writes(OPTIONS);
    after.hold_all(at(4), at(4));
    assert!(after.may_fill(&"a"), "there is nothing to wait for");
    after.hold_all(at(4), at(99));
    assert_eq!(after.unsettled(at(4)), Some(at(14)), "no write is given longer than that");
}

#[test]
fn where_too_many_are_held_off_all_are() {
    let mut writes = writes(OPTIONS);
    for (key, now) in [("a", 0), ("b", 1), ("c", 2), ("a", 3)] {
        let write = begin(&mut writes, now, key);
        let _ = writes.end(at(now), write, Outcome::Unknown);
    }
    assert_eq!(writes.keys(), 2);
    assert!(!writes.may_fill(&"d"));
    let write = begin(&mut writes, 0, "d");
    assert!(
        !writes.end(at(11), write, Outcome::Acknowledged).keep,
        "it may be the one that is not remembered"
    );
    let mut settled = Vec::new();
    for now in [11, 12, 13] {
        settled.extend(std::iter::from_fn(|| writes.poll_settled(at(now))));
    }
    assert_eq!(settled, [Settled::Key("b"), Settled::All, Settled::Key("a")]);
    assert!(writes.may_fill(&"d") && writes.keys() == 0);
}

#[test]
fn several_replicas_agree_or_nobody_knows() {
    use Outcome::{Acknowledged, NotDone, Unknown};
    assert_eq!(Outcome::of_all([Acknowledged, Acknowledged]), Acknowledged);
    assert_eq!(Outcome::of_all([NotDone, NotDone]), NotDone);
    assert_eq!(Outcome::of_all([Acknowledged, NotDone]), Unknown);
    assert_eq!(Outcome::of_all([Unknown, Acknowledged]), Unknown);
}
