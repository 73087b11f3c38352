//! Options of the replicator.

use std::time::Duration;

use sherwood_model::did_you_mean;
use thiserror::Error;

/// Options of the replicator.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicationOptions {
    /// The way in which factors are chosen.
    pub policy: ReplicationPolicy,
    /// The tiers, the one that users call first; 1 to 4.
    pub tiers: Vec<TierOptions>,
    /// The latency of the first tier's requests that is minimised.
    pub target: TargetLatency,
    /// Largest accepted probability, in each later tier, that copies of a request of the first tier
    /// meet at a server (Pmax); 0 to 1.
    pub collision_max: f64,
    /// Length of a measuring window; 1 s to 1 h.
    pub window: Duration,
    /// Largest factor that a search tries; 1 to 8.
    pub factor_max: u8,
    /// Change of the load since a search, as a part of the lesser load, for which a new search
    /// begins; 0.01 to 100.
    pub load_change: f64,
    /// Change of a tier's variability since a search, as a part of the lesser one, for which a new
    /// search begins; 0.01 to 100.
    pub variability_change: f64,
}

/// Options of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// Name of the tier's backend.
    pub name: String,
    /// Cores of each server, which drivers pass on to meters and observations; 1 to 1024.
    pub cores: u32,
    /// Copies of each request under the policy `fixed`; 1 to 8.
    pub factor: u8,
}

/// The way in which factors are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicationPolicy {
    /// A single copy of each request.
    #[default]
    None,
    /// The greedy search of sPARE, algorithm 1.
    Spare,
    /// The factors of the configuration.
    Fixed,
    /// A search through all feasible factors.
    Exhaustive,
}

/// The latency of the first tier's requests that is minimised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetLatency {
    /// The mean.
    Mean,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    #[default]
    P99,
}

/// Reason why options of the replicator are refused. The configuration must be changed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ReplicationError {
    /// An option is out of range.
    #[error("`{key}` is {value}, must be {min} to {max}; leave it out for the default")]
    Range {
        /// Name of the option; durations are in seconds.
        key: &'static str,
        /// The value given.
        value: f64,
        /// Least accepted value.
        min: f64,
        /// Largest accepted value.
        max: f64,
    },
    /// No choice has that name.
    #[error("`{key}` is {name:?}, which is not known; choose one of {}{}", known.join(", "), did_you_mean(name, known))]
    Unknown {
        /// Name of the option.
        key: &'static str,
        /// The name that no choice has.
        name: String,
        /// The names that can be chosen.
        known: &'static [&'static str],
    },
}

impl Default for ReplicationOptions {
    /// Returns options without tiers, which must be added. The thresholds of a new search are
    /// chosen: the tail of a few hundred requests often moves by a half by chance, and rarely to
    /// twice its value in two windows in a row.
    fn default() -> Self {
        Self {
            policy: ReplicationPolicy::default(),
            tiers: Vec::new(),
            target: TargetLatency::default(),
            collision_max: 0.5,
            window: Duration::from_secs(60),
            factor_max: 3,
            load_change: 0.25,
            variability_change: 1.0,
        }
    }
}

impl ReplicationOptions {
    /// Checks every option.
    ///
    /// # Errors
    /// The first option out of range, with the accepted range.
    pub fn validate(&self) -> Result<(), ReplicationError> {
        let Self { policy: _, tiers, target: _, collision_max, window, factor_max, .. } = self;
        let range = |key, value: f64, min: f64, max: f64| {
            let refusal = ReplicationError::Range { key, value, min, max };
            if (min..=max).contains(&value) { Ok(()) } else { Err(refusal) }
        };
        range("number of tiers", tiers.len() as f64, 1.0, 4.0)?;
        for TierOptions { name: _, cores, factor } in tiers {
            range("cores", f64::from(*cores), 1.0, 1_024.0)?;
            range("factors", f64::from(*factor), 1.0, 8.0)?;
        }
        range("collision_max", *collision_max, 0.0, 1.0)?;
        range("window", window.as_secs_f64(), 1.0, 3_600.0)?;
        range("factor_max", f64::from(*factor_max), 1.0, 8.0)?;
        range("load_change", self.load_change, 0.01, 100.0)?;
        range("variability_change", self.variability_change, 0.01, 100.0)
    }
}

impl ReplicationPolicy {
    const ALL: [Self; 4] = [Self::None, Self::Spare, Self::Fixed, Self::Exhaustive];
    const NAMES: [&str; 4] = ["none", "spare", "fixed", "exhaustive"];

    /// Returns the policy called `name`.
    ///
    /// # Errors
    /// If no policy has that name.
    pub fn by_name(name: &str) -> Result<Self, ReplicationError> {
        choose("policy", name, &Self::NAMES, &Self::ALL)
    }

    /// Returns the policy's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl TargetLatency {
    const ALL: [Self; 3] = [Self::Mean, Self::P95, Self::P99];
    const NAMES: [&str; 3] = ["mean", "p95", "p99"];

    /// Returns the latency called `name`.
    ///
    /// # Errors
    /// If no latency has that name.
    pub fn by_name(name: &str) -> Result<Self, ReplicationError> {
        choose("target", name, &Self::NAMES, &Self::ALL)
    }

    /// Least requests of a window, of which one is beyond the percentile.
    pub(super) fn requests_min(self) -> u64 {
        if self == Self::P99 { 100 } else { 20 }
    }

    /// Returns the latency's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

fn choose<T: Copy>(
    key: &'static str,
    name: &str,
    known: &'static [&'static str],
    all: &[T],
) -> Result<T, ReplicationError> {
    let place = known.iter().position(|known| *known == name);
    let unknown = || ReplicationError::Unknown { key, name: name.to_owned(), known };
    place.map(|place| all[place]).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ReplicationOptions {
        let tier = TierOptions { name: "pages".to_owned(), cores: 2, factor: 1 };
        ReplicationOptions { tiers: vec![tier], ..ReplicationOptions::default() }
    }

    #[test]
    fn options_out_of_range_are_refused_with_the_range() {
        assert_eq!(options().validate(), Ok(()));
        let refused = |change: fn(&mut ReplicationOptions)| {
            let mut options = options();
            change(&mut options);
            options.validate().unwrap_err().to_string()
        };
        assert_eq!(
            refused(|options| options.tiers.clear()),
            "`number of tiers` is 0, must be 1 to 4; leave it out for the default"
        );
        assert_eq!(
            refused(|options| options.tiers[0].factor = 9),
            "`factors` is 9, must be 1 to 8; leave it out for the default"
        );
        assert_eq!(
            refused(|options| options.factor_max = 0),
            "`factor_max` is 0, must be 1 to 8; leave it out for the default"
        );
        assert_eq!(
            refused(|options| options.collision_max = f64::NAN),
            "`collision_max` is NaN, must be 0 to 1; leave it out for the default"
        );
        assert_eq!(
            refused(|options| options.window = Duration::from_millis(500)),
            "`window` is 0.5, must be 1 to 3600; leave it out for the default"
        );
        let changes: [fn(&mut ReplicationOptions); 3] = [
            |options| options.tiers[0].cores = 0,
            |options| options.load_change = 0.0,
            |options| options.variability_change = 101.0,
        ];
        assert!(changes.map(refused).iter().all(|refusal| refusal.contains("must be")));
    }

    #[test]
    fn choices_are_found_by_their_names_and_others_are_refused() {
        for policy in ReplicationPolicy::ALL {
            assert_eq!(ReplicationPolicy::by_name(policy.name()), Ok(policy));
        }
        for target in TargetLatency::ALL {
            assert_eq!(TargetLatency::by_name(target.name()), Ok(target));
        }
        let refusal = ReplicationPolicy::by_name("spares").unwrap_err().to_string();
        assert_eq!(
            refusal,
            "`policy` is \"spares\", which is not known; choose one of none, spare, fixed, exhaustive: did you mean \
             \"spare\"?"
        );
    }
}
