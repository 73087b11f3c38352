//! `sherwood load --scenario`: the loads of several tenants.

use std::path::Path;
use std::time::Duration;

use sherwood_load::cache::Login;
use sherwood_load::tenants::{Options, TenantsReport};
use sherwood_load::{Control, LoadError, TargetKind, tenants};
use sherwood_workload::tenants::Scenario;

use super::{LoadArgs, security};
use crate::exit::Failure;
use crate::out;

/// The scenario of a run, and its options.
pub(super) struct TenantsPlan {
    options: Options,
    scenario: Box<Scenario>,
}

/// Default length of an interval of the report.
const INTERVAL: Duration = Duration::from_secs(10);

impl TenantsPlan {
    /// Reads the scenario and the passwords.
    pub(super) fn new(args: &LoadArgs, file: &Path) -> Result<Self, String> {
        let TargetKind::Cache(protocol) = args.target.kind else {
            return Err("--scenario applies to a memcached:// or redis:// target only; give one".to_owned());
        };
        let mut scenario = read(file)?;
        if let Some(scale) = args.scale {
            if !(scale > 0.0 && scale <= 1.0) {
                return Err(format!("--scale of {scale} is out of range: give a number above 0 and up to 1"));
            }
            scenario = scenario.scaled(scale);
        }
        let logins = match &args.passwords {
            Some(file) => logins(file, &scenario)?,
            None => Vec::new(),
        };
        let (interval, seed) = (args.interval.unwrap_or(INTERVAL), args.seed);
        let (tls, address) = (args.security.tls(&args.target)?, args.target.address.clone());
        let options = Options { protocol, address, tls, logins, interval, seed };
        Ok(Self { options, scenario: Box::new(scenario) })
    }

    /// Runs the load.
    pub(super) fn run(&self, control: &Control) -> Result<TenantsReport, LoadError> {
        tenants::run(&self.options, &self.scenario, control)
    }
}

/// Reads a scenario from a file of JSON, or of TOML by its ending.
fn read(file: &Path) -> Result<Scenario, String> {
    let shown = file.display();
    let text = sherwood_textfile::input(file)
        .map_err(|error| format!("reading the scenario {shown}: it {error}"))?;
    let scenario = match file.extension().is_some_and(|ending| ending == "toml") {
        true => Scenario::from_toml(&text),
        false => Scenario::from_json(&text),
    };
    scenario.map_err(|error| format!("{shown}: {error}"))
}

/// Returns the login of each tenant, from a file of lines `user:password` with a user for each.
fn logins(file: &Path, scenario: &Scenario) -> Result<Vec<Option<Login>>, String> {
    let logins = security::logins("--passwords", file)?;
    let login = |user: &String| {
        let known = logins.iter().find(|login| login.user == *user).cloned();
        known.map(Some).ok_or_else(|| {
            format!(
                "--passwords {} has no line {user}:PASSWORD for the tenant {user:?}; add one",
                file.display()
            )
        })
    };
    scenario.tenants.iter().map(|tenant| login(&tenant.name)).collect()
}

/// Prints the report, and returns an error for an unsuccessful run.
pub(super) fn show(report: &TenantsReport, json: bool) -> Result<(), Failure> {
    let text = match json {
        true => serde_json::to_string(report).expect("a report has string keys only") + "\n",
        false => report.to_string(),
    };
    out::print(&text)?;
    if let Some(reason) = &report.incomplete_because {
        return Err(Failure::Failed(format!("incomplete: {reason}")));
    }
    for tenant in &report.tenants {
        if let Some(error) = &tenant.first_error {
            out::say(format_args!("sherwood: the first error of {}: {error}", tenant.name));
        }
    }
    if report.tenants.iter().any(|tenant| tenant.ops > 0 && tenant.ops == tenant.errors) {
        return Err(Failure::Failed("every operation of a tenant failed".to_owned()));
    }
    Ok(())
}
