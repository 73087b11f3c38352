//! Carries out the steps of a replicated store: a task for each duplicate, with its one connection
//! for changes.

use std::sync::Arc;

use bytes::Bytes;
use sherwood_dispatch::{BatchEnd, LogEntry, Marker};
use sherwood_model::ReplicaId;
use sherwood_path::{Change, DuplicateEvent, DuplicateStep, Logged};
use sherwood_store::{Applied, ChangeConnection, Duplicate, Found, KeyChange, StoreError, copy};
use tokio::sync::mpsc;

use crate::backend::BackendDriver;

type Step = DuplicateStep<Bytes, Found>;
type Entries = Vec<LogEntry<Bytes, Logged<Found>>>;
type Connection = Option<Box<dyn ChangeConnection>>;

/// The steps of each replica that its task has not carried out: a batch or an inspection, and a
/// copy at most. None for a store without duplicates.
pub(crate) struct DuplicateSteps(Vec<mpsc::UnboundedSender<Step>>);

impl DuplicateSteps {
    /// Creates the queues of this many replicas, and what their tasks read.
    pub(super) fn new(replicas: usize) -> (Self, Vec<mpsc::UnboundedReceiver<Step>>) {
        let (senders, steps) = (0..replicas).map(|_| mpsc::unbounded_channel()).unzip();
        (Self(senders), steps)
    }

    /// Returns true if the store has duplicates.
    pub(super) fn are_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Gives a step to the task of a replica. Steps of one replica are carried out in the order of
    /// these calls.
    pub(super) fn push(&self, replica: ReplicaId, step: Step) {
        if let Some(steps) = self.0.get(replica.index()) {
            let _ = steps.send(step);
        }
    }
}

impl BackendDriver {
    /// Carries out the steps of one replica, until the runtime ends.
    pub(super) async fn serve_duplicate(
        self: Arc<Self>,
        replica: ReplicaId,
        mut steps: mpsc::UnboundedReceiver<Step>,
    ) {
        let store = Arc::clone(&self.replicas[replica.index()]);
        let Some(duplicate) = store.as_duplicate() else { return };
        let mut connection: Connection = None;
        loop {
            let step = tokio::select! {
                step = steps.recv() => step,
                () = ended(&mut connection) => {
                    connection = None;
                    self.tell(replica, DuplicateEvent::Broken);
                    continue;
                }
            };
            match step {
                None => return,
                Some(Step::Inspect) => {
                    connection = None;
                    let inspected = inspect(duplicate).await;
                    let marker = inspected.as_ref().map(|(_, marker)| *marker).map_err(|_| ());
                    match inspected {
                        Ok((opened, _)) => connection = Some(opened),
                        Err(Inspection::Store(error)) => self.errors.failed(&self, &error),
                        Err(Inspection::Marker(error)) => {
                            tracing::error!(backend = self.name, store = store.name(), "{error}");
                        }
                    }
                    self.tell(replica, DuplicateEvent::Inspected(marker));
                }
                Some(Step::Apply { marker, entries }) => {
                    self.apply(replica, &mut connection, marker, entries).await;
                }
                Some(Step::Copy { from }) => self.copy(replica, from).await,
            }
        }
    }

    fn tell(self: &Arc<Self>, replica: ReplicaId, event: DuplicateEvent<'_>) {
        self.drive(|state, now, cache| state.machine.handle_duplicate(now, cache, replica, event));
    }

    /// Has a duplicate make the changes of a batch.
    async fn apply(
        self: &Arc<Self>,
        replica: ReplicaId,
        connection: &mut Connection,
        marker: Marker,
        entries: Entries,
    ) {
        let Some(open) = connection else {
            return self.tell(replica, DuplicateEvent::Applied(BatchEnd::Broken(0)));
        };
        let numbers: Vec<u64> = entries.iter().map(|entry| entry.number).collect();
        let changes = entries.into_iter().map(|LogEntry { key, change, .. }| KeyChange {
            key,
            value: match change.change {
                Change::Put(found) => Some(found.value),
                Change::Delete => None,
            },
        });
        match open.apply(marker.to_string().into(), changes.collect()).await {
            Applied::Answered(refused) => {
                let refused = refused.into_iter().map(|(at, error)| (numbers[at], error));
                self.tell_answered(replica, refused.collect());
            }
            // Without a change to refuse, only a new connection tells what the server has.
            Applied::Unmarked(error) if !numbers.is_empty() => {
                let refused = numbers.into_iter().map(|number| (number, error.clone()));
                self.tell_answered(replica, refused.collect());
            }
            Applied::Unmarked(error) => {
                *connection = None;
                self.errors.failed(self, &error);
                self.tell(replica, DuplicateEvent::Applied(BatchEnd::Broken(0)));
            }
            Applied::Broken { made, error } => {
                *connection = None;
                self.errors.failed(self, &error);
                let made = made.checked_sub(1).map_or(0, |last| numbers[last]);
                self.tell(replica, DuplicateEvent::Applied(BatchEnd::Broken(made)));
            }
        }
    }

    /// Reports a batch of which these changes were refused.
    fn tell_answered(self: &Arc<Self>, replica: ReplicaId, refused: Vec<(u64, StoreError)>) {
        refused.iter().for_each(|(_, error)| self.errors.failed(self, error));
        let numbers: Vec<u64> = refused.iter().map(|(number, _)| *number).collect();
        self.drive(|state, now, cache| {
            for (number, error) in refused {
                let write = state.machine.write_of(replica, number);
                if let Some(pending) = write.and_then(|write| state.writes.get_mut(&write)) {
                    pending.note_refused(error);
                }
            }
            let event = DuplicateEvent::Applied(BatchEnd::Answered(&numbers));
            state.machine.handle_duplicate(now, cache, replica, event);
        });
    }

    /// Makes the contents of a replica equal to those of another one.
    async fn copy(self: &Arc<Self>, replica: ReplicaId, from: ReplicaId) {
        let stores = [from, replica].map(|of| Arc::clone(&self.replicas[of.index()]));
        let [Some(source), Some(filled)] = stores.each_ref().map(|store| store.as_duplicate()) else {
            return self.tell(replica, DuplicateEvent::Copied(false));
        };
        let names = (source.name(), filled.name());
        tracing::info!(backend = self.name, from = names.0, to = names.1, "a duplicate is copied");
        let copied = copy(source, filled).await;
        match &copied {
            Ok(copied) => tracing::info!(
                backend = self.name,
                items = copied.items,
                removed = copied.removed,
                "{} has the contents of {}",
                names.1,
                names.0
            ),
            Err(error) => self.errors.failed(self, error),
        }
        self.tell(replica, DuplicateEvent::Copied(copied.is_ok()));
    }
}

/// The reason why a duplicate could not be inspected.
enum Inspection {
    Store(StoreError),
    Marker(sherwood_dispatch::MarkerError),
}

/// Opens a connection for changes, and reads the marker.
async fn inspect(
    duplicate: &dyn Duplicate,
) -> Result<(Box<dyn ChangeConnection>, Option<Marker>), Inspection> {
    let mut connection = duplicate.connect().await.map_err(Inspection::Store)?;
    let marker = connection.marker().await.map_err(Inspection::Store)?;
    let text = marker.as_deref().map(String::from_utf8_lossy);
    let marker = text.map(|text| text.parse()).transpose().map_err(Inspection::Marker)?;
    Ok((connection, marker))
}

/// Waits until a connection has ended; for ever if there is none.
async fn ended(connection: &mut Connection) {
    match connection {
        Some(connection) => connection.ended().await,
        None => std::future::pending().await,
    }
}
