//! Hits and misses within a time window, computed from cumulative counters.

use std::collections::VecDeque;
use std::time::Duration;

use sherwood_model::Instant;

/// Largest number of samples of the counters, one a decision; more decisions per window than this
/// shorten the window.
const SAMPLES_MAX: usize = 1_024;

/// Samples of every partition's cumulative hits and misses over one time window.
#[derive(Clone, Debug)]
pub struct CounterWindow {
    span: Duration,
    samples: VecDeque<(Instant, Vec<(u64, u64)>)>,
}

impl CounterWindow {
    /// Returns a window of hits and misses without samples, which covers `span`.
    #[must_use]
    pub fn new(span: Duration) -> Self {
        Self { span, samples: VecDeque::new() }
    }

    /// Adds a sample of every partition's cumulative (hits, misses), and returns the hits and
    /// misses since the window began. The first sample, and one of another number of partitions, is
    /// returned as it is.
    pub fn advance(&mut self, now: Instant, counts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        let begins = now - self.span;
        // The newest sample before the window is kept as the base of the difference.
        while self.samples.get(1).is_some_and(|(at, _)| *at <= begins) || self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        let base = self.samples.front().filter(|(_, base)| base.len() == counts.len());
        let seen = match base {
            Some((_, base)) => {
                let since = |(&(hits, misses), &(h, m)): (&(u64, u64), &(u64, u64))| {
                    (hits.saturating_sub(h), misses.saturating_sub(m))
                };
                counts.iter().zip(base).map(since).collect()
            }
            None => counts.clone(),
        };
        self.samples.push_back((now, counts));
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_window_returns_hits_and_misses_of_its_span_only() {
        let mut window = CounterWindow::new(Duration::from_secs(10));
        let held = |hits| vec![(hits, 2 * hits)];
        assert_eq!(window.advance(Instant::from_secs(100), held(5)), [(5, 10)]);
        assert_eq!(window.advance(Instant::from_secs(105), held(7)), [(2, 4)]);
        assert_eq!(window.advance(Instant::from_secs(112), held(9)), [(4, 8)]);
        assert_eq!(window.advance(Instant::from_secs(116), held(9)), [(2, 4)]);
        assert_eq!(window.advance(Instant::from_secs(200), held(10)), [(1, 2)]);
    }
}
