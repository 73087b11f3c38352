//! What the threads of a listener have in common.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use sherwood_cache::Cache;

use super::backends::Backends;
use super::counters::{Counters, Counts};
use super::options::MemcachedOptions;
use super::routing::Routing;
use crate::clock::{Clock, Moment};

/// What a listener serves.
#[derive(Clone)]
pub struct Service {
    /// Where the items are.
    pub cache: Arc<Cache>,
    /// Which partition a key belongs to.
    pub routing: Routing,
    /// The way to the backends, if there are any.
    pub backends: Option<Arc<dyn Backends>>,
}

/// The state of a listener.
pub(super) struct Shared {
    pub(super) options: MemcachedOptions,
    pub(super) service: Service,
    pub(super) clock: Clock,
    pub(super) started: Moment,
    /// One for each thread.
    pub(super) counters: Box<[Counters]>,
    pub(super) connections: Connections,
    /// What had been counted at the last `stats reset`.
    baseline: Mutex<Counts>,
}

impl Shared {
    pub(super) fn new(options: MemcachedOptions, service: Service, clock: Clock) -> Self {
        Self {
            started: clock.moment(),
            counters: (0..options.threads).map(|_| Counters::default()).collect(),
            connections: Connections::default(),
            baseline: Mutex::default(),
            options,
            service,
            clock,
        }
    }

    /// Everything counted since the start.
    pub(super) fn counts(&self) -> Counts {
        Counts::sum(&self.counters)
    }

    /// What clients are shown: what was counted since one of them reset it.
    pub(super) fn counts_since_reset(&self) -> Counts {
        self.counts().since(&self.baseline.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn reset(&self) {
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = self.counts();
    }
}

/// How many connections there are and were, over all threads.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: AtomicUsize,
    total: AtomicU64,
    rejected: AtomicU64,
}

impl Connections {
    /// Takes a place for a new connection if fewer than `max` are taken. It is given back by dropping it.
    pub(super) fn open(shared: &Arc<Shared>) -> Option<Place> {
        let connections = &shared.connections;
        connections.total.fetch_add(1, Relaxed);
        let max = shared.options.max_connections;
        let taken = connections.open.fetch_update(Relaxed, Relaxed, |open| (open < max).then_some(open + 1));
        match taken {
            Ok(_) => Some(Place(Arc::clone(shared))),
            Err(_) => {
                connections.rejected.fetch_add(1, Relaxed);
                None
            }
        }
    }

    /// Connections that are open.
    pub(super) fn now(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Connections there were, those over the limit included.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Connections over the limit.
    pub(super) fn rejected(&self) -> u64 {
        self.rejected.load(Relaxed)
    }
}

/// The place of one connection among those allowed.
pub(super) struct Place(Arc<Shared>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.open.fetch_sub(1, Relaxed);
    }
}
