//! The task of one connection to a server: connects, sends the greeting (the operations that log in
//! and select a database), and then writes and reads until the connection or its pool ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sherwood_wire::pipeline::{self, Limits, Pipeline, ReplyError, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::{Exchange, Failed, Link, Operation, Queued};
use crate::Cause;
use crate::remote::socket::{Endpoint, Io};

/// Most operations of a connection that are sent and not answered; more wait in the queue.
const IN_FLIGHT_MAX: usize = 256;
/// Bytes of requests that are gathered before they are written, unless one request alone is longer.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// Bytes of a reply besides a value: the reply's lines.
const LINE_BYTES_MAX: usize = 2 * sherwood_wire::resp::LINE_BYTES_MAX;
/// Time to read the reason for which a server closes a connection: it was sent before and has
/// arrived or is about to.
const CLOSE_REASON_TIMEOUT: Duration = Duration::from_millis(100);

/// Opens the connection and executes the operations in `queue` until the connection ends; then
/// answers those that are still in the queue.
pub(super) async fn run<E: Exchange>(link: Arc<Link<E>>, mut queue: mpsc::Receiver<Queued<E>>) {
    match open(&link).await {
        Ok(driver) => drop(run_opened(driver, &link, queue).await),
        Err(cause) => {
            queue.close();
            answer_all(&mut queue, |_| Failed::Ended(cause.clone())).await;
        }
    }
}

/// Executes the operations in `queue` until the connection ends, and returns the cause of its end,
/// once those that are still in the queue are answered.
pub(super) async fn run_opened<E: Exchange>(
    mut driver: Driver<E>,
    link: &Link<E>,
    mut queue: mpsc::Receiver<Queued<E>>,
) -> Cause {
    let ended = driver.serve(link, &mut queue).await;
    // Read before this connection leaves the pool, so that the one that takes its place is one of
    // those that the returned operations may use.
    let opened = link.opened.load(Ordering::Relaxed);
    // Closed before the operations are failed: a caller that learns of the failure must not find
    // this connection in the pool.
    queue.close();
    driver.fail(&ended, opened);
    let refused = driver.refused;
    drop(driver);
    match refused {
        // The server would refuse the next connection as well.
        true => answer_all(&mut queue, |_| Failed::Ended(ended.clone())).await,
        false => answer_all(&mut queue, |operation| Failed::Returned { operation, opened }).await,
    }
    ended
}

/// Fails the operations in a connection's closed queue, including those just being put into it.
async fn answer_all<E: Exchange>(
    queue: &mut mpsc::Receiver<Queued<E>>,
    failed: impl Fn(Operation<E>) -> Failed<E>,
) {
    while let Some(Queued { operation, reply, _counted }) = queue.recv().await {
        let _ = reply.send(Err(failed(operation)));
    }
}

/// Opens a connection. If the server refuses the password and there is a new one, tries once more
/// with the new one.
pub(super) async fn open<E: Exchange>(link: &Link<E>) -> Result<Driver<E>, Cause> {
    let Some(password) = &link.password else { return greeted(link, None).await };
    let shown = password.current();
    match greeted(link, Some(&shown)).await {
        Err(cause) if password.has_changed(&shown, &cause) => greeted(link, Some(&password.current())).await,
        opened => opened,
    }
}

async fn greeted<E: Exchange>(link: &Link<E>, password: Option<&str>) -> Result<Driver<E>, Cause> {
    let connected = link.endpoint.connect().await?;
    let mut driver = Driver::new(connected.io, link);
    for operation in (link.greeting)(password) {
        match timeout(link.endpoint.timeout, driver.greet(link, operation)).await {
            Ok(greeted) => greeted?,
            Err(_) => return Err(Cause::silent(&link.endpoint.address, link.endpoint.timeout)),
        }
    }
    driver.reused = false;
    Ok(driver)
}

/// An open connection, its buffers and the operations in flight on it.
pub(super) struct Driver<E: Exchange> {
    read: ReadHalf<Box<dyn Io>>,
    write: WriteHalf<Box<dyn Io>>,
    pipeline: Pipeline<InFlight<E>>,
    /// Bytes of all requests taken from the queue so far.
    begun: u64,
    /// Bytes of requests written so far.
    written: u64,
    /// True while there are bytes to write, or bytes written may still be in the buffer of TLS.
    unflushed: bool,
    /// True once the connection has answered a call, or has outlived the call that opened it. The
    /// end of any other connection means that the server refused it, not that it closed an idle
    /// one.
    reused: bool,
    /// True once the server has sent an error that refuses this connection.
    refused: bool,
    /// True once an answer has shown that a new connection may succeed where this one fails. This
    /// one then takes no more operations, and ends after those in flight.
    outdated: bool,
}

struct InFlight<E: Exchange> {
    operation: Operation<E>,
    /// Bytes of all requests before this one.
    start: u64,
    reply: oneshot::Sender<Result<E::Outcome, Failed<E>>>,
    _counted: Option<super::Counted>,
}

impl<E: Exchange> pipeline::Exchange for InFlight<E> {
    type Answer = E::Answer;
    type Error = E::Error;

    fn read(&mut self, input: &[u8]) -> Result<Step<E::Answer>, E::Error> {
        self.operation.exchange.read(input)
    }
}

impl<E: Exchange> Driver<E> {
    pub(super) fn new(io: Box<dyn Io>, link: &Link<E>) -> Self {
        let (read, write) = tokio::io::split(io);
        let limits = Limits {
            in_flight_max: IN_FLIGHT_MAX,
            piece_bytes_max: link.value_bytes_max.saturating_add(LINE_BYTES_MAX),
        };
        Self {
            read,
            write,
            pipeline: Pipeline::new(limits),
            begun: 0,
            written: 0,
            unflushed: false,
            reused: false,
            refused: false,
            outdated: false,
        }
    }

    /// Returns the socket of a connection that has executed its greeting and nothing since.
    pub(super) fn into_io(self) -> Box<dyn Io> {
        self.read.unsplit(self.write)
    }

    /// Executes one operation of the greeting, with no other in flight.
    async fn greet(&mut self, link: &Link<E>, operation: Operation<E>) -> Result<(), Cause> {
        let (reply, mut answer) = oneshot::channel();
        self.push(operation, reply, None);
        let exchanged = self.exchange(link).await;
        match (answer.try_recv(), exchanged) {
            (Ok(Ok(_)), _) => Ok(()),
            // The server's answer is more specific than the end of the connection after it.
            (Ok(Err(Failed::Cause(cause) | Failed::Ended(cause))), _) | (_, Err(cause)) => Err(cause),
            (Ok(Err(Failed::Returned { .. })) | Err(_), Ok(())) => {
                unreachable!("it was sent, and it is answered")
            }
        }
    }

    /// Adds an operation to those in flight, and its request to the bytes to write.
    fn push(
        &mut self,
        operation: Operation<E>,
        reply: oneshot::Sender<Result<E::Outcome, Failed<E>>>,
        counted: Option<super::Counted>,
    ) {
        let start = self.begun;
        self.begun += operation.request.len() as u64;
        let in_flight = InFlight { operation, start, reply, _counted: counted };
        self.pipeline.push(in_flight, |one, out| out.extend_from_slice(&one.operation.request));
    }

    /// Removes the first `bytes` of the bytes to write, which were written.
    fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
        self.pipeline.sent(bytes);
    }

    /// Sends the pending requests and reads until all operations in flight are answered.
    async fn exchange(&mut self, link: &Link<E>) -> Result<(), Cause> {
        let unsent = self.pipeline.unsent();
        let bytes = unsent.len();
        let sent = async {
            self.write.write_all(unsent).await?;
            self.write.flush().await
        };
        if let Err(error) = sent.await {
            return Err(self.close_reason(link, &error).await);
        }
        self.wrote(bytes);
        while self.pipeline.in_flight() > 0 {
            let received = self.read.read(self.pipeline.room()).await;
            self.received(link, received)?;
        }
        Ok(())
    }

    /// The cause of a write that failed with `error`. A reason that the server sent before it
    /// closed the connection is still to be read, and is more specific than the error.
    async fn close_reason(&mut self, link: &Link<E>, error: &io::Error) -> Cause {
        let endpoint = &link.endpoint;
        let read = async {
            loop {
                match self.read.read(self.pipeline.room()).await {
                    Ok(0) => return endpoint.broken(error),
                    received => {
                        if let Err(cause) = self.received(link, received) {
                            return cause;
                        }
                    }
                }
            }
        };
        timeout(CLOSE_REASON_TIMEOUT, read).await.unwrap_or_else(|_| endpoint.broken(error))
    }

    /// Writes and reads until the connection ends, and returns the cause; or until the pool is gone
    /// and every operation is answered.
    pub(super) async fn serve(&mut self, link: &Link<E>, queue: &mut mpsc::Receiver<Queued<E>>) -> Cause {
        let deadline = tokio::time::sleep(link.answer_timeout);
        tokio::pin!(deadline);
        let mut progress = Instant::now();
        loop {
            let waits = self.pipeline.in_flight() > 0;
            if !waits && (self.outdated || queue.is_closed()) {
                return Cause::Closed;
            }
            let may_take = !self.outdated && !queue.is_closed();
            let takes = may_take && self.pipeline.unsent().is_empty() && !self.pipeline.is_full();
            let (unsent, room) = self.pipeline.buffers();
            tokio::select! {
                // The end of an idle connection is noticed before anything is written to it.
                biased;
                received = self.read.read(room) => {
                    progress = Instant::now();
                    if let Err(cause) = self.received(link, received) {
                        return cause;
                    }
                }
                // While reading: some servers read on only when their answers are read.
                written = write_some(&mut self.write, unsent), if self.unflushed => match written {
                    Ok(bytes) => {
                        self.unflushed = bytes > 0;
                        self.wrote(bytes);
                        if self.pipeline.unsent().is_empty() {
                            self.pipeline.shrink();
                        } else {
                            // A server that takes in a long request makes progress.
                            progress = Instant::now();
                        }
                    }
                    Err(error) => return self.close_reason(link, &error).await,
                },
                queued = queue.recv(), if takes => {
                    if !waits {
                        progress = Instant::now();
                        deadline.as_mut().reset(progress + link.answer_timeout);
                    }
                    self.take(queued, queue);
                }
                () = deadline.as_mut(), if waits => {
                    // The timer is moved when it fires: moving it with every read would cost more.
                    let until = progress + link.answer_timeout;
                    if until <= Instant::now() {
                        return Cause::unanswered(&link.endpoint.address, link.answer_timeout);
                    }
                    deadline.as_mut().reset(until);
                }
            }
        }
    }

    /// Takes `first` and more operations from the queue for sending, as many as should be written
    /// at once.
    fn take(&mut self, first: Option<Queued<E>>, queue: &mut mpsc::Receiver<Queued<E>>) {
        let mut next = first;
        while let Some(Queued { operation, reply, _counted }) = next {
            // An operation whose caller has gone is not sent.
            if reply.is_closed() {
                self.reused = true;
            } else {
                self.push(operation, reply, Some(_counted));
                self.unflushed = true;
            }
            let has_room = self.pipeline.unsent().len() < GATHERED_BYTES_MAX && !self.pipeline.is_full();
            next = if has_room { queue.try_recv().ok() } else { None };
        }
    }

    /// Answers the operations whose replies are complete after a read with the result `received`.
    fn received(&mut self, link: &Link<E>, received: io::Result<usize>) -> Result<(), Cause> {
        let endpoint = &link.endpoint;
        match received {
            Ok(0) => {
                let detail = "it closed the connection".to_owned();
                return Err(Cause::Reset { address: endpoint.address.to_string(), detail });
            }
            Ok(bytes) => self.pipeline.received(bytes),
            Err(error) => return Err(endpoint.broken(&error)),
        }
        while let Some((InFlight { start, reply, .. }, answer)) =
            self.pipeline.reply().map_err(|error| self.not_a_reply(endpoint, error))?
        {
            if start >= self.written {
                let cause = protocol::<E>(endpoint, "an answer to a request that was not sent".to_owned());
                let _ = reply.send(Err(Failed::Ended(cause.clone())));
                return Err(cause);
            }
            match &answer {
                Ok(_) => self.reused = true,
                Err(cause) => self.outdated |= E::is_outdated(cause) && link.gives_up_outdated(),
            }
            let _ = reply.send(answer.map_err(Failed::Cause));
        }
        self.pipeline.shrink();
        Ok(())
    }

    fn not_a_reply(&mut self, endpoint: &Endpoint, error: ReplyError<String>) -> Cause {
        let detail = match error {
            ReplyError::Exchange(detail) => detail,
            ReplyError::Unsolicited => {
                let unread = self.pipeline.unread();
                if let Some(cause) = E::unsolicited(unread) {
                    self.refused = true;
                    return cause;
                }
                format!("{:?} without a question", String::from_utf8_lossy(&unread[..unread.len().min(64)]))
            }
            error => error.to_string(),
        };
        protocol::<E>(endpoint, detail)
    }

    /// Fails the operations in flight on the connection, which has ended with `cause`, except those
    /// that may be sent on a connection opened after the first `opened` ones; these are given back
    /// to their callers. They are the operations that were not sent, and, if the server ended a
    /// reused connection, the reads whose answers had not begun.
    fn fail(&mut self, cause: &Cause, opened: u64) {
        let was_idle = self.reused && matches!(cause, Cause::Reset { .. });
        let mut has_begun = self.pipeline.has_begun();
        for InFlight { mut operation, start, reply, .. } in self.pipeline.abandon() {
            let has_begun = std::mem::take(&mut has_begun);
            let is_unsent = start >= self.written;
            let failed = if is_unsent || (was_idle && !has_begun && operation.may_be_sent_again) {
                operation.may_be_sent_again &= is_unsent;
                Failed::Returned { operation, opened }
            } else {
                Failed::Ended(cause.clone())
            };
            let _ = reply.send(Err(failed));
        }
    }
}

/// Returns the cause for a server that does not speak the protocol of `E`.
fn protocol<E: Exchange>(endpoint: &Endpoint, detail: String) -> Cause {
    Cause::Protocol { address: endpoint.address.to_string(), expected: E::PROTOCOL, detail }
}

/// Writes some of `unsent`, or flushes if it is empty; returns the number of bytes written. The
/// future may be dropped and the write started again.
async fn write_some(write: &mut WriteHalf<Box<dyn Io>>, unsent: &[u8]) -> io::Result<usize> {
    if unsent.is_empty() {
        return write.flush().await.map(|()| 0);
    }
    match write.write(unsent).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        bytes => Ok(bytes),
    }
}
