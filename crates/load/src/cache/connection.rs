//! One pipelined connection.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use sherwood_wire::memcached::client::{self, Answer, Item, Key, Progress, Reply};
use sherwood_wire::memcached::{Exptime, StorageVerb};
use thiserror::Error;

use super::Ended;
use super::operations::{Operation, VALUE_BYTES_MAX, Verb};
use super::tally::Tally;

pub(super) struct Connection {
    stream: TcpStream,
    /// Bytes to send; the first `sent` of them are gone. Bounded by the pipeline's operations.
    out: Vec<u8>,
    sent: usize,
    /// Bytes read; those in `start..end` are not parsed yet. Grows to the largest reply.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Operations under way, in the order of their answers.
    in_flight: VecDeque<InFlight>,
    /// Whether the driver counts it among those with a free place.
    pub(super) listed: bool,
}

struct InFlight {
    operation: Operation,
    intended_ns: u64,
    stage: Stage,
    /// Values that have come.
    found: u32,
    /// Keys that had none, known once all answers to a get have come.
    missed: u32,
}

#[derive(Clone, Copy)]
enum Stage {
    Getting,
    Storing,
}

/// Why a connection is of no further use.
#[derive(Debug, Error)]
pub(super) enum Lost {
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("the target closed the connection")]
    Closed,
    #[error("{0}")]
    Reply(#[from] client::ReplyError),
    #[error("the target answered `{0}` out of turn")]
    OutOfTurn(String),
}

/// What answers lead to; borrowed for the time of one [`Connection::receive`].
pub(super) struct Ending<'a, 'o> {
    pub(super) now_ns: u64,
    pub(super) look_aside: bool,
    pub(super) tally: &'a mut Tally<'o>,
    pub(super) values: &'a mut Values,
    /// Takes back the operations that ended.
    pub(super) spare: &'a mut Vec<Operation>,
}

/// The bytes that values are made of, as many as the largest one sent so far.
#[derive(Default)]
pub(super) struct Values(Vec<u8>);

impl Values {
    fn of(&mut self, bytes: u32) -> &[u8] {
        let bytes = bytes as usize;
        if self.0.len() < bytes {
            self.0.resize(bytes, b'v');
        }
        &self.0[..bytes]
    }
}

const INPUT_BYTES: usize = 64 << 10;

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        let (out, input, in_flight) = (Vec::new(), vec![0; INPUT_BYTES], VecDeque::new());
        Self { stream, out, sent: 0, input, start: 0, end: 0, in_flight, listed: false }
    }

    pub(super) fn under_way(&self) -> usize {
        self.in_flight.len()
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Appends the operation's command; [`Self::flush`] sends it.
    pub(super) fn start(&mut self, operation: Operation, intended_ns: u64, values: &mut Values) {
        let stage = match operation.verb {
            Verb::Get => {
                client::get(&mut self.out, keys(&operation));
                Stage::Getting
            }
            Verb::Set => {
                self.append_set(&operation, values);
                Stage::Storing
            }
        };
        self.in_flight.push_back(InFlight { operation, intended_ns, stage, found: 0, missed: 0 });
    }

    fn append_set(&mut self, operation: &Operation, values: &mut Values) {
        let item = Item { value: values.of(operation.value_bytes), flags: 0, exptime: Exptime(0) };
        client::store(&mut self.out, StorageVerb::Set, key(&operation.key), item, Answer::Expected);
    }

    /// Sends what the socket takes without waiting.
    pub(super) fn flush(&mut self) -> Result<(), Lost> {
        while self.sent < self.out.len() {
            match send(&self.stream, &self.out[self.sent..], SendFlags::NOSIGNAL) {
                Ok(0) => return Err(Lost::Closed),
                Ok(written) => self.sent += written,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Lost::Io(error.into())),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads all there is, and ends or carries on the operations whose answers have come.
    pub(super) fn receive(&mut self, ending: &mut Ending<'_, '_>) -> Result<(), Lost> {
        loop {
            let room = self.input.len() - self.end;
            let read = match recv(&self.stream, &mut self.input[self.end..], RecvFlags::empty()) {
                Ok((0, _)) => return Err(Lost::Closed),
                Ok((read, _)) => read,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(Lost::Io(error.into())),
            };
            self.end += read;
            while let Some(answer) = self.next_answer()? {
                self.handle(answer, ending)?;
            }
            self.make_room();
            // What fills less than there was room for was all there is; the system tells when there is more.
            if read < room {
                return Ok(());
            }
        }
    }

    fn next_answer(&mut self) -> Result<Option<Answered>, Lost> {
        match client::parse(&self.input[self.start..self.end], VALUE_BYTES_MAX)? {
            Progress::Reply { consumed, reply } => {
                let answered = Answered::from(reply);
                self.start += consumed;
                Ok(Some(answered))
            }
            Progress::Incomplete { need } => {
                if self.start + need > self.input.len() {
                    self.make_room();
                    self.input.resize(need.max(self.input.len()), 0);
                }
                Ok(None)
            }
        }
    }

    /// Moves what is not parsed yet to the front of the buffer.
    fn make_room(&mut self) {
        if self.start == 0 {
            return;
        }
        self.input.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }

    fn handle(&mut self, answer: Answered, ending: &mut Ending<'_, '_>) -> Result<(), Lost> {
        let Some(first) = self.in_flight.front_mut() else {
            return Err(Lost::OutOfTurn(format!("{answer:?}")));
        };
        match (first.stage, answer) {
            (Stage::Getting, Answered::Value) if first.found < first.operation.keys => first.found += 1,
            (Stage::Getting, Answered::End) => {
                first.missed = first.operation.keys - first.found;
                ending.tally.looked_up(first.operation.partition, first.found, first.missed);
                if first.missed > 0 && ending.look_aside && first.operation.cacheable {
                    self.fill(ending);
                } else {
                    self.end_first(true, ending);
                }
            }
            (Stage::Storing, Answered::Stored) => {
                ending.tally.sets += 1;
                self.end_first(true, ending);
            }
            (_, Answered::Refused) => self.end_first(false, ending),
            (_, answer) => return Err(Lost::OutOfTurn(format!("{answer:?}"))),
        }
        Ok(())
    }

    /// Sends the value of the first operation, a get that missed; its answer comes after those already asked for.
    fn fill(&mut self, ending: &mut Ending<'_, '_>) {
        let Some(mut first) = self.in_flight.pop_front() else { return };
        first.stage = Stage::Storing;
        self.append_set(&first.operation, ending.values);
        self.in_flight.push_back(first);
    }

    fn end_first(&mut self, ok: bool, ending: &mut Ending<'_, '_>) {
        let Some(first) = self.in_flight.pop_front() else { return };
        ending.tally.ended(&Ended {
            intended: Duration::from_nanos(first.intended_ns),
            latency: Duration::from_nanos(ending.now_ns.saturating_sub(first.intended_ns)),
            hits: first.found,
            misses: first.missed,
            failed: !ok,
        });
        ending.spare.push(first.operation);
    }

    /// Ends everything under way as failed: its answers will not come.
    pub(super) fn give_up(&mut self, ending: &mut Ending<'_, '_>) {
        while !self.in_flight.is_empty() {
            self.end_first(false, ending);
        }
    }
}

fn keys(operation: &Operation) -> impl Iterator<Item = Key<'_>> {
    operation.key.split(|&byte| byte == b' ').map(key)
}

fn key(bytes: &[u8]) -> Key<'_> {
    Key::new(bytes).expect("workloads yield keys that can be sent")
}

/// What matters about a reply once it has been read.
#[derive(Clone, Copy, Debug)]
enum Answered {
    Value,
    End,
    Stored,
    /// An error: the operation failed, the connection is still in step.
    Refused,
    Other,
}

impl From<Reply<'_>> for Answered {
    fn from(reply: Reply<'_>) -> Self {
        match reply {
            Reply::Value { .. } => Self::Value,
            Reply::End => Self::End,
            Reply::Stored => Self::Stored,
            Reply::Error(_) | Reply::ClientError(_) | Reply::ServerError(_) | Reply::NotStored => {
                Self::Refused
            }
            _ => Self::Other,
        }
    }
}
