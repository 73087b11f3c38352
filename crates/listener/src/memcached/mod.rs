//! memcached's protocols: text with meta commands, and binary.
//!
//! The first byte of a client tells which of them it speaks ([`negotiation`]). Both execute
//! commands through a [`Session`](session::Session).

mod binary;
mod login;
mod meta;
mod negotiation;
mod retrieval;
mod session;
mod stats;
mod text;
mod through;

use std::sync::Arc;

use sherwood_wire::memcached::reply;

use crate::conversation::Conversations;
use crate::input::INPUT_BYTES;
use crate::options::ListenerOptions;
use crate::shared::Shared;

/// The memcached protocol, as a listener serves it.
pub(crate) struct Memcached;

impl Conversations for Memcached {
    type Conversation = negotiation::Client;

    const NAME: &'static str = "memcached";
    const THREADS: &'static str = "sherwood-mc";
    const TOO_MANY: &'static [u8] = reply::TOO_MANY_CONNECTIONS;

    fn open(&self, shared: &Arc<Shared>, thread: usize) -> negotiation::Client {
        negotiation::Client::open(shared, thread)
    }
}

/// Returns the maximum size of the buffers of a memcached connection, without fetched values,
/// bytes.
pub(crate) fn connection_bytes_max(options: &ListenerOptions) -> usize {
    let output = options.output_bytes_max + reply::VALUE_LINE_BYTES_MAX + options.item_size_max as usize;
    options.limits().buffer_bytes_max() + INPUT_BYTES + 2 * output
}
