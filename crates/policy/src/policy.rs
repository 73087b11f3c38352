//! The interface of a policy: its input and its output.

use std::time::Duration;

use sherwood_model::{Band, PartitionId};

use crate::{Kept, Observation, Reason};

/// An allocation algorithm.
///
/// Called once per control interval with a [`View`], it returns a [`Proposal`]. It may keep small
/// state between rounds (averages, credits). It has no clock: time is passed as [`View::elapsed`].
/// The controller enforces floors, pins and the total, so a proposal may ignore all three.
pub trait Policy: CopyPolicy + Send {
    /// Name by which the policy is chosen, such as `robinhood`.
    fn name(&self) -> &'static str;

    /// Observations that the policy requires; constant over its life.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// True if the cache is one LRU over all partitions from its first item on. Otherwise
    /// partitions have their initial budgets until the first decision.
    fn starts_shared(&self) -> bool {
        false
    }

    /// Bytes to divide at `elapsed` since the policy was chosen, at most `total_bytes`; a larger
    /// result counts as `total_bytes`.
    fn total_bytes(&self, elapsed: Duration, total_bytes: u64) -> u64 {
        let _ = elapsed;
        total_bytes
    }

    /// Proposes a division. With [`Needs::requests`] it is only called with at least two requests
    /// that differ in latency; with [`Needs::look_ups`], only with at least one look-up; with
    /// either, only if time has passed since the last call.
    fn propose(&mut self, view: &View<'_>) -> Proposal;
}

/// Copying of a policy with its state, implemented for every [`Clone`] policy; a copied simulation
/// continues with its own copies.
pub trait CopyPolicy {
    /// Returns a boxed copy.
    fn copy(&self) -> Box<dyn Policy>;
}

impl<P: Policy + Clone + 'static> CopyPolicy for P {
    fn copy(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Policy> {
    fn clone(&self) -> Self {
        (**self).copy()
    }
}

/// Observations that a policy requires, so that the driver measures nothing else.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    /// True if the policy requires finished requests; without any it is not called.
    pub requests: bool,
    /// Percentile bands of request latency whose request blocking counts the policy reads.
    pub bands: Vec<Band>,
    /// The quantile of request latency that the guard reads as [`Observation::tail`], 0 to 1; none
    /// without a guard.
    pub quantile: Option<f64>,
    /// True if the policy reads
    /// [`PartitionObservation::hit_ratio_slope`](crate::PartitionObservation::hit_ratio_slope),
    /// which requires simulated caches.
    pub hit_ratio_slope: bool,
    /// True if the policy requires look-ups; without any it is not called.
    pub look_ups: bool,
    /// The share of the total that shadow queues (records of the keys evicted last) cover beyond
    /// each budget, for
    /// [`PartitionObservation::shadow_hits`](crate::PartitionObservation::shadow_hits); none if not
    /// read.
    pub shadow_ratio: Option<f64>,
    /// True if the policy reads
    /// [`PartitionObservation::miss_ratio_curve`](crate::PartitionObservation::miss_ratio_curve).
    pub miss_ratio_curves: bool,
    /// True if the policy reads
    /// [`PartitionObservation::query_p99`](crate::PartitionObservation::query_p99). A driver that
    /// measures it anyway may disregard this.
    pub query_p99: bool,
    /// True if the policy reads
    /// [`PartitionObservation::miss_latency`](crate::PartitionObservation::miss_latency), which
    /// requires a record of every miss.
    pub miss_latency: bool,
}

impl Needs {
    /// Bytes that shadow queues (records of the keys evicted last) cover beyond each budget, in a
    /// cache of `total_bytes`; none if they are not read.
    #[must_use]
    pub fn shadow_bytes(&self, total_bytes: u64) -> Option<u64> {
        self.shadow_ratio.map(|ratio| (total_bytes as f64 * ratio) as u64)
    }
}

/// Input of a policy: the observation and the budgets of the last plan.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Time since the policy was chosen.
    pub elapsed: Duration,
    /// The observation to decide from.
    pub seen: &'a Observation,
    /// Budgets of the last plan in bytes, which the cache may not have reached yet; one per
    /// partition observed.
    pub budgets: &'a [u64],
    /// Bytes to divide among the partitions.
    pub total_bytes: u64,
    /// Size in bytes of a page, the unit in which partitions pay tax to the pool and get gifts from
    /// it.
    pub page_bytes: u64,
    /// Least bytes of a partition that has no pin (the floor).
    pub floor_bytes: u64,
}

/// Output of a policy: a proposal for the division of the cache.
#[derive(Clone, Debug, PartialEq)]
pub enum Proposal {
    /// No division: one LRU over all partitions.
    Shared,
    /// The budgets as they were set at the start or by hand. They may leave bytes free and be below
    /// the floor; only pins and the total change them.
    AsSet,
    /// The budgets of the last plan, with the reason for keeping them.
    Keep(Kept),
    /// Every partition pays tax, a small part of its budget, to a pool that is divided among the
    /// partitions with a claim.
    Claims(Claims),
    /// These budgets in bytes, one per partition, fitted to the total, the floors and the pins.
    Budgets(Vec<u64>),
    /// Budgets to approach in steps, each of which moves at most the share `tax` of the total.
    Toward(Target),
}

/// Budgets that a policy approaches in steps, and the reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Bytes of each partition, fitted to the total, the floors and the pins.
    pub budgets: Vec<u64>,
    /// Reason for each partition's change; [`Reason::Planned`] for missing elements.
    pub reasons: Vec<Reason>,
}

/// Claims of partitions to the pool of bytes that all partitions paid as tax.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    /// Relative claim of each partition. Only the proportions matter; a weight that is not positive
    /// and finite is no claim.
    pub weights: Vec<f64>,
    /// Partitions whose claim was dropped because they have not filled their budgets.
    pub unfilled: Vec<PartitionId>,
    /// Quantity that the weights measure, in the words of the decision's reasons.
    pub signal: Signal,
}

/// Quantity that a weight measures, as words around a percentage: "*blocked* 52% *of the slow
/// requests*".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Words before the percentage, such as "blocked".
    pub before: &'static str,
    /// Words after the percentage, such as "of the slow requests".
    pub after: &'static str,
}
