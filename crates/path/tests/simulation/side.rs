//! One backend as the node sees it, with its stores: dispatcher, writes, and what is on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sherwood_cache::{Access, AccessFlags, Cache, Item, Kind, Value};
use sherwood_dispatch::{Counters, Dispatch, Options, ProbeOptions, RampOptions, RetryOptions};
use sherwood_model::{Instant, PartitionId, SeededState, SplitMix64};
use sherwood_path::{Outcome, Refreshes, Rules, Settled, Write, WriteId, WriteOptions, Writes};

use crate::events::{At, Content, Key, TENANTS, key};
use crate::reads::Waiter;
use crate::store::Stores;

pub(crate) const NUMBERS: u8 = 6;
pub(crate) const BACKENDS: At = 4;
/// The one that never fails; its time-out is beyond any jump of the clock.
pub(crate) const HEALTHY: At = 0;
/// How long what is stale is kept.
pub(crate) const GRACE: Duration = Duration::from_millis(150);
/// Keys that rest after a failure at most.
const RESTING_MAX: u32 = 3;
/// How far replicas that copy may lag behind.
const LAG_MAX: Duration = Duration::from_millis(30);

/// A write between its beginning and its end.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) write: Write<u8>,
    pub(crate) begun: Instant,
    pub(crate) tenant: u8,
    pub(crate) content: Content,
    /// What each replica that is written to has said.
    pub(crate) answers: Vec<Option<Outcome>>,
    /// Where it landed at each replica.
    pub(crate) places: Vec<Option<usize>>,
    pub(crate) sent: bool,
    /// Whether somebody else changed the store meanwhile.
    pub(crate) beside: bool,
}

#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) dispatch: Dispatch<Key, u64, Waiter>,
    options: Options,
    hash: SeededState,
    pub(crate) writes: Writes<u8>,
    pub(crate) write_options: WriteOptions,
    pub(crate) rules: Rules,
    pub(crate) refreshes: Refreshes<Key>,
    pub(crate) stores: Stores,
    /// By the version they write.
    pub(crate) running: BTreeMap<u64, Running>,
    pub(crate) turns: BTreeMap<WriteId, u64>,
    /// Numbers of which a tenant's cache may have what is old: somebody else changed them, at that
    /// version.
    pub(crate) foreign: BTreeMap<(u8, u8), u64>,
    /// Until when a write of a number may land whose outcome nobody knows.
    pub(crate) unsettled: BTreeMap<u8, Instant>,
    /// Whether the node ended amid its writes.
    pub(crate) gave_up: bool,
    /// Numbers to which a write came after everything the node can wait for.
    pub(crate) spoilt: BTreeSet<u8>,
    /// Numbers of which replicas may differ, since a write was not acknowledged or somebody else
    /// came between, until the next is.
    pub(crate) doubtful: BTreeSet<u8>,
}

impl Side {
    pub(crate) fn new(at: At, seed: u64, random: &mut SplitMix64) -> Self {
        let mut draw = |bound: u64| random.next_u64() % bound;
        let replicas = draw(3) as usize + 1;
        let primary = draw(2) == 0;
        let settle = if primary { LAG_MAX } else { Duration::ZERO };
        let healthy = at == HEALTHY;
        let write_options = WriteOptions {
            under_way_max: if healthy { 100 } else { draw(4) as u32 + 1 },
            held_keys_max: draw(3) as u32,
            in_turn: !primary && replicas > 1,
            settle,
            landing: timeout(at),
            patience: timeout(at) / 2,
        };
        let options = if healthy {
            Options { timeout: timeout(at), ..Options::default() }
        } else {
            Options {
                batch_keys_max: draw(4) as u32 + 1,
                in_flight_calls_max: draw(4) as u32 + 1,
                queued_calls_max: draw(6) as u32,
                waiters_max: draw(60) as u32 + 10,
                timeout: timeout(at),
                retry: RetryOptions { per_call_max: 2, ratio: 0.2, burst: 5 },
                probe: ProbeOptions {
                    failures_max: 4,
                    interval_min: Duration::from_millis(5),
                    interval_max: Duration::from_millis(50),
                },
                ramp: (draw(2) == 0).then(|| draw_ramp(&mut draw)),
                ..Options::default()
            }
        };
        let hash = SeededState::new(seed);
        let rules = draw_rules(&mut draw);
        Self {
            dispatch: Dispatch::new(options, replicas, hash).expect("these options can work"),
            options,
            hash,
            writes: Writes::new(write_options, hash),
            write_options,
            rules,
            refreshes: Refreshes::new(timeout(at), RESTING_MAX, hash),
            stores: Stores::new(at, replicas, NUMBERS, primary.then_some(LAG_MAX)),
            running: BTreeMap::new(),
            turns: BTreeMap::new(),
            foreign: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            gave_up: false,
            spoilt: BTreeSet::new(),
            doubtful: BTreeSet::new(),
        }
    }

    /// The node starts at `now`, and knows of those before it no more than until when their writes
    /// may land, if that.
    pub(crate) fn start(&mut self, now: Instant, unsettled: Option<Instant>) {
        let Self { options, hash, .. } = *self;
        let replicas = self.stores.replicas.len();
        self.dispatch = Dispatch::new(options, replicas, hash).expect("these options can work");
        self.writes = Writes::new(self.write_options, hash);
        self.writes.hold_all(now, unsettled.unwrap_or(now));
        self.refreshes = Refreshes::new(options.timeout, RESTING_MAX, hash);
    }

    /// What a driver does before every input: ends the holds that are over.
    pub(crate) fn settle(&mut self, now: Instant, mut tell: impl FnMut(&Settled<u8>)) {
        while let Some(settled) = self.writes.poll_settled(now) {
            tell(&settled);
            match settled {
                Settled::Key(number) => self.invalidate(number),
                Settled::All => self.dispatch.invalidate_where(|_| true),
            }
        }
    }

    /// Takes the right to fill from every tenant's fetch of a number.
    pub(crate) fn invalidate(&mut self, number: u8) {
        (0..TENANTS).for_each(|tenant| self.dispatch.invalidate(&key(number, tenant)));
    }

    /// Whether what the cache has of a number has to be what the store has.
    pub(crate) fn is_quiet(&self, number: u8, tenant: u8) -> bool {
        let written = self.running.values().any(|running| *running.write.key() == number);
        !written && !self.foreign.contains_key(&(number, tenant)) && !self.spoilt.contains(&number)
    }

    /// What must hold at every step.
    pub(crate) fn assert_bounded(&self) {
        let WriteOptions { under_way_max, held_keys_max, .. } = self.write_options;
        assert!(self.writes.under_way() <= under_way_max && self.running.len() <= under_way_max as usize);
        assert_eq!(self.writes.under_way() as usize, self.running.len());
        assert!(self.writes.keys() <= (under_way_max + held_keys_max) as usize);
        assert!(self.turns.len() <= self.running.len());
        assert!(self.refreshes.keys() <= RESTING_MAX as usize);
        let Options { in_flight_calls_max, queued_calls_max, waiters_max, .. } = self.options;
        let stats = self.dispatch.stats();
        assert!(stats.waiters <= waiters_max && stats.keys <= stats.waiters as usize, "{stats:?}");
        for replica in &stats.replicas {
            let is_bounded =
                replica.in_flight_calls <= in_flight_calls_max && replica.queued_calls <= queued_calls_max;
            assert!(is_bounded, "{stats:?}");
        }
        let Counters { asked, answered, timed_out, failed, refused, .. } = stats.counters;
        assert_eq!(asked, answered + timed_out + failed + refused + u64::from(stats.waiters));
    }

    pub(crate) fn assert_at_rest(&self) {
        let stats = self.dispatch.stats();
        assert_eq!((stats.waiters, stats.keys, stats.calls, stats.joinable_keys), (0, 0, 0, 0));
        assert!(stats.replicas.iter().all(|replica| replica.up));
        assert_eq!((self.writes.under_way(), self.writes.keys(), self.turns.len()), (0, 0, 0));
        let is_sure = |number: &u8| {
            self.stores.primary || !(self.doubtful.contains(number) || self.spoilt.contains(number))
        };
        for number in (0..NUMBERS).filter(is_sure) {
            assert!(self.stores.agree(number), "replicas differ in {number} for good: {:?}", self.stores);
        }
    }

    /// Checks what is cached of this backend against its stores.
    pub(crate) fn assert_cached(&self, at: At, cache: &Cache, now: Instant) {
        for tenant in 0..TENANTS {
            let used = cache.usage(partition(at, tenant));
            assert!(used.used_bytes <= used.budget_bytes, "{used:?}");
            for number in (0..NUMBERS).filter(|number| self.is_quiet(*number, tenant)) {
                let flags = AccessFlags::SEE_STALE.with(AccessFlags::SEE_ABSENT);
                let access = Access { flags, ..Access::at(now) };
                let content = |item: Item<'_>| (item.kind != Kind::Absent).then(|| read(item));
                let cached = cache.peek(partition(at, tenant), &key(number, tenant), &access, content);
                assert!(
                    cached.is_none_or(|cached| self.stores.is_current(number, cached)),
                    "cached of backend {at}, number {number}, tenant {tenant}: {cached:x?}, which the store has not"
                );
            }
        }
    }
}

/// Times in which a ramp may begin, grow, fall back and end before the world does.
fn draw_ramp(mut draw: impl FnMut(u64) -> u64) -> RampOptions {
    let interval = Duration::from_millis(draw(30) + 10);
    let start_keys = draw(30) as u32 + 1;
    RampOptions { start_keys, interval, settle: interval, ..RampOptions::default() }
}

/// By what a backend's values are kept; nothing of it is longer than the grace.
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

/// What the cache has.
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
