//! Settings by name, as given by `--set key=value`.

use sherwood_dispatch::BalanceChoice;

use super::Scenario;
use super::setup::{Knobs, Setup};
use crate::settings::{Setting, SettingError, number, setting, warm_and_measured};

/// All settings; the scenarios by day and at night have the first four.
const SETTINGS: [Setting; 6] = [
    setting(
        "seconds",
        "DAY+NIGHT",
        "lengths of day and night; of warm-up and measurement in zoolander-model",
    ),
    setting("stall", "RATIO", "probability that an access stalls"),
    setting("sigma", "NUMBER", "standard deviation of the logarithm of service times without stalls"),
    setting("correlation", "RATIO", "share of the stalls that hit all duplicates"),
    setting("load", "RATIO", "part of the time for which nodes would be busy without duplicates"),
    setting("balance", "RULE", "rule by which an access that asks one duplicate chooses it, such as random"),
];

impl Scenario {
    /// The settings of the scenario, with their effects.
    #[must_use]
    pub fn settings(self) -> &'static [Setting] {
        match self {
            Self::Diurnal => &SETTINGS[..4],
            Self::Model => &SETTINGS,
        }
    }
}

impl Setup {
    /// Changes one setting. Ranges are checked with the whole setup.
    ///
    /// # Errors
    /// If there is no such setting, or the value is not of its form.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let setting = Setting::of_key(self.scenario.settings(), key)?;
        turn(&mut self.knobs, key, value).ok_or_else(|| setting.refusal(value))
    }
}

fn turn(knobs: &mut Knobs, key: &str, value: &str) -> Option<()> {
    match key {
        "seconds" => (knobs.day, knobs.night) = warm_and_measured(value)?,
        "stall" => knobs.stall = number(value)?,
        "sigma" => knobs.sigma = number(value)?,
        "correlation" => knobs.correlation = number(value)?,
        "load" => knobs.load = number(value)?,
        "balance" => knobs.balance = BalanceChoice::by_name(value).ok()?,
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zoolander_setting_accepts_a_valid_value_and_refuses_an_invalid_one() {
        let new = || Setup::new(Scenario::Model, "divide", 1);
        for (setting, good) in SETTINGS.iter().zip(["5+5", "0.001", "1", "0.5", "0.3", "power-of-two"]) {
            let mut setup = new();
            setup.set(setting.key, good).expect(setting.key);
            assert_ne!(setup.knobs, new().knobs, "{}", setting.key);
            setup.validate().expect(setting.key);
            assert!(
                matches!(setup.set(setting.key, "?"), Err(SettingError::Value { .. })),
                "{}",
                setting.key
            );
        }
        let refusal = new().set("tax", "1").unwrap_err().to_string();
        assert!(
            refusal.starts_with("there is no setting \"tax\"; choose one of seconds, stall"),
            "{refusal}"
        );
    }

    #[test]
    fn zoolander_setting_out_of_range_is_refused_by_name() {
        for (key, value, name) in [
            ("seconds", "0+1", "seconds of the day = 0"),
            ("seconds", "1+0", "seconds of the night = 0"),
            ("stall", "1.5", "stall = 1.5"),
            ("stall", "NaN", "stall = NaN"),
            ("sigma", "-1", "sigma = -1"),
            ("sigma", "4", "sigma = 4"),
            ("correlation", "2", "correlation = 2"),
            ("load", "1", "load = 1"),
        ] {
            let mut setup = Setup::new(Scenario::Model, "divide", 1);
            setup.set(key, value).expect("it can be parsed");
            let refusal = setup.validate().expect_err("it is out of range").to_string();
            assert!(refusal.starts_with(&format!("cannot simulate with {name}: the accepted")), "{refusal}");
        }
        let other = Setup::new(Scenario::Diurnal, "idle", 1).set("load", "0.1").unwrap_err().to_string();
        assert!(other.starts_with("there is no setting \"load\""), "{other}");
        let unknown = Setup::new(Scenario::Diurnal, "lru", 1).validate().unwrap_err().to_string();
        assert!(unknown.contains("no policy \"lru\"; choose one of idle, switch-off"), "{unknown}");
    }
}
