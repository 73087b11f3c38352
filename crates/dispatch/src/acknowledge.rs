//! The number of replicas that acknowledge a write.

/// The number of replicas that must have made a write before the write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// At least one of them.
    First,
    /// More than half of them.
    Majority,
    /// All of them; in a [`Log`](crate::Log), all that are read or join those.
    #[default]
    All,
}

impl Acknowledge {
    /// Returns the number of replicas that must have made a write, of so many that it is sent to.
    #[must_use]
    pub fn needed(self, written: usize) -> usize {
        match self {
            Self::First => 1,
            Self::Majority => written / 2 + 1,
            Self::All => written,
        }
    }
}
