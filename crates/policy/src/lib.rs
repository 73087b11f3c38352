//! Decisions: from what was observed to how the cache is divided, with reasons.
//!
//! Memory in the right partition is what keeps the slow requests fast, and which partition that is
//! changes while backends speed up and slow down. Each published answer to that question is a
//! [`Policy`] here, chosen by name ([`by_name`]); what all of them need alike is done once, in the
//! [`Controller`]:
//!
//! ```text
//!   driver ──▶ Observation ──▶ Controller ──▶ Decision { plan, moves, reasons } ──▶ driver applies the plan
//!                                │     ▲
//!                           View ▼     │ Proposal (weights, budgets, share, keep)
//!                               Policy
//! ```
//!
//! A policy says who has a claim, the controller turns the claim into budgets: it collects the tax
//! and gives it out in whole pages, keeps floors, pins and the total, keeps the last plan when
//! there is nothing to learn, and says in words who gave, who got and why. So a new policy is a few
//! lines, and none of them can lose a byte.
//!
//! Nothing here reads a clock or does I/O. Budgets are whole numbers of bytes, shares are rounded
//! by largest remainder and ties go to the lower id, so equal inputs give equal plans on every
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
mod request_log;
mod share;
mod tax;

pub use controller::{Aim, Controller, Decision, Kept, Move, Reason};
pub use counter_window::CounterWindow;
pub use curve::MissRatioCurve;
pub use guard::{GuardOptions, GuardStanding, Harm};
pub use miss_latency::MissLatency;
pub use names::{PolicyError, available, available_without_options, by_name};
pub use observation::{BandCounts, Observation, PartitionSeen, SLOPE_STEP_RATIO, hit_ratio_slope};
pub use options::{
    BubbleWrap, CliffhangerOptions, FairMode, FairOptions, LamaMode, LamaOptions, Options, OptionsError,
    Rounding, SizeStage, StartSize, TaoMode, TaoOptions, TotalStage,
};
pub use policy::{Claims, CopyPolicy, Needs, Policy, Proposal, Signal, Target, View};
pub use request_log::RequestLog;
