//! Connections: made when a call needs one, kept while they are of use, and never more than
//! allowed.
//!
//! A call [`take`](Pool::take)s a connection and has it alone. What is given back may be taken
//! again, the last one first, so that those too many grow old and are closed. What is not given
//! back was amid something: its caller went away, or it failed. It is abandoned, which tells the
//! server to stop and closes the socket, and another is made in its place when one is needed.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::Budget;
use super::answer::Answer;
use crate::Cause;
use crate::remote::options::RemoteOptions;

/// One that nobody took for so long is closed. Servers let connections be idle for hours, but each
/// costs them memory.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// One that nobody took for so long is asked whether it still works before a statement is trusted
/// to it. Under load that costs nothing, and a server that was restarted takes longer than that to
/// be back.
const TRUSTED: Duration = Duration::from_secs(1);

/// Makes connections to one server.
pub(super) trait Driver: Send + Sync + 'static {
    /// What is made.
    type Link: Link;

    /// Connects and logs in, within the driver's own time-out.
    fn connect(&self) -> impl Future<Output = Result<Self::Link, Cause>> + Send;

    /// Closes a connection amid a statement, and tells the server to stop. It returns at once.
    fn abandon(&self, link: Self::Link);
}

/// A connection that has logged in.
pub(super) trait Link: Send + 'static {
    /// Whether it is known to be broken.
    fn is_closed(&self) -> bool;

    /// Product and version of the server.
    fn version(&mut self) -> impl Future<Output = Result<String, Cause>> + Send;

    /// Has the server look at a statement, and says which columns it answers with.
    fn prepare(&mut self, sql: &str) -> impl Future<Output = Result<Vec<String>, Cause>> + Send;

    /// Asks for a sign of life.
    fn ping(&mut self) -> impl Future<Output = Result<(), Cause>> + Send;

    /// Runs a statement that answers rows, which `budget` pays for.
    fn rows(
        &mut self,
        sql: &str,
        bound: Vec<Bytes>,
        budget: &mut Budget,
    ) -> impl Future<Output = Result<Answer, Cause>> + Send;

    /// Runs a statement that changes rows, and says how many, by the server's count.
    fn change(&mut self, sql: &str, bound: Vec<Bytes>) -> impl Future<Output = Result<u64, Cause>> + Send;
}

/// The connections to one server.
pub(super) struct Pool<D: Driver> {
    shared: Arc<Shared<D>>,
    /// Where the server is, for errors.
    address: String,
    /// How long a connection that was idle may take to show that it works.
    ping_timeout: Duration,
    queued_calls_max: u32,
    /// One permit for each call that has a connection or waits for one.
    room: Arc<Semaphore>,
}

struct Shared<D: Driver> {
    driver: D,
    /// One permit for each connection that may be taken.
    connections: Arc<Semaphore>,
    idle: Mutex<Idle<D::Link>>,
}

/// Connections that nobody has, those given back last at the end.
struct Idle<L> {
    links: Vec<(L, Instant)>,
    /// Whether a task is there that closes the old ones.
    swept: bool,
}

impl<D: Driver> Pool<D> {
    pub(super) fn new(driver: D, address: &str, options: &RemoteOptions) -> Self {
        let RemoteOptions { connections_max, queued_calls_max, .. } = *options;
        let idle = Mutex::new(Idle { links: Vec::new(), swept: false });
        let connections = Arc::new(Semaphore::new(connections_max.into()));
        let room = usize::from(connections_max) + queued_calls_max as usize;
        Self {
            shared: Arc::new(Shared { driver, connections, idle }),
            address: address.to_owned(),
            ping_timeout: options.connect_timeout(),
            queued_calls_max,
            room: Arc::new(Semaphore::new(room)),
        }
    }

    /// A connection that works, as far as one can know; waits while all are taken.
    ///
    /// # Errors
    /// When too many calls wait already, or connecting fails.
    pub(super) async fn take(&self) -> Result<Lease<D>, Cause> {
        let overloaded = Cause::Overloaded { queued_calls_max: self.queued_calls_max as usize };
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(|_| overloaded)?;
        let connection =
            Arc::clone(&self.shared.connections).acquire_owned().await.map_err(|_| Cause::Closed)?;
        let permits = Permits { _room: room, _connection: connection };
        Ok(Lease { held: self.connected().await?, _permits: permits })
    }

    /// Gives a call that has abandoned its connection another.
    ///
    /// # Errors
    /// As of [`take`](Self::take), but for its place among those that wait, which it has.
    pub(super) async fn renew(&self, lease: &mut Lease<D>) -> Result<(), Cause> {
        lease.held = self.connected().await?;
        Ok(())
    }

    /// A connection that nobody has, or a new one.
    async fn connected(&self) -> Result<Held<D>, Cause> {
        while let Some((link, since)) = self.shared.pop() {
            let mut held = Held { link: Some(link), shared: Arc::clone(&self.shared) };
            if since.elapsed() < TRUSTED {
                return Ok(held);
            }
            match timeout(self.ping_timeout, held.link().ping()).await {
                Ok(Ok(())) => return Ok(held),
                Ok(Err(_)) => held.close(),
                // It hangs, or something on the way has forgotten the connection; and what befell
                // this one befell the others.
                Err(_) => {
                    self.shared.idle().links.clear();
                    return Err(Cause::silent(&self.address, self.ping_timeout));
                }
            }
        }
        let link = self.shared.driver.connect().await?;
        Ok(Held { link: Some(link), shared: Arc::clone(&self.shared) })
    }
}

/// What a call holds beside its connection: its place among those that wait, and the right to a
/// connection.
struct Permits {
    _room: OwnedSemaphorePermit,
    _connection: OwnedSemaphorePermit,
}

/// A connection that one call has. When it is dropped unsettled, the connection is abandoned.
pub(super) struct Lease<D: Driver> {
    // Dropped before the permits, so that there are never more connections than permits.
    held: Held<D>,
    _permits: Permits,
}

impl<D: Driver> Lease<D> {
    /// # Panics
    /// When it is [abandoned](Self::abandon).
    pub(super) fn link(&mut self) -> &mut D::Link {
        self.held.link()
    }

    /// Gives up the connection amid an answer, while the call goes on.
    pub(super) fn abandon(&mut self) {
        self.held.abandon();
    }

    /// Whether the call has no connection at the moment.
    pub(super) fn is_abandoned(&self) -> bool {
        self.held.link.is_none()
    }

    /// Ends the call: keeps the connection when `outcome` says that it is fit for the next call.
    pub(super) fn settle<T>(self, outcome: &Result<T, Cause>) {
        let mut held = self.held;
        match outcome {
            Ok(_) => held.give_back(),
            // The server has refused the statement, or was not even sent it, and waits for the next
            // one.
            Err(
                Cause::Statement { .. }
                | Cause::Missing { .. }
                | Cause::Credentials { .. }
                | Cause::Forbidden { .. }
                | Cause::Unsupported { .. }
                | Cause::ReadOnly { .. }
                | Cause::Refused { .. }
                | Cause::Key { .. }
                | Cause::Busy { .. },
            ) => held.give_back(),
            // The answer, or the rest of it, is still to come.
            Err(Cause::TooLarge { .. } | Cause::Unanswered { .. }) => drop(held),
            Err(_) => {
                held.close();
                // What broke one connection, such as a restart of the server, has most often broken
                // all.
                held.shared.idle().links.clear();
            }
        }
    }
}

struct Held<D: Driver> {
    link: Option<D::Link>,
    shared: Arc<Shared<D>>,
}

impl<D: Driver> Held<D> {
    fn link(&mut self) -> &mut D::Link {
        self.link.as_mut().expect("it is there until it is given away, and nobody asks afterwards")
    }

    fn close(&mut self) {
        self.link = None;
    }

    fn abandon(&mut self) {
        if let Some(link) = self.link.take() {
            self.shared.driver.abandon(link);
        }
    }

    fn give_back(&mut self) {
        if let Some(link) = self.link.take().filter(|link| !link.is_closed()) {
            Shared::push(&self.shared, link);
        }
    }
}

impl<D: Driver> Drop for Held<D> {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl<D: Driver> Shared<D> {
    fn idle(&self) -> MutexGuard<'_, Idle<D::Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last one given back that is not known to be broken.
    fn pop(&self) -> Option<(D::Link, Instant)> {
        let mut idle = self.idle();
        while let Some((link, since)) = idle.links.pop() {
            if !link.is_closed() {
                return Some((link, since));
            }
        }
        None
    }

    fn push(shared: &Arc<Self>, link: D::Link) {
        let mut idle = shared.idle();
        idle.links.push((link, Instant::now()));
        if !idle.swept {
            idle.swept = true;
            tokio::spawn(sweep(Arc::downgrade(shared)));
        }
    }

    /// Closes what nobody took for too long; none when nothing is left to watch, else when to look
    /// again.
    fn close_old(&self) -> Option<Instant> {
        let mut idle = self.idle();
        let now = Instant::now();
        idle.links.retain(|(link, since)| !link.is_closed() && now - *since < IDLE_MAX);
        let next = idle.links.first().map(|(_, since)| *since + IDLE_MAX);
        idle.swept = next.is_some();
        next
    }
}

/// Closes idle connections while there are any.
async fn sweep<D: Driver>(shared: Weak<Shared<D>>) {
    while let Some(next) = shared.upgrade().and_then(|shared| shared.close_old()) {
        tokio::time::sleep_until(next).await;
    }
}

#[cfg(test)]
mod tests;
