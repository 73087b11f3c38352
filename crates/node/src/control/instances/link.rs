//! A connection to an instance: lines out, lines in, each within its time.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::access::AccessError;

/// How long an instance may take to be reached, and for each answer. Chosen: a cache answers in a
/// millisecond, and one that takes a second is of no use to those who wait for it either.
const PATIENCE: Duration = Duration::from_secs(1);

/// Most bytes of one answer: statistics of all slab classes are a tenth of this.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Bytes of an answer that a message repeats.
const SHOWN_BYTES_MAX: usize = 100;

/// Why an instance cannot be resized now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// Nobody is there.
    #[error("connecting failed: {0}; is it running, and is the address right?")]
    Connect(io::Error),
    /// There is no password to show.
    #[error(transparent)]
    Password(#[from] AccessError),
    /// Too slow.
    #[error("{doing} took longer than {PATIENCE:?}; is it overloaded, or stopped?")]
    Late {
        /// What was attempted.
        doing: &'static str,
    },
    /// It went away.
    #[error("{doing} failed: {error}; it is tried again")]
    Broken {
        /// What was attempted.
        doing: &'static str,
        /// The system's words.
        error: io::Error,
    },
    /// It said no, or what is no answer.
    #[error("{doing} was answered {said:?}; {remedy}")]
    Refused {
        /// What was attempted.
        doing: &'static str,
        /// The beginning of the answer.
        said: String,
        /// What to do.
        remedy: &'static str,
    },
    /// It answers, and is left alone.
    #[error(transparent)]
    Unfit(#[from] Unfit),
}

/// What an instance says of itself that keeps it from being resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    /// A Redis that would refuse writes.
    #[error(
        "its maxmemory-policy is noeviction, under which it refuses writes once it is full; \
         set one that evicts, such as allkeys-lru"
    )]
    NoEviction,
    /// A memcached that would be told to be small and stay large.
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

/// A connection.
pub(super) struct Link {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Link {
    pub(super) async fn open(address: &str) -> Result<Self, Trouble> {
        let opened = timeout(PATIENCE, TcpStream::connect(address)).await;
        let stream = opened.map_err(|_| Trouble::Late { doing: "connecting" })?.map_err(Trouble::Connect)?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Sends `request` and returns what comes back, up to where `whole` says that it is all, by the
    /// bytes it takes.
    pub(super) async fn ask(
        &mut self,
        doing: &'static str,
        request: &[u8],
        whole: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Vec<u8>, Trouble> {
        let asked = timeout(PATIENCE, self.exchange(request, whole)).await;
        let answer = asked.map_err(|_| Trouble::Late { doing })?;
        answer.map_err(|error| Trouble::Broken { doing, error })
    }

    async fn exchange(
        &mut self,
        request: &[u8],
        whole: impl Fn(&[u8]) -> Option<usize>,
    ) -> io::Result<Vec<u8>> {
        self.stream.write_all(request).await?;
        loop {
            if let Some(length) = whole(&self.received) {
                let rest = self.received.split_off(length);
                return Ok(std::mem::replace(&mut self.received, rest));
            }
            if self.received.len() > ANSWER_BYTES_MAX {
                return Err(io::Error::other(format!("the answer has more than {ANSWER_BYTES_MAX} bytes")));
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The length of the first line, its end included.
pub(super) fn line(received: &[u8]) -> Option<usize> {
    received.windows(2).position(|pair| pair == b"\r\n").map(|at| at + 2)
}
