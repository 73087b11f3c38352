//! Transactions: `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH`.

use super::*;

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";

#[test]
fn commands_after_multi_are_queued_and_executed_by_exec() {
    let listener = Listener::plain();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("MULTI", "+OK"),
            ("SET a 1", "+QUEUED"),
            ("INCRBY a 5", "+QUEUED"),
            ("GET a", "+QUEUED"),
            ("MGET a none", "+QUEUED"),
            ("DEL a none", "+QUEUED"),
            ("PING", "+QUEUED"),
        ],
    );
    listener.check(&mut listener.client(), &[("EXISTS a", ":0")]);
    listener.check(
        &mut client,
        &[
            ("EXEC", "*6 +OK :6 $1 6 *2 $1 6 $-1 :1 +PONG"),
            ("EXEC", "-ERR EXEC without MULTI"),
            ("MULTI", "+OK"),
            ("EXEC", "*0"),
        ],
    );
}

#[test]
fn discard_forgets_the_commands_and_the_watched_keys() {
    let listener = Listener::plain();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("DISCARD", "-ERR DISCARD without MULTI"),
            ("WATCH k", "+OK"),
            ("SET k 1", "+OK"),
            ("MULTI", "+OK"),
            ("SET a 1", "+QUEUED"),
            ("DISCARD", "+OK"),
            ("EXISTS a", ":0"),
            ("MULTI", "+OK"),
            ("GET k", "+QUEUED"),
            ("EXEC", "*1 $1 1"),
        ],
    );
}

#[test]
fn command_that_cannot_be_queued_aborts_the_transaction() {
    let listener = Listener::plain();
    let mut client = listener.client();
    for (wrong, expected) in [
        (
            "NOSUCH a",
            "-ERR unknown command 'NOSUCH', with args beginning with: 'a' (commands: docs/src/redis.md of Sherwood 0.1.0)",
        ),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("OBJECT NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try OBJECT HELP."),
        (
            "KEYS *",
            "-ERR 'keys' is refused inside MULTI: it looks at all keys, and a transaction locks only those it names; send it before",
        ),
        (
            "HELLO 3",
            "-ERR 'hello' is refused inside MULTI: it changes how later commands are answered; send it before",
        ),
    ] {
        let table = [
            ("MULTI", "+OK"),
            ("SET a 1", "+QUEUED"),
            (wrong, expected),
            ("SET b 1", "+QUEUED"),
            ("EXEC", ABORTED),
            ("EXISTS a b", ":0"),
        ];
        listener.check(&mut client, &table);
    }
    let too_many =
        "EXECABORT Transaction discarded because of: ERR wrong number of arguments for 'exec' command";
    listener.check(
        &mut client,
        &[
            ("EXEC x", "-ERR wrong number of arguments for 'exec' command"),
            ("MULTI", "+OK"),
            ("EXEC x", &format!("-{too_many}")),
            ("EXEC", "-ERR EXEC without MULTI"),
        ],
    );
}

#[test]
fn error_of_a_queued_command_leaves_the_others_executed() {
    let listener = Listener::plain();
    listener.check(
        &mut listener.client(),
        &[
            ("SET word x", "+OK"),
            ("MULTI", "+OK"),
            ("SET a 1", "+QUEUED"),
            ("INCR word", "+QUEUED"),
            ("SET b 2", "+QUEUED"),
            ("EXEC", "*3 +OK -ERR value is not an integer or out of range +OK"),
            ("MGET a b", "*2 $1 1 $1 2"),
        ],
    );
}

#[test]
fn nested_multi_and_watch_inside_multi_are_refused_without_an_abort() {
    let listener = Listener::plain();
    listener.check(
        &mut listener.client(),
        &[
            ("MULTI", "+OK"),
            ("MULTI", "-ERR MULTI calls can not be nested"),
            ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
            ("UNWATCH", "+QUEUED"),
            ("EXEC", "*1 +OK"),
        ],
    );
}

/// Checks that a transaction is not executed if `change` happens to its watched key `k`, of which
/// the value was 1 for 10 seconds.
fn aborts(change: impl Fn(&mut Listener, &mut InMemoryClient)) -> bool {
    let mut listener = Listener::plain();
    let (mut client, mut other) = (listener.client(), listener.client());
    listener.check(&mut client, &[("SET k 1 EX 10", "+OK"), ("WATCH k absent", "+OK")]);
    change(&mut listener, &mut other);
    listener.check(&mut client, &[("MULTI", "+OK"), ("SET done 1", "+QUEUED")]);
    let answer = listener.ask(&mut client, "EXEC");
    let done = listener.ask(&mut client, "EXISTS done") == ":1";
    assert_eq!(answer, if done { "*1 +OK" } else { "*-1" });
    !done
}

#[test]
fn exec_after_a_change_of_a_watched_key_executes_nothing() {
    for change in [
        "SET k 1 EX 10",
        "SET k 2",
        "DEL k",
        "APPEND k x",
        "INCR k",
        "EXPIRE k 100",
        "PERSIST k",
        "GETDEL k",
        "SET absent 1",
        "RENAME k other",
        "FLUSHALL",
    ] {
        assert!(aborts(|listener, other| drop(listener.ask(other, change))), "{change}");
    }
    assert!(aborts(|listener, _| listener.pass(Duration::from_secs(10))), "expiry");
    for other in ["GET k", "SET x 1", "TTL k", "PING", "DEL absent"] {
        assert!(!aborts(|listener, client| drop(listener.ask(client, other))), "{other}");
    }
}

#[test]
fn keys_are_watched_until_exec_discard_or_unwatch() {
    let listener = Listener::plain();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("SET k 1", "+OK"),
            ("WATCH k", "+OK"),
            ("SET k 2", "+OK"),
            ("WATCH k", "+OK"),
            ("MULTI", "+OK"),
            ("PING", "+QUEUED"),
            ("EXEC", "*-1"),
            ("MULTI", "+OK"),
            ("PING", "+QUEUED"),
            ("EXEC", "*1 +PONG"),
            ("WATCH k", "+OK"),
            ("SET k 3", "+OK"),
            ("UNWATCH", "+OK"),
            ("MULTI", "+OK"),
            ("PING", "+QUEUED"),
            ("EXEC", "*1 +PONG"),
        ],
    );
}

#[test]
fn reset_and_quit_end_a_transaction() {
    let listener = Listener::plain();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("MULTI", "+OK"),
            ("SET a 1", "+QUEUED"),
            ("RESET", "+RESET"),
            ("EXEC", "-ERR EXEC without MULTI"),
            ("MULTI", "+OK"),
            ("SET a 1", "+QUEUED"),
            ("QUIT", "+OK (closed)"),
        ],
    );
    listener.check(&mut listener.client(), &[("EXISTS a", ":0")]);
}

#[test]
fn version_three_of_the_protocol_has_its_own_null() {
    let listener = Listener::plain();
    let mut client = listener.client();
    listener.ask(&mut client, "HELLO 3");
    listener.check(
        &mut client,
        &[
            ("WATCH k", "+OK"),
            ("SET k 1", "+OK"),
            ("MULTI", "+OK"),
            ("EXEC", "_"),
            ("MULTI", "+OK"),
            ("GET none", "+QUEUED"),
            ("CONFIG GET port", "+QUEUED"),
            ("EXEC", "*2 _ %1 $4 port $5 11211"),
        ],
    );
}

#[test]
fn client_list_shows_the_number_of_queued_commands() {
    let listener = Listener::plain();
    let (mut client, mut other) = (listener.client(), listener.client());
    listener.check(&mut client, &[("MULTI", "+OK"), ("PING", "+QUEUED"), ("PING", "+QUEUED")]);
    let list = listener.ask(&mut other, "CLIENT LIST");
    assert!(list.contains("flags=x") && list.contains("multi=2"), "{list}");
    listener.ask(&mut client, "EXEC");
    let list = listener.ask(&mut other, "CLIENT LIST");
    assert!(!list.contains("flags=x") && list.contains("multi=-1"), "{list}");
}

#[test]
fn transaction_of_too_many_commands_or_bytes_is_aborted() {
    let listener = Listener::plain();
    let mut client = listener.client();
    let refused =
        "-ERR a transaction has at most 1024 commands and 8 MiB of arguments; send the rest in another one";
    listener.check(&mut client, &[("MULTI", "+OK")]);
    for _ in 0..1024 {
        listener.check(&mut client, &[("INCR n", "+QUEUED")]);
    }
    listener.check(&mut client, &[("INCR n", refused), ("EXEC", ABORTED), ("EXISTS n", ":0")]);
    listener.check(&mut client, &[("MULTI", "+OK")]);
    let keys = format!("DEL {}", vec!["k".repeat(900); 1000].join(" "));
    let answers: Vec<String> = (0..10).map(|_| listener.ask(&mut client, &keys)).collect();
    let queued = answers.iter().position(|answer| answer == refused);
    assert_eq!(queued, Some(9), "9 times 908,000 bytes are less than 8 MiB, 10 times are more");
    listener.check(&mut client, &[("EXEC", ABORTED)]);
}

#[test]
fn commands_after_too_long_answers_are_not_executed() {
    let listener = Listener::plain();
    let mut client = listener.client();
    listener.ask(&mut client, &format!("SET k {}", "x".repeat(1000)));
    let keys = format!("MGET {}", vec!["k"; 9000].join(" "));
    listener.check(
        &mut client,
        &[("MULTI", "+OK"), ("INCR n", "+QUEUED"), (&keys, "+QUEUED"), ("GET k", "+QUEUED")],
    );
    let answer = listener.ask(&mut client, "EXEC");
    assert!(
        answer.starts_with("*3 :1 -ERR not executed: the transaction's answers exceed 8 MiB"),
        "{answer:.100}"
    );
    assert!(answer.ends_with(&"x".repeat(1000)), "an answer that is left out takes no room");
}

#[test]
fn argument_over_the_limit_aborts_the_transaction_and_removes_nothing() {
    let listener = Listener::plain();
    let mut client = listener.client();
    let over = format!("SET k {}", "x".repeat(1001));
    let refused = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    listener.check(
        &mut client,
        &[("SET k 1", "+OK"), ("MULTI", "+OK"), (&over, refused), ("EXEC", ABORTED), ("GET k", "$1 1")],
    );
}

#[test]
fn client_that_wants_no_answers_gets_none_to_a_transaction() {
    let listener = Listener::plain();
    let mut client = listener.client();
    let sent = ["CLIENT REPLY OFF", "MULTI", "SET a 1", "EXEC", "CLIENT REPLY ON", "GET a"];
    let sent: Vec<u8> = sent.iter().flat_map(|line| request(line)).collect();
    assert_eq!(listener.send(&mut client, &sent), b"+OK\r\n$1\r\n1\r\n");
}

/// Sends every command of the table inside a transaction; a command that locked a shard again would
/// never end.
#[test]
fn every_command_is_executed_in_a_transaction_or_refused() {
    let listener = Listener::plain();
    let mut client = listener.client();
    for command in super::super::table::COMMANDS.iter().flat_map(|command| {
        if command.subcommands.is_empty() { std::slice::from_ref(command) } else { command.subcommands }
    }) {
        if ["multi", "exec", "discard", "watch", "quit", "reset"].contains(&command.name) {
            continue;
        }
        let mut words: Vec<&str> = command.name.split('|').collect();
        let least = command.arity.unsigned_abs() as usize;
        while words.len() < least {
            words.push(if words.len() % 2 == 1 { "key" } else { "1" });
        }
        listener.check(&mut client, &[("SET key 5", "+OK"), ("MULTI", "+OK")]);
        let queued = listener.ask(&mut client, &words.join(" "));
        let answer = listener.ask(&mut client, "EXEC");
        assert_eq!(queued == "+QUEUED", answer.starts_with("*1 "), "{words:?}: {queued}, {answer}");
        assert!(queued == "+QUEUED" || queued.contains("is refused inside MULTI"), "{words:?}: {queued}");
    }
}

fn read_through() -> (Listener, Arc<Known>) {
    let known = known();
    let backends: Option<Arc<dyn Backends>> = Some(Arc::clone(&known) as _);
    (Listener::new(cache(1), Routing::single(target(0, true)), backends), known)
}

#[test]
fn missing_values_are_fetched_before_a_transaction_is_executed() {
    let (listener, known) = read_through();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("SET here 1", "+OK"),
            ("MULTI", "+OK"),
            ("GET a", "+QUEUED"),
            ("MGET b none here a", "+QUEUED"),
            ("SET a 2", "+QUEUED"),
            ("GET a", "+QUEUED"),
            ("DEL b", "+QUEUED"),
            ("GET b", "+QUEUED"),
            ("GET late", "+QUEUED"),
            ("STRLEN c", "+QUEUED"),
            (
                "EXEC",
                "*8 $3 <a> *4 $3 <b> $-1 $1 1 $3 <a> +OK $1 2 :0 $-1 \
                 -REJECTED the answer is expected after 35 ms, too late :0",
            ),
        ],
    );
    assert_eq!(*known.asked.lock().unwrap(), ["a", "b", "none", "late"]);
    assert_eq!((listener.count(Count::Fetches), listener.count(Count::FetchErrors)), (4, 1));
}

#[test]
fn keys_beyond_one_round_of_fetches_are_fetched_in_further_ones() {
    let (listener, known) = read_through();
    let mut client = listener.client();
    let names: Vec<String> = (0..150).map(|number| format!("k{number}")).collect();
    let table = [("MULTI", "+OK"), (&format!("MGET {}", names.join(" ")), "+QUEUED")];
    listener.check(&mut client, &table);
    let values: Vec<String> = names.iter().map(|name| format!("${} <{name}>", name.len() + 2)).collect();
    assert_eq!(listener.ask(&mut client, "EXEC"), format!("*1 *150 {}", values.join(" ")));
    assert_eq!(*known.asked.lock().unwrap(), names);
}

#[test]
fn watched_key_is_fetched_so_that_a_first_read_does_not_change_it() {
    let (listener, known) = read_through();
    let (mut client, mut other) = (listener.client(), listener.client());
    listener.check(&mut client, &[("WATCH a none", "+OK")]);
    assert_eq!(*known.asked.lock().unwrap(), ["a", "none"]);
    listener.check(&mut client, &[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("EXEC", "*1 +OK")]);
    listener.check(&mut client, &[("WATCH a", "+OK")]);
    listener.check(&mut other, &[("SET a 2", "+OK")]);
    listener.check(&mut client, &[("MULTI", "+OK"), ("EXEC", "*-1")]);
}

#[test]
fn command_that_changes_a_store_is_refused_inside_multi() {
    let through = Target { write_through: true, ..target(0, true) };
    let routes = [("w/".to_owned(), through), (String::new(), target(1, false))];
    let known = known();
    let backends: Option<Arc<dyn Backends>> = Some(Arc::clone(&known) as _);
    let listener = Listener::new(cache(2), Routing::by_prefix(TenantId(0), routes).unwrap(), backends);
    let mut client = listener.client();
    for command in ["SET w/a 1", "MSET other 1 w/a 2", "DEL w/a", "INCR w/a"] {
        listener.check(&mut client, &[("MULTI", "+OK"), ("SET other 5", "+QUEUED")]);
        let answer = listener.ask(&mut client, command);
        assert!(answer.contains("is refused inside MULTI by a write-through listener"), "{answer}");
        listener.check(&mut client, &[("EXEC", ABORTED), ("EXISTS other", ":0")]);
    }
    assert!(known.asked.lock().unwrap().is_empty());
    listener.check(
        &mut client,
        &[("MULTI", "+OK"), ("SET other 5", "+QUEUED"), ("GET w/a", "+QUEUED"), ("EXEC", "*2 +OK $3 <a>")],
    );
}
