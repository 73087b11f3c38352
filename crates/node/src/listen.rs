//! Starts the listeners of a setup, and connects them to the backends.

mod routes;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use sherwood_dispatch::FetchError;
use sherwood_model::{BackendId, Demand, Instant, PartitionId, Tags};
use sherwood_path::{Change, Status, Write, WriteOptions};
use sherwood_store::Found;
use tokio::sync::mpsc;

use crate::access::{AccessError, PasswordFile};
use crate::backend::FetchKey;
use crate::buffers::Buffers;
use crate::config::{Protocol, WriteThrough};
use crate::core::Core;
use crate::deadlines::Kept;
use crate::entropy::Entropy;
use crate::names::PartitionName;
use crate::passed::PassedSockets;
use crate::setup::ListenerSetup;
use crate::start::StartError;
use crate::tenants::NodeStandings;
use crate::tls::Tls;
use crate::waiter::Waiter;
use sherwood_listener::{
    Backends, BackgroundWork, Bound, BufferBytes, Clock, ConnectionLimit, FETCHED_COPIES, FetchFailure,
    FetchResult, FetchedValue, ListenerOptions, Network, Passwords, Running, Service, Standings, StoreChange,
    StoreFailure,
};

/// Binds every listener, or takes its socket of those `passed`, so that a port in use is known
/// before anything is served.
pub(crate) fn bind(
    setups: &[ListenerSetup],
    item_size_max: u32,
    passed: &mut PassedSockets,
) -> Result<Vec<Bound>, StartError> {
    let mut bind = |setup: &ListenerSetup| {
        let options = ListenerOptions {
            bind: setup.bind.clone(),
            threads: setup.threads,
            item_size_max,
            idle_timeout: setup.idle_timeout,
            pin_threads: setup.pin_threads,
            ..ListenerOptions::default()
        };
        Ok(match passed.take(&setup.bind) {
            Some(socket) => Bound::passed(options, socket)?,
            None => Bound::bind(options)?,
        })
    };
    setups.iter().map(&mut bind).collect()
}

/// Starts the threads of the listeners `bound` for `setups`.
pub(crate) fn serve(
    core: &Arc<Core>,
    setups: &[ListenerSetup],
    bound: Vec<Bound>,
    connections_max: usize,
    entropy: &Entropy,
) -> Result<Vec<Running>, StartError> {
    let connection_limit = Arc::new(ConnectionLimit::new(connections_max));
    let open = |setup: &ListenerSetup| -> Result<Option<Arc<dyn Passwords>>, AccessError> {
        let Some(path) = &setup.auth_file else { return Ok(None) };
        Ok(Some(Arc::new(PasswordFile::open(path, routes::user_tenants(core, setup))?)))
    };
    let over_tls = |(setup, bound): (&ListenerSetup, Bound)| -> Result<Bound, AccessError> {
        let Some(files) = setup.tls.clone() else { return Ok(bound) };
        let tls = Arc::new(Tls::of_listener(files)?);
        core.certificates.add(bound.address().to_string(), &tls);
        Ok(bound.over_tls(tls))
    };
    let clock: Arc<dyn Clock> = Arc::new(core.clock);
    // All passwords and certificates are read before the first thread starts.
    let passwords: Vec<_> = setups.iter().map(open).collect::<Result<_, _>>()?;
    let bound: Vec<_> = setups.iter().zip(bound).map(over_tls).collect::<Result<_, _>>()?;
    let serve = |((setup, bound), passwords): ((&ListenerSetup, Bound), Option<Arc<dyn Passwords>>)| {
        let service = Service {
            cache: Arc::clone(&core.cache),
            routing: routes::routing(core, setup)?,
            users: routes::users(core, setup)?,
            network: core.network.clone().map(|network| network as Arc<dyn Network>),
            standings: standings(core),
            connection_limit: Arc::clone(&connection_limit),
            buffers: Arc::clone(&core.buffers) as Arc<dyn BufferBytes>,
            background: Some(Arc::clone(&core.background) as Arc<dyn BackgroundWork>),
            passwords,
            backends: Some(Arc::new(Behind { core: Arc::clone(core), writes: setup.write_through })),
        };
        let running = match setup.protocol {
            Protocol::Memcached => bound.serve(service, Arc::clone(&clock)),
            Protocol::Redis => bound.serve_redis(service, Arc::clone(&clock), entropy.draw()),
        };
        running.map_err(StartError::Thread)
    };
    setups.iter().zip(bound).zip(passwords).map(serve).collect()
}

/// The quotas of the node's tenants, for listeners; none without tenants.
fn standings(core: &Core) -> Option<Arc<dyn Standings>> {
    let ((setup, traffic), quotas) =
        core.tenancy.clone().zip(core.traffic.clone()).zip(core.quotas.clone())?;
    Some(Arc::new(NodeStandings { names: Arc::clone(&core.names), setup, traffic, quotas }))
}

/// The backends behind the cache, for a listener.
struct Behind {
    core: Arc<Core>,
    /// Handling of writes, if the listener is write-through.
    writes: Option<WriteThrough>,
}

impl Backends for Behind {
    fn fetch(
        &self,
        partition: PartitionId,
        keys: Vec<Bytes>,
        within: Option<Duration>,
    ) -> BoxFuture<'static, Vec<FetchResult>> {
        let mut results = vec![Ok(None); keys.len()];
        let (sender, mut arrivals) = mpsc::unbounded_channel();
        let core = Arc::clone(&self.core);
        let (asked_at, id) = (core.clock.now(), core.names.partitions()[partition.index()].backend);
        let demands = demands(&core, partition, &keys, asked_at, within);
        if let Some(backend) = core.backend(id) {
            for (demand, positions) in &demands {
                let waiter = |&i: &usize| {
                    (FetchKey { partition, key: keys[i].clone() }, Waiter::new(sender.clone(), i))
                };
                backend.fetch(demand, positions.iter().map(waiter));
            }
        }
        async move {
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
                    Err(error) => Err(FetchFailure::Failed(error.to_string())),
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
            backend.write_through(write).await.map_err(|error| match error.over_rate() {
                Some(_) => StoreFailure::Refused(error.to_string()),
                None => StoreFailure::Failed(error.to_string()),
            })
        }
        .boxed()
    }

    fn write(&self, partition: PartitionId, key: &[u8], change: &mut dyn FnMut()) {
        self.core.write(partition, key, change);
    }

    fn write_all(
        &self,
        written: &[(PartitionId, &[u8])],
        flushed: &[PartitionId],
        at: Instant,
        change: &mut dyn FnMut(),
    ) {
        self.core.write_all(written, flushed, at, change);
    }

    fn flush(&self, partition: PartitionId, at: Instant, change: &mut dyn FnMut()) {
        self.core.flush(partition, at, change);
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
        let class = within.map(|within| core.cache.deadline_class(partition, within));
        let deadline = within.map(|within| asked_at + within);
        let demand = Demand { tenant, deadline, class: class.unwrap_or_default(), ..Demand::default() };
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
        let mut kept = Kept::default();
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
