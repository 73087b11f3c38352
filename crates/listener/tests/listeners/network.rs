//! Rates of tenants' traffic: clients of a tenant in debt are not read until it is paid.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use sherwood_dispatch::Charged;
use sherwood_listener::{Backends, Count, ListenerOptions, Protocol};
use sherwood_model::{Instant, TenantId};

use crate::protocol::Commands;
use crate::slow::slow;
use crate::support::{Server, options};
use crate::wait::eventually;

/// A network whose tenants are in debt, or not, as the test says.
#[derive(Default)]
struct Debts {
    in_debt: AtomicBool,
    /// True if any bytes begin a debt.
    begins_with_bytes: AtomicBool,
    /// Bytes that were charged, and how often a debt was found.
    charged: AtomicU64,
    held: AtomicU64,
    /// Clients that wait now.
    waiting: AtomicU64,
}

impl Debts {
    /// Returns when debts were looked at so often that each client has been held back again.
    fn wait_for_rounds(&self) {
        let before = self.held.load(SeqCst);
        eventually("the debt is looked at again and again", || self.held.load(SeqCst) > before + 20);
    }
}

impl Charged for Debts {
    fn charge(&self, now: Instant, tenant: TenantId, bytes: f64) -> Option<Instant> {
        assert_eq!(tenant, TenantId(0));
        self.charged.fetch_add(bytes as u64, SeqCst);
        if bytes > 0.0 && self.begins_with_bytes.load(SeqCst) {
            self.in_debt.store(true, SeqCst);
        }
        if !self.in_debt.load(SeqCst) {
            return None;
        }
        self.held.fetch_add(1, SeqCst);
        Some(now + Duration::from_millis(1))
    }

    fn expected_start(&self, now: Instant, _: TenantId, _: f64, _: f64) -> Instant {
        now
    }

    fn is_shared(&self, _: Instant, _: TenantId) -> bool {
        false
    }

    fn note_waiting(&self, _: TenantId, waits: bool) {
        if waits {
            self.waiting.fetch_add(1, SeqCst)
        } else {
            self.waiting.fetch_sub(1, SeqCst)
        };
    }

    fn note_refused(&self, _: TenantId) {}
}

fn start(debts: &Arc<Debts>) -> Server {
    let one_thread = ListenerOptions { threads: 1, ..options() };
    Server::limited(Protocol::Memcached, one_thread, Arc::clone(debts) as Arc<dyn Charged>)
}

#[test]
fn bytes_in_both_directions_are_charged() {
    let debts = Arc::new(Debts::default());
    let server = start(&debts);
    let mut client = server.connect();
    let exchanges = [("set a 0 0 1\r\nx\r\n", "STORED\r\n"), ("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n")];
    let mut bytes = 0;
    for (sent, answer) in exchanges {
        client.check(sent, answer);
        bytes += (sent.len() + answer.len()) as u64;
    }
    eventually("all is charged", || debts.charged.load(SeqCst) == bytes);
}

#[test]
fn client_in_debt_is_answered_when_it_is_paid_and_large_answers_are_completed() {
    let debts = Arc::new(Debts::default());
    let server = start(&debts);
    let (mut first, mut second) = (server.connect(), server.connect());
    let value = "x".repeat(1 << 20);
    first.check(&format!("set big 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    second.check("get none\r\n", "END\r\n");
    debts.in_debt.store(true, SeqCst);
    second.send(b"get none\r\n");
    first.send("get big\r\n".repeat(5).as_bytes());
    debts.wait_for_rounds();
    assert_eq!(server.count(Count::GetMisses), 1, "the second command is not executed");
    debts.in_debt.store(false, SeqCst);
    second.expect("END\r\n");
    first.expect(&format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len()).repeat(5));
}

#[test]
fn listener_in_debt_answers_what_has_arrived_and_stops() {
    let debts = Arc::new(Debts::default());
    let mut server = start(&debts);
    let mut client = server.connect();
    client.check("get a\r\n", "END\r\n");
    debts.in_debt.store(true, SeqCst);
    client.send(b"get a\r\n");
    eventually("the client is held back", || debts.held.load(SeqCst) > 3);
    server.tell_to_stop();
    assert_eq!(client.rest(), "END\r\n");
    server.join();
}

#[test]
fn new_connection_of_a_tenant_in_debt_waits_as_well() {
    let debts = Arc::new(Debts::default());
    let server = start(&debts);
    debts.in_debt.store(true, SeqCst);
    let mut client = server.connect();
    client.send(b"get a\r\n");
    eventually("the client is held back", || debts.held.load(SeqCst) > 3);
    assert_eq!(server.count(Count::CmdGet), 0);
    debts.in_debt.store(false, SeqCst);
    client.expect("END\r\n");
}

#[test]
fn client_that_finishes_sending_in_debt_is_answered_when_it_is_paid() {
    let debts = Arc::new(Debts::default());
    let server = start(&debts);
    debts.in_debt.store(true, SeqCst);
    let mut client = server.connect();
    client.send(b"get a\r\nget b\r\n");
    client.finish();
    debts.wait_for_rounds();
    assert_eq!((server.connections(), server.count(Count::CmdGet)), (1, 0));
    debts.in_debt.store(false, SeqCst);
    assert_eq!(client.rest(), "END\r\nEND\r\n");
    eventually("none waits", || debts.waiting.load(SeqCst) == 0);
}

#[test]
fn client_that_has_gone_in_debt_frees_its_place_at_once() {
    let debts = Arc::new(Debts::default());
    let server = start(&debts);
    let [mut stays, mut read, mut reset] = [(); 3].map(|()| server.connect());
    for client in [&mut stays, &mut read, &mut reset] {
        client.check("get a\r\n", "END\r\n");
    }
    debts.in_debt.store(true, SeqCst);
    stays.send(b"get b\r\n");
    reset.send(b"get b\r\n");
    eventually("two wait", || debts.waiting.load(SeqCst) == 2);
    // Everything of it was read.
    drop(read);
    eventually("one has gone", || server.connections() == 2);
    reset.0.set_linger(Some(Duration::ZERO)).unwrap();
    drop(reset);
    eventually("two have gone", || server.connections() == 1);
    assert_eq!(server.count(Count::CmdGet), 3, "what they have sent is not executed");
    debts.in_debt.store(false, SeqCst);
    stays.expect("END\r\n");
    eventually("none waits", || debts.waiting.load(SeqCst) == 0);
}

#[test]
fn clients_that_finish_sending_in_debt_keep_a_bounded_number_of_places() {
    const KEPT: usize = 64;
    let debts = Arc::new(Debts::default());
    let server = start(&debts);
    debts.in_debt.store(true, SeqCst);
    for number in 1..=KEPT + 10 {
        let mut client = server.connect();
        client.send(b"get a\r\n");
        drop(client);
        eventually("it waits", || {
            let read = server.read();
            (read.total, read.open) == (number as u64, number.min(KEPT))
                && debts.waiting.load(SeqCst) == number.min(KEPT) as u64
        });
    }
    debts.in_debt.store(false, SeqCst);
    eventually("none is left", || server.connections() == 0);
    assert_eq!(server.count(Count::CmdGet), KEPT as u64);
    assert_eq!(debts.waiting.load(SeqCst), 0);
}

#[test]
fn client_in_debt_is_sent_the_answer_of_its_backend_and_nothing_more() {
    for protocol in Protocol::ALL {
        let (debts, slow) = (Arc::new(Debts::default()), slow());
        let one_thread = ListenerOptions { threads: 1, ..options() };
        let backends = Arc::clone(&slow) as Arc<dyn Backends>;
        let network = Arc::clone(&debts) as Arc<dyn Charged>;
        let server = Server::limited_read_through(protocol, one_thread, network, backends);
        let mut client = server.connect();
        // The first command brings the tenant into debt.
        debts.begins_with_bytes.store(true, SeqCst);
        client.send(format!("{}{}", protocol.get("a"), protocol.get("b")).as_bytes());
        eventually("the first one waits", || debts.in_debt.load(SeqCst) && slow.is_asked("a"));
        slow.answer("a", Ok(Some(Bytes::from_static(b"1").into())));
        client.expect(&protocol.found("a", "1"));
        debts.wait_for_rounds();
        assert!(!slow.is_asked("b"), "the second command is not executed");
        debts.begins_with_bytes.store(false, SeqCst);
        debts.in_debt.store(false, SeqCst);
        eventually("the backend is asked again", || slow.is_asked("b"));
        slow.answer("b", Ok(None));
        client.expect(protocol.missed());
    }
}

#[test]
fn clients_of_a_tenant_in_debt_have_their_turns_in_order() {
    const COMMANDS: usize = 100;
    let debts = Arc::new(Debts::default());
    // A turn of many commands ends with the output that is sent at once.
    let options = ListenerOptions { threads: 1, output_bytes_max: 50, ..options() };
    let network = Arc::clone(&debts) as Arc<dyn Charged>;
    let server = Server::limited(Protocol::Memcached, options, network);
    debts.in_debt.store(true, SeqCst);
    debts.begins_with_bytes.store(true, SeqCst);
    let [mut busy, mut second, mut third] = [(); 3].map(|()| server.connect());
    for (number, (client, commands)) in
        [(&mut busy, COMMANDS), (&mut second, 1), (&mut third, 1)].into_iter().enumerate()
    {
        client.send("get a\r\n".repeat(commands).as_bytes());
        eventually("it waits", || debts.waiting.load(SeqCst) == number as u64 + 1);
    }
    let pay = || {
        debts.in_debt.store(false, SeqCst);
        eventually("one had its turn", || debts.in_debt.load(SeqCst));
    };
    pay();
    busy.expect("END\r\n");
    for client in [&mut second, &mut third] {
        pay();
        client.expect("END\r\n");
    }
    assert!(server.count(Count::CmdGet) < COMMANDS as u64);
    debts.begins_with_bytes.store(false, SeqCst);
    debts.in_debt.store(false, SeqCst);
    busy.expect(&"END\r\n".repeat(COMMANDS - 1));
}
