//! Rounds of several clients, on sockets that record what they are to send.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sherwood_cache::{Access, Cache, NewItem, Options, Partition};
use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};

use super::work::{Silent, Stop};
use super::{clock, service, target};
use crate::options::ListenerOptions;
use crate::routing::Routing;
use crate::shared::{ConnectionLimit, Service};
use crate::single::SingleThread;
use crate::sockets::{Event, Outgoing, Receiving, Sending, Socket, Sockets};

/// Bytes of a value that is sent from the memory of its item.
const VALUE_BYTES: usize = 13_000;

/// Bytes that clients send, all in one round, and those that they are sent.
#[derive(Default)]
struct Wires {
    inputs: Vec<Vec<u8>>,
    accepted: usize,
    tokens: Vec<u64>,
    /// For each round of sends, the client and its bytes.
    sent: Vec<Vec<(usize, Vec<u8>)>>,
    waits: usize,
}

struct Wire {
    number: usize,
}

/// Plain calls carry nothing but the end: everything else goes by rounds.
impl Socket for Wire {
    fn receive(&self, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn receive_behind(&self, _: &mut Vec<u8>) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn has_input(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn send(&self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn send_parts(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn shut_down(&self, _: Shutdown) -> io::Result<()> {
        Ok(())
    }
}

struct Ports {
    wires: Rc<RefCell<Wires>>,
    stop: Rc<RefCell<Option<Stop>>>,
}

impl Sockets for Ports {
    type Socket = Wire;

    fn accept(&mut self) -> io::Result<Wire> {
        let mut wires = self.wires.borrow_mut();
        let number = wires.accepted;
        if number == wires.inputs.len() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        wires.accepted += 1;
        Ok(Wire { number })
    }

    fn stop_accepting(&mut self) {}

    fn watch(&mut self, _: &Wire, token: u64) -> io::Result<()> {
        self.wires.borrow_mut().tokens.push(token);
        Ok(())
    }

    fn wait(&mut self, events: &mut Vec<Event>, _: Option<Duration>) -> io::Result<()> {
        events.clear();
        let mut wires = self.wires.borrow_mut();
        wires.waits += 1;
        let readable = |token| Event::Connection { token, readable: true, finished: false, broken: false };
        match wires.waits {
            1 => events.push(Event::Incoming),
            2 => events.extend(wires.tokens.iter().copied().map(readable)),
            _ => self.stop.borrow().iter().for_each(|stop| stop()),
        }
        Ok(())
    }

    fn has_rounds(&mut self) -> bool {
        true
    }

    fn receive_round(&mut self, round: &mut [Receiving<'_, Wire>]) {
        for Receiving { socket, room, result } in round {
            let input = std::mem::take(&mut self.wires.borrow_mut().inputs[socket.number]);
            room[..input.len()].copy_from_slice(&input);
            *result = Some(Ok(input.len()));
        }
    }

    fn send_round(&mut self, round: &mut [Sending<'_, Wire>]) {
        let mut sent = Vec::new();
        for Sending { socket, bytes, result } in round {
            let bytes = match bytes {
                Outgoing::One(bytes) => bytes.to_vec(),
                Outgoing::Parts(parts) => parts.iter().flat_map(|part| part.to_vec()).collect(),
            };
            *result = Some(Ok(bytes.len()));
            sent.push((socket.number, bytes));
        }
        self.wires.borrow_mut().sent.push(sent);
    }
}

#[test]
fn value_that_waits_to_be_sent_is_the_old_one_when_others_of_the_round_remove_and_reuse_it() {
    let value = |byte| vec![byte; VALUE_BYTES];
    let set = |key: &str, byte| {
        [format!("set {key} 0 0 {VALUE_BYTES}\r\n").as_bytes(), &value(byte), b"\r\n"].concat()
    };
    let inputs = vec![
        b"get a\r\n".to_vec(),
        b"delete a\r\n".to_vec(),
        set("b", b'b'),
        set("a", b'n'),
        b"get a\r\n".to_vec(),
    ];
    let clients = inputs.len();
    let wires = Rc::new(RefCell::new(Wires { inputs, ..Wires::default() }));
    let stop = Rc::new(RefCell::new(None));
    let ports = Ports { wires: Rc::clone(&wires), stop: Rc::clone(&stop) };
    let partition = Partition::new(TenantId(0), BackendId(0), 16 << 20);
    let sized = Options { total_bytes: 16 << 20, item_bytes_max: 1 << 20, ..Options::default() };
    let cache = Arc::new(Cache::new(sized, &[partition], SeededState::new(1)).unwrap());
    let service = Service {
        connection_limit: Arc::new(ConnectionLimit::new(clients)),
        ..service(cache, Routing::single(target(0)), None)
    };
    let access = Access::at(Instant::from_secs(1));
    service.cache.set(PartitionId(0), b"a", NewItem::bytes(&value(b'o')), &access).unwrap();
    let options =
        ListenerOptions { threads: 1, item_size_max: 2 * VALUE_BYTES as u32, ..ListenerOptions::default() };
    let thread = SingleThread::memcached(options, service, clock(), ports, Arc::new(Silent));
    *stop.borrow_mut() = Some(thread.stop());
    thread.run().unwrap();
    let answer =
        |byte| [format!("VALUE a 0 {VALUE_BYTES}\r\n").as_bytes(), &value(byte), b"\r\nEND\r\n"].concat();
    let stored = b"STORED\r\n".to_vec();
    let expected = [
        (0, answer(b'o')),
        (1, b"DELETED\r\n".to_vec()),
        (2, stored.clone()),
        (3, stored),
        (4, answer(b'n')),
    ];
    assert_eq!(wires.borrow().sent, [expected.to_vec()], "one round of sends");
}
