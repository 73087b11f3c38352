//! What happens to a call: chosen a replica, queued, sent, tried again, ended.

use std::hash::Hash;
use std::mem;
use std::sync::Arc;

use sherwood_model::{Demand, Instant, ReplicaId};

use super::{Call, Dispatch};
use crate::replica::Replica;
use crate::slab::Id;
use crate::{
    Action, AttemptId, Bound, CallShape, Failure, FailureKind, FetchError, Options, ReplicaLoad, Route,
};

impl<K: Clone + Eq + Hash, V, W, R: Route> Dispatch<K, V, W, R> {
    /// A new call for keys that were just admitted, of `only` this replica if there is one.
    pub(super) fn submit(&mut self, now: Instant, keys: Vec<Id>, only: Option<ReplicaId>, demand: &Demand) {
        let deadline = now + self.options.timeout;
        let replica = ReplicaId(0);
        let demand = *demand;
        let call = Call { keys, demand, deadline, attempt: 1, only, replica, sent: None, failure: None };
        self.place_or_end(now, call);
    }

    /// Gives a call to any replica that it may go to. One that none takes was refused if it is the
    /// first for its keys; a retry ends as the attempt before it did, which the backend felt.
    fn place_or_end(&mut self, now: Instant, call: Call) {
        match self.choose(now, &call, None) {
            Ok(replica) => self.place(now, Call { replica, ..call }),
            Err(refusal) => {
                let error = call.failed().unwrap_or(refusal);
                self.end(call, &error);
            }
        }
    }

    /// A replica for this call, other than `except`, or why there is none.
    fn choose(
        &mut self,
        now: Instant,
        call: &Call,
        except: Option<ReplicaId>,
    ) -> Result<ReplicaId, FetchError> {
        let Options { in_flight_calls_max, queued_calls_max, .. } = self.options;
        let has_room = |load: &ReplicaLoad| {
            load.in_flight_calls < in_flight_calls_max || load.queued_calls < queued_calls_max
        };
        let allowed = |replica: &&Replica| call.allows(replica.id) && Some(replica.id) != except;
        let up = self.replicas.iter().filter(allowed).filter(|replica| replica.health.is_up());
        self.usable.clear();
        self.usable.extend(up.map(Replica::load).filter(has_room));
        if self.usable.is_empty() {
            return Err(self.why_unusable(call));
        }
        let shape =
            CallShape { keys: call.keys.len(), attempt: call.attempt, remaining: call.deadline - now };
        let chosen = self.route.choose(&shape, &self.usable, self.draws.next());
        let offered = |chosen: &ReplicaId| self.usable.iter().any(|load| load.replica == *chosen);
        chosen.filter(offered).ok_or(FetchError::NotAdmitted { replicas: self.usable.len() })
    }

    fn why_unusable(&self, call: &Call) -> FetchError {
        let allowed = self.replicas.iter().filter(|replica| call.allows(replica.id));
        if allowed.clone().any(|replica| replica.health.is_up()) {
            FetchError::Overloaded { bound: Bound::QueuedCalls, limit: self.options.queued_calls_max }
        } else {
            FetchError::Unavailable { replicas: allowed.count(), reason: self.last_down.clone() }
        }
    }

    /// Queues a call at its replica, which has room, and sends it at once if nothing is before it.
    fn place(&mut self, now: Instant, call: Call) {
        let (deadline, replica) = (call.deadline, call.replica);
        let id = self.calls.insert(call);
        self.deadlines.insert((deadline, id));
        self.replicas[replica.index()].queue.push_back(id);
        self.pump(now, replica);
    }

    /// Sends queued calls of a replica while it has room.
    fn pump(&mut self, now: Instant, replica: ReplicaId) {
        let replica = &mut self.replicas[replica.index()];
        while replica.in_flight_calls < self.options.in_flight_calls_max
            && let Some(id) = replica.queue.pop_front()
        {
            let call = self.calls.get_mut(id).expect("a queued call is stored until it leaves the queue");
            call.sent = Some(now);
            replica.in_flight_calls += 1;
            self.counters.calls += 1;
            if call.attempt == 1 {
                self.budget.pay();
            }
            let stored = |key: &Id| self.keys.get(*key).expect("a key is stored until its call ends");
            let keys = call.keys.iter().map(|key| stored(key).key.clone());
            self.actions.push_back(Action::Call {
                attempt: AttemptId(id),
                replica: replica.id,
                keys: keys.collect(),
                demand: call.demand,
                timeout: call.deadline - now,
            });
        }
    }

    /// Takes out a call that a replica works on; none if there is no such call.
    pub(super) fn take_in_flight(&mut self, id: Id) -> Option<Call> {
        self.calls.get(id)?.sent?;
        let call = self.calls.remove(id)?;
        self.deadlines.remove(&(call.deadline, id));
        self.replicas[call.replica.index()].in_flight_calls -= 1;
        Some(call)
    }

    /// Takes out a call that waits in its replica's queue.
    fn take_queued(&mut self, id: Id) -> Option<Call> {
        let call = self.calls.remove(id)?;
        self.deadlines.remove(&(call.deadline, id));
        self.replicas[call.replica.index()].unqueue(id);
        Some(call)
    }

    /// A call that is no longer in flight was answered, key by key.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        mut call: Call,
        answers: impl ExactSizeIterator<Item = Result<Option<V>, Failure>>,
    ) {
        if answers.len() != call.keys.len() {
            let reason = format!("malformed answer: {} values for {} keys", answers.len(), call.keys.len());
            return self.fail(now, call, Failure::new(FailureKind::Malformed, reason));
        }
        let keys = mem::take(&mut call.keys);
        let (asked, mut rest) = (keys.len(), Vec::new());
        let mut answered = false;
        for (key, answer) in keys.into_iter().zip(answers) {
            match answer {
                Err(failure) if failure.kind.is_safe_to_retry() => rest.push((key, failure)),
                answer => {
                    if answer.is_ok() && !mem::replace(&mut answered, true) {
                        self.note_answered(call.replica, key);
                    }
                    let failed = |Failure { kind, reason }| FetchError::Failed {
                        kind,
                        reason,
                        attempts: call.attempt,
                    };
                    self.deliver(key, answer.map_err(failed));
                }
            }
        }
        self.replicas[call.replica.index()].health.note_success();
        let ended = asked - rest.len();
        // Who fails at most of what it is sent has not kept up with it, whatever became of the
        // rest.
        self.note_call(now, &call, ended, rest.len() <= ended);
        self.fail_each(now, call, rest);
    }

    /// A replica has answered this key, which is what to ask it for when it is down.
    fn note_answered(&mut self, replica: ReplicaId, key: Id) {
        let key = &self.keys.get(key).expect("a key is stored until its call ends").key;
        self.probes.note_answered(replica, key);
    }

    /// These keys of an answered call failed: tries another replica with them, in the name of the
    /// first one's failure, or ends each with its own error.
    fn fail_each(&mut self, now: Instant, call: Call, failed: Vec<(Id, Failure)>) {
        let Some((_, failure)) = failed.first().cloned() else { return };
        let keys = failed.iter().map(|(key, _)| *key).collect();
        let Some(call) = self.try_another(now, Call { keys, ..call }, failure) else { return };
        for (key, Failure { kind, reason }) in failed {
            self.deliver(key, Err(FetchError::Failed { kind, reason, attempts: call.attempt - 1 }));
        }
    }

    /// A call that is no longer in flight failed: tries another replica where that is safe,
    /// affordable and possible.
    pub(super) fn fail(&mut self, now: Instant, call: Call, failure: Failure) {
        let kind = failure.kind;
        match kind {
            FailureKind::Unreachable | FailureKind::Reset | FailureKind::Malformed => {
                self.blame(now, call.replica, &failure.reason);
            }
            FailureKind::Rejected => self.replicas[call.replica.index()].health.note_success(),
            FailureKind::Overloaded => {}
        }
        // What a backend says no to, it has kept up with.
        self.note_call(now, &call, call.keys.len(), kind == FailureKind::Rejected);
        if let Some(call) = self.try_another(now, call, failure) {
            let error = call.failed().expect("it was just noted");
            self.end(call, &error);
        }
    }

    /// Places a call that failed at another replica where that is safe, affordable and possible;
    /// gives it back where it is not.
    fn try_another(&mut self, now: Instant, mut call: Call, failure: Failure) -> Option<Call> {
        let (attempts, is_safe) = (call.attempt, failure.kind.is_safe_to_retry());
        call.attempt += 1;
        call.sent = None;
        call.failure = Some(failure);
        if is_safe
            && attempts <= self.options.retry.per_call_max
            && self.budget.can_take()
            && let Ok(replica) = self.choose(now, &call, Some(call.replica))
        {
            self.budget.take();
            self.counters.retries += 1;
            self.place(now, Call { replica, ..call });
            return None;
        }
        Some(call)
    }

    /// A failure was the replica's fault.
    fn blame(&mut self, now: Instant, replica: ReplicaId, reason: &Arc<str>) {
        let replica = &mut self.replicas[replica.index()];
        if replica.health.note_failure(now, &self.options.probe, &mut self.draws) {
            replica.downs += 1;
            self.last_down = Arc::clone(reason);
        }
    }

    /// Ends every key of a call that is no longer stored.
    fn end(&mut self, call: Call, error: &FetchError) {
        for key in call.keys {
            self.deliver(key, Err(error.clone()));
        }
    }

    /// Ends a call at its deadline. A replica is blamed only if it had at least half of the
    /// time-out: a call that spent its time in our queue says nothing about the replica.
    pub(super) fn expire(&mut self, now: Instant, id: Id) {
        let timeout = self.options.timeout;
        let error = FetchError::Timeout { timeout };
        if let Some(call) = self.take_in_flight(id) {
            self.note_call(now, &call, call.keys.len(), false);
            self.counters.cancelled_calls += 1;
            self.actions.push_back(Action::Cancel { attempt: AttemptId(id), replica: call.replica });
            if call.sent.is_some_and(|sent| call.deadline - sent >= timeout / 2) {
                self.blame(now, call.replica, &Arc::from("no answer in time"));
            }
            self.end(call, &error);
        } else if let Some(call) = self.take_queued(id) {
            self.note_call(now, &call, call.keys.len(), false);
            self.end(call, &error);
        }
    }

    /// Restores what holds between inputs: no call waits for a replica that is down, nor for one
    /// that has room.
    pub(super) fn settle(&mut self, now: Instant) {
        for index in 0..self.replicas.len() {
            if !self.replicas[index].health.is_up() {
                for id in mem::take(&mut self.replicas[index].queue) {
                    let call =
                        self.take_queued(id).expect("a queued call is stored until it leaves the queue");
                    self.place_or_end(now, call);
                }
            }
        }
        for index in 0..self.replicas.len() {
            self.pump(now, ReplicaId::from_index(index));
        }
    }
}

impl Call {
    /// Whether it may go to this replica.
    fn allows(&self, replica: ReplicaId) -> bool {
        self.only.is_none_or(|only| only == replica)
    }

    /// The error of a call that is not made because the attempts before it failed; none if there
    /// were no others.
    fn failed(&self) -> Option<FetchError> {
        let Failure { kind, reason } = self.failure.clone()?;
        Some(FetchError::Failed { kind, reason, attempts: self.attempt - 1 })
    }
}
