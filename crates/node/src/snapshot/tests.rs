//! Tests that snapshots are restored, and that invalid ones are refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use proptest::prelude::*;
use sherwood_cache::{
    Access, AccessFlags, Cache, Change, Eviction, ItemKind, Marks, NewItem, Options, Partition,
};
use sherwood_model::{BackendId, PartitionId, SeededState, Tags, TenantId};
use sherwood_process::clock::Clock;
use tempfile::TempDir;

use super::record::Record;
use super::write::end_of_next;
use super::*;
use crate::names::Names;

const A: PartitionId = PartitionId(0);
const B: PartitionId = PartitionId(1);
const SECOND: u64 = 1_000_000_000;

/// A cache of two partitions with its own clock and snapshot path.
struct World {
    cache: Cache,
    names: Names,
    clock: Clock,
    nanos: &'static AtomicU64,
    setup: SnapshotSetup,
    _directory: TempDir,
}

impl World {
    fn new(eviction: Eviction) -> Self {
        // A year after the origin of the clock, so that an hour earlier is still after 1970.
        let nanos: &AtomicU64 = Box::leak(Box::new(AtomicU64::new(365 * 24 * 3_600 * SECOND)));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("snapshot");
        Self {
            cache: cache(eviction, 8 << 20),
            names: Names::new(
                vec!["a".to_owned(), "b".to_owned()],
                vec!["default".to_owned()],
                &[(TenantId(0), BackendId(0)), (TenantId(0), BackendId(1))],
            ),
            clock: Clock::driven(nanos),
            nanos,
            setup: SnapshotSetup { path, time_max: Duration::from_secs(600), fingerprint: 7 },
            _directory: directory,
        }
    }

    fn pass(&self, seconds: u64) {
        self.nanos.fetch_add(seconds * SECOND, Relaxed);
        self.cache.step(self.clock.now(), 1);
    }

    fn set(&self, partition: PartitionId, key: &str, value: &[u8]) {
        self.cache.set(partition, key.as_bytes(), NewItem::bytes(value), &self.access()).unwrap();
    }

    fn access(&self) -> Access {
        Access::at(self.clock.now())
    }

    fn write(&self) -> Written {
        let unsettled = vec![None, Some(self.clock.now() + Duration::from_secs(7))];
        let standing = Standing { budgets: vec![5, 6], unsettled };
        write(&self.setup, &self.cache, &self.names, standing, &self.clock).unwrap()
    }

    /// Restarts the node with an empty cache.
    fn restart(&mut self) -> Result<Option<Restored>, SnapshotError> {
        self.cache = cache(self.cache.options().eviction, 8 << 20);
        read(&self.setup, &self.cache, &self.names, &self.clock, |standing| {
            assert_eq!((standing.budgets, standing.unsettled.len()), (vec![5, 6], 2));
            assert!(standing.unsettled[0].is_none() && standing.unsettled[1].is_some());
        })
    }

    fn value(&self, partition: PartitionId, key: &str) -> Option<Vec<u8>> {
        let copy = |item: sherwood_cache::Item<'_>| match item.value {
            sherwood_cache::Value::Bytes(bytes) => bytes.to_vec(),
            sherwood_cache::Value::Declared(_) => unreachable!("nobody declares"),
        };
        self.cache.peek(partition, key.as_bytes(), &self.access(), copy)
    }
}

fn cache(eviction: Eviction, budget_bytes: u64) -> Cache {
    let grace = Duration::from_secs(60);
    let partition =
        |backend| Partition { grace, ..Partition::new(TenantId(0), BackendId(backend), budget_bytes) };
    let options = Options { total_bytes: 16 << 20, shards: 2, eviction, ..Options::default() };
    Cache::new(options, &[partition(0), partition(1)], SeededState::new(1)).unwrap()
}

#[test]
fn snapshot_restores_items_and_state_once() {
    let mut world = World::new(Eviction::S3Fifo);
    for number in 0..2_000 {
        let partition = if number % 2 == 0 { A } else { B };
        world.set(partition, &format!("key/{number}"), format!("value of {number}").as_bytes());
    }
    let expires = world.clock.now() + Duration::from_secs(60);
    let marks = Marks::of_caller(3).with(Marks::USED);
    let change = |_: Option<sherwood_cache::Item<'_>>| {
        (
            Change::StoreMarked {
                kind: ItemKind::Plain,
                tags: Tags::NONE,
                value: b"m"[..].into(),
                flags: 42,
                expires: Some(expires),
                marks,
                cas: None,
            },
            (),
        )
    };
    world.cache.update(A, b"marked", &world.access(), change).unwrap();
    let written = world.write();
    assert_eq!((written.items, written.whole), (2_001, true));
    world.pass(59);
    let restored = world.restart().unwrap().expect("there is a file");
    assert_eq!((restored.items, restored.expired, restored.damaged), (2_001, 0, false));
    assert_eq!(restored.bytes, written.bytes);
    assert_eq!(world.value(B, "key/17").as_deref(), Some(&b"value of 17"[..]));
    assert_eq!(world.value(A, "key/17"), None);
    let seen = world.cache.peek(A, b"marked", &world.access(), |item| (item.flags, item.marks, item.expires));
    let (flags, kept, dies) = seen.expect("it has a second left");
    assert_eq!((flags, kept), (42, marks));
    assert!(dies <= Some(expires) && dies > Some(expires - Duration::from_millis(2)));
    assert!(world.restart().unwrap().is_none(), "a file is read once");
}

#[test]
fn tags_and_grace_are_restored_and_negative_entries_are_not() {
    let mut world = World::new(Eviction::S3Fifo);
    let tags: Tags = [&b"page"[..]].into_iter().collect();
    let after = |world: &World, seconds| Some(world.clock.now() + Duration::from_secs(seconds));
    let graced = |expires| NewItem { expires, kind: ItemKind::Graced, tags, ..NewItem::bytes(b"v") };
    let absent = NewItem { expires: after(&world, 600), ..NewItem::absent() };
    for (key, item) in [
        (&b"fresh"[..], graced(after(&world, 10))),
        (b"stale", graced(after(&world, 1))),
        (b"absent", absent),
    ] {
        world.cache.set(A, key, item, &world.access()).unwrap();
    }
    world.cache.get(A, b"fresh", &world.access(), |_| ()).expect("it is fresh");
    world.pass(2);
    assert_eq!(world.write().items, 1);
    world.restart().unwrap().expect("there is a file");
    world.pass(20);
    assert_eq!(world.value(A, "fresh"), None, "it is stale by now");
    let access = Access { flags: AccessFlags::SEE_STALE.with(AccessFlags::SEE_ABSENT), ..world.access() };
    let seen = |key| world.cache.peek(A, key, &access, |item| (item.tags, item.kind, item.marks));
    assert_eq!(seen(b"fresh"), Some((tags, ItemKind::Graced, Marks::USED)));
    assert_eq!((seen(b"stale"), seen(b"absent")), (None, None));
}

#[test]
fn item_that_expired_while_stopped_is_not_restored() {
    let mut world = World::new(Eviction::S3Fifo);
    for (key, seconds) in [("short", 10), ("long", 100)] {
        let expires = Some(world.clock.now() + Duration::from_secs(seconds));
        let item = NewItem { expires, ..NewItem::bytes(b"v") };
        world.cache.set(A, key.as_bytes(), item, &world.access()).unwrap();
    }
    world.write();
    world.pass(10);
    let restored = world.restart().unwrap().unwrap();
    assert_eq!((restored.items, restored.expired), (1, 1));
    assert_eq!((world.value(A, "short"), world.value(A, "long")), (None, Some(b"v".to_vec())));
}

#[test]
fn snapshot_of_another_configuration_or_from_the_future_is_refused_and_removed() {
    let refused = |change: fn(&mut World)| {
        let mut world = World::new(Eviction::S3Fifo);
        world.set(A, "k", b"v");
        world.write();
        change(&mut world);
        let error = world.restart().expect_err("it is refused").to_string();
        assert_eq!(world.cache.total().items, 0);
        assert!(world.restart().unwrap().is_none());
        error
    };
    assert!(
        refused(|world| world.setup.fingerprint = 8)
            .ends_with("of another configuration of backends or partitions")
    );
    let back = |world: &mut World| world.nanos.store(world.clock.now().as_nanos() - 3_600 * SECOND, Relaxed);
    assert!(refused(back).contains("from the future"));
    assert!(
        refused(|world| fs::write(&world.setup.path, b"nonsense").unwrap())
            .contains("damaged from its beginning")
    );
    assert!(
        refused(|world| fs::write(&world.setup.path, b"").unwrap()).contains("damaged from its beginning")
    );
    let other = |world: &mut World| {
        let mut magic = *file::MAGIC;
        magic[7] += 1;
        let payload = [&magic[..], b"in some other way"].concat();
        let mut head = (payload.len() as u32).to_le_bytes().to_vec();
        head.extend(file::checksum_by(magic, &payload).to_le_bytes());
        head.extend(file::checksum_by(magic, &head).to_le_bytes());
        fs::write(&world.setup.path, [head, payload].concat()).unwrap();
    };
    assert!(refused(other).contains("of another version"));
}

#[test]
fn snapshot_writable_by_others_is_refused() {
    let refused = |change: fn(&Path)| {
        let mut world = World::new(Eviction::S3Fifo);
        world.set(A, "k", b"v");
        world.write();
        change(&world.setup.path);
        let error = world.restart().expect_err("it is refused").to_string();
        assert_eq!(world.cache.total().items, 0);
        error
    };
    let open = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o620)).unwrap();
    assert!(refused(open).contains("its mode is 0620"));
    let link = |path: &Path| {
        let other = path.with_extension("other");
        fs::rename(path, &other).unwrap();
        symlink(other, path).unwrap();
    };
    refused(link);
    let directory = |path: &Path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    };
    assert!(refused(directory).contains("no plain file"));
}

#[test]
fn existing_link_or_file_at_the_snapshots_path_is_replaced_and_not_written_into() {
    let world = World::new(Eviction::S3Fifo);
    world.set(A, "k", b"v");
    let (part, other) = (world.setup.beside(".part"), world.setup.beside(".other"));
    fs::write(&other, "precious").unwrap();
    symlink(&other, &part).unwrap();
    world.write();
    assert_eq!(fs::read(&other).unwrap(), b"precious");
    fs::write(&part, "").unwrap();
    fs::set_permissions(&part, Permissions::from_mode(0o666)).unwrap();
    world.write();
    assert_eq!(fs::metadata(&world.setup.path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn snapshot_left_by_a_killed_node_is_removed_unread() {
    let mut world = World::new(Eviction::S3Fifo);
    world.set(A, "k", b"v");
    world.write();
    let (read, part) = (world.setup.beside(".read"), world.setup.beside(".part"));
    fs::copy(&world.setup.path, &part).unwrap();
    fs::rename(&world.setup.path, &read).unwrap();
    assert_eq!(world.restart().unwrap(), None);
    try_out(&world.setup).unwrap();
    assert!(!read.exists() && !part.exists());
}

#[test]
fn unwritable_snapshot_path_is_an_error_at_start() {
    let mut world = World::new(Eviction::S3Fifo);
    world.setup.path = world.setup.path.with_file_name("none").join("snapshot");
    assert!(try_out(&world.setup).unwrap_err().to_string().contains("No such file"));
}

#[test]
fn foreign_file_at_the_snapshots_path_is_left_unchanged() {
    let world = World::new(Eviction::S3Fifo);
    let SnapshotSetup { path, .. } = &world.setup;
    let refused = || {
        let error = world.setup.try_out().expect_err("something is in the way").to_string();
        assert!(error.contains("choose another path"), "{error}");
        error
    };
    let left = || world.setup.try_out().expect("the node starts").expect("without snapshots");
    for beside in ["", ".part", ".read"] {
        let path = world.setup.beside(beside);
        let late = [vec![0; 65_600], vec![1]].concat();
        for precious in [&b"x"[..], &[b'x'; 100], &late] {
            fs::write(&path, precious).unwrap();
            let named = format!("cold start: {} is a file that is no snapshot", path.display());
            assert!(left().contains(&named));
            assert_eq!(fs::read(&path).unwrap(), precious);
        }
        fs::remove_file(&path).unwrap();
    }
    fs::create_dir(path).unwrap();
    assert!(refused().contains("which is a directory"));
    fs::remove_dir(path).unwrap();
    symlink("elsewhere", path).unwrap();
    assert!(refused().contains("which is a link"));
}

#[test]
fn file_that_a_node_wrote_is_accepted_at_the_snapshots_path_damaged_or_not() {
    let world = World::new(Eviction::S3Fifo);
    world.set(A, "k", b"v");
    world.write();
    let sound = fs::read(&world.setup.path).unwrap();
    let mut damaged = sound.clone();
    damaged[0] ^= 1;
    let mut of_another_version = sound.clone();
    of_another_version[file::HEAD_BYTES + 7] += 1;
    let mut without_magic = sound.clone();
    without_magic[file::HEAD_BYTES..file::HEAD_BYTES + 8].fill(0xff);
    // Files whose data did not reach the disk when the power failed.
    let (empty, zeros) = (Vec::new(), vec![0; 100_000]);
    for bytes in [sound, damaged, without_magic, of_another_version, empty, zeros] {
        for beside in ["", ".part", ".read"] {
            fs::write(world.setup.beside(beside), &bytes).unwrap();
        }
        assert_eq!(world.setup.try_out().unwrap(), None);
    }
}

#[test]
fn recently_used_items_of_a_snapshot_are_written_first_and_evicted_last() {
    for eviction in [Eviction::Lru, Eviction::S3Fifo] {
        let mut world = World::new(eviction);
        let value = vec![7; 1_000];
        // Each thousand is used later than the one before, over some blocks, and the second half is
        // looked up.
        for number in 0..4_000 {
            if number > 0 && number % 1_000 == 0 {
                world.pass(600);
            }
            let (key, access) = (format!("{number:05}"), world.access());
            world.set(A, &key, &value);
            if number >= 2_000 {
                world.cache.get(A, key.as_bytes(), &access, |_| ()).unwrap();
            }
        }
        world.pass(10);
        world.write();
        let bytes = fs::read(&world.setup.path).unwrap();
        let (mut file, mut block, mut numbers) = (&bytes[..], Vec::new(), Vec::<u32>::new());
        assert!(matches!(file::read_block(&mut file, &mut block), Ok(file::NextBlock::Block(_))));
        while let Ok(file::NextBlock::Block(_)) = file::read_block(&mut file, &mut block) {
            let mut records = &block[1..];
            while let Some(record) = Record::take(&mut records) {
                numbers.push(std::str::from_utf8(record.key).unwrap().parse().unwrap());
            }
        }
        assert_eq!(numbers.len(), 4_000, "{eviction:?}");
        assert!(numbers[..1_000].iter().all(|number| *number >= 3_000), "{eviction:?}");
        // A smaller cache keeps the warm items.
        for (budget_bytes, kept) in [(1_300_000, 3_000..4_000), (2_600_000, 2_000..4_000)] {
            let copy = world.setup.beside(".copy");
            fs::copy(&world.setup.path, &copy).unwrap();
            world.cache = cache(eviction, budget_bytes);
            read(&world.setup, &world.cache, &world.names, &world.clock, |_| ()).unwrap().unwrap();
            fs::rename(&copy, &world.setup.path).unwrap();
            let all = kept.len();
            let warm = kept.filter(|number| world.value(A, &format!("{number:05}")).is_some()).count();
            assert!(warm > all * 19 / 20, "{warm} of {all} under {eviction:?}");
        }
    }
}

#[test]
fn colder_parts_of_a_snapshot_are_written_in_one_scan_if_time_allows() {
    let (took, enough) = (Duration::from_secs(1), Duration::from_secs(3));
    assert_eq!(end_of_next(1, 4, took, enough), 4);
    assert_eq!(end_of_next(1, 4, took, enough - Duration::from_millis(1)), 2);
    assert_eq!(end_of_next(3, 4, took, Duration::ZERO), 4);
}

#[test]
fn snapshot_cut_by_the_time_limit_is_intact_and_marked_incomplete() {
    let mut world = World::new(Eviction::S3Fifo);
    world.setup.time_max = Duration::ZERO;
    world.set(A, "k", b"v");
    assert_eq!(world.write(), Written { items: 0, bytes: 0, whole: false });
    assert_eq!(world.restart().unwrap(), Some(Restored::default()));
}

#[test]
fn damaged_snapshot_loses_only_the_data_behind_the_damage() {
    let mut world = World::new(Eviction::Lru);
    let value = |number: u32| number.to_le_bytes().repeat(1_000);
    for number in 0..1_000 {
        world.set(A, &number.to_string(), &value(number));
    }
    world.write();
    let sound = fs::read(&world.setup.path).unwrap();
    let mut counts = Vec::new();
    for at in (0..sound.len()).step_by(sound.len() / 19).chain([sound.len() - 1]) {
        let mut damaged = sound.clone();
        damaged[at] ^= 0x10;
        for bytes in [&damaged[..], &sound[..at]] {
            fs::write(&world.setup.path, bytes).unwrap();
            if let Ok(Some(restored)) = world.restart() {
                counts.push(restored.items);
                assert!(restored.items < 1_000);
            }
            for number in 0..1_000 {
                let found = world.value(A, &number.to_string());
                assert!(found.is_none_or(|found| found == value(number)), "damage at {at}");
            }
        }
    }
    assert!(counts.iter().any(|count| *count > 600), "most is sound before damage near the end: {counts:?}");
}

proptest! {
    #[test]
    fn snapshot_record_round_trips_and_arbitrary_bytes_never_panic(
        partition: u16,
        bits in 0..256_u32,
        flags: u32,
        graced: bool,
        tags: u64,
        expires_unix_ms in prop::option::of(0..u64::MAX),
        key in prop::collection::vec(any::<u8>(), 0..300),
        value in prop::collection::vec(any::<u8>(), 0..300),
        noise in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let set = (0..7).filter(|bit| bits & 1 << bit != 0).map(|bit| Marks::of_caller(bit as u8));
        let marks = set.fold(if bits >= 128 { Marks::USED } else { Marks::NONE }, Marks::with);
        let tags = Tags::from_bits(tags);
        let record = Record { partition, marks, graced, flags, expires_unix_ms, tags, key: &key, value: &value };
        let mut block = Vec::new();
        prop_assert!(record.put(&mut block));
        let whole = block.clone();
        block.extend_from_slice(&noise);
        let mut rest = &block[..];
        prop_assert_eq!(Record::take(&mut rest), Some(record));
        prop_assert_eq!(rest, &noise[..]);
        while Record::take(&mut rest).is_some() {}
        for cut in 0..whole.len() {
            prop_assert_eq!(Record::take(&mut &whole[..cut]), None);
        }
    }
}
