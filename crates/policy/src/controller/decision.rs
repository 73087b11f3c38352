//! A decision: the plan, its moves and their reasons.

use std::fmt;

use sherwood_model::{PartitionId, Plan};

use super::words;
use crate::bounds::Bounds;
use crate::{Claims, Harm, Signal, View};

/// A plan (division of the cache) and the reasons for its changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Name of the policy that decided.
    pub policy: &'static str,
    /// The complete division of the cache and, with several tenants, of rates.
    pub plan: Plan,
    /// True if the plan is to be applied; false in a dry run.
    pub apply: bool,
    /// Reason why the policy moved nothing; none if it moved bytes. Budgets may change nevertheless
    /// if the total or a pin did.
    pub kept: Option<Kept>,
    /// Partitions whose budget changes or was held by a rule, in the order of their ids.
    pub moves: Vec<Move>,
    /// Sum of the bytes that partitions use above the budgets of the last plan, still to be
    /// evicted.
    pub pending_bytes: u64,
    /// Reason why the guard rolled back to an earlier allocation; none if it did not.
    pub harm: Option<Harm>,
    /// The decision as one line of text, at most 2,000 bytes.
    pub line: String,
}

/// The change, or hold, of one partition's budget in a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The partition whose budget changes or is held.
    pub partition: PartitionId,
    /// Budget of the last plan in bytes.
    pub before_bytes: u64,
    /// Budget of this plan in bytes; equal to `before_bytes` if a rule held it.
    pub after_bytes: u64,
    /// Cause of the change or of the hold.
    pub reason: Reason,
}

/// Cause of a partition's change of budget, or of its being held. `Display` gives it in words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The partition's claim to the pool is larger than the tax it paid, or smaller.
    Claim {
        /// The partition's part of all claims, 0 to 1.
        ratio: f64,
        /// Quantity that the claim measures.
        signal: Signal,
    },
    /// The partition paid its tax and has no claim to the pool.
    Taxed,
    /// The policy set this budget directly.
    Planned,
    /// The budget moved a step towards the size at which the policy expects the described change.
    Aim(Aim),
    /// The budget was changed to obey the total, a floor or a pin.
    Fitted,
    /// Budget of the last good allocation, to which the guard rolled back.
    Restored,
    /// The partition is in a dry run, which keeps its budget.
    DryRun {
        /// Budget in bytes that the partition would have without the dry run.
        bytes: u64,
    },
    /// The budget stays at the partition's lower bound.
    AtFloor,
    /// The budget stays at the partition's upper bound although it has a claim.
    AtMaximum,
    /// The budget stays or shrinks although the partition has a claim, because it has not filled
    /// it.
    Unfilled,
}

/// Change that a policy expects of a partition's new size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aim {
    /// Name of the measure that is expected to change.
    pub what: &'static str,
    /// Value of the measure at the present budget.
    pub now: f64,
    /// Value of the measure at the policy's target.
    pub then: f64,
    /// Unit of both values, with a leading space where one belongs there.
    pub unit: &'static str,
}

/// Reason why a decision moved no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// No request finished in the observed time window.
    NoRequests,
    /// A single request finished in the window: too few for a percentile.
    OneRequest,
    /// All requests of the window took equally long, so none is slow.
    EqualLatencies,
    /// The clock did not advance since the last decision.
    NoTimePassed,
    /// No key was looked up in the observed time window.
    NoLookUps,
    /// No estimate of the effect of other sizes is available.
    NotMeasured,
    /// No partition has a claim to the pool: nothing blocked requests, or nothing was measured.
    NoClaim,
    /// Only partitions that have not filled their budgets have a claim to the pool.
    Unfilled,
    /// The decided budgets equal the present ones.
    NothingToMove,
    /// The policy leaves the budgets as they were set.
    AsSet,
    /// The guard rolled back and holds the allocation for a while.
    Frozen,
    /// The partitions share one LRU; the budgets are kept for later.
    Shared,
}

impl Kept {
    /// True if the window had nothing that the policy could learn from.
    pub(crate) fn is_idle(self) -> bool {
        matches!(self, Self::NoRequests | Self::OneRequest | Self::EqualLatencies | Self::NoLookUps)
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRequests => "no request finished in the window",
            Self::OneRequest => "only one request finished in the window",
            Self::EqualLatencies => "all requests took equally long",
            Self::NoTimePassed => "no time has passed since the last decision",
            Self::NoLookUps => "no key was looked up in the window",
            Self::NotMeasured => "what other sizes would bring is not known",
            Self::NoClaim => "no partition has a claim to more",
            Self::Unfilled => "those with a claim have room left to fill",
            Self::NothingToMove => "they are as they should be",
            Self::AsSet => "they stay as they were set",
            Self::Frozen => "the guard holds them after going back",
            Self::Shared => "all partitions share one LRU",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim { ratio, signal: Signal { before, after } } => {
                write!(f, "{before}{:.0}%{after}", ratio * 100.0)
            }
            Self::Taxed => f.write_str("paid its part to the pool"),
            Self::Planned => f.write_str("as planned"),
            Self::Aim(Aim { what, now, then, unit }) => {
                write!(f, "{what} from {now:.1} to {then:.1}{unit}")
            }
            Self::Fitted => f.write_str("to fit the total, the floors and the pins"),
            Self::Restored => f.write_str("back to the last good allocation"),
            Self::DryRun { bytes } => write!(f, "in a dry run, would have {}", words::bytes(*bytes)),
            Self::AtFloor => f.write_str("kept at its floor"),
            Self::AtMaximum => f.write_str("kept at its maximum"),
            Self::Unfilled => f.write_str("has room left to fill"),
        }
    }
}

/// Reasons for the budgets of a decision.
pub(super) enum Why {
    /// The claims to the pool of a tax round.
    Claims(Claims),
    /// A reason for each partition.
    Each(Vec<Reason>),
    /// The same reason for all partitions.
    Same(Reason),
}

/// Lists the partitions whose budgets change or are held, each with its reason.
pub(super) fn moves(view: &View<'_>, after: &[u64], bounds: &Bounds, why: &Why) -> Vec<Move> {
    let ratios = if let Why::Claims(claims) = why { ratios(claims) } else { Vec::new() };
    let explain = |(index, (&before_bytes, &after_bytes)): (usize, (&u64, &u64))| {
        let partition = PartitionId::from_index(index);
        let reason = match why {
            Why::Claims(claims) => {
                let bounds = (bounds.low[index], bounds.high[index]);
                round_reason(claims, partition, ratios[index], (before_bytes, after_bytes), bounds)?
            }
            _ if before_bytes == after_bytes => return None,
            Why::Each(reasons) => reasons[index],
            Why::Same(reason) => *reason,
        };
        Some(Move { partition, before_bytes, after_bytes, reason })
    };
    view.budgets.iter().zip(after).enumerate().filter_map(explain).collect()
}

/// Adds a hold for each partition in a dry run whose `wanted` budget differs from its own.
pub(super) fn add_dry_runs(view: &View<'_>, wanted: &[u64], moves: &mut Vec<Move>) {
    let held = |index: usize| view.seen.partitions[index].dry_run && wanted[index] != view.budgets[index];
    for index in (0..wanted.len()).filter(|&index| held(index)) {
        let (partition, bytes) = (PartitionId::from_index(index), view.budgets[index]);
        let reason = Reason::DryRun { bytes: wanted[index] };
        let held = Move { partition, before_bytes: bytes, after_bytes: bytes, reason };
        match moves.binary_search_by_key(&partition, |step| step.partition) {
            // A total below the pins changes even these budgets; that move is reported instead.
            Ok(place) if moves[place].after_bytes == bytes => moves[place] = held,
            Ok(_) => {}
            Err(place) => moves.insert(place, held),
        }
    }
}

/// Each partition's weight as a part of the sum of weights.
fn ratios(claims: &Claims) -> Vec<f64> {
    let claim = |weight: f64| if weight.is_finite() && weight > 0.0 { weight } else { 0.0 };
    let max = claims.weights.iter().copied().map(claim).fold(f64::MIN_POSITIVE, f64::max);
    // Scaled before summation: the sum of two large weights may be infinite.
    let scaled: Vec<f64> = claims.weights.iter().map(|&weight| claim(weight) / max).collect();
    let sum = scaled.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    scaled.into_iter().map(|weight| weight / sum).collect()
}

/// Reason for a partition's outcome in a tax round; none if there is nothing to report.
fn round_reason(
    claims: &Claims,
    partition: PartitionId,
    ratio: f64,
    (before, after): (u64, u64),
    (low, high): (u64, u64),
) -> Option<Reason> {
    let claim = ratio > 0.0;
    Some(match after.cmp(&before) {
        _ if claims.unfilled.contains(&partition) => Reason::Unfilled,
        std::cmp::Ordering::Equal if claim && after == high => Reason::AtMaximum,
        std::cmp::Ordering::Equal if after == low => Reason::AtFloor,
        std::cmp::Ordering::Equal => return None,
        _ if claim => Reason::Claim { ratio, signal: claims.signal },
        std::cmp::Ordering::Less => Reason::Taxed,
        std::cmp::Ordering::Greater => Reason::Fitted,
    })
}
