//! Listeners on real sockets: clients whose connection breaks while they are answered.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sherwood_listener::{Backends, ListenerOptions, Protocol};

use crate::fake::{FakeBackends, Noted, now};
use crate::protocol::Commands;
use crate::support::{Client, Server, options};
use crate::wait::{TIMEOUT, eventually};

/// Value size at which ten answers exceed the output that is sent at once.
const SECRET_BYTES: usize = 10_000;

#[test]
fn answers_to_a_memcached_client_that_closed_are_sent_to_no_other_client() {
    closed_before_it_is_answered(Protocol::Memcached);
}

#[test]
fn answers_to_a_redis_client_that_closed_are_sent_to_no_other_client() {
    closed_before_it_is_answered(Protocol::Redis);
}

#[test]
fn answers_to_a_memcached_client_that_was_reset_are_sent_to_no_other_client() {
    reset_between_command_and_answer(Protocol::Memcached);
}

#[test]
fn answers_to_a_redis_client_that_was_reset_are_sent_to_no_other_client() {
    reset_between_command_and_answer(Protocol::Redis);
}

fn closed_before_it_is_answered(protocol: Protocol) {
    let Stage { server, gate, mut leaving, mut blocking, mut other } = Stage::set(protocol);
    gate.close(&mut blocking, protocol);
    // More than is sent at once: the first part meets a closed socket, the second one fails.
    leaving.send(protocol.get("secret").repeat(20).as_bytes());
    drop(leaving);
    gate.open();
    blocking.expect(protocol.stored());
    eventually("the connection is lost", || server.connections() == 2);
    other.check(&protocol.get("mine"), &protocol.found("mine", "own value"));
}

fn reset_between_command_and_answer(protocol: Protocol) {
    let Stage { server, gate, mut leaving, mut blocking, mut other } = Stage::set(protocol);
    let mut first = server.connect();
    gate.close(&mut first, protocol);
    // These two are read together, and the connection breaks before the second is answered.
    blocking.send(protocol.set("gate", "x").as_bytes());
    leaving.send(protocol.get("secret").as_bytes());
    gate.open();
    gate.wait_until_reached();
    leaving.0.set_linger(Some(Duration::ZERO)).unwrap();
    drop(leaving);
    gate.open();
    blocking.expect(protocol.stored());
    eventually("the connection is lost", || server.connections() == 3);
    other.check(&protocol.get("mine"), &protocol.found("mine", "own value"));
}

/// A listener of one thread, with its clients.
struct Stage {
    server: Server,
    gate: Arc<FakeBackends<Gate>>,
    /// The client whose connection breaks.
    leaving: Client,
    /// The client whose command keeps the listener's thread busy meanwhile.
    blocking: Client,
    /// The client that must not receive the answers of the broken connection.
    other: Client,
}

impl Stage {
    fn set(protocol: Protocol) -> Self {
        let gate = Gate::before_backends();
        let one_thread = ListenerOptions { threads: 1, ..options() };
        let server = Server::beside(protocol, one_thread, Arc::clone(&gate) as Arc<dyn Backends>);
        let [mut leaving, mut blocking, mut other] = [(); 3].map(|()| server.connect());
        leaving.check(&protocol.set("secret", &"s".repeat(SECRET_BYTES)), protocol.stored());
        other.check(&protocol.set("mine", "own value"), protocol.stored());
        blocking.check(&protocol.get("none"), protocol.missed());
        Self { server, gate, leaving, blocking, other }
    }
}

/// Blocks the listener's thread while it writes the key `gate`, until the test unblocks it.
struct Gate {
    reached: (Sender<()>, Mutex<Receiver<()>>),
    opened: (Sender<()>, Mutex<Receiver<()>>),
}

impl Gate {
    /// Creates backends without values. Each change of the cache waits at the gate if it is one of
    /// the key `gate`.
    fn before_backends() -> Arc<FakeBackends<Self>> {
        let pair = || {
            let (sender, receiver) = channel();
            (sender, Mutex::new(receiver))
        };
        let gate = Self { reached: pair(), opened: pair() };
        let backends = FakeBackends::new(gate, |_, _, keys, _| now(keys.iter().map(|_| Ok(None)).collect()));
        backends.noting(|gate, _, change| gate.pass(&change)).shared()
    }

    fn pass(&self, change: &Noted<'_>) {
        if let Noted::Key(b"gate") = change {
            self.reached.0.send(()).unwrap();
            self.opened.1.lock().unwrap().recv_timeout(TIMEOUT).unwrap();
        }
    }

    /// Makes a client write the key `gate`, and returns when the listener's thread is blocked.
    fn close(&self, client: &mut Client, protocol: Protocol) {
        client.send(protocol.set("gate", "x").as_bytes());
        self.wait_until_reached();
    }

    fn wait_until_reached(&self) {
        self.reached.1.lock().unwrap().recv_timeout(TIMEOUT).unwrap();
    }

    /// Unblocks the listener's thread.
    fn open(&self) {
        self.opened.0.send(()).unwrap();
    }
}
