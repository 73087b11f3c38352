//! The queue of one tenant's work.

use std::collections::BTreeMap;

use sherwood_model::{Instant, TenantId};

use super::LATE_MAX;

/// The work that waits for one tenant's rate, in the order of arrival.
#[derive(Clone, Debug)]
pub(super) struct Tenant<T> {
    /// Work that waits for this tenant's rate.
    queue: BTreeMap<u64, Waiting<T>>,
    /// Work of this tenant that waits, in its own queue or in the common one.
    pub(super) waiting: u32,
    /// The time since which this queue has not been empty, if it is not empty now.
    waits_since: Instant,
    /// Sum of the units of the waiting work.
    waiting_units: f64,
    /// Virtual time at which the next work starts: all units that the tenant has used, own and
    /// lent, divided by its rate.
    pub(super) tag: Instant,
    pub(super) refused: u64,
}

/// Waiting work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<T> {
    /// The tenant that the work belongs to.
    pub(super) tenant: TenantId,
    pub(super) work: T,
    pub(super) units: f64,
}

impl<T> Default for Tenant<T> {
    fn default() -> Self {
        Self {
            queue: BTreeMap::new(),
            waiting: 0,
            waits_since: Instant::ZERO,
            waiting_units: 0.0,
            tag: Instant::ZERO,
            refused: 0,
        }
    }
}

impl<T> Tenant<T> {
    /// Returns true if no work waits for this tenant's rate.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the sum of the units of the waiting work.
    pub(super) fn waiting_units(&self) -> f64 {
        self.waiting_units
    }

    /// Returns the time since which work has been waiting, so that the rate was in demand, but at
    /// most [`LATE_MAX`] ago.
    pub(super) fn waits_since(&self, now: Instant) -> Instant {
        self.waits_since.max(now - LATE_MAX)
    }

    /// Adds work, and returns the number of waiting items including it.
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

    /// Removes the work with this serial number.
    pub(super) fn take(&mut self, serial: u64) -> Option<Waiting<T>> {
        let waiting = self.queue.remove(&serial)?;
        // Exact when nothing waits, so that rounding errors do not add up.
        let left = if self.queue.is_empty() { 0.0 } else { self.waiting_units - waiting.units };
        self.waiting_units = left.max(0.0);
        Some(waiting)
    }
}
