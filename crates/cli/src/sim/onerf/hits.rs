//! Latencies of hits, which the simulator assumes and a node measures; read from the output of
//! `sherwood demo --json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use sherwood_model::misread;

use crate::exit::Failure;

/// A live run of the demo with one policy.
#[derive(Clone, Debug, Deserialize)]
pub(in crate::sim) struct LiveRun {
    pub(in crate::sim) policy: String,
    /// P99 of the latency of hits by backend.
    pub(in crate::sim) hit_p99_ms: BTreeMap<String, f64>,
}

/// The parts of the demo's JSON document that are used.
#[derive(Deserialize)]
struct Document {
    runs: Vec<LiveRun>,
}

/// Reads the live runs of the document at `path`; there is at least one.
pub(in crate::sim) fn read(path: &Path) -> Result<Vec<LiveRun>, Failure> {
    let refused = |why: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "reading latencies of hits from {}: {why}; give what `sherwood demo --json` printed",
            path.display()
        ))
    };
    let text = sherwood_textfile::input(path).map_err(|error| refused(&format_args!("it {error}")))?;
    let Document { runs } =
        serde_json::from_str(&text).map_err(|error| refused(&misread::json_file(&error)))?;
    let sound = |ms: &f64| ms.is_finite() && *ms >= 0.0;
    if runs.is_empty() || !runs.iter().all(|run| run.hit_p99_ms.values().all(sound)) {
        return Err(refused(&"it needs a run, with latencies of 0 or more"));
    }
    Ok(runs)
}
