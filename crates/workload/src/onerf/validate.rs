//! Validation of a document's values. Later code relies on it and checks nothing again.

use std::collections::BTreeMap;

use thiserror::Error;

use super::backend::BackendModel;
use super::limited::Limited;
use super::model::{Batching, Model, Profile, RequestType, Slo};
use super::replay::Times;
use super::scenario::{Course, RandomWalk, Scenario};

/// A value of a workload model that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("workload model: {at} is {found}; it must be {accepted}")]
pub struct Invalid {
    /// Place in the document, such as `backends[3].zipf_alpha`.
    pub at: String,
    /// The value found.
    pub found: String,
    /// The accepted values.
    pub accepted: String,
}

pub(super) type Verdict = Result<(), Invalid>;

pub(super) fn model(model: &Model) -> Verdict {
    let Model {
        _schema: _,
        name: _,
        _notes: _,
        slo,
        timeout_ms,
        hit_latency_ms,
        max_batch,
        empty_request_fraction,
        profiles,
        backends,
        request_types,
        trace,
        scenarios: _,
    } = model;
    objective(slo)?;
    number("timeout_ms", *timeout_ms, 0.001, 3.6e6)?;
    number("hit_latency_ms", *hit_latency_ms, 0.0, 3.6e6)?;
    number("max_batch", f64::from(*max_batch), 1.0, 65_535.0)?;
    number("empty_request_fraction", *empty_request_fraction, 0.0, 1.0)?;
    require(!profiles.is_empty(), || "profiles".into(), "empty", "at least one profile")?;
    let at = || "request_types".into();
    match (request_types, trace) {
        (Some(_), Some(_)) => require(false, at, "given", "left out, as requests come from `trace`")?,
        (None, None) => require(false, at, "missing", "given, or a `trace` that requests come from")?,
        _ => {}
    }
    // With recorded arrival times the profile's rate may be 0.
    let rate_least =
        if trace.as_ref().is_some_and(|trace| trace.times() != Times::Rate) { 0.0 } else { 0.001 };
    for (name, one) in profiles {
        profile(&format!("profiles.{name}"), one, rate_least)?;
    }
    let count = backends.len();
    number("backends: their number", count as f64, 1.0, 65_535.0)?;
    for (index, one) in backends.iter().enumerate() {
        let at = format!("backends[{index}]");
        backend(&at, index, one, profiles)?;
        match trace {
            None => catalogue(&at, one, profiles)?,
            Some(_) => no_catalogue(&at, one)?,
        }
    }
    distinct_names(backends)?;
    match (request_types, trace) {
        (Some(types), _) => mix(types, count, *max_batch)?,
        (None, Some(trace)) => trace.validate(count)?,
        (None, None) => {}
    }
    all_scenarios(model)
}

fn all_scenarios(model: &Model) -> Verdict {
    let Model { scenarios, backends, profiles, .. } = model;
    let count = backends.len();
    for (name, one) in scenarios {
        scenario(&format!("scenarios.{name}"), one, count, profiles)?;
        if let Course::PiecewiseLinear(limits) = &one.course {
            let mut limited = limits.keys();
            limited.try_for_each(|limited| {
                known_replica(&format!("scenarios.{name}.limits"), *limited, backends, profiles)
            })?;
        }
    }
    Ok(())
}

fn objective(slo: &Slo) -> Verdict {
    let Slo { percentile, limit_ms, window_s, every_s } = *slo;
    number("slo.percentile", percentile, 0.001, 99.9999)?;
    number("slo.limit_ms", limit_ms, 0.001, 3.6e6)?;
    number("slo.window_s", window_s, 0.001, 86_400.0)?;
    number("slo.every_s", every_s, 0.001, 86_400.0)
}

fn profile(at: &str, profile: &Profile, rate_least: f64) -> Verdict {
    let Profile {
        app_servers,
        request_rate,
        cache_bytes_per_server,
        alloc_granularity_bytes,
        alloc_floor_bytes,
        ..
    } = *profile;
    number(&format!("{at}.app_servers"), f64::from(app_servers), 1.0, 1_024.0)?;
    number(&format!("{at}.request_rate"), request_rate, rate_least, 1e9)?;
    number(&format!("{at}.cache_bytes_per_server"), cache_bytes_per_server as f64, 1.0, 1e18)?;
    number(
        &format!("{at}.alloc_granularity_bytes"),
        alloc_granularity_bytes as f64,
        1.0,
        cache_bytes_per_server as f64,
    )?;
    number(&format!("{at}.alloc_floor_bytes"), alloc_floor_bytes as f64, 0.0, cache_bytes_per_server as f64)
}

fn backend(at: &str, index: usize, backend: &BackendModel, profiles: &BTreeMap<String, Profile>) -> Verdict {
    let BackendModel { id, name, service, .. } = backend;
    let expected = index + 1;
    require(
        usize::from(*id) == expected,
        || format!("{at}.id"),
        id,
        format!("{expected}, its place in the list"),
    )?;
    let plain = !name.is_empty() && name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_graphic());
    require(plain, || format!("{at}.name"), name, "1 to 64 printable ASCII characters without space")?;
    service.validate(&format!("{at}.service"))?;
    for profile in profiles.keys() {
        each_profile(&format!("{at}.service.workers"), &service.workers, profile, 1.0, 1e6, f64::from)?;
    }
    service.replicas.validate(&format!("{at}.service.replicas"), profiles)
}

/// Backend names must be distinct: metrics, reports and traces identify backends by name.
fn distinct_names(backends: &[BackendModel]) -> Verdict {
    let mut first = BTreeMap::new();
    for (index, BackendModel { name, .. }) in backends.iter().enumerate() {
        let other = *first.entry(name).or_insert(index);
        require(
            other == index,
            || format!("backends[{index}].name"),
            format!("`{name}`, as is backends[{other}].name"),
            "a name of its own",
        )?;
    }
    Ok(())
}

/// Checks the fields from which requests are drawn.
fn catalogue(at: &str, backend: &BackendModel, profiles: &BTreeMap<String, Profile>) -> Verdict {
    let BackendModel { objects, zipf_alpha, unique_fraction, size, .. } = backend;
    number(&format!("{at}.zipf_alpha"), given(at, "zipf_alpha", *zipf_alpha)?, 0.0, 10.0)?;
    number(&format!("{at}.unique_fraction"), given(at, "unique_fraction", *unique_fraction)?, 0.0, 1.0)?;
    let size = given(at, "size", size.as_ref())?;
    require(size.dist == "lognormal", || format!("{at}.size.dist"), &size.dist, "lognormal")?;
    number(&format!("{at}.size.ln_mu"), size.ln_mu, -10.0, 30.0)?;
    number(&format!("{at}.size.ln_sigma"), size.ln_sigma, 0.0, 10.0)?;
    number(&format!("{at}.size.min"), f64::from(size.min), 1.0, f64::from(size.max))?;
    for profile in profiles.keys() {
        each_profile(&format!("{at}.objects"), objects, profile, 1.0, (1u64 << 39) as f64, |objects| {
            objects as f64
        })?;
    }
    Ok(())
}

fn given<T>(at: &str, field: &str, value: Option<T>) -> Result<T, Invalid> {
    value.ok_or_else(|| Invalid {
        at: format!("{at}.{field}"),
        found: "missing".to_owned(),
        accepted: "given, as requests are drawn".to_owned(),
    })
}

/// Refuses the fields that a trace replaces.
fn no_catalogue(at: &str, backend: &BackendModel) -> Verdict {
    let BackendModel { objects, zipf_alpha, unique_fraction, size, .. } = backend;
    let fields = [
        ("objects", !objects.is_empty()),
        ("zipf_alpha", zipf_alpha.is_some()),
        ("unique_fraction", unique_fraction.is_some()),
        ("size", size.is_some()),
    ];
    fields.into_iter().try_for_each(|(field, given)| {
        require(!given, || format!("{at}.{field}"), "given", "left out: objects are those of the `trace`")
    })
}

fn each_profile<T: Copy>(
    at: &str,
    by_profile: &BTreeMap<String, T>,
    profile: &str,
    least: f64,
    most: f64,
    as_number: impl Fn(T) -> f64,
) -> Verdict {
    let at = format!("{at}.{profile}");
    match by_profile.get(profile) {
        Some(&value) => number(&at, as_number(value), least, most),
        None => require(false, || at, "missing", "given for every profile"),
    }
}

fn mix(types: &[RequestType], backends: usize, max_batch: u32) -> Verdict {
    for (index, RequestType(probability, batchings)) in types.iter().enumerate() {
        let at = format!("request_types[{index}]");
        number(&format!("{at}[0], the probability,"), *probability, 0.0, 1.0)?;
        let at = format!("{at}[1]");
        require(!batchings.is_empty(), || at.clone(), "empty", "at least one backend that is asked")?;
        let mut seen = vec![false; backends];
        for (index, batching) in batchings.iter().enumerate() {
            asked(&format!("{at}[{index}]"), batching, &mut seen, max_batch)?;
        }
    }
    let sum: f64 = types.iter().map(|request_type| request_type.0).sum();
    number("request_types: the sum of the probabilities", sum, 1.0 - 1e-7, 1.0 + 1e-7)
}

/// Checks the number of objects that a request type reads from one backend; `seen` marks the
/// backends of its earlier batches.
fn asked(at: &str, batching: &Batching, seen: &mut [bool], max_batch: u32) -> Verdict {
    let backends = seen.len();
    let place = batching.backend().index();
    let backend = || format!("{at}[0], the backend,");
    number(&backend(), (place + 1) as f64, 1.0, backends as f64)?;
    let again = std::mem::replace(&mut seen[place], true);
    require(!again, backend, format!("{}, asked twice", place + 1), "a backend once for each type")?;
    match *batching {
        Batching::Fixed { objects, .. } => {
            number(&format!("{at}[1], the objects,"), f64::from(objects), 1.0, f64::from(max_batch))
        }
        Batching::LogNormal { median, sigma, .. } => {
            number(&format!("{at}[1], the median,"), median, 1e-6, 1e6)?;
            number(&format!("{at}[2], the sigma,"), sigma, 0.0, 10.0)
        }
    }
}

fn scenario(at: &str, scenario: &Scenario, backends: usize, profiles: &BTreeMap<String, Profile>) -> Verdict {
    number(&format!("{at}.warmup_min"), scenario.warmup_min, 0.0, 1e6)?;
    number(&format!("{at}.measure_min"), scenario.measure_min, 1e-6, 1e6)?;
    for (profile, &depth) in &scenario.depth {
        known_profile(&format!("{at}.depth"), profile, profiles)?;
        number(&format!("{at}.depth.{profile}"), depth, 0.0, 1e3)?;
    }
    match &scenario.course {
        Course::PiecewiseLinear(limits) => {
            for (limited, points) in limits {
                let at = format!("{at}.limits.{limited}");
                known_backend(&at, limited.backend, backends)?;
                line(&at, points)?;
            }
            Ok(())
        }
        Course::RandomWalk(walk) => {
            random_walk(at, walk, backends)?;
            steps(at, scenario.steps(walk), walk)
        }
    }
}

fn line(at: &str, points: &[(f64, f64)]) -> Verdict {
    require(!points.is_empty(), || at.to_owned(), "empty", "at least one [minute, limit]")?;
    let mut before = None;
    for (index, &(minute, limit)) in points.iter().enumerate() {
        let minute_at = || format!("{at}[{index}][0], the minute,");
        number(&minute_at(), minute, 0.0, 1e6)?;
        number(&format!("{at}[{index}][1], the limit,"), limit, LIMIT_LEAST, 1.0)?;
        let before = before.replace(minute);
        require(
            before.is_none_or(|before| before < minute),
            minute_at,
            minute,
            format!("later than the minute before it, {}", before.unwrap_or_default()),
        )?;
    }
    Ok(())
}

fn random_walk(at: &str, walk: &RandomWalk, backends: usize) -> Verdict {
    let RandomWalk { step_s, levels, start_level, range, seed: _, walk } = walk;
    number(&format!("{at}.step_s"), *step_s, 0.001, 86_400.0)?;
    number(&format!("{at}.levels"), f64::from(*levels), 1.0, 35.0)?;
    number(&format!("{at}.start_level"), f64::from(*start_level), 0.0, f64::from(*levels))?;
    for (&id, &(low, high)) in range {
        let at = format!("{at}.range.{id}");
        known_backend(&at, id, backends)?;
        number(&format!("{at}[0]"), low, LIMIT_LEAST, 1.0)?;
        number(&format!("{at}[1]"), high, low, 1.0)?;
    }
    require(
        walk.keys().eq(range.keys()),
        || format!("{at}.walk"),
        "of other backends",
        "of the backends of `range`",
    )?;
    for (id, digits) in walk {
        let valid = !digits.is_empty()
            && digits.chars().all(|digit| digit.to_digit(36).is_some_and(|level| level <= *levels));
        require(
            valid,
            || format!("{at}.walk.{id}"),
            "no walk",
            format!("one digit (0-9, a-z) of 0 to {levels} for each step"),
        )?;
    }
    Ok(())
}

/// Largest number of random-walk steps of all backends together, which are drawn at once for a
/// realisation and take 12 bytes each.
const STEPS_MAX: usize = 1_000_000;

fn steps(at: &str, each: usize, walk: &RandomWalk) -> Verdict {
    let (backends, step_s) = (walk.range.len(), walk.step_s);
    require(
        each.saturating_mul(backends) <= STEPS_MAX,
        || format!("{at}.step_s"),
        format!("{step_s}, {each} steps of {backends} backends over measure_min"),
        format!("long enough for at most {STEPS_MAX} steps in all: make it longer, or measure_min shorter"),
    )
}

fn known_backend(at: &str, id: u16, backends: usize) -> Verdict {
    let known = (1..=backends).contains(&usize::from(id));
    require(
        known,
        || at.to_owned(),
        format!("of backend {id}"),
        format!("of one of the backends, 1 to {backends}"),
    )
}

/// Checks that a limited replica exists in every profile, so that no limit is silently without
/// effect at some scale.
fn known_replica(
    at: &str,
    limited: Limited,
    backends: &[BackendModel],
    profiles: &BTreeMap<String, Profile>,
) -> Verdict {
    let Limited { backend, replica: Some(replica) } = limited else { return Ok(()) };
    let replicas = &backends[usize::from(backend) - 1].service.replicas;
    let least = profiles.keys().map(|profile| replicas.at(profile)).min().unwrap_or(1);
    require(
        replica < least,
        || format!("{at}.{limited}"),
        format!("a limit of replica {replica}"),
        format!("of a replica that backend {backend} has in every profile, 0 to {}", least - 1),
    )
}

/// Least accepted resource limit: it makes a call take a hundred thousand times as long; a limit of
/// 0 would never finish it.
const LIMIT_LEAST: f64 = 1e-5;

pub(super) fn number(at: &str, value: f64, least: f64, most: f64) -> Verdict {
    let within = (least..=most).contains(&value);
    require(within, || at.to_owned(), value, format!("{least} to {most}"))
}

/// Refuses an unknown profile named at `at`.
pub(super) fn known_profile<T>(at: &str, profile: &str, profiles: &BTreeMap<String, T>) -> Verdict {
    require(
        profiles.contains_key(profile),
        || format!("{at}.{profile}"),
        "of a profile there is not",
        format!("of one of: {}", profiles.keys().map(String::as_str).collect::<Vec<_>>().join(", ")),
    )
}

pub(super) fn require(
    holds: bool,
    at: impl FnOnce() -> String,
    found: impl ToString,
    accepted: impl ToString,
) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Invalid { at: at(), found: found.to_string(), accepted: accepted.to_string() })
    }
}
