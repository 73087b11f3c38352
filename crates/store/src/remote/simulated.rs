//! A simulated transport for tests of clients: connections in memory that may end at any byte in
//! either direction. Pauses use tokio's paused clock, or take no time. Everything follows from one
//! seed.
//!
//! When a test [enters](Network::enter) a network, calls of [`Endpoint::connect`] on its thread
//! connect to that network: each connection is a [`ClientEnd`], whose [`ServerEnd`] the test's
//! server receives. Bytes arrive in pieces of any size, and reads and writes may be delayed at
//! random. The end of a connection arrives at the client after the preceding bytes, or in their
//! place, and later than the server's last action: bytes that the client writes in between are
//! lost.
//!
//! The module does not use the rest of its crate, so that tests of other crates can include it.
//!
//! [`Endpoint::connect`]: super::socket::Endpoint::connect

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sherwood_model::SplitMix64;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A generator of random numbers, which are the same for the same seed.
pub(crate) struct Draw(SplitMix64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Draws a number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end as u64) as usize
    }

    /// Returns true with a probability of `percent` per cent.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Draws one of the values in `of`.
    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Draws a number of whole milliseconds below `end`.
    pub(crate) fn ms(&mut self, end: usize) -> Duration {
        Duration::from_millis(self.below(end) as u64)
    }

    /// Makes a generator that is independent of this one.
    pub(crate) fn split(&mut self) -> Self {
        Self::new(self.0.next_u64())
    }
}

/// The end of a connection, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection is closed: nothing follows the preceding bytes.
    Closed,
    /// Reads fail, and bytes that have arrived may be lost.
    Reset,
}

/// The faults of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// The number of bytes to the client after which the connection ends.
    pub(crate) to_client: Option<usize>,
    /// The number of bytes to the server after which the connection ends.
    pub(crate) to_server: Option<usize>,
    pub(crate) end: End,
}

impl Faults {
    /// No faults: the connection ends only when one of its sides ends it.
    pub(crate) const NONE: Self = Self { to_client: None, to_server: None, end: End::Closed };
}

/// Decides about a new connection: returns its faults, or none to refuse it.
pub(crate) type Admit = Box<dyn FnMut(&mut Draw) -> Option<Faults> + Send>;

/// Starts the server's task for a connection.
pub(crate) type Serve = Box<dyn Fn(ServerEnd, Draw) + Send>;

/// The number of times that each event has occurred.
pub(crate) type Seen = BTreeMap<&'static str, u64>;

/// A network with one server.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<State>>);

struct State {
    draw: Draw,
    admit: Admit,
    serve: Serve,
    /// Number of connections that the client has open.
    open: usize,
    open_most: usize,
    seen: Seen,
    /// True if events are printed.
    is_told: bool,
    /// True if pauses take no time, but let other tasks run.
    is_timeless: bool,
}

thread_local! {
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// Ends the use of a network by its thread when dropped.
pub(crate) struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        NETWORK.set(None);
    }
}

impl Network {
    /// Creates a network. Its events are printed if `is_told`. Its pauses take no time if
    /// `is_timeless`, for tests whose clock is not paused.
    pub(crate) fn new(draw: Draw, admit: Admit, serve: Serve, is_told: bool, is_timeless: bool) -> Self {
        let state =
            State { draw, admit, serve, open: 0, open_most: 0, seen: Seen::new(), is_told, is_timeless };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Waits for `time`, or lets other tasks run once for each millisecond.
    pub(crate) async fn pause(&self, time: Duration) {
        if !self.state().is_timeless {
            return tokio::time::sleep(time).await;
        }
        for _ in 0..time.as_millis() {
            tokio::task::yield_now().await;
        }
    }

    /// Makes this thread's connections go to the network until the result is dropped.
    pub(crate) fn enter(&self) -> Entered {
        NETWORK.set(Some(self.clone()));
        Entered
    }

    /// Returns the network that this thread has entered.
    pub(crate) fn of_this_thread() -> Option<Self> {
        NETWORK.with_borrow(Clone::clone)
    }

    /// Connects to the server.
    pub(crate) async fn connect(&self) -> io::Result<ClientEnd> {
        let latency = self.state().draw.ms(3);
        self.pause(latency).await;
        let mut state = self.state();
        let State { draw, admit, .. } = &mut *state;
        let Some(faults) = admit(draw) else {
            drop(state);
            self.note("connection: refused");
            return Err(ErrorKind::ConnectionRefused.into());
        };
        state.open += 1;
        state.open_most = state.open_most.max(state.open);
        let wire = Wire {
            draw: state.draw.split(),
            network: self.clone(),
            to_client: VecDeque::new(),
            to_server: VecDeque::new(),
            faults,
            is_whole: false,
            has_server: true,
            has_client: true,
            end: None,
            client: None,
            server: None,
        };
        let wire = Arc::new(Mutex::new(wire));
        let draw = state.draw.split();
        (state.serve)(ServerEnd(Arc::clone(&wire)), draw);
        drop(state);
        self.note("connection: opened");
        Ok(ClientEnd(wire))
    }

    /// Counts an event.
    pub(crate) fn note(&self, what: &'static str) {
        let mut state = self.state();
        *state.seen.entry(what).or_default() += 1;
        if state.is_told {
            eprintln!("{what}");
        }
    }

    /// Returns the number of connections that the client has open, and the most that it had open at
    /// once.
    pub(crate) fn open(&self) -> (usize, usize) {
        let state = self.state();
        (state.open, state.open_most)
    }

    /// Returns the number of times that an event has occurred.
    pub(crate) fn count(&self, what: &str) -> u64 {
        self.state().seen.get(what).copied().unwrap_or(0)
    }

    /// Returns the events so far.
    pub(crate) fn seen(&self) -> Seen {
        self.state().seen.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panics while held")
    }
}

/// Both directions of a connection.
struct Wire {
    draw: Draw,
    network: Network,
    to_client: VecDeque<u8>,
    to_server: VecDeque<u8>,
    /// The faults, with the numbers of bytes that are left until they occur.
    faults: Faults,
    /// True if the bytes to the client arrive together and not in pieces.
    is_whole: bool,
    /// False once the server has ended the connection or was cut off; bytes that the client writes
    /// are then lost.
    has_server: bool,
    has_client: bool,
    /// The end, once it has arrived at the client.
    end: Option<End>,
    client: Option<Waker>,
    server: Option<Waker>,
}

impl Wire {
    /// Ends the connection for both sides.
    fn cut(&mut self, end: End) {
        self.has_server = false;
        self.end = Some(end);
        if end == End::Reset && self.draw.chance(50) {
            self.to_client.clear();
        }
        self.client.take().into_iter().chain(self.server.take()).for_each(Waker::wake);
    }

    /// True if a read or write has to be tried again at once, although it could proceed.
    fn would_block(&mut self, context: &Context<'_>) -> bool {
        let would_block = self.draw.chance(10);
        if would_block {
            context.waker().wake_by_ref();
        }
        would_block
    }

    /// True if a write has to be tried again after some milliseconds.
    fn stalls(&mut self, context: &Context<'_>) -> bool {
        let stalls = self.draw.chance(5);
        if stalls {
            let (waker, time) = (context.waker().clone(), self.draw.ms(4));
            let network = self.network.clone();
            tokio::spawn(async move {
                network.pause(time).await;
                waker.wake();
            });
        }
        stalls
    }

    /// Takes up to `bytes` from `left`, the number of bytes until the connection ends, and returns
    /// how many were taken.
    fn pass(left: &mut Option<usize>, bytes: usize) -> usize {
        let passed = left.map_or(bytes, |left| left.min(bytes));
        *left = left.map(|left| left - passed);
        passed
    }
}

/// The client's end of a connection.
pub(crate) struct ClientEnd(Arc<Mutex<Wire>>);

impl ClientEnd {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.0.lock().expect("no panics while held")
    }
}

impl AsyncRead for ClientEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut wire = self.wire();
        if wire.to_client.is_empty() {
            return match wire.end {
                Some(End::Closed) => Poll::Ready(Ok(())),
                Some(End::Reset) => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
                None => {
                    wire.client = Some(context.waker().clone());
                    Poll::Pending
                }
            };
        }
        if wire.would_block(context) {
            return Poll::Pending;
        }
        let most = wire.to_client.len().min(buffer.remaining());
        let piece = if wire.is_whole { most } else { 1 + wire.draw.below(most) };
        let (first, second) = wire.to_client.as_slices();
        let in_first = piece.min(first.len());
        buffer.put_slice(&first[..in_first]);
        buffer.put_slice(&second[..piece - in_first]);
        wire.to_client.drain(..piece);
        wire.is_whole &= !wire.to_client.is_empty();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientEnd {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut wire = self.wire();
        if wire.end.is_some() && wire.draw.chance(50) {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        if !wire.has_server {
            wire.network.note("client: wrote after the end");
            return Poll::Ready(Ok(bytes.len()));
        }
        if wire.would_block(context) || wire.stalls(context) {
            return Poll::Pending;
        }
        let piece = 1 + wire.draw.below(bytes.len());
        let passed = Wire::pass(&mut wire.faults.to_server, piece);
        wire.to_server.extend(&bytes[..passed]);
        wire.server.take().into_iter().for_each(Waker::wake);
        if wire.faults.to_server == Some(0) {
            wire.network.note("connection: cut on the way to the server");
            let end = wire.faults.end;
            wire.cut(end);
        }
        Poll::Ready(Ok(piece))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        let mut wire = self.wire();
        wire.has_client = false;
        wire.server.take().into_iter().for_each(Waker::wake);
        wire.network.state().open -= 1;
    }
}

/// The server's end of a connection; dropping it closes the connection.
pub(crate) struct ServerEnd(Arc<Mutex<Wire>>);

impl ServerEnd {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.0.lock().expect("no panics while held")
    }

    /// Waits for bytes and appends them to `into`; false if no more will arrive.
    pub(crate) async fn read(&mut self, into: &mut Vec<u8>) -> bool {
        poll_fn(|context| {
            let mut wire = self.wire();
            if !wire.to_server.is_empty() {
                into.extend(wire.to_server.drain(..));
                return Poll::Ready(true);
            }
            if !wire.has_server || !wire.has_client {
                return Poll::Ready(false);
            }
            wire.server = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// True if bytes have arrived that were not read yet.
    pub(crate) fn has_bytes(&self) -> bool {
        !self.wire().to_server.is_empty()
    }

    /// True if all bytes that were sent in either direction have been read.
    pub(crate) fn is_idle(&self) -> bool {
        let wire = self.wire();
        wire.to_server.is_empty() && wire.to_client.is_empty()
    }

    /// Sends `bytes`, which arrive in pieces.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let mut wire = self.wire();
        if !wire.has_server || !wire.has_client {
            return;
        }
        let passed = Wire::pass(&mut wire.faults.to_client, bytes.len());
        wire.to_client.extend(&bytes[..passed]);
        wire.client.take().into_iter().for_each(Waker::wake);
        if wire.faults.to_client == Some(0) {
            wire.network.note("connection: cut on the way to the client");
            let end = wire.faults.end;
            wire.cut(end);
        }
    }

    /// Sends `bytes`, which arrive together with the preceding ones.
    pub(crate) fn write_whole(&mut self, bytes: &[u8]) {
        self.wire().is_whole = true;
        self.write(bytes);
    }

    /// Ends the connection. The end arrives at the client after `latency`.
    pub(crate) async fn end(self, end: End, latency: Duration) {
        let network = {
            let mut wire = self.wire();
            wire.has_server = false;
            wire.network.clone()
        };
        network.pause(latency).await;
        self.wire().cut(end);
    }
}

impl Drop for ServerEnd {
    fn drop(&mut self) {
        let mut wire = self.wire();
        if wire.end.is_none() {
            wire.cut(End::Closed);
        }
    }
}
