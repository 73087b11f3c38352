//! Requests at the gate of the tenants' network rates, where they wait until their tenant's debt is
//! paid.

use sherwood_dispatch::DebtWork;
use sherwood_model::{Instant, Legs, TenantId};

use super::gate::Network;
use super::{Event, Family, Simulation};

impl<F: Family> Simulation<F> {
    /// Starts a request that has reached its node. If its tenant is in debt, the request waits, or
    /// is refused if too many wait already.
    #[inline]
    pub(crate) fn arrive(&mut self, number: u32) {
        let Some(live) = self.live.get(number) else { return };
        let (node, tenant) = (live.node, F::tenant(&live.client));
        let Some(Network { waiting, .. }) = &mut self.nodes[usize::from(node)].network else {
            return self.start(number);
        };
        let work = DebtWork { units: self.family.client_bytes(&live.client), latest: Instant::NEVER };
        match waiting.enter(self.now, tenant, work, || number) {
            Ok(None) => self.start(number),
            Ok(Some(_)) => {}
            Err(refusal) => return self.refuse(number, Some(refusal.retry_in())),
        }
        self.arm_network(node);
    }

    /// Starts the waiting requests that the network rates allow.
    pub(super) fn admit(&mut self, node: u16) {
        while let Some(Network { waiting, .. }) = &mut self.nodes[usize::from(node)].network {
            let Some((_, number)) = waiting.start_next(self.now) else { break };
            self.start(number);
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

    /// Charges a tenant for the bytes of keys and values that a call's answer, or a write,
    /// transfers between node and backend, if this leg of the path is charged.
    #[inline]
    pub(super) fn charge_backend_leg(&mut self, node: u16, tenant: TenantId, bytes: u64) {
        if let Some(network) = &mut self.nodes[usize::from(node)].network
            && network.legs == Legs::Both
        {
            network.waiting.charge(self.now, tenant, bytes as f64);
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
