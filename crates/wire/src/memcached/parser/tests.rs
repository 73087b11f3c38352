//! Lines and what they mean; the answers were compared with those of memcached 1.6.18.

use super::*;

const VALUE_BYTES_MAX: u32 = 100;

/// What a connection that sent `bytes` is understood to have said, one line each.
fn said(bytes: &[u8]) -> Vec<String> {
    let mut parser = Parser::new(Limits { value_bytes_max: VALUE_BYTES_MAX });
    let mut rest = bytes;
    let mut said = Vec::new();
    loop {
        let Parsed { consumed, event } = parser.parse(rest);
        match event {
            Event::Incomplete { need } => {
                assert!(need > rest.len() - consumed, "{need} bytes are asked for and there");
                return said;
            }
            Event::Command(command) => said.push(in_words(command)),
            Event::Refused { refusal, noreply, close } => said.push(format!(
                "{}{}{}",
                String::from_utf8_lossy(refusal.line()).trim_end(),
                if noreply { ", silently" } else { "" },
                if close { ", and close" } else { "" },
            )),
        }
        rest = &rest[consumed..];
    }
}

fn in_words(command: Command<'_>) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    match command {
        Command::Retrieval(Retrieval { keys, cas, touch, last }) => {
            let keys: Vec<_> = keys.map(text).collect();
            format!("get {} cas={cas} touch={:?} last={last}", keys.join(","), touch.map(|at| at.0))
        }
        Command::Storage(Storage { verb, key, flags, exptime, value, noreply }) => {
            format!("{verb:?} {} {flags} {} {} noreply={noreply}", text(key), exptime.0, text(value))
        }
        Command::TooLarge { verb, key, noreply } => {
            format!("{verb:?} {} too large noreply={noreply}", text(key))
        }
        Command::Arithmetic { key, delta, noreply } => format!("{delta:?} {} noreply={noreply}", text(key)),
        Command::Touch { key, exptime, noreply } => {
            format!("touch {} {} noreply={noreply}", text(key), exptime.0)
        }
        Command::Delete { key, noreply } => format!("delete {} noreply={noreply}", text(key)),
        Command::FlushAll { delay, noreply } => format!("flush {} noreply={noreply}", delay.0),
        Command::Stats(words) => format!("stats [{}]", text(words)),
        Command::Version => "version".to_owned(),
        Command::Verbosity { noreply } => format!("verbosity noreply={noreply}"),
        Command::Quit => "quit".to_owned(),
    }
}

#[track_caller]
fn check(cases: &[(&str, &[&str])]) {
    for (bytes, expected) in cases {
        assert_eq!(&said(bytes.as_bytes()), expected, "after {bytes:?}");
    }
}

const ERROR: &str = "ERROR";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";

#[test]
fn retrievals() {
    check(&[
        ("get a\r\n", &["get a cas=false touch=None last=true"]),
        ("get a\n", &["get a cas=false touch=None last=true"]),
        ("  gets  a   b a \r\n", &["get a,b,a cas=true touch=None last=true"]),
        ("gat 60 a b\r\n", &["get a,b cas=false touch=Some(60) last=true"]),
        ("gats -1 a\r\n", &["get a cas=true touch=Some(-1) last=true"]),
        ("get\r\nget \r\ngat\r\ngat 0\r\ngats  0 \r\n", &[ERROR, ERROR, ERROR, ERROR, ERROR]),
        ("gat x a\r\n", &[BAD_EXPTIME]),
        ("get a\0b\r\n", &[BAD_FORMAT]),
        ("get a\tb\x01\r\n", &["get a\tb\x01 cas=false touch=None last=true"]),
    ]);
}

#[test]
fn storage() {
    check(&[
        ("set a 1 2 3\r\nabc\r\n", &["Set a 1 2 abc noreply=false"]),
        ("add a 1 2 3\nabc\r\n", &["Add a 1 2 abc noreply=false"]),
        ("replace a 0 0 0\r\n\r\n", &["Replace a 0 0  noreply=false"]),
        ("append a 0 0 1 noreply\r\nx\r\n", &["Append a 0 0 x noreply=true"]),
        ("prepend a 0 -5 1 what\r\nx\r\n", &["Prepend a 0 -5 x noreply=false"]),
        ("cas a 0 0 1 77 noreply\r\nx\r\n", &["Cas(77) a 0 0 x noreply=true"]),
        ("set a 4294967295 0 1\r\nx\r\n", &["Set a 4294967295 0 x noreply=false"]),
        ("set a 0 0 4\r\na\r\nb\r\n", &["Set a 0 0 a\r\nb noreply=false"]),
    ]);
}

#[test]
fn a_storage_command_that_is_refused_takes_its_value_with_it() {
    check(&[
        ("set a -1 0 7\r\nversion\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 4294967296 0 1\r\nx\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 0 x 1 noreply\r\nx\r\nquit\r\n", &["CLIENT_ERROR bad command line format, silently", "quit"]),
        ("cas a 0 0 1 x\r\nx\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 0 0 101\r\nx\r\nquit\r\n", &["Set a too large noreply=false"]),
        ("set a 0 0 2147483645 noreply\r\nquit\r\n", &["Set a too large noreply=true"]),
    ]);
    let long = "k".repeat(251);
    check(&[(&format!("set {long} 0 0 7\r\nversion\r\nquit\r\n"), &[BAD_FORMAT, "quit"])]);
    let large = "x".repeat(101);
    check(&[(&format!("add a 0 0 101\r\n{large}\r\nquit\r\n"), &["Add a too large noreply=false", "quit"])]);
}

#[test]
fn a_length_that_is_none_leaves_the_next_line_a_command() {
    check(&[
        ("set a 0 0 -1\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 0 0 x\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 0 0 2147483646\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 0 0 99999999999999999999\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 0 0\r\nset\r\ncas a 0 0 1\r\nquit\r\n", &[ERROR, ERROR, ERROR, "quit"]),
        ("set a 0 0 1 noreply x\r\nquit\r\n", &[ERROR, "quit"]),
    ]);
}

#[test]
fn a_value_of_another_length_is_a_bad_data_chunk() {
    check(&[
        ("set a 0 0 1\r\nxyz\r\n", &["CLIENT_ERROR bad data chunk", ERROR]),
        ("set a 0 0 10\r\nabc\r\nversion\r\n", &["CLIENT_ERROR bad data chunk", ERROR]),
        ("set a 0 0 1 noreply\r\nx\n\nquit\r\n", &["CLIENT_ERROR bad data chunk, silently", "quit"]),
    ]);
}

#[test]
fn numbers_and_times() {
    check(&[
        ("incr a 5\r\n", &["Increase(5) a noreply=false"]),
        ("decr a 18446744073709551615 noreply\r\n", &["Decrease(18446744073709551615) a noreply=true"]),
        ("incr a\r\nincr a 1 2 3\r\n", &[ERROR, ERROR]),
        ("incr a -1\r\n", &["CLIENT_ERROR invalid numeric delta argument"]),
        ("incr a x noreply\r\n", &["CLIENT_ERROR invalid numeric delta argument, silently"]),
        ("touch a 0\r\ntouch a -7 noreply\r\n", &["touch a 0 noreply=false", "touch a -7 noreply=true"]),
        ("touch\r\ntouch a\r\ntouch a x\r\n", &[ERROR, ERROR, BAD_EXPTIME]),
    ]);
}

#[test]
fn deletes() {
    check(&[
        ("delete a\r\ndelete a 0\r\n", &["delete a noreply=false", "delete a noreply=false"]),
        ("delete a noreply\r\ndelete a 0 noreply\r\n", &["delete a noreply=true", "delete a noreply=true"]),
        ("delete noreply\r\n", &["delete noreply noreply=false"]),
        ("delete a 5\r\ndelete a x\r\ndelete a 0 0\r\ndelete a noreply x\r\n", &[BAD_DELETE; 4]),
        ("delete\r\ndelete a 0 noreply x\r\n", &[ERROR, ERROR]),
    ]);
}

#[test]
fn commands_about_the_server() {
    check(&[
        ("flush_all\r\nflush_all -1\r\n", &["flush 0 noreply=false", "flush -1 noreply=false"]),
        ("flush_all noreply\r\nflush_all 9 noreply\r\n", &["flush 0 noreply=true", "flush 9 noreply=true"]),
        ("flush_all x\r\nflush_all 1 2 3\r\n", &[BAD_EXPTIME, ERROR]),
        ("stats\r\nstats  settings \r\n", &["stats []", "stats [settings]"]),
        ("version\r\nversion x\r\nquit\r\nquit x\r\n", &["version", "version", "quit", "quit"]),
        ("verbosity 1\r\nverbosity 1 noreply\r\n", &["verbosity noreply=false", "verbosity noreply=true"]),
        ("verbosity\r\nverbosity x\r\nverbosity 1 2 3 4\r\n", &[ERROR, BAD_FORMAT, ERROR]),
    ]);
}

#[test]
fn what_is_no_command() {
    check(&[
        ("\r\n\n \r\n", &[ERROR, ERROR, ERROR]),
        ("GET a\r\nfoo\r\nmn\r\nnoreply\r\n", &[ERROR, ERROR, ERROR, ERROR]),
        ("POST / HTTP/1.1\r\nquit\r\n", &["ERROR, and close", "quit"]),
    ]);
    for name in ["get", "delete", "incr", "touch"] {
        let line = format!("{name} {} 1\r\n", "k".repeat(251));
        let expected = if name == "delete" { BAD_DELETE } else { BAD_FORMAT };
        check(&[(&line, &[expected])]);
    }
}

#[test]
fn a_line_has_a_longest_length_and_then_nothing_follows() {
    let longest = "x".repeat(LINE_BYTES_MAX);
    check(&[(&format!("{longest}\nquit\r\n"), &[ERROR, "quit"])]);
    let lost = &["CLIENT_ERROR line too long, and close"];
    check(&[(&format!("{longest}x"), lost), (&format!("{longest}x\nquit\r\nversion\r\n"), lost)]);
    check(&[(&" ".repeat(LINE_BYTES_MAX + 1), lost), (&format!("gat {}", " ".repeat(KEYS_BYTES_MAX)), lost)]);
}

#[test]
fn a_long_key_list_comes_in_pieces_and_keeps_every_key() {
    let keys: Vec<String> = (0..9000).map(|key| format!("key-{key}")).collect();
    for name in ["get", "gets", "gat 7"] {
        let line = format!("{name} {}\r\nquit\r\n", keys.join(" "));
        let said = said(line.as_bytes());
        let (quit, pieces) = said.split_last().unwrap();
        assert_eq!(quit, "quit");
        assert!(pieces.len() > 4);
        assert!(pieces.iter().rev().skip(1).all(|piece| piece.ends_with("last=false")));
        assert!(pieces.last().unwrap().ends_with("last=true"));
        let found: Vec<&str> =
            pieces.iter().flat_map(|piece| piece.split(' ').nth(1).unwrap().split(',')).collect();
        assert_eq!(found, keys);
    }
}

#[test]
fn a_bad_key_ends_a_long_key_list_with_one_error() {
    let good = "key ".repeat(KEYS_BYTES_MAX / 4);
    let long = "k".repeat(251);
    check(&[
        (&format!("get {long} {good}{good}\r\nquit\r\n"), &[BAD_FORMAT, "quit"]),
        (&format!("get {}\r\nquit\r\n", "k".repeat(KEYS_BYTES_MAX)), &[BAD_FORMAT, "quit"]),
        (&format!("gat x {good}{good}\r\nquit\r\n"), &[BAD_EXPTIME, "quit"]),
    ]);
    let late = said(format!("get {good}{good}{long} {good}\r\nquit\r\n").as_bytes());
    assert_eq!(late[late.len() - 2..], [BAD_FORMAT, "quit"]);
    assert!(late[..late.len() - 2].iter().all(|piece| piece.ends_with("last=false")));
}

#[test]
fn a_buffer_of_the_stated_size_is_enough() {
    let limits = Limits { value_bytes_max: VALUE_BYTES_MAX };
    assert_eq!(limits.buffer_bytes_max(), KEYS_BYTES_MAX);
    let large = Limits { value_bytes_max: 1 << 20 };
    let line = format!("set a 0 0 {}{}\n", 1 << 20, " ".repeat(LINE_BYTES_MAX - 17));
    assert_eq!(line.len(), LINE_BYTES_MAX + 1);
    let Event::Incomplete { need } = Parser::new(large).parse(line.as_bytes()).event else {
        panic!("no value yet")
    };
    assert_eq!(need + 1, large.buffer_bytes_max());
}
