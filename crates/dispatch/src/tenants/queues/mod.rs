//! The order in which tenants use one resource of a backend: each by its own rate.

mod tenant;

use std::collections::BTreeSet;
use std::time::Duration;

use sherwood_model::{Instant, TenantId};

use super::rates::TenantRates;
use super::{Bounds, Payer, RatesInForce, TenantRefusal, TenantUse};
use tenant::{Tenant, Waiting};

/// The queues in front of one resource that tenants have rates of, such as the reads of a backend.
///
/// Work of a tenant starts in the order of its arrival, and as soon as the units that the tenant
/// has used are paid for by its rate (a token bucket each). A cost that is known only afterwards is
/// charged later, as a debt. So no tenant waits for another, however much that one asks for.
///
/// Starts, among the tenants that may start, the one that has used the least in proportion to its
/// rate (start-time fair queueing, Goyal, Vin and Cheng, 1996).
///
/// A wake-up may come late. The units of up to 45 ms for which work waited are caught up then, so
/// that a busy machine does not lower the rates.
///
/// With *lending*, unused units of the total are lent to tenants that wait, in that same order. A
/// tenant that resumes work still has its own units, so its work starts at once; all tenants
/// together then exceed the total by that tenant's burst, for which lending pauses. Without
/// lending, rates are hard limits.
///
/// # Inputs, outputs, wake-ups
/// - Inputs: [`enter`](Self::enter), [`cancel`](Self::cancel), [`charge`](Self::charge),
///   [`refund`](Self::refund), [`set_rates`](Self::set_rates),
///   [`set_rates_in_force`](Self::set_rates_in_force).
/// - Output: after every input and wake-up, [`start_next`](Self::start_next) until it returns none.
/// - Wake-ups: [`start_next`](Self::start_next) at [`next_timeout`](Self::next_timeout).
///
/// Every call but [`set_rates`](Self::set_rates) takes a time logarithmic in the tenants and in
/// what waits, which is bounded by [`TenantQueueOptions::waiting_max`].
///
/// ```
/// use sherwood_dispatch::{Payer, TenantQueueOptions, TenantQueues};
/// use sherwood_model::{Instant, TenantId};
///
/// let options = TenantQueueOptions { tenants: 2, waiting_max: Some(100), burst_units: 1, lends: false };
/// let mut reads = TenantQueues::new(options);
/// let now = Instant::from_secs(1);
/// reads.set_rates(now, 300.0, &[100.0, 200.0]);
/// for number in 0..3 {
///     reads.enter(now, TenantId(0), number, 1.0, None)?;
/// }
/// let first = reads.start_next(now).expect("nothing was used before");
/// assert_eq!((first.tenant, first.work, first.payer), (TenantId(0), 0, Payer::Own));
/// assert_eq!(reads.start_next(now), None);
/// assert_eq!(reads.next_timeout(), Some(Instant::from_millis(1_010)));
/// # Ok::<(), sherwood_dispatch::TenantRefusal>(())
/// ```
#[derive(Clone, Debug)]
pub struct TenantQueues<T> {
    tenants: Vec<Tenant<T>>,
    bounds: Option<Bounds>,
    rates: TenantRates,
    /// Virtual time: the tag of the latest start.
    virtual_now: Instant,
    /// Tenants that wait and whose units suffice, by tag.
    payable: BTreeSet<(Instant, TenantId)>,
    /// Tenants that wait for units, by tag.
    unpaid: BTreeSet<(Instant, TenantId)>,
    /// Tenants that wait for units, by the time at which they have them.
    paid_at: BTreeSet<(Instant, TenantId)>,
    /// Serial number of the next work.
    serial: u64,
}

/// Settings of [`TenantQueues`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantQueueOptions {
    /// Number of tenants, whose ids are below it.
    pub tenants: u16,
    /// Maximum number of waiting items. Half of it is divided evenly among the tenants, and any
    /// tenant may use the rest. None if the caller limits the waiting work itself.
    pub waiting_max: Option<u32>,
    /// Units of a tenant that were not used and may be used later, if they are more than those of
    /// 10 ms. Work arrives at random: without some units, one of a low rate would wait for most of
    /// the time between two units, although the rate suffices.
    pub burst_units: u32,
    /// True if unused units are lent to tenants that wait.
    pub lends: bool,
}

/// The number of a tenant's work that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitingId {
    tenant: TenantId,
    serial: u64,
}

/// Work that starts now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Started<T> {
    /// The tenant.
    pub tenant: TenantId,
    /// The work that it entered.
    pub work: T,
    /// The source of its units, for [`TenantQueues::charge`].
    pub payer: Payer,
}

impl<T> TenantQueues<T> {
    /// Creates queues without limits on the rates.
    #[must_use]
    pub fn new(options: TenantQueueOptions) -> Self {
        let TenantQueueOptions { tenants, waiting_max, burst_units, lends } = options;
        Self {
            tenants: (0..tenants).map(|_| Tenant::default()).collect(),
            bounds: waiting_max.map(|max| Bounds::new(max, tenants)),
            rates: TenantRates::new(tenants, burst_units, lends),
            virtual_now: Instant::ZERO,
            payable: BTreeSet::new(),
            unpaid: BTreeSet::new(),
            paid_at: BTreeSet::new(),
            serial: 0,
        }
    }

    /// Sets the units per second of all tenants together, and of each by its id. What was used and
    /// is not paid for remains. Infinite is no limit; below one a second counts as one, so that a
    /// tenant without a share can begin.
    ///
    /// Without rates of tenants (`per_s` is empty) the total pays for the work of all, which starts
    /// in the order of its arrival. O(n log n) for the tenants, and for what waits when that
    /// changes.
    pub fn set_rates(&mut self, now: Instant, total_per_s: f64, per_s: &[f64]) {
        self.change_rates(now, |rates| rates.set_rates(now, total_per_s, per_s));
    }

    /// Sets rates with loans from other nodes, which end by themselves: what starts after the end
    /// of a loan is not paid by it, however late the next call is. Unused units of tenants whose
    /// rates stay the same can still be used.
    pub fn set_rates_in_force(&mut self, now: Instant, rates: &RatesInForce) {
        self.end_loans(now);
        self.change_rates(now, |old| old.set_in_force(now, rates));
    }

    fn end_loans(&mut self, now: Instant) {
        if let Some((at, rates)) = self.rates.take_ended(now) {
            self.change_rates(at, |old| old.set_changed(at, &rates));
        }
    }

    fn change_rates(&mut self, now: Instant, change: impl FnOnce(&mut TenantRates)) {
        self.ids().for_each(|id| self.displace(id));
        let was_common = self.rates.is_common();
        change(&mut self.rates);
        if self.rates.is_common() != was_common {
            self.regroup(now);
        } else {
            self.ids().for_each(|id| self.place(now, id));
        }
    }

    fn ids(&self) -> impl Iterator<Item = TenantId> + use<T> {
        (0..self.tenants.len()).map(TenantId::from_index)
    }

    /// Has a tenant's work of so many `units`, at least, wait for its start.
    ///
    /// # Errors
    /// If too much waits, or the tenant's rate does not allow a start before `until`.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub fn enter(
        &mut self,
        now: Instant,
        id: TenantId,
        work: T,
        units: f64,
        until: Option<Instant>,
    ) -> Result<WaitingId, TenantRefusal> {
        self.check(now, id, until)?;
        let serial = self.serial;
        self.serial += 1;
        let waiting = &mut self.tenants[id.index()].waiting;
        self.bounds.iter_mut().for_each(|bounds| bounds.add(*waiting));
        *waiting += 1;
        self.push(now, serial, Waiting { tenant: id, work, units });
        Ok(WaitingId { tenant: id, serial })
    }

    /// Adds work to the queue of the tenant that pays for it.
    fn push(&mut self, now: Instant, serial: u64, waiting: Waiting<T>) {
        let id = self.rates.paying(waiting.tenant);
        let tenant = &mut self.tenants[id.index()];
        if tenant.push(now, serial, waiting) == 1 {
            tenant.tag = tenant.tag.max(self.virtual_now);
            self.place(now, id);
        }
    }

    /// Moves what waits to one queue, or to those of the tenants.
    fn regroup(&mut self, now: Instant) {
        let mut waiting: Vec<_> = self.tenants.iter_mut().flat_map(Tenant::take_all).collect();
        waiting.sort_by_key(|(serial, _)| *serial);
        waiting.into_iter().for_each(|(serial, waiting)| self.push(now, serial, waiting));
    }

    /// Returns the error that [`enter`](Self::enter) would return, and counts it as a refusal.
    ///
    /// # Errors
    /// If too much waits, or the tenant's rate does not allow a start before `until`.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub fn check(&mut self, now: Instant, id: TenantId, until: Option<Instant>) -> Result<(), TenantRefusal> {
        self.end_loans(now);
        let (is_lending, starts_at) = (self.rates.is_lending(now), self.expected_start(now, id));
        let tenant = &mut self.tenants[id.index()];
        let refusal = match &self.bounds {
            Some(bounds) if starts_at > now && !bounds.has_room(tenant.waiting) => {
                Some(TenantRefusal::Full { limit: bounds.max(), retry_in: starts_at - now })
            }
            _ => {
                let is_late = !is_lending && until.is_some_and(|until| starts_at > until);
                is_late.then_some(TenantRefusal::TooLate { starts_in: starts_at - now })
            }
        };
        tenant.refused += u64::from(refusal.is_some());
        refusal.map_or(Ok(()), Err)
    }

    /// Returns the work that starts next, and charges its units. None until the next input or
    /// [`next_timeout`](Self::next_timeout).
    pub fn start_next(&mut self, now: Instant) -> Option<Started<T>> {
        self.end_loans(now);
        self.promote(now);
        let (id, payer) = match self.payable.first() {
            Some(&(_, id)) => (id, Payer::Own),
            None if self.rates.is_lending(now) => (self.unpaid.first()?.1, Payer::Lent),
            None => return None,
        };
        self.displace(id);
        let tenant = &mut self.tenants[id.index()];
        self.virtual_now = self.virtual_now.max(tenant.tag);
        let since = tenant.waits_since(now);
        let Waiting { tenant: id, work, units } = tenant.pop()?;
        self.note_end(id);
        self.charge_waited(now, since, (id, payer), units);
        Some(Started { tenant: id, work, payer })
    }

    /// Charges units whose number became known after the start.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub fn charge(&mut self, now: Instant, id: TenantId, payer: Payer, units: f64) {
        self.end_loans(now);
        self.charge_waited(now, now, (id, payer), units);
    }

    fn charge_waited(&mut self, now: Instant, since: Instant, (id, payer): (TenantId, Payer), units: f64) {
        let paying = self.rates.paying(id);
        self.displace(paying);
        self.rates.charge(now, since, (id, payer), units);
        self.tenants[paying.index()].tag += self.rates.time_of(paying, units);
        self.place(now, paying);
    }

    /// Notes that work of a tenant waits no longer.
    fn note_end(&mut self, id: TenantId) {
        let tenant = &mut self.tenants[id.index()];
        tenant.waiting -= 1;
        self.bounds.iter_mut().for_each(|bounds| bounds.remove(tenant.waiting));
    }

    /// Gives back units that a start has charged, because the work was not done.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub fn refund(&mut self, now: Instant, id: TenantId, payer: Payer, units: f64) {
        let paying = self.rates.paying(id);
        self.displace(paying);
        self.rates.refund((id, payer), units);
        let tag = &mut self.tenants[paying.index()].tag;
        *tag = *tag - self.rates.time_of(paying, units);
        self.place(now, paying);
    }

    /// Returns the time at which work of the tenant that comes now would start by its own rate.
    ///
    /// # Panics
    /// If there is no such tenant.
    #[must_use]
    pub fn expected_start(&self, now: Instant, id: TenantId) -> Instant {
        let before = self.tenants[self.rates.paying(id).index()].waiting_units();
        self.rates.paid_at(id).max(now) + self.rates.time_of(id, before)
    }

    /// Takes back work that waits; none if it has started.
    pub fn cancel(&mut self, now: Instant, waiting: WaitingId) -> Option<T> {
        let id = self.rates.paying(waiting.tenant);
        let Waiting { work, .. } = self.tenants.get_mut(id.index())?.take(waiting.serial)?;
        self.note_end(waiting.tenant);
        self.displace(id);
        self.place(now, id);
        Some(work)
    }

    /// Returns the time at which something that waits may start; none if nothing waits.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if !self.payable.is_empty() {
            return Some(Instant::ZERO);
        }
        let (paid_at, _) = self.paid_at.first()?;
        Some(self.rates.lent_at().map_or(*paid_at, |lent_at| lent_at.min(*paid_at)))
    }

    /// Returns what a tenant has used, and what waits.
    ///
    /// # Panics
    /// If there is no such tenant.
    #[must_use]
    pub fn used(&self, id: TenantId) -> TenantUse {
        let Tenant { waiting, refused, .. } = self.tenants[id.index()];
        TenantUse { waiting, refused, ..self.rates.used(id) }
    }

    /// Moves tenants whose units suffice by now.
    fn promote(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.paid_at.first()
            && at <= now
        {
            self.displace(id);
            self.place(now, id);
        }
    }

    /// Puts a tenant that waits where it is found. Its tag and bucket do not change while it is
    /// there.
    fn place(&mut self, now: Instant, id: TenantId) {
        let tenant = &self.tenants[id.index()];
        if tenant.is_empty() {
            return;
        }
        let ready_at = self.rates.paid_at(id);
        if ready_at <= now {
            self.payable.insert((tenant.tag, id));
        } else {
            self.unpaid.insert((tenant.tag, id));
            self.paid_at.insert((ready_at, id));
        }
    }

    fn displace(&mut self, id: TenantId) {
        let tenant = &self.tenants[id.index()];
        if !self.payable.remove(&(tenant.tag, id)) && self.unpaid.remove(&(tenant.tag, id)) {
            self.paid_at.remove(&(self.rates.paid_at(id), id));
        }
    }
}

/// Longest delay of a wake-up whose units are caught up, on a machine that is too busy to run the
/// caller in time. With it a rate is exceeded by 4.5% in a second at most.
const LATE_MAX: Duration = Duration::from_millis(45);

#[cfg(test)]
mod tests;
