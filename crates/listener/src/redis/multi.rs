//! The state of transactions: the commands since `MULTI`, watched keys, and locked ones.

use std::cell::RefCell;
use std::collections::HashMap;

use bytes::Bytes;
use sherwood_cache::Held;
use sherwood_model::{Instant, PartitionId};
use sherwood_wire::resp::KeptRequests;

use crate::backends::FetchResult;
use crate::work::Work;

/// Most commands of a transaction.
pub(super) const COMMANDS_MAX: usize = 1024;
/// Bytes that the commands of a transaction may take, unless one request may take more.
const BYTES_MAX: usize = 8 << 20;
/// Bytes of answers after which the rest of a transaction's commands is not executed.
pub(super) const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The commands between `MULTI` and `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub(super) queue: KeptRequests,
    /// True after a command that was refused: `EXEC` executes nothing.
    pub(super) broken: bool,
    /// The work that the arguments of the commands tell.
    pub(super) work: Work,
}

impl Transaction {
    /// Returns the bytes that the commands take.
    pub(super) fn bytes(&self) -> usize {
        self.queue.bytes()
    }
}

/// Returns the most bytes that the commands of a transaction can take if a request can have
/// `request_bytes_max`.
pub(super) fn bytes_max(request_bytes_max: u32) -> usize {
    BYTES_MAX.max(request_bytes_max as usize)
}

/// The keys of a transaction while it is executed, and the values fetched for it.
pub(super) struct Exclusive<'a> {
    pub(super) held: RefCell<Held<'a>>,
    /// Results of fetches, without those of keys that the transaction has changed since.
    pub(super) fetched: HashMap<(PartitionId, Bytes), FetchResult>,
}

/// A watched key.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) partition: PartitionId,
    /// The key without the prefix of its route.
    pub(super) name: Bytes,
    /// The item of the key when it was first watched, if it had one.
    pub(super) seen: Option<Seen>,
}

/// The properties of an item of which at least one differs after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) cas: u64,
    pub(super) expires: Option<Instant>,
}

impl Watched {
    /// Returns the place of the key in the cache.
    pub(super) fn place(&self) -> (PartitionId, &[u8]) {
        (self.partition, &self.name)
    }
}
