//! A backend of one replica with tenants, its store, and a clock.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_cache::{Cache, Options as CacheOptions, Partition, Value};
use sherwood_dispatch::{
    AttemptId, Failure, FailureKind, FetchError, Options, OverRate, Reply, RetryOptions, TenantOptions,
};
use sherwood_model::{
    BackendId, Demand, DemandKind, Instant, PartitionId, SeededState, SplitMix64, Tags, TenantId, Unit,
};
use sherwood_path::{Action, AnswerCache, Backend, BackendOptions, BackendUse, FetchKey, Fetched, Units};

/// Time that the store takes for a call.
const LATENCY: Duration = Duration::from_millis(5);
/// Time for which units that were not used may be used later, as in the dispatcher.
const BURST_S: f64 = 0.01;

/// A tenant: its rate of units, and the keys that it asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) rate: f64,
    pub(crate) asked_per_s: f64,
    /// Keys of each fetch.
    pub(crate) keys: u64,
}

/// A time for which the store fails every call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) from_ms: u64,
    pub(crate) until_ms: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) loads: Vec<Load>,
    pub(crate) lends: bool,
    pub(crate) over: OverRate,
    pub(crate) value_bytes: usize,
    pub(crate) outage: Option<Outage>,
    pub(crate) seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        let over = OverRate::Wait;
        Self { loads: Vec::new(), lends: false, over, value_bytes: 100, outage: None, seed: 1 }
    }
}

impl Setup {
    /// Upper bound of waiters, of which each tenant has at least ten to itself.
    fn waiters_max(&self) -> u32 {
        (20 * self.loads.len() as u32).max(400)
    }

    pub(crate) fn rates(&self) -> Vec<f64> {
        self.loads.iter().map(|load| load.rate).collect()
    }
}

/// A value that is only a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sized(pub(crate) u32);

pub(crate) struct SizedCache<'a>(pub(crate) &'a Cache);

impl AnswerCache<Sized> for SizedCache<'_> {
    fn cache(&self) -> &Cache {
        self.0
    }

    fn fetched<'a>(&self, value: &'a Sized) -> Fetched<'a> {
        Fetched { value: Value::Declared(value.0), flags: 0, good_for: None, tags: Tags::NONE }
    }
}

enum Event {
    Ask { tenant: u16 },
    Reply(AttemptId, Reply<Sized>),
}

/// A waiter: its tenant and the time at which it asked.
type Waiter = u64;

pub(crate) struct World {
    setup: Setup,
    now: Instant,
    cache: Cache,
    machine: Backend<[u8; 8], Sized, Waiter>,
    random: SplitMix64,
    events: BTreeMap<(Instant, u64), Event>,
    planned: u64,
    asked: u64,
    waiting: BTreeMap<Waiter, (u16, Instant)>,
    latencies: Vec<Vec<Duration>>,
    refusals: Vec<FetchError>,
    most_waiters: u32,
    elapsed: Duration,
}

impl World {
    pub(crate) fn new(setup: &Setup) -> Self {
        let tenants = setup.loads.len() as u16;
        let partition = |tenant| Partition::new(TenantId(tenant), BackendId(0), 0);
        let partitions: Vec<_> = (0..tenants).map(partition).collect();
        let cache = Cache::new(CacheOptions::default(), &partitions, SeededState::new(1)).expect("valid");
        let dispatch = Options {
            in_flight_calls_max: 1_000,
            waiters_max: setup.waiters_max(),
            timeout: Duration::from_millis(500),
            retry: RetryOptions { per_call_max: 0, ..RetryOptions::default() },
            tenants: Some(TenantOptions { tenants, burst_units: 0, lends: setup.lends, over: setup.over }),
            ..Options::default()
        };
        let options = BackendOptions {
            units: Units { reads: Unit::DYNAMODB_READ, writes: Unit::DYNAMODB_WRITE },
            ..BackendOptions::new(dispatch, 1, (0..tenants).map(PartitionId).collect())
        };
        let now = Instant::from_secs(1);
        let mut world = Self {
            now,
            cache,
            machine: Backend::new(options, now, SeededState::new(2)).expect("valid options"),
            random: SplitMix64::new(setup.seed),
            events: BTreeMap::new(),
            planned: 0,
            asked: 0,
            waiting: BTreeMap::new(),
            latencies: vec![Vec::new(); tenants.into()],
            refusals: Vec::new(),
            most_waiters: 0,
            elapsed: Duration::ZERO,
            setup: setup.clone(),
        };
        world.set_rates(&setup.rates());
        for tenant in (0..tenants).filter(|tenant| setup.loads[usize::from(*tenant)].asked_per_s > 0.0) {
            world.plan(Duration::ZERO, Event::Ask { tenant });
        }
        world
    }

    pub(crate) fn set_rates(&mut self, rates: &[f64]) {
        let cache = SizedCache(&self.cache);
        self.machine.set_rates(self.now, &cache, DemandKind::Read, rates.iter().sum(), rates);
        self.carry_out();
    }

    /// Lets time pass, with all that happens meanwhile.
    pub(crate) fn run(&mut self, time: Duration) {
        self.elapsed += time;
        self.run_until(self.now + time);
    }

    /// Lets everything end that is in flight or waits; nothing more is asked for.
    pub(crate) fn settle(&mut self) {
        self.events.retain(|_, event| !matches!(event, Event::Ask { .. }));
        self.run_until(self.now + Duration::from_secs(10));
        assert_eq!(self.waiting.len(), 0, "every waiter has its answer");
        assert_eq!(self.machine.stats().calls, 0);
    }

    fn run_until(&mut self, end: Instant) {
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let wake = self.machine.next_timeout();
            let Some(next) = event.into_iter().chain(wake).min().filter(|next| *next <= end) else { break };
            assert!(next > self.now || event == Some(next), "a wake-up at {next:?} changes nothing");
            self.now = self.now.max(next);
            self.machine.handle_timeout(self.now, &SizedCache(&self.cache));
            self.carry_out();
            if let Some(first) = self.events.first_entry().filter(|first| first.key().0 <= self.now) {
                let event = first.remove();
                self.happen(event);
            }
        }
        self.now = end;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ask { tenant } => {
                let Load { asked_per_s, keys, .. } = self.setup.loads[usize::from(tenant)];
                self.ask(tenant, keys);
                let gap = keys as f64 / asked_per_s * (0.5 + (self.random.next_u64() % 1_000) as f64 / 1e3);
                self.plan(Duration::from_secs_f64(gap), Event::Ask { tenant });
            }
            Event::Reply(attempt, reply) => {
                self.machine.handle_reply(self.now, &SizedCache(&self.cache), attempt, reply);
                self.carry_out();
            }
        }
    }

    /// Has a tenant ask for so many keys that nobody has asked for.
    pub(crate) fn ask(&mut self, tenant: u16, keys: u64) {
        let first = self.asked;
        self.asked += keys;
        let partition = PartitionId(tenant);
        let keys = (first..self.asked).map(|key| (FetchKey { partition, key: key.to_le_bytes() }, key));
        self.waiting.extend((first..self.asked).map(|waiter| (waiter, (tenant, self.now))));
        let demand = Demand { tenant: TenantId(tenant), ..Demand::default() };
        self.machine.handle_fetch(self.now, &SizedCache(&self.cache), &demand, keys, 0x5eed);
        self.carry_out();
    }

    fn plan(&mut self, after: Duration, event: Event) {
        self.planned += 1;
        self.events.insert((self.now + after, self.planned), event);
    }

    fn carry_out(&mut self) {
        self.most_waiters = self.most_waiters.max(self.machine.stats().waiters);
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Call { attempt, keys, .. } => {
                    let reply = self.answer(keys.len());
                    self.plan(LATENCY, Event::Reply(attempt, reply));
                }
                Action::Deliver { result, waiters, .. } => {
                    for waiter in waiters {
                        let (tenant, asked) = self.waiting.remove(&waiter).expect("a waiter is told once");
                        match &result {
                            Ok(_) => self.latencies[usize::from(tenant)].push(self.now - asked),
                            Err(error @ FetchError::OverRate(_)) => self.refusals.push(error.clone()),
                            Err(_) => {}
                        }
                    }
                }
                Action::Probe { replica, .. } => {
                    let is_up = !self.is_out();
                    self.machine.handle_probe(self.now, &SizedCache(&self.cache), replica, is_up);
                }
                Action::Cancel { .. }
                | Action::StartWrite(_)
                | Action::Announce(_)
                | Action::Duplicate { .. }
                | Action::StoreLog { .. }
                | Action::EndWrite { .. } => {}
            }
        }
    }

    fn answer(&self, keys: usize) -> Reply<Sized> {
        if self.is_out() {
            return Reply::Failed(Failure::new(FailureKind::Overloaded, "throttled"));
        }
        Reply::Ok(vec![Some(Sized(self.setup.value_bytes as u32)); keys])
    }

    fn is_out(&self) -> bool {
        let ms = (self.now - Instant::from_secs(1)).as_millis() as u64;
        self.setup.outage.is_some_and(|outage| (outage.from_ms..outage.until_ms).contains(&ms))
    }

    pub(crate) fn refusals(&self) -> &[FetchError] {
        &self.refusals
    }

    pub(crate) fn used(&self, tenant: TenantId) -> BackendUse {
        self.machine.used(tenant).expect("tenants have rates")
    }

    /// Returns a quantile of a tenant's latencies.
    pub(crate) fn latency(&mut self, tenant: usize, quantile: f64) -> Duration {
        let latencies = &mut self.latencies[tenant];
        latencies.sort_unstable();
        latencies[((latencies.len() - 1) as f64 * quantile) as usize]
    }

    /// Checks what the tenants have taken of `rates`, after [`settle`](Self::settle).
    pub(crate) fn check(&self, rates: &[f64]) -> Result<(), String> {
        let waiters_max = self.setup.waiters_max();
        if self.most_waiters > waiters_max {
            return Err(format!("{} waiters, more than {waiters_max}", self.most_waiters));
        }
        // Work that was accepted before the end waits for its timeout at most.
        let seconds = (self.elapsed + Duration::from_millis(500)).as_secs_f64();
        let mut total = 0.0;
        for (at, &rate) in rates.iter().enumerate() {
            let Load { asked_per_s, keys, .. } = self.setup.loads[at];
            let unit = Unit::DYNAMODB_READ.of(8 + self.setup.value_bytes as u64) as f64;
            let reads = self.used(TenantId::from_index(at)).reads;
            // The answers of what is in flight are charged when it is too late to wait.
            let in_flight = (rate * LATENCY.as_secs_f64() + 2.0) * keys as f64 * unit;
            let most = rate * (seconds + BURST_S) + in_flight;
            if reads.own_units > most {
                return Err(format!(
                    "tenant {at} took {} units, more than its rate of {rate} allows ({most})",
                    reads.own_units
                ));
            }
            // Half of what it asks for may come at a time when nothing was left unused.
            let wanted = (asked_per_s * unit).min(rate) * self.elapsed.as_secs_f64();
            let taken = reads.own_units + reads.lent_units;
            if self.setup.outage.is_none() && taken < wanted * 0.9 - in_flight {
                return Err(format!("tenant {at} took {taken} units of {wanted} that its rate allows"));
            }
            if reads.waiting > 0 {
                return Err(format!("tenant {at} has {} fetches waiting at the end", reads.waiting));
            }
            total += taken;
        }
        let (rate, most_keys) = (rates.iter().sum::<f64>(), 4.0);
        let unit = Unit::DYNAMODB_READ.of(8 + self.setup.value_bytes as u64) as f64;
        let most =
            rate * (seconds + 2.0 * BURST_S) + (rate * LATENCY.as_secs_f64() + 12.0) * most_keys * unit;
        if total > most {
            return Err(format!("all tenants took {total} units, more than {most}"));
        }
        Ok(())
    }
}
