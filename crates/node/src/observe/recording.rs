//! Recording of requests and calls for a simulation of this node.
//!
//! `sherwood sim record` makes a scenario of a running node. Counters have the load; a recording
//! adds the kinds of requests (the backends each queries, and for how many keys) and the latencies
//! of calls. It costs a lock for each request and call, so it is active only between
//! [`Recording::begin`] and [`Recording::end`], and ends by itself at the announced time, in case
//! the client is gone.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sherwood_model::{BackendId, Instant, LatencySketch, SeededState};

/// Maximum of recorded kinds of requests; further ones are counted together.
const KINDS_MAX: usize = 1_024;

/// The current recording of requests and calls, if there is one.
pub(crate) struct Recording {
    on: AtomicBool,
    recorded: Mutex<Option<Recorded>>,
}

/// Data since the start of a recording.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) since: Instant,
    /// Time at which the recording ends by itself.
    until: Instant,
    /// Kinds of requests by the backends that they query, in the order of the backends' ids.
    pub(crate) kinds: HashMap<Vec<BackendId>, RecordedRequestKind, SeededState>,
    /// Number of requests of kinds beyond the maximum number of kinds.
    pub(crate) others: u64,
    /// Latencies of the requests with only cache hits.
    pub(crate) hits: LatencySketch,
    pub(crate) calls: Vec<Calls>,
}

/// Requests that query the same backends.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequestKind {
    pub(crate) requests: u64,
    /// Keys of each of the backends, in their order: the sum over the requests, and the sum of the
    /// squares.
    pub(crate) keys: Vec<(f64, f64)>,
}

/// Calls to a backend that were answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) keys: u64,
    pub(crate) latencies: LatencySketch,
}

impl Recording {
    /// Creates a recorder that records nothing yet.
    pub(crate) fn new() -> Self {
        Self { on: AtomicBool::new(false), recorded: Mutex::new(None) }
    }

    /// Begins a recording of at most `time`, replacing the current one.
    pub(crate) fn begin(&self, now: Instant, time: Duration, backends: usize) {
        let mut recorded = self.lock();
        *recorded = Some(Recorded {
            since: now,
            until: now + time,
            kinds: HashMap::with_hasher(SeededState::new(0)),
            others: 0,
            hits: LatencySketch::default(),
            calls: vec![Calls::default(); backends],
        });
        // Set under the lock, so that it stays consistent when beginnings and ends race.
        self.on.store(true, Relaxed);
    }

    /// Ends the recording and drops its data; returns false if there was none.
    pub(crate) fn end(&self, now: Instant) -> bool {
        let mut recorded = self.at(now);
        self.on.store(false, Relaxed);
        recorded.take().is_some()
    }

    /// Returns the data so far, if there is a recording.
    pub(crate) fn read(&self, now: Instant) -> Option<Recorded> {
        self.at(now).clone()
    }

    /// Returns whether a recording is being made.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Records a request with the number of keys that it queries from each backend, and its latency
    /// `hit` if all were in the cache. A request without backends is ignored.
    pub(crate) fn request(
        &self,
        now: Instant,
        hit: Option<Duration>,
        asked: impl Iterator<Item = (BackendId, usize)>,
    ) {
        let mut asked: Vec<(BackendId, usize)> = asked.collect();
        if asked.is_empty() {
            return;
        }
        asked.sort_unstable();
        asked.dedup_by(|later, first| {
            let same = later.0 == first.0;
            first.1 += if same { later.1 } else { 0 };
            same
        });
        if let Some(recorded) = self.at(now).as_mut() {
            recorded.note(&asked);
            if let Some(latency) = hit {
                recorded.hits.record(latency);
            }
        }
    }

    /// Records the answer to a call.
    pub(crate) fn call(&self, now: Instant, backend: BackendId, latency: Duration, keys: usize) {
        if self.is_on()
            && let Some(calls) =
                self.at(now).as_mut().and_then(|recorded| recorded.calls.get_mut(backend.index()))
        {
            calls.keys += keys as u64;
            calls.latencies.record(latency);
        }
    }

    /// Returns the recording, after ending it if its time is over.
    fn at(&self, now: Instant) -> MutexGuard<'_, Option<Recorded>> {
        let mut recorded = self.lock();
        if recorded.as_ref().is_some_and(|recorded| recorded.until <= now) {
            *recorded = None;
            self.on.store(false, Relaxed);
        }
        recorded
    }

    fn lock(&self) -> MutexGuard<'_, Option<Recorded>> {
        self.recorded.lock().expect("no panics while held")
    }
}

impl Recorded {
    fn note(&mut self, asked: &[(BackendId, usize)]) {
        let room = self.kinds.len() < KINDS_MAX;
        let kind = match self.kinds.entry(asked.iter().map(|(backend, _)| *backend).collect()) {
            Entry::Occupied(kind) => kind.into_mut(),
            Entry::Vacant(place) if room => {
                place.insert(RecordedRequestKind { requests: 0, keys: vec![(0.0, 0.0); asked.len()] })
            }
            Entry::Vacant(_) => {
                self.others += 1;
                return;
            }
        };
        kind.requests += 1;
        for ((sum, squares), &(_, keys)) in kind.keys.iter_mut().zip(asked) {
            (*sum, *squares) = (*sum + keys as f64, *squares + (keys * keys) as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: BackendId = BackendId(0);
    const B: BackendId = BackendId(1);
    const NOW: Instant = Instant::ZERO;
    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn recorded_requests_are_grouped_by_their_backends() {
        let recording = Recording::new();
        let ms = Duration::from_millis;
        recording.request(NOW, Some(ms(1)), [(A, 9)].into_iter());
        assert!(recording.read(NOW).is_none() && !recording.end(NOW), "nothing is noted before it begins");
        recording.begin(NOW, HOUR, 2);
        recording.request(NOW, Some(ms(1)), [(A, 2)].into_iter());
        recording.request(NOW, None, [(B, 1), (A, 2), (B, 3)].into_iter());
        recording.request(NOW, None, [(A, 1), (B, 2)].into_iter());
        recording.request(NOW, None, std::iter::empty());
        recording.call(NOW, B, ms(5), 3);
        let seen = recording.read(NOW).expect("it is on");
        assert_eq!((seen.kinds.len(), seen.others, seen.hits.count()), (2, 0, 1));
        assert_eq!((seen.kinds[&vec![A]].requests, &seen.kinds[&vec![A]].keys), (1, &vec![(2.0, 4.0)]));
        assert_eq!((seen.kinds[&vec![A, B]].requests, seen.kinds[&vec![A, B]].keys[1]), (2, (6.0, 20.0)));
        assert_eq!((seen.calls[1].keys, seen.calls[1].latencies.count(), seen.calls[0].keys), (3, 1, 0));
        assert!(recording.end(NOW) && recording.read(NOW).is_none());
    }

    #[test]
    fn recording_ends_by_itself_when_its_time_is_over() {
        let recording = Recording::new();
        recording.begin(NOW, HOUR, 1);
        let (last, over) = (NOW + HOUR - Duration::from_nanos(1), NOW + HOUR);
        recording.request(last, Some(HOUR), [(A, 1)].into_iter());
        assert_eq!(recording.read(last).expect("it is on").kinds.len(), 1);
        recording.request(over, Some(HOUR), [(A, 1)].into_iter());
        assert!(!recording.is_on(), "the first request afterwards ends it");
        assert!(recording.read(last).is_none(), "and what was noted is forgotten");
        for (what, look) in [
            ("a call", &(|recording: &Recording| recording.call(over, A, HOUR, 1)) as &dyn Fn(&Recording)),
            ("a reader", &|recording| assert!(recording.read(over).is_none())),
            ("whoever ends it", &|recording| assert!(!recording.end(over))),
        ] {
            recording.begin(NOW, HOUR, 1);
            look(&recording);
            assert!(!recording.is_on(), "{what} ends it too");
        }
    }

    #[test]
    fn requests_of_kinds_beyond_the_maximum_are_counted_together() {
        let recording = Recording::new();
        recording.begin(NOW, HOUR, 0);
        for id in 0..1_030 {
            recording.request(NOW, None, [(BackendId(id), 1)].into_iter());
        }
        let seen = recording.read(NOW).expect("it is on");
        assert_eq!((seen.kinds.len(), seen.others), (KINDS_MAX, 6));
    }
}
