//! The traits of sockets that a thread's event loop uses.
//!
//! Listeners run on the system's sockets ([`system`](super::system)). A simulation implements the
//! same traits and runs the same event loop; see [`SingleThread`](super::SingleThread).

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

/// A connection that never blocks: a call that cannot be carried out now fails with
/// [`WouldBlock`](io::ErrorKind::WouldBlock). Closed when dropped.
pub trait Socket {
    /// True if connections begin with a handshake, which the login timeout limits.
    const HAS_HANDSHAKE: bool = false;

    /// Maximum size of the connection's buffers in this process whose exact size is unknown, bytes.
    const BUFFER_BYTES_MAX: usize = 0;

    /// Returns true until the handshake is over.
    fn is_opening(&self) -> bool {
        false
    }

    /// Returns the addresses of the connection, as far as they are known.
    fn peer(&self) -> Peer {
        Peer::default()
    }

    /// Reads received bytes into the start of `buffer`; returns 0 when the other side has finished.
    ///
    /// # Errors
    /// As `recv`.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Appends received bytes to `buffer`, at most as many as its capacity has room for, and
    /// returns their number.
    ///
    /// # Errors
    /// As `recv`.
    fn receive_behind(&self, buffer: &mut Vec<u8>) -> io::Result<usize>;

    /// Returns true if received bytes are there to be read; false at the end of what the other side
    /// has sent.
    ///
    /// # Errors
    /// As `recv`.
    fn has_input(&self) -> io::Result<bool>;

    /// Sends the start of `bytes` and returns how many bytes the system took.
    ///
    /// # Errors
    /// As `send`.
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Sends the start of the bytes of `parts`, at most 1,024 of them, in order, and returns how
    /// many bytes the system took.
    ///
    /// # Errors
    /// As `sendmsg`.
    fn send_parts(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Sends the TCP acknowledgement of the received bytes at once. Otherwise the system sends it
    /// with the next answer or some 40 ms later, and a client without `TCP_NODELAY` waits for it
    /// before it sends more.
    fn acknowledge(&self) {}

    /// Ends the receiving or the sending side of the connection.
    ///
    /// # Errors
    /// As `shutdown`.
    fn shut_down(&self, how: Shutdown) -> io::Result<()>;
}

/// A receive of a round.
#[derive(Debug)]
pub struct Receiving<'a, S> {
    /// The connection to receive from.
    pub socket: &'a S,
    /// The memory for received bytes, not empty.
    pub room: &'a mut [u8],
    /// The result, as of [`Socket::receive`]; none if the operation was not carried out.
    pub result: Option<io::Result<usize>>,
}

/// A send of a round.
#[derive(Debug)]
pub struct Sending<'a, S> {
    /// The connection to send to.
    pub socket: &'a S,
    /// The bytes to send, at least one.
    pub bytes: Outgoing<'a>,
    /// The result, as of [`Socket::send`]; none if the operation was not carried out.
    pub result: Option<io::Result<usize>>,
}

/// Bytes to be sent.
#[derive(Debug)]
pub enum Outgoing<'a> {
    /// Bytes in one piece.
    One(&'a [u8]),
    /// At most 1,024 parts in order.
    Parts(Vec<IoSlice<'a>>),
}

/// The addresses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address of the client; none for a UNIX socket.
    pub client: Option<SocketAddr>,
    /// The listener's address that the client has connected to; none for a UNIX socket.
    pub local: Option<SocketAddr>,
    /// Number of the socket's file descriptor; -1 without one.
    pub descriptor: i32,
}

impl Default for Peer {
    fn default() -> Self {
        Self { client: None, local: None, descriptor: -1 }
    }
}

/// The sockets and wake-ups that a thread waits for.
pub trait Sockets {
    /// The type of connections.
    type Socket: Socket;

    /// Accepts a connection.
    ///
    /// # Errors
    /// As `accept`.
    fn accept(&mut self) -> io::Result<Self::Socket>;

    /// Stops listening. No connection is accepted any more.
    fn stop_accepting(&mut self);

    /// Reports events of `socket` with `token` until it is dropped. Edge-triggered: an event is not
    /// repeated before something changes.
    ///
    /// # Errors
    /// If the system call fails.
    fn watch(&mut self, socket: &Self::Socket, token: u64) -> io::Result<()>;

    /// Waits for at most `timeout`, or without limit if there is none, and replaces `events` by
    /// those that occurred. May return without events.
    ///
    /// # Errors
    /// If the system fails permanently.
    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()>;

    /// Returns true if several connections can be served in one system call, by
    /// [`receive_round`](Self::receive_round) and [`send_round`](Self::send_round). May change to
    /// false at any time.
    fn has_rounds(&mut self) -> bool {
        false
    }

    /// Receives from several connections. Each operation gets a result unless it was not carried
    /// out; then the plain call has to do it.
    fn receive_round(&mut self, _round: &mut [Receiving<'_, Self::Socket>]) {}

    /// Sends to several connections, like [`receive_round`](Self::receive_round).
    fn send_round(&mut self, _round: &mut [Sending<'_, Self::Socket>]) {}
}

/// A change that is reported to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// There may be a connection to accept.
    Incoming,
    /// The thread's [`Signal`] was raised.
    Raised,
    /// A connection may be ready to receive or send.
    Connection {
        /// The token that the connection is watched with.
        token: u64,
        /// Receiving may succeed or fail, and would not block.
        readable: bool,
        /// The other side has finished or the connection broke: receiving will end.
        finished: bool,
        /// Nothing can be sent any more: the connection broke.
        broken: bool,
    },
}

/// Interrupts the wait of a thread, from any thread.
pub trait Signal: Send + Sync {
    /// Makes the thread's wait return with [`Event::Raised`], now or the next time.
    fn raise(&self);

    /// Lowers the signal, so that it can be raised again.
    fn lower(&self);
}
