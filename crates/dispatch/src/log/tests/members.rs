//! Duplicates that join a log and leave it.

use super::*;

/// Has a duplicate found without a marker, after what was sent to it before has landed.
fn found(log: &mut Log<&'static str, u32>, now: Instant, duplicate: usize) -> Instant {
    let landed = now + OPTIONS.landing;
    for now in [now, landed] {
        log.handle_timeout(now);
        log.handle_inspected(now, duplicate, Ok(None));
    }
    landed
}

#[test]
fn duplicate_that_joins_is_filled_and_acknowledges_once_it_is_read() {
    let options = LogOptions { duplicates: 1, acknowledge: Acknowledge::All, ..OPTIONS };
    let (mut log, now) = begun(options);
    let layout = Some(Layout { partitions: 1, duplicates: 2 });
    log.set_layout(now, layout);
    log.join(now, 1);
    let now = found(&mut log, now, 1);
    let copies = actions(&mut log);
    assert!(copies.contains(&LogAction::Copy { from: 0, to: 1 }), "{copies:?}");
    assert_eq!(log.append(now, "a", 5, 1), Ok(1));
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    assert!(complete(&mut log, now).contains(&LogAction::Acknowledge(1, true)), "the first one has it");
    log.handle_copied(now, 1, true);
    assert!(complete(&mut log, now).contains(&LogAction::Read { duplicate: 1, applied: Some(1) }));
    assert_eq!(log.append(now, "a", 6, 1), Ok(2));
    actions(&mut log);
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    let with_one = actions(&mut log);
    assert!(!with_one.contains(&LogAction::Acknowledge(2, true)), "both have to have it: {with_one:?}");
}

#[test]
fn duplicate_that_joins_is_not_read_before_the_others_have_recorded_the_layout() {
    let options = LogOptions { duplicates: 1, ..OPTIONS };
    let (mut log, now) = begun(options);
    log.set_layout(now, Some(Layout { partitions: 1, duplicates: 2 }));
    log.join(now, 1);
    let now = found(&mut log, now, 1);
    log.handle_copied(now, 1, true);
    actions(&mut log);
    log.handle_applied(now, 1, BatchEnd::Answered(&[]));
    assert!(!log.is_current(1), "the marker of the first one is in flight");
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    assert!(log.is_current(1));
}

#[test]
fn duplicate_leaves_once_the_other_has_recorded_everything_anew() {
    let (mut log, now) = begun(OPTIONS);
    log.append(now, "a", 5, 1).expect("it has room");
    complete(&mut log, now);
    log.leave(now, 1);
    let asked = actions(&mut log);
    assert!(log.is_current(1) && !log.stays(1), "it is read until the other one has answered: {asked:?}");
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    assert!(actions(&mut log).contains(&LogAction::Retire(1)));
    assert_eq!(log.append(now, "a", 6, 1), Ok(2));
    assert!(complete(&mut log, now).contains(&LogAction::Acknowledge(2, true)), "the other one is enough");
    let over = now + OPTIONS.landing;
    log.handle_timeout(over);
    assert_eq!(actions(&mut log), [LogAction::Clear(1)]);
    log.handle_cleared(over, 1, false);
    log.handle_timeout(over + OPTIONS.retry);
    assert_eq!(actions(&mut log), [LogAction::Clear(1)], "it is cleared again");
    log.join(over, 1);
    assert!(!log.is_gone(1) && actions(&mut log).is_empty(), "it cannot join before it is cleared");
    log.handle_cleared(over, 1, true);
    log.join(over, 1);
    assert_eq!(actions(&mut log), [LogAction::Inspect(1)]);
}

#[test]
fn duplicate_stays_if_the_other_is_lost_before_it_has_left() {
    let (mut log, now) = begun(OPTIONS);
    log.leave(now, 1);
    log.handle_applied(now, 0, BatchEnd::Broken(0));
    assert!(log.stays(1) && log.is_current(1));
    assert_eq!(log.append(now, "a", 5, 1), Ok(1));
    assert!(complete(&mut log, now).contains(&LogAction::Acknowledge(1, true)), "it acknowledges alone");
}

#[test]
fn reads_at_a_duplicate_that_leaves_fail_if_it_is_lost() {
    let (mut log, now) = begun(OPTIONS);
    log.leave(now, 1);
    complete(&mut log, now);
    log.handle_broken(now, 1);
    assert_eq!(actions(&mut log)[0], LogAction::Read { duplicate: 1, applied: None });
}

/// Creates a log of one duplicate with this marker, and of one candidate, inspected at once.
fn asked(own: Option<Marker>, candidate: Result<Option<Marker>, ()>) -> Log<&'static str, u32> {
    let mut log = Log::new(LogOptions { duplicates: 1, ..OPTIONS }, 7, AT, SeededState::new(1));
    log.ask(AT);
    for now in [AT, AT + OPTIONS.landing] {
        log.handle_timeout(now);
        log.handle_inspected(now, 0, Ok(own));
        log.handle_inspected(now, 1, candidate);
    }
    log
}

#[test]
fn candidate_with_a_later_marker_is_taken_as_right() {
    let mut log = asked(marker(5, 5), Ok(marker(9, 9)));
    assert_eq!((log.is_current(1), log.last()), (true, 9));
    assert!(actions(&mut log).contains(&LogAction::Copy { from: 1, to: 0 }));
}

#[test]
fn candidate_without_a_marker_is_dismissed() {
    let mut log = asked(marker(5, 5), Ok(None));
    assert!(log.is_current(0) && log.is_gone(1));
    assert!(actions(&mut log).contains(&LogAction::Close(1)));
}

#[test]
fn candidate_that_is_not_reached_is_waited_for_only_while_nothing_else_is_known() {
    let log = asked(marker(5, 5), Err(()));
    assert!(log.is_current(0) && log.is_gone(1));
    let mut log = asked(None, Err(()));
    let late = AT + OPTIONS.start_max;
    log.handle_timeout(late);
    assert!(!log.is_open(), "the configured one may have lost its data");
    assert_eq!(log.next_timeout(), None, "it waits for the answer to a further inspection alone");
    for now in [late, late + OPTIONS.landing] {
        log.handle_timeout(now);
        log.handle_inspected(now, 1, Ok(None));
    }
    assert!(log.is_current(0), "it has nothing either");
}

#[test]
fn write_waits_for_the_marker_of_the_other_while_one_that_leaves_may_have_a_later_one() {
    let (mut log, now) = begun(OPTIONS);
    log.append(now, "a", 1, 1).expect("it has room");
    log.append(now, "b", 2, 1).expect("it has room");
    // The one that leaves has both and has recorded that, before the other one answers at all.
    for _ in 0..3 {
        log.handle_applied(now, 1, BatchEnd::Answered(&[]));
    }
    log.leave(now, 1);
    log.append(now, "c", 3, 1).expect("it has room");
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    assert!(actions(&mut log).contains(&LogAction::Retire(1)));
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    let acknowledged = |actions: Actions| actions.contains(&LogAction::Acknowledge(3, true));
    assert!(!acknowledged(actions(&mut log)), "a next process would go on from the one that leaves");
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    assert!(acknowledged(actions(&mut log)));
}
