//! The commands of a simulated client, and the expected answers.

use sherwood_listener::{InMemoryClient, Moment};

use crate::binary;
use crate::draw::Draw;

/// The name and password that the listener accepts.
pub(crate) const NAME: &str = "robin";
pub(crate) const PASSWORD: &str = "hood";

/// Largest values of clients that send many commands: with larger ones they would take too long.
const MANY_VALUE_BYTES_MAX: usize = 20_000;

/// The protocol of all clients of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Memcached,
    /// The binary protocol of memcached, which clients of a memcached listener choose.
    MemcachedBinary,
    Redis,
}

/// An expected byte of the output to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Byte(u8),
    /// A digit of a number that depends on other clients, of which there may be several.
    Digits,
    /// A byte of a binary number that depends on other clients, with any value.
    Any,
}

/// The input of a client and its expected output.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) bytes: Vec<u8>,
    pub(crate) expected: Vec<Expected>,
    /// For each command, the ends of its bytes and of the expected answer.
    pub(crate) ends: Vec<(usize, usize)>,
    /// True if the listener closes the connection after the last answer.
    pub(crate) closes: bool,
}

/// The properties of a simulation that affect the scripts of its clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) protocol: Protocol,
    pub(crate) passwords: bool,
    pub(crate) value_bytes_max: usize,
}

impl Script {
    /// Draws the commands of client number `client`, and has `reference`, a client without a
    /// socket, answer them.
    pub(crate) fn draw(
        draw: &mut Draw,
        options: Options,
        client: usize,
        reference: &mut InMemoryClient,
        moment: Moment,
    ) -> Self {
        let mut script = Self::default();
        let mut add = |command: Vec<u8>| {
            let answer = reference.send(moment, &command);
            script.bytes.extend_from_slice(&command);
            script.expected.extend(match options.protocol {
                Protocol::MemcachedBinary => binary::expected(&answer),
                Protocol::Memcached | Protocol::Redis => expected(&answer),
            });
            script.ends.push((script.bytes.len(), script.expected.len()));
            script.closes = reference.is_closed();
            !script.closes
        };
        let mut open = true;
        for command in greeting(draw, options) {
            open = open && add(command);
        }
        // Mostly a few commands, sometimes more than fit into one read.
        let many = draw.chance(1) && options.value_bytes_max <= MANY_VALUE_BYTES_MAX;
        let mut commands = if many { 600 + draw.below(1500) } else { 1 + draw.below(30) };
        while open && commands > 0 {
            commands -= 1;
            let command = match options.protocol {
                Protocol::Memcached => memcached(draw, client, options.value_bytes_max),
                Protocol::MemcachedBinary => binary::request(draw, client, options.value_bytes_max),
                Protocol::Redis => redis(draw, client, options.value_bytes_max),
            };
            open = add(command);
        }
        if open && draw.chance(20) {
            add(match options.protocol {
                Protocol::Memcached => b"quit\r\n".to_vec(),
                Protocol::MemcachedBinary => binary::quit(draw),
                Protocol::Redis => b"QUIT\r\n".to_vec(),
            });
        }
        script
    }
}

/// Returns the bytes that an answer is expected to have; the client's number in the answer to
/// `HELLO` may be any digits.
fn expected(answer: &[u8]) -> Vec<Expected> {
    const BEFORE: &[u8] = b"$2\r\nid\r\n:";
    let bytes = |bytes: &[u8]| bytes.iter().copied().map(Expected::Byte).collect::<Vec<_>>();
    let Some(at) = answer.windows(BEFORE.len()).position(|part| part == BEFORE) else { return bytes(answer) };
    let (before, rest) = answer.split_at(at + BEFORE.len());
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    [bytes(before), vec![Expected::Digits], bytes(&rest[digits..])].concat()
}

/// Draws the first commands of a connection, such as a login.
fn greeting(draw: &mut Draw, options: Options) -> Vec<Vec<u8>> {
    let password = if draw.chance(80) { PASSWORD } else { "wrong" };
    let resp3 = draw.chance(50);
    match (options.protocol, options.passwords) {
        (Protocol::Memcached | Protocol::MemcachedBinary, false) => vec![],
        (Protocol::MemcachedBinary, true) => binary::login(draw, NAME, password),
        (Protocol::Memcached, true) => {
            let text = format!("{NAME} {password}");
            vec![format!("set auth 0 0 {}\r\n{text}\r\n", text.len()).into_bytes()]
        }
        (Protocol::Redis, false) if resp3 => vec![request(&["HELLO", "3"])],
        (Protocol::Redis, false) => vec![],
        (Protocol::Redis, true) if resp3 => vec![request(&["HELLO", "3", "AUTH", NAME, password])],
        (Protocol::Redis, true) => vec![request(&["AUTH", NAME, password])],
    }
}

pub(crate) fn key(draw: &mut Draw, client: usize) -> String {
    format!("c{client}-{}", draw.below(8))
}

/// Returns the number of the client that a key belongs to.
pub(crate) fn client_of(key: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(key).ok()?.strip_prefix('c')?;
    text.split('-').next()?.parse().ok()
}

pub(crate) fn value(draw: &mut Draw, client: usize, bytes_max: usize) -> String {
    let bytes = if draw.chance(90) { draw.below(bytes_max.min(300)) } else { draw.below(bytes_max) };
    let mut value = format!("secret of client {client} {} ", draw.below(1000)).repeat(bytes / 20 + 1);
    value.truncate(bytes);
    value
}

fn memcached(draw: &mut Draw, client: usize, bytes_max: usize) -> Vec<u8> {
    let key = key(draw, client);
    let text = match draw.below(26) {
        0..=3 => format!("get {key}\r\n"),
        4 | 5 => {
            let keys: Vec<_> = (0..draw.up_to(12)).map(|_| self::key(draw, client)).collect();
            format!("get {}\r\n", keys.join(" "))
        }
        6 => format!("gat 100000 {key} {}\r\n", self::key(draw, client)),
        7..=9 => {
            let value = value(draw, client, bytes_max);
            let noreply = draw.one_of(&["", "", "", " noreply"]);
            let verb = draw.one_of(&["set", "set", "add", "replace", "append", "prepend"]);
            format!("{verb} {key} 7 0 {}{noreply}\r\n{value}\r\n", value.len())
        }
        10 => format!("delete {key}\r\n"),
        11 => format!("set {key} 0 0 2\r\n{}\r\n", 10 + draw.below(90)),
        12 => format!("{} {key} 3\r\n", draw.one_of(&["incr", "decr"])),
        13 => format!("touch {key} 100000\r\n"),
        14..=16 => format!("mg {key} v f k s O{}\r\n", draw.below(1000)),
        17 => format!("mg {key} v q\r\n"),
        18 => {
            let value = value(draw, client, bytes_max);
            format!("ms {key} {} T0\r\n{value}\r\n", value.len())
        }
        19 => format!("md {key} q\r\n"),
        20 => format!("ma {key} N0 J13 v\r\n"),
        21 => "mn\r\n".to_owned(),
        22 => draw.one_of(&["nonsense\r\n", "get\r\n", "set a 0 0 -1\r\n", "version\r\n", "\r\n"]).to_owned(),
        23 => format!("set {key} 0 0 2\r\ntoo long\r\n"),
        24 => format!("set {key} 0 0 {}\r\n{}\r\n", bytes_max + 1, "x".repeat(bytes_max + 1)),
        _ if draw.chance(5) => "x".repeat(3000),
        _ => format!("mg {key} s v\r\n"),
    };
    text.into_bytes()
}

/// Encodes a Redis request as an array of bulk strings.
fn request(arguments: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", arguments.len());
    for argument in arguments {
        text.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
    }
    text.into_bytes()
}

fn redis(draw: &mut Draw, client: usize, bytes_max: usize) -> Vec<u8> {
    let (key, other) = (key(draw, client), key(draw, client));
    let value = value(draw, client, bytes_max);
    let number = (10 + draw.below(90)).to_string();
    match draw.below(30) {
        24..=26 => request(&[draw.one_of(&["MULTI", "MULTI", "EXEC", "EXEC", "EXEC", "DISCARD", "UNWATCH"])]),
        27 => request(&["WATCH", &key, &other]),
        28 => [&["MULTI"][..], &["GET", &key], &["INCR", &other], &["MGET", &other, &key], &["EXEC"]]
            .iter()
            .flat_map(|words| request(words))
            .collect(),
        0..=2 => request(&["GET", &key]),
        3 => format!("GET {key}\r\n").into_bytes(),
        4..=6 => {
            let keys: Vec<_> = (0..draw.up_to(12)).map(|_| self::key(draw, client)).collect();
            let keys: Vec<_> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
            request(&keys)
        }
        7..=9 => request(&["SET", &key, &value]),
        10 => request(&["SET", &key, &number]),
        11 => request(&["INCRBY", &key, "3"]),
        12 => request(&["MSET", &key, &value, &other, "x"]),
        13 => request(&["DEL", &key, &other]),
        14 => request(&["APPEND", &key, &value]),
        15 => request(&["GETRANGE", &key, "2", "9"]),
        16 => request(&[draw.one_of(&["STRLEN", "EXISTS", "TYPE", "PERSIST", "GETDEL"]), &key]),
        17 => request(&[draw.one_of(&["SETNX", "GETSET", "ECHO"]), &key, &value]),
        18 => request(&["EXPIRE", &key, "100000"]),
        19 => b"PING\r\n".to_vec(),
        20 => request(&["CLIENT", "REPLY", draw.one_of(&["ON", "ON", "OFF", "SKIP"])]),
        21 => request(&["NONSENSE", &key]),
        22 => request(&["SET", &key, &"x".repeat(bytes_max + 1)]),
        _ if draw.chance(10) => b"*1\r\n$-1\r\n".to_vec(),
        _ => request(&["CLIENT", "REPLY", "ON"]),
    }
}
