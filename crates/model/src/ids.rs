//! Small integers that name things, one type each, so that a backend is never taken for a
//! partition.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u16);

        impl $name {
            /// The id as an index into a vector that holds one element for each of its kind.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of the element at `index`.
            ///
            /// # Panics
            /// When `index` is above 65,535; configurations are refused long before.
            #[must_use]
            pub const fn from_index(index: usize) -> Self {
                assert!(index <= u16::MAX as usize, "an id is at most 65,535");
                Self(index as u16)
            }
        }
    };
}

id!(
    /// A named service that answers queries, numbered from 0 in the order of the configuration.
    BackendId
);
id!(
    /// Who a share of the resources is owed to. Tenant 0 is the default tenant.
    TenantId
);
id!(
    /// The cache space of one (tenant, backend) pair, numbered from 0 in the order of the
    /// configuration.
    PartitionId
);
id!(
    /// One server of a backend, numbered from 0 within its backend.
    ReplicaId
);
