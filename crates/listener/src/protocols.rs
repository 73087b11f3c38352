//! The protocols that a listener can speak: their names, servers and bounds, in one table.

use std::io;
use std::sync::Arc;

use super::clock::Clock;
use super::conversation::Conversations;
use super::memcached::{self, Memcached};
use super::options::ListenerOptions;
use super::redis::{self, Redis};
use super::server::{Bound, Running};
use super::shared::Service;

/// Protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// memcached's protocols, text and binary.
    Memcached,
    /// The protocol of Redis.
    Redis,
}

/// A protocol's row of the table.
pub(super) struct Entry {
    name: &'static str,
    /// Starts the threads of a listener; the number is the seed of its random sequence.
    pub(super) serve: fn(Bound, Service, Arc<dyn Clock>, u64) -> io::Result<Running>,
    connection_bytes_max: fn(&ListenerOptions) -> usize,
}

impl Protocol {
    /// All protocols, the default first.
    pub const ALL: [Self; 2] = [Self::Memcached, Self::Redis];

    pub(super) const fn entry(self) -> Entry {
        match self {
            Self::Memcached => Entry {
                name: Memcached::NAME,
                serve: |bound, service, clock, _| bound.speak(Memcached, service, clock),
                connection_bytes_max: memcached::connection_bytes_max,
            },
            Self::Redis => Entry {
                name: Redis::NAME,
                serve: |bound, service, clock, seed| bound.speak(Redis::new(seed), service, clock),
                connection_bytes_max: redis::connection_bytes_max,
            },
        }
    }

    /// Returns the name of the protocol in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// Returns the maximum size of the buffers of a connection, bytes, without fetched values and
    /// without memory taken from the budget of kept memory.
    #[must_use]
    pub fn connection_bytes_max(self, options: &ListenerOptions) -> usize {
        (self.entry().connection_bytes_max)(options)
    }
}
