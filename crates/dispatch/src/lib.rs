//! The way after a miss: one state machine per backend that turns misses into as few calls as it
//! can, sends them to replicas that can answer, and ends every one of them in time.
//!
//! A miss is where a cache hurts most. A popular key that expires is missed by hundreds of requests
//! at once; a batch of fifty keys sent as fifty calls costs fifty round trips; a replica that died
//! takes every request that touches it with it; and a retry without a bound doubles the load of a
//! backend that fails because it is loaded. [`Dispatch`] holds the answers to these in one place:
//! keys in flight are joined, the others travel in batches, replicas are chosen by load and left
//! alone while they are down, retries live on a budget, and everything that waits has a bound and a
//! deadline.
//!
//! It decides and does nothing else: no socket, clock, thread or entropy. A driver hands it inputs
//! (`handle_*`), carries out its [`Action`]s, and wakes it up at [`Dispatch::next_timeout`].

mod action;
mod budget;
mod dispatch;
mod draws;
mod error;
mod health;
mod options;
mod probes;
mod ramp;
mod replica;
mod route;
mod slab;
mod stats;
mod waiters;

pub use action::{Action, AttemptId, Failure, FailureKind, Reply};
pub use dispatch::Dispatch;
pub use error::{Bound, FetchError};
pub use options::{Options, OptionsError, ProbeOptions, RetryOptions};
pub use ramp::{RampOptions, RampStanding};
pub use route::{CallShape, PowerOfTwo, ReplicaLoad, Route};
pub use stats::{Counters, ReplicaStats, Stats};
pub use waiters::Waiters;
