//! Requests of the binary protocol about values that other nodes cache, too.

use super::*;
use crate::backends::SharedTrust;
use crate::tests::shared_service;

const DOUBTED: SharedTrust = SharedTrust { doubts_values: true, refuses_changes: false };
const CLOSED: SharedTrust = SharedTrust { doubts_values: false, refuses_changes: true };
const TRUSTED: SharedTrust = SharedTrust { doubts_values: false, refuses_changes: false };

/// A time since 1970 in the past, seconds.
const PAST: u32 = 1_700_000_000;

/// Opcode, status and text of the answer to a change that other nodes would miss.
fn refused(opcode: u8) -> String {
    format!("{opcode:02x} error 86 {}", crate::shared::REFUSED_CHANGE)
}

#[test]
fn requests_find_no_value_that_is_not_trusted() {
    let (service, fake) = shared_service();
    let mut client = Client::new(service);
    for (request, answer) in [
        (frame(GET, "k"), "00 error 1 Not found"),
        (frame(GAT, "k").numbers(&[100]), "1d error 1 Not found"),
        (frame(TOUCH, "k").numbers(&[100]), "1c error 1 Not found"),
        (frame(ADD, "k").numbers(&[0, 0]).with("2"), "02"),
        (frame(REPLACE, "k").numbers(&[0, 0]).with("2"), "03 error 1 Not found"),
        (frame(APPEND, "k").with("2"), "0e error 5 Not stored."),
    ] {
        fake.trust(TRUSTED);
        client.check(&[set("k", "1"), frame(GET, "k")], &["01", "00 0 1"]);
        fake.trust(DOUBTED);
        client.check(&[request], &[answer]);
    }
}

#[test]
fn changes_are_refused_and_reads_are_not_while_other_nodes_would_miss_changes() {
    let (service, fake) = shared_service();
    let mut client = Client::new(service);
    client.check(&[set("k", "1")], &["01"]);
    fake.trust(CLOSED);
    for request in [set("k", "2"), frame(DELETE, "k"), count(INCREMENT, "k", 1, 0, 0), frame(FLUSH, "")] {
        let refused = refused(request.opcode);
        client.check(&[request], &[&refused]);
    }
    client.check(
        &[frame(GET, "k"), frame(TOUCH, "k").numbers(&[100]), frame(GAT, "k").numbers(&[100])],
        &["00 0 1", "1c 0", "1d 0 1"],
    );
    fake.trust(TRUSTED);
    client.check(&[set("k", "2")], &["01"]);
}

#[test]
fn past_expiry_is_refused_since_it_removes_the_key() {
    let (service, fake) = shared_service();
    let mut client = Client::new(service);
    client.check(&[set("k", "1")], &["01"]);
    fake.trust(CLOSED);
    for opcode in [TOUCH, GAT, GATQ] {
        let refused = refused(opcode);
        client.check(&[frame(opcode, "k").numbers(&[PAST])], &[&refused]);
    }
    client.check(&[frame(GET, "k")], &["00 0 1"]);
    fake.trust(TRUSTED);
    client.check(&[frame(TOUCH, "k").numbers(&[PAST]), frame(GET, "k")], &["1c 0", "00 error 1 Not found"]);
}
