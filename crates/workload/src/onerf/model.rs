//! The workload model and its JSON document.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sherwood_model::{BackendId, misread};
use thiserror::Error;

use super::backend::BackendModel;
use super::mix::RequestMix;
use super::replay::Replay;
use super::scenario::Scenario;
use super::validate::{self, Invalid};
use crate::unique;

/// A validated workload model; about 60 KB, immutable.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Schema of the document, checked before the rest is read.
    #[serde(rename = "schema")]
    pub(super) _schema: IgnoredAny,
    pub(super) name: String,
    /// Free-form notes of the document's author.
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
    pub(super) backends: Vec<BackendModel>,
    pub(super) request_types: Option<Vec<RequestType>>,
    pub(super) trace: Option<Replay>,
    #[serde(deserialize_with = "unique::map")]
    pub(super) scenarios: BTreeMap<String, Scenario>,
}

/// The service level objective that the model is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// Percentile of request latency that is limited, above 0 and below 100.
    pub percentile: f64,
    /// Largest latency that meets the objective, in milliseconds.
    pub limit_ms: f64,
    /// Time span of the requests in one observation, in seconds.
    pub window_s: f64,
    /// Seconds from one observation to the next.
    pub every_s: f64,
}

/// A scale at which the model is run: servers, cache size and request rate.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Application servers, each with its own cache; 1 to 1,024.
    pub app_servers: u32,
    /// Requests per second that query at least one backend, over all servers; Poisson arrivals. 0
    /// where a trace has the arrival times.
    #[serde(default)]
    pub request_rate: f64,
    /// Cache size of each server, in bytes.
    pub cache_bytes_per_server: u64,
    /// Granularity of allocations, in bytes.
    pub alloc_granularity_bytes: u64,
    /// Least allocation of a partition, in bytes.
    pub alloc_floor_bytes: u64,
    /// True if the model's expectations were checked by simulation at this scale.
    #[serde(default)]
    pub verified: bool,
}

/// A type of request: `(probability, batches)`. Probabilities are among requests that query at
/// least one backend.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RequestType(pub f64, pub Vec<Batching>);

/// Number of objects that a request of some type reads from one backend.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Vec<f64>")]
pub enum Batching {
    /// The same number of objects in every request.
    Fixed {
        /// The backend's number in the document, from 1.
        backend: u16,
        /// Number of objects, 1 to the model's `max_batch`.
        objects: u32,
    },
    /// A random number: round(median exp(sigma z)) with z standard normal, clamped to 1 and the
    /// model's `max_batch`.
    LogNormal {
        /// The backend's number in the document, from 1.
        backend: u16,
        /// Median number of objects.
        median: f64,
        /// Standard deviation of the logarithm of the number of objects.
        sigma: f64,
    },
}

/// Reason why a workload model, or a part of it, was refused.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ModelError {
    /// The text is not JSON, or a field is missing, unknown or mistyped. The detail names line and
    /// column.
    #[error("reading the workload model: {detail}; the expected shape is schema `{SCHEMA}`")]
    Shape {
        /// Message of the JSON reader.
        detail: String,
    },
    /// The document is of another schema or version.
    #[error("reading the workload model: schema is `{found}`; this version reads `{SCHEMA}`")]
    Schema {
        /// The schema that the document names.
        found: String,
    },
    /// A value is out of its range.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The model has no profile or scenario of that name.
    #[error("the workload model has no {what} `{name}`; it has: {known}")]
    Unknown {
        /// Kind of the name: `profile` or `scenario`.
        what: &'static str,
        /// The unknown name that was given.
        name: String,
        /// The known names, separated by commas.
        known: String,
    },
    /// Requests cannot be drawn, since the model names a trace.
    #[error("the workload model has no request types to draw from: its requests are in the trace {file}")]
    Recorded {
        /// Name of the trace file.
        file: String,
    },
}

/// Default of a document's `max_batch`.
const fn max_batch() -> u32 {
    65_535
}

/// The schema that this module reads.
pub(super) const SCHEMA: &str = "onerf-workload/1";

/// JSON document of the built-in model.
const ONERF: &str = include_str!("../../data/onerf.json");

impl Model {
    /// Returns the built-in model: 20 backends, 320 request types, fitted to the figures published
    /// by RobinHood's authors.
    #[must_use]
    pub fn onerf() -> Self {
        Self::from_json(ONERF).expect("the model built in is valid; a test reads it")
    }

    /// Reads and validates a document of schema `onerf-workload/1`.
    ///
    /// # Errors
    /// If the text is not of that schema or a value is out of its range; the error names the place
    /// and the range.
    pub fn from_json(text: &str) -> Result<Self, ModelError> {
        let shape = |error: serde_json::Error| ModelError::Shape { detail: misread::json_file(&error) };
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

    /// The objective that the model is meant for.
    #[must_use]
    pub const fn slo(&self) -> Slo {
        self.slo
    }

    /// Timeout of a query: an unanswered query fails then, and its request's latency counts as that
    /// long.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout_ms / 1e3)
    }

    /// Latency of a request whose queries all hit, where no real cache is measured.
    #[must_use]
    pub fn hit_latency(&self) -> Duration {
        Duration::from_secs_f64(self.hit_latency_ms / 1e3)
    }

    /// The largest number of objects that a request reads from one backend.
    #[must_use]
    pub const fn max_batch(&self) -> u32 {
        self.max_batch
    }

    /// Share of requests that query no backend among all; [`RequestMix`] does not generate them.
    #[must_use]
    pub const fn empty_request_fraction(&self) -> f64 {
        self.empty_request_fraction
    }

    /// The model's scales, by name.
    #[must_use]
    pub const fn profiles(&self) -> &BTreeMap<String, Profile> {
        &self.profiles
    }

    /// Returns the scale called `name`.
    ///
    /// # Errors
    /// If there is none; the error lists the known names.
    pub fn profile(&self, name: &str) -> Result<&Profile, ModelError> {
        named(&self.profiles, "profile", name)
    }

    /// The backends; `BackendId(0)` is the first.
    #[must_use]
    pub fn backends(&self) -> &[BackendModel] {
        &self.backends
    }

    /// Returns the backend `id`.
    ///
    /// # Panics
    /// If the model has no such backend.
    #[must_use]
    pub fn backend(&self, id: BackendId) -> &BackendModel {
        &self.backends[id.index()]
    }

    /// The types of requests; their probabilities sum to 1 within 1e-7. Empty where requests come
    /// from a trace.
    #[must_use]
    pub fn request_types(&self) -> &[RequestType] {
        self.request_types.as_deref().unwrap_or_default()
    }

    /// The trace that requests come from; none if they are drawn.
    #[must_use]
    pub const fn replay(&self) -> Option<&Replay> {
        self.trace.as_ref()
    }

    /// The model's scenarios of slowdowns, by name.
    #[must_use]
    pub const fn scenarios(&self) -> &BTreeMap<String, Scenario> {
        &self.scenarios
    }

    /// Returns the slowdown called `name`.
    ///
    /// # Errors
    /// If there is none; the error lists the known names.
    pub fn scenario(&self, name: &str) -> Result<&Scenario, ModelError> {
        named(&self.scenarios, "scenario", name)
    }

    /// Returns a generator of this model's requests with the catalogues of `profile`.
    ///
    /// # Errors
    /// If there is no such profile, or requests come from a trace.
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

/// The schema of a document, read first, so that a document of another schema is reported as such
/// and not as unknown fields.
#[derive(Deserialize)]
struct Tag {
    schema: String,
}

impl Batching {
    /// The backend that the request queries.
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
