//! Recent use of a backend by tenant, from which admission protects the steady ones.

use std::time::Duration;

use sherwood_model::{Instant, TenantId};

/// Work that was admitted for each tenant within the latest half to whole second.
///
/// Equal shares are meant for the time of contention: a tenant may use what the others leave. A
/// tenant *bursts* if it uses at least twice as much as the others do on average, and all of them
/// together at least half of what the replicas can do; what these others use is reserved for them.
/// At most 64 tenants are told apart; those that come later, while as
/// many are active, are taken to be steady.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    /// Number of calls that all replicas work on at a time.
    workers: u64,
    /// Start of the current period.
    since: Instant,
    used: Vec<Used>,
}

#[derive(Clone, Copy, Debug)]
struct Used {
    tenant: TenantId,
    current_ns: u64,
    previous_ns: u64,
}

/// A tenant beside the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Standing {
    /// No tenant bursts.
    Even,
    /// Another tenant bursts.
    Steady,
    /// The tenant bursts. The ratio is the share of every worker's time to leave to the others, 0
    /// to 1.
    Bursting { reserved_ratio: f64 },
}

impl Shares {
    pub(super) fn new(workers: u64) -> Self {
        Self { workers: workers.max(1), since: Instant::ZERO, used: Vec::new() }
    }

    /// Notes that a call was admitted for a tenant, and the time that it is expected to take.
    pub(super) fn note(&mut self, tenant: TenantId, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let has_room = self.used.len() < TENANTS_MAX;
        match self.used.iter_mut().find(|used| used.tenant == tenant) {
            Some(used) => used.current_ns = used.current_ns.saturating_add(nanos),
            None if has_room => self.used.push(Used { tenant, current_ns: nanos, previous_ns: 0 }),
            None => {}
        }
    }

    /// Returns the standing of a tenant at `now`. Linear in the active tenants.
    pub(super) fn standing(&mut self, now: Instant, tenant: TenantId) -> Standing {
        self.advance(now);
        let span = (PERIOD + (now - self.since)).as_nanos() as f64 * self.workers as f64;
        let total = self.used.iter().map(Used::sum).fold(0, u64::saturating_add);
        let others = self.used.len().saturating_sub(1) as u64;
        if others == 0 || (total as f64) < span / 2.0 {
            return Standing::Even;
        }
        let bursts = |used: &Used| used.sum() >= (total - used.sum()) / others * 2;
        let own = self.used.iter().find(|used| used.tenant == tenant);
        if own.is_some_and(bursts) {
            let steady = self.used.iter().filter(|used| !bursts(used)).map(Used::sum);
            // A tenant's calls come unevenly: twice what it uses lets most of them through.
            let ratio = 2.0 * steady.fold(0, u64::saturating_add) as f64 / span;
            let equal = others as f64 / (others as f64 + 1.0);
            return Standing::Bursting { reserved_ratio: ratio.min(equal) };
        }
        if self.used.iter().any(bursts) { Standing::Steady } else { Standing::Even }
    }

    /// Begins another period where one has passed. Tenants that used nothing for two are forgotten.
    fn advance(&mut self, now: Instant) {
        let passed = now - self.since;
        if passed < PERIOD {
            return;
        }
        self.since = now;
        for used in &mut self.used {
            used.previous_ns = if passed < 2 * PERIOD { used.current_ns } else { 0 };
            used.current_ns = 0;
        }
        self.used.retain(|used| used.sum() > 0);
    }
}

impl Used {
    fn sum(&self) -> u64 {
        self.current_ns.saturating_add(self.previous_ns)
    }
}

/// Half of the longest time for which use counts: long beside a call, short beside a burst.
const PERIOD: Duration = Duration::from_millis(500);

/// Largest number of tenants that are told apart.
const TENANTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const STEADY: TenantId = TenantId(1);
    const BURSTING: TenantId = TenantId(2);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn single_tenant_and_tenants_of_similar_use_are_even() {
        let mut shares = Shares::new(1);
        assert_eq!(shares.standing(at(0), STEADY), Standing::Even);
        shares.note(STEADY, ms(100));
        assert_eq!(shares.standing(at(0), STEADY), Standing::Even);
        shares.note(BURSTING, ms(199));
        for tenant in [STEADY, BURSTING, TenantId(9)] {
            assert_eq!(shares.standing(at(0), tenant), Standing::Even);
        }
        shares.note(BURSTING, ms(1));
        assert_eq!(shares.standing(at(0), STEADY), Standing::Steady);
    }

    #[test]
    fn tenants_are_even_while_half_of_what_the_replicas_can_do_is_unused() {
        let mut shares = Shares::new(4);
        shares.note(STEADY, ms(10));
        shares.note(BURSTING, ms(989));
        assert_eq!(shares.standing(at(0), BURSTING), Standing::Even);
        shares.note(BURSTING, ms(1));
        assert_ne!(shares.standing(at(0), BURSTING), Standing::Even);
    }

    #[test]
    fn bursting_tenant_leaves_twice_what_the_others_use_and_at_most_their_equal_share() {
        let mut shares = Shares::new(4);
        shares.standing(at(1_000), STEADY);
        shares.note(STEADY, ms(500));
        shares.note(BURSTING, ms(1_000));
        assert_eq!(shares.standing(at(1_250), STEADY), Standing::Steady);
        assert_eq!(shares.standing(at(1_250), TenantId(9)), Standing::Steady);
        // 500 ms of four workers within 750 ms.
        let reserved_ratio = 1_000.0 / 3_000.0;
        assert_eq!(shares.standing(at(1_250), BURSTING), Standing::Bursting { reserved_ratio });
        (0..20).for_each(|_| shares.note(STEADY, ms(100)));
        (0..20).for_each(|_| shares.note(BURSTING, ms(1_000)));
        assert_eq!(shares.standing(at(1_250), BURSTING), Standing::Bursting { reserved_ratio: 0.5 });
    }

    #[test]
    fn use_is_forgotten_after_two_periods() {
        let mut shares = Shares::new(1);
        for now in [0, 600] {
            shares.standing(at(now), STEADY);
            shares.note(STEADY, ms(100));
            shares.note(BURSTING, ms(900));
        }
        assert_eq!(shares.standing(at(1_150), STEADY), Standing::Steady);
        assert_eq!(shares.standing(at(1_700), STEADY), Standing::Even);
        assert!(shares.used.is_empty());
    }

    #[test]
    fn tenant_over_the_limit_is_taken_to_be_steady() {
        let mut shares = Shares::new(1);
        for tenant in 0..=TENANTS_MAX as u16 {
            shares.note(TenantId(tenant), ms(u64::from(tenant) + 1));
        }
        assert_eq!(shares.used.len(), TENANTS_MAX);
        assert_eq!(shares.standing(at(0), TenantId(TENANTS_MAX as u16)), Standing::Steady);
    }
}
