//! Logs that are kept on disk.

use super::*;

type Record = LogRecord<&'static str, u32>;

fn change(number: u64) -> Record {
    LogRecord::Change(LogEntry { number, key: "a", change: number as u32 })
}

fn begin(epoch: u64, last: u64, continues: bool) -> Record {
    LogRecord::Begin { epoch, last, continues }
}

fn recovered(records: impl IntoIterator<Item = Record>) -> Recovered<&'static str, u32> {
    let mut recovered = Recovered::new(OPTIONS.entries_max, OPTIONS.bytes_max);
    assert!(records.into_iter().all(|record| recovered.take(record, 1)));
    recovered
}

/// A file in which process 3 has the entries 5 to 8, and process 5 the entry 9; the log has room
/// for four of them.
fn file() -> Vec<Record> {
    let of_first = (5..=8).map(change);
    let both = [begin(3, 4, true)].into_iter().chain(of_first).chain([begin(5, 8, true), change(9)]);
    both.collect()
}

/// Creates the log of process 7 that goes on from these records where duplicates have these
/// markers.
fn opened_from(records: Vec<Record>, markers: &[Option<Marker>]) -> (Log<&'static str, u32>, Instant) {
    let options = LogOptions { duplicates: markers.len(), ..OPTIONS };
    let mut log = Log::new(options, 7, AT, SeededState::new(1));
    log.keep_on_disk(recovered(records));
    let landed = AT + options.landing;
    for now in [AT, landed] {
        log.handle_timeout(now);
        markers.iter().enumerate().for_each(|(one, marker)| log.handle_inspected(now, one, Ok(*marker)));
    }
    (log, landed)
}

fn stores(actions: &Actions) -> Vec<(Vec<Record>, u64)> {
    let stores = actions.iter().filter_map(|action| match action {
        LogAction::Store { records, first } => Some((records.clone(), *first)),
        _ => None,
    });
    stores.collect()
}

fn marker_of(epoch: u64, sent: u64, applied: u64) -> Option<Marker> {
    Some(Marker { epoch, sent, applied, partitions: 1, ..Marker::default() })
}

/// Opens a log without entries, and has it store that it has begun.
fn begun(markers: &[Option<Marker>]) -> (Log<&'static str, u32>, Instant) {
    let (mut log, now) = opened_from(vec![], markers);
    let steps = actions(&mut log);
    assert_eq!(stores(&steps), [(vec![begin(7, 0, false)], 1)]);
    let is_sent = |step: &LogAction<_, _>| matches!(step, LogAction::Apply { .. });
    assert!(!steps.iter().any(is_sent), "the marker is of a process that is not on disk: {steps:?}");
    log.handle_stored(now, StoreEnd::Stored);
    complete(&mut log, now);
    (log, now)
}

#[test]
fn entries_are_sent_once_they_are_stored_together() {
    let (mut log, now) = begun(&[None, None]);
    assert_eq!(log.append(now, "a", 1, 1), Ok(1));
    let steps = actions(&mut log);
    assert_eq!(steps, [LogAction::Store { records: vec![change(1)], first: 1 }]);
    (2..=3).for_each(|number| assert_eq!(log.append(now, "a", number as u32, 1), Ok(number)));
    assert_eq!(actions(&mut log), []);
    let later = now + OPTIONS.lag_max;
    log.handle_stored(later, StoreEnd::Stored);
    let steps = actions(&mut log);
    assert_eq!(stores(&steps), [(vec![change(2), change(3)], 1)], "one store for all that waited");
    let sent = steps.iter().filter_map(|step| match step {
        LogAction::Apply { entries, .. } => Some(entries.iter().map(|one| one.number).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(sent.collect::<Vec<_>>(), [[1], [1]]);
    assert_eq!(states(&log), [DuplicateState::Current; 2], "a slow disk is no lag of a duplicate");
}

#[test]
fn process_has_each_duplicate_apply_what_it_lacks_before_it_is_read() {
    // The second one has lost its data.
    let (mut log, now) = opened_from(file(), &[marker_of(3, 7, 6), None, marker_of(5, 9, 9)]);
    assert_eq!((log.last(), log.held().0), (9, 4));
    let steps = actions(&mut log);
    assert_eq!(stores(&steps), [(vec![begin(7, 9, true)], 6)]);
    log.handle_stored(now, StoreEnd::Stored);
    let (mut replayed, mut copied) = (Vec::new(), Vec::new());
    while let Some(action) = log.poll_action() {
        match action {
            LogAction::Apply { duplicate, entries, .. } => {
                replayed.extend(entries.iter().map(|entry| (duplicate, entry.number)));
                assert!(entries.is_empty() || states(&log)[duplicate] != DuplicateState::Current);
                log.handle_applied(now, duplicate, BatchEnd::Answered(&[]));
            }
            LogAction::Copy { from, to } => {
                copied.push((from, to));
                log.handle_copied(now, to, true);
                assert_ne!(states(&log)[to], DuplicateState::Current, "it has no marker");
            }
            _ => {}
        }
    }
    assert_eq!(copied, [(2, 1)]);
    assert_eq!(replayed, [(0, 7), (0, 8), (0, 9)]);
    assert_eq!(states(&log), [DuplicateState::Current; 3]);
}

#[test]
fn file_is_used_where_no_duplicate_is_ahead_of_it() {
    type Case = (&'static str, Vec<Record>, [Option<Marker>; 2], Option<u64>, [&'static str; 2]);
    let cases: [Case; 9] = [
        ("equal", file(), [marker_of(5, 9, 9); 2], Some(6), ["current"; 2]),
        ("behind", file(), [marker_of(3, 6, 5), marker_of(5, 9, 8)], Some(6), ["behind"; 2]),
        ("too far behind", file(), [marker_of(3, 5, 4), marker_of(5, 9, 9)], Some(6), ["copying", "current"]),
        ("empty", file(), [None, None], Some(6), ["behind", "copying"]),
        (
            "of a process between",
            file(),
            [marker_of(4, 9, 9), marker_of(5, 9, 9)],
            Some(6),
            ["copying", "current"],
        ),
        (
            "of a later process",
            file(),
            [marker_of(6, 2, 2), marker_of(5, 9, 9)],
            None,
            ["current", "copying"],
        ),
        ("sent more", file(), [marker_of(5, 9, 9), marker_of(5, 10, 9)], None, ["copying", "current"]),
        ("no file", vec![], [marker_of(5, 9, 9), marker_of(5, 9, 8)], None, ["current", "copying"]),
        ("file without entries", vec![begin(5, 9, true)], [None, None], None, ["current"; 2]),
    ];
    for (name, records, markers, first, expected) in cases {
        let (mut log, _) = opened_from(records, &markers);
        let steps = actions(&mut log);
        let [(begins, kept_from)] = &stores(&steps)[..] else { panic!("{name}: {steps:?}") };
        let continues = matches!(begins[..], [LogRecord::Begin { epoch: 7, continues: true, .. }]);
        assert_eq!((continues, log.held().0 > 0), (first.is_some(), first.is_some()), "{name}");
        assert!(first.is_none_or(|first| first == *kept_from), "{name}");
        let states: Vec<_> =
            states(&log).iter().map(|state| state.name().replace("joining", "behind")).collect();
        assert_eq!(states, expected, "{name}");
    }
}

#[test]
fn records_that_do_not_follow_each_other_are_refused() {
    let follows = |records: Vec<Record>| {
        let mut recovered = Recovered::new(4, 1_000);
        records.into_iter().all(|record| recovered.take(record, 1))
    };
    assert!(follows(file()));
    assert!(!follows(vec![change(1)]), "of no process");
    assert!(!follows(vec![begin(3, 4, true), change(6)]), "5 is missing");
    assert!(!follows(vec![begin(3, 4, true), change(5), begin(5, 6, true)]), "6 is missing");
    assert!(follows(vec![begin(3, 4, true), change(5), begin(5, 9, false), change(10)]));
}

#[test]
fn recovered_entries_stay_within_the_bounds_of_the_log() {
    let mut recovered = Recovered::new(4, 1_000);
    assert!(recovered.take(begin(3, 0, true), 0));
    assert!((1..=6).all(|number| recovered.take(change(number), 400)));
    assert_eq!(recovered.entries(), 2);
    assert!(recovered.take(change(7), 1_001));
    assert_eq!(recovered.entries(), 0);
    assert!(recovered.take(change(8), 1));
    assert_eq!(recovered.entries(), 1);
}

#[test]
fn entries_that_are_not_stored_take_no_effect_and_more_are_refused_for_some_time() {
    let (mut log, now) = begun(&[None, None]);
    assert_eq!(log.append(now, "b", 1, 1), Ok(1));
    log.handle_stored(now, StoreEnd::Stored);
    actions(&mut log);
    assert_eq!((log.append(now, "a", 2, 1), log.append(now, "b", 3, 1)), (Ok(2), Ok(3)));
    actions(&mut log);
    log.handle_stored(now, StoreEnd::NotStored);
    let steps = actions(&mut log);
    let nothing = |number| LogAction::Acknowledge(number, false);
    assert!(steps.contains(&nothing(2)) && steps.contains(&nothing(3)), "{steps:?}");
    assert_eq!((log.unsettled(&"a"), log.unsettled(&"b"), log.last()), (None, Some(1), 1));
    assert_eq!(log.append(now, "a", 2, 1), Err(LogRefused::Disk));
    assert!(log.is_readable(0), "reads go on");
    let later = now + OPTIONS.retry;
    log.handle_timeout(later);
    assert_eq!(log.append(later, "a", 2, 1), Ok(2));
    assert_eq!(stores(&actions(&mut log)), [(vec![change(2)], 1)]);
}

#[test]
fn disk_that_may_have_lost_entries_makes_their_outcome_unknown_and_is_not_written_again() {
    let (mut log, now) = begun(&[None, None]);
    assert_eq!((log.append(now, "a", 1, 1), log.append(now, "a", 2, 1)), (Ok(1), Ok(2)));
    actions(&mut log);
    log.handle_stored(now, StoreEnd::Unknown);
    let steps = actions(&mut log);
    assert!(steps.contains(&LogAction::Abandon(1)), "{steps:?}");
    assert!(steps.contains(&LogAction::Acknowledge(2, false)), "it was not written: {steps:?}");
    assert_eq!(log.next_timeout(), None);
    assert_eq!(log.append(now + 100 * OPTIONS.retry, "a", 1, 1), Err(LogRefused::Disk));
}

#[test]
fn client_learns_that_a_change_takes_no_effect_once_that_is_stored() {
    let (mut log, now) = begun(&[None]);
    assert_eq!(log.append(now, "a", 1, 1), Ok(1));
    log.handle_stored(now, StoreEnd::Stored);
    actions(&mut log);
    log.handle_applied(now, 0, BatchEnd::Answered(&[1]));
    let steps = actions(&mut log);
    assert_eq!(stores(&steps), [(vec![LogRecord::Void { number: 1, may_be_made: false }], 1)]);
    let waits =
        |step: &LogAction<_, _>| !matches!(step, LogAction::Acknowledge(..) | LogAction::Apply { .. });
    assert!(steps.iter().all(waits), "{steps:?}");
    log.handle_stored(now, StoreEnd::Stored);
    assert!(actions(&mut log).contains(&LogAction::Acknowledge(1, false)));
}

#[test]
fn duplicates_that_may_have_made_a_change_without_effect_are_copied_from_one_of_them() {
    let void = LogRecord::Void { number: 8, may_be_made: true };
    let records = [file(), vec![void]].concat();
    let (log, _) = opened_from(records.clone(), &[marker_of(5, 9, 8), marker_of(5, 9, 9)]);
    let names = |log: &Log<_, _>| states(log).iter().map(|state| state.name()).collect::<Vec<_>>();
    assert_eq!(names(&log), ["copying", "current"], "the one that is furthest ahead is right");
    let (log, _) = opened_from(records, &[marker_of(3, 7, 6), marker_of(5, 9, 9)]);
    assert_eq!(names(&log), ["joining", "copying"], "the one that has not been sent it is right");
}

#[test]
fn recovered_entry_that_is_refused_for_long_is_dropped() {
    let (mut log, now) = opened_from(file(), &[marker_of(5, 8, 8)]);
    log.handle_stored(now, StoreEnd::Stored);
    actions(&mut log);
    log.handle_applied(now, 0, BatchEnd::Answered(&[9]));
    assert_eq!((states(&log), actions(&mut log)), (vec![DuplicateState::Behind], vec![]));
    let later = AT + 2 * OPTIONS.start_max;
    log.handle_timeout(later);
    actions(&mut log);
    log.handle_applied(later, 0, BatchEnd::Answered(&[9]));
    log.handle_stored(later, StoreEnd::Stored);
    complete(&mut log, later);
    assert_eq!(states(&log), [DuplicateState::Current]);
}
