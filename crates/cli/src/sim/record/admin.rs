//! A client of a node's admin API that needs no more than a socket.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::exit::Failure;

/// A node's HTTP port.
#[derive(Clone)]
pub(super) struct Admin {
    /// Host and port.
    address: String,
    /// The header that shows a token, or nothing.
    authorization: String,
}

/// What an answer may take to come, and hold.
const PATIENCE: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 64 << 20;

impl Admin {
    /// The node at `http://host:port` or `host:port`, which may ask for a token.
    pub(super) fn at(url: &str, token: Option<&str>) -> Self {
        let address = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
        let authorization =
            token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        Self { address: address.to_owned(), authorization }
    }

    /// What the node shows at a path.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let body = self.ask("GET", path)?;
        serde_json::from_str(&body).map_err(|error| {
            self.failed(path, format!("the answer is not this version's: {error}; is it a node of Sherwood?"))
        })
    }

    /// The body of an answer that is no refusal.
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
        let mut stream = TcpStream::connect_timeout(&resolved, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // HTTP/1.0: the end of the answer is that of the connection.
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
