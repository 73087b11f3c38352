//! `duplicates` of a `[[backend]]`: a store whose writes the node replicates in order.

use std::path::PathBuf;

use sherwood_path::{Acknowledge, Consistency, DUPLICATES_MAX};
use sherwood_store::StoreOptions;

use crate::meaning::Duplicates;
use crate::problem::{Origin, Problems};
use crate::raw::{Key, RawBackend, RawLog, RawWrites};
use crate::scope::{Given, Setting, bytes, given, in_range, one_of};
use crate::units::ByteSize;

const PARTITIONS: Setting = Setting::new("[[backend]]", "partitions", "1");
const DUPLICATES: Setting = Setting::new("[[backend]]", "duplicates", "2");
const CONSISTENCY: Setting = Setting::new("[[backend]]", "consistency", "\"read-your-writes\"");
const ACK: Setting = Setting::new("[[backend]]", "ack", "\"all\"");
const ENTRIES: Setting = Setting::new("[[backend]]", "log.entries", "100000");
const BYTES: Setting = Setting::new("[[backend]]", "log.bytes", "\"64MiB\"");

/// Maximum of partitions: each has a replica at least.
const PARTITIONS_MAX: u16 = 64;
/// Maximum of the writes in a log. Chosen: a few GiB of memory beside keys and values.
const ENTRIES_MAX: u32 = 10_000_000;

const CONSISTENCIES: [(&str, Consistency); 3] = [
    ("read-your-writes", Consistency::ReadYourWrites),
    ("eventual", Consistency::Eventual),
    ("causal", Consistency::Causal),
];

const ACKS: [(&str, Acknowledge); 3] =
    [("all", Acknowledge::All), ("majority", Acknowledge::Majority), ("first", Acknowledge::First)];

/// Resolves the duplicates of a backend with these stores; none if it has none.
pub(super) fn resolve(
    raw: &RawBackend,
    stores: &[Given<StoreOptions>],
    problems: &mut Problems<'_>,
) -> Option<Duplicates> {
    let Some(table) = &raw.duplicates else {
        refuse_alone(raw, problems);
        return None;
    };
    let origin = bytes(table);
    let RawLog { entries, bytes: log_bytes, path } = &raw.log;
    let (default, accepted) = (ByteSize(64 << 20), ByteSize(1 << 10)..=ByteSize(64 << 30));
    let resolved = Duplicates {
        partitions: in_range(problems, PARTITIONS, given(&raw.partitions), 1, 1..=PARTITIONS_MAX),
        duplicates: in_range(problems, DUPLICATES, given(&raw.duplicates), 1, 1..=DUPLICATES_MAX as u8),
        consistency: one_of(problems, CONSISTENCY, given(&raw.consistency), &CONSISTENCIES),
        acknowledge: one_of(problems, ACK, given(&raw.ack), &ACKS),
        entries_max: in_range(problems, ENTRIES, given(entries), 100_000, 1..=ENTRIES_MAX),
        bytes_max: in_range(problems, BYTES, given(log_bytes), default, accepted).0,
        path: directory(given(path), problems),
    };
    refuse_beside(raw, &origin, problems);
    check_stores(&resolved, stores, &origin, problems);
    Some(resolved)
}

/// Returns the directory of the logs, if one is given; an empty name is a problem.
fn directory(path: Option<Given<String>>, problems: &mut Problems<'_>) -> Option<PathBuf> {
    let Given { value, origin } = path?;
    if value.is_empty() {
        let message = "[[backend]] log.path is empty; it must name a directory of this backend alone: set log.path = \
                       \"/var/lib/sherwood/a\", or remove it";
        problems.add(&origin, message);
    }
    Some(value.into())
}

/// Refuses keys that belong to `duplicates` where that is missing.
fn refuse_alone(raw: &RawBackend, problems: &mut Problems<'_>) {
    fn place<T>(key: &Key<T>) -> Option<Origin> {
        key.as_ref().map(bytes)
    }
    let RawLog { entries, bytes: log_bytes, path } = &raw.log;
    let keys = [
        ("partitions", place(&raw.partitions)),
        ("consistency", place(&raw.consistency)),
        ("ack", place(&raw.ack)),
        ("log", place(entries).or_else(|| place(log_bytes)).or_else(|| place(path))),
    ];
    for (key, origin) in keys {
        let Some(origin) = origin else { continue };
        let message = format!(
            "[[backend]] {key} is for a store that the node replicates, and duplicates is missing: set duplicates = 2, or \
             remove {key}"
        );
        problems.add(&origin, message);
    }
}

/// Refuses other ways of writing to replicas, and of sharing them, beside `duplicates`.
fn refuse_beside(raw: &RawBackend, origin: &Origin, problems: &mut Problems<'_>) {
    let RawWrites { to, settle } = &raw.writes;
    let beside = [
        ("writes", to.is_some() || settle.is_some(), "the logs of its partitions order its writes"),
        ("shared", raw.shared.is_some(), "one node orders its writes, and others would not know of them"),
        ("store", raw.store.is_some(), "the duplicates are the replicas"),
    ];
    for (key, is_given, why) in beside {
        if is_given {
            let message = format!("[[backend]] has duplicates and {key}; {why}: remove one of them");
            problems.add(origin, message);
        }
    }
}

/// Refuses replicas that are not as many as the duplicates, cannot be such, or are there twice.
fn check_stores(
    duplicates: &Duplicates,
    stores: &[Given<StoreOptions>],
    origin: &Origin,
    problems: &mut Problems<'_>,
) {
    let &Duplicates { partitions, duplicates, .. } = duplicates;
    let wanted = usize::from(partitions) * usize::from(duplicates);
    if stores.len() != wanted {
        let message = format!(
            "[[backend]] has {} replicas, {partitions} partitions and {duplicates} duplicates; it must have {partitions} \
             times {duplicates} replicas: list {wanted}, or change partitions and duplicates",
            stores.len(),
        );
        problems.add(origin, message);
    }
    for (at, store) in stores.iter().enumerate() {
        if !store.value.can_be_duplicate() {
            let message = format!(
                "[[backend]] replicas has a store of kind \"{}\"; a duplicate must be of kind \"memcached\", \"redis\", \
                 \"zookeeper\" or \"cassandra\": change it, or remove duplicates",
                store.value.kind()
            );
            problems.add(&store.origin, message);
        } else if let Some(first) = stores[..at].iter().find(|first| first.value.shares_items(&store.value)) {
            let first = problems.reference(&first.origin);
            let message = format!(
                "[[backend]] replicas has the same server as on {first}; each duplicate must be another one, or have a \
                 key_prefix with which the other's does not begin: change one"
            );
            problems.add(&store.origin, message);
        }
    }
}
