//! A minimal client of a node's admin API on a plain socket.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::exit::Failure;

/// The HTTP port of a node.
#[derive(Clone)]
pub(super) struct Admin {
    /// Host and port.
    address: String,
    /// The authorization header with a token, or nothing.
    authorization: String,
}

/// Timeout of a request, and the largest answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 64 << 20;

impl Admin {
    /// Creates a client for the node at `http://host:port` or `host:port`, with its token if
    /// required.
    pub(super) fn at(url: &str, token: Option<&str>) -> Self {
        let address = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
        let authorization =
            token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        Self { address: address.to_owned(), authorization }
    }

    /// Sends `GET` for a path and parses the JSON answer.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let body = self.ask("GET", path)?;
        serde_json::from_str(&body).map_err(|error| {
            self.failed(path, format!("the answer is not this version's: {error}; is it a node of Sherwood?"))
        })
    }

    /// Sends a request and returns the body of a successful answer.
    pub(super) fn ask(&self, method: &str, path: &str) -> Result<String, Failure> {
        let answer = self.talk(method, path).map_err(|error| {
            self.failed(path, format!("{error}; is a node's admin API there? give its address with --node"))
        })?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
        match status {
            Some(200..=299) => Ok(body.to_owned()),
            Some(404) => {
                Err(self.failed(path, "it is not there: the node is too old to be recorded".to_owned()))
            }
            _ => {
                Err(self
                    .failed(path, format!("{}: {}", head.lines().next().unwrap_or_default(), body.trim())))
            }
        }
    }

    fn talk(&self, method: &str, path: &str) -> std::io::Result<String> {
        let resolved = self.address.to_socket_addrs()?.next();
        let resolved = resolved.ok_or_else(|| std::io::Error::other("the name has no address"))?;
        let mut stream = TcpStream::connect_timeout(&resolved, ANSWER_TIMEOUT)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        // In HTTP/1.0 the answer ends with the connection.
        let Self { address, authorization } = self;
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: {address}\r\n{authorization}Content-Length: 0\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn failed(&self, path: &str, detail: String) -> Failure {
        Failure::failed(format!("asking http://{}{path}: {detail}", self.address))
    }
}
