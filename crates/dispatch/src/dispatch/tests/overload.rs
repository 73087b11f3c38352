//! More reads than a replica can answer, for longer than their timeout.

use super::*;
use crate::QueueChoice;
use sherwood_model::Percent;

const TIMEOUT_MS: u64 = 1_000;
const DEADLINE_MS: u64 = 50;
const CALL_MS: u64 = 10;

/// Ends of reads: within their deadline, late, at their timeout.
#[derive(Debug, Default)]
struct Ends {
    met: u32,
    late: u32,
    timed_out: u32,
}

/// Asks for one key, whose number is the time, every `interval_ms` for four timeouts.
fn ends_with_a_read_every(interval_ms: u64) -> Ends {
    let mut options = options();
    options.timeout = Duration::from_millis(TIMEOUT_MS);
    options.queue = QueueChoice::Edf { alpha: Percent::ALPHA };
    (options.in_flight_calls_max, options.queued_calls_max, options.waiters_max) = (1, 1_000, 1_000);
    options.probe.failures_max = u32::MAX;
    let mut machine: Dispatch<u64, u32, u32> = Dispatch::new(options, 1, SeededState::new(1)).unwrap();
    let mut ends = Ends::default();
    let mut call: Option<(u64, AttemptId)> = None;
    for now in 0..5 * TIMEOUT_MS {
        if now % interval_ms == 0 && now < 4 * TIMEOUT_MS {
            let demand = Demand { deadline: Some(at(now + DEADLINE_MS)), ..Demand::default() };
            machine.handle_fetch(at(now), &demand, [(now, 0)], 0x9E37);
        }
        machine.handle_timeout(at(now));
        if let Some((_, attempt)) = call.take_if(|(ends_at, _)| *ends_at <= now) {
            machine.handle_reply(at(now), attempt, Reply::Ok(vec![Some(0)]));
        }
        while let Some(action) = machine.poll_action() {
            match action {
                Action::Call { attempt, .. } => call = Some((now + CALL_MS, attempt)),
                Action::Deliver { result: Err(FetchError::Timeout { .. }), .. } => ends.timed_out += 1,
                Action::Deliver { key, result: Ok(_), .. } if now - key <= DEADLINE_MS => ends.met += 1,
                Action::Deliver { result: Ok(_), .. } => ends.late += 1,
                Action::Cancel { .. } => call = None,
                other => panic!("{other:?} has no cause"),
            }
        }
    }
    ends
}

#[test]
fn hopeless_reads_of_equal_deadlines_are_answered_late_instead_of_never() {
    let ends = ends_with_a_read_every(9);
    assert_eq!(ends.met + ends.late + ends.timed_out, 445);
    assert!(ends.late > 3 * ends.timed_out, "{ends:?}");
    let ends = ends_with_a_read_every(CALL_MS);
    assert_eq!((ends.met, ends.late, ends.timed_out), (400, 0, 0));
}
