//! TLS connections: sockets whose bytes are encrypted on their way.
//!
//! [`TlsSockets`] wraps a thread's sockets, so that connections, conversations and the event loop
//! know nothing of encryption. The TLS records of a connection are kept in its session, within
//! [`CONNECTION_BYTES_MAX`].

use std::cell::RefCell;
use std::fmt;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection};

use super::connection::retry;
use super::sockets::{Event, Peer, Socket, Sockets};

/// Bytes to be encrypted that a session takes before the system has taken what it encrypted.
const OUTPUT_BYTES: usize = 32 << 10;
/// Bytes of a record: at most 16 KiB of data, and what encryption adds.
const RECORD_BYTES: usize = 17 << 10;
/// Largest message of a handshake, which is assembled from records.
const HANDSHAKE_BYTES: usize = 64 << 10;
/// Most bytes of a connection's TLS buffers: a message of the handshake, records that have arrived
/// and what they contain, and encrypted output.
pub const CONNECTION_BYTES_MAX: usize = HANDSHAKE_BYTES + 4 * RECORD_BYTES + OUTPUT_BYTES;
/// Reads in a row without data for the listener, after which a connection is closed: several
/// handshakes need fewer.
const EMPTY_READS_MAX: usize = 256;

/// TLS settings of a listener's new connections.
pub trait ServerTls: fmt::Debug + Send + Sync {
    /// Returns the current settings, whose certificates may have been replaced.
    fn current(&self) -> Arc<ServerConfig>;
}

/// Sockets whose connections speak TLS.
pub(super) struct TlsSockets<S> {
    sockets: S,
    tls: Arc<dyn ServerTls>,
}

impl<S> TlsSockets<S> {
    pub(super) fn new(sockets: S, tls: Arc<dyn ServerTls>) -> Self {
        Self { sockets, tls }
    }
}

impl<S: Sockets> Sockets for TlsSockets<S> {
    type Socket = TlsSocket<S::Socket>;

    fn accept(&mut self) -> io::Result<Self::Socket> {
        TlsSocket::new(self.sockets.accept()?, self.tls.current())
    }

    fn stop_accepting(&mut self) {
        self.sockets.stop_accepting();
    }

    fn watch(&mut self, socket: &Self::Socket, token: u64) -> io::Result<()> {
        self.sockets.watch(&socket.socket, token)
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        self.sockets.wait(events, timeout)
    }
}

/// A connection that speaks TLS over `socket`.
pub(super) struct TlsSocket<S: Socket> {
    socket: S,
    session: RefCell<Session>,
}

struct Session {
    tls: ServerConnection,
    /// 1 while the session holds encrypted output that the system has not taken: the last byte of
    /// it is reported as sent only afterwards, so that whoever sends waits for room, and sends that
    /// byte again.
    unreported: usize,
}

impl<S: Socket> TlsSocket<S> {
    /// Begins the session of a connection that was accepted.
    fn new(socket: S, config: Arc<ServerConfig>) -> io::Result<Self> {
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(OUTPUT_BYTES));
        Ok(Self { socket, session: RefCell::new(Session { tls, unreported: 0 }) })
    }

    /// Passes received bytes to `take`, at most `room` of them and as many as have arrived.
    fn receive_into(&self, room: usize, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        let tls = &mut self.session.borrow_mut().tls;
        let (mut received, mut empty_reads) = (0, 0);
        while received < room {
            match tls.reader().fill_buf() {
                Ok([]) => return self.ended(received),
                Ok(data) => {
                    let bytes = data.len().min(room - received);
                    take(&data[..bytes]);
                    tls.reader().consume(bytes);
                    received += bytes;
                    empty_reads = 0;
                    continue;
                }
                // The client has gone without saying so: commands carry their own ends.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return self.ended(received),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            empty_reads += 1;
            let more = match self.read_records(tls) {
                Ok(()) if empty_reads > EMPTY_READS_MAX => Err(invalid("too many records without data")),
                more => more,
            };
            match more {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && received > 0 => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // The error comes again after the bytes before it are taken.
                Err(_) if received > 0 => return self.ended(received),
                Err(error) => return Err(error),
            }
        }
        Ok(received)
    }

    /// Reads and decrypts what has arrived, and sends what the protocol answers to it or before.
    fn read_records(&self, tls: &mut ServerConnection) -> io::Result<()> {
        let state = match tls.read_tls(&mut Plain(&self.socket)) {
            // An alert is sent after an error, too.
            Ok(_) => tls.process_new_packets().map(drop).map_err(|error| invalid(&error.to_string())),
            Err(error) => Err(error),
        };
        match self.flush(tls) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => state.and(Err(error)),
            _ => state,
        }
    }

    /// Returns the last bytes of a client that sends no more. The system reports that end once
    /// more, since it may know nothing of it.
    fn ended(&self, received: usize) -> io::Result<usize> {
        if received > 0 {
            let _ = self.socket.shut_down(Shutdown::Read);
        }
        Ok(received)
    }

    /// Sends what is encrypted.
    fn flush(&self, tls: &mut ServerConnection) -> io::Result<()> {
        while tls.wants_write() {
            if tls.write_tls(&mut Plain(&self.socket))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Says that no more bytes follow. Who does not take it learns it from the end of the
    /// connection.
    fn close(&self, tls: &mut ServerConnection) {
        tls.send_close_notify();
        let _ = self.flush(tls);
    }
}

impl<S: Socket> Socket for TlsSocket<S> {
    fn peer(&self) -> Peer {
        self.socket.peer()
    }

    const HAS_HANDSHAKE: bool = true;
    const BUFFER_BYTES_MAX: usize = CONNECTION_BYTES_MAX;

    fn is_opening(&self) -> bool {
        self.session.borrow().tls.is_handshaking()
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut left = &mut buffer[..];
        self.receive_into(left.len(), |data| {
            let (now, rest) = std::mem::take(&mut left).split_at_mut(data.len());
            now.copy_from_slice(data);
            left = rest;
        })
    }

    fn receive_behind(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.receive_into(buffer.capacity() - buffer.len(), |data| buffer.extend_from_slice(data))
    }

    /// Counts what is not decrypted yet as input, which may be the end.
    fn has_input(&self) -> io::Result<bool> {
        match self.session.borrow_mut().tls.reader().fill_buf() {
            Ok(data) => Ok(!data.is_empty()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.socket.has_input(),
            Err(error) => Err(error),
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send_parts(&[IoSlice::new(bytes)])
    }

    fn send_parts(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let Session { tls, unreported } = &mut *self.session.borrow_mut();
        self.flush(tls)?;
        let mut sent = std::mem::take(unreported);
        let mut parts = parts.to_vec();
        let mut left = &mut parts[..];
        IoSlice::advance_slices(&mut left, sent);
        while !left.is_empty() {
            let taken = tls.writer().write_vectored(left)?;
            IoSlice::advance_slices(&mut left, taken);
            sent += taken;
            match self.flush(tls) {
                Ok(()) if taken > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => {
                    *unreported = 1;
                    sent -= 1;
                    break;
                }
                // Nothing is taken before the handshake is over.
                Ok(()) => break,
                Err(error) => return Err(error),
            }
        }
        if sent > 0 { Ok(sent) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn acknowledge(&self) {
        self.socket.acknowledge();
    }

    fn shut_down(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Read {
            self.close(&mut self.session.borrow_mut().tls);
        }
        self.socket.shut_down(how)
    }
}

impl<S: Socket> Drop for TlsSocket<S> {
    fn drop(&mut self) {
        self.close(&mut self.session.borrow_mut().tls);
    }
}

/// A socket as a stream of encrypted bytes.
struct Plain<'a, S>(&'a S);

impl<S: Socket> Read for Plain<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        retry(|| self.0.receive(buffer))
    }
}

impl<S: Socket> Write for Plain<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        retry(|| self.0.send(bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        retry(|| self.0.send_parts(parts))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests;
