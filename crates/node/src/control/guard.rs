//! The guard's events and state, as text and as JSON.

use serde_json::{Map, Value, json};
use sherwood_model::Instant;
use sherwood_policy::{GuardStanding, Harm};

use crate::clock::millis;
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
pub(super) fn described(names: &Names, now: Instant, standing: &GuardStanding) -> Value {
    let GuardStanding { trips, frozen_until, worse_since, good_bytes, good_tail } = standing;
    let bytes = names.partitions().iter().zip(good_bytes);
    let bytes: Map<_, _> = bytes.map(|(partition, &bytes)| (partition.name.clone(), bytes.into())).collect();
    let frozen = frozen_until.filter(|&until| until > now);
    json!({
        "trips": trips,
        "frozen_s": frozen.map(|until| until.since(now).as_secs_f64()),
        "worse_s": worse_since.map(|since| now.since(since).as_secs_f64()),
        "good_tail_ms": good_tail.map(millis),
        "good_bytes": bytes,
    })
}
