//! Policies: the cache, the dispatcher's rules and the behaviour of the clients, by name.

use sherwood_dispatch::{AdmitChoice, BalanceChoice, QueueChoice};
use thiserror::Error;

/// A set-up of cache, scheduler and admission.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The policy's name.
    pub name: &'static str,
    /// Description, for help texts.
    pub about: &'static str,
    /// True if there is a cache.
    pub(super) caches: bool,
    /// True if a client that misses what another is fetching waits for that fetch.
    pub(super) joins: bool,
    /// True if clients choose a server at random, false if the dispatcher chooses one.
    pub(super) at_random: bool,
    pub(super) queue: QueueChoice,
    pub(super) balance: BalanceChoice,
    pub(super) admit: AdmitChoice,
}

/// The name given is that of no policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the scenario microfuge has no policy {name:?}; choose one of {known}")]
pub struct PolicyError {
    /// The name given.
    pub name: String,
    /// The names that can be chosen, as a list.
    pub known: String,
}

/// The store alone: a random server, first come, first served.
const BARE: Policy = Policy {
    name: "bare",
    about: "the store without a cache; reads go to a random server",
    caches: false,
    joins: false,
    at_random: true,
    queue: QueueChoice::Fifo,
    balance: BalanceChoice::PowerOfTwo,
    admit: AdmitChoice::Open,
};

const MEMCACHED: Policy = Policy {
    name: "memcached",
    about: "a look-aside LRU cache; reads go to a random server",
    caches: true,
    ..BARE
};

const MEMCACHED_P2C: Policy = Policy {
    name: "memcached+p2c",
    about: "memcached; reads go to the less loaded of two servers",
    at_random: false,
    ..MEMCACHED
};

/// Returns all policies.
#[must_use]
pub fn policies() -> &'static [Policy] {
    &[BARE, MEMCACHED, MEMCACHED_P2C]
}

impl Policy {
    /// Returns the policy called `name`.
    ///
    /// # Errors
    /// If no policy has that name.
    pub fn by_name(name: &str) -> Result<Self, PolicyError> {
        policies().iter().find(|policy| policy.name == name).copied().ok_or_else(|| PolicyError {
            name: name.to_owned(),
            known: policies().iter().map(|policy| policy.name).collect::<Vec<_>>().join(", "),
        })
    }
}
