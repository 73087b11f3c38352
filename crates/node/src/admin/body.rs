//! Bodies of the admin API, read whole and within a bound.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;

use super::reply::Problem;

/// A JSON body; whatever is wrong with it is said with its JSON path.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = Bytes::from_request(request, state).await.map_err(Problem::bad_request)?;
        let mut json = serde_json::Deserializer::from_slice(&body);
        let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            Problem::bad_request(format!("reading the body: {}, at {path}", error.into_inner()))
                .with("path", path)
        })?;
        json.end().map_err(|error| Problem::bad_request(format!("reading the body: {error}")))?;
        Ok(Self(value))
    }
}
