//! One thread of a listener: it waits for its sockets and gives each client its turn.
//!
//! At one command a packet a server spends its time in system calls, and what it can save is the
//! calls that carry nothing. So sockets are registered once, for edges: the system tells what
//! changed and is never asked to tell again. A read that filled less than its buffer was the last
//! one there was. Nobody has a timer: who has waited too long is found by sweeping over all clients
//! once per time-out, so patience ends after one to two of them.
//!
//! The clock is read once each time the system has woken us, for all turns it gave rise to.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sherwood_model::Instant;

use super::account::Account;
use super::connection::{Connection, Desk, End, Heard, INPUT_BYTES, Readiness, Turn, Wait};
use super::conversation::Protocol;
use super::counters::Count;
use super::crew::{Crew, Newcomer};
use super::hearing::{Hearing, ROOM_BYTES};
use super::idle::IdleTime;
use super::lent::{Empty, Lendable, ReadBuffer};
use super::mailbox::Mailbox;
use super::options::ListenerOptions;
use super::shared::{Connections, Place, Shared};
use super::slots::{Slots, Token};
use super::sockets::{Event, Socket, Sockets};
use crate::clock::Moment;

/// Connections accepted in a row, before those that are open have their turns.
const ACCEPTS_MAX: usize = 64;
/// How long nothing is accepted after the system could not, for want of file descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a client that is hung up on may go on sending, so that it gets to read why; twice that
/// at most.
const FAREWELL: Duration = Duration::from_secs(1);

/// Tokens of wake-ups for the whole thread; no client has them, it would have to be among the last
/// of 2^32.
pub(super) const STOP: u64 = u64::MAX - 2;
pub(super) const NEWCOMERS: u64 = u64::MAX - 3;

/// A thread's state.
pub(super) struct Thread<P: Protocol, S: Sockets> {
    protocol: Arc<P>,
    number: usize,
    shared: Arc<Shared>,
    sockets: S,
    crew: Arc<Crew<S::Socket>>,
    mailbox: Arc<Mailbox>,
    /// Nothing once it was told to stop.
    door: Option<Door>,
    clients: Slots<Connection<P::Conversation, S::Socket>>,
    /// Clients with more to do, in the order of their turns; each once.
    again: VecDeque<Token>,
    sweeps: Sweeps,
    /// Who was read and is to be answered.
    hearing: Hearing,
    /// Input of a connection that is read in a turn of its own.
    input: Lendable<ReadBuffer>,
    /// Answers of a turn. Its capacity is kept: one bound and one value at most, or twice that.
    output: Lendable<Vec<u8>>,
    /// For these three.
    account: Account,
}

/// Where clients come in.
struct Door {
    /// Whether somebody may be waiting.
    knocked: bool,
    /// Nobody is let in before.
    closed_until: Instant,
}

impl<P: Protocol, S: Sockets> Thread<P, S> {
    /// Thread number `number`, which waits for `sockets`.
    pub(super) fn new(
        protocol: Arc<P>,
        number: usize,
        shared: Arc<Shared>,
        crew: Arc<Crew<S::Socket>>,
        sockets: S,
    ) -> Self {
        let mailbox = Arc::clone(crew.mailbox(number));
        Self {
            protocol,
            number,
            sweeps: Sweeps::new(&shared.options, shared.service.passwords.is_some()),
            account: shared.service.account(),
            shared,
            sockets,
            crew,
            mailbox,
            door: Some(Door { knocked: true, closed_until: Instant::ZERO }),
            clients: Slots::default(),
            again: VecDeque::new(),
            hearing: Hearing::new(),
            input: Lendable::new(ReadBuffer::new(INPUT_BYTES)),
            output: Lendable::new(Vec::new()),
        }
    }

    /// Serves until it is told to stop, and then until all clients are gone or have been waited for
    /// long enough.
    ///
    /// # Errors
    /// When the system fails in a way that no later call would mend.
    pub(super) fn run(mut self) -> io::Result<()> {
        if self.shared.options.pin_threads {
            keep_to_core(self.number);
        }
        let mut moment = self.shared.clock.moment();
        let mut events = Vec::new();
        let background = self.shared.service.background.clone();
        let mut idle = IdleTime::default();
        while !self.crew.is_stopping() {
            let background =
                background.as_deref().filter(|work| self.again.is_empty() && idle.is_used(*work, moment.now));
            let helps = background.is_some();
            let patience = if helps { Some(Duration::ZERO) } else { self.patience(moment.now) };
            self.sockets.wait(&mut events, patience)?;
            moment = self.shared.clock.moment();
            idle.asked(!helps, !events.is_empty(), moment.now);
            if let Some(work) = background.filter(|_| events.is_empty()) {
                idle.help(work, moment.now);
            }
            self.serve(moment, &mut events);
        }
        self.drain(moment, events)
    }

    /// Lets every client have the answers to what it has sent, and closes. Nothing more is read
    /// from anybody: to the conversations it looks as if their clients had finished, and they end
    /// as they always do.
    fn drain(mut self, mut moment: Moment, mut events: Vec<Event>) -> io::Result<()> {
        self.door = None;
        self.sockets.stop_accepting();
        for (_, client) in self.clients.iter_mut() {
            client.stop_reading();
        }
        let all: Vec<Token> = self.clients.iter_mut().map(|(token, _)| token).collect();
        for token in all {
            self.turn(token, moment);
        }
        let end = moment.now + self.shared.options.drain_timeout;
        while self.clients.len() > 0 && moment.now < end {
            let patience = self.patience(moment.now);
            let left = end.since(moment.now);
            self.sockets.wait(&mut events, Some(patience.map_or(left, |patience| patience.min(left))))?;
            moment = self.shared.clock.moment();
            self.serve(moment, &mut events);
        }
        if self.clients.len() > 0 {
            tracing::warn!(connections = self.clients.len(), "connections were cut off at shutdown");
        }
        Ok(())
    }

    /// How long there is nothing to do unless something happens; for ever, if nothing is returned.
    fn patience(&self, now: Instant) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let door = self.door.as_ref().filter(|door| door.knocked).map(|door| door.closed_until);
        let due = [door, self.sweeps.due()].into_iter().flatten().min()?;
        Some(due.since(now))
    }

    /// Gives everybody a turn to whom something happened, or who has more to do.
    fn serve(&mut self, moment: Moment, events: &mut Vec<Event>) {
        // Those who had a turn before and got no event now; who is added meanwhile waits for the
        // next time.
        let waiting = self.again.len();
        for event in events.drain(..) {
            match event {
                Event::Incoming => self.door.iter_mut().for_each(|door| door.knocked = true),
                Event::Raised => {
                    // It may bring turns for those who are heard already.
                    self.answer(moment);
                    self.empty_mailbox(moment);
                }
                Event::Connection { token, readable, finished } => {
                    self.tell(Token::from_number(token), Readiness { readable, finished }, moment);
                }
            }
        }
        self.answer(moment);
        for _ in 0..waiting {
            let Some(token) = self.again.pop_front() else { break };
            if let Some(client) = self.clients.get_mut(token) {
                client.queued = false;
                self.turn(token, moment);
            }
        }
        self.accept(moment.now);
        self.sweep(moment.now);
    }

    fn tell(&mut self, token: Token, readiness: Readiness, moment: Moment) {
        let Some(client) = self.clients.get_mut(token) else { return };
        client.note(readiness);
        let counters = &self.shared.counters[self.number];
        match self.hearing.read(token, |buffer| client.hear(buffer, counters)) {
            Heard::Input => {}
            Heard::Over(turn) => self.conclude(token, turn, moment.now),
            Heard::Busy => self.turn(token, moment),
        }
        if self.hearing.is_full() {
            self.answer(moment);
        }
    }

    /// Answers those who were heard.
    fn answer(&mut self, moment: Moment) {
        let mut hearing = std::mem::take(&mut self.hearing);
        hearing.prefetch::<P::Conversation>(&self.shared.service);
        for (token, input) in hearing.inputs() {
            self.act(token, moment, |client, desk| client.answer(input, desk));
        }
        hearing.empty();
        self.hearing = hearing;
    }

    fn empty_mailbox(&mut self, moment: Moment) {
        let mailbox = Arc::clone(&self.mailbox);
        mailbox.empty(|token| match token {
            // The loop looks at the crew itself.
            STOP => {}
            NEWCOMERS => {
                for Newcomer { socket, place } in self.crew.newcomers(self.number) {
                    self.settle_in(socket, place, moment.now);
                }
            }
            token => self.turn(Token::from_number(token), moment),
        });
    }

    fn turn(&mut self, token: Token, moment: Moment) {
        self.act(token, moment, Connection::turn);
    }

    /// Has a client do something, and does what that leads to.
    fn act(
        &mut self,
        token: Token,
        moment: Moment,
        act: impl FnOnce(&mut Connection<P::Conversation, S::Socket>, &mut Desk<'_>) -> Turn,
    ) {
        let Some(client) = self.clients.get_mut(token) else { return };
        let counters = &self.shared.counters[self.number];
        let mut desk = Desk {
            shared: &self.shared,
            counters,
            mailbox: &self.mailbox,
            moment,
            input: self.input.lend(),
            output: self.output.lend(),
        };
        let turn = catch_unwind(AssertUnwindSafe(|| act(client, &mut desk)));
        drop(desk);
        self.account.set(INPUT_BYTES + ROOM_BYTES + self.output.capacity());
        match turn {
            Ok(turn) => self.conclude(token, turn, moment.now),
            Err(_) => {
                tracing::error!("a {} connection ended in a panic", P::NAME);
                self.end(token);
            }
        }
    }

    fn conclude(&mut self, token: Token, turn: Turn, now: Instant) {
        match turn {
            Turn::Wait(wait) => self.sweeps.watch(wait, now),
            Turn::Again => {
                if let Some(client) = self.clients.get_mut(token)
                    && !std::mem::replace(&mut client.queued, true)
                {
                    self.again.push_back(token);
                }
            }
            Turn::End(end) => {
                if let End::Lost(error) = end {
                    tracing::debug!(%error, "{} connection lost", P::NAME);
                }
                self.end(token);
            }
        }
    }

    /// Lets those in who wait.
    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_MAX {
            let Some(door) = self.door.as_mut().filter(|door| door.knocked && door.closed_until <= now)
            else {
                return;
            };
            match self.sockets.accept() {
                Ok(socket) => self.welcome(socket, now),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => door.knocked = false,
                    // It has gone while it waited.
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        tracing::warn!(%error, "the {} listener cannot accept connections", P::NAME);
                        door.closed_until = now + ACCEPT_PAUSE;
                    }
                },
            }
        }
    }

    fn welcome(&mut self, socket: S::Socket, now: Instant) {
        let Some(place) = Connections::open(&self.shared) else {
            // Whether it arrives or not, the connection is closed.
            let _ = socket.send(P::TOO_MANY);
            return;
        };
        match self.crew.choose(self.number) {
            chosen if chosen == self.number => self.settle_in(socket, place, now),
            chosen => self.crew.hand_over(chosen, Newcomer { socket, place }),
        }
    }

    /// Makes a connection a client of this thread, which counts it already.
    fn settle_in(&mut self, socket: S::Socket, place: Place, now: Instant) {
        if self.door.is_none() {
            // It came while we were closing: nothing of it was read, and it is closed.
            self.crew.gone(self.number);
            return;
        }
        let conversation = self.protocol.open(&self.shared, self.number);
        let account = self.shared.service.account();
        let token = self.clients.insert(|token| Connection::new(token, socket, conversation, place, account));
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
        if self.clients.remove(token).is_some() {
            self.crew.gone(self.number);
        }
    }

    /// Ends those who have kept us waiting for too long.
    fn sweep(&mut self, now: Instant) {
        let Some(wait) = self.sweeps.take_due(now) else { return };
        let (mut over, mut some_left) = (Vec::new(), false);
        for (token, client) in self.clients.iter_mut().filter(|(_, client)| client.keeps_waiting(wait)) {
            match client.try_patience(wait) {
                true => over.push(token),
                false => some_left = true,
            }
        }
        let count = match wait {
            Wait::Input | Wait::Login => Some(Count::IdleKicks),
            Wait::Output => Some(Count::SlowKicks),
            Wait::Backend | Wait::Farewell => None,
        };
        if let Some(count) = count {
            self.shared.counters[self.number].add(count, over.len() as u64);
        }
        over.into_iter().for_each(|token| self.end(token));
        if some_left {
            self.sweeps.watch(wait, now);
        }
    }
}

/// Keeps this thread to one of the cores that the process may use: number `number` of them, counted
/// around.
fn keep_to_core(number: usize) {
    let kept = sched_getaffinity(None).and_then(|allowed| {
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
        let mut only = CpuSet::new();
        if let Some(place) = number.checked_rem(cores.len()) {
            only.set(cores[place]);
        }
        sched_setaffinity(None, &only)
    });
    if let Err(error) = kept {
        tracing::warn!(%error, "a listener's thread cannot be kept to a core and goes where the system sends it");
    }
}

/// When to look next for clients that have kept us waiting for too long.
#[derive(Debug)]
struct Sweeps {
    /// What they wait for, how long they may, and when to look; nobody waits while there is no
    /// time.
    kinds: [(Wait, Option<Duration>, Option<Instant>); 4],
}

impl Sweeps {
    fn new(options: &ListenerOptions, asks_for_passwords: bool) -> Self {
        let kinds = [
            (Wait::Input, options.idle_timeout),
            (Wait::Output, Some(options.write_timeout)),
            (Wait::Farewell, Some(FAREWELL)),
            (Wait::Login, asks_for_passwords.then_some(options.login_timeout)),
        ];
        Self { kinds: kinds.map(|(wait, patience)| (wait, patience, None)) }
    }

    /// Somebody waits for this from now on.
    fn watch(&mut self, wait: Wait, now: Instant) {
        for (kind, patience, due) in &mut self.kinds {
            if *kind == wait && due.is_none() {
                *due = patience.map(|patience| now + patience);
            }
        }
    }

    /// When to look next.
    fn due(&self) -> Option<Instant> {
        self.kinds.iter().filter_map(|(_, _, due)| *due).min()
    }

    /// What is due to be looked at; it is not watched any longer.
    fn take_due(&mut self, now: Instant) -> Option<Wait> {
        let (wait, _, due) = self.kinds.iter_mut().find(|(_, _, due)| due.is_some_and(|due| due <= now))?;
        *due = None;
        Some(*wait)
    }
}
