//! The timeouts of fetches.

use std::collections::VecDeque;

use sherwood_model::Instant;

use crate::slab::Id;

/// Fetches that have ended and may remain in the queue, beside as many as there are live ones.
const SPARE: usize = 32;

/// The timeouts of the live fetches of one backend, in their order.
///
/// Every fetch has the same timeout, so that most are added at the end. One that was asked for
/// before is inserted, in time linear in the fetches that were asked for since. Fetches that have
/// ended leave the queue when they reach the front, or together when they are more than the live
/// ones and [`SPARE`]: a constant number of steps for each fetch on average, and memory linear in
/// the most fetches that were ever live at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expiries {
    queue: VecDeque<(Instant, Id)>,
}

impl Expiries {
    /// Adds a fetch whose timeout is over at `at`.
    pub(crate) fn insert(&mut self, at: Instant, fetch: Id) {
        let before = self.queue.iter().rposition(|(other, _)| *other <= at);
        self.queue.insert(before.map_or(0, |last| last + 1), (at, fetch));
    }

    /// Returns the earliest timeout and its fetch, which has not ended.
    pub(crate) fn first(&self) -> Option<(Instant, Id)> {
        self.queue.front().copied()
    }

    /// Removes fetches that have ended. To be called after the end of each, with the number of
    /// fetches that are left.
    pub(crate) fn remove_ended(&mut self, live: usize, is_live: impl Fn(Id) -> bool) {
        while let Some(&(_, fetch)) = self.queue.front()
            && !is_live(fetch)
        {
            self.queue.pop_front();
        }
        if self.queue.len() > 2 * live + SPARE {
            self.queue.retain(|(_, fetch)| is_live(*fetch));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::slab::Slab;

    proptest! {
        #[test]
        fn first_timeout_is_of_the_oldest_live_fetch_and_ended_fetches_take_bounded_space(
            ends in prop::collection::vec(prop::option::of(0usize..100), 1..400),
        ) {
            let (mut expiries, mut slab, mut live) = (Expiries::default(), Slab::new(), BTreeSet::new());
            for (step, end) in ends.into_iter().enumerate() {
                match end.and_then(|index| live.iter().nth(index).copied()) {
                    Some((at, id)) => {
                        live.remove(&(at, id));
                        slab.remove(id);
                        expiries.remove_ended(slab.len(), |id| slab.get(id).is_some());
                    }
                    None => {
                        let (at, id) = (Instant::from_millis(step as u64), slab.insert(()));
                        expiries.insert(at, id);
                        live.insert((at, id));
                    }
                }
                prop_assert_eq!(expiries.first(), live.first().copied());
                prop_assert!(expiries.queue.len() <= 2 * live.len() + SPARE + 1);
            }
        }
    }

    #[test]
    fn fetch_that_was_asked_for_before_others_times_out_before_them() {
        let (mut expiries, mut slab) = (Expiries::default(), Slab::new());
        for ms in [1, 4, 2, 3, 0] {
            expiries.insert(Instant::from_millis(ms), slab.insert(()));
        }
        assert!(expiries.queue.iter().map(|(at, _)| *at).eq((0..5).map(Instant::from_millis)));
    }
}
