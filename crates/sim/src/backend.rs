//! Simulated backend: its objects, the limits of its replicas and its service times.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_model::{BackendId, Instant, ReplicaId, SplitMix64};
use sherwood_workload::onerf::{BackendModel, Limits};

use crate::key::Key;
use crate::world::Job;

/// A backend, shared by all servers.
#[derive(Clone)]
pub(crate) struct SimulatedBackend {
    pub(crate) model: BackendModel,
    /// Bytes of each fetched object of the catalogue; 0 for those not fetched yet.
    sizes: Vec<u32>,
    /// The sizes that were written to each replica's objects, with the time from which each is
    /// there: one entry for each write of the run and replica.
    written: BTreeMap<(ReplicaId, u64), Vec<(Instant, u32)>>,
    draws: u64,
}

impl SimulatedBackend {
    pub(crate) fn new(model: &BackendModel, profile: &str, seed: u64) -> Self {
        let draws = SplitMix64::new(seed ^ (u64::from(model.id) << 48)).next_u64();
        let objects = model.objects.get(profile).copied().unwrap_or_default();
        let sizes = vec![0; objects.min(SIZES_MAX) as usize];
        Self { model: model.clone(), sizes, written: BTreeMap::new(), draws }
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
    pub(crate) fn service_time(&self, job: &Job<Key>, limit: f64) -> Duration {
        let moment = job.sent.as_nanos() ^ (u64::from(job.node) << 48);
        let draw = SplitMix64::new(self.draws ^ moment).next_u64();
        self.model.service_time(job.work.keys(), limit, draw)
    }
}

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
