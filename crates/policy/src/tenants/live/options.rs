//! Options of the level between tenants.

use std::time::Duration;

use sherwood_model::ResourceKind;
use thiserror::Error;

/// A resource that tenants share beside the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantResource {
    /// Name in reports, such as `orders reads`.
    pub name: String,
    /// Kind of the resource.
    pub kind: ResourceKind,
    /// Units per second of all tenants together.
    pub total_per_s: f64,
}

impl TenantResource {
    /// The unit of the resource's rates, such as `orders reads/s`.
    #[must_use]
    pub fn unit(&self) -> String {
        let bytes = if self.kind == ResourceKind::Network { " B" } else { "" };
        format!("{}{bytes}/s", self.name)
    }
}

/// Options of a [`TenantController`](super::TenantController). The defaults are those of the
/// authors of HARE for workloads that change, except that a gain of 2 points is applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TenantControlOptions {
    /// Time between decisions; 1 s to 1 h.
    pub period: Duration,
    /// Time over which counters are taken, at least the period and at most 1 d.
    pub window: Duration,
    /// Added to every miss ratio of a curve, 0 to 1. The error of a curve is absolute, so that
    /// without it a very small miss ratio may be estimated as none at all.
    pub salt: f64,
    /// Least increase of the least normalized throughput for which a division is applied; 0 to 1.
    pub apply_over: f64,
    /// Time between two steps from plan to plan; 1 ms to the period.
    pub step: Duration,
    /// Time for which the baseline is kept after a tenant was below it; 0 to 1 d. It doubles if
    /// that happens again within three such times.
    pub freeze: Duration,
}

impl Default for TenantControlOptions {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(20),
            window: Duration::from_secs(60),
            salt: 0.01,
            apply_over: 0.02,
            step: Duration::from_millis(250),
            freeze: Duration::from_secs(600),
        }
    }
}

/// Reason why a level between tenants cannot be constructed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TenantControlError {
    /// A duration is out of range.
    #[error("cannot use tenants.{key} = {seconds} s: the accepted range is {min} to {max} s")]
    Time {
        /// Name of the option.
        key: &'static str,
        /// The value given, in seconds.
        seconds: f64,
        /// Least accepted value, in seconds.
        min: f64,
        /// Largest accepted value, in seconds.
        max: f64,
    },
    /// A ratio is out of range.
    #[error("cannot use tenants.{key} = {value}: the accepted range is 0 to 1")]
    Ratio {
        /// Name of the option.
        key: &'static str,
        /// The value given.
        value: f64,
    },
    /// There are too many tenants, or none.
    #[error("cannot divide among {0} tenants: the accepted range is 1 to {TENANTS_MAX}")]
    Tenants(usize),
    /// The number of tenants cannot change while the cache has a partition for each.
    #[error("cannot set the terms of {given} tenants: there are {tenants}, which only a restart changes")]
    Fixed {
        /// Number of terms given.
        given: usize,
        /// Number of tenants.
        tenants: usize,
    },
    /// There are too many resources.
    #[error("cannot divide {0} resources beside the cache: at most {RESOURCES_MAX} are accepted")]
    Resources(usize),
}

/// Maximum number of tenants, and maximum number of resources. Chosen to limit memory.
const TENANTS_MAX: usize = 1_024;
const RESOURCES_MAX: usize = 16;

const DAY_S: f64 = 86_400.0;

/// Number of periods in which a tenant is measured at its baseline. Chosen as the number that the
/// watch takes to judge a tenant.
const MEASURED_PERIODS: u32 = 3;

impl TenantControlOptions {
    /// Time that measures a tenant at its baseline: three periods, or a window if that is shorter.
    pub(super) fn measures(&self) -> Duration {
        self.window.min(self.period * MEASURED_PERIODS)
    }

    /// Checks every option.
    ///
    /// # Errors
    /// The first option out of range, with the accepted range.
    pub fn validate(&self) -> Result<(), TenantControlError> {
        let Self { period, window, salt, apply_over, step, freeze } = *self;
        let period_s = period.as_secs_f64();
        for (key, time, min, max) in [
            ("period", period, 1.0, 3_600.0),
            ("window", window, period_s, DAY_S),
            ("step", step, 0.001, period_s),
            ("freeze", freeze, 0.0, DAY_S),
        ] {
            let seconds = time.as_secs_f64();
            if !(min..=max).contains(&seconds) {
                return Err(TenantControlError::Time { key, seconds, min, max });
            }
        }
        for (key, value) in [("salt", salt), ("apply_over", apply_over)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(TenantControlError::Ratio { key, value });
            }
        }
        Ok(())
    }
}

/// Checks the numbers of tenants and resources.
pub(super) fn check_counts(tenants: usize, resources: usize) -> Result<(), TenantControlError> {
    if !(1..=TENANTS_MAX).contains(&tenants) {
        return Err(TenantControlError::Tenants(tenants));
    }
    if resources > RESOURCES_MAX {
        return Err(TenantControlError::Resources(resources));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_tenants_out_of_range_are_refused_with_the_range() {
        let options = TenantControlOptions::default();
        assert_eq!(options.validate(), Ok(()));
        let short = TenantControlOptions { window: Duration::from_secs(5), ..options };
        let error = short.validate().expect_err("it is shorter than the period").to_string();
        assert_eq!(error, "cannot use tenants.window = 5 s: the accepted range is 20 to 86400 s");
        let salted = TenantControlOptions { salt: f64::NAN, ..options };
        let error = salted.validate().expect_err("it is not a number").to_string();
        assert_eq!(error, "cannot use tenants.salt = NaN: the accepted range is 0 to 1");
        assert!(check_counts(1_024, 16).is_ok());
        let [none, many] =
            [check_counts(0, 1), check_counts(1, 17)].map(|error| error.unwrap_err().to_string());
        assert_eq!(none, "cannot divide among 0 tenants: the accepted range is 1 to 1024");
        assert_eq!(many, "cannot divide 17 resources beside the cache: at most 16 are accepted");
    }
}
