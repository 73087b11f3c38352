//! Metrics of replicated stores: their logs, duplicates and managers.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use sherwood_control::StoreStanding;
use sherwood_dispatch::DuplicateState;
use sherwood_path::{DuplicateStanding, LogsStanding};

use super::samples::{Labels, counters, gauges};
use crate::core::Core;

/// Encodes the metrics of all replicated stores; nothing without any.
pub(super) fn encode(core: &Core, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let logs = |name: &String| {
        let logs = core.backend(core.names.backend_id(name)?)?.logs()?;
        Some((vec![("backend", name.clone())], logs))
    };
    let stores: Vec<(Labels, LogsStanding)> = core.names.backends().iter().filter_map(logs).collect();
    if stores.is_empty() {
        return Ok(());
    }
    let of = |value: fn(&LogsStanding) -> u64| -> Vec<(Labels, u64)> {
        stores.iter().map(|(labels, logs)| (labels.clone(), value(logs))).collect()
    };
    let of_each = |value: fn(&DuplicateStanding) -> f64| -> Vec<(Labels, f64)> {
        let duplicates = stores.iter().flat_map(|(labels, logs)| {
            let present = logs.duplicates.iter().filter(|one| one.state != DuplicateState::Leaving);
            present.map(|one| (labels_of(labels, one), value(one)))
        });
        duplicates.collect()
    };
    let help = "Changes of its partition that a duplicate lacks";
    gauges(encoder, "duplicate_lag", help, of_each(|one| one.lag as f64))?;
    let help = "Whether the duplicate of a partition is read";
    let is_read = |one: &DuplicateStanding| f64::from(u8::from(one.state == DuplicateState::Current));
    gauges(encoder, "duplicate_read", help, of_each(is_read))?;
    let help = "Times that a duplicate was found to lack more than its log has";
    counters(encoder, "duplicate_differs", help, of(|logs| logs.counts.differs))?;
    let help = "Times that a duplicate was repaired and read again";
    counters(encoder, "duplicate_repaired", help, of(|logs| logs.counts.repaired))?;
    let as_gauge = |samples: Vec<(Labels, u64)>| {
        samples.into_iter().map(|(labels, value)| (labels, value as f64)).collect::<Vec<_>>()
    };
    gauges(encoder, "log_entries", "Changes in the logs", as_gauge(of(|logs| logs.entries as u64)))?;
    let help = "Bytes of keys and values in the logs";
    gauges(encoder, "log_bytes", help, as_gauge(of(|logs| logs.bytes)))?;
    counters(encoder, "log_refused", "Changes that a log had no room for", of(|logs| logs.counts.refused))?;
    encode_plans(core, encoder)
}

/// Returns the labels of a duplicate: a replica may have several partitions.
fn labels_of(store: &Labels, one: &DuplicateStanding) -> Labels {
    let (partition, replica) = (one.partition.to_string(), one.replica.index().to_string());
    store.iter().cloned().chain([("partition", partition), ("replica", replica)]).collect()
}

/// Encodes what the managers of replicated stores predict and have measured.
fn encode_plans(core: &Core, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let plans: Vec<StoreStanding> = core.control().store_standings().collect();
    let level = core.telemetry.slo().0.percentile / 100.0;
    let labels = |plan: &StoreStanding| vec![("backend", core.names.backend(plan.backend).to_owned())];
    let of = |value: &dyn Fn(&StoreStanding) -> Option<f64>| -> Vec<(Labels, f64)> {
        plans.iter().filter_map(|plan| Some((labels(plan), value(plan)?))).collect()
    };
    let help = "Share of a store's accesses that the SLO wants within its bound";
    gauges(encoder, "plan_service_level", help, of(&|_| Some(level)))?;
    let help = "Share of accesses within the bound that the model predicts for the latest window";
    gauges(encoder, "plan_predicted", help, of(&|plan| plan.predicted))?;
    let help = "Share of accesses that were within the bound in the latest window";
    gauges(encoder, "plan_measured", help, of(&|plan| plan.measured))
}
