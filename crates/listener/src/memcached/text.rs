//! memcached's text protocol as a conversation: parses commands, executes them and keeps unfinished
//! ones for later.

use std::sync::Arc;

use sherwood_wire::memcached::binary::is_binary;
use sherwood_wire::memcached::{Ahead, Event, Exptime, Keys, Meta, Parser, Retrieval, reply};

use super::login::{Login, LoginOutcome, LoginStep};
use super::retrieval::{Misses, Portion};
use super::session::{AfterCommand, Session};
use super::through::{Answer, ClientWrite};
use super::{Memcached, binary};
use crate::ahead::prefetch;
use crate::clock::Moment;
use crate::conversation::{Advance, Conversation, Conversations, Fetched, NextStep, Stored};
use crate::counters::Count;
use crate::foreign::refuse;
use crate::input::Input;
use crate::output::Output;
use crate::shared::Shared;
use crate::tenants::TenantSlot;

/// The state of one client of the text protocol.
pub(crate) struct Client {
    shared: Arc<Shared>,
    thread: usize,
    parser: Parser,
    /// The client's login, until it has succeeded.
    login: Option<Login>,
    /// The slot of the client's tenant.
    slot: TenantSlot,
    /// True after the first bytes of the client, which tell that it speaks this protocol.
    has_spoken: bool,
    /// An unfinished command of the client.
    aside: Option<Aside>,
    misses: Misses,
}

/// An unfinished command that is continued after output was sent or keys were fetched.
enum Aside {
    Keys(KeyList),
    /// An `mg` whose key is being fetched; its line is at most
    /// [`LINE_BYTES_MAX`](sherwood_wire::memcached::LINE_BYTES_MAX) bytes long.
    Get {
        key: Vec<u8>,
        flags: Vec<u8>,
    },
    /// A write at the store, and its answer.
    Store(Answer),
}

/// The remaining keys of a `get` command, at most
/// [`KEYS_BYTES_MAX`](sherwood_wire::memcached::KEYS_BYTES_MAX) bytes of them.
struct KeyList {
    text: Vec<u8>,
    /// Bytes of `text` whose keys have been looked up.
    done: usize,
    cas: bool,
    touch: Option<Exptime>,
    last: bool,
    /// True if the command has no other keys than the first, so that an error is about that one.
    alone: bool,
    /// The text of the error that ends the command, if its only key was rejected.
    rejection: Option<String>,
}

impl KeyList {
    fn retrieval(&self) -> Retrieval<'_> {
        let Self { ref text, done, cas, touch, last, .. } = *self;
        Retrieval { keys: Keys::of(&text[done..]), cas, touch, last }
    }
}

impl Conversation for Client {
    #[inline]
    fn advance(&mut self, moment: Moment, input: Input<'_>, output: &mut Output) -> Advance {
        match self.has_spoken {
            true => self.advance_commands(moment, input, output),
            false => self.advance_first(moment, input, output),
        }
    }

    fn slot(&self) -> TenantSlot {
        self.slot
    }

    #[inline]
    fn kept_bytes(&self) -> usize {
        // Mostly there are none.
        if self.aside.is_none() && self.misses.is_empty() { 0 } else { self.unfinished_bytes() }
    }

    fn is_outside(&self) -> bool {
        self.login.is_some()
    }

    fn keys_ahead(input: &[u8]) -> impl Iterator<Item = &[u8]> {
        Ahead::of(input)
    }

    fn resume(&mut self, moment: Moment, fetched: Fetched, output: &mut Vec<u8>) {
        let Self { shared, thread, slot, aside, misses, .. } = self;
        let session = Session::new(shared, *thread, *slot, None);
        match aside {
            Some(Aside::Keys(list)) => {
                let rejection = session.insert(moment, list.cas, misses, fetched, output);
                list.rejection = rejection.filter(|_| list.alone);
            }
            Some(Aside::Get { key, flags }) => {
                // They came from a valid `mg`, which fetches exactly one key.
                if let (Ok(meta), Some(fetched)) = (Meta::get(key, flags), fetched.first()) {
                    session.meta_fetched(moment, meta, fetched, output);
                }
                *aside = None;
            }
            Some(Aside::Store(_)) | None => {}
        }
    }

    fn resume_stored(&mut self, stored: Stored, output: &mut Vec<u8>) {
        if let Some(Aside::Store(answer)) = self.aside.take() {
            answer.append(&stored, output);
        }
    }
}

impl Client {
    /// Starts the conversation of a new client on thread number `thread`.
    pub(super) fn open(shared: &Arc<Shared>, thread: usize) -> Self {
        Self {
            parser: Parser::new(shared.options.limits()),
            shared: Arc::clone(shared),
            thread,
            login: shared.service.passwords.is_some().then(Login::default),
            slot: TenantSlot::default(),
            has_spoken: false,
            aside: None,
            misses: Misses::default(),
        }
    }

    /// Returns the memory of the unfinished command and of the misses, bytes.
    fn unfinished_bytes(&self) -> usize {
        self.aside.as_ref().map_or(0, Aside::memory) + self.misses.memory()
    }

    /// Returns a client of the binary protocol in place of this one if its first `input` is binary.
    #[inline]
    pub(super) fn become_binary(&self, input: &[u8]) -> Option<binary::Client> {
        let becomes = !self.has_spoken && is_binary(input);
        becomes.then(|| binary::Client::open(&self.shared, self.thread))
    }

    /// Executes the first commands of a client, unless the input is recognized as another protocol.
    fn advance_first(&mut self, moment: Moment, input: Input<'_>, output: &mut Output) -> Advance {
        let Self { shared, thread, slot, .. } = self;
        let counters = shared.counters(*thread, *slot);
        if let Some(next) = refuse(shared, counters, Memcached::NAME, moment, input.bytes, output) {
            return Advance { consumed: 0, next };
        }
        let advance = self.advance_commands(moment, input, output);
        self.has_spoken = advance.consumed > 0;
        advance
    }

    /// Executes the commands at the start of `input`, as [`Conversation::advance`] does.
    fn advance_commands(&mut self, moment: Moment, input: Input<'_>, output: &mut Output) -> Advance {
        let Input { bytes: input, received } = input;
        let (mut consumed, mut ahead) = (0, 0);
        if let Some(next) = self.log_in(input, &mut consumed, output) {
            return Advance { consumed, next };
        }
        let Self { shared, thread, slot, parser, aside, misses, .. } = self;
        let session = Session::new(shared, *thread, *slot, received);
        if let Some(next) = go_on(session, moment, aside, misses, output) {
            return Advance { consumed, next };
        }
        while !output.is_full(&shared.options) {
            let parsed = parser.parse(&input[consumed..]);
            consumed += parsed.consumed;
            if consumed >= ahead && consumed < input.len() {
                let mut keys = Ahead::of(&input[consumed..]);
                prefetch(&shared.service, session.routing, &mut keys);
                ahead = input.len() - keys.left();
            }
            let next = match parsed.event {
                Event::Incomplete { need } => Some(NextStep::Need(need)),
                Event::Refused { refusal, noreply, close } => {
                    session.refuse(refusal, noreply, output);
                    close.then_some(NextStep::HangUp)
                }
                Event::Command(command) => match session.execute(moment, command, output) {
                    AfterCommand::Continue => None,
                    AfterCommand::Close => Some(NextStep::Close),
                    AfterCommand::Retrieve(retrieval) => {
                        begin(session, moment, retrieval, aside, misses, output)
                    }
                    AfterCommand::Store(ClientWrite { write, answer }) => {
                        *aside = Some(Aside::Store(answer));
                        Some(NextStep::Store(vec![write]))
                    }
                    AfterCommand::Fetch(meta, wanted) => {
                        *aside = Some(Aside::of(meta));
                        Some(NextStep::Fetch(vec![wanted]))
                    }
                },
            };
            if let Some(next) = next {
                return Advance { consumed, next };
            }
        }
        Advance { consumed, next: NextStep::Send }
    }

    /// Advances the login. Returns the next step of the connection until the client has logged in.
    fn log_in(&mut self, input: &[u8], consumed: &mut usize, output: &mut Vec<u8>) -> Option<NextStep> {
        let service = &self.shared.service;
        let know = |user: &[u8], password: &[u8]| service.log_in(user, password);
        let LoginOutcome { consumed: used, next, tried } = self.login.as_mut()?.advance(know, input, output);
        let admitted = matches!(next, LoginStep::Admit(_));
        let counters = self.shared.counters(self.thread, self.slot);
        counters.add(Count::AuthCmds, tried);
        counters.add(Count::AuthErrors, tried - u64::from(admitted));
        *consumed = used;
        match next {
            LoginStep::Admit(slot) => {
                (self.login, self.slot) = (None, slot);
                None
            }
            LoginStep::Need(need) => Some(NextStep::Need(need)),
            LoginStep::HangUp => Some(NextStep::HangUp),
        }
    }
}

impl Aside {
    /// Returns the memory of the command, bytes; a value to be written is counted elsewhere.
    fn memory(&self) -> usize {
        match self {
            Self::Keys(list) => list.text.capacity(),
            Self::Get { key, flags } => key.capacity() + flags.capacity(),
            Self::Store(_) => 0,
        }
    }

    fn of(meta: Meta<'_>) -> Self {
        Self::Get { key: meta.key.text().to_vec(), flags: meta.flags.text().to_vec() }
    }
}

/// Starts to answer a key list, and keeps the rest for later if it cannot be completed at once.
fn begin(
    session: Session<'_>,
    moment: Moment,
    mut retrieval: Retrieval<'_>,
    aside: &mut Option<Aside>,
    misses: &mut Misses,
    output: &mut Output,
) -> Option<NextStep> {
    let all = retrieval.keys;
    let next = retrieve(session, moment, &mut retrieval, misses, output)?;
    let Retrieval { keys, cas, touch, last } = retrieval;
    let alone = last && all.take(2).count() == 1;
    let list = KeyList { text: keys.text().to_vec(), done: 0, cas, touch, last, alone, rejection: None };
    *aside = Some(Aside::Keys(list));
    Some(next)
}

/// Continues the key list that was kept for later, if there is one.
fn go_on(
    session: Session<'_>,
    moment: Moment,
    aside: &mut Option<Aside>,
    misses: &mut Misses,
    output: &mut Output,
) -> Option<NextStep> {
    let Some(Aside::Keys(list)) = aside else { return None };
    if let Some(text) = &list.rejection {
        reply::rejected(output, text);
        *aside = None;
        return None;
    }
    let mut retrieval = list.retrieval();
    let next = retrieve(session, moment, &mut retrieval, misses, output);
    let left = retrieval.keys.text().len();
    match next {
        Some(_) => list.done = list.text.len() - left,
        None => *aside = None,
    }
    next
}

/// Answers keys of a key list. Returns the step of the connection that has to precede the remaining
/// ones.
fn retrieve(
    session: Session<'_>,
    moment: Moment,
    retrieval: &mut Retrieval<'_>,
    misses: &mut Misses,
    output: &mut Output,
) -> Option<NextStep> {
    let portion = session.retrieve(moment, retrieval, misses, output);
    if !misses.is_empty() {
        return Some(NextStep::Fetch(misses.wanted()));
    }
    if portion == Portion::More {
        return Some(NextStep::Send);
    }
    if retrieval.last {
        output.extend_from_slice(reply::END);
    }
    None
}
