//! Policies between tenants, by name.

pub(super) use crate::policy::PolicyError;
use crate::policy::by_name;

/// A policy between tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The policy's name.
    pub name: &'static str,
    /// Description, for help texts.
    pub about: &'static str,
}

/// Name of the policy that others are judged against.
pub const BASELINE: &str = "baseline";
/// The policy under which tenants compete for everything.
pub(super) const NON_PARTITIONED: &str = "non-partitioned";

const POLICIES: [Policy; 6] = [
    Policy { name: BASELINE, about: "every tenant keeps its baseline" },
    Policy { name: "drf", about: "the cache stays; rates that are left are divided in proportion to need" },
    Policy { name: "memshare", about: "cache to those that miss less with it, then drf" },
    Policy { name: NON_PARTITIONED, about: "one cache and one rate of each resource, for which all compete" },
    Policy { name: "hare-published", about: "cache for units and units for cache, as published" },
    Policy { name: "hare", about: "the same, without the faults of the published search" },
];

/// Returns all policies.
#[must_use]
pub fn policies() -> &'static [Policy] {
    &POLICIES
}

impl Policy {
    /// Returns the policy called `name`.
    ///
    /// # Errors
    /// If no policy has that name.
    pub fn by_name(name: &str) -> Result<Self, PolicyError> {
        by_name("scenarios of tenants have", policies(), |policy| policy.name, name)
    }
}

#[cfg(test)]
mod tests {
    use sherwood_policy::tenants::available;

    use super::*;

    #[test]
    fn simulated_policies_between_tenants_are_those_of_a_node() {
        let simulated: Vec<_> = policies().iter().map(|policy| policy.name).collect();
        assert!(available().iter().all(|name| simulated.contains(name)));
        let error = Policy::by_name("robinhood").unwrap_err().to_string();
        assert!(error.ends_with("baseline, drf, memshare, non-partitioned, hare-published, hare"), "{error}");
    }
}
