//! Tests of the answers and effects of each Redis command.

use sherwood_cache::OUTDATED;
use sherwood_cache::{Change, Marks, NewCas};

use super::*;

const NO_DATABASE: &str = "-ERR DB index is out of range: a listener has database 0 only, unless its configuration says databases = 16; or keep \
     keys apart by a prefix instead";

#[test]
fn set_stores_only_if_its_conditions_hold() {
    let listener = Listener::plain();
    listener.check(
        &mut listener.client(),
        &[
            ("SET k v", "+OK"),
            ("GET k", "$1 v"),
            ("SET k w NX", "$-1"),
            ("SET n w XX", "$-1"),
            ("SET k w GET", "$1 v"),
            ("SET k x NX GET", "$1 w"),
            ("SET k x XX GET KEEPTTL", "$1 w"),
            ("GET k", "$1 x"),
            ("SET k v NX XX", "-ERR syntax error"),
            ("SET k v EX", "-ERR syntax error"),
            ("SET k v EX 1 PX 1", "-ERR syntax error"),
            ("SET k v EX 1 KEEPTTL", "-ERR syntax error"),
            ("SET k v PERSIST", "-ERR syntax error"),
            ("SET k v EX x", "-ERR value is not an integer or out of range"),
            ("SET k v EX 0", "-ERR invalid expire time in 'set' command"),
            ("SET k v EX 10000000000000000", "-ERR invalid expire time in 'set' command"),
            ("SET k v PX 9223372036854775807", "-ERR invalid expire time in 'set' command"),
            ("GET k", "$1 x"),
            ("SETNX k v", ":0"),
            ("SETNX n v", ":1"),
            ("GETSET n w", "$1 v"),
            ("GETDEL n", "$1 w"),
            ("GETDEL n", "$-1"),
            ("SET '' v", "-ERR a key is empty; keys have 1 to 250 bytes"),
        ],
    );
}

#[test]
fn ttl_commands_report_the_expiry_of_keys_and_expired_keys_are_gone() {
    let mut listener = Listener::plain();
    let mut client = listener.client();
    let at = listener.unix_secs() + 100;
    listener.check(
        &mut client,
        &[
            ("SET a v EX 10", "+OK"),
            ("SET b v PX 10500", "+OK"),
            (&format!("SET c v EXAT {at}"), "+OK"),
            (&format!("SET d v PXAT {at}123"), "+OK"),
            ("SETEX e 10 v", "+OK"),
            ("PSETEX f 10000 v", "+OK"),
            ("SET never v", "+OK"),
            ("PEXPIRETIME d", &format!(":{at}123")),
            ("EXPIRETIME c", &format!(":{at}")),
            ("TTL a", ":10"),
            ("PTTL b", ":10500"),
            ("TTL never", ":-1"),
            ("TTL none", ":-2"),
            ("SET a w KEEPTTL", "+OK"),
            ("APPEND a x", ":2"),
            ("SETEX g -1 v", "-ERR invalid expire time in 'setex' command"),
        ],
    );
    listener.pass(Duration::from_secs(10));
    let left = [("EXISTS a e f", ":0"), ("EXISTS b c d never", ":4"), ("PTTL b", ":500"), ("DBSIZE", ":4")];
    listener.check(&mut client, &left);
}

#[test]
fn expire_changes_an_expiry_only_if_its_conditions_hold() {
    let mut listener = Listener::plain();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("SET k v", "+OK"),
            ("EXPIRE k 100 XX", ":0"),
            ("EXPIRE k 100 GT", ":0"),
            ("EXPIRE k 100 LT", ":1"),
            ("EXPIRE k 200 NX", ":0"),
            ("EXPIRE k 200 GT", ":1"),
            ("EXPIRE k 300 LT", ":0"),
            ("PEXPIRE k 250000 XX", ":1"),
            ("TTL k", ":250"),
            ("PERSIST k", ":1"),
            ("PERSIST k", ":0"),
            ("EXPIRE none 10", ":0"),
            ("EXPIRE k 1 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible"),
            ("EXPIRE k 1 GT LT", "-ERR GT and LT options at the same time are not compatible"),
            ("EXPIRE k 1 ab", "-ERR Unsupported option ab"),
            ("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
            ("GETEX k EX 20", "$1 v"),
            ("TTL k", ":20"),
            ("GETEX k PERSIST", "$1 v"),
            ("TTL k", ":-1"),
            ("GETEX k", "$1 v"),
            ("GETEX none EX x", "$-1"),
            ("GETEX k EX -1", "-ERR invalid expire time in 'getex' command"),
            ("GETEX k KEEPTTL", "-ERR syntax error"),
            ("PEXPIREAT k 9223372036854770000", ":1"),
            ("GETEX k EXAT 1", "$1 v"),
            ("EXISTS k", ":0"),
            ("SET k v", "+OK"),
            ("EXPIRE k -1 LT", ":1"),
            ("EXISTS k", ":0"),
            ("SET k v", "+OK"),
            ("EXPIREAT k 1", ":1"),
            ("SET k v EX 5", "+OK"),
        ],
    );
    listener.pass(Duration::from_secs(5));
    listener.check(&mut client, &[("GET k", "$-1")]);
}

#[test]
fn bit_commands_read_and_change_bits_of_a_value() {
    let listener = Listener::plain();
    let offset = "-ERR bit offset is not an integer or out of range";
    listener.check(
        &mut listener.client(),
        &[
            ("SET k foobar EX 10", "+OK"),
            ("BITCOUNT k", ":26"),
            ("BITCOUNT k 0 0", ":4"),
            ("BITCOUNT k 5 30 BIT", ":17"),
            ("BITCOUNT k -2 -1 BYTE", ":7"),
            ("BITCOUNT k 1", "-ERR syntax error"),
            ("BITCOUNT k 1 2 WORD", "-ERR syntax error"),
            ("BITCOUNT none", ":0"),
            ("GETBIT k 0", ":0"),
            ("GETBIT k 1", ":1"),
            ("GETBIT k 4000", ":0"),
            ("SETBIT k 7 1", ":0"),
            ("SETBIT k 7 0", ":1"),
            ("SETBIT k 6 0", ":1"),
            ("GET k", "$6 doobar"),
            ("TTL k", ":10"),
            ("SETBIT new 15 1", ":0"),
            ("STRLEN new", ":2"),
            ("SETBIT k 8000 1", offset),
            ("SETBIT k -1 1", offset),
            ("GETBIT k x", offset),
            ("SETBIT k 1 2", "-ERR bit is not an integer or out of range"),
        ],
    );
}

#[test]
fn lcs_finds_the_common_subsequence_of_two_values() {
    let listener = Listener::plain();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("MSET a ohmytext b mynewtext", "+OK"),
            ("LCS a b", "$6 mytext"),
            ("LCS a b LEN", ":6"),
            ("LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN", "*4 $7 matches *1 *3 *2 :4 :7 *2 :5 :8 :4 $3 len :6"),
            ("LCS a none", "$0"),
            ("LCS a b IDX LEN", "-ERR If you want both the length and indexes, please just use IDX."),
            ("LCS a b MINMATCHLEN", "-ERR syntax error"),
        ],
    );
}

#[test]
fn renamenx_renames_a_key_only_to_a_free_name() {
    let listener = Listener::plain();
    listener.check(
        &mut listener.client(),
        &[
            ("MSET a 1 b 2", "+OK"),
            ("RENAMENX a b", ":0"),
            ("RENAMENX a a", ":0"),
            ("RENAMENX a c", ":1"),
            ("MGET a b c", "*3 $-1 $1 2 $1 1"),
            ("RENAMENX a c", "-ERR no such key"),
        ],
    );
}

#[test]
fn scripts_are_refused_with_what_to_use_instead() {
    let listener = Listener::plain();
    for line in ["EVAL return 0", "SCRIPT LOAD x", "FCALL f 0"] {
        let answer = listener.ask(&mut listener.client(), line);
        assert!(
            answer.starts_with("-ERR scripts are refused") && answer.contains("docs/src/redis.md"),
            "{answer}"
        );
    }
    let answer = listener.ask(&mut listener.client(), "SELECT 3");
    assert!(answer.starts_with("-ERR DB index is out of range: a listener has database 0 only"), "{answer}");
}

#[test]
fn incr_commands_change_numbers_stored_as_decimal_text() {
    let listener = Listener::plain();
    let no_integer = "-ERR value is not an integer or out of range";
    listener.check(
        &mut listener.client(),
        &[
            ("INCR n", ":1"),
            ("DECRBY n 3", ":-2"),
            ("INCRBY n 10", ":8"),
            ("DECR n", ":7"),
            ("GET n", "$1 7"),
            ("INCRBY n x", no_integer),
            ("SET t 07", "+OK"),
            ("INCR t", no_integer),
            ("SET m 9223372036854775807", "+OK"),
            ("INCR m", "-ERR increment or decrement would overflow"),
            ("DECRBY m -9223372036854775808", "-ERR decrement would overflow"),
            ("INCRBYFLOAT f 0.1", "$3 0.1"),
            ("INCRBYFLOAT f 0.2", "$3 0.3"),
            ("INCRBYFLOAT f inf", "-ERR increment would produce NaN or Infinity"),
            ("INCRBYFLOAT f x", "-ERR value is not a valid float"),
            ("SET f 1 EX 100", "+OK"),
            ("INCRBYFLOAT f 5e3", "$4 5001"),
            ("TTL f", ":100"),
        ],
    );
}

#[test]
fn getrange_and_setrange_read_and_overwrite_parts_of_values() {
    let listener = Listener::plain();
    listener.check(
        &mut listener.client(),
        &[
            ("APPEND k Hello", ":5"),
            ("GETRANGE k 1 -2", "$3 ell"),
            ("GETRANGE none 0 -1", "$0"),
            ("SETRANGE k 1 a", ":5"),
            ("SETRANGE k 6 !", ":7"),
            ("GET k", "$7 Hallo\0!"),
            ("SETRANGE none 3 ''", ":0"),
            ("EXISTS none", ":0"),
            ("SETRANGE k -1 x", "-ERR offset is out of range"),
            ("GETRANGE k a 1", "-ERR value is not an integer or out of range"),
            ("STRLEN none", ":0"),
        ],
    );
}

#[test]
fn mget_and_mset_read_and_write_several_keys() {
    let listener = Listener::plain();
    listener.check(
        &mut listener.client(),
        &[
            ("MSET a 1 b 2 a 3", "+OK"),
            ("MGET a none b", "*3 $1 3 $-1 $1 2"),
            ("MSET a", "-ERR wrong number of arguments for 'mset' command"),
            ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
            ("MSETNX c 1 a 2", ":0"),
            ("EXISTS c", ":0"),
            ("MSETNX c 1 d 2 c 3", ":1"),
            ("MGET c d", "*2 $1 3 $1 2"),
            ("EXISTS a a none", ":2"),
            ("TOUCH a none", ":1"),
            ("DEL a none a", ":1"),
            ("UNLINK b c", ":2"),
        ],
    );
}

#[test]
fn rename_and_copy_keep_the_time_to_live_of_keys() {
    let listener = Listener::plain();
    listener.check(
        &mut listener.client(),
        &[
            ("SET a v EX 50", "+OK"),
            ("SET b w", "+OK"),
            ("RENAME a b", "+OK"),
            ("GET b", "$1 v"),
            ("TTL b", ":50"),
            ("RENAME a b", "-ERR no such key"),
            ("RENAME b b", "+OK"),
            ("COPY b c", ":1"),
            ("COPY b c", ":0"),
            ("SET b x", "+OK"),
            ("COPY b c DB 0 REPLACE", ":1"),
            ("GET c", "$1 x"),
            ("TTL c", ":-1"),
            ("COPY b c DB 1", NO_DATABASE),
            ("COPY b b", "-ERR source and destination objects are the same"),
            ("COPY none c REPLACE", ":0"),
        ],
    );
}

#[test]
fn keys_and_scan_list_keys_by_patterns_and_cursors() {
    let listener = Listener::plain();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("RANDOMKEY", "$-1"),
            ("SCAN 0", "*2 $1 0 *0"),
            ("SET abc 1", "+OK"),
            ("KEYS a?c", "*1 $3 abc"),
            ("KEYS b*", "*0"),
            ("RANDOMKEY", "$3 abc"),
            ("TYPE abc", "+string"),
            ("TYPE none", "+none"),
            ("SCAN 0 COUNT 1000 TYPE list", "*2 $1 0 *0"),
            ("SCAN 0 COUNT 100000 MATCH a*", "*2 $1 0 *1 $3 abc"),
            ("SCAN 0 COUNT 0", "-ERR syntax error"),
            ("SCAN x", "-ERR invalid cursor"),
            ("SCAN 0 MATCH", "-ERR syntax error"),
            ("DBSIZE", ":1"),
            ("FLUSHALL x", "-ERR syntax error"),
            ("FLUSHALL ASYNC", "+OK"),
            ("DBSIZE", ":0"),
        ],
    );
}

#[test]
fn object_command_describes_a_key() {
    let listener = Listener::plain();
    listener.check(
        &mut listener.client(),
        &[
            ("MSET int 12 text abc", "+OK"),
            ("OBJECT ENCODING int", "$3 int"),
            ("OBJECT ENCODING text", "$6 embstr"),
            ("OBJECT REFCOUNT text", ":1"),
            ("OBJECT REFCOUNT none", "$-1"),
            ("OBJECT IDLETIME text", ":0"),
            ("OBJECT IDLETIME none", "$-1"),
            ("OBJECT nosuch text", "-ERR unknown subcommand 'nosuch'. Try OBJECT HELP."),
            ("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command"),
        ],
    );
    let frequency = listener.ask(&mut listener.client(), "OBJECT FREQ text");
    assert!(frequency.starts_with("-ERR An LFU maxmemory policy is not selected"), "{frequency}");
}

#[test]
fn hello_sets_the_protocol_version_and_the_client_name() {
    let listener = Listener::plain();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("PING", "+PONG"),
            ("PING hi", "$2 hi"),
            ("PING a b", "-ERR wrong number of arguments for 'ping' command"),
            ("ECHO hi", "$2 hi"),
            ("SELECT 0", "+OK"),
            ("SELECT 1", NO_DATABASE),
            (
                "SELECT 2147483648",
                "-ERR value is out of range, value must between -2147483648 and 2147483647",
            ),
            ("AUTH default x", "+OK"),
            ("AUTH u x", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("CLIENT GETNAME", "$-1"),
            ("CLIENT SETNAME a", "+OK"),
            ("CLIENT GETNAME", "$1 a"),
            ("CLIENT SETINFO LIB-NAME lib", "+OK"),
            ("CLIENT NO-EVICT on", "+OK"),
            ("HELLO 4", "-NOPROTO unsupported protocol version"),
            ("HELLO x", "-ERR Protocol version is not an integer or out of range"),
            ("HELLO 3 bad", "-ERR Syntax error in HELLO option 'bad'"),
            (
                "HELLO 3 SETNAME b",
                "%7 $6 server $5 redis $7 version $6 7.0.15 $5 proto :3 $2 id :1 $4 mode $10 standalone $4 role $6 \
                 master $7 modules *0",
            ),
            ("GET none", "_"),
            ("CLIENT GETNAME", "$1 b"),
            ("RESET", "+RESET"),
            ("GET none", "$-1"),
            ("CLIENT ID", ":1"),
        ],
    );
    let auth = listener.ask(&mut client, "AUTH x");
    assert!(auth.starts_with("-ERR AUTH <password> called without any password configured"), "{auth}");
}

#[test]
fn client_list_contains_clients_while_they_are_connected() {
    let listener = Listener::plain();
    let (mut first, mut second) = (listener.client(), listener.client());
    listener.check(&mut first, &[("CLIENT SETNAME a", "+OK")]);
    let list = listener.ask(&mut second, "CLIENT LIST");
    assert!(list.contains("id=1 addr= laddr= fd=-1 name=a "), "{list}");
    assert!(list.contains("id=2 ") && list.contains(" cmd=client user=default resp=2 "), "{list}");
    listener.ask(&mut first, "HELLO 3");
    let info = listener.ask(&mut first, "CLIENT INFO");
    assert!(info.contains(" cmd=client user=default resp=3 "), "{info}");
    let one = listener.ask(&mut second, "CLIENT LIST ID 1 7");
    assert!(one.contains("id=1") && !one.contains("id=2"), "{one}");
    drop(first);
    assert!(!listener.ask(&mut second, "CLIENT LIST").contains("id=1 "));
    assert!(listener.ask(&mut second, "INFO stats").contains("total_commands_processed:6"));
}

#[test]
fn info_reports_calls_per_command_and_cpu_time() {
    let listener = Listener::plain();
    let mut client = listener.client();
    listener.check(&mut client, &[("SET k v", "+OK"), ("GET k", "$1 v"), ("get k", "$1 v")]);
    let info = listener.ask(&mut client, "INFO commandstats");
    assert!(info.contains("cmdstat_get:calls=2,usec=0,usec_per_call=0.00 cmdstat_info:calls=1,"), "{info}");
    assert!(!listener.ask(&mut client, "INFO").contains("cmdstat"), "not by default, as in Redis");
    assert!(listener.ask(&mut client, "INFO all").contains("cmdstat_set:calls=1,"));
    assert!(listener.ask(&mut client, "INFO cpu").contains("used_cpu_sys:0.000000 used_cpu_user:0.000000"));
    listener
        .check(&mut client, &[("CONFIG RESETSTAT", "+OK"), ("CONFIG GET replicaof", "*2 $9 replicaof $0")]);
    assert!(!listener.ask(&mut client, "INFO commandstats").contains("cmdstat_get"));
}

#[test]
fn client_reply_suppresses_answers() {
    let listener = Listener::plain();
    listener.check(
        &mut listener.client(),
        &[
            ("CLIENT REPLY SKIP", ""),
            ("SET k v", ""),
            ("GET k", "$1 v"),
            ("CLIENT REPLY OFF", ""),
            ("MGET k k", ""),
            ("KEYS *", ""),
            ("NOSUCH", ""),
            ("CLIENT REPLY ON", "+OK"),
            ("GET k", "$1 v"),
            ("CLIENT REPLY SKIP", ""),
            ("CLIENT REPLY ON", "+OK"),
            ("GET k", "$1 v"),
            ("CLIENT REPLY SKIP", ""),
            ("CLIENT REPLY SKIP", ""),
            ("CLIENT REPLY nosuch", ""),
            ("GET k", "$1 v"),
            ("CLIENT REPLY SKIP", ""),
            ("RESET", ""),
            ("CLIENT REPLY OFF", ""),
            ("RESET", "+RESET"),
        ],
    );
}

#[test]
fn unknown_commands_are_answered_with_the_errors_of_redis() {
    let listener = Listener::plain();
    let long = "x".repeat(200);
    let page = "(commands: docs/src/redis.md of Sherwood 0.1.0)";
    listener.check(
        &mut listener.client(),
        &[
            ("LPUSH k v", &format!("-ERR unknown command 'LPUSH', with args beginning with: 'k' 'v' {page}")),
            ("LPUSH", &format!("-ERR unknown command 'LPUSH', with args beginning with: {page}")),
            (
                &format!("no {long} more"),
                &format!("-ERR unknown command 'no', with args beginning with: '{}' {page}", &long[..128]),
            ),
            (
                "gte k",
                "-ERR unknown command 'gte', with args beginning with: 'k' (did you mean 'GET'? commands: \
                 docs/src/redis.md of Sherwood 0.1.0)",
            ),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            ("get a b", "-ERR wrong number of arguments for 'get' command"),
            ("CLIENT", "-ERR wrong number of arguments for 'client' command"),
            ("CLIENT nosuch", "-ERR unknown subcommand 'nosuch'. Try CLIENT HELP."),
            ("CLIENT ID x", "-ERR wrong number of arguments for 'client|id' command"),
        ],
    );
}

#[test]
fn config_get_reports_settings_and_config_set_does_not_change_them() {
    let listener = Listener::plain();
    listener.check(
        &mut listener.client(),
        &[
            ("CONFIG GET maxmemory", "*2 $9 maxmemory $8 67108864"),
            ("CONFIG GET SAVE append*", "*4 $10 appendonly $2 no $4 save $0"),
            ("CONFIG GET nosuch", "*0"),
            ("CONFIG GET notify-*", "*2 $22 notify-keyspace-events $0"),
            ("CONFIG SET appendonly no", "+OK"),
            (
                "CONFIG SET appendonly yes",
                "-ERR CONFIG SET failed (possibly related to argument 'appendonly') - can't set immutable config",
            ),
            ("CONFIG SET appendonly no save", "-ERR syntax error"),
            ("CONFIG SET nosuch 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'"),
            ("CONFIG RESETSTAT", "+OK"),
        ],
    );
}

#[test]
fn command_and_info_describe_commands_and_the_server() {
    let listener = Listener::plain();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("COMMAND COUNT", ":71"),
            (
                "COMMAND INFO get none",
                "*2 *10 $3 get :2 *2 +readonly +fast :1 :1 :1 *3 +@read +@fast +@string *0 *0 *0 $-1",
            ),
            (
                "COMMAND DOCS get",
                "*2 $3 get *6 $7 summary $13 Read a value. $5 since $5 1.0.0 $5 group $6 string",
            ),
        ],
    );
    let mut newer = listener.client();
    listener.ask(&mut newer, "HELLO 3");
    listener.check(
        &mut newer,
        &[(
            "COMMAND INFO get",
            "*1 *10 $3 get :2 ~2 +readonly +fast :1 :1 :1 ~3 +@read +@fast +@string ~0 ~0 ~0",
        )],
    );
    let info = listener.ask(&mut client, "INFO server memory");
    assert!(info.contains("redis_version:7.0.15") && info.contains("maxmemory:67108864"), "{info}");
    assert!(!info.contains("# Stats"), "{info}");
    let time = listener.ask(&mut client, "TIME");
    assert!(time.contains(&listener.unix_secs().to_string()), "{time}");
    for command in ["CLIENT", "COMMAND", "CONFIG", "OBJECT", "SCRIPT"] {
        assert!(
            listener
                .ask(&mut client, &format!("{command} HELP"))
                .contains(&format!("+{command} <subcommand>"))
        );
    }
}

#[test]
fn value_that_redis_commands_derive_from_an_outdated_one_is_outdated() {
    for (line, old) in [("APPEND k 1", true), ("INCR k", true), ("SETRANGE k 1 x", true), ("SET k 1", false)]
    {
        let cache = cache(1);
        let listener = Listener::new(Arc::clone(&cache), Routing::single(target(0, false)), None);
        let mut client = listener.client();
        listener.ask(&mut client, "SET k 9");
        let (partition, access) = (PartitionId(0), Access::at(listener.now));
        let amend = Change::Amend { expires: None, marks: OUTDATED, cas: NewCas::Keep };
        cache.update(partition, b"k", &access, |_| (amend, ())).unwrap();
        listener.ask(&mut client, line);
        let marks = cache.peek(partition, b"k", &access, |item| item.marks);
        assert_eq!(marks, Some(if old { OUTDATED } else { Marks::NONE }), "after {line:?}");
    }
}
