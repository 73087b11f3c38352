//! `/v1/hot-keys`: the keys of each partition that are read most.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sherwood_model::{HotKey, PartitionId};
use sherwood_ports::http::{InQuery, Problem};

use super::aside::aside;
use super::partitions;
use crate::core::Core;
use crate::gateway::Form;

/// Keys of a partition that are listed by default.
const KEYS_LISTED: usize = 10;

/// The options of a request for hot keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// Name of the only partition to list; all where absent.
    partition: Option<String>,
    /// Most keys of a partition to list, by default 10.
    max: Option<usize>,
    /// The parameter `pretty`, which [`sherwood_ports::http::form`] reads.
    #[serde(rename = "pretty")]
    #[schemars(skip)]
    _pretty: Option<IgnoredAny>,
}

/// The keys of a partition that are read most, as the admin API shows them.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "HotKeys")]
pub(crate) struct HotKeysView {
    partition: String,
    backend: String,
    tenant: String,
    /// Sampled reads that the shares are of, those of earlier minutes at half their weight each.
    sampled_reads: u64,
    /// The keys, the one that is read most first.
    keys: Vec<HotKeyView>,
}

/// A key that is read often.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "HotKey")]
struct HotKeyView {
    /// The key without the prefix that selects its partition.
    key: String,
    /// The encoding of `key`: `utf8` or `base64`.
    encoding: &'static str,
    /// Part of the sampled reads that are of this key.
    share_ratio: f64,
    /// The part of `share_ratio` that may be another key's.
    error_ratio: f64,
}

/// Returns true for the paths whose answers contain keys of clients.
pub(crate) fn tells_keys(path: &str) -> bool {
    path == "/v1/hot-keys" || path.starts_with("/v1/keys/")
}

pub(crate) async fn show(
    State(core): State<Arc<Core>>,
    InQuery(asked): InQuery<Asked>,
) -> Result<Json<Vec<HotKeysView>>, Problem> {
    check_own_cache(&core)?;
    let listed: Vec<PartitionId> = match &asked.partition {
        None => (0..core.names.partitions().len()).map(PartitionId::from_index).collect(),
        Some(name) => vec![partitions::named(&core, name)?],
    };
    let max = asked.max.unwrap_or(KEYS_LISTED);
    aside(core, move |core| Json(listed.iter().map(|&of| view(core, of, max)).collect())).await
}

fn view(core: &Core, partition: PartitionId, max: usize) -> HotKeysView {
    let name = &core.names.partitions()[partition.index()];
    let (keys, sampled_reads) = core.hot_keys.top(partition, max);
    let key = |hot: &HotKey| {
        let (key, encoding) = Form::of(&hot.key).text();
        HotKeyView { key: key.into_owned(), encoding, share_ratio: hot.share, error_ratio: hot.error }
    };
    HotKeysView {
        partition: name.name.clone(),
        backend: core.names.backend(name.backend).to_owned(),
        tenant: core.names.tenant(name.tenant).to_owned(),
        sampled_reads,
        keys: keys.iter().map(key).collect(),
    }
}

/// Checks that the node itself has the cache whose keys are asked for.
///
/// # Errors
/// If it resizes other caches instead, through which it sees no keys.
pub(super) fn check_own_cache(core: &Core) -> Result<(), Problem> {
    match core.instances.is_empty() {
        true => Ok(()),
        false => Err(Problem::new(
            StatusCode::CONFLICT,
            "this node resizes other caches and sees none of their keys: ask those caches",
        )),
    }
}
