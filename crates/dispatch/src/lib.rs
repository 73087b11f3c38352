//! The dispatcher: one state machine per backend that turns misses into as few calls as it can,
//! sends them to replicas that can answer, and ends every one of them in time.
//!
//! A miss is the expensive case of a cache. A popular key that expires is missed by hundreds of
//! requests at once; a batch of fifty keys sent as fifty calls costs fifty round trips; a replica
//! that died takes every request that touches it with it; and a retry without a bound doubles the
//! load of a backend that fails because it is loaded. [`Dispatch`] answers these in one place: keys
//! in flight are joined, the others travel in batches, replicas are chosen by load and left alone
//! while they are down, extra attempts are paid from a budget, and everything that waits has a
//! bound and a timeout.
//!
//! Four rules can be exchanged by name: the order of a replica's queue ([`QueueChoice`]), the
//! choice of replicas ([`BalanceChoice`]), admission ([`AdmitChoice`]) and the number of attempts
//! ([`CopiesChoice`]).
//!
//! It decides and does nothing else: no socket, clock, thread or entropy. A driver gives it inputs
//! (`handle_*`), carries out its [`Action`]s, and wakes it up at [`Dispatch::next_timeout`].

mod action;
mod dispatch;
mod draws;
mod error;
mod expiries;
mod extra_budget;
mod fetch;
mod few;
mod health;
mod options;
mod probes;
mod ramp;
mod replica;
mod replica_queue;
mod rules;
mod slab;
mod stats;
mod waiters;

pub use action::{Action, AttemptId, Failure, FailureKind, Reply};
pub use dispatch::Dispatch;
pub use error::{Bound, FetchError};
pub use options::{Options, OptionsError, ProbeOptions, RetryOptions};
pub use ramp::{RampOptions, RampStanding};
pub use replica_queue::ReplicaQueue;
pub use rules::names::{AdmitChoice, BalanceChoice, CopiesChoice, QueueChoice, RuleError};
pub use stats::{Counters, ReplicaStats, Stats};
pub use waiters::Waiters;
