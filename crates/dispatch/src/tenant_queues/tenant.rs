//! The queue, rate and use of a tenant.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_model::{Instant, TokenBucket};

use super::{BURST, LATE_MAX, Payer, TenantUse};

/// A tenant: what waits, in the order of arrival, and what it has used.
#[derive(Clone, Debug)]
pub(super) struct Tenant<T> {
    waiting: BTreeMap<u64, Waiting<T>>,
    /// The time since which something waits without a break, if something does.
    waits_since: Instant,
    /// Units of what waits.
    waiting_units: f64,
    pub(super) bucket: TokenBucket,
    /// Units that were not used and may be used later, where that is longer than [`BURST`].
    burst_units: u32,
    /// Units per second; none without a limit.
    per_s: Option<f64>,
    /// Virtual time at which the next work starts: all units by the rate, own and lent.
    pub(super) tag: Instant,
    own: Meter,
    lent: Meter,
    pub(super) refused: u64,
}

/// A counter of units that never falls: units given back are taken off those that follow.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    counted: f64,
    given_back: f64,
}

impl Meter {
    fn count(&mut self, units: f64) {
        let covered = units.min(self.given_back);
        self.given_back -= covered;
        self.counted += units - covered;
    }

    fn give_back(&mut self, units: f64) {
        self.given_back += units;
    }
}

/// Work that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<T> {
    pub(super) work: T,
    pub(super) units: f64,
}

impl<T> Tenant<T> {
    /// Makes a tenant without a limit, which may use this many units later, or those of a time.
    pub(super) fn new(burst_units: u32) -> Self {
        Self {
            waiting: BTreeMap::new(),
            waits_since: Instant::ZERO,
            waiting_units: 0.0,
            bucket: TokenBucket::unlimited(BURST),
            burst_units,
            per_s: None,
            tag: Instant::ZERO,
            own: Meter::default(),
            lent: Meter::default(),
            refused: 0,
        }
    }

    pub(super) fn set_rate(&mut self, now: Instant, per_s: Option<f64>) {
        self.bucket.set_rate(now, per_s);
        let of_units = per_s.map_or(0.0, |per_s| f64::from(self.burst_units) / per_s);
        self.bucket.set_burst(BURST.max(seconds(of_units)));
        self.per_s = per_s;
    }

    /// Number of works that wait.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.len() as u32
    }

    /// Returns the time at which work that comes now would start by the tenant's own rate.
    pub(super) fn expected_start(&self, now: Instant) -> Instant {
        let before = self.per_s.map_or(0.0, |per_s| self.waiting_units / per_s);
        self.bucket.ready_at().max(now) + seconds(before)
    }

    /// The time since which work that starts now has kept the rate from being unused, no longer ago
    /// than [`LATE_MAX`].
    pub(super) fn waits_since(&self, now: Instant) -> Instant {
        self.waits_since.max(now - LATE_MAX)
    }

    /// Adds work, and returns how much waits with it.
    pub(super) fn push(&mut self, now: Instant, serial: u64, waiting: Waiting<T>) -> u32 {
        if self.waiting.is_empty() {
            self.waits_since = now;
        }
        self.waiting_units += waiting.units;
        self.waiting.insert(serial, waiting);
        self.waiting()
    }

    /// Removes the work that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Waiting<T>> {
        let (serial, _) = self.waiting.first_key_value()?;
        self.take(*serial)
    }

    /// Removes the work of this serial number.
    pub(super) fn take(&mut self, serial: u64) -> Option<Waiting<T>> {
        let waiting = self.waiting.remove(&serial)?;
        // Exact when nothing waits, so that rounding errors do not add up.
        let left = if self.waiting.is_empty() { 0.0 } else { self.waiting_units - waiting.units };
        self.waiting_units = left.max(0.0);
        Some(waiting)
    }

    /// Charges units of work that starts or was done now and has waited since `since`.
    pub(super) fn charge(&mut self, now: Instant, since: Instant, payer: Payer, units: f64) {
        match payer {
            Payer::Own => {
                self.bucket.charge_waited(now, since, units);
                self.own.count(units);
            }
            Payer::Lent => self.lent.count(units),
        }
        self.tag += self.per_s.map_or(Duration::ZERO, |per_s| seconds(units / per_s));
    }

    /// Takes back a charge.
    pub(super) fn refund(&mut self, payer: Payer, units: f64) {
        match payer {
            Payer::Own => {
                self.bucket.refund(units);
                self.own.give_back(units);
            }
            Payer::Lent => self.lent.give_back(units),
        }
        self.tag = self.tag - self.per_s.map_or(Duration::ZERO, |per_s| seconds(units / per_s));
    }

    pub(super) fn used(&self) -> TenantUse {
        TenantUse {
            waiting: self.waiting(),
            own_units: self.own.counted,
            lent_units: self.lent.counted,
            refused: self.refused,
        }
    }
}

/// Converts seconds to a duration; a number that does not fit becomes the longest one.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
