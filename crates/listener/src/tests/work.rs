//! Tests of the work counted for the most expensive form of each memcached command, alone and in a
//! pipeline, and of the scheduling turns of other clients of the thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::rc::Rc;

use super::*;
use crate::Event;
use crate::single::SingleThread;
use crate::sockets::{Signal, Socket, Sockets};
use crate::work::{COMMAND_MAX, TURN_MAX, rebuilt};

const MIB: usize = 1 << 20;
pub(crate) const BIG: usize = MIB - 4096;
/// Number of times that a command is sent in a pipeline.
pub(crate) const PIPELINED: usize = 6;

fn big_service(value_bytes_max: usize) -> Service {
    let partition = Partition::new(TenantId(0), BackendId(0), 64 << 20);
    let item_bytes_max = value_bytes_max as u32;
    let options = Options { total_bytes: 64 << 20, item_bytes_max, ..Options::default() };
    let cache = Arc::new(Cache::new(options, &[partition], SeededState::new(1)).unwrap());
    let access = Access::at(Instant::from_secs(1));
    for (key, bytes) in [("big", BIG), ("vast", value_bytes_max - MIB)] {
        let value = vec![b'b'; bytes];
        cache.set(PartitionId(0), key.as_bytes(), NewItem::bytes(&value), &access).unwrap();
    }
    service(cache, Routing::single(target(0)), None)
}

fn options(value_bytes_max: usize) -> ListenerOptions {
    ListenerOptions { threads: 1, item_size_max: value_bytes_max as u32, ..ListenerOptions::default() }
}

pub(crate) fn client() -> InMemoryClient {
    InMemoryClient::memcached(options(2 * MIB), big_service(2 * MIB), clock())
}

/// Gives a client scheduling turns until its input is executed. Returns the answers and the work of
/// each turn.
pub(crate) fn turns(client: &mut InMemoryClient, input: &[u8]) -> (Vec<u8>, Vec<u64>) {
    let moment = Moment { now: Instant::from_secs(1), unix_secs: UNIX_SECS };
    let (mut said, mut works) = (Vec::new(), Vec::new());
    client.receive(input);
    while client.has_turn() {
        said.append(&mut client.turn(moment, &mut |_| unreachable!("no backends")));
        works.push(client.work.units());
    }
    (said, works)
}

/// Commands that can cause more work than the bytes of their requests and answers suggest, with the
/// minimum work of each and the start of its answer. The work of all others is bounded by these
/// bytes, whose number ends a turn as well.
fn dearest() -> Vec<(String, u64, &'static str)> {
    let keys = |head: &str| format!("{head} {}\r\n", vec!["k"; 8000].join(" "));
    vec![
        ("append big 0 0 1\r\nx\r\n".to_owned(), rebuilt(BIG), "STORED"),
        ("prepend big 0 0 1\r\nx\r\n".to_owned(), rebuilt(BIG), "STORED"),
        ("ms big 1 MA\r\nx\r\n".to_owned(), rebuilt(BIG), "HD"),
        ("ms big 1 MP\r\nx\r\n".to_owned(), rebuilt(BIG), "HD"),
        (keys("get"), 7900 << 8, "END"),
        (keys("gets"), 7900 << 8, "END"),
        (keys("gat 0"), 7900 << 9, "END"),
        (keys("gats 0"), 7900 << 9, "END"),
        ("stats\r\n".to_owned(), 4096, "STAT"),
        ("stats settings\r\n".to_owned(), 4096, "STAT"),
        ("stats reset\r\n".to_owned(), 4096, "RESET"),
        ("flush_all\r\n".to_owned(), 4096, "OK"),
    ]
}

#[test]
fn work_of_the_costliest_form_of_each_memcached_command_is_counted_and_bounded() {
    for (line, least, answer) in dearest() {
        let (said, works) = turns(&mut client(), line.as_bytes());
        assert!(said.starts_with(answer.as_bytes()), "{line:.40}: {:.100}", said.escape_ascii());
        assert!(works.iter().sum::<u64>() >= least, "{line:.40}: {works:?}");
        let most = if least == rebuilt(BIG) { COMMAND_MAX } else { 2 * TURN_MAX };
        assert!(works.iter().all(|&work| work <= most), "{line:.40}: {works:?}");
    }
}

#[test]
fn pipeline_of_expensive_memcached_commands_is_split_over_several_scheduling_turns() {
    for (line, _, answer) in dearest() {
        let (_, alone) = turns(&mut client(), line.as_bytes());
        let (said, works) = turns(&mut client(), line.repeat(PIPELINED).as_bytes());
        let said = String::from_utf8_lossy(&said);
        let answers =
            said.lines().filter(|line| line.starts_with(if answer == "STAT" { "END" } else { answer }));
        assert_eq!(answers.count(), PIPELINED, "{line:.40}");
        let most = TURN_MAX + alone.iter().max().copied().unwrap_or_default();
        assert!(works.iter().all(|&work| work <= most), "{line:.40}: {works:?}, alone {alone:?}");
    }
}

#[test]
fn append_to_too_large_a_value_is_refused_and_changes_nothing() {
    let mut client = InMemoryClient::memcached(options(8 * MIB), big_service(8 * MIB), clock());
    let refused = "SERVER_ERROR the value is too large to append to, since other clients would wait; the sum may \
                   have 4 MiB\r\n";
    for line in [
        "append vast 0 0 1\r\nx\r\n",
        "prepend vast 0 0 1\r\nx\r\n",
        "ms vast 1 MA\r\nx\r\n",
        "ms vast 1 MP\r\nx\r\n",
    ] {
        let (said, works) = turns(&mut client, line.as_bytes());
        assert_eq!(
            (String::from_utf8_lossy(&said), works.iter().sum::<u64>()),
            (refused.into(), 0),
            "{line:?}"
        );
    }
    assert_eq!(turns(&mut client, b"mg vast s\r\n").0, format!("HD s{}\r\n", 7 * MIB).as_bytes());
}

/// The sockets of one thread: clients that have sent all their commands, and one that sends a
/// command later.
#[derive(Default)]
struct Wires {
    /// Clients to be accepted.
    backlog: VecDeque<usize>,
    /// The input of each client that the listener has not read.
    inputs: Vec<Vec<u8>>,
    /// The token of each client.
    tokens: Vec<u64>,
    /// True once the listener has shut the sockets down.
    ending: bool,
    /// The clients whose input was acknowledged without an answer.
    acknowledged: Vec<usize>,
    /// The clients answered between two waits for socket events, in order.
    rounds: Vec<Vec<usize>>,
}

#[derive(Clone)]
struct Wire {
    number: usize,
    wires: Rc<RefCell<Wires>>,
}

impl Socket for Wire {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut wires = self.wires.borrow_mut();
        let ending = wires.ending;
        let input = &mut wires.inputs[self.number];
        if input.is_empty() {
            return if ending { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let bytes = input.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&input[..bytes]);
        input.drain(..bytes);
        Ok(bytes)
    }

    fn receive_behind(&self, _: &mut Vec<u8>) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn has_input(&self) -> io::Result<bool> {
        Ok(!self.wires.borrow().inputs[self.number].is_empty())
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(round) = self.wires.borrow_mut().rounds.last_mut() {
            round.push(self.number);
        }
        Ok(bytes.len())
    }

    fn send_parts(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(parts.first().map_or(&[], |part| part))
    }

    fn acknowledge(&self) {
        self.wires.borrow_mut().acknowledged.push(self.number);
    }

    fn shut_down(&self, _: Shutdown) -> io::Result<()> {
        self.wires.borrow_mut().ending = true;
        Ok(())
    }
}

/// Number of waits for socket events before the late client sends its command.
const LATE: usize = 5;
const LOOKS: usize = 20;

pub(super) type Stop = Arc<dyn Fn()>;

struct Ports {
    wires: Rc<RefCell<Wires>>,
    late: usize,
    stop: Rc<RefCell<Option<Stop>>>,
}

impl Sockets for Ports {
    type Socket = Wire;

    fn accept(&mut self) -> io::Result<Wire> {
        let number = self.wires.borrow_mut().backlog.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        Ok(Wire { number, wires: Rc::clone(&self.wires) })
    }

    fn stop_accepting(&mut self) {}

    fn watch(&mut self, socket: &Wire, token: u64) -> io::Result<()> {
        self.wires.borrow_mut().tokens[socket.number] = token;
        Ok(())
    }

    fn wait(&mut self, events: &mut Vec<Event>, _: Option<Duration>) -> io::Result<()> {
        let mut wires = self.wires.borrow_mut();
        let look = wires.rounds.len();
        assert!(look < 1000, "the listener does not end");
        wires.rounds.push(Vec::new());
        events.clear();
        let readable = |token| Event::Connection { token, readable: true, finished: false, broken: false };
        match look {
            0 => events.push(Event::Incoming),
            1 => events.extend(wires.tokens[..self.late].iter().copied().map(readable)),
            LATE => {
                wires.inputs[self.late] = b"get none\r\n".to_vec();
                events.push(readable(wires.tokens[self.late]));
            }
            LOOKS => self.stop.borrow().iter().for_each(|stop| stop()),
            _ => {}
        }
        Ok(())
    }
}

/// A signal that nobody waits for.
pub(super) struct Silent;

impl Signal for Silent {
    fn raise(&self) {}

    fn lower(&self) {}
}

/// Runs a thread with clients that have sent `inputs`, and the late one.
fn ran(mut inputs: Vec<Vec<u8>>) -> Rc<RefCell<Wires>> {
    let late = inputs.len();
    inputs.push(Vec::new());
    let wires = Rc::new(RefCell::new(Wires {
        backlog: (0..=late).collect(),
        inputs,
        tokens: vec![0; late + 1],
        ..Wires::default()
    }));
    let stop = Rc::new(RefCell::new(None));
    let ports = Ports { wires: Rc::clone(&wires), late, stop: Rc::clone(&stop) };
    let service = Service { connection_limit: Arc::new(ConnectionLimit::new(20)), ..big_service(2 * MIB) };
    let thread = SingleThread::memcached(options(2 * MIB), service, clock(), ports, Arc::new(Silent));
    *stop.borrow_mut() = Some(thread.stop());
    thread.run().unwrap();
    wires
}

#[test]
fn tcp_input_that_produces_no_answer_is_acknowledged_at_once() {
    let quiet = b"set a 0 0 1 noreply\r\nv\r\n";
    let inputs = [&quiet[..], b"get none\r\n", &[&quiet[..], b"get none\r\n"].concat()];
    let wires = ran(inputs.map(<[u8]>::to_vec).to_vec());
    assert_eq!(wires.borrow().acknowledged, [0]);
}

#[test]
fn client_with_a_cheap_command_waits_for_at_most_one_turn_of_an_expensive_client() {
    let dear = 8;
    let wires = ran(vec![b"append big 0 0 1\r\nx\r\n".repeat(20); dear]);
    let rounds = &wires.borrow().rounds;
    // All of them are answered once, then one at a time in order, until the thread drains.
    assert_eq!(rounds[1], (0..dear).collect::<Vec<_>>());
    assert_eq!(rounds[2..5], [[0], [1], [2]]);
    assert_eq!(rounds[LATE], [dear, 3], "the late client comes first");
    assert!(rounds[LATE + 1..LOOKS].iter().all(|round| round.len() == 1), "{rounds:?}");
}
