//! Lookup of a scenario of tenants, built in or in a file.

use std::path::Path;

use serde_json::Value;
use sherwood_model::SeededState;
use sherwood_sim::tenants::Setup;
use sherwood_workload::tenants::{SCENARIOS, Scenario};

use crate::exit::Failure;
use crate::sim::flags::apply;

/// A scenario of tenants.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Subject {
    /// The scenario's name.
    pub(super) name: String,
    /// Hash of the scenario file; none for a built-in scenario.
    pub(super) document: Option<String>,
    /// The scenario of the file.
    scenario: Option<Scenario>,
}

/// Scale of built-in scenarios and of files, unless another one is given: tens of requests a second
/// would be too few for ten seconds of a tenant to mean something, and a file states what is meant.
const SCALE: &str = "0.1";
const SCALE_OF_FILES: &str = "1";

/// Returns true if `text` is the name of a scenario of tenants, or a file of one.
pub(super) fn is_of_tenants(text: &str) -> Result<bool, Failure> {
    if SCENARIOS.iter().any(|(name, _)| *name == text) || text.ends_with(".toml") {
        return Ok(true);
    }
    if !text.ends_with(".json") {
        return Ok(false);
    }
    let document: Option<Value> = read(text).ok().and_then(|document| serde_json::from_str(&document).ok());
    // A file that is not JSON is reported by the reader of other scenarios.
    Ok(document.is_some_and(|document| document.get("tenants").is_some()))
}

impl Subject {
    /// Finds the scenario called `text`, or in the file of that name.
    pub(in crate::sim) fn find(text: &str) -> Result<Self, Failure> {
        if SCENARIOS.iter().any(|(name, _)| *name == text) {
            return Ok(Self { name: text.to_owned(), document: None, scenario: None });
        }
        let document = read(text)?;
        let scenario = match text.ends_with(".toml") {
            true => Scenario::from_toml(&document),
            false => Scenario::from_json(&document),
        };
        let scenario = scenario.map_err(|error| Failure::usage(format!("{text}: {error}")))?;
        let mark = SeededState::new(0).hash_bytes(document.as_bytes());
        Ok(Self {
            name: scenario.name.clone(),
            document: Some(format!("{mark:016x}")),
            scenario: Some(scenario),
        })
    }

    /// Returns the scale of a run if none was given.
    pub(super) fn default_scale(&self) -> &'static str {
        if self.scenario.is_some() { SCALE_OF_FILES } else { SCALE }
    }

    /// Returns the setup of a run with these settings.
    pub(super) fn setup(
        &self,
        scale: &str,
        settings: &[String],
        policy: &str,
        seed: u64,
    ) -> Result<Setup, Failure> {
        let mut setup = match &self.scenario {
            Some(scenario) => Setup::document(scenario.clone(), policy, seed),
            None => Setup::published(&self.name, policy, seed).expect("it is built in"),
        };
        setup.scale = scale.parse().expect("scales are numbers");
        apply(settings, |key, value| setup.set(key, value))?;
        Ok(setup)
    }
}

fn read(path: &str) -> Result<String, Failure> {
    sherwood_textfile::input(Path::new(path))
        .map_err(|error| Failure::usage(format!("reading the scenario file {path}: it {error}")))
}
