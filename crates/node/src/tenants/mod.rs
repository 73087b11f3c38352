//! Tenants: the teams that share a node, and the resources that are divided among them.

mod network;
mod setup;
mod standings;
mod traffic;

pub(crate) use network::TenantNetwork;
pub(crate) use setup::{DEFAULT_TENANT, TermsError};
pub use setup::{ResourceSetup, TenancyOptions, TenancySetup, TenantSetup};
pub(crate) use standings::NodeStandings;
pub(crate) use traffic::{ResourceUse, Traffic};
