//! `[[backend]]`: unambiguous names and prefixes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::spanned::Spanned;
use sherwood_cache::DeadlineOptions;
use sherwood_path::WriteTo;
use sherwood_store::{RESERVED_PREFIX, StoreOptions, is_reserved};

use super::{classes, dispatch, duplicates, freshness, shared, stores, tickets};
use crate::meaning::{BackendConfig, Freshness, Writes};
use crate::problem::{Origin, Problems};
use crate::raw::{RawBackend, RawFile, RawWrites};
use crate::scope::{Given, Setting, bytes, given, in_range, one_of};
use crate::setup::SpanRule;
use crate::units::{Span, quoted};

const WRITES_TO: Setting = Setting::new("[[backend]]", "writes.to", "\"all\"");
const SETTLE: Setting = Setting::new("[[backend]]", "writes.settle", "\"1s\"");

/// Maximum of backends of a node; each has a partition.
const BACKENDS_MAX: usize = super::partitions::LEVEL_MAX;

/// Maximum length of the name of a backend or a tenant, characters.
const NAME_CHARS_MAX: usize = 64;

/// Maximum length of a prefix, bytes; memcached's keys have at most 250.
pub(super) const PREFIX_BYTES_MAX: usize = 200;

/// Maximum of attributes of a backend's client spans.
const SPAN_ATTRIBUTES_MAX: usize = 16;

/// Maximum length of the name and of the value of such an attribute, bytes.
const SPAN_ATTRIBUTE_BYTES_MAX: usize = 256;

/// Backends in the order of the file; if it has none, the one backend of a plain cache.
pub(super) fn resolve(file: &RawFile, problems: &mut Problems<'_>) -> Vec<BackendConfig> {
    let has_cluster = file.cluster.is_some();
    let file = &file.backend;
    if file.is_empty() {
        return vec![plain()];
    }
    if let Some(first) = file.get(BACKENDS_MAX) {
        let message =
            format!("there are {} backends; at most {BACKENDS_MAX} are accepted: remove some", file.len());
        problems.add(&bytes(first), message);
    }
    let mut seen = EarlierBackends::default();
    file.iter().take(BACKENDS_MAX).map(|raw| backend(raw, has_cluster, &mut seen, problems)).collect()
}

/// Returns true if `name` is valid for a backend or a tenant: it appears in paths and metric
/// labels.
pub(super) fn is_name(name: &str) -> bool {
    let accepted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(accepted)
}

/// Names that [`is_name`] accepts, for messages.
pub(super) const NAMES: &str = "1 to 64 letters, digits, '.', '_' or '-'";

/// Names, prefixes and directories of backends earlier in the file, with their places.
#[derive(Default)]
struct EarlierBackends {
    names: BTreeMap<String, Origin>,
    prefixes: BTreeMap<String, Origin>,
    directories: BTreeMap<PathBuf, Origin>,
    /// Stores, and true for duplicates.
    stores: Vec<(StoreOptions, bool, Origin)>,
}

fn plain() -> BackendConfig {
    BackendConfig {
        name: "default".to_owned(),
        prefix: None,
        dispatch: sherwood_dispatch::Options::default(),
        deadlines: DeadlineOptions::ONE,
        freshness: Freshness::default(),
        writes: Writes::default(),
        shared: None,
        duplicates: None,
        replicas: Vec::new(),
        tickets: Vec::new(),
        spans: SpanRule::default(),
    }
}

fn backend(
    table: &Spanned<RawBackend>,
    has_cluster: bool,
    seen: &mut EarlierBackends,
    problems: &mut Problems<'_>,
) -> BackendConfig {
    let raw = table.get_ref();
    let stores = stores::resolve(raw, problems);
    for store in &stores {
        refuse_shared_directory(store, seen, problems);
    }
    refuse_shared_items(&stores, raw.duplicates.is_some() || raw.partitions.is_some(), seen, problems);
    let options = dispatch::resolve(raw, problems);
    dispatch::check_replicas(raw, &options, stores.len(), problems);
    BackendConfig {
        name: name(table, seen, problems),
        tickets: tickets::resolve(raw, &options, problems),
        prefix: prefix(raw, seen, problems),
        deadlines: classes::resolve(raw, problems),
        freshness: freshness::resolve(raw, problems),
        shared: shared::resolve(raw, options.timeout, has_cluster, problems),
        duplicates: duplicates::resolve(raw, &stores, problems),
        writes: writes(&raw.writes, stores.len(), problems),
        spans: spans(raw, stores.first().map(|store| &store.value), problems),
        replicas: stores.into_iter().map(|store| store.value).collect(),
        dispatch: options,
    }
}

/// Resolves the rule of client spans. Without attributes of its own, a backend has those of its
/// store.
fn spans(raw: &RawBackend, store: Option<&StoreOptions>, problems: &mut Problems<'_>) -> SpanRule {
    let Some(Given { value, origin }) = given(&raw.spans) else {
        return store.map(SpanRule::of_store).unwrap_or_default();
    };
    let fits = |text: &String| (1..=SPAN_ATTRIBUTE_BYTES_MAX).contains(&text.len());
    if !(1..=SPAN_ATTRIBUTES_MAX).contains(&value.len()) {
        let message = format!(
            "[[backend]] spans has {} attributes; it must have 1 to {SPAN_ATTRIBUTES_MAX}: set spans = {{ \"server.address\" = \
             \"db1\" }}",
            value.len()
        );
        problems.add(&origin, message);
    } else if let Some((name, text)) = value.iter().find(|(name, text)| !fits(name) || !fits(text)) {
        let (name, text) = (quoted(name), quoted(text));
        let message = format!(
            "[[backend]] spans has \"{name}\" = \"{text}\"; names and values must have 1 to {SPAN_ATTRIBUTE_BYTES_MAX} bytes: \
             shorten it"
        );
        problems.add(&origin, message);
    }
    SpanRule::of(value)
}

/// Resolves the replicas that are written to and their settle time. `settle` has no default for
/// replicas that are not written to: only the operator knows their replication delay, and too short
/// a value would let old values be cached.
fn writes(raw: &RawWrites, replicas: usize, problems: &mut Problems<'_>) -> Writes {
    let Writes { to: _, settle } = Writes::default();
    let words = [("all", WriteTo::All), ("first", WriteTo::First)];
    let longest = Span(Duration::from_secs(3_600));
    let to = one_of(problems, WRITES_TO, given(&raw.to), &words);
    if let (WriteTo::First, Some(Given { origin, .. }), None) = (to, given(&raw.to), &raw.settle)
        && replicas > 1
    {
        let message = "[[backend]] writes.to is \"first\" and writes.settle is missing: how late the other replicas may copy; \
                       set settle = \"1s\", or \"0s\" if they never are";
        problems.add(&origin, message);
    }
    Writes {
        to,
        settle: in_range(problems, SETTLE, given(&raw.settle), Span(settle), Span(settle)..=longest).0,
    }
}

fn name(table: &Spanned<RawBackend>, seen: &mut EarlierBackends, problems: &mut Problems<'_>) -> String {
    let Some(Given { value, origin }) = given(&table.get_ref().name) else {
        problems.add(&bytes(table), "[[backend]] has no name; it must have one: set name = \"catalog\"");
        return String::new();
    };
    let shown = quoted(&value);
    if !is_name(&value) {
        problems.add(
            &origin,
            format!("[[backend]] name is \"{shown}\"; it must be {NAMES}: set name = \"catalog\""),
        );
    } else if let Some(first) = seen.names.get(&value) {
        let first = problems.reference(first);
        let message =
            format!("[[backend]] name is \"{shown}\" as on {first}; names must be unique: rename one");
        problems.add(&origin, message);
    } else {
        seen.names.insert(value.clone(), origin);
    }
    value
}

fn prefix(raw: &RawBackend, seen: &mut EarlierBackends, problems: &mut Problems<'_>) -> Option<String> {
    let Given { value, origin } = given(&raw.prefix)?;
    let shown = quoted(&value);
    if value.len() > PREFIX_BYTES_MAX || value.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        let accepted = format!("at most {PREFIX_BYTES_MAX} bytes without blanks or control characters");
        problems.add(
            &origin,
            format!("[[backend]] prefix is \"{shown}\"; it must be {accepted}: set prefix = \"catalog/\""),
        );
    } else if let Some((other, first)) = seen.prefixes.iter().find(|(other, _)| overlap(other, &value)) {
        let first = problems.reference(first);
        let message = format!(
            "[[backend]] prefix is \"{shown}\" while {first} has \"{}\"; none may start with another, or a key would \
             belong to two backends: change one",
            quoted(other)
        );
        problems.add(&origin, message);
    } else {
        refuse_reserved("prefix", &value, &origin, problems);
        seen.prefixes.insert(value.clone(), origin);
    }
    Some(value)
}

/// Refuses a prefix of keys that are reserved.
pub(super) fn refuse_reserved(key: &str, value: &str, origin: &Origin, problems: &mut Problems<'_>) {
    if is_reserved(value.as_bytes()) {
        let shown = quoted(value);
        let message = format!(
            "[[backend]] {key} is \"{shown}\"; keys that begin with \"{RESERVED_PREFIX}\" are reserved for the node's own \
             records: choose another one"
        );
        problems.add(origin, message);
    }
}

/// Returns true if a key can begin with both prefixes. The empty prefix gets the keys without any
/// other prefix, so it only overlaps itself.
pub(super) fn overlap(a: &str, b: &str) -> bool {
    if a.is_empty() || b.is_empty() { a == b } else { a.starts_with(b) || b.starts_with(a) }
}

/// Refuses duplicates that share items with another backend: a node removes what a duplicate has
/// too much.
fn refuse_shared_items(
    stores: &[Given<StoreOptions>],
    are_duplicates: bool,
    seen: &mut EarlierBackends,
    problems: &mut Problems<'_>,
) {
    for store in stores {
        let shares = |(earlier, is_duplicate, _): &&(StoreOptions, bool, Origin)| {
            (are_duplicates || *is_duplicate) && earlier.shares_items(&store.value)
        };
        if let Some((.., first)) = seen.stores.iter().find(shares) {
            let first = problems.reference(first);
            let message = format!(
                "[[backend]] has a store with the same items as on {first}, and one of them is a duplicate, from which the node \
                 removes items: choose another server, or key_prefixes of which none begins with the other"
            );
            problems.add(&store.origin, message);
        }
    }
    let own = stores.iter().map(|store| (store.value.clone(), are_duplicates, store.origin.clone()));
    seen.stores.extend(own);
}

/// Refuses two key-value stores with one directory: a store locks its directory.
fn refuse_shared_directory(
    store: &Given<StoreOptions>,
    seen: &mut EarlierBackends,
    problems: &mut Problems<'_>,
) {
    let StoreOptions::Kv(kv) = &store.value else { return };
    if let Some(first) = seen.directories.get(&kv.path) {
        let (shown, first) = (quoted(&kv.path.to_string_lossy()), problems.reference(first));
        let message = format!(
            "[[backend]] store.path is \"{shown}\" as on {first}; each kv store needs its own: change one"
        );
        problems.add(&store.origin, message);
    } else {
        seen.directories.insert(kv.path.clone(), store.origin.clone());
    }
}
