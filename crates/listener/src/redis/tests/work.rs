//! Tests of the work counted for the most expensive form of each command: alone, in a pipeline, and
//! in a transaction.

use super::*;
use crate::work::{COMMAND_MAX, TURN_MAX, digits, pairs, rebuilt};

const MIB: usize = 1 << 20;
/// Number of times that a command is sent in a pipeline, and in a transaction.
const PIPELINED: usize = 6;
const QUEUED: usize = 20;

/// A command in its most expensive form.
struct Dear {
    name: &'static str,
    /// Requests that can be sent in turn, any number of times.
    requests: Vec<Vec<u8>>,
    /// The minimum work of the first request.
    least: u64,
}

impl Dear {
    fn new(name: &'static str, lines: &[&str], least: u64) -> Self {
        Self { name, requests: lines.iter().map(|line| request(line)).collect(), least }
    }

    /// Returns the command with `count` arguments, each made by `argument` from its number.
    fn many(name: &'static str, head: &str, count: usize, argument: fn(usize) -> String, least: u64) -> Self {
        let arguments: Vec<String> = (0..count).map(argument).collect();
        Self::new(name, &[&format!("{head} {}", arguments.join(" "))], least)
    }
}

/// A listener for values of up to a MiB, with the values that the expensive commands use.
fn listener() -> Listener {
    let partition = Partition::new(TenantId(0), BackendId(0), 64 << 20);
    let options = Options { total_bytes: 64 << 20, item_bytes_max: MIB as u32, ..Options::default() };
    let cache = Arc::new(Cache::new(options, &[partition], SeededState::new(1)).unwrap());
    let mut listener = Listener::new(Arc::clone(&cache), Routing::single(target(0, false)), None);
    let options = &mut Arc::get_mut(&mut listener.shared).unwrap().options;
    (options.item_size_max, options.output_bytes_max) = (MIB as u32, 64 << 10);
    let access = Access::at(listener.now);
    let set = |key: &str, value: &[u8]| {
        cache.set(PartitionId(0), key.as_bytes(), NewItem::bytes(value), &access).unwrap();
    };
    set("big", &vec![b'b'; MIB - 4096]);
    set("long", &[b'9'; 4900]);
    set("left", &(0..2048).map(|at: usize| b'a' + (at * at % 7) as u8).collect::<Vec<_>>());
    set("right", &(0..2048).map(|at: usize| b'a' + (at * 3 % 5) as u8).collect::<Vec<_>>());
    (0..500).for_each(|key| set(&format!("{key:0240}"), b"v"));
    listener
}

/// The commands for which a short request, or one within the bound on the size of requests, can
/// cause much work.
fn dearest() -> Vec<Dear> {
    let big = MIB as u64 - 4096;
    let pattern = format!("*[{}]", "*b".repeat(500));
    let key = |at: usize| format!("k{at}");
    let pair = |at: usize| format!("k{at} v");
    vec![
        Dear::new("append", &["APPEND big x"], rebuilt(MIB - 4096)),
        Dear::new("bitcount", &["BITCOUNT big"], big),
        Dear::new("client|list", &["CLIENT LIST"], 2048),
        Dear::many("command|docs", "COMMAND DOCS", 1000, |_| "client".to_owned(), 1000 << 12),
        Dear::many("command|info", "COMMAND INFO", 1000, |_| "client".to_owned(), 1000 << 12),
        Dear::new("command", &["COMMAND"], 60 << 12),
        Dear::new("config|get", &[&format!("CONFIG GET {}", "*a".repeat(2000))], 19 * 24 * 4000),
        Dear::new("copy", &["COPY big other REPLACE"], rebuilt(MIB - 4096)),
        Dear::new("dbsize", &["DBSIZE"], 500),
        Dear::many("del", "DEL", 8_000, key, 7_900 << 9),
        Dear::many("exists", "EXISTS", 8_000, key, 7_900 << 8),
        Dear::new("flushall", &["FLUSHALL"], 4096),
        Dear::new("getrange", &["GETRANGE big 0 -1"], big),
        Dear::new("incrbyfloat", &["INCRBYFLOAT long 1"], 4900),
        Dear::new("incrbyfloat", &["INCRBYFLOAT none 1e4900"], digits(4900)),
        Dear::new("info", &["INFO"], 4096),
        Dear::new("keys", &[&format!("KEYS {pattern}")], 500 * 250 * 1000),
        Dear::new("lcs", &["LCS left right IDX"], pairs(2048, 2048)),
        Dear::many("mget", "MGET", 8_000, key, 7_900 << 8),
        Dear::many("mset", "MSET", 10_000, pair, 10_000 << 9),
        Dear::many("msetnx", "MSETNX", 10_000, pair, 10_000 << 9),
        Dear::new("rename", &["RENAME big moved", "RENAME moved big"], rebuilt(MIB - 4096)),
        Dear::new("renamenx", &["RENAMENX big moved", "RENAMENX moved big"], rebuilt(MIB - 4096)),
        Dear::new("scan", &[&format!("SCAN 0 MATCH {pattern} COUNT 100000")], TURN_MAX),
        Dear::many("script|exists", "SCRIPT EXISTS", 10_000, key, 10_000 << 9),
        Dear::new("setbit", &["SETBIT far 8380000 1"], rebuilt(1_047_500)),
        Dear::new("setrange", &["SETRANGE far 1047500 x"], rebuilt(1_047_500)),
        Dear::many("touch", "TOUCH", 8_000, key, 7_900 << 8),
        Dear::many("unlink", "UNLINK", 8_000, key, 7_900 << 9),
        Dear::many("watch", "WATCH", 1000, key, 1000 << 8),
    ]
}

/// Commands whose work is bounded by the bytes of their requests, of which a turn reads a few KiB,
/// and of their answers, whose number ends a turn as well.
const CHEAP: &[&str] = &[
    "auth",
    "client|getname",
    "client|help",
    "client|id",
    "client|info",
    "client|no-evict",
    "client|reply",
    "client|setinfo",
    "client|setname",
    "command|count",
    "command|help",
    "config|help",
    "config|resetstat",
    "config|set",
    "decr",
    "decrby",
    "delex",
    "delifeq",
    "discard",
    "echo",
    "eval",
    "evalsha",
    "exec",
    "expire",
    "expireat",
    "expiretime",
    "flushdb",
    "get",
    "getbit",
    "getdel",
    "getex",
    "getset",
    "hello",
    "incr",
    "incrby",
    // Refused here; between databases it checks its work as RENAME does.
    "move",
    "multi",
    "object|encoding",
    "object|freq",
    "object|help",
    "object|idletime",
    "object|refcount",
    "persist",
    "pexpire",
    "pexpireat",
    "pexpiretime",
    "ping",
    "psetex",
    "pttl",
    "quit",
    "randomkey",
    "reset",
    "script|flush",
    "script|help",
    "script|load",
    "select",
    "set",
    "setex",
    "setnx",
    "strlen",
    "time",
    "ttl",
    "type",
    "unwatch",
];

#[test]
fn every_command_is_listed_as_either_expensive_or_cheap() {
    let dear = dearest();
    for command in super::super::table::COMMANDS.iter().flat_map(|command| {
        let subcommands = command.subcommands.iter();
        std::iter::once(command).chain(subcommands).filter(|command| command.subcommands.is_empty())
    }) {
        let is_dear = dear.iter().any(|dear| dear.name == command.name);
        assert!(is_dear != CHEAP.contains(&command.name), "{}", command.name);
    }
}

/// Gives a client scheduling turns until its input is executed, and lets another client execute
/// commands between them. Returns the answers and the work of each turn.
fn turns(listener: &Listener, client: &mut InMemoryClient, input: &[u8]) -> (Vec<u8>, Vec<u64>) {
    let moment = Moment { now: listener.now, unix_secs: listener.unix_secs() };
    let (mut said, mut works) = (Vec::new(), Vec::new());
    let mut other = listener.client();
    client.receive(input);
    while client.has_turn() {
        said.append(&mut client.turn(moment, &mut |_| unreachable!("no backends")));
        works.push(client.work.units());
        listener.check(&mut other, &[("SET own 1", "+OK"), ("GET own", "$1 1")]);
        assert_eq!(other.work.units(), 0);
    }
    (said, works)
}

#[test]
fn work_of_the_costliest_form_of_each_redis_command_is_counted_and_bounded() {
    for Dear { name, requests, least } in dearest() {
        let listener = listener();
        let (said, works) = turns(&listener, &mut listener.client(), &requests[0]);
        assert!(!said.starts_with(b"-"), "{name}: {:.200}", said.escape_ascii());
        assert!(works.iter().sum::<u64>() >= least, "{name}: {works:?} instead of {least}");
        // What can be interrupted is; the others are commands that change several keys at once.
        let is_whole = [
            "append",
            "command|docs",
            "command|info",
            "config|get",
            "copy",
            "mset",
            "msetnx",
            "rename",
            "renamenx",
            "script|exists",
            "setbit",
            "setrange",
        ];
        let most = if is_whole.contains(&name) { COMMAND_MAX } else { 2 * TURN_MAX };
        assert!(works.iter().all(|&work| work <= most), "{name}: {works:?}");
    }
}

#[test]
fn pipeline_of_expensive_redis_commands_is_split_over_several_scheduling_turns() {
    for Dear { name, requests, .. } in dearest() {
        let listener = listener();
        let (_, alone) = turns(&listener, &mut listener.client(), &requests[0]);
        let listener = self::listener();
        let input = requests.iter().cycle().take(PIPELINED).flatten().copied().collect::<Vec<_>>();
        let (_, works) = turns(&listener, &mut listener.client(), &input);
        let most = TURN_MAX + alone.iter().max().copied().unwrap_or_default() + 64;
        assert!(works.iter().all(|&work| work <= most), "{name}: {works:?}, alone {alone:?}");
        let all: u64 = works.iter().sum();
        assert!(works.len() as u64 >= all / most, "{name}: {works:?}");
    }
}

#[test]
fn transaction_of_expensive_commands_stays_within_the_work_bound_or_executes_nothing() {
    let aborted = b"-EXECABORT Transaction discarded because its commands would work";
    let mut refused = Vec::new();
    for Dear { name, requests, .. } in dearest().into_iter().filter(|dear| dear.name != "watch") {
        let listener = listener();
        let mut client = listener.client();
        let commands = requests.iter().cycle().take(QUEUED).flatten().copied();
        let input: Vec<u8> =
            request("MULTI").into_iter().chain(request("INCR done")).chain(commands).collect();
        turns(&listener, &mut client, &input);
        let (said, works) = turns(&listener, &mut client, &request("EXEC"));
        assert!(works.iter().all(|&work| work <= COMMAND_MAX), "{name}: {works:?}");
        let is_done = name == "flushall" || listener.ask(&mut client, "EXISTS done") == ":1";
        assert_eq!(is_done, said.starts_with(b"*"), "{name}: {:.200}", said.escape_ascii());
        if said.starts_with(aborted) {
            refused.push(name);
        }
    }
    let dear = ["append", "bitcount", "copy", "rename", "renamenx", "setbit", "setrange"];
    assert!(dear.iter().all(|name| refused.contains(name)), "{refused:?}");
}

#[test]
fn transaction_on_small_values_or_parts_of_large_values_is_executed() {
    let listener = listener();
    let mut client = listener.client();
    for line in [
        "GETRANGE big 0 9",
        "GETRANGE big -10 -1",
        "BITCOUNT big 0 9",
        "BITCOUNT big -80 -1 BIT",
        "APPEND small x",
    ] {
        let input: Vec<u8> = std::iter::repeat_n(request(line), 1000).flatten().collect();
        listener.check(&mut client, &[("MULTI", "+OK")]);
        turns(&listener, &mut client, &input);
        let answer = listener.ask(&mut client, "EXEC");
        assert!(answer.starts_with("*1000 ") && !answer.contains('-'), "{line}: {answer:.200}");
    }
    // The value is short when it is appended to, whatever it was before.
    listener.check(&mut client, &[("MULTI", "+OK"), ("SET big 1", "+QUEUED")]);
    let input: Vec<u8> = std::iter::repeat_n(request("APPEND big x"), 1000).flatten().collect();
    turns(&listener, &mut client, &input);
    assert!(listener.ask(&mut client, "EXEC").starts_with("*1001 +OK :2 :3 "));
}

#[test]
fn large_replies_end_the_scheduling_turn_even_if_the_client_suppresses_them() {
    let listener = listener();
    let mut client = listener.client();
    listener.check(&mut client, &[("CLIENT REPLY OFF", "")]);
    for line in ["GET big", "GETRANGE big 0 -1", "MGET big big big", "GETEX big"] {
        let input: Vec<u8> = std::iter::repeat_n(request(line), QUEUED).flatten().collect();
        let (said, works) = turns(&listener, &mut client, &input);
        assert!(said.is_empty());
        assert!(works.len() >= QUEUED / 2, "{line}: {works:?}");
    }
}

#[test]
fn command_that_would_touch_too_large_a_value_is_refused_and_changes_nothing() {
    let partition = Partition::new(TenantId(0), BackendId(0), 64 << 20);
    let options = Options { total_bytes: 64 << 20, item_bytes_max: 24 << 20, ..Options::default() };
    let cache = Arc::new(Cache::new(options, &[partition], SeededState::new(1)).unwrap());
    let mut listener = Listener::new(Arc::clone(&cache), Routing::single(target(0, false)), None);
    Arc::get_mut(&mut listener.shared).unwrap().options.item_size_max = 24 << 20;
    let access = Access::at(listener.now);
    let value = vec![b'b'; 17 << 20];
    cache.set(PartitionId(0), b"big", NewItem::bytes(&value), &access).unwrap();
    let refused = "-ERR refused: the command would work as long as it takes to touch more than 16 MiB, while other \
                   clients wait; split it, or use smaller values";
    listener.check(
        &mut listener.client(),
        &[
            ("APPEND big x", refused),
            ("SETRANGE big 1 x", refused),
            ("SETBIT big 1 1", refused),
            ("BITCOUNT big", refused),
            ("GETRANGE big 0 -1", refused),
            ("COPY big other", refused),
            ("RENAME big other", refused),
            ("BITCOUNT big 0 9", ":30"),
            ("GETRANGE big 0 3", "$4 bbbb"),
            ("EXISTS big other", ":1"),
            ("STRLEN big", ":17825792"),
        ],
    );
}

#[test]
fn command_with_too_many_names_pattern_bytes_or_pairs_is_refused() {
    let listener = listener();
    let mut client = listener.client();
    let refused = "-ERR refused: the command would work as long";
    let key = |at: usize| format!("k{at}");
    for (head, count) in [("COMMAND DOCS", 1200), ("COMMAND INFO", 1200), ("MSETNX", 40_000)] {
        let words: Vec<String> = (0..count).map(key).collect();
        let answer = listener.ask(&mut client, &format!("{head} {}", words.join(" ")));
        assert!(answer.starts_with(refused), "{head}: {answer:.200}");
    }
    let answer = listener.ask(&mut client, &format!("CONFIG GET {}", "*a".repeat(100_000)));
    assert!(answer.starts_with(refused), "{answer:.200}");
    listener.check(&mut client, &[("EXISTS k0 k1", ":0")]);
}

#[test]
fn transaction_is_refused_as_soon_as_its_queued_commands_name_too_many_keys() {
    let listener = listener();
    let mut client = listener.client();
    let keys: Vec<String> = (0..8000).map(|at| format!("k{at}")).collect();
    let line = format!("DEL {}", keys.join(" "));
    let refused = "-ERR a transaction changes at most 13,000 keys, or reads 26,000, and half as many where the listener has \
                   backends; send the rest in another one";
    listener.check(&mut client, &[("MULTI", "+OK"), (&line, "+QUEUED"), (&line, refused)]);
    assert!(listener.ask(&mut client, "EXEC").starts_with("-EXECABORT"));
}

#[test]
fn command_with_many_keys_spans_several_turns_and_returns_the_total_count() {
    let listener = listener();
    let mut client = listener.client();
    let pairs: Vec<String> = (0..3000).map(|at| format!("k{at} v")).collect();
    let keys: Vec<String> = (0..6000).map(|at| format!("k{at}")).collect();
    listener.check(&mut client, &[(&format!("MSET {}", pairs.join(" ")), "+OK")]);
    for (name, answer) in [("EXISTS", ":3000"), ("TOUCH", ":3000"), ("DEL", ":3000"), ("UNLINK", ":0")] {
        let line = request(&format!("{name} {}", keys.join(" ")));
        let (said, works) = turns(&listener, &mut client, &line);
        assert_eq!(String::from_utf8_lossy(&said), format!("{answer}\r\n"), "{name}");
        assert!(works.len() >= 3 && works.iter().all(|&work| work <= 2 * TURN_MAX), "{name}: {works:?}");
    }
    let exists = format!("EXISTS {}", keys.join(" "));
    listener.check(&mut client, &[("CLIENT REPLY SKIP", ""), (&exists, ""), ("EXISTS k0", ":0")]);
}

#[test]
fn large_mset_is_executed_in_portions_and_stops_at_the_first_invalid_key() {
    let listener = listener();
    let mut client = listener.client();
    let pairs: Vec<String> = (0..30_000).map(|at| format!("k{at} {at}")).collect();
    let (said, works) = turns(&listener, &mut client, &request(&format!("MSET {}", pairs.join(" "))));
    assert_eq!(said, b"+OK\r\n");
    assert!(works.len() >= 3 && works.iter().all(|&work| work <= COMMAND_MAX), "{works:?}");
    listener.check(&mut client, &[("MGET k0 k29999", "*2 $1 0 $5 29999")]);

    let pairs: Vec<String> = (0..20_000).map(|at| format!("k{at} new")).collect();
    let refused = format!("MSET {} {} v k29999 new", pairs.join(" "), "k".repeat(251));
    let answer = listener.ask(&mut client, &refused);
    assert!(answer.starts_with("-ERR "), "{answer:.200}");
    listener.check(&mut client, &[("MGET k19999 k29999", "*2 $3 new $5 29999")]);
    listener.check(&mut client, &[("CLIENT REPLY SKIP", ""), (&refused, ""), ("GET k29999", "$5 29999")]);
}

#[test]
fn msetnx_that_repeats_a_key_many_times_stores_its_last_value() {
    let listener = listener();
    let mut client = listener.client();
    let pairs: Vec<String> =
        (0..5000).map(|at| format!("k{at} 1")).chain((0..5000).map(|_| "k4999 2".to_owned())).collect();
    listener.check(
        &mut client,
        &[(&format!("MSETNX {}", pairs.join(" ")), ":1"), ("MGET k0 k4999", "*2 $1 1 $1 2")],
    );
}
