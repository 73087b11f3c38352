//! The interface of a policy: what it is shown, what it answers.

use std::time::Duration;

use sherwood_model::{Band, PartitionId};

use crate::{Kept, Observation, Reason};

/// One way to divide the cache.
///
/// A policy is asked once per control interval and answers with a [`Proposal`]; it may keep small
/// state of its own between the rounds (averages, queues of credit). It never sees a clock: time
/// reaches it as [`View::elapsed`]. Floors, pins and conservation are the controller's business, so
/// a proposal may be careless about all three.
pub trait Policy: CopyPolicy + Send {
    /// The name it is chosen by.
    fn name(&self) -> &'static str;

    /// What must be observed for it. The answer does not change over a policy's life.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Whether the cache is one LRU over all partitions from its first item on, rather than from
    /// the first decision on. Until then the others have the budgets they start with.
    fn starts_shared(&self) -> bool {
        false
    }

    /// Bytes to divide after `elapsed`, of the `total_bytes` there are. More than there are counts
    /// as all.
    fn total_bytes(&self, elapsed: Duration, total_bytes: u64) -> u64 {
        let _ = elapsed;
        total_bytes
    }

    /// What to do now. When [`Needs::requests`] is set it is only called with at least two requests
    /// that differ in latency; when [`Needs::look_ups`] is set, only with at least one look-up;
    /// with either, only if time has passed since the last call.
    fn propose(&mut self, view: &View<'_>) -> Proposal;
}

/// That a policy can be copied with all it keeps, as every one can that is [`Clone`]: a simulation
/// that is copied goes on with policies of its own.
pub trait CopyPolicy {
    /// A copy.
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

/// What a policy wants observed, so that the driver measures nothing in vain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    /// It learns from finished requests and has nothing to say without them.
    pub requests: bool,
    /// Bands whose blocking counts it reads.
    pub bands: Vec<Band>,
    /// The quantile of request latency that is read as [`Observation::tail`], 0 to 1; the guard's,
    /// no policy asks for one.
    pub quantile: Option<f64>,
    /// It reads [`PartitionSeen::hit_ratio_slope`](crate::PartitionSeen::hit_ratio_slope), which
    /// costs simulated caches.
    pub hit_ratio_slope: bool,
    /// It learns from look-ups and has nothing to say without them.
    pub look_ups: bool,
    /// The share of the total that
    /// [`PartitionSeen::shadow_hits`](crate::PartitionSeen::shadow_hits) is counted beyond each
    /// budget, if it reads them.
    pub shadow_ratio: Option<f64>,
    /// It reads [`PartitionSeen::miss_ratio_curve`](crate::PartitionSeen::miss_ratio_curve).
    pub miss_ratio_curves: bool,
    /// It reads [`PartitionSeen::miss_latency`](crate::PartitionSeen::miss_latency), which costs a
    /// record of every miss.
    pub miss_latency: bool,
}

impl Needs {
    /// How far beyond each budget finds are counted, in bytes of a cache of `total_bytes`; none if
    /// nobody reads them.
    #[must_use]
    pub fn shadow_bytes(&self, total_bytes: u64) -> Option<u64> {
        self.shadow_ratio.map(|ratio| (total_bytes as f64 * ratio) as u64)
    }
}

/// What a policy is shown.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Time since the policy was chosen.
    pub elapsed: Duration,
    /// What was observed.
    pub seen: &'a Observation,
    /// Budgets of the last plan in bytes, whether the cache has reached them or not; one per
    /// partition observed.
    pub budgets: &'a [u64],
    /// Bytes to divide.
    pub total_bytes: u64,
    /// The unit of tax and gifts.
    pub page_bytes: u64,
    /// Least bytes of a partition without a pin.
    pub floor_bytes: u64,
}

/// What a policy answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Proposal {
    /// No division: one LRU over all partitions.
    Shared,
    /// The budgets as they were set at the start or by hand. They may leave bytes free and be below
    /// the floor; only pins and the total change them.
    AsSet,
    /// The budgets of the last plan, and why nothing better is known.
    Keep(Kept),
    /// The tax of every partition goes to those with a claim.
    Claims(Claims),
    /// These budgets in bytes, one per partition, fitted to the total, the floors and the pins.
    Budgets(Vec<u64>),
    /// Budgets to go to in small steps, each of which moves at most the tax of the total.
    Toward(Target),
}

/// Where a policy wants the budgets to be in the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Bytes of each partition, fitted to the total, the floors and the pins.
    pub budgets: Vec<u64>,
    /// Why each partition's would change; [`Reason::Planned`] for those beyond its end.
    pub reasons: Vec<Reason>,
}

/// Who has a claim to the pool, and by what right.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    /// Relative claim of each partition. Only the proportions matter; what is not a positive finite
    /// number is no claim.
    pub weights: Vec<f64>,
    /// Partitions whose claim was set aside because they have not filled what they were given.
    pub unfilled: Vec<PartitionId>,
    /// What the weights measure, for the reasons.
    pub signal: Signal,
}

/// What a weight measures, as words around a percentage: "*blocked* 52% *of the slow requests*".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The words before it.
    pub before: &'static str,
    /// The words after it.
    pub after: &'static str,
}
