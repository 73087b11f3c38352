//! Settings by name, as given by `--set key=value`.

use sherwood_workload::tenants::{Decide, PublishedError};

use super::setup::{Knobs, Setup, Source};
use super::within::WITHIN;
use crate::settings::{Setting, SettingError, eviction, number, seconds, setting, warm_and_measured};

/// All settings; the first ones are parameters of single scenarios.
const SETTINGS: [Setting; 13] = [
    setting("keys", "MILLIONS", "keys of the first tenant in hare-working-set [default: 4]"),
    setting("theta", "EXPONENT", "skew of the first tenant in hare-skew [default: 0]"),
    setting(
        "flood",
        "FACTOR",
        "load of the last tenant in hare-flood, as a multiple of its rate [default: 10]",
    ),
    setting("decide", "once|live", "a single decision, or one each period"),
    setting("period", "SECONDS", "time between decisions"),
    setting("window", "SECONDS", "time of the past that decisions take into account"),
    setting("salt", "RATIO", "constant added to measured miss ratios"),
    setting("apply_over", "RATIO", "least predicted gain for which another division is applied"),
    setting("lend", "true|false", "lends unused units to tenants that wait [default: false]"),
    setting(
        "within",
        "robinhood|fair|equal|static|none",
        "policy that divides a tenant's cache among its backends",
    ),
    setting("eviction", "lru|s3-fifo", "order in which the cache evicts"),
    setting("ghost", "RATIO", "share of the keys that miss ratio curves are sampled from"),
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
    /// If there is no such setting, the value is not of its form, or the scenario does not have the
    /// parameter.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let setting = Setting::of_key(&SETTINGS, key)?;
        let refusal = || setting.refusal(value);
        if !matches!(key, "keys" | "theta" | "flood") {
            return turn(&mut self.knobs, key, value).ok_or_else(refusal);
        }
        let Source::Published(published) = &mut self.source else { return Err(refusal()) };
        published.set(key, value).map_err(|error| match error {
            PublishedError::Unknown { .. } => refusal(),
            PublishedError::Value { accepted, .. } => Setting { value: accepted, ..setting }.refusal(value),
        })
    }
}

fn turn(knobs: &mut Knobs, key: &str, value: &str) -> Option<()> {
    match key {
        "decide" => {
            knobs.decide = Some(match value {
                "once" => Decide::Once,
                "live" => Decide::Live,
                _ => return None,
            });
        }
        "period" => knobs.period = Some(seconds(value)?),
        "window" => knobs.window = Some(seconds(value)?),
        "salt" => knobs.salt = Some(number(value)?),
        "apply_over" => knobs.apply_over = Some(number(value)?),
        "lend" => knobs.lends = number(value)?,
        "within" => {
            knobs.within = match value {
                "none" => None,
                name if WITHIN.contains(&name) => Some(name.to_owned()),
                _ => return None,
            };
        }
        "eviction" => knobs.eviction = eviction(value)?,
        "ghost" => knobs.ghost = Some(number(value)?),
        "seconds" => {
            let (warm_up, measure) = warm_and_measured(value)?;
            (knobs.warm_up, knobs.measure) = (Some(warm_up), Some(measure));
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_of_tenants_accepts_a_valid_value_and_refuses_an_invalid_one() {
        let good =
            ["5", "0.5", "3", "live", "10", "30", "0", "0.1", "true", "robinhood", "lru", "0.5", "1+2"];
        let scenarios = ["hare-working-set", "hare-skew", "hare-flood"];
        for ((index, setting), good) in SETTINGS.iter().enumerate().zip(good) {
            let scenario = scenarios.get(index).unwrap_or(&"hare-skew");
            let fresh = || Setup::published(scenario, "hare", 1).expect("it is built in");
            let mut setup = fresh();
            setup.set(setting.key, good).expect(setting.key);
            let is_changed = setup.knobs != Knobs::default() || setup.scenario() != fresh().scenario();
            assert!(is_changed, "{}", setting.key);
            let refused = setup.set(setting.key, "?");
            assert!(matches!(refused, Err(SettingError::Value { .. })), "{}", setting.key);
        }
    }

    #[test]
    fn parameter_of_another_scenario_is_refused() {
        let mut setup = Setup::published("hare-ycsb16", "hare", 1).expect("it is built in");
        let error = setup.set("keys", "4").unwrap_err().to_string();
        assert!(error.contains("in hare-working-set"), "{error}");
    }
}
