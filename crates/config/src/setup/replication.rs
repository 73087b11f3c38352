//! The choice of copies in the tiers of an application.

use sherwood_model::BackendId;
use sherwood_policy::replication::ReplicationOptions;

/// Options of the replicator, and the backends that are its tiers.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicationSetup {
    /// The options, in their ranges.
    pub options: ReplicationOptions,
    /// The backend of each tier.
    pub backends: Vec<BackendId>,
}
