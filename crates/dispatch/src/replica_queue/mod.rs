//! The queue in front of one server.

use std::collections::VecDeque;

use sherwood_model::{Demand, Instant};

use crate::AttemptId;
use crate::rules::names::{AnyOrder, QueueChoice};
use crate::rules::{QueueOrder, Rank};

/// A bounded queue in front of a bounded number of workers, in the order of a [`QueueChoice`].
///
/// It knows which entry starts next and no time: its user starts what it is told to and reports
/// what has completed. It stands in front of each replica inside a [`Dispatch`](crate::Dispatch),
/// where the workers are calls in flight; and by itself in front of a server that several
/// dispatchers share, as in the simulator. Entries name what waits; no entry is queued twice.
///
/// # Complexity and memory
/// Starting and completing are O(1). Adding an entry that ranks after all others, as with `fifo`
/// all do, is O(1); any other takes its place in O(entries). Cancelling is O(entries before it). An
/// entry takes its own size and 16 bytes, at most the bound's number of times.
///
/// ```
/// use sherwood_dispatch::{QueueChoice, ReplicaQueue};
/// use sherwood_model::{Demand, Instant};
///
/// let (now, demand) = (Instant::ZERO, Demand::default());
/// let mut queue = ReplicaQueue::new(QueueChoice::Fifo, 1, 1);
/// assert!(queue.enqueue(now, 'a', &demand, 0));
/// assert_eq!(queue.start_next(), Some('a'));
/// assert!(queue.enqueue(now, 'b', &demand, 0));
/// assert!(!queue.enqueue(now, 'c', &demand, 0), "one works, one waits");
/// assert_eq!(queue.start_next(), None);
/// queue.complete();
/// assert_eq!(queue.start_next(), Some('b'));
/// ```
#[derive(Clone, Debug)]
pub struct ReplicaQueue<T = AttemptId> {
    order: AnyOrder,
    workers: u32,
    queued_max: u32,
    /// Number of entries that were started and have not completed.
    in_flight: u32,
    /// Waiting entries with the least rank first, equal ones in the order of arrival.
    queued: VecDeque<(Rank, T)>,
}

impl<T: Copy + PartialEq> ReplicaQueue<T> {
    /// Returns an empty queue in front of idle workers. It holds at most `workers + queued_max`
    /// entries, so that `queued_max` may wait while all workers are busy.
    #[must_use]
    pub fn new(order: QueueChoice, workers: u32, queued_max: u32) -> Self {
        Self { order: order.into(), workers, queued_max, in_flight: 0, queued: VecDeque::new() }
    }

    /// Returns true while the queue accepts one more entry.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let held = u64::from(self.in_flight) + self.queued.len() as u64;
        held < u64::from(self.workers) + u64::from(self.queued_max)
    }

    /// Adds an entry that arrives at `now`, and returns true; false if there is no room for it.
    /// `attempt` is 0 for the first attempt of a fetch and greater for extra ones.
    #[must_use]
    pub fn enqueue(&mut self, now: Instant, entry: T, demand: &Demand, attempt: u32) -> bool {
        if !self.has_room() {
            return false;
        }
        let rank = self.order.rank(now, demand, attempt);
        match self.queued.back() {
            Some((last, _)) if rank < *last => {
                let place = self.queued.partition_point(|(queued, _)| *queued <= rank);
                self.queued.insert(place, (rank, entry));
            }
            _ => self.queued.push_back((rank, entry)),
        }
        true
    }

    /// Removes a waiting entry, and returns true; false if it does not wait. An entry that was
    /// started keeps its worker until it completes.
    pub fn cancel(&mut self, entry: T) -> bool {
        let place = self.queued.iter().position(|(_, queued)| *queued == entry);
        place.is_some_and(|place| self.queued.remove(place).is_some())
    }

    /// Returns the next entry and makes a worker busy with it; none while no entry waits or no
    /// worker is idle.
    pub fn start_next(&mut self) -> Option<T> {
        if self.in_flight >= self.workers {
            return None;
        }
        let (_, entry) = self.queued.pop_front()?;
        if self.queued.is_empty() {
            // The ring begins again at its start, whose memory is in the processor's cache.
            self.queued.clear();
        }
        self.in_flight += 1;
        Some(entry)
    }

    /// Makes the worker of a started entry idle again. To be called once for each started entry.
    pub fn complete(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Returns the number of entries that were started and have not completed.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of entries that wait.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.queued.len() as u32
    }

    /// Returns the entries that wait, in the order in which they are going to start.
    pub fn entries(&self) -> impl Iterator<Item = T> {
        self.queued.iter().map(|(_, entry)| *entry)
    }

    /// Removes and returns all entries that wait, in the order in which they would have started.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.queued).into_iter().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sherwood_model::DeadlineClass;

    use super::*;

    fn add(queue: &mut ReplicaQueue<u32>, entry: u32) -> bool {
        queue.enqueue(Instant::ZERO, entry, &Demand::default(), 0)
    }

    #[test]
    fn queued_entries_start_in_order_of_arrival_while_a_worker_is_idle() {
        let mut queue = ReplicaQueue::new(QueueChoice::Fifo, 2, 9);
        assert!((1..=4).all(|entry| add(&mut queue, entry)));
        assert_eq!([queue.start_next(), queue.start_next(), queue.start_next()], [Some(1), Some(2), None]);
        assert_eq!((queue.in_flight(), queue.queued()), (2, 2));
        for expected in [Some(3), Some(4), None] {
            queue.complete();
            assert_eq!(queue.start_next(), expected);
        }
        assert_eq!(queue.in_flight(), 1);
    }

    #[test]
    fn full_queue_refuses_entries_and_queue_of_size_0_accepts_those_that_start_at_once() {
        let mut queue = ReplicaQueue::new(QueueChoice::Fifo, 1, 1);
        assert!(add(&mut queue, 1));
        assert_eq!(queue.start_next(), Some(1));
        assert_eq!([add(&mut queue, 2), add(&mut queue, 3)], [true, false]);
        let mut queue = ReplicaQueue::new(QueueChoice::Fifo, 1, 0);
        assert_eq!([add(&mut queue, 1), add(&mut queue, 2)], [true, false]);
        assert_eq!(queue.start_next(), Some(1));
        assert!(!add(&mut queue, 3));
        queue.complete();
        assert!(add(&mut queue, 4));
    }

    #[test]
    fn cancelled_entry_leaves_the_queue_and_a_started_one_keeps_its_worker() {
        let mut queue = ReplicaQueue::new(QueueChoice::Fifo, 1, 9);
        assert!((1..=3).all(|entry| add(&mut queue, entry)));
        assert_eq!(queue.start_next(), Some(1));
        assert_eq!([1, 2, 2].map(|entry| queue.cancel(entry)), [false, true, false]);
        assert_eq!(queue.start_next(), None);
        queue.complete();
        assert_eq!((queue.start_next(), queue.queued()), (Some(3), 0));
    }

    #[test]
    fn ranked_queue_starts_the_least_rank_first_and_equal_ranks_in_order_of_arrival() {
        let mut queue = ReplicaQueue::new(QueueChoice::Fifo, 1, 9);
        queue.order = AnyOrder::Test(|demand, attempt| Rank {
            class: demand.class.0,
            at: Instant::from_millis(attempt.into()),
        });
        for (entry, class, attempt) in [(1, 2, 0), (2, 1, 1), (3, 0, 5), (4, 1, 0), (5, 1, 1), (6, 2, 0)] {
            let demand = Demand { class: DeadlineClass(class), ..Demand::default() };
            assert!(queue.enqueue(Instant::ZERO, entry, &demand, attempt));
        }
        assert_eq!(queue.entries().collect::<Vec<_>>(), [3, 4, 2, 5, 1, 6]);
        assert_eq!(queue.take_all().collect::<Vec<_>>(), [3, 4, 2, 5, 1, 6]);
        assert_eq!(queue.queued(), 0);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Enqueue { class: u8, attempt: u32 },
        Cancel(u32),
        StartNext,
        Complete,
        TakeAll,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            8 => (0..3_u8, 0..3_u32).prop_map(|(class, attempt)| Step::Enqueue { class, attempt }),
            2 => (0..60_u32).prop_map(Step::Cancel),
            6 => Just(Step::StartNext),
            4 => Just(Step::Complete),
            1 => Just(Step::TakeAll),
        ];
        proptest::collection::vec(step, 0..120)
    }

    /// A reference implementation of the queue, whose operations take time linear in the entries.
    struct Model {
        room: usize,
        workers: usize,
        /// The rank and the number of each entry that waits. Numbers ascend with the arrival.
        waiting: Vec<((u8, u32), u32)>,
        in_flight: usize,
    }

    impl Model {
        fn enqueue(&mut self, rank: (u8, u32), entry: u32) -> bool {
            let has_room = self.in_flight + self.waiting.len() < self.room;
            self.waiting.extend(has_room.then_some((rank, entry)));
            has_room
        }

        fn cancel(&mut self, entry: u32) -> bool {
            let before = self.waiting.len();
            self.waiting.retain(|(_, waiting)| *waiting != entry);
            self.waiting.len() < before
        }

        fn start_next(&mut self) -> Option<u32> {
            let next = *self.waiting.iter().min().filter(|_| self.in_flight < self.workers)?;
            self.waiting.retain(|waiting| *waiting != next);
            self.in_flight += 1;
            Some(next.1)
        }

        fn in_order(&self) -> Vec<u32> {
            let mut waiting = self.waiting.clone();
            waiting.sort_unstable();
            waiting.into_iter().map(|(_, entry)| entry).collect()
        }
    }

    proptest! {
        /// Compares random operations with the reference. Entries are numbered in the order in
        /// which they are offered, and never reused.
        #[test]
        fn replica_queue_behaves_like_a_sorted_list(
            ranked: bool, workers in 0..4_u32, queued_max in 0..12_u32, steps in steps()
        ) {
            let mut queue = ReplicaQueue::new(QueueChoice::Fifo, workers, queued_max);
            if ranked {
                queue.order = AnyOrder::Test(|demand, attempt| Rank {
                    class: demand.class.0,
                    at: Instant::from_millis(attempt.into()),
                });
            }
            let (room, workers) = ((workers + queued_max) as usize, workers as usize);
            let mut model = Model { room, workers, waiting: Vec::new(), in_flight: 0 };
            for (entry, step) in (0..).zip(steps) {
                match step {
                    Step::Enqueue { class, attempt } => {
                        let demand = Demand { class: DeadlineClass(class), ..Demand::default() };
                        let rank = if ranked { (class, attempt) } else { (0, 0) };
                        let has_room = queue.has_room();
                        let is_queued = queue.enqueue(Instant::ZERO, entry, &demand, attempt);
                        prop_assert_eq!(is_queued, model.enqueue(rank, entry));
                        prop_assert_eq!(is_queued, has_room);
                    }
                    Step::Cancel(entry) => prop_assert_eq!(queue.cancel(entry), model.cancel(entry)),
                    Step::StartNext => prop_assert_eq!(queue.start_next(), model.start_next()),
                    Step::Complete => {
                        queue.complete();
                        model.in_flight = model.in_flight.saturating_sub(1);
                    }
                    Step::TakeAll => {
                        prop_assert_eq!(queue.take_all().collect::<Vec<_>>(), model.in_order());
                        model.waiting.clear();
                    }
                }
                prop_assert_eq!(queue.entries().collect::<Vec<_>>(), model.in_order());
                prop_assert_eq!(queue.queued() as usize, model.waiting.len());
                prop_assert_eq!(queue.in_flight() as usize, model.in_flight);
            }
        }
    }
}
