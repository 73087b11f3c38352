//! The rates of tenants at one resource.

use std::time::Duration;

use sherwood_model::{Instant, TenantId, TokenBucket};

/// Time for which units that were not used may be used later: some calls of most tenants.
const BURST: Duration = Duration::from_millis(10);

/// The rates at which tenants use one resource: the tenant that pays for work, the time at which it
/// is paid for, and the use so far. Waiting work and its order belong to the queues above it.
///
/// With *lending*, unused units of the total pay for tenants beyond their rates. Such work adds
/// nothing to their debts, and an owner that resumes has all its own units.
///
/// Every call takes constant time, [`set_rates`](Self::set_rates) O(n). Memory: some 100 bytes for
/// each tenant. Calls with a tenant that does not exist panic.
#[derive(Clone, Debug)]
pub(crate) struct TenantRates {
    tenants: Vec<Rate>,
    /// Units of all tenants together, of which unused ones are lent; none without lending.
    total: Option<TokenBucket>,
    /// True if one rate pays for the work of all tenants: that of the first one's bucket.
    is_common: bool,
    /// Units that were not used and may be used later, where that is longer than [`BURST`].
    burst_units: u32,
}

/// The rate of a tenant, and what it has used.
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
    /// Units that other tenants leave.
    Lent,
}

/// A tenant's use since the start, and what waits.
///
/// Counters of units never fall: units that are given back are taken off those that are used next.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantUse {
    /// Work that waits.
    pub waiting: u32,
    /// Units of the tenant's own rate.
    pub own_units: f64,
    /// Units that other tenants left.
    pub lent_units: f64,
    /// Work that was refused.
    pub refused: u64,
}

impl TenantUse {
    /// Returns all units that the tenant used, its own and lent ones.
    #[must_use]
    pub fn units(&self) -> f64 {
        self.own_units + self.lent_units
    }
}

/// A counter of units that never falls: units given back are taken off those that follow.
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

impl TenantRates {
    /// Creates the rates of this many tenants, without limits; `lends` if unused units
    /// pay for others. A tenant may use `burst_units`, or those of 10 ms, later than it got them.
    pub(crate) fn new(tenants: u16, burst_units: u32, lends: bool) -> Self {
        let (own, lent) = (Meter::default(), Meter::default());
        let rate = Rate { bucket: TokenBucket::unlimited(BURST), per_s: None, own, lent };
        let total = lends.then(|| TokenBucket::unlimited(BURST));
        Self { tenants: vec![rate; tenants.into()], total, is_common: false, burst_units }
    }

    /// Sets the units per second of all tenants together, and of each by its id. Debts remain.
    /// Infinite is no limit; below one a second counts as one, so that a tenant without a share can
    /// begin. Without rates of tenants (`per_s` is empty) the total pays for the work of all.
    pub(crate) fn set_rates(&mut self, now: Instant, total_per_s: f64, per_s: &[f64]) {
        self.is_common = per_s.is_empty();
        let per_s = if self.is_common { &[total_per_s] } else { per_s };
        if let Some(total) = &mut self.total {
            total.set_rate(now, limit(total_per_s));
        }
        for (tenant, per_s) in self.tenants.iter_mut().zip(per_s) {
            tenant.per_s = limit(*per_s);
            tenant.bucket.set_rate(now, tenant.per_s);
            let of_units = tenant.per_s.map_or(0.0, |per_s| f64::from(self.burst_units) / per_s);
            tenant.bucket.set_burst(BURST.max(seconds(of_units)));
        }
    }

    /// Returns the number of tenants.
    pub(crate) fn len(&self) -> usize {
        self.tenants.len()
    }

    /// Returns true if one rate pays for the work of all tenants.
    pub(crate) fn is_common(&self) -> bool {
        self.is_common
    }

    /// Returns the tenant whose rate pays for the work of this one.
    pub(crate) fn paying(&self, id: TenantId) -> TenantId {
        if self.is_common { TenantId(0) } else { id }
    }

    /// Returns the time at which what a tenant has used is paid for by its rate.
    pub(crate) fn paid_at(&self, id: TenantId) -> Instant {
        self.tenants[self.paying(id).index()].bucket.ready_at()
    }

    /// Returns the time from which units of the total are lent; none without lending.
    pub(crate) fn lent_at(&self) -> Option<Instant> {
        self.total.as_ref().map(TokenBucket::ready_at)
    }

    /// Returns true if units of the total are unused, so that they are lent.
    pub(crate) fn is_lending(&self, now: Instant) -> bool {
        self.lent_at().is_some_and(|lent_at| lent_at <= now)
    }

    /// Returns the time that so many units take at the rate that pays for a tenant.
    pub(crate) fn time_of(&self, id: TenantId, units: f64) -> Duration {
        let per_s = self.tenants[self.paying(id).index()].per_s;
        per_s.map_or(Duration::ZERO, |per_s| seconds(units / per_s))
    }

    /// Charges units of a tenant's work that starts or was done now and has waited since `since`:
    /// the time from then on was not unused, so that all of it may be caught up.
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

    /// Gives back units that were charged, because the work was not done.
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

    /// Returns the units that a tenant has used.
    pub(crate) fn used(&self, id: TenantId) -> TenantUse {
        let Rate { own, lent, .. } = &self.tenants[id.index()];
        TenantUse { own_units: own.counted, lent_units: lent.counted, ..TenantUse::default() }
    }
}

/// Returns the rate of a bucket; none for no limit.
fn limit(per_s: f64) -> Option<f64> {
    // The maximum of a rate that is not a number is one as well.
    (per_s != f64::INFINITY).then(|| per_s.max(1.0))
}

/// Converts seconds to a duration; a number that does not fit becomes the longest one.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
