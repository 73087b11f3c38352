//! Trust in the cached values of one shared backend.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sherwood_model::{Instant, PartitionId, SeededState};

use super::fetch_times::FetchTimes;
use super::terms::{SharedTerms, WithoutBus};

/// Divisor of [`SharedTerms::stale`] that gives its margin: clocks of nodes run within 1% of each
/// other.
const CLOCK_MARGIN: u32 = 100;

/// The cached values of a backend that several nodes cache, and how long they may be trusted.
///
/// [`Peers`](super::Peers) sets until when this node has received all changes of its peers. Up to
/// [`SharedTerms::stale`] after that time, all cached values are fresh. Later, a value is fresh for
/// as long after the start of its fetch, and stale afterwards. It is fresh again once the changes
/// that were missing have been received.
///
/// Threads share it. While all values are trusted, a look-up costs one atomic load; otherwise a
/// look-up in a table under a lock.
#[derive(Debug)]
pub struct SharedValues {
    terms: SharedTerms,
    /// [`SharedTerms::stale`] less the margin for clocks.
    span: Duration,
    /// Time until which all changes of all peers were received, nanoseconds; 0 for none.
    complete_until: AtomicU64,
    /// Time from which writes may be acknowledged, nanoseconds.
    writes_from: AtomicU64,
    fetch_times: Mutex<FetchTimes>,
    untrusted: AtomicU64,
}

impl SharedValues {
    /// Creates the record of a backend without cached values. Writes are refused until
    /// [`Peers`](super::Peers) permit them.
    #[must_use]
    pub fn new(terms: SharedTerms, hash: SeededState) -> Self {
        let span = terms.stale - terms.stale / CLOCK_MARGIN;
        Self {
            terms,
            span,
            complete_until: AtomicU64::new(0),
            writes_from: AtomicU64::new(u64::MAX),
            fetch_times: Mutex::new(FetchTimes::new(span, hash)),
            untrusted: AtomicU64::new(0),
        }
    }

    /// The terms of the backend.
    #[must_use]
    pub fn terms(&self) -> SharedTerms {
        self.terms
    }

    /// Time for which values are trusted after all changes were received, by any node's clock.
    pub(super) fn span(&self) -> Duration {
        self.span
    }

    /// Returns the time until which all cached values are trusted.
    #[must_use]
    #[inline]
    pub fn trusted_until(&self) -> Instant {
        Instant::from_nanos(self.complete_until.load(Relaxed)) + self.span
    }

    /// Returns the record itself if some cached values may not be trusted at `now`, to be asked for
    /// each of them.
    #[must_use]
    #[inline]
    pub fn doubted(&self, now: Instant) -> Option<&Self> {
        (now > self.trusted_until()).then_some(self)
    }

    /// Returns the time since which the cached value of a key is stale because changes of peers may
    /// be missing; none if the value may be used. Counts the values that are not trusted.
    pub fn stale_since(&self, now: Instant, partition: PartitionId, key: &[u8]) -> Option<Instant> {
        let trusted_until = self.trusted_until();
        if now <= trusted_until {
            return None;
        }
        let began = self.fetch_times().began(partition, key);
        let until = began.map_or(trusted_until, |began| trusted_until.max(began + self.span));
        if now <= until {
            return None;
        }
        self.untrusted.fetch_add(1, Relaxed);
        match self.terms.without_bus {
            WithoutBus::Bounded => Some(until),
            WithoutBus::Ttl => None,
        }
    }

    /// Returns the time from which a write may be acknowledged; none if it may be now.
    #[must_use]
    pub fn writes_from(&self, now: Instant) -> Option<Instant> {
        let from = Instant::from_nanos(self.writes_from.load(Relaxed));
        (from > now && self.terms.without_bus == WithoutBus::Bounded).then_some(from)
    }

    /// Returns the number of look-ups so far whose value was not trusted.
    #[must_use]
    pub fn untrusted(&self) -> u64 {
        self.untrusted.load(Relaxed)
    }

    /// Notes that the cache gets a value of a key whose fetch, or write, `began` then.
    pub fn note_fetched(&self, now: Instant, partition: PartitionId, key: &[u8], began: Instant) {
        self.fetch_times().note(now, partition, key, began);
    }

    /// Takes in a client's change of a key in the cache that began then, with the versions of the
    /// value before and after it, which two values never share; none where there is no value. A new
    /// value counts as fetched when the change began. Returns true if the other nodes have to know:
    /// not if the value has stayed, as under a condition that was not met.
    pub fn handle_change(
        &self,
        began: Instant,
        partition: PartitionId,
        key: &[u8],
        (before, after): (Option<u64>, Option<u64>),
    ) -> bool {
        let has_changed = before != after;
        if has_changed && after.is_some() {
            self.note_fetched(began, partition, key, began);
        }
        // A removal concerns other nodes, whether this one had the key or not.
        has_changed || after.is_none()
    }

    /// Sets the time until which all changes of all peers were received, and the time from which
    /// writes may be acknowledged.
    pub(super) fn set(&self, complete_until: Instant, writes_from: Instant) {
        self.complete_until.store(complete_until.as_nanos(), Relaxed);
        self.writes_from.store(writes_from.as_nanos(), Relaxed);
    }

    fn fetch_times(&self) -> std::sync::MutexGuard<'_, FetchTimes> {
        self.fetch_times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(0);

    fn values(without_bus: WithoutBus) -> SharedValues {
        let terms = SharedTerms { stale: Duration::from_secs(2), without_bus };
        SharedValues::new(terms, SeededState::new(1))
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn value_is_trusted_until_stale_after_all_changes_or_its_fetch_began() {
        let values = values(WithoutBus::Bounded);
        values.set(at(1_000), Instant::ZERO);
        values.note_fetched(at(2_600), P, b"fetched", at(2_500));
        assert!(values.doubted(at(2_980)).is_none());
        assert_eq!(values.stale_since(at(2_980), P, b"old"), None);
        assert!(values.doubted(at(2_981)).is_some());
        assert_eq!(values.stale_since(at(2_981), P, b"old"), Some(at(2_980)));
        assert_eq!(values.stale_since(at(4_480), P, b"fetched"), None);
        assert_eq!(values.stale_since(at(4_481), P, b"fetched"), Some(at(4_480)));
        assert_eq!(values.stale_since(at(2_981), PartitionId(1), b"fetched"), Some(at(2_980)));
        assert_eq!(values.untrusted(), 3);
        values.set(at(4_000), Instant::ZERO);
        assert_eq!(values.stale_since(at(4_481), P, b"old"), None, "the changes were received");
    }

    #[test]
    fn values_are_served_and_counted_without_a_bus_if_the_terms_say_so() {
        let values = values(WithoutBus::Ttl);
        assert_eq!(values.stale_since(at(9_000), P, b"old"), None);
        assert_eq!((values.untrusted(), values.writes_from(at(1))), (1, None));
    }

    #[test]
    fn only_new_values_are_trusted_again_and_only_changes_and_removals_are_told() {
        let values = values(WithoutBus::Bounded);
        values.set(at(1_000), Instant::ZERO);
        let change = |key: &[u8], versions| values.handle_change(at(5_000), P, key, versions);
        let is_trusted = |key: &[u8]| values.stale_since(at(5_001), P, key).is_none();
        assert!(change(b"new", (None, Some(1))) && is_trusted(b"new"));
        assert!(change(b"other", (Some(1), Some(2))) && is_trusted(b"other"));
        assert!(!change(b"kept", (Some(2), Some(2))) && !is_trusted(b"kept"));
        assert!(change(b"removed", (Some(2), None)) && !is_trusted(b"removed"));
        assert!(change(b"absent", (None, None)) && !is_trusted(b"absent"));
    }

    #[test]
    fn writes_are_refused_until_they_are_permitted() {
        let values = values(WithoutBus::Bounded);
        assert_eq!(values.writes_from(at(5)), Some(Instant::NEVER));
        values.set(at(1), at(50));
        assert_eq!(values.writes_from(at(49)), Some(at(50)));
        assert_eq!(values.writes_from(at(50)), None);
    }
}
