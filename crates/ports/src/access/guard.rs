//! Authentication of the HTTP port.
//!
//! A refused client gets a message about what is missing and loses the connection (over HTTP/2 only
//! the stream), so that each guess costs one; guessed tokens are not logged. Guesses are counted
//! but not delayed: a token is too long to be guessed, and a delay would occupy a connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tonic::{Code, Status};

use super::origin::{self, Foreign};
use super::tokens::Tokens;
use crate::http::Problem;

/// Paths that need no token; they tell only that the node is up.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Access rules of the HTTP port.
pub struct Guard {
    /// Tokens with full access; none if no token is required.
    pub tokens: Option<Tokens>,
    /// Tokens with read access.
    pub read_tokens: Option<Tokens>,
    /// Address that the HTTP port is bound to.
    pub bound: SocketAddr,
    /// A function that returns true for the paths of the dashboard's files, which need no token.
    pub is_page: fn(&str) -> bool,
    /// A function that returns true for the paths whose answers contain keys of clients, for which
    /// read access is not enough.
    pub tells_keys: fn(&str) -> bool,
}

/// Reason for refusing an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    NoToken,
    WrongToken,
    ReadOnly,
    NoKeys,
    Foreign(Foreign),
}

/// Numbers of refused requests by reason, and of failed TLS handshakes.
#[derive(Debug, Default)]
pub struct Refusals {
    requests: [AtomicU64; 4],
    handshakes: AtomicU64,
}

impl Refusals {
    /// Returns the number of refused requests for each reason.
    pub fn counts(&self) -> [(&'static str, u64); 4] {
        let count = |at: usize| self.requests[at].load(Relaxed);
        [("token", count(0)), ("read_only", count(1)), ("host", count(2)), ("origin", count(3))]
    }

    fn note(&self, why: Why) {
        let at = match why {
            Why::NoToken | Why::WrongToken => 0,
            Why::ReadOnly | Why::NoKeys => 1,
            Why::Foreign(Foreign::Host) => 2,
            Why::Foreign(Foreign::Origin) => 3,
        };
        self.requests[at].fetch_add(1, Relaxed);
    }

    /// Returns the number of failed TLS handshakes.
    pub fn handshakes(&self) -> u64 {
        self.handshakes.load(Relaxed)
    }

    /// Counts a failed TLS handshake.
    pub(crate) fn note_handshake(&self) {
        self.handshakes.fetch_add(1, Relaxed);
    }
}

impl Guard {
    /// Puts this guard in front of `router` and counts refused requests in `refusals`.
    pub fn stand_before(self: &Arc<Self>, router: Router, refusals: Arc<Refusals>) -> Router {
        router.layer(middleware::from_fn_with_state((Arc::clone(self), refusals), admit))
    }

    fn check(&self, request: &Request) -> Result<(), Why> {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if reads && OPEN.contains(&request.uri().path()) {
            return Ok(());
        }
        // A browser sends these by itself, and a page cannot forge them.
        if !reads {
            origin::check_change(request.uri(), request.headers()).map_err(Why::Foreign)?;
        }
        let Some(tokens) = &self.tokens else {
            return origin::check(request.uri(), request.headers(), self.bound).map_err(Why::Foreign);
        };
        // The dashboard's files have no data of the node. The page asks for a token, since a
        // browser sends none when it opens an address.
        if reads && (self.is_page)(request.uri().path()) {
            return Ok(());
        }
        let token = bearer(request.headers()).ok_or(Why::NoToken)?;
        if tokens.know(token) {
            return Ok(());
        }
        match &self.read_tokens {
            Some(tokens) if tokens.know(token) => {
                if !reads {
                    Err(Why::ReadOnly)
                } else if (self.tells_keys)(request.uri().path()) {
                    Err(Why::NoKeys)
                } else {
                    Ok(())
                }
            }
            _ => Err(Why::WrongToken),
        }
    }
}

async fn admit(
    State((guard, refusals)): State<(Arc<Guard>, Arc<Refusals>)>,
    request: Request,
    next: Next,
) -> Response {
    let is_grpc = request.version() == Version::HTTP_2;
    match guard.check(&request) {
        Ok(()) => next.run(request).await,
        Err(why) => {
            refusals.note(why);
            tracing::debug!("a request was refused: {why:?}");
            if is_grpc { grpc_refusal(why) } else { refusal(why) }
        }
    }
}

/// Token of a request with the header `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// The status and the message of a refusal.
fn answer(why: Why) -> (StatusCode, &'static str) {
    match why {
        Why::NoToken => (
            StatusCode::UNAUTHORIZED,
            "this node asks for a token: send the header `Authorization: Bearer TOKEN`",
        ),
        Why::WrongToken => (
            StatusCode::UNAUTHORIZED,
            "the token is none of this node's: send one of its token_file's in `Authorization: Bearer TOKEN`",
        ),
        Why::ReadOnly => {
            (StatusCode::FORBIDDEN, "this token may only read (GET): send one of the node's token_file")
        }
        Why::NoKeys => {
            (StatusCode::FORBIDDEN, "this token may not see clients' keys: send one of the node's token_file")
        }
        Why::Foreign(Foreign::Host) => (
            StatusCode::FORBIDDEN,
            "the Host header names another machine, as a page in a browser might have it: ask for 127.0.0.1 or localhost, \
             or have the node ask for tokens ([admin] token_file)",
        ),
        Why::Foreign(Foreign::Origin) => (
            StatusCode::FORBIDDEN,
            "the Origin or Sec-Fetch-Site header names another site, as a page in a browser might send it: ask without \
             them, or from this node's own page",
        ),
    }
}

fn grpc_refusal(why: Why) -> Response {
    let (status, error) = answer(why);
    let code =
        if status == StatusCode::UNAUTHORIZED { Code::Unauthenticated } else { Code::PermissionDenied };
    Status::new(code, error).into_http()
}

fn refusal(why: Why) -> Response {
    let (status, error) = answer(why);
    let mut response = Problem::new(status, error).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let challenge = match why {
        Why::NoToken => "Bearer realm=\"sherwood\"",
        Why::WrongToken => "Bearer realm=\"sherwood\", error=\"invalid_token\"",
        _ => return response,
    };
    headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_scheme_is_accepted_in_any_case() {
        let token = |value: &'static str| {
            let headers = [(header::AUTHORIZATION, HeaderValue::from_static(value))].into_iter().collect();
            bearer(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(token("Bearer abc"), Some(b"abc".to_vec()));
        assert_eq!(token("bEARER  abc "), Some(b"abc".to_vec()));
        assert_eq!(token("Bearer "), Some(Vec::new()));
        for other in ["", "Bearer", "Basic abc", "Bearerabc", "abc"] {
            assert_eq!(token(other), None, "{other:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
