//! Starts the listeners of a setup, and connects them to the backends.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sherwood_model::{BackendId, Demand, Instant, PartitionId, TenantId};
use sherwood_store::Found;
use tokio::sync::mpsc;

use crate::access::{AccessError, PasswordFile};
use crate::backend::FetchKey;
use crate::buffers::Buffers;
use crate::config::Protocol;
use crate::core::Core;
use crate::entropy::Entropy;
use crate::names::PartitionName;
use crate::setup::{ListenerSetup, RouteSetup};
use crate::start::StartError;
use crate::waiter::Waiter;
use sherwood_listener::{
    Backends, BackgroundWork, Bound, BufferBytes, Clock, ConnectionLimit, FETCHED_COPIES, FetchedValue,
    ListenerOptions, Passwords, Routing, Running, Service, Target,
};

/// Binds every listener, so that a port in use is known before anything is served.
pub(crate) fn bind(setups: &[ListenerSetup], item_size_max: u32) -> Result<Vec<Bound>, StartError> {
    let bind = |setup: &ListenerSetup| {
        let options = ListenerOptions {
            bind: setup.bind.clone(),
            threads: setup.threads,
            item_size_max,
            idle_timeout: setup.idle_timeout,
            pin_threads: setup.pin_threads,
            ..ListenerOptions::default()
        };
        Ok(Bound::bind(options)?)
    };
    setups.iter().map(bind).collect()
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
        Ok(Some(Arc::new(PasswordFile::open(path)?)))
    };
    let clock: Arc<dyn Clock> = Arc::new(core.clock);
    // All passwords are read before the first thread starts.
    let passwords: Vec<_> = setups.iter().map(open).collect::<Result<_, _>>()?;
    let serve = |((setup, bound), passwords): ((&ListenerSetup, Bound), Option<Arc<dyn Passwords>>)| {
        let service = Service {
            cache: Arc::clone(&core.cache),
            routing: routing(core, setup)?,
            connection_limit: Arc::clone(&connection_limit),
            buffers: Arc::clone(&core.buffers) as Arc<dyn BufferBytes>,
            background: Some(Arc::clone(&core.background) as Arc<dyn BackgroundWork>),
            passwords,
            backends: Some(Arc::new(Behind(Arc::clone(core)))),
        };
        let running = match setup.protocol {
            Protocol::Memcached => bound.serve(service, Arc::clone(&clock)),
            Protocol::Redis => bound.serve_redis(service, Arc::clone(&clock), entropy.draw()),
        };
        running.map_err(StartError::Thread)
    };
    setups.iter().zip(bound).zip(passwords).map(serve).collect()
}

fn routing(core: &Core, setup: &ListenerSetup) -> Result<Routing, StartError> {
    let target = |backend: BackendId| -> Result<Target, StartError> {
        let partition = core.partition(TenantId(0), backend);
        Ok(Target {
            partition: partition.ok_or_else(|| StartError::no_partition(core.names.backend(backend)))?,
            tenant: TenantId(0),
            read_through: setup.read_through && core.backend(backend).is_some(),
        })
    };
    match &setup.route {
        RouteSetup::Backend(backend) => Ok(Routing::single(target(*backend)?)),
        RouteSetup::Prefix(prefixes) => {
            let prefixes: Vec<_> = prefixes
                .iter()
                .map(|(prefix, backend)| Ok((prefix.clone(), target(*backend)?)))
                .collect::<Result<_, StartError>>()?;
            Ok(Routing::by_prefix(prefixes)?)
        }
    }
}

/// The backends behind the cache, for listeners.
struct Behind(Arc<Core>);

impl Backends for Behind {
    fn fetch(
        &self,
        partition: PartitionId,
        keys: Vec<Bytes>,
    ) -> BoxFuture<'static, Vec<Result<Option<FetchedValue>, String>>> {
        let mut results = vec![Ok(None); keys.len()];
        let (sender, mut arrivals) = mpsc::unbounded_channel();
        let PartitionName { tenant, backend, .. } = self.0.names.partitions()[partition.index()];
        if let Some(backend) = self.0.backend(backend) {
            let demand = Demand { tenant, ..Demand::default() };
            let waiter = |(i, key)| (FetchKey { partition, key }, Waiter::new(sender.clone(), i));
            backend.fetch(&demand, keys.into_iter().enumerate().map(waiter));
        }
        let buffers = Arc::clone(&self.0.buffers);
        async move {
            drop(sender);
            while let Some((position, result)) = arrivals.recv().await {
                results[position] = match result {
                    Ok(Some(found)) => held(&buffers, found).map(Some),
                    Ok(None) => Ok(None),
                    Err(error) => Err(error.to_string()),
                };
            }
            results
        }
        .boxed()
    }

    fn write(&self, partition: PartitionId, key: &[u8], change: &mut dyn FnMut()) {
        self.0.write(partition, key, change);
    }

    fn flush(&self, partition: PartitionId, at: Instant, change: &mut dyn FnMut()) {
        self.0.flush(partition, at, change);
    }
}

/// Takes the buffer budget for a fetched value and for its copies in the output; fails if too
/// little is left.
fn held(buffers: &Arc<Buffers>, found: Found) -> Result<FetchedValue, String> {
    let mut hold = buffers.hold();
    if hold.take((1 + FETCHED_COPIES) * found.value.len()) {
        Ok(FetchedValue { value: hold.guard(found.value), flags: found.flags })
    } else {
        Err("no buffers left".to_owned())
    }
}
