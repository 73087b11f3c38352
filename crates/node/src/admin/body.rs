//! Bodies of requests, read whole: bounded in size by the router, in time here.

use std::time::Duration;

use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;

use super::reply::Problem;
use crate::gateway::BODY_BYTES_MAX;

/// Longest time from a request's head to the end of its body. Chosen: the largest body at a tenth of a megabyte a second.
const BODY_TIMEOUT: Duration = Duration::from_secs(40);

/// A whole body. One that is too large is refused with 413, one that is too slow with 408.
pub(crate) struct WholeBody(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for WholeBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read(request, BODY_TIMEOUT).await.map(Self)
    }
}

async fn read(request: Request, longest: Duration) -> Result<Bytes, Problem> {
    match tokio::time::timeout(longest, request.extract::<Bytes, _>()).await {
        Ok(body) => body.map_err(refused),
        Err(_) => {
            let error =
                format!("the body had not arrived after {longest:?}; send it faster, or less at once");
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, error))
        }
    }
}

fn refused(error: BytesRejection) -> Problem {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let error = format!("the body has more than {BODY_BYTES_MAX} bytes; split it");
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, error);
    }
    Problem::bad_request(format!("reading the body: {}", error.body_text()))
}

/// A JSON body; whatever is wrong with it is said with its JSON path.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let WholeBody(body) = WholeBody::from_request(request, state).await?;
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

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::stream;

    use super::*;

    #[test]
    fn a_body_that_never_ends_is_given_up() {
        let never = stream::pending::<Result<Bytes, std::convert::Infallible>>();
        let request = Request::new(Body::from_stream(never));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let problem = runtime.block_on(read(request, Duration::from_millis(1))).expect_err("no body");
        assert_eq!(problem.status(), StatusCode::REQUEST_TIMEOUT);
    }
}
