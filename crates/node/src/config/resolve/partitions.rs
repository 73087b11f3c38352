//! `[[partition]]`: initial sizes and limits.

use std::collections::BTreeMap;

use sherwood_model::{BackendId, TenantId};
use sherwood_policy::StartSize;
use toml::Spanned;

use super::backends::{NAMES, is_name};
use super::instances;
use crate::config::meaning::{BackendConfig, Partition};
use crate::config::problem::{Origin, Problems};
use crate::config::raw::RawPartition;
use crate::config::scope::{Given, Setting, bytes, given, in_range, unknown};
use crate::config::units::{ByteSize, quoted};
use crate::control::InstanceSetup;

const BACKEND: Setting = Setting::new("[[partition]]", "backend", "\"catalog\"");
const MIN: Setting = Setting::new("[[partition]]", "min", "\"1MiB\"");
const MAX: Setting = Setting::new("[[partition]]", "max", "\"512MiB\"");
const INITIAL: Setting = Setting::new("[[partition]]", "initial", "\"64MiB\"");

/// Maximum of partitions of a node: slightly below the number that the policies have floors for, 30
/// of 32,768 pages each.
pub(super) const PARTITIONS_MAX: usize = 1024;

const DEFAULT_TENANT: &str = "default";

/// Division of the cache's total among partitions at the start.
pub(super) struct Division {
    pub(super) tenants: Vec<String>,
    pub(super) partitions: Vec<Partition>,
}

/// A partition whose initial size may still have to be computed.
struct Draft {
    tenant: TenantId,
    backend: BackendId,
    min: u64,
    max: u64,
    initial: Option<u64>,
    dry_run: bool,
    instance: Option<InstanceSetup>,
    /// Places of the partition's sizes in the file, for problems of the sums of all partitions.
    origins: Origins,
}

struct Origins {
    min: Origin,
    max: Origin,
    initial: Origin,
}

/// Resolves the listed partitions in the order of the file, then one of the default tenant for
/// every backend that lists none for it: it serves all tenants without a partition of their own.
pub(super) fn resolve(
    file: &[Spanned<RawPartition>],
    backends: &[BackendConfig],
    total_bytes: u64,
    problems: &mut Problems<'_>,
) -> Division {
    let mut tenants = vec![DEFAULT_TENANT.to_owned()];
    let mut seen = BTreeMap::new();
    let mut drafts: Vec<Draft> = Vec::new();
    for table in file.iter().take(PARTITIONS_MAX) {
        let Some(draft) = draft(table, backends, total_bytes, &mut tenants, problems) else { continue };
        match seen.insert((draft.tenant, draft.backend), bytes(table)) {
            None => drafts.push(draft),
            Some(first) => {
                let name = name(&tenants, backends, draft.tenant, draft.backend);
                let first = problems.reference(&first);
                let message =
                    format!("[[partition]] {name} is there on {first} already; list each once: remove one");
                problems.add(&bytes(table), message);
            }
        }
    }
    for index in 0..backends.len() {
        let backend = BackendId::from_index(index);
        if drafts.iter().all(|draft| (draft.tenant, draft.backend) != (TenantId(0), backend)) {
            drafts.push(unlisted(backend, total_bytes));
        }
    }
    let starts = if refuse_too_many(drafts.len(), file.len(), problems)
        || refuse_sums_over(&drafts, total_bytes, problems)
    {
        vec![0; drafts.len()]
    } else {
        starts(&drafts, total_bytes, problems)
    };
    let partition = |(draft, initial_bytes): (&Draft, u64)| Partition {
        name: name(&tenants, backends, draft.tenant, draft.backend),
        tenant: draft.tenant,
        backend: draft.backend,
        bytes_min: draft.min,
        bytes_max: draft.max,
        dry_run: draft.dry_run,
        instance: draft.instance.clone(),
        initial_bytes,
    };
    let partitions = drafts.iter().zip(starts).map(partition).collect();
    Division { tenants, partitions }
}

fn unlisted(backend: BackendId, total_bytes: u64) -> Draft {
    let origins = Origins { min: Origin::Absent, max: Origin::Absent, initial: Origin::Absent };
    Draft {
        tenant: TenantId(0),
        backend,
        min: 0,
        max: total_bytes,
        initial: None,
        dry_run: false,
        instance: None,
        origins,
    }
}

fn draft(
    table: &Spanned<RawPartition>,
    backends: &[BackendConfig],
    total_bytes: u64,
    tenants: &mut Vec<String>,
    problems: &mut Problems<'_>,
) -> Option<Draft> {
    let raw = table.get_ref();
    let tenant = tenant(given(&raw.tenant), tenants, problems);
    let backend = backend(table, backends, problems);
    let total = ByteSize(total_bytes);
    let instance = instances::instance(raw.cache.as_ref(), problems);
    // An external cache has a minimum size.
    let least = ByteSize(instance.as_ref().map_or(0, |instance| instance.kind.bytes_min()));
    let min = in_range(problems, MIN, given(&raw.min), least, least..=total);
    let max = in_range(problems, MAX, given(&raw.max), total, min..=ByteSize(u64::MAX)).min(total);
    let initial = given(&raw.initial);
    let origin = |key: &Option<Spanned<ByteSize>>| key.as_ref().map_or_else(|| bytes(table), bytes);
    Some(Draft {
        tenant,
        backend: backend?,
        min: min.0,
        max: max.0,
        initial: initial.map(|initial| in_range(problems, INITIAL, Some(initial), min, min..=max).0),
        dry_run: raw.dry_run.as_ref().is_some_and(|dry_run| *dry_run.get_ref()),
        instance,
        origins: Origins { min: origin(&raw.min), max: origin(&raw.max), initial: origin(&raw.initial) },
    })
}

fn tenant(given: Option<Given<String>>, tenants: &mut Vec<String>, problems: &mut Problems<'_>) -> TenantId {
    let Some(Given { value, origin }) = given else { return TenantId(0) };
    if !is_name(&value) {
        let shown = quoted(&value);
        let message =
            format!("[[partition]] tenant is \"{shown}\"; it must be {NAMES}: set tenant = \"default\"");
        problems.add(&origin, message);
        return TenantId(0);
    }
    let index = tenants.iter().position(|tenant| *tenant == value).unwrap_or_else(|| {
        tenants.push(value);
        tenants.len() - 1
    });
    TenantId::from_index(index)
}

fn backend(
    table: &Spanned<RawPartition>,
    backends: &[BackendConfig],
    problems: &mut Problems<'_>,
) -> Option<BackendId> {
    let Some(name) = given(&table.get_ref().backend) else {
        let message = "[[partition]] has no backend; it must name one: set backend = \"catalog\"";
        problems.add(&bytes(table), message);
        return None;
    };
    let index = backends.iter().position(|backend| backend.name == name.value);
    if index.is_none() {
        let names: Vec<&str> = backends.iter().map(|backend| backend.name.as_str()).collect();
        unknown(problems, BACKEND, &name, &names);
    }
    index.map(BackendId::from_index)
}

fn name(tenants: &[String], backends: &[BackendConfig], tenant: TenantId, backend: BackendId) -> String {
    let backend = &backends[backend.index()].name;
    match tenant.index() {
        0 => backend.clone(),
        index => format!("{}:{backend}", tenants[index]),
    }
}

/// Refuses too many partitions, counting those of the default tenant that are not listed. Returns
/// true in that case.
fn refuse_too_many(partitions: usize, listed: usize, problems: &mut Problems<'_>) -> bool {
    let count = partitions.max(listed);
    let over = count > PARTITIONS_MAX;
    if over {
        let message = format!(
            "there are {count} partitions, counting the default tenant's of every backend; at most {PARTITIONS_MAX} are \
             accepted: merge backends or tenants"
        );
        problems.add(&Origin::Absent, message);
    }
    over
}

/// Refuses minima, and initial sizes, that exceed the total, at the first that does not fit.
/// Returns true in that case.
fn refuse_sums_over(drafts: &[Draft], total_bytes: u64, problems: &mut Problems<'_>) -> bool {
    let total = ByteSize(total_bytes);
    if let Some((draft, min)) = first_over(drafts, total_bytes, |draft| draft.min) {
        let message = format!(
            "[[partition]] min of all partitions is {min} in sum; it must be at most the total of {total}: lower this min \
             or raise [memory] total"
        );
        problems.add(&draft.origins.min, message);
        return true;
    }
    if let Some((draft, initial)) = first_over(drafts, total_bytes, start_min) {
        let message = format!(
            "[[partition]] initial of all partitions is {initial} in sum, counting min where there is no initial; it must \
             be at most the total of {total}: lower this initial or raise [memory] total"
        );
        problems.add(&draft.origins.initial, message);
        return true;
    }
    refuse_unreachable_total(drafts, total, problems)
}

/// Refuses maxima that sum to less than the total: budgets must sum to the total.
fn refuse_unreachable_total(drafts: &[Draft], total: ByteSize, problems: &mut Problems<'_>) -> bool {
    let max = ByteSize(drafts.iter().map(start_max).fold(0_u64, u64::saturating_add));
    let last = drafts.iter().next_back().filter(|_| max < total);
    if let Some(draft) = last {
        let dry_runs = drafts.iter().any(|draft| draft.dry_run && draft.initial.is_some());
        let counting =
            if dry_runs { ", counting initial where there is a dry_run, which keeps it" } else { "" };
        let message = format!(
            "[[partition]] max of all partitions is {max} in sum{counting}; it must be at least the total of {total}: raise a max or \
             lower [memory] total"
        );
        problems.add(&draft.origins.max, message);
    }
    last.is_some()
}

/// Returns the draft with which the running sum of `bytes` exceeds the total, and the complete sum.
fn first_over(drafts: &[Draft], total_bytes: u64, bytes: fn(&Draft) -> u64) -> Option<(&Draft, ByteSize)> {
    let mut sum = 0_u64;
    let mut first = None;
    for draft in drafts {
        sum = sum.saturating_add(bytes(draft));
        if sum > total_bytes {
            first = first.or(Some(draft));
        }
    }
    first.map(|draft| (draft, ByteSize(sum)))
}

/// Minimum initial size of a partition.
fn start_min(draft: &Draft) -> u64 {
    draft.initial.unwrap_or(draft.min)
}

/// Maximum initial size of a partition; in a dry run, its given initial size.
fn start_max(draft: &Draft) -> u64 {
    draft.initial.filter(|_| draft.dry_run).unwrap_or(draft.max)
}

/// Initial sizes of all partitions; zeros, with a problem, when the policies find no division.
fn starts(drafts: &[Draft], total_bytes: u64, problems: &mut Problems<'_>) -> Vec<u64> {
    let size = |draft: &Draft| StartSize {
        initial_bytes: draft.initial,
        min_bytes: draft.initial.filter(|_| draft.dry_run).unwrap_or(draft.min),
        max_bytes: Some(start_max(draft)).filter(|&max| max < total_bytes),
    };
    let sizes: Vec<StartSize> = drafts.iter().map(size).collect();
    let options = sherwood_policy::Options::default();
    let checked = options.validate(total_bytes, drafts.len());
    checked.and_then(|()| options.start_budgets(total_bytes, &sizes)).unwrap_or_else(|error| {
        problems.add(&Origin::Absent, format!("[[partition]]: {error}"));
        vec![0; drafts.len()]
    })
}
