//! The units of tenants' reads and writes, and the queues of their writes.

use sherwood_dispatch::{
    OverRate, Payer, RatesInForce, Started, TenantOptions, TenantQueueOptions, TenantQueues, TenantUse,
    WaitingId,
};
use sherwood_model::{Instant, TenantId, Unit};

use crate::{WriteId, WriteRefused};

/// The units that a backend's store charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    /// Unit of a read.
    pub reads: Unit,
    /// Unit of a write.
    pub writes: Unit,
}

/// The cost of a call, as its driver knows it when the answer comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallCost {
    /// The tenant of the call.
    pub tenant: TenantId,
    /// The units that the store has reported; none if it reports none.
    pub units: Option<f64>,
}

/// A tenant's use of a backend since the start, and what waits for its rates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BackendUse {
    /// Read units, fetches that wait, and keys that were refused.
    pub reads: TenantUse,
    /// Write units, and writes that wait or were refused.
    pub writes: TenantUse,
}

impl BackendUse {
    /// Reads and writes that wait.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.reads.waiting.saturating_add(self.writes.waiting)
    }

    /// Keys of reads, and writes, that were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.reads.refused + self.writes.refused
    }
}

/// The writes of the tenants, each of which begins when its tenant's rate pays for it.
#[derive(Clone, Debug)]
pub(super) struct TenantWrites {
    queues: TenantQueues<WriteId>,
    over: OverRate,
}

impl TenantWrites {
    /// Creates the writes of tenants without limits on the rates.
    pub(super) fn new(options: TenantOptions, waiting_max: u32) -> Self {
        let TenantOptions { tenants, burst_units, lends, over } = options;
        let options = TenantQueueOptions { tenants, waiting_max: Some(waiting_max), burst_units, lends };
        Self { queues: TenantQueues::new(options), over }
    }

    /// Returns the refusal of a write that could not begin by `due`.
    pub(super) fn check(&mut self, now: Instant, tenant: TenantId, due: Instant) -> Result<(), WriteRefused> {
        let until = match self.over {
            OverRate::Wait => due,
            OverRate::Refuse => now,
        };
        self.queues.check(now, tenant, Some(until)).map_err(WriteRefused::OverRate)
    }

    /// Has a write wait that was [checked](Self::check) just before.
    pub(super) fn enter(&mut self, now: Instant, tenant: TenantId, id: WriteId, units: u64) -> WaitingId {
        let entered = self.queues.enter(now, tenant, id, units as f64, None);
        entered.expect("there is room for a write that was checked")
    }

    pub(super) fn cancel(&mut self, now: Instant, waiting: WaitingId) {
        self.queues.cancel(now, waiting);
    }

    pub(super) fn set_rates(&mut self, now: Instant, total_per_s: f64, per_s: &[f64]) {
        self.queues.set_rates(now, total_per_s, per_s);
    }

    pub(super) fn set_rates_in_force(&mut self, now: Instant, rates: &RatesInForce) {
        self.queues.set_rates_in_force(now, rates);
    }

    /// Returns the next write that its tenant's rate pays for, and the source of its units.
    pub(super) fn start_next(&mut self, now: Instant) -> Option<(WriteId, Payer)> {
        self.queues.start_next(now).map(|Started { work, payer, .. }| (work, payer))
    }

    /// Gives back the units of a write that was paid for.
    pub(super) fn refund(&mut self, now: Instant, tenant: TenantId, payer: Payer, units: u64) {
        self.queues.refund(now, tenant, payer, units as f64);
    }

    pub(super) fn used(&self, tenant: TenantId) -> TenantUse {
        self.queues.used(tenant)
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.queues.next_timeout()
    }
}
