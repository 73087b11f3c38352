//! Setup of a simulation, validated before anything is built.

use std::sync::Arc;
use std::time::Duration;

use sherwood_cache::Eviction;
use sherwood_policy::{Options as Control, PolicyError};
use sherwood_workload::ArrivalsError;
use sherwood_workload::onerf::{Model, ModelError, Profile, Scenario, Walk};
use sherwood_workload::trace::objects::Format;
use thiserror::Error;

use crate::bus::Bus;
use crate::recorded::Trace;
use crate::sample::SAMPLE_MAX;
use crate::settings::RangeError;

/// A run: model, scenario, scale, policy and settings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Backends, request mix and scenarios.
    pub model: Arc<Model>,
    /// Name of one of the model's scenarios.
    pub scenario: String,
    /// Name of one of the model's profiles.
    pub profile: String,
    /// Name of the allocation policy, one of `sherwood_policy::available_without_options`.
    pub policy: String,
    /// Seed of arrivals, requests, their servers and service times, which depend on nothing else:
    /// runs with one seed have the same requests at the same times under every policy.
    pub seed: u64,
    /// Settings of control loop, caches, load and times.
    pub knobs: Knobs,
    /// The trace of the requests, for a model that does not draw them.
    pub trace: Option<Arc<dyn Trace>>,
}

/// Settings of a run; the defaults are the papers'.
#[derive(Clone, Debug, PartialEq)]
pub struct Knobs {
    /// Options of each server's control loop. If the page size is not set, page and floor are the
    /// profile's, in proportion to the cache: they scale with it, as in a node, whose page is a
    /// part of its cache.
    pub control: Control,
    /// Realisation of a random scenario, selected by number.
    pub walk: Walk,
    /// Eviction of the caches: strict LRU by default, as in the caches measured by the papers.
    pub eviction: Eviction,
    /// Speed at which a new plan takes effect.
    pub resize: Resize,
    /// Age of statistics when controllers decide on them, in addition to the half second since a
    /// report: 0 to 1 hour.
    pub stale: Duration,
    /// Exchange of statistics between the servers.
    pub bus: Bus,
    /// True if decisions know batches alone: each backend's keys of a request count as a request
    /// of their own, as a listener makes them of its clients' batches. The SLO is measured on
    /// requests.
    pub batches: bool,
    /// Share of the keys from which miss ratio curves are sampled, for policies that need curves;
    /// none for a share that samples some thousands of keys per cache.
    pub ghost_rate: Option<f64>,
    /// Number of application servers; none for the profile's.
    pub servers: Option<u32>,
    /// Cache size of each server, as a share of the profile's.
    pub cache_ratio: f64,
    /// Rate of requests, as a share of the profile's.
    pub load_ratio: f64,
    /// Factor of the time that a limit adds to service times, multiplied with the scenario's own
    /// depth at this profile.
    pub limit_depth: f64,
    /// Simulates one in `sample` objects, with that part of requests and caches; 1 for all.
    pub sample: u32,
    /// Minutes before the measurement; none for the scenario's.
    pub warmup_min: Option<f64>,
    /// Measured minutes; none for the scenario's.
    pub measure_min: Option<f64>,
}

/// Speed at which a new plan of partition budgets takes effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resize {
    /// The budgets change with the decision, as in a node, where a budget is a number.
    #[default]
    AtOnce,
    /// Each shrinking partition loses at most this many bytes per second, and growing ones receive
    /// them: as in a cache that empties pages before reassigning them.
    BytesPerSecond(u64),
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            control: Control::default(),
            walk: Walk::Given,
            eviction: Eviction::Lru,
            resize: Resize::AtOnce,
            stale: Duration::ZERO,
            bus: Bus::default(),
            batches: false,
            ghost_rate: None,
            servers: None,
            cache_ratio: 1.0,
            load_ratio: 1.0,
            limit_depth: 1.0,
            sample: 1,
            warmup_min: None,
            measure_min: None,
        }
    }
}

/// Reason why a run cannot be set up.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SetupError {
    /// The model has no such scenario or profile.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// No such policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The control loop's options contradict each other or the cache.
    #[error(transparent)]
    Control(#[from] sherwood_policy::OptionsError),
    /// The caches cannot be built.
    #[error(transparent)]
    Cache(#[from] sherwood_cache::OptionsError),
    /// The dispatchers cannot be built.
    #[error(transparent)]
    Dispatch(#[from] sherwood_dispatch::OptionsError),
    /// The rate of requests is out of range.
    #[error(transparent)]
    Rate(#[from] ArrivalsError),
    /// A number of the bus is out of range.
    #[error(transparent)]
    Bus(#[from] RangeError),
    /// The model's requests are in a trace, which is missing.
    #[error("cannot simulate without the trace {file}, which the requests are in: give it with the setup")]
    NoTrace {
        /// Name of the trace.
        file: String,
    },
    /// The trace consists of whole requests, which a sample of keys would split.
    #[error(
        "cannot simulate a sample of a trace of whole requests: they would lose keys; leave the sample out"
    )]
    WholeRequests,
    /// A sample is kept per observation and backend, and these would exceed the limit.
    #[error(
        "cannot simulate {measure_min} minutes of measurement with an observation of {backends} backends every {every_s} s: at most {SAMPLES_MAX} samples of a backend are kept; measure {} minutes or less, or make slo.every_s longer",
        rounded_down(f64::from(SAMPLES_MAX) / *backends as f64 * every_s / 60.0)
    )]
    Samples {
        /// Measured minutes.
        measure_min: f64,
        /// Time between observations of the SLO in seconds.
        every_s: f64,
        /// Backends of the model.
        backends: usize,
    },
    /// Statistics reported to controllers but not yet used are kept, and these would exceed the
    /// limit.
    #[error(
        "cannot simulate with stale = {stale_s} and delta = {delta_s}: controllers may be told {told_max} times within the age of stale statistics; stale can be at most {} with this delta",
        delta_s * f64::from(*told_max)
    )]
    Told {
        /// Age of the statistics in seconds.
        stale_s: f64,
        /// Time between decisions in seconds.
        delta_s: f64,
        /// Number of times that controllers may be told within the age.
        told_max: u32,
    },
    /// A number is out of range.
    #[error("cannot simulate with {knob} = {value}: the accepted range is {accepted}")]
    Knob {
        /// Key of the setting, as for [`Knobs::set`]; for a setting with several values, followed
        /// by the name of the value.
        knob: &'static str,
        /// The value given.
        value: f64,
        /// The accepted range.
        accepted: &'static str,
    },
}

/// The policy whose sizes are learnt in a separate run; that run's scenario and the part of its
/// measurement used follow.
const TAO: &str = "tao";
const TAO_SCENARIO: &str = "onerf-spikes";
const TAO_LEARNS: f64 = 0.2;

/// Share of the keys from which curves are sampled, as in a node.
const GHOST_RATE: f64 = 1.0 / 32.0;
/// Share of the keys from which curves are sampled, for caches of only fourteen thousand items.
const GHOST_RATE_SMALL: f64 = 1.0 / 4.0;

/// Largest number of servers; an event refers to a server by 16 bits.
const SERVERS_MAX: u32 = 1_024;

/// Largest age of statistics, for which reports are kept.
const STALE_MAX: Duration = Duration::from_secs(3_600);

/// Largest number of reports to controllers within [`STALE_MAX`]; a report may take 100 kB. Where
/// servers may know different things, each is told its own.
const TOLD_MAX: u32 = 10_000;

/// Largest product of observations and backends: about 1.5 GiB of samples with many backends and
/// twice that with one; 48 days of twenty backends every five seconds.
const SAMPLES_MAX: u32 = 1 << 24;

impl Setup {
    /// Returns a run of the built-in model.
    #[must_use]
    pub fn new(scenario: &str, policy: &str, seed: u64) -> Self {
        Self {
            model: Arc::new(Model::onerf()),
            scenario: scenario.to_owned(),
            profile: "s100".to_owned(),
            policy: policy.to_owned(),
            seed,
            knobs: Knobs::default(),
            trace: None,
        }
    }

    /// Validates the numbers that are not validated elsewhere.
    pub(crate) fn validate(&self) -> Result<(), SetupError> {
        let Knobs {
            ghost_rate,
            servers,
            cache_ratio,
            load_ratio,
            limit_depth,
            sample,
            warmup_min,
            measure_min,
            stale,
            ..
        } = self.knobs;
        let ratio = "above 0 and up to 1000";
        let positive = |value: f64| value > 0.0 && value <= 1e3;
        let minutes = |value: f64| (0.0..=1e6).contains(&value);
        let servers = servers.unwrap_or(self.profile()?.app_servers);
        check("servers", f64::from(servers), "1 to 1024", |n| (1.0..=f64::from(SERVERS_MAX)).contains(&n))?;
        check("ghost", ghost_rate.unwrap_or(1.0), "above 0 and up to 1", |rate| rate > 0.0 && rate <= 1.0)?;
        check("stale", stale.as_secs_f64(), "0 to 3600 s", |age| age <= STALE_MAX.as_secs_f64())?;
        check("cache", cache_ratio, ratio, positive)?;
        check("load", load_ratio, ratio, positive)?;
        check("depth", limit_depth, "0 to 1000", |value| (0.0..=1e3).contains(&value))?;
        check("sample", f64::from(sample), "1 to 1024", |one_in| {
            (1.0..=f64::from(SAMPLE_MAX)).contains(&one_in)
        })?;
        if sample > 1 && self.model.replay().is_some_and(|replay| replay.format == Format::RobinHood) {
            return Err(SetupError::WholeRequests);
        }
        check("minutes of warm-up", warmup_min.unwrap_or(0.0), "0 to 1000000", minutes)?;
        check("minutes of measurement", measure_min.unwrap_or(1.0), "above 0 and up to 1000000", |m| {
            m > 0.0 && minutes(m)
        })?;
        self.knobs.bus.validate(servers)?;
        self.validate_memory(servers)
    }

    /// Validates that memory which grows with simulated time stays below its limits.
    fn validate_memory(&self, servers: u32) -> Result<(), SetupError> {
        let Scenario { measure_min, .. } = self.scenario()?;
        let (every_s, backends) = (self.model.slo().every_s, self.model.backends().len());
        let samples = measure_min * 60.0 / every_s * backends as f64;
        if samples > f64::from(SAMPLES_MAX) {
            return Err(SetupError::Samples { measure_min, every_s, backends });
        }
        let (stale_s, delta_s) = (self.knobs.stale.as_secs_f64(), self.knobs.control.delta.as_secs_f64());
        // A delta of 0 is refused by the control options, with their message.
        let told_max = if self.knobs.bus.is_perfect() { TOLD_MAX } else { TOLD_MAX / servers };
        if delta_s > 0.0 && stale_s > delta_s * f64::from(told_max) {
            return Err(SetupError::Told { stale_s, delta_s, told_max });
        }
        Ok(())
    }

    pub(crate) fn profile(&self) -> Result<&Profile, ModelError> {
        self.model.profile(&self.profile)
    }

    /// The run in which policy `tao` learns its sizes: RobinHood in the first fifth of the spikes'
    /// measurement (of this scenario if the model has no spikes), with the same seed and settings.
    /// None for other policies, and if the sizes are given. Its result
    /// ([`World::learned_allocation`](crate::World::learned_allocation)) is to be stored in
    /// `knobs.control.tao.budgets_bytes`; without it, `tao` learns at the beginning of its own run,
    /// as in a node.
    ///
    /// # Errors
    /// If there is no such scenario.
    pub fn learning(&self) -> Result<Option<Self>, ModelError> {
        if self.policy != TAO || !self.knobs.control.tao.budgets_bytes.is_empty() {
            return Ok(None);
        }
        let spikes = self.model.scenarios().contains_key(TAO_SCENARIO);
        let mut setup = Self { policy: "robinhood".to_owned(), ..self.clone() };
        if spikes {
            setup.scenario = TAO_SCENARIO.to_owned();
        }
        let Scenario { measure_min, .. } = setup.scenario()?;
        setup.knobs.measure_min = Some(measure_min * TAO_LEARNS);
        Ok(Some(setup))
    }

    /// Simulated time of the run, warm-up and measurement.
    ///
    /// # Errors
    /// If there is no such scenario.
    pub fn duration(&self) -> Result<Duration, ModelError> {
        let scenario = self.scenario()?;
        Ok(minutes(scenario.warmup_min) + minutes(scenario.measure_min))
    }

    /// Simulated time before the measurement.
    ///
    /// # Errors
    /// If there is no such scenario.
    pub fn warm_up(&self) -> Result<Duration, ModelError> {
        Ok(minutes(self.scenario()?.warmup_min))
    }

    /// Returns the share of the keys from which miss ratio curves are sampled.
    pub(crate) fn ghost_rate(&self) -> f64 {
        let default = if self.profile == "s100" { GHOST_RATE_SMALL } else { GHOST_RATE };
        (self.knobs.ghost_rate.unwrap_or(default) * f64::from(self.knobs.sample)).min(1.0)
    }

    /// Simulated size of each server's cache, in bytes.
    pub(crate) fn cache_bytes(&self) -> Result<u64, ModelError> {
        let bytes = self.profile()?.cache_bytes_per_server as f64 * self.knobs.cache_ratio;
        Ok((bytes / f64::from(self.knobs.sample)) as u64)
    }

    /// Returns the factor of the time that a limit adds to service times: the setting multiplied
    /// with the scenario's.
    pub(crate) fn limit_depth(&self) -> Result<f64, ModelError> {
        Ok(self.model.scenario(&self.scenario)?.depth(&self.profile) * self.knobs.limit_depth)
    }

    /// Scales byte sizes by the simulated part of the caches.
    ///
    /// A page is the same part of a small cache as of the profile's. With pages of fixed size, most
    /// partitions of a small cache would be below the hundred pages from which tax takes anything,
    /// and no policy would move bytes. Floors are whole pages, so their part of the cache is kept,
    /// too, up to the rounding of a page to bytes.
    pub(crate) fn scale_bytes(&mut self) -> Result<(), ModelError> {
        let Profile { alloc_granularity_bytes: page, alloc_floor_bytes: floor, .. } = *self.profile()?;
        let Knobs { control, cache_ratio, sample, resize, .. } = &mut self.knobs;
        let part = |bytes: u64| (bytes / u64::from(*sample)).max(1);
        if control.page_bytes.is_none() {
            let simulated = page as f64 * *cache_ratio / f64::from(*sample);
            control.page_bytes = Some((simulated.round() as u64).max(1));
            control.floor_pages = (floor as f64 / page as f64).round() as u64;
        }
        if *sample > 1 {
            control.cliffhanger.credit_bytes = part(control.cliffhanger.credit_bytes);
        }
        if let Resize::BytesPerSecond(bytes) = resize {
            *bytes = part(*bytes);
        }
        Ok(())
    }

    /// Returns the scenario with the durations chosen by the settings.
    pub(crate) fn scenario(&self) -> Result<Scenario, ModelError> {
        let scenario = self.model.scenario(&self.scenario)?;
        Ok(Scenario {
            warmup_min: self.knobs.warmup_min.unwrap_or(scenario.warmup_min),
            measure_min: self.knobs.measure_min.unwrap_or(scenario.measure_min),
            ..scenario.clone()
        })
    }
}

fn check(
    knob: &'static str,
    value: f64,
    accepted: &'static str,
    holds: impl Fn(f64) -> bool,
) -> Result<(), SetupError> {
    if holds(value) { Ok(()) } else { Err(SetupError::Knob { knob, value, accepted }) }
}

/// Rounds minutes down to a tenth.
fn rounded_down(minutes: f64) -> f64 {
    (minutes * 10.0).floor() / 10.0
}

/// Converts minutes to a duration.
pub(crate) fn minutes(minutes: f64) -> Duration {
    Duration::from_secs_f64(minutes * 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the page and the floor of a server's cache, for the built-in model.
    fn page_and_floor(profile: &str, cache_ratio: f64, sample: u32) -> (u64, u64) {
        let mut setup = Setup { profile: profile.to_owned(), ..Setup::new("onerf-spikes", "robinhood", 1) };
        (setup.knobs.cache_ratio, setup.knobs.sample) = (cache_ratio, sample);
        scaled(setup)
    }

    fn scaled(mut setup: Setup) -> (u64, u64) {
        setup.scale_bytes().expect("a profile that there is");
        let total = setup.cache_bytes().expect("likewise");
        let control = &setup.knobs.control;
        control.validate(total, setup.model.backends().len()).expect("floors fit");
        (control.page_bytes(total), control.floor_bytes(total))
    }

    #[test]
    fn control_pages_and_floors_scale_with_the_cache() {
        assert_eq!(page_and_floor("full", 1.0, 1), (1 << 20, 30 << 20));
        assert_eq!(page_and_floor("s100", 1.0, 1), (10_486, 30 * 10_486));
        // A ratio of one step (1.05) scales both.
        assert_eq!(page_and_floor("s100", 1.05, 1), (11_010, 30 * 11_010));
        assert_eq!(page_and_floor("full", 1.0 / 64.0, 1), (16_384, 30 * 16_384));
        assert_eq!(page_and_floor("full", 0.5, 8), (65_536, 30 * 65_536));
        assert_eq!(page_and_floor("full", 1e-3, 1_024), (1, 30));
    }

    #[test]
    fn setup_whose_memory_would_grow_beyond_its_bound_is_refused() {
        let mut setup = Setup::new("onerf-spikes", "robinhood", 1);
        setup.knobs.measure_min = Some(69_905.0);
        assert_eq!(setup.validate(), Ok(()));
        setup.knobs.measure_min = Some(70_000.0);
        assert_eq!(
            setup.validate().unwrap_err().to_string(),
            "cannot simulate 70000 minutes of measurement with an observation of 20 backends every 5 s: at most 16777216 samples of a backend are kept; measure 69905 minutes or less, or make slo.every_s longer"
        );
        setup.knobs.measure_min = None;
        (setup.knobs.stale, setup.knobs.control.delta) = (STALE_MAX, Duration::from_millis(360));
        assert_eq!(setup.validate(), Ok(()));
        setup.knobs.control.delta = Duration::from_millis(250);
        assert_eq!(
            setup.validate().unwrap_err().to_string(),
            "cannot simulate with stale = 3600 and delta = 0.25: controllers may be told 10000 times within the age of stale statistics; stale can be at most 2500 with this delta"
        );
    }

    #[test]
    fn floor_of_partitions_is_the_profiles_and_not_thirty_pages() {
        let document = include_str!("../../../examples/two-backends.sim.json");
        let document =
            document.replacen(r#""alloc_floor_bytes": 245760"#, r#""alloc_floor_bytes": 100000"#, 1);
        let model = Arc::new(Model::from_json(&document).expect("a valid model"));
        let mut setup = Setup::new("reviews-slow-down", "robinhood", 1);
        (setup.model, setup.profile) = (model, "shop".to_owned());
        assert_eq!(scaled(setup.clone()), (8_192, 12 * 8_192), "in whole pages, to the nearest");
        setup.knobs.cache_ratio = 0.5;
        assert_eq!(scaled(setup.clone()), (4_096, 12 * 4_096));
        setup.knobs.control.page_bytes = Some(64);
        assert_eq!(scaled(setup), (64, 30 * 64), "a given page size implies the default floor");
    }
}
