//! The control loop: turns a driver's observations into plans, with reasons.
//!
//! ```text
//!   driver ── Seen ──▶ ControlLoop ── Act::Apply(Plan) ──▶ driver applies it, all or nothing
//!     ▲                  │      └──── Act::Say(Said) ────▶ events, log
//!     └── needs, next_timeout
//!
//!   levers of the loop                       what each alone changes
//!     Levels      Controller or TwoLevels    budgets of partitions, rates of tenants
//!     Admission   BetaController             β of backends with a target of missed deadlines
//!     Replication Replicator                 copies of requests in the tiers of an application
//!     Stores      Manager                    duplicates of replicated stores that are asked
//! ```
//!
//! The loop owns what all levers have in common: when each decides, the operator's pins, dry runs,
//! the guard's roll-back, and the record of decisions. It reads no clock and no counter itself: a
//! driver (the node, a simulator, a test) observes what the loop [needs](ControlLoop::needs) when
//! it is [due](ControlLoop::next_timeout), hands it in, and carries out the [acts](Act).
//!
//! A driver that observes late skips the rounds that it missed. With a driver that never observes,
//! the last plan stays in force. A time that is not later than the last one, or an observation that
//! is not newer, moves nothing. A proposed plan that does not divide the totals validly is refused
//! and reported; one that the driver cannot apply is taken back.

mod act;
mod acts;
mod admission;
mod beta;
mod check;
pub mod cluster;
mod control_loop;
mod following;
mod history;
mod levels;
mod losses;
mod merge;
mod pins;
mod replication;
mod seen;
mod stores;

pub use act::{Act, Said};
pub use admission::{Admission, AdmissionStanding, BetaChoice};
pub use beta::{BetaController, BetaDecision, DeadlineCounts};
pub use check::{PlanFault, Refused};
pub use control_loop::{ControlLoop, Needs};
pub use following::{SNAPSHOT_AGE_MAX, followed};
pub use levels::{Levels, OneLevelOnly};
pub use merge::{CacheReport, LookUps, Merged, MergedNames, MergedReport, Merger, Report, merge};
pub use pins::{Pin, PinError, check_least, check_sums};
pub use replication::{CopiesDecision, Replication};
pub use seen::{AdmissionSeen, CacheSeen, LossesSeen, PartitionSeen, ReplicationSeen, Seen, StoreSeen};
pub use stores::{StoreMeasure, StoreSaid, StoreStanding, Stores};
