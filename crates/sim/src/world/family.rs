//! The parts of a simulation that differ from set-up to set-up.

use std::hash::Hash;
use std::time::Duration;

use sherwood_model::{BackendId, FinishedRequest, Instant, PartitionId, ReplicaId, TenantId};
use sherwood_path::{FetchKey, Query, QueryFetch, Request, WriteOptions};

use super::Simulation;
use super::imbalance::Imbalance;
use super::servers::Job;

/// A set-up: its clients, its servers, and what it records. Hooks that a set-up leaves out do
/// nothing.
pub(crate) trait Family: Sized {
    /// Key of an object.
    type Key: AsRef<[u8]> + Copy + Eq + Hash;
    /// The set-up's part of a request in flight, such as the client that sent it.
    type Client;
    /// Events of the set-up's own.
    type Event: Copy;

    /// Carries out an event of the set-up.
    fn happen(world: &mut Simulation<Self>, event: Self::Event);

    /// Returns the reads and writes of a request that begins to be served.
    fn ask(&mut self, now: Instant, client: &mut Self::Client) -> Ask<Self::Key>;

    /// Takes in a request that has ended.
    fn finish(world: &mut Simulation<Self>, live: LiveOf<Self>, finished: FinishedRequest);

    /// The tenant whose rate of network a client's requests take.
    #[inline]
    fn tenant(_: &Self::Client) -> TenantId {
        TenantId(0)
    }

    /// Bytes of network between client and node that a client's request takes.
    #[inline]
    fn client_bytes(&self, _: &Self::Client) -> f64 {
        0.0
    }

    /// Takes in that the keys of a request were looked up.
    #[inline]
    fn looked_up(&mut self, _: Instant, _: &LiveOf<Self>) {}

    /// Takes in that a key of a request that was fetched, or a write, has ended.
    #[inline]
    fn operation_ended(&mut self, _: Instant, _: &LiveOf<Self>, _: PartitionId) {}

    /// Takes in that a request, or a write of it, was refused; with the time after which it may be
    /// tried again, if that is known.
    #[inline]
    fn refused(_: &mut Self::Client, _retry_in: Option<Duration>) {}

    /// Takes in that a write of a request was not acknowledged.
    #[inline]
    fn write_failed(_: &mut Self::Client) {}

    /// Handles a fetch in place of the dispatcher, and returns true; false leaves it to the
    /// dispatcher. The set-up then [hands](Simulation::tell) the results to the request.
    #[inline]
    fn takes(_: &mut Simulation<Self>, _request: u32, _: &QueryFetch<Self::Key>) -> bool {
        false
    }

    /// Takes in that a node calls a replica of a backend for so many keys.
    #[inline]
    fn calling(_: &mut Simulation<Self>, _node: u16, _: BackendId, _: ReplicaId, _keys: u32) {}

    /// True if a job that waited until now is dropped instead of served.
    #[inline]
    fn gives_up(&self, _: Instant, _: &Job<Self::Key>) -> bool {
        false
    }

    /// Has a worker serve a job that leaves its queue: by default, for its service time.
    #[inline]
    fn serve(world: &mut Simulation<Self>, backend: BackendId, job: u32) {
        world.serve(backend, job);
    }

    /// Service time of a job that begins now.
    fn service_time(&mut self, now: Instant, backend: BackendId, job: &Job<Self::Key>) -> Duration;

    /// Bytes of a key's value at a replica that was asked for it at `sent`.
    fn read(
        &mut self,
        backend: BackendId,
        replica: ReplicaId,
        sent: Instant,
        key: &FetchKey<Self::Key>,
    ) -> u32;

    /// Takes in that a replica stores another value.
    #[inline]
    fn stored(&mut self, _: Instant, _: BackendId, _: ReplicaId, _: Self::Key, _bytes: u32) {}

    /// True if miss ratio curves fade, as in a node; false if they cover the whole run.
    #[inline]
    fn fades_curves(&self) -> bool {
        false
    }

    /// True if the run is over before its end.
    #[inline]
    fn has_stopped(&self) -> bool {
        false
    }

    /// Checks the books that are the set-up's own.
    fn balance(_: &Simulation<Self>) -> Result<(), Imbalance> {
        Ok(())
    }
}

/// Reads and writes of a request.
pub(crate) struct Ask<K> {
    /// Queries, which are looked up first.
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

/// A request in flight of a set-up.
pub(crate) type LiveOf<F> = Live<<F as Family>::Key, <F as Family>::Client>;
