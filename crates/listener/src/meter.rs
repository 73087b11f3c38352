//! A reader of a listener's counters that may outlive the listener.

use std::sync::Weak;

use super::counters::Counts;
use super::shared::Shared;

/// Reads a listener's counters while it serves. It does not keep the listener alive, since the
/// listener usually owns the reader.
#[derive(Clone)]
pub struct Meter(pub(super) Weak<Shared>);

/// The counters of a listener at one moment, since its start and over all its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Number of connections that are open now.
    pub open: usize,
    /// Past and open connections, refused connections included.
    pub total: u64,
    /// Connections refused because of the limit on connections.
    pub rejected: u64,
    /// All other counters of the listener.
    pub counts: Counts,
}

impl Meter {
    /// Returns the counters of the listener now; none once the listener is gone.
    #[must_use]
    pub fn read(&self) -> Option<Reading> {
        let shared = self.0.upgrade()?;
        let connections = &shared.connections;
        Some(Reading {
            open: connections.now(),
            total: connections.total(),
            rejected: connections.rejected(),
            counts: shared.counts(),
        })
    }
}
