//! Redis commands whose answers are larger than the output buffer, keys of several partitions, and
//! values from backends.

use super::*;

#[test]
fn answer_to_a_long_mget_is_sent_in_portions_and_in_order() {
    let listener = Listener::plain();
    let mut client = listener.client();
    let value = "x".repeat(900);
    for key in 0..20 {
        listener.check(&mut client, &[(&format!("SET k{key} {key}{value}"), "+OK")]);
    }
    let names: Vec<String> = (0..20).map(|key| format!("k{key}")).collect();
    let answer = listener.ask(&mut client, &format!("MGET {}", names.join(" ")));
    let values: Vec<&str> = answer.split(' ').skip(2).step_by(2).collect();
    assert_eq!(values, (0..20).map(|key| format!("{key}{value}")).collect::<Vec<_>>());
}

#[test]
fn keys_command_lets_other_clients_run_between_portions_and_finds_all_keys() {
    let listener = Listener::plain();
    let mut client = listener.client();
    for key in 0..6000 {
        listener.ask(&mut client, &format!("SET k{key} v"));
    }
    listener.check(&mut client, &[("DBSIZE", ":6000")]);
    let keys = listener.ask(&mut client, "KEYS k1*");
    assert!(keys.starts_with("*1111 "), "{}", &keys[..20]);

    let (mut seen, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let answer = listener.ask(&mut client, &format!("SCAN {cursor} COUNT 100"));
        let words: Vec<&str> = answer.split(' ').collect();
        seen.extend(words.iter().skip(3).filter(|word| word.starts_with('k')).map(|word| (*word).to_owned()));
        cursor = words[2].to_owned();
        if cursor == "0" {
            break;
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 6000);
}

#[test]
fn answer_to_keys_over_the_size_limit_is_refused() {
    let cache = cache(1);
    let listener = Listener::new(Arc::clone(&cache), Routing::single(target(0, false)), None);
    cache.apply(&sherwood_model::CachePlan::Shared).unwrap();
    for key in 0..24_000 {
        let name = format!("{key:0200}");
        cache.set(PartitionId(0), name.as_bytes(), NewItem::bytes(b""), &Access::at(listener.now)).unwrap();
    }
    let answer = listener.ask(&mut listener.client(), "KEYS *");
    assert_eq!(answer, "-ERR KEYS would answer more than 4 MiB, use SCAN");
}

#[test]
fn keys_of_several_partitions_are_listed_with_their_prefixes() {
    let routes =
        [("a/", 0), ("b/", 1), ("b/c/", 2)].map(|(prefix, at)| (prefix.to_owned(), target(at, false)));
    let listener =
        Listener::new(cache(3), Routing::by_prefix(sherwood_model::TenantId(0), routes).unwrap(), None);
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("MSET a/1 x b/1 y b/c/1 z", "+OK"),
            ("MGET a/1 b/1 b/c/1 c/1", "*4 $1 x $1 y $1 z $-1"),
            ("SET c/1 v", "-ERR no backend for this key's prefix"),
            ("RENAME a/1 b/c/2", "+OK"),
            ("DBSIZE", ":3"),
            ("KEYS b/c/1*", "*1 $5 b/c/1"),
            ("DEL a/1 b/1 b/c/1 c/1", ":2"),
            ("RANDOMKEY", "$5 b/c/2"),
            ("FLUSHDB", "+OK"),
            ("DBSIZE", ":0"),
        ],
    );
    // A key that a longer prefix takes cannot be reached under the shorter prefix.
    let access = Access::at(listener.now);
    listener.shared.service.cache.set(PartitionId(1), b"c/1", NewItem::bytes(b"v"), &access).unwrap();
    listener.check(&mut client, &[("DBSIZE", ":0"), ("KEYS *", "*0")]);
}

#[test]
fn mget_answers_fetched_values_in_the_order_of_the_keys() {
    let known = known();
    let backends: Arc<dyn Backends> = known.clone();
    let listener = Listener::new(cache(1), Routing::single(target(0, true)), Some(backends));
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("SET b v", "+OK"),
            ("GET a", "$3 <a>"),
            ("GET b", "$1 v"),
            ("MGET a none b bad c b", "*6 $3 <a> $-1 $1 v $-1 $3 <c> $1 v"),
            ("MGET late", "*1 -REJECTED the answer is expected after 35 ms, too late"),
            ("GET late", "-REJECTED the answer is expected after 35 ms, too late"),
            ("STRLEN d", ":0"),
        ],
    );
    assert_eq!(*known.asked.lock().unwrap(), ["a", "a", "none", "bad", "c", "late", "late"]);
    assert_eq!((listener.count(Count::Fetches), listener.count(Count::FetchErrors)), (7, 3));

    let names: Vec<String> = (0..200).map(|key| format!("k{key}")).collect();
    let answer = listener.ask(&mut client, &format!("MGET {}", names.join(" ")));
    let values: Vec<&str> = answer.split(' ').skip(2).step_by(2).collect();
    assert_eq!(values, names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>());
    listener.check(&mut client, &[("CLIENT REPLY SKIP", ""), ("MGET x y", ""), ("GET b", "$1 v")]);
}

#[test]
fn key_pattern_over_the_length_limit_is_refused() {
    let options = Options { total_bytes: 1 << 20, ..Options::default() };
    let one = Partition::new(sherwood_model::TenantId(0), BackendId(0), 1 << 20);
    let cache = Arc::new(Cache::new(options, &[one], SeededState::new(1)).unwrap());
    let mut listener = Listener::new(cache, Routing::single(target(0, false)), None);
    Arc::get_mut(&mut listener.shared).unwrap().options.item_size_max = 4096;
    let mut client = listener.client();
    let refused = "-ERR pattern is too long, at most 1024 bytes are taken";
    let long = "a".repeat(1025);
    listener.check(
        &mut client,
        &[
            (&format!("KEYS {}", &long[1..]), "*0"),
            (&format!("KEYS {long}"), refused),
            (&format!("SCAN 0 MATCH {long}"), refused),
        ],
    );
}
