//! Settings by name, as given by `--set key=value`.

use std::time::Duration;

use super::setup::{Keys, Knobs, Setup, Tenants};
use crate::settings::{Setting, SettingError, eviction, number, setting, warm_and_measured};

/// All settings.
const SETTINGS: [Setting; 17] = [
    setting("clients", "N", "clients of the closed loop, each with one request at a time"),
    setting("rate", "RATE|closed", "requests a second of an open loop, instead of clients that wait"),
    setting("tenants", "1|2|steady", "two tenants, of which one bursts, or the steady one alone"),
    setting("tight", "MS-MS", "deadlines of the steady tenant [default: 10-30]"),
    setting("writes", "RATIO", "share of the requests that write"),
    setting("keys", "zipf|uniform", "distribution of keys: YCSB's scrambled Zipf, or each equally often"),
    setting("records", "N", "records; a fifth of them fits the cache"),
    setting("slots", "N", "reads that a server serves at the same time"),
    setting("S", "MS", "scale of the store's service times"),
    setting("alpha", "PERCENTILE", "latency below which a deadline cannot be met"),
    setting("beta", "PERCENTILE", "latency with which admission forecasts"),
    setting("target", "RATIO", "share of missed deadlines for which beta is chosen"),
    setting("eviction", "lru|s3-fifo", "order in which the cache evicts within a deadline class"),
    setting("n", "N", "deadline classes of the cache"),
    setting("D", "MS", "deadline from which on the last class holds all"),
    setting("epsilon", "RATIO", "increment of a class's multiplier for a missed deadline"),
    setting("seconds", "WARM+MEASURED", "length of the run"),
];

impl Setup {
    /// All settings, with their effects.
    #[must_use]
    pub fn settings() -> &'static [Setting] {
        &SETTINGS
    }

    /// Changes one setting. Whether a number is in its range is checked by
    /// [`World::new`](super::World::new).
    ///
    /// # Errors
    /// If there is no such setting, or the value is not of its form.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let setting = Setting::of_key(&SETTINGS, key)?;
        turn(&mut self.knobs, key, value).ok_or_else(|| setting.refusal(value))
    }
}

fn turn(knobs: &mut Knobs, key: &str, value: &str) -> Option<()> {
    match key {
        "clients" => knobs.clients = number(value)?,
        "rate" if value == "closed" => knobs.rate = None,
        "rate" => knobs.rate = Some(number(value)?),
        "tenants" => {
            knobs.tenants = match value {
                "1" => Tenants::One,
                "2" => Tenants::Two,
                "steady" => Tenants::Steady,
                _ => return None,
            };
        }
        "tight" => {
            let (least, most) = value.split_once('-')?;
            knobs.tight = (milliseconds(least)?, milliseconds(most)?);
        }
        "writes" => knobs.writes = number(value)?,
        "keys" => {
            knobs.keys = match value {
                "zipf" => Keys::Zipf,
                "uniform" => Keys::Uniform,
                _ => return None,
            };
        }
        "records" => knobs.records = number(value)?,
        "slots" => knobs.slots = number(value)?,
        "S" => knobs.scale = milliseconds(value)?,
        "alpha" => knobs.alpha = number(value)?,
        "beta" => knobs.beta = Some(number(value)?),
        "target" => knobs.target = Some(number(value)?),
        "eviction" => knobs.eviction = Some(eviction(value)?),
        "n" => knobs.classes = number(value)?,
        "D" => knobs.classes_upto = milliseconds(value)?,
        "epsilon" => knobs.epsilon = number(value)?,
        "seconds" => (knobs.warm_up, knobs.measure) = warm_and_measured(value)?,
        _ => return None,
    }
    Some(())
}

fn milliseconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(number::<f64>(text)? / 1e3).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microfuge_setting_accepts_a_valid_value_and_refuses_an_invalid_one() {
        let good = [
            "96", "5000", "2", "30-100", "0.1", "uniform", "1000", "2", "4.5", "20", "95", "0.02", "s3-fifo",
            "5", "200", "0.1", "1+2",
        ];
        for (setting, good) in SETTINGS.iter().zip(good) {
            let mut setup = Setup::new("memcached", 1);
            setup.set(setting.key, good).expect(setting.key);
            assert_ne!(setup.knobs, Knobs::default(), "{}", setting.key);
            assert!(
                matches!(setup.set(setting.key, "?"), Err(SettingError::Value { .. })),
                "{}",
                setting.key
            );
        }
        let refusal = Setup::new("memcached", 1).set("tax", "1").unwrap_err().to_string();
        assert!(refusal.starts_with("there is no setting \"tax\"; choose one of clients, rate"), "{refusal}");
    }
}
