//! The flags that all simulations share.

use sherwood_sim::Knobs;

use crate::exit::Failure;

/// Scales and their profiles.
pub(super) const SCALES: [(&str, &str); 3] = [("0.01", "s100"), ("0.1", "s10"), ("1", "full")];

/// What is simulated, beside scenario, policy and seed.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    /// Part of the full system that is simulated
    #[arg(long, default_value = SCALES[0].0, value_parser = SCALES.map(|(scale, _)| scale))]
    pub(super) scale: String,
    /// Change a setting
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) settings: Vec<String>,
}

impl Flags {
    /// Turns the knobs that are to be changed.
    pub(super) fn apply(&self, knobs: &mut Knobs) -> Result<(), Failure> {
        for setting in &self.settings {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(Failure::usage(format!(
                    "--set {setting}: write it as KEY=VALUE, such as delta=5"
                )));
            };
            knobs.set(key, value).map_err(|error| Failure::usage(format!("--set {setting}: {error}")))?;
        }
        Ok(())
    }
}
