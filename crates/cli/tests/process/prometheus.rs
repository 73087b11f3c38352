//! Prometheus as a process, and the receiver of its alerts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use serde_json::Value;

use crate::page::free_port;
use crate::support::TIMEOUT;

/// A running Prometheus; its process is killed with the test.
pub(crate) struct Prometheus {
    process: Child,
    address: String,
}

impl Prometheus {
    /// Starts Prometheus with the configuration `prometheus.yml` in `directory`, which receives its
    /// data as well, and with these options.
    pub(crate) fn start(directory: &Path, options: &[&str]) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", directory.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, address }
    }

    /// Returns the samples of an expression as `[labels, value]`, or the error. None as long as
    /// Prometheus does not answer.
    pub(crate) fn query(&self, expression: &str) -> Option<Result<Vec<Value>, String>> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = ask(&self.address, "GET", &format!("/api/v1/query?query={encoded}"), "")?;
        let answer: Value = serde_json::from_str(&answer).ok()?;
        Some(match answer["status"].as_str() {
            Some("success") => Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default()),
            _ => Err(answer.to_string()),
        })
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the body of an answer; none if nothing answers at this address. The old version of HTTP
/// keeps servers from answering in chunks.
pub(crate) fn ask(address: &str, method: &str, path: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}

/// Stands in for an Alertmanager. Returns its address and the alerts that it receives.
pub(crate) fn receive_alerts() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, alerts) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A request ends early when Prometheus does.
            let _ = receive(stream.unwrap(), &sender);
        }
    });
    (address, alerts)
}

fn receive(stream: TcpStream, sender: &Sender<Value>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? <= "\r\n".len() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length is a number");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")?;
    let alerts: Value = serde_json::from_slice(&body).expect("alerts are JSON");
    for alert in alerts.as_array().expect("alerts are a list") {
        // The test may have ended.
        let _ = sender.send(alert.clone());
    }
    Ok(())
}
