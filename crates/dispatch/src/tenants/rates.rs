//! The rates at which tenants may use one resource.

use std::time::Duration;

use sherwood_model::{Instant, TenantId, TokenBucket};

use super::{NodeRates, RatesInForce};

/// Time for which unused units may be used later. It covers several calls of most tenants.
const BURST: Duration = Duration::from_millis(10);

/// The rates at which tenants may use one resource, and their use so far. They determine which
/// tenant's rate pays for work, and when it is paid for. Waiting work and its order belong to the
/// queues above it.
///
/// With *lending*, unused units of the total pay for tenants beyond their rates. Such work adds
/// nothing to their debts, and a tenant that resumes work still has all its own units.
///
/// Every call takes constant time, except [`set_rates`](Self::set_rates) with O(n). Memory: some
/// 100 bytes for each tenant. Calls with a tenant that does not exist panic.
#[derive(Clone, Debug)]
pub(crate) struct TenantRates {
    tenants: Vec<Rate>,
    /// The total rate of all tenants, whose unused units are lent; none without lending.
    total: Option<TokenBucket>,
    /// True if all tenants share one rate, which is kept in the first tenant's bucket.
    is_common: bool,
    /// Unused units that may be used later, where that allows more than [`BURST`].
    burst_units: u32,
    /// The rates that follow, and the time from which they are in force; none if these stay.
    next: Option<(Instant, NodeRates)>,
}

/// The rate of a tenant, and its use so far.
#[derive(Clone, Debug)]
struct Rate {
    bucket: TokenBucket,
    /// Units per second; none without a limit.
    per_s: Option<f64>,
    own: Meter,
    lent: Meter,
}

/// The source of the units of a tenant's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payer {
    /// The tenant's own rate.
    #[default]
    Own,
    /// Units lent, because other tenants did not use them.
    Lent,
}

/// A tenant's use since the start, and its waiting work.
///
/// Counters of units never decrease: refunded units are deducted from later use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantUse {
    /// Number of waiting work items.
    pub waiting: u32,
    /// Units that the tenant's own rate paid for.
    pub own_units: f64,
    /// Lent units, which other tenants did not use.
    pub lent_units: f64,
    /// Number of refused work items.
    pub refused: u64,
}

impl TenantUse {
    /// Returns all units that the tenant used, own and lent.
    #[must_use]
    pub fn units(&self) -> f64 {
        self.own_units + self.lent_units
    }
}

/// A counter of units that never decreases: refunded units are deducted from later ones.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    counted: f64,
    given_back: f64,
}

impl Meter {
    fn count(&mut self, units: f64) {
        let covered = units.min(self.given_back);
        self.given_back -= covered;
        self.counted += units - covered;
    }
}

impl Rate {
    fn set(&mut self, now: Instant, per_s: Option<f64>, burst_units: u32) {
        self.per_s = per_s;
        self.bucket.set_rate(now, per_s);
        let of_units = per_s.map_or(0.0, |per_s| f64::from(burst_units) / per_s);
        self.bucket.set_burst(BURST.max(seconds(of_units)));
    }
}

impl TenantRates {
    /// Creates unlimited rates for this many tenants. `lends` is true if unused units pay for other
    /// tenants. A tenant may use up to `burst_units`, or the units of 10 ms if these are more,
    /// later than they became available.
    pub(crate) fn new(tenants: u16, burst_units: u32, lends: bool) -> Self {
        let (own, lent) = (Meter::default(), Meter::default());
        let rate = Rate { bucket: TokenBucket::unlimited(BURST), per_s: None, own, lent };
        let total = lends.then(|| TokenBucket::unlimited(BURST));
        Self { tenants: vec![rate; tenants.into()], total, is_common: false, burst_units, next: None }
    }

    /// Sets the rate of all tenants together and of each tenant, by its id, in units per second.
    /// Debts remain. An infinite rate is no limit; a rate below 1 counts as 1, so that a tenant
    /// without a share can start work. If `per_s` is empty, all tenants share the total rate.
    pub(crate) fn set_rates(&mut self, now: Instant, total_per_s: f64, per_s: &[f64]) {
        self.next = None;
        self.is_common = per_s.is_empty();
        let per_s = if self.is_common { &[total_per_s] } else { per_s };
        if let Some(total) = &mut self.total {
            total.set_rate(now, limit(total_per_s));
        }
        for (tenant, per_s) in self.tenants.iter_mut().zip(per_s) {
            tenant.set(now, limit(*per_s), self.burst_units);
        }
    }

    /// Sets the rates until the first loan ends, and those from then on, of which
    /// [`take_ended`](Self::take_ended) tells.
    pub(crate) fn set_in_force(&mut self, now: Instant, rates: &RatesInForce) {
        self.set_changed(now, rates.at(now));
        let ends = now < rates.ends_at && rates.ends_at < Instant::NEVER;
        self.next = ends.then(|| (rates.ends_at, rates.without_loans.clone()));
    }

    /// Sets the rates that have changed. The unused units of others can still be used.
    pub(crate) fn set_changed(&mut self, now: Instant, rates: &NodeRates) {
        let NodeRates { total_per_s, per_s } = rates;
        if self.is_common != per_s.is_empty() {
            return self.set_rates(now, *total_per_s, per_s);
        }
        let total_per_s = limit(*total_per_s);
        if let Some(total) = &mut self.total
            && total.rate() != total_per_s
        {
            total.set_rate(now, total_per_s);
        }
        let per_s = if self.is_common { &[rates.total_per_s][..] } else { per_s };
        for (tenant, per_s) in self.tenants.iter_mut().zip(per_s) {
            if tenant.per_s != limit(*per_s) {
                tenant.set(now, limit(*per_s), self.burst_units);
            }
        }
    }

    /// Returns the rates that follow these, and since when, if that was before `now`. The caller
    /// sets them.
    pub(crate) fn take_ended(&mut self, now: Instant) -> Option<(Instant, NodeRates)> {
        self.next.take_if(|(at, _)| *at <= now)
    }

    /// Returns the number of tenants.
    pub(crate) fn len(&self) -> usize {
        self.tenants.len()
    }

    /// Returns true if all tenants share one rate.
    pub(crate) fn is_common(&self) -> bool {
        self.is_common
    }

    /// Returns the tenant whose bucket pays for the work of tenant `id`.
    pub(crate) fn paying(&self, id: TenantId) -> TenantId {
        if self.is_common { TenantId(0) } else { id }
    }

    /// Returns the time at which a tenant's rate has paid for its use so far.
    pub(crate) fn paid_at(&self, id: TenantId) -> Instant {
        self.tenants[self.paying(id).index()].bucket.ready_at()
    }

    /// Returns the time from which units of the total are lent; none without lending.
    pub(crate) fn lent_at(&self) -> Option<Instant> {
        self.total.as_ref().map(TokenBucket::ready_at)
    }

    /// Returns true if the total has unused units to lend now.
    pub(crate) fn is_lending(&self, now: Instant) -> bool {
        self.lent_at().is_some_and(|lent_at| lent_at <= now)
    }

    /// Returns the time that it takes to pay for this many units, at the rate that pays for a
    /// tenant.
    pub(crate) fn time_of(&self, id: TenantId, units: f64) -> Duration {
        let per_s = self.tenants[self.paying(id).index()].per_s;
        per_s.map_or(Duration::ZERO, |per_s| seconds(units / per_s))
    }

    /// Charges units of a tenant's work that starts or has ended at `now`, after it waited from
    /// `since` on. The units of that waiting time are not lost, however long the wait was.
    pub(crate) fn charge(
        &mut self,
        now: Instant,
        since: Instant,
        (id, payer): (TenantId, Payer),
        units: f64,
    ) {
        if let Some(total) = &mut self.total {
            total.charge_waited(now, since, units);
        }
        let paying = self.paying(id).index();
        match payer {
            Payer::Own => {
                self.tenants[paying].bucket.charge_waited(now, since, units);
                self.tenants[id.index()].own.count(units);
            }
            Payer::Lent => self.tenants[id.index()].lent.count(units),
        }
    }

    /// Refunds units that were charged for work that was not done.
    pub(crate) fn refund(&mut self, (id, payer): (TenantId, Payer), units: f64) {
        if let Some(total) = &mut self.total {
            total.refund(units);
        }
        let paying = self.paying(id).index();
        match payer {
            Payer::Own => {
                self.tenants[paying].bucket.refund(units);
                self.tenants[id.index()].own.given_back += units;
            }
            Payer::Lent => self.tenants[id.index()].lent.given_back += units,
        }
    }

    /// Returns the units that a tenant has used, own and lent.
    pub(crate) fn used(&self, id: TenantId) -> TenantUse {
        let Rate { own, lent, .. } = &self.tenants[id.index()];
        TenantUse { own_units: own.counted, lent_units: lent.counted, ..TenantUse::default() }
    }
}

/// Returns the rate limit for a bucket; none for an infinite rate.
fn limit(per_s: f64) -> Option<f64> {
    // The maximum of a rate that is not a number is one as well.
    (per_s != f64::INFINITY).then(|| per_s.max(1.0))
}

/// Converts seconds to a duration; values that do not fit become the longest duration.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
