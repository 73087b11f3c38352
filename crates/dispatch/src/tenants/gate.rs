//! Rates of a resource whose use is known only afterwards, such as the bytes of a network.

use std::sync::{Mutex, MutexGuard};

use sherwood_model::{Instant, TenantId};

use super::RatesInForce;
use super::rates::{Payer, TenantRates, TenantUse};

/// Rates of tenants whose use is charged afterwards, as a debt. Several threads and several
/// [`DebtQueues`](super::DebtQueues) may share them.
pub trait Charged: Send + Sync {
    /// Charges a tenant this many units; 0 only queries the debt. Returns the time before which the
    /// tenant must not start more work; none if it may start now.
    fn charge(&self, now: Instant, tenant: TenantId, units: f64) -> Option<Instant>;

    /// Returns the time at which new work of a tenant is expected to start. `own_units` are the
    /// units of the tenant's waiting work before it, and `all_units` those of the waiting work of
    /// all tenants.
    fn expected_start(&self, now: Instant, tenant: TenantId, own_units: f64, all_units: f64) -> Instant;

    /// Returns true if new work of a tenant would use units that other tenants may wait for: all
    /// share one rate, or the tenant is in debt and lent units pay for it.
    fn is_shared(&self, now: Instant, tenant: TenantId) -> bool;

    /// Counts work of a tenant that starts to wait (`waits`), or waits no longer.
    fn note_waiting(&self, tenant: TenantId, waits: bool);

    /// Counts refused work of a tenant.
    fn note_refused(&self, tenant: TenantId);
}

/// The rates at which tenants use a resource that is charged after each use.
///
/// A use is never refused or cut short: it leaves a debt, and the tenant must not start another one
/// before its rate has paid the debt. So in any period the tenant uses at most what its rate
/// allows, plus unused units of 10 ms before, plus its last use.
///
/// With *lending*, a tenant in debt may go on while units of the total are unused; such a use adds
/// nothing to its debt. A tenant that resumes work still has all its own units.
///
/// Every call takes constant time under a lock, except [`set_rates`](Self::set_rates) with O(n).
/// Memory: some 100 bytes for each tenant. A tenant that does not exist is not limited and not
/// counted.
///
/// ```
/// use sherwood_dispatch::{Charged as _, TenantGate};
/// use sherwood_model::{Instant, TenantId};
///
/// let (network, now) = (TenantGate::new(2, false), Instant::from_secs(2));
/// network.set_rates(Instant::from_secs(1), 3_000.0, &[1_000.0, 2_000.0]);
/// // The burst of 10 ms pays for ten of the units.
/// assert_eq!(network.charge(now, TenantId(0), 0.0), None);
/// assert_eq!(network.charge(now, TenantId(0), 500.0), Some(Instant::from_millis(2_490)));
/// assert_eq!(network.charge(now, TenantId(1), 0.0), None);
/// ```
#[derive(Debug)]
pub struct TenantGate(Mutex<Gate>);

#[derive(Debug)]
struct Gate {
    rates: TenantRates,
    held: Vec<Held>,
}

/// Numbers of a tenant's work items that wait in a queue, and that were refused.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    waiting: u32,
    refused: u64,
}

impl TenantGate {
    /// Creates a gate for this many tenants, with unlimited rates. `lends` is true if unused units
    /// pay for tenants in debt.
    #[must_use]
    pub fn new(tenants: u16, lends: bool) -> Self {
        let (rates, held) = (TenantRates::new(tenants, 0, lends), vec![Held::default(); tenants.into()]);
        Self(Mutex::new(Gate { rates, held }))
    }

    /// Sets the rate of all tenants together and of each tenant, by its id, in units per second.
    /// Debts remain. An infinite rate is no limit; a rate below 1 counts as 1, so that a tenant
    /// without a share can start work. If `per_s` is empty, all tenants share the total rate.
    pub fn set_rates(&self, now: Instant, total_per_s: f64, per_s: &[f64]) {
        self.lock().rates.set_rates(now, total_per_s, per_s);
    }

    /// Sets rates with loans from other nodes, which end by themselves. Unused units of tenants
    /// whose rates stay the same can still be used.
    pub fn set_rates_in_force(&self, now: Instant, rates: &RatesInForce) {
        self.lock_at(now).rates.set_in_force(now, rates);
    }

    /// Returns a tenant's use, and the numbers of its waiting and refused work items; zeros for an
    /// unknown tenant.
    #[must_use]
    pub fn used(&self, id: TenantId) -> TenantUse {
        let gate = self.lock();
        let Some(&Held { waiting, refused }) = gate.held.get(id.index()) else { return TenantUse::default() };
        TenantUse { waiting, refused, ..gate.rates.used(id) }
    }

    /// Locks the gate with the rates in force at a time.
    fn lock_at(&self, now: Instant) -> MutexGuard<'_, Gate> {
        let mut gate = self.lock();
        if let Some((at, rates)) = gate.rates.take_ended(now) {
            gate.rates.set_changed(at, &rates);
        }
        gate
    }

    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.0.lock().expect("no panics while held")
    }
}

impl Charged for TenantGate {
    fn charge(&self, now: Instant, id: TenantId, units: f64) -> Option<Instant> {
        let Gate { rates, .. } = &mut *self.lock_at(now);
        if id.index() >= rates.len() {
            return None;
        }
        if units > 0.0 {
            let owes = rates.paid_at(id) > now;
            let payer = if owes && rates.is_lending(now) { Payer::Lent } else { Payer::Own };
            rates.charge(now, now, (id, payer), units);
        }
        let paid_at = rates.paid_at(id);
        let ready_at = rates.lent_at().map_or(paid_at, |lent_at| lent_at.min(paid_at));
        (ready_at > now).then_some(ready_at)
    }

    fn expected_start(&self, now: Instant, id: TenantId, own_units: f64, all_units: f64) -> Instant {
        let Gate { rates, .. } = &*self.lock_at(now);
        if id.index() >= rates.len() {
            return now;
        }
        let before = if rates.is_common() { all_units } else { own_units };
        let paid_at = rates.paid_at(id).max(now) + rates.time_of(id, before);
        rates.lent_at().map_or(paid_at, |lent_at| lent_at.max(now).min(paid_at))
    }

    fn is_shared(&self, now: Instant, id: TenantId) -> bool {
        let Gate { rates, .. } = &*self.lock_at(now);
        id.index() < rates.len() && (rates.is_common() || rates.paid_at(id) > now)
    }

    fn note_waiting(&self, id: TenantId, waits: bool) {
        if let Some(held) = self.lock().held.get_mut(id.index()) {
            held.waiting = if waits { held.waiting + 1 } else { held.waiting.saturating_sub(1) };
        }
    }

    fn note_refused(&self, id: TenantId) {
        if let Some(held) = self.lock().held.get_mut(id.index()) {
            held.refused += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::NodeRates;

    const T0: TenantId = TenantId(0);
    const T1: TenantId = TenantId(1);

    fn gate(lends: bool, rates: &[f64]) -> TenantGate {
        let gate = TenantGate::new(rates.len() as u16, lends);
        gate.set_rates(Instant::from_secs(1), rates.iter().sum(), rates);
        gate
    }

    /// Lets tenants use `units` at a time, as often as the gate allows, for ten seconds.
    fn use_all(gate: &TenantGate, greedy: &[TenantId], units: f64) {
        let (mut now, end) = (Instant::from_secs(5), Instant::from_secs(15));
        while now < end {
            let mut next = Instant::NEVER;
            for &id in greedy {
                let until = match gate.charge(now, id, 0.0) {
                    None => gate.charge(now, id, units).unwrap_or(now),
                    Some(until) => until,
                };
                next = next.min(until);
            }
            now = next.max(now + Duration::from_nanos(1));
        }
    }

    #[test]
    fn tenants_use_as_much_as_their_rates_allow_for_any_size_of_a_single_use() {
        for units in [100.0, 5_000.0] {
            let gate = gate(false, &[10_000.0, 30_000.0, 5_000.0]);
            use_all(&gate, &[T0, T1], units);
            for (id, rate) in [(T0, 10_000.0), (T1, 30_000.0)] {
                let used = gate.used(id).own_units;
                let most = rate * 10.01 + units;
                assert!((rate * 9.9..=most).contains(&used), "{used} of {rate}/s in 10 s");
            }
        }
    }

    #[test]
    fn unused_units_are_lent_to_other_tenants_without_adding_to_their_debt() {
        let gate = gate(true, &[10_000.0, 30_000.0]);
        use_all(&gate, &[T0], 100.0);
        let TenantUse { own_units, lent_units, .. } = gate.used(T0);
        assert!((392_000.0..=402_000.0).contains(&(own_units + lent_units)), "{own_units} + {lent_units}");
        assert!((98_000.0..=102_000.0).contains(&own_units), "{own_units}");
        let now = Instant::from_secs(15);
        assert_eq!(gate.charge(now, T1, 0.0), None, "the owner goes on at once");
    }

    #[test]
    fn tenants_with_a_common_rate_share_it_and_their_use_is_counted_separately() {
        let gate = gate(false, &[10_000.0, 30_000.0]);
        gate.set_rates(Instant::from_secs(2), 20_000.0, &[]);
        use_all(&gate, &[T0, T1], 100.0);
        let used = [T0, T1].map(|id| gate.used(id).own_units);
        let sum: f64 = used.iter().sum();
        assert!((198_000.0..=200_400.0).contains(&sum), "{used:?} of 20,000/s in 10 s");
        gate.set_rates(Instant::from_secs(15), 40_000.0, &[10_000.0, 30_000.0]);
        assert_eq!(gate.charge(Instant::from_secs(16), T1, 0.0), None, "each has its own again");
    }

    #[test]
    fn loan_ends_in_time_without_a_call() {
        let rates = |per_s: f64| NodeRates { total_per_s: per_s, per_s: vec![per_s] };
        let borrowed = RatesInForce {
            rates: rates(1_000.0),
            ends_at: Instant::from_secs(3),
            without_loans: rates(100.0),
        };
        let gate = gate(false, &[100.0]);
        gate.set_rates_in_force(Instant::from_secs(2), &borrowed);
        let later = Instant::from_millis(2_990);
        assert_eq!(gate.charge(later, T0, 120.0), Some(Instant::from_millis(3_100)), "10 ms for 10 units");
        assert_eq!(gate.charge(Instant::from_millis(3_050), T0, 0.0), Some(Instant::from_secs(4)));
    }

    #[test]
    fn unknown_tenant_and_tenant_without_a_limit_never_wait() {
        let gate = gate(false, &[f64::INFINITY]);
        assert_eq!(gate.charge(Instant::from_secs(2), T0, 1e12), None);
        assert_eq!(gate.charge(Instant::from_secs(2), T1, 1e12), None);
        assert_eq!((gate.used(T0).own_units, gate.used(T1).own_units), (1e12, 0.0));
    }

    #[test]
    fn tenant_with_a_rate_of_zero_can_start_work_and_repays_one_unit_per_second() {
        let gate = gate(false, &[0.0]);
        let now = Instant::from_secs(2);
        assert_eq!(gate.charge(now, T0, 0.0), None);
        assert_eq!(gate.charge(now, T0, 3.0), Some(Instant::from_millis(4_990)));
    }
}
