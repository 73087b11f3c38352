//! Counters, sizes and answers, without a server; `tests/node/instances.rs` uses real servers.

use super::*;

fn state(hits: u64, items: u64) -> State {
    State { limit: 100, used: 50, items, hits, ..State::default() }
}

#[test]
fn instance_counters_start_at_the_first_poll_and_continue_after_a_restart() {
    let mut known = Known::default();
    known.note(state(1_000_000, 3));
    assert_eq!((known.usage.hits, known.usage.items), (0, 3), "those of its life before are none of ours");
    for (hits, items) in [(1_000_005, 4), (2, 1), (4, 2)] {
        known.note(state(hits, items));
    }
    assert_eq!((known.usage.hits, known.usage.items, known.usage.budget_bytes), (9, 2, 100));
    assert_eq!(known.restarts, 1);
}

#[test]
fn instance_password_is_the_one_line_of_an_owner_only_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("password");
    let read = |text: &[u8], mode| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        password(&path, &mut Reader::new()).map_err(|error| error.to_string())
    };
    assert_eq!(read(b"\xef\xbb\xbfopen sesame \r\n", 0o640).as_deref(), Ok("open sesame "));
    assert!(read(b"sesame\n", 0o644).unwrap_err().contains("chmod 600"));
    assert!(read(b"sesame\nand more\n", 0o600).unwrap_err().contains("has 2 lines"));
    for nothing in [&b""[..], b"\r\n"] {
        assert!(read(nothing, 0o600).unwrap_err().contains("is empty"));
    }
    assert!(read(b"\xffsesame", 0o600).unwrap_err().contains("is not text in UTF-8"));
}

#[test]
fn memory_limit_is_one_the_instance_accepts_and_never_zero() {
    let mib = |bytes| limit(InstanceKind::Memcached, bytes) >> 20;
    assert_eq!((mib(0), mib((9 << 20) - 1), mib(9 << 20)), (8, 8, 9));
    let redis = |bytes| limit(InstanceKind::Redis, bytes);
    assert_eq!((redis(0), redis(1), redis(12_345_678)), (2 << 20, 2 << 20, 12_345_678));
}

#[test]
fn newest_wanted_size_replaces_earlier_ones() {
    let setup = InstanceSetup {
        kind: InstanceKind::Redis,
        address: "127.0.0.1:1".to_owned(),
        user: None,
        password_file: None,
    };
    let instance = Instance::new(setup, PartitionId(0), Arc::new(Ledger::new(99 << 20, 1)));
    let mut wishes = instance.wish.subscribe();
    (1..100).for_each(|mib| instance.wish(mib << 20));
    assert_eq!(*wishes.borrow_and_update(), Some(99 << 20));
    assert!(!wishes.has_changed().unwrap(), "and there is no queue of them");
    assert!(instance.trouble().is_some(), "it was not reached yet");
}
