//! The requests that the server parses.

use super::super::{Delta, Exptime, Storage, StorageVerb};

/// The fields of a request that its response repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The number of the command, which distinguishes quiet ones from others.
    pub opcode: u8,
    /// A number chosen by the client, by which it finds the request that a response belongs to.
    pub opaque: [u8; 4],
}

/// A request, borrowing from the buffer it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The fields that the response repeats.
    pub echo: Echo,
    /// True if only values and errors are answered; a get that finds nothing does not count as an
    /// error.
    pub quiet: bool,
    /// The unique number (CAS) that the item has to have; 0 accepts any item.
    pub cas: u64,
    /// The command.
    pub command: Command<'a>,
}

/// The command of a request. Keys have 1 to [`KEY_BYTES_MAX`](super::super::KEY_BYTES_MAX) bytes of
/// any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `getk`, `gat` or `gatk`: reads an item.
    Get {
        /// Key of the item.
        key: &'a [u8],
        /// True if the response includes the key.
        with_key: bool,
        /// The new expiry time of the item (`gat`, `gatk`).
        touch: Option<Exptime>,
    },
    /// `touch`: changes the expiry time of an item.
    Touch {
        /// Key of the item.
        key: &'a [u8],
        /// The new expiry time of the item.
        exptime: Exptime,
    },
    /// `set`, `add`, `replace`, `append` or `prepend`. With a CAS, the first three are
    /// [`StorageVerb::Cas`]. `noreply` is the request's `quiet`.
    Storage(Storage<'a>),
    /// A storage command whose value is over the limit, answered with
    /// [`Status::TooLarge`](super::Status::TooLarge). A `set` also removes the value stored before.
    /// The parser skips the value as it arrives.
    TooLarge {
        /// The storage operation that was refused.
        verb: StorageVerb,
        /// Key of the refused value.
        key: &'a [u8],
    },
    /// `delete`: removes an item.
    Delete {
        /// Key to remove.
        key: &'a [u8],
    },
    /// `increment` or `decrement`: changes a number.
    Arithmetic {
        /// Key of the number.
        key: &'a [u8],
        /// The change: an amount to add or subtract.
        delta: Delta,
        /// The number with which a missing item is created.
        initial: u64,
        /// The expiry time of an item that is created; if none, a missing item is not created.
        create: Option<Exptime>,
    },
    /// `flush`: removes all items, now or later.
    Flush {
        /// The delay of the flush; 0 flushes at once.
        delay: Exptime,
    },
    /// `stat`, with the name of a group of statistics, which may be empty.
    Stat {
        /// The name of the group.
        group: &'a [u8],
    },
    /// `noop`, whose response comes after all responses to the quiet requests before it.
    NoOp,
    /// `version`: asks for the server's version.
    Version,
    /// `verbosity`, whose level has no effect here.
    Verbosity,
    /// `quit`: write the outstanding responses and close.
    Quit,
    /// Asks for the names of SASL mechanisms.
    SaslMechanisms,
    /// Begins a login by SASL.
    SaslAuth {
        /// The name of the mechanism, 1 to
        /// [`MECHANISM_BYTES_MAX`](super::MECHANISM_BYTES_MAX) bytes.
        mechanism: &'a [u8],
        /// The mechanism's data, at most [`LOGIN_BYTES_MAX`](super::LOGIN_BYTES_MAX) bytes.
        data: &'a [u8],
    },
    /// Continues a login by SASL.
    SaslStep {
        /// As in [`Self::SaslAuth`].
        mechanism: &'a [u8],
        /// As in [`Self::SaslAuth`].
        data: &'a [u8],
    },
}
