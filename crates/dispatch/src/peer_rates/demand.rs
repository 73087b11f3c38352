//! The use of a resource by tenants, from which follow the idle units and those that are missing.

use sherwood_model::Instant;

use super::terms::{KEPT_RATIO, LOOK_EVERY};
use crate::TenantUse;

/// The use of a resource by each tenant in the last second or so.
#[derive(Clone, Debug, Default)]
pub(super) struct Demands {
    looked_at: Option<Instant>,
    each: Vec<Demand>,
}

/// The use of a resource by a tenant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    seen: TenantUse,
    /// Units per second that the tenant's own rate paid for: the most of late.
    own_per_s: f64,
    /// Units per second from other tenants of this node: the most of late.
    lent_per_s: f64,
    /// True if work waited at the last look, or was refused since the one before.
    waits: bool,
    /// The same for the look before.
    waited: bool,
}

/// After this many looks without any use, some 30% of the most that was used counts as used.
const FADE: f64 = 0.8;

/// Units that a tenant keeps when others borrow, in relation to those that it uses.
const HEADROOM: f64 = 1.25;

impl Demands {
    /// Takes in the counters of all tenants. Those of a common rate count for the first one, whose
    /// rate then pays for all.
    pub(super) fn look(&mut self, now: Instant, uses: &[TenantUse], is_common: bool) {
        let elapsed = self.looked_at.map(|before| now.since(before));
        if elapsed.is_some_and(|elapsed| elapsed < LOOK_EVERY / 2) {
            // So short a time says little about a rate.
            return;
        }
        self.looked_at = Some(now);
        let together = [uses.iter().fold(TenantUse::default(), |sum, one| TenantUse {
            waiting: sum.waiting.saturating_add(one.waiting),
            own_units: sum.own_units + one.own_units,
            lent_units: sum.lent_units + one.lent_units,
            refused: sum.refused + one.refused,
        })];
        let uses = if is_common { &together[..] } else { uses };
        if self.each.len() != uses.len() {
            self.each = uses.iter().map(|used| Demand { seen: *used, ..Demand::default() }).collect();
        }
        let elapsed_s = elapsed.map_or(f64::INFINITY, |elapsed| elapsed.as_secs_f64());
        for (demand, used) in self.each.iter_mut().zip(uses) {
            demand.look(elapsed_s, *used);
        }
    }

    /// Returns the use by a tenant.
    pub(super) fn of(&self, tenant: usize) -> Demand {
        self.each.get(tenant).copied().unwrap_or_default()
    }

    /// Returns true if there are figures of the use.
    pub(super) fn are_known(&self) -> bool {
        self.looked_at.is_some()
    }

    /// Units per second of idle tenants that others of this node use.
    pub(super) fn lent_per_s(&self) -> f64 {
        self.each.iter().map(|demand| demand.lent_per_s).sum()
    }
}

impl Demand {
    fn look(&mut self, elapsed_s: f64, used: TenantUse) {
        let per_s = |now: f64, before: f64, most: f64| ((now - before).max(0.0) / elapsed_s).max(most * FADE);
        self.own_per_s = per_s(used.own_units, self.seen.own_units, self.own_per_s);
        self.lent_per_s = per_s(used.lent_units, self.seen.lent_units, self.lent_per_s);
        let waits = used.waiting > 0 || used.refused > self.seen.refused;
        (self.waited, self.waits) = (self.waits, waits);
        self.seen = used;
    }

    /// True if work of the tenant waits.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Units per second that the tenant uses.
    pub(super) fn per_s(&self) -> f64 {
        self.own_per_s + self.lent_per_s
    }

    /// Units per second that the tenant needs of a rate of its own, if nothing waits.
    pub(super) fn needed_per_s(&self) -> f64 {
        self.own_per_s * HEADROOM
    }

    /// Returns the units per second that the tenant keeps of its part `own_per_s`. All, if its work
    /// waits; at least one, so that it can start.
    pub(super) fn kept_per_s(&self, own_per_s: f64) -> f64 {
        if self.waits || self.waited {
            return own_per_s;
        }
        self.needed_per_s().max(own_per_s * KEPT_RATIO).max(1.0).min(own_per_s)
    }
}
