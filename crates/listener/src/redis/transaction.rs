//! Transactions: `MULTI`, `EXEC` and `DISCARD`.
//!
//! The commands after `MULTI` are checked and kept. `EXEC` locks the shards of all their keys in
//! ascending order, executes them, and unlocks: no other access to the cache, by whatever protocol,
//! comes between. Values of the commands' keys that a read-through listener does not have are
//! fetched before the locks are taken, since nothing waits under them.
//!
//! A transaction has at most [`COMMANDS_MAX`] commands; the bytes of their arguments and of their
//! answers are bounded as well, and so is their work: one that would do more executes nothing. The
//! memory of all clients' transactions is bounded by the budget of [kept memory](crate::kept). A
//! command that would exceed a bound is refused, and the transaction with it. Commands that look at
//! every key are refused, as are those that
//! would change how the answers are written, and changes that have to reach a store first.

use std::cell::RefCell;
use std::collections::HashMap;

use bytes::Bytes;
use sherwood_model::PartitionId;
use sherwood_wire::resp::{Args, KeptRequests, reply};

use super::aside::Aside;
use super::failure::Failure;
use super::gathering::{GatheredKeys, Gathering, Then};
use super::multi::{ANSWER_BYTES_MAX, COMMANDS_MAX, Exclusive, Transaction, Watched, WatchedKeys, bytes_max};
use super::session::{CommandResult, Session};
use super::table::Command;
use super::through::untold;
use crate::backends::FetchResult;
use crate::output::Output;
use crate::work::COMMAND_MAX;

const EXEC_ABORT: Failure = Failure::text("EXECABORT Transaction discarded because of previous errors.");
const TOO_MANY: Failure = Failure::text(
    "ERR a transaction has at most 1024 commands and 8 MiB of arguments; send the rest in another one",
);
const TOO_MANY_KEYS: Failure = Failure::text(
    "ERR a transaction changes at most 13,000 keys, or reads 26,000, and half as many where the listener has backends; \
     send the rest in another one",
);
const ANSWER_TOO_LONG: Failure = Failure::text(
    "ERR not executed: the transaction's answers exceed 8 MiB; read fewer or smaller values in one",
);

/// The keys that a transaction reads or changes, without the prefixes of their routes.
#[derive(Default)]
struct Keys<'k> {
    all: Vec<(PartitionId, &'k [u8])>,
    written: Vec<(PartitionId, &'k [u8])>,
    /// The partitions that it flushes.
    flushed: Vec<PartitionId>,
}

impl<'k> Keys<'k> {
    /// Returns the keys of queued commands and the watched ones.
    fn of(session: &Session<'_>, queue: &'k KeptRequests, watched: &'k WatchedKeys) -> Self {
        let routing = session.routing();
        let mut keys = Self::default();
        for args in queue.iter() {
            let Some(command) = Command::of(args) else { continue };
            let writes = command.flags.contains(&"write");
            if command.flushes() {
                keys.flushed = routing.partitions();
            }
            for key in command.keys_of(args) {
                let Some((target, name)) = routing.find(key) else { continue };
                keys.all.push((target.partition, name));
                if writes {
                    keys.written.push((target.partition, name));
                }
            }
        }
        keys.all.extend(watched.iter().map(Watched::place));
        keys
    }
}

/// Executes the Redis command `MULTI`.
pub(super) fn multi(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    if session.client.transaction.is_some() {
        return Err(Failure::text("ERR MULTI calls can not be nested"));
    }
    session.client.transaction = Some(Box::default());
    session.card.note_queued(Some(0));
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Executes the Redis command `DISCARD`.
pub(super) fn discard(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    session.take_transaction().ok_or(Failure::text("ERR DISCARD without MULTI"))?;
    session.client.watched.clear();
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Executes the Redis command `EXEC`.
pub(super) fn exec(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    let transaction = session.take_transaction().ok_or(Failure::text("ERR EXEC without MULTI"))?;
    if transaction.broken || session.client.watched.broken {
        session.client.watched.clear();
        return Err(EXEC_ABORT);
    }
    // Once, and not again when missing values have been fetched: the commands would not find a
    // value that was not missing. Under the locks it is too late.
    session.drop_untrusted_of(&transaction.queue);
    session.drop_untrusted_watched();
    let missing = session.missing_of(&transaction.queue);
    match missing {
        Ok(missing) if missing.is_empty() => session.execute_all(&transaction, HashMap::new(), out),
        missing => {
            let gathered = missing.and_then(|missing| session.gather(missing, Then::Execute(transaction)));
            return gathered.map_err(|failure| session.aborted(&failure));
        }
    }
    Ok(())
}

impl<'a> Session<'a> {
    /// Keeps a command of a transaction for `EXEC`.
    pub(super) fn enqueue(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
        out: &mut Output,
    ) -> CommandResult {
        let (refusal, added) = (self.refusal(command, args), self.queued_work(command, args));
        let bytes_max = bytes_max(super::limits(&self.shared.options).request_bytes_max);
        if let Some(failure) = refusal {
            self.break_transaction();
            return Err(failure);
        }
        let Some(Transaction { queue, broken, work }) = self.client.transaction.as_deref_mut() else {
            return Ok(());
        };
        work.add(added);
        // As in Redis, commands are answered alike after an error, but not kept.
        if !*broken {
            let memory = queue.capacity_with(args, bytes_max).filter(|_| queue.len() < COMMANDS_MAX);
            let more = memory.map(|memory| memory - queue.capacity()).ok_or(TOO_MANY);
            let more = if work.units() > COMMAND_MAX { Err(TOO_MANY_KEYS) } else { more };
            if let Err(failure) = more.and_then(|more| self.keep(more)) {
                self.break_transaction();
                return Err(failure);
            }
        }
        if let Some(Transaction { queue, broken: false, .. }) = self.client.transaction.as_deref_mut() {
            let is_kept = queue.push(args, bytes_max);
            debug_assert!(is_kept, "there is room for it");
            self.card.note_queued(Some(queue.len()));
        }
        reply::simple(out, "QUEUED");
        Ok(())
    }

    /// Takes memory from the budget for `more` bytes in addition to those that the client keeps
    /// now.
    ///
    /// # Errors
    /// If too little of the budget is left.
    pub(super) fn keep(&mut self, more: usize) -> Result<(), Failure> {
        if self.kept.grow_to(self.client.kept_bytes() + more) {
            return Ok(());
        }
        Err(Failure(format!("ERR {}", self.kept.refusal()).into_bytes().into()))
    }

    /// Returns to the budget the memory that the client does not keep any more.
    pub(super) fn give_back(&mut self) {
        if !self.kept.is_empty() {
            self.kept.shrink_to(self.client.kept_bytes());
        }
    }

    /// Fetches keys before the command that needs them is executed.
    ///
    /// # Errors
    /// If too little of the budget is left for the memory of the keys.
    pub(super) fn gather(&mut self, keys: GatheredKeys, then: Then) -> CommandResult {
        let gathering = Gathering::new(keys, then);
        self.keep(gathering.memory())?;
        self.client.aside = Some(Aside::Gathering(gathering));
        Ok(())
    }

    /// Records that a command of the transaction, if there is one, was refused.
    pub(super) fn break_transaction(&mut self) {
        if let Some(transaction) = &mut self.client.transaction {
            transaction.refuse();
        }
    }

    /// Ends the transaction after an `EXEC` that was itself refused; the error says so.
    pub(super) fn abort(&mut self, failure: Failure) -> Failure {
        if self.take_transaction().is_none() {
            return failure;
        }
        self.aborted(&failure)
    }

    /// Forgets the watched keys, and returns the error of an `EXEC` that was not executed because
    /// of `failure`.
    fn aborted(&mut self, failure: &Failure) -> Failure {
        self.client.watched.clear();
        Failure::about("EXECABORT Transaction discarded because of: ", &failure.0, "")
    }

    fn take_transaction(&mut self) -> Option<Box<Transaction>> {
        let transaction = self.client.transaction.take()?;
        self.card.note_queued(None);
        Some(transaction)
    }

    /// Returns the reason for which a transaction cannot contain this command, if there is one.
    fn refusal(&self, command: &Command, args: Args<'_>) -> Option<Failure> {
        let about = |text| Some(Failure::about("ERR '", command.name.as_bytes(), text));
        match command.name {
            "keys" | "scan" | "dbsize" | "randomkey" => about(
                "' is refused inside MULTI: it looks at all keys, and a transaction locks only those it names; send it before",
            ),
            "select" | "move" | "flushdb" if self.has_databases() => about(
                "' is refused inside MULTI where the listener has several databases: the transaction's keys are those of \
                 the database that was selected before; send it before or after",
            ),
            "lcs" => about(
                "' is refused inside MULTI: it takes long, and the keys would be locked meanwhile; send it outside",
            ),
            "auth" | "hello" | "client|reply" => {
                about("' is refused inside MULTI: it changes how later commands are answered; send it before")
            }
            _ if self.routing().writes_through() && self.changes_a_store(command, args) => about(
                "' is refused inside MULTI by a write-through listener: the store has no transactions; send it outside \
                 (a pipeline without MULTI, such as redis-py's pipeline(transaction=False))",
            ),
            _ => None,
        }
    }

    /// Executes the command for which values were gathered, and answers it.
    pub(super) fn finish(&mut self, gathering: Gathering, out: &mut Output) {
        let before = out.mark();
        match gathering.then {
            Then::Execute(transaction) => self.execute_all(&transaction, gathering.fetched, out),
            Then::Watch(keys) => {
                self.watch_all(keys);
                out.extend_from_slice(reply::OK);
            }
        }
        if gathering.muted {
            out.reset(before);
        }
    }

    /// Drops the cached values of the keys of queued commands that may not be trusted.
    fn drop_untrusted_of(&self, queue: &KeptRequests) {
        if !self.trust.doubts_values {
            return;
        }
        let routing = self.routing();
        let keys = |args| Command::of(args).into_iter().flat_map(move |command| command.keys_of(args));
        for (target, name) in queue.iter().flat_map(keys).filter_map(|key| routing.find(key)) {
            self.drop_untrusted(target, name);
        }
    }

    /// Returns the keys of a transaction's `GET` and `MGET` that are to be fetched, each once.
    fn missing_of(&self, queue: &KeptRequests) -> Result<GatheredKeys, Failure> {
        let reads = queue.iter().filter(|args| Command::of(*args).is_some_and(Command::reads_through));
        self.missing(reads.flat_map(|args| args.from(1)))
    }

    /// Executes the commands of a transaction, unless a watched key has changed, and answers.
    /// `fetched` has what was missing before.
    pub(super) fn execute_all(
        &mut self,
        transaction: &Transaction,
        fetched: HashMap<(PartitionId, Bytes), FetchResult>,
        out: &mut Output,
    ) {
        let watched = std::mem::take(&mut self.client.watched);
        let received = self.received.take();
        let keys = Keys::of(self, &transaction.queue, &watched);
        if self.trust.refuses_changes && transaction.queue.iter().any(|args| self.refuses_queued(args)) {
            return reply::error(out, &untold().0);
        }
        self.exclusively(&keys, fetched, &mut |session| {
            if !watched.iter().all(|watched| session.is_unchanged(watched)) {
                return reply::null_array(out, session.version());
            }
            match session.work_of_all(&transaction.queue) {
                Ok(work_max) => {
                    let before = out.work.units();
                    out.work.add(transaction.work.units());
                    session.execute_each(&transaction.queue, out);
                    debug_assert!(out.work.units() - before <= work_max, "more work than was estimated");
                }
                Err(failure) => reply::error(out, &failure.0),
            }
        });
        self.received = received;
    }

    /// Returns true for a queued command that has to be refused ([`Session::refuses`]).
    fn refuses_queued(&self, args: Args<'_>) -> bool {
        Command::of(args).is_some_and(|command| self.refuses(command, args))
    }

    /// Calls `run` once, while the shards of `keys` are locked and no fetch can fill those that are
    /// written.
    fn exclusively(
        &mut self,
        keys: &Keys<'_>,
        fetched: HashMap<(PartitionId, Bytes), FetchResult>,
        run: &mut dyn FnMut(&mut Self),
    ) {
        let (service, now) = (&self.shared.service, self.moment.now);
        // Other commands on several keys lock one shard after the other: each is done or not begun.
        let _order = self.hub.order();
        let mut fetched = Some(fetched);
        let mut change = || {
            let held = match keys.flushed[..] {
                [] => service.cache.hold(keys.all.iter().copied(), now),
                _ => service.cache.hold_all(now),
            };
            let fetched = fetched.take().unwrap_or_default();
            let changed = RefCell::default();
            self.exclusive = Some(Exclusive { held: RefCell::new(held), changed, fetched });
            run(self);
            self.exclusive.take().map(|exclusive| exclusive.changed.into_inner()).unwrap_or_default()
        };
        match &service.backends {
            Some(backends) if !(keys.written.is_empty() && keys.flushed.is_empty()) => {
                backends.write_all(&keys.written, &keys.flushed, now, &mut change);
            }
            _ => {
                change();
            }
        }
    }

    fn execute_each(&mut self, queue: &KeptRequests, out: &mut Output) {
        reply::array(out, queue.len());
        for args in queue.iter() {
            let before = out.mark();
            let result = match Command::of(args) {
                _ if is_full(out) => Err(ANSWER_TOO_LONG),
                Some(command) => (command.run)(self, args, out),
                None => Err(Failure::arity("exec")),
            };
            if let Err(failure) = result {
                out.reset(before);
                reply::error(out, &failure.0);
            }
            self.forget_fetched(args);
            self.commands += 1;
        }
    }

    /// Drops the fetched values of keys that a command of the transaction may have changed.
    fn forget_fetched(&mut self, args: Args<'_>) {
        let Some(command) = Command::of(args).filter(|command| command.flags.contains(&"write")) else {
            return;
        };
        let service = &self.shared.service;
        let routing = service.routing(self.client.slot);
        let Some(Exclusive { fetched, .. }) = &mut self.exclusive else { return };
        if fetched.is_empty() {
            return;
        }
        if command.flushes() {
            fetched.clear();
        }
        for (target, name) in command.keys_of(args).filter_map(|key| routing.find(key)) {
            fetched.remove(&(target.partition, Bytes::copy_from_slice(name)));
        }
    }

    /// Appends the values of the keys from argument `first` on, of a command in a transaction.
    pub(super) fn values_at_once(&self, args: Args<'_>, first: usize, out: &mut Output) -> CommandResult {
        for key in args.from(first) {
            if is_full(out) {
                return Err(ANSWER_TOO_LONG);
            }
            if !self.answer_hit(key, out) {
                self.answer_fetched(key, out);
            }
        }
        Ok(())
    }

    fn answer_fetched(&self, key: &[u8], out: &mut Output) {
        let place =
            self.routing().find(key).map(|(target, name)| (target.partition, Bytes::copy_from_slice(name)));
        let fetched =
            self.exclusive.as_ref().zip(place).and_then(|(exclusive, place)| exclusive.fetched.get(&place));
        match fetched {
            Some(result) => super::aside::answer(result, self.version(), out),
            None => reply::null(out, self.version()),
        }
    }
}

/// Returns true if no further command of a transaction is executed, since its answers are long.
fn is_full(out: &Output) -> bool {
    out.len() >= ANSWER_BYTES_MAX
}
