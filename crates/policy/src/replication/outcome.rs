//! Decisions of the replicator, and what they were made from.

use super::capacity::TierSeen;

/// The decision after a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The factor of each tier.
    pub factors: Vec<u8>,
    /// The state of the search.
    pub state: ReplicationState,
    /// Number of factor vectors that the search has tried, without the first, all ones.
    pub tries: u32,
    /// The reason, in words.
    pub reason: String,
    /// True if the window has too few requests and goes on.
    pub goes_on: bool,
}

/// The state of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationState {
    /// Factors are being tried.
    Searching,
    /// The search has ended, or the configuration sets the factors.
    Settled,
    /// There is one copy in each tier, because there is no room for more or the policy is `none`.
    Ones,
}

/// A tier in the latest window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierStanding {
    /// Copies of each request, as decided after the window.
    pub factor: u8,
    /// The measurements of the window.
    pub seen: TierSeen,
    /// Share of the core time in use, as of [`TierSeen::utilisation`].
    pub utilisation: f64,
    /// Share of the tokens in use; none if the tier has no tokens.
    pub token_utilisation: Option<f64>,
    /// The high percentile of the target over the mean, the 95th for a target of the mean; 0
    /// without requests.
    pub variability: f64,
    /// Probability that copies of a request of the first tier meet at a server.
    pub collision_probability: f64,
}

impl ReplicationState {
    /// Returns the state's name: `searching`, `settled` or `ones`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Searching => "searching",
            Self::Settled => "settled",
            Self::Ones => "ones",
        }
    }
}
