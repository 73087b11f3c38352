//! The socket of a connection, with or without TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use rustls::ClientConnection;

use crate::tls::Tls;

/// A connected socket.
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<(ClientConnection, TcpStream)>),
}

impl Socket {
    /// Makes a socket of a blocking stream; with TLS, after the handshake.
    ///
    /// # Errors
    /// I/O errors, and the reason why the handshake failed.
    pub(super) fn new(mut stream: TcpStream, tls: Option<&Tls>) -> io::Result<Self> {
        let Some(Tls { config, name }) = tls else { return Ok(Self::Plain(stream)) };
        let mut session = ClientConnection::new(config.clone(), name.clone()).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(Self::Tls(Box::new((session, stream))))
    }

    pub(super) fn stream(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(both) => &both.1,
        }
    }

    /// True while encrypted bytes wait until the stream accepts them.
    pub(super) fn has_unsent(&self) -> bool {
        matches!(self, Self::Tls(both) if both.0.wants_write())
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

/// Sends encrypted bytes until none are left.
fn send_rest(session: &mut ClientConnection, stream: &mut TcpStream) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(stream)?;
    }
    Ok(())
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (session, stream) = match self {
            Self::Plain(stream) => return stream.write(bytes),
            Self::Tls(both) => &mut **both,
        };
        // A session accepts a bounded number of bytes before it has sent them.
        send_rest(session, stream)?;
        session.writer().write(bytes)
    }

    /// Sends what [`write`](Self::write) has accepted.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(both) => send_rest(&mut both.0, &mut both.1),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let (session, stream) = match self {
            Self::Plain(stream) => return stream.read(room),
            Self::Tls(both) => &mut **both,
        };
        loop {
            match session.reader().read(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            // At the end of the stream the next read says whether the session was closed properly.
            session.read_tls(stream)?;
            session.process_new_packets().map_err(io::Error::other)?;
        }
    }
}
