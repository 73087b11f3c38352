//! The connected clients, as `CLIENT LIST` shows them.
//!
//! A conversation keeps its own state; what others may ask about it lies here, in atomics its
//! thread writes and a name that is written rarely.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sherwood_model::Instant;

/// The clients of a listener; no more than there are places for connections.
#[derive(Debug, Default)]
pub(super) struct Clients {
    open: Mutex<BTreeMap<u64, Arc<Card>>>,
    last_id: AtomicU64,
    /// Commands of those who are gone.
    commands: AtomicU64,
}

/// The attributes of a client that others may see.
#[derive(Debug, Default)]
pub(super) struct Card {
    pub(super) id: u64,
    since: Instant,
    /// When it last sent something, in nanoseconds.
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
    /// Enters a client.
    pub(super) fn enter(&self, now: Instant) -> Arc<Card> {
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        let card = Arc::new(Card { id, since: now, seen: AtomicU64::new(now.as_nanos()), ..Card::default() });
        lock(&self.open).insert(id, Arc::clone(&card));
        card
    }

    /// Forgets a client, but for its commands.
    pub(super) fn leave(&self, card: &Card) {
        self.commands.fetch_add(card.commands.load(Relaxed), Relaxed);
        lock(&self.open).remove(&card.id);
    }

    /// Commands of all clients, those who are gone included.
    pub(super) fn commands(&self) -> u64 {
        let open = lock(&self.open);
        self.commands.load(Relaxed) + open.values().map(|card| card.commands.load(Relaxed)).sum::<u64>()
    }

    /// A line for each client, in the order in which they came.
    pub(super) fn list(&self, now: Instant, wanted: impl Fn(u64) -> bool) -> String {
        lock(&self.open).values().filter(|card| wanted(card.id)).map(|card| card.line(now) + "\n").collect()
    }
}

impl Card {
    /// Notes `commands` executed at `now`. Only the client's own thread may.
    pub(super) fn note(&self, now: Instant, commands: u64) {
        self.seen.store(now.as_nanos(), Relaxed);
        self.commands.store(self.commands.load(Relaxed) + commands, Relaxed);
    }

    pub(super) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Redis's line about a client, as far as it applies.
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
