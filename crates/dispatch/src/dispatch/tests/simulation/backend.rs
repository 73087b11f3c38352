//! A simulated backend: its dispatcher, its replicas and their data, and the invariants checked
//! after every input.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sherwood_model::{DeadlineClass, Demand, Instant, Percent, ReplicaId, RequestId, SeededState, TenantId};

use super::account::Account;
use super::draws::Draws;
use crate::fetch::{AttemptState, Later};
use crate::rules::names::AnyReplication;
use crate::rules::{ATTEMPTS_MAX, AttemptPlan, CallEnd, Completion, CopyTerms, Replication as _};
use crate::slab::Id;
use crate::{
    Action, AdmitChoice, AttemptId, BalanceChoice, CancelRule, ConnectionId, CopiesChoice, Dispatch,
    ExtraOrder, Failure, FailureKind, FetchError, Holders, LeaseId, Options, OverRate, ProbeOptions,
    QueueChoice, QueuedCall, RampOptions, ReplicaQueue, Reply, RetryOptions, TenantOptions, Waiters,
};

pub(super) type Key = u64;

/// The value of a key: the key and the version that was read.
pub(super) type Value = (Key, u64);

pub(super) type Waiter = u64;

pub(super) const KEYS: u64 = 12;

/// Number of tenants of a backend that has rates. A key belongs to the tenant of its remainder.
const TENANTS: u16 = 3;

/// Number of classes that [`plan_by_class`] tells apart.
const CLASSES: u64 = 7;

/// Plans the attempts of a fetch by the class of its demand.
fn plan_by_class(demand: &Demand) -> AttemptPlan {
    let later = |ms, count| Some((Duration::from_millis(ms), count));
    let (now, later, terms) = match demand.class.0 {
        0 => (1, None, CopyTerms::Budget),
        1 => (2, None, CopyTerms::Budget),
        2 => (2, None, CopyTerms::Planned),
        3 => (3, None, CopyTerms::Idle),
        4 => (1, later(10, 2), CopyTerms::Budget),
        5 => (2, later(5, 1), CopyTerms::Planned),
        _ => (6, later(5, 6), CopyTerms::Budget),
    };
    AttemptPlan { now, later, terms }
}

/// Faults of a backend's calls, in percent unless stated otherwise.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    lost: u64,
    repeated: u64,
    failed: u64,
    delay_max: Duration,
}

/// The outcome of a call or a probe, which is reported to the dispatcher after a delay.
#[derive(Debug)]
pub(super) enum Echo {
    Reply {
        attempt: AttemptId,
        reply: Reply<Value>,
    },
    Probe {
        replica: ReplicaId,
        ok: bool,
    },
    /// A call over a connection has ended, with an answer or without.
    EndCall(LeaseId, bool),
    Disconnect(ConnectionId),
}

#[derive(Debug)]
pub(super) struct Backend {
    pub(super) dispatch: Dispatch<Key, Value, Waiter>,
    pub(super) options: Options,
    pub(super) faults: Faults,
    /// True if the backend never fails, so that its waiters must always be answered.
    pub(super) healthy: bool,
    /// Number of classes of demands that fetches have.
    classes: u64,
    /// The most copies that plans have been allowed beside the budget.
    planned: u64,
    /// Share of the fetches with a deadline, in percent.
    with_deadline: u64,
    pub(super) alive: Vec<bool>,
    /// Calls that were made and neither answered nor cancelled.
    active: BTreeMap<AttemptId, ReplicaId>,
    account: Account,
    /// Connections that have not ended, with the calls of those that wait for an answer.
    pub(super) connections: BTreeMap<ConnectionId, Option<u64>>,
    /// Calls over connections that have not ended.
    pub(super) leased: BTreeMap<LeaseId, ConnectionId>,
    /// Percentage of the fetches that come with a connection, depend on a write or belong to a
    /// request.
    with_hooks: u64,
    /// The holders of all keys: a partition where fetches may depend on writes.
    holders: Holders,
    /// The sequence number of the latest write that a replica was reported to have applied.
    applied: u64,
    waiting: BTreeMap<Waiter, (Key, Instant)>,
    versions: Vec<u64>,
    calls_by_replica: Vec<u64>,
    next_waiter: Waiter,
}

impl Backend {
    /// Creates a backend with all kinds of faults.
    pub(super) fn faulty(draws: &mut Draws) -> Self {
        let timeout = Duration::from_millis(draws.within(20..=200));
        let interval_min = Duration::from_millis(draws.within(1..=20));
        let options = Options {
            batch_keys_max: draws.within(1..=5) as u32,
            in_flight_calls_max: draws.within(1..=6) as u32,
            queued_calls_max: draws.within(0..=5) as u32,
            waiters_max: draws.within(1..=120) as u32,
            timeout,
            retry: RetryOptions {
                per_call_max: draws.within(0..=3) as u32,
                ratio: draws.within(0..=100) as f64 / 100.0,
                burst: draws.within(0..=12) as u32,
            },
            probe: ProbeOptions {
                failures_max: draws.within(1..=8) as u32,
                interval_min,
                interval_max: interval_min * draws.within(1..=8) as u32,
            },
            ramp: (draws.within(0..=3) == 0).then(RampOptions::default),
            queue: draw_of(draws, [QueueChoice::Fifo, QueueChoice::Edf { alpha: Percent::ALPHA }]),
            balance: draw_of(
                draws,
                [
                    BalanceChoice::PowerOfTwo,
                    BalanceChoice::RoundRobin,
                    BalanceChoice::Random,
                    BalanceChoice::Tickets,
                    BalanceChoice::Tokens { lookups: 2, age: timeout },
                    BalanceChoice::Tokens { lookups: 0, age: Duration::ZERO },
                    BalanceChoice::Tokens { lookups: 0, age: timeout },
                    BalanceChoice::PeakEwma { age: timeout },
                    BalanceChoice::C3 { age: timeout },
                    BalanceChoice::Prequal { age: timeout },
                ],
            ),
            admit: draw_of(
                draws,
                [
                    AdmitChoice::Open,
                    AdmitChoice::Open,
                    AdmitChoice::Deadline { target: None },
                    AdmitChoice::Delay { target: timeout / 20 },
                ],
            ),
            tenants: draws.chance(30).then(|| TenantOptions {
                tenants: TENANTS,
                burst_units: TenantOptions::BURST_UNITS,
                lends: draws.chance(50),
                over: draw_of(draws, [OverRate::Wait, OverRate::Wait, OverRate::Refuse]),
            }),
            extra: draw_of(draws, [ExtraOrder::Behind, ExtraOrder::Equal]),
            cancel: draw_of(draws, [CancelRule::Never, CancelRule::Queued, CancelRule::Always]),
            cores: draws.chance(50).then_some(2),
            ..Options::default()
        };
        let faults = Faults {
            lost: draws.within(0..=10),
            repeated: draws.within(0..=20),
            failed: draws.within(0..=40),
            delay_max: timeout * draws.within(1..=6) as u32 / 5,
        };
        let replicas = draws.within(1..=4) * if draws.chance(20) { 3 } else { 1 };
        let factor = draws.within(1..=replicas.min(ATTEMPTS_MAX as u64)) as u8;
        let percentile = Percent::new("percentile", 50.0).unwrap();
        let rules = [
            CopiesChoice::One,
            CopiesChoice::One,
            CopiesChoice::Fixed { factor },
            CopiesChoice::Hedge { percentile, min: Duration::from_millis(draws.within(0..=1)) },
            CopiesChoice::Tied { factor },
            CopiesChoice::Idle { factor },
        ];
        let copies = draw_of(draws, rules);
        let is_valid = Options { copies, ..options }.validate().is_ok();
        let copies = if is_valid { copies } else { CopiesChoice::One };
        Self::new(Options { copies, ..options }, faults, replicas as usize, draws)
    }

    /// Creates a backend whose timeout, bounds and replicas are unaffected by the faults of the
    /// others.
    pub(super) fn healthy(draws: &mut Draws) -> Self {
        let options = Options {
            timeout: Duration::from_secs(60),
            in_flight_calls_max: 50,
            queued_calls_max: 10,
            retry: RetryOptions { ratio: 1.0, burst: 100, ..RetryOptions::default() },
            ..Options::default()
        };
        let faults = Faults { delay_max: Duration::from_millis(10), ..Faults::default() };
        Self { healthy: true, with_hooks: 0, ..Self::new(options, faults, 3, draws) }
    }

    /// Creates a backend that makes the attempts of its rule, or those of [`plan_by_class`] if
    /// the rule makes one.
    fn new(options: Options, faults: Faults, replicas: usize, draws: &mut Draws) -> Self {
        let mut dispatch = Dispatch::new(options, replicas, SeededState::new(draws.next())).unwrap();
        if options.copies == CopiesChoice::One {
            dispatch.replication = AnyReplication::Test(plan_by_class);
        }
        let latency = faults.delay_max / 2;
        dispatch.replicas.iter_mut().for_each(|replica| warm_up(&mut replica.queue, latency));
        dispatch.tier.iter_mut().for_each(|tier| warm_up(&mut tier.queue, latency));
        // Hedges follow the first calls after hardly any time, or after half of the longest one.
        let took = if draws.chance(50) { Duration::ZERO } else { latency };
        let completion = Completion::of(Instant::ZERO, took, CallEnd::Answered);
        if matches!(options.copies, CopiesChoice::Hedge { .. }) {
            (0..64).for_each(|_| dispatch.replication.completed(&completion));
        }
        let with_hooks = draws.within(0..=1) * 20;
        let holders = if with_hooks > 0 { Holders::Partition(0) } else { Holders::All };
        for replica in (0..replicas).map(ReplicaId::from_index) {
            dispatch.set_applied(Instant::ZERO, 0, replica, Some(0));
        }
        Self {
            dispatch,
            options,
            faults,
            healthy: false,
            classes: if draws.chance(50) { CLASSES } else { 1 },
            planned: 0,
            with_deadline: draws.within(0..=1) * 80,
            alive: vec![true; replicas],
            active: BTreeMap::new(),
            account: Account::default(),
            connections: BTreeMap::new(),
            leased: BTreeMap::new(),
            with_hooks,
            holders,
            applied: 0,
            waiting: BTreeMap::new(),
            versions: vec![0; KEYS as usize],
            calls_by_replica: vec![0; replicas],
            next_waiter: 0,
        }
    }

    pub(super) fn heal(&mut self) {
        self.faults = Faults { delay_max: self.options.timeout / 4, ..Faults::default() };
        self.alive.fill(true);
    }

    /// Asks for keys; with tenants, for the same number of keys of one tenant. Some fetches come
    /// with new rates.
    pub(super) fn fetch(
        &mut self,
        now: Instant,
        mut keys: Vec<Key>,
        draws: &mut Draws,
    ) -> Vec<(Duration, Echo)> {
        let mut tenant = TenantId(0);
        if self.options.tenants.is_some() {
            tenant.0 = draws.within(0..=u64::from(TENANTS) - 1) as u16;
            keys.iter_mut().for_each(|key| *key = *key / u64::from(TENANTS) * u64::from(TENANTS));
            keys.iter_mut().for_each(|key| *key += u64::from(tenant.0));
            if draws.chance(10) {
                let rates = [0, 1, 2].map(|_| draws.within(0..=400) as f64);
                self.dispatch.set_rates(now, rates.iter().sum(), &rates);
            }
        }
        let waiters = self.next_waiter..;
        let asked: Vec<(Key, Waiter)> = keys.into_iter().zip(waiters).collect();
        self.next_waiter += asked.len() as u64;
        self.waiting.extend(asked.iter().map(|&(key, waiter)| (waiter, (key, now))));
        let class = DeadlineClass(draws.within(0..=self.classes - 1) as u8);
        self.planned += asked.len() as u64 * self.planned_copies(class);
        // Some deadlines are over already, and some are later than the timeout.
        let deadline = Duration::from_nanos(draws.within(0..=2 * self.options.timeout.as_nanos() as u64));
        let deadline = draws.chance(self.with_deadline).then_some(now + deadline / 2 - deadline / 8);
        let best_effort = draws.chance(10);
        let after = if draws.chance(self.with_hooks) { self.applied } else { 0 };
        let request = if draws.chance(self.with_hooks) { RequestId::new(draws.within(0..=3)) } else { None };
        let demand = Demand { tenant, class, deadline, best_effort, after, request, ..Demand::default() };
        let holders = self.holders;
        let mut echoes = self.input(now, draws, |dispatch, draws| {
            dispatch.handle_fetch_from(now, holders, &demand, asked, draws.next());
        });
        if draws.chance(self.with_hooks) {
            echoes.extend(self.connect(now, &demand, draws));
            self.applied += 1;
            let replica = ReplicaId::from_index(draws.within(0..=self.alive.len() as u64 - 1) as usize);
            let applied = (!draws.chance(20)).then(|| self.applied - draws.within(0..=1));
            echoes
                .extend(self.input(now, draws, |dispatch, _| dispatch.set_applied(now, 0, replica, applied)));
        }
        echoes
    }

    /// Returns the most copies beside the budget that a fetch of this class has.
    fn planned_copies(&self, class: DeadlineClass) -> u64 {
        match self.options.copies {
            CopiesChoice::One => u64::from(matches!(class.0, 2 | 5)),
            CopiesChoice::Fixed { factor } | CopiesChoice::Tied { factor } => u64::from(factor) - 1,
            CopiesChoice::Hedge { .. } | CopiesChoice::Idle { .. } => 0,
        }
    }

    /// Returns how many waiters were refused because of their tenants' rates.
    pub(super) fn refused_by_rates(&self) -> u64 {
        let refused = |tenant| self.dispatch.tenant_reads(TenantId(tenant)).map_or(0, |reads| reads.refused);
        (0..TENANTS).map(refused).sum()
    }

    pub(super) fn write(&mut self, key: Key) {
        self.versions[key as usize] += 1;
        self.dispatch.invalidate(&key);
    }

    pub(super) fn wake(&mut self, now: Instant, draws: &mut Draws) -> Vec<(Duration, Echo)> {
        self.input(now, draws, |dispatch, _| dispatch.handle_timeout(now))
    }

    pub(super) fn echo(&mut self, now: Instant, echo: Echo, draws: &mut Draws) -> Vec<(Duration, Echo)> {
        match echo {
            Echo::Probe { replica, ok } => {
                self.input(now, draws, |dispatch, _| dispatch.handle_probe(now, replica, ok))
            }
            Echo::Reply { attempt, reply } => {
                let down_before = self.down();
                let late_before = self.dispatch.stats().counters.late_replies;
                self.dispatch.charge(now, attempt, draws.within(0..=3) as f64);
                self.dispatch.handle_reply(now, attempt, reply);
                let late = self.dispatch.stats().counters.late_replies - late_before;
                if late == 0 {
                    assert!(
                        self.active.remove(&attempt).is_some(),
                        "a reply was accepted that nobody waited for"
                    );
                    self.account.note_end(attempt);
                }
                self.follow(now, &down_before, draws)
            }
            Echo::EndCall(lease, is_answer) => self.end_call(now, lease, is_answer, draws),
            Echo::Disconnect(connection) => self.disconnect(now, connection, draws),
        }
    }

    /// Passes an input to the dispatcher and [follows](Self::follow) it.
    fn input(
        &mut self,
        now: Instant,
        draws: &mut Draws,
        give: impl FnOnce(&mut Dispatch<Key, Value, Waiter>, &mut Draws),
    ) -> Vec<(Duration, Echo)> {
        let down_before = self.down();
        give(&mut self.dispatch, draws);
        self.follow(now, &down_before, draws)
    }

    /// Returns for each replica whether it is down.
    pub(super) fn down(&self) -> Vec<bool> {
        self.dispatch.stats().replicas.iter().map(|replica| !replica.up).collect()
    }

    /// Carries out the actions after an input and checks the invariants. The replicas in
    /// `down_before` were down before the input. A call may go to a replica that the same input
    /// then took down.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        down_before: &[bool],
        draws: &mut Draws,
    ) -> Vec<(Duration, Echo)> {
        let down = self.down();
        let mut echoes = Vec::new();
        while let Some(action) = self.dispatch.poll_action() {
            if let Action::Call { replica, .. } = &action {
                let stayed_down = down_before[replica.index()] && down[replica.index()];
                assert!(!stayed_down, "a replica that is down got a call");
            }
            echoes.extend(self.carry_out(now, action, draws));
        }
        echoes.extend(self.follow_connections(draws));
        self.check(now);
        echoes
    }

    fn carry_out(
        &mut self,
        now: Instant,
        action: Action<Key, Value, Waiter>,
        draws: &mut Draws,
    ) -> Vec<(Duration, Echo)> {
        match action {
            Action::Call { attempt, replica, keys, timeout, .. } => {
                assert!((1..=self.options.batch_keys_max as usize).contains(&keys.len()));
                assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "a key twice in {keys:?}");
                assert!(timeout > Duration::ZERO && timeout <= self.options.timeout);
                assert_eq!(self.active.insert(attempt, replica), None);
                self.account.note_call(&self.dispatch, &self.options, attempt);
                self.calls_by_replica[replica.index()] += 1;
                self.serve(attempt, replica, &keys, draws)
            }
            Action::Cancel { attempt, replica, .. } => {
                assert_eq!(self.active.remove(&attempt), Some(replica));
                self.account.note_end(attempt);
                Vec::new()
            }
            Action::Deliver { key, result, is_current, waiters, .. } => {
                self.take_delivery(now, key, &result, is_current, waiters);
                Vec::new()
            }
            Action::Probe { replica, .. } => self.serve_probe(replica, draws),
        }
    }

    fn serve(
        &self,
        attempt: AttemptId,
        replica: ReplicaId,
        keys: &[Key],
        draws: &mut Draws,
    ) -> Vec<(Duration, Echo)> {
        if draws.chance(self.faults.lost) {
            return Vec::new();
        }
        let reply = if !self.alive[replica.index()] {
            Reply::Failed(Failure::new(FailureKind::Unreachable, "connection refused"))
        } else if draws.chance(self.faults.failed) {
            self.failure(draws)
        } else if draws.chance(self.faults.failed) {
            let lost = |draws: &mut Draws| Failure::new(draw_kind(draws), "as drawn, for this key");
            let each = |&key| if draws.chance(50) { Err(lost(draws)) } else { Ok(self.read(key)) };
            Reply::Each(keys.iter().map(each).collect())
        } else {
            Reply::Ok(keys.iter().map(|&key| self.read(key)).collect())
        };
        let echoes = if draws.chance(self.faults.repeated) { 2 } else { 1 };
        let echo = |_| (draws.up_to(self.faults.delay_max), Echo::Reply { attempt, reply: reply.clone() });
        (0..echoes).map(echo).collect()
    }

    /// Reads a key at the simulated backend; key 0 does not exist.
    fn read(&self, key: Key) -> Option<Value> {
        (key != 0).then(|| (key, self.versions[key as usize]))
    }

    fn failure(&self, draws: &mut Draws) -> Reply<Value> {
        match draw_kind(draws) {
            FailureKind::Malformed => Reply::Ok(vec![None; 99]),
            kind => Reply::Failed(Failure::new(kind, "as drawn")),
        }
    }

    fn serve_probe(&self, replica: ReplicaId, draws: &mut Draws) -> Vec<(Duration, Echo)> {
        if draws.chance(self.faults.lost) {
            return Vec::new();
        }
        let echo = Echo::Probe { replica, ok: self.alive[replica.index()] };
        vec![(draws.up_to(self.faults.delay_max), echo)]
    }

    fn take_delivery(
        &mut self,
        now: Instant,
        key: Key,
        result: &Result<Option<Value>, FetchError>,
        is_current: bool,
        waiters: Waiters<Waiter>,
    ) {
        let mut asked_at = Instant::NEVER;
        for waiter in waiters {
            let (asked, at) = self.waiting.remove(&waiter).unzip();
            assert_eq!(asked, Some(key), "waiter {waiter} was told twice, or of a key it did not ask for");
            asked_at = asked_at.min(at.unwrap_or(now));
            let is_over = result.is_ok() || !self.account.has_call_for(waiter);
            assert!(is_over, "key {key} failed while a call for it was in flight: {result:?}");
        }
        match result {
            Ok(None) => assert_eq!(key, 0),
            Ok(Some((read, version))) => {
                assert_eq!(*read, key);
                let current = *version == self.versions[key as usize];
                assert!(current || !is_current, "a value from before its key was written may fill");
            }
            Err(error) => {
                assert!(!is_current && !self.healthy, "{error}");
                let is_timeout = matches!(error, FetchError::Timeout { .. });
                assert!(!is_timeout || asked_at + self.options.timeout <= now, "a timeout before its time");
                let is_over_rate = matches!(error, FetchError::OverRate(_));
                assert!(!is_over_rate || self.options.tenants.is_some(), "{error}");
                let is_admission = error.expected().is_some();
                assert!(!is_admission || self.options.admit != AdmitChoice::Open, "{error}");
            }
        }
    }

    fn check(&self, now: Instant) {
        let stats = self.dispatch.stats();
        let counters = stats.counters;
        let Options { in_flight_calls_max, queued_calls_max, waiters_max, timeout, retry, .. } = self.options;
        assert!(stats.waiters <= waiters_max);
        assert_eq!(stats.waiters as usize, self.waiting.len());
        assert!(stats.joinable_keys <= stats.keys && stats.keys <= stats.waiters as usize);
        self.check_attempts();
        self.check_tier(now);
        self.check_connections();
        assert!(!self.healthy || stats.replicas.iter().all(|replica| replica.downs == 0));
        for replica in &stats.replicas {
            assert!(replica.in_flight_calls <= in_flight_calls_max);
            assert!(replica.queued_calls <= queued_calls_max);
            assert!(replica.queued_calls == 0 || replica.in_flight_calls == in_flight_calls_max);
            assert!(replica.queued_calls == 0 || replica.up);
            let calls = self.active.values().filter(|at| **at == replica.replica).count();
            let held = self.held().filter(|(_, at)| *at == Some(replica.replica)).count();
            let active = calls + held;
            assert_eq!(replica.in_flight_calls as usize, active);
        }
        let ended = counters.answered + counters.timed_out + counters.failed + counters.refused;
        assert_eq!(counters.asked, ended + u64::from(stats.waiters));
        let extra = counters.retries + counters.copies;
        let budget = f64::from(retry.burst) + retry.ratio * counters.calls as f64;
        assert!(extra as f64 <= budget + self.planned as f64);
        self.account.check(&self.options, self.planned);
        let overdue = self.waiting.values().find(|(_, asked)| *asked + timeout <= now);
        assert_eq!(overdue, None, "waiters are told by their deadline");
        assert!(
            self.dispatch.next_timeout().is_none_or(|due| due > now),
            "a wake-up is due but was not served"
        );
    }

    /// Checks that every attempt is queued or called, at a replica of its own among the attempts of
    /// its fetch, and that every fetch has one, or waits for units or for its retry.
    fn check_attempts(&self) {
        let Dispatch { replicas, fetches, attempts, later, .. } = &self.dispatch;
        let queued = replicas.iter().flat_map(|replica| {
            let replica_id = replica.id;
            replica.queue.entries().map(move |attempt| (attempt, Some(replica_id)))
        });
        let in_tier = self.dispatch.tier.iter().flat_map(|tier| tier.queue.entries().map(|one| (one, None)));
        let called = self.active.iter().map(|(attempt, replica)| (*attempt, Some(*replica)));
        let mut live = BTreeMap::<_, BTreeSet<_>>::new();
        let mut count = 0;
        for (attempt, replica) in queued.chain(in_tier).chain(called).chain(self.held()) {
            let attempt = attempts.get(attempt.0).expect("an attempt that is queued or called is stored");
            assert_eq!(attempt.replica, replica);
            let others = live.entry(attempt.fetch).or_default();
            assert!(others.insert(replica) || replica.is_none(), "two attempts at one replica");
            count += 1;
        }
        let waiting = |tenant| self.dispatch.tenant_reads(TenantId(tenant)).map_or(0, |reads| reads.waiting);
        let waiting: u32 = (0..TENANTS).map(waiting).sum();
        let is_retry = |id| matches!(fetches.get(id).expect("planned").later, Some((_, Later::Retry)));
        let throttled = later.iter().filter(|(_, id)| is_retry(*id)).count();
        assert_eq!((attempts.len(), fetches.len()), (count, live.len() + waiting as usize + throttled));
        assert!(live.values().all(|replicas| replicas.len() <= ATTEMPTS_MAX), "too many attempts: {live:?}");
    }

    /// Checks the queue of the tier: no attempt in it waits while a suitable replica has a free
    /// slot, and every attempt still has a replica that it may use.
    fn check_tier(&self, now: Instant) {
        let Dispatch { tier, replicas, fetches, attempts, options, .. } = &self.dispatch;
        let Some(tier) = tier else { return };
        let room = u64::from(options.in_flight_calls_max) * replicas.len() as u64;
        assert!(u64::from(tier.queue.queued()) <= room + u64::from(options.queued_calls_max));
        let taken: u32 = replicas.iter().map(|replica| replica.queue.in_flight()).sum();
        assert_eq!(tier.queue.in_flight(), taken, "a token is lost, or there is one too many");
        for AttemptId(id) in tier.queue.entries() {
            let fetch = fetches.get(attempts.get(id).expect("it waits").fetch).expect("it is open");
            let may_answer = || replicas.iter().filter(|replica| fetch.may_wait_for(replica, replicas.len()));
            assert!(may_answer().next().is_some(), "an attempt waits in vain");
            let live = || fetch.live.iter().filter_map(|id| attempts.get(*id));
            let leased =
                fetch.lease.iter().flat_map(|lease| self.dispatch.leases(ConnectionId(lease.connection)));
            let leased: Vec<_> = leased.filter_map(|id| attempts.get(id)?.replica).collect();
            let is_taken = |id| leased.contains(&id) || live().any(|attempt| attempt.replica == Some(id));
            let busy = fetch.demand.request.map_or(&[][..], |one| tier.requests.replicas(now, one));
            let idle = may_answer().find(|replica| {
                replica.queue.in_flight() < options.in_flight_calls_max
                    && replica.has_applied(fetch.holders, fetch.demand.after)
                    && !is_taken(replica.id)
                    && !busy.contains(&replica.id)
                    && !fetch.failed_at().contains(&replica.id)
            });
            assert!(idle.is_none(), "an attempt waits although {idle:?} is idle");
            assert_eq!(attempts.get(id).expect("it waits").state, AttemptState::Queued);
        }
    }

    pub(super) fn assert_at_rest(&self) {
        let stats = self.dispatch.stats();
        assert_eq!(stats.leases, 0);
        assert_eq!(self.dispatch.fetches.len(), 0);
        assert_eq!((stats.waiters, stats.keys, stats.joinable_keys, stats.calls), (0, 0, 0, 0));
        assert!(stats.replicas.iter().all(|replica| replica.up && replica.in_flight_calls == 0));
        assert_eq!(self.dispatch.next_timeout(), None);
        assert!(
            self.dispatch.meter.as_ref().is_none_or(|meter| meter.is_idle()),
            "a call is counted for ever"
        );
    }

    /// Checks that all replicas are called when as many calls are made as they can hold together.
    pub(super) fn assert_every_replica_is_used(&mut self, now: Instant, draws: &mut Draws) {
        self.calls_by_replica.fill(0);
        // Copies and leases would take the room of later fetches.
        (self.classes, self.with_hooks) = (1, 0);
        for replica in (0..self.alive.len()).map(ReplicaId::from_index) {
            self.dispatch.set_applied(now, 0, replica, Some(self.applied));
        }
        let Options {
            in_flight_calls_max, queued_calls_max, waiters_max, ramp, admit, tenants, copies, ..
        } = self.options;
        let room = (in_flight_calls_max + queued_calls_max) * self.alive.len() as u32;
        for call in 0..room.min(waiters_max) {
            // Invalidating the key first makes every fetch a separate call.
            let key = Key::from(call) % KEYS;
            self.write(key);
            drop(self.fetch(now, vec![key], draws));
        }
        let all_used = self.calls_by_replica.iter().all(|calls| *calls > 0);
        // A ramp, an admission rule or rates may admit fewer calls.
        let limited = waiters_max < room
            || ramp.is_some()
            || admit != AdmitChoice::Open
            || tenants.is_some()
            || copies != CopiesChoice::One;
        assert!(all_used || limited, "calls by replica: {:?}", self.calls_by_replica);
    }
}

/// Has a replica complete as many calls as its queue's estimates need.
fn warm_up(queue: &mut ReplicaQueue, latency: Duration) {
    for _ in 0..64 {
        let call = AttemptId(Id::default());
        assert!(queue.enqueue(Instant::ZERO, call, &Demand::default(), QueuedCall::default()));
        assert_eq!(queue.start_next(Instant::ZERO), Some(call));
        queue.complete(call, Some(latency));
    }
}

fn draw_of<T: Copy, const N: usize>(draws: &mut Draws, choices: [T; N]) -> T {
    choices[draws.within(0..=N as u64 - 1) as usize]
}

fn draw_kind(draws: &mut Draws) -> FailureKind {
    let kinds = [
        FailureKind::Reset,
        FailureKind::Unreachable,
        FailureKind::Overloaded,
        FailureKind::Throttled,
        FailureKind::Rejected,
        FailureKind::Malformed,
    ];
    draw_of(draws, kinds)
}
