//! Requests to a gateway, `POST /v1/requests`.
//!
//! Two threads share the work, so that neither talking nor waiting delays the clock. The *pacing
//! thread* draws and encodes the next request, sleeps until its intended start and hands it over;
//! it never waits for an answer. The calling thread runs a single-threaded runtime with one task
//! for each request under way, over kept-alive connections that are made as needed. At most
//! [`Options::outstanding_max`] requests are under way, each on a connection of its own; a request
//! that comes due above that is not sent, and counts as an error.
//!
//! Time is cut into *phases* (a warm-up, then what is measured): a request belongs to the phase in
//! which it was meant to start. A request that fails, or holds a failed query, counts as at least
//! [`Options::failed_latency`], so that failures never make the tail look better.

mod client;
mod driver;
mod pacing;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use sherwood_workload::KeyValueOptions;
use sherwood_workload::onerf::Model;

use crate::pace::Schedule;
use crate::report::{sent_per_s, us};
use crate::{Control, HitsMisses, Latencies, LatencySummary, LoadError, Pace, Report, within};

/// How to drive the gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `host:port`.
    pub address: String,
    /// Open or closed loop. A closed loop keeps [`Self::outstanding_max`] requests under way.
    pub pace: Pace,
    /// Lengths of the phases, one after the other; the last ends the run. Without any, the run is
    /// one phase and ends with the workload. At most 64.
    pub phases: Vec<Duration>,
    /// Requests at most; without it, as many as the workload has.
    pub requests_max: Option<u64>,
    /// Requests (and so connections) under way at once, 1 to 16,384.
    pub outstanding_max: usize,
    /// A request not answered by then has failed; above 0.
    pub timeout: Duration,
    /// What a request with a failed query counts as, if it did not take longer.
    pub failed_latency: Duration,
    /// Whether answers are to carry the values.
    pub values: bool,
    /// What the gateway asks for, if it does.
    pub bearer: Option<Bearer>,
    /// Seed of the arrivals; the workload has its own.
    pub seed: u64,
}

impl Default for Options {
    /// Suited to the OneRF mix at 400 requests a second: with its 10 s time-out, 4,096 requests
    /// under way are what piles up if *no* request is answered.
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8080".to_owned(),
            pace: Pace::Open { rate_per_s: 400.0, gaps: crate::Gaps::Poisson },
            phases: Vec::new(),
            requests_max: None,
            outstanding_max: 4_096,
            timeout: Duration::from_secs(15),
            failed_latency: Duration::from_secs(10),
            values: false,
            bearer: None,
            seed: 1,
        }
    }
}

/// A token as a request shows it, and no `Debug` does.
#[derive(Clone, Debug, PartialEq)]
pub struct Bearer(HeaderValue);

impl Bearer {
    /// That of a token of visible ASCII characters; nothing of something else.
    #[must_use]
    pub fn new(token: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }
}

/// What to ask.
pub enum Workload {
    /// Requests drawn from a model, without end; object 7 of the first backend is key `o7` of its
    /// name, `b01`.
    Mix {
        /// The model.
        model: Arc<Model>,
        /// Scale of the catalogues, one of the model's profiles.
        profile: String,
        /// Seed of the requests.
        seed: u64,
    },
    /// Requests of one query each, without end: distinct keys of one backend, drawn from a key
    /// space.
    KeySpace {
        /// Name of the backend.
        backend: String,
        /// Number, size and popularity of the keys; the other options are of no consequence.
        options: KeyValueOptions,
        /// Keys of a request, 1 to 1,000.
        batch: usize,
        /// Seed of the stream.
        seed: u64,
    },
    /// One pass over a RobinHood trace. Its layers are asked together: a gateway's request has one.
    RobinHood {
        /// The trace.
        input: Box<dyn BufRead + Send>,
    },
}

/// One request that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Index of the phase it belongs to.
    pub phase: usize,
    /// Intended start, from the start of the run.
    pub intended: Duration,
    /// Time by which it was sent later than intended.
    pub late: Duration,
    /// Time from the intended start to the end, or the failed latency if that is more and something
    /// failed.
    pub latency: Duration,
    /// Keys found.
    pub hits: u32,
    /// Keys not found.
    pub misses: u32,
    /// Keys that were refused, timed out or failed.
    pub failed_keys: u32,
    /// Whether the request as a whole failed: not sent, not answered, or not answered with 200 and
    /// a sound body.
    pub failed: bool,
}

/// What one phase found.
#[derive(Clone, Debug, Default)]
pub struct Phase {
    /// Requests that were due, failed ones and overflow included.
    pub requests: u64,
    /// Keys answered.
    pub queries: u64,
    /// Requests that failed as a whole, overflow included.
    pub errors: u64,
    /// Keys that were refused, timed out or failed in requests that were answered.
    pub failed_keys: u64,
    /// Requests that came due with the bound on outstanding ones reached; contained in `errors`.
    pub overflow: u64,
    /// Hits and misses by backend.
    pub by_backend: BTreeMap<String, HitsMisses>,
    /// Latency of the keys that were hits by backend, as the gateway measured it.
    pub hit_latency: BTreeMap<String, Latencies>,
    /// Latency of requests, from their intended start.
    pub latency: Latencies,
    /// Time by which requests were sent later than intended.
    pub lateness: Latencies,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// One for each phase, in order; at least one.
    pub phases: Vec<Phase>,
    /// Length of the run.
    pub elapsed: Duration,
    /// Why it ended early, if it did.
    pub incomplete_because: Option<String>,
    /// The first failure of a request, in words.
    pub first_error: Option<String>,
}

/// Runs the workload to the end of its phases, its own end, or [`Control::stop`]. Blocks; at most
/// `timeout` longer for outstanding answers. `observe` sees every request as it ends, on the
/// calling thread, and must not block.
///
/// # Errors
/// When an option is out of range, the workload cannot be opened, or the gateway takes no
/// connection. What goes wrong later is counted in the outcome.
pub fn run(
    options: &Options,
    workload: Workload,
    control: &Control,
    observe: impl FnMut(&Finished),
) -> Result<Outcome, LoadError> {
    within("outstanding requests", options.outstanding_max, 1..=16_384, "1 to 16384")?;
    within("number of phases", options.phases.len(), 0..=64, "0 to 64")?;
    let longest = Duration::from_secs(3_600);
    if options.timeout.is_zero() || options.timeout > longest {
        let found = format!("{:?}", options.timeout);
        return Err(LoadError::Option { option: "timeout", found, accepted: "above 0 s and up to 3600 s" });
    }
    let schedule = Schedule::new(options.pace, options.seed)?;
    let requests = requests::from_workload(workload, options.values, options.requests_max)?;
    driver::run(options, schedule, requests, control, observe)
}

impl Outcome {
    /// All phases as one report; an operation is a request. `open` says whether there was a
    /// schedule to be late for.
    #[must_use]
    pub fn report(&self, open: bool) -> Report {
        let phases = &self.phases;
        let sum = |of: fn(&Phase) -> u64| phases.iter().map(of).sum::<u64>();
        let mut by_partition: BTreeMap<String, HitsMisses> = BTreeMap::new();
        for (name, counts) in phases.iter().flat_map(|phase| &phase.by_backend) {
            let all = by_partition.entry(name.clone()).or_default();
            all.hits += counts.hits;
            all.misses += counts.misses;
        }
        let (mut latency, mut lateness) = (Latencies::default(), Latencies::default());
        for phase in phases {
            latency.merge(&phase.latency);
            lateness.merge(&phase.lateness);
        }
        let total = by_partition.values().fold(HitsMisses::default(), |sum, counts| HitsMisses {
            hits: sum.hits + counts.hits,
            misses: sum.misses + counts.misses,
        });
        let (ops, unsent) = (sum(|phase| phase.requests), sum(|phase| phase.overflow));
        let duration_s = self.elapsed.as_secs_f64();
        Report {
            ops,
            ops_per_s: sent_per_s(ops, unsent, duration_s),
            errors: sum(|phase| phase.errors),
            hits: total.hits,
            misses: total.misses,
            hit_ratio: total.hit_ratio(),
            by_partition,
            latency_us: LatencySummary::of(&latency),
            late_p99_us: if open { us(lateness.percentile(99.0)) } else { 0.0 },
            sets: 0,
            unsent,
            duration_s,
            complete: self.incomplete_because.is_none(),
            incomplete_because: self.incomplete_because.clone(),
            first_error: self.first_error.clone(),
        }
    }
}
