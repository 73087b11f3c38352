//! A scenario of tenants as its document states it.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::time::Duration;

use serde::Deserialize;
use sherwood_model::misread::{self, Format, Place};
use sherwood_model::units::{ByteSize, Span};
use sherwood_model::{Legs, ResourceClass, Unit};

use super::error::ScenarioError;
use super::validate;
use crate::unique;

/// Tenants, the load of each, and what they share. Times of changes count from the start of the
/// measurement.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The scenario's name.
    pub name: String,
    /// Description, in a sentence or two.
    #[serde(default)]
    pub about: String,
    /// Time before the measurement, under the loads' first values.
    pub warm_up: Span,
    /// Measured time.
    pub measure: Span,
    /// The control loop between the tenants.
    #[serde(default)]
    pub control: Control,
    /// The stores, 1 to 64.
    pub backends: Vec<Backend>,
    /// The resources that tenants have rates of, up to 16.
    #[serde(default)]
    pub resources: Vec<Resource>,
    /// The tenants, 1 to 1,024.
    pub tenants: Vec<Tenant>,
}

/// Settings of the control loop.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    /// Number and kind of the decisions.
    pub decide: Decide,
    /// Time between decisions.
    pub period: Span,
    /// Time of the past that decisions take into account.
    pub window: Span,
    /// Constant added to measured miss ratios, 0 to 1.
    pub salt: f64,
    /// Least predicted gain over the present division for which another one is applied, 0 to 1.
    pub apply_over: f64,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            decide: Decide::Live,
            period: Span(Duration::from_secs(20)),
            window: Span(Duration::from_secs(60)),
            salt: 0.01,
            apply_over: 0.0,
        }
    }
}

/// Decisions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decide {
    /// A single decision in the middle of the warm-up, which is applied at once to caches that are
    /// then filled as they would be after a long time. For steady loads, as in the published
    /// evaluation.
    Once,
    /// A decision each period, applied step by step.
    Live,
}

/// A store that answers after a fixed time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// The backend's name.
    pub name: String,
    /// Time from a call to its answer.
    #[serde(default = "latency")]
    pub latency: Span,
    /// Calls that it serves at the same time, 1 to 100,000.
    #[serde(default = "slots")]
    pub slots: u32,
}

fn latency() -> Span {
    Span(Duration::from_millis(5))
}

const fn slots() -> u32 {
    100_000
}

/// A resource of which every tenant has a rate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// The resource's name, by which [`Tenant::rates`] refer to it.
    pub name: String,
    /// Kind of work that it counts.
    pub kind: ResourceClass,
    /// The backend of reads and writes, none for network.
    pub backend: Option<String>,
    /// Units of reads and writes.
    #[serde(default)]
    pub unit: UnitName,
    /// The bytes that network counts.
    #[serde(default)]
    pub legs: Legs,
}

/// Size of a unit of reads or writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnitName {
    /// 4 KiB of a read item, 1 KiB of a written one, begun ones counted in full.
    #[default]
    DynamoDb,
    /// An item of any size.
    Count,
    /// A number of bytes of an item, begun ones counted in full.
    #[serde(untagged)]
    Bytes {
        /// Bytes of a unit, at least 1.
        bytes: ByteSize,
    },
}

/// A tenant: its baseline, its clients and what they ask for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// The tenant's name.
    pub name: String,
    /// Bytes of cache of the baseline.
    pub cache: ByteSize,
    /// Units per second of the baseline, by the names of the resources; those left out are not
    /// limited for any tenant, and then left out by all.
    #[serde(default, deserialize_with = "unique::map")]
    pub rates: BTreeMap<String, f64>,
    /// Clients of a closed loop; none for arrivals.
    pub clients: Option<Clients>,
    /// Poisson arrivals of an open loop, the first at 0; none with clients.
    #[serde(default)]
    pub arrivals: Vec<Arrival>,
    /// Operations of a request: one of each load, 1 to 64 with different backends.
    pub loads: Vec<Load>,
}

/// Clients that send the next request when they have the answer to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// Processes, each with its own stream of operations, 1 to 1,024.
    pub processes: u32,
    /// Requests of a process at the same time, 1 to 1,024.
    pub depth: u32,
}

/// The rate of arrivals from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrival {
    /// Time from which on the rate holds.
    pub at: Span,
    /// Requests per second.
    pub per_s: f64,
}

/// Gets and sets of one backend. A request of a tenant is an operation of each of its loads, made
/// at the same time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The backend's name.
    pub backend: String,
    /// Number of keys, 1 to 2^40.
    pub keys: u64,
    /// Bytes of a key, 16 to 250.
    #[serde(default = "key_bytes")]
    pub key_bytes: u32,
    /// Bytes of every value.
    #[serde(default = "value_bytes")]
    pub value_bytes: u32,
    /// Exponent of [`Popularity`](crate::Popularity), 0 (uniform) to 10.
    #[serde(default)]
    pub zipf: f64,
    /// Share of operations that are sets, 0 to 1. A scan is one operation.
    #[serde(default)]
    pub write_ratio: f64,
    /// Largest number of neighbouring keys of a scan, each of which is a get of its own. Lengths
    /// are uniform from 1 on, so 1 is no scan.
    #[serde(default = "scan_max")]
    pub scan_max: u32,
    /// Changes over time, in that order.
    #[serde(default)]
    pub changes: Vec<Change>,
}

/// Values of a load that change at a time; those left out stay.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Time of the change, above 0.
    pub at: Span,
    /// The new number of keys.
    pub keys: Option<u64>,
    /// The new exponent.
    pub zipf: Option<f64>,
    /// The new share of sets.
    pub write_ratio: Option<f64>,
    /// The new length of scans.
    pub scan_max: Option<u32>,
}

const fn key_bytes() -> u32 {
    16
}

const fn value_bytes() -> u32 {
    500
}

const fn scan_max() -> u32 {
    1
}

/// Returns the error of a TOML document in words for people, with its line.
fn misread_toml(text: &str, error: &toml::de::Error) -> String {
    let span = error.span().unwrap_or_default();
    let line = 1 + text[..span.start].matches('\n').count();
    if text.parse::<toml::Table>().is_err() {
        return format!("this is not TOML, line {line}: {}; write valid TOML", error.message());
    }
    let place = Place { written: text.get(span), range: None };
    format!("line {line}: {}", misread::reworded(error.message(), Format::Toml, place))
}

impl Scenario {
    /// Reads a JSON document.
    ///
    /// # Errors
    /// If it is not of the form, or a value is out of its range.
    pub fn from_json(text: &str) -> Result<Self, ScenarioError> {
        Self::checked(serde_json::from_str(text).map_err(|error| misread::json_file(&error)))
    }

    /// Reads a TOML document.
    ///
    /// # Errors
    /// If it is not of the form, or a value is out of its range.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        Self::checked(toml::from_str(text).map_err(|error| misread_toml(text, &error)))
    }

    fn checked(read: Result<Self, String>) -> Result<Self, ScenarioError> {
        let scenario = read.map_err(|reason| ScenarioError::Form { reason })?;
        scenario.validate()?;
        Ok(scenario)
    }

    /// Checks every value. Documents have been checked.
    ///
    /// # Errors
    /// The first error found.
    pub fn validate(&self) -> Result<(), ScenarioError> {
        validate::scenario(self)
    }

    /// Returns the scenario with all keys, bytes of cache and rates multiplied by `scale`. Clients,
    /// latencies and times stay.
    #[must_use]
    pub fn scaled(&self, scale: f64) -> Self {
        let keys = |keys: u64| ((keys as f64 * scale).round() as u64).max(1);
        let mut scaled = self.clone();
        for tenant in &mut scaled.tenants {
            tenant.cache = ByteSize((tenant.cache.0 as f64 * scale) as u64);
            tenant.rates.values_mut().for_each(|rate| *rate *= scale);
            tenant.arrivals.iter_mut().for_each(|arrival| arrival.per_s *= scale);
            for load in &mut tenant.loads {
                load.keys = keys(load.keys);
                load.changes.iter_mut().for_each(|change| change.keys = change.keys.map(keys));
            }
        }
        scaled
    }

    /// Returns the index of the backend with this name.
    #[must_use]
    pub fn backend(&self, name: &str) -> Option<usize> {
        self.backends.iter().position(|backend| backend.name == name)
    }

    /// Bytes of cache of all baselines.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.tenants.iter().map(|tenant| tenant.cache.0).sum()
    }
}

impl Resource {
    /// The measure of a read or a write; a count for network.
    #[must_use]
    pub fn measure(&self) -> Unit {
        match (self.kind, self.unit) {
            (ResourceClass::Network, _) | (_, UnitName::Count) => Unit::Count,
            (class, UnitName::DynamoDb) => class.default_unit(),
            (_, UnitName::Bytes { bytes }) => {
                let bytes = u32::try_from(bytes.0).ok().and_then(NonZero::new);
                Unit::Bytes(bytes.unwrap_or(NonZero::<u32>::MIN))
            }
        }
    }

    /// Returns the units of an item of `bytes` bytes, key and value; the bytes themselves for
    /// network.
    #[must_use]
    pub fn units(&self, bytes: u64) -> f64 {
        match self.kind {
            ResourceClass::Network => bytes as f64,
            ResourceClass::Reads | ResourceClass::Writes => self.measure().of(bytes) as f64,
        }
    }
}

impl Load {
    /// Bytes of a key and its value.
    #[must_use]
    pub fn item_bytes(&self) -> u64 {
        u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str = r#"
        name = "pair"
        warm_up = "10s"
        measure = "1m"
        [[backends]]
        name = "db"
        [[resources]]
        name = "reads"
        kind = "reads"
        backend = "db"
        unit = { bytes = "4KiB" }
        [[tenants]]
        name = "a"
        cache = "1GiB"
        rates = { reads = 1000 }
        clients = { processes = 16, depth = 2 }
        loads = [{ backend = "db", keys = 1000000, changes = [{ at = "4m", write_ratio = 0.3 }] }]
    "#;

    fn pair() -> Scenario {
        Scenario::from_toml(TOML).expect("a valid document")
    }

    #[test]
    fn scenario_of_tenants_has_defaults_for_what_is_left_out() {
        let scenario = pair();
        let load = &scenario.tenants[0].loads[0];
        assert_eq!((load.key_bytes, load.value_bytes, load.zipf, load.scan_max), (16, 500, 0.0, 1));
        assert_eq!(scenario.backends[0].latency.0, Duration::from_millis(5));
        assert_eq!(scenario.control, Control::default());
    }

    #[test]
    fn scale_multiplies_keys_cache_and_rates_alike() {
        let scaled = pair().scaled(0.01);
        let tenant = &scaled.tenants[0];
        assert_eq!((tenant.cache.0, tenant.rates["reads"], tenant.loads[0].keys), (10_737_418, 10.0, 10_000));
        assert_eq!(tenant.clients, Some(Clients { processes: 16, depth: 2 }));
        assert_eq!(scaled.measure, pair().measure);
    }

    #[test]
    fn units_of_an_item_are_counted_in_full_when_begun() {
        let resource =
            |kind, unit| Resource { name: String::new(), kind, backend: None, unit, legs: Legs::Both };
        let units = |kind, unit, bytes| resource(kind, unit).units(bytes);
        assert_eq!(
            [4_096, 4_097].map(|bytes| units(ResourceClass::Reads, UnitName::DynamoDb, bytes)),
            [1.0, 2.0]
        );
        assert_eq!(
            [1_024, 2_016].map(|bytes| units(ResourceClass::Writes, UnitName::DynamoDb, bytes)),
            [1.0, 2.0]
        );
        assert_eq!(units(ResourceClass::Reads, UnitName::Count, 1 << 20), 1.0);
        assert_eq!(units(ResourceClass::Reads, UnitName::Bytes { bytes: ByteSize(100) }, 0), 1.0);
        assert_eq!(units(ResourceClass::Network, UnitName::DynamoDb, 516), 516.0);
    }

    #[test]
    fn document_with_an_unknown_field_is_refused_with_its_position() {
        let text = TOML.replace("depth = 2", "depth = 2, breadth = 3");
        let error = Scenario::from_toml(&text).unwrap_err().to_string();
        assert!(
            error.starts_with("scenario of tenants: line ") && error.contains("unknown key `breadth`"),
            "{error}"
        );
        let error = Scenario::from_toml("a = ").unwrap_err().to_string();
        assert!(error.starts_with("scenario of tenants: this is not TOML, line 1: "), "{error}");
        let error = Scenario::from_json("{").unwrap_err().to_string();
        assert!(
            error.starts_with("scenario of tenants: the JSON ends within a value, line 1, column 1"),
            "{error}"
        );
    }
}
