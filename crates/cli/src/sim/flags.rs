//! Flags that several commands share.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use sherwood_policy::available_without_options;
use sherwood_sim::{SettingError, microfuge, spare, tenants, zoolander};

use super::inputs::distinct;
use crate::exit::Failure;

/// Parts of the full system that `--scale` accepts, and the names of their profiles.
pub(super) const SCALES: [(&str, &str); 3] = [("0.01", "s100"), ("0.1", "s10"), ("1", "full")];

/// The simulated system, apart from scenario, policy and seed.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    /// Part of the full system that is simulated [default: 0.01; tenants: 0.1, and files of them 1]
    #[arg(long, value_parser = SCALES.map(|(scale, _)| scale))]
    pub(super) scale: Option<String>,
    /// Simulate one in N objects, with its part of the requests and of the caches
    #[arg(long, value_name = "1/N", value_parser = one_in)]
    pub(super) sample: Option<u32>,
    /// Change a setting
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) settings: Vec<String>,
}

/// Flags of the commands that simulate many runs and keep their results. A command whose help or
/// defaults differ overrides them with `mut_arg`.
#[derive(Debug, clap::Args)]
pub(super) struct BatchFlags {
    /// Seeds of the draws; each policy meets the same requests with the same seed
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values = ["1"])]
    pub(super) seeds: Vec<u64>,
    #[command(flatten)]
    pub(super) flags: Flags,
    /// Directory in which finished runs are kept [default: ~/.cache/sherwood/sim]
    #[arg(long, value_name = "DIR")]
    pub(super) results: Option<PathBuf>,
    /// Runs at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Print what came out as one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

impl BatchFlags {
    /// Number of runs to simulate at the same time.
    pub(super) fn threads(&self) -> usize {
        let threads = self.threads.or_else(|| std::thread::available_parallelism().ok());
        threads.map_or(1, NonZeroUsize::get)
    }
}

/// The policies that a command compares.
#[derive(Debug, clap::Args)]
pub(super) struct Policies {
    /// Policies to compare [default: those of RobinHood's paper; for microfuge, sPARE, Zoolander
    /// and tenants, all of their own]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = known_policy(), hide_possible_values = true)]
    policies: Vec<String>,
}

impl Policies {
    /// Returns the given policies, or the `default` ones.
    pub(super) fn chosen_or<'a>(&self, default: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        if self.policies.is_empty() {
            default.into_iter().map(str::to_owned).collect()
        } else {
            self.policies.clone()
        }
    }
}

/// Returns the parser of a policy's name, which may be one of scenario `microfuge`, of those of
/// sPARE or Zoolander, or one between tenants.
pub(super) fn known_policy() -> clap::builder::PossibleValuesParser {
    let within = available_without_options().iter().copied();
    let deadlines = microfuge::policies().iter().map(|policy| policy.name);
    let copies = spare::policies().iter().map(|policy| policy.name);
    let nodes = zoolander::SCENARIOS.iter().flat_map(|one| one.policies()).map(|policy| policy.name);
    let between = tenants::policies().iter().map(|policy| policy.name);
    let all: Vec<&str> = within.chain(deadlines).chain(copies).chain(nodes).chain(between).collect();
    // Kinds of scenarios may have policies of the same name.
    clap::builder::PossibleValuesParser::new(distinct(&all))
}

/// Policies compared in RobinHood's paper.
pub(super) const PAPER_POLICIES: [&str; 6] =
    ["robinhood", "shared-lru", "tao", "cliffhanger", "fair", "lama"];

impl Flags {
    /// Returns the scale of scenarios other than those of tenants.
    pub(super) fn scale(&self) -> &str {
        self.scale.as_deref().unwrap_or(SCALES[0].0)
    }

    /// Refuses another scale than the default one for scenarios of a single size; `what` says so,
    /// with the remedy.
    pub(super) fn check_single_size(&self, what: &str) -> Result<(), Failure> {
        if self.scale() == SCALES[0].0 {
            return Ok(());
        }
        Err(Failure::usage(format!("--scale {}: {what}", self.scale())))
    }

    /// Returns all settings, including those with flags of their own.
    pub(super) fn all_settings(&self) -> Vec<String> {
        let sample = self.sample.map(|one_in| format!("sample=1/{one_in}"));
        self.settings.iter().cloned().chain(sample).collect()
    }
}

/// Calls `set` with the key and value of each setting, in order.
pub(super) fn apply(
    settings: &[String],
    mut set: impl FnMut(&str, &str) -> Result<(), SettingError>,
) -> Result<(), Failure> {
    for setting in settings {
        let (key, value) = key_and_value(setting)?;
        set(key, value).map_err(|error| Failure::usage(format!("--set {setting}: {error}")))?;
    }
    Ok(())
}

/// Splits a setting into its key and its value.
pub(super) fn key_and_value(setting: &str) -> Result<(&str, &str), Failure> {
    setting
        .split_once('=')
        .ok_or_else(|| Failure::usage(format!("--set {setting}: write it as KEY=VALUE, such as delta=5")))
}

/// Parses N from `1/N`.
fn one_in(text: &str) -> Result<u32, String> {
    let one_in = text.strip_prefix("1/").and_then(|text| text.parse().ok());
    one_in
        .filter(|one_in| (1..=1_024).contains(one_in))
        .ok_or("give 1/N, N from 1 to 1024, such as 1/8".to_owned())
}
