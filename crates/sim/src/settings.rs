//! Settings by name, as given by `--set key=value`.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};
use sherwood_cache::Eviction;
use sherwood_model::Band;
use sherwood_workload::onerf::Walk;
use thiserror::Error;

use crate::setup::{Knobs, Resize};

/// A setting with its key, values and effect, for help texts.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Key of the setting, as in `--set key=value`.
    pub key: &'static str,
    /// Form of the setting's values, for help texts.
    pub value: &'static str,
    /// Effect of the setting.
    pub about: &'static str,
}

pub(crate) const fn setting(key: &'static str, value: &'static str, about: &'static str) -> Setting {
    Setting { key, value, about }
}

impl Setting {
    /// Returns the setting of `settings` with this key.
    pub(crate) fn of_key(settings: &[Self], key: &str) -> Result<Self, SettingError> {
        settings.iter().find(|setting| setting.key == key).copied().ok_or_else(|| SettingError::Unknown {
            key: key.to_owned(),
            known: settings.iter().map(|setting| setting.key).collect(),
        })
    }

    /// Returns the error of a value that the setting does not accept.
    pub(crate) fn refusal(self, value: &str) -> SettingError {
        let Self { key, value: accepted, about } = self;
        SettingError::Value { key, value: value.to_owned(), accepted, about }
    }
}

/// All settings.
const SETTINGS: [Setting; 26] = [
    setting(
        "walk",
        "given|N",
        "realisation of a random scenario: the one written down, or drawn from the whole number N",
    ),
    setting("delta", "SECONDS", "time between decisions"),
    setting("rbc_window", "SECONDS", "age of the oldest request that decisions use"),
    setting("band", "LOW-HIGH", "percentiles of request latency that count as slow, such as 98.5-99.5"),
    setting("tax", "RATIO", "part of every partition that is redistributed in a round"),
    setting(
        "unfilled",
        "RATIO|off",
        "no gift to a partition with more than this share of its used bytes unfilled",
    ),
    setting(
        "rounding",
        "largest|first",
        "recipient of the remainder when gifts are rounded: the partitions that lost most, or the first",
    ),
    setting(
        "tao",
        "mean|snapshot",
        "sizes that policy tao takes from robinhood: the mean ones, or those at the end of that time",
    ),
    setting("shadow", "RATIO", "size of cliffhanger's shadow queues, as a share of a cache"),
    setting("credit", "BYTES", "bytes moved by a find in them"),
    setting("fair", "feedback|waterfill", "method by which policy fair equalises miss ratios"),
    setting("lama", "minmax|sum|threshold", "cost that policy lama minimises"),
    setting("ghost", "RATIO", "share of the keys sampled for miss ratio curves"),
    setting("eviction", "lru|s3-fifo", "eviction order of the caches"),
    setting("resize", "at-once|BYTES", "bytes a second that leave a shrinking partition"),
    setting("stale", "SECONDS", "additional age of the statistics that decisions use"),
    setting(
        "report_loss",
        "RATIO",
        "probability that a server's report of a second is lost on its way to a receiver",
    ),
    setting(
        "bus_down",
        "MIN-MIN",
        "minutes of the measurement, counted from its beginning as those of limits, in which no report or snapshot arrives",
    ),
    setting(
        "statistics",
        "N",
        "first servers that merge all reports; others follow the first whose snapshot is younger than 3 s; 0: each merges all",
    ),
    setting(
        "requests",
        "told|batches",
        "what decisions know: whole requests, or the batch of each backend alone",
    ),
    setting("servers", "N", "application servers, 1 to 1024"),
    setting("cache", "RATIO", "each server's cache, as a share of the profile's"),
    setting("load", "RATIO", "rate of requests, as a share of the profile's"),
    setting("depth", "RATIO", "multiplies what limits add to service times"),
    setting("sample", "1/N", "one in N objects is simulated, with its part of requests and caches"),
    setting("minutes", "WARM-UP+MEASURED", "minutes before and in the measurement, such as 60+180"),
];

/// Reason why a setting was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingError {
    /// Unknown key.
    #[error("there is no setting {key:?}; choose one of {}", known.join(", "))]
    Unknown {
        /// The unknown key that was given.
        key: String,
        /// The known keys.
        known: Vec<&'static str>,
    },
    /// The value is not accepted by the key.
    #[error("setting {key} to {value:?}: it takes {accepted}, {about}")]
    Value {
        /// Key of the setting that refused the value.
        key: &'static str,
        /// The value given.
        value: String,
        /// Accepted values.
        accepted: &'static str,
        /// Effect of the setting.
        about: &'static str,
    },
}

/// The error of a number that is out of its range.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("cannot simulate with {knob} = {value}: the accepted range is {accepted}")]
pub struct RangeError {
    /// Key of the setting.
    pub knob: &'static str,
    /// The value given.
    pub value: f64,
    /// The accepted range.
    pub accepted: &'static str,
}

/// Checks that a number is in its range, `least..=most`.
pub(crate) fn check(
    knob: &'static str,
    value: f64,
    least: f64,
    most: f64,
    accepted: &'static str,
) -> Result<(), RangeError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(RangeError { knob, value, accepted }) }
}

impl Knobs {
    /// The settings accepted by [`Knobs::set`].
    #[must_use]
    pub fn settings() -> [Setting; SETTINGS.len()] {
        SETTINGS
    }

    /// Changes one setting. Ranges are checked with the whole setup.
    ///
    /// ```
    /// use sherwood_sim::Knobs;
    /// let mut knobs = Knobs::default();
    /// knobs.set("band", "99-100")?;
    /// assert_eq!(knobs.control.band.low, 99.0);
    /// let error = knobs.set("tax", "much").unwrap_err().to_string();
    /// assert_eq!(error, "setting tax to \"much\": it takes RATIO, part of every partition that is redistributed in a round");
    /// # Ok::<(), sherwood_sim::SettingError>(())
    /// ```
    ///
    /// # Errors
    /// An unknown key, or a value that does not parse.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let setting = Setting::of_key(&SETTINGS, key)?;
        self.turn(key, value).ok_or_else(|| setting.refusal(value))
    }

    fn turn(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "walk" if value == "given" => self.walk = Walk::Given,
            "walk" => self.walk = Walk::Drawn { seed: number(value)? },
            "delta" => self.control.delta = seconds(value)?,
            "rbc_window" => self.control.rbc_window = seconds(value)?,
            "band" => {
                let (low, high) = value.split_once('-')?;
                self.control.band = Band { low: number(low)?, high: number(high)? };
            }
            "tax" => self.control.tax = number(value)?,
            "unfilled" if value == "off" => self.control.unfilled_ratio_max = f64::INFINITY,
            "unfilled" => self.control.unfilled_ratio_max = number(value)?,
            "rounding" => self.control.rounding = word(value)?,
            "tao" => self.control.tao.mode = word(value)?,
            "shadow" => self.control.cliffhanger.shadow = number(value)?,
            "credit" => self.control.cliffhanger.credit_bytes = number(value)?,
            "fair" => self.control.fair.mode = word(value)?,
            "lama" => self.control.lama.mode = word(value)?,
            "ghost" => self.ghost_rate = Some(number(value)?),
            "eviction" => self.eviction = eviction(value)?,
            "resize" if value == "at-once" => self.resize = Resize::AtOnce,
            "resize" => self.resize = Resize::BytesPerSecond(number(value)?),
            "stale" => self.stale = seconds(value)?,
            "report_loss" => self.bus.report_loss = number(value)?,
            "bus_down" => {
                let (from, until) = value.split_once('-')?;
                self.bus.down_min = Some((number(from)?, number(until)?));
            }
            "statistics" => self.bus.statistics = number(value)?,
            "requests" => self.batches = choice(value, [("told", false), ("batches", true)])?,
            "servers" => self.servers = Some(number(value)?),
            "cache" => self.cache_ratio = number(value)?,
            "load" => self.load_ratio = number(value)?,
            "depth" => self.limit_depth = number(value)?,
            "sample" => self.sample = number(value.strip_prefix("1/")?)?,
            "minutes" => {
                let (warm_up, measured) = value.split_once('+')?;
                (self.warmup_min, self.measure_min) = (Some(number(warm_up)?), Some(number(measured)?));
            }
            _ => return None,
        }
        Some(())
    }
}

/// Parses a number.
pub(crate) fn number<N: FromStr>(text: &str) -> Option<N> {
    text.parse().ok()
}

/// Parses a choice as written in a configuration.
fn word<'a, W: Deserialize<'a>>(text: &'a str) -> Option<W> {
    let text: StrDeserializer<'_, ValueError> = text.into_deserializer();
    W::deserialize(text).ok()
}

/// Returns the meaning of one of some words.
fn choice<T>(text: &str, choices: [(&str, T); 2]) -> Option<T> {
    choices.into_iter().find_map(|(word, meaning)| (word == text).then_some(meaning))
}

/// Parses a number of seconds, which may have decimals.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(number(text)?).ok()
}

/// Parses the lengths of warm-up and measurement in seconds, such as `60+120`.
pub(crate) fn warm_and_measured(text: &str) -> Option<(Duration, Duration)> {
    let (warm_up, measured) = text.split_once('+')?;
    Some((seconds(warm_up)?, seconds(measured)?))
}

/// Parses an order in which a cache evicts.
pub(crate) fn eviction(text: &str) -> Option<Eviction> {
    match text {
        "lru" => Some(Eviction::Lru),
        "s3-fifo" => Some(Eviction::S3Fifo),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_accepts_a_valid_value_and_refuses_an_invalid_one() {
        let good = [
            "3",
            "0.5",
            "5",
            "99-99.5",
            "0.02",
            "off",
            "first",
            "snapshot",
            "0.1",
            "1",
            "waterfill",
            "sum",
            "1",
            "s3-fifo",
            "1000",
            "3",
            "0.1",
            "60-90",
            "2",
            "batches",
            "2",
            "0.5",
            "1.1",
            "2",
            "1/4",
            "0.1+0.2",
        ];
        for (setting, good) in Knobs::settings().iter().zip(good) {
            let (mut knobs, untouched) = (Knobs::default(), format!("{:?}", Knobs::default()));
            knobs.set(setting.key, good).expect(setting.key);
            assert_ne!(format!("{knobs:?}"), untouched, "{}", setting.key);
            assert!(matches!(knobs.set(setting.key, "?"), Err(SettingError::Value { .. })));
        }
        let refusal = Knobs::default().set("taxes", "1").unwrap_err().to_string();
        assert!(refusal.starts_with("there is no setting \"taxes\"; choose one of walk, delta"), "{refusal}");
    }
}
