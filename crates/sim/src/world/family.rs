//! The parts of a simulation that differ between set-ups (kinds of simulation).

use std::hash::Hash;
use std::time::Duration;

use sherwood_dispatch::ConnectionAction;
use sherwood_model::{BackendId, FinishedRequest, Instant, PartitionId, ReplicaId, TenantId};
use sherwood_path::{FetchKey, Query, QueryFetch, Request, WriteOptions};

use super::Simulation;
use super::imbalance::Imbalance;
use super::servers::Job;

/// A set-up, that is, a kind of simulation: its clients, its servers, and what it records. Hooks
/// that a set-up does not override do nothing.
pub(crate) trait Family: Sized {
    /// Key of an object.
    type Key: AsRef<[u8]> + Copy + Eq + Hash;
    /// The set-up's data about a request in flight, such as the client that sent it.
    type Client;
    /// Events that only this set-up has.
    type Event: Copy;

    /// Handles an event that only this set-up has.
    fn happen(world: &mut Simulation<Self>, event: Self::Event);

    /// Returns the reads and writes of a request when its service begins.
    fn ask(&mut self, now: Instant, client: &mut Self::Client) -> Ask<Self::Key>;

    /// Called when a request has ended.
    fn finish(world: &mut Simulation<Self>, live: LiveOf<Self>, finished: FinishedRequest);

    /// Returns the tenant whose network rate limits a client's requests.
    #[inline]
    fn tenant(_: &Self::Client) -> TenantId {
        TenantId(0)
    }

    /// Returns the bytes that a client's request transfers between client and node.
    #[inline]
    fn client_bytes(&self, _: &Self::Client) -> f64 {
        0.0
    }

    /// Called when the keys of a request were looked up in the cache.
    #[inline]
    fn looked_up(&mut self, _: Instant, _: &LiveOf<Self>) {}

    /// Called when the fetch of a request's key, or a write of the request, has ended.
    #[inline]
    fn operation_ended(&mut self, _: Instant, _: &LiveOf<Self>, _: PartitionId) {}

    /// Called when a request, or a write of it, was refused. `_retry_in` is the time after which it
    /// may be tried again, if known.
    #[inline]
    fn refused(_: &mut Self::Client, _retry_in: Option<Duration>) {}

    /// Called when a write of a request was not acknowledged.
    #[inline]
    fn write_failed(_: &mut Self::Client) {}

    /// Handles a fetch in place of the dispatcher and returns true, or returns false to leave it to
    /// the dispatcher. A set-up that handles it passes the results to the request with
    /// [`tell`](Simulation::tell).
    #[inline]
    fn takes(_: &mut Simulation<Self>, _request: u32, _: &QueryFetch<Self::Key>) -> bool {
        false
    }

    /// Carries out a step for a connection of a node to a backend.
    #[inline]
    fn connection(_: &mut Simulation<Self>, _: BackendId, _: ConnectionAction) {}

    /// Called when a node calls a replica of a backend for `_keys` keys.
    #[inline]
    fn calling(_: &mut Simulation<Self>, _node: u16, _: BackendId, _: ReplicaId, _keys: u32) {}

    /// True if a job that waited in its queue until now is dropped instead of served.
    #[inline]
    fn gives_up(&self, _: Instant, _: &Job<Self::Key>) -> bool {
        false
    }

    /// Starts the service of a job that leaves its queue. By default a worker serves it for its
    /// service time.
    #[inline]
    fn serve(world: &mut Simulation<Self>, backend: BackendId, job: u32) {
        world.serve(backend, job);
    }

    /// Service time of a job that begins now.
    fn service_time(&mut self, now: Instant, backend: BackendId, job: &Job<Self::Key>) -> Duration;

    /// Returns the size in bytes of a key's value at a replica; the key was requested at `sent`.
    fn read(
        &mut self,
        backend: BackendId,
        replica: ReplicaId,
        sent: Instant,
        key: &FetchKey<Self::Key>,
    ) -> u32;

    /// Called when a replica has stored a new value.
    #[inline]
    fn stored(&mut self, _: Instant, _: BackendId, _: ReplicaId, _: Self::Key, _bytes: u32) {}

    /// True if miss ratio curves fade with time, as in a node; false if they cover the whole run.
    #[inline]
    fn fades_curves(&self) -> bool {
        false
    }

    /// True if the run has stopped before its scheduled end.
    #[inline]
    fn has_stopped(&self) -> bool {
        false
    }

    /// Checks the counters that only this set-up has.
    fn balance(_: &Simulation<Self>) -> Result<(), Imbalance> {
        Ok(())
    }
}

/// Reads and writes of a request.
pub(crate) struct Ask<K> {
    /// Queries, whose keys are looked up before the writes begin.
    pub(crate) queries: Vec<Query<K>>,
    pub(crate) writes: Vec<AskedWrite<K>>,
}

/// A write of one key.
pub(crate) struct AskedWrite<K> {
    pub(crate) backend: BackendId,
    pub(crate) partition: PartitionId,
    pub(crate) key: K,
    /// Bytes of the value.
    pub(crate) bytes: u32,
    pub(crate) options: WriteOptions,
}

/// A request that has not ended.
#[derive(Clone)]
pub(crate) struct Live<K, C> {
    /// The node that the request was sent to.
    pub(crate) node: u16,
    pub(crate) began: Instant,
    /// Reads of the request; none before they are looked up.
    pub(crate) request: Option<Request<K, u32>>,
    /// Writes that have not ended.
    pub(crate) writes: u32,
    pub(crate) client: C,
}

/// A request in flight of the set-up `F`.
pub(crate) type LiveOf<F> = Live<<F as Family>::Key, <F as Family>::Client>;
