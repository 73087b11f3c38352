//! The control loop as the admin API shows it.

use schemars::JsonSchema;
use serde::Serialize;
use sherwood_policy::Decision;

use super::admission::AdmissionView;
use super::guard::GuardView;
use crate::names::Names;

/// State of the control loop.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Control")]
pub(crate) struct ControlView {
    /// The backends whose admission has a target of missed deadlines.
    pub(super) admission: Vec<AdmissionView>,
    /// Names of the policies that can be switched to.
    pub(super) available: &'static [&'static str],
    /// Percentiles between which blocking backends are counted, in percent.
    pub(super) band: [f64; 2],
    /// The policy between tenants; left out without tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) between: Option<&'static str>,
    pub(super) decisions: u64,
    pub(super) delta_ms: f64,
    pub(super) dry_run: bool,
    /// The guard; null when it is off.
    pub(super) guard: Option<GuardView>,
    /// The latest decision; null before the first.
    pub(super) latest: Option<DecisionView>,
    pub(super) policy: &'static str,
    pub(super) rbc_window_ms: f64,
    pub(super) tax_ratio: f64,
}

/// A decision of the control loop.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Decision")]
pub(crate) struct DecisionView {
    /// False in a dry run.
    applied: bool,
    /// The reason for which nothing was moved; null when something was.
    kept: Option<String>,
    /// The decision in words.
    line: String,
    moves: Vec<MoveView>,
    /// Bytes that earlier decisions took from partitions which still use them.
    pending_bytes: u64,
    policy: &'static str,
}

/// A change of a partition's budget.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Move")]
struct MoveView {
    after_bytes: u64,
    before_bytes: u64,
    partition: String,
    reason: String,
}

impl DecisionView {
    /// Returns a decision with the names of its partitions.
    pub(super) fn of(names: &Names, decision: &Decision) -> Self {
        let moves = decision.moves.iter().map(|step| MoveView {
            after_bytes: step.after_bytes,
            before_bytes: step.before_bytes,
            partition: names.partitions()[step.partition.index()].name.clone(),
            reason: step.reason.to_string(),
        });
        Self {
            applied: decision.apply,
            kept: decision.kept.as_ref().map(ToString::to_string),
            line: decision.line.clone(),
            moves: moves.collect(),
            pending_bytes: decision.pending_bytes,
            policy: decision.policy,
        }
    }
}
