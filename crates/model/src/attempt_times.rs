//! Measured times of a replicated store's accesses and their attempts.

use crate::LatencySketch;

/// Accesses of a store in a time, and the attempts that were made for them.
#[derive(Clone, Debug, Default)]
pub struct AttemptTimes {
    /// Accesses that began: fetches that asked a replica, without copies and retries.
    pub accesses: u64,
    /// Accesses that were answered within the bound.
    pub within: u64,
    /// Service times of attempts that were answered. An attempt's service begins when its replica
    /// has ended the one before.
    pub answered: LatencySketch,
    /// Times for which attempts had been served when they were given up without an answer.
    pub given_up: LatencySketch,
    /// The attempts of each replica that have ended, in the order of their ids.
    pub replicas: Vec<SlowCount>,
}

/// Attempts that have ended, and those of them that were slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowCount {
    /// Number of attempts.
    pub attempts: u64,
    /// Number of attempts that took longer than most.
    pub slow: u64,
}

impl AttemptTimes {
    /// Adds the accesses of another time. The attempts of each replica become those of that time.
    pub fn merge(&mut self, other: Self) {
        self.accesses += other.accesses;
        self.within += other.within;
        self.answered.merge(&other.answered);
        self.given_up.merge(&other.given_up);
        self.replicas = other.replicas;
    }

    /// Returns the share of the accesses that were answered within the bound; none without any.
    #[must_use]
    pub fn level(&self) -> Option<f64> {
        // Some that were answered began before.
        (self.accesses > 0).then(|| self.within.min(self.accesses) as f64 / self.accesses as f64)
    }
}
