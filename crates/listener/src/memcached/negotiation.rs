//! A memcached client, whose first byte tells which of memcached's two protocols it speaks.

use std::sync::Arc;

use sherwood_wire::memcached::{Ahead, binary::Ahead as BinaryAhead, binary::is_binary};

use super::{binary, text};
use crate::clock::Moment;
use crate::conversation::{Advance, Conversation, Fetched, Stored};
use crate::input::Input;
use crate::output::Output;
use crate::shared::Shared;
use crate::tenants::TenantSlot;

/// The state of one memcached client: a text client unless its first byte begins a binary request.
pub(crate) enum Client {
    /// Speaks the text protocol.
    Text(text::Client),
    /// Speaks the binary protocol.
    Binary(binary::Client),
}

impl Client {
    /// Starts the conversation of a new client on thread number `thread`.
    pub(super) fn open(shared: &Arc<Shared>, thread: usize) -> Self {
        Self::Text(text::Client::open(shared, thread))
    }
}

impl Conversation for Client {
    #[inline]
    fn advance(&mut self, moment: Moment, input: Input<'_>, output: &mut Output) -> Advance {
        if let Self::Text(client) = self
            && let Some(client) = client.become_binary(input.bytes)
        {
            *self = Self::Binary(client);
        }
        match self {
            Self::Text(client) => client.advance(moment, input, output),
            Self::Binary(client) => client.advance(moment, input, output),
        }
    }

    fn slot(&self) -> TenantSlot {
        match self {
            Self::Text(client) => client.slot(),
            Self::Binary(client) => client.slot(),
        }
    }

    #[inline]
    fn kept_bytes(&self) -> usize {
        match self {
            Self::Text(client) => client.kept_bytes(),
            Self::Binary(client) => client.kept_bytes(),
        }
    }

    fn is_outside(&self) -> bool {
        match self {
            Self::Text(client) => client.is_outside(),
            Self::Binary(client) => client.is_outside(),
        }
    }

    fn keys_ahead(input: &[u8]) -> impl Iterator<Item = &[u8]> {
        if is_binary(input) {
            KeysAhead::Binary(BinaryAhead::of(input))
        } else {
            KeysAhead::Text(Ahead::of(input))
        }
    }

    fn resume(&mut self, moment: Moment, fetched: Fetched, output: &mut Vec<u8>) {
        match self {
            Self::Text(client) => client.resume(moment, fetched, output),
            Self::Binary(client) => client.resume(moment, fetched, output),
        }
    }

    fn resume_stored(&mut self, stored: Stored, output: &mut Vec<u8>) {
        match self {
            Self::Text(client) => client.resume_stored(stored, output),
            Self::Binary(client) => client.resume_stored(stored, output),
        }
    }
}

/// The keys that a scan for prefetching finds in the input, in either protocol.
enum KeysAhead<'a> {
    Text(Ahead<'a>),
    Binary(BinaryAhead<'a>),
}

impl<'a> Iterator for KeysAhead<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::Text(ahead) => ahead.next(),
            Self::Binary(ahead) => ahead.next(),
        }
    }
}
