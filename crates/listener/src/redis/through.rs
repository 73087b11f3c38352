//! Redis commands of a write-through listener that change values: they go to the store first.
//!
//! `SET` (without a condition), `SETEX`, `PSETEX`, `MSET`, `DEL` and `UNLINK` say what the store is
//! to have. A command whose result depends on the present value is refused, because only the store
//! knows that value for certain, and it may change between a look and the write.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use bytes::Bytes;
use sherwood_model::{Instant, PartitionId};
use sherwood_wire::resp::{Args, reply};

use super::aside::Aside;
use super::failure::Failure;
use super::session::{CommandResult, Session, arg};
use super::strings::{expiry_of_set, getex_is_past, unconditional_set};
use super::table::Command;
use crate::backends::{StoreChange, StoreFailure};
use crate::conversation::Stored;
use crate::counters::Count;
use crate::kept::allocated;
use crate::shared::{REFUSED_CHANGE, REFUSED_REST};
use crate::store::StoreWrite;

/// Writes that the store has to acknowledge before their command is answered.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// Writes to be made; empty once they are in flight.
    pending: Vec<StoreWrite>,
    /// The place of each key in `pending`.
    places: HashMap<(PartitionId, Bytes), usize>,
    /// The answer if the store acknowledges all of them.
    answer: Vec<u8>,
    muted: bool,
    /// The memory of the writes without their values, bytes, taken from the budget of kept memory;
    /// the values are in the budget of fetched values.
    memory: usize,
}

/// Memory of a write until the store has acknowledged it, without key and value, bytes. Chosen:
/// more than its entry in `pending` and its future (the asynchronous call) take together.
const WRITE_BYTES: usize = 1 << 10;

impl Writes {
    /// Returns the memory of the writes, bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Adds a write, which replaces an earlier one of the same key: writes are made at once, in no
    /// order. Returns true if there was none.
    fn add(&mut self, write: StoreWrite) -> bool {
        match self.places.entry((write.partition, write.key.clone())) {
            Entry::Occupied(place) => {
                self.pending[*place.get()] = write;
                false
            }
            Entry::Vacant(vacant) => {
                vacant.insert(self.pending.len());
                self.pending.push(write);
                true
            }
        }
    }

    /// Returns the writes to be made, once.
    pub(super) fn take(&mut self) -> Vec<StoreWrite> {
        self.places = HashMap::new();
        std::mem::take(&mut self.pending)
    }

    pub(super) fn mute(&mut self) {
        self.muted = true;
    }

    /// Appends the answer to the command after its writes have ended.
    pub(super) fn answer(self, stored: Stored, out: &mut Vec<u8>) {
        match stored {
            _ if self.muted => {}
            Ok(()) => out.extend_from_slice(&self.answer),
            Err(StoreFailure::Refused(reason)) => {
                reply::error(out, format!("REJECTED {reason}").as_bytes());
            }
            Err(StoreFailure::TimedOut(reason) | StoreFailure::Failed(reason)) => {
                reply::error(out, format!("ERR {reason}").as_bytes())
            }
        }
    }
}

/// Returns the error of a change that other nodes would miss.
pub(super) fn untold() -> Failure {
    Failure::about("ERR ", REFUSED_CHANGE.as_bytes(), "")
}

/// Returns the error of a command some of whose keys were changed before the changes of others were
/// refused.
pub(super) fn rest_untold() -> Failure {
    Failure::about("ERR ", REFUSED_REST.as_bytes(), "")
}

/// Returns true for a command that changes values, not only their lifetimes.
fn changes_values(command: &Command) -> bool {
    let is_of_lifetimes = ["expire", "persist", "getex"].iter().any(|name| command.name.contains(name));
    command.flags.contains(&"write") && !is_of_lifetimes
}

impl Session<'_> {
    /// Executes a command that changes keys of a write-through partition; none if it changes none,
    /// or only their lifetimes in the cache.
    #[inline]
    pub(super) fn write_through(&mut self, command: &Command, args: Args<'_>) -> Option<CommandResult> {
        if self.routing().writes_through() { self.write_to_store(command, args) } else { None }
    }

    #[inline(never)]
    fn write_to_store(&mut self, command: &Command, args: Args<'_>) -> Option<CommandResult> {
        if !self.changes_a_store(command, args) {
            return None;
        }
        Some(match command.name {
            "set" => unconditional_set(self, args)
                .and_then(|expires| self.put_all(args, &[(1, 2)], expires, reply::OK.to_vec())),
            "setex" | "psetex" => expiry_of_set(self, args, command.name)
                .and_then(|expires| self.put_all(args, &[(1, 3)], Some(expires), reply::OK.to_vec())),
            "mset" if args.len().is_multiple_of(2) => Err(Failure::arity("mset")),
            "mset" => {
                let pairs: Vec<_> = (1..args.len()).step_by(2).map(|at| (at, at + 1)).collect();
                self.put_all(args, &pairs, None, reply::OK.to_vec())
            }
            "del" | "unlink" => self.delete_all(args),
            name => Err(Failure::about(
                "ERR '",
                name.as_bytes(),
                "' is refused by a write-through listener: it depends on a value that only the store knows; use GET, SET and DEL",
            )),
        })
    }

    /// Returns true for a command that changes a key, or flushes all, while the other nodes would
    /// miss that.
    pub(super) fn refuses(&self, command: &Command, args: Args<'_>) -> bool {
        let service = &self.shared.service;
        if !command.flags.contains(&"write") {
            return false;
        }
        match command.name {
            "flushall" | "flushdb" => service.refuses_change(self.routing(), None),
            _ if !changes_values(command) && !self.removes_by_expiry(command, args) => false,
            _ => command.keys_of(args).any(|key| service.refuses_change(self.routing(), Some(key))),
        }
    }

    /// Returns true if a command that goes on has to leave the change of this key, or of any key,
    /// since the other nodes would miss it.
    pub(super) fn refuses_rest(&self, key: Option<&[u8]>) -> bool {
        self.trust.refuses_changes && self.shared.service.refuses_change(self.routing(), key)
    }

    /// Returns true for a command that sets an expiry which is past, and so removes its key.
    fn removes_by_expiry(&self, command: &Command, args: Args<'_>) -> bool {
        match command.name {
            name @ ("expire" | "pexpire" | "expireat" | "pexpireat") => self.is_past_expiry(args, name),
            "getex" => getex_is_past(self, args),
            _ => false,
        }
    }

    /// Returns true if the command changes a value of a write-through partition. Commands on
    /// lifetimes, which stores do not have, change the cache alone.
    pub(super) fn changes_a_store(&self, command: &Command, args: Args<'_>) -> bool {
        changes_values(command)
            && command
                .keys_of(args)
                .any(|key| self.routing().find(key).is_some_and(|(target, _)| target.write_through))
    }

    /// Stores values, given by the positions of their keys and of themselves, and then answers.
    fn put_all(
        &mut self,
        args: Args<'_>,
        pairs: &[(usize, usize)],
        expires: Option<Instant>,
        answer: Vec<u8>,
    ) -> CommandResult {
        let mut writes = self.writes(pairs.iter().map(|&(key, _)| arg(args, key)))?;
        writes.answer = answer;
        for &(key, value) in pairs {
            let (key, value) = (arg(args, key), arg(args, value));
            match self.routing().find(key) {
                None => return Err(Failure::nowhere(key)),
                Some((target, _)) if !target.write_through => self.store(key, value, expires)?,
                Some((target, name)) => {
                    self.counters.increment(Count::CmdSet);
                    let change = StoreChange::Put { value: Bytes::copy_from_slice(value), expires };
                    let key = Bytes::copy_from_slice(name);
                    writes.add(StoreWrite { partition: target.partition, key, change });
                }
            }
        }
        self.client.aside = Some(Aside::Writes(writes));
        Ok(())
    }

    /// Takes the memory for writes of these keys from the budget. Returns an empty list of writes.
    fn writes<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) -> Result<Writes, Failure> {
        let memory = keys.map(|key| WRITE_BYTES + allocated(key.len())).sum();
        self.keep(memory)?;
        Ok(Writes { memory, ..Writes::default() })
    }

    /// Deletes keys, and answers how many were asked for, since stores do not tell which existed.
    fn delete_all(&mut self, args: Args<'_>) -> CommandResult {
        let (mut writes, mut deleted) = (self.writes(args.from(1))?, 0);
        for key in args.from(1) {
            match self.routing().find(key) {
                Some((target, name)) if target.write_through => {
                    let (partition, key) = (target.partition, Bytes::copy_from_slice(name));
                    let write = StoreWrite { partition, key, change: StoreChange::Delete };
                    deleted += i64::from(writes.add(write));
                }
                _ => deleted += i64::from(self.remove(key)),
            }
        }
        reply::integer(&mut writes.answer, deleted);
        self.client.aside = Some(Aside::Writes(writes));
        Ok(())
    }
}
