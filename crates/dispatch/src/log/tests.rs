//! Logs and their duplicates: one step at a time, and under faults.

mod members;
mod simulation;
mod stored;

use super::*;

const AT: Instant = Instant::from_secs(1);
const OPTIONS: LogOptions = LogOptions {
    partitions: 1,
    duplicates: 2,
    acknowledge: Acknowledge::All,
    entries_max: 4,
    bytes_max: 1_000,
    lag_max: Duration::from_millis(50),
    landing: Duration::from_millis(20),
    retry: Duration::from_millis(30),
    start_max: Duration::from_millis(100),
};

type Actions = Vec<LogAction<&'static str, u32>>;

fn actions(log: &mut Log<&'static str, u32>) -> Actions {
    std::iter::from_fn(|| log.poll_action()).collect()
}

/// Creates a log and has its duplicates inspected twice, with these markers.
fn opened(options: LogOptions, markers: &[Option<Marker>]) -> (Log<&'static str, u32>, Instant) {
    opened_by(7, options, markers)
}

/// Creates such a log in the process with this number.
fn opened_by(
    epoch: u64,
    options: LogOptions,
    markers: &[Option<Marker>],
) -> (Log<&'static str, u32>, Instant) {
    let mut log = Log::new(options, epoch, AT, SeededState::new(1));
    let landed = AT + options.landing;
    for now in [AT, landed] {
        log.handle_timeout(now);
        markers.iter().enumerate().for_each(|(one, marker)| log.handle_inspected(now, one, Ok(*marker)));
    }
    (log, landed)
}

/// Completes every batch that a log wants sent, until none is left. Returns the other actions.
fn complete(log: &mut Log<&'static str, u32>, now: Instant) -> Actions {
    let mut others = Vec::new();
    while let Some(action) = log.poll_action() {
        match action {
            LogAction::Apply { duplicate, .. } => log.handle_applied(now, duplicate, BatchEnd::Answered(&[])),
            other => others.push(other),
        }
    }
    others
}

/// Creates a log whose duplicates are new and have recorded their first markers.
fn begun(options: LogOptions) -> (Log<&'static str, u32>, Instant) {
    let (mut log, now) = opened(options, &vec![None; options.duplicates]);
    complete(&mut log, now);
    (log, now)
}

fn marker(sent: u64, applied: u64) -> Option<Marker> {
    Some(Marker { epoch: 3, sent, applied, partitions: 1, ..Marker::default() })
}

fn states(log: &Log<&'static str, u32>) -> Vec<DuplicateState> {
    log.standing().map(|(state, _)| state).collect()
}

#[test]
fn new_duplicates_are_read_and_entries_acknowledged_when_all_have_them() {
    let (mut log, now) = begun(OPTIONS);
    assert_eq!(states(&log), [DuplicateState::Current; 2]);
    assert_eq!((log.append(now, "a", 5, 1), log.append(now, "a", 6, 1)), (Ok(1), Ok(2)));
    let sent: Vec<_> = actions(&mut log);
    let [LogAction::Apply { duplicate: 0, entries, .. }, LogAction::Apply { duplicate: 1, .. }] = &sent[..]
    else {
        panic!("{sent:?}");
    };
    assert_eq!(entries[..], [LogEntry { number: 1, key: "a", change: 5 }]);
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    assert!(!actions(&mut log).contains(&LogAction::Acknowledge(1, true)));
    assert_eq!(log.unsettled(&"a"), Some(2));
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    log.handle_applied(now, 1, BatchEnd::Answered(&[]));
    let ends = complete(&mut log, now);
    let acknowledged = ends.iter().filter(|action| matches!(action, LogAction::Acknowledge(..)));
    assert!(acknowledged.eq([&LogAction::Acknowledge(1, true), &LogAction::Acknowledge(2, true)]));
    let settled = LogAction::Settle(LogEntry { number: 2, key: "a", change: 6 }, true);
    assert_eq!((ends.contains(&settled), log.unsettled(&"a")), (true, None));
}

#[test]
fn nothing_is_sent_to_a_server_that_answers_again_before_older_commands_have_landed() {
    let (mut log, now) = begun(OPTIONS);
    assert_eq!(log.append(now, "a", 1, 1), Ok(1));
    actions(&mut log);
    log.handle_applied(now, 1, BatchEnd::Broken(0));
    let lost = [LogAction::Read { duplicate: 1, applied: None }, LogAction::Inspect(1)];
    assert_eq!(actions(&mut log), lost);
    log.handle_inspected(now, 1, Ok(marker(0, 0)));
    assert_eq!((actions(&mut log), log.next_timeout()), (vec![], Some(now + OPTIONS.landing)));
    log.handle_timeout(now + OPTIONS.landing);
    assert_eq!(actions(&mut log), [LogAction::Inspect(1)]);
}

#[test]
fn process_that_starts_goes_on_from_the_duplicate_that_is_furthest_ahead() {
    let (mut log, now) = opened(OPTIONS, &[marker(9, 9), marker(12, 10)]);
    assert!(complete(&mut log, now).contains(&LogAction::Copy { from: 1, to: 0 }));
    assert_eq!(log.append(now, "a", 1, 1), Ok(13));
    log.handle_copied(now, 0, true);
    complete(&mut log, now);
    assert_eq!((states(&log), log.last()), (vec![DuplicateState::Current; 2], 13));
}

/// Creates a log of which only these duplicates are reached, for longer than it waits.
fn opened_without_others(options: LogOptions, found: &[(usize, Option<Marker>)]) -> Log<&'static str, u32> {
    let mut log = Log::new(options, 7, AT, SeededState::new(1));
    for now in [AT, AT + options.landing, AT + options.start_max] {
        log.handle_timeout(now);
        found.iter().for_each(|(one, marker)| log.handle_inspected(now, *one, Ok(*marker)));
    }
    log
}

#[test]
fn duplicate_without_a_marker_does_not_stand_for_one_that_is_not_reached() {
    let mut log = opened_without_others(OPTIONS, &[(0, None)]);
    assert!(!log.is_open(), "it may have lost its data");
    assert_eq!(log.append(AT, "a", 1, 1), Err(LogRefused::NotOpen));
    actions(&mut log);
    let now = AT + OPTIONS.start_max;
    for now in [now, now + OPTIONS.landing] {
        log.handle_timeout(now);
        log.handle_inspected(now, 1, Ok(marker(9, 9)));
    }
    assert!(complete(&mut log, now).contains(&LogAction::Copy { from: 1, to: 0 }));
    assert!(opened_without_others(OPTIONS, &[(0, marker(9, 9))]).is_open(), "it has all that is reached");
}

#[test]
fn log_is_not_opened_without_a_duplicate_that_has_what_a_majority_acknowledged() {
    let options = LogOptions { duplicates: 3, acknowledge: Acknowledge::Majority, ..OPTIONS };
    assert!(!opened_without_others(options, &[(0, marker(9, 9))]).is_open());
    assert!(opened_without_others(options, &[(0, marker(9, 9)), (2, marker(8, 8))]).is_open());
}

#[test]
fn process_whose_clock_went_back_writes_later_markers_than_the_one_before() {
    let (mut log, now) = opened_by(2, OPTIONS, &[marker(9, 9), None]);
    let of_first = |actions: Actions| {
        let of = |action: &LogAction<_, _>| match action {
            LogAction::Apply { marker, .. } => Some(marker.epoch),
            _ => None,
        };
        actions.iter().find_map(of)
    };
    assert_eq!(of_first(actions(&mut log)), Some(4));
    log.handle_copied(now, 1, true);
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    complete(&mut log, now);
    // One that comes back with what a still later process has written is overtaken, too.
    log.handle_applied(now, 1, BatchEnd::Broken(0));
    log.handle_broken(now, 1);
    let found = Some(Marker { epoch: 11, partitions: 1, ..Marker::default() });
    for now in [now, now + OPTIONS.landing] {
        log.handle_timeout(now);
        log.handle_inspected(now, 1, Ok(found));
    }
    assert_eq!(of_first(actions(&mut log)), Some(12));
}

#[test]
fn duplicates_of_a_store_with_other_partitions_are_not_touched() {
    let foreign = Some(Marker { partitions: 4, ..marker(9, 9).expect("a marker") });
    let (mut log, now) = opened(OPTIONS, &[foreign, foreign]);
    log.handle_timeout(now + OPTIONS.start_max);
    let touched = |action: &LogAction<_, _>| !matches!(action, LogAction::Inspect(_));
    assert!(!complete(&mut log, now).iter().any(touched));
    let refused = LogRefused::Partitions { found: 4, configured: 1 };
    assert_eq!(log.append(now, "a", 1, 1), Err(refused));
}

#[test]
fn refused_marker_counts_as_refusal_of_its_changes_and_is_not_recorded() {
    let (mut log, now) = begun(OPTIONS);
    assert_eq!(log.append(now, "a", 1, 1), Ok(1));
    log.handle_applied(now, 1, BatchEnd::Unmarked);
    assert_eq!(states(&log), [DuplicateState::Current, DuplicateState::Behind]);
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    assert!(
        !complete(&mut log, now)
            .contains(&LogAction::Settle(LogEntry { number: 1, key: "a", change: 1 }, false))
    );
    log.handle_timeout(now + OPTIONS.retry);
    log.handle_applied(now, 1, BatchEnd::Answered(&[]));
    log.handle_applied(now, 1, BatchEnd::Unmarked);
    assert_eq!(states(&log)[1], DuplicateState::Inspected(false), "a marker alone tells nothing");
}

#[test]
fn change_that_could_be_read_at_a_lost_duplicate_is_not_given_up_before_it_had_time_to_come_back() {
    let options = LogOptions { acknowledge: Acknowledge::Majority, ..OPTIONS };
    let overdue = 2 * OPTIONS.start_max;
    for (waited, is_emptied) in [(OPTIONS.retry, false), (OPTIONS.retry, true), (overdue, false)] {
        let (mut log, now) = begun(options);
        assert_eq!(log.append(now, "a", 1, 1), Ok(1));
        log.handle_applied(now, 1, BatchEnd::Answered(&[]));
        assert!(log.is_readable(1));
        log.handle_applied(now, 1, BatchEnd::Broken(0));
        log.handle_applied(now, 0, BatchEnd::Answered(&[1]));
        assert_eq!(states(&log)[0], DuplicateState::Behind, "its value is older");
        if is_emptied {
            for now in [now, now + OPTIONS.landing] {
                log.handle_timeout(now);
                log.handle_inspected(now, 1, Ok(None));
            }
        }
        actions(&mut log);
        let now = now + waited;
        log.handle_timeout(now);
        log.handle_applied(now, 0, BatchEnd::Answered(&[1]));
        let is_given_up = complete(&mut log, now).contains(&LogAction::Abandon(1));
        assert_eq!(is_given_up, is_emptied || waited == overdue);
        assert_eq!(states(&log)[0] == DuplicateState::Current, is_given_up);
    }
}

#[test]
fn duplicate_of_an_earlier_process_that_appears_late_is_copied_although_the_log_has_its_numbers() {
    let mut log = opened_without_others(OPTIONS, &[(0, marker(10, 10))]);
    let now = AT + OPTIONS.start_max;
    for key in ["a", "b", "c"] {
        log.append(now, key, 1, 1).unwrap();
        complete(&mut log, now);
    }
    log.handle_inspected(now, 1, Ok(marker(12, 10)));
    log.handle_timeout(now + OPTIONS.landing);
    log.handle_inspected(now, 1, Ok(marker(12, 10)));
    assert!(complete(&mut log, now).contains(&LogAction::Copy { from: 0, to: 1 }));
}

#[test]
fn log_without_room_refuses_entries_while_a_duplicate_that_is_read_lacks_them() {
    let (mut log, now) = begun(OPTIONS);
    for number in 1..=4 {
        assert_eq!(log.append(now, "a", 1, 250), Ok(number));
    }
    assert_eq!(log.append(now, "a", 1, 1), Err(LogRefused::Full { entries: 4, bytes: 1_000 }));
    assert_eq!(log.counts().refused, 1);
    // The first is not read any more once it lags, and does not hold up the log then.
    actions(&mut log);
    log.handle_applied(now, 1, BatchEnd::Answered(&[]));
    complete(&mut log, now);
    assert_eq!(log.next_timeout(), Some(now + OPTIONS.lag_max));
    log.handle_timeout(now + OPTIONS.lag_max);
    assert_eq!(states(&log)[0], DuplicateState::Behind);
    assert_eq!(log.append(now, "a", 1, 250), Ok(5));
}

#[test]
fn change_is_refused_at_once_while_too_few_duplicates_are_reached_to_acknowledge_it() {
    for (acknowledge, first_missing) in [(Acknowledge::Majority, 2), (Acknowledge::All, 3)] {
        let options = LogOptions { duplicates: 3, acknowledge, ..OPTIONS };
        let (mut log, now) = begun(options);
        for lost in 0..first_missing {
            assert!(log.append(now, "a", 1, 1).is_ok(), "{acknowledge:?}: {lost} are lost");
            complete(&mut log, now);
            log.handle_broken(now, lost);
            actions(&mut log);
        }
        let (reached, needed) = (3 - first_missing, if acknowledge == Acknowledge::Majority { 2 } else { 1 });
        let refused = LogRefused::TooFew { reached, duplicates: 3, needed };
        assert_eq!(log.append(now, "a", 1, 1), Err(refused));
    }
}

#[test]
fn change_that_every_duplicate_refuses_takes_no_effect() {
    let (mut log, now) = begun(OPTIONS);
    assert_eq!(log.append(now, "a", 1, 1), Ok(1));
    actions(&mut log);
    log.handle_applied(now, 0, BatchEnd::Answered(&[1]));
    assert_eq!(states(&log), [DuplicateState::Behind, DuplicateState::Current]);
    log.handle_applied(now, 1, BatchEnd::Answered(&[1]));
    let ends = complete(&mut log, now);
    assert!(ends.contains(&LogAction::Acknowledge(1, false)), "{ends:?}");
    assert_eq!((states(&log), log.unsettled(&"a")), (vec![DuplicateState::Current; 2], None));
    assert!(!ends.iter().any(|action| matches!(action, LogAction::Copy { .. })), "{ends:?}");
}

/// Breaks the connection of duplicate 0, and has it inspected twice with this marker. Returns the
/// time.
fn reconnected(
    log: &mut Log<&'static str, u32>,
    now: Instant,
    end: BatchEnd<'_>,
    marker: Option<Marker>,
) -> Instant {
    log.handle_applied(now, 0, end);
    log.handle_inspected(now, 0, Ok(marker));
    let landed = now + OPTIONS.landing;
    log.handle_timeout(landed);
    log.handle_inspected(landed, 0, Ok(marker));
    landed
}

fn of_this_process(sent: u64, applied: u64) -> Option<Marker> {
    Some(Marker { epoch: 7, sent, applied, partitions: 1, ..Marker::default() })
}

#[test]
fn duplicate_is_read_again_once_it_has_applied_all_that_was_sent_before() {
    let (mut log, now) = begun(LogOptions { duplicates: 1, ..OPTIONS });
    assert_eq!(log.append(now, "a", 1, 1), Ok(1));
    actions(&mut log);
    let now = reconnected(&mut log, now, BatchEnd::Broken(0), of_this_process(1, 0));
    assert_eq!(states(&log), [DuplicateState::Joining(0)], "it may have the entry");
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    assert_eq!(states(&log), [DuplicateState::Current]);
}

#[test]
fn change_that_is_refused_but_may_have_been_applied_is_abandoned() {
    let (mut log, now) = begun(LogOptions { duplicates: 1, ..OPTIONS });
    assert_eq!(log.append(now, "a", 1, 1), Ok(1));
    actions(&mut log);
    let now = reconnected(&mut log, now, BatchEnd::Broken(0), of_this_process(1, 0));
    actions(&mut log);
    log.handle_applied(now, 0, BatchEnd::Answered(&[1]));
    let ends = complete(&mut log, now);
    assert!(ends.contains(&LogAction::Abandon(1)), "{ends:?}");
    assert_eq!((states(&log), log.unsettled(&"a")), (vec![DuplicateState::Current], None));
}

#[test]
fn next_process_has_a_duplicate_copied_that_made_a_change_which_the_other_refused() {
    let (mut log, now) = begun(OPTIONS);
    assert_eq!(log.append(now, "a", 1, 1), Ok(1));
    actions(&mut log);
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    let with_it = markers_in(&actions(&mut log)).last().copied();
    log.handle_applied(now, 0, BatchEnd::Broken(0));
    // The other one has not come back in time.
    log.handle_applied(now + 2 * OPTIONS.start_max, 1, BatchEnd::Answered(&[1]));
    let ends = actions(&mut log);
    assert!(ends.contains(&LogAction::Abandon(1)), "the client cannot know: {ends:?}");
    let without_it = markers_in(&ends).last().copied();
    let [with, without] = [with_it, without_it].map(|marker| marker.expect("a marker is written"));
    assert_eq!((with.sent, with.applied), (without.sent, without.applied));
    let mut next = opened_by(8, OPTIONS, &[Some(with), Some(without)]).0;
    assert!(actions(&mut next).contains(&LogAction::Copy { from: 1, to: 0 }));
}

/// The markers of the batches among some actions.
fn markers_in(actions: &Actions) -> Vec<Marker> {
    let marker = |action: &LogAction<_, _>| match action {
        LogAction::Apply { marker, .. } => Some(*marker),
        _ => None,
    };
    actions.iter().filter_map(marker).collect()
}

#[test]
fn changes_after_one_that_takes_no_effect_are_not_sent_again() {
    let (mut log, now) = begun(LogOptions { duplicates: 1, ..OPTIONS });
    (1..=4).for_each(|number| assert_eq!(log.append(now, "a", 1, 1), Ok(number)));
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    actions(&mut log);
    log.handle_applied(now, 0, BatchEnd::Answered(&[2]));
    let steps = actions(&mut log);
    assert!(steps.contains(&LogAction::Acknowledge(4, true)), "{steps:?}");
    let is_sent =
        |step: &LogAction<_, _>| matches!(step, LogAction::Apply { entries, .. } if !entries.is_empty());
    assert!(!steps.iter().any(is_sent), "{steps:?}");
}

#[test]
fn duplicate_with_the_latest_marker_is_taken_as_right_if_all_have_lost_their_data() {
    let (mut log, now) = begun(OPTIONS);
    for number in 1..=6 {
        assert_eq!(log.append(now, "a", number, 1), Ok(u64::from(number)));
        complete(&mut log, now);
    }
    (0..2).for_each(|duplicate| log.handle_broken(now, duplicate));
    let landed = now + OPTIONS.landing;
    for duplicate in [0, 1] {
        actions(&mut log);
        assert!(states(&log).iter().all(|state| !state.is_written()), "the other may have its data");
        for now in [now, landed] {
            log.handle_timeout(now);
            log.handle_inspected(now, duplicate, Ok(None));
        }
    }
    let steps = actions(&mut log);
    assert!(steps.iter().any(|step| matches!(step, LogAction::Apply { duplicate: 0, .. })), "{steps:?}");
    log.handle_applied(landed, 0, BatchEnd::Answered(&[]));
    let steps = complete(&mut log, landed);
    assert!(steps.contains(&LogAction::Copy { from: 0, to: 1 }), "{steps:?}");
    log.handle_copied(landed, 1, true);
    complete(&mut log, landed);
    assert_eq!(states(&log), [DuplicateState::Current; 2]);
}

#[test]
fn process_that_starts_prefers_what_was_applied_to_what_was_sent() {
    let (mut log, now) = opened(OPTIONS, &[marker(28, 22), marker(27, 27)]);
    assert!(complete(&mut log, now).contains(&LogAction::Copy { from: 1, to: 0 }));
    assert_eq!(log.append(now, "a", 1, 1), Ok(28));
}

#[test]
fn change_is_acknowledged_when_duplicates_that_join_those_read_have_it_too() {
    let (mut log, now) = begun(OPTIONS);
    assert_eq!(log.append(now, "a", 1, 1), Ok(1));
    actions(&mut log);
    log.handle_applied(now, 1, BatchEnd::Answered(&[]));
    let now = reconnected(&mut log, now, BatchEnd::Broken(0), of_this_process(1, 0));
    assert_eq!(states(&log), [DuplicateState::Joining(1), DuplicateState::Current]);
    assert_eq!(log.append(now, "a", 2, 1), Ok(2));
    actions(&mut log);
    log.handle_applied(now, 1, BatchEnd::Answered(&[]));
    log.handle_applied(now, 1, BatchEnd::Answered(&[]));
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    assert_eq!(states(&log), [DuplicateState::Current; 2]);
    let acknowledged = LogAction::Acknowledge(2, true);
    assert!(!actions(&mut log).contains(&acknowledged), "the first is read and does not have it");
    log.handle_applied(now, 0, BatchEnd::Answered(&[]));
    assert!(actions(&mut log).contains(&acknowledged));
}
