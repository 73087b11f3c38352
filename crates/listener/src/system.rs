//! The system's sockets: one epoll instance for each thread, and an eventfd to wake it.
//!
//! Sockets are registered once, edge-triggered, so that an event needs no system call but the read
//! or write itself.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::{Errno, read, write};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketFlags};
use rustix::net::{accept_with, getpeername, getsockname, recv, send, sendmsg, shutdown, sockopt};

use super::ring::Ring;
use super::sockets::{Event, Peer, Receiving, Sending, Signal, Socket, Sockets};

/// Most events taken from the system at once. The clock is read anew after them.
const EVENTS_MAX: usize = 256;
/// Longest single wait for events, in milliseconds.
const TIMEOUT_MS_MAX: u128 = 3_600_000;

/// Token of the listening socket. No connection has it, because it belongs to the last of 2^32
/// slots.
const INCOMING: u64 = u64::MAX;
const RAISED: u64 = u64::MAX - 1;

impl Socket for OwnedFd {
    fn peer(&self) -> Peer {
        let tcp = |address: SocketAddrAny| SocketAddr::try_from(address).ok();
        Peer {
            client: getpeername(self).ok().flatten().and_then(tcp),
            local: getsockname(self).ok().and_then(tcp),
            descriptor: self.as_raw_fd(),
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self, buffer, RecvFlags::empty()).map(|(bytes, _)| bytes)?)
    }

    fn receive_behind(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        Ok(recv(self, spare_capacity(buffer), RecvFlags::empty()).map(|(bytes, _)| bytes)?)
    }

    fn has_input(&self) -> io::Result<bool> {
        let mut byte = [0];
        Ok(recv(self, &mut byte[..], RecvFlags::PEEK).map(|(bytes, _)| bytes > 0)?)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self, bytes, SendFlags::NOSIGNAL)?)
    }

    fn send_parts(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(sendmsg(self, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
    }

    fn acknowledge(&self) {
        // An optimisation, which UNIX sockets do not have and do not need.
        let _ = sockopt::set_tcp_quickack(self, true);
    }

    fn shut_down(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => rustix::net::Shutdown::Read,
            Shutdown::Write => rustix::net::Shutdown::Write,
            Shutdown::Both => rustix::net::Shutdown::Both,
        };
        Ok(shutdown(self, how)?)
    }
}

/// A thread's listening socket and event queue.
pub(super) struct Epoll {
    queue: OwnedFd,
    /// The listening socket; none once the listener no longer accepts.
    listening: Option<socket2::Socket>,
    /// The signal that interrupts waits, registered in the event queue.
    _wake: Arc<Wake>,
    rounds: Rounds,
}

/// The io_uring instance for rounds. Only the thread that creates it may use it, so it is created
/// with the first round.
enum Rounds {
    None,
    Wanted,
    Ring(Box<Ring>),
}

impl Epoll {
    /// Creates the event queue of `listening` and `wake`; `rounds` says whether several connections
    /// are served in one system call.
    ///
    /// # Errors
    /// If the system has no free file descriptor.
    pub(super) fn new(listening: socket2::Socket, wake: Arc<Wake>, rounds: bool) -> io::Result<Self> {
        let rounds = if rounds { Rounds::Wanted } else { Rounds::None };
        let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&queue, wake.0.as_fd(), epoll::EventData::new_u64(RAISED), edges)?;
        epoll::add(&queue, listening.as_fd(), epoll::EventData::new_u64(INCOMING), edges)?;
        Ok(Self { queue, listening: Some(listening), _wake: wake, rounds })
    }

    /// Carries out a round. When the system takes the ring away, plain calls are made from then on.
    fn round(&mut self, round: impl FnOnce(&mut Ring) -> io::Result<()>) {
        if let Rounds::Ring(ring) = &mut self.rounds
            && let Err(error) = round(ring)
        {
            tracing::warn!(%error, "io_uring does not work any more; a thread goes on with epoll alone");
            self.rounds = Rounds::None;
        }
    }
}

impl Sockets for Epoll {
    type Socket = OwnedFd;

    fn accept(&mut self) -> io::Result<OwnedFd> {
        let Some(listening) = &self.listening else { return Err(io::ErrorKind::WouldBlock.into()) };
        let socket = accept_with(listening, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
        // Both are optimisations; a connection without them works.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        let _ = sockopt::set_socket_keepalive(&socket, true);
        Ok(socket)
    }

    fn stop_accepting(&mut self) {
        if let Some(listening) = self.listening.take() {
            // While another thread or process has the socket open, its events would go on. A
            // failure costs wake-ups only.
            let _ = epoll::delete(&self.queue, listening);
        }
    }

    fn watch(&mut self, socket: &OwnedFd, token: u64) -> io::Result<()> {
        use epoll::EventFlags as Flags;
        let all = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
        Ok(epoll::add(&self.queue, socket, epoll::EventData::new_u64(token), all)?)
    }

    /// Rounds the timeout up to milliseconds, which every kernel and container supports; rounding
    /// up avoids waking too early.
    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        events.clear();
        let timeout = timeout.map(|timeout| {
            let millis = timeout.as_nanos().div_ceil(1_000_000).min(TIMEOUT_MS_MAX) as i64;
            Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 }
        });
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        match epoll::wait(&self.queue, &mut room, timeout.as_ref()) {
            Ok((told, _)) => {
                events.extend(told.iter().map(event));
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn has_rounds(&mut self) -> bool {
        if let Rounds::Wanted = self.rounds {
            self.rounds = Ring::new().map_or_else(
                |error| {
                    tracing::warn!(%error, "a thread has no io_uring and goes on with epoll alone");
                    Rounds::None
                },
                |ring| Rounds::Ring(Box::new(ring)),
            );
        }
        matches!(self.rounds, Rounds::Ring(_))
    }

    fn receive_round(&mut self, round: &mut [Receiving<'_, OwnedFd>]) {
        self.round(|ring| ring.receive(round));
    }

    fn send_round(&mut self, round: &mut [Sending<'_, OwnedFd>]) {
        self.round(|ring| ring.send(round));
    }
}

fn event(event: &epoll::Event) -> Event {
    use epoll::EventFlags as Flags;
    let flags = event.flags;
    match event.data.u64() {
        INCOMING => Event::Incoming,
        RAISED => Event::Raised,
        token => {
            let broken = flags.intersects(Flags::HUP | Flags::ERR);
            let finished = broken || flags.contains(Flags::RDHUP);
            Event::Connection { token, readable: finished || flags.contains(Flags::IN), finished, broken }
        }
    }
}

/// A signal that interrupts a thread's wait: an eventfd, readable while the signal is raised.
#[derive(Debug)]
pub(super) struct Wake(OwnedFd);

impl Wake {
    /// Creates a signal that is not raised.
    ///
    /// # Errors
    /// If the system has no free file descriptor.
    pub(super) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)))
    }
}

impl Signal for Wake {
    fn raise(&self) {
        // It fails only if the counter is at its maximum, and then the eventfd is readable.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }

    fn lower(&self) {
        let _ = read(&self.0, &mut [0; 8]);
    }
}
