//! Metrics of the cluster: messages on the bus, peers, shared backends, loans of rates.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::samples::{Labels, counters, gauges};
use crate::cluster::Direction;
use crate::core::Core;

/// Encodes the metrics of a node in a cluster; nothing for a node alone.
pub(super) fn encode(core: &Core, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Some(cluster) = &core.cluster else { return Ok(()) };
    let label = |name: &'static str, value: &str| -> Labels { vec![(name, value.to_owned())] };
    let each = [("sent", Direction::Sent), ("received", Direction::Received)]
        .map(|(name, direction)| (label("direction", name), cluster.counters.read(direction)));
    let of = |value: fn(&crate::cluster::BusCounts) -> u64| {
        each.iter().map(|(label, counts)| (label.clone(), value(counts))).collect::<Vec<_>>()
    };
    counters(encoder, "bus_messages", "Messages on the bus", of(|counts| counts.messages))?;
    counters(encoder, "bus_bytes", "Bytes of messages on the bus", of(|counts| counts.bytes))?;
    let help = "Messages that were not sent for want of a connection, or could not be used";
    counters(encoder, "bus_dropped", help, of(|counts| counts.dropped))?;
    let (peers, _) = cluster.standings();
    let silent = peers.into_iter().map(|peer| {
        let silent_for = peer.silent_for.unwrap_or_else(|| core.clock.uptime());
        (label("node", &peer.node), silent_for.as_secs_f64())
    });
    let help = "Time since the latest message of a node, or since the start of this one";
    gauges(encoder, "peer_silence_seconds", help, silent.collect())?;
    let untrusted = cluster.shared_backends().filter_map(|backend| {
        Some((label("backend", core.names.backend(backend)), cluster.shared(backend)?.untrusted()))
    });
    let help = "Look-ups whose value could not be trusted, since changes of other nodes may be missing";
    counters(encoder, "shared_untrusted", help, untrusted.collect())?;
    let Some((rates, tenancy)) = core.rates.as_ref().zip(core.tenancy.as_ref()) else { return Ok(()) };
    let borrowed = tenancy.resources.iter().zip(rates.borrowed());
    let loans = borrowed.map(|(resource, per_s)| (label("resource", &resource.name), per_s));
    gauges(encoder, "rate_loans", "Units per second that other nodes lend to this one", loans.collect())
}
