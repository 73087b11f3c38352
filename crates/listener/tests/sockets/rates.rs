//! Simulated rates of traffic: debts begin at random, and each is paid within milliseconds.

use std::sync::Mutex;
use std::time::Duration;

use sherwood_listener::Network;
use sherwood_model::{Instant, SplitMix64, TenantId};

/// Longest time of a debt, in microseconds.
const DEBT_MAX: u64 = 3_000;

/// Rates of traffic whose only tenant comes into debt after one in three exchanges.
pub(crate) struct SimulatedRates(Mutex<State>);

struct State {
    random: SplitMix64,
    paid_at: Instant,
}

impl SimulatedRates {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutex::new(State { random: SplitMix64::new(seed), paid_at: Instant::ZERO }))
    }
}

impl Network for SimulatedRates {
    fn charge(&self, now: Instant, _: TenantId, bytes: u64) -> Option<Instant> {
        let mut state = self.0.lock().expect("no panics while held");
        if bytes > 0 && state.random.next_u64().is_multiple_of(3) {
            let debt = Duration::from_micros(state.random.next_u64() % DEBT_MAX);
            state.paid_at = state.paid_at.max(now) + debt;
        }
        (state.paid_at > now).then_some(state.paid_at)
    }

    fn note_waiting(&self, _: TenantId, _: bool) {}
}
