//! The life of a fetch: its first attempts, answers, retries, and its end.

use std::hash::Hash;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use sherwood_model::{Instant, ReplicaId};

use super::{Dispatch, STORED};
use crate::fetch::{Attempt, AttemptState, Fetch, Later};
use crate::rules::{
    ATTEMPTS_MAX, Admission as _, AttemptPlan, CallEnd, CopyTerms, ReplicaLoad, Replication as _, Tier,
    Verdict,
};
use crate::slab::Id;
use crate::{
    Action, AttemptId, AttemptKind, AttemptOutcome, CancelReason, CancelRule, Failure, FailureKind,
    FetchError,
};

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// Makes the first attempts of a fetch for `keys`, at least one, which were just admitted, when
    /// its tenant's rate allows; ends it at once if no replica takes it.
    pub(super) fn submit(&mut self, now: Instant, id: Id, keys: Vec<Id>) {
        let fetch = self.fetches.get_mut(id).expect(STORED);
        (fetch.open, fetch.keys) = (keys.len(), keys);
        if self.tenant_reads.is_none() {
            self.begin(now, id);
        } else if let Err(refusal) = self.offer(id, None) {
            self.end(now, id, &refusal);
        } else {
            self.wait_for_units(now, id);
        }
    }

    /// Makes the first attempts of a fetch and returns true; if no replica takes it, ends it and
    /// returns false.
    pub(super) fn begin(&mut self, now: Instant, id: Id) -> bool {
        let demand = self.fetches.get(id).expect(STORED).demand;
        if let Some(meter) = &mut self.attempt_meter {
            meter.note_access();
        }
        if let Err(refusal) = self.offer(id, None) {
            self.end(now, id, &refusal);
            return false;
        }
        let AttemptPlan { now: at_once, later, terms } = if self.replication.is_one() {
            AttemptPlan::ONE
        } else {
            self.replication.plan(&demand, &self.tier(now))
        };
        let together = if terms == CopyTerms::Idle { 1 } else { at_once };
        let picks = self.pick(now, id, usize::from(together).clamp(1, ATTEMPTS_MAX));
        let Some((first, copies)) = picks.as_slice().split_first() else {
            let refusal = FetchError::NotAdmitted { replicas: self.usable.len() };
            self.end(now, id, &refusal);
            return false;
        };
        if !self.admission.is_open() {
            let due = self.fetches.get(id).expect(STORED).due();
            self.usable.retain(|load| picks.contains(&load.replica));
            if let Verdict::Reject { expected } = self.admission.judge(now, &due, &self.usable) {
                self.end(now, id, &FetchError::Rejected { expected });
                return false;
            }
        }
        // A fetch that waited for units is there already.
        if self.tenant_reads.is_none() {
            let fetch = self.fetches.get_mut(id).expect(STORED);
            self.expiries.insert(fetch.expires_at, id);
        }
        if let Some((after, count)) = later {
            self.plan(id, now + after, Later::Copies(count));
        }
        if let Some(meter) = &mut self.meter {
            meter.note_fetch(self.tier.is_some());
        }
        self.place(now, id, *first, AttemptKind::First);
        if !copies.is_empty() {
            self.place_copies(now, id, copies, terms);
        } else if terms == CopyTerms::Idle && at_once > 1 {
            self.add_copies(now, id, at_once - 1, terms);
        }
        true
    }

    /// Returns the state of the replicas, for the replication rule.
    pub(super) fn tier(&self, now: Instant) -> Tier {
        let slots = u64::from(self.options.in_flight_calls_max) * self.replicas.len() as u64;
        Tier { now, slots, waiting: self.tier.as_ref().map_or(0, |tier| tier.queue.queued()) }
    }

    /// Makes the attempts that were planned for now.
    pub(super) fn add_later(&mut self, now: Instant, id: Id) {
        match self.unplan(id) {
            Some(Later::Copies(count)) => self.add_copies(now, id, count, CopyTerms::Budget),
            Some(Later::Retry) => self.retry_throttled(now, id),
            Some(Later::EndLease) => self.expire_lease(now, id),
            None => {}
        }
    }

    /// Plans attempts of a fetch for a later time, in place of those that were planned.
    pub(super) fn plan(&mut self, id: Id, at: Instant, later: Later) {
        self.unplan(id);
        self.fetches.get_mut(id).expect(STORED).later = Some((at, later));
        self.later.insert((at, id));
    }

    /// Removes the planned attempts of a fetch.
    pub(super) fn unplan(&mut self, id: Id) -> Option<Later> {
        let (at, later) = self.fetches.get_mut(id).expect(STORED).later.take()?;
        self.later.remove(&(at, id));
        Some(later)
    }

    /// Adds copies, if the fetch still waits for answers, at replicas that it has not tried.
    fn add_copies(&mut self, now: Instant, id: Id, count: u8, terms: CopyTerms) {
        let fetch = self.fetches.get(id).expect(STORED);
        let count = usize::from(count).min(ATTEMPTS_MAX.saturating_sub(fetch.live.len()));
        if fetch.open == 0 || count == 0 || !self.budget.can_take() || self.offer(id, None).is_err() {
            return;
        }
        let failed_at = self.fetches.get(id).expect(STORED).failed_at();
        let may_take = |load: &ReplicaLoad| {
            !failed_at.contains(&load.replica) && (terms != CopyTerms::Idle || load.calls() == 0)
        };
        self.usable.retain(may_take);
        if !self.usable.is_empty() {
            let picks = self.pick(now, id, count);
            self.place_copies(now, id, picks.as_slice(), terms);
        }
    }

    /// Makes extra attempts at replicas that can take them, while they can be afforded.
    fn place_copies(&mut self, now: Instant, id: Id, replicas: &[ReplicaId], terms: CopyTerms) {
        for replica in replicas {
            let is_tied = self.fetches.get(id).expect(STORED).is_tied;
            let is_paid = terms == CopyTerms::Planned || self.budget.can_take();
            if is_tied || !is_paid || !self.tier_has_room() {
                return;
            }
            if terms != CopyTerms::Planned {
                self.budget.take();
            }
            self.counters.copies += 1;
            self.place(now, id, *replica, AttemptKind::Copy);
        }
    }

    /// Takes in the answers of an attempt that is no longer live, key by key. The first answer of a
    /// key counts.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        mut attempt: Attempt<K>,
        answers: impl ExactSizeIterator<Item = Result<Option<V>, Failure>>,
    ) {
        let (id, replica) = (attempt.fetch, attempt.server());
        let fetch = self.fetches.get_mut(id).expect(STORED);
        let asked = attempt.asked.as_ref().unwrap_or(&fetch.keys).len();
        if answers.len() != asked {
            let reason = format!("malformed answer: {} values for {asked} keys", answers.len());
            return self.fail(now, attempt, Failure::new(FailureKind::Malformed, reason));
        }
        let keys = attempt.asked.take().unwrap_or_else(|| mem::take(&mut fetch.keys));
        let (open, started, is_last) = (fetch.open, fetch.started, fetch.live.is_empty());
        let misses_wait = self.options.misses_wait && !is_last;
        let (mut failed, mut missed) = (Vec::new(), Vec::new());
        let mut ended = 0;
        let mut answered = false;
        for (&key, answer) in keys.iter().zip(answers) {
            match answer {
                Err(failure) if !is_last || failure.kind.is_safe_to_retry() => failed.push((key, failure)),
                Ok(None) if misses_wait => missed.push(key),
                answer => {
                    if answer.is_ok() && !mem::replace(&mut answered, true) {
                        self.note_answered(replica, key);
                    }
                    let error =
                        |Failure { kind, reason }| FetchError::Failed { kind, reason, attempts: started };
                    ended += usize::from(self.deliver(key, answer.map_err(error)));
                }
            }
        }
        let outcome = if ended > 0 { AttemptOutcome::Used } else { AttemptOutcome::Unused };
        self.count(now, &attempt, outcome);
        failed.retain(|(key, _)| self.keys.get(*key).is_some());
        self.replicas[replica.index()].health.note_success();
        let fetch = self.fetches.get_mut(id).expect(STORED);
        fetch.open -= ended;
        fetch.missed.extend(missed);
        let asked_at = fetch.asked_at;
        if ended > 0 && fetch.open == 0 {
            let (meter, attempt_meter) = (self.meter.iter_mut(), self.attempt_meter.iter_mut());
            meter.for_each(|meter| meter.note_answer(now - asked_at));
            attempt_meter.for_each(|meter| meter.note_answer(now - asked_at));
        }
        // The attempts that run on answer for the same list.
        if fetch.keys.is_empty() && (fetch.open > 0 || !is_last) {
            fetch.keys = keys;
        }
        if open > 0 {
            // If most keys failed, the ramp counts the call as failed.
            self.note_call(now, asked_at, ended, failed.len() <= ended);
        }
        self.fail_each(now, id, replica, failed);
    }

    /// Notes that a replica has answered this key, which makes it a key to probe the replica with.
    fn note_answered(&mut self, replica: ReplicaId, key: Id) {
        if let Some(key) = self.keys.get(key) {
            self.probes.note_answered(replica, &key.key);
        }
    }

    /// Takes in the keys of an answered attempt that failed: leaves them to the other attempts, or
    /// tries another replica in the name of the first failure, or ends each with its own error.
    fn fail_each(&mut self, now: Instant, id: Id, replica: ReplicaId, failed: Vec<(Id, Failure)>) {
        self.refund_throttled(now, id, failed.iter().filter(|(_, failure)| is_throttled(failure)).count());
        if let Some((_, failure)) =
            failed.iter().find(|(_, failure)| is_throttled(failure)).or(failed.first())
            && !self.is_continued(now, id, replica, failure)
        {
            let fetch = self.fetches.get_mut(id).expect(STORED);
            fetch.open -= failed.len();
            let attempts = fetch.started;
            for (key, Failure { kind, reason }) in failed {
                self.deliver(key, Err(FetchError::Failed { kind, reason, attempts }));
            }
        }
        self.close(now, id);
    }

    /// Takes in the failure of an attempt that is no longer live.
    pub(super) fn fail(&mut self, now: Instant, attempt: Attempt<K>, failure: Failure) {
        let replica = attempt.server();
        self.count(now, &attempt, AttemptOutcome::Failed);
        let Attempt { fetch: id, asked, .. } = attempt;
        let kind = failure.kind;
        match kind {
            FailureKind::Unreachable | FailureKind::Reset | FailureKind::Malformed => {
                self.blame(now, replica, &failure.reason);
            }
            FailureKind::Rejected => self.replicas[replica.index()].health.note_success(),
            FailureKind::Overloaded => {}
            FailureKind::Throttled => {
                let all = &self.fetches.get(id).expect(STORED).keys;
                self.refund_throttled(now, id, asked.as_ref().unwrap_or(all).len());
            }
        }
        let Fetch { open, asked_at, .. } = *self.fetches.get(id).expect(STORED);
        if open == 0 {
            return self.close(now, id);
        }
        // A backend that declines keys has kept up with them.
        self.note_call(now, asked_at, open, kind == FailureKind::Rejected);
        if !self.is_continued(now, id, replica, &failure) {
            let error = self.fetches.get(id).expect(STORED).error(failure);
            self.end(now, id, &error);
        }
    }

    /// Takes in that an attempt which is no longer live was refused a turn: the fetch goes on with
    /// its other attempts, or ends.
    pub(super) fn turn_away(&mut self, now: Instant, attempt: Attempt<K>, expected: Duration) {
        let id = attempt.fetch;
        self.count(now, &attempt, AttemptOutcome::Failed);
        let fetch = self.fetches.get(id).expect(STORED);
        if fetch.open > 0 && fetch.live.is_empty() {
            self.end(now, id, &FetchError::Rejected { expected });
        } else {
            self.close(now, id);
        }
    }

    /// Counts a failure against the replica, which may then be down.
    fn blame(&mut self, now: Instant, replica: ReplicaId, reason: &Arc<str>) {
        let replica = &mut self.replicas[replica.index()];
        if replica.health.note_failure(now, &self.options.probe, &mut self.draws) {
            replica.downs += 1;
            self.last_down = Arc::clone(reason);
            self.tier.iter_mut().for_each(|tier| tier.lost_replica = true);
        }
    }

    /// Ends a fetch at the end of its timeout. A replica is blamed only if it had at least half of
    /// the timeout: an attempt that spent its time in our queue says nothing about the replica.
    pub(super) fn expire(&mut self, now: Instant, id: Id) {
        let timeout = self.options.timeout;
        let fetch = self.fetches.get(id).expect(STORED);
        let Fetch { open, asked_at, expires_at, .. } = *fetch;
        let live = fetch.live.clone();
        // A fetch that was not sent says nothing about the backend.
        let was_sent = fetch.paid.waiting.is_none();
        self.stop_waiting(now, id);
        if open > 0 && was_sent {
            self.note_call(now, asked_at, open, false);
        }
        for attempt in live {
            if let Some(Attempt { replica: Some(replica), state: AttemptState::Started(at), .. }) =
                self.cancel(now, attempt, CancelReason::Timeout)
                && expires_at - at >= timeout / 2
            {
                self.blame(now, replica, &Arc::from("no answer in time"));
            }
        }
        self.end(now, id, &FetchError::Timeout { timeout });
    }

    /// Ends the open keys of a fetch that has no live attempt, and the fetch.
    pub(super) fn end(&mut self, now: Instant, id: Id, error: &FetchError) {
        let fetch = self.fetches.get_mut(id).expect(STORED);
        if fetch.lease.is_some() {
            return self.close_lease(now, id, Some(error.clone()));
        }
        fetch.open = 0;
        for key in mem::take(&mut fetch.keys) {
            if self.keys.get(key).is_some() {
                self.deliver(key, Err(error.clone()));
            }
        }
        self.close(now, id);
    }

    /// Cancels the attempts that a fetch no longer needs once all of its keys have ended, and
    /// forgets the fetch when no attempt is left.
    pub(super) fn close(&mut self, now: Instant, id: Id) {
        let fetch = self.fetches.get(id).expect(STORED);
        if fetch.open > 0 {
            return;
        }
        if !fetch.live.is_empty() {
            self.cancel_needless(now, id);
        }
        let fetch = self.fetches.get(id).expect(STORED);
        if fetch.live.is_empty() {
            self.unplan(id);
            self.fetches.discard(id);
            let fetches = &self.fetches;
            self.expiries.remove_ended(fetches.len(), |id| fetches.get(id).is_some());
        }
    }

    /// Cancels the attempts of a fetch whose keys have all ended, as its [`CancelRule`] says.
    fn cancel_needless(&mut self, now: Instant, id: Id) {
        let fetch = self.fetches.get(id).expect(STORED);
        let (live, cancel) = (fetch.live.clone(), self.options.cancel);
        for attempt in live {
            let is_queued = |attempt: &Attempt<K>| attempt.state == AttemptState::Queued;
            let is_cancelled = match cancel {
                CancelRule::Never => false,
                CancelRule::Queued => self.attempts.get(attempt).is_some_and(is_queued),
                CancelRule::Always => true,
            };
            if is_cancelled {
                self.cancel(now, attempt, CancelReason::Answered);
            }
        }
    }

    /// Takes a live attempt out of its queue, or has the driver end its call.
    pub(super) fn cancel(&mut self, now: Instant, id: Id, reason: CancelReason) -> Option<Attempt<K>> {
        let attempt = self.remove_attempt(id)?;
        match attempt.state {
            AttemptState::Queued => {
                self.queue_of(attempt.replica).cancel(AttemptId(id));
            }
            AttemptState::Started(at) => {
                // Half of the timeout without an answer is a latency too, and more than nothing.
                let spent = self.fetches.get(attempt.fetch).expect(STORED).expires_at - at;
                let is_long = reason == CancelReason::Timeout && spent >= self.options.timeout / 2;
                let replica = attempt.server();
                self.complete(now, id, replica, is_long.then_some(spent));
                self.report(now, &attempt, at, CallEnd::Cancelled);
                self.counters.cancelled_calls += 1;
                self.actions.push_back(Action::Cancel { attempt: AttemptId(id), replica, reason });
            }
        }
        let outcome = match (attempt.state, reason) {
            (AttemptState::Queued, _) => AttemptOutcome::Withdrawn,
            (_, CancelReason::Timeout | CancelReason::Outdated) => AttemptOutcome::Failed,
            (_, CancelReason::Answered) => AttemptOutcome::Cancelled,
        };
        self.count(now, &attempt, outcome);
        Some(attempt)
    }
}

fn is_throttled(failure: &Failure) -> bool {
    failure.kind == FailureKind::Throttled
}
