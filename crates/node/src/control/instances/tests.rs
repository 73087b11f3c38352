//! Counts, sizes and answers, without a server; `tests/node/instances.rs` has real ones.

use super::*;

fn state(hits: u64, items: u64) -> State {
    State { limit: 100, used: 50, items, hits, ..State::default() }
}

#[test]
fn counts_go_on_where_an_instance_was_started_anew() {
    let mut known = Known::default();
    for (hits, items) in [(10, 3), (15, 4), (2, 1), (4, 2)] {
        known.note(state(hits, items));
    }
    assert_eq!((known.usage.hits, known.usage.items, known.usage.budget_bytes), (19, 2, 100));
}

#[test]
fn a_size_for_memcached_is_whole_mebibytes_and_eight_at_least() {
    let mib = |bytes| InstanceKind::Memcached.limit(bytes) >> 20;
    assert_eq!((mib(0), mib((9 << 20) - 1), mib(9 << 20)), (8, 8, 9));
    assert_eq!(InstanceKind::Redis.limit(12_345_678), 12_345_678);
}

#[test]
fn the_newest_wish_replaces_those_before_it() {
    let setup = InstanceSetup {
        kind: InstanceKind::Redis,
        address: "127.0.0.1:1".to_owned(),
        user: None,
        password_file: None,
    };
    let instance = Instance::new(setup);
    let mut wishes = instance.wish.subscribe();
    (1..100).for_each(|mib| instance.wish(mib << 20));
    assert_eq!(*wishes.borrow_and_update(), Some(99 << 20));
    assert!(!wishes.has_changed().unwrap(), "and there is no queue of them");
    assert!(instance.trouble().is_some(), "it was not reached yet");
}
