//! Redis listeners that require a password: the answers of Redis 7.0.15 with `requirepass`.

use super::*;
use crate::passwords::REFUSALS_MAX;
use crate::tests::Known;

const NO_AUTH: &str = "-NOAUTH Authentication required.";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

fn listener() -> Listener {
    let passwords = Arc::new(Known(&[("default", "sesame123"), ("alice", "12345678")]));
    Listener::asking(cache(1), Routing::single(target(0, false)), None, Some(passwords))
}

#[test]
fn redis_commands_are_refused_before_login() {
    let listener = listener();
    let no_hello = "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> \
                    option can be used to authenticate the client and select the RESP protocol version at the same time";
    listener.check(
        &mut listener.client(),
        &[
            ("GET a", NO_AUTH),
            ("PING", NO_AUTH),
            ("CLIENT ID", NO_AUTH),
            ("CLIENT REPLY OFF", NO_AUTH),
            ("CLIENT FOO", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP."),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            ("FOO", "-ERR unknown command 'FOO', with args beginning with:"),
            ("HELLO", no_hello),
            ("HELLO 3 SETNAME x", no_hello),
            ("HELLO 9", "-NOPROTO unsupported protocol version"),
            ("HELLO 3 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'"),
            ("HELLO 3 AUTH default bad", WRONG),
            ("AUTH a b c", "-ERR syntax error"),
            ("RESET", "+RESET"),
            ("QUIT", "+OK (closed)"),
        ],
    );
}

#[test]
fn redis_client_is_served_after_login_until_reset() {
    let listener = listener();
    listener.check(
        &mut listener.client(),
        &[
            ("AUTH sesame", WRONG),
            ("AUTH alice sesame123", WRONG),
            ("AUTH sesame123", "+OK"),
            ("SET a 1", "+OK"),
            ("AUTH nobody sesame123", WRONG),
            ("GET a", "$1 1"),
            ("HELLO 2 SETNAME x", "*14 $6 server $5 redis $7 version $6 7.0.15 $5 proto :2 $2 id :1 $4 mode $10 standalone $4 role $6 master $7 modules *0"),
            ("CLIENT GETNAME", "$1 x"),
            ("RESET", "+RESET"),
            ("GET a", NO_AUTH),
        ],
    );
    let mut client = listener.client();
    assert!(listener.ask(&mut client, "HELLO 3 AUTH alice 12345678").starts_with("%7 "));
    listener.check(&mut client, &[("GET a", "$1 1")]);
    assert_eq!((listener.count(Count::AuthCmds), listener.count(Count::AuthErrors)), (5, 3));
}

#[test]
fn redis_connection_closes_after_too_many_failed_logins() {
    let listener = listener();
    let guesses = request("AUTH 12345678").repeat(100);
    let said = listener.send(&mut listener.client(), &[guesses, request("AUTH sesame123")].concat());
    let refusals = format!("{WRONG}\r\n").repeat(usize::from(REFUSALS_MAX));
    assert_eq!(String::from_utf8_lossy(&said), format!("{refusals}(closed)"));
    // A reset keeps the count of failed logins.
    let mut client = listener.client();
    for _ in 0..REFUSALS_MAX {
        listener.ask(&mut client, "AUTH 12345678");
        if !client.is_closed() {
            listener.ask(&mut client, "RESET");
        }
    }
    assert!(client.is_closed());
}

#[test]
fn oversized_redis_request_before_login_is_refused_and_changes_nothing() {
    let listener = listener();
    let mut inside = listener.client();
    let large = "x".repeat(900);
    listener.check(
        &mut inside,
        &[("AUTH sesame123", "+OK"), ("SET a 1", "+OK"), (&format!("SET b {large}"), "+OK")],
    );
    for length in [20_000, 500_000_000] {
        let answer = listener
            .send(&mut listener.client(), format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${length}\r\n").as_bytes());
        assert_eq!(
            String::from_utf8_lossy(&answer),
            "-ERR Protocol error: unauthenticated bulk length\r\n(closed)"
        );
    }
    listener.check(&mut inside, &[("GET a", "$1 1")]);
    // The limits of clients that have not logged in do not apply to input after a right password.
    let together =
        [request("AUTH sesame123"), request(&format!("SET c {large}")), request("STRLEN c")].concat();
    assert_eq!(listener.send(&mut listener.client(), &together), b"+OK\r\n+OK\r\n:900\r\n");
}
