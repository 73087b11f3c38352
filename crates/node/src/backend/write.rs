//! Writes through the gateway: the tasks that send them to replicas, and their errors.
//!
//! The machine decides when a write is sent and how it ends. Each replica's part is a task of its
//! own, so that a client that disconnects does not interrupt the write. If a task ends without an
//! answer, even by a panic, the machine's timeout ends the write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use sherwood_dispatch::TenantRefusal;
use sherwood_model::query_times::{Operation, QueryKind};
use sherwood_model::{Instant, ReplicaId};
use sherwood_path::{Change, Session, Write, WriteId, WriteOrder, WriteOutcome, WriteRefused};
use sherwood_store::{Cause, Fault, Found, RESERVED_PREFIX, Store, StoreError, is_reserved};
use tokio::sync::oneshot;

use crate::backend::BackendDriver;

/// The reason a write was not acknowledged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The backend's state machine refused the write at once.
    #[error("{error}{}", resource.as_ref().map_or_else(String::new, |name| format!(" (resource `{name}`)")))]
    Refused {
        /// The machine's reason.
        error: WriteRefused,
        /// Name of the resource whose rate is the reason.
        resource: Option<Arc<str>>,
    },
    /// The write waited half of its time for other writes of its key, which were in flight or whose
    /// outcome was unknown, or for the rate of its tenant.
    #[error(
        "the write waited {0:?}, half of the backend's time-out, for others of its key, which are under way or may still land, or for its tenant's rate, and was not sent; write it again later"
    )]
    NoTurn(Duration),
    /// A replica did not answer in time.
    #[error(
        "the store did not answer the write within {0:?}, the backend's time-out; it may be done yet: read the key, or write it again"
    )]
    Late(Duration),
    /// A replica failed the write.
    #[error("{error}{}", if *outcome == WriteOutcome::Unknown { "; it may be done yet, or in part: read the key, or write it again" } else { "" })]
    Failed {
        /// The store's error.
        error: StoreError,
        /// The combined outcome of all replicas.
        outcome: WriteOutcome,
    },
    /// The key is one of those under which stores have records of the node.
    #[error(
        "keys that begin with `{RESERVED_PREFIX}` are reserved for the node's own records: choose another key"
    )]
    Reserved,
    /// The node ended before the write did.
    #[error("the node ended before the store had answered; the write may be done or not: ask another node")]
    Ended,
}

impl WriteError {
    /// Returns the outcome of the write at the store, as far as it is known.
    pub(crate) fn outcome(&self) -> WriteOutcome {
        match self {
            Self::Refused { .. } | Self::NoTurn(_) | Self::Reserved => WriteOutcome::NotDone,
            Self::Late(_) | Self::Ended => WriteOutcome::Unknown,
            Self::Failed { outcome, .. } => *outcome,
        }
    }

    /// Returns the refusal if the tenant's rate is used.
    pub(crate) fn over_rate(&self) -> Option<TenantRefusal> {
        match self {
            Self::Refused { error: WriteRefused::OverRate(refusal), .. } => Some(*refusal),
            _ => None,
        }
    }

    /// Returns true if a replica did not answer in time.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Late(_))
    }

    /// Returns whether the write failed because every replica is read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Self::Failed { error, outcome: WriteOutcome::NotDone } if is_read_only(error))
    }
}

/// Counts of a backend's writes by their outcome.
#[derive(Debug, Default)]
pub(crate) struct Written {
    acknowledged: AtomicU64,
    not_done: AtomicU64,
    unknown: AtomicU64,
}

impl Written {
    pub(crate) fn count(&self, outcome: WriteOutcome) {
        let counter = match outcome {
            WriteOutcome::Acknowledged => &self.acknowledged,
            WriteOutcome::NotDone => &self.not_done,
            WriteOutcome::Unknown => &self.unknown,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Returns the counts since the start, by the name of the outcome.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 3] {
        let Self { acknowledged, not_done, unknown } = self;
        [("acknowledged", acknowledged), ("not_done", not_done), ("unknown", unknown)]
            .map(|(outcome, count)| (outcome, count.load(Relaxed)))
    }
}

/// The end of a write: acknowledged, with the session that has made it if the store is replicated.
pub(crate) type WriteEnd = Result<Option<Session>, WriteError>;

/// A write in flight: its client, and the answers of the replicas it was sent to.
pub(crate) struct PendingWrite {
    client: oneshot::Sender<WriteEnd>,
    /// Answers by replica; none while it has not answered.
    answers: Vec<Option<Result<(), StoreError>>>,
    /// The kind of its wait for its turn; none if it is of no partition.
    kind: Option<QueryKind>,
    /// The time since which it has waited for its turn.
    since: Instant,
}

impl PendingWrite {
    fn new(client: oneshot::Sender<WriteEnd>, kind: Option<QueryKind>, since: Instant) -> Self {
        Self { client, answers: Vec::new(), kind, since }
    }

    /// Returns the time for which the write has waited until `now`, with its kind.
    pub(crate) fn waited(&self, now: Instant) -> Option<(QueryKind, Duration, u64)> {
        Some((self.kind?, now - self.since, 1))
    }

    /// Notes that `replicas` replicas were sent the write, and expects their answers.
    pub(crate) fn note_sent(&mut self, replicas: usize) {
        self.answers.resize_with(replicas, || None);
    }

    fn note_answer(&mut self, replica: ReplicaId, answer: Result<(), StoreError>) {
        if let Some(place) = self.answers.get_mut(replica.index()) {
            *place = Some(answer);
        }
    }

    /// Notes that a duplicate has refused the write.
    pub(crate) fn note_refused(&mut self, error: StoreError) {
        self.answers.push(Some(Err(error)));
    }

    /// Sends the client the outcome of its write.
    pub(crate) fn end(
        self,
        backend: &BackendDriver,
        outcome: WriteOutcome,
        sent: bool,
        session: Option<Session>,
    ) {
        let Self { client, answers, .. } = self;
        let result = match (outcome, sent) {
            (WriteOutcome::Acknowledged, _) => Ok(session),
            (_, false) => Err(WriteError::NoTurn(backend.turn_timeout)),
            (_, true) => Err(match most_telling(answers) {
                Some(error) => WriteError::Failed { error, outcome },
                None => WriteError::Late(backend.timeout),
            }),
        };
        // The client may have disconnected.
        let _ = client.send(result);
    }
}

impl BackendDriver {
    /// Makes a change at the store, and then in the cache. If the store has made it, later fetches
    /// find it and the cache has nothing older. If not, the key is not in the cache. Returns the
    /// session that has made the change, if the store is replicated.
    ///
    /// # Errors
    /// When the store did not acknowledge the change. [`WriteError::outcome`] tells whether it may
    /// have been made.
    pub(crate) async fn write_through(self: &Arc<Self>, write: Write<Bytes, Found>) -> WriteEnd {
        if is_reserved(&write.key) {
            self.written.count(WriteOutcome::NotDone);
            return Err(WriteError::Reserved);
        }
        let write = if self.is_replicated() { logged(write) } else { write };
        let (client, end) = oneshot::channel();
        let network = self.network.as_ref();
        let value_bytes = if let Change::Put(found) = &write.change { found.value.len() } else { 0 };
        let (tenant, bytes) = (write.options.tenant, write.key.len() + value_bytes);
        let operation = if let Change::Put(_) = &write.change { Operation::Set } else { Operation::Delete };
        let kind = write.partition.map(|partition| QueryKind::queued(partition, operation));
        let accepted = self.drive(|state, now, cache| {
            let id = state.machine.handle_write(now, cache, write)?;
            state.writes.insert(id, PendingWrite::new(client, kind, now));
            Ok(())
        });
        if let Err(refused) = accepted {
            self.written.count(WriteOutcome::NotDone);
            let is_over_rate = matches!(refused, WriteRefused::OverRate(_));
            let resource = self.written_resource.clone().filter(|_| is_over_rate);
            return Err(WriteError::Refused { error: refused, resource });
        }
        if let Some(network) = network {
            network.charge_backend(self.clock.now(), tenant, bytes);
        }
        end.await.unwrap_or(Err(WriteError::Ended))
    }

    /// Sends a write to its replicas at once.
    pub(crate) fn send(self: &Arc<Self>, order: WriteOrder<Bytes, Found>) {
        let WriteOrder { write, replicas, key, change, deadline } = order;
        let timeout = deadline.since(self.clock.now());
        for replica in replicas {
            let (backend, store) = (Arc::clone(self), Arc::clone(&self.replicas[replica.index()]));
            let made = make(change.clone(), store, key.clone());
            self.runtime.spawn(async move {
                match tokio::time::timeout(timeout, made).await {
                    Ok(answer) => backend.report(write, replica, answer),
                    // The machine has timed the write out, or is about to.
                    Err(_) => backend.errors.late(&backend),
                }
            });
        }
    }

    /// Reports a replica's answer to a write.
    fn report(self: &Arc<Self>, write: WriteId, replica: ReplicaId, answer: Result<(), StoreError>) {
        if let Err(error) = &answer {
            self.errors.failed(self, error);
        }
        let outcome = outcome_of(&answer);
        let is_throttled = answer.as_ref().is_err_and(|error| error.fault() == Fault::Throttled);
        self.drive(|state, now, cache| {
            if is_throttled {
                state.machine.note_throttled_write(write);
            }
            if let Some(pending) = state.writes.get_mut(&write) {
                pending.note_answer(replica, answer);
            }
            state.machine.handle_write_reply(now, cache, write, replica, outcome);
        });
    }
}

/// Returns a write with memory of its own: it may stay in a log for long, and must not hold the
/// buffers of its request.
fn logged(write: Write<Bytes, Found>) -> Write<Bytes, Found> {
    let Write { key, change, partition, options } = write;
    let change = match change {
        Change::Put(found) => Change::Put(Found { value: Bytes::copy_from_slice(&found.value), ..found }),
        Change::Delete => Change::Delete,
    };
    Write { key: Bytes::copy_from_slice(&key), change, partition, options }
}

/// Makes a change at one replica.
async fn make(change: Change<Found>, store: Arc<dyn Store>, key: Bytes) -> Result<(), StoreError> {
    match change {
        Change::Put(found) => store.put(key, found.value).await,
        Change::Delete => store.delete(key).await,
    }
}

/// Returns the failure that is reported for a write: a missing answer (none) or a broken
/// connection, which leave its outcome open; else an error with a remedy; else that a replica is
/// read-only.
fn most_telling(answers: Vec<Option<Result<(), StoreError>>>) -> Option<StoreError> {
    let rank = |failure: &Option<StoreError>| match failure {
        None => 0,
        Some(error) if error.fault() == Fault::Broken => 0,
        Some(error) if !is_read_only(error) => 1,
        Some(_) => 2,
    };
    let failures = answers.into_iter().filter_map(|answer| match answer {
        None => Some(None),
        Some(Ok(())) => None,
        Some(Err(error)) => Some(Some(error)),
    });
    failures.min_by_key(rank).flatten()
}

fn is_read_only(error: &StoreError) -> bool {
    matches!(error.cause(), Cause::ReadOnly { .. })
}

/// The outcome of a write at one replica.
fn outcome_of(answer: &Result<(), StoreError>) -> WriteOutcome {
    match answer {
        Ok(()) => WriteOutcome::Acknowledged,
        Err(error) if error.fault() != Fault::Broken => WriteOutcome::NotDone,
        Err(_) => WriteOutcome::Unknown,
    }
}
