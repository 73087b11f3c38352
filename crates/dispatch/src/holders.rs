//! The replicas that hold a key.

use sherwood_model::ReplicaId;

/// The replicas that have a key, and may be asked for it.
///
/// ```
/// use sherwood_dispatch::Holders;
/// use sherwood_model::ReplicaId;
///
/// let holders = Holders::Ring { first: ReplicaId(15), copies: 3 };
/// let of_16 = (0..16).map(ReplicaId).filter(|replica| holders.include(*replica, 16));
/// assert_eq!(of_16.collect::<Vec<_>>(), [ReplicaId(0), ReplicaId(1), ReplicaId(15)]);
/// assert!(holders.include(ReplicaId(5), 10), "numbers are counted around the ring");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holders {
    /// Every replica has every key.
    #[default]
    All,
    /// Only this replica is known to have the latest values of the keys.
    One(ReplicaId),
    /// The keys are on `copies` neighbouring replicas of a ring, as in Dynamo and Cassandra.
    Ring {
        /// The first replica with the keys. The others follow it by number; the last replica is
        /// followed by replica 0.
        first: ReplicaId,
        /// The number of replicas with the keys.
        copies: u16,
    },
    /// The keys are those of a partition, whose replicas change: [`Dispatch::set_applied`] tells
    /// the dispatcher which hold it, and which writes of the partition these have applied.
    ///
    /// [`Dispatch::set_applied`]: crate::Dispatch::set_applied
    Partition(u32),
}

impl Holders {
    /// Returns the replicas that hold the keys, out of this many, each once; none for a
    /// [`Partition`](Self::Partition), which only the dispatcher knows. With primary-copy
    /// replication, the first one is the primary.
    ///
    /// ```
    /// use sherwood_dispatch::Holders;
    /// use sherwood_model::ReplicaId;
    ///
    /// let ring = Holders::Ring { first: ReplicaId(2), copies: 2 };
    /// assert_eq!(ring.replicas(3).collect::<Vec<_>>(), [ReplicaId(2), ReplicaId(0)]);
    /// assert_eq!(Holders::One(ReplicaId(3)).replicas(3).count(), 0);
    /// ```
    pub fn replicas(self, replicas: usize) -> impl Iterator<Item = ReplicaId> {
        let (first, count) = match self {
            Self::All => (0, replicas),
            Self::One(only) => (only.index(), usize::from(only.index() < replicas)),
            Self::Ring { first, copies } => (first.index(), replicas.min(copies.into())),
            Self::Partition(_) => (0, 0),
        };
        (0..count).map(move |after| ReplicaId::from_index((first + after) % replicas))
    }

    /// Returns true if `replica` holds the keys; `replicas` is the number of all replicas. False
    /// for a [`Partition`](Self::Partition).
    #[must_use]
    pub fn include(self, replica: ReplicaId, replicas: usize) -> bool {
        match self {
            Self::All => true,
            Self::One(only) => only == replica,
            Self::Partition(_) => false,
            Self::Ring { first, copies } => {
                let after = replica.index() + replicas - first.index() % replicas;
                let after = if after >= replicas { after - replicas } else { after };
                after < usize::from(copies)
            }
        }
    }
}
