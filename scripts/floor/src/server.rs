//! The connections, and what both modes do with them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::requests::Protocol;

/// The most connections that are served between two waits.
pub(crate) const ROUND: usize = 256;

/// Bytes that are received at a time.
pub(crate) const RECEIVED_BYTES: usize = 16 << 10;

/// A connection that has something to receive.
#[derive(Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) fd: usize,
    /// True if the client sends nothing more.
    pub(crate) hung_up: bool,
}

/// Action to take with a connection after a receive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Receive,
    Wait,
    Close,
}

impl Next {
    /// Returns what follows a receive and its answers. A receive that did not fill its buffer has
    /// emptied the socket, so that epoll reports the next bytes.
    pub(crate) fn after(served: &io::Result<usize>, hung_up: bool) -> Self {
        match served {
            Ok(RECEIVED_BYTES) => Self::Receive,
            Ok(0) => Self::Close,
            Err(error) if error.kind() != ErrorKind::WouldBlock => Self::Close,
            _ if hung_up => Self::Close,
            _ => Self::Wait,
        }
    }
}

pub(crate) struct Server {
    listener: TcpListener,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    /// The open connections by file descriptor.
    connections: Vec<Option<Connection>>,
    protocol: Protocol,
}

impl Server {
    pub(crate) fn bind(address: &str, protocol: Protocol) -> io::Result<Self> {
        let (listener, epoll) = (TcpListener::bind(address)?, epoll::create(epoll::CreateFlags::CLOEXEC)?);
        listener.set_nonblocking(true)?;
        epoll::add(&epoll, &listener, data(&listener), epoll::EventFlags::IN)?;
        let events = Vec::with_capacity(ROUND);
        Ok(Self { listener, epoll, events, connections: Vec::new(), protocol })
    }

    /// Appends the connections that have become ready, and waits for one unless there already
    /// is one in `ready`. Accepts new connections.
    pub(crate) fn wait(&mut self, ready: &mut Vec<Ready>) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = (!ready.is_empty()).then_some(&now);
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            found => found?,
        };
        let listener = data(&self.listener);
        let hang_up = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        let mut new = false;
        for event in &self.events {
            // Copied, because the fields of a packed structure have no address.
            let (of, flags) = (event.data, event.flags);
            if of.u64() == listener.u64() {
                new = true;
            } else {
                ready.push(Ready { fd: of.u64() as usize, hung_up: flags.intersects(hang_up) });
            }
        }
        if new { self.accept() } else { Ok(()) }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
            epoll::add(&self.epoll, &stream, data(&stream), flags)?;
            let fd = stream.as_raw_fd() as usize;
            if self.connections.len() <= fd {
                self.connections.resize_with(fd + 1, || None);
            }
            self.connections[fd] = Some(Connection { stream, rest: Vec::new(), protocol: self.protocol });
        }
    }

    pub(crate) fn connection(&mut self, fd: usize) -> Option<&mut Connection> {
        self.connections[fd].as_mut()
    }

    pub(crate) fn close(&mut self, fd: usize) {
        self.connections[fd] = None;
    }
}

/// Returns the data of a socket's events: its file descriptor.
fn data(socket: &impl AsRawFd) -> epoll::EventData {
    epoll::EventData::new_u64(socket.as_raw_fd() as u64)
}

pub(crate) struct Connection {
    stream: TcpStream,
    /// The beginning of a request that is incomplete so far.
    rest: Vec<u8>,
    protocol: Protocol,
}

impl Connection {
    /// Receives once and answers; returns the number of bytes received.
    pub(crate) fn serve(&mut self, received: &mut [u8], answers: &mut Vec<u8>) -> io::Result<usize> {
        let len = self.stream.read(received)?;
        answers.clear();
        self.answer(&received[..len], answers);
        if !answers.is_empty() {
            self.send(answers)?;
        }
        Ok(len)
    }

    /// Appends the answers to all requests that are complete now, and keeps the rest.
    pub(crate) fn answer(&mut self, received: &[u8], answers: &mut Vec<u8>) {
        if self.rest.is_empty() {
            let taken = self.protocol.answer(received, answers);
            self.rest.extend_from_slice(&received[taken..]);
        } else {
            self.rest.extend_from_slice(received);
            let taken = self.protocol.answer(&self.rest, answers);
            self.rest.drain(..taken);
        }
    }

    /// Sends everything. Waits for a client that does not receive: measured clients do.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            match self.stream.write(bytes) {
                Ok(sent) if sent == bytes.len() => return Ok(()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::OUT)], None)?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
