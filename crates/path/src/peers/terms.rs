//! Terms on which nodes of a cluster cache the values of one backend.

use std::time::Duration;

/// The terms of a shared backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedTerms {
    /// Time after an acknowledged write within which every node stops answering with older values;
    /// 2 s by default.
    pub stale: Duration,
    /// Use of values that are cached for longer than `stale` without news of all other nodes.
    pub without_bus: WithoutBus,
}

/// Use of cached values while a node does not know of all writes through other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutBus {
    /// They count as stale, so that no read exceeds the bound.
    #[default]
    Bounded,
    /// They are served until their lifetime ends, and reads beyond the bound are counted.
    Ttl,
}

impl Default for SharedTerms {
    fn default() -> Self {
        Self { stale: Duration::from_secs(2), without_bus: WithoutBus::default() }
    }
}
