//! Errors of JSON texts and of query parameters, in words for people.

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use serde::de::value::{Error as ValueError, MapDeserializer};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use sherwood_model::misread::{self, Format, Place, reworded};

use super::reply::Problem;

/// The problem of a JSON text that has not the form of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misread {
    /// JSON path of the offending value; `.` for the whole text.
    pub path: String,
    /// The value, the accepted form and the remedy.
    pub reason: String,
}

impl Misread {
    /// Returns the problem of `json`, which could not be read as a `T`. It is read a second time,
    /// since tracking the path takes time that valid texts need not spend.
    pub fn of<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Self {
        let mut reader = serde_json::Deserializer::from_slice(json);
        match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(error) => Self { path: error.path().to_string(), reason: misread::json(error.inner()) },
            Ok(_) => {
                let end = reader.end().map_err(|error| misread::json(&error));
                let reason = end.err().unwrap_or_else(|| "the text could not be read".to_owned());
                Self { path: ".".to_owned(), reason }
            }
        }
    }
}

/// The parameters of a URL's query. Unknown ones, and values of another form, are answered with a
/// [`Problem`].
#[derive(Debug)]
pub struct InQuery<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for InQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let pairs: Result<Query<Vec<(String, String)>>, QueryRejection> = Query::try_from_uri(&parts.uri);
        let Query(pairs) = pairs.map_err(|_| {
            Problem::bad_request("reading the query: write it as name=value, joined by &, escaped with %")
        })?;
        let pairs = pairs.iter().map(|(name, value)| (name.as_str(), Parameter(value)));
        let map = MapDeserializer::<_, ValueError>::new(pairs);
        serde_path_to_error::deserialize(map).map(Self).map_err(|error| {
            let reason = reworded(&error.inner().to_string(), Format::Query, Place::default());
            match error.path().to_string().as_str() {
                "." => Problem::bad_request(format!("reading the query: {reason}")),
                name => {
                    Problem::bad_request(format!("reading the query, at {name}: {reason}")).with("path", name)
                }
            }
        })
    }
}

/// The value of a parameter: a text that may be read as a number or as a truth value.
struct Parameter<'de>(&'de str);

impl<'de> IntoDeserializer<'de, ValueError> for Parameter<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Reads a parameter as a value of a type that the standard library parses.
macro_rules! parsed {
    ($($read:ident $visit:ident)*) => {$(
        fn $read<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
            match self.0.parse() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(ValueError::invalid_type(Unexpected::Str(self.0), &visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Parameter<'de> {
    type Error = ValueError;

    parsed! {
        deserialize_bool visit_bool
        deserialize_u32 visit_u32
        deserialize_u64 visit_u64
        deserialize_i64 visit_i64
        deserialize_f64 visit_f64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u128 f32 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        step_s: Option<u64>,
        for_s: Option<f64>,
        all: Option<bool>,
        tenant: Option<String>,
    }

    fn asked(query: &str) -> Result<Asked, String> {
        let request = Request::builder().uri(format!("/?{query}")).body(()).expect("a request");
        let mut parts = request.into_parts().0;
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let read = runtime.block_on(InQuery::<Asked>::from_request_parts(&mut parts, &()));
        read.map(|InQuery(asked)| asked).map_err(|problem| problem.error().to_owned())
    }

    #[test]
    fn query_parameter_is_read_by_its_type_or_refused_with_its_name_and_value() {
        let whole =
            Asked { step_s: Some(5), for_s: Some(0.5), all: Some(true), tenant: Some("7 a".to_owned()) };
        assert_eq!(asked("step_s=5&for_s=0.5&all=true&tenant=7%20a"), Ok(whole));
        for (query, refused) in [
            ("step_s=x", "at step_s: \"x\" is not accepted; write a whole number (at least 0)"),
            ("step_s=-1", "at step_s: \"-1\" is not accepted; write a whole number (at least 0)"),
            ("for_s=", "at for_s: \"\" is not accepted; write a number"),
            ("all=1", "at all: \"1\" is not accepted; write true or false"),
            (
                "step=1",
                "unknown parameter `step`; the parameters here are step_s, for_s, all, tenant: did you",
            ),
            ("all=true&all=true", "the parameter `all` is written twice; remove one"),
        ] {
            let error = asked(query).expect_err("it is wrong");
            assert!(error.starts_with("reading the query") && error.contains(refused), "{error}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_refused_with_its_place() {
        let reason = |json: &str| Misread::of::<Vec<u8>>(json.as_bytes()).reason;
        assert_eq!(reason(""), "there is no JSON; write a JSON value");
        assert_eq!(reason("[1"), "the JSON ends within a value, line 1, column 2; complete it");
        assert_eq!(reason("[x]"), "this is not JSON, line 1, column 2: no value; write valid JSON");
        assert_eq!(
            reason("[] 1"),
            "this is not JSON, line 1, column 4: more text after the value; write valid JSON"
        );
        let misread = Misread::of::<Vec<u8>>(b"[1, 300]");
        assert_eq!(misread.path, "[1]");
        assert_eq!(misread.reason, "300 is not accepted; write a whole number (0 to 255)");
    }
}
