//! External caches, one for each partition, resized by the same control loop.
//!
//! RobinHood only needs a cache that can be resized and that reports its counters. Both happen over
//! the network here, so both may be slow or fail, and the loop must not wait. Each instance
//! therefore has a task and a connection of its own:
//!
//! - The loop sets a *wish*, the wanted size. A new wish replaces one that was not started.
//! - The task resizes the instance, polls its use and counters once a second, and stores them for
//!   the loop.
//! - An instance grows only as others release memory (`ledger`): the sum never exceeds the total.
//! - A connection that the instance closed while it was idle is replaced at once. Commands sent on
//!   it may have been carried out, so the new connection begins with a poll.
//! - Each exchange has a timeout. An instance that does not answer keeps its size, since it cannot
//!   be told another, and its budget: the loop divides the rest among the others. Its bytes above
//!   its budget are not given to others (`ledger`). When it is reachable again, it gets the newest
//!   wish. An instance that answers but cannot be resized is treated the same.

mod ledger;
mod link;
mod memcached;
mod redis;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::json;
use sherwood_cache::Usage;
use sherwood_config::{InstanceKind, InstanceSetup};
use sherwood_model::PartitionId;
use sherwood_ports::access::{AccessError, refused};
use sherwood_textfile::{Reader, Rules, Watched};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::names::Names;
use crate::observe::events::Events;
pub(crate) use ledger::Ledger;
pub(crate) use link::Trouble;
use link::{Link, Unfit};

/// Time between two polls of an instance.
const LOOK: Duration = Duration::from_secs(1);
/// Time between two polls of an instance that is releasing memory.
const LOOK_SHRINKING: Duration = Duration::from_millis(50);
/// Delay before the first reconnection; it doubles with each failure.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest delay before a reconnection.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Returns the memory limit that an instance of this kind reports after its limit was set to
/// `bytes`.
const fn limit(kind: InstanceKind, bytes: u64) -> u64 {
    match kind {
        InstanceKind::Memcached => memcached::limit(bytes),
        InstanceKind::Redis => redis::limit(bytes),
    }
}

/// The state that an instance reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// Memory limit of the instance, bytes.
    limit: u64,
    /// Memory that the instance uses, bytes.
    used: u64,
    items: u64,
    hits: u64,
    misses: u64,
    stores: u64,
    evictions: u64,
    expired: u64,
    /// A setting of the instance that prevents resizing; none if it can be resized.
    unfit: Option<Unfit>,
}

/// The state of an instance as last known.
#[derive(Debug, Default)]
struct Known {
    /// Use, and counters since the node's start; they are continued across restarts of the
    /// instance.
    usage: Usage,
    /// Restarts of the instance, detected by counters that fell.
    restarts: u64,
    /// The last reported state; none before the first poll. Counts from before the first poll are
    /// ignored.
    last: Option<State>,
    /// The error that makes the instance unreachable; none while it is reachable.
    trouble: Option<String>,
    reached_ever: bool,
}

/// An external instance; its task is [`Instance::work`].
#[derive(Debug)]
pub(crate) struct Instance {
    setup: InstanceSetup,
    /// The partition that the instance holds.
    partition: PartitionId,
    ledger: Arc<Ledger>,
    wish: watch::Sender<Option<u64>>,
    known: Mutex<Known>,
    /// The password; none until its file could be read.
    password: Mutex<Option<Arc<Watched<String>>>>,
}

impl Instance {
    #[must_use]
    pub(crate) fn new(setup: InstanceSetup, partition: PartitionId, ledger: Arc<Ledger>) -> Arc<Self> {
        let known = Known { trouble: Some("not reached yet".to_owned()), ..Known::default() };
        let (wish, known) = (watch::channel(None).0, Mutex::new(known));
        Arc::new(Self { setup, partition, ledger, wish, known, password: Mutex::default() })
    }

    pub(crate) fn setup(&self) -> &InstanceSetup {
        &self.setup
    }

    /// Sets the wanted size of the instance, bytes. Replaces the wanted size before.
    pub(super) fn wish(&self, bytes: u64) {
        self.wish.send_replace(Some(bytes));
    }

    /// Memory in use, and counters since the node's start.
    pub(crate) fn usage(&self) -> Usage {
        self.known().usage
    }

    /// Restarts of the instance that were detected.
    pub(crate) fn restarts(&self) -> u64 {
        self.known().restarts
    }

    /// The error that makes the instance unreachable; none while it is reachable.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.known().trouble.clone()
    }

    /// Connects to the instance and serves it, reconnecting after errors, until the runtime ends.
    async fn work(self: Arc<Self>, report: Report) {
        let mut retry = RETRY_MIN;
        loop {
            let Err(trouble) = self.poll_and_resize(&report, &mut retry).await;
            // Its connection had served a whole poll, so this is no tight loop.
            if matches!(trouble, Trouble::Closed { .. }) {
                continue;
            }
            self.note_unreachable(&report, &trouble);
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
        }
    }

    /// Polls and resizes the instance until an error.
    async fn poll_and_resize(
        &self,
        report: &Report,
        retry: &mut Duration,
    ) -> Result<std::convert::Infallible, Trouble> {
        let (mut wishes, mut releases) = (self.wish.subscribe(), self.ledger.releases());
        let piece = match self.setup.kind {
            InstanceKind::Memcached => memcached::piece,
            InstanceKind::Redis => redis::piece,
        };
        let mut link = Link::open(&self.setup.address, piece).await?;
        self.greet(&mut link).await?;
        loop {
            let wish = *wishes.borrow_and_update();
            releases.mark_unchanged();
            let mut state = self.look(&mut link).await?;
            if let Some(unfit) = state.unfit {
                // Memory above its budget is not given to others.
                self.ledger.note(self.partition.index(), state.limit.max(state.used));
                return Err(unfit.into());
            }
            // Without a limit, its use counts as its own: a lower limit would evict only for lack
            // of free memory.
            let own = if state.limit == 0 { state.used } else { state.limit };
            let granted = wish.map(|bytes| self.ledger.grant(self.partition.index(), bytes, own));
            if let Some(bytes) = granted
                && limit(self.setup.kind, bytes) != state.limit
            {
                self.resize(&mut link, bytes).await?;
                state = self.look(&mut link).await?;
            }
            let shrinks = self.release(&mut link, &state).await?;
            self.note_reached(report, state);
            link.keep();
            *retry = RETRY_MIN;
            // Memory that it cannot release is not waited for. Without a limit, it has its use.
            let has = if shrinks || state.limit == 0 { state.limit.max(state.used) } else { state.limit };
            self.ledger.note(self.partition.index(), has);
            let rest = if shrinks { LOOK_SHRINKING } else { LOOK };
            // Polls again after the interval, on a new wish, and when another instance releases
            // memory it waits for.
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                _ = wishes.changed() => {}
                _ = releases.changed(), if granted < wish => {}
            }
        }
    }

    /// Logs in. If the instance refuses the password and its file has changed, logs in once more
    /// with the new password.
    async fn greet(&self, link: &mut Link) -> Result<(), Trouble> {
        let Some(password) = self.password()? else { return Ok(()) };
        let shown = password.current();
        match self.log_in(link, &shown).await {
            Err(trouble @ Trouble::Refused { .. }) => match password.newer_than(&shown) {
                Some(newer) => self.log_in(link, &newer).await,
                None => Err(trouble),
            },
            logged_in => logged_in,
        }
    }

    async fn log_in(&self, link: &mut Link, password: &str) -> Result<(), Trouble> {
        let user = self.setup.user.as_deref();
        match self.setup.kind {
            InstanceKind::Memcached => memcached::greet(link, user.unwrap_or_default(), password).await,
            InstanceKind::Redis => redis::greet(link, user, password).await,
        }
    }

    /// Returns the password; none without a password file. Reads the file if it could not be read
    /// before.
    fn password(&self) -> Result<Option<Arc<Watched<String>>>, AccessError> {
        let Some(file) = &self.setup.password_file else { return Ok(None) };
        let mut known = self.password.lock().expect("no panics while held");
        if known.is_none() {
            let file = file.clone();
            *known = Some(Arc::new(Watched::open(move |reader: &mut Reader| password(&file, reader))?));
        }
        Ok(known.clone())
    }

    async fn look(&self, link: &mut Link) -> Result<State, Trouble> {
        let state = match self.setup.kind {
            InstanceKind::Memcached => memcached::look(link).await,
            InstanceKind::Redis => redis::look(link).await,
        }?;
        // Each poll counts: after a restart, the counters may have grown beyond their old values by
        // the next poll.
        self.known().note(state);
        Ok(state)
    }

    async fn resize(&self, link: &mut Link, bytes: u64) -> Result<(), Trouble> {
        match self.setup.kind {
            InstanceKind::Memcached => memcached::resize(link, bytes).await,
            InstanceKind::Redis => redis::resize(link, bytes).await,
        }
    }

    /// Releases memory of an instance that holds more than its limit. Returns whether more is to be
    /// released. Redis releases by itself.
    async fn release(&self, link: &mut Link, state: &State) -> Result<bool, Trouble> {
        match self.setup.kind {
            InstanceKind::Memcached => memcached::release(link, state).await,
            InstanceKind::Redis => Ok(redis::gives(state)),
        }
    }

    /// Records that the instance is reachable. Reports an event if it was not.
    fn note_reached(&self, report: &Report, state: State) {
        let mut known = self.known();
        let was = known.trouble.take();
        let again = std::mem::replace(&mut known.reached_ever, true);
        drop(known);
        if was.is_some() {
            let InstanceSetup { kind, address, .. } = &self.setup;
            let name = &report.names.partitions()[self.partition.index()].name;
            let again = if again { " again" } else { "" };
            let message =
                format!("{} {address} of {name} is reached{again}, with {} bytes", kind.name(), state.limit);
            report.events.say("instance", message, json!({"partition": name, "limit_bytes": state.limit}));
        }
    }

    /// Records that the instance is unreachable. Reports an event if it was reachable.
    fn note_unreachable(&self, report: &Report, trouble: &Trouble) {
        let trouble = trouble.to_string();
        if self.known().trouble.replace(trouble.clone()).as_ref() != Some(&trouble) {
            let InstanceSetup { kind, address, .. } = &self.setup;
            let name = &report.names.partitions()[self.partition.index()].name;
            let message = format!("{} {address} of {name} keeps its size: {trouble}", kind.name());
            report.events.warn("instance", message, json!({"partition": name, "error": trouble}));
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panics while held")
    }
}

impl Known {
    fn note(&mut self, state: State) {
        let last = self.last.replace(state).unwrap_or(state);
        // A counter that fell was reset by a restart.
        let more = |last: u64, now: u64| now.checked_sub(last).unwrap_or(now);
        self.restarts += u64::from(state.hits < last.hits || state.misses < last.misses);
        let usage = &mut self.usage;
        usage.hits += more(last.hits, state.hits);
        usage.misses += more(last.misses, state.misses);
        usage.stores += more(last.stores, state.stores);
        usage.evictions += more(last.evictions, state.evictions);
        usage.expired += more(last.expired, state.expired);
        (usage.budget_bytes, usage.used_bytes, usage.items) = (state.limit, state.used, state.items);
    }
}

/// Reads the password from a file that only its owner may read.
fn password(file: &Path, reader: &mut Reader) -> Result<String, AccessError> {
    const WHAT: &str = "[[partition]] cache.password_file";
    reader.secret(file, Rules::PRIVATE).map_err(|error| refused(WHAT, file, error))
}

/// The names and the event log that the tasks report with.
#[derive(Clone)]
pub(crate) struct Report {
    pub(crate) names: Arc<Names>,
    pub(crate) events: Arc<Events>,
}

/// Starts the task of each of `instances` on `runtime`.
pub(crate) fn start(instances: &[Arc<Instance>], report: &Report, runtime: &Handle) {
    for instance in instances {
        runtime.spawn(Arc::clone(instance).work(report.clone()));
    }
}

#[cfg(test)]
#[path = "../../../../store/src/remote/simulated.rs"]
#[expect(dead_code, reason = "the connectors' simulation uses the rest")]
mod simulated;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
