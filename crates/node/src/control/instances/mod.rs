//! Caches that somebody runs already, one for each partition, resized by the same loop.
//!
//! RobinHood was built on an off-the-shelf cache, and needs no more of one than that it can be told
//! its size and asked how it fares. Both are done here over the network, so both may be slow or
//! fail; and the loop must not wait. So each instance has a task and a connection of its own:
//!
//! - The loop leaves a *wish*, a size. The newest one wins: what was asked for and not begun is
//!   never asked for.
//! - The task tells the instance, once a second reads back what it holds and counts, and leaves
//!   that for the loop.
//! - Who is to grow is told so as others have given (`ledger`): all together never have more than
//!   the total.
//! - Each exchange has a time-out. An instance that does not answer keeps its size, since nobody
//!   can tell it another, and its budget: the loop divides the rest among the others. What it has
//!   beyond its budget nobody else gets meanwhile (`ledger`). When it is back, it is told the
//!   newest wish. One that answers and cannot be resized is treated alike.

mod ledger;
mod link;
mod memcached;
mod redis;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::json;
use sherwood_cache::Usage;
use sherwood_model::PartitionId;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::access::{AccessError, Refusal, file_bytes, refused};
use crate::events::Events;
use crate::names::Names;
pub(crate) use ledger::Ledger;
pub(crate) use link::Trouble;
use link::{Link, Unfit};

/// Time between two looks at an instance.
const LOOK: Duration = Duration::from_secs(1);
/// Time between two looks at one that gives memory back.
const LOOK_SHRINKING: Duration = Duration::from_millis(50);
/// Time to the first try to reach an instance again; it doubles with each that fails.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// What the doubling stops at.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// What an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceKind {
    /// memcached, resized by `cache_memlimit` in whole MiB, of which it needs eight.
    Memcached,
    /// Redis or Valkey, resized by `CONFIG SET maxmemory`.
    Redis,
}

impl InstanceKind {
    /// Its name, as in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::Redis => "redis",
        }
    }

    /// Least bytes it can be told to keep to.
    #[must_use]
    pub const fn bytes_min(self) -> u64 {
        match self {
            Self::Memcached => memcached::BYTES_MIN,
            Self::Redis => redis::BYTES_MIN,
        }
    }

    /// What it will say its size is when it was told to have `bytes`.
    const fn limit(self, bytes: u64) -> u64 {
        match self {
            Self::Memcached => memcached::limit(bytes),
            Self::Redis => redis::limit(bytes),
        }
    }
}

/// An instance, before the node is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceSetup {
    /// What it is.
    pub kind: InstanceKind,
    /// Host and port.
    pub address: String,
    /// Who asks; for Redis without one, its default user.
    pub user: Option<String>,
    /// A file with the password, if it asks for one; nobody else may read it, and it is read
    /// whenever the instance is connected to.
    pub password_file: Option<PathBuf>,
}

/// The instances that a node divides memory among, in place of a cache of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstancesSetup {
    /// What their sizes sum to, bytes.
    pub total_bytes: u64,
    /// One for each partition, in the order of their ids.
    pub each: Vec<InstanceSetup>,
}

/// What an instance said of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// Its size, bytes.
    limit: u64,
    /// What it takes of that.
    used: u64,
    items: u64,
    hits: u64,
    misses: u64,
    stores: u64,
    evictions: u64,
    expired: u64,
    /// Why it is left alone; none where it can be resized.
    unfit: Option<Unfit>,
}

/// What is known of an instance.
#[derive(Debug, Default)]
struct Known {
    /// Counts go on where the instance was started anew.
    usage: Usage,
    /// Times its counts were seen to have begun anew.
    restarts: u64,
    /// What it said last; nothing before the first look, since what it has counted before that is
    /// none of ours.
    last: Option<State>,
    /// Why it is not reached; none while it is.
    trouble: Option<String>,
    reached_ever: bool,
}

/// One instance; its task is [`Instance::work`].
#[derive(Debug)]
pub(crate) struct Instance {
    setup: InstanceSetup,
    /// Its partition.
    partition: PartitionId,
    ledger: Arc<Ledger>,
    wish: watch::Sender<Option<u64>>,
    known: Mutex<Known>,
}

impl Instance {
    #[must_use]
    pub(crate) fn new(setup: InstanceSetup, partition: PartitionId, ledger: Arc<Ledger>) -> Arc<Self> {
        let known = Known { trouble: Some("not reached yet".to_owned()), ..Known::default() };
        Arc::new(Self { setup, partition, ledger, wish: watch::channel(None).0, known: Mutex::new(known) })
    }

    pub(crate) fn setup(&self) -> &InstanceSetup {
        &self.setup
    }

    /// Asks for a size, bytes; in place of any that was asked for before.
    pub(super) fn wish(&self, bytes: u64) {
        self.wish.send_replace(Some(bytes));
    }

    /// What it holds and has counted since the node's start.
    pub(crate) fn usage(&self) -> Usage {
        self.known().usage
    }

    /// Times it was seen to have been started anew.
    pub(crate) fn restarts(&self) -> u64 {
        self.known().restarts
    }

    /// Why it is not reached; none while it is.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.known().trouble.clone()
    }

    /// Reaches the instance, again and again, for as long as the runtime lives.
    async fn work(self: Arc<Self>, report: Report) {
        let mut retry = RETRY_MIN;
        loop {
            let Err(trouble) = self.talk(&report, &mut retry).await;
            self.lose(&report, &trouble);
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
        }
    }

    /// Talks to the instance until something is wrong.
    async fn talk(&self, report: &Report, retry: &mut Duration) -> Result<std::convert::Infallible, Trouble> {
        let (mut wishes, mut gifts) = (self.wish.subscribe(), self.ledger.gifts());
        let piece = match self.setup.kind {
            InstanceKind::Memcached => memcached::piece,
            InstanceKind::Redis => redis::piece,
        };
        let mut link = Link::open(&self.setup.address, piece).await?;
        self.greet(&mut link).await?;
        loop {
            let wish = *wishes.borrow_and_update();
            gifts.mark_unchanged();
            let mut state = self.look(&mut link).await?;
            if let Some(unfit) = state.unfit {
                // What it has beyond its budget nobody else gets.
                self.ledger.note(self.partition.index(), state.limit.max(state.used));
                return Err(unfit.into());
            }
            // Where there is no limit, what it holds is its own: a limit below that would evict for
            // nothing but want of room.
            let own = if state.limit == 0 { state.used } else { state.limit };
            let granted = wish.map(|bytes| self.ledger.grant(self.partition.index(), bytes, own));
            if let Some(bytes) = granted
                && self.setup.kind.limit(bytes) != state.limit
            {
                self.resize(&mut link, bytes).await?;
                state = self.look(&mut link).await?;
            }
            let shrinks = self.release(&mut link, &state).await?;
            self.find(report, state);
            *retry = RETRY_MIN;
            // What it cannot give is nothing to wait for; one that has no limit has what it uses.
            let has = if shrinks || state.limit == 0 { state.limit.max(state.used) } else { state.limit };
            self.ledger.note(self.partition.index(), has);
            let rest = if shrinks { LOOK_SHRINKING } else { LOOK };
            // An end of the rest, a new wish, what it waits for: all are reasons to look again.
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                _ = wishes.changed() => {}
                _ = gifts.changed(), if granted < wish => {}
            }
        }
    }

    async fn greet(&self, link: &mut Link) -> Result<(), Trouble> {
        let InstanceSetup { kind, user, password_file, .. } = &self.setup;
        let Some(file) = password_file else { return Ok(()) };
        let password = password(file)?;
        match kind {
            InstanceKind::Memcached => {
                memcached::greet(link, user.as_deref().unwrap_or_default(), &password).await
            }
            InstanceKind::Redis => redis::greet(link, user.as_deref(), &password).await,
        }
    }

    async fn look(&self, link: &mut Link) -> Result<State, Trouble> {
        let state = match self.setup.kind {
            InstanceKind::Memcached => memcached::look(link).await,
            InstanceKind::Redis => redis::look(link).await,
        }?;
        // Each look counts: the next may be at counts that have grown beyond those of before a new
        // start.
        self.known().note(state);
        Ok(state)
    }

    async fn resize(&self, link: &mut Link, bytes: u64) -> Result<(), Trouble> {
        match self.setup.kind {
            InstanceKind::Memcached => memcached::resize(link, bytes).await,
            InstanceKind::Redis => redis::resize(link, bytes).await,
        }
    }

    /// Has an instance that holds more than it may give some of it back; whether there is more to
    /// come. Redis does so by itself.
    async fn release(&self, link: &mut Link, state: &State) -> Result<bool, Trouble> {
        match self.setup.kind {
            InstanceKind::Memcached => memcached::release(link, state).await,
            InstanceKind::Redis => Ok(redis::gives(state)),
        }
    }

    /// Takes note that it is reached, and says so when that is new.
    fn find(&self, report: &Report, state: State) {
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

    /// Takes note that it is not reached, and says so when that is new.
    fn lose(&self, report: &Report, trouble: &Trouble) {
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
        // A count that fell is one that began anew.
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

/// The first line of a file that nobody else may read.
fn password(file: &Path) -> Result<String, AccessError> {
    const WHAT: &str = "[[partition]] cache.password_file";
    let bytes = file_bytes(WHAT, file, true)?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Err(refused(WHAT, file, Refusal::Empty("password in its first line")));
    }
    let text = std::str::from_utf8(line).map(str::to_owned);
    text.map_err(|_| refused(WHAT, file, Refusal::Line { line: 1, problem: "has to be a password in UTF-8" }))
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
mod tests;
