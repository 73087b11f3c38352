//! The Redis protocol as a conversation: the commands a cache needs, with Redis 7.0's semantics and
//! texts.
//!
//! | file | what it is |
//! |---|---|
//! | `conversation` | bytes to requests, requests to answers |
//! | `session` | one command: look-up, arity, errors, and how commands reach the cache |
//! | `table` | which commands there are |
//! | `strings`, `many`, `numbers`, `expiry`, `keys`, `listing` | what they do with keys |
//! | `connection`, `server`, `describe` | what they do with the connection and the server |
//! | `aside` | answers that come in portions |
//! | `clients` | who is connected |
//! | `decimal`, `glob` | arithmetic and patterns of Redis's own kind |
//!
//! Values are strings, and there is one database. A listener is look-aside or reads through, as a
//! memcached one; `GET` and `MGET` read through. What is not in the table is answered as Redis
//! answers what it does not know: no lists, no scripts, no transactions.

mod aside;
mod clients;
mod connection;
mod conversation;
mod decimal;
mod describe;
mod expiry;
mod failure;
mod glob;
mod keys;
mod listing;
mod many;
mod numbers;
mod server;
mod session;
mod strings;
mod table;
#[cfg(test)]
mod tests;
mod words;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sherwood_model::SplitMix64;
use sherwood_wire::resp::{Limits, reply};

pub(super) use self::conversation::Redis;

use self::clients::Clients;
use super::options::ListenerOptions;

/// The Redis whose behaviour this was compared with, as `HELLO` and `INFO` tell it: clients take
/// the number for Redis's.
const VERSION: &str = "7.0.15";

/// Bytes a request may have beside one longest value: room for many keys.
const REQUEST_BYTES: u32 = 1 << 20;

/// Returns the bounds of a connection's input.
fn limits(options: &ListenerOptions) -> Limits {
    let argument_bytes_max = options.item_size_max;
    Limits { argument_bytes_max, request_bytes_max: argument_bytes_max.saturating_add(REQUEST_BYTES) }
}

/// Returns the most bytes a Redis connection's buffers can hold, beside fetched values.
#[must_use]
pub fn connection_bytes_max(options: &ListenerOptions) -> usize {
    let limits = limits(options);
    let value = reply::HEADER_BYTES_MAX + options.item_size_max as usize + 2;
    let output = options.output_bytes_max + value.max(listing::KEYS_BYTES_MAX);
    // A list of keys that is put aside is part of a request, and one being made is as large as the
    // answer it becomes.
    2 * limits.buffer_bytes_max() + limits.parser_bytes_max() + 2 * (output + listing::KEYS_BYTES_MAX)
}

/// The state that the conversations of a listener share.
#[derive(Debug)]
struct Hub {
    clients: Clients,
    /// Held by commands that write several keys.
    order: Mutex<()>,
    /// The state of the sequence of draws.
    draws: AtomicU64,
}

impl Hub {
    /// `seed` begins the sequence in which `RANDOMKEY` draws.
    fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { clients: Clients::default(), order: Mutex::default(), draws: AtomicU64::new(seed) })
    }

    /// Waits until no other command that writes several keys is under way.
    fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self) -> u64 {
        SplitMix64::new(self.draws.fetch_add(1, Relaxed)).next_u64()
    }
}
