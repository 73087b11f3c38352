//! The state of transactions: the commands since `MULTI`, watched keys, and locked ones.

use std::cell::RefCell;
use std::collections::HashMap;

use bytes::Bytes;
use sherwood_cache::{Access, Change, Held, Item, Refused};
use sherwood_model::{Instant, PartitionId};
use sherwood_wire::resp::KeptRequests;

use crate::backends::{FetchResult, KeySet};
use crate::kept::allocated;
use crate::routing::Target;
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
    /// The work that follows from the arguments of the queued commands.
    pub(super) work: Work,
}

impl Transaction {
    /// Returns the memory that the transaction takes, bytes.
    pub(super) fn memory(&self) -> usize {
        allocated(size_of::<Self>()) + self.queue.capacity()
    }

    /// Refuses the transaction: drops its commands, which will not be executed.
    pub(super) fn refuse(&mut self) {
        *self = Self { broken: true, ..Self::default() };
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
    /// The keys that other nodes cache, too, and whose values have not stayed.
    pub(super) changed: RefCell<KeySet>,
    /// Results of fetches, without those of keys that the transaction has changed since.
    pub(super) fetched: HashMap<(PartitionId, Bytes), FetchResult>,
}

impl Exclusive<'_> {
    /// Reads an item of the transaction and changes it.
    pub(super) fn update<'v, R>(
        &self,
        target: Target,
        name: &[u8],
        access: &Access,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'v>, R),
    ) -> Result<R, Refused> {
        let mut keeps = true;
        let result = self.held.borrow_mut().update(target.partition, name, access, |old| {
            let (change, result) = decide(old);
            keeps = keeps_value(&change);
            (change, result)
        });
        if target.shared && !keeps {
            self.changed.borrow_mut().insert((target.partition, Bytes::copy_from_slice(name)));
        }
        result
    }
}

/// Returns true for a change after which the key has the value that it had.
pub(super) fn keeps_value(change: &Change<'_>) -> bool {
    matches!(change, Change::Keep | Change::Amend { .. } | Change::Touch(_))
}

/// The keys that a client watches.
#[derive(Debug, Default)]
pub(super) struct WatchedKeys {
    list: Vec<Watched>,
    /// Memory of the keys' names, bytes.
    names: usize,
    /// True after a `WATCH` that was refused: the next `EXEC` executes nothing.
    pub(super) broken: bool,
}

impl WatchedKeys {
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Watched> {
        self.list.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Reserves memory for exactly `more` further keys.
    pub(super) fn reserve(&mut self, more: usize) {
        self.list.reserve_exact(more);
    }

    pub(super) fn push(&mut self, watched: Watched) {
        self.names += allocated(watched.name.len());
        self.list.push(watched);
    }

    /// Forgets all keys, and frees their memory.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the memory that the keys take, bytes.
    pub(super) fn memory(&self) -> usize {
        self.list.capacity() * size_of::<Watched>() + self.names
    }

    /// Returns the additional memory that watching keys of these names takes, bytes.
    pub(super) fn memory_of<'k>(names: impl ExactSizeIterator<Item = &'k [u8]>) -> usize {
        let list = names.len() * size_of::<Watched>();
        list + names.map(|name| allocated(name.len())).sum::<usize>()
    }
}

/// A watched key.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) partition: PartitionId,
    /// The key without the prefix of its route.
    pub(super) name: Box<[u8]>,
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
