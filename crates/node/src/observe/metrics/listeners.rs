//! Metrics of the listeners, by command and result, with one label for each listener.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use sherwood_model::batches::MissCounts;

use super::samples::{Labels, counters, gauges};
use crate::core::Core;
use sherwood_listener::{Count, Reading};

/// Counters of commands by result.
const COMMANDS: [(Count, [&str; 2]); 13] = [
    (Count::GetHits, ["get", "hit"]),
    (Count::GetMisses, ["get", "miss"]),
    (Count::TouchHits, ["touch", "hit"]),
    (Count::TouchMisses, ["touch", "miss"]),
    (Count::DeleteHits, ["delete", "hit"]),
    (Count::DeleteMisses, ["delete", "miss"]),
    (Count::IncrHits, ["incr", "hit"]),
    (Count::IncrMisses, ["incr", "miss"]),
    (Count::DecrHits, ["decr", "hit"]),
    (Count::DecrMisses, ["decr", "miss"]),
    (Count::CasHits, ["cas", "hit"]),
    (Count::CasMisses, ["cas", "miss"]),
    (Count::CasBadval, ["cas", "changed"]),
];

/// Counters whose only label is the listener.
const PLAIN: [(Count, &str, &str); 10] = [
    (Count::CmdSet, "listener_store_commands", "Storage commands whose value arrived whole"),
    (Count::TotalItems, "listener_stored_items", "Values stored by commands"),
    (Count::CmdFlush, "listener_flush_commands", "Commands that flush"),
    (Count::ProtocolErrors, "listener_protocol_errors", "Lines that were no command, or not a whole one"),
    (Count::Fetches, "listener_fetched_keys", "Keys fetched from their backend after a miss"),
    (Count::FetchErrors, "listener_fetch_errors", "Fetches that failed and were answered as misses"),
    (Count::AuthCmds, "listener_logins", "Names and passwords given, wrong ones included"),
    (Count::AuthErrors, "listener_failed_logins", "Names and passwords that were wrong"),
    (Count::BytesRead, "listener_read_bytes", "Bytes received"),
    (Count::BytesWritten, "listener_written_bytes", "Bytes sent"),
];

/// Writes the metrics of all listeners.
pub(super) fn encode(core: &Core, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let listeners = Listeners(core.listeners_seen());
    let open = listeners.each(|seen| seen.open as u64).into_iter();
    let open = open.map(|(labels, open)| (labels, open as f64)).collect();
    gauges(encoder, "listener_connections", "Connections that are open", open)?;
    let accepted = listeners.each(|seen| seen.total);
    counters(encoder, "listener_accepted_connections", "Connections, those turned away included", accepted)?;
    let rejected = listeners.each(|seen| seen.rejected);
    counters(encoder, "listener_rejected_connections", "Connections turned away at the limit", rejected)?;
    let commands = listeners.labelled(["command", "result"], &COMMANDS);
    counters(encoder, "listener_commands", "Keys of commands by what they met in the cache", commands)?;
    let refused = [(Count::StoreTooLarge, ["too_large"]), (Count::StoreNoMemory, ["no_memory"])];
    counters(
        encoder,
        "listener_refused_values",
        "Values refused for their size",
        listeners.labelled(["reason"], &refused),
    )?;
    let kicks = [(Count::IdleKicks, ["idle"]), (Count::SlowKicks, ["slow"])];
    let help = "Connections closed as nothing arrived (idle) or was read (slow)";
    counters(encoder, "listener_closed_connections", help, listeners.labelled(["reason"], &kicks))?;
    let MissCounts { refilled, unfilled, unwatched } = core.batches.counts();
    let ends = [("refilled", refilled), ("unfilled", unfilled), ("unwatched", unwatched)];
    let ends = ends.map(|(end, count)| (vec![("end", end.to_owned())], count)).to_vec();
    counters(encoder, "missed_keys", "Missed keys of look-aside clients, by their end", ends)?;
    PLAIN.into_iter().try_for_each(|(count, name, help)| {
        counters(encoder, name, help, listeners.each(|seen| seen.counts.get(count)))
    })
}

/// Addresses of listeners, and their counters at one moment.
struct Listeners(Vec<(String, Reading)>);

impl Listeners {
    fn each(&self, value: impl Fn(&Reading) -> u64) -> Vec<(Labels, u64)> {
        self.0.iter().map(|(address, seen)| (vec![("listener", address.clone())], value(seen))).collect()
    }

    /// Returns the counts of `rows` for every listener; `names` are the labels whose values `rows`
    /// has.
    fn labelled<const N: usize>(
        &self,
        names: [&'static str; N],
        rows: &[(Count, [&'static str; N])],
    ) -> Vec<(Labels, u64)> {
        let mut samples = Vec::with_capacity(rows.len() * self.0.len());
        for (count, values) in rows {
            for (mut labels, value) in self.each(|seen| seen.counts.get(*count)) {
                labels.extend(names.iter().zip(values).map(|(name, value)| (*name, (*value).to_owned())));
                samples.push((labels, value));
            }
        }
        samples
    }
}
