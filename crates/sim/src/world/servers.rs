//! Servers behind the backends: a queue in front of the workers of each replica.

use sherwood_dispatch::{AttemptId, QueueOptions, ReplicaQueue};
use sherwood_model::{BackendId, Instant, ReplicaId, TenantId};
use sherwood_path::{FetchKey, WriteId};

use crate::slab::Slab;

/// A call, write or probe that waits for a worker of its replica, or is served by one.
#[derive(Clone, Debug)]
pub(crate) struct Job<K> {
    /// The node that sent the job.
    pub(crate) node: u16,
    pub(crate) replica: ReplicaId,
    /// Time at which the job was sent.
    pub(crate) sent: Instant,
    pub(crate) work: Work<K>,
}

/// Kinds of jobs.
#[derive(Clone, Debug)]
pub(crate) enum Work<K> {
    Call {
        attempt: AttemptId,
        /// The tenant that pays for the call.
        tenant: TenantId,
        keys: Vec<FetchKey<K>>,
    },
    Probe,
    /// A write that gives an object another size.
    Write {
        write: WriteId,
        key: K,
        bytes: u32,
    },
    /// A call that stands for a request outside the sample, with this many keys; its answer is not
    /// used.
    Echo {
        keys: u32,
    },
}

impl<K> Work<K> {
    /// Number of keys.
    #[inline]
    pub(crate) fn keys(&self) -> u32 {
        match self {
            Self::Call { keys, .. } => keys.len() as u32,
            Self::Echo { keys } => *keys,
            Self::Probe | Self::Write { .. } => 1,
        }
    }
}

/// The servers of all backends, shared by all nodes. The queues contain the numbers of `jobs`.
#[derive(Clone)]
pub(crate) struct Servers<K> {
    /// The queue in front of each replica's workers, by backend.
    queues: Vec<Vec<ReplicaQueue<u32>>>,
    pub(crate) jobs: Slab<Job<K>>,
}

impl<K> Servers<K> {
    /// Creates idle servers from the number of replicas of each backend and the number of workers
    /// of each replica.
    pub(crate) fn new(backends: impl Iterator<Item = (u16, u32)>) -> Self {
        // The bounds of what waits are those of the dispatchers, and their timeouts.
        let queue = |workers| ReplicaQueue::new(QueueOptions::fifo(workers, u32::MAX));
        let replicas = |(replicas, workers)| (0..replicas).map(|_| queue(workers)).collect();
        Self { queues: backends.map(replicas).collect(), jobs: Slab::new() }
    }

    #[inline]
    pub(crate) fn replicas(&self, backend: BackendId) -> u16 {
        self.queues[backend.index()].len() as u16
    }

    /// Returns the queue in front of a replica's workers.
    #[inline]
    pub(crate) fn queue(&mut self, backend: BackendId, replica: ReplicaId) -> &mut ReplicaQueue<u32> {
        &mut self.queues[backend.index()][replica.index()]
    }

    /// Number of jobs that wait for a worker, at all replicas of a backend together.
    pub(crate) fn waiting(&self, backend: BackendId) -> usize {
        self.queues[backend.index()].iter().map(|queue| queue.queued() as usize).sum()
    }

    /// Removes the first job of a node for whose work `wanted` is true from a replica's queue.
    pub(super) fn withdraw(
        &mut self,
        (node, backend, replica): (u16, BackendId, ReplicaId),
        wanted: impl Fn(&Work<K>) -> bool,
    ) {
        let Self { queues, jobs } = self;
        let is_it = |&job: &u32| jobs.get(job).is_some_and(|job| job.node == node && wanted(&job.work));
        let queue = &mut queues[backend.index()][replica.index()];
        let found = queue.entries().find(is_it);
        if let Some(job) = found {
            queue.cancel(job);
            jobs.remove(job);
        }
    }
}
