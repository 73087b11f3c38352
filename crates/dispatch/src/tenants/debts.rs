//! The order in which tenants' work waits for their debts to be paid.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sherwood_model::{Instant, TenantId};

/// Longest time for which whoever waits for a debt does not look at it again: a rate may have been
/// raised meanwhile.
pub const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Work that waits until its tenant's debt is paid, such as clients of a listener: a queue for each
/// tenant, in the order of arrival.
///
/// The rates are elsewhere, such as in a [`TenantGate`](crate::TenantGate), because several of
/// these queues may share them. Only the head of a tenant's queue starts when the debt is paid: it
/// may leave a new debt, for which all behind it wait.
///
/// Memory: some 100 bytes for each that waits, whose number the caller bounds. Every call takes a
/// time logarithmic in what waits.
///
/// ```
/// use sherwood_dispatch::{DebtQueues, TenantGate};
/// use sherwood_model::{Instant, TenantId};
///
/// let (tenant, now) = (TenantId(0), Instant::from_secs(2));
/// let (mut network, mut queues) = (TenantGate::new(1, false), DebtQueues::new());
/// network.set_rates(Instant::from_secs(1), 1_000.0, &[1_000.0]);
/// let paid_at = network.charge(now, tenant, 210.0).expect("it is more than the burst");
/// queues.hold(now, tenant, Some(paid_at), || "first");
/// // Nothing starts before what came earlier, even if the debt is paid meanwhile.
/// assert!(queues.hold(now, tenant, None, || "second").is_some());
/// assert_eq!(queues.start_next(now, |id| network.charge(now, id, 0.0)), None);
/// let now = queues.next_timeout().expect("two wait");
/// assert_eq!(queues.start_next(now, |id| network.charge(now, id, 0.0)), Some((tenant, "first")));
/// network.charge(now, tenant, 100.0);
/// assert_eq!(queues.start_next(now, |id| network.charge(now, id, 0.0)), None);
/// ```
#[derive(Clone, Debug)]
pub struct DebtQueues<T> {
    /// Waiting work, by its tenant, then in the order of arrival.
    waiting: BTreeMap<DebtPlace, T>,
    /// Tenants of which something waits.
    tenants: BTreeMap<TenantId, Indebted>,
    /// The same tenants, by the time at which their debt may be paid, then by the arrival of their
    /// first work: one rate may pay for several of them, and their debts end together.
    due: BTreeSet<(Instant, u64, TenantId)>,
    /// Serial number of the next that waits.
    serial: u64,
}

/// A tenant of which something waits.
#[derive(Clone, Copy, Debug)]
struct Indebted {
    paid_at: Instant,
    /// Serial number of the first that waits.
    head: u64,
    waiting: u32,
}

/// The place of what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DebtPlace {
    tenant: TenantId,
    serial: u64,
}

impl DebtPlace {
    /// Returns the tenant whose debt is waited for.
    #[must_use]
    pub fn tenant(self) -> TenantId {
        self.tenant
    }
}

impl<T> Default for DebtQueues<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> DebtQueues<T> {
    /// Creates empty queues.
    #[must_use]
    pub fn new() -> Self {
        Self { waiting: BTreeMap::new(), tenants: BTreeMap::new(), due: BTreeSet::new(), serial: 0 }
    }

    /// Has a tenant's work wait behind all that waits of the same tenant, if the tenant is in debt,
    /// which is paid at `paid_at`, or something of it waits. Returns its place; none if it may
    /// start at once, and then `work` is not made.
    pub fn hold(
        &mut self,
        now: Instant,
        tenant: TenantId,
        paid_at: Option<Instant>,
        work: impl FnOnce() -> T,
    ) -> Option<DebtPlace> {
        if paid_at.is_none() && self.waiting(tenant) == 0 {
            return None;
        }
        Some(self.wait(tenant, paid_at.unwrap_or(now).min(now + LOOK_AGAIN), work()))
    }

    /// Has a tenant's work wait, whose debt may be paid at `paid_at`.
    fn wait(&mut self, tenant: TenantId, paid_at: Instant, work: T) -> DebtPlace {
        let place = DebtPlace { tenant, serial: self.serial };
        self.serial += 1;
        self.waiting.insert(place, work);
        let queue =
            self.tenants.entry(tenant).or_insert(Indebted { paid_at, head: place.serial, waiting: 0 });
        queue.waiting += 1;
        // A higher rate pays earlier than expected.
        let earliest = queue.paid_at.min(paid_at);
        self.set_due(tenant, earliest);
        place
    }

    /// Takes back work that waits; none if it has started.
    pub fn cancel(&mut self, place: DebtPlace) -> Option<T> {
        let work = self.waiting.remove(&place)?;
        let queue = self.tenants.get_mut(&place.tenant)?;
        queue.waiting -= 1;
        let Indebted { paid_at, head, waiting } = *queue;
        if waiting == 0 {
            self.due.remove(&(paid_at, head, place.tenant));
            self.tenants.remove(&place.tenant);
        } else if head == place.serial {
            self.set_due(place.tenant, paid_at);
        }
        Some(work)
    }

    /// Returns the work that starts next, with its tenant; none until
    /// [`next_timeout`](Self::next_timeout). `paid_at` returns the time at which a tenant's debt is
    /// paid; none if it is paid. A later one is asked for again after a while, since a rate may be
    /// raised. What the work uses has to be charged before the next call.
    pub fn start_next(
        &mut self,
        now: Instant,
        mut paid_at: impl FnMut(TenantId) -> Option<Instant>,
    ) -> Option<(TenantId, T)> {
        loop {
            let &(_, head, tenant) = self.due.first().filter(|(due, ..)| *due <= now)?;
            let later = paid_at(tenant).filter(|&later| later > now);
            // Behind tenants whose debts were paid before.
            self.set_due(tenant, later.map_or(now, |later| later.min(now + LOOK_AGAIN)));
            if later.is_none() {
                return self.cancel(DebtPlace { tenant, serial: head }).map(|work| (tenant, work));
            }
        }
    }

    /// Returns the time at which something may start; none if nothing waits.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(due, ..)| *due)
    }

    /// Returns how much waits of a tenant.
    #[must_use]
    pub fn waiting(&self, tenant: TenantId) -> u32 {
        self.tenants.get(&tenant).map_or(0, |queue| queue.waiting)
    }

    /// Returns how much waits of all tenants.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes everything that waits, with its place, by tenant and in order.
    pub fn drain(&mut self) -> impl Iterator<Item = (DebtPlace, T)> + use<T> {
        std::mem::take(self).waiting.into_iter()
    }

    /// Sets the time at which the debt of a tenant with waiting work may be paid.
    fn set_due(&mut self, tenant: TenantId, at: Instant) {
        let first = self.waiting.range(DebtPlace { tenant, serial: 0 }..).next();
        if let (Some(queue), Some((place, _))) = (self.tenants.get_mut(&tenant), first) {
            self.due.remove(&(queue.paid_at, queue.head, tenant));
            (queue.paid_at, queue.head) = (at, place.serial);
            self.due.insert((at, place.serial, tenant));
        }
    }
}

#[cfg(test)]
mod tests;
