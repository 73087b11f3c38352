//! A bounded pool of connections to a database server, made when a call needs one.
//!
//! A call [`take`](Pool::take)s a connection for itself. Returned connections are reused, the last
//! one first, so that surplus ones stay idle and are closed. A connection that is not returned has
//! a statement in progress: its call was dropped or failed. It is abandoned: the server is told to
//! stop and the socket is closed, and another connection is made when one is needed.

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

/// Time after which an idle connection of the pool is closed. Servers allow hours, but each
/// connection costs them memory.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Time after which an idle connection is pinged before it is used again. Under load connections
/// are idle for less, and a server takes longer to restart.
const TRUSTED: Duration = Duration::from_secs(1);

/// Makes connections to one database server.
pub(super) trait Driver: Send + Sync + 'static {
    /// The type of the driver's connections.
    type Link: Link;

    /// Connects and logs in, within the driver's timeout.
    fn connect(&self) -> impl Future<Output = Result<Self::Link, Cause>> + Send;

    /// Closes a connection with a statement in progress, and tells the server to stop the
    /// statement. Returns at once.
    fn abandon(&self, link: Self::Link);
}

/// A connection to a database server that has logged in.
pub(super) trait Link: Send + 'static {
    /// True if the connection is known to be broken.
    fn is_closed(&self) -> bool;

    /// Returns product and version of the server.
    fn version(&mut self) -> impl Future<Output = Result<String, Cause>> + Send;

    /// True if a read has to be sent once more on a new connection: this one had answered a
    /// statement, and ended before the answer to the last one began.
    fn ended_early(&self) -> bool;

    /// A remark about the connection for reports, if there is one.
    fn remark(&self) -> Option<&'static str>;

    /// Checks that the server accepts a statement, without running it.
    fn prepare(&mut self, sql: &str) -> impl Future<Output = Result<(), Cause>> + Send;

    /// Checks that the server accepts a statement that returns rows, without running it, and
    /// returns the names of its columns.
    fn columns(&mut self, sql: &str) -> impl Future<Output = Result<Vec<String>, Cause>> + Send;

    /// Checks that the server answers on the connection.
    fn ping(&mut self) -> impl Future<Output = Result<(), Cause>> + Send;

    /// Runs a statement that returns rows, within `budget`.
    fn rows(
        &mut self,
        sql: &str,
        bound: Vec<Bytes>,
        budget: &mut Budget,
    ) -> impl Future<Output = Result<Answer, Cause>> + Send;

    /// Runs a statement that changes rows, and returns their number, as counted by the server.
    fn change(&mut self, sql: &str, bound: Vec<Bytes>) -> impl Future<Output = Result<u64, Cause>> + Send;
}

/// The connections to one database server.
pub(super) struct Pool<D: Driver> {
    shared: Arc<Shared<D>>,
    /// The server's address, which errors name.
    address: String,
    /// The timeout of a ping of an idle connection.
    ping_timeout: Duration,
    queued_calls_max: u32,
    /// Permits for the calls that have a connection or wait for one.
    room: Arc<Semaphore>,
}

struct Shared<D: Driver> {
    driver: D,
    /// Permits for the connections in use.
    connections: Arc<Semaphore>,
    idle: Mutex<Idle<D::Link>>,
}

/// The idle connections of a pool, the last returned at the end.
struct Idle<L> {
    links: Vec<(L, Instant)>,
    /// True while a task runs that closes connections that are idle for too long.
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

    /// Lends a connection that is not known to be broken to a call; waits while all are in use.
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

    /// Lends another connection to a call that has abandoned its own (closed it in the middle of an
    /// answer).
    ///
    /// # Errors
    /// As [`take`](Self::take), except that the call already has a permit to wait.
    pub(super) async fn renew(&self, lease: &mut Lease<D>) -> Result<(), Cause> {
        lease.held = self.connected().await?;
        Ok(())
    }

    /// Lends a new connection to a call whose reused connection ended before the answer began. Idle
    /// connections are not lent, since they are likely to have ended as well.
    ///
    /// # Errors
    /// When connecting fails.
    pub(super) async fn replace(&self, lease: &mut Lease<D>) -> Result<(), Cause> {
        lease.held.close();
        self.shared.idle().links.clear();
        lease.held = self.new_connection().await?;
        Ok(())
    }

    async fn new_connection(&self) -> Result<Held<D>, Cause> {
        let link = self.shared.driver.connect().await?;
        Ok(Held { link: Some(link), shared: Arc::clone(&self.shared) })
    }

    /// Returns an idle connection that is not broken, or a new one.
    async fn connected(&self) -> Result<Held<D>, Cause> {
        while let Some((link, since)) = self.shared.pop() {
            let mut held = Held { link: Some(link), shared: Arc::clone(&self.shared) };
            if since.elapsed() < TRUSTED {
                return Ok(held);
            }
            match timeout(self.ping_timeout, held.link().ping()).await {
                Ok(Ok(())) => return Ok(held),
                Ok(Err(_)) => held.close(),
                // The server hangs, or a firewall has dropped the connection; the other idle ones
                // are likely affected as well.
                Err(_) => {
                    self.shared.idle().links.clear();
                    return Err(Cause::silent(&self.address, self.ping_timeout));
                }
            }
        }
        self.new_connection().await
    }
}

/// The permits of a call: to wait for a connection, and to have one.
struct Permits {
    _room: OwnedSemaphorePermit,
    _connection: OwnedSemaphorePermit,
}

/// A connection lent to one call. If the lease is dropped before [`settle`](Self::settle), the
/// connection is closed and the server told to stop its statement.
pub(super) struct Lease<D: Driver> {
    // Dropped before the permits, so that connections do not exceed permits.
    held: Held<D>,
    _permits: Permits,
}

impl<D: Driver> Lease<D> {
    /// # Panics
    /// When it is [abandoned](Self::abandon).
    pub(super) fn link(&mut self) -> &mut D::Link {
        self.held.link()
    }

    /// Closes the connection in the middle of an answer, while the call continues.
    pub(super) fn abandon(&mut self) {
        self.held.abandon();
    }

    /// True if the call's connection was a reused one that ended before an answer began.
    pub(super) fn ended_early(&self) -> bool {
        self.held.link.as_ref().is_some_and(Link::ended_early)
    }

    /// True if the call has abandoned its connection and was not lent another.
    pub(super) fn is_abandoned(&self) -> bool {
        self.held.link.is_none()
    }

    /// Ends the call with `outcome`, after which the connection goes back to the pool if it is
    /// still usable.
    pub(super) fn settle<T>(self, outcome: &Result<T, Cause>) {
        let mut held = self.held;
        match outcome {
            Ok(_) => held.give_back(),
            // The statement was refused or not sent, and the server waits for the next one.
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
            // The answer, or the rest of it, is not read yet.
            Err(Cause::TooLarge { .. } | Cause::Unanswered { .. }) => drop(held),
            Err(_) => {
                held.close();
                // The cause, such as a restart of the server, has probably broken the idle
                // connections as well.
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

    /// Takes the idle connection that was returned last, and the time of its return; skips those
    /// that are known to be broken.
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

    /// Closes connections idle for too long; returns the time of the next check, none if no idle
    /// connection is left.
    fn close_old(&self) -> Option<Instant> {
        let mut idle = self.idle();
        let now = Instant::now();
        idle.links.retain(|(link, since)| !link.is_closed() && now - *since < IDLE_MAX);
        let next = idle.links.first().map(|(_, since)| *since + IDLE_MAX);
        idle.swept = next.is_some();
        next
    }
}

/// Closes connections that are idle for too long, until no idle connection is left.
async fn sweep<D: Driver>(shared: Weak<Shared<D>>) {
    while let Some(next) = shared.upgrade().and_then(|shared| shared.close_old()) {
        tokio::time::sleep_until(next).await;
    }
}

#[cfg(test)]
mod tests;
