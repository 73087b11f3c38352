//! Conversion of an observed node into a scenario, with the assumptions made.

use serde_json::{Value, json};
use sherwood_cache::charge;
use sherwood_workload::{Fit, fit};

use super::observed::{Keys, Observed, ObservedBackend, Partition, RequestKind};
use crate::exit::Failure;

/// A scenario file and notes for its users.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) document: Value,
    pub(super) notes: Vec<String>,
}

/// Name of the profile and of the scenario in a recorded file.
const PROFILE: &str = "node";
const SCENARIO: &str = "as-recorded";

/// Assumed duration of a call when none was observed.
const UNSEEN_CALL_MS: f64 = 10.0;
/// Assumed latency of a request whose keys are all cached when none was observed.
const UNSEEN_HIT_MS: f64 = 0.1;
/// Assumed timeout: the default of a node.
const UNSEEN_TIMEOUT_MS: f64 = 2_000.0;
/// Assumed length of keys: that of the simulator's keys.
const KEY_BYTES: usize = 8;
/// Assumed exponent of an unknown popularity.
const UNSEEN_ALPHA: f64 = 0.8;
/// Largest distance between the measured and the modelled miss ratio curve, in miss ratio, that is
/// not mentioned in a note.
const FIT_ERROR_MAX: f64 = 0.03;
/// Least number of sampled keys for a meaningful curve.
const SAMPLED_MIN: u64 = 1_000;
/// Pages of a cache, as in the published system.
const PAGES: u64 = 32_768;

/// A backend over the observation period.
struct Part<'a> {
    backend: &'a ObservedBackend,
    /// The backend's partitions at the end.
    partitions: Vec<&'a Partition>,
    hits: u64,
    misses: u64,
}

impl Part<'_> {
    fn look_ups(&self) -> f64 {
        (self.hits + self.misses) as f64
    }

    fn items(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.items).sum()
    }

    /// Average bytes of an item; none without items.
    fn item_bytes(&self) -> Option<f64> {
        let used: u64 = self.partitions.iter().map(|partition| partition.used_bytes).sum();
        (self.items() > 0).then(|| used as f64 / self.items() as f64)
    }
}

/// Creates a scenario from the observations.
pub(super) fn describe(observed: &Observed) -> Result<Described, Failure> {
    let mut notes = vec![
        "requests and keys are drawn independently of each other, by popularity alone; writes and expiry are left out"
            .to_owned(),
    ];
    let parts: Vec<Part<'_>> =
        observed.recording.backends.iter().map(|backend| part(observed, backend)).collect();
    let (types, requests) = request_types(observed, &parts, &mut notes);
    if requests == 0.0 {
        return Err(Failure::failed(format!(
            "nothing was asked of the node in {:.0} s, so there is nothing to simulate: put it under load, or record longer",
            observed.recording.recorded_s
        )));
    }
    let backends: Vec<Value> =
        parts.iter().enumerate().map(|(index, part)| backend(observed, index, part, &mut notes)).collect();
    let total = observed.recording.total_bytes;
    let page = (total / PAGES).max(1);
    let warm_up = warm_up_min(observed, &parts);
    notes.push(format!(
        "the warm-up of {warm_up} minutes is the time to fill the cache twice at the rate of misses seen"
    ));
    let document = json!({
        "schema": "onerf-workload/1",
        "name": "recorded from a node",
        "slo": {
            "percentile": observed.slo.percentile, "limit_ms": observed.slo.bound_ms,
            "window_s": observed.slo.window_s, "every_s": observed.recording.slo_observe_s,
        },
        "timeout_ms": timeout_ms(&parts, &mut notes),
        "hit_latency_ms": hit_latency_ms(observed, &mut notes),
        "max_batch": 16_384,
        "empty_request_fraction": 0,
        "profiles": { PROFILE: {
            "app_servers": 1,
            "request_rate": requests / observed.recording.recorded_s,
            "cache_bytes_per_server": total,
            "alloc_granularity_bytes": page,
            "alloc_floor_bytes": (30 * page).min(total),
            "verified": false,
        } },
        "backends": backends,
        "request_types": types,
        "scenarios": { SCENARIO: {
            "warmup_min": warm_up, "measure_min": 30, "kind": "piecewise_linear", "limits": {},
        } },
    });
    Ok(Described { document: with_notes(document, &notes), notes })
}

/// Adds all notes to the document, including those made while it was created.
fn with_notes(mut document: Value, notes: &[String]) -> Value {
    document["notes"] = json!(notes);
    document
}

fn part<'a>(observed: &'a Observed, backend: &'a ObservedBackend) -> Part<'a> {
    let of = |partitions: &'a [Partition]| partitions.iter().filter(|one| one.backend == backend.name);
    let [before, after] = &observed.partitions;
    let passed = |count: fn(&Partition) -> u64| {
        let sum = |partitions| of(partitions).map(count).sum::<u64>();
        sum(after).saturating_sub(sum(before))
    };
    Part {
        backend,
        partitions: of(after).collect(),
        hits: passed(|one| one.hits),
        misses: passed(|one| one.misses),
    }
}

/// Returns the kinds of requests with their probabilities, and the number of requests.
fn request_types(observed: &Observed, parts: &[Part<'_>], notes: &mut Vec<String>) -> (Vec<Value>, f64) {
    let number = |name: &str| parts.iter().position(|part| part.backend.name == name).map(|index| index + 1);
    let mut weighed: Vec<(f64, Value)> = Vec::new();
    for RequestKind { requests, keys } in &observed.recording.requests {
        let entries: Vec<Value> =
            keys.iter().filter_map(|(name, keys)| Some(entry(number(name)?, *keys))).collect();
        if !entries.is_empty() {
            weighed.push((*requests as f64, Value::Array(entries)));
        }
    }
    if observed.recording.other_requests > 0 {
        notes.push(format!(
            "{} requests of rare kinds are left out: more kinds than are told apart",
            observed.recording.other_requests
        ));
    }
    for (index, part) in parts.iter().enumerate() {
        let by_gateway: f64 = observed
            .recording
            .requests
            .iter()
            .filter_map(|kind| Some(kind.keys.get(&part.backend.name)?.mean * kind.requests as f64))
            .sum();
        let alone = part.look_ups() - by_gateway;
        // Requests are recorded for slightly longer than lookups are counted, so requests in flight
        // never inflate this difference. It may still include the few lookups that were counted but
        // not yet recorded.
        if alone > 0.01 * part.look_ups() + 1.0 {
            notes.push(format!(
                "{}: {alone:.0} keys were looked up through listeners, which know no requests: each is taken for a request of its own",
                part.backend.name
            ));
            weighed.push((alone, json!([[index + 1, 1]])));
        }
    }
    let all: f64 = weighed.iter().map(|(weight, _)| weight).sum();
    (weighed.into_iter().map(|(weight, entries)| json!([weight / all, entries])).collect(), all)
}

/// Describes the keys that a kind of request asks of a backend: a constant number, or a log-normal
/// number with this mean and deviation.
fn entry(backend: usize, keys: Keys) -> Value {
    let Keys { mean, deviation } = keys;
    let cv = deviation / mean;
    if cv < 0.01 || mean < 1.01 {
        return json!([backend, mean.round().max(1.0) as u64]);
    }
    let variance = (1.0 + cv * cv).ln();
    json!([backend, mean / (variance / 2.0).exp(), variance.sqrt()])
}

fn backend(observed: &Observed, index: usize, part: &Part<'_>, notes: &mut Vec<String>) -> Value {
    let name = &part.backend.name;
    let Fit { objects, zipf_alpha, unique_fraction, .. } = popularity(observed, part, notes);
    let bytes = match part.item_bytes() {
        Some(bytes) => (bytes - charge(KEY_BYTES, 0) as f64).max(1.0),
        None => {
            notes.push(format!(
                "{name}: nothing of it is in the cache; values are assumed to have 1,000 bytes"
            ));
            1_000.0
        }
    };
    let bytes = bytes.round() as u64;
    json!({
        "id": index + 1,
        "name": name,
        "kind": "kv",
        "objects": { PROFILE: objects },
        "zipf_alpha": zipf_alpha,
        "unique_fraction": unique_fraction,
        "size": {
            "dist": "lognormal", "mean_bytes": bytes, "ln_mu": (bytes as f64).ln(), "ln_sigma": 0,
            "min": bytes, "max": bytes,
        },
        "service": service(part, notes),
    })
}

/// Fits a popularity law to the partition's miss ratio curve, or assumes one.
fn popularity(observed: &Observed, part: &Part<'_>, notes: &mut Vec<String>) -> Fit {
    let name = &part.backend.name;
    if part.partitions.len() > 1 {
        notes.push(format!(
            "{name}: its tenants' partitions are taken for one, and the busiest one's curve for all"
        ));
    }
    let busiest = part.partitions.iter().max_by_key(|partition| partition.hits + partition.misses);
    let curve = busiest.and_then(|partition| observed.curves.get(&partition.name));
    let fitted =
        curve.zip(part.item_bytes()).and_then(|(curve, bytes)| fit(&curve.bytes, &curve.miss_ratio, bytes));
    let Some(found) = fitted else {
        let known = curve.map_or(0, |curve| curve.unique);
        let assumed = Fit {
            objects: known.max(2 * part.items()).max(1_000),
            zipf_alpha: UNSEEN_ALPHA,
            unique_fraction: 0.0,
            error: f64::NAN,
        };
        notes.push(format!(
            "{name}: its miss ratio curve says nothing yet; {} objects with a Zipf exponent of {UNSEEN_ALPHA} are assumed",
            assumed.objects
        ));
        return assumed;
    };
    notes.push(format!(
        "{name}: {} objects, a Zipf exponent of {:.2} and {:.1}% never asked for again explain its miss ratio curve within {:.1} \
         points, all objects taken for equally large",
        found.objects,
        found.zipf_alpha,
        found.unique_fraction * 100.0,
        found.error * 100.0
    ));
    if found.error > FIT_ERROR_MAX || curve.is_some_and(|curve| curve.sampled_accesses < SAMPLED_MIN) {
        notes.push(format!(
            "{name}: that is rough; record longer, after the cache is full, or correct it by hand"
        ));
    }
    found
}

fn service(part: &Part<'_>, notes: &mut Vec<String>) -> Value {
    let ObservedBackend { name, calls, call_ms, replicas, calls_at_once_max, .. } = part.backend;
    let replicas = replicas.unwrap_or(1).max(1);
    let workers = json!({ PROFILE: (calls_at_once_max.unwrap_or(1) / replicas).max(1) });
    if *calls == 0 {
        notes.push(format!(
            "{name}: no call to it was seen, so what it takes is not known; {UNSEEN_CALL_MS} ms are assumed: correct `service`"
        ));
        return json!({ "base_ms": UNSEEN_CALL_MS, "per_item_ms": 0, "cv": 1, "workers": workers, "replicas": replicas });
    }
    notes.push(format!(
        "{name}: times of {calls} calls, with what they waited in the backend and whatever number of keys they had; workers are the calls \
         that each replica is given at a time at most"
    ));
    json!({ "quantiles_ms": rising(call_ms), "workers": workers, "replicas": replicas })
}

/// Keeps the largest share of equal times, so that times are strictly increasing.
fn rising(quantiles: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut rising: Vec<(f64, f64)> = Vec::with_capacity(quantiles.len());
    for &(share, ms) in quantiles {
        match rising.last_mut() {
            Some(last) if last.1 >= ms => last.0 = share,
            _ => rising.push((share, ms)),
        }
    }
    rising
}

fn timeout_ms(parts: &[Part<'_>], notes: &mut Vec<String>) -> f64 {
    let timeouts: Vec<f64> = parts.iter().filter_map(|part| part.backend.timeout_ms).collect();
    let longest = timeouts.iter().copied().fold(0.0, f64::max);
    if timeouts.iter().any(|&timeout| timeout < longest) {
        notes.push(format!("time-outs differ; the longest, {longest} ms, is taken for all"));
    }
    if longest > 0.0 { longest } else { UNSEEN_TIMEOUT_MS }
}

fn hit_latency_ms(observed: &Observed, notes: &mut Vec<String>) -> f64 {
    observed.recording.hit_latency_ms.unwrap_or_else(|| {
        notes.push(format!(
            "no request had all its keys in the cache; {UNSEEN_HIT_MS} ms are assumed for one that does"
        ));
        UNSEEN_HIT_MS
    })
}

/// Minutes in which the cache would be filled twice.
fn warm_up_min(observed: &Observed, parts: &[Part<'_>]) -> u64 {
    let filled: f64 = parts.iter().map(|part| part.misses as f64 * part.item_bytes().unwrap_or(0.0)).sum();
    let seconds = 2.0 * observed.recording.total_bytes as f64 / (filled / observed.recording.recorded_s);
    (seconds / 60.0).ceil().clamp(5.0, 600.0) as u64
}
