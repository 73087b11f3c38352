//! A backend of the node, with its stores and everything in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sherwood_cache::{Access, AccessFlags, Cache, Item, ItemKind, Value};
use sherwood_dispatch::{
    BalanceChoice, CancelRule, ConnectionId, CopiesChoice, Counters, LeaseId, Options, OverRate,
    ProbeOptions, RampOptions, RetryOptions, TenantOptions,
};
use sherwood_model::{Instant, PartitionId, Percent, SeededState, SplitMix64, TenantId};
use sherwood_path::{
    Acknowledge, Backend, BackendOptions, BackendUse, FillCounts, Holdings, Rules, WriteId, WriteOptions,
    WriteTo,
};

use crate::events::{At, Content, Key, Stored, TENANTS, key};
use crate::reads::Waiter;
use crate::store::{Moment, Stores};

pub(crate) const NUMBERS: u8 = 6;
pub(crate) const BACKENDS: At = 4;
/// The backend that never fails. Its timeout is beyond any jump of the clock.
pub(crate) const HEALTHY: At = 0;
/// Time for which stale values are kept.
pub(crate) const GRACE: Duration = Duration::from_millis(150);
/// Largest number of keys remembered because their fetch failed.
const FAILED_MAX: u32 = 3;
/// Longest lag of replicas that copy from the first one.
const LAG_MAX: Duration = Duration::from_millis(30);

/// A write between its beginning and its end.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: WriteId,
    pub(crate) number: u8,
    pub(crate) begun: Instant,
    pub(crate) options: WriteOptions,
    pub(crate) content: Content,
    /// Position of the write in each replica's log; none where it has not arrived.
    pub(crate) places: Vec<Option<usize>>,
    /// True if another program changed the store while the write was in flight.
    pub(crate) beside: bool,
    /// Replicas that have answered the write; none while it is not sent.
    pub(crate) answered: Option<BTreeSet<usize>>,
    /// The moment at which the write was acknowledged before it ended, if it was.
    pub(crate) acknowledged: Option<Moment>,
}

#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) machine: Backend<Key, Stored, Waiter>,
    options: BackendOptions,
    hash: SeededState,
    pub(crate) stores: Stores,
    /// Connections that clients have not ended; some may have expired.
    pub(crate) connections: Vec<ConnectionId>,
    /// The slots of calls over connections that have not ended.
    pub(crate) leased: Vec<LeaseId>,
    /// The writes in flight, by the version they write.
    pub(crate) running: BTreeMap<u64, Running>,
    /// Ids of all writes of this process, by the version they write.
    pub(crate) ids: BTreeMap<u64, WriteId>,
    /// Numbers of which a tenant's cache may hold an old value: another program changed them, at
    /// that version.
    pub(crate) foreign: BTreeMap<(u8, u8), u64>,
    /// Time until which a write of unknown outcome may land (be applied), by number.
    pub(crate) unsettled: BTreeMap<u8, Instant>,
    /// True if the node ended while its writes were in flight.
    pub(crate) gave_up: bool,
    /// Values that the cache may have shown before the store had them, with the time at which their
    /// writes ended.
    pub(crate) shown: BTreeMap<u64, Option<Instant>>,
    /// Numbers of which a write landed later than the node waits for.
    pub(crate) spoilt: BTreeSet<u8>,
    /// Numbers of which replicas may differ until the next acknowledged write: a write was not
    /// acknowledged, or another program changed the store while it was in flight.
    pub(crate) doubtful: BTreeSet<u8>,
    /// The time from which on nothing cached before may be served; none while no flush is to come.
    pub(crate) flush_at: Option<Instant>,
    /// Numbers whose keys were fenced (fetched values not cached) after the last input, and whether
    /// all were.
    pub(crate) fenced: (BTreeSet<u8>, bool),
}

impl Side {
    pub(crate) fn new(at: At, seed: u64, random: &mut SplitMix64) -> Self {
        let mut draw = |bound: u64| random.next_u64() % bound;
        let replicas = draw(3) as usize + 1;
        let primary = draw(2) == 0;
        let settle = if primary { LAG_MAX } else { Duration::ZERO };
        let healthy = at == HEALTHY;
        let writes_max = if healthy { 100 } else { draw(4) as u32 + 1 };
        let fenced_keys_max = draw(3) as u32;
        let dispatch = if healthy {
            Options { timeout: timeout(at), ..Options::default() }
        } else {
            Options {
                batch_keys_max: draw(4) as u32 + 1,
                in_flight_calls_max: draw(4) as u32 + 1,
                queued_calls_max: draw(6) as u32,
                waiters_max: draw(60) as u32 + 10,
                timeout: timeout(at),
                balance: if draw(3) == 0 {
                    BalanceChoice::Tokens { lookups: 0, age: timeout(at) }
                } else {
                    BalanceChoice::PowerOfTwo
                },
                retry: RetryOptions { per_call_max: 2, ratio: 0.2, burst: 5 },
                probe: ProbeOptions {
                    failures_max: 4,
                    interval_min: Duration::from_millis(5),
                    interval_max: Duration::from_millis(50),
                },
                ramp: (draw(2) == 0).then(|| draw_ramp(&mut draw)),
                tenants: (draw(2) == 0).then(|| TenantOptions {
                    tenants: TENANTS.into(),
                    burst_units: TenantOptions::BURST_UNITS,
                    lends: draw(2) == 0,
                    over: if draw(3) == 0 { OverRate::Refuse } else { OverRate::Wait },
                }),
                copies: draw_copies(&mut draw, replicas),
                cancel: [CancelRule::Never, CancelRule::Queued, CancelRule::Always][draw(3) as usize],
                ..Options::default()
            }
        };
        let hash = SeededState::new(seed);
        let partitions = (0..TENANTS).map(|tenant| partition(at, tenant)).collect();
        let options = BackendOptions {
            rules: draw_rules(&mut draw),
            write_to: if primary { WriteTo::First } else { WriteTo::All },
            acknowledge: [Acknowledge::All, Acknowledge::Majority, Acknowledge::First][draw(3) as usize],
            settle,
            writes_max,
            fenced_keys_max,
            failed_keys_max: FAILED_MAX,
            ..BackendOptions::new(dispatch, replicas, partitions)
        };
        Self {
            machine: start(&options, Instant::ZERO, hash),
            options,
            hash,
            stores: Stores::new(at, replicas, NUMBERS, primary.then_some(LAG_MAX)),
            connections: Vec::new(),
            leased: Vec::new(),
            running: BTreeMap::new(),
            ids: BTreeMap::new(),
            foreign: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            gave_up: false,
            shown: BTreeMap::new(),
            spoilt: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            flush_at: None,
            fenced: (BTreeSet::new(), false),
        }
    }

    /// Starts the node's process at `now`. Of the previous process it knows at most the time until
    /// which its writes may land.
    pub(crate) fn start(&mut self, now: Instant, unsettled: Option<Instant>) {
        self.machine = start(&self.options, now, self.hash);
        if let Some(unsettled) = unsettled {
            self.machine.handle_restart(now, unsettled);
        }
        self.ids.clear();
        self.connections.clear();
        self.leased.clear();
        self.flush_at = None;
    }

    /// Returns a write in flight, and the version it writes.
    pub(crate) fn running(&self, id: WriteId) -> Option<(u64, &Running)> {
        self.running
            .iter()
            .find(|(_, running)| running.id == id)
            .map(|(version, running)| (*version, running))
    }

    /// Returns the number of replicas that must have made a write before it is acknowledged.
    pub(crate) fn needed(&self) -> usize {
        match self.options.acknowledge {
            Acknowledge::First => 1,
            Acknowledge::Majority => self.stores.written_to() / 2 + 1,
            Acknowledge::All => self.stores.written_to(),
        }
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.options.rules
    }

    /// Returns true if the content that a tenant's cache has of a number must be the store's.
    pub(crate) fn is_quiet(&self, number: u8, tenant: u8) -> bool {
        let written = self.running.values().any(|running| running.number == number);
        !written && !self.foreign.contains_key(&(number, tenant)) && !self.spoilt.contains(&number)
    }

    /// Checks the bounds that the backend must keep at every step.
    pub(crate) fn assert_bounded(&self, now: Instant) {
        let BackendOptions { writes_max, fenced_keys_max, failed_keys_max, .. } = self.options;
        let Holdings { writes, pending_actions, written_or_fenced_keys, failed_keys, flushes } =
            self.machine.holdings();
        assert!(writes <= writes_max as usize);
        assert_eq!(writes, self.running.len());
        assert!(written_or_fenced_keys <= (writes_max + fenced_keys_max) as usize);
        assert!(failed_keys <= failed_keys_max as usize);
        assert_eq!(pending_actions, 0);
        assert_eq!(flushes, if self.flush_at.is_some() { usize::from(TENANTS) } else { 0 });
        let timeout = self.options.dispatch.timeout;
        for Running { begun, .. } in self.running.values() {
            assert!(*begun + timeout > now, "a write outlived its timeout");
        }
        let Options { in_flight_calls_max, queued_calls_max, waiters_max, .. } = self.options.dispatch;
        let stats = self.machine.stats();
        assert!(stats.waiters <= waiters_max && stats.keys <= stats.waiters as usize, "{stats:?}");
        for replica in &stats.replicas {
            let is_bounded =
                replica.in_flight_calls <= in_flight_calls_max && replica.queued_calls <= queued_calls_max;
            assert!(is_bounded, "{stats:?}");
        }
        let workers = in_flight_calls_max * stats.replicas.len() as u32;
        assert!(stats.calls_for_any_replica <= workers + queued_calls_max, "{stats:?}");
        assert!(stats.leases <= queued_calls_max, "{stats:?}");
        let Counters { asked, answered, timed_out, failed, refused, .. } = stats.counters;
        assert_eq!(asked, answered + timed_out + failed + refused + u64::from(stats.waiters));
    }

    pub(crate) fn assert_at_rest(&self) {
        let stats = self.machine.stats();
        assert_eq!((stats.waiters, stats.keys, stats.calls, stats.joinable_keys), (0, 0, 0, 0));
        assert_eq!((stats.leases, stats.calls_for_any_replica), (0, 0));
        assert!(stats.replicas.iter().all(|replica| replica.up));
        let Holdings { writes, written_or_fenced_keys, .. } = self.machine.holdings();
        assert_eq!((writes, written_or_fenced_keys, self.machine.next_timeout()), (0, 0, None));
        for tenant in 0..TENANTS {
            let BackendUse { reads, writes } = self.used(tenant);
            assert_eq!((reads.waiting, writes.waiting), (0, 0));
        }
        let is_sure = |number: &u8| {
            self.stores.primary || !(self.doubtful.contains(number) || self.spoilt.contains(number))
        };
        for number in (0..NUMBERS).filter(is_sure) {
            assert!(self.stores.agree(number), "replicas differ in {number} for good: {:?}", self.stores);
        }
    }

    /// Returns what a tenant has used and what waits for its rates; nothing without rates.
    pub(crate) fn used(&self, tenant: u8) -> BackendUse {
        self.machine.used(TenantId(tenant.into())).unwrap_or_default()
    }

    /// Fetched answers that were not allowed to fill the cache since the process started.
    pub(crate) fn withheld(&self) -> u64 {
        let FillCounts { withheld, .. } = self.machine.fills();
        withheld
    }

    /// The time for which a write of unknown outcome may still land (be applied).
    pub(crate) fn landing(&self) -> Duration {
        self.options.dispatch.timeout
    }

    /// Returns the fences that have ended since the last call, of keys that are not being written:
    /// how many of single numbers, and whether the one over all has.
    pub(crate) fn lifted(&mut self) -> (usize, bool) {
        let all = self.machine.is_fenced(&key(NUMBERS));
        let is_fenced = |number: &u8| self.machine.is_fenced(&key(*number));
        let fenced: BTreeSet<u8> = (0..NUMBERS).filter(is_fenced).collect();
        let (before, all_before) = std::mem::replace(&mut self.fenced, (fenced.clone(), all));
        let numbers = if all || all_before { 0 } else { before.difference(&fenced).count() };
        (numbers, all_before && !all)
    }

    /// Checks what is cached of this backend against its stores.
    pub(crate) fn assert_cached(&self, at: At, cache: &Cache, now: Instant) {
        for tenant in 0..TENANTS {
            let used = cache.usage(partition(at, tenant));
            assert!(used.used_bytes <= used.budget_bytes, "{used:?}");
            for number in (0..NUMBERS).filter(|number| self.is_quiet(*number, tenant)) {
                let flags = AccessFlags::SEE_STALE.with(AccessFlags::SEE_ABSENT);
                let access = Access { flags, ..Access::at(now) };
                let content = |item: Item<'_>| (item.kind != ItemKind::Absent).then(|| read(item));
                let cached = cache.peek(partition(at, tenant), &key(number), &access, content);
                assert!(
                    cached.is_none_or(|cached| self.stores.is_current(number, cached)),
                    "cached of backend {at}, number {number}, tenant {tenant}: {cached:x?}, which the store has not"
                );
            }
        }
    }
}

fn start(options: &BackendOptions, now: Instant, hash: SeededState) -> Backend<Key, Stored, Waiter> {
    Backend::new(options.clone(), now, hash).expect("these options can work")
}

/// Draws options of a ramp that may begin, grow, fall back and end within the simulated time.
fn draw_copies(mut draw: impl FnMut(u64) -> u64, replicas: usize) -> CopiesChoice {
    let factor = draw(replicas as u64) as u8 + 1;
    let min = Duration::from_millis(draw(9) + 1);
    match draw(4) {
        0 => CopiesChoice::Fixed { factor },
        1 => CopiesChoice::Tied { factor },
        2 => CopiesChoice::Hedge { percentile: Percent::MIN, min },
        _ => CopiesChoice::One,
    }
}

fn draw_ramp(mut draw: impl FnMut(u64) -> u64) -> RampOptions {
    let interval = Duration::from_millis(draw(30) + 10);
    let start_keys = draw(30) as u32 + 1;
    RampOptions { start_keys, interval, settle: interval, ..RampOptions::default() }
}

/// Draws rules for a backend's values, with times of at most the grace.
fn draw_rules(mut draw: impl FnMut(u64) -> u64) -> Rules {
    let mut time = |once_in: u64, longest: u64| {
        Duration::from_millis(if draw(once_in) == 0 { draw(longest) } else { 0 })
    };
    Rules {
        ttl: Some(time(2, 100)).filter(|ttl| !ttl.is_zero()),
        by_prefix: vec![(Box::new([1]), time(1, 200))],
        jitter_ratio: 0.3,
        negative_ttl: time(2, 80),
        stale_while_revalidate: time(2, 60),
        stale_if_error: time(2, 100),
        keep_stale: GRACE,
    }
}

/// Returns the value of a cached item as a number.
pub(crate) fn read(item: Item<'_>) -> u64 {
    match item.value {
        Value::Bytes(bytes) => u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        Value::Declared(_) => panic!("nothing is declared here"),
    }
}

pub(crate) fn partition(at: At, tenant: u8) -> PartitionId {
    PartitionId::from_index(at * usize::from(TENANTS) + usize::from(tenant))
}

pub(crate) fn timeout(at: At) -> Duration {
    if at == HEALTHY { Duration::from_secs(30) } else { Duration::from_millis(40 * at as u64) }
}
