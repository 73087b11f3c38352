//! Answers of the admin API: JSON, and errors that say what to do.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An error as the admin API answers it: `{"error": "…"}` and whatever helps a program beside it.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    body: serde_json::Value,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, error: impl ToString) -> Self {
        Self { status, body: json!({ "error": error.to_string() }) }
    }

    pub(crate) fn bad_request(error: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    pub(crate) fn not_found(what: &str, name: &str, known: &[String]) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            format!("no {what} is called {name:?}; there are: {}", listed(known)),
        )
    }

    pub(crate) fn unprocessable(error: impl ToString) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, error)
    }

    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The same with another field in its body.
    pub(crate) fn with(mut self, field: &str, value: impl Into<serde_json::Value>) -> Self {
        self.body[field] = value.into();
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

/// Names for people, at most twenty of them.
pub(crate) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut text = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(", and {} more", names.len() - SHOWN));
    }
    text
}
