//! The socket of one pipelined connection.

use std::io::{ErrorKind, Read, Write};

use thiserror::Error;

use super::Options;
use super::operations::Operation;
use super::pipeline::{AnswerError, Ending, Pipeline, Values};
use super::socket::Socket;

pub(super) struct Connection {
    socket: Socket,
    pipeline: Pipeline,
    /// True while the driver lists the connection among those with a free place in their pipeline.
    pub(super) listed: bool,
}

/// The reason why a connection can no longer be used.
#[derive(Debug, Error)]
pub(super) enum Lost {
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("the target closed the connection")]
    Closed,
    #[error("{0}")]
    Answer(#[from] AnswerError),
}

impl Connection {
    /// A connection of a run with these options.
    pub(super) fn new(socket: Socket, options: &Options) -> Self {
        Self { socket, pipeline: Pipeline::new(options), listed: false }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.pipeline.in_flight()
    }

    pub(super) fn is_full(&self) -> bool {
        self.pipeline.is_full()
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.pipeline.unsent().is_empty() || self.socket.has_unsent()
    }

    /// Appends the operation's request to the bytes to send; [`Self::flush`] sends it.
    pub(super) fn start(&mut self, operation: Operation, intended_ns: u64, values: &mut Values) {
        self.pipeline.start(operation, intended_ns, values);
    }

    /// Sends as much as the socket accepts without blocking.
    pub(super) fn flush(&mut self) -> Result<(), Lost> {
        while !self.pipeline.unsent().is_empty() {
            match self.socket.write(self.pipeline.unsent()) {
                Ok(0) => return Err(Lost::Closed),
                Ok(written) => self.pipeline.sent(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::Io(error)),
            }
        }
        match self.socket.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(Lost::Io(error)),
            _ => Ok(()),
        }
    }

    /// Reads all bytes that have arrived; ends or continues the operations whose answers are
    /// complete.
    pub(super) fn receive(&mut self, ending: &mut Ending<'_, '_>) -> Result<(), Lost> {
        loop {
            let room = self.pipeline.room();
            let room_bytes = room.len();
            let read = match self.socket.read(room) {
                Ok(0) => return Err(Lost::Closed),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Lost::Io(error)),
            };
            self.pipeline.received(read, ending)?;
            // A read that does not fill the room has emptied the socket, unless it was of one TLS
            // record; epoll reports the next arrival.
            if read < room_bytes && !self.socket.is_tls() {
                return Ok(());
            }
        }
    }

    /// Ends every operation in flight as failed, because the connection broke and no answers will
    /// arrive.
    pub(super) fn give_up(&mut self, ending: &mut Ending<'_, '_>) {
        self.pipeline.give_up(ending);
    }
}
