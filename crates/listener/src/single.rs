//! A single thread of a listener on sockets that the caller provides.
//!
//! Simulations use it to run the event loop of listeners under a clock and network of their own.

use std::io;
use std::sync::Arc;

use super::clock::Clock;
use super::conversation::Conversations;
use super::memcached::Memcached;
use super::meter::Meter;
use super::options::ListenerOptions;
use super::redis::Redis;
use super::shared::{Service, Shared};
use super::sockets::{Signal, Sockets};
use super::thread::{Thread, WAKE_TOKENS};
use super::thread_group::{ThreadGroup, Threads};

/// A listener of one thread, which runs on the caller's thread and sockets whatever its options
/// are.
pub struct SingleThread {
    shared: Arc<Shared>,
    stop: Arc<dyn Fn()>,
    run: Box<dyn FnOnce() -> io::Result<()>>,
}

impl SingleThread {
    /// Creates a memcached listener on `sockets`; `signal` interrupts the listener's waits.
    #[must_use]
    pub fn memcached<S: Sockets + 'static>(
        options: ListenerOptions,
        service: Service,
        clock: Arc<dyn Clock>,
        sockets: S,
        signal: Arc<dyn Signal>,
    ) -> Self {
        Self::new(Memcached, Shared::new(options, service, clock), sockets, signal)
    }

    /// Creates a Redis listener like [`memcached`](Self::memcached); `seed` starts the random
    /// sequence of `RANDOMKEY`.
    #[must_use]
    pub fn redis<S: Sockets + 'static>(
        options: ListenerOptions,
        service: Service,
        clock: Arc<dyn Clock>,
        seed: u64,
        sockets: S,
        signal: Arc<dyn Signal>,
    ) -> Self {
        Self::new(Redis::new(seed), Shared::new(options, service, clock), sockets, signal)
    }

    fn new<P: Conversations, S: Sockets + 'static>(
        protocol: P,
        shared: Shared,
        sockets: S,
        signal: Arc<dyn Signal>,
    ) -> Self {
        let shared = Arc::new(shared);
        let group = Arc::new(ThreadGroup::new([signal], WAKE_TOKENS));
        let thread = Thread::new(Arc::new(protocol), 0, Arc::clone(&shared), Arc::clone(&group), sockets);
        Self { shared, stop: Arc::new(move || group.stop()), run: Box::new(move || thread.run()) }
    }

    /// Returns a function that tells the listener to stop.
    #[must_use]
    pub fn stop(&self) -> Arc<dyn Fn()> {
        Arc::clone(&self.stop)
    }

    /// Returns a reader of the listener's counters.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter(Arc::downgrade(&self.shared))
    }

    /// Serves clients until the listener is told to stop, and then until all clients are gone or
    /// the drain timeout is over.
    ///
    /// # Errors
    /// If waiting for the sockets fails.
    pub fn run(self) -> io::Result<()> {
        (self.run)()
    }
}
