//! memcached's protocols: text with meta commands, and binary.
//!
//! A client speaks one of them, which its first byte tells ([`negotiation`]). Both execute commands
//! by a [`Session`](session::Session).

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

use crate::conversation::Protocol;
use crate::shared::Shared;

/// The memcached protocol, as a listener serves it.
pub(crate) struct Memcached;

impl Protocol for Memcached {
    type Conversation = negotiation::Client;

    const NAME: &'static str = "memcached";
    const THREADS: &'static str = "sherwood-mc";
    const TOO_MANY: &'static [u8] = reply::TOO_MANY_CONNECTIONS;

    fn open(&self, shared: &Arc<Shared>, thread: usize) -> negotiation::Client {
        negotiation::Client::open(shared, thread)
    }
}
