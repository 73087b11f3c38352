//! Carries out the steps of a replicated store: a task for each duplicate, with its one connection
//! for changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use sherwood_dispatch::{BatchEnd, LogEntry, Marker};
use sherwood_model::ReplicaId;
use sherwood_path::{Change, DuplicateEvent, DuplicateStep, Logged, partition_of};
use sherwood_store::{
    Applied, ChangeConnection, Copied, Duplicate, Found, KeyChange, KeyPartition, StoreError, clear, copy,
};
use tokio::sync::mpsc;

use crate::backend::{BackendDriver, lock};

type Step = DuplicateStep<Bytes, Found>;
type Entries = Vec<LogEntry<Bytes, Logged<Found>>>;
type Connection = Option<Box<dyn ChangeConnection>>;
/// A partition, and a replica as its duplicate.
type Place = (usize, ReplicaId);

/// The queues of the tasks of all duplicates, by partition and replica. Each has a batch or an
/// inspection, and a copy or a removal, that its task has not carried out.
#[derive(Default)]
pub(super) struct DuplicateSteps(Mutex<HashMap<(usize, ReplicaId), mpsc::UnboundedSender<Step>>>);

impl BackendDriver {
    /// Gives a step to the task of a duplicate, which is started with its first step. Steps of one
    /// duplicate are carried out in the order of these calls.
    pub(super) fn take_step(self: &Arc<Self>, partition: usize, replica: ReplicaId, step: Step) {
        let mut tasks = lock(&self.steps.0);
        let task = tasks.entry((partition, replica)).or_insert_with(|| {
            let (sender, steps) = mpsc::unbounded_channel();
            self.runtime.spawn(Arc::clone(self).serve_duplicate(partition, replica, steps));
            sender
        });
        let _ = task.send(step);
    }

    /// Carries out the steps of one duplicate, until the runtime ends.
    async fn serve_duplicate(
        self: Arc<Self>,
        partition: usize,
        replica: ReplicaId,
        mut steps: mpsc::UnboundedReceiver<Step>,
    ) {
        let store = Arc::clone(&self.replicas[replica.index()]);
        let Some(duplicate) = store.as_duplicate() else { return };
        let place = (partition, replica);
        let (mut connection, mut next): (Connection, _) = (None, None);
        loop {
            let step = tokio::select! {
                biased;
                step = async { next.take() }, if next.is_some() => step,
                step = steps.recv() => step,
                () = ended(&mut connection) => {
                    connection = None;
                    self.tell(place, DuplicateEvent::Broken);
                    continue;
                }
            };
            match step {
                None => return,
                Some(Step::Inspect) => {
                    connection = None;
                    let inspected = inspect(duplicate, partition as u32).await;
                    let marker = inspected.as_ref().map(|(_, marker)| *marker).map_err(|_| ());
                    match inspected {
                        Ok((opened, _)) => connection = Some(opened),
                        Err(Inspection::Store(error)) => self.errors.failed(&self, &error),
                        Err(Inspection::Marker(error)) => {
                            tracing::error!(backend = self.name, store = store.name(), "{error}");
                        }
                    }
                    self.tell(place, DuplicateEvent::Inspected(marker));
                }
                Some(Step::Apply { marker, entries }) => {
                    self.apply(place, &mut connection, marker, entries).await;
                }
                // A further step means that the copy is of no use any more.
                Some(Step::Copy { from }) => tokio::select! {
                    () = self.copy(place, from) => {}
                    step = steps.recv() => match step {
                        Some(step) => next = Some(step),
                        None => return,
                    },
                },
                Some(Step::Close) => connection = None,
                Some(Step::Clear) => {
                    connection = None;
                    self.clear(place, duplicate).await;
                }
            }
        }
    }

    fn tell(self: &Arc<Self>, (partition, replica): Place, event: DuplicateEvent<'_>) {
        self.drive(|state, now, cache| {
            state.machine.handle_duplicate(now, cache, partition, replica, event);
        });
    }

    /// Has a duplicate make the changes of a batch.
    async fn apply(
        self: &Arc<Self>,
        place: Place,
        connection: &mut Connection,
        marker: Marker,
        entries: Entries,
    ) {
        let Some(open) = connection else {
            return self.tell(place, DuplicateEvent::Applied(BatchEnd::Broken(0)));
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
                refused.iter().for_each(|(_, error)| self.errors.failed(self, error));
                let refused = refused.into_iter().map(|(at, error)| (numbers[at], error));
                let refused: Vec<(u64, StoreError)> = refused.collect();
                let numbers: Vec<u64> = refused.iter().map(|(number, _)| *number).collect();
                self.tell_refused(place, refused, BatchEnd::Answered(&numbers));
            }
            Applied::Unmarked(error) => {
                self.errors.failed(self, &error);
                let refused = numbers.into_iter().map(|number| (number, error.clone()));
                self.tell_refused(place, refused.collect(), BatchEnd::Unmarked);
            }
            Applied::Broken { made, error } => {
                *connection = None;
                self.errors.failed(self, &error);
                let made = made.checked_sub(1).map_or(0, |last| numbers[last]);
                self.tell(place, DuplicateEvent::Applied(BatchEnd::Broken(made)));
            }
        }
    }

    /// Reports the end of a batch of which these changes were refused.
    fn tell_refused(self: &Arc<Self>, place: Place, refused: Vec<(u64, StoreError)>, end: BatchEnd<'_>) {
        let (partition, replica) = place;
        self.drive(|state, now, cache| {
            for (number, error) in refused {
                let write = state.machine.write_of(partition, number);
                if let Some(pending) = write.and_then(|write| state.writes.get_mut(&write)) {
                    pending.note_refused(error);
                }
            }
            let event = DuplicateEvent::Applied(end);
            state.machine.handle_duplicate(now, cache, partition, replica, event);
        });
    }

    /// Makes the contents of a partition at a replica equal to those at another one.
    async fn copy(self: &Arc<Self>, place: Place, from: ReplicaId) {
        let (partition, replica) = place;
        let stores = [from, replica].map(|of| Arc::clone(&self.replicas[of.index()]));
        let [Some(source), Some(filled)] = stores.each_ref().map(|store| store.as_duplicate()) else {
            return self.tell(place, DuplicateEvent::Copied(false));
        };
        let (from, to) = (source.name(), filled.name());
        tracing::info!(backend = self.name, partition, from, to, "a duplicate is copied");
        let has = |key: &[u8]| self.is_of_partition(key, partition);
        let copied = copy(source, filled, &KeyPartition { number: partition as u32, has: &has }).await;
        match &copied {
            Ok(Copied { items, removed }) => tracing::info!(
                backend = self.name,
                partition,
                items,
                removed,
                "{to} has the contents of {from}"
            ),
            Err(error) => self.errors.failed(self, error),
        }
        self.tell(place, DuplicateEvent::Copied(copied.is_ok()));
    }

    /// Removes the contents of a partition at a replica that is no duplicate of it any more.
    async fn clear(self: &Arc<Self>, place: Place, duplicate: &dyn Duplicate) {
        let (partition, store) = (place.0, duplicate.name());
        let has = |key: &[u8]| self.is_of_partition(key, partition);
        let cleared = clear(duplicate, &KeyPartition { number: partition as u32, has: &has }).await;
        match &cleared {
            Ok(items) => {
                tracing::info!(backend = self.name, partition, items, "{store} has left the partition");
            }
            Err(error) => self.errors.failed(self, error),
        }
        self.tell(place, DuplicateEvent::Cleared(cleared.is_ok()));
    }

    fn is_of_partition(&self, key: &[u8], partition: usize) -> bool {
        self.partitions.is_some_and(|partitions| partition_of(key, partitions) == partition)
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
    partition: u32,
) -> Result<(Box<dyn ChangeConnection>, Option<Marker>), Inspection> {
    let mut connection = duplicate.connect(partition).await.map_err(Inspection::Store)?;
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
