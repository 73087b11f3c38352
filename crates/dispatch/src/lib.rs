//! The dispatcher: a state machine for each backend. It combines misses into few calls, sends them
//! to replicas that can answer, and ends each of them in time.
//!
//! Misses are expensive. A popular key that expires is missed by hundreds of requests at once;
//! fifty keys sent as fifty calls cost fifty round trips; a dead replica fails every request that
//! uses it; and unbounded retries double the load of a backend that fails because of its load.
//! [`Dispatch`] handles all of that: keys in flight are joined, other keys are batched, replicas
//! are chosen by load and avoided while they are down, extra attempts are paid from a budget, and
//! all waiting is bounded in number and time.
//!
//! Four rules can be chosen by name: the order of a replica's queue ([`QueueChoice`]), the choice
//! of replicas ([`BalanceChoice`]), admission ([`AdmitChoice`]) and the number of attempts
//! ([`CopiesChoice`]).
//!
//! It has no socket, clock, thread or entropy. A driver passes it inputs (`handle_*`), carries out
//! its [`Action`]s, and calls it at [`Dispatch::next_timeout`].

mod acknowledge;
mod action;
mod attempt_meter;
mod connections;
mod dispatch;
mod draws;
mod error;
mod estimate;
mod expiries;
mod extra_budget;
mod extra_load;
mod fetch;
mod health;
mod holders;
mod leased;
mod log;
mod options;
mod peer_rates;
mod probes;
mod ramp;
mod replica;
mod replica_queue;
mod request_table;
mod rules;
mod slab;
mod stats;
mod tenants;
mod tickets;
mod tier_meter;
mod tier_queue;
mod waiters;

pub use acknowledge::Acknowledge;
pub use action::{Action, AttemptId, CancelReason, Failure, FailureKind, LeaseId, Reply};
pub use connections::{ConnectionAction, ConnectionId};
pub use dispatch::{CallOrigin, Dispatch, NewDelivery};
pub use error::{Bound, FetchError};
pub use estimate::Estimate;
pub use holders::Holders;
pub use log::{
    BatchEnd, DuplicateState, FrameWrite, Layout, LayoutTextError, Log, LogAction, LogCounts, LogEntry,
    LogFiles, LogOptions, LogRecord, LogRefused, Marker, MarkerError, Recovered, StoreEnd,
};
pub use options::{Options, OptionsError, OverRate, ProbeOptions, RetryOptions, TenantOptions};
pub use peer_rates::{
    PeerLoan, PeerNode, PeerRateOptions, PeerRates, RateAction, RateAmount, RateAsk, RateGrant, RatePart,
};
pub use ramp::{RampOptions, RampStanding};
pub use replica_queue::{QueueOptions, QueuedCall, ReplicaQueue};
pub use rules::names::{AdmitChoice, BalanceChoice, CopiesChoice, QueueChoice, RuleError};
pub use rules::{CancelRule, ExtraOrder, Figures};
pub use stats::{AttemptCounts, AttemptKind, AttemptOutcome, Counters, ReplicaStats, Stats};
pub use tenants::{
    Charged, DebtOptions, DebtPlace, DebtQueues, DebtWork, LOOK_AGAIN, NodeRates, Payer, RatesInForce,
    Started, TenantGate, TenantQueueOptions, TenantQueues, TenantRefusal, TenantUse, WaitingId,
};
pub use tickets::{
    CallAction, CallOptions, GivenTicket, SchedulerBackoff, TicketAction, TicketError, TicketId, TicketOffer,
    TicketOptions, TicketRequest, TicketStats, TicketedCall, Tickets,
};
pub use waiters::Waiters;
