//! `/v1/mrc/{partition}`: a partition's miss ratio at other sizes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use sherwood_cache::Curve;
use sherwood_ports::http::{InPath, Problem};

use super::partitions;
use crate::core::Core;

/// A partition's miss ratio curve, as the admin API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "MissRatioCurve")]
pub(crate) struct CurveView {
    partition: String,
    /// Present budget of the partition, bytes.
    allocated_bytes: u64,
    bytes: Vec<u64>,
    miss_ratio: Vec<f64>,
    accesses: u64,
    sampled_accesses: u64,
    /// Share of the keys that are sampled.
    sample: f64,
    unique: u64,
}

pub(crate) async fn show(
    State(core): State<Arc<Core>>,
    InPath(name): InPath<String>,
) -> Result<Json<CurveView>, Problem> {
    let partition = partitions::named(&core, &name)?;
    let Some(curve) = core.cache.miss_ratio_curve(partition) else {
        let error = "no curves are kept here; set [memory] mrc_sample = 0.03125 and start again";
        return Err(Problem::new(StatusCode::CONFLICT, error));
    };
    let Curve { bytes, miss_ratio, gets, sampled_gets, rate, keys } = curve;
    Ok(Json(CurveView {
        partition: name,
        allocated_bytes: core.usage(partition).budget_bytes,
        bytes,
        miss_ratio,
        accesses: gets.round() as u64,
        sampled_accesses: sampled_gets.round() as u64,
        sample: rate,
        unique: keys,
    }))
}
