//! The life of an attempt: a replica is chosen, it is queued, started, and moved or removed.

use std::hash::Hash;
use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId};

use super::{Dispatch, STORED};
use crate::fetch::{Attempt, AttemptState, Fetch};
use crate::replica::Replica;
use crate::rules::{AtStart, Balancer as _, CallEnd, Completion, Picks, Replication as _};
use crate::slab::Id;
use crate::{
    Action, AttemptId, AttemptKind, AttemptOutcome, Bound, CancelReason, FetchError, QueuedCall, ReplicaQueue,
};

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// Lists in `usable` the replicas that a further attempt of this fetch may go to: up, with
    /// room, not `except`, and without an attempt of the fetch. Returns the refusal if there is
    /// none. Where attempts wait in the queue of the tier, the room in that queue counts instead of
    /// the replicas'.
    pub(super) fn offer(&mut self, id: Id, except: Option<ReplicaId>) -> Result<(), FetchError> {
        let Self { replicas, tier, fetches, attempts, usable, .. } = self;
        let tier_has_room = tier.as_ref().map(|tier| tier.queue.has_room());
        let fetch = fetches.get(id).expect(STORED);
        let count = replicas.len();
        let may_take = |replica: &&Replica| {
            let has_applied = || replica.has_applied(fetch.holders, fetch.demand.after);
            replica.holds(fetch.holders, count)
                && Some(replica.id) != except
                && replica.is_usable(fetch.holders)
                && tier_has_room.unwrap_or_else(|| replica.queue.has_room() && has_applied())
        };
        usable.clear();
        usable.extend(replicas.iter().filter(may_take).map(Replica::load));
        for attempt in &fetch.live {
            let taken = attempts.get(*attempt).and_then(|attempt| attempt.replica);
            usable.retain(|load| Some(load.replica) != taken);
        }
        if fetch.lease.is_some() {
            self.leave_out_leased(id);
        }
        if self.usable.is_empty() { Err(self.why_unusable(id)) } else { Ok(()) }
    }

    fn why_unusable(&self, id: Id) -> FetchError {
        let fetch = self.fetches.get(id).expect(STORED);
        let count = self.replicas.len();
        let allowed = self.replicas.iter().filter(|replica| replica.holds(fetch.holders, count));
        let up = allowed.clone().filter(|replica| replica.is_usable(fetch.holders));
        let has_applied = |replica: &Replica| replica.has_applied(fetch.holders, fetch.demand.after);
        if up.clone().any(|replica| self.tier.is_some() || has_applied(replica)) {
            FetchError::Overloaded { bound: Bound::QueuedCalls, limit: self.options.queued_calls_max }
        } else if up.clone().next().is_some() {
            FetchError::NotAdmitted { replicas: up.count() }
        } else {
            FetchError::Unavailable { replicas: allowed.count(), reason: self.last_down.clone() }
        }
    }

    /// Adds the demand of one more waiter to that of a fetch. Attempts of it that wait move forward
    /// if it becomes more urgent.
    pub(super) fn join(&mut self, now: Instant, id: Id, demand: &Demand) {
        let fetch = self.fetches.get_mut(id).expect(STORED);
        let before = fetch.demand;
        fetch.demand.join(demand);
        if fetch.demand == before {
            return;
        }
        let (due, live) = (fetch.due(), fetch.live.clone());
        for attempt in live {
            if let Some(&Attempt { replica, state: AttemptState::Queued, .. }) = self.attempts.get(attempt) {
                self.queue_of(replica).update(now, AttemptId(attempt), &due);
            }
        }
    }

    /// Returns the queue of a replica, or the queue of the tier for attempts without a replica.
    pub(super) fn queue_of(&mut self, replica: Option<ReplicaId>) -> &mut ReplicaQueue {
        match (replica, &mut self.tier) {
            (Some(replica), _) => &mut self.replicas[replica.index()].queue,
            (None, tier) => &mut tier.as_mut().expect("only attempts of a tier have no replica").queue,
        }
    }

    /// Has the queues of the replicas listed in `usable` estimate when an attempt of this fetch
    /// would end, if a rule uses that.
    fn estimate(&mut self, now: Instant, id: Id) {
        if !self.options.uses_estimates() {
            return;
        }
        let fetch = self.fetches.get(id).expect(STORED);
        let (due, keys) = (fetch.due(), fetch.open as u32);
        for load in &mut self.usable {
            let own = &self.replicas[load.replica.index()].queue;
            let queue = self.tier.as_ref().map_or(own, |tier| &tier.queue);
            load.estimate = Some(queue.estimate(now, &due, keys));
        }
    }

    /// Has the balancer pick up to `want` of the replicas listed in `usable` for attempts of a
    /// fetch. A pick that is not in the list, or was made before, is left out. With a queue of the
    /// tier, where replicas are picked when attempts start, only the number of picks matters: the
    /// number of attempts that may wait.
    pub(super) fn pick(&mut self, now: Instant, id: Id, want: usize) -> Picks {
        self.estimate(now, id);
        if self.tier.is_some() {
            return self.usable.iter().map(|load| load.replica).take(self.tier_wants(id, want)).collect();
        }
        self.choose(now, id, want)
    }

    /// Lets the balancer choose up to `want` of the replicas listed in `usable`, and removes
    /// invalid and repeated picks.
    pub(super) fn choose(&mut self, now: Instant, id: Id, want: usize) -> Picks {
        let demand = self.fetches.get(id).expect(STORED).demand;
        let mut picks = Picks::new();
        self.balancer.choose(now, &demand, &self.usable, want, self.draws.next(), &mut picks);
        let mut kept = 0;
        for index in 0..picks.len() {
            let replica = picks[index];
            let is_usable = self.usable.iter().any(|load| load.replica == replica);
            if is_usable && kept < want && !picks[..kept].contains(&replica) {
                picks[kept] = replica;
                kept += 1;
            }
        }
        picks.truncate(kept);
        picks
    }

    /// Queues an attempt for the open keys of a fetch at a replica that has room, or in the queue
    /// of the tier, and starts the attempt at once if nothing waits before it.
    pub(super) fn place(&mut self, now: Instant, id: Id, replica: ReplicaId, kind: AttemptKind) {
        let fetch = self.fetches.get_mut(id).expect(STORED);
        let is_open = |key: &&Id| self.keys.get(**key).is_some();
        let asked: Option<Vec<Id>> =
            (fetch.open < fetch.keys.len()).then(|| fetch.keys.iter().filter(is_open).copied().collect());
        let stored = |key: &Id| self.keys.get(*key).expect("a key is stored until it ends").key.clone();
        let keys = asked.as_ref().unwrap_or(&fetch.keys).iter().map(stored).collect();
        let number = fetch.made;
        let (since, state) = (if number == 0 { fetch.asked_at } else { now }, AttemptState::Queued);
        let replica = self.tier.is_none().then_some(replica);
        let (fetch_id, progress_at) = (id, now);
        let attempt = Attempt {
            fetch: fetch_id,
            number,
            kind,
            replica,
            since,
            state,
            progress_at,
            longest_gap: Duration::ZERO,
            keys,
            asked,
        };
        let attempt = self.attempts.insert(attempt);
        fetch.made = fetch.made.saturating_add(1);
        fetch.live.push(attempt);
        self.enqueue(now, attempt);
    }

    /// Queues a stored attempt; its queue has room.
    fn enqueue(&mut self, now: Instant, id: Id) {
        let attempt = self.attempts.get(id).expect("a queued attempt is stored");
        let due = self.fetches.get(attempt.fetch).expect(STORED).due();
        let call =
            QueuedCall { keys: attempt.keys.len() as u32, is_extra: attempt.kind == AttemptKind::Copy };
        let replica = attempt.replica;
        let is_queued = self.queue_of(replica).enqueue(now, AttemptId(id), &due, call);
        debug_assert!(is_queued, "attempts are placed where there is room");
        match replica {
            Some(replica) => {
                self.balancer.asked(now, replica);
                self.pump(now, replica);
            }
            None => self.pump_tier(now),
        }
    }

    /// Starts queued attempts of a replica while it has room for calls.
    pub(super) fn pump(&mut self, now: Instant, replica: ReplicaId) {
        while let Some(AttemptId(id)) = self.replicas[replica.index()].queue.start_next(now) {
            self.start(now, id, replica);
        }
    }

    /// Starts an attempt that was taken out of its queue.
    #[inline]
    pub(super) fn start(&mut self, now: Instant, id: Id, replica: ReplicaId) {
        let attempt = self.attempts.get_mut(id).expect("a queued attempt is stored");
        (attempt.state, attempt.progress_at) = (AttemptState::Started(now), now);
        let (fetch_id, number, since) = (attempt.fetch, attempt.number, attempt.since);
        let keys = std::mem::take(&mut attempt.keys);
        let fetch = self.fetches.get_mut(fetch_id).expect(STORED);
        if let Some(meter) = &mut self.meter {
            meter.note_slot_taken(now, replica, fetch.lease.is_none());
        }
        if let Some(lease) = fetch.lease {
            return self.grant(now, fetch_id, replica, lease);
        }
        self.counters.calls += 1;
        let Fetch { demand, expires_at, started, .. } = *fetch;
        fetch.started = started.saturating_add(1);
        // The first one to start pays for extra ones, be it a copy. The tenant has paid for one.
        if started == 0 {
            self.budget.pay();
        } else {
            self.charge_further(now, fetch_id, keys.len());
        }
        let timeout = expires_at - now;
        let attempt = AttemptId(id);
        self.actions.push_back(Action::Call { attempt, replica, keys, demand, since, timeout });
        if self.replication.started(&demand, number) == AtStart::CancelQueued {
            self.cancel_queued(now, fetch_id);
        }
    }

    /// Cancels the queued attempts of a fetch, and prevents further copies.
    fn cancel_queued(&mut self, now: Instant, id: Id) {
        let fetch = self.fetches.get_mut(id).expect(STORED);
        fetch.is_tied = true;
        for attempt in fetch.live.clone() {
            if self.attempts.get(attempt).is_some_and(|attempt| attempt.state == AttemptState::Queued) {
                self.cancel(now, attempt, CancelReason::Answered);
            }
        }
    }

    /// Removes an attempt that was started, whose call has ended; none if there is no such attempt.
    /// `is_answer` is true if the replica has done the work, so that the call's time counts.
    pub(super) fn take_started(&mut self, now: Instant, id: Id, is_answer: bool) -> Option<Attempt<K>> {
        let AttemptState::Started(at) = self.attempts.get(id)?.state else { return None };
        let attempt = self.remove_attempt(id)?;
        // A call without a turn has taken no time at the replica, whatever its outcome.
        let took = (is_answer && at != Instant::NEVER).then(|| now - at);
        self.complete(now, id, attempt.server(), took);
        let end = if is_answer { CallEnd::Answered } else { CallEnd::Failed };
        self.report(now, &attempt, at, end);
        Some(attempt)
    }

    /// Tells the rules that learn the outcome of a call that was started at `at`. Calls that still
    /// wait for their scheduling turn are not reported.
    #[inline]
    pub(super) fn report(&mut self, now: Instant, attempt: &Attempt<K>, at: Instant, end: CallEnd) {
        if at == Instant::NEVER {
            return;
        }
        if self.balancer.learns() || !self.replication.is_one() {
            self.teach(now, attempt, at, end);
        }
        if let Some(meter) = &mut self.attempt_meter {
            meter.note_end(now, attempt.server(), at, end);
        }
    }

    #[inline(never)]
    fn teach(&mut self, now: Instant, attempt: &Attempt<K>, at: Instant, end: CallEnd) {
        let gap = now - attempt.progress_at;
        let longest_gap = gap.max(attempt.longest_gap);
        let completion = Completion { gap, longest_gap, ..Completion::of(now, now - at, end) };
        self.balancer.completed(attempt.server(), &completion);
        self.replication.completed(&completion);
    }

    /// Counts an attempt that has ended. The time since its start is wasted if another attempt has
    /// answered in its place.
    #[inline]
    pub(super) fn count(&mut self, now: Instant, attempt: &Attempt<K>, outcome: AttemptOutcome) {
        let is_over = || self.fetches.get(attempt.fetch).is_some_and(|fetch| fetch.open == 0);
        let is_unused = outcome == AttemptOutcome::Failed && is_over();
        let outcome = if is_unused { AttemptOutcome::Unused } else { outcome };
        self.counters.attempts.add(attempt.kind, outcome);
        if self.replication.is_one() {
            return;
        }
        let AttemptState::Started(at) = attempt.state else { return };
        if at != Instant::NEVER {
            let is_needed = !matches!(outcome, AttemptOutcome::Unused | AttemptOutcome::Cancelled);
            self.counters.wasted += if is_needed { Duration::ZERO } else { now - at };
            self.extra_load.note(now, now - at, is_needed);
        }
    }

    /// Frees the slot of a started attempt. `took` is the latency of the call; none if it says
    /// nothing about the replica's speed.
    pub(super) fn complete(&mut self, now: Instant, id: Id, replica: ReplicaId, took: Option<Duration>) {
        if let Some(meter) = &mut self.meter {
            meter.note_slot_freed(now, replica, true);
        }
        self.free(id, replica, took);
    }

    /// Frees the slot of an attempt in its queues.
    pub(super) fn free(&mut self, id: Id, replica: ReplicaId, took: Option<Duration>) {
        self.replicas[replica.index()].queue.complete(AttemptId(id), took);
        if let Some(tier) = &mut self.tier {
            tier.queue.complete(AttemptId(id), took);
        }
    }

    /// Removes an attempt from the records, but from no queue.
    pub(super) fn remove_attempt(&mut self, id: Id) -> Option<Attempt<K>> {
        let attempt = self.attempts.remove(id)?;
        self.fetches.get_mut(attempt.fetch).expect(STORED).live.retain(|live| *live != id);
        Some(attempt)
    }

    /// Restores the invariant that holds between inputs: no attempt waits in the queue of a replica
    /// that is down or has a free slot, and none in the queue of the tier while a
    /// suitable replica has one.
    pub(super) fn settle(&mut self, now: Instant) {
        for index in 0..self.replicas.len() {
            if !self.replicas[index].health.is_up() {
                for AttemptId(id) in self.replicas[index].queue.take_all() {
                    self.move_or_end(now, id);
                }
            }
        }
        for index in 0..self.replicas.len() {
            self.pump(now, ReplicaId::from_index(index));
        }
        self.end_waits_in_vain(now);
        self.pump_tier(now);
    }

    /// Moves an attempt that left the queue of its replica to another replica, or ends it if no
    /// other replica takes it.
    pub(super) fn move_or_end(&mut self, now: Instant, id: Id) {
        let Some(attempt) = self.attempts.get(id) else { return };
        let fetch_id = attempt.fetch;
        if self.fetches.get(fetch_id).expect(STORED).open == 0 {
            return self.end_attempt(now, id, None);
        }
        let is_copy = attempt.kind == AttemptKind::Copy;
        let mut offered = self.offer(fetch_id, None);
        let failed_at = self.fetches.get(fetch_id).expect(STORED).failed_at();
        if is_copy && !failed_at.is_empty() {
            self.usable.retain(|load| !failed_at.contains(&load.replica));
            if self.usable.is_empty() {
                offered = Err(self.why_unusable(fetch_id));
            }
        }
        let refusal = match offered {
            Ok(()) => match self.pick(now, fetch_id, 1).as_slice() {
                [replica, ..] => {
                    self.attempts.get_mut(id).expect("it was there").replica = Some(*replica);
                    return self.enqueue(now, id);
                }
                [] => FetchError::NotAdmitted { replicas: self.usable.len() },
            },
            Err(refusal) => refusal,
        };
        self.end_attempt(now, id, Some(refusal));
    }

    /// Ends an attempt that left its queue. A fetch with other attempts continues. If this was the
    /// last one and there is a `refusal`, the fetch ends with the failure of an earlier attempt, or
    /// else with the refusal.
    fn end_attempt(&mut self, now: Instant, id: Id, refusal: Option<FetchError>) {
        let Some(attempt) = self.remove_attempt(id) else { return };
        let fetch_id = attempt.fetch;
        if self.fetches.get(fetch_id).expect(STORED).lease.is_none() {
            self.count(now, &attempt, AttemptOutcome::Withdrawn);
        }
        let fetch = self.fetches.get(fetch_id).expect(STORED);
        match refusal {
            Some(refusal) if fetch.live.is_empty() => {
                let error = fetch.failed().unwrap_or(refusal);
                self.end(now, fetch_id, &error);
            }
            _ => self.close(now, fetch_id),
        }
    }

    /// Ends an attempt that left the queue of the tier because every replica it could use is down.
    pub(super) fn end_unserved(&mut self, now: Instant, id: Id) {
        let Some(attempt) = self.attempts.get(id) else { return };
        let fetch = attempt.fetch;
        let is_open = self.fetches.get(fetch).expect(STORED).open > 0;
        let refusal = is_open.then(|| self.why_unusable(fetch));
        self.end_attempt(now, id, refusal);
    }
}
