//! Policies: arbitration and replication of both tiers, by name.

use std::time::Duration;

use sherwood_dispatch::{BalanceChoice, Options as DispatchOptions, RetryOptions};

pub(super) use crate::policy::PolicyError;
use crate::policy::by_name;

/// A set-up of the tiers.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The policy's name.
    pub name: &'static str,
    /// Description, for help texts.
    pub about: &'static str,
    /// True if servers have neighbours.
    pub(super) interference: bool,
    /// The rule by which connections are given to servers.
    balance: BalanceChoice,
}

const NONE: Policy = Policy {
    name: "none",
    about: "one copy, at a random server for each connection",
    interference: true,
    balance: BalanceChoice::Random,
};

const QUIET: Policy =
    Policy { name: "quiet", about: "none, without interference: a bound", interference: false, ..NONE };

/// Returns all policies.
#[must_use]
pub fn policies() -> &'static [Policy] {
    &[NONE, QUIET]
}

impl Policy {
    /// Returns the policy called `name`.
    ///
    /// # Errors
    /// If no policy has that name.
    pub fn by_name(name: &str) -> Result<Self, PolicyError> {
        by_name("scenarios of sPARE have", policies(), |policy| policy.name, name)
    }

    /// Returns the options of a tier's dispatcher.
    pub(super) fn dispatch(&self) -> DispatchOptions {
        DispatchOptions {
            batch_keys_max: 1,
            in_flight_calls_max: CALLS_MAX,
            queued_calls_max: CALLS_MAX,
            waiters_max: CALLS_MAX,
            timeout: TIMEOUT,
            balance: self.balance,
            retry: RetryOptions { per_call_max: 0, ..RetryOptions::default() },
            ..DispatchOptions::default()
        }
    }
}

/// Timeout of pages and queries, far beyond their latencies.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Largest number of calls of a server, and of those that wait: more than arrive within the
/// timeout.
const CALLS_MAX: u32 = 10_000_000;
