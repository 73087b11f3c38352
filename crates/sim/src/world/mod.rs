//! The simulated world, which all set-ups (kinds of simulation) share: nodes, servers, and a clock
//! that advances from event to event.
//!
//! ```text
//!   clients ──requests──▶ nodes ──calls──▶ servers
//!      ▲                  │   ▲              │
//!      └─────answers──────┘   └───answers────┘
//! ```
//!
//! A node has the parts of a daemon: a cache, the path of a request, a state machine for each
//! backend, a gate that enforces the tenants' network rates, and a control loop. The parts that are
//! specific to a set-up, such as its clients and its service times, are its [`Family`].

#![allow(private_bounds, reason = "set-ups are this crate's own")]

mod books;
mod calls;
mod control;
mod family;
mod gate;
mod imbalance;
mod interference;
mod network;
mod node;
mod observe;
mod requests;
mod resize;
mod servers;
mod service;
mod sharing;
mod writes;

use std::time::Duration;

use sherwood_model::{BackendId, Instant};
use sherwood_workload::Rng;

pub(crate) use control::fixed_division;
pub(crate) use family::{Ask, AskedWrite, Family, Live};
pub(crate) use gate::Network;
pub use imbalance::Imbalance;
pub(crate) use interference::{Interference, Neighbours};
pub(crate) use node::{Machine, Node, SizedCache, Waiter};
pub(crate) use observe::curve;
pub(crate) use resize::Resizing;
pub(crate) use servers::{Job, Servers, Work};
pub(crate) use sharing::Sharing;

use crate::events::EventQueue;
use crate::slab::Slab;

/// A simulated run of a set-up.
///
/// The state changes only at events, so results do not depend on the times at which the caller
/// pauses the run.
pub struct Simulation<F: Family> {
    pub(crate) family: F,
    pub(crate) now: Instant,
    /// End of the run's measurement.
    pub(crate) end: Instant,
    pub(crate) events: EventQueue<Event<F::Event>>,
    pub(crate) nodes: Vec<Node<F::Key>>,
    pub(crate) servers: Servers<F::Key>,
    /// Requests that have not ended.
    pub(crate) live: Slab<Live<F::Key, F::Client>>,
    /// Random numbers with which dispatchers choose replicas.
    pub(crate) route_draws: Rng,
    /// Requests that have begun since the start.
    pub(crate) began: u64,
    /// Requests that have ended since the start.
    pub(crate) ended: u64,
    /// Keys looked up for requests since the start.
    pub(crate) queries: u64,
}

/// An event; `E` is the type of the set-up's own events.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<E> {
    /// A worker of this backend finishes this job.
    Done { backend: u16, job: u32 },
    /// A wake-up scheduled by the state machine of a node's backend.
    Wake { node: u16, backend: u16 },
    /// A tenant's network rate may now allow a request that waits at this node to start.
    Network { node: u16 },
    /// An event that only this set-up has.
    Own(E),
}

impl<F: Family> Simulation<F> {
    /// Returns a world at its start.
    pub(crate) fn of(
        family: F,
        end: Instant,
        nodes: Vec<Node<F::Key>>,
        servers: Servers<F::Key>,
        route_draws: Rng,
    ) -> Self {
        Self {
            family,
            now: Instant::ZERO,
            end,
            events: EventQueue::default(),
            nodes,
            servers,
            live: Slab::new(),
            route_draws,
            began: 0,
            ended: 0,
            queries: 0,
        }
    }

    /// End of the run's measurement.
    #[must_use]
    pub fn end(&self) -> Instant {
        self.end
    }

    /// Current simulated time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Number of requests sent so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.began
    }

    /// Number of keys looked up for requests so far.
    #[must_use]
    pub fn queries(&self) -> u64 {
        self.queries
    }

    /// Schedules an event of the set-up.
    #[inline]
    pub(crate) fn schedule(&mut self, at: Instant, event: F::Event) {
        self.events.schedule(at, Event::Own(event));
    }

    /// Processes all events before `until` and then checks that all counters balance. If `until` is
    /// the end of the run, events at the end are included.
    pub(crate) fn run(&mut self, until: Instant) -> Result<(), Imbalance> {
        let before = if until < self.end { until } else { self.end + Duration::from_nanos(1) };
        while !self.family.has_stopped()
            && let Some((at, event)) = self.events.take_before(before)
        {
            self.now = at;
            self.happen(event);
        }
        if !self.family.has_stopped() {
            self.now = self.now.max(until.min(self.end));
        }
        self.balance()
    }

    #[inline]
    pub(crate) fn happen(&mut self, event: Event<F::Event>) {
        match event {
            Event::Done { backend, job } => self.done(BackendId(backend), job),
            Event::Wake { node, backend } => self.wake(node, BackendId(backend)),
            Event::Network { node } => self.wake_network(node),
            Event::Own(event) => F::happen(self, event),
        }
    }
}

#[cfg(test)]
mod tests;
