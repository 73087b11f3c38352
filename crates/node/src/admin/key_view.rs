//! `GET /v1/keys/{backend}/{key}`: what the cache holds of one key.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sherwood_cache::{Access, AccessFlags, Item, ItemKind, OUTDATED, Use, Value};
use sherwood_model::{DeadlineClass, Instant, PartitionId};
use sherwood_ports::http::{InPath, InQuery, Problem};
use sherwood_process::clock::millis;

use super::aside::aside;
use super::hot_keys::check_own_cache;
use super::keys::{backend_named, check, no_tenant};
use crate::core::Core;
use crate::gateway::Form;

/// Bytes of a value that are shown at most.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// An access that sees every item and is no use of it.
const ANY: AccessFlags = AccessFlags::SEE_STALE
    .with(AccessFlags::SEE_ABSENT)
    .with(AccessFlags::SEE_PLACEHOLDERS)
    .with(AccessFlags::KEEP_RECENCY);

/// The options of a request for a key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// Name of the only tenant whose partition is looked at; all where absent.
    tenant: Option<String>,
    /// True to show the value, too, or its first 64 KiB; of one partition only.
    #[serde(default)]
    value: bool,
    /// The parameter `pretty`, which [`sherwood_ports::http::form`] reads.
    #[serde(rename = "pretty")]
    #[schemars(skip)]
    _pretty: Option<IgnoredAny>,
}

/// A key in the cache, as the admin API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Key")]
pub(crate) struct KeyView {
    backend: String,
    key: String,
    /// Number of partitions that were looked at.
    partitions: usize,
    /// The partitions that have it.
    places: Vec<PlaceView>,
}

/// An item of a key, as the admin API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KeyPlace")]
struct PlaceView {
    partition: String,
    tenant: String,
    /// `fresh`, `stale`, `absent` if the backend is known to have no value, or `placeholder` if a
    /// client was told to fill it.
    #[schemars(extend("enum" = ["fresh", "stale", "absent", "placeholder"]))]
    state: &'static str,
    value_bytes: u64,
    /// The client's flags.
    flags: u32,
    /// Time since the item was stored, or under strict LRU since it was last used.
    age_ms: f64,
    /// Time until it expires, or becomes stale: negative if it has; null if it never does.
    expires_in_ms: Option<f64>,
    /// Upper bound of the deadlines of its class; null where there is only one.
    class_upto_ms: Option<f64>,
    /// The value, if it was asked for, or its first 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// The encoding of `value`: `utf8` or `base64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
}

/// The properties of an item that are read under its shard's lock.
struct Seen {
    state: &'static str,
    value_bytes: u64,
    flags: u32,
    last_use: Use,
    expires: Option<Instant>,
    class: DeadlineClass,
    /// The first bytes of the value, if it was asked for.
    value: Option<Vec<u8>>,
}

pub(crate) async fn show(
    State(core): State<Arc<Core>>,
    InPath((name, key)): InPath<(String, String)>,
    InQuery(asked): InQuery<Asked>,
) -> Result<Json<KeyView>, Problem> {
    check_own_cache(&core)?;
    let (backend, _) = backend_named(&core, &name)?;
    check(&key)?;
    let partitions: Vec<PartitionId> = match &asked.tenant {
        None => core.partitions_of(backend).collect(),
        Some(tenant) => {
            let id = core.names.tenant_id(tenant).ok_or_else(|| no_tenant(&core, Some(tenant)))?;
            core.partition(id, backend).into_iter().collect()
        }
    };
    if asked.value && partitions.len() > 1 {
        let error = format!(
            "backend `{name}` has {} partitions, and a value is shown of one: add ?tenant=",
            partitions.len()
        );
        return Err(Problem::unprocessable(error));
    }
    aside(core, move |core| {
        let place = |&partition: &PartitionId| {
            let now = core.clock.now();
            let seen = seen(core, partition, (key.as_bytes(), now), asked.value)?;
            Some(view(core, partition, now, seen))
        };
        let places = partitions.iter().filter_map(place).collect();
        Json(KeyView { backend: name, partitions: partitions.len(), places, key })
    })
    .await
}

fn seen(core: &Core, partition: PartitionId, (key, now): (&[u8], Instant), with_value: bool) -> Option<Seen> {
    let access = Access { flags: ANY, ..Access::at(now) };
    core.cache.inspect(partition, key, &access, |item, class| Seen {
        state: state(&item, now),
        value_bytes: item.value.len() as u64,
        flags: item.flags,
        last_use: item.last_use,
        expires: item.expires,
        class,
        value: match item.value {
            Value::Bytes(value) if with_value => Some(value[..value.len().min(VALUE_BYTES_MAX)].to_vec()),
            _ => None,
        },
    })
}

fn state(item: &Item<'_>, now: Instant) -> &'static str {
    match item.kind {
        ItemKind::Absent => "absent",
        ItemKind::Placeholder => "placeholder",
        _ if item.stale_since(now).is_some() || item.marks.contains(OUTDATED) => "stale",
        ItemKind::Plain | ItemKind::Graced => "fresh",
    }
}

fn view(core: &Core, partition: PartitionId, now: Instant, seen: Seen) -> PlaceView {
    let name = &core.names.partitions()[partition.index()];
    let left = |expires: Instant| match expires >= now {
        true => millis(expires - now),
        false => -millis(now - expires),
    };
    let text = seen.value.as_deref().map(|value| Form::of(value).text());
    let (value, encoding) = text.map(|(text, encoding)| (text.into_owned(), encoding)).unzip();
    PlaceView {
        partition: name.name.clone(),
        tenant: core.names.tenant(name.tenant).to_owned(),
        state: seen.state,
        value_bytes: seen.value_bytes,
        flags: seen.flags,
        age_ms: millis(core.cache.since(seen.last_use, now)),
        expires_in_ms: seen.expires.map(left),
        class_upto_ms: core.cache.class_upto(partition, seen.class).map(millis),
        value,
        encoding,
    }
}
