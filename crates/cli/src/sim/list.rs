//! `sherwood sim list`: the available scenarios, policies and settings.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use sherwood_policy::available_without_options;
use sherwood_sim::{Knobs, Setting, microfuge, spare, tenants, zoolander};
use sherwood_workload::onerf::{Model, Profile, Scenario};
use sherwood_workload::tenants::{Published, SCENARIOS};

use super::flags::SCALES;
use crate::exit::Failure;
use crate::out;

/// Lists scenarios, policies, scales and settings
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood sim list
  sherwood sim list --json")]
pub(crate) struct Args {
    /// Print the lists as one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct List {
    scenarios: Vec<ScenarioLine>,
    policies: Vec<&'static str>,
    scales: Vec<ScaleLine>,
    settings: Vec<SettingLine>,
    microfuge: OwnLists,
    spare: OwnLists,
    zoolander: OwnLists,
    zoolander_model: OwnLists,
    tenants: OwnLists,
}

/// Policies and settings that one scenario, or those of one kind, have instead of the others.
#[derive(Serialize)]
struct OwnLists {
    policies: Vec<PolicyLine>,
    settings: Vec<SettingLine>,
}

#[derive(Serialize)]
struct PolicyLine {
    name: &'static str,
    about: &'static str,
}

#[derive(Serialize)]
struct ScenarioLine {
    name: String,
    paper: Option<String>,
    warmup_min: f64,
    measure_min: f64,
}

#[derive(Serialize)]
struct ScaleLine {
    scale: &'static str,
    app_servers: u32,
    cache_bytes_per_server: u64,
    requests_per_s: f64,
    backends: usize,
    /// Replicas of all backends together.
    replicas: u32,
}

#[derive(Serialize)]
struct SettingLine {
    key: &'static str,
    value: &'static str,
    about: &'static str,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let list = List::of(&Model::onerf());
    out::print(&if args.json { out::json(&list) + "\n" } else { list.text() })
}

impl ScaleLine {
    fn of(model: &Model, scale: &'static str, profile: &str) -> Self {
        let Profile { app_servers, request_rate, cache_bytes_per_server, .. } = model.profiles()[profile];
        let backends = model.backends();
        let replicas = backends.iter().map(|backend| u32::from(backend.service.replicas.at(profile)));
        Self {
            scale,
            app_servers,
            cache_bytes_per_server,
            requests_per_s: request_rate,
            backends: backends.len(),
            replicas: replicas.sum(),
        }
    }
}

/// Returns minutes to a tenth, as scenarios of 200 seconds are shown.
fn minutes(time: Duration) -> f64 {
    (time.as_secs_f64() / 6.0).round() / 10.0
}

fn of_spare(scenario: &spare::Scenario) -> ScenarioLine {
    let default = spare::Setup::new(*scenario, "none", 1).knobs;
    ScenarioLine {
        name: scenario.name.to_owned(),
        paper: Some(scenario.about.to_owned()),
        warmup_min: minutes(default.warm_up),
        measure_min: minutes(default.measure),
    }
}

fn of_zoolander(scenario: &zoolander::Scenario) -> ScenarioLine {
    let zoolander::Knobs { day, night, .. } = zoolander::Setup::new(*scenario, "sherwood", 1).knobs;
    let (warmup, measured) = match scenario {
        zoolander::Scenario::Diurnal => (Duration::ZERO, day + night),
        zoolander::Scenario::Model => (day, night),
    };
    ScenarioLine {
        name: scenario.name().to_owned(),
        paper: Some(scenario.about().to_owned()),
        warmup_min: minutes(warmup),
        measure_min: minutes(measured),
    }
}

impl SettingLine {
    fn of(setting: Setting) -> Self {
        Self { key: setting.key, value: setting.value, about: setting.about }
    }
}

impl OwnLists {
    /// Returns the lists of policies, each with its name and description, and of settings.
    fn of(policies: impl Iterator<Item = (&'static str, &'static str)>, settings: &[Setting]) -> Self {
        Self {
            policies: policies.map(|(name, about)| PolicyLine { name, about }).collect(),
            settings: settings.iter().copied().map(SettingLine::of).collect(),
        }
    }
}

impl List {
    fn of(model: &Model) -> Self {
        let scenario = |(name, scenario): (&String, &Scenario)| ScenarioLine {
            name: name.clone(),
            paper: scenario.paper.clone(),
            warmup_min: scenario.warmup_min,
            measure_min: scenario.measure_min,
        };
        let default = microfuge::Knobs::default();
        let microfuge_line = ScenarioLine {
            name: microfuge::SCENARIO.to_owned(),
            paper: Some("MicroFuge's section III; policies and settings of its own".to_owned()),
            warmup_min: minutes(default.warm_up),
            measure_min: minutes(default.measure),
        };
        let of_tenants = SCENARIOS.iter().filter_map(|(name, about)| {
            let scenario = Published::new(name)?.scenario();
            Some(ScenarioLine {
                name: scenario.name,
                paper: Some((*about).to_owned()),
                warmup_min: minutes(scenario.warm_up.0),
                measure_min: minutes(scenario.measure.0),
            })
        });
        let deadlines = microfuge::policies().iter().map(|policy| (policy.name, policy.about));
        let copies = spare::policies().iter().map(|policy| (policy.name, policy.about));
        let nodes = |scenario: zoolander::Scenario| {
            OwnLists::of(
                scenario.policies().iter().map(|policy| (policy.name, policy.about)),
                scenario.settings(),
            )
        };
        let between = tenants::policies().iter().map(|policy| (policy.name, policy.about));
        Self {
            scenarios: model
                .scenarios()
                .iter()
                .map(scenario)
                .chain([microfuge_line])
                .chain(spare::SCENARIOS.iter().map(of_spare))
                .chain(zoolander::SCENARIOS.iter().map(of_zoolander))
                .chain(of_tenants)
                .collect(),
            policies: available_without_options().to_vec(),
            scales: SCALES.iter().map(|(scale, profile)| ScaleLine::of(model, scale, profile)).collect(),
            settings: Knobs::settings().into_iter().map(SettingLine::of).collect(),
            microfuge: OwnLists::of(deadlines, microfuge::Setup::settings()),
            spare: OwnLists::of(copies, spare::Setup::settings()),
            zoolander: nodes(zoolander::Scenario::Diurnal),
            zoolander_model: nodes(zoolander::Scenario::Model),
            tenants: OwnLists::of(between, tenants::Setup::settings()),
        }
    }

    fn text(&self) -> String {
        let mut text = "Scenarios (minutes of warm-up + measured)\n".to_owned();
        for ScenarioLine { name, paper, warmup_min, measure_min } in &self.scenarios {
            let paper = paper.as_deref().unwrap_or_default();
            let _ = writeln!(text, "  {name:<14} {warmup_min:>3} + {measure_min:<4} {paper}");
        }
        let _ = writeln!(text, "\nPolicies\n  {}", self.policies.join(", "));
        text += "\nScales\n";
        for line in &self.scales {
            let ScaleLine { scale, app_servers, requests_per_s, backends, replicas, .. } = line;
            // Rounded, since the smallest scale has 327.68 MiB.
            let mib = (line.cache_bytes_per_server + (1 << 19)) >> 20;
            let _ = writeln!(
                text,
                "  {scale:<14} {app_servers} servers with {mib} MiB of cache each, {requests_per_s} requests a second, {backends} backends \
                 ({replicas} replicas)"
            );
        }
        text += "\nSettings (--set KEY=VALUE)\n";
        let settings = |text: &mut String, lines: &[SettingLine]| {
            for SettingLine { key, value, about } in lines {
                let _ = writeln!(text, "  {:<24} {about}", format!("{key}={value}"));
            }
        };
        settings(&mut text, &self.settings);
        let lists = [
            ("microfuge", &self.microfuge),
            ("scenarios of sPARE", &self.spare),
            ("zoolander-diurnal", &self.zoolander),
            ("zoolander-model", &self.zoolander_model),
            ("scenarios of tenants", &self.tenants),
        ];
        for (of, lists) in lists {
            let _ = writeln!(text, "\nPolicies of {of}");
            for PolicyLine { name, about } in &lists.policies {
                let _ = writeln!(text, "  {name:<24} {about}");
            }
            let _ = writeln!(text, "\nSettings of {of}");
            settings(&mut text, &lists.settings);
        }
        text
    }
}
