//! Flags that all simulations share.

use sherwood_sim::Knobs;

use crate::exit::Failure;

/// Scales and the names of their profiles.
pub(super) const SCALES: [(&str, &str); 3] = [("0.01", "s100"), ("0.1", "s10"), ("1", "full")];

/// The simulated system, apart from scenario, policy and seed.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    /// Part of the full system that is simulated
    #[arg(long, default_value = SCALES[0].0, value_parser = SCALES.map(|(scale, _)| scale))]
    pub(super) scale: String,
    /// Simulate one in N objects, with its part of the requests and of the caches
    #[arg(long, value_name = "1/N", value_parser = one_in)]
    pub(super) sample: Option<u32>,
    /// Change a setting
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) settings: Vec<String>,
}

impl Flags {
    /// Returns all settings, including those with flags of their own.
    pub(super) fn all_settings(&self) -> Vec<String> {
        let sample = self.sample.map(|one_in| format!("sample=1/{one_in}"));
        self.settings.iter().cloned().chain(sample).collect()
    }

    /// Applies the settings to `knobs`.
    pub(super) fn apply(&self, knobs: &mut Knobs) -> Result<(), Failure> {
        for setting in &self.all_settings() {
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

/// Parses N from `1/N`.
fn one_in(text: &str) -> Result<u32, String> {
    let one_in = text.strip_prefix("1/").and_then(|text| text.parse().ok());
    one_in
        .filter(|one_in| (1..=1_024).contains(one_in))
        .ok_or("give 1/N, N from 1 to 1024, such as 1/8".to_owned())
}
