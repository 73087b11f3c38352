//! `/v1/keys`: taking one key out of the cache.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;

use super::reply::Problem;
use crate::core::Core;

/// Removes a key from every tenant's partition of a backend. 204 whether it was there or not: afterwards it is not, and no
/// fetch that was under way brings it back.
pub(crate) async fn remove(
    State(core): State<Arc<Core>>,
    Path((backend, key)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let Some(id) = core.names.backend_id(&backend) else {
        return Err(Problem::not_found("backend", &backend, core.names.backends()));
    };
    for (index, partition) in core.names.partitions().iter().enumerate() {
        if partition.backend == id {
            core.remove(sherwood_model::PartitionId::from_index(index), key.as_bytes());
        }
    }
    Ok(StatusCode::NO_CONTENT)
}
