//! Metrics of attempts, their copies, and tokens.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use sherwood_dispatch::{AttemptKind, AttemptOutcome};

use super::samples::{BackendStats, Labels, amounts, counters, gauges};
use crate::core::Core;

/// Encodes how attempts ended, what copies cost, and the tokens of backends that have some.
pub(super) fn encode(
    core: &Core,
    stats: &[BackendStats],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let label = |name: &str| -> Labels { vec![("backend", name.to_owned())] };
    let mut ended: Vec<(Labels, u64)> = Vec::new();
    for (name, stats) in stats {
        for kind in AttemptKind::ALL {
            for outcome in AttemptOutcome::ALL {
                let words = [("kind", kind.name().to_owned()), ("outcome", outcome.name().to_owned())];
                let labels = label(name).into_iter().chain(words).collect();
                ended.push((labels, stats.counters.attempts.get(kind, outcome)));
            }
        }
    }
    counters(encoder, "attempts", "Attempts that have ended, by why they were made and how", ended)?;
    let each = |value: fn(&sherwood_dispatch::Stats) -> f64| -> Vec<(Labels, f64)> {
        stats.iter().map(|(name, stats)| (label(name), value(stats))).collect()
    };
    let help = "Time of replicas for attempts whose answer was not needed, another one having come";
    amounts(encoder, "attempts_wasted_seconds", help, each(|s| s.counters.wasted.as_secs_f64()))?;
    let help = "That time as a share of the time of needed attempts, over the last minute or two";
    gauges(encoder, "extra_load_ratio", help, each(|stats| stats.extra_load_ratio))?;
    let help = "Attempts that a fetch has at once";
    gauges(encoder, "replication_factor", help, each(|stats| stats.factor.into()))?;
    let (mut free, mut waiting) = (Vec::new(), Vec::new());
    for (backend, (name, stats)) in core.backends.iter().flatten().zip(stats) {
        let Some(tokens) = backend.tokens else { continue };
        let of_replica = |in_flight: u32| u64::from(tokens.saturating_sub(in_flight));
        let left: u64 = stats.replicas.iter().map(|replica| of_replica(replica.in_flight_calls)).sum();
        free.push((label(name), left as f64));
        waiting.push((label(name), stats.calls_for_any_replica.into()));
    }
    gauges(encoder, "tokens_free", "Tokens of all replicas that no call or lease holds", free)?;
    gauges(encoder, "tokens_waiting", "Attempts and leases that wait for a token", waiting)
}
