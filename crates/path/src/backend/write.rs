//! Writes: to the store first and then to the cache, or the other way round.

use std::hash::Hash;

use sherwood_cache::Access;
use sherwood_model::{Instant, PartitionId, ReplicaId};

use super::Backend;
use super::action::{Action, Write, WriteOptions, WriteOrder};
use super::change::Change;
use super::fill::{AnswerCache, replace};
use super::running::{RunningWrite, Stage};
use crate::fences::{Begun, Ended};
use crate::{BackendOptions, ChangedKeys, WriteId, WriteOutcome, WriteRefused};

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Backend<K, V, W> {
    /// Accepts a write, which ends with an [`Action::EndWrite`] within the backend's timeout.
    ///
    /// # Errors
    /// If as many writes are in flight as may be, if as many writes of the key wait as may, or if
    /// the turn of this write cannot come, or its tenant's rate cannot pay for it, in time. Nothing
    /// follows then.
    pub fn handle_write(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        write: Write<K, V>,
    ) -> Result<WriteId, WriteRefused> {
        self.advance(now, cache);
        if let Some(from) = self.options.shared.as_ref().and_then(|shared| shared.writes_from(now)) {
            let after = (from < Instant::NEVER).then(|| from - now);
            return Err(WriteRefused::Unknown(after));
        }
        let (tenant, due) = (write.options.tenant, now + self.options.turn_timeout());
        if let Some(writes) = &mut self.tenant_writes {
            writes.check(now, tenant, due)?;
        }
        let bytes = Self::write_bytes(cache, &write);
        if let Some(duplicates) = &mut self.duplicates {
            duplicates.check(&write.key, bytes).map_err(WriteRefused::Log)?;
        }
        let units = self.options.units.writes.of(bytes);
        let (id, has_turn, unpaid) = match &mut self.tenant_writes {
            // While it waits for its tenant's rate, a write has no effect on its key: it may wait
            // for long, and the key would not be cached all that time.
            Some(writes) => {
                let id = self.fences.accept(now, &write.key)?;
                (id, false, Some(writes.enter(now, tenant, id, units)))
            }
            None => {
                let Begun { write: id, may_start } = self.fences.begin(now, write.key.clone())?;
                (id, may_start, None)
            }
        };
        if let Some(counts) = self.demand.get_mut(tenant.index()) {
            counts.count_write(self.options.units.writes, bytes);
        }
        let written = self.options.written_replicas(write.key.as_ref());
        let answers = written.map(|replica| (replica, None)).collect();
        let running = RunningWrite {
            write,
            begun: now,
            due,
            stage: Stage::Waiting,
            has_turn,
            unpaid,
            payer: None,
            is_throttled: false,
            answers,
            is_acknowledged: false,
            logged: None,
        };
        self.check_due_next();
        self.writes.insert(id, running);
        self.writes_due.insert((due, id));
        self.start_paid_writes(now, cache);
        self.begin_if_ready(now, cache, id);
        Ok(id)
    }

    /// Hands out a write whose turn has come, once; none if it was handed out before or has ended.
    pub fn take_write(&mut self, now: Instant, id: WriteId) -> Option<WriteOrder<K, V>> {
        let running = self.writes.get_mut(&id)?;
        if running.stage != Stage::Ready || running.due <= now {
            return None;
        }
        running.stage = Stage::Sent;
        Some(WriteOrder {
            write: id,
            replicas: running.answers.iter().map(|(replica, _)| *replica).collect(),
            key: running.write.key.clone(),
            change: running.write.change.clone(),
            deadline: running.due,
        })
    }

    /// Notes that the answer which follows is that of a store which has declined the write because
    /// of its own limits. If the write was made nowhere, its tenant gets its units back.
    pub fn note_throttled_write(&mut self, id: WriteId) {
        if let Some(running) = self.writes.get_mut(&id) {
            running.is_throttled = true;
        }
    }

    /// Takes the answer of one replica to a write. An answer that is late, repeated or was never
    /// asked for is ignored.
    pub fn handle_write_reply(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        id: WriteId,
        replica: ReplicaId,
        outcome: WriteOutcome,
    ) {
        self.advance(now, cache);
        let Some(running) = self.writes.get_mut(&id).filter(|running| running.stage == Stage::Sent) else {
            return;
        };
        let answer = running.answers.iter_mut().find(|(of, _)| *of == replica);
        let Some((_, answer @ None)) = answer else { return };
        *answer = Some(outcome);
        if running.answers.iter().all(|(_, answer)| answer.is_some()) {
            self.end_write(now, cache, id);
        } else if outcome == WriteOutcome::Acknowledged && self.options.shared.is_none() {
            self.acknowledge_early(now, cache, id, replica);
        }
    }

    /// Acknowledges a write in flight if enough replicas have made it; `replica` acknowledged it
    /// last. The cached value of the key is removed, and values from earlier fetches are not
    /// cached.
    fn acknowledge_early(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        id: WriteId,
        replica: ReplicaId,
    ) {
        let Some(running) = self.writes.get_mut(&id) else { return };
        let made =
            |(_, answer): &&(ReplicaId, Option<WriteOutcome>)| *answer == Some(WriteOutcome::Acknowledged);
        let needed = self.options.acknowledge.needed(running.answers.len());
        if running.answers.iter().filter(made).count() < needed {
            return;
        }
        let key = running.write.key.clone();
        if !std::mem::replace(&mut running.is_acknowledged, true) {
            self.fence_fetches(&key);
            for &partition in &self.options.partitions {
                cache.cache().remove(partition, key.as_ref(), &Access::at(now));
            }
            self.acknowledged_writes.push_back(id);
        }
        self.acknowledged.insert(key, replica);
    }

    /// Returns the next write that was acknowledged before it ended
    /// ([`BackendOptions::acknowledge`]), or none until the next input. Must be polled before
    /// [`poll_action`](Self::poll_action), which reports the ends of writes.
    ///
    /// [`BackendOptions::acknowledge`]: super::BackendOptions::acknowledge
    pub fn poll_acknowledged(&mut self) -> Option<WriteId> {
        self.acknowledged_writes.pop_front()
    }

    /// Ends all writes in flight, since the process ends, so that the cache keeps none of their
    /// keys. Returns the time until which a write may land (be applied by the store); none if there
    /// is no such write.
    pub fn handle_shutdown(&mut self, now: Instant, cache: &impl AnswerCache<V>) -> Option<Instant> {
        self.advance(now, cache);
        // Waiting writes end first, so that none of them starts any more.
        for stage in [Stage::Waiting, Stage::Ready, Stage::Sent] {
            let ids: Vec<_> =
                self.writes.iter().filter(|(_, one)| one.stage == stage).map(|(id, _)| *id).collect();
            ids.into_iter().for_each(|id| self.end_write(now, cache, id));
        }
        self.fences.unsettled(now)
    }

    /// Takes in that no earlier write of its key is in the way of this one.
    pub(super) fn note_turn(&mut self, now: Instant, cache: &impl AnswerCache<V>, id: WriteId) {
        if let Some(running) = self.writes.get_mut(&id) {
            running.has_turn = true;
            self.begin_if_ready(now, cache, id);
        }
    }

    /// Tells the driver to send a write that waits, if its turn has come and its tenant's rate has
    /// paid for it.
    pub(super) fn begin_if_ready(&mut self, now: Instant, cache: &impl AnswerCache<V>, id: WriteId) {
        self.check_due_next();
        let Some(running) = self.writes.get_mut(&id) else { return };
        if running.stage != Stage::Waiting || !running.has_turn || running.unpaid.is_some() {
            return;
        }
        running.stage = Stage::Ready;
        self.writes_due.remove(&(running.due, id));
        running.due = running.begun + self.options.dispatch.timeout;
        self.writes_due.insert((running.due, id));
        if self.duplicates.is_some() {
            return self.append_write(now, cache, id);
        }
        let Write { key, change, partition, options } = &running.write;
        if let (Change::Put(value), Some(partition)) = (change, *partition)
            && options.cache_first
            && self.options.reads_as_written
            && keeps(cache, now, partition, key.as_ref(), options)
        {
            let item = self.options.rules.item(key.as_ref(), Some(cache.fetched(value)), now);
            replace(cache, partition, key.as_ref(), item, &Access::at(now));
            note_written(&self.options, now, partition, key.as_ref(), now);
        }
        self.actions.push_back(Action::StartWrite(id));
    }

    /// Ends a write when it was answered or has timed out. The only place where writes affect
    /// fetches and the cache: nothing fetched before replaces the written value.
    pub(super) fn end_write(&mut self, now: Instant, cache: &impl AnswerCache<V>, id: WriteId) {
        let Some(running) = self.writes.remove(&id) else { return };
        let RunningWrite {
            write,
            begun,
            due,
            stage,
            answers,
            unpaid,
            payer,
            is_throttled,
            is_acknowledged,
            logged,
            ..
        } = running;
        if is_acknowledged {
            self.acknowledged.remove(&write.key);
        }
        self.check_due_next();
        self.writes_due.remove(&(due, id));
        let sent = stage == Stage::Sent;
        let outcome = match stage {
            Stage::Sent if let Some(logged) = logged => logged.end.unwrap_or(WriteOutcome::Unknown),
            Stage::Sent => {
                let answers = answers.into_iter().map(|(_, answer)| answer.unwrap_or(WriteOutcome::Unknown));
                WriteOutcome::of_all(answers)
            }
            Stage::Waiting | Stage::Ready => WriteOutcome::NotDone,
        };
        if let Some(payer) = payer
            && (!sent || (is_throttled && outcome == WriteOutcome::NotDone))
        {
            self.refund_write(now, cache, &write, payer);
        }
        let key = &write.key;
        let Ended { keep, next } = match (&mut self.tenant_writes, unpaid) {
            // It has not begun.
            (Some(writes), Some(waiting)) => {
                writes.cancel(now, waiting);
                self.fences.withdraw();
                Ended { keep: false, next: None }
            }
            _ => self.fences.end(now, id, key, outcome),
        };
        if let (Some(logged), Some(duplicates)) = (logged, &mut self.duplicates) {
            duplicates.take_write(logged.partition, logged.number);
        } else {
            self.fence_fetches(key);
            self.keep_written(now, cache, &write, begun, keep && self.options.reads_as_written);
        }
        if self.options.shared.is_some() && sent {
            self.actions.extend(changed(outcome, write.key).map(Action::Announce));
        }
        let session = logged.filter(|_| outcome == WriteOutcome::Acknowledged).map(|logged| logged.session);
        self.actions.push_back(Action::EndWrite { write: id, outcome, sent, session });
        if let Some(next) = next {
            self.note_turn(now, cache, next);
        }
    }

    /// Has the cache keep the value of a write that has ended in the writer's partition, if it may,
    /// and drop the key from the others.
    fn keep_written(
        &self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        write: &Write<K, V>,
        begun: Instant,
        keep: bool,
    ) {
        let Write { key, change, partition: own, options } = write;
        let (key, access) = (key.as_ref(), Access::at(now));
        for &partition in &self.options.partitions {
            match change {
                Change::Put(value)
                    if keep && *own == Some(partition) && keeps(cache, now, partition, key, options) =>
                {
                    let item = self.options.rules.item(key, Some(cache.fetched(value)), now);
                    replace(cache, partition, key, item, &access);
                    note_written(&self.options, now, partition, key, begun);
                }
                Change::Put(_) | Change::Delete => {
                    cache.cache().remove(partition, key, &access);
                }
            }
        }
    }
}

/// Returns the change that other nodes are told of for a write with this outcome, if any.
fn changed<K>(outcome: WriteOutcome, key: K) -> Option<ChangedKeys<K>> {
    match outcome {
        WriteOutcome::Acknowledged => Some(ChangedKeys::Key(key)),
        WriteOutcome::Unknown => Some(ChangedKeys::Unsettled(key)),
        WriteOutcome::NotDone => None,
    }
}

/// True if the cache keeps the written value of this key, because it has the key or admits it.
pub(super) fn keeps<V>(
    cache: &impl AnswerCache<V>,
    now: Instant,
    partition: PartitionId,
    key: &[u8],
    options: &WriteOptions,
) -> bool {
    options.admit || cache.cache().peek(partition, key, &Access::at(now), |_| ()).is_some()
}

/// Notes that the cache has a written value of a shared backend, whose write `began` then.
fn note_written(options: &BackendOptions, now: Instant, partition: PartitionId, key: &[u8], began: Instant) {
    if let Some(shared) = &options.shared {
        shared.note_fetched(now, partition, key, began);
    }
}
