//! A few connections to one server, with many operations under way on each.
//!
//! Protocols that answer in the order of the questions need no connection of one's own: the next
//! question is sent while earlier ones are still being answered. So a handful of connections
//! carries any number of calls, a call costs no connection, and a caller that goes away leaves
//! nothing behind: its answer is read by the connection's task and thrown away.
//!
//! ```text
//!   call ──▶ Pool: first connection with room ──▶ queue (bounded) ──▶ task: writes, reads ──▶ server
//!     ▲                                                              │
//!     └──────────────────────── oneshot reply ◀──────────────────────┘
//! ```
//!
//! Small questions go together: what waits on one connection is written by one call of the system
//! and answered by one, which costs both sides a fraction of what as many connections would. Long
//! ones would hold others up, so beyond [`PACKED_KEYS`] on each the next connection is taken, and
//! where there is none more, the least busy. How long an answer will be is not known before: a key
//! of a large value is taken for a small one.
//!
//! A connection that breaks fails what it had sent, for which nobody knows whether it was done;
//! what it had not sent goes to another connection. A new one is made by the next call that needs
//! it.

mod connection;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sherwood_wire::pipeline;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::options::RemoteOptions;
use super::socket::Endpoint;
use crate::Cause;

/// The reply to one operation, in a connector's protocol.
pub(crate) trait Exchange:
    pipeline::Exchange<Answer = Result<Self::Told, Cause>, Error = String> + Send + 'static
{
    /// The result of an operation that did not fail.
    type Told: Send + 'static;

    /// The protocol's name in errors.
    const PROTOCOL: &'static str;

    /// The meaning of bytes that the server sends before it is asked anything, which is how some
    /// refuse a client; none where they make no sense.
    fn unasked(_input: &[u8]) -> Option<Cause> {
        None
    }
}

/// An operation: what is sent, and how its answer is understood.
pub(crate) struct Operation<E: Exchange> {
    request: Bytes,
    exchange: E,
    /// How much it keeps a connection busy, in keys that are read.
    weight: usize,
}

impl<E: Exchange> Operation<E> {
    /// An operation that reads or changes so many keys.
    pub(crate) fn new(request: Bytes, keys: usize, exchange: E) -> Self {
        let weight = keys + request.len() / BYTES_PER_KEY;
        Self { request, exchange, weight }
    }
}

/// Bytes sent that keep a connection busy for as long as a key: those of a value to be written.
const BYTES_PER_KEY: usize = 4 << 10;

/// What a new connection does first: operations in their order, all of which have to succeed.
pub(crate) type Greeting<E> = Box<dyn Fn() -> Vec<Operation<E>> + Send + Sync>;

/// The connections to one server.
pub(crate) struct Pool<E: Exchange> {
    link: Arc<Link<E>>,
    connections_max: usize,
    queued_calls_max: usize,
    calls: Semaphore,
    connections: Mutex<Vec<Connection<E>>>,
}

/// What every connection of a pool is made by.
struct Link<E: Exchange> {
    endpoint: Endpoint,
    answer_timeout: Duration,
    value_bytes_max: usize,
    greeting: Greeting<E>,
}

/// A connection as the pool sees it: the way to its task, and how much its operations weigh.
struct Connection<E: Exchange> {
    queue: mpsc::Sender<Queued<E>>,
    weight: Arc<AtomicUsize>,
}

/// An operation on its way to a connection's task.
struct Queued<E: Exchange> {
    operation: Operation<E>,
    reply: oneshot::Sender<Result<E::Told, Failed<E>>>,
    _counted: Counted,
}

/// Why an operation has no answer.
enum Failed<E: Exchange> {
    /// For this.
    Cause(Cause),
    /// The connection ended before anything of it was sent; here it is again.
    Unsent(Operation<E>),
}

/// The weight of one operation of a connection, while it lives.
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

/// What operations of one connection weigh before another one is used.
const PACKED_KEYS: usize = 16;

/// Operations that wait for one connection; callers beyond wait for room.
const QUEUE_MAX: usize = 64;

/// Connections an operation is offered to: one may end in the moment it is chosen, and two in a row
/// seldom do.
const OFFERS_MAX: usize = 3;

impl<E: Exchange> Pool<E> {
    pub(crate) fn new(endpoint: Endpoint, options: &RemoteOptions, greeting: Greeting<E>) -> Self {
        let queued_calls_max = options.queued_calls_max as usize;
        Self {
            link: Arc::new(Link {
                endpoint,
                answer_timeout: options.answer_timeout(),
                value_bytes_max: usize::try_from(options.value_bytes_max).unwrap_or(usize::MAX),
                greeting,
            }),
            connections_max: options.connections_max.into(),
            queued_calls_max,
            calls: Semaphore::new(queued_calls_max),
            connections: Mutex::default(),
        }
    }

    /// Sends an operation and waits for its answer.
    pub(crate) async fn call(&self, mut operation: Operation<E>) -> Result<E::Told, Cause> {
        let overloaded = || Cause::Overloaded { queued_calls_max: self.queued_calls_max };
        let _room = self.calls.try_acquire().map_err(|_| overloaded())?;
        for _ in 0..OFFERS_MAX {
            let (queue, counted) = self.choose(operation.weight);
            let (reply, answer) = oneshot::channel();
            let queued = Queued { operation, reply, _counted: counted };
            operation = match queue.send(queued).await {
                Err(mpsc::error::SendError(queued)) => queued.operation,
                Ok(()) => match answer.await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(Failed::Cause(cause))) => return Err(cause),
                    Ok(Err(Failed::Unsent(operation))) => operation,
                    // Its task is gone without a word: the runtime is shutting down.
                    Err(_) => return Err(Cause::Closed),
                },
            };
        }
        let address = self.link.endpoint.address.to_string();
        let detail = format!("{OFFERS_MAX} connections ended before anything was sent");
        Err(Cause::Unreachable { address, detail })
    }

    /// The first connection that is idle or has room for so much; else a new one, where there may
    /// be more, or the least busy.
    fn choose(&self, weight: usize) -> (mpsc::Sender<Queued<E>>, Counted) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.queue.is_closed());
        let load = |connection: &&Connection<E>| connection.weight.load(Ordering::Relaxed);
        let has_room = |load: usize| load == 0 || load + weight <= PACKED_KEYS;
        let roomy = connections.iter().find(|connection| has_room(load(connection)));
        let is_full = connections.len() >= self.connections_max;
        let chosen = roomy.or_else(|| connections.iter().min_by_key(load).filter(|_| is_full));
        if let Some(Connection { queue, weight: all }) = chosen {
            return (queue.clone(), Counted::new(all, weight));
        }
        let (queue, operations) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(connection::run(Arc::clone(&self.link), operations));
        let all = Arc::new(AtomicUsize::new(0));
        let counted = Counted::new(&all, weight);
        connections.push(Connection { queue: queue.clone(), weight: all });
        (queue, counted)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::read_in_pieces;
