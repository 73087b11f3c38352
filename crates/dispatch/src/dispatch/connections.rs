//! Connections of clients to a tier, each of which leases slots of several replicas.
//!
//! sPARE, section 4: a connection takes the tokens of as many servers as the tier has copies of a
//! call, takes those that are free, waits for the others, and keeps them until it closes.

use std::hash::Hash;
use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId};

use super::Dispatch;
use crate::connections::Connection;
use crate::fetch::Lease;
use crate::leased::SlotCall;
use crate::rules::names::AnyReplication;
use crate::rules::{Balancer as _, CallEnd, Completion, Replication as _};
use crate::slab::Id;
use crate::{ConnectionAction, ConnectionId, FetchError, LeaseId};

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// Opens a connection of a client, which lasts until [`disconnect`](Self::disconnect), for
    /// `lasts` at most. It leases slots of as many replicas as [`CopiesChoice::Fixed`] has copies,
    /// while these are stable; otherwise of one. Slots that are not free are waited for, up to the
    /// backend's timeout. `entropy` is 64 fresh random bits.
    ///
    /// # Errors
    /// If no slot can be waited for: the maximum number of leases is reached, the balancer picks no
    /// replica, or all replicas are down.
    ///
    /// [`CopiesChoice::Fixed`]: crate::CopiesChoice::Fixed
    pub fn connect(
        &mut self,
        now: Instant,
        demand: &Demand,
        lasts: Duration,
        entropy: u64,
    ) -> Result<ConnectionId, FetchError> {
        self.draws.stir(entropy);
        self.advance(now);
        let tier = self.tier(now);
        let factor = match &mut self.replication {
            AnyReplication::Fixed(rule) => rule.plan(demand, &tier).now,
            _ => 1,
        };
        let id = self.connections.open.insert(Connection::default());
        for copy in 0..factor {
            match self.lease(now, demand, Lease { connection: id, lasts }) {
                Err(refusal) if copy == 0 => {
                    self.connections.open.remove(id);
                    return Err(refusal);
                }
                // The connection works with the slots that it gets.
                Ok(()) | Err(_) => {}
            }
        }
        if let Some(meter) = &mut self.meter {
            meter.note_connection();
        }
        Ok(ConnectionId(id))
    }

    /// Asks for a call over a connection, in place of the one before. It goes to all slots of the
    /// connection that are free, and the first answer counts; a slot that still works for an
    /// earlier call gets it afterwards. The numbers of a connection's calls are distinct. Ignored
    /// if the connection has ended.
    pub fn ask(&mut self, now: Instant, connection: ConnectionId, call: u64) {
        self.advance(now);
        let Some(open) = self.connections.open.get_mut(connection.0) else { return };
        let calls = open.calls.ask(now, call);
        if let Some(meter) = &mut self.meter {
            meter.note_leased_call();
        }
        calls.into_iter().for_each(|call| self.start_leased(now, connection, call));
    }

    /// Takes in that a call over the slot of a lease has ended, with an answer or without. Returns
    /// true if this is the answer that the client waits for.
    pub fn end_call(&mut self, now: Instant, lease: LeaseId, is_answer: bool) -> bool {
        self.advance(now);
        let Some(Lease { connection: id, .. }) = self.fetches.get(lease.0).and_then(|fetch| fetch.lease)
        else {
            return false;
        };
        let Some(open) = self.connections.open.get_mut(id) else { return false };
        let Some(ended) = open.calls.end(now, lease, is_answer) else { return false };
        let failed = open.calls.take_failed(open.leases.len());
        let end = if is_answer { CallEnd::Answered } else { CallEnd::Failed };
        let completion = Completion::of(now, ended.took, end);
        self.balancer.completed(ended.replica, &completion);
        if let Some(meter) = &mut self.meter {
            meter.note_end(now, ended.replica);
            ended.latency.into_iter().for_each(|latency| meter.note_answer(latency));
        }
        ended.next.into_iter().for_each(|call| self.start_leased(now, ConnectionId(id), call));
        let connection = ConnectionId(id);
        let failed = failed.map(|call| ConnectionAction::Fail { connection, call });
        self.connections.actions.extend(failed);
        ended.latency.is_some()
    }

    /// Ends a connection and all its leases. Calls in flight are not waited for. Ignored if it has
    /// ended.
    pub fn disconnect(&mut self, now: Instant, ConnectionId(id): ConnectionId) {
        self.advance(now);
        let Some(mut open) = self.connections.open.remove(id) else { return };
        // All leases end before slots are given away, or one that waits would get one of them.
        for lease in open.leases {
            self.leave_call(now, open.calls.remove(lease));
            self.close_lease(now, lease.0, None);
        }
        self.settle(now);
    }

    /// Returns the next step for a connection, or none until the next input.
    pub fn poll_connection(&mut self) -> Option<ConnectionAction> {
        self.connections.actions.pop_front()
    }

    /// Notes that a lease of a connection waits for a slot.
    pub(super) fn add_lease(&mut self, lease: LeaseId, id: Id) {
        if let Some(open) = self.connections.open.get_mut(id) {
            open.leases.push(lease);
        }
    }

    /// Removes from `usable` the replicas of which the connection of a lease has a slot, or waits
    /// for one.
    pub(super) fn leave_out_leased(&mut self, id: Id) {
        let Self { fetches, attempts, connections, usable, .. } = self;
        let Some(lease) = fetches.get(id).and_then(|fetch| fetch.lease) else { return };
        let Some(open) = connections.open.get(lease.connection) else { return };
        for LeaseId(other) in &open.leases {
            let attempt = fetches.get(*other).and_then(|fetch| attempts.get(*fetch.live.first()?));
            let replica = attempt.and_then(|attempt| attempt.replica);
            usable.retain(|load| Some(load.replica) != replica);
        }
    }

    /// Gives a slot to the connection of a lease.
    pub(super) fn slot_granted(&mut self, now: Instant, lease: LeaseId, id: Id, replica: ReplicaId) {
        let open = self.connections.open.get_mut(id);
        let call = open.and_then(|open| open.calls.grant(now, lease, replica));
        call.into_iter().for_each(|call| self.start_leased(now, ConnectionId(id), call));
    }

    /// Takes a lease that has ended from its connection. A connection without leases ends.
    pub(super) fn lease_ended(&mut self, now: Instant, lease: LeaseId, id: Id, error: &FetchError) {
        let Some(open) = self.connections.open.get_mut(id) else { return };
        open.leases.retain(|own| *own != lease);
        let left = open.calls.remove(lease);
        let connection = ConnectionId(id);
        if open.leases.is_empty() {
            self.connections.open.remove(id);
            self.connections.actions.push_back(ConnectionAction::End { connection, error: error.clone() });
        } else if let Some(call) = open.calls.take_failed(open.leases.len()) {
            self.connections.actions.push_back(ConnectionAction::Fail { connection, call });
        }
        self.leave_call(now, left);
    }

    /// Takes in that nothing waits for a call any more, which has begun at a replica at this time:
    /// its latency is at least that. Its core time counts up to now, since a meter cannot tell how
    /// much longer the replica works.
    fn leave_call(&mut self, now: Instant, left: Option<(ReplicaId, Instant)>) {
        let Some((replica, since)) = left else { return };
        self.balancer.completed(replica, &Completion::of(now, now - since, CallEnd::Cancelled));
        if let Some(meter) = &mut self.meter {
            meter.note_end(now, replica);
        }
    }

    fn start_leased(&mut self, now: Instant, connection: ConnectionId, start: SlotCall) {
        let SlotCall { lease, replica, call } = start;
        if let Some(meter) = &mut self.meter {
            meter.note_start(now, replica);
        }
        self.counters.calls += 1;
        self.connections.actions.push_back(ConnectionAction::Call { connection, lease, replica, call });
    }
}

#[cfg(test)]
impl<K, V, W> Dispatch<K, V, W> {
    /// Returns the attempts of a connection's leases.
    pub(super) fn leases(&self, ConnectionId(id): ConnectionId) -> impl Iterator<Item = Id> {
        let leases = self.connections.open.get(id).into_iter().flat_map(|open| &open.leases);
        leases.map(|LeaseId(id)| self.fetches.get(*id).expect(super::STORED).live[0])
    }
}
