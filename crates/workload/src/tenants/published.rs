//! The scenarios of HARE's evaluation.
//!
//! Ye, Zhong, Arpaci-Dusseau and Arpaci-Dusseau, *Cache-Centric Multi-Resource Allocation for
//! Storage Services*, FAST 2026. Where the paper measures the middle of a short run of real
//! servers, these measure for longer, so that a tenth of the size is as precise.

use std::str::FromStr;
use std::time::Duration;

use sherwood_model::units::{ByteSize, Span};
use sherwood_model::{Legs, ResourceClass};
use thiserror::Error;

use super::scenario::{
    Arrival, Backend, Change, Clients, Control, Decide, Load, Resource, Scenario, Tenant, UnitName,
};

/// Names and descriptions of the scenarios.
pub const SCENARIOS: [(&str, &str); 6] = [
    (WORKING_SET, "two tenants, the first with a working set of `keys` million keys; HARE's figure 6a"),
    (SKEW, "two tenants, the first with a skew of `theta`; HARE's figure 6b"),
    (YCSB16, "sixteen tenants with YCSB's mixes A, B, C and E; HARE's figure 7"),
    (DYNAMIC, "four tenants whose loads change in turn for 50 minutes; HARE's figure 8"),
    (TWITTER6, "six tenants drawn from the published statistics of Twitter's caches; HARE's figure 9"),
    (FLOOD, "four tenants, of which one asks for `flood` times its rate for a minute"),
];

const WORKING_SET: &str = "hare-working-set";
const SKEW: &str = "hare-skew";
const YCSB16: &str = "hare-ycsb16";
const DYNAMIC: &str = "hare-dynamic";
const TWITTER6: &str = "hare-twitter6";
const FLOOD: &str = "hare-flood";

/// A scenario of the evaluation, with its parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    name: &'static str,
    parameter: f64,
}

/// Reason why a parameter of a published scenario was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PublishedError {
    /// The scenario has no such parameter.
    #[error("{scenario} has no parameter {key:?}")]
    Unknown {
        /// The scenario's name.
        scenario: &'static str,
        /// The parameter given.
        key: String,
    },
    /// The value is out of range.
    #[error("setting {key} of {scenario} to {value:?}: it takes {accepted}")]
    Value {
        /// The scenario's name.
        scenario: &'static str,
        /// The parameter.
        key: &'static str,
        /// The value given.
        value: String,
        /// The accepted values.
        accepted: &'static str,
    },
}

/// A parameter: its key, default, range and values in words.
struct Parameter {
    key: &'static str,
    default: f64,
    least: f64,
    most: f64,
    accepted: &'static str,
}

impl Published {
    /// Returns the scenario called `name` with its default parameter, if there is one.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let (name, _) = SCENARIOS.into_iter().find(|(known, _)| *known == name)?;
        Some(Self { name, parameter: parameter(name).map_or(0.0, |parameter| parameter.default) })
    }

    /// Changes the parameter.
    ///
    /// # Errors
    /// If the scenario has no such parameter, or the value is out of range.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), PublishedError> {
        let scenario = self.name;
        let unknown = || PublishedError::Unknown { scenario, key: key.to_owned() };
        let Parameter { key, least, most, accepted, .. } =
            parameter(scenario).filter(|parameter| parameter.key == key).ok_or_else(unknown)?;
        let given = f64::from_str(value).ok().filter(|given| (least..=most).contains(given));
        let refused = || PublishedError::Value { scenario, key, value: value.to_owned(), accepted };
        self.parameter = given.ok_or_else(refused)?;
        Ok(())
    }

    /// Returns the scenario at its full size.
    #[must_use]
    pub fn scenario(&self) -> Scenario {
        let Self { name, parameter } = *self;
        let parts = match name {
            WORKING_SET => working_set(parameter),
            SKEW => skew(parameter),
            YCSB16 => ycsb16(),
            DYNAMIC => dynamic(),
            TWITTER6 => twitter6(),
            _ => flood(parameter),
        };
        let about = SCENARIOS.iter().find(|(known, _)| *known == name).map_or("", |(_, about)| about);
        let Parts { warm_up_s, measure_s, control, tenants } = parts;
        Scenario {
            name: name.to_owned(),
            about: about.to_owned(),
            warm_up: seconds(warm_up_s),
            measure: seconds(measure_s),
            control,
            backends: vec![Backend {
                name: DB.to_owned(),
                latency: Span(Duration::from_millis(5)),
                slots: 100_000,
            }],
            resources: vec![
                resource("reads", ResourceClass::Reads),
                resource("writes", ResourceClass::Writes),
                resource("network", ResourceClass::Network),
            ],
            tenants,
        }
    }
}

fn parameter(scenario: &str) -> Option<Parameter> {
    Some(match scenario {
        WORKING_SET => Parameter {
            key: "keys",
            default: 4.0,
            least: 0.001,
            most: 1_000.0,
            accepted: "millions of keys, 0.001 to 1000",
        },
        SKEW => Parameter {
            key: "theta",
            default: 0.0,
            least: 0.0,
            most: 10.0,
            accepted: "an exponent of popularity, 0 (uniform) to 10",
        },
        FLOOD => Parameter {
            key: "flood",
            default: 10.0,
            least: 0.01,
            most: 1_000.0,
            accepted: "a factor, 0.01 to 1000; 1 is no flood",
        },
        _ => return None,
    })
}

/// Parts that differ between the scenarios.
struct Parts {
    warm_up_s: u64,
    measure_s: u64,
    control: Control,
    tenants: Vec<Tenant>,
}

const DB: &str = "db";
/// Baseline of a tenant.
const CACHE: u64 = 2 << 30;
const READS: f64 = 1_000.0;
const WRITES: f64 = 1_000.0;
const NETWORK: f64 = (50 << 20) as f64;

const MILLION: f64 = 1e6;
/// Exponent of YCSB's popularity.
const YCSB: f64 = 0.99;

fn working_set(million_keys: f64) -> Parts {
    let uniform = |name, keys| tenant(name, Load { write_ratio: 0.05, ..load(keys) });
    steady(vec![uniform("T1", million_keys * MILLION), uniform("T2", 6.0 * MILLION)])
}

fn skew(theta: f64) -> Parts {
    let skewed = |name, keys, zipf| tenant(name, Load { zipf, write_ratio: 0.05, ..load(keys) });
    steady(vec![skewed("T1", 12.0 * MILLION, theta), skewed("T2", 6.0 * MILLION, YCSB)])
}

/// Two tenants in the middle of a long time, with one decision from the statistics before it.
fn steady(tenants: Vec<Tenant>) -> Parts {
    Parts { warm_up_s: 600, measure_s: 600, control: once(300), tenants }
}

fn once(window_s: u64) -> Control {
    Control { decide: Decide::Once, window: seconds(window_s), ..Control::default() }
}

fn ycsb16() -> Parts {
    let sizes = [(6.0, 500), (6.0, 2_000), (12.0, 500), (12.0, 2_000)];
    let group = |(write_ratio, scan_max)| {
        sizes.map(|(keys, value_bytes)| Load {
            zipf: YCSB,
            write_ratio,
            scan_max,
            value_bytes,
            ..load(keys * MILLION)
        })
    };
    let loads = [(0.5, 1), (0.05, 1), (0.0, 1), (0.05, 100)].map(group).into_iter().flatten();
    let tenants = loads.enumerate().map(|(index, load)| tenant(&format!("T{}", index + 1), load));
    Parts { warm_up_s: 200, measure_s: 200, control: once(80), tenants: tenants.collect() }
}

/// Minutes of the dynamic run.
const MINUTES: u64 = 50;
/// Minutes from one change of a tenant to its next.
const EVERY: u64 = 4;

fn dynamic() -> Parts {
    let writes = [0.45, 0.4, 0.35, 0.3, 0.35, 0.4, 0.45, 0.5];
    let thetas = [0.8, 0.6, 0.8, 0.99];
    let scans = [80, 60, 40, 60, 80, 100];
    let none = Change { at: seconds(0), keys: None, zipf: None, write_ratio: None, scan_max: None };
    let more_keys = |step: usize| ((6.5 + 0.5 * step as f64).min(12.0) * MILLION) as u64;
    let changes = [
        changes(4, |step| Change { write_ratio: Some(writes[step % writes.len()]), ..none }),
        changes(5, |step| Change { keys: Some(more_keys(step)), ..none }),
        changes(6, |step| Change { zipf: Some(thetas[step % thetas.len()]), ..none }),
        changes(7, |step| Change { scan_max: Some(scans[step % scans.len()]), ..none }),
    ];
    let mixes = [(0.5, 1), (0.05, 1), (0.0, 1), (0.05, 100)];
    let tenants =
        mixes.into_iter().zip(changes).enumerate().map(|(index, ((write_ratio, scan_max), changes))| {
            let load = Load { zipf: YCSB, write_ratio, scan_max, changes, ..load(6.0 * MILLION) };
            let clients = Some(Clients { processes: 16, depth: 4 });
            Tenant { clients, ..tenant(&format!("T{}", index + 1), load) }
        });
    let control = Control { apply_over: 0.05, ..Control::default() };
    Parts { warm_up_s: 600, measure_s: MINUTES * 60, control, tenants: tenants.collect() }
}

/// Returns a change each [`EVERY`] minutes, from minute `first` on, made from the number of the
/// step.
fn changes(first: u64, of: impl Fn(usize) -> Change) -> Vec<Change> {
    let minutes = (first..MINUTES).step_by(EVERY as usize);
    minutes.enumerate().map(|(step, minute)| Change { at: seconds(minute * 60), ..of(step) }).collect()
}

/// A cluster of Twitter's caches.
struct Cluster {
    name: &'static str,
    /// Bytes of an average key.
    key_bytes: u32,
    /// Bytes of an average key and value.
    pair_bytes: u32,
    /// Working set, in MB of keys and values, without regard to their lifetimes.
    working_set_mb: f64,
    write_ratio: f64,
    zipf: f64,
}

/// Statistics of March 2020 by Yang, Yue and Rashmi (OSDI 2020), with the sizes and the shares of
/// writes of HARE's paper. The working set of cluster 2 is not published; HARE's paper estimates
/// it.
const CLUSTERS: [Cluster; 6] = [
    Cluster {
        name: "cluster2",
        key_bytes: 21,
        pair_bytes: 89,
        working_set_mb: 150.0,
        write_ratio: 0.0,
        zipf: 1.4908,
    },
    Cluster {
        name: "cluster19",
        key_bytes: 42,
        pair_bytes: 143,
        working_set_mb: 14_633.0,
        write_ratio: 0.25,
        zipf: 0.735,
    },
    Cluster {
        name: "cluster33",
        key_bytes: 24,
        pair_bytes: 1_142,
        working_set_mb: 7_522.0,
        write_ratio: 0.01,
        zipf: 1.354,
    },
    Cluster {
        name: "cluster34",
        key_bytes: 33,
        pair_bytes: 355,
        working_set_mb: 11_552.0,
        write_ratio: 0.06,
        zipf: 1.1401,
    },
    Cluster {
        name: "cluster40",
        key_bytes: 44,
        pair_bytes: 199,
        working_set_mb: 6_520.0,
        write_ratio: 0.5,
        zipf: 0.8551,
    },
    Cluster {
        name: "cluster54",
        key_bytes: 19,
        pair_bytes: 265,
        working_set_mb: 8_248.0,
        write_ratio: 0.03,
        zipf: 1.611,
    },
];

fn twitter6() -> Parts {
    let tenants = CLUSTERS.iter().map(|cluster| {
        let Cluster { name, key_bytes, pair_bytes, working_set_mb, write_ratio, zipf } = *cluster;
        let value_bytes = pair_bytes - key_bytes;
        let keys = working_set_mb * MILLION / f64::from(pair_bytes);
        let load = Load { key_bytes, value_bytes, write_ratio, zipf, ..load(keys) };
        let clients = Some(Clients { processes: 32, depth: 4 });
        Tenant { clients, cache: ByteSize(1 << 30), ..tenant(name, load) }
    });
    Parts { warm_up_s: 200, measure_s: 200, control: once(80), tenants: tenants.collect() }
}

/// Three tenants at about two thirds of their baselines' throughput, and one that asks for `factor`
/// times that in the middle of the measurement.
fn flood(factor: f64) -> Parts {
    let rate = 4_000.0;
    let tenants = (1..=4).map(|number| {
        let load = Load { zipf: YCSB, write_ratio: 0.05, ..load(12.0 * MILLION) };
        let mut arrivals = vec![Arrival { at: seconds(0), per_s: rate }];
        if number == 4 {
            arrivals.push(Arrival { at: seconds(60), per_s: rate * factor });
            arrivals.push(Arrival { at: seconds(120), per_s: rate });
        }
        Tenant { clients: None, arrivals, ..tenant(&format!("T{number}"), load) }
    });
    Parts { warm_up_s: 120, measure_s: 180, control: Control::default(), tenants: tenants.collect() }
}

fn tenant(name: &str, load: Load) -> Tenant {
    let rates = [("reads", READS), ("writes", WRITES), ("network", NETWORK)];
    Tenant {
        name: name.to_owned(),
        cache: ByteSize(CACHE),
        rates: rates.map(|(name, rate)| (name.to_owned(), rate)).into(),
        clients: Some(Clients { processes: 16, depth: 2 }),
        arrivals: Vec::new(),
        loads: vec![load],
    }
}

/// A load of uniform gets of 500 bytes.
fn load(keys: f64) -> Load {
    Load {
        backend: DB.to_owned(),
        keys: keys as u64,
        key_bytes: 16,
        value_bytes: 500,
        zipf: 0.0,
        write_ratio: 0.0,
        scan_max: 1,
        changes: Vec::new(),
    }
}

fn resource(name: &str, kind: ResourceClass) -> Resource {
    let backend = (kind != ResourceClass::Network).then(|| DB.to_owned());
    Resource { name: name.to_owned(), kind, backend, unit: UnitName::DynamoDb, legs: Legs::Both }
}

fn seconds(seconds: u64) -> Span {
    Span(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(name: &str) -> Published {
        Published::new(name).expect("it is built in")
    }

    #[test]
    fn published_scenarios_are_valid_at_every_scale() {
        for (name, _) in SCENARIOS {
            for scale in [0.01, 0.1, 1.0] {
                assert_eq!(published(name).scenario().scaled(scale).validate(), Ok(()), "{name}");
            }
        }
        assert_eq!(Published::new("hare"), None);
    }

    #[test]
    fn parameter_changes_its_scenario_and_is_refused_by_others() {
        let mut working_set = published(WORKING_SET);
        working_set.set("keys", "16").expect("in range");
        assert_eq!(working_set.scenario().tenants[0].loads[0].keys, 16_000_000);
        let error = working_set.set("keys", "0").unwrap_err().to_string();
        assert!(error.ends_with("it takes millions of keys, 0.001 to 1000"), "{error}");
        assert!(matches!(working_set.set("theta", "0"), Err(PublishedError::Unknown { .. })));
        assert!(published(YCSB16).set("keys", "4").is_err());
    }

    #[test]
    fn one_tenant_changes_each_minute_of_the_dynamic_run() {
        let scenario = published(DYNAMIC).scenario();
        let of = |tenant: &Tenant| {
            tenant.loads[0].changes.iter().map(|change| change.at.0.as_secs() / 60).collect()
        };
        let mut minutes: Vec<u64> = scenario.tenants.iter().flat_map::<Vec<u64>, _>(of).collect();
        minutes.sort_unstable();
        assert_eq!(minutes, (4..50).collect::<Vec<_>>());
        let keys = scenario.tenants[1].loads[0].changes.iter().map(|change| change.keys);
        assert_eq!(keys.max(), Some(Some(12_000_000)));
    }
}
