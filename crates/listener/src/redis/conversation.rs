//! A Redis client's conversation: parses requests, executes them and keeps unfinished commands for
//! later.

use std::sync::Arc;

use sherwood_wire::resp::{Ahead, Event, Limits, Parser};

use super::Hub;
use super::aside::Aside;
use super::clients::{CARD_BYTES_MAX, Card};
use super::session::{Session, State};
use crate::ahead::prefetch;
use crate::clock::Moment;
use crate::conversation::{Advance, Conversation, Conversations, Fetched, NextStep, Stored};
use crate::foreign::refuse;
use crate::input::Input;
use crate::kept::KeptMemory;
use crate::output::Output;
use crate::shared::Shared;
use crate::sockets::Peer;
use crate::tenants::TenantSlot;

/// The Redis protocol, as a listener serves it.
pub(crate) struct Redis {
    hub: Arc<Hub>,
}

impl Redis {
    /// Creates the protocol of one listener; `seed` starts the random sequence of `RANDOMKEY`.
    pub(crate) fn new(seed: u64) -> Self {
        Self { hub: Hub::new(seed) }
    }
}

impl Conversations for Redis {
    type Conversation = Client;

    const NAME: &'static str = "redis";
    const THREADS: &'static str = "sherwood-rd";
    const TOO_MANY: &'static [u8] = b"-ERR max number of clients reached\r\n";
    const UNCOUNTED_BYTES_MAX: usize = CARD_BYTES_MAX;

    fn open(&self, shared: &Arc<Shared>, thread: usize) -> Client {
        let card = self.hub.clients.enter(shared.clock.now());
        Client {
            hub: Arc::clone(&self.hub),
            shared: Arc::clone(shared),
            thread,
            parser: Parser::new(limits(shared, false)),
            state: State::default(),
            kept: KeptMemory::new(Arc::clone(&shared.service.buffers)),
            has_spoken: false,
            card,
        }
    }
}

/// Executes the commands at the start of `input`, until one is incomplete or the client has to
/// wait. Returns the length of their bytes, and the next step.
#[inline]
fn converse(
    session: &mut Session<'_>,
    parser: &mut Parser,
    input: &[u8],
    output: &mut Output,
) -> (usize, NextStep) {
    let (mut consumed, mut ahead) = (0, 0);
    let next = loop {
        if let Some(next) = session.go_on(output) {
            break next;
        }
        if session.client.quit {
            break NextStep::Close;
        }
        if output.is_full(&session.shared.options) {
            break NextStep::Send;
        }
        let parsed = parser.parse(&input[consumed..]);
        consumed += parsed.consumed;
        if consumed >= ahead && consumed < input.len() {
            let mut keys = Ahead::of(&input[consumed..]);
            prefetch(&session.shared.service, session.routing(), &mut keys);
            ahead = input.len() - keys.left();
        }
        match parsed.event {
            Event::Incomplete { need } => break NextStep::Need(need),
            Event::Request(args) => {
                let outside = session.is_outside();
                session.execute(args, output);
                if session.is_outside() != outside {
                    *parser = Parser::new(limits(session.shared, outside));
                }
            }
            Event::TooLarge(_) if session.is_outside() => {
                session.too_large_outside(output);
                break NextStep::HangUp;
            }
            Event::TooLarge(args) => session.too_large(args, output),
            Event::Broken(error) => {
                session.broken(error, output);
                break NextStep::HangUp;
            }
        }
        session.commands += 1;
    };
    (consumed, next)
}

/// Returns the limits of a client's request parser, which are lower until it has logged in.
fn limits(shared: &Shared, admitted: bool) -> Limits {
    if admitted || shared.service.passwords.is_none() { super::limits(&shared.options) } else { OUTSIDE }
}

/// Limits of the request parser before login: 16 KiB per argument, Redis's bound, and two such
/// arguments per request.
const OUTSIDE: Limits = Limits { argument_bytes_max: 16 << 10, request_bytes_max: 32 << 10 };

/// The state of one Redis client.
pub(crate) struct Client {
    hub: Arc<Hub>,
    shared: Arc<Shared>,
    thread: usize,
    parser: Parser,
    state: State,
    /// The client's part of the budget of kept memory.
    kept: KeptMemory,
    /// True after the first bytes of the client, which tell that it speaks this protocol.
    has_spoken: bool,
    card: Arc<Card>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.hub.clients.leave(&self.card);
    }
}

impl Conversation for Client {
    fn advance(&mut self, moment: Moment, input: Input<'_>, output: &mut Output) -> Advance {
        let Input { bytes: input, received } = input;
        let Self { hub, shared, thread, parser, state, kept, has_spoken, card } = self;
        let (thread, counters) = (*thread, shared.counters(*thread, state.slot));
        let calls = hub.calls.of(thread, shared.options.threads);
        if !*has_spoken && let Some(next) = refuse(shared, counters, Redis::NAME, moment, input, output) {
            return Advance { consumed: 0, next };
        }
        let mut session = Session {
            shared,
            hub,
            thread,
            counters,
            ended: shared.ended(thread),
            client: state,
            kept,
            card,
            moment,
            commands: 0,
            last: None,
            calls,
            received,
            trust: shared.shared_trust(),
            exclusive: None,
        };
        let (consumed, next) = converse(&mut session, parser, input, output);
        session.card.note(moment.now, session.commands, session.last);
        session.give_back();
        *has_spoken |= consumed > 0;
        Advance { consumed, next }
    }

    #[inline]
    fn kept_bytes(&self) -> usize {
        // Mostly it keeps nothing but the parser's buffers.
        self.parser.capacity() + if self.state.keeps_some() { self.state.own_bytes() } else { 0 }
    }

    fn introduce(&mut self, peer: Peer) {
        self.card.introduce(peer);
    }

    fn slot(&self) -> TenantSlot {
        self.state.slot
    }

    fn is_outside(&self) -> bool {
        !self.state.admitted && self.shared.service.passwords.is_some()
    }

    fn keys_ahead(input: &[u8]) -> impl Iterator<Item = &[u8]> {
        Ahead::of(input)
    }

    fn resume(&mut self, moment: Moment, fetched: Fetched, output: &mut Vec<u8>) {
        let Self { hub, shared, thread, state, kept, card, .. } = self;
        let (thread, counters) = (*thread, shared.counters(*thread, state.slot));
        let calls = hub.calls.of(thread, shared.options.threads);
        let (client, exclusive) = (state, None);
        let mut session = Session {
            shared,
            hub,
            thread,
            counters,
            ended: shared.ended(thread),
            client,
            kept,
            card,
            moment,
            commands: 0,
            last: None,
            calls,
            received: None,
            trust: shared.shared_trust(),
            exclusive,
        };
        session.resume(fetched, output);
    }

    fn resume_stored(&mut self, stored: Stored, output: &mut Vec<u8>) {
        if let Some(Aside::Writes(writes)) = self.state.aside.take() {
            writes.answer(stored, output);
        }
    }
}
