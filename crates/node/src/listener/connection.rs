//! One client: its buffers and our patience with it.
//!
//! The loop is: execute all commands that are here, send all answers, wait for more. Both buffers are bounded by never
//! doing one step while another is due: nothing is executed while the output is over its bound, and nothing is read while
//! a command is being executed, so a client that does not read is soon unable to write.

use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BufMut;
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, Sleep, timeout};

use super::conversation::{Conversation, Next};
use super::counters::{Count, Counters};
use super::fetch::fetch;
use super::shared::Shared;

/// What a buffer keeps between commands, and the most that is read at once of short ones.
const BUFFER_BYTES: usize = 16 * 1024;
/// How long a client that is hung up on may go on sending, so that it gets to read why.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves one connection on thread number `thread` until either side closes it.
pub(super) async fn serve<C: Conversation>(
    conversation: C,
    read: OwnedReadHalf,
    write: Arc<OwnedWriteHalf>,
    shared: Arc<Shared>,
    thread: usize,
) {
    let (shared, counters) = (&*shared, &shared.counters[thread]);
    let idle = shared.options.idle_timeout.map(IdleTimer::new);
    let requests = Requests { counters, read, bytes: Vec::new(), start: 0, need: 1, idle };
    let answers = Answers { shared, counters, write, output: Vec::new() };
    match converse(conversation, requests, answers).await {
        Ok(()) => {}
        Err(End::Idle) => counters.increment(Count::IdleKicks),
        Err(End::Slow) => counters.increment(Count::SlowKicks),
        Err(End::Lost(error)) => tracing::debug!(%error, "connection lost"),
    }
}

/// Why a connection ended before its client closed it.
#[derive(Debug)]
enum End {
    /// Nothing arrived for too long.
    Idle,
    /// The client took nothing for too long.
    Slow,
    /// It broke.
    Lost(io::Error),
}

async fn converse<C: Conversation>(
    mut conversation: C,
    mut requests: Requests<'_>,
    mut answers: Answers<'_>,
) -> Result<(), End> {
    let shared = answers.shared;
    loop {
        let input = &requests.bytes[requests.start..];
        let advance = conversation.advance(shared.clock.moment(), input, &mut answers.output);
        requests.start += advance.consumed;
        match advance.next {
            Next::Need(need) => {
                requests.need = need;
                answers.send().await?;
                answers.output.shrink_to(BUFFER_BYTES);
                match requests.receive().await? {
                    0 => return Ok(()),
                    // There is probably more where this came from: let other connections have their turn.
                    received if received >= BUFFER_BYTES => tokio::task::yield_now().await,
                    _ => {}
                }
            }
            Next::Send => {
                answers.send().await?;
                tokio::task::yield_now().await;
            }
            Next::Fetch(wanted) => {
                let fetched = fetch(shared.service.backends.as_ref(), wanted).await;
                conversation.resume(shared.clock.moment(), fetched, &mut answers.output);
            }
            Next::Close => return answers.send().await,
            Next::HangUp => {
                answers.send().await?;
                return hang_up(requests, answers).await;
            }
        }
    }
}

/// Says that nothing more will come, and lets the client finish its sentence: closing a socket with unread bytes in it
/// would make the system throw away the answer that tells why.
async fn hang_up(mut requests: Requests<'_>, answers: Answers<'_>) -> Result<(), End> {
    SockRef::from(answers.write.as_ref().as_ref()).shutdown(Shutdown::Write).map_err(End::Lost)?;
    let read = async {
        loop {
            requests.start = requests.bytes.len();
            requests.need = 1;
            if requests.receive().await? == 0 {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(FAREWELL, read).await.unwrap_or(Ok(()))
}

/// What a client sends.
struct Requests<'a> {
    counters: &'a Counters,
    read: OwnedReadHalf,
    bytes: Vec<u8>,
    /// How many of `bytes` are used up.
    start: usize,
    /// How many that are not used up are waited for.
    need: usize,
    idle: Option<IdleTimer>,
}

impl Requests<'_> {
    /// Waits for bytes and returns how many came: 0 at the end.
    async fn receive(&mut self) -> Result<usize, End> {
        let room = self.make_room();
        let mut space = (&mut self.bytes).limit(room);
        let mut reading = pin!(self.read.read_buf(&mut space));
        let idle = &mut self.idle;
        let received = poll_fn(|cx| match reading.as_mut().poll(cx) {
            Poll::Ready(received) => Poll::Ready(received.map_err(End::Lost)),
            Poll::Pending => match idle.as_mut().map(|idle| idle.poll(cx)) {
                Some(Poll::Ready(())) => Poll::Ready(Err(End::Idle)),
                _ => Poll::Pending,
            },
        })
        .await?;
        if let Some(idle) = &mut self.idle {
            idle.heard = true;
        }
        self.counters.add(Count::BytesRead, received as u64);
        Ok(received)
    }

    /// Drops what is used up and returns how much is to be read now: what the parser waits for, but never much more than
    /// has arrived already, so that announcing a large value costs nothing.
    fn make_room(&mut self) -> usize {
        self.bytes.drain(..self.start);
        self.start = 0;
        let held = self.bytes.len();
        if held == 0 {
            self.bytes.shrink_to(BUFFER_BYTES);
        }
        let wanted = self.need.max(BUFFER_BYTES) - held;
        let room = wanted.min(held.max(BUFFER_BYTES));
        self.bytes.reserve_exact(room);
        room
    }
}

/// What a client is sent.
struct Answers<'a> {
    shared: &'a Shared,
    counters: &'a Counters,
    write: Arc<OwnedWriteHalf>,
    output: Vec<u8>,
}

impl Answers<'_> {
    /// Sends the output, waiting for a slow client for as long as it takes something now and then.
    async fn send(&mut self) -> Result<(), End> {
        let mut sent = 0;
        while sent < self.output.len() {
            match self.write.try_write(&self.output[sent..]) {
                Ok(0) => return Err(End::Lost(io::ErrorKind::WriteZero.into())),
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let patience = self.shared.options.write_timeout;
                    let writable = timeout(patience, self.write.writable()).await;
                    writable.map_err(|_| End::Slow)?.map_err(End::Lost)?;
                }
                Err(error) => return Err(End::Lost(error)),
            }
        }
        self.counters.add(Count::BytesWritten, sent as u64);
        self.output.clear();
        Ok(())
    }
}

/// Notices that nothing arrives. It rings every `timeout` and is satisfied if something arrived since the last time: the end
/// comes after one to two time-outs of silence, and a busy connection never has to set a timer.
struct IdleTimer {
    timeout: Duration,
    sleep: Pin<Box<Sleep>>,
    heard: bool,
}

impl IdleTimer {
    fn new(timeout: Duration) -> Self {
        Self { timeout, sleep: Box::pin(tokio::time::sleep(timeout)), heard: false }
    }

    /// Ready when nothing arrived for too long.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.sleep.as_mut().poll(cx).is_ready() {
            if !self.heard {
                return Poll::Ready(());
            }
            self.heard = false;
            self.sleep.as_mut().reset(Instant::now() + self.timeout);
        }
        Poll::Pending
    }
}
