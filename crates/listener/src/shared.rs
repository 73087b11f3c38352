//! The state that the threads of a listener share.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sherwood_cache::{Cache, Usage};
use sherwood_dispatch::Charged;
use sherwood_model::query_times::QueryTimes;
use sherwood_model::{DeadlineClass, HotKeys, PartitionId};

use super::account::{Account, BufferBytes};
use super::backends::{Backends, SharedTrust};
use super::clock::{Clock, Moment};
use super::counters::{Counters, Counts};
use super::ended::EndedOperations;
use super::foreign_clients::ForeignClients;
use super::idle::BackgroundWork;
use super::options::ListenerOptions;
use super::passwords::Passwords;
use super::requests::BatchCounting;
use super::routing::{Routing, Target};
use super::standing::{Standings, TenantStanding};
use super::tenants::{TenantSlot, UserRoutes};

/// The parts of a process that its listeners use: cache, routes, backends and limits.
#[derive(Clone)]
pub struct Service {
    /// The cache that clients read and write.
    pub cache: Arc<Cache>,
    /// Routes from keys to partitions of clients whose user has none of its own in `users`.
    pub routing: Routing,
    /// Routes of users by their tenants; none if all clients have those above.
    pub users: UserRoutes,
    /// Rates of the tenants' traffic, if it has any.
    pub network: Option<Arc<dyn Charged>>,
    /// Backends from which misses are fetched, if there are any.
    pub backends: Option<Arc<dyn Backends>>,
    /// Bound on connections, common to all listeners that share it.
    pub connection_limit: Arc<ConnectionLimit>,
    /// The count of the bytes in the buffers of connections.
    pub buffers: Arc<dyn BufferBytes>,
    /// The background work that threads without events help with, if there is any.
    pub background: Option<Arc<dyn BackgroundWork>>,
    /// Names and passwords of clients; none if no password is required.
    pub passwords: Option<Arc<dyn Passwords>>,
    /// Quotas and use of the clients' tenants; none if there are none.
    pub standings: Option<Arc<dyn Standings>>,
    /// The times of clients' queries.
    pub times: Arc<QueryTimes>,
    /// The counting of clients' batches as requests; none if they do not count.
    pub batches: Option<BatchCounting>,
    /// The counts of the keys that are read most, of the rounds that are timed; none if they are
    /// not counted.
    pub hot_keys: Option<Arc<HotKeys>>,
}

impl Service {
    /// Creates the account of a connection or thread whose buffers hold nothing yet.
    pub(super) fn account(&self) -> Account {
        Account::new(Arc::clone(&self.buffers))
    }

    /// Returns the routes of the clients of a slot.
    pub(super) fn routing(&self, slot: TenantSlot) -> &Routing {
        self.users.routing(slot).unwrap_or(&self.routing)
    }

    /// Returns the slot of a client that has logged in; none if the password is wrong, or if users
    /// of the tenant have no routes here.
    pub(super) fn log_in(&self, user: &[u8], password: &[u8]) -> Option<TenantSlot> {
        self.users.slot(self.passwords.as_ref()?.know(user, password)?)
    }

    /// Returns quotas and use of the tenant of a slot's clients.
    pub(super) fn standing(&self, slot: TenantSlot) -> Option<TenantStanding> {
        self.standings.as_ref()?.standing(self.routing(slot).tenant())
    }

    /// Returns the bytes of cache that a slot's clients can fill: those of their tenant, or all.
    pub(super) fn bytes_max(&self, slot: TenantSlot) -> u64 {
        let total_bytes = self.cache.total_bytes();
        self.standing(slot).map_or(total_bytes, |standing| standing.cache_bytes)
    }

    /// Returns true if other nodes cache values of some routes, too.
    fn shares(&self) -> bool {
        (0..self.users.slots()).any(|slot| self.routing(TenantSlot::from_index(slot)).shares())
    }

    /// Drops the cached value of a key if other nodes cache it, too, and may have changed it. The
    /// caller holds no lock of the cache.
    #[cold]
    pub(super) fn drop_untrusted(&self, partition: PartitionId, name: &[u8]) {
        if let Some(backends) = &self.backends {
            backends.drop_untrusted(partition, name);
        }
    }

    /// Returns true if a client's change of this key has to be refused, or of any key, since other
    /// nodes cache it and would miss the change.
    pub(super) fn refuses_change(&self, routing: &Routing, key: Option<&[u8]>) -> bool {
        let Some(backends) = self.backends.as_ref().filter(|_| routing.shares()) else { return false };
        match key.map(|key| routing.find(key)) {
            Some(found) => found.is_some_and(|(target, _)| {
                target.shared && !target.write_through && backends.refuses_changes(target.partition)
            }),
            None => routing.partitions().into_iter().any(|partition| backends.refuses_changes(partition)),
        }
    }

    /// Makes a change to `key` in the cache that fetches in flight must not undo.
    pub(super) fn write<R>(&self, target: Target, key: &[u8], change: impl FnOnce() -> R) -> R {
        self.write_if(target, key, || (change(), true))
    }

    /// Makes a change as [`write`](Self::write) does, which returns false beside its result if the
    /// value has stayed.
    pub(super) fn write_if<R>(&self, target: Target, key: &[u8], change: impl FnOnce() -> (R, bool)) -> R {
        let Some(backends) = &self.backends else { return change().0 };
        once(change, |change| backends.write(target.partition, key, change))
    }

    /// Stores a value for `key` if the cache has none, as clients do after a miss.
    pub(super) fn fill<R>(&self, target: Target, key: &[u8], change: impl FnOnce() -> R) -> R {
        let Some(backends) = &self.backends else { return change() };
        once(|| (change(), true), |change| backends.fill(target.partition, key, change))
    }

    /// Returns bytes, items, evictions and expirations of the cache, summed over the partitions of
    /// the routes of a slot.
    pub(super) fn usage(&self, slot: TenantSlot) -> Usage {
        self.routing(slot).partitions().into_iter().map(|partition| self.cache.usage(partition)).fold(
            Usage::default(),
            |sum, part| Usage {
                used_bytes: sum.used_bytes + part.used_bytes,
                items: sum.items + part.items,
                evictions: sum.evictions + part.evictions,
                expired: sum.expired + part.expired,
                ..sum
            },
        )
    }
}

/// The reason that a change is refused ([`Service::refuses_change`]).
pub(super) const REFUSED_CHANGE: &str = "the other nodes of the cluster do not know this process yet and would serve older values; nothing was changed, try again later";

/// The reason that a command on many keys ends before the last of them, since changes are refused
/// from now on.
pub(super) const REFUSED_REST: &str = "the other nodes of the cluster do not know this process any more and would serve older values; some of the keys were changed, try again later";

/// Returns the result of a change that `make` calls once.
fn once<R>(change: impl FnOnce() -> (R, bool), make: impl FnOnce(&mut dyn FnMut() -> bool)) -> R {
    let (mut change, mut result) = (Some(change), None);
    make(&mut || {
        let made = change.take().map(|change| change());
        made.is_some_and(|(returned, has_changed)| {
            result = Some(returned);
            has_changed
        })
    });
    result.expect("the backends call the change")
}

/// A bound on concurrent connections, shared by several listeners.
#[derive(Debug)]
pub struct ConnectionLimit {
    max: usize,
    taken: AtomicUsize,
}

impl ConnectionLimit {
    /// Creates a bound of `max` connections; 0 refuses every connection.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, taken: AtomicUsize::new(0) }
    }

    /// Returns the maximum number of concurrent connections.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    fn take(&self) -> bool {
        let one_more = |taken| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }

    fn release(&self) {
        self.taken.fetch_sub(1, Relaxed);
    }
}

/// The state of a listener that its threads share.
pub(super) struct Shared {
    pub(super) options: ListenerOptions,
    pub(super) service: Service,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) started: Moment,
    /// The counters of each thread and slot of tenants, those of a thread together.
    counters: Box<[Counters]>,
    /// The operations that have ended in the present turn of each thread.
    ended: Box<[EndedOperations]>,
    pub(super) connections: Connections,
    pub(super) foreign_clients: ForeignClients,
    /// True if keys may have deadlines that their clients do not state.
    has_deadlines: bool,
    /// True if other nodes cache values of some routes, too.
    shares: bool,
    /// The counts of each slot at the last `stats reset` of one of its clients.
    baselines: Mutex<Vec<Counts>>,
}

impl Shared {
    pub(super) fn new(options: ListenerOptions, service: Service, clock: Arc<dyn Clock>) -> Self {
        let slots = service.users.slots();
        Self {
            started: clock.moment(),
            counters: (0..options.threads * slots).map(|_| Counters::default()).collect(),
            ended: (0..options.threads).map(|_| EndedOperations::new(&service)).collect(),
            connections: Connections::default(),
            foreign_clients: ForeignClients::default(),
            has_deadlines: service.backends.as_ref().is_some_and(|backends| backends.have_deadlines()),
            shares: service.shares(),
            baselines: Mutex::new(vec![Counts::default(); slots]),
            options,
            service,
            clock,
        }
    }

    /// Returns the deadline class of a request for a key, by the deadline that the client states or
    /// else by the configured rules; none without either.
    pub(super) fn deadline_class(
        &self,
        target: Target,
        key: &[u8],
        stated: Option<Duration>,
    ) -> Option<DeadlineClass> {
        let within = stated.or_else(|| self.within(target, key))?;
        Some(self.service.cache.deadline_class(target.partition, within))
    }

    /// Returns the time within which an answer for this key is wanted by the configured rules; none
    /// without a rule.
    fn within(&self, target: Target, key: &[u8]) -> Option<Duration> {
        let backends = self.service.backends.as_ref().filter(|_| self.has_deadlines)?;
        backends.within(target.partition, key)
    }

    /// Returns the trust in values that other nodes cache, too, for commands that have been
    /// received ([`Backends::shared_trust`]).
    pub(super) fn shared_trust(&self) -> SharedTrust {
        let backends = self.service.backends.as_ref().filter(|_| self.shares);
        backends.map_or(SharedTrust::default(), |backends| backends.shared_trust())
    }

    /// Returns the counters of a thread for the clients of a slot.
    pub(super) fn counters(&self, thread: usize, slot: TenantSlot) -> &Counters {
        &self.counters[thread * self.service.users.slots() + slot.index()]
    }

    /// Returns the operations that have ended in a thread's present turn.
    pub(super) fn ended(&self, thread: usize) -> &EndedOperations {
        &self.ended[thread]
    }

    /// Returns the counts of all threads and clients since the start.
    pub(super) fn counts(&self) -> Counts {
        Counts::sum(&self.counters)
    }

    fn counts_of(&self, slot: TenantSlot) -> Counts {
        Counts::sum(self.counters.iter().skip(slot.index()).step_by(self.service.users.slots()))
    }

    /// Returns the counts of a slot's clients since the last `stats reset` of one of them.
    pub(super) fn counts_since_reset(&self, slot: TenantSlot) -> Counts {
        let baselines = self.baselines.lock().unwrap_or_else(PoisonError::into_inner);
        self.counts_of(slot).since(&baselines[slot.index()])
    }

    pub(super) fn reset(&self, slot: TenantSlot) {
        let mut baselines = self.baselines.lock().unwrap_or_else(PoisonError::into_inner);
        baselines[slot.index()] = self.counts_of(slot);
    }
}

/// Numbers of open, past and refused connections, over all threads.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: AtomicUsize,
    total: AtomicU64,
    rejected: AtomicU64,
}

impl Connections {
    /// Counts a new connection and returns its permit; none at the limit on connections. Dropping
    /// the permit ends the count.
    pub(super) fn open(shared: &Arc<Shared>) -> Option<ConnectionPermit> {
        let connections = &shared.connections;
        connections.total.fetch_add(1, Relaxed);
        if !shared.service.connection_limit.take() {
            connections.rejected.fetch_add(1, Relaxed);
            return None;
        }
        connections.open.fetch_add(1, Relaxed);
        Some(ConnectionPermit(Arc::clone(shared)))
    }

    /// Returns the number of open connections.
    pub(super) fn now(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Returns the number of past and open connections, refused ones included.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Returns the number of connections refused because of the limit.
    pub(super) fn rejected(&self) -> u64 {
        self.rejected.load(Relaxed)
    }
}

/// The permit of one connection, counted as open until it is dropped.
pub(super) struct ConnectionPermit(Arc<Shared>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.open.fetch_sub(1, Relaxed);
        self.0.service.connection_limit.release();
    }
}
