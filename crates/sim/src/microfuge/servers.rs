//! Servers of the store: queues in front of their slots.

use std::time::Duration;

use sherwood_dispatch::{AttemptId, QueueOptions, QueuedCall, ReplicaQueue};
use sherwood_model::{Demand, Instant, ReplicaId};
use sherwood_path::{FetchKey, WriteId};
use sherwood_workload::ReadTimes;

use super::SERVERS;
use super::key::Key;
use super::setup::Setup;
use crate::slab::Slab;

/// A read or write at a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) server: ReplicaId,
    pub(super) work: Work,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Read { attempt: AttemptId, key: FetchKey<Key> },
    Write(WriteId),
}

/// The servers. Reads come when the dispatcher starts them, so that they wait there, in the order
/// of its rule; only writes, which the dispatcher does not order, make a read wait here.
pub(super) struct Servers {
    queues: Vec<ReplicaQueue<u32>>,
    jobs: Slab<Job>,
    times: ReadTimes,
}

/// Service time of a write, in scales: a record is appended to a log.
const WRITE_SCALES: f64 = 0.05;

impl Servers {
    pub(super) fn new(setup: &Setup) -> Self {
        // The bound of what waits is that of the backend's reads and writes.
        let queue = || ReplicaQueue::new(QueueOptions::fifo(setup.knobs.slots, u32::MAX));
        Self {
            queues: (0..SERVERS).map(|_| queue()).collect(),
            jobs: Slab::new(),
            times: ReadTimes { scale: setup.knobs.scale },
        }
    }

    /// Adds a job to the queue of its server.
    pub(super) fn enqueue(&mut self, now: Instant, job: Job) {
        let number = self.jobs.insert(job);
        let queue = &mut self.queues[job.server.index()];
        let is_queued = queue.enqueue(now, number, &Demand::default(), QueuedCall::default());
        debug_assert!(is_queued, "the queue has no bound of its own");
    }

    /// Starts the next job of a server if one waits and a slot is free. Returns its number and its
    /// service time.
    pub(super) fn start_next(&mut self, now: Instant, server: ReplicaId) -> Option<(u32, Duration)> {
        let number = self.queues[server.index()].start_next(now)?;
        let time = match self.jobs.get(number)?.work {
            Work::Read { key, .. } => self.read_time(key.key),
            Work::Write(_) => self.times.scale.mul_f64(WRITE_SCALES),
        };
        Some((number, time))
    }

    /// Returns the time that a read takes.
    pub(super) fn read_time(&self, key: Key) -> Duration {
        self.times.of(key.draw)
    }

    /// Removes a job that a server has served.
    pub(super) fn complete(&mut self, number: u32) -> Option<Job> {
        let job = self.jobs.remove(number)?;
        self.queues[job.server.index()].complete(number, None);
        Some(job)
    }
}
