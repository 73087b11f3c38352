//! `/v1/partitions`: shows and sets the sizes of the partitions.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sherwood_cache::ClassUsage;
use sherwood_config::{ByteSize, InstanceSetup};
use sherwood_control::Pin;
use sherwood_model::PartitionId;
use sherwood_ports::http::{InPath, JsonBody, Problem};
use sherwood_process::clock::millis;

use super::aside::aside;
use crate::control::instances::Instance;
use crate::control::{Control, Room};
use crate::core::Core;
use crate::names::PartitionName;

/// A partition of the cache, as the admin API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Partition")]
pub(crate) struct PartitionView {
    pub(crate) name: String,
    pub(crate) backend: String,
    pub(crate) tenant: String,
    pub(crate) allocated_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) items: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
    /// Latency of its reads by the gateway, and by listeners unless `requests = "off"`, in the
    /// window of requests used for decisions, a minute by default. A look-aside miss takes until it
    /// is refilled. Null where there were none, and on a node of more than 64 partitions.
    pub(crate) latency_ms: Option<LatencyView>,
    /// Minimum of the partition's budget, bytes.
    pub(crate) min_bytes: u64,
    /// Maximum of the partition's budget, bytes; null for no limit.
    pub(crate) max_bytes: Option<u64>,
    pub(crate) dry_run: bool,
    /// The deadline classes, in the order of their deadlines; none where the partition is in an
    /// external cache.
    pub(crate) classes: Vec<ClassView>,
    /// The external cache that holds the partition; left out where the partition is in this node's
    /// cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<InstanceView>,
}

/// Percentiles of the latency of a partition's queries, milliseconds.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PartitionLatency")]
pub(crate) struct LatencyView {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// A deadline class of a partition, as the admin API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PartitionClass")]
pub(crate) struct ClassView {
    /// Upper bound of the class's deadlines in milliseconds; null where there is only one class.
    upto_ms: Option<f64>,
    multiplier: f64,
    items: u64,
    bytes: u64,
    hits: u64,
    misses: u64,
    deadline_missed: u64,
}

impl ClassView {
    fn of(usage: &ClassUsage) -> Self {
        let &ClassUsage { upto, multiplier, items, bytes, hits, misses, deadline_missed } = usage;
        Self { upto_ms: upto.map(millis), multiplier, items, bytes, hits, misses, deadline_missed }
    }
}

/// An external cache that the node resizes, as the admin API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Instance")]
pub(crate) struct InstanceView {
    kind: &'static str,
    address: String,
    reached: bool,
    /// The error that keeps the external cache from being resized; null while it is reachable.
    error: Option<String>,
}

impl InstanceView {
    fn of(instance: &Instance) -> Self {
        let InstanceSetup { kind, address, .. } = instance.setup();
        let error = instance.trouble();
        Self { kind: kind.name(), address: address.clone(), reached: error.is_none(), error }
    }
}

pub(crate) fn views(core: &Core) -> Vec<PartitionView> {
    let pins = core.control().pins().to_vec();
    let view = |((index, partition), pin): ((usize, &PartitionName), &Pin)| {
        let usage = core.usage(PartitionId::from_index(index));
        PartitionView {
            name: partition.name.clone(),
            backend: core.names.backend(partition.backend).to_owned(),
            tenant: core.names.tenant(partition.tenant).to_owned(),
            allocated_bytes: usage.budget_bytes,
            used_bytes: usage.used_bytes,
            items: usage.items,
            hits: usage.hits,
            misses: usage.misses,
            evictions: usage.evictions,
            latency_ms: latency(core, PartitionId::from_index(index)),
            min_bytes: pin.min_bytes,
            max_bytes: pin.max_bytes,
            dry_run: pin.dry_run,
            classes: classes(core, PartitionId::from_index(index)),
            instance: core.instances.get(index).map(|instance| InstanceView::of(instance)),
        }
    };
    core.names.partitions().iter().enumerate().zip(&pins).map(view).collect()
}

fn latency(core: &Core, partition: PartitionId) -> Option<LatencyView> {
    let sketch = core.telemetry.partition_sketch(core.clock.now(), partition)?;
    let &[p50, p99] = &sketch.quantiles([0.5, 0.99])[..] else { return None };
    Some(LatencyView { p50: millis(p50), p99: millis(p99) })
}

fn classes(core: &Core, partition: PartitionId) -> Vec<ClassView> {
    if !core.instances.is_empty() {
        return Vec::new();
    }
    core.cache.class_usage(partition).iter().map(ClassView::of).collect()
}

pub(crate) async fn list(State(core): State<Arc<Core>>) -> Result<Json<Vec<PartitionView>>, Problem> {
    aside(core, |core| Json(views(core))).await
}

/// The size and the limits of a partition after a change.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PinnedPartition")]
pub(crate) struct PinnedView {
    allocated_bytes: u64,
    dry_run: bool,
    /// Maximum of the partition's budget, bytes; null for no limit.
    max_bytes: Option<u64>,
    min_bytes: u64,
    name: String,
}

/// A change to a partition; absent fields stay as they are.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PartitionChange")]
pub(crate) struct Change {
    /// A number of bytes, or a size such as `"64MiB"`.
    allocated_bytes: Option<ByteSize>,
    min_bytes: Option<ByteSize>,
    max_bytes: Option<ByteSize>,
    dry_run: Option<bool>,
}

/// Returns the id of the partition called `name`.
pub(super) fn named(core: &Core, name: &str) -> Result<PartitionId, Problem> {
    core.names.partition_named(name).ok_or_else(|| {
        let known: Vec<_> = core.names.partitions().iter().map(|partition| partition.name.clone()).collect();
        Problem::not_found("partition", name, &known)
    })
}

pub(crate) async fn change(
    State(core): State<Arc<Core>>,
    InPath(name): InPath<String>,
    JsonBody(asked): JsonBody<Change>,
) -> Result<Json<PinnedView>, Problem> {
    aside(core, move |core| set(core, &name, &asked)).await?
}

fn set(core: &Core, name: &str, asked: &Change) -> Result<Json<PinnedView>, Problem> {
    let partition = named(core, name)?;
    let mut control = core.control();
    let before = control.pins()[partition.index()];
    let bytes = |size: Option<ByteSize>| size.map(|ByteSize(bytes)| bytes);
    let &Change { allocated_bytes, min_bytes, max_bytes, dry_run } = asked;
    let [allocated_bytes, min_bytes, max_bytes] = [allocated_bytes, min_bytes, max_bytes].map(bytes);
    if (allocated_bytes, min_bytes, max_bytes, dry_run) == (None, None, None, None) {
        let error = "nothing to change; give allocated_bytes, min_bytes, max_bytes or dry_run";
        return Err(Problem::bad_request(error));
    }
    if allocated_bytes.is_some() && control.tenants().is_some() {
        let error = "the shares of tenants size the partitions; change a tenant's: PUT /v1/tenants/{name} {\"weight\":2}";
        return Err(Problem::new(StatusCode::CONFLICT, error));
    }
    if allocated_bytes.is_some() && control.policy() != "static" {
        let error = format!(
            "the policy `{}` sizes the partitions; switch to `static` first: PUT /v1/control {{\"policy\":\"static\"}}",
            control.policy()
        );
        return Err(Problem::new(StatusCode::CONFLICT, error));
    }
    let pin = Pin {
        min_bytes: min_bytes.unwrap_or(before.min_bytes),
        // A maximum of the total or more is no limit.
        max_bytes: max_bytes.or(before.max_bytes).filter(|&max| max < control.total_bytes()),
        dry_run: dry_run.unwrap_or(before.dry_run),
    };
    control.check_pin(partition, pin, allocated_bytes).map_err(Problem::unprocessable)?;
    if let Some(bytes) = allocated_bytes {
        resize(core, &mut control, (partition, name), pin, bytes)?;
    }
    control.pin(partition, pin);
    drop(control);
    if pin != before {
        let Pin { min_bytes, max_bytes, dry_run } = pin;
        let data =
            json!({"partition": name, "min_bytes": min_bytes, "max_bytes": max_bytes, "dry_run": dry_run});
        let most = max_bytes.map_or("all".to_owned(), |max| max.to_string());
        let state = if dry_run { "; decisions about it are only said" } else { "" };
        core.events.say("pin", format!("{name} may have {min_bytes} to {most} bytes{state}"), data);
    }
    let view = views(core).swap_remove(partition.index());
    let PartitionView { name, min_bytes, max_bytes, dry_run, .. } = view;
    // An instance may take a while to reach its size.
    let allocated_bytes = allocated_bytes.unwrap_or(view.allocated_bytes);
    Ok(Json(PinnedView { allocated_bytes, dry_run, max_bytes, min_bytes, name }))
}

fn resize(
    core: &Core,
    control: &mut Control,
    (partition, name): (PartitionId, &str),
    pin: Pin,
    bytes: u64,
) -> Result<(), Problem> {
    let before = core.usage(partition).budget_bytes;
    check(name, bytes, control.room(partition, pin))?;
    control.set_by_hand(partition, bytes).map_err(Problem::unprocessable)?;
    let data = json!({"partition": name, "before_bytes": before, "after_bytes": bytes});
    core.events.say("resize", format!("{name} set by hand from {before} to {bytes} bytes"), data);
    Ok(())
}

/// Checks that a partition can be set to `bytes`: within what the other partitions leave free, and
/// within its own minimum and maximum, to which the next decision would return it.
fn check(name: &str, bytes: u64, room: Room) -> Result<(), Problem> {
    let Room { min_bytes, max_bytes, free_bytes } = room;
    if bytes > free_bytes {
        let error = format!(
            "{bytes} bytes for `{name}` are more than the total allows: {free_bytes} bytes are free for it; shrink another \
             first"
        );
        return Err(Problem::unprocessable(error).with("free_bytes", free_bytes));
    }
    if !(min_bytes..=max_bytes).contains(&bytes) {
        let error = format!(
            "{bytes} bytes for `{name}` are out of its bounds of {min_bytes} to {max_bytes} bytes; stay within, or change \
             min or max"
        );
        return Err(Problem::unprocessable(error)
            .with("min_bytes", min_bytes)
            .with("max_bytes", max_bytes)
            .with("free_bytes", free_bytes));
    }
    Ok(())
}
