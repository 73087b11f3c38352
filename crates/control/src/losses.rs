//! Losses of cached items that the control loop did not cause: flushes, invalidations of most of a
//! backend, restarted caches. The misses that follow are not caused by the latest allocation, so
//! the guard discards its record of earlier allocations.

use sherwood_model::Instant;

use crate::LossesSeen;

/// The losses of cached items that the loop has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noticed {
    at: Instant,
    orders: u64,
    restarts: u64,
}

impl Noticed {
    /// Returns true if cached items were lost since the last call.
    pub(crate) fn advance(&mut self, now: Instant, seen: &LossesSeen, restarts: u64) -> bool {
        let LossesSeen { orders, due } = *seen;
        let last = std::mem::replace(self, Self { at: now, orders, restarts });
        last.orders != orders || last.restarts != restarts || (last.at < due && due <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flush_is_noticed_when_ordered_and_again_when_it_takes_effect_and_a_restart_once() {
        let (mut seen, mut noticed) = (LossesSeen::default(), Noticed::default());
        let at = Instant::from_secs;
        assert!(!noticed.advance(at(5), &seen, 0));
        (seen.orders, seen.due) = (1, at(7));
        assert!(noticed.advance(at(10), &seen, 0));
        assert!(!noticed.advance(at(15), &seen, 0));
        (seen.orders, seen.due) = (2, at(30));
        let later = [20, 25, 30, 35].map(|second| noticed.advance(at(second), &seen, 0));
        assert_eq!(later, [true, false, true, false]);
        assert!(noticed.advance(at(40), &seen, 1) && !noticed.advance(at(45), &seen, 1));
    }
}
