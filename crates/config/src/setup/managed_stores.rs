//! The management of replicated stores.

use sherwood_dispatch::Layout;
use sherwood_model::BackendId;
use sherwood_policy::slo::StorePlan;
use sherwood_policy::stores::{Forecast, ManagerOptions};

/// The replicated stores that have managers.
#[derive(Clone, Debug, PartialEq)]
pub struct StoresSetup {
    /// The forecast for each of them; none if the present rate goes on.
    pub forecast: Option<Forecast>,
    /// The stores, at least one.
    pub stores: Vec<ManagedStore>,
}

/// A replicated store that has a manager.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedStore {
    /// The store's backend.
    pub backend: BackendId,
    /// Options of the manager. The SLO is that at the start.
    pub options: ManagerOptions,
    /// The plan at the start.
    pub plan: StorePlan,
    /// The layouts that the store can have.
    pub layouts: Vec<Layout>,
}
