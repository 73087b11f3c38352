//! The connected clients, as `CLIENT LIST` shows them.
//!
//! Each conversation owns its state. The part that other clients can read lies here: atomics
//! written by the client's thread, and names, which rarely change.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sherwood_model::Instant;

/// The connected clients of a listener; at most its maximum number of connections.
#[derive(Debug, Default)]
pub(super) struct Clients {
    open: Mutex<BTreeMap<u64, Arc<Card>>>,
    last_id: AtomicU64,
    /// Commands executed by clients that have disconnected.
    commands: AtomicU64,
}

/// The part of a client's state that other clients can read, for `CLIENT LIST`.
#[derive(Debug, Default)]
pub(super) struct Card {
    pub(super) id: u64,
    since: Instant,
    /// Time of the client's last input, in nanoseconds.
    seen: AtomicU64,
    commands: AtomicU64,
    names: Mutex<Names>,
}

/// The names that a client gives itself and its library.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) name: String,
    pub(super) library: String,
    pub(super) library_version: String,
}

impl Clients {
    /// Registers a client that has connected.
    pub(super) fn enter(&self, now: Instant) -> Arc<Card> {
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        let card = Arc::new(Card { id, since: now, seen: AtomicU64::new(now.as_nanos()), ..Card::default() });
        lock(&self.open).insert(id, Arc::clone(&card));
        card
    }

    /// Removes a client that has disconnected and keeps its count of commands.
    pub(super) fn leave(&self, card: &Card) {
        self.commands.fetch_add(card.commands.load(Relaxed), Relaxed);
        lock(&self.open).remove(&card.id);
    }

    /// Returns the number of commands executed for all clients, disconnected ones included.
    pub(super) fn commands(&self) -> u64 {
        let open = lock(&self.open);
        self.commands.load(Relaxed) + open.values().map(|card| card.commands.load(Relaxed)).sum::<u64>()
    }

    /// Returns the answer to `CLIENT LIST`: one line per client whose id is `wanted`, in the order
    /// of connection.
    pub(super) fn list(&self, now: Instant, wanted: impl Fn(u64) -> bool) -> String {
        lock(&self.open).values().filter(|card| wanted(card.id)).map(|card| card.line(now) + "\n").collect()
    }
}

impl Card {
    /// Records input at `now` and adds `commands` executed commands. Called only by the client's
    /// own thread.
    pub(super) fn note(&self, now: Instant, commands: u64) {
        self.seen.store(now.as_nanos(), Relaxed);
        self.commands.store(self.commands.load(Relaxed) + commands, Relaxed);
    }

    pub(super) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Returns the client's line of `CLIENT LIST`, with the fields that apply to this listener.
    pub(super) fn line(&self, now: Instant) -> String {
        let Names { name, library, library_version } = self.names().clone();
        let age = now.since(self.since).as_secs();
        let idle = now.since(Instant::from_nanos(self.seen.load(Relaxed))).as_secs();
        format!(
            "id={} name={name} age={age} idle={idle} flags=N db=0 sub=0 psub=0 multi=-1 user=default \
             lib-name={library} lib-ver={library_version}",
            self.id
        )
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
