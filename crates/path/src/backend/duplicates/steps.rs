//! Carries out what logs decide, and takes in what has happened at duplicates.

use std::hash::Hash;

use sherwood_cache::Access;
use sherwood_dispatch::{DuplicateState, LogAction, LogEntry};
use sherwood_model::{Instant, ReplicaId};

use super::{DuplicateEvent, DuplicateStanding, DuplicateStep, Duplicates, Logged, LogsStanding};
use crate::backend::Backend;
use crate::backend::action::Action;
use crate::backend::change::Change;
use crate::backend::fill::{AnswerCache, replace};
use crate::backend::running::Stage;
use crate::backend::write::keeps;
use crate::{WriteId, WriteOutcome};

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Duplicates<K, V, W> {
    fn standing(&self) -> LogsStanding {
        let is_settled = self.places.iter().all(|place| place.is_settled);
        let (layout, counts) = (Some(self.target), self.counts());
        let mut all = LogsStanding { layout, is_settled, counts, ..LogsStanding::default() };
        for (partition, log) in self.logs.iter().enumerate() {
            let (entries, bytes) = log.held();
            (all.entries, all.bytes) = (all.entries + entries, all.bytes + bytes);
            let of_log = self.places[partition].replicas.iter().zip(log.standing());
            let present = of_log.filter(|(_, (state, _))| *state != DuplicateState::Gone);
            all.duplicates.extend(present.map(|(&replica, (state, lag))| DuplicateStanding {
                replica,
                partition,
                state,
                lag,
                last: log.last(),
            }));
        }
        all
    }
}

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Backend<K, V, W> {
    /// Takes in what has happened at a replica as a duplicate of a partition. Ignored if it is not
    /// one.
    pub fn handle_duplicate(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        partition: usize,
        replica: ReplicaId,
        event: DuplicateEvent<'_>,
    ) {
        self.advance(now, cache);
        let Some(duplicates) = &mut self.duplicates else { return };
        let Some(duplicate) = duplicates.duplicate(partition, replica) else { return };
        if let DuplicateEvent::Inspected(Ok(Some(marker))) = event {
            duplicates.take_marker(now, partition, marker);
        }
        let log = &mut duplicates.logs[partition];
        match event {
            DuplicateEvent::Applied(end) => log.handle_applied(now, duplicate, end),
            DuplicateEvent::Broken => log.handle_broken(now, duplicate),
            DuplicateEvent::Inspected(marker) => log.handle_inspected(now, duplicate, marker),
            DuplicateEvent::Copied(is_done) => log.handle_copied(now, duplicate, is_done),
            DuplicateEvent::Cleared(is_done) => log.handle_cleared(now, duplicate, is_done),
        }
        duplicates.epoch.0 = duplicates.epoch.0.max(log.epoch());
        if let Some(partitions) = log.foreign() {
            duplicates.logs.iter_mut().for_each(|log| log.refuse_foreign(partitions));
            self.wait_for_logs(now);
        }
        self.carry_out_log(now, cache, partition);
        self.keep_answers(now, cache);
    }

    /// Returns the write that waits for a change of a partition, to report an error of the change
    /// with; none if it has ended.
    #[must_use]
    pub fn write_of(&self, partition: usize, number: u64) -> Option<WriteId> {
        self.duplicates.as_ref()?.writes.get(&(partition, number)).copied()
    }

    /// Returns the state of the logs and duplicates; none if the store has none.
    #[must_use]
    pub fn logs(&self) -> Option<LogsStanding> {
        self.duplicates.as_ref().map(|duplicates| duplicates.standing())
    }

    /// Appends a write whose turn has come to the log of its key. Until all duplicates that are
    /// read have the change, the cache has no value of the key.
    pub(in crate::backend) fn append_write(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        id: WriteId,
    ) {
        let (Some(duplicates), Some(running)) = (&mut self.duplicates, self.writes.get_mut(&id)) else {
            return;
        };
        let (key, access) = (running.write.key.clone(), Access::at(now));
        let (change, options) = (running.write.change.clone(), running.write.options);
        let keep_in = running.write.partition;
        let keep_in = keep_in.filter(|partition| keeps(cache, now, *partition, key.as_ref(), &options));
        let bytes = Self::write_bytes(cache, &running.write);
        let Ok(logged) = duplicates.append(now, id, key.clone(), change, keep_in, bytes) else {
            return self.end_write(now, cache, id);
        };
        (running.stage, running.logged) = (Stage::Sent, Some(logged));
        for &partition in &self.options.partitions {
            cache.cache().remove(partition, key.as_ref(), &access);
        }
        self.carry_out_log(now, cache, logged.partition);
    }

    /// Has no replica of a replicated store read before its log says so.
    pub(in crate::backend) fn wait_for_logs(&mut self, now: Instant) {
        let Some(duplicates) = &self.duplicates else { return };
        for (partition, place) in duplicates.places.iter().enumerate() {
            for &replica in &place.replicas {
                self.dispatch.set_applied(now, partition as u32, replica, None);
            }
        }
    }

    /// Ends the reads that wait for the logs, and wakes those up, as far as that is due.
    pub(in crate::backend) fn carry_out_due_logs(&mut self, now: Instant, cache: &impl AnswerCache<V>) {
        self.end_parked_reads(now);
        while let Some(duplicates) = &mut self.duplicates
            && let Some(partition) = duplicates.due(now)
        {
            duplicates.handle_timeout(now, partition);
            self.carry_out_log(now, cache, partition);
        }
    }

    /// Carries out what follows from an input of a log.
    pub(super) fn carry_out_log(&mut self, now: Instant, cache: &impl AnswerCache<V>, partition: usize) {
        self.check_due_next();
        if let Some(duplicates) = &mut self.duplicates {
            duplicates.follow_target(now, partition);
        }
        // A duplicate that is read no longer releases answers from before the change, which the
        // cache must not keep now that the key is settled.
        let settling = self.duplicates.iter().flat_map(|duplicates| duplicates.logs[partition].settling());
        settling.cloned().collect::<Vec<K>>().iter().for_each(|key| self.fence_fetches(key));
        while let Some(duplicates) = &mut self.duplicates
            && let Some(action) = duplicates.logs[partition].poll_action()
        {
            let replica = |duplicate: usize| duplicates.places[partition].replicas[duplicate];
            match action {
                LogAction::Apply { duplicate, marker, entries } => {
                    let (replica, step) = (replica(duplicate), DuplicateStep::Apply { marker, entries });
                    self.actions.push_back(Action::Duplicate { partition, replica, step });
                }
                LogAction::Inspect(duplicate) => {
                    let (replica, step) = (replica(duplicate), DuplicateStep::Inspect);
                    self.actions.push_back(Action::Duplicate { partition, replica, step });
                }
                LogAction::Copy { from, to } => {
                    let (replica, step) = (replica(to), DuplicateStep::Copy { from: replica(from) });
                    self.actions.push_back(Action::Duplicate { partition, replica, step });
                }
                LogAction::Close(duplicate) => {
                    let (replica, step) = (replica(duplicate), DuplicateStep::Close);
                    self.actions.push_back(Action::Duplicate { partition, replica, step });
                }
                LogAction::Retire(duplicate) => {
                    self.dispatch.remove_holder(now, partition as u32, replica(duplicate));
                }
                LogAction::Clear(duplicate) => {
                    let (replica, step) = (replica(duplicate), DuplicateStep::Clear);
                    self.actions.push_back(Action::Duplicate { partition, replica, step });
                }
                LogAction::Store { records, first } => {
                    self.actions.push_back(Action::StoreLog { partition, records, first });
                }
                LogAction::Read { duplicate, applied } => {
                    self.dispatch.set_applied(now, partition as u32, replica(duplicate), applied);
                }
                LogAction::Acknowledge(number, is_made) => {
                    let outcome = if is_made { WriteOutcome::Acknowledged } else { WriteOutcome::NotDone };
                    self.end_logged(now, cache, (partition, number), outcome);
                }
                LogAction::Abandon(number) => {
                    self.end_logged(now, cache, (partition, number), WriteOutcome::Unknown);
                }
                LogAction::Settle(entry, takes_effect) => {
                    self.keep_settled(now, cache, entry, takes_effect);
                }
            }
        }
        if let Some(duplicates) = &mut self.duplicates {
            duplicates.rearm(partition);
        }
        self.resume_reads(now, partition);
    }

    /// Ends the write of an entry, named by its partition and number, unless it has ended.
    fn end_logged(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        (partition, number): (usize, u64),
        outcome: WriteOutcome,
    ) {
        let Some(duplicates) = &mut self.duplicates else { return };
        let Some(id) = duplicates.take_write(partition, number) else { return };
        let Some(running) = self.writes.get_mut(&id) else { return };
        let key = running.write.key.clone();
        running.logged.iter_mut().for_each(|logged| logged.end = Some(outcome));
        // A read that begins now must not join a fetch that may have read the value before.
        self.fence_fetches(&key);
        self.end_write(now, cache, id);
    }

    /// Has the cache keep the value of the last change of a key, which every read returns from now
    /// on. If that change takes no effect, the cache has no value until one is fetched.
    fn keep_settled(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        entry: LogEntry<K, Logged<V>>,
        takes_effect: bool,
    ) {
        let LogEntry { key, change: Logged { change, keep_in, .. }, .. } = entry;
        self.fence_fetches(&key);
        if let (Change::Put(value), Some(partition)) = (&change, keep_in)
            && takes_effect
            && self.options.reads_as_written
        {
            let item = self.options.rules.item(key.as_ref(), Some(cache.fetched(value)), now);
            replace(cache, partition, key.as_ref(), item, &Access::at(now));
        }
    }
}
