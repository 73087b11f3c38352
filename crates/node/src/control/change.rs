//! Changes of the control loop by the operator: all parts of one are checked before any is applied.

use serde_json::json;
use sherwood_config::TermsError;
use sherwood_control::OneLevelOnly;
use sherwood_model::TenantId;
use sherwood_policy::tenants::{DivisionFault, TenantPolicy, TenantPolicyError, TenantTerms};
use sherwood_policy::{GuardOptions, OptionsError, Policy, PolicyError, TwoLevelsError, by_name};

use super::Control;
use super::actuator::ApplyError;

/// Characters of a policy's name that an error quotes.
const NAME_CHARS_MAX: usize = 64;

/// A change of the loop; parts that are none or empty stay as they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ControlChange<'a> {
    /// Total of the cache, bytes.
    pub(crate) total_bytes: Option<u64>,
    /// Name of the policy among partitions.
    pub(crate) policy: Option<&'a str>,
    /// Name of the policy between tenants.
    pub(crate) between: Option<&'a str>,
    /// True if decisions are to be reported and not applied.
    pub(crate) dry_run: Option<bool>,
    /// Options of the guard, which begins anew, or that it is switched off.
    pub(crate) guard: Option<Option<GuardOptions>>,
    /// Weights and least bytes of tenants; none where they stay.
    pub(crate) terms: &'a [(TenantId, Option<f64>, Option<u64>)],
}

/// The reason a change of the loop is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// No policy has this name.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The policy between tenants cannot be constructed.
    #[error(transparent)]
    Between(#[from] TenantPolicyError),
    /// The policy cannot be used within a tenant.
    #[error(transparent)]
    Within(#[from] TwoLevelsError),
    /// The option exists without tenants only.
    #[error(transparent)]
    Tenants(#[from] OneLevelOnly),
    /// The terms of tenants are invalid.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The policy's answer is not a valid division of the totals.
    #[error("what {policy} proposed was refused, and nothing has changed: {fault}")]
    Division { policy: &'static str, fault: DivisionFault },
    /// The total is too small for the policies' options.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The caches do not support the policy or the total.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// The parts of a change that was checked. It is valid while the loop stays locked.
pub(crate) struct Checked {
    total_bytes: Option<u64>,
    policy: Option<Box<dyn Policy>>,
    between: Option<Box<dyn TenantPolicy>>,
    dry_run: Option<bool>,
    guard: Option<Option<GuardOptions>>,
    terms: Option<Vec<TenantTerms>>,
}

impl Control {
    /// Checks all parts of a change.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub(crate) fn check(&self, change: &ControlChange<'_>) -> Result<Checked, ChangeError> {
        let &ControlChange { total_bytes, policy, between, dry_run, guard, terms } = change;
        total_bytes.map_or(Ok(()), |total_bytes| self.check_total(total_bytes))?;
        let policy = policy.map(|name| self.policy_called(name)).transpose()?;
        if let Some(policy) = &policy {
            self.rounds.levels().check_policy(&**policy)?;
            if policy.starts_shared() && !self.actuator.can_share() {
                return Err(ApplyError::Sharing.into());
            }
        }
        self.rounds.levels().check_dry_run(dry_run == Some(true))?;
        self.rounds.levels().check_guard(guard.flatten().is_some())?;
        let tenants = self.tenants();
        let between = between.and_then(|name| Some(tenants.as_ref()?.policy_between(name))).transpose()?;
        let tenants = tenants.filter(|_| !terms.is_empty() || total_bytes.is_some());
        let total = total_bytes.unwrap_or(self.total_bytes());
        let terms = tenants.map(|tenants| tenants.changed_terms(terms, total)).transpose()?;
        Ok(Checked { total_bytes, policy, between, dry_run, guard, terms })
    }

    /// Applies a change: the total and the terms of tenants, then whether decisions are applied,
    /// then the policies, which decide at once.
    pub(crate) fn apply(&mut self, change: Checked) {
        let Checked { total_bytes, policy, between, dry_run, guard, terms } = change;
        match (total_bytes, terms) {
            (Some(total_bytes), terms) => self.resize(total_bytes, terms),
            (None, Some(terms)) => {
                self.rounds.set_terms(terms);
                let now = self.parts.clock.now();
                self.carry_out(now);
                self.advance(now);
            }
            (None, None) => {}
        }
        if let Some(dry_run) = dry_run {
            self.rounds.set_dry_run(dry_run);
            let state = if dry_run { "on: decisions are reported and not applied" } else { "off" };
            self.parts.events.say("policy", format!("dry run {state}"), json!({ "dry_run": dry_run }));
        }
        if let Some(guard) = guard {
            self.rounds.set_guard(guard);
            let is_on = guard.is_some();
            let state = if is_on { "on, and begins anew" } else { "off: nothing goes back by itself" };
            self.parts.events.say("guard", format!("guard {state}"), json!({ "guard": is_on }));
        }
        if let Some(policy) = policy {
            let name = policy.name();
            self.rounds.set_policy(policy);
            self.parts.events.say("policy", format!("policy switched to {name}"), json!({ "policy": name }));
            self.warn_of_idle_pins();
            self.decide(self.parts.clock.now());
        }
        if let Some(policy) = between {
            let name = policy.name();
            self.rounds.set_between(policy);
            let said = format!("policy between tenants switched to {name}");
            self.parts.events.say("policy", said, json!({ "between": name }));
            self.advance(self.parts.clock.now());
        }
    }

    /// Switches one of the policies, dry runs, or the guard with its latest options.
    ///
    /// # Errors
    /// See [`ChangeError`]; nothing has changed then.
    pub(crate) fn switch(
        &mut self,
        policy: Option<&str>,
        dry_run: Option<bool>,
        guard: Option<bool>,
    ) -> Result<(), ChangeError> {
        let (between, policy) = match policy {
            Some(name) if self.is_between_tenants(name) => (Some(name), None),
            _ => (None, policy),
        };
        let guard = guard.map(|is_on| is_on.then(|| self.rounds.options().guard.unwrap_or_default()));
        let change = ControlChange { policy, between, dry_run, guard, ..ControlChange::default() };
        let checked = self.check(&change)?;
        self.apply(checked);
        Ok(())
    }

    /// True if `name` is that of a policy between tenants, and there are some.
    fn is_between_tenants(&self, name: &str) -> bool {
        self.tenants().is_some() && sherwood_policy::tenants::available().contains(&name)
    }

    /// Returns the policy called `name`. An error quotes only the beginning of a long name.
    fn policy_called(&self, name: &str) -> Result<Box<dyn Policy>, PolicyError> {
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        by_name(&name, self.rounds.options())
    }
}
