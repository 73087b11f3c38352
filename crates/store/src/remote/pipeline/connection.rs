//! The task of one connection: connects, greets, and then writes and reads until the connection or
//! the pool ends.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::{Exchange, Failed, Link, Operation, Queued, Step};
use crate::Cause;
use crate::remote::socket::{Endpoint, Io};

/// Operations sent and not answered; more wait in the queue.
const UNDER_WAY_MAX: usize = 256;
/// Bytes that are gathered before they are written, unless one request alone is longer.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// How long a server that hung up is listened to: what it said has arrived or is about to.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Room for what arrives, to begin with and again after a long answer.
const INPUT_BYTES: usize = 16 << 10;
/// Room of a buffer beyond which it is given back when it is empty.
const BUFFER_BYTES_KEPT: usize = 256 << 10;

/// Lives as long as the connection; what is in the queue at its end is answered.
pub(super) async fn run<E: Exchange>(link: Arc<Link<E>>, mut queue: mpsc::Receiver<Queued<E>>) {
    match open(&link).await {
        Ok(mut wire) => {
            let ended = wire.serve(&link, &mut queue).await;
            // Closed before what was sent is failed: whoever hears of it finds this connection
            // gone.
            queue.close();
            wire.fail(&ended);
            let turned_away = wire.turned_away;
            drop(wire);
            match turned_away {
                // It would say the same to the next connection.
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

/// Answers what is in the closed queue, and what is just being put into it.
async fn answer_all<E: Exchange>(
    queue: &mut mpsc::Receiver<Queued<E>>,
    failed: impl Fn(Operation<E>) -> Failed<E>,
) {
    while let Some(Queued { operation, reply, _counted }) = queue.recv().await {
        let _ = reply.send(Err(failed(operation)));
    }
}

async fn open<E: Exchange>(link: &Link<E>) -> Result<Wire<E>, Cause> {
    let connected = link.endpoint.connect().await?;
    let (read, write) = tokio::io::split(connected.io);
    let mut wire = Wire {
        read,
        write,
        input: BytesMut::with_capacity(INPUT_BYTES),
        need: 1,
        output: BytesMut::new(),
        unflushed: false,
        under_way: VecDeque::new(),
        turned_away: false,
    };
    let patience = link.endpoint.timeout;
    for operation in (link.greeting)() {
        match timeout(patience, wire.greet(&link.endpoint, operation)).await {
            Ok(greeted) => greeted?,
            Err(_) => return Err(Cause::silent(&link.endpoint.address, patience)),
        }
    }
    Ok(wire)
}

/// A connection and what is under way on it.
struct Wire<E: Exchange> {
    read: ReadHalf<Box<dyn Io>>,
    write: WriteHalf<Box<dyn Io>>,
    /// What has arrived and is not used up.
    input: BytesMut,
    /// How long `input` has to be to be worth a look.
    need: usize,
    /// What is to be written.
    output: BytesMut,
    /// Whether there is some, or what was written may still lie in the encryption's buffer.
    unflushed: bool,
    /// What was sent, in order.
    under_way: VecDeque<UnderWay<E>>,
    /// Whether the server said that it does not want this connection.
    turned_away: bool,
}

struct UnderWay<E: Exchange> {
    exchange: E,
    reply: oneshot::Sender<Result<E::Answer, Failed<E>>>,
    _counted: Option<super::Counted>,
}

impl<E: Exchange> Wire<E> {
    /// One operation of the greeting, with nothing else under way.
    async fn greet(&mut self, endpoint: &Endpoint, operation: Operation<E>) -> Result<(), Cause> {
        let Operation { request, exchange, .. } = operation;
        let (reply, mut answer) = oneshot::channel();
        self.under_way.push_back(UnderWay { exchange, reply, _counted: None });
        let heard = self.hear(endpoint, &request).await;
        match (answer.try_recv(), heard) {
            (Ok(Ok(_)), _) => Ok(()),
            // What the server said of it tells more than that it hung up then.
            (Ok(Err(Failed::Cause(cause))), _) | (_, Err(cause)) => Err(cause),
            (Ok(Err(Failed::Unsent(_))) | Err(_), Ok(())) => unreachable!("it was sent, and it is answered"),
        }
    }

    /// Sends a request and reads until everything is answered.
    async fn hear(&mut self, endpoint: &Endpoint, request: &[u8]) -> Result<(), Cause> {
        let sent = async {
            self.write.write_all(request).await?;
            self.write.flush().await
        };
        if let Err(error) = sent.await {
            return Err(self.last_words(endpoint, &error).await);
        }
        while !self.under_way.is_empty() {
            let arrived = self.read.read_buf(&mut self.input).await;
            self.arrived(endpoint, arrived)?;
        }
        Ok(())
    }

    /// Why nothing more can be sent: what the server said before it hung up is still to be read,
    /// and tells more than that it did.
    async fn last_words(&mut self, endpoint: &Endpoint, error: &io::Error) -> Cause {
        let read = async {
            loop {
                match self.read.read_buf(&mut self.input).await {
                    Ok(0) => return endpoint.broken(error),
                    arrived => {
                        if let Err(cause) = self.arrived(endpoint, arrived) {
                            return cause;
                        }
                    }
                }
            }
        };
        timeout(LAST_WORDS, read).await.unwrap_or_else(|_| endpoint.broken(error))
    }

    /// Writes and reads until the connection ends, and says why; or until the pool is gone and all
    /// is answered.
    async fn serve(&mut self, link: &Link<E>, queue: &mut mpsc::Receiver<Queued<E>>) -> Cause {
        let patience = tokio::time::sleep(link.answer_timeout);
        tokio::pin!(patience);
        let mut heard = Instant::now();
        loop {
            let takes = self.output.is_empty() && self.under_way.len() < UNDER_WAY_MAX && !queue.is_closed();
            let waits = !self.under_way.is_empty();
            if !waits && queue.is_closed() {
                return Cause::Closed;
            }
            tokio::select! {
                queued = queue.recv(), if takes => {
                    if !waits {
                        heard = Instant::now();
                        patience.as_mut().reset(heard + link.answer_timeout);
                    }
                    self.take(queued, queue);
                }
                // Beside the reading: a server that answers may read on only when it is read from.
                pushed = push(&mut self.write, &mut self.output), if self.unflushed => match pushed {
                    Ok(unflushed) => {
                        self.unflushed = unflushed;
                        if self.output.is_empty() {
                            give_back(&mut self.output);
                        } else {
                            // It takes in what it is to answer, which is no silence.
                            heard = Instant::now();
                        }
                    }
                    Err(error) => return self.last_words(&link.endpoint, &error).await,
                },
                arrived = self.read.read_buf(&mut self.input) => {
                    heard = Instant::now();
                    if let Err(cause) = self.arrived(&link.endpoint, arrived) {
                        return cause;
                    }
                }
                () = patience.as_mut(), if waits => {
                    // The alarm is moved when it rings: moving it with every byte would cost more
                    // than it is worth.
                    let until = heard + link.answer_timeout;
                    if until <= Instant::now() {
                        return Cause::unanswered(&link.endpoint.address, link.answer_timeout);
                    }
                    patience.as_mut().reset(until);
                }
            }
        }
    }

    /// Takes what came out of the queue and what else is there, as far as it is good to write at
    /// once.
    fn take(&mut self, first: Option<Queued<E>>, queue: &mut mpsc::Receiver<Queued<E>>) {
        let mut next = first;
        while let Some(Queued { operation, reply, _counted }) = next {
            // What nobody waits for any more is not sent.
            if !reply.is_closed() {
                let Operation { request, exchange, .. } = operation;
                self.output.extend_from_slice(&request);
                self.unflushed = true;
                self.under_way.push_back(UnderWay { exchange, reply, _counted: Some(_counted) });
            }
            let room = self.output.len() < GATHERED_BYTES_MAX && self.under_way.len() < UNDER_WAY_MAX;
            next = if room { queue.try_recv().ok() } else { None };
        }
    }

    /// Understands what has arrived.
    fn arrived(&mut self, endpoint: &Endpoint, arrived: io::Result<usize>) -> Result<(), Cause> {
        match arrived {
            Ok(0) => {
                let detail = "it closed the connection".to_owned();
                return Err(Cause::Reset { address: endpoint.address.to_string(), detail });
            }
            Ok(_) => {}
            Err(error) => return Err(endpoint.broken(&error)),
        }
        while !self.input.is_empty() && self.input.len() >= self.need {
            self.step(endpoint)?;
        }
        if self.input.is_empty() {
            give_back(&mut self.input);
        }
        self.input.reserve(self.need.saturating_sub(self.input.len()).max(INPUT_BYTES / 4));
        Ok(())
    }

    fn step(&mut self, endpoint: &Endpoint) -> Result<(), Cause> {
        let protocol = |detail| {
            let address = endpoint.address.to_string();
            Cause::Protocol { address, expected: E::PROTOCOL, detail }
        };
        let Some(first) = self.under_way.front_mut() else {
            if let Some(cause) = E::unasked(&self.input) {
                self.turned_away = true;
                return Err(cause);
            }
            return Err(protocol(format!("{:?} without a question", excerpt(&self.input))));
        };
        self.need = 1;
        match first.exchange.read(&self.input).map_err(protocol)? {
            Step::Incomplete(need) => self.need = need.max(self.input.len() + 1),
            Step::Used(used) => self.input.advance(used),
            Step::Done(used, answer) => {
                self.input.advance(used);
                let ended = self.under_way.pop_front();
                if let Some(UnderWay { reply, .. }) = ended {
                    let _ = reply.send(answer.map_err(Failed::Cause));
                }
            }
        }
        Ok(())
    }

    /// Tells everybody who waits what the connection ended of.
    fn fail(&mut self, cause: &Cause) {
        for UnderWay { reply, .. } in self.under_way.drain(..) {
            let _ = reply.send(Err(Failed::Cause(cause.clone())));
        }
    }
}

/// Gives back what an empty buffer took for something long.
fn give_back(buffer: &mut BytesMut) {
    if buffer.capacity() > BUFFER_BYTES_KEPT {
        *buffer = BytesMut::with_capacity(INPUT_BYTES);
    }
}

/// Writes some of `output`, or where there is none sees to it that all that was written is sent;
/// whether there is more to do. May be dropped and begun again.
async fn push(write: &mut WriteHalf<Box<dyn Io>>, output: &mut BytesMut) -> io::Result<bool> {
    if output.is_empty() {
        return write.flush().await.map(|()| false);
    }
    match write.write_buf(output).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        _ => Ok(true),
    }
}

/// The start of what arrived, for an error.
fn excerpt(input: &[u8]) -> String {
    String::from_utf8_lossy(&Bytes::copy_from_slice(&input[..input.len().min(64)])).into_owned()
}
