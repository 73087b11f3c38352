//! Tenants: the teams that share a node, and the resources that are divided among them.

mod counters;
mod network;
mod standings;

pub(crate) use counters::TenantCounters;
pub(crate) use network::TenantNetwork;
pub(crate) use standings::NodeStandings;
