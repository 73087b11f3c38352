//! Requests to a gateway, `POST /v1/requests`.
//!
//! Two threads share the work, so that I/O does not delay the schedule. The *pacing thread* draws
//! and encodes the next request, sleeps until its intended start and passes it on; it never waits
//! for an answer. The calling thread runs a single-threaded runtime with one task for each request
//! in flight, over kept-alive connections that are made as needed. At most
//! [`Options::outstanding_max`] requests are in flight, each on a connection of its own; a request
//! that is due above that is not sent, and counts as an error.
//!
//! A run has *phases* (a warm-up, then the measurement): a request belongs to the phase of its
//! intended start. The latency of a request that fails, or has a failed query, is at least
//! [`Options::failed_latency`], so that failures do not improve the tail.

mod client;
mod driver;
mod pacing;
mod probe;
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

pub use probe::found;

use crate::pace::Schedule;
use crate::report::{sent_per_s, us};
use crate::{
    Control, DeadlineCounts, HitsMisses, Latencies, LatencySummary, LoadError, Pace, Report, Tls, within,
};

/// Options of a run of requests against a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `host:port`.
    pub address: String,
    /// Open or closed loop. A closed loop keeps [`Self::outstanding_max`] requests in flight.
    pub pace: Pace,
    /// Lengths of the phases in order; the end of the last ends the run. Without any, the run is
    /// one phase and ends with the workload. At most 64.
    pub phases: Vec<Duration>,
    /// Most requests of the run; without it, as many as the workload has.
    pub requests_max: Option<u64>,
    /// Most requests (and so connections) in flight, 1 to 16,384.
    pub outstanding_max: usize,
    /// Time after which a request without an answer has failed; above 0.
    pub timeout: Duration,
    /// Least latency of a request that failed or has a failed query.
    pub failed_latency: Duration,
    /// True if answers contain the values.
    pub values: bool,
    /// The deadline that each request states, above 0 and at most 24 hours.
    pub deadline: Option<Duration>,
    /// TLS of every connection; none speaks without.
    pub tls: Option<Tls>,
    /// The bearer token, if the gateway requires one.
    pub bearer: Option<Bearer>,
    /// Seed of the times at which requests start; the workload has a seed of its own.
    pub seed: u64,
}

impl Default for Options {
    /// Suited to the OneRF mix at 400 requests per second: with its 10 s timeout, about 4,096
    /// requests are in flight if *no* request is answered.
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
            deadline: None,
            tls: None,
            bearer: None,
            seed: 1,
        }
    }
}

/// A bearer token, which `Debug` does not print.
#[derive(Clone, Debug, PartialEq)]
pub struct Bearer(HeaderValue);

impl Bearer {
    /// Makes the header of a token; none unless it consists of visible ASCII characters.
    #[must_use]
    pub fn new(token: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }
}

/// The requests to send.
pub enum Workload {
    /// An endless stream of requests drawn from a model. Object 7 of the first backend is the key
    /// `o7` of the backend `b01`.
    Mix {
        /// The model that requests are drawn from.
        model: Arc<Model>,
        /// Scale of the catalogues, one of the model's profiles.
        profile: String,
        /// Seed of the requests.
        seed: u64,
    },
    /// An endless stream of requests of one query each: distinct keys of one backend, drawn from a
    /// key space.
    KeySpace {
        /// Name of the backend.
        backend: String,
        /// Number, size and popularity of the keys; the other options are ignored.
        options: KeyValueOptions,
        /// Keys of a request, 1 to 1,000.
        batch: usize,
        /// Seed of the stream.
        seed: u64,
    },
    /// A single pass over a RobinHood trace. The layers of a request are sent together, since a
    /// gateway's request has only one.
    RobinHood {
        /// The RobinHood trace's text.
        input: Box<dyn BufRead + Send>,
    },
}

/// A request that ended, as the observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Index of the request's phase.
    pub phase: usize,
    /// Intended start of the request, from the start of the run.
    pub intended: Duration,
    /// Time by which the request was sent after its intended start.
    pub late: Duration,
    /// Time from the intended start to the end of the request; at least [`Options::failed_latency`]
    /// if the request or one of its queries failed.
    pub latency: Duration,
    /// Keys of the request that were found in the cache.
    pub hits: u32,
    /// Keys of the request that were not found in the cache.
    pub misses: u32,
    /// Keys that were refused, timed out or failed.
    pub failed_keys: u32,
    /// True if a key of the request was rejected.
    pub rejected: bool,
    /// True if a key of the request was marked as late.
    pub marked_late: bool,
    /// True if the request as a whole failed: not sent, not answered, or not answered with status
    /// 200 and a valid body.
    pub failed: bool,
}

impl Finished {
    /// Returns a request without keys that did not fail.
    fn new(phase: usize, intended: Duration, late: Duration, latency: Duration) -> Self {
        Self {
            phase,
            intended,
            late,
            latency,
            hits: 0,
            misses: 0,
            failed_keys: 0,
            rejected: false,
            marked_late: false,
            failed: false,
        }
    }
}

/// The result of one phase of a run, such as the measurement.
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
    /// Keys that their backend does not have; contained in the misses of `by_backend`.
    pub not_found: u64,
    /// Requests that were due while the bound on outstanding ones was reached; contained in
    /// `errors`.
    pub overflow: u64,
    /// Hits and misses by backend.
    pub by_backend: BTreeMap<String, HitsMisses>,
    /// Latency of hits by backend, as measured by the gateway.
    pub hit_latency: BTreeMap<String, Latencies>,
    /// Latency of requests, from their intended start.
    pub latency: Latencies,
    /// Times between the intended start and the sending of requests.
    pub lateness: Latencies,
    /// Ends of requests, if they have a deadline.
    pub deadlines: DeadlineCounts,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The phases in order; at least one.
    pub phases: Vec<Phase>,
    /// Length of the run.
    pub elapsed: Duration,
    /// The deadline of each request.
    pub deadline: Option<Duration>,
    /// As in [`Options::failed_latency`].
    pub failed_latency: Duration,
    /// The reason why the run ended early, if it did.
    pub incomplete_because: Option<String>,
    /// The first failure of a request, in words.
    pub first_error: Option<String>,
}

/// Runs the workload to the end of its phases, its own end, or [`Control::stop`]. Blocks; at most
/// `timeout` longer for outstanding answers. `observe` is called with every request as it ends, on
/// the calling thread, and must not block.
///
/// # Errors
/// When an option is out of range, the workload cannot be opened, or the gateway accepts no
/// connection. Later failures are counted in the outcome.
pub fn run(
    options: &Options,
    workload: Workload,
    control: &Control,
    observe: impl FnMut(&Finished),
) -> Result<RunOutcome, LoadError> {
    within("outstanding requests", options.outstanding_max, 1..=16_384, "1 to 16384")?;
    within("number of phases", options.phases.len(), 0..=64, "0 to 64")?;
    let longest = Duration::from_secs(3_600);
    if options.timeout.is_zero() || options.timeout > longest {
        let found = format!("{:?}", options.timeout);
        return Err(LoadError::Option { option: "timeout", found, accepted: "above 0 s and up to 3600 s" });
    }
    options.deadline.map_or(Ok(()), crate::check_deadline)?;
    let schedule = Schedule::new(options.pace, options.seed)?;
    let answers = requests::Answers { values: options.values, deadline: options.deadline };
    let requests = requests::from_workload(workload, answers, options.requests_max)?;
    driver::run(options, schedule, requests, control, observe)
}

impl RunOutcome {
    /// Merges all phases into one report, in which an operation is a request. `open` is true for an
    /// open loop, whose lateness is reported.
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
        let mut deadlines = DeadlineCounts::default();
        for phase in phases {
            deadlines.add(&phase.deadlines);
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
            not_found: sum(|phase| phase.not_found),
            failed_keys: sum(|phase| phase.failed_keys),
            failed_latency: Some(self.failed_latency),
            hit_ratio: total.hit_ratio(),
            by_partition,
            latency_us: LatencySummary::of(&latency),
            late_p99_us: if open { us(lateness.percentile(99.0)) } else { 0.0 },
            sets: 0,
            unsent,
            duration_s,
            deadlines: self.deadline.map(|deadline| deadlines.of_run(deadline, ops)),
            complete: self.incomplete_because.is_none(),
            incomplete_because: self.incomplete_because.clone(),
            first_error: self.first_error.clone(),
        }
    }
}
