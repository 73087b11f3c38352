//! Reads the bodies of requests whole: each bounded in size and time, all together by the budget of
//! [`sherwood_process::buffers`].
//!
//! A body takes its part of the budget as it arrives, not by its announced length, so that
//! announcing a large body costs nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use futures_util::TryStreamExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::misread::Misread;
use super::reply::Problem;
use sherwood_process::buffers::{Buffers, Hold};

/// Largest body of a request, bytes.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// Longest key, bytes.
pub const KEY_BYTES_MAX: usize = 250;
/// Longest time from a request's head to the end of its body. Chosen: the largest body at a tenth
/// of a megabyte a second.
const BODY_TIMEOUT: Duration = Duration::from_secs(40);

/// Memory for each byte of a body: it is collected in a buffer that doubles as it grows.
const BODY_COPIES: usize = 2;

/// Server state with the budget of memory for bodies.
pub trait HasBuffers {
    /// Returns the budget of memory for bodies.
    fn buffers(&self) -> &Arc<Buffers>;
}

/// A whole body. One that is too large is refused with 413, one that is too slow with 408, and one
/// that exceeds the budget with 503.
#[derive(Debug)]
pub struct WholeBody {
    /// The bytes of the body.
    pub bytes: Vec<u8>,
    /// The body's part of the budget.
    pub hold: Hold,
}

impl<S: HasBuffers + Send + Sync> FromRequest<Arc<S>> for WholeBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Arc<S>) -> Result<Self, Problem> {
        read(request.into_body(), state.buffers(), BODY_BYTES_MAX, BODY_TIMEOUT).await
    }
}

impl WholeBody {
    /// Parses the body as JSON, whose texts the result may borrow.
    ///
    /// # Errors
    /// Names the JSON path of the problem.
    pub fn json<'de, T: Deserialize<'de>>(&'de self) -> Result<T, Problem> {
        json_at(without_mark(&self.bytes), "")
    }

    /// Reads a body of at most `bytes_max` as a value to store.
    pub async fn of_value(body: Body, buffers: &Arc<Buffers>, bytes_max: usize) -> Result<Self, Problem> {
        read(body, buffers, bytes_max, BODY_TIMEOUT).await
    }
}

/// Parses `json`, the part of a body at the JSON path `at`, which is empty for the whole body.
///
/// # Errors
/// Names the JSON path of the problem.
pub fn json_at<'de, T: Deserialize<'de>>(json: &'de [u8], at: &str) -> Result<T, Problem> {
    serde_json::from_slice(json).map_err(|_| refused(Misread::of::<T>(json), at))
}

/// Removes the byte order mark that some programs write before a JSON text.
pub fn without_mark(json: &[u8]) -> &[u8] {
    json.strip_prefix("\u{feff}".as_bytes()).unwrap_or(json)
}

async fn read(
    body: Body,
    buffers: &Arc<Buffers>,
    bytes_max: usize,
    longest: Duration,
) -> Result<WholeBody, Problem> {
    tokio::time::timeout(longest, gather(body, buffers, bytes_max)).await.unwrap_or_else(|_| {
        let error = format!("the body had not arrived after {longest:?}; send it faster, or less at once");
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, error))
    })
}

/// Collects the pieces of a body, within its bounds.
async fn gather(body: Body, buffers: &Arc<Buffers>, bytes_max: usize) -> Result<WholeBody, Problem> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large(bytes_max));
    }
    let mut whole = WholeBody { bytes: Vec::new(), hold: buffers.hold() };
    let mut pieces = body.into_data_stream();
    let failed = |error| Problem::bad_request(format!("reading the body: {error}"));
    while let Some(piece) = pieces.try_next().await.map_err(failed)? {
        if whole.bytes.len() + piece.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        if !whole.hold.take(BODY_COPIES * piece.len()) {
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, buffers.spent()));
        }
        whole.bytes.extend_from_slice(&piece);
    }
    Ok(whole)
}

fn too_large(bytes_max: usize) -> Problem {
    let error = format!("the body has more than {bytes_max} bytes, the most accepted here; send less");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, error)
}

/// A JSON object as the body. Errors name the JSON path of the problem.
pub struct JsonBody<T>(pub T);

impl<S: HasBuffers + Send + Sync, T: DeserializeOwned> FromRequest<Arc<S>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Arc<S>) -> Result<Self, Problem> {
        let body = WholeBody::from_request(request, state).await?;
        // Every such body is an object. A reader would take an array for the values of its fields.
        if without_mark(&body.bytes).trim_ascii_start().starts_with(b"[") {
            return Err(Problem::bad_request("reading the body: an array is not accepted; write an object"));
        }
        body.json().map(Self)
    }
}

/// Returns the reply to a body that was misread at or below the JSON path `at`.
fn refused(Misread { path, reason }: Misread, at: &str) -> Problem {
    let path = match (at, path.as_str()) {
        ("", _) => path,
        (at, ".") => at.to_owned(),
        (at, path) => format!("{at}.{path}"),
    };
    let place = if path == "." { String::new() } else { format!(", at {path}") };
    Problem::bad_request(format!("reading the body{place}: {reason}")).with("path", path)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures_util::{StreamExt, stream};

    use super::*;

    const KIB: usize = 1 << 10;

    fn piece() -> Result<Bytes, Infallible> {
        Ok(Bytes::from(vec![b'x'; 100 * KIB]))
    }

    fn read_whole(body: Body, buffers: &Arc<Buffers>, longest: Duration) -> Result<WholeBody, StatusCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(read(body, buffers, BODY_BYTES_MAX, longest)).map_err(|problem| problem.status())
    }

    #[test]
    fn endless_request_body_times_out_and_releases_its_buffers() {
        let buffers = Buffers::new(1 << 20);
        let never = Body::from_stream(stream::iter([piece()]).chain(stream::pending()));
        let refused = read_whole(never, &buffers, Duration::from_millis(1)).expect_err("no body");
        assert_eq!((refused, buffers.bytes()), (StatusCode::REQUEST_TIMEOUT, 0));
    }

    #[test]
    fn request_body_takes_buffer_budget_and_is_refused_without_it() {
        let buffers = Buffers::new(500 << 10);
        let pieces = |count| Body::from_stream(stream::iter((0..count).map(|_| piece())));
        let whole = read_whole(pieces(2), &buffers, BODY_TIMEOUT).expect("a body");
        assert_eq!(whole.bytes.len(), 200 * KIB);
        assert!((400 * KIB..=416 * KIB).contains(&(buffers.bytes() as usize)), "{}", buffers.bytes());
        assert!(whole.bytes.capacity() <= 400 * KIB);
        let refused = read_whole(pieces(1), &buffers, BODY_TIMEOUT).expect_err("no room");
        assert_eq!((refused, buffers.refused()), (StatusCode::SERVICE_UNAVAILABLE, 1));
        drop(whole);
        assert_eq!(buffers.bytes(), 0);
        read_whole(pieces(1), &buffers, BODY_TIMEOUT).expect("there is room again");
    }

    #[test]
    fn too_large_request_body_is_refused_by_its_length_or_as_it_arrives() {
        let buffers = Buffers::new(64 << 20);
        let announced = Body::from(vec![b'x'; BODY_BYTES_MAX + 1]);
        let growing = Body::from_stream(stream::repeat_with(piece));
        for body in [announced, growing] {
            let refused = read_whole(body, &buffers, BODY_TIMEOUT).expect_err("too large");
            assert_eq!((refused, buffers.bytes()), (StatusCode::PAYLOAD_TOO_LARGE, 0));
        }
    }
}
