//! The commands of `sherwood sim` for scenarios of tenants, whose policies and settings are their
//! own.

mod compare;
mod figures;
mod report;
mod run;
mod runs;
mod subject;
mod summary;

use sherwood_sim::tenants;

pub(super) use compare::compare;
pub(super) use run::run;

use crate::exit::Failure;
use subject::is_of_tenants;

/// Returns true if these scenarios are of tenants.
///
/// # Errors
/// If some are and others are not, since their results have nothing in common.
pub(super) fn is_asked_for(scenarios: &[String]) -> Result<bool, Failure> {
    let mut of_tenants = 0;
    for scenario in scenarios {
        of_tenants += usize::from(is_of_tenants(scenario)?);
    }
    if of_tenants > 0 && of_tenants < scenarios.len() {
        return Err(Failure::usage(
            "--scenario: scenarios of tenants have policies and results of their own; simulate them in a command of their own",
        ));
    }
    Ok(of_tenants > 0)
}

/// Returns the names of all policies.
pub(super) fn policies() -> impl Iterator<Item = &'static str> {
    tenants::policies().iter().map(|policy| policy.name)
}
