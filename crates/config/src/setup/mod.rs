//! Plain types that the configuration resolves to and that a node is built from.

mod access;
mod cluster;
mod deadlines;
mod instances;
mod managed_stores;
mod replication;
mod schedulers;
mod slos;
mod span_rule;
mod spans;
mod tenants;

pub use access::{AccessSetup, TlsFiles};
pub use cluster::{BusCredentials, BusServer, BusSetup, ClusterSetup, NoBusServer};
pub use deadlines::DeadlineRule;
pub use instances::{InstanceKind, InstanceSetup, InstancesSetup};
pub use managed_stores::{ManagedStore, StoresSetup};
pub use replication::ReplicationSetup;
pub use schedulers::DEFAULT_SCHEDULER;
pub use schedulers::{NoSchedulerUrl, SchedulerSetup, SchedulerSource, SchedulerUrl};
pub use slos::{SloScope, SloSetup};
pub use span_rule::SpanRule;
pub use spans::{CollectorUrl, ExportProtocol, NoCollectorUrl, SpanExport};
pub use tenants::{DEFAULT_TENANT, TermsError, partition_name};
pub use tenants::{ResourceSetup, TenancyOptions, TenancySetup, TenantSetup};
