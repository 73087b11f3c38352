//! The client of a node's admin API, over HTTP/1.1 with or without TLS.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;
use sherwood_store::{HttpConnector, TlsOptions};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::Access;
use super::url::NodeUrl;
use crate::exit::Failure;
use crate::token::TokenFile;

/// Largest answer: some thousand tenants with 16 resources each.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A client of one node, which keeps its connection open from one request to the next. Its methods
/// block.
pub(crate) struct AdminClient {
    url: NodeUrl,
    token_file: TokenFile,
    /// Longest time to connect, and between two parts of an answer.
    timeout: Duration,
    http: Client<HttpConnector, Full<Bytes>>,
    runtime: Runtime,
}

/// An answer, whatever its status.
struct Answer {
    status: StatusCode,
    body: Bytes,
}

impl AdminClient {
    /// Creates a client; it connects with the first request.
    ///
    /// # Errors
    /// If the file of authorities cannot be used.
    pub(super) fn open(url: NodeUrl, access: &Access, timeout: Duration) -> Result<Self, Failure> {
        let Access { token_file, ca } = access;
        let tls = TlsOptions { ca: ca.clone(), ..TlsOptions::default() };
        let connector = HttpConnector::open(url.is_secure, &tls, &["http/1.1"], timeout)
            .map_err(|error| Failure::usage(format!("--ca: {error}")))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::failed(format!("starting a runtime: {error}")))?;
        let http = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { url, token_file: token_file.clone(), timeout, http, runtime })
    }

    /// Sends a request without a body, and returns the answer.
    ///
    /// # Errors
    /// See [`ask`](Self::ask); also if the answer is not that of a node of this version.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.read(path, &self.ask("GET", path, "")?)
    }

    /// Sends a request without a body, and returns the answer; none if the node has nothing there.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        let answer = self.send("GET", path, "")?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        self.read(path, &self.accepted(answer)?).map(Some)
    }

    /// Sends a request with a body of JSON, and returns the answer.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Failure> {
        self.read(path, &self.ask("POST", path, &body.to_string())?)
    }

    /// Asks the node whether it serves.
    ///
    /// # Errors
    /// See [`ask`](Self::ask); also if the node is stopping.
    pub(crate) fn is_ready(&self) -> Result<(), Failure> {
        self.ask("GET", "/readyz", "").map(|_| ())
    }

    /// Sends a request, and returns the body of an answer that is no error.
    ///
    /// # Errors
    /// If the node cannot be reached, or its answer is an error, whose text is that of the node.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Result<Bytes, Failure> {
        self.accepted(self.send(method, path, body)?)
    }

    fn send(&self, method: &str, path: &str, body: &str) -> Result<Answer, Failure> {
        let mut request = Request::builder().method(method).uri(self.url.at(path));
        if let Some(token) = self.token_file.read()? {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::from(body.to_owned()));
        let request = request.map_err(|error| self.failed(&error))?;
        self.runtime.block_on(self.answer(request))
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let late = |_| {
            let seconds = self.timeout.as_secs();
            Failure::failed(format!("asking {}: no answer within {seconds} s", self.url.at("")))
        };
        let head = timeout(self.timeout, self.http.request(request)).await.map_err(late)?;
        let (head, body) = head.map_err(|error| self.failed(&error))?.into_parts();
        let (mut body, mut whole) = (Limited::new(body, ANSWER_BYTES_MAX), Vec::new());
        while let Some(frame) = timeout(self.timeout, body.frame()).await.map_err(late)? {
            let frame = frame.map_err(|error| self.failed(&*error))?;
            whole.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
        }
        Ok(Answer { status: head.status, body: whole.into() })
    }

    fn read<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, Failure> {
        serde_json::from_slice(body).map_err(|error| match error.classify() {
            Category::Data => super::other_form(path),
            _ => self.strange(),
        })
    }

    fn accepted(&self, Answer { status, body }: Answer) -> Result<Bytes, Failure> {
        if status.is_success() {
            return Ok(body);
        }
        let error: Value = serde_json::from_slice(&body).map_err(|_| self.strange())?;
        let error = error["error"].as_str().ok_or_else(|| self.strange())?;
        Err(Failure::failed(format!("{} answers {}: {error}", self.url.at(""), status.as_u16())))
    }

    fn failed(&self, error: &(dyn Error + 'static)) -> Failure {
        // The last cause says what happened; those around it are the layers of the client.
        let cause = std::iter::successors(Some(error), |&error| error.source()).last().unwrap_or(error);
        let NodeUrl { flag, .. } = self.url;
        Failure::failed(format!(
            "asking {}: {cause}; start a node there, or give its {flag}",
            self.url.at("")
        ))
    }

    fn strange(&self) -> Failure {
        Failure::failed(format!("asking {}: what answers is no node of sherwood", self.url.at("")))
    }
}

impl fmt::Debug for AdminClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminClient").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_node_is_reported_in_its_words() {
        let url = NodeUrl::parse("--url", "http://n:1").unwrap();
        let node = AdminClient::open(url, &Access::default(), Duration::from_secs(1)).unwrap();
        let accepted = |status: u16, body: &'static str| {
            node.accepted(Answer { status: StatusCode::from_u16(status).unwrap(), body: Bytes::from(body) })
        };
        assert_eq!(accepted(200, "ok\n").unwrap(), "ok\n");
        let Err(Failure::Failed(said)) = accepted(409, "{\"error\":\"no tenants\"}") else {
            panic!("it is an error")
        };
        assert_eq!(said, "http://n:1 answers 409: no tenants");
        let Err(Failure::Failed(said)) = node.read::<u64>("/v1/slo", b"{}") else { panic!("it was taken") };
        assert!(
            said.starts_with("reading /v1/slo: ") && said.contains("another form than that of "),
            "{said}"
        );
        for strange in [accepted(500, "<html>").map(|_| Value::Null), node.read("/v1/slo", b"<html>")] {
            let Err(Failure::Failed(said)) = strange else { panic!("it was taken") };
            assert!(said.ends_with("no node of sherwood"), "{said}");
        }
    }
}
