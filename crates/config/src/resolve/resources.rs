//! `[[resource]]`: the resources beside the cache that are divided among tenants.

use std::collections::BTreeMap;
use std::num::NonZero;

use crate::spanned::Spanned;
use sherwood_model::{BackendId, Legs, ResourceClass, ResourceKind, Unit};

use super::backends::{NAMES, is_name};
use crate::meaning::BackendConfig;
use crate::problem::{Origin, Problems};
use crate::raw::{RawResource, RawTotal, RawUnit};
use crate::scope::{Given, Setting, bytes, given, in_range, one_of, unknown};
use crate::setup::ResourceSetup;
use crate::units::{ByteSize, quoted};

const KIND: Setting = Setting::new("[[resource]]", "kind", "\"reads\"");
const BACKEND: Setting = Setting::new("[[resource]]", "backend", "\"catalog\"");
const UNIT: Setting = Setting::new("[[resource]]", "unit", "\"dynamodb\"");
const UNIT_BYTES: Setting = Setting::new("[[resource]]", "unit.bytes", "4096");
const LEGS: Setting = Setting::new("[[resource]]", "legs", "\"both\"");
const TOTAL: Setting = Setting::new("[[resource]]", "total", "3000");

/// Maximum of resources: each costs every tenant a bucket of tokens and every decision a dimension.
const RESOURCES_MAX: usize = 16;
/// Share of the cache in a tenant's `base`, which no resource may be called.
pub(super) const CACHE: &str = "cache";
/// Units per second of a resource; a thousandth would be one request in a quarter of an hour.
const TOTAL_MIN: f64 = 1.0;
const TOTAL_MAX: f64 = 1e12;

/// Resolves the resources in the order of the file.
pub(super) fn resolve(
    file: &[Spanned<RawResource>],
    backends: &[BackendConfig],
    problems: &mut Problems<'_>,
) -> Vec<ResourceSetup> {
    if let Some(first) = file.get(RESOURCES_MAX) {
        let count = file.len();
        let message =
            format!("there are {count} [[resource]]; at most {RESOURCES_MAX} are accepted: leave some out");
        problems.add(&bytes(first), message);
    }
    let mut names: BTreeMap<String, Origin> = BTreeMap::new();
    let mut kinds: Vec<(ResourceKind, Origin)> = Vec::new();
    let mut resources = Vec::new();
    for table in file.iter().take(RESOURCES_MAX) {
        let name = name(table, &mut names, problems);
        let Some(resource) = resource(table, name, backends, problems) else { continue };
        if let Some((_, first)) = kinds.iter().find(|(kind, _)| *kind == resource.kind) {
            let first = problems.reference(first);
            let message = format!(
                "[[resource]] {} counts what the one on {first} counts; list each once: remove one",
                resource.name
            );
            problems.add(&bytes(table), message);
            continue;
        }
        kinds.push((resource.kind, bytes(table)));
        resources.push(resource);
    }
    resources
}

fn name(
    table: &Spanned<RawResource>,
    names: &mut BTreeMap<String, Origin>,
    problems: &mut Problems<'_>,
) -> String {
    let Some(Given { value, origin }) = given(&table.get_ref().name) else {
        let message = "[[resource]] has no name; it must have one: set name = \"catalog-reads\"";
        problems.add(&bytes(table), message);
        return String::new();
    };
    let shown = quoted(&value);
    if !is_name(&value) || value == CACHE {
        let message = format!(
            "[[resource]] name is \"{shown}\"; it must be {NAMES}, and not \"{CACHE}\": set name = \"catalog-reads\""
        );
        problems.add(&origin, message);
    } else if let Some(first) = names.get(&value) {
        let first = problems.reference(first);
        let message =
            format!("[[resource]] name is \"{shown}\" as on {first}; names must be unique: rename one");
        problems.add(&origin, message);
    } else {
        names.insert(value.clone(), origin);
    }
    value
}

fn resource(
    table: &Spanned<RawResource>,
    name: String,
    backends: &[BackendConfig],
    problems: &mut Problems<'_>,
) -> Option<ResourceSetup> {
    let raw = table.get_ref();
    let kind = kind(table, problems)?;
    let backend = backend(table, kind, backends, problems);
    let legs_words = [("both", Legs::Both), ("client", Legs::Client)];
    let legs = one_of(problems, LEGS, given(&raw.legs), &legs_words);
    if let (Some(legs), ResourceClass::Reads | ResourceClass::Writes) = (given(&raw.legs), kind) {
        let message = "[[resource]] legs are those of network, and kind is another: remove them";
        problems.add(&legs.origin, message);
    }
    let total_per_s = total(table, kind, problems)?;
    Some(ResourceSetup { name, kind: kind.at(backend?), unit: unit(raw, kind, problems), legs, total_per_s })
}

fn kind(table: &Spanned<RawResource>, problems: &mut Problems<'_>) -> Option<ResourceClass> {
    let kinds = [
        ("reads", ResourceClass::Reads),
        ("writes", ResourceClass::Writes),
        ("network", ResourceClass::Network),
    ];
    let Some(kind) = given(&table.get_ref().kind) else {
        let message = "[[resource]] has no kind; it must be one of \"reads\", \"writes\", \"network\": set kind = \"reads\"";
        problems.add(&bytes(table), message);
        return None;
    };
    Some(one_of(problems, KIND, Some(kind), &kinds))
}

/// Returns the backend whose units are counted; any for network, which has none.
fn backend(
    table: &Spanned<RawResource>,
    kind: ResourceClass,
    backends: &[BackendConfig],
    problems: &mut Problems<'_>,
) -> Option<BackendId> {
    match (given(&table.get_ref().backend), kind) {
        (None, ResourceClass::Network) => Some(BackendId(0)),
        (Some(backend), ResourceClass::Network) => {
            let message =
                "[[resource]] has a backend, and network is counted for all together: remove backend";
            problems.add(&backend.origin, message);
            None
        }
        (None, ResourceClass::Reads | ResourceClass::Writes) => {
            let message =
                "[[resource]] has no backend; it must name the one that counts: set backend = \"catalog\"";
            problems.add(&bytes(table), message);
            None
        }
        (Some(name), ResourceClass::Reads | ResourceClass::Writes) => {
            let index = backends.iter().position(|backend| backend.name == name.value);
            match index {
                None => {
                    let names: Vec<&str> = backends.iter().map(|backend| backend.name.as_str()).collect();
                    unknown(problems, BACKEND, &name, &names);
                }
                Some(index) if backends[index].replicas.is_empty() => {
                    let shown = &name.value;
                    let message = format!(
                        "[[resource]] backend is \"{shown}\", which has no store whose units could be counted: give it a store"
                    );
                    problems.add(&name.origin, message);
                }
                Some(_) => {}
            }
            index.map(BackendId::from_index)
        }
    }
}

fn unit(raw: &RawResource, kind: ResourceClass, problems: &mut Problems<'_>) -> Unit {
    let default = kind.default_unit();
    let Some(Given { value, origin }) = given(&raw.unit) else { return default };
    if kind == ResourceClass::Network {
        problems.add(&origin, "[[resource]] unit of network is always a byte: remove it");
        return default;
    }
    match value {
        RawUnit::Name(value) => {
            let units = [("dynamodb", default), ("count", Unit::Count)];
            one_of(problems, UNIT, Some(Given { value, origin }), &units)
        }
        RawUnit::Bytes(unit) => {
            let sizes = ByteSize(1)..=ByteSize(1 << 30);
            let size = Some(Given { value: unit.bytes, origin });
            let bytes = in_range(problems, UNIT_BYTES, size, ByteSize(4096), sizes).0;
            u32::try_from(bytes).ok().and_then(NonZero::new).map_or(default, Unit::Bytes)
        }
    }
}

fn total(table: &Spanned<RawResource>, kind: ResourceClass, problems: &mut Problems<'_>) -> Option<f64> {
    let Some(Given { value, origin }) = given(&table.get_ref().total) else {
        let message =
            "[[resource]] has no total; it must say how many units there are in a second: set total = 3000";
        problems.add(&bytes(table), message);
        return None;
    };
    let units = match value {
        RawTotal::Units(units) => units,
        RawTotal::Bytes(size) if kind == ResourceClass::Network => size.0 as f64,
        RawTotal::Bytes(size) => {
            let message = format!(
                "[[resource]] total is {size}; it must be a number of units, a size is one of network: set total = 3000"
            );
            problems.add(&origin, message);
            return None;
        }
    };
    Some(in_range(problems, TOTAL, Some(Given { value: units, origin }), TOTAL_MIN, TOTAL_MIN..=TOTAL_MAX))
}
