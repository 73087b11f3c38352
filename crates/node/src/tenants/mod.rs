//! Tenants: the teams that share a node, and the resources that are divided among them.

mod network;
mod standings;
mod traffic;

pub(crate) use network::TenantNetwork;
pub(crate) use standings::NodeStandings;
pub(crate) use traffic::{ResourceUse, Traffic};
