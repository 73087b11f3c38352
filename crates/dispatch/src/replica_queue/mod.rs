//! The queue in front of one server.

mod forecast;
mod latencies;
mod ranked;
mod window;
mod work;

use std::collections::VecDeque;
use std::time::Duration;

use sherwood_model::{Demand, DemandKind, Instant};

use crate::rules::names::{AnyOrder, QueueChoice};
use crate::{AttemptId, Estimate};
use forecast::{Arriving, Outlook};
use latencies::Latencies;
use ranked::Ranked;
use sherwood_model::Percent;
pub(crate) use window::Window;
use work::Work;

/// A bounded queue in front of a bounded number of workers, in the order of a [`QueueChoice`].
///
/// It decides which entry starts next, and estimates when a new one would end. Its user starts what
/// it is told to and reports what has completed. It stands in front of each replica inside a
/// [`Dispatch`](crate::Dispatch), where the workers are calls in flight; and by itself in front of
/// a server that several dispatchers share, as in the simulator. Entries name what waits; no entry
/// is in the queue or in flight twice.
///
/// # Deadlines
/// An entry without a deadline has the [timeout](QueueOptions::timeout) as one. With `edf` the
/// earliest deadline starts first, and best effort last. A head of the queue that has less time
/// left than the α-quantile of the server's latencies is deferred, once, to the middle of the time
/// until its timeout. Writes keep their order among themselves and are not deferred.
///
/// # Complexity and memory
/// With `fifo`, an entry is added, started and completed in O(1), and cancelled in O(entries before
/// it); it takes its own size and 8 bytes. With `edf` all of these are O(log entries), amortised
/// over the deferrals, and an entry takes some 150 bytes. An estimate is a pass over 128 buckets of
/// deadlines, each at most a fifteenth as wide as it is far away, whatever the number of entries.
/// If latencies are measured, completing is O(workers), and the latencies take 14 KB.
///
/// ```
/// use sherwood_dispatch::{QueueOptions, QueuedCall, ReplicaQueue};
/// use sherwood_model::{Demand, Instant};
///
/// let (now, demand, call) = (Instant::ZERO, Demand::default(), QueuedCall::default());
/// let mut queue = ReplicaQueue::new(QueueOptions::fifo(1, 1));
/// assert!(queue.enqueue(now, 'a', &demand, call));
/// assert_eq!(queue.start_next(now), Some('a'));
/// assert!(queue.enqueue(now, 'b', &demand, call));
/// assert!(!queue.enqueue(now, 'c', &demand, call), "one works, one waits");
/// assert_eq!(queue.start_next(now), None);
/// queue.complete('a', None);
/// assert_eq!(queue.start_next(now), Some('b'));
/// ```
#[derive(Clone, Debug)]
pub struct ReplicaQueue<T = AttemptId> {
    order: AnyOrder,
    workers: u32,
    queued_max: u32,
    timeout: Duration,
    /// Number of entries that were started and have not completed.
    in_flight: u32,
    waiting: Waiting<T>,
    /// The server's latencies; none if neither the order nor estimates use them.
    latencies: Option<Box<Latencies<T>>>,
}

/// Settings of a [`ReplicaQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// The order in which entries start.
    pub order: QueueChoice,
    /// Number of entries that may be in flight.
    pub workers: u32,
    /// Number of entries that may wait while all workers are busy.
    pub queued_max: u32,
    /// Time after its arrival at which an entry is given up. It ranks an entry without a deadline,
    /// and a deferred one is due in the middle of what is left of it.
    pub timeout: Duration,
    /// The percentile of latencies that estimates take as the time of each call (β); none if no
    /// estimates are made.
    pub beta: Option<Percent>,
    /// True if [extra](QueuedCall::is_extra) calls start only when no other call waits (Gardner et
    /// al. 2017, "Redundancy-d", show that copies then delay no first call in the queue).
    pub extra_behind: bool,
}

/// Size of a call, and its place behind others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedCall {
    /// Number of keys that the call asks for, at least 1.
    pub keys: u32,
    /// True for a copy of a call that waits or runs elsewhere.
    pub is_extra: bool,
}

/// Entries that wait.
#[derive(Clone, Debug)]
enum Waiting<T> {
    /// In the order of arrival, each with its work.
    Arrival {
        queue: VecDeque<(T, DemandKind, u32)>,
        work: Work,
    },
    Ranked(Ranked<T>),
}

impl QueueOptions {
    /// Options of a queue that starts entries in the order of their arrival and makes no estimates.
    #[must_use]
    pub const fn fifo(workers: u32, queued_max: u32) -> Self {
        Self {
            order: QueueChoice::Fifo,
            workers,
            queued_max,
            timeout: TIMEOUT,
            beta: None,
            extra_behind: false,
        }
    }
}

impl Default for QueuedCall {
    fn default() -> Self {
        Self { keys: 1, is_extra: false }
    }
}

impl<T: Copy + Ord> ReplicaQueue<T> {
    /// Returns an empty queue in front of idle workers. It holds at most `workers + queued_max`
    /// entries, so that `queued_max` may wait while all workers are busy.
    #[must_use]
    pub fn new(options: QueueOptions) -> Self {
        Self::with_order(AnyOrder::new(options.order, options.timeout), options)
    }

    fn with_order(order: AnyOrder, options: QueueOptions) -> Self {
        let QueueOptions { order: choice, workers, queued_max, timeout, beta, extra_behind } = options;
        let alpha = choice.alpha();
        let latencies = (alpha.is_some() || beta.is_some())
            .then(|| Latencies::new(alpha.unwrap_or(Percent::ALPHA), beta.unwrap_or(Percent::BETA)))
            .map(Box::new);
        let waiting = match order {
            AnyOrder::Fifo(_) if !extra_behind => {
                Waiting::Arrival { queue: VecDeque::new(), work: Work::default() }
            }
            _ => Waiting::Ranked(Ranked::new(extra_behind)),
        };
        Self { order, workers, queued_max, timeout, in_flight: 0, waiting, latencies }
    }

    /// Returns true while the queue accepts one more entry.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.held() < u64::from(self.workers) + u64::from(self.queued_max)
    }

    fn held(&self) -> u64 {
        u64::from(self.in_flight) + self.len() as u64
    }

    fn len(&self) -> usize {
        match &self.waiting {
            Waiting::Arrival { queue, .. } => queue.len(),
            Waiting::Ranked(ranked) => ranked.len(),
        }
    }

    /// Returns the demand with a deadline: the timeout, if it has none.
    fn due(&self, now: Instant, demand: &Demand) -> Demand {
        Demand { deadline: Some(demand.deadline.unwrap_or(now + self.timeout)), ..*demand }
    }

    /// Adds an entry that arrives at `now`, and returns true; false if there is no room for it.
    #[must_use]
    pub fn enqueue(&mut self, now: Instant, entry: T, demand: &Demand, call: QueuedCall) -> bool {
        if !self.has_room() {
            return false;
        }
        let due = self.due(now, demand);
        let QueuedCall { keys, is_extra } = QueuedCall { keys: call.keys.max(1), ..call };
        match &mut self.waiting {
            Waiting::Arrival { queue, work } => {
                queue.push_back((entry, demand.kind, keys));
                *work += Work::new(demand.kind, keys);
            }
            Waiting::Ranked(ranked) => {
                ranked.push(now, &self.order, entry, due, QueuedCall { keys, is_extra })
            }
        }
        true
    }

    /// Moves a waiting entry to its place for a demand that has become more urgent.
    pub fn update(&mut self, now: Instant, entry: T, demand: &Demand) {
        let due = self.due(now, demand);
        match &mut self.waiting {
            Waiting::Arrival { .. } => {}
            Waiting::Ranked(ranked) => ranked.update(now, &self.order, entry, due),
        }
    }

    /// Removes a waiting entry, and returns true; false if it does not wait. An entry that was
    /// started keeps its worker until it completes.
    pub fn cancel(&mut self, entry: T) -> bool {
        match &mut self.waiting {
            Waiting::Arrival { queue, work } => {
                let place = queue.iter().position(|(queued, _, _)| *queued == entry);
                let Some((_, kind, keys)) = place.and_then(|place| queue.remove(place)) else { return false };
                *work -= Work::new(kind, keys);
                true
            }
            Waiting::Ranked(ranked) => ranked.remove(entry).is_some(),
        }
    }

    /// Returns the next entry and makes a worker busy with it; none while no entry waits or no
    /// worker is idle.
    pub fn start_next(&mut self, now: Instant) -> Option<T> {
        if self.in_flight >= self.workers {
            return None;
        }
        let (entry, kind, keys) = match &mut self.waiting {
            Waiting::Arrival { queue, work } => {
                let (entry, kind, keys) = queue.pop_front()?;
                if queue.is_empty() {
                    // The ring begins again at its start, whose memory is in the processor's cache.
                    queue.clear();
                }
                *work -= Work::new(kind, keys);
                (entry, kind, keys)
            }
            Waiting::Ranked(ranked) => {
                let quickest = self.latencies.as_ref().map(|latencies| latencies.quickest());
                let next = ranked.pop(now, &self.order, quickest.unwrap_or_default())?;
                (next.entry, next.demand.kind, next.keys)
            }
        };
        self.adopt(now, entry, kind, keys);
        Some(entry)
    }

    /// Starts the first waiting entry for which `may_start` returns true, in the queue's order, and
    /// returns it. Takes time linear in the entries before it.
    pub(crate) fn start_where(&mut self, now: Instant, mut may_start: impl FnMut(T) -> bool) -> Option<T> {
        if self.in_flight >= self.workers {
            return None;
        }
        let (entry, kind, keys) = match &mut self.waiting {
            Waiting::Arrival { queue, work } => {
                let place = queue.iter().position(|(entry, _, _)| may_start(*entry))?;
                let (entry, kind, keys) = queue.remove(place)?;
                *work -= Work::new(kind, keys);
                (entry, kind, keys)
            }
            Waiting::Ranked(ranked) => {
                let quickest = self.latencies.as_ref().map(|latencies| latencies.quickest());
                let next = ranked.pop_where(now, &self.order, quickest.unwrap_or_default(), may_start)?;
                (next.entry, next.demand.kind, next.keys)
            }
        };
        self.adopt(now, entry, kind, keys);
        Some(entry)
    }

    /// Makes a worker busy with an entry that has not waited here. There may then be more of them
    /// than workers, and no other entry starts.
    pub(crate) fn adopt(&mut self, now: Instant, entry: T, kind: DemandKind, keys: u32) {
        if let Some(latencies) = &mut self.latencies {
            latencies.start(now, entry, kind, keys);
        }
        self.in_flight += 1;
    }

    /// Makes the worker of a started entry idle again. To be called once for each started entry.
    /// `took` is the time that the server took, none if that says nothing about the next call: if
    /// it was refused, for example. Times over 10 minutes are counted and ignored.
    pub fn complete(&mut self, entry: T, took: Option<Duration>) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(latencies) = &mut self.latencies {
            latencies.complete(entry, took);
        }
    }

    /// Estimates the times of a call for `keys` keys that would be added at `now`. Before 64 calls
    /// have completed, and if the queue makes no estimates, calls take no time.
    #[must_use]
    pub fn estimate(&self, now: Instant, demand: &Demand, keys: u32) -> Estimate {
        let Demand { deadline, .. } = *demand;
        let deadline = deadline.unwrap_or(now + self.timeout);
        let starts_at_once = self.held() < u64::from(self.workers);
        let Some(latencies) = &self.latencies else {
            return Estimate {
                starts_at: now,
                completes_at: now,
                meets_deadline: now <= deadline,
                breaks_another: false,
                starts_at_once,
            };
        };
        let times = latencies.expected();
        let workers = self.workers.max(1);
        let own = Work::new(demand.kind, keys).time(times);
        let start = now + latencies.remaining(now) / workers;
        let Outlook { before, breaks_another } = match &self.waiting {
            Waiting::Arrival { work, .. } => {
                Outlook { before: work.time(times) / workers, breaks_another: false }
            }
            Waiting::Ranked(ranked) => {
                let demand = self.due(now, demand);
                ranked.outlook(now, &self.order, &demand, &Arriving { own, start, times, workers })
            }
        };
        let starts_at = if starts_at_once { now } else { start + before };
        let completes_at = starts_at + own;
        let meets_deadline = completes_at <= deadline;
        Estimate { starts_at, completes_at, meets_deadline, breaks_another, starts_at_once }
    }

    /// Returns the number of latencies that estimates are made of.
    #[cfg(test)]
    pub(crate) fn measured(&self) -> u64 {
        self.latencies.as_ref().map_or(0, |latencies| latencies.measured())
    }

    /// Makes estimates take another percentile of latencies.
    pub fn set_beta(&mut self, beta: Percent) {
        if let Some(latencies) = &mut self.latencies {
            latencies.set_beta(beta);
        }
    }

    /// Returns the number of entries that were started and have not completed.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of entries that wait.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.len() as u32
    }

    /// Returns the number of entries that were deferred since the queue was created.
    #[must_use]
    pub fn deferred(&self) -> u64 {
        match &self.waiting {
            Waiting::Arrival { .. } => 0,
            Waiting::Ranked(ranked) => ranked.deferred(),
        }
    }

    /// Returns the number of latencies that were ignored since the queue was created, because no
    /// call takes so long.
    #[must_use]
    pub fn dropped_latencies(&self) -> u64 {
        self.latencies.as_ref().map_or(0, |latencies| latencies.dropped())
    }

    /// Returns the entries that wait, in the order in which they are going to start unless they are
    /// deferred.
    pub fn entries(&self) -> impl Iterator<Item = T> {
        let (queue, ranked) = match &self.waiting {
            Waiting::Arrival { queue, .. } => (Some(queue), None),
            Waiting::Ranked(ranked) => (None, Some(ranked)),
        };
        let queue = queue.into_iter().flatten().map(|(entry, _, _)| *entry);
        queue.chain(ranked.into_iter().flat_map(Ranked::iter))
    }

    /// Removes and returns all entries that wait, in the order in which they would have started.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        let entries = self.entries().collect();
        match &mut self.waiting {
            Waiting::Arrival { queue, work } => {
                queue.clear();
                *work = Work::default();
            }
            Waiting::Ranked(ranked) => ranked.clear(),
        }
        entries
    }
}

/// Timeout of a queue that is given none, which is the default of a backend.
const TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod deadline_tests;
#[cfg(test)]
mod tests;
