//! Hits and misses of a window, from counters that only grow.

use std::collections::VecDeque;
use std::time::Duration;

use sherwood_model::Instant;

/// Samples kept at most; with more decisions to a window than this, the window is cut short.
const SAMPLES_MAX: usize = 1_024;

/// Samples of every partition's counters, reaching back one window.
#[derive(Clone, Debug)]
pub struct CounterWindow {
    span: Duration,
    samples: VecDeque<(Instant, Vec<(u64, u64)>)>,
}

impl CounterWindow {
    /// A window that reaches back `span`, empty.
    #[must_use]
    pub fn new(span: Duration) -> Self {
        Self { span, samples: VecDeque::new() }
    }

    /// Takes a sample of every partition's (hits, misses) since the start, and says those since the
    /// window began.
    pub fn advance(&mut self, now: Instant, counts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        let begins = now - self.span;
        // The newest sample before the window is kept: it is what the window's counts are counted
        // from.
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
    fn counts_are_those_of_the_window() {
        let mut window = CounterWindow::new(Duration::from_secs(10));
        let held = |hits| vec![(hits, 2 * hits)];
        assert_eq!(window.advance(Instant::from_secs(100), held(5)), [(5, 10)]);
        assert_eq!(window.advance(Instant::from_secs(105), held(7)), [(2, 4)]);
        assert_eq!(window.advance(Instant::from_secs(112), held(9)), [(4, 8)]);
        assert_eq!(window.advance(Instant::from_secs(116), held(9)), [(2, 4)]);
        assert_eq!(window.advance(Instant::from_secs(200), held(10)), [(1, 2)]);
    }
}
