//! Event queue of the simulation.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use sherwood_model::Instant;

/// Events in order of time, and within one time in the order in which they were scheduled, so that
/// a run does not depend on the tie-breaking of a heap.
///
/// Scheduling and taking cost O(log n) for n pending events. The queue has no bound of its own; its
/// user bounds what it schedules.
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
    /// Number of events scheduled before this one.
    number: u64,
    event: E,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), scheduled: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Schedules `event` at `at`.
    pub fn schedule(&mut self, at: Instant, event: E) {
        self.heap.push(Scheduled { at, number: self.scheduled, event });
        self.scheduled += 1;
    }

    /// Takes the next event if it is before `end`.
    pub fn take_before(&mut self, end: Instant) -> Option<(Instant, E)> {
        self.heap.peek().filter(|next| next.at < end)?;
        self.heap.pop().map(|next| (next.at, next.event))
    }

    /// Number of pending events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if no event is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

/// Reversed: the earliest event is the greatest, which a binary heap returns first.
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
        fn events_are_ordered_by_time_then_by_scheduling(times in prop::collection::vec(0u64..8, 0..64)) {
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
    fn event_at_the_end_of_the_time_taken_stays_pending() {
        let mut events = EventQueue::default();
        events.schedule(Instant::from_millis(3), ());
        assert_eq!(events.take_before(Instant::from_millis(3)), None);
        assert_eq!(events.take_before(Instant::from_millis(4)), Some((Instant::from_millis(3), ())));
    }
}
