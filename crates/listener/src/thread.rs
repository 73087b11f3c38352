//! The event loop of a thread: it waits for its sockets and gives each client its turn.
//!
//! With one command per packet a server spends its time in system calls, so this loop avoids calls
//! that carry no data. Sockets are registered once and edge-triggered: the system reports changes
//! and is never asked to repeat them. A read that filled less than its buffer was the last one.
//! Clients have no timers: each kind of timeout is checked by a sweep over all clients once per
//! timeout, so a client is closed after one to two of them.
//!
//! The clock is read once after each wait, for all turns that follow.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sherwood_model::Instant;
use sherwood_model::query_times::Sampling;

use super::account::Account;
use super::batch::{self, InputBatch, ROOM_BYTES};
use super::connection::{Connection, End, ReadOutcome, Readiness, ThreadContext, Turn, Wait};
use super::conversation::{Conversation, Conversations};
use super::counters::Count;
use super::ended::EndedOperations;
use super::foreign;
use super::idle::IdleTime;
use super::input::INPUT_BYTES;
use super::lent::{Empty, Lendable, ReadBuffer};
use super::mailbox::Mailbox;
use super::network::Unpaid;
use super::options::ListenerOptions;
use super::output::Output;
use super::round::{ROUND_CLIENTS_MAX, RoundInput, RoundOutput};
use super::shared::{ConnectionPermit, Connections, Shared};
use super::slots::{Slots, Token};
use super::sockets::{Event, Socket, Sockets};
use super::tenants::TenantSlot;
use super::thread_group::{NewConnection, ThreadGroup, WakeTokens};
use super::times::TimedTurn;
use super::work::Work;
use crate::clock::Moment;

mod rounds;

/// Most connections accepted in a row before the open ones have their turns.
const ACCEPTS_MAX: usize = 64;
/// The pause after a failed accept, mostly caused by a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The timeout for a client to close its connection after the listener has ended writing, so that
/// the client can read the last error.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Tokens of the wake-ups that concern the whole thread. No client has them: they belong to the
/// last of 2^32 slots.
pub(super) const WAKE_TOKENS: WakeTokens =
    WakeTokens { stop: STOP, new_connections: NEW_CONNECTIONS, check: CHECK };
const STOP: u64 = u64::MAX - 2;
const NEW_CONNECTIONS: u64 = u64::MAX - 3;
const CHECK: u64 = u64::MAX - 4;

/// The state of a listener's thread.
pub(super) struct Thread<P: Conversations, S: Sockets> {
    protocol: Arc<P>,
    number: usize,
    shared: Arc<Shared>,
    sockets: S,
    group: Arc<ThreadGroup<S::Socket>>,
    mailbox: Arc<Mailbox>,
    /// The state of accepting connections; none once the listener is stopping.
    accepting: Option<Accepting>,
    clients: Slots<Connection<P::Conversation, S::Socket>>,
    /// Clients that need another turn, in the order of their turns; each once.
    again: VecDeque<Token>,
    sweeps: Sweeps,
    /// Clients whose tenants are in debt; none if traffic has no rates.
    unpaid: Option<Unpaid>,
    /// Input of several clients that was read and is to be answered.
    batch: InputBatch,
    /// Clients that are to be read in a round.
    ready: Vec<Token>,
    /// True while clients are read and sent to in rounds.
    in_rounds: bool,
    round_input: RoundInput,
    /// Bytes of memory that the rooms for the input of a round use.
    room_bytes: usize,
    round_output: RoundOutput,
    /// Buffer for the input of a client that is read in a turn of its own.
    input: Lendable<ReadBuffer>,
    /// Buffer for the answers of a client's turn. Its capacity is kept: one bound and one value at
    /// most, or twice that.
    output: Lendable<Output>,
    /// The bytes that the thread's own buffers hold.
    account: Account,
    /// The work done for clients in `again` since the thread last waited for events.
    work: Work,
    /// The choice of the rounds that are timed.
    sampling: Sampling,
    /// True while a round is timed.
    timing: bool,
}

/// The state of a thread's listening socket, while it accepts connections.
struct Accepting {
    /// True if a connection may wait to be accepted.
    pending: bool,
    /// The time before which nothing is accepted.
    paused_until: Instant,
}

impl<P: Conversations, S: Sockets> Thread<P, S> {
    /// Creates thread number `number`, which waits for `sockets`.
    pub(super) fn new(
        protocol: Arc<P>,
        number: usize,
        shared: Arc<Shared>,
        group: Arc<ThreadGroup<S::Socket>>,
        sockets: S,
    ) -> Self {
        let mailbox = Arc::clone(group.mailbox(number));
        Self {
            protocol,
            number,
            sweeps: Sweeps::new(
                &shared.options,
                shared.service.passwords.is_some() || S::Socket::HAS_HANDSHAKE,
            ),
            account: shared.service.account(),
            unpaid: shared
                .service
                .network
                .clone()
                .map(|network| Unpaid::new(network, shared.service.users.slots())),
            shared,
            sockets,
            group,
            mailbox,
            accepting: Some(Accepting { pending: true, paused_until: Instant::ZERO }),
            clients: Slots::default(),
            again: VecDeque::new(),
            batch: InputBatch::new(),
            ready: Vec::with_capacity(ROUND_CLIENTS_MAX),
            in_rounds: false,
            round_input: RoundInput::default(),
            room_bytes: 0,
            round_output: RoundOutput::default(),
            input: Lendable::new(ReadBuffer::new(INPUT_BYTES)),
            output: Lendable::new(Output::default()),
            work: Work::default(),
            sampling: Sampling::new(number as u64),
            timing: false,
        }
    }

    /// Serves until the listener stops, and then until all clients are gone or the drain timeout is
    /// over.
    ///
    /// # Errors
    /// If the system fails permanently.
    pub(super) fn run(mut self) -> io::Result<()> {
        if self.shared.options.pin_threads {
            keep_to_core(self.number);
        }
        let mut moment = self.shared.clock.moment();
        let mut events = Vec::new();
        let background = self.shared.service.background.clone();
        let mut idle = IdleTime::default();
        while !self.group.is_stopping() {
            let background =
                background.as_deref().filter(|work| idle.is_used(*work, moment.now) && self.again.is_empty());
            let helps = background.is_some();
            let timeout = if helps { Some(Duration::ZERO) } else { self.time_left(moment.now) };
            self.sockets.wait(&mut events, timeout)?;
            moment = self.shared.clock.moment();
            idle.asked(!helps, !events.is_empty(), moment.now);
            if let Some(work) = background.filter(|_| events.is_empty()) {
                idle.help(work, moment.now);
            }
            self.serve_timed(moment, &mut events);
        }
        self.drain(moment, events)
    }

    /// Answers the input that clients have sent, and closes. Reading ends for all of them, so each
    /// conversation sees the end of its client's input.
    fn drain(mut self, mut moment: Moment, mut events: Vec<Event>) -> io::Result<()> {
        self.accepting = None;
        self.sockets.stop_accepting();
        // What is left is answered at once.
        self.unpaid.take().into_iter().for_each(|mut unpaid| unpaid.cancel_all());
        for (_, client) in self.clients.iter_mut() {
            client.unpaid = None;
            client.stop_reading();
        }
        let all: Vec<Token> = self.clients.iter_mut().map(|(token, _)| token).collect();
        for token in all {
            self.turn(token, moment);
        }
        let end = moment.now + self.shared.options.drain_timeout;
        while self.clients.len() > 0 && moment.now < end {
            let timeout = self.time_left(moment.now);
            let left = end.since(moment.now);
            self.sockets.wait(&mut events, Some(timeout.map_or(left, |timeout| timeout.min(left))))?;
            moment = self.shared.clock.moment();
            self.serve(moment, &mut events);
        }
        if self.clients.len() > 0 {
            tracing::warn!(connections = self.clients.len(), "connections were cut off at shutdown");
        }
        Ok(())
    }

    /// Returns the time until the next timeout of any kind; none if there is none.
    fn time_left(&self, now: Instant) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let accepting = self
            .accepting
            .as_ref()
            .filter(|accepting| accepting.pending)
            .map(|accepting| accepting.paused_until);
        let paid = self.unpaid.as_ref().and_then(Unpaid::due);
        let due = [accepting, self.sweeps.due(), paid].into_iter().flatten().min()?;
        Some(due.since(now))
    }

    /// Serves a round of `events`, which is timed if there may be input and the round is drawn.
    fn serve_timed(&mut self, moment: Moment, events: &mut Vec<Event>) {
        let has_input = events.iter().any(|event| matches!(event, Event::Connection { readable: true, .. }));
        if !has_input || !self.sampling.choose() {
            return self.serve(moment, events);
        }
        self.timing = true;
        self.shared.ended(self.number).times.time(true);
        self.serve(moment, events);
        self.shared.ended(self.number).times.time(false);
        self.timing = false;
    }

    /// Gives a turn to each client that had an event or has more to do.
    fn serve(&mut self, moment: Moment, events: &mut Vec<Event>) {
        // Clients that were queued before this round; those that are queued in it wait for the next
        // one.
        let waiting = self.again.len();
        self.in_rounds = events.len() > 1 && self.sockets.has_rounds();
        for event in events.drain(..) {
            match event {
                Event::Incoming => self.accepting.iter_mut().for_each(|accepting| accepting.pending = true),
                Event::Raised => {
                    // It may contain turns of clients in the batch, which have to be answered
                    // first.
                    self.answer(moment);
                    self.drain_mailbox(moment);
                }
                Event::Connection { token, readable, finished, broken } => {
                    let readiness = Readiness { readable, finished, broken };
                    self.handle_event(Token::from_number(token), readiness, moment);
                }
            }
        }
        self.read_round(moment);
        self.answer(moment);
        // If they have much to do, those that have sent a command meanwhile come first.
        self.work = Work::default();
        for _ in 0..waiting {
            if self.work.ends_turn() {
                break;
            }
            let Some(token) = self.again.pop_front() else { break };
            if let Some(client) = self.clients.get_mut(token) {
                client.queued = false;
                self.turn(token, moment);
            }
        }
        self.resume_paid(moment);
        self.accept(moment.now);
        self.sweep(moment.now);
    }

    /// Gives a turn to each client whose tenant's debt is paid by now, but to no client twice.
    fn resume_paid(&mut self, moment: Moment) {
        for _ in 0..self.unpaid.as_ref().map_or(0, Unpaid::len) {
            let Some(token) = self.unpaid.as_mut().and_then(|unpaid| unpaid.next_paid(moment.now)) else {
                break;
            };
            self.clients.get_mut(token).into_iter().for_each(|client| client.unpaid = None);
            self.act(token, moment, Connection::turn);
        }
    }

    /// Returns true if a client gets no turn before its tenant's debt is paid and others of the
    /// tenant, which came before, had theirs.
    #[inline]
    fn is_held_back(&mut self, token: Token, now: Instant) -> bool {
        self.unpaid.is_some() && self.waits_for_payment(token, now)
    }

    #[inline(never)]
    fn waits_for_payment(&mut self, token: Token, now: Instant) -> bool {
        let (Some(unpaid), Some(client)) = (&mut self.unpaid, self.clients.get_mut(token)) else {
            return false;
        };
        if client.unpaid.is_none() && client.may_begin() {
            let slot = client.slot();
            let tenant = self.shared.service.routing(slot).tenant();
            let counters = self.shared.counters(self.number, slot);
            client.unpaid = unpaid.hold(now, token, (slot, tenant), counters);
        }
        client.unpaid.is_some()
    }

    fn handle_event(&mut self, token: Token, readiness: Readiness, moment: Moment) {
        let Some(client) = self.clients.get_mut(token) else { return };
        client.note(readiness);
        if self.is_held_back(token, moment.now) {
            self.turn(token, moment);
            return;
        }
        if self.in_rounds {
            // It is there once, since the event queue reports a connection once.
            self.ready.push(token);
            if self.ready.len() == ROUND_CLIENTS_MAX {
                self.read_round(moment);
            }
        } else {
            self.read(token, moment);
        }
    }

    /// Reads a client into the batch if it has no other work, and else gives it a turn.
    fn read(&mut self, token: Token, moment: Moment) {
        let Some(client) = self.clients.get_mut(token) else { return };
        let counters = self.shared.counters(self.number, client.slot());
        match self.batch.read(token, |buffer| client.read_input(buffer, counters)) {
            ReadOutcome::Input => {}
            ReadOutcome::Over(turn) => self.conclude(token, turn, moment.now),
            ReadOutcome::Busy => self.turn(token, moment),
        }
        if self.batch.is_full() {
            self.answer(moment);
        }
    }

    /// Answers the clients whose input is in the batch, in order.
    fn answer(&mut self, moment: Moment) {
        let mut batch = std::mem::take(&mut self.batch);
        self.prefetch(batch.inputs());
        for (token, input) in batch.inputs() {
            self.act(token, moment, |client, context| client.answer(input, context));
        }
        batch.empty();
        self.batch = batch;
    }

    fn prefetch<'i>(&self, inputs: impl Iterator<Item = (Token, &'i [u8])>) {
        let slot = |token| self.clients.get(token).map(Connection::slot);
        batch::prefetch::<P::Conversation>(inputs, &self.shared.service, slot);
    }

    fn drain_mailbox(&mut self, moment: Moment) {
        let mailbox = Arc::clone(&self.mailbox);
        mailbox.empty(|token| match token {
            // The loop reads the stop flag itself.
            STOP => {}
            CHECK => self.group.answer_check(self.number),
            NEW_CONNECTIONS => {
                for NewConnection { socket, permit } in self.group.new_connections(self.number) {
                    self.add_client(socket, permit, moment.now);
                }
            }
            token => self.turn(Token::from_number(token), moment),
        });
    }

    fn turn(&mut self, token: Token, moment: Moment) {
        if self.is_held_back(token, moment.now) {
            // It may take what it is owed, but is not read.
            self.act(token, moment, Connection::turn_in_debt);
            self.bound_finished(token);
        } else {
            self.act(token, moment, Connection::turn);
        }
    }

    /// Runs a step of the client that `token` names, and carries out its result.
    fn act(
        &mut self,
        token: Token,
        moment: Moment,
        act: impl FnOnce(&mut Connection<P::Conversation, S::Socket>, &mut ThreadContext<'_>) -> Turn,
    ) {
        let Some(client) = self.clients.get_mut(token) else { return };
        let slot = client.slot();
        let counters = self.shared.counters(self.number, slot);
        let EndedOperations { times, turn_keys, .. } = self.shared.ended(self.number);
        let exchanged = self.unpaid.as_ref().map(|_| counters.exchanged());
        let mut context = ThreadContext {
            shared: &self.shared,
            counters,
            mailbox: &self.mailbox,
            times,
            moment,
            input: self.input.lend(),
            output: self.output.lend(),
            sends_later: false,
            is_batch_over: false,
        };
        let turn = catch_unwind(AssertUnwindSafe(|| act(client, &mut context)));
        self.work.add(context.output.work.units());
        let is_batch_over = context.is_batch_over;
        let mut timed = self.timing.then(|| TimedTurn {
            noted: times.take_noted(),
            is_request: !client.has_batch() && !turn_keys.have_missed(),
        });
        if matches!(turn, Ok(Turn::Owed)) {
            self.round_output.keep(token, &mut context.output, timed.take());
        }
        drop(context);
        if turn_keys.any() || client.has_batch() {
            note_batch(&self.shared, self.number, client, moment, is_batch_over);
        }
        if let Some(timed) = timed {
            self.end_timed(timed, moment);
        }
        let own = self.own_bytes();
        self.account.set(own);
        match turn {
            Ok(turn) => {
                if let Some(exchanged) = exchanged {
                    let bytes = counters.exchanged().wrapping_sub(exchanged);
                    self.charge(token, slot, bytes, moment.now);
                }
                self.conclude(token, turn, moment.now);
            }
            Err(_) => {
                tracing::error!("a {} connection ended in a panic", P::NAME);
                self.end(token);
            }
        }
    }

    /// Returns the bytes that the thread's own buffers hold.
    fn own_bytes(&self) -> usize {
        let rounds = self.room_bytes + self.round_output.capacity();
        INPUT_BYTES + ROOM_BYTES + rounds + self.output.capacity()
    }

    /// Records a timed turn, which began at `moment` and whose answers have been sent.
    fn end_timed(&self, TimedTurn { noted, is_request }: TimedTurn, moment: Moment) {
        let now = self.shared.clock.now();
        let latency = now.since(moment.now);
        let hits = self.shared.ended(self.number).times.end_turn(noted, latency);
        if let Some(counting) = &self.shared.service.batches {
            counting.record_hits(&hits, latency);
            if is_request {
                counting.count_hits(now, &hits, latency);
            }
        }
    }

    /// Charges a client's tenant for the `bytes` of a scheduling turn. `slot` is the client's slot
    /// at the start of the turn.
    fn charge(&mut self, token: Token, slot: TenantSlot, bytes: u64, now: Instant) {
        let (Some(unpaid), Some(client)) = (&mut self.unpaid, self.clients.get_mut(token)) else { return };
        // A login in this turn determines the tenant that is charged.
        let slot_after = client.slot();
        unpaid.transfer(slot, slot_after, bytes);
        let tenant = self.shared.service.routing(slot_after).tenant();
        let counters = self.shared.counters(self.number, slot_after);
        unpaid.charge(now, (slot_after, tenant), counters);
    }

    /// Lists a client that is held back, if it has finished sending, and ends the oldest one of its
    /// tenant if these are too many.
    fn bound_finished(&mut self, token: Token) {
        let (Some(unpaid), Some(client)) = (&mut self.unpaid, self.clients.get_mut(token)) else { return };
        if !client.has_finished() || std::mem::replace(&mut client.listed, true) {
            return;
        }
        let Some(oldest) = unpaid.list_finished(token, client.slot()) else { return };
        if let Some(client) = self.clients.get_mut(oldest) {
            client.listed = false;
            if client.unpaid.is_some() {
                self.end(oldest);
            }
        }
    }

    fn conclude(&mut self, token: Token, turn: Turn, now: Instant) {
        match turn {
            Turn::Wait(wait) => self.sweeps.watch(wait, now),
            // Concluded once its answers are sent.
            Turn::Owed => {}
            Turn::Again => {
                if let Some(client) = self.clients.get_mut(token)
                    && !std::mem::replace(&mut client.queued, true)
                {
                    self.again.push_back(token);
                }
            }
            Turn::End(end) => {
                if let End::Lost(error) = end {
                    self.lost(token, &error, now);
                }
                self.end(token);
            }
        }
    }

    /// Records the loss of a connection; one lost in its handshake may never succeed.
    fn lost(&self, token: Token, error: &io::Error, now: Instant) {
        let opening = self.clients.get(token).is_some_and(|client| client.socket().is_opening());
        if opening && let Some(others) = self.shared.foreign_clients.note(now) {
            foreign::tell_of_handshake(&self.shared.options.bind, P::NAME, others, error);
        }
        tracing::debug!(%error, "{} connection lost", P::NAME);
    }

    /// Accepts the connections that wait at the listening socket.
    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_MAX {
            let Some(accepting) = self
                .accepting
                .as_mut()
                .filter(|accepting| accepting.pending && accepting.paused_until <= now)
            else {
                return;
            };
            match self.sockets.accept() {
                Ok(socket) => self.admit(socket, now),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => accepting.pending = false,
                    // The client left while it waited.
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        tracing::warn!(%error, "the {} listener cannot accept connections", P::NAME);
                        accepting.paused_until = now + ACCEPT_PAUSE;
                    }
                },
            }
        }
    }

    fn admit(&mut self, socket: S::Socket, now: Instant) {
        let Some(permit) = Connections::open(&self.shared) else {
            // The connection is closed whether this arrives or not.
            let _ = socket.send(P::TOO_MANY);
            return;
        };
        match self.group.choose_thread(self.number) {
            chosen if chosen == self.number => self.add_client(socket, permit, now),
            chosen => self.group.hand_over(chosen, NewConnection { socket, permit }),
        }
    }

    /// Adds a connection as a client of this thread, whose number of clients already includes it.
    fn add_client(&mut self, socket: S::Socket, permit: ConnectionPermit, now: Instant) {
        if self.accepting.is_none() {
            // It was handed over while the listener was stopping; nothing of it was read.
            self.group.remove_client(self.number);
            return;
        }
        let mut conversation = self.protocol.open(&self.shared, self.number);
        conversation.introduce(socket.peer());
        let account = self.shared.service.account().with_uncounted(P::UNCOUNTED_BYTES_MAX);
        let token =
            self.clients.insert(|token| Connection::new(token, socket, conversation, permit, account));
        let sockets = &mut self.sockets;
        let added = self.clients.get_mut(token).map(|client| sockets.watch(client.socket(), token.number()));
        if let Some(Err(error)) = added {
            tracing::warn!(%error, "a {} connection cannot be watched and is closed", P::NAME);
            self.end(token);
            return;
        }
        self.sweeps.watch(Wait::Input, now);
        self.sweeps.watch(Wait::Login, now);
    }

    fn end(&mut self, token: Token) {
        let Some(client) = self.clients.remove(token) else { return };
        self.group.remove_client(self.number);
        if let (Some(place), Some(unpaid)) = (client.unpaid, &mut self.unpaid) {
            unpaid.cancel(place);
        }
    }

    /// Closes clients that have waited for longer than their timeout.
    fn sweep(&mut self, now: Instant) {
        let Some(wait) = self.sweeps.take_due(now) else { return };
        let (mut over, mut some_left) = (Vec::new(), false);
        // One whose tenant is in debt could make no progress if it is to be read.
        let waits = |client: &Connection<_, _>| {
            client.keeps_waiting(wait)
                && !(client.unpaid.is_some() && matches!(wait, Wait::Input | Wait::Login))
        };
        for (token, client) in self.clients.iter_mut().filter(|(_, client)| waits(client)) {
            match client.is_timed_out(wait) {
                true => over.push(token),
                false => some_left = true,
            }
        }
        let count = match wait {
            Wait::Input | Wait::Login => Some(Count::IdleKicks),
            Wait::Output => Some(Count::SlowKicks),
            Wait::Backend | Wait::Close => None,
        };
        if let Some(count) = count {
            self.shared.counters(self.number, TenantSlot::default()).add(count, over.len() as u64);
        }
        over.into_iter().for_each(|token| self.end(token));
        if some_left {
            self.sweeps.watch(wait, now);
        }
    }
}

/// Adds a turn of a client, which began at `moment`, to its batch, which may be over.
#[cold]
fn note_batch<C: Conversation, S: Socket>(
    shared: &Shared,
    thread: usize,
    client: &mut Connection<C, S>,
    moment: Moment,
    is_over: bool,
) {
    shared.ended(thread).turn_keys.end(|keys| {
        if let Some(counting) = &shared.service.batches {
            client.note_turn(counting, (moment.now, &*shared.clock), keys, is_over);
        }
    });
}

/// Pins this thread to one of the cores that the process may use: the one at index `number`,
/// counted around.
fn keep_to_core(number: usize) {
    let kept = sched_getaffinity(None).and_then(|allowed| {
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
        let mut only = CpuSet::new();
        if let Some(index) = number.checked_rem(cores.len()) {
            only.set(cores[index]);
        }
        sched_setaffinity(None, &only)
    });
    if let Err(error) = kept {
        tracing::warn!(%error, "a listener's thread cannot be kept to a core and goes where the system sends it");
    }
}

/// The times of the next sweeps, each of which closes clients whose timeout for one kind of wait is
/// over.
#[derive(Debug)]
struct Sweeps {
    /// For each kind of event that clients wait for: the timeout, and the time of the next sweep,
    /// none while no client waits for the event.
    kinds: [(Wait, Option<Duration>, Option<Instant>); 4],
}

impl Sweeps {
    fn new(options: &ListenerOptions, has_login: bool) -> Self {
        let kinds = [
            (Wait::Input, options.idle_timeout),
            (Wait::Output, Some(options.write_timeout)),
            (Wait::Close, Some(CLOSE_TIMEOUT)),
            (Wait::Login, has_login.then_some(options.login_timeout)),
        ];
        Self { kinds: kinds.map(|(wait, timeout)| (wait, timeout, None)) }
    }

    /// Records that a client waits for this event from now on, so that a sweep will check its
    /// timeout.
    fn watch(&mut self, wait: Wait, now: Instant) {
        for (kind, timeout, due) in &mut self.kinds {
            if *kind == wait && due.is_none() {
                *due = timeout.map(|timeout| now + timeout);
            }
        }
    }

    /// Returns the time of the next sweep.
    fn due(&self) -> Option<Instant> {
        self.kinds.iter().filter_map(|(_, _, due)| *due).min()
    }

    /// Takes a kind of wait whose sweep is due at `now`.
    fn take_due(&mut self, now: Instant) -> Option<Wait> {
        let (wait, _, due) = self.kinds.iter_mut().find(|(_, _, due)| due.is_some_and(|due| due <= now))?;
        *due = None;
        Some(*wait)
    }
}
