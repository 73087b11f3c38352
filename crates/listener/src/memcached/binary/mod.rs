//! memcached's binary protocol as a conversation: parses requests, executes them, and gathers the
//! misses of consecutive gets, to fetch them together.
//!
//! A client that asks for many keys sends one get for each, most of them quiet, and then a `noop`.
//! So misses are gathered until another command follows, no input is left or the output is full,
//! and fetched before that command is executed.
//!
//! | file | content |
//! |---|---|
//! | `get` | `get`, `gat` and `touch` |
//! | `misses` | keys that are fetched, and the places of their values in the output |
//! | `storage` | commands that store or remove a value |
//! | `count` | `increment` and `decrement` |
//! | `through` | commands of a write-through listener that change values |
//! | `login` | login by SASL |

mod count;
mod get;
mod login;
mod misses;
mod storage;
#[cfg(test)]
mod tests;
mod through;

use std::sync::Arc;

use sherwood_cache::Refused;
use sherwood_wire::memcached::Limits;
use sherwood_wire::memcached::binary::{Ahead, Command, Echo, Event, Parser, Request, Status, response};

use crate::ahead::prefetch;
use crate::clock::Moment;
use crate::conversation::{Advance, Conversation, Fetched, NextStep, Stored};
use crate::counters::Count;
use crate::input::Input;
use crate::memcached::session::Session;
use crate::memcached::stats::Group;
use crate::output::Output;
use crate::shared::{REFUSED_CHANGE, Shared};
use crate::store::StoreWrite;
use crate::tenants::TenantSlot;
use crate::work::{COUNTERS, FLUSH};
use login::{LoginStep, SaslLogin};
use misses::{Miss, Misses};
use through::Acknowledgement;

/// The limits before the login, under which no value is accepted.
const OUTSIDE: Limits = Limits { value_bytes_max: 0 };

/// The state of one client of the binary protocol.
pub(crate) struct Client {
    shared: Arc<Shared>,
    thread: usize,
    parser: Parser,
    login: SaslLogin,
    /// The slot of the client's tenant.
    slot: TenantSlot,
    misses: Misses,
    /// The answer to a write that the store has not acknowledged yet.
    storing: Option<Acknowledgement>,
}

/// The next step of a connection after a request.
enum AfterRequest {
    /// Execute the next request.
    Continue,
    /// Fetch a key, together with those of the gets that follow.
    Fetch(Miss),
    /// Send a write to the store, and answer once it is acknowledged.
    Store(StoreWrite, Acknowledgement),
    /// Close the connection after sending the output.
    Close,
}

/// An error that a request is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    status: Status,
    text: &'static str,
}

/// The error of a storage command whose key matches no route to a partition.
const NO_BACKEND: Failure =
    Failure { status: Status::NotSupported, text: "no backend for this key's prefix" };

/// The error of a change that other nodes would miss.
const UNTOLD: Failure = Failure { status: Status::TemporaryFailure, text: REFUSED_CHANGE };

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, text: status.text() }
    }
}

impl Client {
    /// Starts the conversation of a new client on thread number `thread`.
    pub(super) fn open(shared: &Arc<Shared>, thread: usize) -> Self {
        let login = SaslLogin::new(shared.service.passwords.is_some());
        let limits = if login.is_outside() { OUTSIDE } else { shared.options.limits() };
        Self {
            shared: Arc::clone(shared),
            thread,
            parser: Parser::new(limits),
            login,
            slot: TenantSlot::default(),
            misses: Misses::default(),
            storing: None,
        }
    }
}

impl Conversation for Client {
    fn advance(&mut self, moment: Moment, input: Input<'_>, output: &mut Output) -> Advance {
        let Self { shared, thread, parser, login, slot, misses, storing } = self;
        let Input { bytes: input, received } = input;
        let mut session = Session::new(shared, *thread, *slot, received);
        let (mut consumed, mut ahead) = (0, 0);
        while !output.is_full(&shared.options) && !misses.are_full() {
            let before = *parser;
            let parsed = parser.parse(&input[consumed..]);
            if !misses.is_empty() && !is_get(&parsed.event) {
                *parser = before;
                return Advance { consumed, next: misses.fetch() };
            }
            consumed += parsed.consumed;
            if consumed >= ahead && consumed < input.len() {
                let mut keys = Ahead::of(&input[consumed..]);
                prefetch(&shared.service, session.routing, &mut keys);
                ahead = input.len() - keys.left();
            }
            let request = match parsed.event {
                Event::Request(request) => request,
                Event::Incomplete { need } => return Advance { consumed, next: NextStep::Need(need) },
                Event::Refused { echo, status, close } => {
                    session.counters.increment(Count::ProtocolErrors);
                    if login.refuse(echo, status, output) || close {
                        return Advance { consumed, next: NextStep::HangUp };
                    }
                    continue;
                }
                Event::Lost => {
                    session.counters.increment(Count::ProtocolErrors);
                    return Advance { consumed, next: NextStep::HangUp };
                }
            };
            match login.step(&session, &request, output) {
                LoginStep::Execute => {}
                LoginStep::Answered => continue,
                LoginStep::HangUp => return Advance { consumed, next: NextStep::HangUp },
                LoginStep::Admit(admitted) => {
                    (*slot, *parser) = (admitted, Parser::new(shared.options.limits()));
                    session = Session::new(shared, *thread, *slot, received);
                    continue;
                }
            }
            match session.execute_binary(moment, &request, output) {
                AfterRequest::Continue => {}
                AfterRequest::Fetch(miss) => misses.add(miss),
                AfterRequest::Store(write, acknowledgement) => {
                    *storing = Some(acknowledgement);
                    return Advance { consumed, next: NextStep::Store(vec![write]) };
                }
                AfterRequest::Close => return Advance { consumed, next: NextStep::Close },
            }
        }
        let next = if misses.is_empty() { NextStep::Send } else { misses.fetch() };
        Advance { consumed, next }
    }

    fn slot(&self) -> TenantSlot {
        self.slot
    }

    fn kept_bytes(&self) -> usize {
        self.misses.kept_bytes()
    }

    fn is_outside(&self) -> bool {
        self.login.is_outside()
    }

    fn keys_ahead(input: &[u8]) -> impl Iterator<Item = &[u8]> {
        Ahead::of(input)
    }

    fn resume(&mut self, moment: Moment, fetched: Fetched, output: &mut Vec<u8>) {
        let Self { shared, thread, slot, misses, .. } = self;
        misses.answer(&Session::new(shared, *thread, *slot, None), moment, fetched, output);
    }

    fn resume_stored(&mut self, stored: Stored, output: &mut Vec<u8>) {
        if let Some(acknowledgement) = self.storing.take() {
            acknowledgement.append(&stored, output);
        }
    }
}

/// Returns true for a get, whose miss can be fetched together with earlier ones.
fn is_get(event: &Event<'_>) -> bool {
    matches!(event, Event::Request(Request { command: Command::Get { .. }, .. }))
}

impl Session<'_> {
    /// Executes a request and appends its answer to `out`.
    fn execute_binary(&self, moment: Moment, request: &Request<'_>, out: &mut Output) -> AfterRequest {
        let Request { echo, quiet, cas, command } = *request;
        if let Some(after) = self.binary_write_through(moment, request, out) {
            return after;
        }
        if self.trust.refuses_changes && self.binary_refuses(moment, request) {
            UNTOLD.append(echo, out);
            return AfterRequest::Continue;
        }
        let outcome = match command {
            Command::Get { key, with_key, touch } => {
                let miss = self.binary_get(moment, request, key, with_key, touch, out);
                return miss.map_or(AfterRequest::Continue, AfterRequest::Fetch);
            }
            Command::Arithmetic { key, delta, initial, create } => {
                match self.binary_count(moment, key, cas, delta, create.map(|exptime| (initial, exptime))) {
                    Ok(_) if quiet => {}
                    Ok((number, cas)) => response::number(out, echo, number, cas),
                    Err(failure) => failure.append(echo, out),
                }
                return AfterRequest::Continue;
            }
            Command::Stat { group } => {
                out.work.add(COUNTERS * self.routing.partitions().len() as u64);
                self.binary_stat(moment, echo, group, out);
                return AfterRequest::Continue;
            }
            Command::Version => {
                response::text(out, echo, crate::VERSION);
                return AfterRequest::Continue;
            }
            Command::Quit => {
                if !quiet {
                    response::success(out, echo, 0);
                }
                return AfterRequest::Close;
            }
            Command::Touch { key, exptime } => {
                self.binary_touch(moment, echo, key, exptime, out);
                return AfterRequest::Continue;
            }
            Command::Storage(storage) => self.binary_store(moment, &storage, cas, &mut out.work),
            Command::TooLarge { verb, key } => self.binary_too_large(moment, verb, key),
            Command::Delete { key } => self.binary_delete(moment, key, cas),
            Command::Flush { delay } => {
                out.work.add(FLUSH * self.routing.partitions().len() as u64);
                self.flush_all(moment, delay);
                Ok(0)
            }
            Command::NoOp | Command::Verbosity => Ok(0),
            // The login has answered these.
            Command::SaslMechanisms | Command::SaslAuth { .. } | Command::SaslStep { .. } => Ok(0),
        };
        match outcome {
            Ok(_) if quiet => {}
            Ok(cas) => response::success(out, echo, cas),
            Err(failure) => failure.append(echo, out),
        }
        AfterRequest::Continue
    }

    fn binary_stat(&self, moment: Moment, echo: Echo, group: &[u8], out: &mut Vec<u8>) {
        let Some(group) = Group::named(group) else {
            return response::error(out, echo, Status::NotFound);
        };
        let mut stat = |name: &str, value: &str| response::stat(out, echo, name, value);
        group.list(self.shared, self.slot, moment, &mut stat);
        response::success(out, echo, 0);
    }

    /// Counts a storage command that the cache refused, and returns the error.
    fn binary_refused(&self, refused: Refused) -> Failure {
        match refused {
            Refused::KeyTooLong { .. } => Status::InvalidArguments.into(),
            Refused::ValueTooLarge { .. } => {
                self.counters.increment(Count::StoreTooLarge);
                Status::TooLarge.into()
            }
            Refused::OverBudget { .. } => {
                self.counters.increment(Count::StoreNoMemory);
                Status::OutOfMemory.into()
            }
        }
    }
}

impl Failure {
    fn append(self, echo: Echo, out: &mut Vec<u8>) {
        response::error_text(out, echo, self.status, self.text);
    }
}
