//! What a decision says.

use std::fmt;

use sherwood_model::{CachePlan, PartitionId};

use super::words;
use crate::bounds::Bounds;
use crate::{Claims, Harm, Signal, View};

/// A plan and its reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The policy that decided.
    pub policy: &'static str,
    /// The whole division of the cache from now on.
    pub plan: CachePlan,
    /// Whether to apply the plan; false in a dry run.
    pub apply: bool,
    /// Why the policy moved nothing; none when it did. Budgets may change all the same when the
    /// total or a pin has.
    pub kept: Option<Kept>,
    /// Partitions whose budget changes, and those that would have changed but for a rule; in the
    /// order of their ids.
    pub moves: Vec<Move>,
    /// Bytes that earlier plans took from partitions and that these still use.
    pub pending_bytes: u64,
    /// Why the guard went back to an earlier allocation; none when it did not.
    pub harm: Option<Harm>,
    /// All of this as one line of words, at most 2,000 bytes.
    pub line: String,
}

/// One partition's part in a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// Which partition.
    pub partition: PartitionId,
    /// Budget of the last plan in bytes.
    pub before_bytes: u64,
    /// Budget of this plan in bytes; equal to the former when a rule held it.
    pub after_bytes: u64,
    /// Why.
    pub reason: Reason,
}

/// Why a partition's budget changes or is held. In words by `Display`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// Its claim to the pool outweighs its tax, or does not.
    Claim {
        /// Its part of all claims, 0 to 1.
        ratio: f64,
        /// What the claim measures.
        signal: Signal,
    },
    /// It paid its tax and has no claim.
    Taxed,
    /// The policy named its budget.
    Planned,
    /// A step towards the size at which the policy expects this.
    Aim(Aim),
    /// The total, a floor or a pin required it.
    Fitted,
    /// It was so in the last good allocation, to which the guard went back.
    Restored,
    /// Held: it is in a dry run, and would else have these bytes.
    DryRun {
        /// The budget it would have.
        bytes: u64,
    },
    /// Held: it is as small as it may get.
    AtFloor,
    /// Held: it is as large as it may get, and had a claim.
    AtMaximum,
    /// Held or taxed: it had a claim, but has not filled what it has.
    Unfilled,
}

/// What a partition's size is expected to change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aim {
    /// What is expected to change.
    pub what: &'static str,
    /// What it is at the present budget.
    pub now: f64,
    /// What it will be when the policy is where it wants to be.
    pub then: f64,
    /// The unit of both, with a space before it where one belongs there.
    pub unit: &'static str,
}

/// Why nothing was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// No request finished in the window.
    NoRequests,
    /// One request tells nothing of a percentile.
    OneRequest,
    /// All requests took equally long, so none is slow.
    EqualLatencies,
    /// The clock stood still since the last decision.
    NoTimePassed,
    /// No key was looked up in the window.
    NoLookUps,
    /// What other sizes would bring has not been measured.
    NotMeasured,
    /// No partition has a claim: nothing blocked, or nothing was measured.
    NoClaim,
    /// Only partitions with room left to fill have a claim.
    Unfilled,
    /// The policy decided, and the outcome is what is.
    NothingToMove,
    /// The policy leaves the budgets as they were set.
    AsSet,
    /// The guard went back a while ago and holds still.
    Frozen,
    /// The partitions share one LRU; the budgets wait.
    Shared,
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

/// What explains the budgets of a decision.
pub(super) enum Why {
    /// The claims to a tax round.
    Claims(Claims),
    /// A reason for each partition.
    Each(Vec<Reason>),
    /// The same reason for all.
    Same(Reason),
}

/// What happens to each partition, leaving out those to which nothing worth a word does.
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

/// Adds what would have happened to the partitions in a dry run, had they `wanted` budgets in place
/// of their own.
pub(super) fn add_dry_runs(view: &View<'_>, wanted: &[u64], moves: &mut Vec<Move>) {
    let held = |index: usize| view.seen.partitions[index].dry_run && wanted[index] != view.budgets[index];
    for index in (0..wanted.len()).filter(|&index| held(index)) {
        let (partition, bytes) = (PartitionId::from_index(index), view.budgets[index]);
        let reason = Reason::DryRun { bytes: wanted[index] };
        let held = Move { partition, before_bytes: bytes, after_bytes: bytes, reason };
        match moves.binary_search_by_key(&partition, |step| step.partition) {
            // A total that shrank below the pins moves even these; that is what happens then.
            Ok(place) if moves[place].after_bytes == bytes => moves[place] = held,
            Ok(_) => {}
            Err(place) => moves.insert(place, held),
        }
    }
}

/// Each weight's part of their sum.
fn ratios(claims: &Claims) -> Vec<f64> {
    let claim = |weight: f64| if weight.is_finite() && weight > 0.0 { weight } else { 0.0 };
    let max = claims.weights.iter().copied().map(claim).fold(f64::MIN_POSITIVE, f64::max);
    // Scaled before they are summed: the sum of two large weights may be beyond all numbers.
    let scaled: Vec<f64> = claims.weights.iter().map(|&weight| claim(weight) / max).collect();
    let sum = scaled.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    scaled.into_iter().map(|weight| weight / sum).collect()
}

/// Why a tax round left a partition where it is; none when there is nothing to say.
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
