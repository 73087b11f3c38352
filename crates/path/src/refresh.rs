//! When a stale value is not to be made fresh again yet.
//!
//! A request that takes a stale value at once has another fetched, and waits for nothing. One fetch
//! of a key is under way at a time, so a backend that answers is asked once. One that fails is
//! asked again by the next request; and where it fails at once, as a service does whose own backend
//! is down, it is asked as fast as it can say no, for every popular key that is stale. Nobody is
//! helped by that: all of them have their answers. So a key whose fetch has failed rests for as
//! long as a fetch may take. Then a failure at once costs the backend no more than no answer at
//! all, and the first request after the backend is back waits for nothing either.
//!
//! Only fetches that nobody waits for are held back. Who has no answer without it asks at once.

use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

use hashbrown::HashMap;
use sherwood_model::{Instant, SeededState};

/// The keys of one backend that rest.
///
/// A constant number of hash operations for each call, each key added costs one removal. At most
/// `keys_max` are remembered; the oldest make room, and are asked for again sooner than they should
/// be.
#[derive(Clone, Debug)]
pub struct Refreshes<K> {
    rest: Duration,
    keys_max: usize,
    until: HashMap<K, Instant, SeededState>,
    /// Keys by the end of their rest. One whose rest ended early, or is another by now, is still
    /// here.
    order: VecDeque<(Instant, K)>,
}

impl<K: Clone + Eq + Hash> Refreshes<K> {
    /// None rests so far; of those whose fetch fails at most `keys_max` rest, each for `rest`.
    #[must_use]
    pub fn new(rest: Duration, keys_max: u32, hash: SeededState) -> Self {
        Self { rest, keys_max: keys_max as usize, until: HashMap::with_hasher(hash), order: VecDeque::new() }
    }

    /// A fetch of `key` ended at `now`, whoever waited for it; `failed` says whether it brought
    /// neither a value nor the word that there is none.
    pub fn note(&mut self, now: Instant, key: &K, failed: bool) {
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

    /// Whether a fetch of `key` that nobody waits for is to begin at `now`.
    pub fn may_begin(&mut self, now: Instant, key: &K) -> bool {
        self.forget_rested(now);
        !self.until.contains_key(key)
    }

    /// Keys that rest, and such as did and are not forgotten yet.
    #[must_use]
    pub fn keys(&self) -> usize {
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

    fn refreshes(keys_max: u32) -> Refreshes<u8> {
        Refreshes::new(REST, keys_max, SeededState::new(1))
    }

    #[test]
    fn a_key_whose_fetch_failed_rests_and_no_other() {
        let mut refreshes = refreshes(9);
        refreshes.note(at(0), &1, true);
        let begin = |refreshes: &mut Refreshes<u8>, now| [1, 2].map(|key| refreshes.may_begin(at(now), &key));
        assert_eq!([begin(&mut refreshes, 0), begin(&mut refreshes, 9)], [[false, true]; 2]);
        assert_eq!((begin(&mut refreshes, 10), refreshes.keys()), ([true, true], 0));
    }

    #[test]
    fn a_value_ends_the_rest_and_another_failure_begins_one() {
        let mut refreshes = refreshes(9);
        refreshes.note(at(0), &1, true);
        refreshes.note(at(4), &1, false);
        assert!(refreshes.may_begin(at(4), &1));
        refreshes.note(at(6), &1, true);
        assert!(!refreshes.may_begin(at(15), &1), "the first rest would be over");
        assert!(refreshes.may_begin(at(16), &1));
    }

    #[test]
    fn failures_of_who_waits_do_not_put_it_off_for_ever() {
        let mut refreshes = refreshes(9);
        (0..10).for_each(|now| refreshes.note(at(now), &1, true));
        assert!(refreshes.may_begin(at(10), &1));
    }

    proptest! {
        #[test]
        fn what_rests_failed_within_the_time_and_no_more_than_may_be_are_remembered(
            steps in prop::collection::vec((0..4_u64, 0..6_u8, any::<bool>()), 1..200), keys_max in 0..4_u32,
        ) {
            let (mut refreshes, mut now, mut failed) = (refreshes(keys_max), 0, [None; 6]);
            for (after, key, fails) in steps {
                now += after;
                refreshes.note(at(now), &key, fails);
                failed[usize::from(key)] = fails.then_some(now);
                prop_assert!(refreshes.keys() <= keys_max as usize);
                for key in 0..6_u8 {
                    let lately = failed[usize::from(key)].is_some_and(|failed: u64| now < failed + 10);
                    prop_assert!(lately || refreshes.may_begin(at(now), &key));
                }
            }
        }
    }
}
