//! `/v1/invalidate`: taking many keys of a backend out of the cache, by name, by their beginning or by a tag.
//!
//! What is being fetched loses the right to fill first; whatever is fetched from then on was read later than the request was made. Then
//! the partitions are walked in steps, each of which holds one shard's lock for a few dozen items at a time, and between which others
//! have the processor. The answer is given when the walk is through, so who has it knows that nothing older is served.

use std::sync::Arc;
use std::thread;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use sherwood_cache::{Access, Item};
use sherwood_model::{BackendId, PartitionId};

use super::aside::in_turn;
use super::body::JsonBody;
use super::keys;
use super::reply::Problem;
use crate::core::Core;

/// Items looked at before others may have the processor: a few hundredths of a millisecond.
const STEP_PLACES: usize = 256;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    backend: String,
    keys: Option<Vec<String>>,
    prefix: Option<String>,
}

/// Which keys go.
#[derive(Debug)]
enum Which {
    Keys(Vec<String>),
    Prefix(String),
}

/// Answers `POST /v1/invalidate`.
pub(crate) async fn handle(
    State(core): State<Arc<Core>>,
    JsonBody(Asked { backend, keys, prefix }): JsonBody<Asked>,
) -> Result<Json<Value>, Problem> {
    let (id, _) = keys::place(&core, &backend)?;
    let which = match (keys, prefix) {
        (Some(keys), None) => Which::Keys(keys),
        (None, Some(prefix)) => Which::Prefix(prefix),
        _ => {
            let error = "reading the body: give one of `keys` and `prefix` beside `backend`";
            return Err(Problem::bad_request(error));
        }
    };
    let turns = Arc::clone(&core.walks);
    let removed = in_turn(turns, core, move |core| invalidate(core, id, &which)).await?;
    Ok(Json(json!({ "removed": removed })))
}

/// How many items were removed.
fn invalidate(core: &Core, backend: BackendId, which: &Which) -> u64 {
    let prefix = match which {
        Which::Keys(keys) => {
            let all = core
                .partitions_of(backend)
                .flat_map(|partition| keys.iter().map(move |key| (partition, key)));
            return all.filter(|(partition, key)| core.remove(*partition, key.as_bytes())).count() as u64;
        }
        Which::Prefix(prefix) => prefix.as_bytes(),
    };
    if let Some(driver) = core.backend(backend) {
        driver.doubt_all();
    }
    core.partitions_of(backend).map(|partition| walk(core, partition, |key, _| key.starts_with(prefix))).sum()
}

/// Removes the items of a partition that are `meant`; how many they were.
fn walk(core: &Core, partition: PartitionId, meant: impl Fn(&[u8], &Item<'_>) -> bool) -> u64 {
    let (mut cursor, mut removed) = (0, 0);
    let mut found: Vec<Vec<u8>> = Vec::new();
    loop {
        let access = Access::at(core.clock.now());
        cursor = core.cache.scan(partition, cursor, access.now, STEP_PLACES, |key, item| {
            if meant(key, &item) {
                found.push(key.to_vec());
            }
        });
        // What has been stored since under such a key is fresher than it has to be, and is only fetched again.
        for key in found.drain(..) {
            removed += u64::from(core.cache.remove(partition, &key, &access));
        }
        if cursor == 0 {
            return removed;
        }
        thread::yield_now();
    }
}
