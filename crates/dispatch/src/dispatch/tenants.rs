//! Fetches of tenants that have rates: each takes its units before a replica is chosen for it.

use std::hash::Hash;

use sherwood_model::{Instant, TenantId};

use super::{Dispatch, STORED};
use crate::fetch::Paid;
use crate::slab::Id;
use crate::tenants::Bounds;
use crate::{
    AttemptId, Bound, FetchError, OverRate, Payer, RatesInForce, Started, TenantOptions, TenantQueueOptions,
    TenantQueues, TenantRefusal, TenantUse,
};

/// The reads of the tenants: their rates, and their parts of the waiters.
#[derive(Clone, Debug)]
pub(super) struct TenantReads {
    queues: TenantQueues<Id>,
    over: OverRate,
    bounds: Bounds,
    tenants: Vec<Reader>,
}

/// The waiters of one tenant.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    /// Waiters of its keys, in flight or not.
    waiters: u32,
    /// Waiters that were refused because of its rate.
    refused: u64,
}

impl TenantReads {
    /// Creates the reads of tenants without limits on the rates.
    pub(super) fn new(options: TenantOptions, waiters_max: u32) -> Self {
        let TenantOptions { tenants, burst_units, lends, over } = options;
        // A fetch that waits has waiters, which are bounded.
        let options = TenantQueueOptions { tenants, waiting_max: None, burst_units, lends };
        Self {
            queues: TenantQueues::new(options),
            over,
            bounds: Bounds::new(waiters_max, tenants),
            tenants: vec![Reader::default(); tenants.into()],
        }
    }

    /// Returns the refusal of one more waiter, if the tenant's part of the waiters is used and what
    /// is common to all.
    pub(super) fn check(&mut self, now: Instant, id: TenantId) -> Result<(), FetchError> {
        let Self { queues, bounds, tenants, .. } = self;
        let reader = &mut tenants[id.index()];
        if bounds.has_room(reader.waiters) {
            return Ok(());
        }
        let limit = bounds.max();
        let retry_in = queues.expected_start(now, id) - now;
        if retry_in.is_zero() {
            return Err(FetchError::Overloaded { bound: Bound::Waiters, limit });
        }
        reader.refused += 1;
        Err(FetchError::OverRate(TenantRefusal::Full { limit, retry_in }))
    }

    /// Notes the end of a key with so many waiters.
    pub(super) fn note_end(&mut self, id: TenantId, waiters: u32, error: Option<&FetchError>) {
        let reader = &mut self.tenants[id.index()];
        for _ in 0..waiters {
            reader.waiters -= 1;
            self.bounds.remove(reader.waiters);
        }
        if let Some(FetchError::OverRate(_)) = error {
            reader.refused += u64::from(waiters);
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.queues.next_timeout()
    }

    /// Charges what an answer cost beyond the units that were paid; below 0, gives back.
    fn settle(&mut self, now: Instant, tenant: TenantId, payer: Payer, units: f64) {
        if units < 0.0 {
            self.queues.refund(now, tenant, payer, -units);
        } else {
            self.queues.charge(now, tenant, payer, units);
        }
    }

    /// Returns what a tenant has used, the number of its waiters that wait for its rate, and of
    /// those that were refused because of it.
    pub(super) fn used(&self, id: TenantId) -> TenantUse {
        TenantUse { refused: self.tenants[id.index()].refused, ..self.queues.used(id) }
    }
}

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// Sets the units of reads per second of all tenants together, and of each by its id, as
    /// [`TenantQueues::set_rates`] does. No effect without [`Options::tenants`].
    ///
    /// [`Options::tenants`]: crate::Options::tenants
    pub fn set_rates(&mut self, now: Instant, total_per_s: f64, per_s: &[f64]) {
        self.advance(now);
        if let Some(reads) = &mut self.tenant_reads {
            reads.queues.set_rates(now, total_per_s, per_s);
            self.start_paid(now);
        }
    }

    /// Sets rates with loans from other nodes, which end by themselves, as
    /// [`TenantQueues::set_rates_in_force`] does. No effect without [`Options::tenants`].
    ///
    /// [`Options::tenants`]: crate::Options::tenants
    pub fn set_rates_in_force(&mut self, now: Instant, rates: &RatesInForce) {
        self.advance(now);
        if let Some(reads) = &mut self.tenant_reads {
            reads.queues.set_rates_in_force(now, rates);
            self.start_paid(now);
        }
    }

    /// Charges the tenant of a started attempt what its answer cost beyond a unit for each key, for
    /// which it has paid; below 0, gives back what the answer cost less. No effect if the attempt
    /// has ended, or without [`Options::tenants`].
    ///
    /// [`Options::tenants`]: crate::Options::tenants
    pub fn charge(&mut self, now: Instant, attempt: AttemptId, units: f64) {
        let Some(reads) = &mut self.tenant_reads else { return };
        let Some(attempt) = self.attempts.get(attempt.0) else { return };
        let fetch = self.fetches.get(attempt.fetch).expect(STORED);
        reads.settle(now, fetch.demand.tenant, fetch.paid.payer, units);
    }

    /// Charges a tenant's own rate what an answer cost beyond the units that were paid for its
    /// keys, or gives back below 0, where the attempt has ended before the answer. The caller knows
    /// that the answer is charged once. No effect without [`Options::tenants`], or for an unknown
    /// tenant.
    ///
    /// [`Options::tenants`]: crate::Options::tenants
    pub fn charge_late(&mut self, now: Instant, tenant: TenantId, units: f64) {
        if let Some(reads) = &mut self.tenant_reads
            && tenant.index() < reads.tenants.len()
        {
            reads.settle(now, tenant, Payer::Own, units);
        }
    }

    /// Returns the keys of a started attempt, in the order of its call, without those that have
    /// ended; none if the attempt has ended.
    pub fn keys_of(&self, attempt: AttemptId) -> Option<impl Iterator<Item = Option<&K>>> {
        let attempt = self.attempts.get(attempt.0)?;
        let fetch = self.fetches.get(attempt.fetch).expect(STORED);
        let asked = attempt.asked.as_ref().unwrap_or(&fetch.keys);
        Some(asked.iter().map(|key| self.keys.get(*key).map(|key| &key.key)))
    }

    /// Returns the reads that a tenant has used, and how many of its fetches wait; none without
    /// [`Options::tenants`].
    ///
    /// # Panics
    /// If there is no such tenant.
    ///
    /// [`Options::tenants`]: crate::Options::tenants
    #[must_use]
    pub fn tenant_reads(&self, tenant: TenantId) -> Option<TenantUse> {
        self.tenant_reads.as_ref().map(|reads| reads.used(tenant))
    }

    /// Has a fetch wait until its tenant's rate pays for its keys, a unit each at least; ends it if
    /// the wait is too long.
    pub(super) fn wait_for_units(&mut self, now: Instant, id: Id) {
        let Some(reads) = &mut self.tenant_reads else { return };
        let fetch = self.fetches.get_mut(id).expect(STORED);
        let until = match reads.over {
            OverRate::Refuse => now,
            OverRate::Wait => fetch.due().deadline.map_or(fetch.expires_at, |at| at.min(fetch.expires_at)),
        };
        let units = fetch.open as f64;
        match reads.queues.enter(now, fetch.demand.tenant, id, units, Some(until.max(now))) {
            Ok(waiting) => {
                fetch.paid.waiting = Some(waiting);
                self.expiries.insert(fetch.expires_at, id);
                self.start_paid(now);
            }
            Err(refusal) => self.end(now, id, &FetchError::OverRate(refusal)),
        }
    }

    /// Starts the fetches whose units their tenants' rates pay for by now.
    pub(super) fn start_paid(&mut self, now: Instant) {
        while let Some(reads) = &mut self.tenant_reads
            && let Some(Started { tenant, work: id, payer }) = reads.queues.start_next(now)
        {
            let fetch = self.fetches.get_mut(id).expect(STORED);
            fetch.paid = Paid { waiting: None, payer };
            let units = fetch.open as f64;
            if !self.begin(now, id)
                && let Some(reads) = &mut self.tenant_reads
            {
                reads.queues.refund(now, tenant, payer, units);
            }
        }
    }

    /// Counts a waiter of a key of this fetch.
    pub(super) fn note_waiter(&mut self, id: Id) {
        if let Some(reads) = &mut self.tenant_reads {
            let reader = &mut reads.tenants[self.fetches.get(id).expect(STORED).demand.tenant.index()];
            reads.bounds.add(reader.waiters);
            reader.waiters += 1;
        }
    }

    /// Charges a further attempt of a fetch, which does not wait.
    pub(super) fn charge_further(&mut self, now: Instant, id: Id, keys: usize) {
        if let Some(reads) = &mut self.tenant_reads {
            let fetch = self.fetches.get(id).expect(STORED);
            reads.queues.charge(now, fetch.demand.tenant, fetch.paid.payer, keys as f64);
        }
    }

    /// Gives back the units of throttled keys, for which the backend charges nothing.
    pub(super) fn refund_throttled(&mut self, now: Instant, id: Id, keys: usize) {
        if let Some(reads) = &mut self.tenant_reads
            && keys > 0
        {
            let fetch = self.fetches.get(id).expect(STORED);
            reads.queues.refund(now, fetch.demand.tenant, fetch.paid.payer, keys as f64);
        }
    }

    /// Takes a fetch that ends out of the queue of its tenant.
    pub(super) fn stop_waiting(&mut self, now: Instant, id: Id) {
        let fetch = self.fetches.get_mut(id).expect(STORED);
        if let Some(waiting) = fetch.paid.waiting.take()
            && let Some(reads) = &mut self.tenant_reads
        {
            reads.queues.cancel(now, waiting);
        }
    }
}
