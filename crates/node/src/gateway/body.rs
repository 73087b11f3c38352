//! The bodies of `POST /v1/requests`: requests and answers.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sherwood_config::STALE_OK_MAX;
use sherwood_model::deadline_within;
use sherwood_ports::http::{KEY_BYTES_MAX, Misread, Text};

use super::json;

/// Upper bound of the values in one answer, bytes.
pub(crate) const VALUES_BYTES_MAX: usize = 16 << 20;
/// Upper bound of queries in a request.
pub(crate) const QUERIES_MAX: usize = 256;
/// Upper bound of keys in a request, over all its queries.
pub(crate) const KEYS_MAX: usize = 16_384;
/// Upper bound of the memory for one key beside its text: look-up state, its part of the answer,
/// and an error of some length.
const KEY_OVERHEAD_BYTES: usize = 1024;
/// Upper bound of a class name, bytes.
pub(crate) const CLASS_BYTES_MAX: usize = 64;

/// A request of `POST /v1/requests`, as parsed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object with `queries`")]
#[schemars(rename = "Request")]
pub(crate) struct AskedRequest<'a> {
    /// A name for requests of this kind, counted in the metrics.
    #[serde(borrow)]
    pub(crate) class: Option<Text<'a>>,
    /// The tenant whose partitions are looked up; the default tenant where absent.
    #[serde(borrow)]
    pub(crate) tenant: Option<Text<'a>>,
    /// Time from arrival by which the client wants all answers, above 0 and up to 24 hours.
    pub(crate) deadline_ms: Option<f64>,
    /// True, the default, if the answer carries the values.
    pub(crate) values: Option<bool>,
    /// The queries, all looked up in parallel; none if the request has stages.
    #[serde(borrow)]
    queries: Option<Vec<AskedQuery<'a>>>,
    /// Stages of queries, of which each starts when the one before has ended.
    #[serde(borrow)]
    stages: Option<Vec<Vec<AskedQuery<'a>>>>,
}

/// A query of a request, as parsed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object with `backend` and `keys`")]
#[schemars(rename = "Query")]
pub(crate) struct AskedQuery<'a> {
    /// Name of a configured backend.
    #[serde(borrow)]
    pub(crate) backend: Cow<'a, str>,
    /// The keys to look up.
    #[serde(borrow)]
    pub(crate) keys: Vec<Text<'a>>,
    /// Time from arrival by which the client wants the query's answers. The earlier one counts if
    /// the request has a deadline, too.
    pub(crate) deadline_ms: Option<f64>,
    /// Longest staleness of a value that is used when the backend is late or fails, up to 7 days; 0
    /// where absent.
    pub(crate) stale_ok_ms: Option<f64>,
    /// True if a failure of this query does not count against the request.
    pub(crate) best_effort: Option<bool>,
}

/// The answer to a request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Answer")]
pub(crate) struct RequestAnswer<'a> {
    /// Time from arrival to the answer of the last key.
    pub(crate) latency_ms: f64,
    /// Name of the backend of the slowest query.
    pub(crate) blocking_backend: Option<&'a str>,
    /// The answers for the keys, in the order of the request.
    pub(crate) results: Vec<KeyAnswer<'a>>,
}

/// The answer for one key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KeyAnswer")]
pub(crate) struct KeyAnswer<'a> {
    /// Name of the backend.
    pub(crate) backend: &'a str,
    /// The key that was looked up.
    pub(crate) key: &'a str,
    /// `hit`, `stale` (cached and no longer fresh), `miss` (fetched from the backend), `rejected`
    /// (no room for it at the backend, in the answer or in the node), `timeout`, `error` or
    /// `not_found`.
    #[schemars(extend("enum" = ["hit", "stale", "miss", "rejected", "timeout", "error", "not_found"]))]
    pub(crate) status: &'static str,
    /// The value, unless the request said `"values": false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<Cow<'a, str>>,
    /// Length of `value` as JSON.
    #[serde(skip)]
    pub(crate) value_bytes: usize,
    /// The encoding of `value`: `utf8` or `base64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) encoding: Option<&'static str>,
    /// Time from the request's arrival to the answer for this key.
    pub(crate) latency_ms: f64,
    /// Staleness of a `stale` value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) age_ms: Option<f64>,
    /// True if the query has a deadline and this answer came after it.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) late: bool,
    /// Time after which an answer was expected, if the key was rejected because of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expected_ms: Option<f64>,
    /// The reason there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A value, in the encoding that an answer carries it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form<'a> {
    /// UTF-8 text that is written unchanged.
    Utf8(&'a str),
    /// Bytes that are written in base64.
    Base64(&'a [u8]),
}

impl<'a> Form<'a> {
    /// Returns the form for `value`: text if it is UTF-8.
    #[must_use]
    pub(crate) fn of(value: &'a [u8]) -> Self {
        std::str::from_utf8(value).map_or(Self::Base64(value), Self::Utf8)
    }

    /// Returns the length of the value as JSON, bytes.
    #[must_use]
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Utf8(text) => json::text_bytes(text),
            Self::Base64(value) => 2 + 4 * value.len().div_ceil(3),
        }
    }

    /// Returns the memory for writing the value as `bytes` bytes of JSON: base64 is encoded first
    /// and copied afterwards.
    #[must_use]
    pub(crate) fn memory_bytes(self, bytes: usize) -> usize {
        match self {
            Self::Utf8(_) => bytes,
            Self::Base64(_) => 2 * bytes,
        }
    }

    /// Returns the value as text and the name of the encoding.
    #[must_use]
    pub(crate) fn text(self) -> (Cow<'a, str>, &'static str) {
        match self {
            Self::Utf8(text) => (Cow::Borrowed(text), "utf8"),
            Self::Base64(value) => (Cow::Owned(BASE64.encode(value)), "base64"),
        }
    }
}

/// The reason a request to the gateway was not run.
#[derive(Debug, thiserror::Error, PartialEq)]
pub(crate) enum Refusal {
    /// The body does not follow the format of `POST /v1/requests`.
    #[error("reading the request{}: {reason}", place(.path))]
    Malformed {
        /// JSON path of the offending value.
        path: String,
        /// Problem with the value.
        reason: String,
    },
    /// A header that says by when the answers are wanted has no such meaning.
    #[error("reading the header {name}: {reason}")]
    Header {
        /// The header's name.
        name: &'static str,
        /// Problem with the header's value.
        reason: String,
    },
    /// The request belongs to no tenant.
    #[error("the request names no tenant, and none is called default; known: {known}")]
    NoTenant {
        /// Names that the configuration has.
        known: String,
    },
    /// A name that is not in the configuration.
    #[error("{what} {name:?} is not known here; known: {known}")]
    Unknown {
        /// JSON path of the name.
        path: String,
        /// `backend`, `class` or `tenant`.
        what: &'static str,
        /// The unknown name.
        name: String,
        /// Names that the configuration has.
        known: String,
    },
}

impl AskedRequest<'_> {
    /// Parses a request and checks everything that does not depend on the configuration.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] with the JSON path of the problem.
    pub(crate) fn parse(body: &[u8]) -> Result<AskedRequest<'_>, Refusal> {
        let asked: AskedRequest<'_> = serde_json::from_slice(body).map_err(|_| {
            let Misread { path, reason } = Misread::of::<AskedRequest<'_>>(body);
            Refusal::Malformed { path, reason }
        })?;
        asked.check()?;
        Ok(asked)
    }

    /// Upper bound of the request's memory beside its body of `body` bytes and the values of its
    /// answer, bytes: a second copy of its keys, a third one in the answer, and the state and
    /// output for each key.
    pub(crate) fn bytes_max(&self, body: usize) -> usize {
        2 * body + KEY_OVERHEAD_BYTES * (1 + self.keys())
    }

    /// Returns the queries of each stage; those of a request without stages are one.
    pub(crate) fn stages(&self) -> impl Iterator<Item = &[AskedQuery<'_>]> {
        let stages = self.stages.iter().flatten().map(Vec::as_slice);
        self.queries.as_deref().into_iter().chain(stages)
    }

    /// Returns the JSON path of a query.
    pub(crate) fn path(&self, stage: usize, query: usize) -> String {
        match self.stages {
            Some(_) => format!("stages[{stage}][{query}]"),
            None => format!("queries[{query}]"),
        }
    }

    fn keys(&self) -> usize {
        self.stages().flatten().map(|query| query.keys.len()).sum()
    }

    fn check(&self) -> Result<(), Refusal> {
        check_deadline(self.deadline_ms, || "deadline_ms".to_owned())?;
        if self.class.as_ref().is_some_and(|class| class.len() > CLASS_BYTES_MAX) {
            return Err(malformed("class", format!("a class is at most {CLASS_BYTES_MAX} bytes")));
        }
        let field = if self.stages.is_some() { "stages" } else { "queries" };
        if self.queries.is_some() == self.stages.is_some() {
            let reason = "a request has either `queries` or `stages`, a list of lists of queries";
            return Err(malformed(field, reason.to_owned()));
        }
        let (stages, queries) = (self.stages().count(), self.stages().flatten().count());
        if queries.max(stages) > QUERIES_MAX {
            let reason = format!(
                "{queries} queries in {stages} stages; a request has at most {QUERIES_MAX} of either"
            );
            return Err(malformed(field, reason));
        }
        let keys = self.keys();
        if keys > KEYS_MAX {
            return Err(malformed(field, format!("{keys} keys; a request has at most {KEYS_MAX}")));
        }
        let mut stages = self.stages().enumerate();
        stages.try_for_each(|(stage, queries)| {
            let mut queries = queries.iter().enumerate();
            queries.try_for_each(|(at, query)| query.check(|| self.path(stage, at)))
        })
    }
}

impl AskedQuery<'_> {
    /// Returns the longest staleness of a value that the query accepts.
    pub(crate) fn stale_ok(&self) -> Duration {
        self.stale_ok_ms.map_or(Duration::ZERO, |ms| Duration::from_secs_f64(ms / 1e3))
    }

    fn check(&self, path: impl Fn() -> String) -> Result<(), Refusal> {
        check_deadline(self.deadline_ms, || format!("{}.deadline_ms", path()))?;
        if self.stale_ok_ms.is_some_and(|ms| !(0.0..=STALE_OK_MAX.as_millis() as f64).contains(&ms)) {
            let most = STALE_OK_MAX.as_millis();
            let reason = format!("a stale value may be 0 to {most} ms (7 days) past its freshness");
            return Err(malformed(&format!("{}.stale_ok_ms", path()), reason));
        }
        match self.keys.iter().position(|key| key.is_empty() || key.len() > KEY_BYTES_MAX) {
            Some(j) => {
                let reason = format!("a key of {} bytes; keys have 1 to {KEY_BYTES_MAX}", self.keys[j].len());
                Err(malformed(&format!("{}.keys[{j}]", path()), reason))
            }
            None => Ok(()),
        }
    }
}

/// Returns the JSON path of a refusal as its text has it.
fn place(path: &str) -> String {
    if path == "." { String::new() } else { format!(", at {path}") }
}

fn malformed(path: &str, reason: String) -> Refusal {
    Refusal::Malformed { path: path.to_owned(), reason }
}

fn check_deadline(ms: Option<f64>, path: impl FnOnce() -> String) -> Result<(), Refusal> {
    match ms.map(deadline_within) {
        Some(Err(error)) => Err(malformed(&path(), error.to_string())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &str) -> String {
        AskedRequest::parse(body.as_bytes()).expect_err("refused").to_string()
    }

    #[test]
    fn refusal_of_a_request_body_names_the_json_path() {
        assert!(refusal(r#"{"queries":[{"backend":"a","keys":[1]}]}"#).contains("queries[0].keys[0]"));
        assert!(refusal(r#"{"queries":[{"backend":"a"}]}"#).contains("the key `keys` is missing"));
        assert!(refusal(r#"{"queries":[],"extra":1}"#).contains("unknown key `extra`"));
        for ms in ["0", "-1", "-0.0", "86400000.1", "1e300"] {
            let refused = refusal(&format!(r#"{{"queries":[],"deadline_ms":{ms}}}"#));
            assert!(
                refused.contains("at most 86400000 ms") && refused.contains(", at deadline_ms: "),
                "{refused}"
            );
        }
        for ms in ["NaN", "1e999", r#""5""#] {
            let body = format!(r#"{{"queries":[{{"backend":"a","keys":[],"deadline_ms":{ms}}}]}}"#);
            assert!(refusal(&body).contains("queries[0].deadline_ms"), "{}", refusal(&body));
        }
        assert!(refusal(r#"{"queries":[{"backend":"a","keys":["k",""]}]}"#).contains("queries[0].keys[1]"));
        assert!(refusal(r#"{"queries":[]} trailing"#).contains("more text after the value"));
        assert!(refusal("").contains("there is no JSON"));
        assert!(refusal("[]").contains("write an object with `queries`"));
        assert!(refusal(r#"{"queries":[7]}"#).contains("write an object with `backend` and `keys`"));
    }

    #[test]
    fn request_has_queries_or_stages_and_a_refusal_names_the_stage() {
        for body in ["{}", r#"{"queries":[],"stages":[]}"#] {
            assert!(refusal(body).contains("either `queries` or `stages`"), "{}", refusal(body));
        }
        let body = r#"{"stages":[[],[{"backend":"a","keys":["k"]},{"backend":"a","keys":[""]}]]}"#;
        assert!(refusal(body).contains("stages[1][1].keys[0]"), "{}", refusal(body));
        let stages = vec!["[]"; QUERIES_MAX + 1].join(",");
        assert!(refusal(&format!(r#"{{"stages":[{stages}]}}"#)).contains("in 257 stages"));
    }

    #[test]
    fn keys_borrow_from_the_request_body_unless_escaped() {
        let body = r#"{"queries":[{"backend":"a","keys":["plain","\u006b\"ey"]}]}"#;
        let asked = AskedRequest::parse(body.as_bytes()).expect("sound");
        let [plain, escaped] = asked.stages().next().expect("a stage")[0].keys.as_slice() else {
            panic!("two keys")
        };
        assert!(matches!(plain.0, Cow::Borrowed("plain")), "{plain:?}");
        assert_eq!(&**escaped, "k\"ey");
    }

    #[test]
    fn values_that_are_not_utf8_are_base64() {
        assert_eq!(Form::of(b"plain").text(), ("plain".into(), "utf8"));
        assert_eq!(Form::of(&[0xff, 0]).text(), ("/wA=".into(), "base64"));
        assert_eq!((Form::of(b"plain").bytes(), Form::of(&[0xff, 0]).bytes()), (7, 6));
    }
}
