//! Settings of a comparison, one of which may have several values.

use super::flags::key_and_value;
use crate::exit::Failure;

/// The settings of a comparison, one of which may have several values.
pub(super) struct Sweep {
    /// The key of the setting with several values, and its values.
    pub(super) swept: Option<(String, Vec<String>)>,
    /// The other settings.
    pub(super) fixed: Vec<String>,
}

impl Sweep {
    /// Reads settings whose values are lists, with `values` as the list of a key and its value.
    pub(super) fn of(
        settings: &[String],
        values: impl Fn(&str, &str) -> Vec<String>,
    ) -> Result<Self, Failure> {
        let mut sweep = Self { swept: None, fixed: Vec::new() };
        for setting in settings {
            let (key, value) = key_and_value(setting)?;
            let values = values(key, value);
            if values.len() == 1 {
                sweep.fixed.push(setting.clone());
            } else if let Some((swept, _)) = &sweep.swept {
                return Err(Failure::usage(format!(
                    "--set {setting}: {swept} has several values already; give one setting a list"
                )));
            } else {
                sweep.swept = Some((key.to_owned(), values));
            }
        }
        Ok(sweep)
    }

    /// Returns each value with all settings.
    pub(super) fn values(&self) -> Vec<(Option<String>, Vec<String>)> {
        let Some((key, values)) = &self.swept else { return vec![(None, self.fixed.clone())] };
        let with = |value: &String| {
            let settings = self.fixed.iter().cloned().chain([format!("{key}={value}")]);
            (Some(value.clone()), settings.collect())
        };
        values.iter().map(with).collect()
    }
}

/// Returns the value as the only one of a setting, for commands without a sweep.
pub(super) fn single(_key: &str, value: &str) -> Vec<String> {
    vec![value.to_owned()]
}

/// Returns the values of a list, which are separated by commas.
pub(super) fn listed(_key: &str, value: &str) -> Vec<String> {
    value.split(',').map(str::to_owned).collect()
}
