//! The simulated server, of Redis or memcached.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sherwood_wire::memcached::{self, Command, Storage};
use sherwood_wire::resp::{self, Args, Version, reply};
use tokio::time::sleep;

use super::super::simulated::{Draw, End, Network, ServerEnd};

/// The protocol that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Redis,
    Memcached,
}

/// The faults of a server and its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The server closes idle connections.
    Healthy,
    /// Connections end at any byte, and the server is slow.
    Breaking,
    /// The server refuses connections and requests.
    Refusing,
    /// The server's answers are wrong.
    Lying,
}

/// A server, which all its connections share.
pub(super) struct Server {
    pub(super) protocol: Protocol,
    pub(super) mode: Mode,
    /// Time after which an idle connection is closed.
    pub(super) idle: Duration,
    data: Mutex<Data>,
}

#[derive(Default)]
struct Data {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Number of times that each write was received, and that it was executed. A write is
    /// identified by its value, a removal by its key.
    writes: BTreeMap<Vec<u8>, (u32, u32)>,
    /// The writes that were executed, in their order.
    executed: Vec<Vec<u8>>,
}

/// A fault of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    Short,
    Long,
    Half,
    Twice,
    AnotherType,
}

const LIES: [Lie; 5] = [Lie::Short, Lie::Long, Lie::Half, Lie::Twice, Lie::AnotherType];

/// Returns the value that write `n` stores under a key. It begins with the key and contains line
/// ends, and no change of its length turns it into another value of the key.
pub(super) fn value(key: &str, n: usize) -> Vec<u8> {
    format!("{key}={n}:\r\n{}.", "v".repeat(4 + n * 7 % 40)).into_bytes()
}

impl Server {
    pub(super) fn new(protocol: Protocol, mode: Mode, idle: Duration) -> Self {
        Self { protocol, mode, idle, data: Mutex::default() }
    }

    pub(super) fn store(&self, key: &str, value: Vec<u8>) {
        self.data().values.insert(key.as_bytes().to_vec(), value);
    }

    /// Returns the number of times that a write was executed.
    pub(super) fn done(&self, name: &[u8]) -> u32 {
        self.data().writes.get(name).map_or(0, |&(_, done)| done)
    }

    /// Returns the writes that were executed, in their order.
    pub(super) fn executed(&self) -> Vec<Vec<u8>> {
        self.data().executed.clone()
    }

    /// Returns the value of a key.
    pub(super) fn value(&self, key: &str) -> Option<Vec<u8>> {
        self.data().values.get(key.as_bytes()).cloned()
    }

    /// Returns the number of times that a write was received.
    pub(super) fn received(&self, name: &[u8]) -> u32 {
        self.data().writes.get(name).map_or(0, |&(received, _)| received)
    }

    /// Returns the largest number of times that any one write was received.
    pub(super) fn received_most(&self) -> u32 {
        self.data().writes.values().map(|&(received, _)| received).max().unwrap_or(0)
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().expect("no panics while held")
    }

    /// Serves a connection until it ends.
    pub(super) async fn serve(self: Arc<Self>, mut end: ServerEnd, mut draw: Draw, network: Network) {
        if self.mode == Mode::Refusing && draw.chance(25) {
            network.note("server: refused a connection");
            network.pause(draw.ms(3)).await;
            end.write(self.refusal());
            return end.end(End::Closed, draw.ms(3)).await;
        }
        let mut input = Vec::new();
        loop {
            let more = tokio::select! {
                biased;
                more = end.read(&mut input) => more,
                () = sleep(self.idle) => {
                    assert!(self.mode != Mode::Healthy || end.is_idle(), "an answer was not read");
                    network.note("server: closed an idle connection");
                    let how = draw.one_of(&[End::Closed, End::Closed, End::Reset]);
                    return end.end(how, draw.ms(4)).await;
                }
            };
            if !more {
                return;
            }
            while let Some(answer) = self.answer(&mut input, &mut draw, &network) {
                if draw.chance(30) {
                    network.note("server: answered late");
                    network.pause(draw.ms(if self.mode == Mode::Breaking { 300 } else { 4 })).await;
                }
                let is_last = self.mode == Mode::Refusing && draw.chance(10);
                if answer.send(&mut end, input.is_empty(), &network) || is_last {
                    return end.end(End::Closed, draw.ms(3)).await;
                }
            }
        }
    }

    /// Returns the text with which a connection is refused.
    fn refusal(&self) -> &'static [u8] {
        match self.protocol {
            Protocol::Redis => b"-ERR max number of clients reached\r\n",
            Protocol::Memcached => b"ERROR Too many open connections\r\n",
        }
    }

    /// Removes the first request from `input` and executes it, unless it is refused; none if the
    /// request is incomplete.
    fn answer(&self, input: &mut Vec<u8>, draw: &mut Draw, network: &Network) -> Option<Answer> {
        let is_refused = self.mode == Mode::Refusing && draw.chance(15);
        let lies = self.mode == Mode::Lying && draw.chance(25);
        let lie = lies.then(|| draw.one_of(&LIES));
        let mut answer = Answer { bytes: Vec::new(), lie, has_value: false };
        let used = match self.protocol {
            Protocol::Redis => self.redis(input, is_refused, &mut answer, draw),
            Protocol::Memcached => self.memcached(input, is_refused, &mut answer, draw),
        }?;
        input.drain(..used);
        if is_refused {
            network.note("server: refused a request");
        }
        Some(answer)
    }

    fn redis(&self, input: &[u8], is_refused: bool, answer: &mut Answer, draw: &mut Draw) -> Option<usize> {
        let limits = resp::Limits { argument_bytes_max: 1 << 20, request_bytes_max: 1 << 20 };
        let mut parser = resp::Parser::new(limits);
        let resp::Parsed { consumed, event } = parser.parse(input);
        let args: Args<'_> = match event {
            resp::Event::Incomplete { .. } => return None,
            resp::Event::Request(args) => args,
            other => panic!("the connector sent {other:?}"),
        };
        let arg = |at| args.get(at).expect("an argument");
        let mut data = self.data();
        match args.get(0) {
            Some(b"SELECT") => return answer.plain(b"+OK\r\n", &[b":1\r\n"], draw).then_some(consumed),
            Some(b"SET") => data.receive(arg(2), !is_refused),
            Some(b"DEL") => data.receive(arg(1), !is_refused),
            _ => {}
        }
        if is_refused {
            let is_write = matches!(args.get(0), Some(b"SET" | b"DEL"));
            let text = match is_write && draw.chance(50) {
                true => "READONLY You can't write against a read only replica.",
                false => "LOADING Redis is loading the dataset in memory",
            };
            reply::error(&mut answer.bytes, text.as_bytes());
            return Some(consumed);
        }
        match args.get(0) {
            Some(b"MGET") => {
                if answer.lie == Some(Lie::AnotherType) {
                    let types = [
                        &b"+OK\r\n"[..],
                        b":7\r\n",
                        b"*99\r\n",
                        b"$-1\r\n",
                        b"*-1\r\n",
                        b"%1\r\n",
                        b"HTTP/1.1 400 Bad Request\r\n",
                    ];
                    answer.bytes.extend_from_slice(draw.one_of(&types));
                    return Some(consumed);
                }
                reply::array(&mut answer.bytes, args.len() - 1);
                for key in args.from(1) {
                    match data.values.get(key) {
                        None => reply::null(&mut answer.bytes, Version::Resp2),
                        Some(value) => {
                            reply::bulk_line(&mut answer.bytes, value.len());
                            answer.value(value, draw);
                        }
                    }
                }
            }
            Some(b"PTTL") => {
                let known = data.values.contains_key(arg(1));
                answer.plain(if known { b":-1\r\n" } else { b":-2\r\n" }, &[b"+OK\r\n", b":-3\r\n"], draw);
            }
            Some(b"SET") => {
                data.values.insert(arg(1).to_vec(), arg(2).to_vec());
                answer.plain(b"+OK\r\n", &[b":1\r\n", b"$-1\r\n", b"+QUEUED\r\n", b"*1\r\n"], draw);
            }
            Some(b"DEL") => {
                data.values.remove(arg(1));
                answer.plain(b":1\r\n", &[b"+OK\r\n", b"$1\r\n1\r\n", b"*1\r\n"], draw);
            }
            other => panic!("the connector sent {other:?}"),
        }
        Some(consumed)
    }

    fn memcached(
        &self,
        input: &[u8],
        is_refused: bool,
        answer: &mut Answer,
        draw: &mut Draw,
    ) -> Option<usize> {
        let mut parser = memcached::Parser::new(memcached::Limits { value_bytes_max: 1 << 20 });
        let memcached::Parsed { consumed, event } = parser.parse(input);
        let command = match event {
            memcached::Event::Incomplete { .. } => return None,
            memcached::Event::Command(command) => command,
            other => panic!("the connector sent {other:?}"),
        };
        let mut data = self.data();
        match command {
            Command::Storage(Storage { value, .. }) => data.receive(value, !is_refused),
            Command::Delete { key, .. } => data.receive(key, !is_refused),
            _ => {}
        }
        if is_refused {
            answer.bytes.extend_from_slice(b"SERVER_ERROR out of memory\r\n");
            return Some(consumed);
        }
        match command {
            Command::Retrieval(get) => {
                if answer.lie == Some(Lie::AnotherType) {
                    let types = [
                        &b"STORED\r\n"[..],
                        b"VALUE x 0 1\r\nx\r\n",
                        b"7\r\n",
                        b"VALUE fixed 0 -1\r\n",
                        b"ok\r\n",
                    ];
                    answer.bytes.extend_from_slice(draw.one_of(&types));
                    return Some(consumed);
                }
                for key in get.keys {
                    let Some(value) = data.values.get(key) else { continue };
                    answer.bytes.extend_from_slice(&[b"VALUE ", key, b" 0 "].concat());
                    answer.bytes.extend_from_slice(format!("{}\r\n", value.len()).as_bytes());
                    answer.value(value, draw);
                }
                answer.bytes.extend_from_slice(b"END\r\n");
            }
            Command::Meta(meta) => match data.values.get(meta.key.text()) {
                None => answer.bytes.extend_from_slice(b"EN\r\n"),
                Some(value) => {
                    answer.bytes.extend_from_slice(format!("VA {} f0 t-1\r\n", value.len()).as_bytes());
                    answer.value(value, draw);
                }
            },
            Command::Storage(Storage { key, value, .. }) => {
                data.values.insert(key.to_vec(), value.to_vec());
                answer.plain(b"STORED\r\n", &[b"END\r\n", b"DELETED\r\n", b"TOUCHED\r\n"], draw);
            }
            Command::Delete { key, .. } => {
                data.values.remove(key);
                answer.plain(b"DELETED\r\n", &[b"END\r\n", b"STORED\r\n"], draw);
            }
            other => panic!("the connector sent {other:?}"),
        }
        Some(consumed)
    }
}

impl Data {
    fn receive(&mut self, name: &[u8], is_done: bool) {
        let (received, done) = self.writes.entry(name.to_vec()).or_default();
        *received += 1;
        if is_done {
            *done += 1;
            self.executed.push(name.to_vec());
        }
    }
}

/// An answer of the server, and its fault, if it has one.
struct Answer {
    bytes: Vec<u8>,
    lie: Option<Lie>,
    has_value: bool,
}

impl Answer {
    /// Adds `text`, an answer without a value, or one of `others` if the fault is an answer of
    /// another type; returns true.
    fn plain(&mut self, text: &'static [u8], others: &[&'static [u8]], draw: &mut Draw) -> bool {
        let text = if self.lie == Some(Lie::AnotherType) { draw.one_of(others) } else { text };
        self.bytes.extend_from_slice(text);
        true
    }

    /// Adds a value and its line end. If the answer's fault is its length, some bytes are missing
    /// or added.
    fn value(&mut self, value: &[u8], draw: &mut Draw) {
        let mut value = value.to_vec();
        for _ in 0..=draw.below(3) {
            match self.lie {
                Some(Lie::Short) => drop(value.remove(draw.below(value.len()))),
                Some(Lie::Long) => value.insert(draw.below(value.len()), b'x'),
                _ => {}
            }
        }
        self.bytes.extend_from_slice(&value);
        self.bytes.extend_from_slice(b"\r\n");
        self.has_value = true;
    }

    /// Sends the answer; returns true if the connection has to end. `is_alone` is true if the
    /// server has received no further request.
    fn send(self, end: &mut ServerEnd, is_alone: bool, network: &Network) -> bool {
        let Self { bytes, lie, has_value } = self;
        match lie {
            Some(Lie::Half) => {
                network.note("server: answered half");
                end.write(&bytes[..bytes.len() / 2]);
                return true;
            }
            // A client cannot tell a second answer from that to its next request.
            Some(Lie::Twice) if is_alone && !end.has_bytes() => {
                network.note("server: answered twice");
                end.write_whole(&bytes.repeat(2));
                return false;
            }
            Some(Lie::Short) if has_value => network.note("server: answered too short"),
            Some(Lie::Long) if has_value => network.note("server: answered too long"),
            Some(Lie::AnotherType) => network.note("server: answered another type"),
            _ => {}
        }
        end.write(&bytes);
        false
    }
}
