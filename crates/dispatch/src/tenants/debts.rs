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
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::TenantGate;

    const T0: TenantId = TenantId(0);
    const T1: TenantId = TenantId(1);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn work_without_a_turn_keeps_its_place_before_work_that_had_a_turn() {
        let mut queues = DebtQueues::new();
        for work in ["a", "b", "c"] {
            queues.wait(T0, at(1), work);
        }
        assert_eq!(queues.start_next(at(1), |_| None), Some((T0, "a")));
        // It has left a debt, and waits again.
        queues.wait(T0, at(3), "a");
        assert_eq!(queues.start_next(at(1), |_| Some(at(3))), None);
        assert_eq!(queues.next_timeout(), Some(at(3)));
        let order: Vec<_> = std::iter::from_fn(|| queues.start_next(at(3), |_| None)).collect();
        assert_eq!(order, [(T0, "b"), (T0, "c"), (T0, "a")]);
    }

    #[test]
    fn debt_is_looked_at_once_however_much_waits_for_it() {
        let mut queues = DebtQueues::new();
        for work in 0..1_000 {
            queues.wait(T0, at(1), work);
        }
        let mut looks = 0;
        let mut look = |_| {
            looks += 1;
            Some(at(9))
        };
        assert_eq!(queues.start_next(at(2), &mut look), None);
        assert_eq!(queues.start_next(at(2), &mut look), None);
        assert_eq!((looks, queues.waiting(T0)), (1, 1_000));
    }

    #[test]
    fn tenants_whose_debts_are_paid_start_in_turn() {
        let mut queues = DebtQueues::new();
        for work in 0..2 {
            queues.wait(T0, at(1), work);
            queues.wait(T1, at(2), work);
        }
        let order: Vec<_> = std::iter::from_fn(|| queues.start_next(at(5), |_| None)).collect();
        assert_eq!(order, [(T0, 0), (T1, 0), (T0, 1), (T1, 1)]);
    }

    #[test]
    fn tenants_with_one_rate_start_in_the_order_of_arrival() {
        let mut gate = TenantGate::new(3, false);
        gate.set_rates(at(500), 1_000.0, &[]);
        let mut queues = DebtQueues::new();
        let mut now = at(1_000);
        // Each waits again after its turn, which leaves a debt of all.
        for id in [2, 0, 1] {
            queues.wait(TenantId(id), now, ());
        }
        let mut order = Vec::new();
        while order.len() < 9 {
            match queues.start_next(now, |id| gate.charge(now, id, 0.0)) {
                Some((tenant, ())) => {
                    order.push(tenant.0);
                    let paid_at = gate.charge(now, tenant, 100.0).unwrap_or(now);
                    queues.wait(tenant, paid_at, ());
                }
                None => now = queues.next_timeout().expect("three wait"),
            }
        }
        assert_eq!(order, [2, 0, 1, 2, 0, 1, 2, 0, 1]);
    }

    #[test]
    fn cancelled_work_does_not_start_and_wakes_nobody() {
        let mut queues = DebtQueues::new();
        let place = queues.wait(T0, at(1), "gone");
        queues.wait(T1, at(2), "stays");
        assert_eq!((place.tenant(), queues.cancel(place)), (T0, Some("gone")));
        assert_eq!(queues.cancel(place), None);
        assert_eq!((queues.next_timeout(), queues.len()), (Some(at(2)), 1));
        assert_eq!(queues.start_next(at(2), |_| None), Some((T1, "stays")));
        assert!(queues.is_empty() && queues.next_timeout().is_none());
    }

    proptest! {
        /// Whatever waits and leaves, each tenant's work starts once, in the order of arrival, and
        /// its use is at most what the rate allows and the last use.
        #[test]
        fn each_tenant_starts_in_order_and_keeps_to_its_rate(
            steps in prop::collection::vec((0_u16..3, 1_u64..2_000, 0_u8..10), 1..300),
        ) {
            let rates = [10_000.0, 20_000.0, 40_000.0];
            let mut gate = TenantGate::new(3, false);
            gate.set_rates(Instant::ZERO, rates.iter().sum(), &rates);
            let mut queues = DebtQueues::new();
            let mut expected: [VecDeque<(u64, DebtPlace)>; 3] = Default::default();
            let begin = Instant::from_secs(1);
            let (mut now, mut used, mut largest) = (begin, [0; 3], 0);
            for (step, &(id, bytes, action)) in steps.iter().enumerate() {
                let (tenant, number) = (TenantId(id), step as u64);
                largest = largest.max(bytes);
                if action == 0 && let Some((_, place)) = expected[usize::from(id)].pop_back() {
                    prop_assert!(queues.cancel(place).is_some());
                } else {
                    let paid_at = gate.charge(now, tenant, 0.0).unwrap_or(now);
                    let place = queues.wait(tenant, paid_at, (number, bytes));
                    expected[usize::from(id)].push_back((number, place));
                }
                now += Duration::from_millis(u64::from(action));
                while let Some((tenant, (number, bytes))) =
                    queues.start_next(now, |id| gate.charge(now, id, 0.0))
                {
                    let (first, _) = expected[tenant.index()].pop_front().expect("it waits");
                    prop_assert_eq!(number, first);
                    used[tenant.index()] += bytes;
                    gate.charge(now, tenant, bytes as f64);
                }
                prop_assert!(queues.next_timeout().is_none_or(|due| due > now));
            }
            for (used, rate) in used.iter().zip(rates) {
                let most = rate * ((now - begin).as_secs_f64() + 0.01) + largest as f64;
                prop_assert!(*used as f64 <= most + 1.0, "{} of at most {}", used, most);
            }
            let left: usize = expected.iter().map(VecDeque::len).sum();
            prop_assert_eq!(queues.len(), left);
        }
    }
}
