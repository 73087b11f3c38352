//! Trust in the cached values of all shared backends together.

use std::sync::Arc;

use sherwood_model::Instant;

use super::shared::SharedValues;
use super::terms::WithoutBus;

/// The shared backends of a node, to be asked once for many look-ups and changes.
///
/// [`Peers`](super::Peers) sets the same times for all of them. A call costs two atomic loads,
/// however many backends there are.
#[derive(Clone, Debug, Default)]
pub struct SharedBackends {
    /// The values that are trusted for the shortest time after all changes were received: if some
    /// may not be trusted, these are among them.
    first_doubted: Option<Arc<SharedValues>>,
    /// The values of a backend with [`WithoutBus::Bounded`]. Such backends refuse changes until the
    /// same time, and others never do.
    bounded: Option<Arc<SharedValues>>,
}

/// The trust in the values of all shared backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverallTrust {
    /// True if some cached values may not be trusted, to be asked by key
    /// ([`SharedValues::stale_since`]).
    pub doubts_values: bool,
    /// True if changes of some backends are refused, to be asked by backend
    /// ([`SharedValues::writes_from`]).
    pub refuses_changes: bool,
}

impl SharedBackends {
    /// Creates the record of the shared backends with these values, in any order.
    #[must_use]
    pub fn new(values: &[Arc<SharedValues>]) -> Self {
        let is_bounded = |values: &&Arc<SharedValues>| values.terms().without_bus == WithoutBus::Bounded;
        Self {
            first_doubted: values.iter().min_by_key(|values| values.span()).cloned(),
            bounded: values.iter().find(is_bounded).cloned(),
        }
    }

    /// Returns the trust in the values of all backends at `now`.
    #[must_use]
    #[inline]
    pub fn trust(&self, now: Instant) -> OverallTrust {
        OverallTrust {
            doubts_values: self.first_doubted.as_ref().is_some_and(|first| first.doubted(now).is_some()),
            refuses_changes: self.bounded.as_ref().is_some_and(|values| values.writes_from(now).is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sherwood_model::SeededState;

    use super::super::SharedTerms;
    use super::*;

    fn values(stale: Duration, without_bus: WithoutBus) -> Arc<SharedValues> {
        let values = SharedValues::new(SharedTerms { stale, without_bus }, SeededState::new(1));
        values.set(Instant::from_millis(1_000), Instant::from_millis(1_500));
        Arc::new(values)
    }

    fn trust_at(millis: u64, all: &SharedBackends) -> (bool, bool) {
        let OverallTrust { doubts_values, refuses_changes } = all.trust(Instant::from_millis(millis));
        (doubts_values, refuses_changes)
    }

    #[test]
    fn values_are_doubted_once_those_of_any_backend_are_and_changes_refused_while_any_are() {
        let short = values(Duration::from_secs(1), WithoutBus::Ttl);
        let bounded = values(Duration::from_secs(2), WithoutBus::Bounded);
        for order in [[&short, &bounded], [&bounded, &short]] {
            let all = SharedBackends::new(&order.map(Arc::clone));
            assert_eq!(trust_at(1_499, &all), (false, true));
            assert_eq!(trust_at(1_500, &all), (false, false));
            assert_eq!(trust_at(1_990, &all), (false, false));
            assert_eq!(trust_at(1_991, &all), (true, false), "the values with the shorter time");
        }
    }

    #[test]
    fn backends_that_serve_values_without_a_bus_refuse_no_change() {
        let all = SharedBackends::new(&[values(Duration::from_secs(1), WithoutBus::Ttl)]);
        assert_eq!(trust_at(0, &all), (false, false));
        assert_eq!(SharedBackends::default().trust(Instant::NEVER), OverallTrust::default());
    }
}
