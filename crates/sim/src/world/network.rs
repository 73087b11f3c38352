//! Requests at the gate of tenants' network: they wait until their tenant's debt is paid.

use sherwood_model::{Legs, PartitionId, TenantId};

use super::gate::Network;
use super::{Event, Family, Simulation};

impl<F: Family> Simulation<F> {
    /// Starts a request that has reached its node, unless its tenant is in debt: then it waits, or
    /// is refused if too many do.
    #[inline]
    pub(crate) fn arrive(&mut self, number: u32) {
        let Some(live) = self.live.get(number) else { return };
        let (node, now) = (live.node, self.now);
        let Some(Network { gate, waiting, waiting_max, .. }) = &mut self.nodes[usize::from(node)].network
        else {
            return self.start(number);
        };
        let tenant = F::tenant(&live.client);
        let paid_at = gate.charge(now, tenant, 0.0);
        if waiting.waiting(tenant) >= *waiting_max {
            return self.refuse(number, paid_at.map(|paid_at| paid_at - now));
        }
        if waiting.hold(now, tenant, paid_at, || number).is_none() {
            self.let_in(node, tenant, number);
        }
        self.arm_network(node);
    }

    /// Starts the requests that the rates of network allow.
    pub(super) fn admit(&mut self, node: u16) {
        while let Some(Network { gate, waiting, .. }) = &mut self.nodes[usize::from(node)].network {
            let now = self.now;
            let started = waiting.start_next(now, |tenant| gate.charge(now, tenant, 0.0));
            let Some((tenant, number)) = started else { break };
            self.let_in(node, tenant, number);
        }
        self.arm_network(node);
    }

    pub(super) fn wake_network(&mut self, node: u16) {
        if let Some(network) = &mut self.nodes[usize::from(node)].network
            && network.armed.is_some_and(|armed| armed <= self.now)
        {
            network.armed = None;
        }
        self.admit(node);
    }

    /// Charges the bytes that a fetched answer, or a write, of a partition takes between node and
    /// backend, if those count.
    #[inline]
    pub(super) fn charge_backend_leg(
        &mut self,
        node: u16,
        partition: PartitionId,
        (key, value): (usize, impl Into<u64>),
    ) {
        let at = &self.nodes[usize::from(node)];
        if at.network.as_ref().is_some_and(|network| network.legs == Legs::Both) {
            let tenant = at.owners[partition.index()].0;
            self.charge(node, tenant, (key as u64 + value.into()) as f64);
        }
    }

    fn let_in(&mut self, node: u16, tenant: TenantId, number: u32) {
        let bytes = self.live.get(number).map_or(0.0, |live| self.family.client_bytes(&live.client));
        self.charge(node, tenant, bytes);
        self.start(number);
    }

    /// Charges a tenant's network, for all that its requests take.
    fn charge(&mut self, node: u16, tenant: TenantId, bytes: f64) {
        if let Some(network) = &mut self.nodes[usize::from(node)].network {
            network.gate.charge(self.now, tenant, bytes);
        }
    }

    fn arm_network(&mut self, node: u16) {
        let Some(Network { waiting, armed, .. }) = &mut self.nodes[usize::from(node)].network else { return };
        if let Some(due) = waiting.next_timeout()
            && armed.is_none_or(|armed| due < armed)
        {
            *armed = Some(due);
            self.events.schedule(due.max(self.now), Event::Network { node });
        }
    }
}
