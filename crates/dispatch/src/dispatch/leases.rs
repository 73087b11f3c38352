//! Leases: slots of replicas that clients hold, for example as long as a connection is open.
//!
//! A lease is a fetch without keys, whose only attempt holds the slot instead of a call. So it
//! waits in the same queues, and is balanced by the same rule.

use std::hash::Hash;
use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId};

use super::{Dispatch, STORED};
use crate::fetch::{AttemptState, Fetch, Later};
use crate::rules::{Balancer as _, CallEnd, Completion};
use crate::slab::Id;
use crate::{AttemptId, AttemptKind, Bound, FetchError, Holders, LeaseAction, LeaseId};

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// Asks for a slot of a replica, which the client holds until [`end_lease`](Self::end_lease),
    /// for `lasts` at most. The lease waits like an attempt, up to the backend's timeout; a
    /// [`LeaseAction::Grant`] follows when it gets a slot. Leases are not charged to the rates of
    /// tenants. `entropy` is 64 fresh random bits.
    ///
    /// # Errors
    /// If the maximum number of leases is reached, the balancer picks no replica, or all replicas
    /// are down.
    pub fn lease(
        &mut self,
        now: Instant,
        demand: &Demand,
        lasts: Duration,
        entropy: u64,
    ) -> Result<LeaseId, FetchError> {
        self.draws.stir(entropy);
        self.advance(now);
        let limit = self.options.queued_calls_max;
        if self.leases >= limit {
            return Err(FetchError::Overloaded { bound: Bound::Leases, limit });
        }
        let expires_at = now + self.options.timeout;
        let new = Fetch::new(now, expires_at, Holders::All, demand);
        let id = self.fetches.insert(Fetch { open: 1, lease: Some(lasts), ..new });
        let offered = self.offer(id, None);
        let picked = offered.and_then(|()| {
            let refusal = FetchError::NotAdmitted { replicas: self.usable.len() };
            self.pick(now, id, 1).first().copied().ok_or(refusal)
        });
        match picked {
            Ok(replica) => {
                self.leases += 1;
                if let Some(meter) = &mut self.meter {
                    meter.note_lease();
                }
                self.plan(id, expires_at, Later::EndLease);
                self.place(now, id, replica, AttemptKind::First);
                Ok(LeaseId(id))
            }
            Err(refusal) => {
                self.fetches.discard(id);
                Err(refusal)
            }
        }
    }

    /// Ends a lease that waits or holds a slot, and frees the slot. Returns false if the lease had
    /// ended already.
    pub fn end_lease(&mut self, now: Instant, LeaseId(id): LeaseId) -> bool {
        self.advance(now);
        if self.fetches.get(id).is_none_or(|fetch| fetch.lease.is_none()) {
            return false;
        }
        self.close_lease(now, id, None);
        self.settle(now);
        true
    }

    /// Takes in that a call over the slot of a lease has ended after the time that it took, so that
    /// the balancer knows the replica's speed. Ignored if the lease holds no slot.
    pub fn note_leased_call(&mut self, now: Instant, LeaseId(id): LeaseId, took: Duration, is_answer: bool) {
        let attempt = self.fetches.get(id).and_then(|fetch| self.attempts.get(*fetch.live.first()?));
        let Some(replica) = attempt.and_then(|attempt| attempt.replica) else { return };
        let end = if is_answer { CallEnd::Answered } else { CallEnd::Failed };
        self.balancer.completed(replica, &Completion { at: now, took, gap: took, end });
    }

    /// Returns the next notification about a lease, or none until the next input.
    pub fn poll_lease(&mut self) -> Option<LeaseAction> {
        self.lease_actions.pop_front()
    }

    /// Notifies the client that its lease holds a slot, and plans its expiry.
    pub(super) fn grant(&mut self, now: Instant, id: Id, replica: ReplicaId, lasts: Duration) {
        let (lease, expires_at) = (LeaseId(id), now + lasts);
        self.plan(id, expires_at, Later::EndLease);
        self.lease_actions.push_back(LeaseAction::Grant { lease, replica, expires_at });
    }

    /// Ends a lease that has reached its maximum waiting time or duration.
    pub(super) fn expire_lease(&mut self, now: Instant, id: Id) {
        let fetch = self.fetches.get(id).expect(STORED);
        let is_granted = fetch.live.first().and_then(|attempt| self.attempts.get(*attempt));
        let is_granted = is_granted.is_some_and(|attempt| attempt.state != AttemptState::Queued);
        let timeout = fetch.lease.filter(|_| is_granted).unwrap_or(self.options.timeout);
        self.close_lease(now, id, Some(FetchError::Timeout { timeout }));
        self.settle(now);
    }

    /// Frees the resources of a lease, and notifies its client if there is an error.
    pub(super) fn close_lease(&mut self, now: Instant, id: Id, error: Option<FetchError>) {
        for attempt in self.fetches.get(id).expect(STORED).live.clone() {
            let Some(ended) = self.remove_attempt(attempt) else { continue };
            match ended.state {
                AttemptState::Queued => _ = self.queue_of(ended.replica).cancel(AttemptId(attempt)),
                AttemptState::Started(_) => self.complete(now, attempt, ended.server(), None),
            }
        }
        self.unplan(id);
        self.fetches.discard(id);
        self.leases -= 1;
        self.lease_actions.extend(error.map(|error| LeaseAction::End { lease: LeaseId(id), error }));
    }
}
