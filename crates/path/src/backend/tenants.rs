//! Reads and writes by the rates of tenants.

use std::hash::Hash;

use sherwood_dispatch::{AttemptId, Failure, FailureKind, Payer, RatesInForce, Reply};
use sherwood_model::{DemandCounts, DemandKind, Instant, PartitionId, TenantId, Unit};

use super::Backend;
use super::fill::AnswerCache;
use super::rates::{BackendUse, CallCost};
use crate::{Change, Write};

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Backend<K, V, W> {
    /// Sets the units per second of all tenants' reads, or writes, together, and of each tenant by
    /// its id; without those the total pays for the work of all tenants. What was used and is not
    /// paid for remains. Infinite is no limit; below one a second counts as one. No effect without
    /// [`Options::tenants`].
    ///
    /// [`Options::tenants`]: sherwood_dispatch::Options::tenants
    pub fn set_rates(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        kind: DemandKind,
        total_per_s: f64,
        per_s: &[f64],
    ) {
        self.advance(now, cache);
        match kind {
            DemandKind::Read => {
                self.dispatch.set_rates(now, total_per_s, per_s);
                self.keep_answers(now, cache);
            }
            DemandKind::Write => {
                if let Some(writes) = &mut self.tenant_writes {
                    writes.set_rates(now, total_per_s, per_s);
                }
                self.start_paid_writes(now, cache);
            }
        }
    }

    /// Sets rates with loans from other nodes of a cluster, which end by themselves, however late
    /// the driver is. No effect without [`Options::tenants`].
    ///
    /// [`Options::tenants`]: sherwood_dispatch::Options::tenants
    pub fn set_rates_in_force(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        kind: DemandKind,
        rates: &RatesInForce,
    ) {
        self.advance(now, cache);
        match kind {
            DemandKind::Read => {
                self.dispatch.set_rates_in_force(now, rates);
                self.keep_answers(now, cache);
            }
            DemandKind::Write => {
                if let Some(writes) = &mut self.tenant_writes {
                    writes.set_rates_in_force(now, rates);
                }
                self.start_paid_writes(now, cache);
            }
        }
    }

    /// Returns what a tenant has used of the backend, and what waits for its rates; none without
    /// [`Options::tenants`].
    ///
    /// # Panics
    /// If there is no such tenant.
    ///
    /// [`Options::tenants`]: sherwood_dispatch::Options::tenants
    #[must_use]
    pub fn used(&self, tenant: TenantId) -> Option<BackendUse> {
        let reads = self.dispatch.tenant_reads(tenant)?;
        let writes = self.tenant_writes.as_ref()?.used(tenant);
        Some(BackendUse { reads, writes })
    }

    /// Returns the reads and writes of a tenant, whose values are in `partition`; nothing without
    /// [`Options::tenants`], or for an unknown tenant.
    ///
    /// [`Options::tenants`]: sherwood_dispatch::Options::tenants
    #[must_use]
    pub fn demand(
        &self,
        cache: &impl AnswerCache<V>,
        tenant: TenantId,
        partition: PartitionId,
    ) -> Option<DemandCounts> {
        let counts = self.demand.get(tenant.index())?;
        let usage = cache.cache().usage(partition);
        Some(counts.with_hits(usage.hits, usage.hit_units, usage.hit_bytes))
    }

    /// Charges the tenant of a call the units of its answer beyond one for each key, which were
    /// charged when it was sent: those that the store has reported, or else those of the answer's
    /// size. What a store reports may be less, such as half a unit for an eventual read.
    ///
    /// An answer that comes after its attempt has ended has cost its units, too; it is charged if
    /// `cost` names the tenant.
    pub(super) fn charge_answer(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        attempt: AttemptId,
        reply: &Reply<V>,
        cost: Option<CallCost>,
    ) {
        if self.tenant_writes.is_none() || self.options.units.reads == Unit::Count {
            return;
        }
        let reported = cost.and_then(|cost| cost.units);
        let reported = reported.filter(|units| units.is_finite() && *units >= 0.0);
        let key_bytes: Option<Vec<usize>> = self.dispatch.keys_of(attempt).map(|keys| {
            // Of a key that another attempt has answered, only the size of its value is known.
            keys.map(|key| key.map_or(0, |key| key.as_ref().len())).collect()
        });
        let is_late = key_bytes.is_none();
        let (answered, throttled) = match reply {
            Reply::Ok(values) => (values.len(), 0),
            Reply::Each(answers) => (answers.len(), throttled(answers)),
            Reply::Failed(_) | Reply::NotAdmitted { .. } => return,
        };
        let key_bytes = key_bytes.unwrap_or_else(|| vec![0; answered]);
        let beyond = match reported {
            // The dispatcher gives back the units of throttled keys, unless the answer is late.
            Some(units) if is_late => units - key_bytes.len() as f64,
            Some(units) => units - key_bytes.len().saturating_sub(throttled) as f64,
            None => self.units_beyond_keys(cache, &key_bytes, reply) as f64,
        };
        match cost {
            Some(CallCost { tenant, .. }) if is_late => self.dispatch.charge_late(now, tenant, beyond),
            _ => self.dispatch.charge(now, attempt, beyond),
        }
    }

    /// Returns the units of an answer beyond one for each key, of keys of these lengths.
    fn units_beyond_keys(&self, cache: &impl AnswerCache<V>, key_bytes: &[usize], reply: &Reply<V>) -> u64 {
        let unit = self.options.units.reads;
        let beyond = |(&key_bytes, value): (&usize, Option<&V>)| {
            value.map_or(0, |value| unit.of((key_bytes + cache.fetched(value).value.len()) as u64) - 1)
        };
        match reply {
            Reply::Ok(values) => key_bytes.iter().zip(values.iter().map(Option::as_ref)).map(beyond).sum(),
            Reply::Each(answers) => {
                let values = answers.iter().map(|answer| answer.as_ref().ok().and_then(Option::as_ref));
                key_bytes.iter().zip(values).map(beyond).sum()
            }
            Reply::Failed(_) | Reply::NotAdmitted { .. } => 0,
        }
    }

    /// Returns the bytes of a write: its key and its value.
    pub(super) fn write_bytes(cache: &impl AnswerCache<V>, write: &Write<K, V>) -> u64 {
        let value_bytes = match &write.change {
            Change::Put(value) => cache.fetched(value).value.len(),
            Change::Delete => 0,
        };
        (write.key.as_ref().len() + value_bytes) as u64
    }

    /// Begins the writes whose turn has come and whose units their tenants' rates pay for by now.
    pub(super) fn start_paid_writes(&mut self, now: Instant, cache: &impl AnswerCache<V>) {
        while let Some(writes) = &mut self.tenant_writes
            && let Some((id, payer)) = writes.start_next(now)
        {
            if let Some(running) = self.writes.get_mut(&id) {
                (running.unpaid, running.payer) = (None, Some(payer));
                running.has_turn = self.fences.begin_accepted(now, id, running.write.key.clone());
                self.begin_if_ready(now, cache, id);
            }
        }
        self.check_due_next();
    }

    /// Gives back the units of a write that its tenant has paid for and that cost the store
    /// nothing.
    pub(super) fn refund_write(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        write: &Write<K, V>,
        payer: Payer,
    ) {
        let units = self.options.units.writes.of(Self::write_bytes(cache, write));
        if let Some(writes) = &mut self.tenant_writes {
            writes.refund(now, write.options.tenant, payer, units);
        }
    }
}

/// The number of keys that the store throttled.
fn throttled<V>(answers: &[Result<Option<V>, Failure>]) -> usize {
    let is_throttled = |failure: &Failure| failure.kind == FailureKind::Throttled;
    answers.iter().filter(|answer| answer.as_ref().is_err_and(is_throttled)).count()
}
