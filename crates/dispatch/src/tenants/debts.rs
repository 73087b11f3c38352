//! Queues in which tenants' work waits until the tenants' debts are paid.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sherwood_model::{Instant, TenantId};

use super::{Bounds, Charged, TenantRefusal};
use crate::OverRate;

/// Maximum time between two checks of a debt that work waits for; the tenant's rate may have been
/// raised meanwhile.
pub const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Queues of work, such as clients of a listener, that waits until its tenant's debt is paid: one
/// queue for each tenant, in the order of arrival.
///
/// Work whose use is charged afterwards is started, queued and refused only here; starting work
/// charges its declared units. The rates are [`Charged`] and may be shared with other queues. Only
/// the head of a tenant's queue starts when the debt is paid: it may leave a new debt, which all
/// work behind it waits for.
///
/// Memory: some 100 bytes for each waiting item. Every call takes time logarithmic in the number of
/// waiting items.
///
/// ```
/// use std::sync::Arc;
/// use sherwood_dispatch::{Charged as _, DebtOptions, DebtQueues, DebtWork, TenantGate};
/// use sherwood_model::{Instant, TenantId};
///
/// let (tenant, now) = (TenantId(0), Instant::from_secs(2));
/// let network = Arc::new(TenantGate::new(1, false));
/// network.set_rates(Instant::from_secs(1), 1_000.0, &[1_000.0]);
/// let mut queues = DebtQueues::new(network.clone(), DebtOptions::default());
/// let work = |units| DebtWork { units, latest: Instant::NEVER };
///
/// // The first work starts, and leaves a debt of 200 ms; what comes later waits in order.
/// assert_eq!(queues.enter(now, tenant, work(210.0), || "first"), Ok(None));
/// assert!(queues.enter(now, tenant, work(100.0), || "second")?.is_some());
/// assert!(queues.enter(now, tenant, work(1.0), || "third")?.is_some());
/// assert_eq!(queues.start_next(now), None);
/// let now = queues.next_timeout().expect("two wait");
/// assert_eq!(queues.start_next(now), Some((tenant, "second")));
/// assert_eq!(queues.start_next(now), None);
/// # Ok::<(), sherwood_dispatch::TenantRefusal>(())
/// ```
pub struct DebtQueues<T> {
    rates: Arc<dyn Charged>,
    over: OverRate,
    bounds: Option<Bounds>,
    /// Waiting work, ordered by tenant and then by arrival.
    waiting: BTreeMap<DebtPlace, Held<T>>,
    /// The tenants with waiting work.
    tenants: BTreeMap<TenantId, Indebted>,
    /// The same tenants, ordered by the time at which their debts may be paid, then by the arrival
    /// of their first waiting work: several tenants may share one rate, and then their debts end
    /// together.
    due: BTreeSet<(Instant, u64, TenantId)>,
    /// Sum of the units of all waiting work.
    units: f64,
    /// Serial number of the next work that has to wait.
    serial: u64,
}

/// Settings of [`DebtQueues`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebtOptions {
    /// Maximum number of waiting items, and the number of tenants. Half of the maximum is divided
    /// evenly among the tenants, and any tenant may use the rest. None if the caller limits the
    /// waiting work itself.
    pub waiting_max: Option<(u32, u16)>,
    /// Treatment of the work of a tenant in debt.
    pub over: OverRate,
}

/// Work that enters [`DebtQueues`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DebtWork {
    /// Units that the tenant is charged when the work starts. Further use of the work is charged
    /// afterwards.
    pub units: f64,
    /// The latest time at which the work may start.
    pub latest: Instant,
}

/// Waiting work, with the units that are charged when it starts.
#[derive(Clone, Copy, Debug)]
struct Held<T> {
    work: T,
    units: f64,
}

/// A tenant in debt, with waiting work.
#[derive(Clone, Copy, Debug)]
struct Indebted {
    paid_at: Instant,
    /// Serial number of the first waiting work.
    head: u64,
    waiting: u32,
    /// Sum of the units of the waiting work.
    units: f64,
}

/// The id of waiting work in [`DebtQueues`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DebtPlace {
    tenant: TenantId,
    serial: u64,
}

impl<T> DebtQueues<T> {
    /// Creates empty queues of work that is charged to `rates`.
    #[must_use]
    pub fn new(rates: Arc<dyn Charged>, options: DebtOptions) -> Self {
        let DebtOptions { waiting_max, over } = options;
        Self {
            rates,
            over,
            bounds: waiting_max.map(|(max, tenants)| Bounds::new(max, tenants)),
            waiting: BTreeMap::new(),
            tenants: BTreeMap::new(),
            due: BTreeSet::new(),
            units: 0.0,
            serial: 0,
        }
    }

    /// Charges a tenant for units that its work has used.
    pub fn charge(&self, now: Instant, tenant: TenantId, units: f64) {
        self.rates.charge(now, tenant, units);
    }

    /// Starts a tenant's work, charges its units and returns none; or queues the work and returns
    /// its place if the tenant is in debt or has other work waiting. Work is also queued if it
    /// would use units that are due to waiting work of other tenants. `work` is called only if the
    /// work is queued.
    ///
    /// # Errors
    /// If the work would have to wait although waiting is not allowed, if it would start after its
    /// latest time, or if too much work waits.
    pub fn enter(
        &mut self,
        now: Instant,
        tenant: TenantId,
        DebtWork { units, latest }: DebtWork,
        work: impl FnOnce() -> T,
    ) -> Result<Option<DebtPlace>, TenantRefusal> {
        let paid_at = self.rates.charge(now, tenant, 0.0);
        let (waiting, own_units) =
            self.tenants.get(&tenant).map_or((0, 0.0), |queue| (queue.waiting, queue.units));
        if paid_at.is_none() && waiting == 0 && !self.passes_others(now, tenant) {
            self.start(now, tenant, units);
            return Ok(None);
        }
        let starts_at = self.rates.expected_start(now, tenant, own_units, self.units);
        self.check(now, waiting, starts_at, latest).inspect_err(|_| self.rates.note_refused(tenant))?;
        let due = paid_at.unwrap_or(now).min(now + LOOK_AGAIN);
        Ok(Some(self.hold(tenant, due, Held { work: work(), units })))
    }

    /// Returns true if work of a tenant, started now, would use units of a rate-limited resource
    /// that are due to other waiting work.
    fn passes_others(&self, now: Instant, tenant: TenantId) -> bool {
        self.next_timeout().is_some_and(|due| due <= now) && self.rates.is_shared(now, tenant)
    }

    /// Checks that new work, which would start at `starts_at` and has `waiting` items of its tenant
    /// before it, may be queued.
    fn check(
        &self,
        now: Instant,
        waiting: u32,
        starts_at: Instant,
        latest: Instant,
    ) -> Result<(), TenantRefusal> {
        let starts_in = starts_at - now;
        if self.over == OverRate::Refuse || starts_at > latest {
            return Err(TenantRefusal::TooLate { starts_in });
        }
        match &self.bounds {
            Some(bounds) if !bounds.has_room(waiting) => {
                Err(TenantRefusal::Full { limit: bounds.max(), retry_in: starts_in })
            }
            _ => Ok(()),
        }
    }

    /// Queues work of a tenant whose debt may be paid at `paid_at`.
    fn hold(&mut self, tenant: TenantId, paid_at: Instant, held: Held<T>) -> DebtPlace {
        let place = DebtPlace { tenant, serial: self.serial };
        self.serial += 1;
        let new = Indebted { paid_at, head: place.serial, waiting: 0, units: 0.0 };
        let queue = self.tenants.entry(tenant).or_insert(new);
        self.bounds.iter_mut().for_each(|bounds| bounds.add(queue.waiting));
        queue.waiting += 1;
        queue.units += held.units;
        self.units += held.units;
        // A higher rate pays earlier than expected.
        let earliest = queue.paid_at.min(paid_at);
        self.waiting.insert(place, held);
        self.set_due(tenant, earliest);
        self.rates.note_waiting(tenant, true);
        place
    }

    /// Withdraws waiting work and returns it; none if it has started.
    pub fn give_up(&mut self, place: DebtPlace) -> Option<T> {
        self.take(place).map(|held| held.work)
    }

    /// Refuses waiting work that must not wait longer. Returns the refusal; none if the work has
    /// started.
    pub fn refuse(&mut self, now: Instant, place: DebtPlace) -> Option<TenantRefusal> {
        self.take(place)?;
        self.rates.note_refused(place.tenant);
        let own_units = self.tenants.get(&place.tenant).map_or(0.0, |queue| queue.units);
        let starts_in = self.rates.expected_start(now, place.tenant, own_units, self.units) - now;
        Some(TenantRefusal::TooLate { starts_in })
    }

    fn take(&mut self, place: DebtPlace) -> Option<Held<T>> {
        let held = self.waiting.remove(&place)?;
        let queue = self.tenants.get_mut(&place.tenant)?;
        queue.waiting -= 1;
        self.bounds.iter_mut().for_each(|bounds| bounds.remove(queue.waiting));
        queue.units -= held.units;
        // Exact when nothing waits, so that rounding errors do not add up.
        self.units = if self.waiting.is_empty() { 0.0 } else { self.units - held.units };
        let Indebted { paid_at, head, waiting, .. } = *queue;
        if waiting == 0 {
            self.due.remove(&(paid_at, head, place.tenant));
            self.tenants.remove(&place.tenant);
        } else if head == place.serial {
            self.set_due(place.tenant, paid_at);
        }
        self.rates.note_waiting(place.tenant, false);
        Some(held)
    }

    /// Starts the next work and charges its units. Returns the work with its tenant, or none until
    /// [`next_timeout`](Self::next_timeout). Further use of the work must be charged before the
    /// next call, or the next work may start too early.
    pub fn start_next(&mut self, now: Instant) -> Option<(TenantId, T)> {
        loop {
            let &(_, head, tenant) = self.due.first().filter(|(due, ..)| *due <= now)?;
            let later = self.rates.charge(now, tenant, 0.0).filter(|&later| later > now);
            // Behind tenants whose debts were paid before.
            self.set_due(tenant, later.map_or(now, |later| later.min(now + LOOK_AGAIN)));
            if later.is_none() {
                let Held { work, units } = self.take(DebtPlace { tenant, serial: head })?;
                self.start(now, tenant, units);
                return Some((tenant, work));
            }
        }
    }

    /// Charges the units of work that starts.
    fn start(&self, now: Instant, tenant: TenantId, units: f64) {
        if units > 0.0 {
            self.charge(now, tenant, units);
        }
    }

    /// Returns the time at which work may start, or a debt is checked again; none if no work waits.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(due, ..)| *due)
    }

    /// Returns the number of waiting items of a tenant.
    #[must_use]
    pub fn waiting(&self, tenant: TenantId) -> u32 {
        self.tenants.get(&tenant).map_or(0, |queue| queue.waiting)
    }

    /// Returns the number of waiting items of all tenants.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if no work waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Withdraws all waiting work.
    pub fn give_up_all(&mut self) {
        while let Some((&place, _)) = self.waiting.first_key_value() {
            self.take(place);
        }
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

impl<T: fmt::Debug> fmt::Debug for DebtQueues<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DebtQueues").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
