//! The task of one connection to a server: connects, sends the greeting (the operations that log in
//! and select a database), and then writes and reads until the connection or its pool ends.

use std::io;
use std::sync::Arc;
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
        Ok(mut driver) => {
            let ended = driver.serve(&link, &mut queue).await;
            // Closed before the operations are failed: a caller that learns of the failure must not
            // find this connection in the pool.
            queue.close();
            driver.fail(&ended);
            let refused = driver.refused;
            drop(driver);
            match refused {
                // The server would refuse the next connection as well.
                true => answer_all(&mut queue, |_| Failed::Cause(ended.clone())).await,
                false => answer_all(&mut queue, |operation| Failed::Unsent(operation)).await,
            }
        }
        Err(cause) => {
            queue.close();
            answer_all(&mut queue, |_| Failed::Cause(cause.clone())).await;
        }
    }
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

/// Opens a connection. If the server refuses the password and there is a new one, tries that once.
async fn open<E: Exchange>(link: &Link<E>) -> Result<Driver<E>, Cause> {
    let Some(password) = &link.password else { return greeted(link, None).await };
    let shown = password.current();
    match greeted(link, Some(&shown)).await {
        Err(cause) if password.has_changed(&shown, &cause) => greeted(link, Some(&password.current())).await,
        opened => opened,
    }
}

async fn greeted<E: Exchange>(link: &Link<E>, password: Option<&str>) -> Result<Driver<E>, Cause> {
    let connected = link.endpoint.connect().await?;
    let (read, write) = tokio::io::split(connected.io);
    let limits = Limits {
        in_flight_max: IN_FLIGHT_MAX,
        piece_bytes_max: link.value_bytes_max.saturating_add(LINE_BYTES_MAX),
    };
    let mut driver =
        Driver { read, write, pipeline: Pipeline::new(limits), unflushed: false, refused: false };
    for operation in (link.greeting)(password) {
        match timeout(link.endpoint.timeout, driver.greet(&link.endpoint, operation)).await {
            Ok(greeted) => greeted?,
            Err(_) => return Err(Cause::silent(&link.endpoint.address, link.endpoint.timeout)),
        }
    }
    Ok(driver)
}

/// An open connection, its buffers and the operations in flight on it.
struct Driver<E: Exchange> {
    read: ReadHalf<Box<dyn Io>>,
    write: WriteHalf<Box<dyn Io>>,
    pipeline: Pipeline<InFlight<E>>,
    /// True while there are bytes to write, or bytes written may still be in the buffer of TLS.
    unflushed: bool,
    /// True once the server has sent an error that refuses this connection.
    refused: bool,
}

struct InFlight<E: Exchange> {
    exchange: E,
    reply: oneshot::Sender<Result<E::Outcome, Failed<E>>>,
    _counted: Option<super::Counted>,
}

impl<E: Exchange> pipeline::Exchange for InFlight<E> {
    type Answer = E::Answer;
    type Error = E::Error;

    fn read(&mut self, input: &[u8]) -> Result<Step<E::Answer>, E::Error> {
        self.exchange.read(input)
    }
}

impl<E: Exchange> Driver<E> {
    /// Executes one operation of the greeting, with no other in flight.
    async fn greet(&mut self, endpoint: &Endpoint, operation: Operation<E>) -> Result<(), Cause> {
        let Operation { request, exchange, .. } = operation;
        let (reply, mut answer) = oneshot::channel();
        let in_flight = InFlight { exchange, reply, _counted: None };
        self.pipeline.push(in_flight, |_, out| out.extend_from_slice(&request));
        let exchanged = self.exchange(endpoint).await;
        match (answer.try_recv(), exchanged) {
            (Ok(Ok(_)), _) => Ok(()),
            // The server's answer is more specific than the end of the connection after it.
            (Ok(Err(Failed::Cause(cause))), _) | (_, Err(cause)) => Err(cause),
            (Ok(Err(Failed::Unsent(_))) | Err(_), Ok(())) => unreachable!("it was sent, and it is answered"),
        }
    }

    /// Sends the pending requests and reads until all operations in flight are answered.
    async fn exchange(&mut self, endpoint: &Endpoint) -> Result<(), Cause> {
        let unsent = self.pipeline.unsent();
        let bytes = unsent.len();
        let sent = async {
            self.write.write_all(unsent).await?;
            self.write.flush().await
        };
        if let Err(error) = sent.await {
            return Err(self.close_reason(endpoint, &error).await);
        }
        self.pipeline.sent(bytes);
        while self.pipeline.in_flight() > 0 {
            let received = self.read.read(self.pipeline.room()).await;
            self.received(endpoint, received)?;
        }
        Ok(())
    }

    /// The cause of a write that failed with `error`. A reason that the server sent before it
    /// closed the connection is still to be read, and is more specific than the error.
    async fn close_reason(&mut self, endpoint: &Endpoint, error: &io::Error) -> Cause {
        let read = async {
            loop {
                match self.read.read(self.pipeline.room()).await {
                    Ok(0) => return endpoint.broken(error),
                    received => {
                        if let Err(cause) = self.received(endpoint, received) {
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
    async fn serve(&mut self, link: &Link<E>, queue: &mut mpsc::Receiver<Queued<E>>) -> Cause {
        let deadline = tokio::time::sleep(link.answer_timeout);
        tokio::pin!(deadline);
        let mut progress = Instant::now();
        loop {
            let takes = self.pipeline.unsent().is_empty() && !self.pipeline.is_full() && !queue.is_closed();
            let waits = self.pipeline.in_flight() > 0;
            if !waits && queue.is_closed() {
                return Cause::Closed;
            }
            let (unsent, room) = self.pipeline.buffers();
            tokio::select! {
                queued = queue.recv(), if takes => {
                    if !waits {
                        progress = Instant::now();
                        deadline.as_mut().reset(progress + link.answer_timeout);
                    }
                    self.take(queued, queue);
                }
                // While reading: some servers read on only when their answers are read.
                written = write_some(&mut self.write, unsent), if self.unflushed => match written {
                    Ok(bytes) => {
                        self.unflushed = bytes > 0;
                        self.pipeline.sent(bytes);
                        if self.pipeline.unsent().is_empty() {
                            self.pipeline.shrink();
                        } else {
                            // A server that takes in a long request makes progress.
                            progress = Instant::now();
                        }
                    }
                    Err(error) => return self.close_reason(&link.endpoint, &error).await,
                },
                received = self.read.read(room) => {
                    progress = Instant::now();
                    if let Err(cause) = self.received(&link.endpoint, received) {
                        return cause;
                    }
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
            if !reply.is_closed() {
                let Operation { request, exchange, .. } = operation;
                let in_flight = InFlight { exchange, reply, _counted: Some(_counted) };
                self.pipeline.push(in_flight, |_, out| out.extend_from_slice(&request));
                self.unflushed = true;
            }
            let has_room = self.pipeline.unsent().len() < GATHERED_BYTES_MAX && !self.pipeline.is_full();
            next = if has_room { queue.try_recv().ok() } else { None };
        }
    }

    /// Answers the operations whose replies are complete after a read with the result `received`.
    fn received(&mut self, endpoint: &Endpoint, received: io::Result<usize>) -> Result<(), Cause> {
        match received {
            Ok(0) => {
                let detail = "it closed the connection".to_owned();
                return Err(Cause::Reset { address: endpoint.address.to_string(), detail });
            }
            Ok(bytes) => self.pipeline.received(bytes),
            Err(error) => return Err(endpoint.broken(&error)),
        }
        while let Some((InFlight { reply, .. }, answer)) =
            self.pipeline.reply().map_err(|error| self.not_a_reply(endpoint, error))?
        {
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
        Cause::Protocol { address: endpoint.address.to_string(), expected: E::PROTOCOL, detail }
    }

    /// Fails every operation in flight on the connection.
    fn fail(&mut self, cause: &Cause) {
        for InFlight { reply, .. } in self.pipeline.abandon() {
            let _ = reply.send(Err(Failed::Cause(cause.clone())));
        }
    }
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
