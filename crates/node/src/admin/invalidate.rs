//! `/v1/invalidate`: removes many keys of a backend from the cache, by name, prefix or tag.
//!
//! The fills of matching fetches in flight are fenced first, so whatever fills the cache from then
//! on was read after the request arrived. Then the partitions are walked in steps. Each step holds
//! one shard's lock for a few dozen items at a time, and the task yields between steps. The reply
//! is sent after the walk: from then on no older value is served.

use std::sync::Arc;
use std::thread;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sherwood_cache::{Access, AccessFlags, Item, ItemKind};
use sherwood_model::{BackendId, PartitionId};
use sherwood_path::{ChangedKeys, Invalidation};
use sherwood_ports::http::{JsonBody, Problem};

use super::aside::in_turn;
use super::keys;
use crate::core::Core;

/// Items visited by a walk through the cache before its task yields: a few hundredths of a
/// millisecond.
const STEP_PLACES: usize = 256;

/// The keys of a backend to remove: by name, prefix or tag, one of the three.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Invalidation")]
pub(crate) struct Asked {
    backend: String,
    keys: Option<Vec<String>>,
    prefix: Option<String>,
    tag: Option<String>,
}

/// The result of an invalidation.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Invalidated")]
pub(crate) struct RemovedView {
    /// Number of items removed.
    removed: u64,
}

/// Selection of the items that a walk through the cache removes: by a key's prefix or a tag.
#[derive(Debug)]
pub(crate) enum Selection {
    Prefix(Box<[u8]>),
    Tag(Box<[u8]>),
}

impl Selection {
    /// Fences the selected keys of a backend and removes their items from all its partitions.
    /// Returns the number of items removed.
    pub(crate) fn remove(&self, core: &Core, backend: BackendId) -> u64 {
        walk_all(core, backend, self)
    }

    /// Returns the keys as other nodes are told them.
    fn announced(&self) -> ChangedKeys<Bytes> {
        match self {
            Self::Prefix(prefix) => ChangedKeys::Prefix(prefix.clone()),
            Self::Tag(tag) => ChangedKeys::Tag(tag.clone()),
        }
    }

    /// Returns whether the selection includes `item`. A cached "not found" matches every tag,
    /// because the tags that a value would have are unknown.
    fn means(&self, key: &[u8], item: &Item<'_>) -> bool {
        match self {
            Self::Prefix(prefix) => key.starts_with(prefix),
            Self::Tag(tag) => item.kind == ItemKind::Absent || item.tags.may_hold(tag),
        }
    }

    /// Returns the same selection as an input for the backend's state machine.
    fn invalidation(&self) -> Invalidation<'_, Bytes> {
        match self {
            Self::Prefix(prefix) => Invalidation::Prefix(prefix),
            Self::Tag(_) => Invalidation::Tag,
        }
    }
}

/// Answers `POST /v1/invalidate`.
pub(crate) async fn handle(
    State(core): State<Arc<Core>>,
    JsonBody(Asked { backend, keys, prefix, tag }): JsonBody<Asked>,
) -> Result<Json<RemovedView>, Problem> {
    let (id, _) = keys::backend_named(&core, &backend)?;
    if core.refuses_changes(id) {
        let error = "the other nodes of the cluster do not know this process yet; nothing was removed, \
                     try again later, or ask another node";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, error));
    }
    let turns = Arc::clone(&core.walks);
    let removed = match (keys, prefix, tag) {
        (Some(keys), None, None) => in_turn(turns, core, move |core| remove(core, id, &keys)).await?,
        (None, Some(prefix), None) => {
            in_turn(turns, core, move |core| select(core, id, &Selection::Prefix(prefix.into_bytes().into())))
                .await?
        }
        (None, None, Some(tag)) => {
            in_turn(turns, core, move |core| select(core, id, &Selection::Tag(tag.into_bytes().into())))
                .await?
        }
        _ => {
            let error = "reading the body: give one of `keys`, `prefix` and `tag` beside `backend`";
            return Err(Problem::bad_request(error));
        }
    };
    Ok(Json(RemovedView { removed }))
}

/// Removes selected keys of a backend, here and in the other nodes. Returns the number of items
/// removed here.
fn select(core: &Core, backend: BackendId, selection: &Selection) -> u64 {
    core.announce(backend, selection.announced());
    selection.remove(core, backend)
}

/// Removes keys of a backend by name. Returns the number of items removed.
fn remove(core: &Core, backend: BackendId, keys: &[String]) -> u64 {
    keys.iter().map(|key| core.remove_for_all(backend, key.as_bytes())).sum()
}

/// Fences the selected keys of a backend and removes their items from all its partitions. Returns
/// the number of items removed.
fn walk_all(core: &Core, backend: BackendId, which: &Selection) -> u64 {
    let driver = core.backend(backend);
    if let Some(driver) = driver {
        driver.invalidate(which.invalidation());
    }
    let items: u64 = core.partitions_of(backend).map(|partition| core.cache.usage(partition).items).sum();
    let removed = walk(core, backend, which);
    // Losing most of a backend's items has the effect of a flush, whatever selected them.
    if removed > items / 2 {
        core.losses.note(core.clock.now());
        driver.into_iter().for_each(|driver| driver.note_cold());
    }
    removed
}

/// Walks the cache and removes a backend's selected items, including those that ordinary look-ups
/// do not see (stale items, cached absences). Returns their number.
fn walk(core: &Core, backend: BackendId, which: &Selection) -> u64 {
    let flags = AccessFlags::SEE_STALE.with(AccessFlags::SEE_ABSENT).with(AccessFlags::SEE_PLACEHOLDERS);
    let is_its = |partition: PartitionId| core.names.partitions()[partition.index()].backend == backend;
    let (mut cursor, mut removed) = (0, 0);
    let mut found: Vec<(PartitionId, Vec<u8>)> = Vec::new();
    loop {
        let access = Access { flags, ..Access::at(core.clock.now()) };
        cursor = core.cache.scan_all(cursor, &access, STEP_PLACES, |partition, key, item| {
            if is_its(partition) && which.means(key, &item) {
                found.push((partition, key.to_vec()));
            }
        });
        // A value stored under such a key since then is newer than required; removing it costs one
        // more fetch.
        for (partition, key) in found.drain(..) {
            removed += u64::from(core.cache.remove(partition, &key, &access));
        }
        if cursor == 0 {
            return removed;
        }
        thread::yield_now();
    }
}
