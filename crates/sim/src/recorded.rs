//! Requests of a recorded trace, with their arrival times.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rand_core::Rng as _;
use sherwood_model::Instant;
use sherwood_workload::onerf::Times;
use sherwood_workload::trace::requests::Request;
use sherwood_workload::trace::{Position, TraceError};
use sherwood_workload::{Arrivals, Rng};
use thiserror::Error;

/// A trace that a run replays. Implemented by the caller, which opens files.
pub trait Trace: fmt::Debug + Send + Sync {
    /// Name of the trace for error messages.
    fn name(&self) -> String;

    /// Reads the trace from its start. For traces of accesses, only one in `sample` objects, chosen
    /// by hash, is read.
    ///
    /// # Errors
    /// If the trace cannot be opened.
    fn requests(&self, sample: u32) -> Result<Requests, TraceError>;
}

/// The requests of a trace, in order; it ends after an error.
pub type Requests = Box<dyn Iterator<Item = Result<Request, TraceError>> + Send>;

/// Reason why a trace has no further requests before the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceStop {
    /// The trace is complete but shorter than the run.
    #[error(
        "the trace {name} ends after {} simulated minutes of {}: give the scenario less time, such as --set minutes=WARM-UP+MEASURED, or a longer trace",
        minutes(*.reached), minutes(*.needed)
    )]
    Ended {
        /// Name of the trace.
        name: String,
        /// Simulated time of the last request.
        reached: Duration,
        /// Simulated time of the run.
        needed: Duration,
    },
    /// The trace has an error or cannot be read.
    #[error("{name}: {detail}")]
    Unreadable {
        /// Name of the trace.
        name: String,
        /// Position of the error and what was expected there.
        detail: String,
    },
}

fn minutes(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() / 60.0)
}

/// Reason why a trace has no next request.
pub(crate) enum NoMore {
    End,
    Error(String),
}

/// A trace being replayed: requests with their arrival times, read ahead by at most one unit of the
/// trace's time.
pub(crate) struct Recorded {
    trace: Arc<dyn Trace>,
    sample: u32,
    /// The trace's requests; none before the first one is read.
    requests: Option<Requests>,
    pace: Pace,
    /// Requests of one time stamp with their arrival times, in order.
    due: VecDeque<(Instant, Request)>,
    /// The first request with a later time stamp.
    next: Option<Request>,
}

enum Pace {
    /// Poisson arrivals at a rate, in place of the trace's times.
    Rate { arrivals: Arrivals, draws: Rng, now: Instant },
    /// Recorded times: the length of a unit of time and the stamp of time zero. Requests with one
    /// stamp arrive at random times within the unit.
    Stamps { unit_ns: u64, draws: Rng, origin: Option<i64> },
}

/// Largest number of requests with one time stamp, which are read before the first of them arrives.
const ALIKE_MAX: usize = 1 << 18;

impl Recorded {
    /// Creates the replay of a trace. `arrivals` replaces the trace's times if they are not used;
    /// `load` divides recorded times.
    pub(crate) fn new(
        trace: Arc<dyn Trace>,
        sample: u32,
        times: Times,
        arrivals: Option<Arrivals>,
        load: f64,
        draws: Rng,
    ) -> Self {
        let pace = match (times.unit_us(), arrivals) {
            (None, Some(arrivals)) => Pace::Rate { arrivals, draws, now: Instant::ZERO },
            (unit_us, _) => {
                let unit_ns = (unit_us.unwrap_or(1) * 1_000) as f64 / load;
                Pace::Stamps { unit_ns: (unit_ns as u64).max(1), draws, origin: None }
            }
        };
        Self { trace, sample, requests: None, pace, due: VecDeque::new(), next: None }
    }

    pub(crate) fn name(&self) -> String {
        self.trace.name()
    }

    /// Returns the next request of the trace and its arrival time.
    pub(crate) fn next(&mut self) -> Result<(Instant, Request), NoMore> {
        if let Some(due) = self.due.pop_front() {
            return Ok(due);
        }
        let first = match self.next.take() {
            Some(first) => first,
            None => self.read()?.ok_or(NoMore::End)?,
        };
        if let Pace::Rate { arrivals, draws, now } = &mut self.pace {
            *now += arrivals.next_gap(draws);
            return Ok((*now, first));
        }
        let alike = self.read_alike(first)?;
        self.due = self.pace.spread(alike);
        self.due.pop_front().ok_or(NoMore::End)
    }

    /// Reads all requests with the first one's time stamp.
    fn read_alike(&mut self, first: Request) -> Result<Vec<Request>, NoMore> {
        let time = first.time;
        let mut alike = vec![first];
        while let Some(request) = self.read()? {
            if request.time != time {
                self.next = Some(request);
                break;
            }
            if alike.len() == ALIKE_MAX {
                return Err(NoMore::Error(too_many(request.at, time)));
            }
            alike.push(request);
        }
        Ok(alike)
    }

    fn read(&mut self) -> Result<Option<Request>, NoMore> {
        let failed = |error: TraceError| NoMore::Error(error.to_string());
        let requests = match &mut self.requests {
            Some(requests) => requests,
            None => self.requests.insert(self.trace.requests(self.sample).map_err(failed)?),
        };
        requests.next().transpose().map_err(failed)
    }
}

fn too_many(at: Position, time: i64) -> String {
    format!(
        "the trace at {at} has more than {ALIKE_MAX} requests of one time, {time}: set `trace.times` to \"rate\", or take a trace with finer times"
    )
}

impl Pace {
    /// Assigns to each request of one time stamp a random time within the stamp's unit.
    fn spread(&mut self, alike: Vec<Request>) -> VecDeque<(Instant, Request)> {
        let Self::Stamps { unit_ns, draws, origin } = self else { return VecDeque::new() };
        let time = alike[0].time;
        let origin = *origin.get_or_insert(time);
        let units = u64::try_from(i128::from(time) - i128::from(origin)).unwrap_or(u64::MAX);
        let mut within: Vec<u64> = alike
            .iter()
            .map(|_| ((u128::from(draws.next_u64()) * u128::from(*unit_ns)) >> 64) as u64)
            .collect();
        within.sort_unstable();
        let moment =
            |ns: u64| Instant::ZERO + Duration::from_nanos(units.saturating_mul(*unit_ns).saturating_add(ns));
        within.into_iter().map(moment).zip(alike).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::stream;

    /// A trace with a request at each of these times in seconds, which ends with or without an
    /// error.
    #[derive(Clone, Debug)]
    struct Stamped(Vec<i64>, bool);

    impl Trace for Stamped {
        fn name(&self) -> String {
            "times".to_owned()
        }

        fn requests(&self, _: u32) -> Result<Requests, TraceError> {
            let wrong =
                self.1.then_some(Err(TraceError::Truncated { at: Position::Line(9), expected: "a line" }));
            let request = |(line, time)| Ok(Request { at: Position::Line(line), time, queries: Vec::new() });
            Ok(Box::new((1..).zip(self.0.clone()).map(request).chain(wrong)))
        }
    }

    fn recorded(times: &[i64], wrong: bool, load: f64) -> Recorded {
        let trace = Arc::new(Stamped(times.to_vec(), wrong));
        Recorded::new(trace, 1, Times::S, None, load, stream(1, 9))
    }

    fn seconds(recorded: &mut Recorded) -> Vec<f64> {
        std::iter::from_fn(|| recorded.next().ok()).map(|(at, _)| at.as_nanos() as f64 / 1e9).collect()
    }

    #[test]
    fn requests_of_a_trace_arrive_in_order_within_their_second_divided_by_load() {
        let found = seconds(&mut recorded(&[70, 70, 70, 72], false, 1.0));
        assert!(found.is_sorted() && found[2] < 1.0 && (2.0..3.0).contains(&found[3]), "{found:?}");
        assert!(found[0] < found[1] && found[1] < found[2]);
        let twice = seconds(&mut recorded(&[70, 70, 70, 72], false, 2.0));
        assert!((twice[3] - found[3] / 2.0).abs() < 1e-8, "{twice:?} {found:?}");
    }

    #[test]
    fn end_of_a_trace_differs_from_a_read_error() {
        let mut whole = recorded(&[1], false, 1.0);
        assert!(whole.next().is_ok() && matches!(whole.next(), Err(NoMore::End)));
        let mut cut = recorded(&[1, 2], true, 1.0);
        assert!(cut.next().is_ok());
        let Err(NoMore::Error(detail)) = cut.next() else { panic!("the line after is cut off") };
        assert!(detail.contains("line 9"), "{detail}");
    }

    #[test]
    fn too_many_requests_of_one_time_stamp_are_refused() {
        let mut endless = recorded(&vec![3; ALIKE_MAX + 1], false, 1.0);
        let Err(NoMore::Error(detail)) = endless.next() else {
            panic!("they are read before the first arrives")
        };
        assert!(
            detail.starts_with("the trace at line 262145 has more than 262144 requests of one time, 3: set"),
            "{detail}"
        );
    }
}
