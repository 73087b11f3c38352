//! The commands of `sherwood sim` for scenario `microfuge`, whose policies and settings are its
//! own.

mod compare;
mod frontier;
mod isolation;
mod report;
mod run;
mod runs;
mod summary;

use sherwood_sim::microfuge::{self, Setup};

pub(super) use compare::compare;
pub(super) use frontier::{Bounds, frontier};
pub(super) use run::run;

use super::flags::{Flags, SCALES};
use crate::exit::Failure;

/// Returns true if these scenarios are `microfuge` alone.
///
/// # Errors
/// If it is one of several, since their results have nothing in common.
pub(super) fn is_asked_for(scenarios: &[String]) -> Result<bool, Failure> {
    if !scenarios.iter().any(|scenario| scenario == microfuge::SCENARIO) {
        return Ok(false);
    }
    if scenarios.iter().any(|scenario| scenario != microfuge::SCENARIO) {
        return Err(Failure::usage(
            "--scenario: microfuge has policies and results of its own; simulate it in a command of its own",
        ));
    }
    Ok(true)
}

/// Returns the names of all policies.
pub(super) fn policies() -> impl Iterator<Item = &'static str> {
    microfuge::policies().iter().map(|policy| policy.name)
}

/// Returns the setup of a run with these settings.
fn setup(flags: &Flags, settings: &[String], policy: &str, seed: u64) -> Result<Setup, Failure> {
    if flags.scale() != SCALES[0].0 {
        return Err(Failure::usage(format!(
            "--scale {}: microfuge has a single size; change it with --set records=N and --set clients=N",
            flags.scale()
        )));
    }
    let mut setup = Setup::new(policy, seed);
    for setting in settings {
        let (key, value) = super::flags::key_and_value(setting)?;
        setup.set(key, value).map_err(|error| Failure::usage(format!("--set {setting}: {error}")))?;
    }
    Ok(setup)
}
