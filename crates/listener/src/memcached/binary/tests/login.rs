//! Tests of the SASL login, and of clients of several tenants.

use super::*;
use crate::passwords::Passwords;
use crate::passwords::REFUSALS_MAX;
use crate::tenants::UserRoutes;
use crate::tests::Known;
use sherwood_model::TenantId;

const MECHANISMS: u8 = 0x20;
const AUTH: u8 = 0x21;
const STEP: u8 = 0x22;
const FAILURE: &str = "21 error 20 Auth failure.";

fn client() -> Client {
    let passwords: Option<Arc<dyn Passwords>> =
        Some(Arc::new(Known(&[("ann", "open sesame"), ("bob", "12345678")])));
    Client::new(Service { passwords, ..service(cache(1), Routing::single(target(0)), None) })
}

fn auth(data: &str) -> Frame {
    frame(AUTH, "PLAIN").with(data)
}

#[test]
fn binary_client_is_served_after_login_with_the_right_password() {
    let mut client = client();
    let version = format!("0b {}", crate::VERSION);
    client.check(&[frame(VERSION, ""), frame(MECHANISMS, "")], &[&version, "20 PLAIN"]);
    let pipelined =
        [auth("\x00ann\x00wrong"), auth("\x00ann\x00open sesame"), set("a", "x"), frame(GET, "a")];
    client.check(&pipelined, &[FAILURE, "21 Authenticated", "01", "00 0 x"]);
    assert_eq!((client.count(Count::AuthCmds), client.count(Count::AuthErrors)), (2, 1));
    // A failure later does not log out.
    client.check(&[auth("\x00ann\x00wrong"), frame(GET, "a")], &[FAILURE, "00 0 x"]);
    // Now values up to the limit are accepted.
    client.check(&[set("a", &"x".repeat(ITEM_BYTES_MAX as usize))], &["01"]);
}

#[test]
fn sasl_login_in_two_steps_succeeds_but_a_second_step_without_the_first_fails() {
    let mut two = client();
    let steps = [auth(""), frame(STEP, "PLAIN").with("bob\x00bob\x0012345678"), set("a", "x")];
    two.check(&steps, &["21 error 21", "22 Authenticated", "01"]);
    client().check(&[frame(STEP, "PLAIN").with("\x00bob\x0012345678")], &["22 error 20 Auth failure."]);
}

#[test]
fn sasl_login_fails_for_another_mechanism_malformed_data_or_a_different_identity() {
    for refused in [
        auth("ann\x00bob\x0012345678"),
        auth("\x00bob"),
        auth("bob 12345678"),
        auth("\x00bob\x0012345678\x00"),
        frame(AUTH, "CRAM-MD5").with("\x00bob\x0012345678"),
        frame(AUTH, "CRAM-MD5"),
    ] {
        client().check(&[refused], &[FAILURE]);
    }
    let long = [frame(AUTH, &"X".repeat(40)).with("data"), auth("\x00bob\x0012345678")];
    client().check(&long, &["21 error 4 Invalid arguments", "21 Authenticated"]);
}

#[test]
fn binary_command_before_login_is_refused_and_closes_the_connection() {
    for opcode in [GET, SET, DELETE, STAT, FLUSH, NOOP, QUIT, GETQ, 0x77] {
        let mut refused = frame(opcode, if matches!(opcode, STAT | FLUSH | NOOP | QUIT) { "" } else { "k" });
        if opcode == SET {
            refused = refused.numbers(&[0, 0]).with("value");
        }
        let answer = format!("{opcode:02x} error 20 Auth failure.");
        client().check(&[refused, auth("\x00bob\x0012345678")], &[&answer, "closed"]);
    }
    // A value is refused before it is received.
    let begun = &set("k", &"x".repeat(900)).bytes()[..40];
    let mut client = client();
    assert_eq!(client.replies(begun)[0].words(), "01 error 20 Auth failure.");
    assert!(client.inner.is_closed());
}

#[test]
fn connection_closes_after_too_many_failed_binary_logins() {
    let mut client = client();
    let mut guesses = vec![auth("\x00bob\x00wrong"); 100];
    guesses.push(auth("\x00bob\x0012345678"));
    let refusals = usize::from(REFUSALS_MAX);
    let expected: Vec<&str> = std::iter::repeat_n(FAILURE, refusals).chain(["closed"]).collect();
    client.check(&guesses, &expected);
}

#[test]
fn sasl_commands_are_unknown_commands_on_a_listener_without_passwords() {
    let mut client = Client::plain();
    let asked = [frame(MECHANISMS, ""), auth("\x00bob\x0012345678"), frame(NOOP, "")];
    client.check(&asked, &["20 error 81 Unknown command", "21 error 81 Unknown command", "0a"]);
}

/// Users `ann` and `bob` of tenants 1 and 2.
struct Users;

impl Passwords for Users {
    fn know(&self, user: &[u8], password: &[u8]) -> Option<TenantId> {
        let tenant = match user {
            b"ann" => TenantId(1),
            b"bob" => TenantId(2),
            _ => return None,
        };
        (password == b"12345678").then_some(tenant)
    }
}

#[test]
fn binary_client_sees_the_items_of_the_tenant_it_logged_in_as() {
    let routes = |tenant: u16| {
        let routes =
            [(String::new(), crate::routing::Target { tenant: TenantId(tenant), ..target(tenant - 1) })];
        Routing::by_prefix(TenantId(tenant), routes).unwrap()
    };
    let service = Service {
        passwords: Some(Arc::new(Users)),
        users: UserRoutes::new([routes(1), routes(2)]),
        ..service(cache(2), Routing::by_prefix(TenantId(9), []).unwrap(), None)
    };
    let (mut ann, mut bob) = (Client::new(service.clone()), Client::new(service));
    let (is_ann, is_bob) = (auth("\x00ann\x0012345678"), auth("\x00bob\x0012345678"));
    ann.check(&[is_ann.clone(), set("k", "hers")], &["21 Authenticated", "01"]);
    bob.check(
        &[is_bob, frame(GET, "k"), frame(FLUSH, "")],
        &["21 Authenticated", "00 error 1 Not found", "08"],
    );
    ann.check(&[frame(GET, "k")], &["00 0 hers"]);
    // Who logs in again is the other user from the next command on.
    bob.check(&[set("k", "his"), is_ann, frame(GET, "k")], &["01", "21 Authenticated", "00 0 hers"]);
}
