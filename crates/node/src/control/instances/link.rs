//! A connection to an instance: one command at a time, each answered within a timeout.

use std::io;
use std::time::Duration;

use futures_util::FutureExt;
use sherwood_ports::access::AccessError;
use sherwood_wire::pipeline::{Exchange, Limits, Pipeline, ReplyError, Step};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

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
    /// The instance closed a connection that had served a whole poll before, without sending any
    /// part of an answer. Some instances close idle connections, so only a new connection shows
    /// whether this one is reachable.
    #[error("{doing} found that it had closed the connection")]
    Closed {
        /// Operation during which the connection was closed, such as `reading INFO`.
        doing: &'static str,
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
pub(super) type Piece = fn(&[u8]) -> Result<Step<()>, Malformed>;

/// The reason why received bytes are not an answer. The start of the next answer is then unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("a text of its answer is longer or shorter than it announced")]
    Length,
    #[error("its answer has more than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
    #[error("it answered what it was not asked")]
    Unsolicited,
}

/// An answer in flight, kept as it is received.
struct Answer {
    piece: Piece,
    bytes: Vec<u8>,
}

impl Exchange for Answer {
    type Answer = Vec<u8>;
    type Error = Malformed;

    fn read(&mut self, input: &[u8]) -> Result<Step<Vec<u8>>, Malformed> {
        let (used, is_last) = match (self.piece)(input)? {
            Step::Incomplete(need) => return Ok(Step::Incomplete(need)),
            Step::Used(used) => (used, false),
            Step::Done(used, ()) => (used, true),
        };
        self.bytes.extend_from_slice(&input[..used]);
        match is_last {
            true => Ok(Step::Done(used, std::mem::take(&mut self.bytes))),
            false if self.bytes.len() > ANSWER_BYTES_MAX => Err(Malformed::TooLong),
            false => Ok(Step::Used(used)),
        }
    }
}

impl From<ReplyError<Malformed>> for Malformed {
    fn from(error: ReplyError<Self>) -> Self {
        match error {
            ReplyError::Exchange(malformed) => malformed,
            ReplyError::Unsolicited => Self::Unsolicited,
            ReplyError::TooLong { .. } => Self::TooLong,
        }
    }
}

/// A byte stream to an instance.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to an external cache instance.
pub(super) struct Link {
    stream: Box<dyn Stream>,
    piece: Piece,
    pipeline: Pipeline<Answer>,
    /// True once the connection has served a whole poll.
    is_kept: bool,
}

impl Link {
    /// Connects to an instance; `piece` parses its answers.
    pub(super) async fn open(address: &str, piece: Piece) -> Result<Self, Trouble> {
        let opened = timeout(TIMEOUT, connect(address)).await;
        let stream = opened.map_err(|_| Trouble::Late { doing: "connecting" })?.map_err(Trouble::Connect)?;
        let limits = Limits { in_flight_max: 1, piece_bytes_max: ANSWER_BYTES_MAX };
        Ok(Self { stream, piece, pipeline: Pipeline::new(limits), is_kept: false })
    }

    /// Notes that the connection has served a whole poll. If it is closed before an answer from now
    /// on, the error is [`Trouble::Closed`].
    pub(super) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Sends `request` and returns its answer. The connection must not be used after an error.
    pub(super) async fn ask(&mut self, doing: &'static str, request: &[u8]) -> Result<Vec<u8>, Trouble> {
        let asked = timeout(TIMEOUT, self.exchange(request)).await;
        let answer = asked.map_err(|_| Trouble::Late { doing })?;
        answer.map_err(|error| match self.is_kept && !self.pipeline.has_begun() {
            true => Trouble::Closed { doing },
            false => Trouble::Broken { doing, error },
        })
    }

    async fn exchange(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        // The end of a kept connection, or an answer that was not asked for, may have arrived.
        if let Some(received) = self.stream.read(self.pipeline.room()).now_or_never() {
            self.received(received)?;
        }
        if self.pipeline.has_begun() {
            return Err(io::Error::other(Malformed::Unsolicited));
        }
        let answer = Answer { piece: self.piece, bytes: Vec::new() };
        self.pipeline.push(answer, |_, out| out.extend_from_slice(request));
        self.stream.write_all(self.pipeline.unsent()).await?;
        self.pipeline.sent(request.len());
        loop {
            let malformed = |error| io::Error::other(Malformed::from(error));
            if let Some((_, answer)) = self.pipeline.reply().map_err(malformed)? {
                return Ok(answer);
            }
            let received = self.stream.read(self.pipeline.room()).await;
            self.received(received)?;
        }
    }

    fn received(&mut self, received: io::Result<usize>) -> io::Result<()> {
        match received? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => {
                self.pipeline.received(bytes);
                Ok(())
            }
        }
    }
}

async fn connect(address: &str) -> io::Result<Box<dyn Stream>> {
    #[cfg(test)]
    if let Some(network) = super::simulated::Network::of_this_thread() {
        return Ok(Box::new(network.connect().await?));
    }
    Ok(Box::new(TcpStream::connect(address).await?))
}

/// Parses the line at the start of `input`, with any text, as a whole answer. Used for lines that
/// the protocol's parser does not know, so that an error can quote them.
pub(super) fn line(input: &[u8]) -> Step<()> {
    let end = input.iter().position(|&byte| byte == b'\n');
    end.map_or(Step::Incomplete(input.len() + 1), |end| Step::Done(end + 1, ()))
}
