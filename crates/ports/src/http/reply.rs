//! Replies of the admin API: JSON, and errors with a remedy.

use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, Path};
use axum::http::header::RETRY_AFTER;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// The body of an error reply.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemBody {
    /// Attempt, offending value, accepted range and remedy, in words.
    error: String,
}

/// An error reply of the admin API: `{"error": "…"}` and further fields for programs.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    body: serde_json::Value,
    /// Time after which the request may be sent again; none if that is not known.
    retry_in: Option<Duration>,
}

impl Problem {
    /// Creates a reply with an explanation.
    pub fn new(status: StatusCode, error: impl ToString) -> Self {
        Self { status, body: json!(ProblemBody { error: error.to_string() }), retry_in: None }
    }

    /// Creates a reply with status 400.
    pub fn bad_request(error: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    /// Creates a reply with status 404 that says that no `what` is called `name`, and lists the
    /// `known` names.
    pub fn not_found(what: &str, name: &str, known: &[String]) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            format!("no {what} is called {name:?}; there are: {}", listed(known)),
        )
    }

    /// Creates a reply with status 422.
    pub fn unprocessable(error: impl ToString) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, error)
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the explanation.
    pub fn error(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }

    /// Adds the time after which the request may be sent again: to the body in milliseconds
    /// (`retry_ms`), and as a header in whole seconds, rounded up.
    pub fn retry_in(self, retry_in: Duration) -> Self {
        Self { retry_in: Some(retry_in), ..self }.with("retry_ms", retry_in.as_secs_f64() * 1e3)
    }

    /// Adds a field to the body.
    pub fn with(mut self, field: &str, value: impl Into<serde_json::Value>) -> Self {
        self.body[field] = value.into();
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let seconds = self.retry_in.map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0));
        let header = seconds.map(|seconds| [(RETRY_AFTER, HeaderValue::from(seconds))]);
        (self.status, header, Json(self.body)).into_response()
    }
}

/// The parameters in a path. Malformed ones are answered with a [`Problem`] as well.
pub struct InPath<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for InPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(names)| Self(names)).map_err(|_| {
            let path = parts.uri.path();
            let error =
                format!("reading the path {path}: names and keys in it must be UTF-8, escaped with %");
            Problem::bad_request(error)
        })
    }
}

/// Lists at most twenty names in a message.
pub fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut text = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(", and {} more", names.len() - SHOWN));
    }
    text
}
