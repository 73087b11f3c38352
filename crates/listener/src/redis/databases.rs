//! The databases of a listener: key spaces that clients choose by `SELECT`.
//!
//! The databases share the partitions, in which their keys have different names (`stored_names`).
//!
//! Keys are renamed in a command's arguments before it is executed, behind the prefix of their
//! route, so that no command but those below has to know of databases. A listener with one database
//! renames none.

use std::borrow::Cow;

use sherwood_wire::resp::{Args, OwnedRequest, reply};

use super::failure::{DATABASE_NUMBER, Failure};
use super::many::move_between;
use super::session::{CommandResult, Session, arg, is, number};
use super::stored_names::{own_name, stored_name};
use super::table::Command;
use super::{listing, server};
use crate::counters::Count;
use crate::output::Output;

impl Session<'_> {
    /// Returns true if the listener has several databases.
    pub(super) fn has_databases(&self) -> bool {
        self.shared.options.databases > 1
    }

    /// Returns the key by which `key` of `database` is stored, behind the prefix of its route. A
    /// key that belongs nowhere is returned unchanged, since no command finds it.
    pub(super) fn placed<'k>(&self, key: &'k [u8], database: u8) -> Cow<'k, [u8]> {
        let Some((_, name)) = self.routing().find(key) else { return Cow::Borrowed(key) };
        match stored_name(name, database) {
            Cow::Borrowed(_) => Cow::Borrowed(key),
            Cow::Owned(stored) => Cow::Owned([&key[..key.len() - name.len()], &stored].concat()),
        }
    }

    /// Returns the key by which `key` of the client's database is stored.
    pub(super) fn placed_here<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        if self.has_databases() { self.placed(key, self.client.database) } else { Cow::Borrowed(key) }
    }

    /// Executes a command on its keys as they are stored, or adds it to the client's transaction.
    #[inline(never)]
    pub(super) fn perform_renamed(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
        out: &mut Output,
    ) -> CommandResult {
        let renamed = self.renamed(command, args).inspect_err(|_| self.break_transaction())?;
        self.perform(command, renamed.as_ref().map_or(args, OwnedRequest::args), out)
    }

    /// Returns the arguments of a command with its keys as they are stored; none if they are stored
    /// as they are.
    ///
    /// # Errors
    /// If a `COPY` names a database that does not exist.
    fn renamed(&self, command: &Command, args: Args<'_>) -> Result<Option<OwnedRequest>, Failure> {
        let own = self.client.database;
        let target = if command.name == "copy" { self.copied_to(args)?.unwrap_or(own) } else { own };
        let database = |index: usize| if command.name == "copy" && index == 2 { target } else { own };
        let is_renamed = command
            .positions_of(args)
            .any(|at| matches!(self.placed(arg(args, at), database(at)), Cow::Owned(_)));
        if !is_renamed {
            return Ok(None);
        }
        let mut keys = command.positions_of(args).peekable();
        Ok(Some(args.changed(|index, argument| match keys.next_if_eq(&index) {
            Some(_) => self.placed(argument, database(index)),
            None => Cow::Borrowed(argument),
        })))
    }

    /// Returns the database of a `COPY` with the option `DB`.
    fn copied_to(&self, args: Args<'_>) -> Result<Option<u8>, Failure> {
        let mut index = 3;
        while let Some(word) = args.get(index) {
            if is(word, "db") {
                return args.get(index + 1).map(|number| self.database(number)).transpose();
            }
            index += 1;
        }
        Ok(None)
    }

    /// Returns the database of this number.
    ///
    /// # Errors
    /// If the listener does not have it.
    pub(super) fn database(&self, text: &[u8]) -> Result<u8, Failure> {
        let index = number(text)?;
        let databases = self.shared.options.databases;
        match u8::try_from(index).ok().filter(|index| *index < databases) {
            Some(index) => Ok(index),
            None if i32::try_from(index).is_ok() => Err(no_database(databases)),
            None => Err(DATABASE_NUMBER),
        }
    }
}

fn no_database(databases: u8) -> Failure {
    let has = match databases {
        1 => "a listener has database 0 only, unless its configuration says databases = 16".to_owned(),
        databases => format!("this listener has databases 0 to {}", databases - 1),
    };
    let text = format!("ERR DB index is out of range: {has}; or keep keys apart by a prefix instead");
    Failure(Cow::Owned(text.into_bytes()))
}

/// Executes the Redis command `SELECT index`.
pub(super) fn select(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let database = session.database(arg(args, 1))?;
    session.client.database = database;
    session.card.note_database(database);
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Executes the Redis command `MOVE key db`. The key is named as it is stored.
pub(super) fn move_to(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let (from, database) = (arg(args, 1), session.database(arg(args, 2))?);
    if database == session.client.database {
        return Err(Failure::text("ERR source and destination objects are the same"));
    }
    let Some((_, stored)) = session.routing().find(from) else { return Err(Failure::nowhere(from)) };
    let (_, name) = own_name(stored).unwrap_or((0, stored));
    let to = [&from[..from.len() - stored.len()], name].concat();
    let to = session.placed(&to, database);
    let moved = move_between(session, from, &to, &mut out.work)?;
    reply::integer(out, i64::from(moved));
    Ok(())
}

/// Executes the Redis command `FLUSHDB [ASYNC | SYNC]`, which is `FLUSHALL` where there is one
/// database.
pub(super) fn flush(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    if !session.has_databases() {
        return server::flush(session, args, out);
    }
    server::check_flush(args)?;
    session.counters.increment(Count::CmdFlush);
    listing::remove_all(session);
    Ok(())
}
