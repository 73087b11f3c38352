//! Number of replicas of a backend.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::validate::{Verdict, known_profile, require};
use crate::unique;

/// Largest number of replicas; a simulation keeps a queue for each.
const REPLICAS_MAX: u64 = 64;

/// Replicas of a backend: one number for all profiles, or one for each; 1 if not given.
///
/// The JSON value is kept as written until it is validated, so that the error can name its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replicas(Option<Value>);

impl Replicas {
    /// Number of replicas at the scale of `profile`, 1 to 64.
    #[must_use]
    pub fn at(&self, profile: &str) -> u16 {
        let written = match &self.0 {
            Some(Value::Object(each)) => each.get(profile),
            all => all.as_ref(),
        };
        written.and_then(number).unwrap_or(1)
    }

    pub(super) fn validate<T>(&self, at: &str, profiles: &BTreeMap<String, T>) -> Verdict {
        match &self.0 {
            None => Ok(()),
            Some(Value::Object(each)) => {
                each.keys().try_for_each(|profile| known_profile(at, profile, profiles))?;
                profiles.keys().try_for_each(|profile| {
                    let at = || format!("{at}.{profile}");
                    let Some(written) = each.get(profile) else {
                        return require(false, at, "missing", "given for every profile");
                    };
                    require(
                        number(written).is_some(),
                        at,
                        written,
                        format!("a whole number from 1 to {REPLICAS_MAX}"),
                    )
                })
            }
            Some(written) => require(
                number(written).is_some(),
                || at.to_owned(),
                written,
                format!("a whole number from 1 to {REPLICAS_MAX}, or one for every profile"),
            ),
        }
    }
}

impl<'de> Deserialize<'de> for Replicas {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

/// Accepts any JSON except maps that repeat a key.
struct Written;

impl<'de> Visitor<'de> for Written {
    type Value = Replicas;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of replicas, or one for every profile")
    }

    fn visit_unit<E: Error>(self) -> Result<Replicas, E> {
        Ok(Replicas(None))
    }

    fn visit_bool<E: Error>(self, written: bool) -> Result<Replicas, E> {
        Ok(Replicas(Some(written.into())))
    }

    fn visit_u64<E: Error>(self, written: u64) -> Result<Replicas, E> {
        Ok(Replicas(Some(written.into())))
    }

    fn visit_i64<E: Error>(self, written: i64) -> Result<Replicas, E> {
        Ok(Replicas(Some(written.into())))
    }

    fn visit_f64<E: Error>(self, written: f64) -> Result<Replicas, E> {
        Ok(Replicas(Some(written.into())))
    }

    fn visit_str<E: Error>(self, written: &str) -> Result<Replicas, E> {
        Ok(Replicas(Some(written.into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Replicas, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(|list| Replicas(Some(Value::Array(list))))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Replicas, A::Error> {
        let each: BTreeMap<String, Value> = unique::entries(map)?;
        Ok(Replicas(Some(each.into_iter().collect())))
    }
}

fn number(written: &Value) -> Option<u16> {
    written.as_u64().filter(|number| (1..=REPLICAS_MAX).contains(number)).map(|number| number as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replicas(written: &str) -> Replicas {
        serde_json::from_str(written).expect("any JSON")
    }

    #[test]
    fn replicas_are_one_number_or_one_per_profile_and_default_to_one() {
        let profiles = BTreeMap::from([("day".to_owned(), ()), ("night".to_owned(), ())]);
        for (written, day, night) in [("null", 1, 1), ("64", 64, 64), (r#"{"day":3,"night":1}"#, 3, 1)] {
            let replicas = replicas(written);
            assert_eq!(replicas.validate("at", &profiles), Ok(()), "{written}");
            assert_eq!((replicas.at("day"), replicas.at("night")), (day, night), "{written}");
        }
        assert_eq!(Replicas::default().at("day"), 1);
    }

    #[test]
    fn invalid_number_of_replicas_is_refused_with_its_place() {
        let profiles = BTreeMap::from([("day".to_owned(), ())]);
        for (written, said) in [
            ("0", "at is 0; it must be a whole number from 1 to 64, or one for every profile"),
            ("65", "at is 65; it must be a whole number from 1 to 64, or one for every profile"),
            ("1.5", "at is 1.5; it must be a whole number from 1 to 64, or one for every profile"),
            (r#""two""#, r#"at is "two"; it must be a whole number from 1 to 64, or one for every profile"#),
            ("{}", "at.day is missing; it must be given for every profile"),
            (r#"{"day":1,"night":2}"#, "at.night is of a profile there is not; it must be of one of: day"),
            (r#"{"day":-1}"#, "at.day is -1; it must be a whole number from 1 to 64"),
            (r#"{"day":[2]}"#, "at.day is [2]; it must be a whole number from 1 to 64"),
        ] {
            let error = replicas(written).validate("at", &profiles).expect_err(written).to_string();
            assert_eq!(error, format!("workload model: {said}"));
        }
    }
}
