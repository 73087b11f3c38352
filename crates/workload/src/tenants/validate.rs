//! Validation of a scenario's values. Later code relies on it and checks nothing again.

use std::fmt::Display;

use sherwood_model::ResourceClass;

use super::error::ScenarioError;
use super::scenario::{Backend, Change, Control, Load, Resource, Scenario, Tenant, UnitName};

type Verdict = Result<(), ScenarioError>;

/// Longest time in a scenario, in seconds.
const TIME_MAX_S: f64 = 1e6;

pub(super) fn scenario(scenario: &Scenario) -> Verdict {
    let Scenario { name, about: _, warm_up, measure, control, backends, resources, tenants } = scenario;
    require(!name.is_empty(), "name", "empty", "a text")?;
    seconds("warm_up", warm_up.0.as_secs_f64(), 0.0)?;
    seconds("measure", measure.0.as_secs_f64(), 1e-3)?;
    self::control(control)?;
    number("backends: their number", backends.len() as f64, 1.0, 64.0, "1 to 64")?;
    distinct("backends", backends.iter().map(|backend| &backend.name))?;
    for (index, backend) in backends.iter().enumerate() {
        self::backend(&format!("backends[{index}]"), backend)?;
    }
    number("resources: their number", resources.len() as f64, 0.0, 16.0, "at most 16")?;
    distinct("resources", resources.iter().map(|resource| &resource.name))?;
    for (index, resource) in resources.iter().enumerate() {
        self::resource(&format!("resources[{index}]"), resource, scenario)?;
    }
    number("tenants: their number", tenants.len() as f64, 1.0, 1_024.0, "1 to 1024")?;
    distinct("tenants", tenants.iter().map(|tenant| &tenant.name))?;
    for (index, tenant) in tenants.iter().enumerate() {
        self::tenant(&format!("tenants[{index}]"), tenant, scenario)?;
    }
    Ok(())
}

fn control(control: &Control) -> Verdict {
    let Control { decide: _, period, window, salt, apply_over } = *control;
    seconds("control.period", period.0.as_secs_f64(), 1e-3)?;
    seconds("control.window", window.0.as_secs_f64(), 1e-3)?;
    number("control.salt", salt, 0.0, 1.0, "0 to 1")?;
    number("control.apply_over", apply_over, 0.0, 1.0, "0 to 1")
}

fn backend(at: &str, backend: &Backend) -> Verdict {
    let Backend { name, latency, slots } = backend;
    require(!name.is_empty(), format!("{at}.name"), "empty", "a text")?;
    number(format!("{at}.latency, in s,"), latency.0.as_secs_f64(), 0.0, 10.0, "0 to 10 s")?;
    number(format!("{at}.slots"), f64::from(*slots), 1.0, 1e5, "1 to 100000")
}

fn resource(at: &str, resource: &Resource, scenario: &Scenario) -> Verdict {
    let Resource { name, kind, backend, unit, legs: _ } = resource;
    require(!name.is_empty(), format!("{at}.name"), "empty", "a text")?;
    if let UnitName::Bytes { bytes } = unit {
        number(format!("{at}.unit.bytes"), bytes.0 as f64, 1.0, 1e9, "1 to 1000000000")?;
    }
    let at = format!("{at}.backend");
    match (kind, backend) {
        (ResourceClass::Network, None) => Ok(()),
        (ResourceClass::Network, Some(name)) => require(false, at, name, "left out for network"),
        (_, None) => require(false, at, "left out", "the name of a backend"),
        (_, Some(name)) => require(scenario.backend(name).is_some(), at, name, "the name of a backend"),
    }
}

fn tenant(at: &str, tenant: &Tenant, scenario: &Scenario) -> Verdict {
    let Tenant { name, cache, rates, clients, arrivals, loads } = tenant;
    require(!name.is_empty(), format!("{at}.name"), "empty", "a text")?;
    number(format!("{at}.cache"), cache.0 as f64, 1.0, 1e15, "1 byte to 1 PB")?;
    for Resource { name, .. } in &scenario.resources {
        let rate = rates.get(name).copied();
        let at = format!("{at}.rates.{name}");
        require(rate.is_some(), &at, "left out", "the tenant's units per second")?;
        number(at, rate.unwrap_or(0.0), 0.0, 1e12, "0 to 10^12")?;
    }
    for name in rates.keys() {
        let is_known = scenario.resources.iter().any(|resource| &resource.name == name);
        require(is_known, format!("{at}.rates"), name, "for the names of the resources")?;
    }
    match (clients, &arrivals[..]) {
        (Some(clients), []) => {
            number(format!("{at}.clients.processes"), clients.processes.into(), 1.0, 1_024.0, "1 to 1024")?;
            number(format!("{at}.clients.depth"), clients.depth.into(), 1.0, 1_024.0, "1 to 1024")?;
        }
        (None, [first, ..]) => {
            let from_start = first.at.0.is_zero();
            require(from_start, format!("{at}.arrivals[0].at"), first.at, "0s")?;
            let is_ascending = arrivals.is_sorted_by(|one, next| one.at < next.at);
            require(is_ascending, format!("{at}.arrivals"), "not in order", "ordered by `at`")?;
            for (index, arrival) in arrivals.iter().enumerate() {
                let at = format!("{at}.arrivals[{index}].per_s");
                number(at, arrival.per_s, 1e-3, 1e7, "0.001 to 10000000")?;
            }
        }
        _ => require(false, at, "with both or neither", "with either `clients` or `arrivals`")?,
    }
    number(format!("{at}.loads: their number"), loads.len() as f64, 1.0, 64.0, "1 to 64")?;
    distinct(&format!("{at}.loads, by backend,"), loads.iter().map(|load| &load.backend))?;
    for (index, load) in loads.iter().enumerate() {
        self::load(&format!("{at}.loads[{index}]"), load, scenario)?;
    }
    Ok(())
}

fn load(at: &str, load: &Load, scenario: &Scenario) -> Verdict {
    let Load { backend, keys, key_bytes, value_bytes, zipf, write_ratio, scan_max, changes } = load;
    let is_known = scenario.backend(backend).is_some();
    require(is_known, format!("{at}.backend"), backend, "the name of a backend")?;
    number(format!("{at}.key_bytes"), f64::from(*key_bytes), 16.0, 250.0, "16 to 250")?;
    number(format!("{at}.value_bytes"), f64::from(*value_bytes), 0.0, 1e6, "0 to 1000000")?;
    let first = Change {
        at: scenario.measure,
        keys: Some(*keys),
        zipf: Some(*zipf),
        write_ratio: Some(*write_ratio),
        scan_max: Some(*scan_max),
    };
    values(at, &first)?;
    let is_ascending = changes.is_sorted_by(|one, next| one.at < next.at);
    require(is_ascending, format!("{at}.changes"), "not in order", "ordered by `at`")?;
    for (index, change) in changes.iter().enumerate() {
        values(&format!("{at}.changes[{index}]"), change)?;
    }
    Ok(())
}

fn values(of: &str, change: &Change) -> Verdict {
    let Change { at, keys, zipf, write_ratio, scan_max } = *change;
    seconds(&format!("{of}.at"), at.0.as_secs_f64(), 1e-6)?;
    number(format!("{of}.keys"), keys.unwrap_or(1) as f64, 1.0, (1_u64 << 40) as f64, "1 to 2^40")?;
    number(format!("{of}.zipf"), zipf.unwrap_or(0.0), 0.0, 10.0, "0 (uniform) to 10")?;
    number(format!("{of}.write_ratio"), write_ratio.unwrap_or(0.0), 0.0, 1.0, "0 to 1")?;
    number(format!("{of}.scan_max"), scan_max.unwrap_or(1).into(), 1.0, 1e6, "1 to 1000000")
}

fn seconds(at: &str, value: f64, least: f64) -> Verdict {
    number(format!("{at}, in s,"), value, least, TIME_MAX_S, "above 0 s and at most 1000000 s")
}

fn number(at: impl Display, value: f64, least: f64, most: f64, accepted: &'static str) -> Verdict {
    require((least..=most).contains(&value), at, value, accepted)
}

fn distinct<'a>(at: &str, names: impl Iterator<Item = &'a String>) -> Verdict {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => require(false, format!("the name {:?} of {at}", pair[0]), "repeated", "given once"),
        None => Ok(()),
    }
}

fn require(holds: bool, at: impl Display, found: impl Display, accepted: &'static str) -> Verdict {
    if holds {
        return Ok(());
    }
    Err(ScenarioError::Value { at: at.to_string(), found: found.to_string(), accepted })
}

#[cfg(test)]
mod tests {
    use super::super::Published;
    use super::*;

    #[test]
    fn scenario_value_out_of_range_is_refused_with_its_place() {
        type Edit = fn(&mut Scenario);
        let edits: [(&str, Edit); 11] = [
            ("tenants: their number is 0", |scenario| scenario.tenants.clear()),
            ("tenants[0].loads[0].zipf is NaN", |scenario| scenario.tenants[0].loads[0].zipf = f64::NAN),
            ("tenants[1].loads[0].keys is 0", |scenario| scenario.tenants[1].loads[0].keys = 0),
            ("tenants[1].loads[0].backend is x", |scenario| {
                scenario.tenants[1].loads[0].backend = "x".into()
            }),
            ("tenants[0] is with both or neither", |scenario| scenario.tenants[0].clients = None),
            ("tenants[0].rates.reads is left out", |scenario| {
                scenario.tenants[0].rates.remove("reads");
            }),
            ("tenants[0].rates is cpu", |scenario| {
                scenario.tenants[0].rates.insert("cpu".into(), 1.0);
            }),
            ("resources[0].backend is left out", |scenario| scenario.resources[0].backend = None),
            ("the name \"T1\" of tenants is repeated", |scenario| scenario.tenants[1].name = "T1".into()),
            ("backends[0].slots is 0", |scenario| scenario.backends[0].slots = 0),
            ("control.salt is 2", |scenario| scenario.control.salt = 2.0),
        ];
        for (expected, edit) in edits {
            let mut scenario = Published::new("hare-skew").expect("it is built in").scenario();
            assert_eq!(scenario.validate(), Ok(()));
            edit(&mut scenario);
            let error = scenario.validate().unwrap_err().to_string();
            assert!(error.starts_with(&format!("scenario of tenants: {expected}")), "{error}");
        }
    }
}
