//! The node's record of the division among tenants: counters, quotas and trades.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::Serialize;
use sherwood_config::{TenancySetup, TermsError};
use sherwood_model::{PartitionId, TenantId};
use sherwood_policy::tenants::{
    Division, TenantControlError, TenantController, TenantDecision, TenantOptions, TenantPolicy,
    TenantPolicyError, TenantSeen, TenantStanding, TenantTerms,
};
use sherwood_policy::{Controller, Options, Policy, TwoLevels, TwoLevelsError};

use super::change::ChangeError;
use crate::names::Names;
use crate::tenants::TenantCounters;

/// Most sentences of trades that are kept.
const TRADES_MAX: usize = 256;

/// The tenants' counters, their bytes and rates for other threads to read, and the reported trades.
pub(crate) struct TenantRecord {
    setup: Arc<TenancySetup>,
    traffic: Arc<TenantCounters>,
    quotas: Arc<Quotas>,
    trades: VecDeque<SaidTrade>,
    decisions: u64,
}

/// The sentence of a trade.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Trade")]
pub(crate) struct SaidTrade {
    /// Wall time of the decision, milliseconds since 1970.
    pub(crate) unix_ms: u64,
    pub(crate) sentence: String,
}

/// Holdings of each tenant, for threads that must not wait for a decision.
#[derive(Debug, Default)]
pub(crate) struct Quotas(Mutex<Vec<Quota>>);

/// Holdings of a tenant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quota {
    /// Bytes of cache.
    pub(crate) bytes: u64,
    /// Units per second of each resource.
    pub(crate) rates: Vec<f64>,
    /// Throughput divided by that of the baseline, at the latest decision.
    pub(crate) normalized: Option<f64>,
}

impl Quotas {
    /// Returns what a tenant has; none if there is no such tenant.
    pub(crate) fn of(&self, tenant: TenantId) -> Option<Quota> {
        self.0.lock().expect("no panics while held").get(tenant.index()).cloned()
    }
}

/// The reason that tenants cannot be divided among, or not by a policy.
#[derive(Debug, thiserror::Error)]
pub enum TenancyError {
    /// The options of the level between tenants are invalid.
    #[error(transparent)]
    Control(#[from] TenantControlError),
    /// There is no such policy between tenants.
    #[error(transparent)]
    Policy(#[from] TenantPolicyError),
    /// The policy cannot be used within a tenant.
    #[error(transparent)]
    Within(#[from] TwoLevelsError),
}

impl TenantRecord {
    /// Returns the two levels of a node's tenants, and the record of the tenants. They start from
    /// the tenants' baselines, which are split among the partitions in proportion to `budgets`.
    /// From then on, `within` divides each tenant's bytes.
    pub(crate) fn open(
        setup: Arc<TenancySetup>,
        total_bytes: u64,
        within: &dyn Policy,
        options: &Options,
        (names, budgets): (&Names, &[u64]),
        traffic: Arc<TenantCounters>,
    ) -> Result<(TwoLevels, Self), TenancyError> {
        let policy = setup.options.policy.clone();
        let between = TenantController::new(
            sherwood_policy::tenants::by_name(&policy, policy_options(&setup))?,
            setup.options.control(),
            setup.described_resources(),
            total_bytes,
            setup.terms(total_bytes),
        )?;
        let level = |partitions: Vec<_>| {
            let name = |id: &PartitionId| names.partitions()[id.index()].name.clone();
            let budgets = partitions.iter().map(|id: &PartitionId| budgets[id.index()]).collect();
            let names = partitions.iter().map(name).collect();
            (Controller::new(within.copy(), options, names, budgets), partitions)
        };
        let levels = TwoLevels::new(between, traffic.partitions().into_iter().map(level).collect())?;
        let (trades, quotas) = (VecDeque::new(), Arc::default());
        let record = Self { setup, traffic, quotas, trades, decisions: 0 };
        record.publish(levels.between(), None);
        Ok((levels, record))
    }

    /// Holdings of the tenants, to be read by other threads.
    pub(crate) fn quotas(&self) -> &Arc<Quotas> {
        &self.quotas
    }

    /// Returns the counters of the tenants.
    pub(super) fn traffic(&self) -> &TenantCounters {
        &self.traffic
    }

    /// Records the trades of a decision that was made at the wall time `unix_ms`.
    pub(super) fn note(&mut self, decision: &TenantDecision, unix_ms: u64) {
        self.decisions += 1;
        for sentence in &decision.trades {
            if self.trades.len() == TRADES_MAX {
                self.trades.pop_front();
            }
            self.trades.push_back(SaidTrade { unix_ms, sentence: sentence.clone() });
        }
    }

    /// Publishes the tenants' bytes and rates, with the measured throughput of `standings`, if
    /// given.
    pub(super) fn publish(&self, between: &TenantController, standings: Option<&[TenantStanding]>) {
        let mut quotas = self.quotas.0.lock().expect("no panics while held");
        quotas.resize(between.bytes().len(), Quota::default());
        for (index, quota) in quotas.iter_mut().enumerate() {
            quota.bytes = between.bytes()[index];
            quota.rates = between.rates().row(TenantId::from_index(index)).to_vec();
            if let Some(standings) = standings {
                quota.normalized = standings[index].normalized;
            }
        }
    }
}

/// The levels between and within tenants, with the node's record of them.
#[derive(Clone, Copy)]
pub(crate) struct TenantLevels<'a> {
    pub(super) levels: &'a TwoLevels,
    pub(super) record: &'a TenantRecord,
}

impl<'a> TenantLevels<'a> {
    /// Returns both levels.
    pub(crate) fn levels(self) -> &'a TwoLevels {
        self.levels
    }

    /// Returns the declared tenants and resources.
    pub(super) fn setup(self) -> &'a TenancySetup {
        &self.record.setup
    }

    /// Returns the counters of the tenants.
    pub(super) fn traffic(self) -> &'a TenantCounters {
        &self.record.traffic
    }

    /// Returns the number of decisions between tenants since the start.
    pub(crate) fn decisions(self) -> u64 {
        self.record.decisions
    }

    /// Returns the latest trades, oldest first, at most 256.
    pub(crate) fn trades(self) -> impl Iterator<Item = &'a SaidTrade> {
        self.record.trades.iter()
    }

    /// Returns the policy with this name, for the division between these tenants.
    pub(super) fn policy_between(self, name: &str) -> Result<Box<dyn TenantPolicy>, TenantPolicyError> {
        sherwood_policy::tenants::by_name(name, policy_options(self.setup()))
    }

    /// Returns the terms of all tenants with changed weights and least bytes, for a cache of
    /// `total_bytes`.
    ///
    /// # Errors
    /// If every share of a tenant is stated, so that its weight has no effect; or if a minimum
    /// would exceed its tenant's share.
    pub(super) fn changed_terms(
        self,
        changed: &[(TenantId, Option<f64>, Option<u64>)],
        total_bytes: u64,
    ) -> Result<Vec<TenantTerms>, TermsError> {
        let mut terms = self.levels.between().terms().to_vec();
        for &(tenant, weight, min_bytes) in changed {
            if weight.is_some() {
                self.setup().check_weighted(tenant)?;
            }
            let own = &mut terms[tenant.index()];
            own.weight = weight.unwrap_or(own.weight);
            own.min.bytes = min_bytes.unwrap_or(own.min.bytes);
        }
        self.setup().rebased(total_bytes, terms, &[])
    }

    /// Returns the division that the policy finds with other weights and with more tenants.
    ///
    /// # Errors
    /// The errors of [`changed_terms`](Self::changed_terms), or the refusal of an invalid division
    /// by the policy.
    pub(crate) fn what_if(
        self,
        weights: &[(TenantId, f64)],
        added: Vec<(TenantTerms, TenantSeen)>,
    ) -> Result<(Vec<TenantTerms>, Division), ChangeError> {
        let mut terms = self.levels.between().terms().to_vec();
        for &(tenant, weight) in weights {
            self.setup().check_weighted(tenant)?;
            terms[tenant.index()].weight = weight;
        }
        let (more, seen): (Vec<_>, Vec<_>) = added.into_iter().unzip();
        let total_bytes = self.levels.between().total().bytes;
        let terms = self.setup().rebased(total_bytes, terms, &more)?;
        let between = self.levels.between();
        let policy = between.policy().name();
        let division = between.what_if(&terms, &seen);
        let division = division.map_err(|fault| ChangeError::Division { policy, fault })?;
        Ok((terms, division))
    }

    /// The latest decision between tenants.
    pub(crate) fn latest(self) -> Option<&'a TenantDecision> {
        self.levels.between().latest()
    }
}

/// Options of policies between the tenants of a setup.
fn policy_options(setup: &TenancySetup) -> TenantOptions {
    let bases = setup.tenants.iter().map(|tenant| tenant.base_bytes);
    TenantOptions::of_baselines(bases, setup.options.conserving)
}
