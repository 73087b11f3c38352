//! The connected clients, as `CLIENT LIST` shows them.
//!
//! Each conversation owns its state. The part that other clients can read lies here: atomics
//! written by the client's thread, and names, which rarely change.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sherwood_model::Instant;
use sherwood_wire::resp::Version;

use super::failure::Failure;
use crate::sockets::Peer;
use crate::tenants::TenantSlot;

const LIST_TOO_LONG: Failure = Failure::text(
    "ERR CLIENT LIST would answer more than 4 MiB; ask for some clients with CLIENT LIST ID id ...",
);

/// The connected clients of a listener; at most its maximum number of connections.
#[derive(Debug, Default)]
pub(super) struct Clients {
    open: Mutex<BTreeMap<u64, Arc<Card>>>,
    last_id: AtomicU64,
    /// Commands executed by clients of each slot before they disconnected or changed their tenant;
    /// at most one element per slot.
    commands: Mutex<BTreeMap<usize, u64>>,
}

/// The part of a client's state that other clients can read, for `CLIENT LIST`.
#[derive(Debug, Default)]
pub(super) struct Card {
    pub(super) id: u64,
    since: Instant,
    /// Time of the client's last input, in nanoseconds.
    seen: AtomicU64,
    commands: AtomicU64,
    /// The number of commands queued since `MULTI`, plus one; 0 without.
    queued: AtomicU64,
    /// Position in the command table of the last command executed, plus one; 0 before the first
    /// command.
    last: AtomicUsize,
    /// True if the client speaks version 3 of the protocol.
    resp3: AtomicBool,
    /// Index of the slot of the client's tenant.
    slot: AtomicUsize,
    /// Number of the client's database.
    database: AtomicU8,
    peer: OnceLock<Peer>,
    names: Mutex<Names>,
}

/// Maximum length of a client's name, in bytes. Redis has no bound; names are meant for people.
pub(super) const NAME_BYTES_MAX: usize = 1024;
/// Maximum size of a [`Card`], bytes: its names, each of at most [`NAME_BYTES_MAX`], and the struct
/// itself.
pub(super) const CARD_BYTES_MAX: usize = 4 * NAME_BYTES_MAX + 2 * size_of::<Card>();
/// Most bytes of an answer to `CLIENT LIST`.
const LIST_BYTES_MAX: usize = 4 << 20;

/// Properties of the listener that the lines of `CLIENT LIST` show.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) now: Instant,
    /// The path of the listener's socket if it is a UNIX socket.
    pub(super) unix: Option<&'a Path>,
    /// Returns the name of the command at a position in the table.
    pub(super) command: fn(usize) -> &'static str,
}

/// The names that a client gives itself and its library, and its user.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) name: String,
    /// The user that has logged in; empty for the default one.
    pub(super) user: String,
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
        self.keep_commands(card);
        lock(&self.open).remove(&card.id);
    }

    /// Moves a client to the slot of another tenant; its commands so far stay with the previous
    /// one. Called only by the client's own thread.
    pub(super) fn move_to(&self, card: &Card, slot: TenantSlot) {
        if card.slot.load(Relaxed) != slot.index() {
            self.keep_commands(card);
            card.commands.store(0, Relaxed);
            card.slot.store(slot.index(), Relaxed);
        }
    }

    fn keep_commands(&self, card: &Card) {
        let mut kept = lock(&self.commands);
        *kept.entry(card.slot.load(Relaxed)).or_default() += card.commands.load(Relaxed);
    }

    /// Returns the number of commands executed for all clients of a slot, disconnected ones
    /// included.
    pub(super) fn commands(&self, slot: TenantSlot) -> u64 {
        let open = lock(&self.open);
        let kept = lock(&self.commands).get(&slot.index()).copied().unwrap_or_default();
        let open = open.values().filter(|card| card.is_of(slot));
        kept + open.map(|card| card.commands.load(Relaxed)).sum::<u64>()
    }

    /// Returns the number of connected clients, summed over all slots.
    pub(super) fn len(&self) -> usize {
        lock(&self.open).len()
    }

    /// Returns the answer to `CLIENT LIST`: one line per client of the slot whose id is `wanted`,
    /// in the order of connection. Clients may connect and disconnect meanwhile.
    ///
    /// # Errors
    /// If the answer would be too long.
    pub(super) fn list(
        &self,
        view: &View<'_>,
        slot: TenantSlot,
        wanted: impl Fn(u64) -> bool,
    ) -> Result<String, Failure> {
        let open: Vec<Arc<Card>> = lock(&self.open).values().map(Arc::clone).collect();
        let mut list = String::new();
        for card in open.iter().filter(|card| card.is_of(slot) && wanted(card.id)) {
            list.push_str(&card.line(view));
            list.push('\n');
            if list.len() > LIST_BYTES_MAX {
                return Err(LIST_TOO_LONG);
            }
        }
        Ok(list)
    }
}

impl Card {
    /// Records the addresses of the client's connection.
    pub(super) fn introduce(&self, peer: Peer) {
        // It is told once.
        let _ = self.peer.set(peer);
    }

    /// Records input at `now`, adds `commands` executed commands and notes the position of the last
    /// one. Called only by the client's own thread.
    pub(super) fn note(&self, now: Instant, commands: u64, last: Option<usize>) {
        self.seen.store(now.as_nanos(), Relaxed);
        self.add_commands(commands);
        self.note_last(last);
    }

    /// Records the position in the command table of the latest command.
    pub(super) fn note_last(&self, last: Option<usize>) {
        if let Some(last) = last {
            self.last.store(last + 1, Relaxed);
        }
    }

    /// Records the version of the protocol that the client has chosen.
    pub(super) fn note_version(&self, version: Version) {
        self.resp3.store(version == Version::Resp3, Relaxed);
    }

    /// Adds executed commands. Called only by the client's own thread.
    pub(super) fn add_commands(&self, commands: u64) {
        self.commands.store(self.commands.load(Relaxed) + commands, Relaxed);
    }

    /// Records the number of commands queued since `MULTI`, if there was one.
    pub(super) fn note_queued(&self, commands: Option<usize>) {
        self.queued.store(commands.map_or(0, |commands| commands as u64 + 1), Relaxed);
    }

    /// Notes the database that the client has selected.
    pub(super) fn note_database(&self, database: u8) {
        self.database.store(database, Relaxed);
    }

    fn is_of(&self, slot: TenantSlot) -> bool {
        self.slot.load(Relaxed) == slot.index()
    }

    pub(super) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Returns the client's line of `CLIENT LIST`, with the fields that apply to this listener.
    pub(super) fn line(&self, view: &View<'_>) -> String {
        let View { now, unix, command } = *view;
        let Names { name, user, library, library_version } = self.names().clone();
        let user = if user.is_empty() { "default" } else { &user };
        let age = now.since(self.since).as_secs();
        let idle = now.since(Instant::from_nanos(self.seen.load(Relaxed))).as_secs();
        let queued = self.queued.load(Relaxed) as i64 - 1;
        let flags = if queued < 0 { "N" } else { "x" };
        let Peer { client, local, descriptor } = self.peer.get().copied().unwrap_or_default();
        let (address, local) = (address(client, unix), address(local, unix));
        let last = self.last.load(Relaxed).checked_sub(1).map_or("NULL", command);
        let database = self.database.load(Relaxed);
        let resp = if self.resp3.load(Relaxed) { 3 } else { 2 };
        format!(
            "id={} addr={address} laddr={local} fd={descriptor} name={name} age={age} idle={idle} flags={flags} db={database} sub=0 \
             psub=0 multi={queued} cmd={last} user={user} resp={resp} lib-name={library} lib-ver={library_version}",
            self.id
        )
    }
}

/// Formats an address as Redis does: for a UNIX socket its path and port 0.
fn address(tcp: Option<SocketAddr>, unix: Option<&Path>) -> String {
    match (tcp, unix) {
        (Some(address), _) => address.to_string(),
        (None, Some(path)) => format!("{}:0", path.display()),
        (None, None) => String::new(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_list_over_the_size_limit_is_refused_but_a_shorter_selection_is_returned() {
        let (clients, now) = (Clients::default(), Instant::from_secs(1));
        let name = || "x".repeat(NAME_BYTES_MAX);
        let cards: Vec<_> = (0..1400)
            .map(|_| {
                let card = clients.enter(now);
                let names =
                    Names { user: String::new(), name: name(), library: name(), library_version: name() };
                *card.names() = names;
                card
            })
            .collect();
        let (slot, view) = (TenantSlot::default(), View { now, unix: None, command: |_| "get" });
        assert_eq!(clients.list(&view, slot, |_| true), Err(LIST_TOO_LONG));
        let part = clients.list(&view, slot, |id| id <= 1000).expect("it is shorter");
        assert_eq!(part.lines().count(), 1000);
        let line = cards[0].line(&view);
        assert!(line.len() < CARD_BYTES_MAX && part.starts_with(&line));
    }
}
