//! Requests to the admin API of a node, over plain HTTP.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;

use crate::exit::Failure;
use crate::token::TokenFile;

/// Longest time to connect, and between two parts of an answer, by default.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Largest answer: some thousand tenants with 16 resources each.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The node whose admin API is asked.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdminNode {
    /// The node's admin API
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", global = true)]
    url: String,
    #[command(flatten)]
    token_file: TokenFile,
    /// Longest time to connect, and between two parts of an answer.
    #[arg(skip = TIMEOUT)]
    timeout: Duration,
}

impl AdminNode {
    /// Limits the time to connect, and between two parts of an answer.
    pub(crate) fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the URL as it was given.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request without a body, and returns the answer.
    ///
    /// # Errors
    /// See [`exchange`](Self::exchange).
    pub(crate) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.exchange("GET", path, "")
    }

    /// Sends a request with a body of JSON, and returns the answer.
    ///
    /// # Errors
    /// See [`exchange`](Self::exchange).
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.exchange("POST", path, &body.to_string())
    }

    /// Asks the node whether it serves.
    ///
    /// # Errors
    /// See [`exchange`](Self::exchange); also if the node is stopping.
    pub(crate) fn is_ready(&self) -> Result<(), Failure> {
        self.accepted(&self.send("GET", "/readyz", "")?).map(|_| ())
    }

    /// # Errors
    /// If the URL is invalid, the node cannot be reached, or its answer is an error, whose text is
    /// that of the node.
    fn exchange(&self, method: &str, path: &str, body: &str) -> Result<Value, Failure> {
        self.read(&self.send(method, path, body)?)
    }

    fn send(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>, Failure> {
        let host = host(&self.url)?;
        let bearer = self.token_file.read()?;
        let bearer = bearer.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{bearer}Content-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        talk(host, &request, self.timeout).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Failure::failed(format!("asking {}: no answer within {} s", self.url, self.timeout.as_secs()))
            }
            _ => Failure::failed(format!(
                "asking {}: {error}; start a node there, or give its --url",
                self.url
            )),
        })
    }

    /// Returns the JSON of an answer.
    fn read(&self, answer: &[u8]) -> Result<Value, Failure> {
        serde_json::from_slice(self.accepted(answer)?).map_err(|_| self.strange())
    }

    /// Returns the body of an answer that is no error.
    fn accepted<'a>(&self, answer: &'a [u8]) -> Result<&'a [u8], Failure> {
        let strange = || self.strange();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or_else(strange)?;
        let head = std::str::from_utf8(&answer[..end]).map_err(|_| strange())?;
        let status = head.split(' ').nth(1).ok_or_else(strange)?;
        let body = &answer[end + 4..];
        if status.starts_with('2') {
            return Ok(body);
        }
        let error: Value = serde_json::from_slice(body).map_err(|_| strange())?;
        let error = error["error"].as_str().ok_or_else(strange)?;
        Err(Failure::failed(format!("{} answers {status}: {error}", self.url)))
    }

    fn strange(&self) -> Failure {
        Failure::failed(format!("asking {}: what answers is no node of sherwood", self.url))
    }
}

/// Returns the host and port of an URL.
fn host(url: &str) -> Result<&str, Failure> {
    let invalid =
        || Failure::usage(format!("--url {url:?} is no URL of a node; write it as http://127.0.0.1:8080"));
    let host = url.strip_prefix("http://").ok_or_else(invalid)?;
    let host = host.strip_suffix('/').unwrap_or(host);
    let (name, port) = host.rsplit_once(':').ok_or_else(invalid)?;
    let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@".contains(&byte));
    if name.is_empty() || !is_plain || port.parse::<u16>().is_err() {
        return Err(invalid());
    }
    Ok(host)
}

fn talk(host: &str, request: &str, timeout: Duration) -> io::Result<Vec<u8>> {
    let address = host.to_socket_addrs()?.next();
    let address =
        address.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_of_a_node_has_a_host_and_a_port() {
        assert_eq!(host("http://127.0.0.1:8080/").unwrap(), "127.0.0.1:8080");
        assert_eq!(host("http://[::1]:80").unwrap(), "[::1]:80");
        for url in ["127.0.0.1:8080", "https://a:1", "http://a", "http://:1", "http://a:1/v1", "http://a b:1"]
        {
            let Err(Failure::Usage(said)) = host(url) else { panic!("{url} was taken") };
            assert!(said.contains("http://127.0.0.1:8080"), "{said}");
        }
    }

    #[test]
    fn error_of_a_node_is_reported_in_its_words() {
        let node =
            AdminNode { url: "http://n:1".to_owned(), token_file: TokenFile::default(), timeout: TIMEOUT };
        let read = |answer: &str| node.read(answer.as_bytes());
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\n[1]").unwrap(), serde_json::json!([1]));
        let Err(Failure::Failed(said)) = read("HTTP/1.1 409 Conflict\r\n\r\n{\"error\":\"no tenants\"}")
        else {
            panic!("it is an error")
        };
        assert_eq!(said, "http://n:1 answers 409: no tenants");
        assert_eq!(node.accepted(b"HTTP/1.1 200 OK\r\n\r\nok\n").unwrap(), b"ok\n");
        for answer in ["", "HTTP/1.1 200 OK\r\n\r\n<html>", "x\r\n\r\n1"] {
            let Err(Failure::Failed(said)) = read(answer) else { panic!("{answer:?} was taken") };
            assert!(said.ends_with("no node of sherwood"), "{said}");
        }
    }
}
