//! Listeners with several databases.

use super::*;

fn listener(databases: u8, cache: Arc<Cache>, routing: Routing) -> Listener {
    let listener = Listener::new(cache, routing, None);
    let options = ListenerOptions { databases, ..listener.shared.options.clone() };
    let shared = Arc::try_unwrap(listener.shared).unwrap_or_else(|_| panic!("nobody else has it"));
    let clock = Arc::new(ManualClock::new(listener.now, Duration::from_secs(1_800_000_000)));
    let shared = Arc::new(Shared::new(options, shared.service, clock));
    Listener { redis: Redis::new(1), shared, now: listener.now }
}

fn of_sixteen() -> Listener {
    listener(16, cache(1), Routing::single(target(0, false)))
}

/// Sends a request with arguments of any bytes, and returns the answer in one line.
fn ask(listener: &Listener, client: &mut InMemoryClient, words: &[&[u8]]) -> String {
    let mut out = Vec::new();
    client::request(&mut out, words);
    String::from_utf8_lossy(&listener.send(client, &out)).replace("\r\n", " ").trim_end().to_owned()
}

#[test]
fn keys_of_one_database_are_not_seen_in_another() {
    let listener = of_sixteen();
    let (mut a, mut b) = (listener.client(), listener.client());
    listener.check(
        &mut a,
        &[("SET k zero", "+OK"), ("SELECT 15", "+OK"), ("GET k", "$-1"), ("SET k last", "+OK")],
    );
    listener.check(&mut b, &[("GET k", "$4 zero"), ("SELECT 1", "+OK"), ("MGET k k", "*2 $-1 $-1")]);
    listener.check(
        &mut b,
        &[
            ("MSET a 1 b 2", "+OK"),
            ("INCR a", ":2"),
            ("APPEND b 0", ":2"),
            ("RENAME b c", "+OK"),
            ("EXISTS a b c k", ":2"),
            ("EXPIRE a 10", ":1"),
            ("TTL a", ":10"),
            ("OBJECT ENCODING c", "$3 int"),
            ("DBSIZE", ":2"),
            ("KEYS c*", "*1 $1 c"),
            ("DEL a c", ":2"),
            ("RANDOMKEY", "$-1"),
            ("SELECT 0", "+OK"),
            ("KEYS *", "*1 $1 k"),
            ("RANDOMKEY", "$1 k"),
            ("SCAN 0 COUNT 1000", "*2 $1 0 *1 $1 k"),
            ("DBSIZE", ":1"),
        ],
    );
    listener.check(&mut a, &[("GET k", "$4 last"), ("RESET", "+RESET"), ("GET k", "$4 zero")]);
    for wrong in ["SELECT 16", "SELECT -1", "COPY k l DB 16"] {
        let answer = listener.ask(&mut a, wrong);
        assert!(
            answer.starts_with("-ERR DB index is out of range: this listener has databases 0 to 15"),
            "{answer}"
        );
    }
}

#[test]
fn key_with_the_bytes_of_another_databases_name_is_a_key_of_its_own() {
    let listener = of_sixteen();
    let mut client = listener.client();
    listener.check(&mut client, &[("SELECT 3", "+OK"), ("SET k three", "+OK"), ("SELECT 0", "+OK")]);
    let forged: [&[u8]; 5] = [b"\0\x03k", b"\0\0\0\x03k", b"\0\0k", b"\0", b"\x03k"];
    for key in forged {
        assert_eq!(ask(&listener, &mut client, &[b"GET", key]), "$-1", "{key:?}");
        assert_eq!(ask(&listener, &mut client, &[b"SET", key, b"forged"]), "+OK");
        assert_eq!(ask(&listener, &mut client, &[b"GET", key]), "$6 forged");
        assert_eq!(ask(&listener, &mut client, &[b"KEYS", b"*"]).matches("*1 ").count(), 1, "{key:?}");
        assert_eq!(ask(&listener, &mut client, &[b"DEL", key]), ":1");
    }
    listener.check(&mut client, &[("DBSIZE", ":0"), ("SELECT 3", "+OK"), ("GET k", "$5 three")]);
    assert_eq!(ask(&listener, &mut client, &[b"GET", b"\0\x03k"]), "$-1");
}

#[test]
fn flushdb_empties_one_database_and_flushall_every_one() {
    let listener = of_sixteen();
    let mut client = listener.client();
    for database in [0, 1, 2] {
        listener.ask(&mut client, &format!("SELECT {database}"));
        for key in 0..500 {
            listener.ask(&mut client, &format!("SET key:{key} v"));
        }
    }
    listener.check(
        &mut client,
        &[
            ("SELECT 1", "+OK"),
            ("FLUSHDB ASYNC", "+OK"),
            ("DBSIZE", ":0"),
            ("SELECT 2", "+OK"),
            ("DBSIZE", ":500"),
            ("SELECT 0", "+OK"),
            ("DBSIZE", ":500"),
            ("FLUSHDB", "+OK"),
            ("DBSIZE", ":0"),
            ("FLUSHDB now", "-ERR syntax error"),
            ("FLUSHALL", "+OK"),
            ("SELECT 2", "+OK"),
            ("DBSIZE", ":0"),
        ],
    );
}

#[test]
fn keys_are_moved_and_copied_between_databases() {
    let listener = of_sixteen();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("SET a 1 EX 100", "+OK"),
            ("COPY a a DB 2", ":1"),
            ("COPY a b DB 2", ":1"),
            ("COPY a b DB 2", ":0"),
            ("COPY a b DB 2 REPLACE", ":1"),
            ("MOVE a 2", ":0"),
            ("MOVE a 1", ":1"),
            ("MOVE a 1", ":0"),
            ("MOVE a 0", "-ERR source and destination objects are the same"),
            ("EXISTS a", ":0"),
            ("SELECT 1", "+OK"),
            ("GET a", "$1 1"),
            ("TTL a", ":100"),
            ("SELECT 2", "+OK"),
            ("MGET a b", "*2 $1 1 $1 1"),
        ],
    );
    assert!(listener.ask(&mut client, "SWAPDB 0 1").starts_with("-ERR SWAPDB is refused: "));
    let one = Listener::plain();
    assert!(
        one.ask(&mut one.client(), "MOVE a 1").starts_with("-ERR DB index is out of range: a listener has")
    );
}

#[test]
fn transaction_has_the_keys_of_the_database_selected_before() {
    let listener = of_sixteen();
    let (mut client, mut other) = (listener.client(), listener.client());
    listener.check(
        &mut client,
        &[
            ("SELECT 4", "+OK"),
            ("WATCH w", "+OK"),
            ("MULTI", "+OK"),
            ("SET k four", "+QUEUED"),
            ("COPY k k DB 5", "+QUEUED"),
        ],
    );
    listener.check(&mut other, &[("SET w 1", "+OK")]);
    listener.check(&mut client, &[("EXEC", "*2 +OK :1"), ("GET k", "$4 four")]);
    listener.check(&mut other, &[("GET k", "$-1"), ("SELECT 5", "+OK"), ("GET k", "$4 four")]);
    listener.check(&mut client, &[("WATCH w", "+OK"), ("MULTI", "+OK"), ("GET k", "+QUEUED")]);
    listener.check(&mut other, &[("SELECT 4", "+OK"), ("SET w 1", "+OK")]);
    listener.check(&mut client, &[("EXEC", "*-1")]);
    for refused in ["SELECT 1", "MOVE k 1", "FLUSHDB", "COPY k l DB 99"] {
        listener.check(&mut client, &[("MULTI", "+OK")]);
        assert!(listener.ask(&mut client, refused).starts_with("-ERR "), "{refused}");
        assert!(listener.ask(&mut client, "EXEC").starts_with("-EXECABORT"), "{refused}");
    }
}

#[test]
fn route_prefix_of_a_key_stays_before_the_database() {
    let prefixes = [("a/".to_owned(), target(0, false)), (String::new(), target(1, false))];
    let cache = cache(2);
    let listener = listener(2, Arc::clone(&cache), Routing::by_prefix(TenantId(0), prefixes).unwrap());
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("SELECT 1", "+OK"),
            ("SET a/k v", "+OK"),
            ("SET a/ w", "+OK"),
            ("GET a/k", "$1 v"),
            ("GET a/", "$1 w"),
            ("KEYS a/?", "*1 $3 a/k"),
            ("MOVE a/k 0", ":1"),
        ],
    );
    let access = Access::at(listener.now);
    assert!(
        cache.get(PartitionId(0), b"k", &access, |_| ()).is_some(),
        "database 0 has the cache's own names"
    );
    assert!(cache.get(PartitionId(1), b"\0\x01a/", &access, |_| ()).is_some());
    listener.check(&mut client, &[("CLIENT ID", ":1")]);
    assert!(listener.ask(&mut client, "CLIENT INFO").contains(" db=1 "));
}
