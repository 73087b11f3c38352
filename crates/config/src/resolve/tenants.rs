//! `[tenants]` and `[[tenant]]`: the tenants and their baselines.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::spanned::Spanned;
use sherwood_dispatch::OverRate;
use sherwood_model::TenantId;
use sherwood_policy::tenants::base_shares;

use super::backends::{NAMES, PREFIX_BYTES_MAX, is_name, overlap};
use super::resources::{self, CACHE};
use crate::flags::Flags;
use crate::meaning::{BackendConfig, Control};
use crate::problem::{Origin, Problems};
use crate::raw::{RawControl, RawFile, RawGuard, RawTenant, RawTenants};
use crate::scope::{Given, Setting, bytes, given, in_range, one_of, unknown};
use crate::setup::{DEFAULT_TENANT, ResourceSetup, TenancyOptions, TenancySetup, TenantSetup};
use crate::units::{ByteSize, Span, quoted};

const POLICY: Setting = Setting::new("[tenants]", "policy", "\"hare\"");
const PERIOD: Setting = Setting::new("[tenants]", "period", "\"20s\"");
const WINDOW: Setting = Setting::new("[tenants]", "window", "\"60s\"");
const SALT: Setting = Setting::new("[tenants]", "salt", "0.01");
const APPLY_OVER: Setting = Setting::new("[tenants]", "apply_over", "0.01");
const OVER: Setting = Setting::new("[tenants]", "over", "\"wait\"");
const WEIGHT: Setting = Setting::new("[[tenant]]", "weight", "1.0");
const BASE: Setting = Setting::new("[[tenant]]", "base", "\"cache\"");

/// Maximum of tenants: a decision between so many takes some 10 ms.
pub(super) const TENANTS_MAX: usize = 1024;
/// Names that are paths of the admin API below `/v1/tenants`, and so cannot address a tenant there.
const TENANT_PATHS: [&str; 2] = ["trades", "what-if"];
/// Maximum length of a user's name, bytes, as in password files.
const USER_BYTES_MAX: usize = 256;
/// Amount by which shares that are written as decimals may miss a sum of 1.
const SHARE_SLACK: f64 = 0.001;
const PERIOD_MIN: Span = Span(Duration::from_secs(1));
const PERIOD_MAX: Span = Span(Duration::from_secs(3600));

/// Tenants of the configuration.
pub(super) struct Resolved {
    pub(super) setup: TenancySetup,
    have_prefixes: bool,
}

impl Resolved {
    /// The tenant called `default`, to which clients belong that name none, if there is one.
    pub(super) fn default_tenant(&self) -> Option<TenantId> {
        let position = self.setup.tenants.iter().position(|tenant| tenant.name == DEFAULT_TENANT);
        position.map(TenantId::from_index)
    }

    /// True if a tenant has a prefix, valid or not.
    pub(super) fn have_prefixes(&self) -> bool {
        self.have_prefixes
    }
}

/// Resolves tenants and resources; none without any of their tables.
pub(super) fn resolve(
    file: &RawFile,
    backends: &[BackendConfig],
    total_bytes: u64,
    problems: &mut Problems<'_>,
) -> Option<Resolved> {
    let RawFile { tenants, tenant: tables, resource, .. } = file;
    if tables.is_empty() {
        let origin = tenants.as_ref().map(bytes).or(resource.first().map(bytes));
        if let Some(origin) = origin {
            let message = "there is nobody to divide among; [tenants] and [[resource]] must have at least one [[tenant]]: add \
                           [[tenant]] name = \"gold\"";
            problems.add(&origin, message);
        }
        return None;
    }
    if let Some(first) = tables.get(TENANTS_MAX) {
        let count = tables.len();
        let message =
            format!("there are {count} [[tenant]]; at most {TENANTS_MAX} are accepted: leave some out");
        problems.add(&bytes(first), message);
    }
    let options = options(tenants.as_ref().map(Spanned::get_ref), problems);
    let resources = resources::resolve(resource, backends, problems);
    let tables = &tables[..tables.len().min(TENANTS_MAX)];
    let mut earlier = Earlier::default();
    let mut named: Vec<_> =
        tables.iter().map(|table| tenant(table, backends, &mut earlier, problems)).collect();
    set_bases(tables, &mut named, &resources, total_bytes, problems);
    refuse_min_over_base(tables, &named, problems);
    let have_prefixes = tables.iter().any(|table| table.get_ref().prefix.is_some());
    Some(Resolved { setup: TenancySetup { options, tenants: named, resources }, have_prefixes })
}

fn options(raw: Option<&RawTenants>, problems: &mut Problems<'_>) -> TenancyOptions {
    let RawTenants { policy, period, window, salt, apply_over, lend, conserving, over } =
        raw.cloned().unwrap_or_default();
    let policy = given(&policy).map_or(sherwood_policy::tenants::available()[0].to_owned(), |policy| {
        if !sherwood_policy::tenants::available().contains(&policy.value.as_str()) {
            unknown(problems, POLICY, &policy, sherwood_policy::tenants::available());
        }
        policy.value
    });
    let seconds = |seconds| Span(Duration::from_secs(seconds));
    let period = in_range(problems, PERIOD, given(&period), seconds(20), PERIOD_MIN..=PERIOD_MAX);
    let window_default = seconds(60).max(period);
    let window = in_range(problems, WINDOW, given(&window), window_default, period..=PERIOD_MAX);
    let overs = [("wait", OverRate::Wait), ("refuse", OverRate::Refuse)];
    TenancyOptions {
        policy,
        period: period.0,
        window: window.0,
        salt: in_range(problems, SALT, given(&salt), 0.01, 0.0..=0.5),
        apply_over: in_range(problems, APPLY_OVER, given(&apply_over), 0.01, 0.0..=1.0),
        lend: given(&lend).is_none_or(|lend| lend.value),
        conserving: given(&conserving).is_none_or(|conserving| conserving.value),
        over: one_of(problems, OVER, given(&over), &overs),
    }
}

/// Names, users and prefixes of tenants earlier in the file, with their places.
#[derive(Default)]
struct Earlier {
    names: BTreeMap<String, Origin>,
    users: BTreeMap<String, Origin>,
    prefixes: Vec<(String, Origin)>,
}

fn tenant(
    table: &Spanned<RawTenant>,
    backends: &[BackendConfig],
    earlier: &mut Earlier,
    problems: &mut Problems<'_>,
) -> TenantSetup {
    let raw = table.get_ref();
    TenantSetup {
        name: name(table, earlier, problems),
        users: raw
            .users
            .iter()
            .flat_map(|users| users.get_ref())
            .filter_map(|name| user(name, earlier, problems))
            .collect(),
        prefix: given(&raw.prefix).and_then(|given| prefix(given, backends, earlier, problems)),
        weight: in_range(problems, WEIGHT, given(&raw.weight), 1.0, 0.001..=1000.0),
        bytes_min: given(&raw.min).map_or(0, |min| min.value.0),
        stated: Vec::new(),
        base_bytes: 0,
        base_shares: Vec::new(),
    }
}

fn name(table: &Spanned<RawTenant>, earlier: &mut Earlier, problems: &mut Problems<'_>) -> String {
    let Some(Given { value, origin }) = given(&table.get_ref().name) else {
        problems.add(&bytes(table), "[[tenant]] has no name; it must have one: set name = \"gold\"");
        return String::new();
    };
    let shown = quoted(&value);
    if TENANT_PATHS.contains(&value.as_str()) {
        let message = format!(
            "[[tenant]] name is \"{shown}\", and /v1/tenants/{value} of the admin API is another thing: choose another name"
        );
        problems.add(&origin, message);
    } else if !is_name(&value) {
        let message = format!("[[tenant]] name is \"{shown}\"; it must be {NAMES}: set name = \"gold\"");
        problems.add(&origin, message);
    } else if let Some(first) = earlier.names.get(&value) {
        let first = problems.reference(first);
        let message =
            format!("[[tenant]] name is \"{shown}\" as on {first}; names must be unique: rename one");
        problems.add(&origin, message);
    } else {
        earlier.names.insert(value.clone(), origin);
    }
    value
}

fn user(user: &Spanned<String>, earlier: &mut Earlier, problems: &mut Problems<'_>) -> Option<String> {
    let (value, origin) = (user.get_ref(), bytes(user));
    let shown = quoted(value);
    if !(1..=USER_BYTES_MAX).contains(&value.len()) || value.contains([' ', ':', '\n', '\r']) {
        let message = format!(
            "[[tenant]] users has \"{shown}\"; a user's name has 1 to {USER_BYTES_MAX} bytes without blanks and colons: set users = \
             [\"gold\"]"
        );
        problems.add(&origin, message);
        return None;
    }
    if let Some(first) = earlier.users.get(value) {
        let first = problems.reference(first);
        let message = format!(
            "[[tenant]] users has \"{shown}\" as on {first}; a user belongs to one tenant: remove one"
        );
        problems.add(&origin, message);
        return None;
    }
    earlier.users.insert(value.clone(), origin);
    Some(value.clone())
}

/// Checks a tenant's prefix: no key may begin with it and with another tenant's or backend's.
fn prefix(
    Given { value, origin }: Given<String>,
    backends: &[BackendConfig],
    earlier: &mut Earlier,
    problems: &mut Problems<'_>,
) -> Option<String> {
    let shown = quoted(&value);
    let printable = value.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    if !(1..=PREFIX_BYTES_MAX).contains(&value.len()) || !printable {
        let message = format!(
            "[[tenant]] prefix is \"{shown}\"; it must have 1 to {PREFIX_BYTES_MAX} bytes without blanks: set prefix = \"gold/\""
        );
        problems.add(&origin, message);
        return None;
    }
    let overlaps = |other: &str| overlap(other, &value);
    if let Some((_, first)) = earlier.prefixes.iter().find(|(other, _)| overlaps(other)) {
        let first = problems.reference(first);
        let message = format!(
            "[[tenant]] prefix is \"{shown}\", and that on {first} begins with it or is its beginning; a key belongs to one tenant: \
             change one"
        );
        problems.add(&origin, message);
        return None;
    }
    let backend = backends.iter().find(|backend| backend.prefix.as_deref().is_some_and(overlaps));
    if let Some(backend) = backend {
        let message = format!(
            "[[tenant]] prefix is \"{shown}\", and that of backend \"{}\" begins with it or is its beginning; keys must tell tenants \
             from backends: change one",
            backend.name
        );
        problems.add(&origin, message);
        return None;
    }
    earlier.prefixes.push((value.clone(), origin));
    Some(value)
}

/// Sets the baselines from the shares that the tenants state, and from their weights.
fn set_bases(
    tables: &[Spanned<RawTenant>],
    tenants: &mut [TenantSetup],
    resources: &[ResourceSetup],
    total_bytes: u64,
    problems: &mut Problems<'_>,
) {
    refuse_unknown_shares(tables, resources, problems);
    let weights: Vec<f64> = tenants.iter().map(|tenant| tenant.weight).collect();
    let stated = stated_shares(CACHE, tables, problems);
    for ((tenant, stated), share) in tenants.iter_mut().zip(&stated).zip(base_shares(&stated, &weights)) {
        tenant.stated.push(*stated);
        tenant.base_bytes = ((total_bytes as f64) * share) as u64;
    }
    for resource in resources {
        let stated = stated_shares(&resource.name, tables, problems);
        for ((tenant, stated), share) in tenants.iter_mut().zip(&stated).zip(base_shares(&stated, &weights)) {
            tenant.stated.push(*stated);
            tenant.base_shares.push(share);
        }
    }
}

fn refuse_unknown_shares(
    tables: &[Spanned<RawTenant>],
    resources: &[ResourceSetup],
    problems: &mut Problems<'_>,
) {
    let known: Vec<&str> =
        std::iter::once(CACHE).chain(resources.iter().map(|resource| resource.name.as_str())).collect();
    for base in tables.iter().filter_map(|table| table.get_ref().base.as_ref()) {
        for (name, share) in base.get_ref() {
            if !known.contains(&name.as_str()) {
                unknown(problems, BASE, &Given { value: name.clone(), origin: bytes(share) }, &known);
            }
        }
    }
}

/// Returns the share of the cache or of a resource that each tenant states, 0 to 1.
fn stated_shares(name: &str, tables: &[Spanned<RawTenant>], problems: &mut Problems<'_>) -> Vec<Option<f64>> {
    let stated: Vec<Option<Given<f64>>> = tables
        .iter()
        .map(|table| {
            let share = table.get_ref().base.as_ref()?.get_ref().get(name)?;
            let Given { value, origin } = Given { value: *share.get_ref(), origin: bytes(share) };
            let accepted = (0.0..=1.0).contains(&value);
            if !accepted {
                let message = format!(
                    "[[tenant]] base has {name} = {value}; a share must be 0 to 1: set base = {{ {name} = 0.5 }}"
                );
                problems.add(&origin, message);
            }
            accepted.then_some(Given { value, origin })
        })
        .collect();
    let sum: f64 = stated.iter().flatten().map(|share| share.value).sum();
    let is_open = stated.iter().any(Option::is_none);
    let last = stated.iter().flatten().next_back();
    if let Some(last) = last.filter(|_| sum > 1.0 + SHARE_SLACK || (!is_open && sum < 1.0 - SHARE_SLACK)) {
        let range = if is_open { "at most 1" } else { "1, since every tenant states one" };
        let message = format!(
            "[[tenant]] base of all tenants has {name} = {sum:.3} in sum; it must be {range}: change this share"
        );
        problems.add(&last.origin, message);
    }
    stated.into_iter().map(|stated| stated.map(|share| share.value)).collect()
}

/// Checks that the rest of the configuration can be divided among tenants.
pub(super) fn check(file: &RawFile, flags: &Flags, control: &Control, problems: &mut Problems<'_>) {
    if let Some(listed) = file.partition.iter().find_map(|table| table.get_ref().cache.as_ref()) {
        let message = "[[partition]] cache is one of others, which is not divided among tenants; there must be no [[tenant]], or no \
                       cache: remove one";
        problems.add(&bytes(listed), message);
    }
    if control.policy == "shared-lru" {
        let origin = match &flags.policy {
            Some(_) => Origin::Flag("--policy"),
            None => given(&file.control.policy).map_or(Origin::Absent, |policy| policy.origin),
        };
        let message = "[control] policy is \"shared-lru\"; it would share one LRU among all tenants: set policy = \"robinhood\"";
        problems.add(&origin, message);
    }
    refuse_one_level_only(&file.control, problems);
}

/// Refuses options of a loop that divides on one level: a dry run would still move bytes and rates
/// between tenants, and the guard would undo their moves.
fn refuse_one_level_only(file: &RawControl, problems: &mut Problems<'_>) {
    if let Some(Given { origin, .. }) = given(&file.dry_run).filter(|dry_run| dry_run.value) {
        let message = "[control] dry_run is true; with [[tenant]] it must be false, since bytes and rates move between tenants all the \
                       same: leave it out, or set [tenants] policy = \"baseline\"";
        problems.add(&origin, message);
    }
    let RawGuard { enabled, worse, miss_rise, blame, freeze, memory } = &file.guard;
    let enabled = given(enabled);
    if enabled.as_ref().is_some_and(|enabled| !enabled.value) {
        return;
    }
    let ratios = [("worse", worse), ("miss_rise", miss_rise), ("blame", blame)];
    let times = [("freeze", freeze), ("memory", memory)];
    let set = enabled.map(|enabled| ("enabled", enabled.origin)).into_iter();
    let set = set.chain(ratios.into_iter().filter_map(|(key, ratio)| Some((key, given(ratio)?.origin))));
    let mut set = set.chain(times.into_iter().filter_map(|(key, time)| Some((key, given(time)?.origin))));
    if let Some((key, origin)) = set.next() {
        let message = format!(
            "[control.guard] {key} is set, and with [[tenant]] there is no guard: a tenant below its baseline brings all back to theirs; \
             set enabled = false, or leave the table out"
        );
        problems.add(&origin, message);
    }
}

fn refuse_min_over_base(tables: &[Spanned<RawTenant>], tenants: &[TenantSetup], problems: &mut Problems<'_>) {
    for (table, TenantSetup { bytes_min, base_bytes, name, .. }) in tables.iter().zip(tenants) {
        if let (Some(Given { origin, .. }), true) = (given(&table.get_ref().min), bytes_min > base_bytes) {
            let (min, base) = (ByteSize(*bytes_min), ByteSize(*base_bytes));
            let message = format!(
                "[[tenant]] min is {min}; it must be at most the share of {name}, {base}: lower it, or raise base.cache or [memory] \
                 total"
            );
            problems.add(&origin, message);
        }
    }
}
