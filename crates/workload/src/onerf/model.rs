//! The document as a whole.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sherwood_model::BackendId;
use thiserror::Error;

use super::backend::Backend;
use super::mix::RequestMix;
use super::replay::Replay;
use super::scenario::Scenario;
use super::validate::{self, Invalid};
use crate::unique;

/// A validated workload model; about 60 KB, immutable once read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Checked before the rest is read.
    #[serde(rename = "schema")]
    pub(super) _schema: IgnoredAny,
    pub(super) name: String,
    /// What whoever made the document had to say.
    #[serde(rename = "notes")]
    pub(super) _notes: Option<IgnoredAny>,
    pub(super) slo: Slo,
    pub(super) timeout_ms: f64,
    pub(super) hit_latency_ms: f64,
    #[serde(default = "max_batch")]
    pub(super) max_batch: u32,
    #[serde(default)]
    pub(super) empty_request_fraction: f64,
    #[serde(deserialize_with = "unique::map")]
    pub(super) profiles: BTreeMap<String, Profile>,
    pub(super) backends: Vec<Backend>,
    pub(super) request_types: Option<Vec<RequestType>>,
    pub(super) trace: Option<Replay>,
    #[serde(deserialize_with = "unique::map")]
    pub(super) scenarios: BTreeMap<String, Scenario>,
}

/// The service level objective the model is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// Percentile of request latency, above 0 and below 100.
    pub percentile: f64,
    /// An observation above this many milliseconds is a violation.
    pub limit_ms: f64,
    /// Seconds of requests an observation looks back on.
    pub window_s: f64,
    /// Seconds from one observation to the next.
    pub every_s: f64,
}

/// A scale of the model.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Application servers, each with its own cache; 1 to 1,024.
    pub app_servers: u32,
    /// Requests per second that ask at least one backend, over all servers; Poisson. 0 where a
    /// trace says when.
    #[serde(default)]
    pub request_rate: f64,
    /// Cache of each server, in bytes.
    pub cache_bytes_per_server: u64,
    /// Step in which allocations are made, in bytes.
    pub alloc_granularity_bytes: u64,
    /// Least allocation of a partition, in bytes.
    pub alloc_floor_bytes: u64,
    /// Whether the model's expectations were checked by simulation at this scale.
    #[serde(default)]
    pub verified: bool,
}

/// A kind of request: `(probability, batches)`. Probabilities are among requests that ask at least
/// one backend.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RequestType(pub f64, pub Vec<Batching>);

/// How many objects a request of some type asks of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Vec<f64>")]
pub enum Batching {
    /// Always the same number.
    Fixed {
        /// The backend's number in the document, from 1.
        backend: u16,
        /// Objects, 1 to the model's `max_batch`.
        objects: u32,
    },
    /// round(median exp(sigma z)) with z standard normal, clamped to 1 and the model's `max_batch`.
    LogNormal {
        /// The backend's number in the document, from 1.
        backend: u16,
        /// Median number of objects.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

/// Why a workload model, or a part of it, was refused.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ModelError {
    /// Not JSON, or not of the expected shape: a missing, unknown or mistyped field. The detail
    /// names line and column.
    #[error("reading the workload model: {detail}; the expected shape is schema `{SCHEMA}`")]
    Shape {
        /// What the JSON reader said.
        detail: String,
    },
    /// A document of another schema or version.
    #[error("reading the workload model: schema is `{found}`; this version reads `{SCHEMA}`")]
    Schema {
        /// The document's tag.
        found: String,
    },
    /// A value out of its range.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The model has no profile or scenario of that name.
    #[error("the workload model has no {what} `{name}`; it has: {known}")]
    Unknown {
        /// `profile` or `scenario`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// The names there are, separated by commas.
        known: String,
    },
    /// Requests cannot be drawn: they are in a trace.
    #[error("the workload model has no request types to draw from: its requests are in the trace {file}")]
    Recorded {
        /// The trace's name.
        file: String,
    },
}

/// What a request asks of one backend at most, where a document sets no bound.
const fn max_batch() -> u32 {
    65_535
}

/// The schema this module reads.
pub(super) const SCHEMA: &str = "onerf-workload/1";

/// The document built in.
const ONERF: &str = include_str!("../../data/onerf.json");

impl Model {
    /// The model built in: 20 backends, 320 request types, fitted to the figures RobinHood's
    /// authors published.
    #[must_use]
    pub fn onerf() -> Self {
        Self::from_json(ONERF).expect("the model built in is valid; a test reads it")
    }

    /// Reads and validates a document of schema `onerf-workload/1`.
    ///
    /// # Errors
    /// When the text is not of that schema or a value is out of its range; the error names the
    /// place and the range.
    pub fn from_json(text: &str) -> Result<Self, ModelError> {
        let shape = |error: serde_json::Error| ModelError::Shape { detail: error.to_string() };
        let tag: Tag = serde_json::from_str(text).map_err(shape)?;
        if tag.schema != SCHEMA {
            return Err(ModelError::Schema { found: tag.schema });
        }
        let model: Self = serde_json::from_str(text).map_err(shape)?;
        validate::model(&model)?;
        Ok(model)
    }

    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The objective the model is meant for.
    #[must_use]
    pub const fn slo(&self) -> Slo {
        self.slo
    }

    /// A query not answered by then fails, and its request counts as that long.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout_ms / 1e3)
    }

    /// Latency of a request whose queries all hit, where no real cache measures its own.
    #[must_use]
    pub fn hit_latency(&self) -> Duration {
        Duration::from_secs_f64(self.hit_latency_ms / 1e3)
    }

    /// The most objects a request asks of one backend.
    #[must_use]
    pub const fn max_batch(&self) -> u32 {
        self.max_batch
    }

    /// Share, of all requests, of those that ask no backend; [`RequestMix`] does not generate them.
    #[must_use]
    pub const fn empty_request_fraction(&self) -> f64 {
        self.empty_request_fraction
    }

    /// The scales, by name.
    #[must_use]
    pub const fn profiles(&self) -> &BTreeMap<String, Profile> {
        &self.profiles
    }

    /// The scale called `name`.
    ///
    /// # Errors
    /// When there is none; the error names those there are.
    pub fn profile(&self, name: &str) -> Result<&Profile, ModelError> {
        named(&self.profiles, "profile", name)
    }

    /// The backends; `BackendId(0)` is the first.
    #[must_use]
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// The backend `id`.
    ///
    /// # Panics
    /// When the model has no such backend.
    #[must_use]
    pub fn backend(&self, id: BackendId) -> &Backend {
        &self.backends[id.index()]
    }

    /// The kinds of requests; their probabilities sum to 1 within 1e-7. Empty where requests come
    /// from a trace.
    #[must_use]
    pub fn request_types(&self) -> &[RequestType] {
        self.request_types.as_deref().unwrap_or_default()
    }

    /// The trace that requests come from, if they are not drawn.
    #[must_use]
    pub const fn replay(&self) -> Option<&Replay> {
        self.trace.as_ref()
    }

    /// The slowdowns, by name.
    #[must_use]
    pub const fn scenarios(&self) -> &BTreeMap<String, Scenario> {
        &self.scenarios
    }

    /// The slowdown called `name`.
    ///
    /// # Errors
    /// When there is none; the error names those there are.
    pub fn scenario(&self, name: &str) -> Result<&Scenario, ModelError> {
        named(&self.scenarios, "scenario", name)
    }

    /// A generator of this model's requests with the catalogues of `profile`.
    ///
    /// # Errors
    /// When there is no such profile, or requests come from a trace.
    pub fn mix(&self, profile: &str) -> Result<RequestMix, ModelError> {
        self.profile(profile)?;
        if let Some(replay) = &self.trace {
            return Err(ModelError::Recorded { file: replay.file.clone() });
        }
        Ok(RequestMix::new(self, profile))
    }
}

fn named<'a, T>(all: &'a BTreeMap<String, T>, what: &'static str, name: &str) -> Result<&'a T, ModelError> {
    all.get(name).ok_or_else(|| {
        let known = all.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        ModelError::Unknown { what, name: name.to_owned(), known }
    })
}

/// Read first, so that another schema is called that and not a list of unknown fields.
#[derive(Deserialize)]
struct Tag {
    schema: String,
}

impl Batching {
    /// The backend asked.
    #[must_use]
    pub const fn backend(&self) -> BackendId {
        let (Self::Fixed { backend, .. } | Self::LogNormal { backend, .. }) = *self;
        BackendId(backend - 1)
    }
}

impl TryFrom<Vec<f64>> for Batching {
    type Error = String;

    fn try_from(entry: Vec<f64>) -> Result<Self, String> {
        let whole = |number: f64| {
            ((1.0..=65_535.0).contains(&number) && number.fract() == 0.0).then_some(number as u16)
        };
        let parsed = match entry[..] {
            [backend, objects] => whole(backend)
                .zip(whole(objects))
                .map(|(backend, objects)| Self::Fixed { backend, objects: u32::from(objects) }),
            [backend, median, sigma] => {
                whole(backend).map(|backend| Self::LogNormal { backend, median, sigma })
            }
            _ => None,
        };
        parsed.ok_or_else(|| {
            format!("request type entry {entry:?} is neither [backend, objects] nor [backend, median, sigma] with whole backend and objects from 1")
        })
    }
}
