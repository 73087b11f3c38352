//! One client: its socket, its buffers and what it waits for.
//!
//! A client gets a *turn* when something happened to it, and does in it what can be done without
//! waiting: send what is owed, read once, execute what has arrived, send the answers. Both buffers
//! are bounded by never doing one step while another is due: nothing is executed while output is
//! owed, and nothing is read while there is something to execute, so a client that does not read is
//! soon unable to write.
//!
//! Most turns end with nothing left over. So what is read and what is answered lies in buffers of
//! the thread, and a client has buffers of its own only for what is left: a silent client costs no
//! memory but its place.

use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::account::{Account, FETCHED_COPIES};
use super::conversation::{Advance, Conversation, Fetched, Next};
use super::counters::{Count, Counters};
use super::fetch::fetch;
use super::lent::{Empty, Lent, ReadBuffer};
use super::mailbox::Mailbox;
use super::shared::{Place, Shared};
use super::slots::Token;
use super::sockets::Socket;
use crate::clock::Moment;

/// What is read at once of short commands.
pub(super) const INPUT_BYTES: usize = 16 * 1024;

/// One client.
pub(super) struct Connection<C, S> {
    token: Token,
    socket: S,
    conversation: C,
    stage: Stage,
    /// What has arrived and is not used up.
    input: Vec<u8>,
    /// How much of it has to be there before anything can be executed; 0 when something can be now.
    need: usize,
    /// What is owed; the first `sent` bytes of it are gone.
    output: Vec<u8>,
    sent: usize,
    /// Fetched values whose copies are in `output`: as long as these are here, the copies have
    /// their part of the budget.
    held: Vec<Bytes>,
    /// For both buffers, as far as the budget does not know them.
    account: Account,
    /// Whether there may be something to read.
    readable: bool,
    /// Whether the other side has closed, so that reading ends.
    finished: bool,
    /// Whether something happened since patience was last [tried](Self::try_patience).
    fresh: bool,
    /// Whether its login was waited for before.
    lingers: bool,
    /// Whether it is among those with more to do.
    pub(super) queued: bool,
    /// Wakes it from fetching; made with the first fetch.
    waker: Option<Waker>,
    _place: Place,
}

/// How far a conversation has come.
enum Stage {
    /// There will be more.
    Talking,
    /// A backend is to answer.
    Fetching(Pin<Box<dyn Future<Output = Fetched> + Send>>),
    /// Closed once nothing is owed.
    Closing,
    /// Hung up on once nothing is owed.
    HangingUp,
    /// Hung up on: what the client still sends is read and thrown away, until it has finished too.
    /// Closing a socket with unread bytes in it would make the system throw away the answer that
    /// tells why.
    HungUp,
}

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// That something arrives.
    Input,
    /// That output can be sent.
    Output,
    /// A backend.
    Backend,
    /// That it finishes, after it was hung up on.
    Farewell,
    /// That it logs in, whatever else it does.
    Login,
}

/// How a turn ended.
#[derive(Debug)]
pub(super) enum Turn {
    /// Nothing more can be done until something happens.
    Wait(Wait),
    /// There is more to do, and others have a right to their turns first.
    Again,
    /// The connection is of no further use.
    End(End),
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// All was said.
    Done,
    /// It broke.
    Lost(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// What a client needs of its thread for a turn.
pub(super) struct Desk<'a> {
    pub(super) shared: &'a Shared,
    pub(super) counters: &'a Counters,
    pub(super) mailbox: &'a Arc<Mailbox>,
    pub(super) moment: Moment,
    /// Room for [`INPUT_BYTES`] to read into.
    pub(super) input: Lent<'a, ReadBuffer>,
    pub(super) output: Lent<'a, Vec<u8>>,
}

/// What came of an attempt to [hear](Connection::hear) a client.
#[derive(Debug)]
pub(super) enum Heard {
    /// Input in the buffer, to be [answered](Connection::answer).
    Input,
    /// Nothing, and its turn is over.
    Over(Turn),
    /// It has something else to do first: a [turn](Connection::turn) of its own.
    Busy,
}

/// Events the system tells of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readiness {
    /// There may be something to read.
    pub(super) readable: bool,
    /// The other side has closed or the connection broke: reading will end.
    pub(super) finished: bool,
}

impl<C: Conversation, S: Socket> Connection<C, S> {
    pub(super) fn new(token: Token, socket: S, conversation: C, place: Place, account: Account) -> Self {
        Self {
            token,
            socket,
            conversation,
            stage: Stage::Talking,
            input: Vec::new(),
            need: 1,
            output: Vec::new(),
            sent: 0,
            held: Vec::new(),
            account,
            readable: false,
            finished: false,
            fresh: true,
            lingers: false,
            queued: false,
            waker: None,
            _place: place,
        }
    }

    pub(super) fn socket(&self) -> &S {
        &self.socket
    }

    /// Takes note of what the system says; a turn is due then.
    pub(super) fn note(&mut self, readiness: Readiness) {
        self.readable |= readiness.readable;
        self.finished |= readiness.finished;
    }

    /// Reads nothing more than what has arrived: to the conversation it looks as if its client had
    /// finished.
    pub(super) fn stop_reading(&mut self) {
        // One that is gone already needs no shutting down.
        let _ = self.socket.shut_down(Shutdown::Read);
        self.note(Readiness { readable: true, finished: true });
    }

    /// What the client waits for.
    fn waits_for(&self) -> Wait {
        match self.stage {
            Stage::Fetching(_) => Wait::Backend,
            _ if self.owes() => Wait::Output,
            Stage::HungUp => Wait::Farewell,
            _ => Wait::Input,
        }
    }

    /// Whether the client keeps us waiting for this.
    pub(super) fn keeps_waiting(&self, wait: Wait) -> bool {
        match wait {
            Wait::Login => self.conversation.is_outside(),
            _ => self.waits_for() == wait,
        }
    }

    /// Says whether nothing has happened since this was called last; for a login, whether it was
    /// called before.
    pub(super) fn try_patience(&mut self, wait: Wait) -> bool {
        match wait {
            Wait::Login => std::mem::replace(&mut self.lingers, true),
            _ => !std::mem::take(&mut self.fresh),
        }
    }

    /// Reads what a client says that has nothing else to do. It is to be answered before anything
    /// else happens to the client.
    pub(super) fn hear(&mut self, buffer: &mut ReadBuffer, counters: &Counters) -> Heard {
        let idle = matches!(self.stage, Stage::Talking) && !self.owes() && self.need > 0;
        if !idle || !self.readable || !self.input.is_empty() {
            return Heard::Busy;
        }
        match self.receive(buffer, counters) {
            Ok(true) => Heard::Input,
            Ok(false) => Heard::Over(Turn::Wait(Wait::Input)),
            Err(end) => Heard::Over(Turn::End(end)),
        }
    }

    /// Executes what was heard, and sends the answers.
    pub(super) fn answer(&mut self, input: &[u8], desk: &mut Desk<'_>) -> Turn {
        let advance = self.conversation.advance(desk.moment, input, &mut desk.output);
        self.input.extend_from_slice(&input[advance.consumed..]);
        let turn = self.follow(advance.next, desk);
        self.note_buffers();
        turn.unwrap_or_else(Turn::End)
    }

    /// Does what can be done now.
    pub(super) fn turn(&mut self, desk: &mut Desk<'_>) -> Turn {
        let turn = match self.stage {
            Stage::Fetching(_) => Ok(self.poll_fetch(desk)),
            _ => self.settle(desk).and_then(|settled| match (settled, &self.stage) {
                (false, _) => Ok(Turn::Wait(Wait::Output)),
                (true, Stage::Closing) => Err(End::Done),
                (true, Stage::HangingUp) => self.hang_up(desk),
                (true, Stage::HungUp) => self.discard(desk),
                (true, Stage::Talking | Stage::Fetching(_)) => self.talk(desk),
            }),
        };
        self.note_buffers();
        turn.unwrap_or_else(Turn::End)
    }

    fn note_buffers(&mut self) {
        let known: usize = self.held.iter().map(|value| FETCHED_COPIES * value.len()).sum();
        self.account.set(self.input.capacity() + self.output.capacity().saturating_sub(known));
    }

    fn owes(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Reads if there is nothing to execute yet, executes, and sends the answers. Nothing is owed
    /// before.
    fn talk(&mut self, desk: &mut Desk<'_>) -> Result<Turn, End> {
        let advance = if self.need == 0 {
            self.advance(desk)
        } else if !self.readable {
            return Ok(Turn::Wait(Wait::Input));
        } else if self.input.is_empty() {
            if !self.receive(&mut desk.input, desk.counters)? {
                return Ok(Turn::Wait(Wait::Input));
            }
            let advance = self.conversation.advance(desk.moment, &desk.input, &mut desk.output);
            self.input.extend_from_slice(&desk.input[advance.consumed..]);
            advance
        } else {
            if !self.receive_more(desk)? {
                return Ok(Turn::Wait(Wait::Input));
            }
            if self.input.len() < self.need {
                return Ok(self.go_on());
            }
            self.advance(desk)
        };
        self.follow(advance.next, desk)
    }

    fn advance(&mut self, desk: &mut Desk<'_>) -> Advance {
        let advance = self.conversation.advance(desk.moment, &self.input, &mut desk.output);
        self.input.drain(..advance.consumed);
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        advance
    }

    /// Does what the conversation asks for.
    fn follow(&mut self, next: Next, desk: &mut Desk<'_>) -> Result<Turn, End> {
        match next {
            Next::Need(need) => {
                self.need = need;
                Ok(if self.send(desk)? { self.go_on() } else { Turn::Wait(Wait::Output) })
            }
            Next::Send => {
                self.need = 0;
                Ok(if self.send(desk)? { Turn::Again } else { Turn::Wait(Wait::Output) })
            }
            Next::Fetch(wanted) => {
                self.need = 0;
                self.output = desk.output.take();
                self.stage = Stage::Fetching(Box::pin(fetch(desk.shared.service.backends.as_ref(), wanted)));
                Ok(self.poll_fetch(desk))
            }
            Next::Close => {
                self.stage = Stage::Closing;
                if self.send(desk)? { Err(End::Done) } else { Ok(Turn::Wait(Wait::Output)) }
            }
            Next::HangUp => {
                self.stage = Stage::HangingUp;
                if self.send(desk)? { self.hang_up(desk) } else { Ok(Turn::Wait(Wait::Output)) }
            }
        }
    }

    /// When nothing is owed and nothing to be executed.
    fn go_on(&self) -> Turn {
        if self.readable { Turn::Again } else { Turn::Wait(Wait::Input) }
    }

    fn poll_fetch(&mut self, desk: &mut Desk<'_>) -> Turn {
        let Stage::Fetching(fetching) = &mut self.stage else { return Turn::Again };
        let waker = self.waker.get_or_insert_with(|| desk.mailbox.waker(self.token.number()));
        match fetching.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Pending => Turn::Wait(Wait::Backend),
            Poll::Ready(fetched) => {
                self.stage = Stage::Talking;
                self.fresh = true;
                self.held.extend(fetched.iter().flatten().flatten().map(|found| found.value.clone()));
                self.conversation.resume(desk.moment, fetched, &mut self.output);
                Turn::Again
            }
        }
    }

    /// Says that nothing more will come.
    fn hang_up(&mut self, desk: &mut Desk<'_>) -> Result<Turn, End> {
        self.socket.shut_down(Shutdown::Write)?;
        self.stage = Stage::HungUp;
        self.fresh = true;
        self.input = Vec::new();
        self.discard(desk)
    }

    /// Lets the client finish its sentence, and hears nothing of it. Patience does not begin anew
    /// with what it says.
    fn discard(&mut self, desk: &mut Desk<'_>) -> Result<Turn, End> {
        let fresh = self.fresh;
        if self.readable {
            // What was read in this turn before is used up, or of no use.
            desk.input.empty();
            self.receive(&mut desk.input, desk.counters)?;
        }
        self.fresh = fresh;
        Ok(if self.readable { Turn::Again } else { Turn::Wait(Wait::Farewell) })
    }

    /// Reads up to [`INPUT_BYTES`], for which there is room, into a buffer of the thread's. Returns
    /// whether anything had arrived.
    fn receive(&mut self, buffer: &mut ReadBuffer, counters: &Counters) -> Result<bool, End> {
        let socket = &self.socket;
        let received = buffer.fill(INPUT_BYTES, |room| retry(|| socket.receive(room)));
        self.received(received, INPUT_BYTES, counters)
    }

    /// Reads behind what is there: what the conversation waits for, which may be no more than the
    /// next byte of something whose length it cannot know, so as much as is read of short commands
    /// at least; but never much more than has arrived already, so that announcing a large value
    /// costs nothing.
    fn receive_more(&mut self, desk: &mut Desk<'_>) -> Result<bool, End> {
        let held = self.input.len();
        let wanted = self.need.saturating_sub(held).max(INPUT_BYTES);
        self.input.reserve_exact(wanted.min(held.max(INPUT_BYTES)));
        let room = self.input.capacity() - held;
        let received = retry(|| self.socket.receive_behind(&mut self.input));
        self.received(received, room, desk.counters)
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
                // Less than there was room for was all there is, and the system will tell of more;
                // but not of an end that it has told of already.
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

    /// Sends the thread's output; what the system does not take becomes the client's own. Says
    /// whether it took all.
    fn send(&mut self, desk: &mut Desk<'_>) -> Result<bool, End> {
        if desk.output.is_empty() {
            return Ok(true);
        }
        let sent = send_some(&self.socket, &desk.output, desk.counters)?;
        if sent == desk.output.len() {
            desk.output.clear();
            return Ok(true);
        }
        self.fresh = true;
        self.output = desk.output.take();
        self.sent = sent;
        Ok(false)
    }

    /// Sends what is owed. Says whether it is settled.
    fn settle(&mut self, desk: &mut Desk<'_>) -> Result<bool, End> {
        if !self.owes() {
            self.release();
            return Ok(true);
        }
        let sent = send_some(&self.socket, &self.output[self.sent..], desk.counters)?;
        self.sent += sent;
        self.fresh |= sent > 0;
        if self.owes() {
            return Ok(false);
        }
        self.release();
        Ok(true)
    }

    /// Gives back the memory of output that is sent, and the budget of the values in it. A fetch
    /// that is not answered to the client leaves nothing to send and values nevertheless.
    fn release(&mut self) {
        self.output = Vec::new();
        self.sent = 0;
        self.held.clear();
    }
}

/// Sends as much as the system takes.
fn send_some(socket: &impl Socket, output: &[u8], counters: &Counters) -> Result<usize, End> {
    let mut sent = 0;
    while sent < output.len() {
        match retry(|| socket.send(&output[sent..])) {
            Ok(0) => return Err(End::Lost(io::ErrorKind::WriteZero.into())),
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    counters.add(Count::BytesWritten, sent as u64);
    Ok(sent)
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
