//! The level between tenants, and what reports show of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::Serialize;
use sherwood_config::{TenancySetup, TermsError};
use sherwood_model::{Instant, PartitionId, Plan, RequestSnapshot, TenantId};
use sherwood_policy::tenants::{
    Division, TenantControlError, TenantController, TenantDecision, TenantOptions, TenantPolicy,
    TenantPolicyError, TenantRound, TenantSeen, TenantStanding, TenantTerms,
};
use sherwood_policy::{Controller, Decision, Observation, Options, Policy, TwoLevels, TwoLevelsError};

use crate::names::Names;
use crate::tenants::Traffic;

/// Most sentences of trades that are kept.
const TRADES_MAX: usize = 256;

/// The levels between and within tenants.
pub(crate) struct TenantLevels {
    levels: TwoLevels,
    setup: Arc<TenancySetup>,
    traffic: Arc<Traffic>,
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

impl TenantLevels {
    /// Creates the levels of a node's tenants, which start from their baselines, divided in
    /// proportion to `budgets` of all partitions. `within` divides a tenant's bytes from then on.
    pub(crate) fn new(
        setup: Arc<TenancySetup>,
        total_bytes: u64,
        within: &dyn Policy,
        options: &Options,
        (names, budgets): (&Names, &[u64]),
        traffic: Arc<Traffic>,
    ) -> Result<Self, TenancyError> {
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
        let mut tenants = Self { levels, setup, traffic, quotas, trades, decisions: 0 };
        tenants.publish(None);
        Ok(tenants)
    }

    /// Both levels.
    pub(crate) fn levels(&self) -> &TwoLevels {
        &self.levels
    }

    /// The declared tenants and resources.
    pub(super) fn setup(&self) -> &TenancySetup {
        &self.setup
    }

    /// The counters of the tenants.
    pub(super) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Holdings of the tenants, to be read by other threads.
    pub(crate) fn quotas(&self) -> &Arc<Quotas> {
        &self.quotas
    }

    /// Decisions between tenants since the start.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions
    }

    /// The latest trades, oldest first, at most 256.
    pub(crate) fn trades(&self) -> impl Iterator<Item = &SaidTrade> {
        self.trades.iter()
    }

    /// Name of the policy within tenants.
    pub(super) fn policy_within(&self) -> &'static str {
        self.levels.within(0).map_or("", Controller::policy)
    }

    /// The plan of both levels.
    pub(super) fn plan(&self) -> Plan {
        self.levels.plan()
    }

    /// The time at which [`advance`](Self::advance) has something to do.
    pub(super) fn next_timeout(&self) -> Instant {
        self.levels.between().next_timeout()
    }

    /// Observes the tenants, decides if it is time to, and makes the next step of a move. `unix_ms`
    /// is the wall time.
    pub(super) fn advance(&mut self, now: Instant, unix_ms: u64) -> TenantRound {
        let decides = now >= self.levels.between().decides_at();
        let seen = self.traffic.observe(decides);
        let round = self.levels.advance(now, &seen);
        if let Some(decision) = &round.decision {
            self.decisions += 1;
            for sentence in &decision.trades {
                if self.trades.len() == TRADES_MAX {
                    self.trades.pop_front();
                }
                self.trades.push_back(SaidTrade { unix_ms, sentence: sentence.clone() });
            }
            self.publish(Some(&self.levels.between().standings()));
        } else if round.changed {
            self.publish(None);
        }
        round
    }

    /// Has the policies within tenants decide, each from the requests of its tenant.
    pub(super) fn decide_within(
        &mut self,
        now: Instant,
        seen: &Observation,
        finished: &[RequestSnapshot],
    ) -> Decision {
        self.levels.decide_all(now, seen, finished)
    }

    /// Replaces the policy within tenants by one that was checked.
    pub(super) fn set_within(&mut self, policy: &dyn Policy) {
        self.levels.set_within(policy).expect("the policy was checked");
    }

    /// Returns the policy between these tenants that has this name.
    pub(super) fn policy_between(&self, name: &str) -> Result<Box<dyn TenantPolicy>, TenantPolicyError> {
        sherwood_policy::tenants::by_name(name, policy_options(&self.setup))
    }

    /// Replaces the policy between tenants.
    pub(super) fn set_between(&mut self, policy: Box<dyn TenantPolicy>) {
        self.levels.set_between(policy);
    }

    /// Returns the terms of all tenants with changed weights and least bytes, for a cache of
    /// `total_bytes`.
    ///
    /// # Errors
    /// If every share of a tenant is stated, so that its weight has no effect; or if a minimum
    /// would exceed its tenant's share.
    pub(super) fn changed_terms(
        &self,
        changed: &[(TenantId, Option<f64>, Option<u64>)],
        total_bytes: u64,
    ) -> Result<Vec<TenantTerms>, TermsError> {
        let mut terms = self.levels.between().terms().to_vec();
        for &(tenant, weight, min_bytes) in changed {
            if weight.is_some() {
                self.setup.check_weighted(tenant)?;
            }
            let own = &mut terms[tenant.index()];
            own.weight = weight.unwrap_or(own.weight);
            own.min.bytes = min_bytes.unwrap_or(own.min.bytes);
        }
        self.setup.rebased(total_bytes, terms, &[])
    }

    /// Sets the total of the cache, and the terms of all tenants for it.
    pub(super) fn resize(&mut self, total_bytes: u64, terms: Vec<TenantTerms>) {
        self.levels.resize(total_bytes, terms).expect("the number of tenants is the same");
        self.publish(None);
    }

    /// Sets the terms of all tenants.
    pub(super) fn set_terms(&mut self, terms: Vec<TenantTerms>) {
        self.levels.set_terms(terms).expect("the number of tenants is the same");
    }

    /// Returns the division that the policy finds with other weights and with more tenants.
    ///
    /// # Errors
    /// As those of [`changed_terms`](Self::changed_terms).
    pub(crate) fn what_if(
        &self,
        weights: &[(TenantId, f64)],
        added: Vec<(TenantTerms, TenantSeen)>,
    ) -> Result<(Vec<TenantTerms>, Division), TermsError> {
        let mut terms = self.levels.between().terms().to_vec();
        for &(tenant, weight) in weights {
            self.setup.check_weighted(tenant)?;
            terms[tenant.index()].weight = weight;
        }
        let (more, seen): (Vec<_>, Vec<_>) = added.into_iter().unzip();
        let terms = self.setup.rebased(self.total_bytes(), terms, &more)?;
        let division = self.levels.between().what_if(&terms, &seen);
        Ok((terms, division))
    }

    /// The latest decision between tenants.
    pub(crate) fn latest(&self) -> Option<&TenantDecision> {
        self.levels.between().latest()
    }

    fn total_bytes(&self) -> u64 {
        self.levels.between().total().bytes
    }

    /// Publishes what tenants have, with the measured throughput of `standings`, if given.
    fn publish(&mut self, standings: Option<&[TenantStanding]>) {
        let between = self.levels.between();
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

/// Options of policies between the tenants of a setup.
fn policy_options(setup: &TenancySetup) -> TenantOptions {
    let bases = setup.tenants.iter().map(|tenant| tenant.base_bytes);
    TenantOptions::of_baselines(bases, setup.options.conserving)
}
