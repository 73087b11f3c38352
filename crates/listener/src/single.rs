//! A single thread of a listener on sockets that the caller provides.
//!
//! Simulations run the event loop with it that listeners have, under a clock and a network of their
//! own.

use std::io;
use std::sync::Arc;

use super::clock::Clock;
use super::conversation::Protocol;
use super::crew::Crew;
use super::memcached::Memcached;
use super::meter::Meter;
use super::options::ListenerOptions;
use super::redis::Redis;
use super::shared::{Service, Shared};
use super::sockets::{Signal, Sockets};
use super::thread::{NEWCOMERS, STOP, Thread};

/// A listener of one thread. Whatever the options say, it runs on the caller's thread and sockets.
pub struct SingleThread {
    shared: Arc<Shared>,
    stop: Arc<dyn Fn()>,
    run: Box<dyn FnOnce() -> io::Result<()>>,
}

impl SingleThread {
    /// A memcached listener on `sockets`, whose waits `signal` interrupts.
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

    /// The same for clients of Redis; `seed` begins the sequence in which keys are drawn.
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

    fn new<P: Protocol, S: Sockets + 'static>(
        protocol: P,
        shared: Shared,
        sockets: S,
        signal: Arc<dyn Signal>,
    ) -> Self {
        let shared = Arc::new(shared);
        let crew = Arc::new(Crew::new([signal], NEWCOMERS, STOP));
        let thread = Thread::new(Arc::new(protocol), 0, Arc::clone(&shared), Arc::clone(&crew), sockets);
        Self { shared, stop: Arc::new(move || crew.stop()), run: Box::new(move || thread.run()) }
    }

    /// Returns a function that tells the listener to stop.
    #[must_use]
    pub fn stop(&self) -> Arc<dyn Fn()> {
        Arc::clone(&self.stop)
    }

    /// Returns what it counts.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter(Arc::downgrade(&self.shared))
    }

    /// Serves until it is told to stop, and then until all clients are gone or have been waited for
    /// long enough.
    ///
    /// # Errors
    /// When the sockets cannot be waited for.
    pub fn run(self) -> io::Result<()> {
        (self.run)()
    }
}
