//! Counters of a listener for readers that may outlive it.

use std::sync::Weak;

use super::counters::Counts;
use super::shared::Shared;

/// Reads a listener's counters as long as it serves. It keeps nothing alive: what reads a listener
/// is as a rule what the listener serves.
#[derive(Clone)]
pub struct Meter(pub(super) Weak<Shared>);

/// The counters of a listener at one moment, since its start and over all its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Connections that are open.
    pub open: usize,
    /// Connections there were, those that were turned away included.
    pub total: u64,
    /// Connections that were turned away because there were too many.
    pub rejected: u64,
    /// All other counters.
    pub counts: Counts,
}

impl Meter {
    /// Returns the counters now; none once the listener is gone.
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
