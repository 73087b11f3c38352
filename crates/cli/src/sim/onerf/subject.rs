//! Lookup of a scenario, built in or in a file.

use std::path::Path;
use std::sync::Arc;

use sherwood_model::SeededState;
use sherwood_sim::{Setup, Trace};
use sherwood_textfile::ReadError;
use sherwood_workload::onerf::Model;

use super::trace::TraceFile;
use crate::exit::Failure;
use crate::sim::flags::{Flags, SCALES, apply};

/// A scenario and its model.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Subject {
    pub(super) scenario: String,
    /// Hash of the scenario file; none for a built-in scenario.
    pub(super) document: Option<String>,
    model: Arc<Model>,
    /// The trace with the requests, unless they are drawn.
    trace: Option<Arc<dyn Trace>>,
}

impl Subject {
    /// Finds the scenario called `text`, built in or in a file.
    pub(in crate::sim) fn named(text: &str) -> Result<Self, Failure> {
        Self::find(text, &Arc::new(Model::onerf()))
    }

    /// Finds the scenario called `text`: one of the `built_in` model, `FILE.json` or
    /// `FILE.json#NAME`.
    fn find(text: &str, built_in: &Arc<Model>) -> Result<Self, Failure> {
        match file(text) {
            Some((path, name)) => Self::read(path, name),
            None if !built_in.scenarios().contains_key(text) => Err(unknown(text, built_in)),
            None => Ok(Self {
                scenario: text.to_owned(),
                document: None,
                model: Arc::clone(built_in),
                trace: None,
            }),
        }
    }

    fn read(path: &str, name: Option<&str>) -> Result<Self, Failure> {
        let document = sherwood_textfile::input(Path::new(path)).map_err(|error| match error {
            ReadError::NotText { line, column } => Failure::usage(format!(
                "{path}: line {line} column {column} is no UTF-8: a scenario file is JSON, which is"
            )),
            error => Failure::usage(format!("reading the scenario file {path}: it {error}")),
        })?;
        let model =
            Model::from_json(&document).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
        let scenario = match (name, model.scenarios().len()) {
            (Some(name), _) => name.to_owned(),
            (None, 1) => model.scenarios().keys().next().expect("one").clone(),
            (None, 0) => {
                return Err(Failure::usage(format!(
                    "{path} has no scenario, so there is nothing to simulate: add one to `scenarios`"
                )));
            }
            (None, _) => {
                let names: Vec<_> = model.scenarios().keys().map(String::as_str).collect();
                let example = names.first().unwrap_or(&"NAME");
                return Err(Failure::usage(format!(
                    "{path} has the scenarios [{}]: say which one, such as {path}#{example}",
                    names.join(", ")
                )));
            }
        };
        let trace = TraceFile::of(&model, Path::new(path))?;
        let mark = SeededState::new(0).hash_bytes(document.as_bytes());
        let document = match &trace {
            Some(trace) => format!("{mark:016x}-{:016x}", trace.mark()),
            None => format!("{mark:016x}"),
        };
        let trace = trace.map(|trace| Arc::new(trace) as Arc<dyn Trace>);
        Ok(Self { scenario, document: Some(document), model: Arc::new(model), trace })
    }

    /// Returns the setup of a run.
    pub(in crate::sim) fn setup(
        &self,
        flags: &Flags,
        settings: &[String],
        policy: &str,
        seed: u64,
    ) -> Result<Setup, Failure> {
        let mut setup = Setup::new(&self.scenario, policy, seed);
        setup.model = Arc::clone(&self.model);
        setup.trace.clone_from(&self.trace);
        setup.profile = self.profile(flags.scale())?;
        apply(settings, |key, value| setup.knobs.set(key, value))?;
        Ok(setup)
    }

    /// Returns the model's profile for a scale. A model from a file has a single profile, which is
    /// used for every scale.
    fn profile(&self, scale: &str) -> Result<String, Failure> {
        let profiles = self.model.profiles();
        let wanted =
            SCALES.iter().find(|(name, _)| *name == scale).map_or(SCALES[0].1, |(_, profile)| profile);
        if profiles.contains_key(wanted) {
            return Ok(wanted.to_owned());
        }
        let names: Vec<_> = profiles.keys().map(String::as_str).collect();
        match names[..] {
            [only] => Ok(only.to_owned()),
            _ => Err(Failure::usage(format!(
                "--scale {scale}: the model {} has no profile `{wanted}`; it has: {}; leave one, or call it so",
                self.model.name(),
                names.join(", ")
            ))),
        }
    }
}

/// Returns the failure of a command that was given the name of no scenario of `model`.
fn unknown(name: &str, model: &Model) -> Failure {
    let names: Vec<_> = model.scenarios().keys().map(String::as_str).collect();
    Failure::usage(format!(
        "there is no scenario `{name}` of backends; choose one of {}, or name a file. `sherwood sim list` has \
         those of tenants and deadlines, too, for `sherwood sim run` and `compare`",
        names.join(", ")
    ))
}

/// Returns the named scenarios, or all built-in ones that limit some backend.
pub(in crate::sim) fn subjects(named: &[String]) -> Result<Vec<Subject>, Failure> {
    let built_in = Arc::new(Model::onerf());
    let all = built_in.scenarios().keys().filter(|name| *name != "none").cloned();
    let names = if named.is_empty() { all.collect() } else { named.to_vec() };
    let subjects = names.iter().map(|name| Subject::find(name, &built_in)).collect::<Result<Vec<_>, _>>()?;
    for (index, subject) in subjects.iter().enumerate() {
        if subjects[..index].iter().any(|other| other.scenario == subject.scenario) {
            return Err(Failure::usage(format!(
                "two of the scenarios are called `{}`, and results could not be told apart: rename one",
                subject.scenario
            )));
        }
    }
    Ok(subjects)
}

/// Splits a file's path from the name of the scenario in it, if there is one.
fn file(text: &str) -> Option<(&str, Option<&str>)> {
    const SUFFIX: &str = ".json";
    if text.ends_with(SUFFIX) {
        return Some((text, None));
    }
    let end = text.find(".json#")? + SUFFIX.len();
    Some((&text[..end], Some(&text[end + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_file_is_distinguished_from_a_scenario_name() {
        assert_eq!(file("onerf-spikes"), None);
        assert_eq!(file("dir/a.json"), Some(("dir/a.json", None)));
        assert_eq!(file("a.json#night"), Some(("a.json", Some("night"))));
        assert_eq!(file("a.json#b.json"), Some(("a.json#b.json", None)), "a file may be called anything");
    }
}
