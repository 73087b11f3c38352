//! Decisions: from an observation to a division of the cache, with reasons.
//!
//! Requests stay fast if the right partition has the memory, and which partition that is changes as
//! backends speed up and slow down. Each published allocation algorithm is a [`Policy`] here,
//! chosen by name ([`by_name`]); the [`Controller`] does the work common to all of them:
//!
//! ```text
//!   driver ──▶ Observation ──▶ Controller ──▶ Decision { plan, moves, reasons } ──▶ driver applies the plan
//!                                │     ▲
//!                           View ▼     │ Proposal (weights, budgets, share, keep)
//!                               Policy
//! ```
//!
//! A policy states claims, and the controller turns them into budgets: it collects the tax and
//! distributes it in whole pages, enforces floors, pins and the total, keeps the last plan if there
//! is nothing to learn, and states each gain and loss with its reason. A new policy therefore takes
//! a few lines and cannot lose a byte.
//!
//! The crate reads no clock and does no I/O. Budgets are whole numbers of bytes, shares are rounded
//! by largest remainder, and ties go to the lower id, so equal inputs give equal plans on every
//! machine.

mod approach;
mod bounds;
mod controller;
mod counter_window;
mod curve;
mod guard;
mod miss_latency;
mod names;
mod observation;
mod options;
mod policies;
mod policy;
pub mod replication;
mod request_log;
mod share;
pub mod slo;
pub mod stores;
mod tax;
pub mod tenants;
mod two_levels;

pub use controller::{Aim, Controller, Decision, Kept, Move, Reason};
pub use counter_window::CounterWindow;
pub use curve::MissRatioCurve;
pub use guard::{GuardOptions, GuardStanding, Harm};
pub use miss_latency::MissLatency;
pub use names::{PolicyError, available, available_without_options, by_name};
pub use observation::{BandCounts, Observation, PartitionObservation, SLOPE_STEP_RATIO, hit_ratio_slope};
pub use options::{
    BubbleWrap, CliffhangerOptions, FairMode, FairOptions, LamaMode, LamaOptions, Options, OptionsError,
    Rounding, SizeStage, StartSize, TaoMode, TaoOptions, TotalStage,
};
pub use policy::{Claims, CopyPolicy, Needs, Policy, Proposal, Signal, Target, View};
pub use request_log::{BAND_REQUESTS_MIN, RequestLog};
pub use two_levels::{TwoLevels, TwoLevelsError};
