//! The login of a connection, before its first operation.

use std::fmt;
use std::io::{self, Read as _, Write as _};

use sherwood_wire::memcached::binary::HEADER_BYTES;
use sherwood_wire::memcached::binary::client::{self as binary, Progress, Reply};

use super::Protocol;
use super::socket::Socket;

/// A user and its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name of the user.
    pub user: String,
    /// The password, which is never printed.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Longest line of an answer, bytes.
const LINE_BYTES_MAX: usize = 4 << 10;

impl Login {
    /// Logs in: with `AUTH` in Redis's protocol, with the `set` command that memcached's text
    /// protocol uses for authentication, or with SASL in its binary protocol.
    ///
    /// # Errors
    /// I/O errors, and the target's answer if it refuses the login.
    pub(super) fn send(&self, protocol: Protocol, socket: &mut Socket) -> io::Result<()> {
        let Self { user, password } = self;
        let (request, accepted) = match protocol {
            Protocol::MemcachedBinary => return self.send_binary(socket),
            Protocol::Redis => (
                format!(
                    "*3\r\n$4\r\nAUTH\r\n${}\r\n{user}\r\n${}\r\n{password}\r\n",
                    user.len(),
                    password.len()
                ),
                "+OK",
            ),
            Protocol::Memcached => {
                let bytes = user.len() + 1 + password.len();
                (format!("set login 0 0 {bytes}\r\n{user} {password}\r\n"), "STORED")
            }
        };
        socket.write_all(request.as_bytes())?;
        socket.flush()?;
        let answer = line(socket)?;
        if answer == accepted { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, answer)) }
    }

    fn send_binary(&self, socket: &mut Socket) -> io::Result<()> {
        let mut bytes = Vec::new();
        binary::log_in(&mut bytes, &self.user, &self.password, [0; 4]);
        socket.write_all(&bytes)?;
        socket.flush()?;
        bytes.clear();
        let mut need = HEADER_BYTES;
        loop {
            let held = bytes.len();
            bytes.resize(need, 0);
            socket.read_exact(&mut bytes[held..])?;
            match binary::parse(&bytes, LINE_BYTES_MAX as u32).map_err(io::Error::other)? {
                Progress::Incomplete { need: more } => need = more,
                Progress::Reply { reply: Reply::Done, .. } => return Ok(()),
                Progress::Reply { reply: Reply::Error { text, .. }, .. } => {
                    let text = String::from_utf8_lossy(text).into_owned();
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
                }
                Progress::Reply { .. } => return Err(io::Error::other("the target answered no login")),
            }
        }
    }
}

/// Reads a line. Nothing follows it, since nothing else was asked.
fn line(socket: &mut Socket) -> io::Result<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\n") && bytes.len() < LINE_BYTES_MAX {
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        bytes.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}
