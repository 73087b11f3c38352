//! A few connections to one server, with many operations in flight on each.
//!
//! A protocol that answers in the order of requests can be pipelined: the next request is sent
//! while earlier ones are being answered. So a few connections carry any number of calls, and a
//! call needs no connection of its own. The answer to a call that was dropped is read by the
//! connection's task and discarded.
//!
//! ```text
//!   call ──▶ Pool: first connection with room ──▶ queue (bounded) ──▶ task: writes, reads ──▶ server
//!     ▲                                                              │
//!     └──────────────────────── oneshot reply ◀──────────────────────┘
//! ```
//!
//! Small requests share a connection: requests that wait on one connection are written by one
//! system call, which costs both sides much less than as many connections. Long requests would
//! delay others, so a connection with more than [`PACKED_KEYS`] keys in flight is skipped for the
//! next one, and if all are, the least busy is used. The length of an answer is not known in
//! advance: a key counts the same whatever the size of its value.
//!
//! A connection that breaks returns the operations of which it has sent nothing, and fails those it
//! has sent, whose outcome is unknown. A server may close an idle connection just when it is used
//! again, so a read whose answer had not begun is returned as well, once, if the connection had
//! answered before. All returned operations share one connection, which was opened after the broken
//! one ended, since other existing connections may be about to end too. A new connection is opened
//! by the next call that needs one.
//!
//! A [`Session`] is a connection of its own, beside those of the pool, for operations whose order
//! matters.

mod connection;
mod session;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sherwood_wire::pipeline;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use super::options::RemoteOptions;
use super::secret::Password;
use super::socket::Endpoint;
use crate::Cause;

pub(crate) use session::{Answer, Sent, Session};

/// A request in flight that reads its own reply, in the protocol of a connector.
pub(crate) trait Exchange:
    pipeline::Exchange<Answer = Result<Self::Outcome, Cause>, Error = String> + Send + 'static
{
    /// The result of an operation that did not fail.
    type Outcome: Send + 'static;

    /// Name of the protocol in errors.
    const PROTOCOL: &'static str;

    /// The cause when a server sends a message without a request, by which some servers refuse a
    /// client; none if the bytes are not such a message.
    fn unsolicited(_input: &[u8]) -> Option<Cause> {
        None
    }

    /// True if the failure of an operation with `cause` shows that the connection now leads to the
    /// wrong server, or is no longer logged in, so that a new connection may succeed.
    fn is_outdated(_cause: &Cause) -> bool {
        false
    }
}

/// The effect of an operation on the server, which decides if it may be sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The operation changes nothing.
    Read,
    /// The operation may change something, so it is never sent again.
    Write,
}

/// An operation on a server: the bytes of its request, and the exchange that reads the reply.
pub(crate) struct Operation<E: Exchange> {
    request: Bytes,
    exchange: E,
    /// Load that the operation puts on its connection, in keys read.
    weight: usize,
    /// True for a read that has not been sent again yet.
    may_be_sent_again: bool,
}

impl<E: Exchange> Operation<E> {
    /// Makes an operation whose `request` reads or changes `keys` keys.
    pub(crate) fn new(access: Access, request: Bytes, keys: usize, exchange: E) -> Self {
        let weight = keys + request.len() / BYTES_PER_KEY;
        Self { request, exchange, weight, may_be_sent_again: access == Access::Read }
    }
}

/// Bytes of a request, such as a value to write, that count as one key.
const BYTES_PER_KEY: usize = 4 << 10;

/// The operations that a new connection executes first, in order, such as a login with the
/// password, if there is one; all have to succeed.
pub(crate) type Greeting<E> = Box<dyn Fn(Option<&str>) -> Vec<Operation<E>> + Send + Sync>;

/// The connections to one server, which its calls share.
pub(crate) struct Pool<E: Exchange> {
    link: Arc<Link<E>>,
    connections_max: usize,
    queued_calls_max: usize,
    calls: Semaphore,
    connections: Mutex<Vec<Connection<E>>>,
}

/// The server, limits and greeting that all connections of a pool use.
struct Link<E: Exchange> {
    endpoint: Endpoint,
    answer_timeout: Duration,
    value_bytes_max: usize,
    password: Option<Password>,
    greeting: Greeting<E>,
    /// The number of connections opened so far; they are numbered from 1.
    opened: AtomicU64,
    /// The time at which a connection was last given up as outdated.
    outdated: Mutex<Option<Instant>>,
}

impl<E: Exchange> Link<E> {
    /// Returns true if an outdated connection may be given up now. A server that refuses every
    /// operation causes at most one new connection within [`OUTDATED_INTERVAL`].
    fn gives_up_outdated(&self) -> bool {
        let now = Instant::now();
        let mut last = self.outdated.lock().unwrap_or_else(PoisonError::into_inner);
        let gives_up = last.is_none_or(|last| now.duration_since(last) >= OUTDATED_INTERVAL);
        if gives_up {
            *last = Some(now);
        }
        gives_up
    }
}

/// Shortest time between two connections that are given up as outdated.
const OUTDATED_INTERVAL: Duration = Duration::from_secs(1);

/// The pool's handle of a connection: its number, the queue of its task, and the total weight of
/// the operations in the queue or in flight.
struct Connection<E: Exchange> {
    number: u64,
    queue: mpsc::Sender<Queued<E>>,
    weight: Arc<AtomicUsize>,
}

/// An operation in the queue of a connection's task.
struct Queued<E: Exchange> {
    operation: Operation<E>,
    reply: oneshot::Sender<Result<E::Outcome, Failed<E>>>,
    _counted: Counted,
}

/// The reason why an operation was not answered.
enum Failed<E: Exchange> {
    /// The server answered that the operation failed with this cause.
    Cause(Cause),
    /// The connection ended with this cause before the answer, or could not be opened.
    Ended(Cause),
    /// The connection ended, and the operation may be sent on one whose number is above `opened`.
    Returned { operation: Operation<E>, opened: u64 },
}

/// Adds the weight of an operation to the total of its connection until it is dropped.
struct Counted {
    all: Arc<AtomicUsize>,
    weight: usize,
}

impl Counted {
    fn new(all: &Arc<AtomicUsize>, weight: usize) -> Self {
        all.fetch_add(weight, Ordering::Relaxed);
        Self { all: Arc::clone(all), weight }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

/// Weight of a connection's operations, in keys, above which a new operation uses another
/// connection.
const PACKED_KEYS: usize = 16;

/// Most operations in the queue of one connection; more callers wait for room in it.
const QUEUE_MAX: usize = 64;

/// Maximum number of connections that an operation is offered to, one after the other. A connection
/// may end just when it is chosen, but rarely does a new one end as well.
const OFFERS_MAX: usize = 3;

impl<E: Exchange> Pool<E> {
    pub(crate) fn new(
        endpoint: Endpoint,
        options: &RemoteOptions,
        password: Option<Password>,
        greeting: Greeting<E>,
    ) -> Self {
        let queued_calls_max = options.queued_calls_max as usize;
        Self {
            link: Arc::new(Link {
                endpoint,
                answer_timeout: options.answer_timeout(),
                value_bytes_max: usize::try_from(options.value_bytes_max).unwrap_or(usize::MAX),
                password,
                greeting,
                opened: AtomicU64::new(0),
                outdated: Mutex::default(),
            }),
            connections_max: options.connections_max.into(),
            queued_calls_max,
            calls: Semaphore::new(queued_calls_max),
            connections: Mutex::default(),
        }
    }

    /// Sends an operation on one of the connections and waits for its answer.
    pub(crate) async fn call(&self, mut operation: Operation<E>) -> Result<E::Outcome, Cause> {
        let overloaded = || Cause::Overloaded { queued_calls_max: self.queued_calls_max };
        let _room = self.calls.try_acquire().map_err(|_| overloaded())?;
        let mut after = 0;
        for _ in 0..OFFERS_MAX {
            let (queue, counted) = self.choose(operation.weight, after);
            let (reply, answer) = oneshot::channel();
            let queued = Queued { operation, reply, _counted: counted };
            operation = match queue.send(queued).await {
                Err(mpsc::error::SendError(queued)) => queued.operation,
                Ok(()) => match answer.await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(Failed::Cause(cause) | Failed::Ended(cause))) => return Err(cause),
                    Ok(Err(Failed::Returned { operation, opened })) => {
                        after = opened;
                        operation
                    }
                    // The task has ended without an answer: the runtime is shutting down.
                    Err(_) => return Err(Cause::Closed),
                },
            };
        }
        let address = self.link.endpoint.address.to_string();
        let detail = format!("{OFFERS_MAX} connections ended before they answered");
        Err(Cause::Unreachable { address, detail })
    }

    /// Chooses a connection for an operation among those whose number is above `after`: the first
    /// that is idle or has room for `weight`; otherwise a new one if more are allowed, or the least
    /// busy.
    fn choose(&self, weight: usize, after: u64) -> (mpsc::Sender<Queued<E>>, Counted) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.queue.is_closed());
        let load = |connection: &&Connection<E>| connection.weight.load(Ordering::Relaxed);
        let has_room = |load: usize| load == 0 || load + weight <= PACKED_KEYS;
        // They are in the order of their numbers.
        let newer = || connections.iter().skip_while(|connection| connection.number <= after);
        let roomy = newer().find(|connection| has_room(load(connection)));
        let is_full = connections.len() >= self.connections_max;
        // If it is full, one is newer: that which took the place of the one that ended.
        let chosen = roomy.or_else(|| newer().min_by_key(load).filter(|_| is_full));
        if let Some(Connection { queue, weight: all, .. }) = chosen {
            return (queue.clone(), Counted::new(all, weight));
        }
        let (queue, operations) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(connection::run(Arc::clone(&self.link), operations));
        let all = Arc::new(AtomicUsize::new(0));
        let counted = Counted::new(&all, weight);
        let number = 1 + self.link.opened.fetch_add(1, Ordering::Relaxed);
        connections.push(Connection { number, queue: queue.clone(), weight: all });
        (queue, counted)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::read_in_pieces;
