//! Tenants of a listener's clients, told by their users.
//!
//! All clients of a listener have the same routes unless it knows whose its users are. Then a
//! client has the routes of its user's tenant and no others: whatever it sends, its keys lead to
//! the partitions of its tenant. Before its login it has the listener's own routes, of which there
//! are none on such a listener.

use std::collections::HashMap;

use sherwood_model::TenantId;

use super::routing::Routing;

/// Position of a client's routes and counters among those of its listener: 0 for the listener's
/// own, and then those of users, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TenantSlot(pub(super) u16);

impl TenantSlot {
    /// Creates the slot of an index below [`UserRoutes::slots`].
    pub(super) fn from_index(index: usize) -> Self {
        Self(u16::try_from(index).expect("at most 65,536 slots"))
    }

    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

/// Routes of the tenants whose users log in at a listener; none if all clients have the routes of
/// the listener.
#[derive(Clone, Debug, Default)]
pub struct UserRoutes {
    each: Vec<Routing>,
    slots: HashMap<TenantId, TenantSlot>,
}

impl UserRoutes {
    /// Creates the routes of users from those of each tenant, of which there are at most 65,535.
    /// Memory: about 80 bytes for each route of each tenant.
    ///
    /// # Panics
    /// If there are more.
    #[must_use]
    pub fn new(routes: impl IntoIterator<Item = Routing>) -> Self {
        let each: Vec<Routing> = routes.into_iter().collect();
        let slot =
            |(index, routing): (usize, &Routing)| (routing.tenant(), TenantSlot::from_index(index + 1));
        let slots = each.iter().enumerate().map(slot);
        Self { slots: slots.collect(), each }
    }

    /// Returns the number of slots: the listener's own, and one per tenant.
    pub(super) fn slots(&self) -> usize {
        1 + self.each.len()
    }

    /// Returns the slot of a user's tenant; none if the users of this tenant have no routes here.
    pub(super) fn slot(&self, tenant: TenantId) -> Option<TenantSlot> {
        if self.each.is_empty() { Some(TenantSlot::default()) } else { self.slots.get(&tenant).copied() }
    }

    /// Returns the routes of a slot; none for the listener's own.
    pub(super) fn routing(&self, slot: TenantSlot) -> Option<&Routing> {
        self.each.get(slot.index().checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_of_a_tenant_without_routes_has_no_slot() {
        let of = |tenant| Routing::by_prefix(TenantId(tenant), []).unwrap();
        let users = UserRoutes::new([of(3), of(1)]);
        assert_eq!(
            users.slot(TenantId(1)).and_then(|slot| users.routing(slot)).unwrap().tenant(),
            TenantId(1)
        );
        assert_eq!((users.slot(TenantId(0)), users.slots()), (None, 3));
        assert!(users.routing(TenantSlot::default()).is_none());
        assert_eq!(UserRoutes::default().slot(TenantId(7)), Some(TenantSlot::default()));
    }
}
