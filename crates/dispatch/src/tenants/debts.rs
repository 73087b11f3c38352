//! The order in which tenants' work waits for their debts to be paid.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sherwood_model::{Instant, TenantId};

use super::{Bounds, Charged, TenantRefusal};
use crate::OverRate;

/// Longest time between two looks at a debt that work waits for: a rate may have been raised
/// meanwhile.
pub const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Work that waits until its tenant's debt is paid, such as clients of a listener: a queue for each
/// tenant, in the order of arrival.
///
/// This is the only place that starts, holds and refuses work whose use is charged afterwards, and
/// it charges the work that it starts. The rates are [`Charged`] and may be shared with other
/// queues. Only the head of a tenant's queue starts when the debt is paid: it may leave a new debt,
/// for which all behind it wait.
///
/// Memory: some 100 bytes for each that waits. Every call takes a time logarithmic in what waits.
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
    /// Waiting work, by its tenant, then in the order of arrival.
    waiting: BTreeMap<DebtPlace, Held<T>>,
    /// Tenants of which something waits.
    tenants: BTreeMap<TenantId, Indebted>,
    /// The same tenants, by the time at which their debt may be paid, then by the arrival of their
    /// first work: one rate may pay for several of them, and their debts end together.
    due: BTreeSet<(Instant, u64, TenantId)>,
    /// Units of all that waits.
    units: f64,
    /// Serial number of the next that waits.
    serial: u64,
}

/// Settings of [`DebtQueues`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebtOptions {
    /// Most that may wait, and the number of tenants: half of it is divided among them, the rest is
    /// common. None if the user bounds what enters.
    pub waiting_max: Option<(u32, u16)>,
    /// Treatment of the work of a tenant in debt.
    pub over: OverRate,
}

/// Work that enters [`DebtQueues`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DebtWork {
    /// Units that the tenant is charged when the work starts. What it uses beyond these is charged
    /// afterwards.
    pub units: f64,
    /// The time until which the work may wait for its start.
    pub latest: Instant,
}

/// Work that waits, with the units that its start charges.
#[derive(Clone, Copy, Debug)]
struct Held<T> {
    work: T,
    units: f64,
}

/// A tenant of which something waits.
#[derive(Clone, Copy, Debug)]
struct Indebted {
    paid_at: Instant,
    /// Serial number of the first that waits.
    head: u64,
    waiting: u32,
    /// Units of what waits.
    units: f64,
}

/// The place of what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DebtPlace {
    tenant: TenantId,
    serial: u64,
}

impl<T> DebtQueues<T> {
    /// Creates empty queues of work that `rates` pay for.
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

    /// Charges a tenant units that its work has used.
    pub fn charge(&self, now: Instant, tenant: TenantId, units: f64) {
        self.rates.charge(now, tenant, units);
    }

    /// Starts a tenant's work and charges its units, and returns none; or has it wait behind all
    /// that waits of the same tenant, if the tenant is in debt or something of it waits, and
    /// returns its place. It also waits behind work of others that may start already, if it would
    /// take their units. Only work that waits is made.
    ///
    /// # Errors
    /// If the work would have to wait and may not, or not for so long, or too much waits.
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

    /// Returns true if work of a tenant that starts now takes units of work that may start before.
    fn passes_others(&self, now: Instant, tenant: TenantId) -> bool {
        self.next_timeout().is_some_and(|due| due <= now) && self.rates.is_shared(now, tenant)
    }

    /// Returns the refusal of work that may not wait until `starts_at` beside `waiting` others of
    /// its tenant.
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

    /// Has a tenant's work wait, whose debt may be paid at `paid_at`.
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

    /// Takes back work that waits; none if it has started.
    pub fn give_up(&mut self, place: DebtPlace) -> Option<T> {
        self.take(place).map(|held| held.work)
    }

    /// Refuses work that waits, because it may wait no longer. Returns the refusal; none if the
    /// work has started.
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

    /// Returns the work that starts next, with its tenant, and charges its units; none until
    /// [`next_timeout`](Self::next_timeout). What it uses beyond these has to be charged before the
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

    /// Charges work that starts.
    fn start(&self, now: Instant, tenant: TenantId, units: f64) {
        if units > 0.0 {
            self.charge(now, tenant, units);
        }
    }

    /// Returns the time at which something may start, or a debt is looked at again; none if nothing
    /// waits.
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

    /// Takes back everything that waits.
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
