//! The memcached listeners of a setup, and their way to the backends.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sherwood_model::{BackendId, PartitionId, TenantId};
use tokio::sync::{mpsc, watch};

use crate::backend::FetchKey;
use crate::core::Core;
use crate::listener::{Backends, Bound, MemcachedOptions, Routing, Running, Service, Target};
use crate::setup::{MemcachedSetup, RouteSetup};
use crate::start::StartError;
use crate::waiter::Waiter;

/// Binds every listener, so that a port in use is known before anything is served.
pub(crate) fn bind(setups: &[MemcachedSetup], item_size_max: u32) -> Result<Vec<Bound>, StartError> {
    let bind = |setup: &MemcachedSetup| {
        let options = MemcachedOptions {
            bind: setup.bind,
            threads: setup.threads,
            max_connections: setup.connections_max,
            item_size_max,
            idle_timeout: setup.idle_timeout,
            ..MemcachedOptions::default()
        };
        Ok(Bound::bind(options)?)
    };
    setups.iter().map(bind).collect()
}

/// Starts the threads of the listeners `bound` for `setups`.
pub(crate) fn serve(
    core: &Arc<Core>,
    setups: &[MemcachedSetup],
    bound: Vec<Bound>,
    stop: &watch::Receiver<bool>,
) -> Result<Vec<Running>, StartError> {
    let serve = |(setup, bound): (&MemcachedSetup, Bound)| {
        let service = Service {
            cache: Arc::clone(&core.cache),
            routing: routing(core, setup),
            backends: Some(Arc::new(Behind(Arc::clone(core)))),
        };
        bound.serve(service, core.clock, stop.clone()).map_err(StartError::Thread)
    };
    setups.iter().zip(bound).map(serve).collect()
}

fn routing(core: &Core, setup: &MemcachedSetup) -> Routing {
    let target = |backend: BackendId| Target {
        partition: core.partition(TenantId(0), backend).expect("every backend has a partition"),
        tenant: TenantId(0),
        read_through: setup.read_through && core.backend(backend).is_some(),
    };
    match &setup.route {
        RouteSetup::Backend(backend) => Routing::single(target(*backend)),
        RouteSetup::Prefix(prefixes) => {
            let prefixes = prefixes.iter().map(|(prefix, backend)| (prefix.clone(), target(*backend)));
            Routing::by_prefix(prefixes).expect("a setup's prefixes differ")
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
    ) -> BoxFuture<'static, Vec<Result<Option<Bytes>, String>>> {
        let mut results = vec![Ok(None); keys.len()];
        let (sender, mut arrivals) = mpsc::unbounded_channel();
        if let Some(backend) = self.0.backend(self.0.names.partitions()[partition.index()].backend) {
            let waiter = |(i, key)| (FetchKey { partition, key }, Waiter::new(sender.clone(), i));
            backend.fetch(keys.into_iter().enumerate().map(waiter));
        }
        async move {
            drop(sender);
            while let Some((position, result)) = arrivals.recv().await {
                results[position] = result.map_err(|error| error.to_string());
            }
            results
        }
        .boxed()
    }

    fn write(&self, partition: PartitionId, key: &[u8], change: &mut dyn FnMut()) {
        self.0.write(partition, key, change);
    }
}
