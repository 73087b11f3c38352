//! The queue, rate and use of a tenant.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_model::{Instant, TenantId, TokenBucket};

use super::{BURST, LATE_MAX, Payer, TenantUse};

/// A tenant: what its rate pays for, in the order of arrival, and what it has used.
#[derive(Clone, Debug)]
pub(super) struct Tenant<T> {
    /// Work that waits for this tenant's rate.
    queue: BTreeMap<u64, Waiting<T>>,
    /// Work of this tenant that waits, in its own queue or in the common one.
    pub(super) waiting: u32,
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
    pub(super) used: Meters,
    pub(super) refused: u64,
}

/// Counters of units by the source that paid for them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meters {
    own: Meter,
    lent: Meter,
}

impl Meters {
    pub(super) fn count(&mut self, payer: Payer, units: f64) {
        self.of(payer).count(units);
    }

    pub(super) fn give_back(&mut self, payer: Payer, units: f64) {
        self.of(payer).given_back += units;
    }

    fn of(&mut self, payer: Payer) -> &mut Meter {
        match payer {
            Payer::Own => &mut self.own,
            Payer::Lent => &mut self.lent,
        }
    }
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
}

/// Work that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<T> {
    /// The tenant whose work it is.
    pub(super) tenant: TenantId,
    pub(super) work: T,
    pub(super) units: f64,
}

impl<T> Tenant<T> {
    /// Makes a tenant without a limit, which may use this many units later, or those of a time.
    pub(super) fn new(burst_units: u32) -> Self {
        Self {
            queue: BTreeMap::new(),
            waiting: 0,
            waits_since: Instant::ZERO,
            waiting_units: 0.0,
            bucket: TokenBucket::unlimited(BURST),
            burst_units,
            per_s: None,
            tag: Instant::ZERO,
            used: Meters::default(),
            refused: 0,
        }
    }

    pub(super) fn set_rate(&mut self, now: Instant, per_s: Option<f64>) {
        self.bucket.set_rate(now, per_s);
        let of_units = per_s.map_or(0.0, |per_s| f64::from(self.burst_units) / per_s);
        self.bucket.set_burst(BURST.max(seconds(of_units)));
        self.per_s = per_s;
    }

    /// True if nothing waits for this tenant's rate.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
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
    pub(super) fn push(&mut self, now: Instant, serial: u64, waiting: Waiting<T>) -> usize {
        if self.queue.is_empty() {
            self.waits_since = now;
        }
        self.waiting_units += waiting.units;
        self.queue.insert(serial, waiting);
        self.queue.len()
    }

    /// Removes all work.
    pub(super) fn take_all(&mut self) -> BTreeMap<u64, Waiting<T>> {
        self.waiting_units = 0.0;
        std::mem::take(&mut self.queue)
    }

    /// Removes the work that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Waiting<T>> {
        let (serial, _) = self.queue.first_key_value()?;
        self.take(*serial)
    }

    /// Removes the work of this serial number.
    pub(super) fn take(&mut self, serial: u64) -> Option<Waiting<T>> {
        let waiting = self.queue.remove(&serial)?;
        // Exact when nothing waits, so that rounding errors do not add up.
        let left = if self.queue.is_empty() { 0.0 } else { self.waiting_units - waiting.units };
        self.waiting_units = left.max(0.0);
        Some(waiting)
    }

    /// Charges units of work that starts or was done now and has waited since `since`.
    pub(super) fn charge(&mut self, now: Instant, since: Instant, payer: Payer, units: f64) {
        if payer == Payer::Own {
            self.bucket.charge_waited(now, since, units);
        }
        self.tag += self.per_s.map_or(Duration::ZERO, |per_s| seconds(units / per_s));
    }

    /// Takes back a charge.
    pub(super) fn refund(&mut self, payer: Payer, units: f64) {
        if payer == Payer::Own {
            self.bucket.refund(units);
        }
        self.tag = self.tag - self.per_s.map_or(Duration::ZERO, |per_s| seconds(units / per_s));
    }

    pub(super) fn used(&self) -> TenantUse {
        TenantUse {
            waiting: self.waiting,
            own_units: self.used.own.counted,
            lent_units: self.used.lent.counted,
            refused: self.refused,
        }
    }
}

/// Converts seconds to a duration; a number that does not fit becomes the longest one.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
