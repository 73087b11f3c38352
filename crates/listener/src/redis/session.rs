//! The execution of one Redis command: from its arguments to its answer.
//!
//! No function here blocks. An answer that does not fit in the output, or has to be fetched, is put
//! [aside](super::aside).

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::MutexGuard;
use std::time::Duration;

use sherwood_cache::OUTDATED;
use sherwood_cache::{Access, Change, Item, ItemKind, Marks, NewCas, Received, Refused, Value};
use sherwood_model::query_times::Operation;
use sherwood_model::{Instant, PartitionId, Tags};
use sherwood_wire::resp::{Args, ProtocolError, Version, integer, reply};

use super::Hub;
use super::aside::Aside;
use super::calls::ThreadCalls;
use super::clients::{Card, View};
use super::failure::{Failure, NO_AUTH, NOT_AN_INTEGER, SCRIPTS, SWAP, TOO_LONG, WRONG_PASSWORD, quoted};
use super::multi::{Exclusive, Transaction, WatchedKeys, keeps_value};
use super::table::{self, Command};
use super::through::untold;
use super::unlocked::Unlocked;
use crate::backends::SharedTrust;
use crate::clock::Moment;
use crate::counters::{Count, Counters};
use crate::ended::EndedOperations;
use crate::kept::{KeptMemory, OWN_BYTES};
use crate::output::Output;
use crate::passwords::REFUSALS_MAX;
use crate::routing::{Routing, Target};
use crate::shared::{Service, Shared};
use crate::tenants::TenantSlot;

/// Executes the commands of one Redis client.
pub(super) struct Session<'a> {
    pub(super) shared: &'a Shared,
    pub(super) hub: &'a Hub,
    /// Number of the client's thread.
    pub(super) thread: usize,
    /// Counters of the client's thread for the client's tenant.
    pub(super) counters: &'a Counters,
    /// Operations that have ended in the thread's present turn.
    pub(super) ended: &'a EndedOperations,
    pub(super) client: &'a mut State,
    /// The client's part of the budget of kept memory.
    pub(super) kept: &'a mut KeptMemory,
    pub(super) card: &'a Card,
    pub(super) moment: Moment,
    /// Commands executed but not yet recorded in the client's `card`.
    pub(super) commands: u64,
    /// Position in the command table of the last of these commands.
    pub(super) last: Option<usize>,
    /// The counts of calls per command of the client's thread.
    pub(super) calls: &'a ThreadCalls,
    /// The input in memory of the cache, which an item stored from it keeps.
    pub(super) received: Option<&'a Received>,
    /// The trust in values that other nodes cache, too.
    pub(super) trust: SharedTrust,
    /// The locked keys of a transaction while it is executed.
    pub(super) exclusive: Option<Exclusive<'a>>,
}

/// The state of a Redis client between commands.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) version: Version,
    pub(super) replies: Replies,
    /// A command that was begun and not completed.
    pub(super) aside: Option<Aside>,
    /// True after `QUIT` or too many failed logins: the connection closes.
    pub(super) quit: bool,
    /// True if the client has logged in or need not.
    pub(super) admitted: bool,
    /// The slot of the client's tenant.
    pub(super) slot: TenantSlot,
    /// Number of the database that the client has selected.
    pub(super) database: u8,
    /// The commands since `MULTI`, if there was one.
    pub(super) transaction: Option<Box<Transaction>>,
    /// The keys that must not change until `EXEC`.
    pub(super) watched: WatchedKeys,
    /// AUTH failures and commands refused because the client was not authenticated.
    refusals: u8,
}

impl State {
    /// Resets the state for the command `RESET`, except for `replies` and the count of refusals.
    pub(super) fn log_out(&mut self, replies: Replies) {
        *self = Self { replies, refusals: self.refusals, ..Self::default() };
    }

    /// Returns true if the listener keeps any memory for the client between commands.
    #[inline]
    pub(super) fn keeps_some(&self) -> bool {
        self.aside.is_some() || self.transaction.is_some() || self.watched.memory() > 0
    }

    /// Returns the memory kept for the client that is not taken from the shared budget, bytes.
    #[inline(never)]
    pub(super) fn own_bytes(&self) -> usize {
        self.aside.as_ref().map_or(0, Aside::buffer_bytes) + self.kept_bytes().min(OWN_BYTES)
    }

    /// Returns the memory that the listener keeps for the client, bytes: its watched keys, its
    /// transaction, and the keys and writes of an unfinished command.
    pub(super) fn kept_bytes(&self) -> usize {
        let transaction = self.transaction.as_deref().map_or(0, Transaction::memory);
        self.watched.memory() + transaction + self.aside.as_ref().map_or(0, Aside::kept_bytes)
    }
}

/// The answers that a client wants, set with `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Replies {
    #[default]
    All,
    /// All answers but that to the next command.
    SkipNext,
    /// All answers but that to the command being executed.
    SkipThis,
    None,
}

/// A present item, which a command reads or changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Old<'i> {
    pub(super) value: &'i [u8],
    pub(super) flags: u32,
    pub(super) expires: Option<Instant>,
    pub(super) tags: Tags,
    marks: Marks,
    /// The item itself.
    pub(super) item: Item<'i>,
}

impl<'i> Old<'i> {
    /// Converts an item of the cache; none if it has a size but no value: only simulators store
    /// those.
    pub(super) fn of(item: Item<'i>) -> Option<Self> {
        match item {
            Item { value: Value::Bytes(value), flags, expires, tags, marks, .. } => {
                Some(Self { value, flags, expires, tags, marks, item })
            }
            _ => None,
        }
    }

    /// Returns the value in a form that can be read after the shard is unlocked.
    pub(super) fn unlocked(self) -> Unlocked {
        Unlocked::of(&self.item, self.value)
    }

    /// Returns a change that stores `value` with the other attributes of this item. A value derived
    /// from an outdated one is outdated too.
    pub(super) fn with(self, value: Vec<u8>) -> Change<'static> {
        let Self { flags, expires, tags, marks, .. } = self;
        let (value, marks) = (Cow::Owned(value), marks.only(OUTDATED));
        Change::StoreMarked { value, flags, expires, kind: ItemKind::Plain, tags, marks, cas: None }
    }
}

impl Old<'_> {
    /// Returns a change of the item's expiry. It gives the item a new CAS number, so that a watched
    /// key counts as changed even if its previous expiry is restored.
    pub(super) fn expiring(self, expires: Option<Instant>) -> Change<'static> {
        Change::Amend { expires, marks: self.marks, cas: NewCas::Next }
    }
}

/// The result of a change to a key.
pub(super) struct Changed<R> {
    pub(super) target: Target,
    /// True if the key existed.
    found: bool,
    pub(super) result: Result<R, Refused>,
}

/// The result of a command's function: Ok after it has appended its answer, else the error to
/// answer.
pub(super) type CommandResult = Result<(), Failure>;

impl Session<'_> {
    /// Executes a command and appends its answer to `out`, unless the client has suppressed it.
    pub(super) fn execute(&mut self, args: Args<'_>, out: &mut Output) {
        let before = out.mark();
        if self.client.replies == Replies::SkipNext {
            self.client.replies = Replies::SkipThis;
        }
        if let Err(failure) = self.run(args, out) {
            out.reset(before);
            reply::error(out, &failure.0);
        }
        // The setting after the command counts: Redis answers the command that turns answers on,
        // but neither the one that turns them off nor the one that skips the next answer.
        if self.client.replies != Replies::All {
            // Answers that are not sent do not end the turn, but their making does.
            out.work.add(out.appended(before) as u64);
            out.reset(before);
            if let Some(aside) = &mut self.client.aside {
                aside.mute();
            }
        }
        if self.client.replies == Replies::SkipThis {
            self.client.replies = Replies::All;
        }
    }

    fn run(&mut self, args: Args<'_>, out: &mut Output) -> CommandResult {
        let command = match self.command(args) {
            Ok(command) => command,
            Err(_) if is_http(arg(args, 0)) => {
                self.counters.increment(Count::ProtocolErrors);
                self.client.quit = true;
                return Ok(());
            }
            Err(failure) if is(arg(args, 0), "exec") => return Err(self.abort(failure)),
            Err(failure) => {
                out.work.add(UNKNOWN_WORK);
                self.break_transaction();
                return Err(failure);
            }
        };
        if self.has_databases() {
            return self.perform_renamed(command, args, out);
        }
        self.perform(command, args, out)
    }

    /// Executes a command, or adds it to the client's transaction.
    // Inlined, since its only other caller is for nodes with several databases.
    #[inline(always)]
    pub(super) fn perform(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
        out: &mut Output,
    ) -> CommandResult {
        if self.client.transaction.is_some() && !command.ends_or_begins_transactions() {
            return self.enqueue(command, args, out);
        }
        if args.len() > ARGUMENTS_FREE {
            self.begin_long(command, args, out)?;
        }
        // Asked before any of the keys is written through: the others would be changed unasked.
        if self.trust.refuses_changes && self.refuses(command, args) {
            return Err(untold());
        }
        match self.write_through(command, args) {
            Some(result) => result,
            None => (command.run)(self, args, out),
        }
    }

    /// Returns the command of a request, which it may execute as far as its arguments' number and
    /// its client tell.
    fn command(&mut self, args: Args<'_>) -> Result<&'static Command, Failure> {
        let at = table::position(arg(args, 0)).ok_or_else(|| self.unknown(args))?;
        let command = table::at(at);
        let command = match (command.subcommands, args.get(1)) {
            ([], _) | (_, None) => command,
            (subcommands, Some(sub)) => table::subcommand(subcommands, sub).ok_or_else(|| {
                let help = format!("'. Try {} HELP.", command.name.to_ascii_uppercase());
                Failure::about("ERR unknown subcommand '", &sub[..sub.len().min(QUOTED_MAX)], &help)
            })?,
        };
        if !command.takes(args.len()) {
            return Err(Failure::arity(command.name));
        }
        if self.is_outside() && !command.flags.contains(&"no_auth") {
            return Err(self.turned_away(NO_AUTH));
        }
        self.last = Some(at);
        self.calls.count(at);
        Ok(command)
    }

    /// Returns the error for an unknown command, for clients that have logged in with a remedy.
    fn unknown(&self, args: Args<'_>) -> Failure {
        let mut failure = unknown(args);
        if !self.is_outside() && failure.0.starts_with(UNKNOWN.as_bytes()) {
            failure.0.to_mut().extend_from_slice(table::remedy(arg(args, 0)).as_bytes());
        }
        failure
    }

    /// Locks out other commands that write several keys, unless a transaction has done so.
    pub(super) fn order(&self) -> Option<MutexGuard<'_, ()>> {
        self.exclusive.is_none().then(|| self.hub.order())
    }

    /// Returns true if the client has to log in first.
    pub(super) fn is_outside(&self) -> bool {
        !self.client.admitted && self.shared.service.passwords.is_some()
    }

    /// Logs a client in if the password is right. A failure does not log out a client that is
    /// already logged in.
    pub(super) fn log_in(&mut self, user: &[u8], password: &[u8]) -> CommandResult {
        let service = &self.shared.service;
        let slot = match &service.passwords {
            Some(_) => service.log_in(user, password),
            // The only user needs no password.
            None => (user == b"default").then(TenantSlot::default),
        };
        self.counters.increment(Count::AuthCmds);
        let Some(slot) = slot else {
            self.counters.increment(Count::AuthErrors);
            return Err(self.turned_away(WRONG_PASSWORD));
        };
        self.client.admitted = true;
        self.card.names().user = String::from_utf8_lossy(user).into_owned();
        self.enter(slot);
        Ok(())
    }

    /// Makes the client one of the tenant in this slot: its next command has the tenant's routes
    /// and counters.
    pub(super) fn enter(&mut self, slot: TenantSlot) {
        // The keys were those of the previous tenant, as the commands so far were.
        self.client.watched.clear();
        self.card.add_commands(std::mem::take(&mut self.commands));
        self.hub.clients.move_to(self.card, slot);
        self.client.slot = slot;
        self.counters = self.shared.counters(self.thread, slot);
    }

    /// Returns the routes of the client's tenant.
    pub(super) fn routing(&self) -> &Routing {
        self.shared.service.routing(self.client.slot)
    }

    /// Counts a command refused before login and returns its error; the last refusal allowed closes
    /// the connection.
    pub(super) fn turned_away(&mut self, failure: Failure) -> Failure {
        self.client.refusals = self.client.refusals.saturating_add(1);
        self.client.quit |= self.client.refusals >= REFUSALS_MAX && self.shared.service.passwords.is_some();
        failure
    }

    /// Answers a request with an argument over the limit on its length; `args` are the arguments
    /// before it. A value that the command would have overwritten is removed, so that later reads
    /// do not return it.
    pub(super) fn too_large(&mut self, args: Args<'_>, out: &mut Output) {
        self.counters.increment(Count::StoreTooLarge);
        if self.client.transaction.is_some() {
            self.break_transaction();
        } else {
            self.remove_overwritten(args);
        }
        if self.client.replies == Replies::All {
            reply::error(out, &TOO_LONG.0);
        }
        if self.client.replies == Replies::SkipNext {
            self.client.replies = Replies::All;
        }
    }

    /// Removes the key of a command that was to overwrite its value.
    fn remove_overwritten(&self, args: Args<'_>) {
        let overwrites = |name: &[u8]| {
            [&b"set"[..], b"setex", b"psetex", b"getset"].iter().any(|one| name.eq_ignore_ascii_case(one))
        };
        if let (Some(name), Some(key)) = (args.get(0), args.get(1))
            && overwrites(name)
        {
            self.remove(&self.placed_here(key));
        }
    }

    /// Answers a request over the limits that apply to clients which have not logged in.
    pub(super) fn too_large_outside(&self, out: &mut Output) {
        self.counters.increment(Count::ProtocolErrors);
        reply::error(out, b"ERR Protocol error: unauthenticated bulk length");
    }

    /// Answers bytes that are not a request.
    pub(super) fn broken(&self, error: ProtocolError, out: &mut Output) {
        self.counters.increment(Count::ProtocolErrors);
        reply::error(out, format!("ERR {error}").as_bytes());
    }

    /// Returns the properties of the listener that lines of `CLIENT LIST` show.
    pub(super) fn view(&self) -> View<'_> {
        let unix = self.shared.options.bind.unix().map(|place| place.path.as_path());
        View { now: self.moment.now, unix, command: command_name }
    }

    pub(super) fn version(&self) -> Version {
        self.client.version
    }

    pub(super) fn access(&self) -> Access {
        Access::at(self.moment.now)
    }

    /// Returns the access of a command that reads or stores a key, in the class of its deadline.
    pub(super) fn access_in_class(&self, target: Target, name: &[u8]) -> Access {
        Access { class: self.shared.deadline_class(target, name, None), ..self.access() }
    }

    /// Calls `read` with the item of a key, which counts as a use of it.
    pub(super) fn read<R>(&self, key: &[u8], read: impl FnOnce(Old<'_>) -> R) -> Option<R> {
        let found = self.routing().find(key).and_then(|(target, name)| {
            let access = self.access_in_class(target, name);
            let (partition, read) = (target.partition, |item: Item<'_>| Old::of(item).map(read));
            self.drop_untrusted(target, name);
            let found = match &self.exclusive {
                None => self.shared.service.cache.get(partition, name, &access, read),
                Some(exclusive) => exclusive.held.borrow_mut().get(partition, name, &access, read),
            };
            let found = found.flatten();
            // A miss may be fetched, and ends with that.
            match &found {
                Some(_) => self.ended.note_hit(target, name),
                None if target.read_through => self.ended.note_read(target, name),
                None => self.ended.note_miss(target, name),
            }
            found
        });
        self.count_read(found.is_some());
        found
    }

    pub(super) fn count_read(&self, found: bool) {
        self.counters.increment(Count::CmdGet);
        self.counters.increment(if found { Count::GetHits } else { Count::GetMisses });
    }

    /// Calls `read` with the item of a key, without counting as a use.
    pub(super) fn peek<R>(&self, key: &[u8], read: impl FnOnce(Old<'_>) -> R) -> Option<R> {
        let (target, name) = self.routing().find(key)?;
        self.drop_untrusted(target, name);
        self.peek_at(target.partition, name, &self.access(), |item| Old::of(item).map(read))?
    }

    /// Drops the cached value of a key if it may not be trusted.
    #[inline]
    pub(super) fn drop_untrusted(&self, target: Target, name: &[u8]) {
        if self.trust.doubts_values {
            self.drop_doubted(target.partition, name);
        }
    }

    /// Drops the cached value of a key that other nodes may have changed. `EXEC` has done so for
    /// the keys of its transaction, whose locks are held.
    #[cold]
    fn drop_doubted(&self, partition: PartitionId, name: &[u8]) {
        if self.exclusive.is_none() {
            self.shared.service.drop_untrusted(partition, name);
        }
    }

    /// Calls `read` with the item of a key of a partition, without counting as a use.
    pub(super) fn peek_at<R>(
        &self,
        partition: PartitionId,
        name: &[u8],
        access: &Access,
        read: impl FnOnce(Item<'_>) -> R,
    ) -> Option<R> {
        match &self.exclusive {
            None => self.shared.service.cache.peek(partition, name, access, read),
            Some(exclusive) => exclusive.held.borrow_mut().peek(partition, name, access, read),
        }
    }

    /// Returns the time since the last use of an item, as the cache engine has recorded it.
    pub(super) fn idle(&self, key: &[u8]) -> Option<Duration> {
        let (target, name) = self.routing().find(key)?;
        self.drop_untrusted(target, name);
        let last_use = self.peek_at(target.partition, name, &self.access(), |item| item.last_use)?;
        Some(self.shared.service.cache.since(last_use, self.moment.now))
    }

    /// Reads an item and changes it in one atomic step.
    pub(super) fn update<'v, R>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<Old<'_>>) -> (Change<'v>, R),
    ) -> Result<R, Failure> {
        let Changed { target, found, result } = self.change(key, decide)?;
        self.ended.note(target, Operation::Other, found);
        result.map_err(|refused| self.refused(refused))
    }

    /// Makes an [update](Self::update), unless `decide` returns an error: then the item stays
    /// unchanged.
    pub(super) fn try_update<'v, R>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<Old<'_>>) -> Result<(Change<'v>, R), Failure>,
    ) -> Result<R, Failure> {
        self.update(key, |old| match decide(old) {
            Ok((change, result)) => (change, Ok(result)),
            Err(failure) => (Change::Keep, Err(failure)),
        })?
    }

    /// Makes an [update](Self::update) whose end the caller notes.
    pub(super) fn change<'v, R>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<Old<'_>>) -> (Change<'v>, R),
    ) -> Result<Changed<R>, Failure> {
        let (target, name) = self.routing().find(key).ok_or_else(|| Failure::nowhere(key))?;
        self.drop_untrusted(target, name);
        let access = self.access();
        let partition = target.partition;
        let (mut found, keeps) = (false, Cell::new(false));
        let decide = |item: Option<Item<'_>>| {
            let old = item.and_then(Old::of);
            found = old.is_some();
            let (change, result) = decide(old);
            keeps.set(keeps_value(&change));
            (change, result)
        };
        let result = match &self.exclusive {
            None => {
                let Service { cache, .. } = &self.shared.service;
                self.shared.service.write_if(target, name, || {
                    let result = cache.update(partition, name, &access, decide);
                    (result, !keeps.get())
                })
            }
            Some(exclusive) => exclusive.update(target, name, &access, decide),
        };
        Ok(Changed { target, found, result })
    }

    pub(super) fn refused(&self, refused: Refused) -> Failure {
        match refused {
            Refused::KeyTooLong { .. } => {}
            Refused::ValueTooLarge { .. } => self.counters.increment(Count::StoreTooLarge),
            Refused::OverBudget { .. } => self.counters.increment(Count::StoreNoMemory),
        }
        Failure::from(refused)
    }

    /// Removes a key from the cache. Returns true if it existed.
    pub(super) fn remove(&self, key: &[u8]) -> bool {
        let removed = self.routing().find(key).is_some_and(|(target, name)| {
            let (partition, access) = (target.partition, self.access());
            let removed = match &self.exclusive {
                None => {
                    let Service { cache, .. } = &self.shared.service;
                    self.shared.service.write(target, name, || cache.remove(partition, name, &access))
                }
                Some(exclusive) => {
                    let removed = |old: Option<Item<'_>>| (Change::Remove, old.is_some());
                    // A removal is never refused.
                    exclusive.update(target, name, &access, removed).unwrap_or(false)
                }
            };
            self.ended.note(target, Operation::Delete, removed);
            removed
        });
        self.count_removal(removed);
        removed
    }

    pub(super) fn count_removal(&self, removed: bool) {
        self.counters.increment(if removed { Count::DeleteHits } else { Count::DeleteMisses });
    }

    /// Returns the current time in milliseconds since 1970.
    pub(super) fn unix_ms(&self) -> i64 {
        self.unix_ms_of(self.moment.now)
    }

    pub(super) fn unix_ms_of(&self, at: Instant) -> i64 {
        i64::try_from(self.shared.clock.unix(at).as_millis()).unwrap_or(i64::MAX)
    }

    /// Converts a wall time to a monotonic one. A past one becomes now, and one centuries ahead the
    /// latest instant before `NEVER`.
    pub(super) fn instant(&self, unix_ms: i64) -> Instant {
        let wall = std::time::Duration::from_millis(u64::try_from(unix_ms).unwrap_or(0));
        let at = self.shared.clock.at_unix(wall).max(self.moment.now);
        at.min(Instant::from_nanos(Instant::NEVER.as_nanos() - 1))
    }
}

/// Number of arguments of a command that are not counted as work, since the bound on input limits
/// it.
const ARGUMENTS_FREE: usize = 16;

/// Beginning of the error for an unknown command, as in Redis.
const UNKNOWN: &str = "ERR unknown command '";
/// Work of finding the command that an unknown name was probably meant to be: some microseconds.
const UNKNOWN_WORK: u64 = 32 << 10;

/// Maximum number of bytes of a client's argument that an error repeats, as in Redis.
const QUOTED_MAX: usize = 128;

/// Returns the name of the command at a position in the command table.
pub(super) fn command_name(at: usize) -> &'static str {
    table::at(at).name
}

/// Returns the argument of a command at `index`, or an empty one if it is missing, which the check
/// of the command's arity has excluded.
pub(super) fn arg(args: Args<'_>, index: usize) -> &[u8] {
    args.get(index).unwrap_or_default()
}

/// Parses an argument that has to be an integer.
pub(super) fn number(text: &[u8]) -> Result<i64, Failure> {
    integer(text).ok_or(NOT_AN_INTEGER)
}

/// Returns true if the argument `text` is this word, in any case.
pub(super) fn is(text: &[u8], word: &str) -> bool {
    text.eq_ignore_ascii_case(word.as_bytes())
}

/// Returns true if an HTTP request begins with the command name `name`. A web page may make a
/// browser send commands to a local port in the body of a request, so the connection is closed
/// before the body is read, as in Redis.
fn is_http(name: &[u8]) -> bool {
    is(name, "post") || is(name, "host:")
}

/// Returns Redis's error for an unknown command.
fn unknown(args: Args<'_>) -> Failure {
    let name = arg(args, 0);
    let of_scripts = ["eval_ro", "evalsha_ro", "fcall", "fcall_ro", "function"];
    if of_scripts.iter().any(|one| is(name, one)) {
        return SCRIPTS;
    }
    if is(name, "swapdb") {
        return SWAP;
    }
    let list = "', with args beginning with: ";
    let mut failure = Failure::about(UNKNOWN, &name[..name.len().min(QUOTED_MAX)], list);
    let text = failure.0.to_mut();
    let start = text.len();
    for arg in args.from(1) {
        let Some(room @ 1..) = QUOTED_MAX.checked_sub(text.len() - start) else { break };
        text.push(b'\'');
        text.extend_from_slice(quoted(&arg[..arg.len().min(room)]));
        text.extend_from_slice(b"' ");
    }
    failure
}

impl Command {
    /// Returns true if the command accepts `len` arguments, its own name included.
    fn takes(&self, len: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exactly) => len == exactly,
            Err(_) => len >= self.arity.unsigned_abs() as usize,
        }
    }
}
