//! `[replication]`: the tiers whose copies are chosen, and how.

use std::ops::RangeInclusive;
use std::time::Duration;

use sherwood_dispatch::CopiesChoice;
use sherwood_model::BackendId;
use sherwood_policy::replication::{ReplicationOptions, ReplicationPolicy, TargetLatency, TierOptions};

use crate::meaning::BackendConfig;
use crate::problem::{Origin, Problems};
use crate::raw::{Key, RawReplication};
use crate::scope::{Given, Setting, bytes, given, in_range};
use crate::setup::ReplicationSetup;
use crate::units::Span;

const WINDOW: Setting = Setting::new("[replication]", "window", "\"60s\"");
const WINDOWS: RangeInclusive<Span> = Span(Duration::from_secs(1))..=Span(Duration::from_secs(3_600));

/// Cores of a server of which the configuration says nothing.
const CORES: u32 = 2;

/// Resolves `[replication]`, and has the backends that are tiers measured; none without the table.
pub(super) fn resolve(
    table: &Key<RawReplication>,
    backends: &mut [BackendConfig],
    problems: &mut Problems<'_>,
) -> Option<ReplicationSetup> {
    let table = table.as_ref()?;
    let RawReplication { policy, tiers, cores, factors, target, collision_max, window, factor_max } =
        table.get_ref();
    // What does not depend on the tiers is checked with one that is valid.
    let any = TierOptions { name: String::new(), cores: CORES, factor: 1 };
    let mut options = ReplicationOptions { tiers: vec![any], ..ReplicationOptions::default() };
    options.window = in_range(problems, WINDOW, given(window), Span(options.window), WINDOWS).0;
    let mut change = |origin: &Origin, change: &dyn Fn(&mut ReplicationOptions)| {
        let mut changed = options.clone();
        change(&mut changed);
        match changed.validate() {
            Ok(()) => options = changed,
            Err(error) => problems.add(origin, format!("[replication]: {error}")),
        }
    };
    if let Some(Given { value, origin }) = given(collision_max) {
        change(&origin, &|options| options.collision_max = value);
    }
    if let Some(Given { value, origin }) = given(factor_max) {
        change(&origin, &|options| options.factor_max = value);
    }
    let names = given(tiers).map(|tiers| tiers.value).unwrap_or_default();
    let origin = given(tiers).map_or(bytes(table), |tiers| tiers.origin);
    let cores = each(cores, "cores", CORES, names.len(), problems);
    let factors = each(factors, "factors", 1, names.len(), problems);
    options.tiers = names.iter().zip(cores).zip(factors).map(tier).collect();
    if let Err(error) = options.validate() {
        problems.add(&origin, format!("[replication]: {error}"));
    }
    let ids = tier_backends(&names, backends, origin, problems);
    let mut refuse = |origin: &Origin, error: &dyn std::fmt::Display| {
        problems.add(origin, format!("[replication]: {error}"));
    };
    if let Some(Given { value, origin }) = given(policy) {
        match ReplicationPolicy::by_name(&value) {
            Ok(policy) => options.policy = policy,
            Err(error) => refuse(&origin, &error),
        }
    }
    if let Some(Given { value, origin }) = given(target) {
        match TargetLatency::by_name(&value) {
            Ok(target) => options.target = target,
            Err(error) => refuse(&origin, &error),
        }
    }
    measure(&ids, &options.tiers, backends, &bytes(table), problems);
    (ids.len() == options.tiers.len()).then_some(ReplicationSetup { options, backends: ids })
}

/// Has the backends of the tiers measured, and refuses more copies than there are replicas.
fn measure(
    ids: &[BackendId],
    tiers: &[TierOptions],
    backends: &mut [BackendConfig],
    origin: &Origin,
    problems: &mut Problems<'_>,
) {
    for (id, tier) in ids.iter().zip(tiers) {
        let backend = &mut backends[id.index()];
        backend.dispatch.cores = Some(tier.cores);
        let replicas = backend.replicas.len();
        if usize::from(tier.factor) > replicas.max(1) {
            let message = format!(
                "[replication] factors: {} copies for {:?}, which has {replicas} replicas; each copy goes to another \
                 one: lower it, or add replicas",
                tier.factor, tier.name
            );
            problems.add(origin, message);
        }
    }
}

fn tier(((name, cores), factor): ((&String, u32), u32)) -> TierOptions {
    TierOptions { name: name.clone(), cores, factor: u8::try_from(factor).unwrap_or(u8::MAX) }
}

/// Returns the backends with these names. Each has to have a number of copies that can be set.
fn tier_backends(
    names: &[String],
    backends: &[BackendConfig],
    origin: Origin,
    problems: &mut Problems<'_>,
) -> Vec<BackendId> {
    let mut ids = Vec::new();
    for name in names {
        let Some(place) = backends.iter().position(|backend| backend.name == *name) else {
            let known: Vec<_> = backends.iter().map(|backend| &*backend.name).collect();
            let message =
                format!("[replication] tiers: {name:?} is no [[backend]]; name one of {}", known.join(", "));
            problems.add(&origin, message);
            continue;
        };
        if !matches!(backends[place].dispatch.copies, CopiesChoice::Fixed { .. }) {
            let message = format!(
                "[replication] tiers: the copies of backend {name:?} are not a number that can be chosen; \
                 set its dispatch.copies = \"fixed\""
            );
            problems.add(&origin, message);
        }
        let id = BackendId::from_index(place);
        if ids.contains(&id) {
            let message = format!("[replication] tiers: {name:?} is there twice; name each backend once");
            problems.add(&origin, message);
        }
        ids.push(id);
    }
    ids
}

/// Returns a number for each tier: the given ones, or the default for all.
fn each(
    key: &Key<Vec<u32>>,
    name: &str,
    default: u32,
    tiers: usize,
    problems: &mut Problems<'_>,
) -> Vec<u32> {
    let Some(Given { value, origin }) = given(key) else { return vec![default; tiers] };
    if value.len() != tiers {
        let message = format!(
            "[replication] {name}: there are {} numbers for {tiers} tiers; give one for each",
            value.len()
        );
        problems.add(&origin, message);
        return vec![default; tiers];
    }
    value
}
