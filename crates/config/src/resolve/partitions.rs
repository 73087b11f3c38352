//! `[[partition]]`: initial sizes and limits.

use std::collections::{BTreeMap, BTreeSet};

use crate::spanned::Spanned;
use sherwood_model::{BackendId, TenantId};
use sherwood_policy::StartSize;

use super::backends::{NAMES, is_name};
use super::instances;
use super::tenants::Resolved;
use crate::meaning::{BackendConfig, Partition};
use crate::problem::{Origin, Problems};
use crate::raw::RawPartition;
use crate::scope::{Given, Setting, bytes, given, in_range, unknown};
use crate::setup::InstanceSetup;
use crate::setup::partition_name;
use crate::setup::{DEFAULT_TENANT, TenantSetup};
use crate::units::{ByteSize, quoted};

const BACKEND: Setting = Setting::new("[[partition]]", "backend", "\"catalog\"");
const TENANT: Setting = Setting::new("[[partition]]", "tenant", "\"default\"");
const MIN: Setting = Setting::new("[[partition]]", "min", "\"1MiB\"");
const MAX: Setting = Setting::new("[[partition]]", "max", "\"512MiB\"");
const INITIAL: Setting = Setting::new("[[partition]]", "initial", "\"64MiB\"");

/// Maximum of partitions among which one policy divides: slightly below the number that the
/// policies have floors for, 30 of 32,768 pages each.
pub(super) const LEVEL_MAX: usize = 1024;
/// Maximum of partitions of a node whose cache is divided among tenants first: those of 1,024
/// tenants with 4 backends.
const PARTITIONS_MAX: usize = 4096;

/// Division of the cache's total among partitions at the start.
pub(super) struct Division {
    pub(super) tenants: Vec<String>,
    pub(super) partitions: Vec<Partition>,
}

/// Tenants whose partitions are resolved.
enum Tenants<'a> {
    /// Tenants that partitions name, the default tenant first; they share the total.
    Named(Vec<String>),
    /// Tenants of `[[tenant]]`, each with bytes of its own.
    Declared(&'a Resolved),
}

impl Tenants<'_> {
    fn name(&self, tenant: TenantId) -> &str {
        match self {
            Self::Named(names) => &names[tenant.index()],
            Self::Declared(resolved) => &resolved.setup.tenants[tenant.index()].name,
        }
    }

    /// Number of tenants that have a partition of every backend.
    fn complete(&self) -> usize {
        match self {
            Self::Named(_) => 1,
            Self::Declared(resolved) => resolved.setup.tenants.len(),
        }
    }

    fn default_tenant(&self) -> Option<TenantId> {
        match self {
            Self::Named(_) => Some(TenantId(0)),
            Self::Declared(resolved) => resolved.default_tenant(),
        }
    }

    fn partitions_max(&self) -> usize {
        if matches!(self, Self::Named(_)) { LEVEL_MAX } else { PARTITIONS_MAX }
    }
}

/// Bytes that a list of partitions divides, with words for messages.
struct Whole {
    total_bytes: u64,
    /// The partitions, such as `all partitions`.
    whose: String,
    /// The bytes, such as `the total`.
    what: &'static str,
    /// The setting of the bytes.
    setting: &'static str,
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
/// Tenants of `[[tenant]]` have a partition of every backend, listed or not, and the partitions are
/// ordered by tenant.
pub(super) fn resolve(
    file: &[Spanned<RawPartition>],
    backends: &[BackendConfig],
    total_bytes: u64,
    declared: Option<&Resolved>,
    problems: &mut Problems<'_>,
) -> Division {
    let mut tenants =
        declared.map_or_else(|| Tenants::Named(vec![DEFAULT_TENANT.to_owned()]), Tenants::Declared);
    let mut drafts = listed(file, backends, total_bytes, &mut tenants, problems);
    let have: BTreeSet<_> = drafts.iter().map(|draft| (draft.tenant, draft.backend)).collect();
    let complete = (0..tenants.complete()).map(TenantId::from_index);
    for tenant in complete {
        let missing = (0..backends.len()).map(BackendId::from_index);
        let missing = missing.filter(|backend| !have.contains(&(tenant, *backend)));
        drafts.extend(missing.map(|backend| unlisted(tenant, backend, total_bytes)));
    }
    if declared.is_some() {
        drafts.sort_by_key(|draft| draft.tenant);
    }
    let starts = if refuse_too_many(drafts.len(), file.len(), &tenants, problems) {
        vec![0; drafts.len()]
    } else {
        match &tenants {
            Tenants::Named(_) => starts(&drafts, &Whole::of_cache(total_bytes), problems),
            Tenants::Declared(resolved) => drafts
                .chunk_by(|a, b| a.tenant == b.tenant)
                .flat_map(|drafts| {
                    let tenant = &resolved.setup.tenants[drafts[0].tenant.index()];
                    starts(drafts, &Whole::of_tenant(tenant), problems)
                })
                .collect(),
        }
    };
    let partition = |(draft, initial_bytes): (&Draft, u64)| Partition {
        name: partition_name(tenants.name(draft.tenant), &backends[draft.backend.index()].name),
        tenant: draft.tenant,
        backend: draft.backend,
        bytes_min: draft.min,
        bytes_max: draft.max,
        dry_run: draft.dry_run,
        instance: draft.instance.clone(),
        initial_bytes,
    };
    let partitions = drafts.iter().zip(starts).map(partition).collect();
    let tenants = match tenants {
        Tenants::Named(names) => names,
        Tenants::Declared(resolved) => {
            resolved.setup.tenants.iter().map(|tenant| tenant.name.clone()).collect()
        }
    };
    Division { tenants, partitions }
}

fn listed(
    file: &[Spanned<RawPartition>],
    backends: &[BackendConfig],
    total_bytes: u64,
    tenants: &mut Tenants<'_>,
    problems: &mut Problems<'_>,
) -> Vec<Draft> {
    let mut seen = BTreeMap::new();
    let mut drafts: Vec<Draft> = Vec::new();
    for table in file.iter().take(tenants.partitions_max()) {
        let Some(draft) = draft(table, backends, total_bytes, tenants, problems) else { continue };
        match seen.insert((draft.tenant, draft.backend), bytes(table)) {
            None => drafts.push(draft),
            Some(first) => {
                let name = partition_name(tenants.name(draft.tenant), &backends[draft.backend.index()].name);
                let first = problems.reference(&first);
                let message =
                    format!("[[partition]] {name} is there on {first} already; list each once: remove one");
                problems.add(&bytes(table), message);
            }
        }
    }
    drafts
}

impl Whole {
    fn of_cache(total_bytes: u64) -> Self {
        let (what, setting) = ("the total", "[memory] total");
        Self { total_bytes, whose: "all partitions".to_owned(), what, setting }
    }

    fn of_tenant(tenant: &TenantSetup) -> Self {
        let (what, setting) = ("its share of the cache", "base.cache of the [[tenant]]");
        let whose = format!("all partitions of tenant {}", tenant.name);
        Self { total_bytes: tenant.base_bytes, whose, what, setting }
    }

    fn total(&self) -> ByteSize {
        ByteSize(self.total_bytes)
    }
}

fn unlisted(tenant: TenantId, backend: BackendId, total_bytes: u64) -> Draft {
    let origins = Origins { min: Origin::Absent, max: Origin::Absent, initial: Origin::Absent };
    Draft {
        tenant,
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
    tenants: &mut Tenants<'_>,
    problems: &mut Problems<'_>,
) -> Option<Draft> {
    let raw = table.get_ref();
    let tenant = tenant(table, tenants, problems);
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
        tenant: tenant?,
        backend: backend?,
        min: min.0,
        max: max.0,
        initial: initial.map(|initial| in_range(problems, INITIAL, Some(initial), min, min..=max).0),
        dry_run: raw.dry_run.as_ref().is_some_and(|dry_run| *dry_run.get_ref()),
        instance,
        origins: Origins { min: origin(&raw.min), max: origin(&raw.max), initial: origin(&raw.initial) },
    })
}

fn tenant(
    table: &Spanned<RawPartition>,
    tenants: &mut Tenants<'_>,
    problems: &mut Problems<'_>,
) -> Option<TenantId> {
    let Some(name) = given(&table.get_ref().tenant) else {
        let default = tenants.default_tenant();
        if default.is_none() {
            let message = "[[partition]] has no tenant, and no [[tenant]] is called \"default\"; it must name one: set tenant \
                           = \"gold\"";
            problems.add(&bytes(table), message);
        }
        return default;
    };
    match tenants {
        Tenants::Named(names) => Some(named(&name, names, problems)),
        Tenants::Declared(resolved) => {
            let names: Vec<&str> = resolved.setup.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
            let index = names.iter().position(|known| *known == name.value);
            if index.is_none() {
                unknown(problems, TENANT, &name, &names);
            }
            index.map(TenantId::from_index)
        }
    }
}

/// Returns the id of a tenant that a partition names; a new name is added.
fn named(
    Given { value, origin }: &Given<String>,
    tenants: &mut Vec<String>,
    problems: &mut Problems<'_>,
) -> TenantId {
    if !is_name(value) {
        let shown = quoted(value);
        let message =
            format!("[[partition]] tenant is \"{shown}\"; it must be {NAMES}: set tenant = \"default\"");
        problems.add(origin, message);
        return TenantId(0);
    }
    let index = tenants.iter().position(|tenant| tenant == value).unwrap_or_else(|| {
        tenants.push(value.clone());
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

/// Refuses too many partitions, counting those that are not listed. Returns true in that case.
fn refuse_too_many(
    partitions: usize,
    listed: usize,
    tenants: &Tenants<'_>,
    problems: &mut Problems<'_>,
) -> bool {
    let (count, max) = (partitions.max(listed), tenants.partitions_max());
    let over = count > max;
    if over {
        let whose = match tenants {
            Tenants::Named(_) => "the default tenant's of every backend",
            Tenants::Declared(_) => "those of every tenant and backend",
        };
        let message = format!(
            "there are {count} partitions, counting {whose}; at most {max} are accepted: merge backends or tenants"
        );
        problems.add(&Origin::Absent, message);
    }
    over
}

/// Refuses minima, and initial sizes, that exceed the whole, at the first that does not fit.
/// Returns true in that case.
fn refuse_sums_over(drafts: &[Draft], whole: &Whole, problems: &mut Problems<'_>) -> bool {
    let (total, Whole { whose, what, setting, .. }) = (whole.total(), whole);
    if let Some((draft, min)) = first_over(drafts, whole.total_bytes, |draft| draft.min) {
        let message = format!(
            "[[partition]] min of {whose} is {min} in sum; it must be at most {what} of {total}: lower this min or raise \
             {setting}"
        );
        problems.add(&draft.origins.min, message);
        return true;
    }
    if let Some((draft, initial)) = first_over(drafts, whole.total_bytes, start_min) {
        let message = format!(
            "[[partition]] initial of {whose} is {initial} in sum, counting min where there is no initial; it must \
             be at most {what} of {total}: lower this initial or raise {setting}"
        );
        problems.add(&draft.origins.initial, message);
        return true;
    }
    refuse_unreachable_total(drafts, whole, problems)
}

/// Refuses maxima that sum to less than the whole: budgets must sum to it.
fn refuse_unreachable_total(drafts: &[Draft], whole: &Whole, problems: &mut Problems<'_>) -> bool {
    let (total, Whole { whose, what, setting, .. }) = (whole.total(), whole);
    let max = ByteSize(drafts.iter().map(start_max).fold(0_u64, u64::saturating_add));
    let last = drafts.iter().next_back().filter(|_| max < total);
    if let Some(draft) = last {
        let dry_runs = drafts.iter().any(|draft| draft.dry_run && draft.initial.is_some());
        let counting =
            if dry_runs { ", counting initial where there is a dry_run, which keeps it" } else { "" };
        let message = format!(
            "[[partition]] max of {whose} is {max} in sum{counting}; it must be at least {what} of {total}: raise a max or \
             lower {setting}"
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

/// Initial sizes of the partitions of a whole; zeros, with a problem, when they do not fit or the
/// policies find no division.
fn starts(drafts: &[Draft], whole: &Whole, problems: &mut Problems<'_>) -> Vec<u64> {
    if refuse_sums_over(drafts, whole, problems) {
        return vec![0; drafts.len()];
    }
    let total_bytes = whole.total_bytes;
    let size = |draft: &Draft| StartSize {
        initial_bytes: draft.initial,
        min_bytes: draft.initial.filter(|_| draft.dry_run).unwrap_or(draft.min),
        max_bytes: Some(start_max(draft)).filter(|&max| max < total_bytes),
    };
    let sizes: Vec<StartSize> = drafts.iter().map(size).collect();
    if total_bytes == 0 {
        // A tenant without a share of the cache, which gains bytes later.
        return vec![0; drafts.len()];
    }
    let options = sherwood_policy::Options::default();
    let checked = options.validate(total_bytes, drafts.len());
    checked.and_then(|()| options.start_budgets(total_bytes, &sizes)).unwrap_or_else(|error| {
        problems.add(&Origin::Absent, format!("[[partition]] of {}: {error}", whole.whose));
        vec![0; drafts.len()]
    })
}
