//! Estimates of the work of a command or a transaction before it is executed.
//!
//! `EXEC` cannot be interrupted and is executed whole or not at all. So the work of its commands is
//! estimated first, while their keys are locked, from the arguments and from the lengths that
//! values may have after the earlier commands of the transaction. The estimate is never below the
//! work that is done then.

use std::collections::HashMap;

use sherwood_model::PartitionId;
use sherwood_wire::resp::{Args, KeptRequests, integer};

use super::decimal::{TEXT_BYTES_MAX, digits_max};
use super::failure::Failure;
use super::session::{CommandResult, Session, arg};
use super::table::Command;
use super::{bits, connection, describe, server};
use crate::output::Output;
use crate::work::{ARGUMENT, CHANGE, COMMAND_MAX, KEY, digits, rebuilt};

/// Error for an `EXEC` beyond the bound on its work. Redis has no counterpart.
const EXEC_TOO_MUCH: Failure = Failure::text(
    "EXECABORT Transaction discarded because its commands would work as long as it takes to touch more than 16 MiB, \
     while other clients wait; send fewer in one, or those on large values outside of MULTI",
);

/// Returns the part of a command's work that follows from its arguments alone.
fn of_arguments(command: &Command, args: Args<'_>) -> u64 {
    let key = if command.flags.contains(&"write") { CHANGE } else { KEY };
    ARGUMENT * args.len() as u64 + key * command.keys_of(args).count() as u64
}

impl Session<'_> {
    /// Counts the work of the arguments of a command with many of them. Commands executed in
    /// portions are left out, since they count their keys themselves.
    pub(super) fn begin_long(&self, command: &Command, args: Args<'_>, out: &mut Output) -> CommandResult {
        let in_portions = command.takes_portions() && !self.routing().writes_through();
        if !in_portions {
            out.work.begin(of_arguments(command, args))?;
        }
        Ok(())
    }

    /// Returns the part of a queued command's work that follows from its arguments alone: twice as
    /// much on a listener with backends, where keys are looked up and fenced beforehand.
    pub(super) fn queued_work(&self, command: &Command, args: Args<'_>) -> u64 {
        let times = if self.shared.service.backends.is_some() { 2 } else { 1 };
        times * of_arguments(command, args)
    }

    /// Returns an upper bound of the work of a transaction, whose keys have to be locked.
    ///
    /// # Errors
    /// If the work would exceed the bound on one transaction.
    pub(super) fn work_of_all<'a>(&'a self, queue: &'a KeptRequests) -> Result<u64, Failure> {
        let mut estimate = Estimate { session: self, lengths: HashMap::new(), work: 0 };
        for args in queue.iter() {
            estimate.add(args);
            if estimate.work > COMMAND_MAX {
                return Err(EXEC_TOO_MUCH);
            }
        }
        Ok(estimate.work)
    }
}

/// An estimate of the work of the first commands of a transaction.
struct Estimate<'a, 's> {
    session: &'a Session<'s>,
    /// The maximum length in bytes of each value that the commands so far may have changed.
    lengths: HashMap<(PartitionId, &'a [u8]), usize>,
    work: u64,
}

impl<'a> Estimate<'a, '_> {
    /// Adds the work of the next command.
    fn add(&mut self, args: Args<'a>) {
        let Some(command) = Command::of(args) else { return };
        self.work += self.session.queued_work(command, args) + self.by_values(command, args);
    }

    /// Returns the work of a command on values, beyond that of its arguments and its answer.
    fn by_values(&mut self, command: &Command, args: Args<'a>) -> u64 {
        let key = arg(args, 1);
        match command.name {
            "append" => {
                let bytes = self.length(key) + arg(args, 2).len();
                self.rebuild(key, bytes)
            }
            "setrange" => {
                let end = end_of(arg(args, 2), 1).saturating_add(arg(args, 3).len());
                self.rebuild_up_to(key, end)
            }
            "setbit" => self.rebuild_up_to(key, end_of(arg(args, 2), 8).saturating_add(1)),
            "getrange" => part_max(self.length(key), args, 1),
            "bitcount" => {
                part_max(self.length(key), args, if args.get(4).is_some_and(bits::is_bit) { 8 } else { 1 })
            }
            "copy" | "rename" | "renamenx" => self.copied(command, args),
            "incrbyfloat" => {
                let bytes = self.digits(key) + digits_max(arg(args, 2));
                self.set(key, self.length(key).max(TEXT_BYTES_MAX));
                digits(bytes)
            }
            "incr" | "decr" | "incrby" | "decrby" => {
                self.set(key, self.length(key).max(DIGITS_MAX));
                0
            }
            "set" | "setex" | "psetex" | "setnx" | "getset" => {
                let bytes = arg(args, if matches!(command.name, "setex" | "psetex") { 3 } else { 2 }).len();
                let replaces = matches!(command.name, "setex" | "psetex" | "getset") || args.len() == 3;
                let replaces = replaces && command.name != "setnx";
                self.set(key, if replaces { bytes } else { self.length(key).max(bytes) });
                0
            }
            "eval" | "evalsha" => {
                let (key, bytes) = (arg(args, 3), arg(args, 4).len());
                self.set(key, self.length(key).max(bytes));
                0
            }
            "mset" | "msetnx" => {
                for at in (1..args.len()).step_by(2) {
                    let (key, bytes) = (arg(args, at), arg(args, at + 1).len());
                    self.set(key, if command.name == "mset" { bytes } else { self.length(key).max(bytes) });
                }
                0
            }
            "del" | "unlink" | "getdel" => {
                command.keys_of(args).for_each(|key| self.set(key, 0));
                0
            }
            "flushall" | "flushdb" => server::flush_work(self.session),
            "info" => server::info_work(self.session),
            "config|get" => server::config_work(args),
            "client|list" => connection::client_list_work(self.session, args),
            "script|exists" => KEY * args.len() as u64,
            "command" | "command|info" | "command|docs" => describe::work(args),
            _ => 0,
        }
    }

    /// Returns the work of a `COPY` or `RENAME`.
    fn copied(&mut self, command: &Command, args: Args<'a>) -> u64 {
        let (from, to) = (arg(args, 1), arg(args, 2));
        let bytes = self.length(from);
        self.set(to, self.length(to).max(bytes));
        if command.name == "rename" && from != to {
            self.set(from, 0);
            self.set(to, bytes);
        }
        rebuilt(bytes)
    }

    fn rebuild(&mut self, key: &'a [u8], bytes: usize) -> u64 {
        // A longer value is refused before it is made.
        let bytes = bytes.min(self.session.value_bytes_max());
        self.set(key, bytes);
        rebuilt(bytes)
    }

    fn rebuild_up_to(&mut self, key: &'a [u8], end: usize) -> u64 {
        let bytes = self.length(key);
        self.rebuild(key, bytes.max(if end > self.session.value_bytes_max() { 0 } else { end }))
    }

    /// Returns the maximum length of a key's value after the commands so far, bytes.
    fn length(&self, key: &[u8]) -> usize {
        let Some((target, name)) = self.session.routing().find(key) else { return 0 };
        if let Some(&bytes) = self.lengths.get(&(target.partition, name)) {
            return bytes;
        }
        self.session.peek(key, |old| old.value.len()).unwrap_or(0)
    }

    /// Returns the maximum number of digits of the number stored under a key.
    fn digits(&self, key: &[u8]) -> usize {
        let place = self.session.routing().find(key).map(|(target, name)| (target.partition, name));
        match place.and_then(|place| self.lengths.get(&place)) {
            Some(0) => 0,
            Some(_) => TEXT_BYTES_MAX,
            None => self.session.peek(key, |old| digits_max(old.value)).unwrap_or(0),
        }
    }

    fn set(&mut self, key: &'a [u8], bytes: usize) {
        if let Some((target, name)) = self.session.routing().find(key) {
            self.lengths.insert((target.partition, name), bytes);
        }
    }
}

/// Maximum number of characters of an integer, including its sign.
const DIGITS_MAX: usize = 20;

/// Returns the maximum number of bytes between the indices of a command in a value of at most `len`
/// bytes; `len` without indices. `a_byte` is the number of index units per byte: 1, or 8 if indices
/// count bits.
fn part_max(len: usize, args: Args<'_>, a_byte: i64) -> u64 {
    let index = |at: usize| args.get(at).and_then(integer);
    let (Some(start), Some(end)) = (index(2), index(3)) else { return len as u64 };
    let units = (len as i64).saturating_mul(a_byte);
    let most = match (start < 0, end < 0) {
        (true, false) => end.saturating_add(1).min(start.saturating_neg()),
        (false, true) => units.saturating_add(end).saturating_sub(start).saturating_add(1),
        _ => end.saturating_sub(start).saturating_add(1),
    };
    let bytes = most.min(units).max(0) / a_byte;
    // Parts of a byte at either end.
    (bytes as u64 + if a_byte > 1 { 2 } else { 0 }).min(len as u64)
}

/// Returns the byte that contains `offset`; 0 if `offset` is invalid. `a_byte` is the number of
/// offset units per byte: 1, or 8 if offsets count bits.
fn end_of(offset: &[u8], a_byte: usize) -> usize {
    integer(offset).and_then(|offset| usize::try_from(offset).ok()).unwrap_or(0) / a_byte
}
