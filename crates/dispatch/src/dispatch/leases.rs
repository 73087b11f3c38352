//! Leases: slots of replicas that connections of clients hold.
//!
//! A lease is a fetch without keys, whose only attempt holds the slot instead of a call. So it
//! waits in the same queues, and is balanced by the same rule.

use std::hash::Hash;

use sherwood_model::{Demand, Instant, ReplicaId};

use super::{Dispatch, STORED};
use crate::fetch::{AttemptState, Fetch, Later, Lease};
use crate::rules::Replication as _;
use crate::slab::Id;
use crate::{AttemptId, AttemptKind, Bound, FetchError, Holders, LeaseId};

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// Asks for a slot of a replica for a connection. The lease waits like an attempt, up to the
    /// backend's timeout. Leases are not charged to the rates of tenants.
    ///
    /// # Errors
    /// If the maximum number of leases is reached, the balancer picks no replica, or all replicas
    /// are down.
    pub(super) fn lease(&mut self, now: Instant, demand: &Demand, lease: Lease) -> Result<(), FetchError> {
        let limit = self.options.queued_calls_max;
        if self.leases >= limit {
            return Err(FetchError::Overloaded { bound: Bound::Leases, limit });
        }
        let expires_at = now + self.options.timeout;
        let new = Fetch::new(now, expires_at, Holders::All, demand);
        let id = self.fetches.insert(Fetch { open: 1, lease: Some(lease), ..new });
        let offered = self.offer(id, None);
        let picked = offered.and_then(|()| {
            let refusal = FetchError::NotAdmitted { replicas: self.usable.len() };
            self.pick(now, id, 1).first().copied().ok_or(refusal)
        });
        match picked {
            Ok(replica) => {
                self.leases += 1;
                self.plan(id, expires_at, Later::EndLease);
                self.add_lease(LeaseId(id), lease.connection);
                self.place(now, id, replica, AttemptKind::First);
                Ok(())
            }
            Err(refusal) => {
                self.fetches.discard(id);
                Err(refusal)
            }
        }
    }

    /// Gives a slot to the connection of a lease, and plans the lease's expiry.
    pub(super) fn grant(&mut self, now: Instant, id: Id, replica: ReplicaId, lease: Lease) {
        self.plan(id, now + lease.lasts, Later::EndLease);
        self.slot_granted(now, LeaseId(id), lease.connection, replica);
    }

    /// Ends a lease that has reached its maximum waiting time or duration.
    pub(super) fn expire_lease(&mut self, now: Instant, id: Id) {
        let fetch = self.fetches.get(id).expect(STORED);
        let is_granted = fetch.live.first().and_then(|attempt| self.attempts.get(*attempt));
        let is_granted = is_granted.is_some_and(|attempt| attempt.state != AttemptState::Queued);
        let lasts = fetch.lease.filter(|_| is_granted).map(|lease| lease.lasts);
        let timeout = lasts.unwrap_or(self.options.timeout);
        self.close_lease(now, id, Some(FetchError::Timeout { timeout }));
        self.settle(now);
    }

    /// Frees the resources of a lease, and takes it from its connection if there is an error.
    pub(super) fn close_lease(&mut self, now: Instant, id: Id, error: Option<FetchError>) {
        for attempt in self.fetches.get(id).expect(STORED).live.clone() {
            let Some(ended) = self.remove_attempt(attempt) else { continue };
            match ended.state {
                AttemptState::Queued => _ = self.queue_of(ended.replica).cancel(AttemptId(attempt)),
                AttemptState::Started(at) => {
                    if let Some(meter) = &mut self.meter {
                        meter.note_slot_freed(now, ended.server(), false);
                    }
                    self.free(attempt, ended.server(), None);
                    self.replication.held(now - at);
                }
            }
        }
        self.unplan(id);
        let lease = self.fetches.get(id).expect(STORED).lease;
        self.fetches.discard(id);
        self.leases -= 1;
        if let (Some(error), Some(lease)) = (error, lease) {
            self.lease_ended(now, LeaseId(id), lease.connection, &error);
        }
    }
}
