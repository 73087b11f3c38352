//! Clients of the node: its admin API, and a connection that sets keys.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use sherwood_wire::memcached::client::{self, Answer, Item, Key};
use sherwood_wire::memcached::{Exptime, StorageVerb};

/// A partition in the admin API.
pub(crate) struct Partition {
    pub(crate) name: String,
    pub(crate) allocated_bytes: u64,
    pub(crate) used_bytes: u64,
}

/// A kept-alive connection to the admin API.
pub(crate) struct Admin {
    stream: BufReader<TcpStream>,
    names: Vec<String>,
}

impl Admin {
    pub(crate) fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut admin = Self { stream: BufReader::new(stream), names: Vec::new() };
        admin.names = admin.partitions()?.into_iter().map(|partition| partition.name).collect();
        Ok(admin)
    }

    pub(crate) fn partitions(&mut self) -> io::Result<Vec<Partition>> {
        let answer = self.ask("GET", "/v1/partitions", "")?;
        let partition = |value: &Value| {
            Some(Partition {
                name: value["name"].as_str()?.to_owned(),
                allocated_bytes: value["allocated_bytes"].as_u64()?,
                used_bytes: value["used_bytes"].as_u64()?,
            })
        };
        let partitions = answer.as_array().and_then(|all| all.iter().map(partition).collect());
        partitions.ok_or_else(|| io::Error::other(format!("these are no partitions: {answer}")))
    }

    pub(crate) fn resize(&mut self, partition: usize, bytes: u64) -> io::Result<()> {
        let path = format!("/v1/partitions/{}", self.names[partition]);
        self.ask("PUT", &path, &format!("{{\"allocated_bytes\":{bytes}}}")).map(drop)
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> io::Result<Value> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: node\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.stream.get_mut().write_all((head + body).as_bytes())?;
        let (mut status, mut length) = (String::new(), 0);
        self.stream.read_line(&mut status)?;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            match line.trim_end().to_ascii_lowercase().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().map_err(io::Error::other)?,
                Some(_) => {}
                None => break,
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        if !status.contains(" 200 ") {
            let answer = String::from_utf8_lossy(&answer);
            return Err(io::Error::other(format!("{method} {path}: {} {answer}", status.trim_end())));
        }
        serde_json::from_slice(&answer).map_err(io::Error::other)
    }
}

/// A connection that sets keys without waiting for each.
pub(crate) struct Filler {
    stream: TcpStream,
    out: Vec<u8>,
    value: Vec<u8>,
}

/// Number of bytes of buffered sets above which they are sent.
const OUT_BYTES: usize = 64 << 10;

impl Filler {
    pub(crate) fn connect(address: &str, value_bytes: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, out: Vec::new(), value: vec![b'v'; value_bytes] })
    }

    pub(crate) fn set(&mut self, key: &str) -> io::Result<()> {
        let key = Key::new(key.as_bytes()).map_err(io::Error::other)?;
        let item = Item { value: &self.value, flags: 0, exptime: Exptime(0) };
        client::store(&mut self.out, StorageVerb::Set, key, item, Answer::Unwanted);
        if self.out.len() >= OUT_BYTES { self.send() } else { Ok(()) }
    }

    /// Returns when the node has executed every set.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.out.extend_from_slice(b"version\r\n");
        self.send()?;
        let (mut line, mut byte) = (Vec::new(), [0]);
        while byte != *b"\n" {
            self.stream.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        if line.starts_with(b"VERSION") {
            return Ok(());
        }
        Err(io::Error::other(format!("the node answered {:?}", String::from_utf8_lossy(&line))))
    }

    fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }
}
