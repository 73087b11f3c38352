//! Drives one backend's state machine: performs its actions at the stores and reports their results
//! to it.
//!
//! The machine decides under a short lock, which misses and writes enter. It fills the cache under
//! that lock, so that no fill overwrites a write that came after its fetch. Calls, writes and
//! deliveries happen outside the lock. A task for each backend wakes the machine up when a timeout
//! or a probe is due.

mod duplicates;
pub(crate) mod log_disk;
pub(crate) mod waiter;
pub(crate) mod write;

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sherwood_cache::{Cache, Refused, Value};
use sherwood_config::Duplicates;
use sherwood_dispatch::{
    AdmitChoice, AttemptId, BalanceChoice, CancelReason, Failure, FailureKind, Layout, Options, OptionsError,
    RatesInForce, Reply, Stats,
};
use sherwood_model::query_times::{Operation, QueryKind};
use sherwood_model::{
    BackendId, Demand, DemandKind, Instant, PartitionId, ReplicaId, SeededState, StoreLayout, TenantId,
};
use sherwood_path::{
    Action, AnswerCache, Backend as Machine, BackendOptions, BackendUse, CallCost, ChangedKeys, DemandCounts,
    DuplicateOptions, Fetched, Invalidation, LayoutError, LogsStanding, Rules, Session, Units, WriteId,
};
use sherwood_process::clock::Clock;
use sherwood_process::entropy::Entropy;
use sherwood_store::{
    ConsumedUnits, Fault, Found, KeyAnswer, KeyAnswers, Store, StoreError, with_traceparent,
};
use sherwood_tickets::{Schedulers, Turn};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::backend::duplicates::DuplicateSteps;
use crate::backend::log_disk::{LogDisk, OpenedLogs};
use crate::backend::waiter::Waiter;
use crate::backend::write::{PendingWrite, Written};
use crate::cluster::Cluster;
use crate::observe::errors::Errors;
use crate::observe::recording::Recording;
use crate::observe::shadow::Shadow;
use crate::observe::times::SharedRecorder;
use crate::spans::{AttemptEnd, AttemptSpan, AttemptSpans};
use crate::tenants::TenantNetwork;

/// A key of a backend in one tenant's partition.
pub(crate) type FetchKey = sherwood_path::FetchKey<Bytes>;

/// Changes of the cache that concern one backend and are made together.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) written: Vec<FetchKey>,
    /// Partitions that are flushed.
    pub(crate) flushed: Vec<PartitionId>,
}

/// The state of a backend that its lock protects.
pub(crate) struct State {
    pub(crate) machine: Machine<Bytes, Found, Waiter>,
    /// The writes in flight: clients to answer, and answers of replicas.
    pub(crate) writes: HashMap<WriteId, PendingWrite>,
}

/// The cache, as one backend's state machine reads and fills it.
pub(crate) struct BackendCache<'a> {
    backend: &'a str,
    cache: &'a Cache,
    shadow: &'a Shadow,
}

impl AnswerCache<Found> for BackendCache<'_> {
    fn cache(&self) -> &Cache {
        self.cache
    }

    fn fetched<'a>(&self, found: &'a Found) -> Fetched<'a> {
        let Found { value, flags, good_for, tags } = found;
        Fetched { value: Value::Bytes(value), flags: *flags, good_for: *good_for, tags: *tags }
    }

    fn note_fill(&self, now: Instant, partition: PartitionId, key: &[u8], found: Option<&Found>) {
        if let Some(found) = found {
            self.shadow.access(now, partition, key, found.value.len());
        }
    }

    fn note_refused(&self, _: PartitionId, _: &[u8], refused: &Refused) {
        tracing::debug!(backend = self.backend, "a value is not cached: {refused}");
    }
}

/// The driver of one backend: its machine, its replicas, and the tasks that perform the machine's
/// actions.
pub(crate) struct BackendDriver {
    pub(crate) name: String,
    pub(crate) timeout: Duration,
    /// Lifetimes of the backend's values, and the conditions for serving stale ones.
    pub(crate) rules: Rules,
    /// Time after which a fetch is late and a query that allows it is answered with a stale value.
    pub(crate) late_after: Duration,
    /// Keys that were answered with stale values.
    pub(crate) stale_answers: AtomicU64,
    pub(crate) replicas: Vec<Arc<dyn Store>>,
    /// Counts of the backend's writes by outcome.
    pub(crate) written: Written,
    /// Counts of the failures of the backend's stores.
    pub(crate) errors: Errors,
    /// The schedulers of the replicas, whose tickets calls need; none if they need none.
    pub(crate) schedulers: Option<Arc<Schedulers>>,
    /// Upper bound of calls in flight to all replicas together.
    pub(crate) calls_at_once_max: u64,
    /// The rule that admits or refuses fetches.
    pub(crate) admit: AdmitChoice,
    /// True if a rule uses estimates, whose percentile is then of interest.
    pub(crate) uses_estimates: bool,
    /// Number of tokens of each replica, if calls wait for tokens.
    pub(crate) tokens: Option<u32>,
    /// Longest wait of a write for earlier writes of the same key.
    pub(crate) turn_timeout: Duration,
    pub(crate) id: BackendId,
    /// Name of the resource that limits tenants' writes, if there is one.
    pub(crate) written_resource: Option<Arc<str>>,
    /// The rates of tenants' traffic, if it has any.
    pub(crate) network: Option<Arc<TenantNetwork>>,
    /// The other nodes, if they cache the backend's values, too.
    cluster: Option<Arc<Cluster>>,
    recording: Arc<Recording>,
    /// Times for which keys and writes have waited for their calls.
    times: SharedRecorder,
    /// Number of configured partitions of a replicated store; none if it is none.
    partitions: Option<usize>,
    steps: DuplicateSteps,
    /// The logs of a replicated store, if they are kept on disk.
    log_disk: Option<LogDisk>,
    state: Mutex<State>,
    calls: Mutex<HashMap<AttemptId, RunningCall>>,
    /// The spans of calls that sampled requests wait for; none if no spans are exported.
    spans: Option<Arc<AttemptSpans>>,
    rearm: Notify,
    cache: Arc<Cache>,
    shadow: Arc<Shadow>,
    pub(crate) clock: Clock,
    entropy: Arc<Entropy>,
    pub(crate) runtime: Handle,
}

/// The parts from which a [`BackendDriver`] is made.
pub(crate) struct BackendParts {
    pub(crate) id: BackendId,
    pub(crate) name: String,
    pub(crate) options: Options,
    /// Lifetimes of the backend's values, and the conditions for serving stale ones.
    pub(crate) rules: Rules,
    /// Time after which a fetch is late and a query that allows it is answered with a stale value.
    pub(crate) late_after: Duration,
    pub(crate) writes: sherwood_config::Writes,
    /// The replicas as duplicates; none if they are not kept equal by the node.
    pub(crate) duplicates: Option<Duplicates>,
    /// The logs of the partitions, if they are kept on disk.
    pub(crate) logs: Option<OpenedLogs>,
    /// The measure of a read and of a write, for tenants.
    pub(crate) units: Units,
    /// Name of the resource that limits tenants' writes, if there is one.
    pub(crate) written_resource: Option<Arc<str>>,
    /// The partitions that hold the backend's values, those of all tenants.
    pub(crate) partitions: Vec<PartitionId>,
    /// The rates of tenants' traffic, if it has any.
    pub(crate) network: Option<Arc<TenantNetwork>>,
    pub(crate) replicas: Vec<Arc<dyn Store>>,
    /// The schedulers of the replicas, if calls need tickets.
    pub(crate) schedulers: Option<Arc<Schedulers>>,
    /// The other nodes; none for a node alone.
    pub(crate) cluster: Option<Arc<Cluster>>,
    pub(crate) recording: Arc<Recording>,
    /// The spans of calls that sampled requests wait for; none if no spans are exported.
    pub(crate) spans: Option<AttemptSpans>,
    pub(crate) times: SharedRecorder,
}

impl BackendParts {
    /// Returns the options of the backend's machine, whose dispatcher has `dispatch`.
    fn machine_options(&self, dispatch: Options) -> BackendOptions {
        BackendOptions {
            rules: self.rules.clone(),
            write_to: self.writes.to,
            settle: self.writes.settle,
            shared: self.cluster.as_ref().and_then(|cluster| cluster.shared(self.id)).cloned(),
            units: self.units,
            acknowledge: self.duplicates.as_ref().map(|of| of.acknowledge).unwrap_or_default(),
            duplicates: self.duplicates.as_ref().map(duplicate_options),
            reads_as_written: self.replicas.iter().all(|replica| replica.answers_as_written()),
            ..BackendOptions::new(dispatch, self.replicas.len(), self.partitions.clone())
        }
    }
}

impl BackendDriver {
    /// Starts a backend whose calls and wake-up task run on `runtime`.
    pub(crate) fn start(
        parts: BackendParts,
        cache: Arc<Cache>,
        shadow: Arc<Shadow>,
        clock: Clock,
        entropy: Arc<Entropy>,
        runtime: Handle,
    ) -> Result<Arc<Self>, OptionsError> {
        let BackendParts { options, replicas, schedulers, .. } = &parts;
        let local = match schedulers {
            None => *options,
            // The schedulers choose the replica and refuse what comes too late.
            Some(_) => Options { balance: BalanceChoice::Random, admit: AdmitChoice::Open, ..*options },
        };
        let machine_options = parts.machine_options(local);
        let (timeout, admit, turn_timeout) = (options.timeout, options.admit, machine_options.turn_timeout());
        let calls_at_once_max = u64::from(options.in_flight_calls_max) * replicas.len() as u64;
        let partitions = parts.duplicates.as_ref().map(|of| usize::from(of.partitions));
        let mut machine = Machine::new(machine_options, clock.now(), SeededState::new(entropy.draw()))?;
        let log_disk = parts.logs.map(|logs| logs.enter(&mut machine));
        let backend = Arc::new(Self {
            name: parts.name,
            timeout,
            rules: parts.rules,
            late_after: parts.late_after,
            stale_answers: AtomicU64::new(0),
            calls_at_once_max,
            admit,
            uses_estimates: local.uses_estimates(),
            tokens: local.has_tokens().then_some(local.in_flight_calls_max),
            turn_timeout,
            written_resource: parts.written_resource,
            replicas: parts.replicas,
            written: Written::default(),
            errors: Errors::default(),
            schedulers: parts.schedulers,
            id: parts.id,
            network: parts.network,
            cluster: parts.cluster,
            recording: parts.recording,
            times: parts.times,
            partitions,
            steps: DuplicateSteps::default(),
            log_disk,
            state: Mutex::new(State { machine, writes: HashMap::new() }),
            calls: Mutex::default(),
            spans: parts.spans.map(Arc::new),
            rearm: Notify::new(),
            cache,
            shadow,
            clock,
            entropy,
            runtime,
        });
        backend.runtime.spawn(Arc::clone(&backend).wake_up());
        Ok(backend)
    }

    /// Fetches keys. Each waiter receives one result, within the backend's timeout. If the store is
    /// replicated, the values reflect what the session has done and seen.
    pub(crate) fn fetch(
        self: &Arc<Self>,
        demand: &Demand,
        session: Session,
        keys: impl Iterator<Item = (FetchKey, Waiter)>,
    ) {
        let entropy = self.entropy.draw();
        self.drive(|state, now, cache| {
            state.machine.handle_fetch_in_session(now, cache, demand, session, keys, entropy);
        });
    }

    /// Returns true if the node keeps the stores equal, as duplicates of partitions.
    pub(crate) fn is_replicated(&self) -> bool {
        self.partitions.is_some()
    }

    /// Returns the session of a client that has read what it asked for; none if reads do not count
    /// at this backend.
    pub(crate) fn session_of_reader(&self) -> Option<Session> {
        lock(&self.state).machine.session_of_reader()
    }

    /// Has a replicated store begin to change its layout.
    ///
    /// # Errors
    /// If the store is not replicated, or cannot have the layout.
    pub(crate) fn set_layout(self: &Arc<Self>, layout: Layout) -> Result<(), LayoutError> {
        self.drive(|state, now, cache| state.machine.set_layout(now, cache, layout))
    }

    /// Returns the logs and duplicates of a replicated store; none if it is none.
    pub(crate) fn logs(&self) -> Option<LogsStanding> {
        lock(&self.state).machine.logs()
    }

    /// Returns the layout of a replicated store and the way in which its duplicates are asked; none
    /// if it is none.
    pub(crate) fn layout(&self) -> Option<StoreLayout> {
        lock(&self.state).machine.layout()
    }

    /// Revalidates stale keys that have been answered already.
    pub(crate) fn refresh(self: &Arc<Self>, demand: &Demand, keys: impl Iterator<Item = FetchKey>) {
        let (keys, entropy) = (keys.map(|key| (key, Waiter::NONE)), self.entropy.draw());
        self.drive(|state, now, cache| state.machine.handle_revalidate(now, cache, demand, keys, entropy));
    }

    /// Runs `change`, which stores or removes `key` in the cache, and fences the key: no earlier
    /// fetch fills it afterwards.
    pub(crate) fn write<R>(
        self: &Arc<Self>,
        partition: PartitionId,
        key: &[u8],
        change: impl FnOnce() -> R,
    ) -> R {
        let key = FetchKey { partition, key: Bytes::copy_from_slice(key) };
        self.drive(|state, now, cache| {
            state.machine.handle_invalidate(now, cache, Invalidation::Key(&key));
            change()
        })
    }

    /// Runs `change`, which makes these changes and others, and fences their keys and partitions
    /// like [`write`](Self::write) and [`flush`](Self::flush). `change` may take the locks of
    /// backends with larger ids.
    pub(crate) fn write_all(self: &Arc<Self>, changes: &Changes, at: Instant, change: impl FnOnce()) {
        self.drive(|state, now, cache| {
            for key in &changes.written {
                state.machine.handle_invalidate(now, cache, Invalidation::Key(key));
            }
            for &partition in &changes.flushed {
                state.machine.handle_flush(now, cache, partition, at);
            }
            change();
        });
    }

    /// Runs `change`, which flushes `partition` from the time `at` on, and fences the partition: no
    /// fetch from before `at` fills it afterwards.
    pub(crate) fn flush<R>(
        self: &Arc<Self>,
        partition: PartitionId,
        at: Instant,
        change: impl FnOnce() -> R,
    ) -> R {
        self.drive(|state, now, cache| {
            state.machine.handle_flush(now, cache, partition, at);
            change()
        })
    }

    /// Drops a key that another node has changed, and fences it.
    pub(crate) fn take_peer_change(self: &Arc<Self>, key: &Bytes, is_unsettled: bool) {
        self.drive(|state, now, cache| state.machine.handle_peer_change(now, cache, key, is_unsettled));
    }

    /// Fences the selected keys, so that no fetch in flight fills them; the caller then removes
    /// their items from the cache.
    pub(crate) fn invalidate(self: &Arc<Self>, which: Invalidation<'_, Bytes>) {
        self.drive(|state, now, cache| state.machine.handle_invalidate(now, cache, which));
    }

    /// Ends all writes, since the node ends. Returns the latest time at which a write may still
    /// reach a store; none if no write may.
    pub(crate) fn shut_down(self: &Arc<Self>) -> Option<Instant> {
        self.drive(|state, now, cache| state.machine.handle_shutdown(now, cache))
    }

    /// Fences all keys, because a write of the previous process may reach a store until
    /// `unsettled`.
    pub(crate) fn restart(&self, unsettled: Instant) {
        let mut state = lock(&self.state);
        state.machine.handle_restart(self.clock.now(), unsettled);
    }

    /// Begins the ramp, which limits misses while the cache is cold: most of the backend's items
    /// are gone.
    pub(crate) fn note_cold(&self) {
        lock(&self.state).machine.handle_cold_cache();
    }

    /// Sets the timeout of further queries, and how calls are retried and replicas probed.
    pub(crate) fn set_times(&self, times: &sherwood_config::Times) {
        let sherwood_config::Times { timeout, retry, probe } = *times;
        lock(&self.state).machine.set_times(timeout, retry, probe);
    }

    /// Sets the lifetimes of values that are stored from now on.
    pub(crate) fn set_lifetimes(&self, rules: &Rules) {
        lock(&self.state).machine.take_lifetimes(rules);
    }

    /// Sets the units per second of all tenants' reads, or writes, together, and of each tenant by
    /// its id, or none if the total pays for all of them; no effect without tenants.
    pub(crate) fn set_rates(self: &Arc<Self>, kind: DemandKind, total_per_s: f64, per_s: &[f64]) {
        self.drive(|state, now, cache| state.machine.set_rates(now, cache, kind, total_per_s, per_s));
    }

    /// Sets rates of reads, or writes, with loans of other nodes, which end by themselves; no
    /// effect without tenants.
    pub(crate) fn set_rates_in_force(self: &Arc<Self>, kind: DemandKind, rates: &RatesInForce) {
        self.drive(|state, now, cache| state.machine.set_rates_in_force(now, cache, kind, rates));
    }

    /// Returns what each of these tenants has asked of the backend and used of its units, given the
    /// tenant's partition; nothing without tenants.
    pub(crate) fn tenants(&self, asked: &[(TenantId, PartitionId)]) -> Vec<(DemandCounts, BackendUse)> {
        let cache = BackendCache { backend: &self.name, cache: &self.cache, shadow: &self.shadow };
        let state = lock(&self.state);
        let of = |&(tenant, partition): &(TenantId, PartitionId)| {
            let demand = state.machine.demand(&cache, tenant, partition).unwrap_or_default();
            (demand, state.machine.used(tenant).unwrap_or_default())
        };
        asked.iter().map(of).collect()
    }

    /// Returns the capacity units that the replicas have reported; without those whose stores
    /// report none.
    pub(crate) fn consumed_units(&self) -> impl Iterator<Item = (ReplicaId, ConsumedUnits)> {
        let each = self.replicas.iter().enumerate();
        each.filter_map(|(index, store)| Some((ReplicaId::from_index(index), store.consumed_units()?)))
    }

    /// Returns the counters and replica states of the backend.
    pub(crate) fn stats(&self) -> Stats {
        lock(&self.state).machine.stats()
    }

    /// Gives the state machine an input, then performs the actions that follow. The time is read
    /// under the lock, so that it never steps back.
    pub(crate) fn drive<R>(
        self: &Arc<Self>,
        input: impl FnOnce(&mut State, Instant, &BackendCache<'_>) -> R,
    ) -> R {
        let cache = BackendCache { backend: &self.name, cache: &self.cache, shadow: &self.shadow };
        let (mut actions, mut orders, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        let result = {
            let mut state = lock(&self.state);
            let now = self.clock.now();
            let before = state.machine.next_timeout();
            let result = input(&mut state, now, &cache);
            while let Some(action) = state.machine.poll_action() {
                match action {
                    Action::StartWrite(write) => {
                        let Some(order) = state.machine.take_write(now, write) else { continue };
                        if let Some(pending) = state.writes.get_mut(&write) {
                            pending.note_sent(order.replicas.len());
                            self.times.record(pending.waited(now));
                        }
                        orders.push(order);
                    }
                    Action::Announce(keys) => self.announce(keys),
                    Action::Duplicate { partition, replica, step } => {
                        self.take_step(partition, replica, step);
                    }
                    Action::StoreLog { partition, records, first } => {
                        self.store_log(partition, records, first);
                    }
                    Action::EndWrite { write, outcome, sent, session } => {
                        self.written.count(outcome);
                        if let Some(pending) = state.writes.remove(&write) {
                            pending.end(self, outcome, sent, session);
                        }
                    }
                    Action::Call { attempt, replica, keys, demand, since, timeout } => {
                        let other = match &self.schedulers {
                            Some(_) => state.machine.begin_wait(attempt),
                            None => None,
                        };
                        let span = self.start_span(&state, now, attempt, replica, keys.len());
                        let (replicas, expires_at) = (Candidates { replica, other }, now + timeout);
                        calls.push(StartedCall { attempt, replicas, keys, demand, since, expires_at, span });
                    }
                    action => actions.push(action),
                }
            }
            // Rearms the wake-up task if something is due sooner than before.
            let after = state.machine.next_timeout();
            if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
                self.rearm.notify_one();
            }
            result
        };
        orders.into_iter().for_each(|order| self.send(order));
        calls.into_iter().for_each(|call| self.call(call));
        actions.into_iter().for_each(|action| self.carry_out(action));
        result
    }

    /// Tells the other nodes of a cluster, if there is one, which keys have changed.
    fn announce(&self, keys: ChangedKeys<Bytes>) {
        if let Some(cluster) = &self.cluster {
            cluster.announce(self.id, keys);
        }
    }

    /// Starts the span of a call if a sampled request waits for it.
    fn start_span(
        &self,
        state: &State,
        now: Instant,
        attempt: AttemptId,
        replica: ReplicaId,
        keys: usize,
    ) -> Option<Arc<AttemptSpan>> {
        self.spans
            .as_ref()?
            .start(now, replica, keys, |see| state.machine.observe_call(attempt, |waiter| see(waiter.span())))
    }

    fn carry_out(self: &Arc<Self>, action: Action<Bytes, Found, Waiter>) {
        match action {
            Action::Cancel { attempt, reason, .. } => {
                if reason == CancelReason::Timeout {
                    self.errors.late(self);
                }
                if let Some(RunningCall { task, span }) = lock(&self.calls).remove(&attempt) {
                    task.abort();
                    let end = match reason {
                        CancelReason::Timeout => AttemptEnd::TimedOut,
                        CancelReason::Answered | CancelReason::Outdated => AttemptEnd::Cancelled,
                    };
                    span.iter().for_each(|span| span.end(end));
                }
            }
            Action::Probe { replica, key, timeout } => self.probe(replica, key, timeout),
            Action::Deliver { result, waiters, .. } => {
                waiters.into_iter().for_each(|waiter| waiter.tell(result.clone()));
            }
            Action::Call { .. }
            | Action::StartWrite(_)
            | Action::Announce(_)
            | Action::Duplicate { .. }
            | Action::StoreLog { .. }
            | Action::EndWrite { .. } => unreachable!("calls and writes are taken under the lock"),
        }
    }

    fn call(self: &Arc<Self>, call: StartedCall) {
        let (backend, attempt, tenant) = (Arc::clone(self), call.attempt, call.demand.tenant);
        let (span, ending) = (call.span.clone(), call.span.clone());
        // The table stays locked until the task is in it, so that a call that ends at once can
        // remove itself.
        let mut calls = lock(&self.calls);
        let task = self.runtime.spawn(async move {
            // The machine times the call out as well. Its `Cancel` usually aborts this task, but it
            // has no effect if it ran before the task was in the table.
            let left = call.expires_at - backend.clock.now();
            let reply = tokio::time::timeout(left, backend.reply_to(call)).await;
            lock(&backend.calls).remove(&attempt);
            let Ok((reply, units)) = reply else {
                ending.iter().for_each(|span| span.end(AttemptEnd::TimedOut));
                return;
            };
            backend.drive(|state, now, cache| {
                let cost = CallCost { tenant, units };
                state.machine.handle_costed_reply(now, cache, attempt, reply, cost);
            });
        });
        calls.insert(attempt, RunningCall { task: task.abort_handle(), span });
    }

    /// Calls a replica, after the turn has come if calls need one. Returns its reply, and the units
    /// that it reported.
    async fn reply_to(self: &Arc<Self>, call: StartedCall) -> (Reply<Found>, Option<f64>) {
        let StartedCall { attempt, replicas, keys, demand, since, expires_at, span } = call;
        let Candidates { mut replica, other } = replicas;
        let end = |end| span.iter().for_each(|span| span.end(end));
        let mut ticket = None;
        if let Some(schedulers) = &self.schedulers {
            let candidates: Vec<_> = [Some(replica), other].into_iter().flatten().collect();
            let schedulers = Arc::clone(schedulers);
            match schedulers.turn(&candidates, &demand, keys.len(), expires_at).await {
                Turn::Reject(expected) => {
                    end(AttemptEnd::Rejected);
                    return (Reply::NotAdmitted { expected }, None);
                }
                Turn::Start(chosen, held) => {
                    self.drive(|state, now, cache| state.machine.handle_turn(now, cache, attempt, chosen));
                    (replica, ticket) = (chosen, Some(held));
                }
            }
        }
        let store = Arc::clone(&self.replicas[replica.index()]);
        let sent = self.clock.now();
        self.times.record(keys.chunk_by(|a, b| a.partition == b.partition).map(|keys| {
            let kind = QueryKind::queued(keys[0].partition, Operation::Get);
            (kind, sent - since, keys.len() as u64)
        }));
        let asked: Vec<_> = keys.into_iter().map(|key| key.key).collect();
        let count = asked.len();
        let key_bytes: usize = asked.iter().map(Bytes::len).sum();
        let answer = match &span {
            None => store.get_each(asked).await,
            Some(span) => with_traceparent(span.note_sent(sent, replica), store.get_each(asked)).await,
        };
        let now = self.clock.now();
        end(attempt_end(&answer));
        if let Some(ticket) = ticket {
            ticket.end(answer.is_ok().then(|| now - sent));
        }
        match answer {
            Ok(answers) => {
                self.recording.call(now, self.id, now - sent, count);
                if let Some(network) = &self.network {
                    let found = answers.each.iter().filter_map(|answer| answer.as_ref().ok()?.as_ref());
                    let value_bytes: usize = found.map(|found| found.value.len()).sum();
                    network.charge_backend(now, demand.tenant, key_bytes + value_bytes);
                }
                (self.reply(answers.each), answers.units)
            }
            Err(error) => {
                self.errors.failed(self, &error);
                (Reply::Failed(failure(&error)), None)
            }
        }
    }

    /// Converts a store's answers into a reply to the backend's state machine.
    fn reply(&self, answers: Vec<KeyAnswer>) -> Reply<Found> {
        let heard = |answer: KeyAnswer| {
            answer.map_err(|error| {
                self.errors.failed(self, &error);
                failure(&error)
            })
        };
        Reply::Each(answers.into_iter().map(heard).collect())
    }

    fn probe(self: &Arc<Self>, replica: ReplicaId, key: Option<FetchKey>, timeout: Duration) {
        let (backend, store) = (Arc::clone(self), Arc::clone(&self.replicas[replica.index()]));
        let keys = key.into_iter().map(|key| key.key).collect();
        self.runtime.spawn(async move {
            // A probe is an ordinary call: the replica is up if it answers, even if it declines or
            // throttles the key.
            let is_up = match tokio::time::timeout(timeout, store.get_each(keys)).await {
                Ok(Ok(answers)) => {
                    let failures = answers.each.iter().filter_map(|answer| answer.as_ref().err());
                    failures.for_each(|error| backend.errors.failed(&backend, error));
                    true
                }
                Ok(Err(error)) => {
                    backend.errors.failed(&backend, &error);
                    matches!(error.fault(), Fault::Rejected | Fault::Throttled)
                }
                Err(_) => false,
            };
            backend.drive(|state, now, cache| state.machine.handle_probe(now, cache, replica, is_up));
        });
    }

    /// Wakes the backend's state machine whenever a timeout is due, until the runtime ends.
    async fn wake_up(self: Arc<Self>) {
        loop {
            let due = lock(&self.state).machine.next_timeout();
            let Some(due) = due else {
                self.rearm.notified().await;
                continue;
            };
            tokio::select! {
                () = tokio::time::sleep(due.since(self.clock.now())) => {
                    self.drive(|state, now, cache| state.machine.handle_timeout(now, cache));
                }
                () = self.rearm.notified() => {}
            }
        }
    }
}

/// Returns the options of the logs of duplicates. The number of this process is its start, in
/// microseconds of Unix time.
fn duplicate_options(of: &Duplicates) -> DuplicateOptions {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    DuplicateOptions {
        partitions: of.partitions.into(),
        duplicates: of.duplicates.into(),
        consistency: of.consistency,
        entries_max: of.entries_max as usize,
        bytes_max: of.bytes_max,
        epoch: started.as_micros() as u64,
    }
}

/// A call whose task runs.
struct RunningCall {
    task: AbortHandle,
    span: Option<Arc<AttemptSpan>>,
}

/// A call that the machine has started.
struct StartedCall {
    attempt: AttemptId,
    replicas: Candidates,
    keys: Vec<FetchKey>,
    demand: Demand,
    /// The time since which the call has waited.
    since: Instant,
    /// The time at which the call ends without an answer.
    expires_at: Instant,
    /// The span of the call, if a sampled request waits for it.
    span: Option<Arc<AttemptSpan>>,
}

/// The replica of a call, and another one that it may go to if calls need a turn.
struct Candidates {
    replica: ReplicaId,
    other: Option<ReplicaId>,
}

/// Returns the end of an attempt with this answer, which has failed if every key has.
fn attempt_end(answer: &Result<KeyAnswers, StoreError>) -> AttemptEnd {
    let error = match answer {
        Ok(answers) if answers.each.iter().all(Result::is_err) => {
            answers.each.first().and_then(|answer| answer.as_ref().err())
        }
        Ok(_) => None,
        Err(error) => Some(error),
    };
    error.map_or(AttemptEnd::Answered, |error| AttemptEnd::Failed(error.cause().label()))
}

/// Converts a store's error into the failure of a call. Calls only read.
fn failure(error: &StoreError) -> Failure {
    let kind = match error.fault() {
        Fault::Unreachable => FailureKind::Unreachable,
        Fault::Overloaded => FailureKind::Overloaded,
        Fault::Throttled => FailureKind::Throttled,
        Fault::Rejected => FailureKind::Rejected,
        Fault::Broken => FailureKind::Reset,
    };
    Failure::new(kind, format!("{}: {error}", error.cause().label()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panics while held")
}
