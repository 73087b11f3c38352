//! Simulated rates of traffic: debts begin at random. Most are paid within milliseconds, and some
//! take longer than the timeouts of clients.

use std::sync::Mutex;
use std::time::Duration;

use sherwood_dispatch::Charged;
use sherwood_model::{Instant, SplitMix64, TenantId};

/// Longest time of most debts, in microseconds.
const DEBT_MAX: u64 = 3_000;
/// Longest time of some debts, in microseconds: more than the timeouts of clients.
const LONG_DEBT_MAX: u64 = 7_000_000;
/// Most of these debts, because clients have to be served within a bounded time.
const LONG_DEBTS_MAX: u32 = 5;

/// Rates of traffic whose only tenant comes into debt after one in three exchanges.
pub(crate) struct SimulatedRates(Mutex<State>);

struct State {
    random: SplitMix64,
    paid_at: Instant,
    /// Long debts that are still to begin.
    long_left: u32,
}

impl SimulatedRates {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutex::new(State {
            random: SplitMix64::new(seed),
            paid_at: Instant::ZERO,
            long_left: LONG_DEBTS_MAX,
        }))
    }
}

impl Charged for SimulatedRates {
    fn charge(&self, now: Instant, _: TenantId, bytes: f64) -> Option<Instant> {
        let mut state = self.0.lock().expect("no panics while held");
        if bytes > 0.0 && state.random.next_u64().is_multiple_of(3) {
            let is_long = state.long_left > 0 && state.random.next_u64().is_multiple_of(16);
            state.long_left -= u32::from(is_long);
            let micros_max = if is_long { LONG_DEBT_MAX } else { DEBT_MAX };
            let debt = Duration::from_micros(state.random.next_u64() % micros_max);
            state.paid_at = state.paid_at.max(now) + debt;
        }
        (state.paid_at > now).then_some(state.paid_at)
    }

    fn expected_start(&self, now: Instant, _: TenantId, _: f64, _: f64) -> Instant {
        now
    }

    fn is_shared(&self, _: Instant, _: TenantId) -> bool {
        false
    }

    fn note_waiting(&self, _: TenantId, _: bool) {}

    fn note_refused(&self, _: TenantId) {}
}
