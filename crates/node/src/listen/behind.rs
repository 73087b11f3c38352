//! The backends behind the cache, as the listeners use them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use sherwood_config::WriteThrough;
use sherwood_dispatch::FetchError;
use sherwood_listener::{
    Backends, FETCHED_COPIES, FetchFailure, FetchResult, FetchedValue, KeySet, SharedTrust, StoreChange,
    StoreFailure,
};
use sherwood_model::{BackendId, Demand, Instant, PartitionId, Tags};
use sherwood_path::{Change, Session, Status, Write, WriteOptions, classify};
use sherwood_process::buffers::Buffers;
use sherwood_store::Found;
use tokio::sync::mpsc;

use crate::backend::FetchKey;
use crate::backend::waiter::Waiter;
use crate::core::Core;
use crate::deadlines::DeadlineOutcomes;
use crate::names::PartitionName;

/// The backends behind the cache, for a listener.
pub(super) struct Behind {
    pub(super) core: Arc<Core>,
    /// Handling of writes, if the listener is write-through.
    pub(super) writes: Option<WriteThrough>,
}

/// Memory of a key that waits for its value, except its name, in bytes: its entries in the call, in
/// the backend's state machine and in this module. Chosen above their actual size.
const WAITING_BYTES: usize = 512;

impl Backends for Behind {
    fn fetch(
        &self,
        partition: PartitionId,
        keys: Vec<Bytes>,
        within: Option<Duration>,
    ) -> BoxFuture<'static, Vec<FetchResult>> {
        let mut results = vec![Ok(None); keys.len()];
        let memory = self.core.buffers.uncounted(keys.iter().map(|key| WAITING_BYTES + key.len()).sum());
        let (sender, mut arrivals) = mpsc::unbounded_channel();
        let core = Arc::clone(&self.core);
        let (asked_at, id) = (core.clock.now(), core.names.partitions()[partition.index()].backend);
        let demands = demands(&core, partition, &keys, asked_at, within);
        if let Some(backend) = core.backend(id) {
            for (demand, positions) in &demands {
                let waiter = |&i: &usize| {
                    (FetchKey { partition, key: keys[i].clone() }, Waiter::new(sender.clone(), i))
                };
                // Clients of a listener may share connections: each reads what any has seen.
                backend.fetch(demand, Session::LATEST, positions.iter().map(waiter));
            }
        }
        async move {
            let _memory = memory;
            drop(sender);
            while let Some((position, result)) = arrivals.recv().await {
                note_end(&core, id, asked_at, demand_of(&demands, position), &result);
                results[position] = match result {
                    Ok(Some(found)) => held(&core.buffers, found).map(Some),
                    Ok(None) => Ok(None),
                    Err(FetchError::Rejected { expected }) => Err(FetchFailure::Rejected { expected }),
                    Err(error @ FetchError::OverRate(_)) => {
                        Err(FetchFailure::Refused(core.reason(id, &error)))
                    }
                    Err(error) => Err(failure(&error)),
                };
            }
            results
        }
        .boxed()
    }

    fn have_deadlines(&self) -> bool {
        !self.core.deadline_rules.is_empty()
    }

    fn within(&self, partition: PartitionId, key: &[u8]) -> Option<Duration> {
        let PartitionName { tenant, backend, .. } = self.core.names.partitions()[partition.index()];
        self.core.deadline_rules.within(tenant, backend, key)
    }

    fn store(
        &self,
        partition: PartitionId,
        key: Bytes,
        change: StoreChange,
    ) -> BoxFuture<'static, Result<(), StoreFailure>> {
        let core = Arc::clone(&self.core);
        let PartitionName { tenant, backend, .. } = core.names.partitions()[partition.index()];
        let (Some(WriteThrough { cache_first, admit }), Some(backend)) =
            (self.writes, core.backend(backend).map(Arc::clone))
        else {
            return ready(Err(StoreFailure::Failed("there is no store".to_owned()))).boxed();
        };
        let options = WriteOptions { tenant, cache_first, admit };
        async move {
            let change = held_change(&core, change).map_err(StoreFailure::Failed)?;
            let write = Write { key, change, partition: Some(partition), options };
            backend.write_through(write).await.map(drop).map_err(|error| match error.over_rate() {
                Some(_) => StoreFailure::Refused(error.to_string()),
                None if error.is_late() => StoreFailure::TimedOut(error.to_string()),
                None => StoreFailure::Failed(error.to_string()),
            })
        }
        .boxed()
    }

    fn write(&self, partition: PartitionId, key: &[u8], change: &mut dyn FnMut() -> bool) {
        self.core.write(partition, key, change);
    }

    fn fill(&self, partition: PartitionId, key: &[u8], change: &mut dyn FnMut() -> bool) {
        self.core.fill(partition, key, change);
    }

    fn refuses_changes(&self, partition: PartitionId) -> bool {
        self.core.refuses_changes(self.core.names.partitions()[partition.index()].backend)
    }

    fn shared_trust(&self) -> SharedTrust {
        self.core.cluster.as_ref().map_or(SharedTrust::default(), |cluster| cluster.shared_trust())
    }

    fn drop_untrusted(&self, partition: PartitionId, key: &[u8]) {
        self.core.drop_untrusted(partition, key);
    }

    fn write_all(
        &self,
        written: &[(PartitionId, &[u8])],
        flushed: &[PartitionId],
        at: Instant,
        change: &mut dyn FnMut() -> KeySet,
    ) {
        self.core.write_all(written, flushed, at, change);
    }

    fn flush(&self, partition: PartitionId, at: Instant, change: &mut dyn FnMut()) {
        self.core.flush(partition, at, change);
    }
}

/// Returns the failure of a fetch that was neither rejected nor refused for its tenant's rate.
fn failure(error: &FetchError) -> FetchFailure {
    let reason = error.to_string();
    match Status::of_error(error) {
        Status::Rejected => FetchFailure::Overloaded(reason),
        Status::Timeout => FetchFailure::TimedOut(reason),
        _ => FetchFailure::Failed(reason),
    }
}

/// A demand, and the positions of the keys that have it, ascending.
type DemandOfKeys = (Demand, Vec<usize>);

/// Groups the keys of a partition by their demand. Keys of a client that states no time have
/// the deadlines of the rules.
fn demands(
    core: &Core,
    partition: PartitionId,
    keys: &[Bytes],
    asked_at: Instant,
    within: Option<Duration>,
) -> Vec<DemandOfKeys> {
    let PartitionName { tenant, backend, .. } = core.names.partitions()[partition.index()];
    let mut demands: Vec<DemandOfKeys> = Vec::new();
    for (position, key) in keys.iter().enumerate() {
        let within = within.or_else(|| core.deadline_rules.within(tenant, backend, key));
        let deadline = within.map(|within| asked_at + within);
        let mut demand = Demand { tenant, deadline, ..Demand::default() };
        classify(&mut demand, &core.cache, partition, asked_at);
        match demands.iter_mut().find(|(known, _)| *known == demand) {
            Some((_, positions)) => positions.push(position),
            None => demands.push((demand, vec![position])),
        }
    }
    demands
}

/// Returns the demand of the key at `position`.
fn demand_of(demands: &[DemandOfKeys], position: usize) -> &Demand {
    let has_it = |(_, positions): &&DemandOfKeys| positions.binary_search(&position).is_ok();
    &demands.iter().find(has_it).expect("each key has a demand").0
}

/// Counts whether the deadline of a key was met, if it has one.
fn note_end(
    core: &Core,
    backend: BackendId,
    asked_at: Instant,
    demand: &Demand,
    result: &Result<Option<Found>, FetchError>,
) {
    if demand.deadline.is_some() {
        let status = result.as_ref().map_or_else(Status::of_error, |_| Status::Miss);
        let mut kept = DeadlineOutcomes::default();
        kept.count(status, demand.is_late(asked_at, core.clock.now()));
        core.deadlines.add(backend, demand, kept);
    }
}

/// Takes the buffer budget for a value to be written; fails if too little is left.
fn held_change(core: &Core, change: StoreChange) -> Result<Change<Found>, String> {
    let StoreChange::Put { value, expires } = change else { return Ok(Change::Delete) };
    let mut hold = core.buffers.hold();
    if !hold.take(value.len()) {
        return Err("no buffers left".to_owned());
    }
    let good_for = expires.map(|at| at - core.clock.now());
    Ok(Change::Put(Found { value: hold.guard(value), flags: 0, good_for, tags: Tags::NONE }))
}

/// Takes the buffer budget for a fetched value and for its copies in the output; fails if too
/// little is left.
fn held(buffers: &Arc<Buffers>, found: Found) -> Result<FetchedValue, FetchFailure> {
    let mut hold = buffers.hold();
    if hold.take((1 + FETCHED_COPIES) * found.value.len()) {
        Ok(FetchedValue { value: hold.guard(found.value), flags: found.flags })
    } else {
        Err(FetchFailure::Failed("no buffers left".to_owned()))
    }
}
