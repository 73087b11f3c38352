//! A node: a cache, a state machine for each backend and a control loop, as in a daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use sherwood_cache::{Cache, Heap, Value};
use sherwood_control::ControlLoop;
use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, Tags, TenantId};
use sherwood_path::{AnswerCache, Backend, Fetched, Slot, WriteId};

use super::gate::Network;
use super::resize::Resizing;
use crate::setup::Resize;

/// The key of an unfinished request that waits for a fetch: the request's number and the key's
/// position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) request: u32,
    pub(crate) slot: Slot,
}

/// The state machine of one backend, in which a value is represented by its size in bytes.
pub(crate) type Machine<K> = Backend<K, u32, Waiter>;

/// Adapter for a cache of objects with a size and no content.
pub(crate) struct SizedCache<'a>(pub(crate) &'a Cache);

impl AnswerCache<u32> for SizedCache<'_> {
    fn cache(&self) -> &Cache {
        self.0
    }

    fn fetched<'a>(&self, bytes: &'a u32) -> Fetched<'a> {
        Fetched { value: Value::Declared(*bytes), flags: 0, good_for: None, tags: Tags::NONE }
    }
}

/// A simulated node.
pub(crate) struct Node<K> {
    pub(crate) cache: Cache,
    /// State machines, by backend.
    pub(crate) machines: Vec<Machine<K>>,
    /// The time at which each state machine is woken up next.
    pub(super) armed: Vec<Option<Instant>>,
    /// Writes of requests in flight.
    pub(super) writes: BTreeMap<(BackendId, WriteId), PendingWrite>,
    pub(crate) control: ControlLoop,
    pub(crate) resizing: Resizing,
    /// The gate that enforces the tenants' network rates; none if the network is unlimited.
    pub(crate) network: Option<Network>,
    /// Tenant and backend of each partition.
    pub(crate) owners: Vec<(TenantId, BackendId)>,
}

/// The request and partition of a write in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingWrite {
    pub(super) request: u32,
    pub(super) partition: PartitionId,
}

impl<K> Node<K> {
    /// Returns a node whose plans take effect at once, and whose network is unlimited.
    pub(crate) fn new(
        cache: Cache,
        machines: Vec<Machine<K>>,
        control: ControlLoop,
        owners: Vec<(TenantId, BackendId)>,
    ) -> Self {
        Self {
            cache,
            armed: vec![None; machines.len()],
            machines,
            writes: BTreeMap::new(),
            control,
            resizing: Resizing::new(Resize::AtOnce, Vec::new()),
            network: None,
            owners,
        }
    }

    /// Divides the cache among the partitions, and evicts items that exceed the budgets.
    pub(super) fn divide(&self, now: Instant, plan: &CachePlan) {
        self.cache.apply(plan).expect("plans are within the cache's total");
        while self.cache.step(now, STEP_ITEMS) {}
    }
}

impl<K: Clone> Node<K> {
    /// Returns a copy. O(memory) time and additional memory.
    ///
    /// # Panics
    /// If the node's network has rates: requests that wait for them are not copied.
    pub(crate) fn copy(&mut self) -> Self {
        assert!(self.network.is_none(), "only nodes whose network has no rates are copied");
        Self {
            cache: self.cache.copy(Arc::new(Heap)),
            machines: self.machines.clone(),
            armed: self.armed.clone(),
            writes: self.writes.clone(),
            control: self.control.clone(),
            resizing: self.resizing.clone(),
            network: None,
            owners: self.owners.clone(),
        }
    }
}

/// Items processed per background step; steps are repeated until nothing is left.
const STEP_ITEMS: usize = 4_096;
