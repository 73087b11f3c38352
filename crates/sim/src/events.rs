//! What is going to happen, in the order in which it will.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use sherwood_model::Instant;

/// Events by time; those of one moment in the order in which they were scheduled, so that a run
/// never depends on how a heap happens to break ties.
///
/// Scheduling and taking cost O(log n) for n events that wait. The queue holds what its user
/// schedules and has no bound of its own.
///
/// ```
/// use sherwood_model::Instant;
/// use sherwood_sim::EventQueue;
///
/// let mut events = EventQueue::default();
/// events.schedule(Instant::from_millis(2), "second");
/// events.schedule(Instant::from_millis(1), "first");
/// events.schedule(Instant::from_millis(2), "third");
/// let order: Vec<_> = std::iter::from_fn(|| events.take_before(Instant::NEVER)).map(|(_, event)| event).collect();
/// assert_eq!(order, ["first", "second", "third"]);
/// ```
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Scheduled<E>>,
    scheduled: u64,
}

#[derive(Clone, Debug)]
struct Scheduled<E> {
    at: Instant,
    /// How many were scheduled before it.
    number: u64,
    event: E,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), scheduled: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Lets `event` happen at `at`.
    pub fn schedule(&mut self, at: Instant, event: E) {
        self.heap.push(Scheduled { at, number: self.scheduled, event });
        self.scheduled += 1;
    }

    /// The next event, if it happens before `end`.
    pub fn take_before(&mut self, end: Instant) -> Option<(Instant, E)> {
        self.heap.peek().filter(|next| next.at < end)?;
        self.heap.pop().map(|next| (next.at, next.event))
    }

    /// Events that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is going to happen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

/// The greatest is the next: a binary heap gives its greatest.
impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Scheduled<E> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_by_time_and_then_in_the_order_they_were_scheduled(times in prop::collection::vec(0u64..8, 0..64)) {
            let mut events = EventQueue::default();
            let mut expected: Vec<(Instant, usize)> = Vec::new();
            for (number, &millis) in times.iter().enumerate() {
                events.schedule(Instant::from_millis(millis), number);
                expected.push((Instant::from_millis(millis), number));
            }
            expected.sort_unstable();
            prop_assert_eq!(events.len(), times.len());
            let taken: Vec<_> = std::iter::from_fn(|| events.take_before(Instant::NEVER)).collect();
            prop_assert_eq!(taken, expected);
            prop_assert!(events.is_empty());
        }
    }

    #[test]
    fn what_happens_at_the_end_is_left() {
        let mut events = EventQueue::default();
        events.schedule(Instant::from_millis(3), ());
        assert_eq!(events.take_before(Instant::from_millis(3)), None);
        assert_eq!(events.take_before(Instant::from_millis(4)), Some((Instant::from_millis(3), ())));
    }
}
