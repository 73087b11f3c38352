//! Tests of lines and the commands parsed from them; the refusals were compared with those of
//! memcached 1.6.18.

use super::super::MetaOptions;
use super::*;

const VALUE_BYTES_MAX: u32 = 100;

/// Returns the commands and refusals that `bytes` are parsed into, one line of text each.
fn parsed(bytes: &[u8]) -> Vec<String> {
    let mut parser = Parser::new(Limits { value_bytes_max: VALUE_BYTES_MAX });
    let mut rest = bytes;
    let mut parsed = Vec::new();
    loop {
        let Parsed { consumed, event } = parser.parse(rest);
        match event {
            Event::Incomplete { need } => {
                assert!(need > rest.len() - consumed, "{need} bytes are asked for and there");
                return parsed;
            }
            Event::Command(command) => parsed.push(described(command)),
            Event::Refused { refusal, noreply, close } => parsed.push(format!(
                "{}{}{}",
                String::from_utf8_lossy(refusal.line()).trim_end(),
                if noreply { ", silently" } else { "" },
                if close { ", and close" } else { "" },
            )),
        }
        rest = &rest[consumed..];
    }
}

fn described(command: Command<'_>) -> String {
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
        Command::Meta(meta) => described_meta(meta),
        Command::MetaNoOp => "mn".to_owned(),
        Command::Quit => "quit".to_owned(),
    }
}

fn described_meta(Meta { verb, key, flags }: Meta<'_>) -> String {
    let mut room = [0; KEY_BYTES_MAX];
    let name = match verb {
        MetaVerb::Set { mode, value } => format!("{mode:?} {}", String::from_utf8_lossy(value)),
        other => format!("{other:?}"),
    };
    let base64 = if key.is_base64() { " base64" } else { "" };
    let flags: Vec<String> = flags.map(|flag| format!(" {flag:?}")).collect();
    format!("{name} {}{base64}{}", String::from_utf8_lossy(key.bytes(&mut room)), flags.concat())
}

#[track_caller]
fn check(cases: &[(&str, &[&str])]) {
    for (bytes, expected) in cases {
        assert_eq!(&parsed(bytes.as_bytes()), expected, "after {bytes:?}");
    }
}

const ERROR: &str = "ERROR";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";

#[test]
fn get_commands_are_parsed_with_keys_and_expiry_time() {
    check(&[
        ("get a\r\n", &["get a cas=false touch=None last=true"]),
        ("get a\n", &["get a cas=false touch=None last=true"]),
        ("  gets  a   b a \r\n", &["get a,b,a cas=true touch=None last=true"]),
        ("gat 60 a b\r\n", &["get a,b cas=false touch=Some(60) last=true"]),
        ("gats -1 a\r\n", &["get a cas=true touch=Some(-1) last=true"]),
        ("get\r\nget \r\ngat\r\ngat 0\r\ngats  0 \r\n", &[BAD_FORMAT; 5]),
        ("gat x a\r\ngat x\r\n", &[BAD_EXPTIME, BAD_FORMAT]),
        ("get a\0b\r\n", &[BAD_FORMAT]),
        ("get a\tb\x01\r\n", &["get a\tb\x01 cas=false touch=None last=true"]),
    ]);
}

#[test]
fn storage_commands_are_parsed_with_key_flags_and_value() {
    check(&[
        ("set a 1 2 3\r\nabc\r\n", &["Set a 1 2 abc noreply=false"]),
        ("add a 1 2 3\nabc\r\n", &["Add a 1 2 abc noreply=false"]),
        ("replace a 0 0 0\r\n\r\n", &["Replace a 0 0  noreply=false"]),
        ("append a 0 0 1 noreply\r\nx\r\n", &["Append a 0 0 x noreply=true"]),
        ("prepend a 0 -5 1 what\r\nx\r\n", &["Prepend a 0 -5 x noreply=false"]),
        ("cas a 0 0 1 77 noreply\r\nx\r\n", &["Cas(77) a 0 0 x noreply=true"]),
        ("set a 0 0 1 noreply what\r\nx\r\n", &["Set a 0 0 x noreply=false"]),
        ("cas a 0 0 1 77 what noreply\r\nx\r\n", &["Cas(77) a 0 0 x noreply=true"]),
        ("set a 4294967295 0 1\r\nx\r\n", &["Set a 4294967295 0 x noreply=false"]),
        ("set a 0 0 4\r\na\r\nb\r\n", &["Set a 0 0 a\r\nb noreply=false"]),
    ]);
}

#[test]
fn value_of_a_refused_storage_command_is_skipped() {
    check(&[
        ("set a -1 0 7\r\nversion\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 4294967296 0 1\r\nx\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 0 x 1 noreply\r\nx\r\nquit\r\n", &["CLIENT_ERROR bad command line format, silently", "quit"]),
        ("cas a 0 0 1 x\r\nx\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("cas a 0 0 7\r\nversion\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 0 0 101\r\nx\r\nquit\r\n", &["Set a too large noreply=false"]),
        ("set a 0 0 2147483645 noreply\r\nquit\r\n", &["Set a too large noreply=true"]),
    ]);
    let long = "k".repeat(251);
    check(&[(&format!("set {long} 0 0 7\r\nversion\r\nquit\r\n"), &[BAD_FORMAT, "quit"])]);
    let large = "x".repeat(101);
    check(&[(&format!("add a 0 0 101\r\n{large}\r\nquit\r\n"), &["Add a too large noreply=false", "quit"])]);
}

#[test]
fn line_after_an_invalid_value_length_is_parsed_as_a_command() {
    check(&[
        ("set a 0 0 -1\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 0 0 x\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 0 0 2147483646\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 0 0 99999999999999999999\r\nquit\r\n", &[BAD_FORMAT, "quit"]),
        ("set a 0 0\r\nset\r\ncas a 0 0\r\nquit\r\n", &[BAD_FORMAT, BAD_FORMAT, BAD_FORMAT, "quit"]),
    ]);
}

#[test]
fn value_of_another_length_than_announced_is_a_bad_data_chunk() {
    check(&[
        ("set a 0 0 1\r\nxyz\r\n", &["CLIENT_ERROR bad data chunk", BAD_FORMAT]),
        ("set a 0 0 10\r\nabc\r\nversion\r\n", &["CLIENT_ERROR bad data chunk", BAD_FORMAT]),
        ("set a 0 0 1 noreply\r\nx\n\nquit\r\n", &["CLIENT_ERROR bad data chunk, silently", "quit"]),
    ]);
}

#[test]
fn incr_decr_and_touch_are_parsed_and_invalid_ones_refused() {
    check(&[
        ("incr a 5\r\n", &["Increase(5) a noreply=false"]),
        ("decr a 18446744073709551615 noreply\r\n", &["Decrease(18446744073709551615) a noreply=true"]),
        ("incr\r\nincr a\r\ndecr a\r\n", &[BAD_FORMAT; 3]),
        ("incr a 1 2 3\r\n", &["Increase(1) a noreply=false"]),
        ("incr a -1\r\n", &["CLIENT_ERROR invalid numeric delta argument"]),
        ("incr a x noreply\r\n", &["CLIENT_ERROR invalid numeric delta argument, silently"]),
        ("touch a 0\r\ntouch a -7 noreply\r\n", &["touch a 0 noreply=false", "touch a -7 noreply=true"]),
        ("touch\r\ntouch a\r\ntouch a x\r\n", &[BAD_FORMAT, BAD_FORMAT, BAD_EXPTIME]),
    ]);
}

#[test]
fn delete_is_parsed_and_one_with_a_delay_refused() {
    check(&[
        ("delete a\r\ndelete a 0\r\n", &["delete a noreply=false", "delete a noreply=false"]),
        ("delete a noreply\r\ndelete a 0 noreply\r\n", &["delete a noreply=true", "delete a noreply=true"]),
        ("delete noreply\r\n", &["delete noreply noreply=false"]),
        ("delete a 5\r\ndelete a x\r\ndelete a 0 0\r\ndelete a noreply x\r\n", &[BAD_DELETE; 4]),
        ("delete a 0 noreply x\r\n", &[BAD_DELETE]),
        ("delete\r\n", &[BAD_FORMAT]),
    ]);
}

#[test]
fn stats_flush_version_verbosity_and_quit_are_parsed() {
    check(&[
        ("flush_all\r\nflush_all -1\r\n", &["flush 0 noreply=false", "flush -1 noreply=false"]),
        ("flush_all noreply\r\nflush_all 9 noreply\r\n", &["flush 0 noreply=true", "flush 9 noreply=true"]),
        ("flush_all x\r\nflush_all 1 2 3\r\n", &[BAD_EXPTIME, "flush 1 noreply=false"]),
        ("stats\r\nstats  settings \r\n", &["stats []", "stats [settings]"]),
        ("version\r\nversion x\r\nquit\r\nquit x\r\n", &["version", "version", "quit", "quit"]),
        ("verbosity 1\r\nverbosity 1 noreply\r\n", &["verbosity noreply=false", "verbosity noreply=true"]),
        ("verbosity\r\nverbosity x\r\n", &[BAD_FORMAT, BAD_FORMAT]),
        ("verbosity 1 2 3 4\r\n", &["verbosity noreply=false"]),
    ]);
}

#[test]
fn unknown_commands_and_http_requests_are_refused() {
    check(&[
        ("\r\n\n \r\nx\r\n", &[BAD_FORMAT; 4]),
        ("GET a\r\nfoo\r\nmx\r\nnoreply\r\n", &[ERROR, ERROR, ERROR, ERROR]),
        ("POST / HTTP/1.1\r\nquit\r\n", &["ERROR, silently, and close", "quit"]),
        ("DELETE HTTP/1.1\r\nquit\r\n", &["ERROR, silently, and close", "quit"]),
        ("GET a HTTP/1.1 b\r\n", &[ERROR]),
    ]);
    for name in ["get", "delete", "incr", "touch"] {
        let line = format!("{name} {} 1\r\n", "k".repeat(251));
        let expected = if name == "delete" { BAD_DELETE } else { BAD_FORMAT };
        check(&[(&line, &[expected])]);
    }
}

#[test]
fn memcached_line_over_the_length_limit_ends_the_connection() {
    let longest = "x".repeat(LINE_BYTES_MAX);
    check(&[(&format!("{longest}\nquit\r\n"), &[ERROR, "quit"])]);
    let lost = &["CLIENT_ERROR line too long, silently, and close"];
    check(&[(&format!("{longest}x"), lost), (&format!("{longest}x\nquit\r\nversion\r\n"), lost)]);
    check(&[(&" ".repeat(LINE_BYTES_MAX + 1), lost), (&format!("gat {}", " ".repeat(KEYS_BYTES_MAX)), lost)]);
}

#[test]
fn long_key_list_is_returned_in_pieces_with_every_key() {
    let keys: Vec<String> = (0..9000).map(|key| format!("key-{key}")).collect();
    for name in ["get", "gets", "gat 7"] {
        let line = format!("{name} {}\r\nquit\r\n", keys.join(" "));
        let parsed = parsed(line.as_bytes());
        let (quit, pieces) = parsed.split_last().unwrap();
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
fn invalid_key_ends_a_long_key_list_with_one_error() {
    let good = "key ".repeat(KEYS_BYTES_MAX / 4);
    let long = "k".repeat(251);
    check(&[
        (&format!("get {long} {good}{good}\r\nquit\r\n"), &[BAD_FORMAT, "quit"]),
        (&format!("get {}\r\nquit\r\n", "k".repeat(KEYS_BYTES_MAX)), &[BAD_FORMAT, "quit"]),
        (&format!("gat x {good}{good}\r\nquit\r\n"), &[BAD_EXPTIME, "quit"]),
    ]);
    let late = parsed(format!("get {good}{good}{long} {good}\r\nquit\r\n").as_bytes());
    assert_eq!(late[late.len() - 2..], [BAD_FORMAT, "quit"]);
    assert!(late[..late.len() - 2].iter().all(|piece| piece.ends_with("last=false")));
}

#[test]
fn buffer_of_buffer_bytes_max_is_enough_for_the_longest_command() {
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

#[test]
fn meta_commands_are_parsed_with_their_flags() {
    check(&[
        ("mn\r\nmn what\r\n", &["mn", "mn"]),
        ("mg a\r\nmg  a   v  k \r\n", &["Get a", "Get a Value ReturnKey"]),
        (
            "mg a c f h k l s t u q Oxy T30 N-1 R5 C7 E8\r\n",
            &[
                "Get a ReturnCas ReturnFlags ReturnHit ReturnKey ReturnIdle ReturnSize ReturnTtl KeepRecency Quiet \
               Opaque([79, 120, 121]) Ttl(Exptime(30)) Vivify(Exptime(-1)) Recache(Exptime(5)) Cas(7) NewCas(8)",
            ],
        ),
        (
            "mg a U1 u v\r\nms a 0 U86400000 d\r\n\r\n",
            &["Get a Within(1ms) KeepRecency Value", "Set  a Within(86400s) DeadlineMissed"],
        ),
        ("ms a 3 F4294967295 I S\r\nabc\r\n", &["CLIENT_ERROR invalid flag"]),
        ("ms a 3 F4294967295 I\r\nabc\r\n", &["Set abc a ClientFlags(4294967295) Invalidate"]),
        ("ms a 0 ME\n\r\nms a 1 MA N5\r\nx\r\n", &["Add  a Mode", "Append x a Mode Vivify(Exptime(5))"]),
        ("ms a 4 MPREPEND\r\na\r\nb\r\nms a 0 MR\r\n\r\n", &["Prepend a\r\nb a Mode", "Replace  a Mode"]),
        (
            "md a q x T5\r\nmd a L1 Ppath\r\n",
            &["Delete a Quiet RemoveValue Ttl(Exptime(5))", "Delete a Hint Hint"],
        ),
        (
            "ma a D5 J18446744073709551615\r\nma a M-\r\nma a MD\r\nma a M+\r\nma a MI\r\n",
            &[
                "Arithmetic(Increase) a Delta(5) Initial(18446744073709551615)",
                "Arithmetic(Decrease) a Mode",
                "Arithmetic(Decrease) a Mode",
                "Arithmetic(Increase) a Mode",
                "Arithmetic(Increase) a Mode",
            ],
        ),
        ("me a\r\nme YQ== b\r\nme a v\r\n", &["Debug a", "Debug a base64", "Debug a"]),
        (
            "mg Zm9v b\r\nms Zm9vYg== 1 b k\r\nx\r\n",
            &["Get foo base64 Base64", "Set x foob base64 Base64 ReturnKey"],
        ),
        (
            "mg a O\r\nmg a O1234567890123456789012345678901\r\n",
            &[
                "Get a Opaque([79])",
                "Get a Opaque([79, 49, 50, 51, 52, 53, 54, 55, 56, 57, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 48, 49, \
             50, 51, 52, 53, 54, 55, 56, 57, 48, 49])",
            ],
        ),
    ]);
}

#[test]
fn invalid_meta_commands_are_refused() {
    let texts = |refusals: &[MetaRefusal]| -> Vec<String> {
        let text = |refusal: &MetaRefusal| String::from_utf8_lossy(refusal.line()).trim_end().to_owned();
        refusals.iter().map(text).collect()
    };
    use MetaRefusal::{
        BadArithmetic, BadArithmeticMode, BadDeadline, BadDelta, BadFormat, BadInitial, BadKey, BadSetMode,
        BadToken, DuplicateFlag, InvalidFlag, OpaqueTooLong, TooManyFlags,
    };
    let cases: &[(&str, &[MetaRefusal])] = &[
        ("mg\r\nmg \r\nms a\r\nms\r\nmd\r\nma\r\nme\r\n", &[BadFormat; 7]),
        ("ms a -1\r\nms a x\r\nms a 2147483646\r\nms a 1x\r\n", &[BadFormat; 4]),
        (
            "mg a v v\r\nmg a !\r\nmg a 1\r\nmg a z\r\nmg a [\r\n",
            &[DuplicateFlag, BadFormat, InvalidFlag, InvalidFlag, InvalidFlag],
        ),
        ("mg a Tx\r\nmg a T\r\nmg a N\r\nmg a Cx\r\nmg a C\r\nmg a E-1\r\nmg a R\r\n", &[BadToken; 7]),
        ("mg a T99999999999\r\nmg a C18446744073709551616\r\n", &[BadToken; 2]),
        ("mg a F\r\nmg a Fx\r\nmg a F4294967296\r\n", &[BadFormat; 3]),
        ("mg a Jx\r\nmg a Dx\r\n", &[BadInitial, BadDelta]),
        ("mg a U\r\nmg a U0\r\nmg a U-1\r\nmg a U2.5\r\nmg a U86400001\r\n", &[BadDeadline; 5]),
        (
            "mg a Tx z\r\nmg a Tx v v\r\nmg a Tx Jx\r\nmg a Jx Fx\r\nmg a Jx Tx\r\n",
            &[InvalidFlag, DuplicateFlag, BadInitial, BadInitial, BadToken],
        ),
        ("mg a b\r\nmg a= b\r\nmg YQ b\r\nmg Y=== b\r\nmg Y-Q== b\r\nmg YQ==YQ== b\r\n", &[BadKey; 6]),
        ("mg a O12345678901234567890123456789012\r\n", &[OpaqueTooLong]),
        ("mg a b c d e f g h i j k l m n o p q r s t\r\n", &[TooManyFlags]),
        (
            "ma a Mx\r\nma a M\r\nma a Tx\r\nma a z\r\nma a v v\r\nma a !\r\nma a Jx\r\n",
            &[
                BadArithmeticMode,
                BadArithmeticMode,
                BadArithmetic,
                BadArithmetic,
                BadArithmetic,
                BadFormat,
                BadArithmetic,
            ],
        ),
        ("me a !\r\nme a b\r\nmg a\0b\r\n", &[BadFormat; 3]),
        (
            "ms a 2 M\r\nhi\r\nms a 2 Ms\r\nhi\r\nms a 2 v v\r\nhi\r\nms a 2 Tx q\r\nhi\r\nms a 2 !\r\nhi\r\n",
            &[BadSetMode, BadSetMode, DuplicateFlag, BadToken, BadFormat],
        ),
    ];
    for (bytes, refusals) in cases {
        assert_eq!(parsed(bytes.as_bytes()), texts(refusals), "after {bytes:?}");
    }
    let long = "k".repeat(251);
    let lines = format!("mg {long}\r\nms {long} 2\r\nhi\r\nma {long}\r\nmd {long} q\r\nme {long}\r\n");
    assert_eq!(parsed(lines.as_bytes()), texts(&[BadFormat, BadFormat, BadArithmetic, BadFormat, BadFormat]));
}

#[test]
fn value_of_a_refused_meta_set_is_skipped() {
    let large = "x".repeat(101);
    check(&[
        ("ms a 2\r\nhello\r\nquit\r\n", &["CLIENT_ERROR bad data chunk", BAD_FORMAT, "quit"]),
        (&format!("ms a 101 q\r\n{large}\r\nquit\r\n"), &["TooLarge a Quiet", "quit"]),
        ("ms a 2147483645\r\nquit\r\n", &["TooLarge a"]),
        ("ms a 10 z\r\nquit\r\nquit\r\n", &["CLIENT_ERROR invalid flag"]),
    ]);
}

#[test]
fn meta_options_collect_the_flags_that_change_the_operation() {
    let line = b"mg a v T5 q\r\n";
    let Event::Command(Command::Meta(meta)) = Parser::new(Limits { value_bytes_max: 1 }).parse(line).event
    else {
        panic!("a meta command")
    };
    assert_eq!(
        ["v", "T", "q", "t", "b", "\n", "~"].map(|flag| meta.flags.has(flag.as_bytes()[0])),
        [true, true, true, false, false, false, false]
    );
    let MetaOptions { cas, new_cas, ttl, vivify, recache, client_flags, delta, initial, within } =
        meta.flags.options();
    assert_eq!((cas, new_cas, ttl, vivify, recache), (None, None, Some(Exptime(5)), None, None));
    assert_eq!((client_flags, delta, initial, within), (0, 1, 0, None));
}
