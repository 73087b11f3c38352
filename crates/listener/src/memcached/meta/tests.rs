//! Meta commands without sockets: answers recorded from memcached, and the deviations from them.

use std::sync::Arc;
use std::time::Duration;

use sherwood_cache::{
    Access, Cache, DeadlineClasses, DeadlineOptions, Eviction, Marks, NewItem, Options, Partition,
};
use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};

use crate::counters::Count;
use crate::routing::Routing;
use crate::tests::{Client, ITEM_BYTES_MAX, cache, cache_with, read_through, seconds, service, target};

/// Recorded conversations with memcached: commands and answers.
const ASKED: &str = include_str!("asked.txt");

/// Splits a recorded conversation into the commands and the expected answers.
fn conversation(text: &str) -> (String, String) {
    let lines = |mark: char| -> String {
        let line = |line: &str| {
            let line = line.strip_prefix(mark)?;
            Some(format!("{}\r\n", line.strip_prefix(' ').unwrap_or(line).replace("\\t", "\t")))
        };
        text.lines().filter_map(line).collect()
    };
    (lines('>'), lines('<'))
}

#[test]
fn answers_to_meta_commands_equal_those_recorded_from_memcached() {
    let (mut conversations, mut different) = (0, Vec::new());
    for text in ASKED.split("\n= ").skip(1) {
        conversations += 1;
        let title = text.lines().next().unwrap_or_default();
        let (sent, answered) = conversation(text);
        let answer = Client::plain().send(sent.as_bytes());
        if answer != answered {
            different.push(format!("{title}\n{sent}\nshould be\n{answered}\nand is\n{answer}"));
        }
    }
    assert_eq!(conversations, 39);
    assert!(different.is_empty(), "{}", different.join("\n\n"));
}

#[test]
fn deviations_of_meta_commands_from_memcached_are_as_documented() {
    Client::plain().check(&[
        // A value is not parsed as a command.
        ("ms a 2 !\r\nmn\r\nmg a\r\n", "CLIENT_ERROR bad command line format\r\nEN\r\n"),
        // A command with an error changes nothing.
        (
            "ms n 1\r\n1\r\nma n O12345678901234567890123456789012\r\n",
            "HD\r\nCLIENT_ERROR opaque token too long\r\n",
        ),
        ("mg n v\r\n", "VA 1\r\n1\r\n"),
        // Invalid base64 is not a key.
        ("mg Y-Q== b\r\n", "CLIENT_ERROR error decoding key\r\n"),
        ("mg YQ==YQ== b\r\n", "CLIENT_ERROR error decoding key\r\n"),
        // Base64 keys stay base64.
        ("ma AAE= b N0\r\nmg AAE= b k\r\nmg AAI= b k N9\r\n", "HD\r\nHD kAAE= b\r\nHD kAAI= b W\r\n"),
        ("ms AAE= 1 b MA k\r\n5\r\nmg AAE= b k v\r\n", "HD kAAE= b\r\nVA 2 kAAE= b\r\n05\r\n"),
        ("md AAE= b x\r\nmg AAE= b k v\r\n", "HD\r\nVA 0 kAAE= b\r\n\r\n"),
    ]);
}

#[test]
fn value_that_meta_commands_derive_from_a_stale_one_is_stale() {
    let marked = |then: &str| format!("ms k 1\r\n9\r\nmd k I\r\n{then}mg k v\r\n");
    let check = |then: &str, answer: &str, value: &str| {
        let answer = format!("HD\r\nHD\r\n{answer}\r\n{value}\r\n");
        assert_eq!(Client::plain().send(marked(then).as_bytes()), answer, "after {then:?}");
    };
    check("append k 0 0 1\r\n1\r\n", "STORED\r\nVA 2 X W", "91");
    check("prepend k 0 0 1\r\n1\r\n", "STORED\r\nVA 2 X W", "19");
    check("incr k 1\r\n", "10\r\nVA 2 X W", "10");
    check("ms k 1 MA\r\n1\r\n", "HD\r\nVA 2 X W", "91");
    check("ma k T60\r\n", "HD\r\nVA 2 X W", "10");
    check("set k 0 0 1\r\n1\r\n", "STORED\r\nVA 1", "1");
}

#[test]
fn meta_get_reports_idle_time_and_attributes_of_an_item() {
    let cache = cache_with(1, Eviction::Lru);
    let mut client = Client::new(service(Arc::clone(&cache), Routing::single(target(0)), None));
    let pass = |client: &mut Client, secs: u64| {
        for _ in 0..secs {
            client.pass(seconds(1));
            cache.step(client.now(), 1);
        }
    };
    client.check(&[("ms a 3 T90 E7\r\nabc\r\nms YQ== 1 b E8\r\nx\r\n", "HD\r\nHD\r\n")]);
    pass(&mut client, 1);
    pass(&mut client, 10);
    client.check(&[
        ("me a\r\n", "ME YQ== exp=-1 la=10 cas=8 fetch=no cls=0 size=44\r\n"),
        ("mg a l h u\r\nmg a l h t\r\nmg a l h\r\n", "HD l10 h0\r\nHD l10 h0 t-1\r\nHD l0 h1\r\n"),
    ]);
    pass(&mut client, 5);
    client.check(&[
        ("mg a T30 l h t u\r\n", "HD l4 h1 t30\r\n"),
        ("mg a T40 l\r\nmg a T50 l\r\n", "HD l4\r\nHD l0\r\n"),
    ]);
    pass(&mut client, 30);
    client.check(&[
        ("me YQ== b\r\nme b\r\n", "ME YQ== exp=20 la=29 cas=8 fetch=yes cls=0 size=44\r\nEN\r\n"),
        ("mg a t\r\n", "HD t20\r\n"),
    ]);
    pass(&mut client, 20);
    client.check(&[("mg a t\r\nme a\r\n", "EN\r\nEN\r\n")]);
}

#[test]
fn idle_time_of_an_item_under_s3_fifo_counts_from_its_store() {
    let cache = cache_with(1, Eviction::S3Fifo);
    let mut client = Client::new(service(Arc::clone(&cache), Routing::single(target(0)), None));
    client.check(&[("ms a 1\r\nx\r\n", "HD\r\n")]);
    for _ in 0..10 {
        cache.step(client.now(), 1);
        client.pass(seconds(1));
    }
    // Time since the store: reads do not change it.
    client.check(&[("mg a l h\r\nmg a l h\r\n", "HD l10 h0\r\nHD l10 h1\r\n")]);
}

#[test]
fn meta_set_of_a_value_over_the_limit_is_refused_and_removes_the_old_value() {
    let mut client = Client::plain();
    let limit = ITEM_BYTES_MAX as usize;
    let set = |bytes: usize, flags: &str| format!("ms a {bytes}{flags}\r\n{}\r\n", "x".repeat(bytes));
    client.check(&[
        (&set(limit, ""), "HD\r\n"),
        ("ms a 1 MA s\r\nx\r\nmg a s\r\n", "NS s1\r\nHD s1000\r\n"),
        (&set(limit + 1, " q"), "SERVER_ERROR object too large for cache\r\n"),
        ("mg a\r\n", "EN\r\n"),
    ]);
    assert_eq!(client.count(Count::StoreTooLarge), 1);
}

#[test]
fn keys_of_meta_commands_are_routed_by_prefix() {
    let routes = [("catalog/".to_owned(), target(0)), ("\0".to_owned(), target(1))];
    let cache = cache(2);
    let mut client =
        Client::new(service(Arc::clone(&cache), Routing::by_prefix(TenantId(0), routes).unwrap(), None));
    client.check(&[
        ("ms catalog/a 1 k\r\nx\r\nmg catalog/a v k\r\n", "HD kcatalog/a\r\nVA 1 kcatalog/a\r\nx\r\n"),
        ("ms AAE= 1 b k\r\ny\r\nmg AAE= b v k\r\n", "HD kAAE= b\r\nVA 1 kAAE= b\r\ny\r\n"),
        ("ms other 1 q\r\nx\r\n", "SERVER_ERROR no backend for this key's prefix\r\n"),
        (
            "mg other k\r\nmg other q\r\nma other k O1\r\nmd other\r\nme other\r\n",
            "EN kother\r\nNF kother O1\r\nNF\r\nEN\r\n",
        ),
    ]);
    let access = Access::at(Instant::from_secs(1));
    assert!(cache.peek(PartitionId(1), b"\x01", &access, |_| ()).is_some(), "the prefix is cut off");
}

#[test]
fn read_through_listener_fetches_misses_of_meta_get() {
    let (mut client, fake, cache) = read_through();
    client.check(&[
        ("mg a/1 v k O1\r\nmn\r\n", "VA 3 ka/1 O1\r\n<1>\r\nMN\r\n"),
        ("mg a/1 s t f h c l\r\n", "HD s3 t-1 f0 h0 c0 l0\r\n"),
        ("mg YS8x b v k\r\n", "VA 3 kYS8x b\r\n<1>\r\n"),
        ("mg a/1 v N30\r\n", "VA 3\r\n<1>\r\n"),
        ("mg a/no v k\r\nmg a/no v q\r\nmg a/bad N30\r\n", "EN ka/no\r\nEN\r\n"),
        ("mg a/no v N30\r\nmg a/no v N30\r\n", "VA 0 W\r\n\r\nVA 0 Z\r\n\r\n"),
        ("mg aside/1 v\r\n", "EN\r\n"),
    ]);
    let fetched = ["1", "1", "1", "1", "no", "no", "bad", "no"].map(|key| format!("fetch 0 {key}"));
    assert_eq!(fake.log(), fetched);
    assert_eq!((client.count(Count::Fetches), client.count(Count::FetchErrors)), (8, 1));
    assert_eq!((client.count(Count::GetHits), client.count(Count::GetMisses)), (1, 9));

    let access = Access::at(Instant::from_secs(1));
    cache.set(PartitionId(0), b"1", NewItem { flags: 5, ..NewItem::bytes(b"item") }, &access).unwrap();
    client.check(&[("mg a/1 v f\r\n", "VA 4 f5\r\nitem\r\n")]);
    assert!(fake.log().is_empty());
}

#[test]
fn flag_u_of_meta_get_gives_the_fetch_a_deadline() {
    let (mut client, fake, _) = read_through();
    client.check(&[
        ("mg a/1 v U50\r\nmg a/2 U86400000 v O1\r\n", "VA 3\r\n<1>\r\nVA 3 O1\r\n<2>\r\n"),
        (
            "mg a/3 v U0\r\nmg a/3 v U86400001\r\nmg a/3 v U\r\nmg a/3 v U-1\r\n",
            &"CLIENT_ERROR deadline of U must be 1 to 86400000 ms\r\n".repeat(4),
        ),
        ("ms a/4 1 U20\r\nx\r\nmg a/4 v U20\r\n", "HD\r\nVA 1\r\nx\r\n"),
    ]);
    assert_eq!(fake.log(), ["fetch 0 1 within 50ms", "fetch 0 2 within 86400s", "write 0 4"]);
}

#[test]
fn flags_u_and_d_choose_a_deadline_class_and_tell_of_missed_deadlines() {
    let ms = Duration::from_millis;
    let classes = DeadlineClasses::with_bounds(&[ms(10), ms(30), ms(100)]).unwrap();
    let deadlines = DeadlineOptions { classes, ..DeadlineOptions::ONE };
    let partition = Partition { deadlines, ..Partition::new(TenantId(0), BackendId(0), 1 << 20) };
    let options = Options { total_bytes: 1 << 20, shards: 1, ..Options::default() };
    let cache = Arc::new(Cache::new(options, &[partition], SeededState::new(1)).unwrap());
    let mut client = Client::new(service(Arc::clone(&cache), Routing::single(target(0)), None));
    let classes = || -> Vec<_> {
        let usage = cache.class_usage(PartitionId(0));
        usage.iter().map(|class| (class.items, class.hits, class.misses, class.deadline_missed)).collect()
    };
    client.check(&[
        ("ms a 1 U5\r\nx\r\nms b 1 U20 d\r\nx\r\nms c 1 d\r\nx\r\n", "HD\r\nHD\r\nHD\r\n"),
        ("mg a v U5\r\nmg none v U20\r\n", "VA 1\r\nx\r\nEN\r\n"),
    ]);
    assert_eq!(classes(), [(1, 1, 0, 0), (1, 0, 1, 1), (1, 0, 0, 0)]);
    // A read with another deadline moves the item to that class.
    client.check(&[("mg a v U20\r\n", "VA 1\r\nx\r\n")]);
    assert_eq!(classes()[..2], [(0, 1, 0, 0), (2, 1, 1, 1)]);
}

#[test]
fn meta_get_of_a_rejected_key_is_an_error_even_in_quiet_mode() {
    let (mut client, fake, cache) = read_through();
    let error = "SERVER_ERROR rejected: the answer is expected after 35.2 ms, too late\r\n";
    client.check(&[(
        "mg a/reject v\r\nmg a/reject v q N30\r\nmg a/1 v\r\n",
        &format!("{error}{error}VA 3\r\n<1>\r\n"),
    )]);
    assert_eq!(fake.log().len(), 3);
    assert_eq!(cache.usage(PartitionId(0)).items, 0);
    assert_eq!((client.count(Count::Fetches), client.count(Count::FetchErrors)), (3, 2));
}

#[test]
fn meta_get_answers_the_item_that_was_stored_during_its_fetch() {
    let (mut client, _, cache) = read_through();
    let now = client.now();
    client.on_fetch(move || {
        let item = NewItem { flags: 5, ..NewItem::bytes(b"newer") };
        cache.set(PartitionId(0), b"1", item, &Access::at(now)).unwrap();
    });
    client.check(&[("mg a/1 v f T30 t\r\n", "VA 5 f5 t30\r\nnewer\r\n")]);
}

#[test]
fn every_change_by_a_meta_command_calls_the_write_of_backends() {
    let (mut client, fake, _) = read_through();
    client.check(&[(
        "ms a/1 1\r\n1\r\nma a/1\r\nms a/1 1 MA\r\nx\r\nmd a/1 I\r\nmd b/1\r\nmg a/1 T5\r\n",
        "HD\r\nHD\r\nHD\r\nHD\r\nNF\r\nHD X W\r\n",
    )]);
    assert_eq!(fake.log(), ["write 0 1", "write 0 1", "write 0 1", "write 0 1", "write 1 1"]);
}

#[test]
fn hits_and_misses_of_meta_commands_are_counted_once() {
    let cache = cache(1);
    let mut client = Client::new(service(Arc::clone(&cache), Routing::single(target(0)), None));
    client.send(
        b"ms a 1\r\nx\r\nmg a\r\nmg a T30\r\nmg a u\r\nmd a I\r\nmg a\r\nmg b T5\r\nmg b N5\r\nmg c\r\n",
    );
    assert_eq!((client.count(Count::GetHits), client.count(Count::GetMisses)), (4, 3));
    assert_eq!((client.count(Count::TouchHits), client.count(Count::TouchMisses)), (1, 1));
    let usage = cache.usage(PartitionId(0));
    assert_eq!((usage.hits, usage.misses), (4, 3));
    let marks = cache.peek(PartitionId(0), b"a", &Access::at(client.now()), |item| item.marks).unwrap();
    assert!(marks.contains(Marks::USED.with(super::STALE).with(super::WON)));
}
