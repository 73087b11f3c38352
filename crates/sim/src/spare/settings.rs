//! Settings by name, as given by `--set key=value`.

use std::time::Duration;

use sherwood_policy::replication::TargetLatency;

use super::policy::{Arbiter, RR};
use super::setup::{Knobs, Setup};
use crate::settings::{Setting, SettingError, number, setting, warm_and_measured};

/// All settings.
const SETTINGS: [Setting; 10] = [
    setting("rate", "RATE", "pages a second"),
    setting("pattern", "1|2|3", "tiers with interference: the second, both, or the first"),
    setting("servers", "N+N", "servers of the first and of the second tier"),
    setting("r", "R1,R2", "copies of a page and of a query, in place of a search for them"),
    setting(
        "arbiters",
        "tad|rr+tad|rr",
        "tokens or servers in turn, in each tier, where copies are searched for",
    ),
    setting("lookups", "N", "servers that are looked at for a token, 0 for all"),
    setting("tokens", "N+N", "tokens of a server in each tier"),
    setting("target", "mean|p95|p99", "latency that a search for copies minimises"),
    setting("window", "SECONDS", "time for which a search measures each choice"),
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
        "rate" => knobs.rate = number(value)?,
        "pattern" => knobs.pattern = number(value)?,
        "servers" => knobs.servers = of_tiers(value, '+', number)?,
        "r" => knobs.factors = Some(of_tiers(value, ',', number)?),
        "arbiters" => knobs.arbiters = Some(of_tiers(value, '+', arbiter)?),
        "lookups" => knobs.lookups = number(value)?,
        "tokens" => knobs.tokens = of_tiers(value, '+', number)?,
        "target" => knobs.target = TargetLatency::by_name(value).ok()?,
        "window" => knobs.window = Duration::try_from_secs_f64(number(value)?).ok()?,
        "seconds" => (knobs.warm_up, knobs.measure) = warm_and_measured(value)?,
        _ => return None,
    }
    Some(())
}

/// Parses the values of both tiers.
fn of_tiers<T>(text: &str, between: char, parse: impl Fn(&str) -> Option<T>) -> Option<[T; 2]> {
    let (first, second) = text.split_once(between)?;
    Some([parse(first)?, parse(second)?])
}

fn arbiter(name: &str) -> Option<Arbiter> {
    match name {
        "tad" => Some(Arbiter::Tad),
        "rr" => Some(RR),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::SCENARIOS;
    use super::*;

    #[test]
    fn spare_setting_accepts_a_valid_value_and_refuses_an_invalid_one() {
        let new = || Setup::new(SCENARIOS[0], "none", 1);
        for (setting, good) in
            SETTINGS.iter().zip(["5", "1", "8+8", "2,3", "tad+rr", "4", "2+12", "p95", "60", "1+2"])
        {
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
        assert!(refusal.starts_with("there is no setting \"tax\"; choose one of rate, pattern"), "{refusal}");
    }

    #[test]
    fn spare_setting_out_of_range_is_refused_by_name() {
        for (key, value, name) in [
            ("rate", "0", "rate = 0"),
            ("rate", "NaN", "rate = NaN"),
            ("pattern", "4", "pattern = 4"),
            ("servers", "36+0", "servers = 0"),
            ("r", "2,9", "r = 9"),
            ("r", "0,1", "r = 0"),
            ("tokens", "1+0", "tokens = 0"),
            ("window", "0", "window = 0"),
            ("window", "3001", "window = 3001"),
            ("seconds", "1+0", "seconds of measurement = 0"),
        ] {
            let mut setup = Setup::new(SCENARIOS[0], "none", 1);
            setup.set(key, value).expect("it can be parsed");
            let refusal = setup.validate().expect_err("it is out of range").to_string();
            assert!(refusal.starts_with(&format!("cannot simulate with {name}: the accepted")), "{refusal}");
        }
        let unknown = Setup::new(SCENARIOS[0], "lru", 1).validate().unwrap_err().to_string();
        assert!(unknown.contains("no policy \"lru\"; choose one of none, quiet"), "{unknown}");
    }
}
