//! Writes that go to the store first and to the cache then.
//!
//! What they mean to the cache is decided by `sherwood_path::Writes`, under the lock that fetched
//! values are filled under. Here is what waits: for the turn, and for the replicas. Each write is a
//! task of its own, so that a client that goes away does not end it half-way, and however the task
//! ends, even in a panic, the write does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use sherwood_cache::{Access, NewItem, Value};
use sherwood_model::{PartitionId, Tags};
use sherwood_path::{Begun, Fetched, Outcome, Write, WriteOptions, WriteRefused};
use sherwood_store::{Cause, Fault, Store, StoreError};
use tokio::sync::oneshot;
use tokio::time::{Instant as Deadline, timeout_at};

use crate::backend::{Backend, WRITTEN_TO};
use crate::config::{WriteTo, Writes};

/// Keys of a backend that are held off one by one; with keys and table some 6 MiB at most.
const HELD_KEYS_MAX: u32 = 16_384;

/// What a backend's machine for writes is to do. As many writes may be under way as one replica may
/// have calls: each write is a call of every replica it goes to, and the stores have bounds of
/// their own before the work.
pub(crate) fn rules(dispatch: &sherwood_dispatch::Options, writes: &Writes, replicas: usize) -> WriteOptions {
    WriteOptions {
        under_way_max: dispatch.in_flight_calls_max.saturating_add(dispatch.queued_calls_max),
        held_keys_max: HELD_KEYS_MAX,
        in_turn: writes.to == WriteTo::All && replicas > 1,
        settle: writes.settle,
        landing: dispatch.timeout,
        patience: patience(dispatch.timeout),
    }
}

/// How long a write waits for its turn. One that was sent with its last moments would be of unknown
/// outcome, and have the next ones wait for nothing.
fn patience(timeout: Duration) -> Duration {
    timeout / 2
}

/// What somebody wants to be written.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) key: Bytes,
    pub(crate) change: Change,
    /// Where the value is cached: the partition of the tenant who writes.
    pub(crate) partition: Option<PartitionId>,
}

/// What becomes of the key.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// This value, with what it may be invalidated by.
    Put(Bytes, Tags),
    Delete,
}

impl Change {
    /// Makes the change at one replica.
    async fn at(self, store: Arc<dyn Store>, key: Bytes) -> Result<(), StoreError> {
        match self {
            Self::Put(value, _) => store.put(key, value).await,
            Self::Delete => store.delete(key).await,
        }
    }
}

/// Why a write was not acknowledged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// It was not let in.
    #[error(transparent)]
    Refused(#[from] WriteRefused),
    /// Other writes of its key took half of its time, or one of unknown outcome could still land.
    #[error(
        "the write waited {0:?}, half of the backend's time-out, for others of its key, which are under way or may still land, and was not sent; write it again later"
    )]
    NoTurn(Duration),
    /// A replica did not answer in time.
    #[error(
        "the store did not answer the write within {0:?}, the backend's time-out; it may be done yet: read the key, or write it again"
    )]
    Late(Duration),
    /// A replica failed at it.
    #[error("{error}{}", if *outcome == Outcome::Unknown { "; it may be done yet, or in part: read the key, or write it again" } else { "" })]
    Failed {
        /// The store's words.
        error: StoreError,
        /// What all replicas did, together.
        outcome: Outcome,
    },
    /// The node came to its end before the write did.
    #[error("the node ended before the store had answered; the write may be done or not: ask another node")]
    Ended,
}

impl WriteError {
    /// What is known of the write.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Refused(_) | Self::NoTurn(_) => Outcome::NotDone,
            Self::Late(_) | Self::Ended => Outcome::Unknown,
            Self::Failed { outcome, .. } => *outcome,
        }
    }

    /// Whether no replica can be written to at all.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Self::Failed { error, outcome: Outcome::NotDone } if is_read_only(error))
    }
}

/// How many writes of a backend ended how.
#[derive(Debug, Default)]
pub(crate) struct Written {
    acknowledged: AtomicU64,
    not_done: AtomicU64,
    unknown: AtomicU64,
}

impl Written {
    fn count(&self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Acknowledged => &self.acknowledged,
            Outcome::NotDone => &self.not_done,
            Outcome::Unknown => &self.unknown,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// The counts since the start, by the name of the outcome.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 3] {
        let Self { acknowledged, not_done, unknown } = self;
        [("acknowledged", acknowledged), ("not_done", not_done), ("unknown", unknown)]
            .map(|(outcome, count)| (outcome, count.load(Relaxed)))
    }
}

impl Backend {
    /// Makes a change at the store, and then in the cache. Where the store has made it, later
    /// fetches find it and the cache has nothing older; else the cache does not have the key.
    ///
    /// # Errors
    /// When the store did not acknowledge the change; [`WriteError::outcome`] says whether it may
    /// have been made.
    pub(crate) async fn write_through(self: &Arc<Self>, wanted: Wanted) -> Result<(), WriteError> {
        let backend = Arc::clone(self);
        let task = self.runtime.spawn(async move {
            let written = backend.carry_through(wanted).await;
            let outcome = written.as_ref().map_or_else(WriteError::outcome, |()| Outcome::Acknowledged);
            backend.written.count(outcome);
            written
        });
        task.await.unwrap_or(Err(WriteError::Ended))
    }

    async fn carry_through(self: &Arc<Self>, wanted: Wanted) -> Result<(), WriteError> {
        let begun = Deadline::now();
        let (deadline, patience) = (begun + self.timeout, patience(self.timeout));
        let (mut under_way, turn) = UnderWay::begin(self, wanted)?;
        if let Some(turn) = turn
            && timeout_at(begun + patience, turn).await.is_err()
        {
            under_way.outcome = Outcome::NotDone;
            return Err(WriteError::NoTurn(patience));
        }
        let answers = self.send(&under_way.wanted, deadline).await;
        under_way.outcome = Outcome::of_all(answers.iter().map(outcome_of));
        match telling(answers) {
            None => Ok(()),
            Some(None) => Err(WriteError::Late(self.timeout)),
            Some(Some(error)) => Err(WriteError::Failed { error, outcome: under_way.outcome }),
        }
    }

    /// Sends the change to all replicas that are written to, at once; the answer of each, or the
    /// lack of one.
    async fn send(&self, wanted: &Wanted, deadline: Deadline) -> Vec<Result<(), Option<StoreError>>> {
        let replicas = match self.write_to {
            WriteTo::All => &self.replicas[..],
            WriteTo::First => std::slice::from_ref(&self.replicas[WRITTEN_TO.index()]),
        };
        let one = async |store: &Arc<dyn Store>| {
            let change = wanted.change.clone().at(Arc::clone(store), wanted.key.clone());
            match timeout_at(deadline, change).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => {
                    self.errors.failed(self, &error);
                    Err(Some(error))
                }
                Err(_) => {
                    self.errors.late(self);
                    Err(None)
                }
            }
        };
        join_all(replicas.iter().map(one)).await
    }

    /// Ends a write, under the lock that fills are made under: what was fetched before does not
    /// come back over it.
    fn end_write(&self, write: Write<Bytes>, outcome: Outcome, wanted: &Wanted) {
        let Wanted { key, change, partition: home, .. } = wanted;
        let (mut state, now) = self.state();
        let before = state.next_timeout();
        state.turns.remove(&write.id());
        let ended = state.writes.end(now, write, outcome);
        state.invalidate(key);
        let access = Access::at(now);
        // Else the next read asks for what has become of it.
        let keep = ended.keep && self.replicas.iter().all(|replica| replica.answers_as_written());
        for &partition in &state.partitions {
            match change {
                Change::Put(value, tags) if keep && *home == Some(partition) => {
                    let fetched =
                        Fetched { value: Value::Bytes(value), flags: 0, good_for: None, tags: *tags };
                    self.replace(partition, key, self.rules.item(key, Some(fetched), now), &access);
                }
                Change::Put(..) | Change::Delete => {
                    self.cache.remove(partition, key, &access);
                }
            }
        }
        if let Some(next) = ended.next {
            state.tell_turn(next);
        }
        self.rearm_since(before, &state);
    }

    /// Puts an item where another may be, or takes that out where nothing is kept.
    fn replace(&self, partition: PartitionId, key: &Bytes, item: Option<NewItem<'_>>, access: &Access) {
        let Some(item) = item else {
            self.cache.remove(partition, key, access);
            return;
        };
        if let Err(refused) = self.cache.set(partition, key, item, access) {
            tracing::debug!(backend = self.name, "a value that was written is not cached: {refused}");
        }
    }
}

/// Of the failures of all replicas, the one that says most of the write: one that leaves it open
/// whether it was done, or else one that can be helped, and that a replica takes no writes only
/// where all say so.
fn telling(answers: Vec<Result<(), Option<StoreError>>>) -> Option<Option<StoreError>> {
    let rank = |failure: &Option<StoreError>| match failure {
        None => 0,
        Some(error) if error.fault() == Fault::Broken => 0,
        Some(error) if !is_read_only(error) => 1,
        Some(_) => 2,
    };
    answers.into_iter().filter_map(Result::err).min_by_key(rank)
}

fn is_read_only(error: &StoreError) -> bool {
    matches!(error.cause(), Cause::ReadOnly { .. })
}

/// What a replica's answer, or the lack of one, says about the write.
fn outcome_of(answer: &Result<(), Option<StoreError>>) -> Outcome {
    match answer {
        Ok(()) => Outcome::Acknowledged,
        Err(Some(error)) if error.fault() != Fault::Broken => Outcome::NotDone,
        Err(_) => Outcome::Unknown,
    }
}

/// A write that has begun; it ends when this is dropped, whatever its task meets.
struct UnderWay {
    backend: Arc<Backend>,
    wanted: Wanted,
    write: Option<Write<Bytes>>,
    /// Unknown until it is known.
    outcome: Outcome,
}

impl UnderWay {
    /// Begins a write, and says what to wait for until it is its turn.
    fn begin(
        backend: &Arc<Backend>,
        wanted: Wanted,
    ) -> Result<(Self, Option<oneshot::Receiver<()>>), WriteRefused> {
        let (mut state, now) = backend.state();
        let before = state.next_timeout();
        let Begun { write, may_start } = state.writes.begin(now, wanted.key.clone())?;
        let turn = (!may_start).then(|| {
            let (sender, turn) = oneshot::channel();
            state.turns.insert(write.id(), sender);
            turn
        });
        backend.rearm_since(before, &state);
        drop(state);
        let backend = Arc::clone(backend);
        Ok((Self { backend, wanted, write: Some(write), outcome: Outcome::Unknown }, turn))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            self.backend.end_write(write, self.outcome, &self.wanted);
        }
    }
}
