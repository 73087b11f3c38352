//! Attempts that wait for any replica of the tier: their replica is chosen when they start.

use std::hash::Hash;
use std::time::Duration;

use sherwood_model::{Instant, ReplicaId};

use super::{Dispatch, STORED};
use crate::AttemptId;
use crate::fetch::Fetch;
use crate::replica::Replica;
use crate::rules::Balancer as _;
use crate::slab::Id;
use crate::tier_queue::TierQueue;

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// Starts attempts of the tier's queue as long as a suitable replica has a free slot.
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
                let expires_at =
                    now + lease.map_or(Duration::ZERO, |lease| lease.lasts).max(self.options.timeout);
                tier.requests.note(now, request, replica, expires_at);
            }
            self.balancer.asked(now, replica);
            self.start(now, id, replica);
        }
    }

    /// Removes expired records of replicas that worked for a request, and starts attempts that
    /// avoided those replicas.
    #[inline]
    pub(super) fn expire_requests(&mut self, now: Instant) {
        if self.tier.as_mut().is_some_and(|tier| tier.requests.expire(now)) {
            self.start_in_tier(now);
        }
    }

    /// Takes the first attempt out of the tier's queue for which a replica has a free slot.
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
            picked = self.pick_idle(now, fetch, busy);
            picked.is_some()
        });
        self.tier = Some(tier);
        next.zip(picked).map(|(AttemptId(id), replica)| (id, replica))
    }

    /// Lets the balancer pick a replica with a free slot for a fetch. Replicas in `busy`, which
    /// already work for the same request, and those at which the fetch has failed are excluded
    /// unless they are the only ones that could answer.
    fn pick_idle(&mut self, now: Instant, id: Id, busy: &[ReplicaId]) -> Option<ReplicaId> {
        let Self { replicas, fetches, attempts, usable, .. } = self;
        let fetch = fetches.get(id).expect(STORED);
        let count = replicas.len();
        let may_answer = |replica: &&Replica| {
            fetch.may_wait_for(replica, count) && replica.has_applied(fetch.holders, fetch.demand.after)
        };
        usable.clear();
        usable.extend(replicas.iter().filter(may_answer).map(Replica::load));
        for attempt in &fetch.live {
            let taken = attempts.get(*attempt).and_then(|attempt| attempt.replica);
            usable.retain(|load| Some(load.replica) != taken);
        }
        if fetch.lease.is_some() {
            self.leave_out_leased(id);
        }
        let Self { fetches, usable, options, .. } = self;
        let fetch = fetches.get(id).expect(STORED);
        if usable.iter().any(|load| !busy.contains(&load.replica)) {
            usable.retain(|load| !busy.contains(&load.replica));
        }
        if usable.iter().any(|load| !fetch.failed_at().contains(&load.replica)) {
            usable.retain(|load| !fetch.failed_at().contains(&load.replica));
        }
        usable.retain(|load| load.in_flight_calls < options.in_flight_calls_max);
        if usable.is_empty() {
            return None;
        }
        self.choose(now, id, 1).first().copied()
    }

    /// Returns how many more attempts of a fetch may wait in the tier's queue: at most `want`, and
    /// at most one for each replica in `usable`.
    pub(super) fn tier_wants(&self, id: Id, want: usize) -> usize {
        let live = &self.fetches.get(id).expect(STORED).live;
        let waits = |id: &&Id| self.attempts.get(**id).is_some_and(|attempt| attempt.replica.is_none());
        let waiting = live.iter().filter(waits).count();
        want.min(self.usable.len().saturating_sub(waiting))
    }

    /// Returns true if the tier's queue has room for one more attempt, or if there is no such
    /// queue.
    pub(super) fn tier_has_room(&self) -> bool {
        self.tier.as_ref().is_none_or(|tier| tier.queue.has_room())
    }

    /// After a replica has gone down or is not read any more, ends the attempts of the tier's queue
    /// that no replica can serve any more. A retry may return to the replica at which it failed if
    /// that is the only one left.
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
