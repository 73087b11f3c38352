//! Pauses after failed revalidations of stale keys.
//!
//! A request that is answered with a stale value triggers a fetch of the key and does not wait for
//! it. At most one fetch of a key is in flight, so a healthy backend is asked once. After a failure
//! the next request asks again; a backend that fails immediately, such as a service whose own
//! database is down, would get a fetch for every failure of every popular stale key. So a key whose
//! fetch has failed rests for the length of the backend's timeout. An immediate failure then causes
//! no more load than a missing answer.
//!
//! Only revalidations wait. A request that has no value without the fetch sends it at once.

use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

use hashbrown::HashMap;
use sherwood_model::{Instant, SeededState};

/// The keys of one backend whose last fetch failed.
///
/// A constant number of hash operations for each call. At most `keys_max` keys are remembered. When
/// there are more, the oldest are forgotten, and can be revalidated earlier.
#[derive(Clone, Debug)]
pub(crate) struct FailedKeys<K> {
    rest: Duration,
    keys_max: usize,
    until: HashMap<K, Instant, SeededState>,
    /// Keys by the end of their rest (time without revalidation), those included whose rest has
    /// ended early or begun again.
    order: VecDeque<(Instant, K)>,
}

impl<K: Clone + Eq + Hash> FailedKeys<K> {
    /// Creates a record of at most `keys_max` keys, which are not revalidated for `rest` after a
    /// failure.
    #[must_use]
    pub(crate) fn new(rest: Duration, keys_max: u32, hash: SeededState) -> Self {
        Self { rest, keys_max: keys_max as usize, until: HashMap::with_hasher(hash), order: VecDeque::new() }
    }

    /// Notes the end of a fetch of `key`, which `failed` or was answered.
    pub(crate) fn note(&mut self, now: Instant, key: &K, failed: bool) {
        self.forget_rested(now);
        if !failed {
            self.until.remove(key);
            return;
        }
        if self.rest.is_zero() || self.keys_max == 0 || self.until.contains_key(key) {
            return;
        }
        while self.order.len() >= self.keys_max {
            self.forget_first();
        }
        let until = now + self.rest;
        self.until.insert(key.clone(), until);
        self.order.push_back((until, key.clone()));
    }

    /// Returns true if a revalidation of `key` may begin at `now`.
    pub(crate) fn may_begin(&mut self, now: Instant, key: &K) -> bool {
        self.forget_rested(now);
        !self.until.contains_key(key)
    }

    /// Returns the number of keys remembered because their fetch failed, which may include keys
    /// whose rest is over.
    #[must_use]
    pub(crate) fn keys(&self) -> usize {
        self.order.len()
    }

    fn forget_rested(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((until, key)) = self.order.pop_front()
            && self.until.get(&key) == Some(&until)
        {
            self.until.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REST: Duration = Duration::from_millis(10);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn failed_keys(keys_max: u32) -> FailedKeys<u8> {
        FailedKeys::new(REST, keys_max, SeededState::new(1))
    }

    #[test]
    fn key_is_not_revalidated_for_a_while_after_its_fetch_failed() {
        let mut failed_keys = failed_keys(9);
        failed_keys.note(at(0), &1, true);
        let begin =
            |failed_keys: &mut FailedKeys<u8>, now| [1, 2].map(|key| failed_keys.may_begin(at(now), &key));
        assert_eq!([begin(&mut failed_keys, 0), begin(&mut failed_keys, 9)], [[false, true]; 2]);
        assert_eq!((begin(&mut failed_keys, 10), failed_keys.keys()), ([true, true], 0));
    }

    #[test]
    fn answer_ends_the_pause_of_a_failed_key_and_a_failure_begins_another() {
        let mut failed_keys = failed_keys(9);
        failed_keys.note(at(0), &1, true);
        failed_keys.note(at(4), &1, false);
        assert!(failed_keys.may_begin(at(4), &1));
        failed_keys.note(at(6), &1, true);
        assert!(!failed_keys.may_begin(at(15), &1), "the first rest would be over");
        assert!(failed_keys.may_begin(at(16), &1));
    }

    #[test]
    fn repeated_failures_do_not_extend_the_pause_of_a_key() {
        let mut failed_keys = failed_keys(9);
        (0..10).for_each(|now| failed_keys.note(at(now), &1, true));
        assert!(failed_keys.may_begin(at(10), &1));
    }

    proptest! {
        #[test]
        fn only_keys_that_failed_recently_pause_and_their_number_is_bounded(
            steps in prop::collection::vec((0..4_u64, 0..6_u8, any::<bool>()), 1..200), keys_max in 0..4_u32,
        ) {
            let (mut failed_keys, mut now, mut failed) = (failed_keys(keys_max), 0, [None; 6]);
            for (after, key, fails) in steps {
                now += after;
                failed_keys.note(at(now), &key, fails);
                failed[usize::from(key)] = fails.then_some(now);
                prop_assert!(failed_keys.keys() <= keys_max as usize);
                for key in 0..6_u8 {
                    let lately = failed[usize::from(key)].is_some_and(|failed: u64| now < failed + 10);
                    prop_assert!(lately || failed_keys.may_begin(at(now), &key));
                }
            }
        }
    }
}
