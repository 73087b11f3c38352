//! Setup of a run.

use std::time::Duration;

use sherwood_cache::Eviction;
use sherwood_model::Instant;
use sherwood_workload::ArrivalsError;
use thiserror::Error;

use super::SERVERS;
use super::policy::{Policy, PolicyError, Scheduling};
use crate::settings::{RangeError, check};

/// A run: policy, seed and settings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name of one of [`policies`](super::policies).
    pub policy: String,
    /// Seed of every draw: runs with one seed have the same requests under every policy, in the
    /// same order for each client.
    pub seed: u64,
    /// Settings, which [`Setup::set`] changes by name.
    pub knobs: Knobs,
}

/// Settings of a run; the defaults are the paper's, where it gives them.
#[derive(Clone, Debug, PartialEq)]
pub struct Knobs {
    /// Clients of the closed loop, 1 to 100,000.
    pub clients: u32,
    /// Requests per second of an open loop; none for a closed one.
    pub rate: Option<f64>,
    /// The tenants that send requests.
    pub tenants: Tenants,
    /// Least deadline of the steady one of two tenants, and the time below which its deadlines are,
    /// 1 ms to 1 s.
    pub tight: (Duration, Duration),
    /// Share of the requests that write, 0 to 1.
    pub writes: f64,
    /// Distribution of the keys.
    pub keys: Keys,
    /// Number of records, 10 to 100 million.
    pub records: u64,
    /// Number of servers, 1 to 16.
    pub servers: u16,
    /// Reads that a server serves at the same time, 1 to 1,024.
    pub slots: u32,
    /// Scale of the store's service times, 1 µs to 10 s.
    pub scale: Duration,
    /// Percentile of latency with which a queue judges that a deadline cannot be met, above 0 and
    /// below 100.
    pub alpha: f64,
    /// Percentile of latency with which admission forecasts, above 0 and below 100; none for the
    /// policy's own. With a target it is the first one.
    pub beta: Option<f64>,
    /// Share of missed deadlines for which admission chooses the percentile, above 0 and below 1;
    /// none for the policy's own, or for a fixed percentile if `beta` is given.
    pub target: Option<f64>,
    /// Order in which the cache evicts within a deadline class; none for the policy's own.
    pub eviction: Option<Eviction>,
    /// Number of the cache's deadline classes, 1 to 16.
    pub classes: u8,
    /// Deadline from which on the last class holds all.
    pub classes_upto: Duration,
    /// Increment of a class's multiplier for a missed deadline, above 0 and up to 1.
    pub epsilon: f64,
    /// Time before the measurement.
    pub warm_up: Duration,
    /// Measured time.
    pub measure: Duration,
}

/// The distribution of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// As YCSB draws them: [`ScrambledZipf`](sherwood_workload::ScrambledZipf).
    Zipf,
    /// Every record equally often.
    Uniform,
}

/// The tenants that send requests, each with records of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenants {
    /// A single one.
    One,
    /// A steady one with tight deadlines ([`Knobs::tight`]), and one with the paper's, which sends
    /// ten times as much for 10 s of every 30 s. Both send equally much otherwise, half of `rate`
    /// (1,000 a second by default), in an open loop.
    Two,
    /// The steady one of `Two` alone.
    Steady,
}

/// Scale of the service times, the only parameter that is fitted, to what the paper's figures imply
/// about its baselines: `memcached` misses about 19% of the deadlines with 192 clients, and `bare`
/// over 20% with 96. With 6.9 ms it is 19.2% and 20.1% (means of the seeds 101 to 105; 19.0% and
/// 19.9% with 6.8 ms).
const SCALE: Duration = Duration::from_micros(6_900);

/// Deadline from which on the last class holds all. The paper does not give it. With 100 ms, the
/// last class would also hold the deadlines of 100 to 200 ms, of which `memcached` misses a
/// twentieth, and keep them no longer than those of a second.
const CLASSES_UPTO: Duration = Duration::from_millis(230);

impl Default for Knobs {
    fn default() -> Self {
        Self {
            clients: 192,
            rate: None,
            tenants: Tenants::One,
            tight: (Duration::from_millis(10), Duration::from_millis(30)),
            writes: 0.0,
            keys: Keys::Zipf,
            records: 200_000,
            servers: SERVERS,
            slots: 1,
            scale: SCALE,
            alpha: 15.0,
            beta: None,
            target: None,
            eviction: None,
            classes: 10,
            classes_upto: CLASSES_UPTO,
            epsilon: 0.01,
            warm_up: Duration::from_secs(60),
            measure: Duration::from_secs(120),
        }
    }
}

/// Reason why a run cannot be set up.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SetupError {
    /// No such policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The cache cannot be built.
    #[error(transparent)]
    Cache(#[from] sherwood_cache::OptionsError),
    /// The dispatcher cannot be built.
    #[error(transparent)]
    Dispatch(#[from] sherwood_dispatch::OptionsError),
    /// The cache's deadline classes cannot be told apart.
    #[error(transparent)]
    Classes(#[from] sherwood_model::DeadlineClassesError),
    /// A percentile of latency is out of range.
    #[error(transparent)]
    Percentile(#[from] sherwood_model::PercentError),
    /// The policy schedules no writes.
    #[error("cannot simulate writes under {policy}, which is a bound for reads; leave writes out")]
    Writes {
        /// The policy's name.
        policy: String,
    },
    /// The rate of requests is out of range.
    #[error(transparent)]
    Rate(#[from] ArrivalsError),
    /// A number is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
}

impl Setup {
    /// Returns a run with the default settings.
    #[must_use]
    pub fn new(policy: &str, seed: u64) -> Self {
        Self { policy: policy.to_owned(), seed, knobs: Knobs::default() }
    }

    /// Returns the policy, and checks that every number is in its range.
    pub(super) fn validate(&self) -> Result<Policy, SetupError> {
        let Knobs {
            clients,
            rate,
            tenants: _,
            tight: (tight_from, tight_to),
            writes,
            keys: _,
            records,
            servers,
            slots,
            scale,
            alpha: _,
            beta: _,
            target,
            eviction: _,
            classes,
            classes_upto,
            epsilon,
            warm_up,
            measure,
        } = self.knobs;
        check("clients", clients.into(), 1.0, 1e5, "1 to 100000")?;
        check("rate", rate.unwrap_or(1.0), 1e-3, 1e6, "0.001 to 1000000 requests a second")?;
        check("tight", tight_from.as_secs_f64() * 1e3, 1.0, 1e3, "1 to 1000 ms")?;
        check(
            "tight",
            tight_to.as_secs_f64() * 1e3,
            tight_from.as_secs_f64() * 1e3,
            1e3,
            "the least deadline to 1000 ms",
        )?;
        check("writes", writes, 0.0, 1.0, "0 to 1")?;
        check("records", records as f64, 10.0, 1e8, "10 to 100000000")?;
        check("servers", servers.into(), 1.0, SERVERS.into(), "1 to 16")?;
        check("slots", slots.into(), 1.0, 1_024.0, "1 to 1024")?;
        check("S", scale.as_secs_f64() * 1e3, 1e-3, 1e4, "0.001 to 10000 ms")?;
        check("target", target.unwrap_or(0.5), 1e-4, 0.9999, "0.0001 to 0.9999")?;
        check("n", classes.into(), 1.0, 16.0, "1 to 16")?;
        check("D", classes_upto.as_secs_f64() * 1e3, 1.0, 8.64e7, "1 to 86400000 ms")?;
        check("epsilon", epsilon, 1e-9, 1.0, "0.000000001 to 1")?;
        check("seconds of warm-up", warm_up.as_secs_f64(), 0.0, 1e5, "0 to 100000")?;
        check("seconds of measurement", measure.as_secs_f64(), 1e-3, 1e5, "0.001 to 100000")?;
        let policy = Policy::by_name(&self.policy)?;
        if writes > 0.0 && matches!(policy.scheduling, Scheduling::Clairvoyant) {
            return Err(SetupError::Writes { policy: self.policy.clone() });
        }
        Ok(policy)
    }

    /// Time at which the measurement begins.
    #[must_use]
    pub fn measured_from(&self) -> Instant {
        Instant::ZERO + self.knobs.warm_up
    }

    /// Simulated time of the run, warm-up and measurement.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.knobs.warm_up + self.knobs.measure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_with_a_number_out_of_range_is_refused_by_name() {
        let refused = |key: &str, value: &str| {
            let mut setup = Setup::new("memcached", 1);
            setup.set(key, value).expect("it can be parsed");
            setup.validate().expect_err("it is out of range").to_string()
        };
        for (key, value) in [
            ("clients", "0"),
            ("rate", "0"),
            ("rate", "NaN"),
            ("tight", "0-30"),
            ("tight", "40-30"),
            ("writes", "1.1"),
            ("records", "9"),
            ("slots", "0"),
            ("n", "17"),
            ("D", "0.5"),
            ("target", "1"),
            ("epsilon", "0"),
        ] {
            assert!(refused(key, value).starts_with(&format!("cannot simulate with {key} = ")), "{key}");
        }
        assert!(refused("seconds", "1+0").contains("seconds of measurement = 0: the accepted range is"));
        let mut setup = Setup::new("edf-all", 1);
        setup.set("beta", "100").expect("a number");
        let refusal = super::super::World::new(&setup).err().expect("it is out of range").to_string();
        assert!(refusal.contains("`beta` is 100 percent"), "{refusal}");
        let mut setup = Setup::new("clairvoyant", 1);
        setup.set("writes", "0.1").expect("a number");
        assert!(matches!(setup.validate(), Err(SetupError::Writes { .. })));
        let unknown = Setup::new("lru", 1).validate().unwrap_err().to_string();
        assert!(unknown.contains("no policy \"lru\"; choose one of bare, memcached,"), "{unknown}");
    }

    #[test]
    fn default_setup_is_valid() {
        assert!(Setup::new("memcached", 1).validate().is_ok());
    }
}
