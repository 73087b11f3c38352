//! The socket of one pipelined connection.

use std::net::TcpStream;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use thiserror::Error;

use super::Protocol;
use super::input::Input;
use super::operations::Operation;
use super::pipeline::{Ending, OutOfTurn, Pipeline, Values};
use super::protocol::ReplyError;

pub(super) struct Connection {
    stream: TcpStream,
    protocol: Protocol,
    pipeline: Pipeline,
    input: Input,
    /// Whether the driver counts it among those with a free place.
    pub(super) listed: bool,
}

/// Why a connection is of no further use.
#[derive(Debug, Error)]
pub(super) enum Lost {
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("the target closed the connection")]
    Closed,
    #[error("{0}")]
    Reply(#[from] ReplyError),
    #[error(transparent)]
    OutOfTurn(#[from] OutOfTurn),
}

impl Connection {
    pub(super) fn new(stream: TcpStream, protocol: Protocol) -> Self {
        Self { stream, protocol, pipeline: Pipeline::new(protocol), input: Input::new(), listed: false }
    }

    pub(super) fn under_way(&self) -> usize {
        self.pipeline.under_way()
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.pipeline.unsent().is_empty()
    }

    /// Appends the operation's command; [`Self::flush`] sends it.
    pub(super) fn start(&mut self, operation: Operation, intended_ns: u64, values: &mut Values) {
        self.pipeline.start(operation, intended_ns, values);
    }

    /// Sends what the socket takes without waiting.
    pub(super) fn flush(&mut self) -> Result<(), Lost> {
        while self.has_unsent() {
            match send(&self.stream, self.pipeline.unsent(), SendFlags::NOSIGNAL) {
                Ok(0) => return Err(Lost::Closed),
                Ok(written) => self.pipeline.sent(written),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Lost::Io(error.into())),
            }
        }
        Ok(())
    }

    /// Reads all there is, and ends or carries on the operations whose answers have come.
    pub(super) fn receive(&mut self, ending: &mut Ending<'_, '_>) -> Result<(), Lost> {
        loop {
            let room = self.input.room();
            let room_bytes = room.len();
            let read = match recv(&self.stream, room, RecvFlags::empty()) {
                Ok((0, _)) => return Err(Lost::Closed),
                Ok((read, _)) => read,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(Lost::Io(error.into())),
            };
            self.input.filled(read);
            while let Some(answer) = self.input.next(self.protocol)? {
                self.pipeline.handle(answer, ending)?;
            }
            self.input.make_room();
            // What fills less than there was room for was all there is; the system tells when there
            // is more.
            if read < room_bytes {
                return Ok(());
            }
        }
    }

    /// Ends everything under way as failed: its answers will not come.
    pub(super) fn give_up(&mut self, ending: &mut Ending<'_, '_>) {
        self.pipeline.give_up(ending);
    }
}
