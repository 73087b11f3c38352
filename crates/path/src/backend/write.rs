//! Writes: to the store first, then to the cache.

use std::hash::Hash;

use sherwood_cache::Access;
use sherwood_model::{Instant, ReplicaId};

use super::Backend;
use super::action::{Action, Change, Write, WriteOrder};
use super::fill::{AnswerCache, replace};
use super::running::{RunningWrite, Stage};
use crate::fences::{Begun, Ended};
use crate::{WriteId, WriteOutcome, WriteRefused};

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Backend<K, V, W> {
    /// Accepts a write, which ends with an [`Action::EndWrite`] within the backend's timeout.
    ///
    /// # Errors
    /// If as many writes are in flight as may be, if as many writes of the key wait as may, or if
    /// the turn of this write cannot come in time. Nothing follows then.
    pub fn handle_write(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        write: Write<K, V>,
    ) -> Result<WriteId, WriteRefused> {
        self.advance(now, cache);
        let Begun { write: id, may_start } = self.fences.begin(now, write.key.clone())?;
        let due = now + self.options.turn_timeout();
        let answers = vec![None; self.options.written_replicas()];
        let running = RunningWrite { write, begun: now, due, stage: Stage::Waiting, answers };
        self.check_due_next();
        self.writes.insert(id, running);
        self.writes_due.insert((due, id));
        if may_start {
            self.begin_turn(id);
        }
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
            replicas: (0..running.answers.len()).map(ReplicaId::from_index).collect(),
            key: running.write.key.clone(),
            change: running.write.change.clone(),
            deadline: running.due,
        })
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
        let Some(answer @ None) = running.answers.get_mut(replica.index()) else { return };
        *answer = Some(outcome);
        if running.answers.iter().all(Option::is_some) {
            self.end_write(now, cache, id);
        }
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

    /// Tells the driver to send a write whose turn has come.
    pub(super) fn begin_turn(&mut self, id: WriteId) {
        self.check_due_next();
        let Some(running) = self.writes.get_mut(&id) else { return };
        running.stage = Stage::Ready;
        self.writes_due.remove(&(running.due, id));
        running.due = running.begun + self.options.dispatch.timeout;
        self.writes_due.insert((running.due, id));
        self.actions.push_back(Action::StartWrite(id));
    }

    /// Ends a write when it was answered or has timed out. The only place where writes affect
    /// fetches and the cache: nothing fetched before replaces the written value.
    pub(super) fn end_write(&mut self, now: Instant, cache: &impl AnswerCache<V>, id: WriteId) {
        let Some(RunningWrite { write, due, stage, answers, .. }) = self.writes.remove(&id) else { return };
        self.check_due_next();
        self.writes_due.remove(&(due, id));
        let Write { key, change, partition: own } = write;
        let sent = stage == Stage::Sent;
        let outcome = match stage {
            Stage::Sent => {
                let answers = answers.into_iter().map(|answer| answer.unwrap_or(WriteOutcome::Unknown));
                WriteOutcome::of_all(answers)
            }
            Stage::Waiting | Stage::Ready => WriteOutcome::NotDone,
        };
        let Ended { keep, next } = self.fences.end(now, id, &key, outcome);
        self.fence_fetches(&key);
        let keep = keep && self.options.reads_as_written;
        let access = Access::at(now);
        for &partition in &self.options.partitions {
            match &change {
                Change::Put(value) if keep && own == Some(partition) => {
                    let item = self.options.rules.item(key.as_ref(), Some(cache.fetched(value)), now);
                    replace(cache, partition, key.as_ref(), item, &access);
                }
                Change::Put(_) | Change::Delete => {
                    cache.cache().remove(partition, key.as_ref(), &access);
                }
            }
        }
        self.actions.push_back(Action::EndWrite { write: id, outcome, sent });
        if let Some(next) = next {
            self.begin_turn(next);
        }
    }
}
