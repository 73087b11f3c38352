//! A connection to an instance: one command at a time, each answered within a timeout.

use std::io;
use std::time::Duration;

use sherwood_wire::pipeline::{Exchange, Limits, Pipeline, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::access::AccessError;

/// Timeout of connecting and of each answer. Chosen: a cache answers in a millisecond, and one that
/// takes a second is of no use to its clients either.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Upper bound of one answer, bytes: the statistics of all slab classes are a tenth of this.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Bytes of an answer that an error quotes.
const SHOWN_BYTES_MAX: usize = 100;

/// The reason an instance cannot be resized now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// Connecting to the instance failed.
    #[error("connecting failed: {0}; is it running, and is the address right?")]
    Connect(io::Error),
    /// The file of the instance's password could not be read.
    #[error(transparent)]
    Password(#[from] AccessError),
    /// An operation at the instance timed out.
    #[error("{doing} took longer than {TIMEOUT:?}; is it overloaded, or stopped?")]
    Late {
        /// Operation that timed out, such as `connecting`.
        doing: &'static str,
    },
    /// The connection to the instance broke.
    #[error("{doing} failed: {error}; it is tried again")]
    Broken {
        /// Operation that was interrupted, such as `reading INFO`.
        doing: &'static str,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The instance refused, or its answer is malformed.
    #[error("{doing} was answered {said:?}; {remedy}")]
    Refused {
        /// Operation that was refused, such as `authenticating`.
        doing: &'static str,
        /// The beginning of the instance's answer.
        said: String,
        /// Remedy for the operator.
        remedy: &'static str,
    },
    /// The instance answers, but its settings prevent resizing.
    #[error(transparent)]
    Unfit(#[from] Unfit),
}

/// A setting of an instance that prevents resizing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    /// Redis without eviction: it refuses writes once it is full.
    #[error(
        "its maxmemory-policy is noeviction, under which it refuses writes once it is full; \
         set one that evicts, such as allkeys-lru"
    )]
    NoEviction,
    /// memcached that cannot give memory back when its limit is lowered.
    #[error(
        "its slab_reassign is off (no_slab_reassign, no_modern, or a version before 1.5), so it gives no memory back; \
         start it with -o slab_reassign"
    )]
    NoReassign,
}

impl Trouble {
    pub(super) fn refused(doing: &'static str, said: &[u8], remedy: &'static str) -> Self {
        let said = &said[..said.len().min(SHOWN_BYTES_MAX)];
        let said = String::from_utf8_lossy(said).trim_end().to_owned();
        Self::Refused { doing, said, remedy }
    }
}

/// A protocol's parser for the next piece of an answer: its length, and whether more pieces follow.
pub(super) type Piece = fn(&[u8]) -> Step<()>;

/// An answer in flight, kept as it is received.
struct Answer {
    piece: Piece,
    bytes: Vec<u8>,
}

impl Exchange for Answer {
    type Answer = Vec<u8>;
    type Error = TooLong;

    fn read(&mut self, input: &[u8]) -> Result<Step<Vec<u8>>, TooLong> {
        let (used, is_last) = match (self.piece)(input) {
            Step::Incomplete(need) => return Ok(Step::Incomplete(need)),
            Step::Used(used) => (used, false),
            Step::Done(used, ()) => (used, true),
        };
        self.bytes.extend_from_slice(&input[..used]);
        match is_last {
            true => Ok(Step::Done(used, std::mem::take(&mut self.bytes))),
            false if self.bytes.len() > ANSWER_BYTES_MAX => Err(TooLong),
            false => Ok(Step::Used(used)),
        }
    }
}

/// An answer of more than [`ANSWER_BYTES_MAX`] bytes.
struct TooLong;

/// A connection to an external cache instance.
pub(super) struct Link {
    stream: TcpStream,
    piece: Piece,
    pipeline: Pipeline<Answer>,
}

impl Link {
    /// Connects to an instance; `piece` parses its answers.
    pub(super) async fn open(address: &str, piece: Piece) -> Result<Self, Trouble> {
        let opened = timeout(TIMEOUT, TcpStream::connect(address)).await;
        let stream = opened.map_err(|_| Trouble::Late { doing: "connecting" })?.map_err(Trouble::Connect)?;
        let limits = Limits { in_flight_max: 1, piece_bytes_max: ANSWER_BYTES_MAX };
        Ok(Self { stream, piece, pipeline: Pipeline::new(limits) })
    }

    /// Sends `request` and returns its answer. The connection must not be used after an error.
    pub(super) async fn ask(&mut self, doing: &'static str, request: &[u8]) -> Result<Vec<u8>, Trouble> {
        let asked = timeout(TIMEOUT, self.exchange(request)).await;
        let answer = asked.map_err(|_| Trouble::Late { doing })?;
        answer.map_err(|error| Trouble::Broken { doing, error })
    }

    async fn exchange(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        let answer = Answer { piece: self.piece, bytes: Vec::new() };
        self.pipeline.push(answer, |_, out| out.extend_from_slice(request));
        self.stream.write_all(self.pipeline.unsent()).await?;
        self.pipeline.sent(request.len());
        loop {
            let too_long = |_| io::Error::other(format!("the answer has more than {ANSWER_BYTES_MAX} bytes"));
            if let Some((_, answer)) = self.pipeline.reply().map_err(too_long)? {
                return Ok(answer);
            }
            match self.stream.read(self.pipeline.room()).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                received => self.pipeline.received(received),
            }
        }
    }
}

/// Parses the line at the start of `input`, with any text, as a whole answer. Used for lines that
/// the protocol's parser does not know, so that an error can quote them.
pub(super) fn line(input: &[u8]) -> Step<()> {
    let end = input.iter().position(|&byte| byte == b'\n');
    end.map_or(Step::Incomplete(input.len() + 1), |end| Step::Done(end + 1, ()))
}
