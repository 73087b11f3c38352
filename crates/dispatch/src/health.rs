//! Health of a replica: whether it may be called, and the times of probes while it is down.
//!
//! ```text
//!            failures_max in a row
//!      up ───────────────────────────▶ down, waiting ◀────────────────┐
//!      ▲                                  │ interval is over: probe   │ failed or no answer in time:
//!      │                                  ▼                           │ the interval doubles
//!      └────────── probe succeeded ─── down, probing ─────────────────┘
//! ```
//!
//! Only a probe brings a replica back. A call that was in flight when the replica went down may
//! still succeed, but it shows only the state at the time of the call.

use std::time::Duration;

use sherwood_model::Instant;

use crate::ProbeOptions;
use crate::draws::Draws;

/// The health of a replica: up, or down and probed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Health {
    /// The replica may be called.
    Up {
        /// Number of failed calls since the last successful one.
        failures: u32,
    },
    /// The replica receives no calls, only probes.
    Down {
        /// The wait before the current or coming probe, without its random part.
        interval: Duration,
        probe: Probe,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Probe {
    /// No probe is in flight; the next one is due at this time.
    Waiting(Instant),
    /// A probe is in flight and times out at this time.
    Sent(Instant),
}

impl Health {
    pub(crate) const fn new() -> Self {
        Self::Up { failures: 0 }
    }

    pub(crate) const fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }

    /// Records a successful call.
    pub(crate) fn note_success(&mut self) {
        if let Self::Up { failures } = self {
            *failures = 0;
        }
    }

    /// Records a call that failed by the replica's fault. Returns true if that took the replica
    /// down.
    pub(crate) fn note_failure(&mut self, now: Instant, options: &ProbeOptions, draws: &mut Draws) -> bool {
        let Self::Up { failures } = self else { return false };
        *failures += 1;
        if *failures < options.failures_max {
            return false;
        }
        *self = Self::waiting(now, options.interval_min, draws);
        true
    }

    /// Records the outcome of a probe; ignored unless one is pending.
    pub(crate) fn note_probe(&mut self, now: Instant, ok: bool, options: &ProbeOptions, draws: &mut Draws) {
        let Self::Down { interval, probe: Probe::Sent(_) } = *self else { return };
        *self = if ok {
            Self::new()
        } else {
            Self::waiting(now, interval.saturating_mul(2).min(options.interval_max), draws)
        };
    }

    /// Returns the time to call [`Health::wake`]; none while no probe is due or in flight.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match *self {
            Self::Up { .. } => None,
            Self::Down { probe: Probe::Waiting(at) | Probe::Sent(at), .. } => Some(at),
        }
    }

    /// Ends a probe that got no answer in time. Returns true if a probe is to be sent, which then
    /// has `timeout` for its answer.
    pub(crate) fn wake(
        &mut self,
        now: Instant,
        timeout: Duration,
        options: &ProbeOptions,
        draws: &mut Draws,
    ) -> bool {
        match *self {
            Self::Down { probe: Probe::Sent(until), .. } if until <= now => {
                self.note_probe(now, false, options, draws);
                false
            }
            Self::Down { probe: Probe::Waiting(at), interval } if at <= now => {
                *self = Self::Down { probe: Probe::Sent(now + timeout), interval };
                true
            }
            _ => false,
        }
    }

    fn waiting(now: Instant, interval: Duration, draws: &mut Draws) -> Self {
        Self::Down { interval, probe: Probe::Waiting(draws.jittered(now, interval)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);
    const OPTIONS: ProbeOptions = ProbeOptions {
        failures_max: 3,
        interval_min: Duration::from_millis(100),
        interval_max: Duration::from_millis(1_000),
    };

    /// Wakes `health` whenever it is due and lets every probe fail. Returns the waits before the
    /// first `count` probes.
    fn waits_before_probes(health: &mut Health, draws: &mut Draws, count: usize) -> Vec<Duration> {
        let mut since = Instant::ZERO;
        let mut waits = Vec::new();
        while waits.len() < count {
            let now = health.next_timeout().expect("a replica that is down has something to wake up for");
            if health.wake(now, TIMEOUT, &OPTIONS, draws) {
                waits.push(now - since);
            } else {
                since = now;
            }
        }
        waits
    }

    #[test]
    fn replica_goes_down_only_after_failures_in_a_row() {
        let (mut health, mut draws) = (Health::new(), Draws::default());
        for _ in 0..10 {
            assert!(!health.note_failure(Instant::ZERO, &OPTIONS, &mut draws));
            assert!(!health.note_failure(Instant::ZERO, &OPTIONS, &mut draws));
            health.note_success();
        }
        assert!(health.is_up());
        assert!(!health.note_failure(Instant::ZERO, &OPTIONS, &mut draws));
        assert!(!health.note_failure(Instant::ZERO, &OPTIONS, &mut draws));
        assert!(health.note_failure(Instant::ZERO, &OPTIONS, &mut draws));
        assert!(!health.is_up());
        assert!(!health.note_failure(Instant::ZERO, &OPTIONS, &mut draws), "it goes down once");
    }

    #[test]
    fn intervals_of_failed_probes_grow_from_the_smallest_to_the_largest() {
        let (mut health, mut draws) = (Health::new(), Draws::default());
        for _ in 0..3 {
            health.note_failure(Instant::ZERO, &OPTIONS, &mut draws);
        }
        let waits = waits_before_probes(&mut health, &mut draws, 7);
        for (wait, interval_ms) in waits.iter().zip([100, 200, 400, 800, 1_000, 1_000, 1_000]) {
            let interval = Duration::from_millis(interval_ms);
            assert!(interval <= *wait && *wait < interval + interval / 4, "{waits:?}");
        }
    }

    #[test]
    fn a_probe_that_succeeds_brings_the_replica_back_and_resets_the_schedule() {
        let (mut health, mut draws) = (Health::new(), Draws::default());
        for _ in 0..3 {
            health.note_failure(Instant::ZERO, &OPTIONS, &mut draws);
        }
        waits_before_probes(&mut health, &mut draws, 5);
        let now = health.next_timeout().unwrap() - Duration::from_millis(1);
        health.note_probe(now, true, &OPTIONS, &mut draws);
        assert!(health.is_up());
        assert_eq!(health.next_timeout(), None);
        for _ in 0..3 {
            health.note_failure(now, &OPTIONS, &mut draws);
        }
        assert!(health.next_timeout().unwrap() - now < Duration::from_millis(125));
    }

    #[test]
    fn result_of_a_probe_that_is_not_in_flight_changes_nothing() {
        let (mut health, mut draws) = (Health::new(), Draws::default());
        health.note_probe(Instant::ZERO, false, &OPTIONS, &mut draws);
        assert!(health.is_up());
        for _ in 0..3 {
            health.note_failure(Instant::ZERO, &OPTIONS, &mut draws);
        }
        let due = health.next_timeout();
        health.note_probe(Instant::ZERO, true, &OPTIONS, &mut draws);
        assert!(!health.is_up());
        assert_eq!(health.next_timeout(), due);
    }

    #[test]
    fn clock_that_stands_still_causes_only_one_probe() {
        let (mut health, mut draws) = (Health::new(), Draws::default());
        for _ in 0..3 {
            health.note_failure(Instant::ZERO, &OPTIONS, &mut draws);
        }
        let due = health.next_timeout().unwrap();
        assert!(health.wake(due, TIMEOUT, &OPTIONS, &mut draws));
        assert!((0..100).all(|_| !health.wake(due, TIMEOUT, &OPTIONS, &mut draws)));
    }
}
