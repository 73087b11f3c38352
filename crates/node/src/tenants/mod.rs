//! Tenants: the teams that share a node, and the resources that are divided among them.

mod network;
mod rates;
mod setup;

pub(crate) use network::TenantNetwork;
pub(crate) use rates::{BackendRates, KindRates};
pub(crate) use setup::DEFAULT_TENANT;
pub use setup::{Over, ResourceLegs, ResourceSetup, TenancyOptions, TenancySetup, TenantSetup};
