//! The guard's events and state, as text and as JSON.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use sherwood_model::Instant;
use sherwood_policy::{GuardStanding, Harm};
use sherwood_process::clock::millis;

use crate::names::Names;

/// Returns the event's text and data for a roll-back by the guard.
pub(super) fn tripped(names: &Names, now: Instant, harm: &Harm) -> (String, Value) {
    let Harm { tail, good_tail, good_at, blamed, until } = harm;
    let blamed: Vec<&str> = blamed.iter().map(|backend| names.backend(*backend)).collect();
    let ago = now.since(*good_at).as_secs();
    let freeze = until.since(now);
    let line = format!(
        "moves made requests slower ({:.1} ms, {:.1} ms before), since {} lost bytes: back to the allocation of {ago} s ago, \
         and nothing moves for {} s",
        millis(*tail),
        millis(*good_tail),
        blamed.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", "),
        freeze.as_secs(),
    );
    let data = json!({
        "tail_ms": millis(*tail),
        "good_tail_ms": millis(*good_tail),
        "good_ago_s": ago,
        "blamed": blamed,
        "freeze_s": freeze.as_secs_f64(),
    });
    (line, data)
}

/// Upper bound of backends named in an event's text.
const NAMED_MAX: usize = 6;

/// The state of the guard as the admin API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Guard")]
pub(crate) struct GuardView {
    /// Remaining time of a freeze; null without one.
    frozen_s: Option<f64>,
    /// The allocation that it would roll back to, by partition.
    good_bytes: BTreeMap<String, u64>,
    /// The SLO's percentile under that allocation.
    good_tail_ms: Option<f64>,
    /// Number of rollbacks.
    trips: u64,
    /// Time for which moves have looked harmful.
    worse_s: Option<f64>,
}

pub(super) fn described(names: &Names, now: Instant, standing: &GuardStanding) -> GuardView {
    let GuardStanding { trips, frozen_until, worse_since, good_bytes, good_tail } = standing;
    let bytes = names.partitions().iter().zip(good_bytes);
    let frozen = frozen_until.filter(|&until| until > now);
    GuardView {
        frozen_s: frozen.map(|until| until.since(now).as_secs_f64()),
        good_bytes: bytes.map(|(partition, &bytes)| (partition.name.clone(), bytes)).collect(),
        good_tail_ms: good_tail.map(millis),
        trips: *trips,
        worse_s: worse_since.map(|since| now.since(since).as_secs_f64()),
    }
}
