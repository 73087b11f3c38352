//! Simulated backend: its replicas, their limits and its service times.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_dispatch::{AttemptId, QueueOptions, ReplicaQueue};
use sherwood_model::{BackendId, Instant, ReplicaId, SplitMix64};
use sherwood_path::{FetchKey, WriteId};
use sherwood_workload::onerf::{BackendModel, Limits};

use crate::key::Key;

/// A call, write or probe that waits for a worker of its replica, or is served by one.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) server: u16,
    pub(crate) replica: ReplicaId,
    /// Time at which the job was sent, from which its service time is drawn.
    pub(crate) sent: Instant,
    pub(crate) work: Work,
}

#[derive(Clone, Debug)]
pub(crate) enum Work {
    Call {
        attempt: AttemptId,
        keys: Vec<FetchKey<Key>>,
    },
    Probe,
    /// A write that gives an object another size.
    Write {
        write: WriteId,
        object: u64,
        bytes: u32,
    },
    /// A call of a request that is not simulated, with this many keys; its answer is not used.
    Echo {
        keys: u32,
    },
}

/// A backend, shared by all servers. Jobs wait by their number in the simulation's table.
#[derive(Clone)]
pub(crate) struct SimulatedBackend {
    pub(crate) model: BackendModel,
    /// The queue in front of each replica's workers, which the dispatchers of all servers share.
    queues: Vec<ReplicaQueue<u32>>,
    /// Bytes of each fetched object of the catalogue; 0 for those not fetched yet.
    sizes: Vec<u32>,
    /// The sizes that were written to each replica's objects, with the time from which each is
    /// there: one entry for each write of the run and replica.
    written: BTreeMap<(ReplicaId, u64), Vec<(Instant, u32)>>,
    draws: u64,
}

impl SimulatedBackend {
    pub(crate) fn new(model: &BackendModel, profile: &str, seed: u64) -> Self {
        let (workers, replicas) = (model.service.workers[profile], model.service.replicas.at(profile));
        let queue = || ReplicaQueue::new(QueueOptions::fifo(workers, QUEUED_MAX));
        let queues = (0..replicas).map(|_| queue()).collect();
        let draws = SplitMix64::new(seed ^ (u64::from(model.id) << 48)).next_u64();
        let objects = model.objects.get(profile).copied().unwrap_or_default();
        let sizes = vec![0; objects.min(SIZES_MAX) as usize];
        Self { model: model.clone(), queues, sizes, written: BTreeMap::new(), draws }
    }

    pub(crate) fn replicas(&self) -> u16 {
        self.queues.len() as u16
    }

    /// Returns the queue in front of a replica's workers.
    pub(crate) fn queue(&mut self, replica: ReplicaId) -> &mut ReplicaQueue<u32> {
        &mut self.queues[replica.index()]
    }

    /// Number of jobs that wait for a worker, at all replicas together.
    pub(crate) fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.queued() as usize).sum()
    }

    /// Returns the bytes that a replica's object has at the time `at`.
    pub(crate) fn read(&mut self, replica: ReplicaId, object: u64, at: Instant) -> u32 {
        if self.written.is_empty() {
            return self.object_bytes(object);
        }
        let versions = self.written.get(&(replica, object)).into_iter().flatten();
        let written = versions.rev().find(|(since, _)| *since <= at).map(|(_, bytes)| *bytes);
        written.unwrap_or_else(|| self.object_bytes(object))
    }

    /// Gives a replica's object another size.
    pub(crate) fn store(&mut self, replica: ReplicaId, object: u64, now: Instant, bytes: u32) {
        self.written.entry((replica, object)).or_default().push((now, bytes));
    }

    /// Returns the bytes of an object, cached since computing a size takes longer than reading it.
    pub(crate) fn object_bytes(&mut self, object: u64) -> u32 {
        let model = &self.model;
        let Some(known) = self.sizes.get_mut(object as usize) else { return model.object_bytes(object) };
        if *known == 0 {
            *known = model.object_bytes(object);
        }
        *known
    }

    /// Service time of a job while a `limit` leaves that share of its backend's resource.
    ///
    /// The draw depends on the server and the time at which the call was sent, not on its position
    /// in the queue, so that runs that differ only in the policy have equal random numbers.
    pub(crate) fn service_time(&self, job: &Job, limit: f64) -> Duration {
        let items = match &job.work {
            Work::Call { keys, .. } => keys.len() as u32,
            Work::Probe | Work::Write { .. } => 1,
            Work::Echo { keys } => *keys,
        };
        let moment = job.sent.as_nanos() ^ (u64::from(job.server) << 48);
        let draw = SplitMix64::new(self.draws ^ moment).next_u64();
        self.model.service_time(items, limit, draw)
    }
}

/// Largest number of jobs that wait for a replica. Other limits apply earlier: a call waits no
/// longer than its timeout, and the dispatchers bound the keys that wait.
const QUEUED_MAX: u32 = u32::MAX;

/// Largest number of objects of a backend whose sizes are cached: 64 MiB.
const SIZES_MAX: u64 = 1 << 24;

/// Share of a replica's resource that the scenario's limits leave at `minute`, if the time that a
/// limit adds to service times is multiplied by `depth`.
pub(crate) fn limit_at(
    limits: &Limits,
    backend: BackendId,
    replica: ReplicaId,
    minute: f64,
    depth: f64,
) -> f64 {
    let slowdown = 1.0 / limits.replica_limit(backend, replica, minute);
    1.0 / (1.0 + depth * (slowdown - 1.0))
}

/// Share of a backend's resource that limits leave: the mean over its replicas, of which there is
/// at least one.
pub(crate) fn left_of(replicas: u16, limit: impl Fn(ReplicaId) -> f64) -> f64 {
    let first = limit(ReplicaId(0));
    // Exact if all replicas have the same limit.
    let more: f64 = (1..replicas).map(|replica| limit(ReplicaId(replica)) - first).sum();
    first + more / f64::from(replicas)
}
