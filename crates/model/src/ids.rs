//! 16-bit ids, one type for each kind of object, so that the compiler rejects a backend's id where
//! a partition's is expected.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u16);

        impl $name {
            /// The id as an index into a vector with one element per object of this kind.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// Returns the id of the element at `index`.
            ///
            /// # Panics
            /// If `index` is above 65,535. Configurations with that many elements are refused
            /// earlier.
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
    /// A tenant, which owns a share of the resources. Tenant 0 is the default tenant.
    TenantId
);
id!(
    /// The cache space of one (tenant, backend) pair, numbered from 0 in the order of the
    /// configuration.
    PartitionId
);
id!(
    /// A server of a backend, numbered from 0 within its backend.
    ReplicaId
);
id!(
    /// A resource that tenants share beside the cache, numbered from 0 in the order of the
    /// configuration.
    ResourceId
);
