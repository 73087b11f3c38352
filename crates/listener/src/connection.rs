//! A client's connection: its socket, its buffers and its progress.
//!
//! A client gets a *turn* after an event. The turn does everything that is possible without
//! waiting: it sends pending output, reads once, executes complete commands and sends the answers.
//! Both buffers are bounded, because nothing is executed while output is pending and nothing is
//! read while input can be executed: a client that does not read is soon unable to write.
//!
//! Most turns leave no bytes behind, so they use buffers of the thread. A client has buffers of its
//! own only for incomplete input and pending output: an idle client costs only its slot.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::FutureExt;
use sherwood_cache::{Cache, Reserved};
use sherwood_dispatch::DebtPlace;
use sherwood_model::Instant;

use super::account::{Account, FETCHED_COPIES};
use super::conversation::{Advance, Answered, Conversation, NextStep};
use super::counters::{Count, Counters};
use super::fetch::{self, FetchEnd};
use super::input::{INPUT_BYTES, PendingInput};
use super::lent::{Empty, Lent, ReadBuffer};
use super::mailbox::Mailbox;
use super::output::Output;
use super::requests::{BatchCounting, Keys, UnfinishedBatch};
use super::shared::{ConnectionPermit, Shared};
use super::slots::Token;
use super::sockets::Socket;
use super::store;
use super::tenants::TenantSlot;
use super::times::{Asked, ThreadTimes};
use crate::clock::{Clock, Moment};

/// A client's connection, with its buffers and its progress.
pub(super) struct Connection<C, S> {
    token: Token,
    socket: S,
    conversation: C,
    stage: Stage,
    /// Input that was read and that the protocol has not consumed.
    input: PendingInput,
    /// Bytes of input that are needed before a command can be executed; 0 when one can be executed
    /// now.
    need: usize,
    /// True if a backend has answered and the command that it was for was not continued since.
    resumed: bool,
    /// Output to be sent, of which the first `sent` bytes have been sent.
    output: Vec<u8>,
    sent: usize,
    /// Fetched values whose copies are in `output`. They are kept because the budget of fetched
    /// values, which also covers the copies, counts a value until it is dropped.
    held: Vec<Bytes>,
    /// The bytes of input and output buffers that the budget of fetched values does not count.
    account: Account,
    /// True if the socket may have bytes to read.
    readable: bool,
    /// True if the client has finished sending, so that reading will end.
    finished: bool,
    /// True if the connection broke, so that the client receives nothing any more.
    broken: bool,
    /// True if the client made progress since [`is_timed_out`](Self::is_timed_out) was called.
    fresh: bool,
    /// True if the login timeout was checked before, when the client had not logged in either.
    lingers: bool,
    /// True if the client is in its thread's queue of clients with more work.
    pub(super) queued: bool,
    /// The client's place among those that wait for a turn because their tenants are in debt.
    pub(super) unpaid: Option<DebtPlace>,
    /// True if its thread has listed it among the clients that finished sending while in debt.
    pub(super) listed: bool,
    /// The batch of the client's commands, if it waits for a backend or has missed keys.
    batch: Option<Box<UnfinishedBatch>>,
    /// The connection's number among those with batches; 0 before the first.
    number: u64,
    /// The waker of the client's fetches, made with the first one.
    waker: Option<Waker>,
    _permit: ConnectionPermit,
}

/// The stage of a connection, from commands to its end.
enum Stage {
    /// The client's commands are read and answered.
    Open,
    /// Waits for a backend to answer a fetch or a write.
    Waiting(Waiting),
    /// Closes the connection when all output is sent.
    Closing,
    /// Ends the sending side when all output is sent.
    HangingUp,
    /// The sending side has ended. Input is read and discarded until the client has finished too,
    /// because the system would drop the last answer if the socket were closed with unread input.
    HungUp,
}

/// A wait for backends.
struct Waiting {
    answered: Pin<Box<dyn Future<Output = Answered> + Send>>,
    asked: Asked,
    /// The start of the turn that asked.
    since: Instant,
}

/// The event that a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Waits for input from the client.
    Input,
    /// Waits for room in the socket for output.
    Output,
    /// Waits for a backend's answer.
    Backend,
    /// Waits for the end of the client's input, after the listener has ended writing.
    Close,
    /// Waits for the handshake and for the client to log in, which have a timeout of their own.
    Login,
}

/// The result of a client's turn, in which its thread does all for it that is possible without
/// waiting.
#[derive(Debug)]
pub(super) enum Turn {
    /// The client has to wait for this event.
    Wait(Wait),
    /// There is more to do for the client, after the turns of other clients.
    Again,
    /// The answers of the turn are to be sent with those of other clients; see
    /// [`end_sending`](Connection::end_sending).
    Owed,
    /// The connection has ended.
    End(End),
}

/// The reason for which a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The connection ended regularly.
    Done,
    /// The connection broke.
    Lost(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// The parts of a listener's thread that it uses while it serves one client.
pub(super) struct ThreadContext<'a> {
    pub(super) shared: &'a Shared,
    pub(super) counters: &'a Counters,
    pub(super) mailbox: &'a Arc<Mailbox>,
    pub(super) times: &'a ThreadTimes,
    pub(super) moment: Moment,
    /// A buffer with room for [`INPUT_BYTES`] to read into.
    pub(super) input: Lent<'a, ReadBuffer>,
    pub(super) output: Lent<'a, Output>,
    /// True if the turn may leave its answers to be sent with those of other clients.
    pub(super) sends_later: bool,
    /// True if the turn has executed the client's last complete command, which ends its batch.
    pub(super) is_batch_over: bool,
}

impl ThreadContext<'_> {
    fn batches(&self) -> Option<&BatchCounting> {
        self.shared.service.batches.as_ref()
    }
}

/// The result of [reading](Connection::read_input) a client into the input batch.
#[derive(Debug)]
pub(super) enum ReadOutcome {
    /// Input in the buffer, to be [answered](Connection::answer).
    Input,
    /// No input; the turn is over.
    Over(Turn),
    /// The client has other work: it needs a [turn](Connection::turn).
    Busy,
}

/// Events that the system reported for a client's socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readiness {
    /// The socket may have bytes to read.
    pub(super) readable: bool,
    /// The client has closed or the connection broke: reading will end.
    pub(super) finished: bool,
    /// The connection broke: nothing can be sent any more.
    pub(super) broken: bool,
}

impl<C: Conversation, S: Socket> Connection<C, S> {
    pub(super) fn new(
        token: Token,
        socket: S,
        conversation: C,
        permit: ConnectionPermit,
        account: Account,
    ) -> Self {
        let account = account.with_uncounted(size_of::<Self>() + S::BUFFER_BYTES_MAX);
        Self {
            token,
            socket,
            conversation,
            stage: Stage::Open,
            input: PendingInput::default(),
            need: 1,
            resumed: false,
            output: Vec::new(),
            sent: 0,
            held: Vec::new(),
            account,
            readable: false,
            finished: false,
            broken: false,
            fresh: true,
            lingers: false,
            queued: false,
            unpaid: None,
            listed: false,
            batch: None,
            number: 0,
            waker: None,
            _permit: permit,
        }
    }

    /// Returns the slot of the client's tenant.
    pub(super) fn slot(&self) -> TenantSlot {
        self.conversation.slot()
    }

    pub(super) fn socket(&self) -> &S {
        &self.socket
    }

    /// Records events of the client's socket, after which it has to get a turn.
    pub(super) fn note(&mut self, readiness: Readiness) {
        // Room for output lets a handshake go on, too.
        self.readable |= readiness.readable || self.socket.is_opening();
        self.finished |= readiness.finished;
        self.broken |= readiness.broken;
    }

    /// Returns true if a turn could read or execute something.
    pub(super) fn may_begin(&self) -> bool {
        self.readable || self.need == 0
    }

    /// Returns true if the client has finished sending.
    pub(super) fn has_finished(&self) -> bool {
        self.finished
    }

    /// Ends reading after the bytes that have arrived: the conversation sees its client finish.
    pub(super) fn stop_reading(&mut self) {
        // A broken connection needs no shutdown.
        let _ = self.socket.shut_down(Shutdown::Read);
        self.note(Readiness { readable: true, finished: true, broken: false });
    }

    /// Returns the event that the client waits for.
    fn waits_for(&self) -> Wait {
        match self.stage {
            Stage::Waiting(_) => Wait::Backend,
            _ if self.owes() => Wait::Output,
            Stage::HungUp => Wait::Close,
            _ => Wait::Input,
        }
    }

    /// Returns true if the client still waits for this event.
    pub(super) fn keeps_waiting(&self, wait: Wait) -> bool {
        match wait {
            Wait::Login => self.socket.is_opening() || self.conversation.is_outside(),
            _ => self.waits_for() == wait,
        }
    }

    /// Returns true if the client made no progress since the last call for the same event; for a
    /// login, if this was called before.
    pub(super) fn is_timed_out(&mut self, wait: Wait) -> bool {
        match wait {
            Wait::Login => std::mem::replace(&mut self.lingers, true),
            _ => !std::mem::take(&mut self.fresh),
        }
    }

    /// Reads the input of a client that has no other work into `buffer`. The input has to be
    /// answered before anything else happens to the client.
    pub(super) fn read_input(&mut self, buffer: &mut ReadBuffer, counters: &Counters) -> ReadOutcome {
        if !self.only_reads() {
            return ReadOutcome::Busy;
        }
        read_outcome(self.receive(buffer, counters))
    }

    /// Returns true if the client has input to read and no other work.
    pub(super) fn only_reads(&self) -> bool {
        let idle = matches!(self.stage, Stage::Open) && !self.owes() && self.need > 0;
        idle && self.readable && self.input.is_empty()
    }

    /// Takes the result of a receive into `room` for a client that [only
    /// reads](Self::only_reads), or receives if there is none. Also returns the number of received
    /// bytes. The input has to be answered before anything else happens to the client.
    pub(super) fn end_receiving(
        &mut self,
        room: &mut [u8],
        result: Option<io::Result<usize>>,
        counters: &Counters,
    ) -> (ReadOutcome, usize) {
        let received = uninterrupted(result).unwrap_or_else(|| retry(|| self.socket.receive(room)));
        let bytes = *received.as_ref().unwrap_or(&0);
        (read_outcome(self.received(received, room.len(), counters)), bytes)
    }

    /// Takes out the memory that a large value is being received into, if the client has no other
    /// work than that. [`end_receiving_in_place`](Self::end_receiving_in_place) puts it back.
    pub(super) fn take_block(&mut self, cache: &Cache) -> Option<Reserved> {
        let receives = matches!(self.stage, Stage::Open) && !self.owes() && self.need > self.input.len();
        if !receives || !self.readable || self.input.is_empty() {
            return None;
        }
        self.input.take_block(self.need, cache)
    }

    /// Takes the result of a receive into a client's `block`, and goes on as a
    /// [turn](Self::turn) does; without a result, the turn receives.
    pub(super) fn end_receiving_in_place(
        &mut self,
        mut block: Reserved,
        result: Option<io::Result<usize>>,
        context: &mut ThreadContext<'_>,
    ) -> Turn {
        let room = block.room().len();
        let received = uninterrupted(result);
        if let Some(Ok(bytes)) = received {
            block.add(bytes);
        }
        self.input = PendingInput::Block(block);
        match received {
            None => self.turn(context),
            Some(received) => self.step(context, |client, context| {
                let has_input = client.received(received, room, context.counters)?;
                client.go_on_behind(has_input, context)
            }),
        }
    }

    /// Takes the result of sending `output`, which a turn of the client has left [to be sent with
    /// others](Turn::Owed), and sends what was not sent.
    pub(super) fn end_sending(
        &mut self,
        output: &mut Output,
        result: Option<io::Result<usize>>,
        counters: &Counters,
    ) -> Turn {
        let turn = self.sent_in_round(output, result, counters);
        self.note_buffers();
        turn.unwrap_or_else(Turn::End)
    }

    fn sent_in_round(
        &mut self,
        output: &mut Output,
        result: Option<io::Result<usize>>,
        counters: &Counters,
    ) -> Result<Turn, End> {
        let sent = match result {
            Some(Ok(0)) => return Err(End::Lost(io::ErrorKind::WriteZero.into())),
            Some(Ok(sent)) => sent,
            None => 0,
            Some(Err(error)) => match error.kind() {
                // The plain call tells whether the system will report room.
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => 0,
                _ => return Err(error.into()),
            },
        };
        counters.add(Count::BytesWritten, sent as u64);
        Ok(if self.send_rest(output, sent, counters)? { self.go_on() } else { Turn::Wait(Wait::Output) })
    }

    /// Executes the client's `input`, which was read into the batch, and sends the answers.
    pub(super) fn answer(&mut self, input: &[u8], context: &mut ThreadContext<'_>) -> Turn {
        let cache = &context.shared.service.cache;
        let next = self.advance_over(input, context.moment, &mut context.output, cache);
        let turn = self.follow_reading(next, context);
        self.note_buffers();
        turn.unwrap_or_else(Turn::End)
    }

    /// Gives the client a turn: does everything that is possible without waiting.
    pub(super) fn turn(&mut self, context: &mut ThreadContext<'_>) -> Turn {
        self.step(context, Self::advance_or_read)
    }

    /// Gives a turn to a client whose tenant is in debt: sends what the client is owed, without
    /// reading or beginning anything more. Ends a client that has gone, and one that has finished
    /// sending and of which everything was read.
    pub(super) fn turn_in_debt(&mut self, context: &mut ThreadContext<'_>) -> Turn {
        self.step(context, |client, context| match client.resumed {
            true => client.finish_command(context),
            false => client.wait_in_debt(),
        })
    }

    /// Asks for the backend's answer that the client waits for, or sends the output that is pending
    /// and then ends the connection if that is its next step, or has `go_on` go on with an open
    /// one.
    fn step<'a>(
        &mut self,
        context: &mut ThreadContext<'a>,
        go_on: impl FnOnce(&mut Self, &mut ThreadContext<'a>) -> Result<Turn, End>,
    ) -> Turn {
        let turn = match self.stage {
            Stage::Waiting(_) => Ok(self.poll_backend(context)),
            _ => self.settle(context).and_then(|settled| match (settled, &self.stage) {
                (false, _) => Ok(Turn::Wait(Wait::Output)),
                (true, Stage::Closing) => Err(End::Done),
                (true, Stage::HangingUp) => self.hang_up(context),
                (true, Stage::HungUp) => self.discard(context),
                (true, Stage::Open | Stage::Waiting(_)) => go_on(self, context),
            }),
        };
        self.note_buffers();
        turn.unwrap_or_else(Turn::End)
    }

    /// Waits until the tenant's debt is paid, unless the client has gone or has nothing more to be
    /// answered. The end of its sending alone does not tell: a client that closed looks the same as
    /// one that waits for its answers, until something is sent to it.
    fn wait_in_debt(&self) -> Result<Turn, End> {
        if self.broken {
            return Err(End::Lost(io::ErrorKind::ConnectionReset.into()));
        }
        if self.finished && self.need > 0 {
            match retry(|| self.socket.has_input()) {
                Ok(true) => {}
                Ok(false) => return Err(End::Done),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Turn::Wait(Wait::Input))
    }

    #[inline]
    fn note_buffers(&mut self) {
        let output = if self.output.capacity() > 0 { self.output_bytes() } else { 0 };
        self.account.set(self.input.buffer_bytes() + output + self.conversation.kept_bytes());
    }

    /// Returns the bytes of the buffer of pending output, without copies of fetched values.
    fn output_bytes(&self) -> usize {
        let known: usize = self.held.iter().map(|value| FETCHED_COPIES * value.len()).sum();
        self.output.capacity().saturating_sub(known)
    }

    fn owes(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Reads if no complete command is left, executes commands, and sends the answers. No output is
    /// pending.
    fn advance_or_read(&mut self, context: &mut ThreadContext<'_>) -> Result<Turn, End> {
        let next = if self.need == 0 {
            self.advance(context)
        } else if !self.readable {
            return Ok(Turn::Wait(Wait::Input));
        } else if self.input.is_empty() {
            if !self.receive(&mut context.input, context.counters)? {
                return Ok(Turn::Wait(Wait::Input));
            }
            let cache = &context.shared.service.cache;
            let next = self.advance_over(&context.input, context.moment, &mut context.output, cache);
            return self.follow_reading(next, context);
        } else {
            let has_input = self.receive_more(context)?;
            return self.go_on_behind(has_input, context);
        };
        self.follow(next, context)
    }

    /// Executes the command that input was received behind, if it is complete now.
    fn go_on_behind(&mut self, has_input: bool, context: &mut ThreadContext<'_>) -> Result<Turn, End> {
        if !has_input {
            return Ok(Turn::Wait(Wait::Input));
        }
        if self.input.len() < self.need {
            return Ok(self.go_on());
        }
        let next = self.advance(context);
        self.follow(next, context)
    }

    /// Executes commands in `input`, which was read into a buffer of the thread, and keeps the
    /// rest.
    fn advance_over(&mut self, input: &[u8], moment: Moment, output: &mut Output, cache: &Cache) -> NextStep {
        let Advance { consumed, next } = self.conversation.advance(moment, input.into(), output);
        let need = if let NextStep::Need(need) = next { need } else { 0 };
        self.input.keep(&input[consumed..], need, cache);
        next
    }

    /// Carries out the next step after a first read, and continues a large value that has begun: no
    /// other turn is needed if the rest has arrived.
    fn follow_reading(&mut self, next: NextStep, context: &mut ThreadContext<'_>) -> Result<Turn, End> {
        let turn = self.follow(next, context)?;
        match turn {
            Turn::Again if self.input.is_in_place() && !context.output.work.ends_turn() => {
                self.advance_or_read(context)
            }
            _ => Ok(turn),
        }
    }

    fn advance(&mut self, context: &mut ThreadContext<'_>) -> NextStep {
        let Self { input, conversation, .. } = self;
        self.resumed = false;
        input.consume(|input| conversation.advance(context.moment, input, &mut context.output))
    }

    /// Continues the command that a backend has answered, and begins no other: the conversation
    /// sees no further input.
    fn finish_command(&mut self, context: &mut ThreadContext<'_>) -> Result<Turn, End> {
        self.resumed = false;
        let none = [].as_slice().into();
        let next = match self.conversation.advance(context.moment, none, &mut context.output).next {
            // The input that is left may be enough.
            NextStep::Need(_) if !self.input.is_empty() => NextStep::Send,
            next => next,
        };
        self.follow(next, context)
    }

    /// Carries out the next step of the connection, as the conversation returned it.
    fn follow(&mut self, next: NextStep, context: &mut ThreadContext<'_>) -> Result<Turn, End> {
        context.is_batch_over = matches!(next, NextStep::Need(_) | NextStep::Close | NextStep::HangUp);
        match next {
            NextStep::Need(need) => {
                self.need = need;
                if context.output.is_empty() && self.input.is_empty() {
                    // All commands were quiet.
                    self.socket.acknowledge();
                }
                if context.sends_later && !context.output.is_empty() {
                    return Ok(Turn::Owed);
                }
                Ok(if self.send(context)? { self.go_on() } else { Turn::Wait(Wait::Output) })
            }
            NextStep::Send => {
                self.need = 0;
                Ok(if self.send(context)? { Turn::Again } else { Turn::Wait(Wait::Output) })
            }
            NextStep::Fetch(wanted) => {
                self.need = 0;
                self.begin_batch(context);
                let asked = fetch::queries(&wanted);
                let fetched = fetch::fetch(context.shared.service.backends.as_ref(), wanted);
                Ok(self.wait_for_backend(asked, fetched.map(Answered::Fetched), context))
            }
            NextStep::Store(writes) => {
                self.need = 0;
                self.begin_batch(context);
                self.batch.iter_mut().for_each(|batch| batch.note_write());
                let asked = store::queries(&writes);
                let stored = store::store(context.shared.service.backends.as_ref(), writes);
                Ok(self.wait_for_backend(asked, stored.map(Answered::Stored), context))
            }
            NextStep::Close => {
                self.stage = Stage::Closing;
                if self.send(context)? { Err(End::Done) } else { Ok(Turn::Wait(Wait::Output)) }
            }
            NextStep::HangUp => {
                self.stage = Stage::HangingUp;
                if self.send(context)? { self.hang_up(context) } else { Ok(Turn::Wait(Wait::Output)) }
            }
        }
    }

    /// Notes that the client's batch goes on in later turns.
    fn begin_batch(&mut self, context: &ThreadContext<'_>) {
        if context.batches().is_some() && self.batch.is_none() {
            self.batch = Some(Box::new(UnfinishedBatch::new(context.moment.now)));
        }
    }

    /// Returns true if the client's batch has begun in an earlier turn, or waits for a backend.
    pub(super) fn has_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Adds the `keys` of a turn, which began at `began`, to the client's batch. Counts the batch
    /// if it `is_over`.
    pub(super) fn note_turn(
        &mut self,
        counting: &BatchCounting,
        (began, clock): (Instant, &dyn Clock),
        keys: &mut Keys,
        is_over: bool,
    ) {
        if self.number == 0 {
            self.number = counting.batches.connection_number();
        }
        counting.batches.note_writes(began, self.number, keys);
        if !keys.has_missed() && self.batch.is_none() {
            return;
        }
        let mut batch = self.batch.take().unwrap_or_else(|| Box::new(UnfinishedBatch::new(began)));
        batch.add(keys);
        match is_over {
            true => batch.finish(counting, clock.now(), self.number),
            false => self.batch = Some(batch),
        }
    }

    /// Ends a turn without output and without a complete command in the input.
    fn go_on(&self) -> Turn {
        if self.readable { Turn::Again } else { Turn::Wait(Wait::Input) }
    }

    /// Keeps the output, which the answer may be inserted into, and waits for a backend.
    fn wait_for_backend(
        &mut self,
        asked: Asked,
        answered: impl Future<Output = Answered> + Send + 'static,
        context: &mut ThreadContext<'_>,
    ) -> Turn {
        (self.output, self.sent) = context.output.take_pending(0);
        let answered = Box::pin(answered);
        self.stage = Stage::Waiting(Waiting { answered, asked, since: context.moment.now });
        self.poll_backend(context)
    }

    fn poll_backend(&mut self, context: &mut ThreadContext<'_>) -> Turn {
        let Stage::Waiting(Waiting { answered, asked, since }) = &mut self.stage else {
            return Turn::Again;
        };
        let waker = self.waker.get_or_insert_with(|| context.mailbox.waker(self.token.number()));
        match answered.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Pending => Turn::Wait(Wait::Backend),
            Poll::Ready(answered) => {
                let latency = context.moment.now.since(*since);
                match &answered {
                    Answered::Fetched(end) => {
                        context.times.fetched(asked, &end.results, latency);
                        if let (Some(batch), Some(counting)) = (&mut self.batch, context.batches()) {
                            let results = asked.iter().map(|(partition, _)| *partition).zip(&end.results);
                            batch.note_fetched(counting, (context.moment.now, latency), end.last, results);
                        }
                    }
                    Answered::Stored(result) => context.times.stored(asked, result, latency),
                }
                self.stage = Stage::Open;
                self.fresh = true;
                self.resumed = true;
                match answered {
                    Answered::Fetched(FetchEnd { results: fetched, .. }) => {
                        self.held.extend(fetched.iter().flatten().flatten().map(|found| found.value.clone()));
                        self.conversation.resume(context.moment, fetched, &mut self.output);
                    }
                    Answered::Stored(stored) => self.conversation.resume_stored(stored, &mut self.output),
                }
                Turn::Again
            }
        }
    }

    /// Ends the sending side of the connection.
    fn hang_up(&mut self, context: &mut ThreadContext<'_>) -> Result<Turn, End> {
        self.socket.shut_down(Shutdown::Write)?;
        self.stage = Stage::HungUp;
        self.fresh = true;
        self.input = PendingInput::default();
        self.discard(context)
    }

    /// Reads and discards the client's further input, which does not restart the timeout for its
    /// end.
    fn discard(&mut self, context: &mut ThreadContext<'_>) -> Result<Turn, End> {
        let fresh = self.fresh;
        if self.readable {
            // The input that this turn has read is consumed or will be discarded.
            context.input.empty();
            self.receive(&mut context.input, context.counters)?;
        }
        self.fresh = fresh;
        Ok(if self.readable { Turn::Again } else { Turn::Wait(Wait::Close) })
    }

    /// Reads up to [`INPUT_BYTES`] of a client's input, for which there is room, into a buffer of
    /// the thread. Returns true if any had arrived.
    fn receive(&mut self, buffer: &mut ReadBuffer, counters: &Counters) -> Result<bool, End> {
        let socket = &self.socket;
        let received = buffer.fill(INPUT_BYTES, |room| retry(|| socket.receive(room)));
        self.received(received, INPUT_BYTES, counters)
    }

    /// Reads more input behind the incomplete command, but not much more than has arrived, so that
    /// announcing a large value costs no memory. Returns true if any had arrived.
    fn receive_more(&mut self, context: &mut ThreadContext<'_>) -> Result<bool, End> {
        let cache = &context.shared.service.cache;
        let (received, room) = self.input.receive(&self.socket, self.need, cache);
        self.received(received, room, context.counters)
    }

    fn received(
        &mut self,
        received: io::Result<usize>,
        room: usize,
        counters: &Counters,
    ) -> Result<bool, End> {
        match received {
            Ok(0) => Err(End::Done),
            Ok(bytes) => {
                // A short read took everything that had arrived. The system reports new input, but
                // does not repeat the end.
                self.readable = bytes == room || self.finished;
                self.fresh = true;
                counters.add(Count::BytesRead, bytes as u64);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends the output of the turn. The rest that the system does not take is kept as the client's
    /// pending output. Returns true if everything was sent.
    fn send(&mut self, context: &mut ThreadContext<'_>) -> Result<bool, End> {
        self.send_rest(&mut context.output, 0, context.counters)
    }

    /// Sends `output` behind the first `sent` bytes, as [`send`](Self::send) does.
    fn send_rest(&mut self, output: &mut Output, sent: usize, counters: &Counters) -> Result<bool, End> {
        let sent = sent + send_output(&self.socket, output, sent, counters)?;
        if sent == output.len() {
            output.clear();
            return Ok(true);
        }
        self.fresh = true;
        (self.output, self.sent) = output.take_pending(sent);
        Ok(false)
    }

    /// Sends the client's pending output. Returns true if none is left.
    fn settle(&mut self, context: &mut ThreadContext<'_>) -> Result<bool, End> {
        if !self.owes() {
            self.release();
            return Ok(true);
        }
        let sent = send_some(&self.socket, &self.output[self.sent..], context.counters)?;
        self.sent += sent;
        self.fresh |= sent > 0;
        if self.owes() {
            return Ok(false);
        }
        self.release();
        Ok(true)
    }

    /// Frees the memory of sent output and of the fetched values whose copies were in it. A fetch
    /// whose answer is empty leaves values without output.
    fn release(&mut self) {
        self.output = Vec::new();
        self.sent = 0;
        self.held.clear();
    }
}

/// Returns the result of an operation of a round; none if it has to be done by the plain call.
fn uninterrupted(result: Option<io::Result<usize>>) -> Option<io::Result<usize>> {
    result.filter(|result| !matches!(result, Err(error) if error.kind() == io::ErrorKind::Interrupted))
}

fn read_outcome(has_input: Result<bool, End>) -> ReadOutcome {
    match has_input {
        Ok(true) => ReadOutcome::Input,
        Ok(false) => ReadOutcome::Over(Turn::Wait(Wait::Input)),
        Err(end) => ReadOutcome::Over(Turn::End(end)),
    }
}

/// Sends as much of `output` behind its first `sent` bytes as the system takes, and returns the
/// number of bytes.
fn send_output(
    socket: &impl Socket,
    output: &Output,
    sent: usize,
    counters: &Counters,
) -> Result<usize, End> {
    if !output.has_values() {
        return send_some(socket, &output[sent..], counters);
    }
    let mut parts = output.parts();
    let mut left = &mut parts[..];
    IoSlice::advance_slices(&mut left, sent);
    send_all(counters, output.len() - sent, |sent| {
        IoSlice::advance_slices(&mut left, sent);
        socket.send_parts(left)
    })
}

/// Sends as much of `bytes` as the system takes, and returns how many.
fn send_some(socket: &impl Socket, bytes: &[u8], counters: &Counters) -> Result<usize, End> {
    let mut left = bytes;
    send_all(counters, bytes.len(), |sent| {
        left = &left[sent..];
        socket.send(left)
    })
}

/// Calls `send` until `bytes` bytes are sent or the system takes no more; returns how many were.
/// `send` is told how many bytes its last call has sent.
fn send_all(
    counters: &Counters,
    bytes: usize,
    mut send: impl FnMut(usize) -> io::Result<usize>,
) -> Result<usize, End> {
    let (mut sent, mut last) = (0, 0);
    while sent < bytes {
        match send(last) {
            Ok(0) => return Err(End::Lost(io::ErrorKind::WriteZero.into())),
            Ok(bytes) => {
                last = bytes;
                sent += bytes;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => last = 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    counters.add(Count::BytesWritten, sent as u64);
    Ok(sent)
}

/// Repeats a system call that a signal has interrupted.
pub(super) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
