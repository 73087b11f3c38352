//! The latest values of a lever, for a roll-back to an earlier time.

use std::collections::VecDeque;

use sherwood_model::Instant;

/// Maximum number of values that are remembered. It covers more than the guard looks back at usual
/// intervals of decisions.
const VALUES_MAX: usize = 256;

/// The latest values of a lever, each with the time since which it is known to be in force.
#[derive(Clone, Debug)]
pub(crate) struct History<T> {
    values: VecDeque<(Instant, T)>,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        Self { values: VecDeque::new() }
    }
}

impl<T: PartialEq> History<T> {
    /// Records the value that is in force at `now`.
    pub(crate) fn note(&mut self, now: Instant, value: T) {
        if self.values.back().is_some_and(|(_, known)| *known == value) {
            return;
        }
        if self.values.len() == VALUES_MAX {
            self.values.pop_front();
        }
        self.values.push_back((now, value));
    }

    /// Returns the value that was in force at `then`, or the first one that is remembered; none if
    /// none was recorded.
    pub(crate) fn at(&self, then: Instant) -> Option<&T> {
        let known = self.values.iter().rev().find(|(since, _)| *since <= then);
        known.or(self.values.front()).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_a_time_is_the_last_noted_before_it_and_the_oldest_are_forgotten() {
        let (mut history, at) = (History::default(), Instant::from_secs);
        assert_eq!(history.at(at(1)), None);
        for (second, value) in [(5, 'a'), (10, 'a'), (15, 'b')] {
            history.note(at(second), value);
        }
        assert_eq!(
            [0, 5, 14, 15, 99].map(|second| *history.at(at(second)).unwrap()),
            ['a', 'a', 'a', 'b', 'b']
        );
        let mut history = History::default();
        (0..=VALUES_MAX as u64).for_each(|second| history.note(at(second), second));
        assert_eq!(history.at(at(0)), Some(&1));
    }
}
