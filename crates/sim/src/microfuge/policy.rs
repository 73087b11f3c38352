//! Policies: the cache, the dispatcher's rules and the behaviour of the clients, by name.

use std::time::Duration;

use sherwood_cache::{DeadlineCost, Eviction};
use sherwood_dispatch::{AdmitChoice, BalanceChoice, Options as DispatchOptions, QueueChoice, RetryOptions};
use sherwood_model::{Percent, PercentError};

use super::setup::Knobs;
pub(super) use crate::policy::PolicyError;
use crate::policy::by_name;

/// A set-up of cache, scheduler and admission.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The policy's name.
    pub name: &'static str,
    /// Description, for help texts.
    pub about: &'static str,
    pub(super) caching: Caching,
    /// The order of eviction, unless the setting gives another.
    pub(super) eviction: Eviction,
    /// True if a client that misses what another is fetching waits for that fetch.
    pub(super) joins: bool,
    pub(super) scheduling: Scheduling,
}

/// The cache of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    /// No cache.
    None,
    /// Strict LRU.
    Lru,
    /// LRU queues by deadline, whose multipliers follow from the cost of a missed deadline.
    Deadlines(DeadlineCost),
}

/// The dispatcher of a policy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scheduling {
    /// The rules of a node's dispatcher.
    Rules { queue: Order, balance: BalanceChoice, admit: Admit },
    /// A scheduler that knows the service times.
    Clairvoyant,
}

/// The order of a server's queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Fifo,
    /// By deadline, with the setting α.
    Edf,
}

/// The admission of reads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Admit {
    Open,
    /// By deadline, with this percentile of latency, or with the one that misses this share of the
    /// deadlines, unless the settings give others.
    Deadline {
        beta: f64,
        target: Option<f64>,
    },
    /// By queueing delay.
    Delay(Duration),
}

/// The store alone: a random server, first come, first served.
const BARE: Policy = Policy {
    name: "bare",
    about: "the store without a cache; reads go to a random server",
    caching: Caching::None,
    eviction: Eviction::Lru,
    joins: false,
    scheduling: rules(Order::Fifo, BalanceChoice::Random, Admit::Open),
};

const MEMCACHED: Policy = Policy {
    name: "memcached",
    about: "a look-aside LRU cache; reads go to a random server",
    caching: Caching::Lru,
    ..BARE
};

const MEMCACHED_P2C: Policy = Policy {
    name: "memcached+p2c",
    about: "memcached; reads go to the less loaded of two servers",
    scheduling: rules(Order::Fifo, BalanceChoice::PowerOfTwo, Admit::Open),
    ..MEMCACHED
};

const DLC: Policy = Policy {
    name: "dlc",
    about: "memcached with MicroFuge's deadline cache",
    caching: Caching::Deadlines(DeadlineCost::Paper),
    ..MEMCACHED
};

const DLC_COST: Policy = Policy {
    name: "dlc-cost",
    about: "dlc, whose multipliers are the measured shares of missed deadlines",
    caching: Caching::Deadlines(DeadlineCost::Measured),
    ..DLC
};

const DLC_DLS: Policy = Policy {
    name: "dlc+dls",
    about: "dlc; servers by tickets of two, earliest deadline first",
    scheduling: rules(Order::Edf, BalanceChoice::Tickets, Admit::Open),
    ..DLC
};

const DLC_DLS_AC: Policy = Policy {
    name: "dlc+dls+ac",
    about: "dlc+dls; reads that would be late, or make others late, are rejected",
    scheduling: rules(Order::Edf, BalanceChoice::Tickets, Admit::Deadline { beta: BETA, target: None }),
    ..DLC
};

const SHERWOOD: Policy = Policy {
    name: "sherwood",
    about: "dlc-cost through a node, which joins reads, compares all servers and rejects",
    joins: true,
    scheduling: rules(
        Order::Edf,
        BalanceChoice::AllTickets,
        Admit::Deadline { beta: BETA, target: Some(SHERWOOD_TARGET) },
    ),
    ..DLC_COST
};

const DELAY: Policy = Policy {
    name: "delay",
    about: "memcached+p2c; reads that would wait for over 20 ms are rejected",
    scheduling: rules(Order::Fifo, BalanceChoice::PowerOfTwo, Admit::Delay(DELAY_TARGET)),
    ..MEMCACHED
};

const EDF_ALL: Policy = Policy {
    name: "edf-all",
    about: "a bound: tickets of all servers with the record, earliest deadline first",
    scheduling: rules(Order::Edf, BalanceChoice::AllTickets, Admit::Open),
    ..DLC
};

const CLAIRVOYANT: Policy = Policy {
    name: "clairvoyant",
    about: "a bound: earliest deadline first with known service times; what would be late is rejected",
    joins: true,
    scheduling: Scheduling::Clairvoyant,
    ..DLC_COST
};

/// Percentile of latency with which admission forecasts, as in the paper.
const BETA: f64 = 88.0;
/// Share of missed deadlines for which policy `sherwood` chooses the percentile: a little below the
/// 3% that the criteria of a run and of the frontier allow.
const SHERWOOD_TARGET: f64 = 0.028;

/// Queueing delay above which policy `delay` rejects.
const DELAY_TARGET: Duration = Duration::from_millis(20);

const fn rules(queue: Order, balance: BalanceChoice, admit: Admit) -> Scheduling {
    Scheduling::Rules { queue, balance, admit }
}

/// Returns all policies.
#[must_use]
pub fn policies() -> &'static [Policy] {
    &[
        BARE,
        MEMCACHED,
        MEMCACHED_P2C,
        DLC,
        DLC_COST,
        DLC_DLS,
        DLC_DLS_AC,
        DELAY,
        SHERWOOD,
        EDF_ALL,
        CLAIRVOYANT,
    ]
}

impl Policy {
    /// Returns the policy called `name`.
    ///
    /// # Errors
    /// If no policy has that name.
    pub fn by_name(name: &str) -> Result<Self, PolicyError> {
        by_name("the scenario microfuge has", policies(), |policy| policy.name, name)
    }

    /// Options of the dispatcher: a server's queue is in it, in the order of the policy's rule.
    pub(super) fn dispatch(&self, knobs: &Knobs) -> Result<DispatchOptions, PercentError> {
        let mut options = DispatchOptions {
            batch_keys_max: 1,
            in_flight_calls_max: knobs.slots,
            queued_calls_max: QUEUED_MAX,
            waiters_max: QUEUED_MAX,
            timeout: TIMEOUT,
            retry: RetryOptions { per_call_max: 0, ..RetryOptions::default() },
            ..DispatchOptions::default()
        };
        if let Scheduling::Rules { queue, balance, admit } = self.scheduling {
            options.balance = balance;
            options.queue = match queue {
                Order::Fifo => QueueChoice::Fifo,
                Order::Edf => QueueChoice::Edf { alpha: Percent::new("alpha", knobs.alpha)? },
            };
            let beta = match admit {
                Admit::Deadline { beta, .. } => beta,
                Admit::Open | Admit::Delay(_) => BETA,
            };
            options.beta = Percent::new("beta", knobs.beta.unwrap_or(beta))?;
            options.admit = match admit {
                Admit::Open => AdmitChoice::Open,
                Admit::Deadline { target, .. } => {
                    let own = target.filter(|_| knobs.beta.is_none());
                    let target = knobs.target.or(own).map(|ratio| Percent::new("target", ratio * 100.0));
                    AdmitChoice::Deadline { target: target.transpose()? }
                }
                Admit::Delay(target) => AdmitChoice::Delay { target },
            };
        }
        Ok(options)
    }
}

/// The backend's timeout: far beyond the longest deadline, since deadlines cut nothing off.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Largest number of reads that wait for a server, and of requests that wait in all: more than an
/// open loop has within the timeout.
const QUEUED_MAX: u32 = 10_000_000;
