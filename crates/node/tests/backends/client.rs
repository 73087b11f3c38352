//! A client of the node's HTTP port that keeps its connection open, as application servers do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// Longest wait for an answer; reached only when a test fails.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct Client(BufReader<TcpStream>);

/// A response of the node's HTTP port.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The header `sherwood-session`.
    pub(crate) session: Option<String>,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the node listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time-out above zero");
        stream.set_nodelay(true).expect("it is open");
        Self(BufReader::new(stream))
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> Answer {
        self.ask_with(method, path, "", body)
    }

    /// Sends a request with further headers, each ending with CRLF.
    #[track_caller]
    pub(crate) fn ask_with(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        self.try_ask(method, path, headers, body).expect("the node answers")
    }

    /// Sends a request like [`Client::ask_with`], to a node that may end before it has answered.
    ///
    /// # Errors
    /// If the connection ends before the end of the answer.
    pub(crate) fn try_ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> io::Result<Answer> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        self.0.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let (mut length, mut session) = (0, None);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(bytes) = line.strip_prefix("content-length:") {
                length = bytes.trim().parse().expect("a length");
            }
            if let Some(text) = line.strip_prefix("sherwood-session:") {
                session = Some(text.trim().to_owned());
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(Answer { status, session, body: String::from_utf8(body).expect("text") })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(line.to_owned())
    }

    /// Sends one request for these keys of each backend. Returns its results, in the order of the
    /// keys.
    #[track_caller]
    pub(crate) fn read<'a>(
        &mut self,
        queries: impl IntoIterator<Item = (&'a str, Vec<String>)>,
    ) -> Vec<Value> {
        let query = |(backend, keys): (&str, Vec<String>)| json!({"backend": backend, "keys": keys});
        let queries: Vec<Value> = queries.into_iter().map(query).collect();
        let answer = self.ask("POST", "/v1/requests", &json!({ "queries": queries }).to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["results"].as_array().expect("a result for each key").clone()
    }

    pub(crate) fn write(&mut self, backend: &str, key: &str, value: &str) -> Answer {
        self.ask("PUT", &format!("/v1/keys/{backend}/{key}"), value)
    }

    pub(crate) fn remove(&mut self, backend: &str, key: &str) -> Answer {
        self.ask("DELETE", &format!("/v1/keys/{backend}/{key}"), "")
    }

    /// Removes keys from the cache.
    #[track_caller]
    pub(crate) fn invalidate(&mut self, backend: &str, keys: &[String]) {
        let body = json!({"backend": backend, "keys": keys}).to_string();
        let answer = self.ask("POST", "/v1/invalidate", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}
