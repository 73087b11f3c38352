//! The Redis protocol as a conversation: the commands a cache needs, with Redis 7.0's semantics and
//! texts.
//!
//! | file | topic |
//! |---|---|
//! | `conversation` | bytes to requests, requests to answers |
//! | `session` | one command: look-up, arity, errors, access to the cache |
//! | `table` | the table of commands |
//! | `compare`, `comparison`, `scripts`, `known_scripts` | commands that compare a value, and the scripts of locks that stand for them |
//! | `strings`, `bits`, `lcs`, `many`, `numbers`, `expiry`, `keys`, `listing` | commands on keys |
//! | `multi`, `transaction`, `watch`, `gathering` | transactions, and the values fetched for them |
//! | `connection`, `server`, `describe` | commands on the connection and the server |
//! | `databases`, `stored_names` | key spaces chosen by `SELECT`, and the names of their keys in the cache |
//! | `aside`, `each` | commands executed in portions |
//! | `cost` | the work of a command and of a transaction, known before it is done |
//! | `clients`, `calls` | registry of connected clients, and counts of their commands |
//! | `decimal`, `glob` | Redis's decimal arithmetic and patterns |
//!
//! Values are strings, and there is one database, or several. A listener is look-aside or
//! read-through, like a memcached one; `GET` and `MGET` read through. A command that is not in the
//! table gets Redis's error for unknown commands: lists are not supported.

mod aside;
mod bits;
mod calls;
mod clients;
mod compare;
mod comparison;
mod connection;
mod conversation;
mod cost;
mod databases;
mod decimal;
mod describe;
mod each;
mod expiry;
mod failure;
mod gathering;
mod glob;
mod keys;
mod known_scripts;
mod lcs;
mod listing;
mod many;
mod multi;
mod numbers;
mod scripts;
mod server;
mod session;
mod stored_names;
mod strings;
mod table;
mod through;
mod transaction;
mod unlocked;
mod watch;

#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sherwood_model::SplitMix64;
use sherwood_wire::resp::{Limits, reply};

pub(super) use self::conversation::Redis;

use self::calls::Calls;
use self::clients::Clients;
use self::known_scripts::Scripts;
use super::kept::OWN_BYTES;
use super::options::ListenerOptions;
use super::tenants::TenantSlot;

/// The Redis version this implementation was compared with, reported by `HELLO` and `INFO`: clients
/// take the number for Redis's.
const VERSION: &str = "7.0.15";

/// Bytes that a request may have in addition to one value of the maximum size: room for many keys.
const REQUEST_BYTES: u32 = 1 << 20;

/// Returns the limits of a connection's request parser.
fn limits(options: &ListenerOptions) -> Limits {
    let argument_bytes_max = options.item_size_max;
    Limits { argument_bytes_max, request_bytes_max: argument_bytes_max.saturating_add(REQUEST_BYTES) }
}

/// Returns the maximum size of the buffers of a Redis connection, bytes, without fetched values and
/// without memory taken from the budget of kept memory.
pub(crate) fn connection_bytes_max(options: &ListenerOptions) -> usize {
    let limits = limits(options);
    let value = reply::HEADER_BYTES_MAX + options.item_size_max as usize + 2;
    let output = options.output_bytes_max + value.max(listing::KEYS_BYTES_MAX);
    // A key list that was put aside is part of a request, and a key list in progress is as large as
    // the answer it becomes.
    let answers = 2 * (output + listing::KEYS_BYTES_MAX.max(multi::ANSWER_BYTES_MAX));
    2 * limits.buffer_bytes_max() + limits.parser_bytes_max() + OWN_BYTES + clients::CARD_BYTES_MAX + answers
}

/// The state that the conversations of all Redis clients of a listener share.
#[derive(Debug)]
struct Hub {
    clients: Clients,
    /// Lock held by commands that write several keys, so that each sees the others completed or not
    /// begun.
    order: Mutex<()>,
    /// Position in the random sequence of `RANDOMKEY`.
    draws: AtomicU64,
    /// The scripts that the clients of each slot have sent.
    scripts: Mutex<BTreeMap<usize, Scripts>>,
    calls: Calls,
}

impl Hub {
    /// Creates the shared state; `seed` starts the random sequence of `RANDOMKEY`.
    fn new(seed: u64) -> Arc<Self> {
        let draws = AtomicU64::new(seed);
        Arc::new(Self {
            clients: Clients::default(),
            order: Mutex::default(),
            draws,
            scripts: Mutex::default(),
            calls: Calls::default(),
        })
    }

    /// Calls `use_them` with the known scripts that the clients of a slot have sent.
    fn with_scripts<R>(&self, slot: TenantSlot, use_them: impl FnOnce(&mut Scripts) -> R) -> R {
        let mut all = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        use_them(all.entry(slot.index()).or_default())
    }

    /// Locks out all other commands that write several keys, until the guard is dropped.
    fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self) -> u64 {
        SplitMix64::new(self.draws.fetch_add(1, Relaxed)).next_u64()
    }
}
