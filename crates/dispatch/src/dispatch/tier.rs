//! Attempts that wait for any replica of the tier, which is chosen when they start.

use std::hash::Hash;

use sherwood_model::{Instant, ReplicaId};

use super::{Dispatch, STORED};
use crate::AttemptId;
use crate::fetch::Fetch;
use crate::replica::Replica;
use crate::slab::Id;
use crate::tier_queue::TierQueue;

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// Starts attempts that wait for any replica while one that may answer has room.
    #[inline]
    pub(super) fn pump_tier(&mut self, now: Instant) {
        if self.tier.is_some() {
            self.start_in_tier(now);
        }
    }

    #[inline(never)]
    fn start_in_tier(&mut self, now: Instant) {
        while let Some((id, replica)) = self.next_in_tier(now) {
            let attempt = self.attempts.get_mut(id).expect("a queued attempt is stored");
            attempt.replica = Some(replica);
            let (fetch, keys) = (attempt.fetch, attempt.keys.len() as u32);
            let Fetch { demand, lease, .. } = *self.fetches.get(fetch).expect(STORED);
            self.replicas[replica.index()].queue.adopt(now, AttemptId(id), demand.kind, keys);
            if let (Some(request), Some(tier)) = (demand.request, &mut self.tier) {
                let expires_at = now + lease.unwrap_or_default().max(self.options.timeout);
                tier.requests.note(now, request, replica, expires_at);
            }
            self.start(now, id, replica);
        }
    }

    /// Starts attempts that kept off replicas which are no longer taken to work for their request.
    #[inline]
    pub(super) fn expire_requests(&mut self, now: Instant) {
        if self.tier.as_mut().is_some_and(|tier| tier.requests.expire(now)) {
            self.start_in_tier(now);
        }
    }

    /// Takes the first attempt that a replica has room for out of the queue.
    fn next_in_tier(&mut self, now: Instant) -> Option<(Id, ReplicaId)> {
        let most = self.options.in_flight_calls_max;
        let has_idle = |replica: &Replica| replica.health.is_up() && replica.queue.in_flight() < most;
        if !self.replicas.iter().any(has_idle) {
            return None;
        }
        let mut tier = self.tier.take()?;
        let mut picked = None;
        let TierQueue { queue, requests, .. } = &mut *tier;
        let next = queue.start_where(now, |AttemptId(id)| {
            let fetch = self.attempts.get(id).expect("a queued attempt is stored").fetch;
            let request = self.fetches.get(fetch).expect(STORED).demand.request;
            let busy = request.map_or(&[][..], |request| requests.replicas(now, request));
            picked = self.pick_idle(fetch, busy);
            picked.is_some()
        });
        self.tier = Some(tier);
        next.zip(picked).map(|(AttemptId(id), replica)| (id, replica))
    }

    /// Has the balancer pick a replica that may answer a fetch and has room, but none of `busy`,
    /// which work for the same request, as long as another may answer.
    fn pick_idle(&mut self, id: Id, busy: &[ReplicaId]) -> Option<ReplicaId> {
        let Self { replicas, fetches, attempts, usable, options, .. } = self;
        let fetch = fetches.get(id).expect(STORED);
        let count = replicas.len();
        let may_answer =
            |replica: &&Replica| fetch.may_wait_for(replica, count) && replica.applied >= fetch.demand.after;
        usable.clear();
        usable.extend(replicas.iter().filter(may_answer).map(Replica::load));
        for attempt in &fetch.live {
            let taken = attempts.get(*attempt).and_then(|attempt| attempt.replica);
            usable.retain(|load| Some(load.replica) != taken);
        }
        if usable.iter().any(|load| !busy.contains(&load.replica)) {
            usable.retain(|load| !busy.contains(&load.replica));
        }
        usable.retain(|load| load.in_flight_calls < options.in_flight_calls_max);
        if usable.is_empty() {
            return None;
        }
        self.choose(id, 1).first().copied()
    }

    /// Returns how many more attempts of a fetch, `want` at most, may wait: no more than there are
    /// replicas for them in `usable`.
    pub(super) fn tier_wants(&self, id: Id, want: usize) -> usize {
        let live = &self.fetches.get(id).expect(STORED).live;
        let waits = |id: &&Id| self.attempts.get(**id).is_some_and(|attempt| attempt.replica.is_none());
        let waiting = live.iter().filter(waits).count();
        want.min(self.usable.len().saturating_sub(waiting))
    }

    /// Returns true if one more attempt may wait, or if attempts wait for one replica each.
    pub(super) fn tier_has_room(&self) -> bool {
        self.tier.as_ref().is_none_or(|tier| tier.queue.has_room())
    }

    /// After a replica has gone down, ends the attempts that no replica is left for. A retry goes
    /// back to the replica at which it has failed, if that is the only one.
    pub(super) fn end_waits_in_vain(&mut self, now: Instant) {
        let Some(tier) = self.tier.as_mut().filter(|tier| tier.lost_replica) else { return };
        tier.lost_replica = false;
        let waiting: Vec<_> = tier.queue.entries().collect();
        for AttemptId(id) in waiting {
            let Some(attempt) = self.attempts.get(id) else { continue };
            let fetch = self.fetches.get_mut(attempt.fetch).expect(STORED);
            let count = self.replicas.len();
            if self.replicas.iter().any(|replica| fetch.may_wait_for(replica, count)) {
                continue;
            }
            fetch.avoids = None;
            if !self.replicas.iter().any(|replica| fetch.may_wait_for(replica, count)) {
                self.queue_of(None).cancel(AttemptId(id));
                self.end_unserved(now, id);
            }
        }
    }
}
