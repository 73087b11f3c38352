//! All operations in any order, compared with a plain map.
//!
//! The map holds what was stored last under each key and its later marks. The cache must hold the
//! same whatever is evicted meanwhile, however budgets change, and however often an item moves
//! because it gets a CAS or an expiry; and no item disappears without a reason.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use sherwood_cache::{
    Access, AccessFlags, Cache, Change, DeadlineClass, DeadlineClasses, DeadlineOptions, Eviction, Item,
    ItemKind, Marks, NewCas, NewItem, Options, Partition, Value, charge,
};
use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, SeededState, Tags, TenantId};

const PARTITIONS: u16 = 3;
const TOTAL: u64 = 600_000;
const VALUE_MAX: u32 = 30_000;
const GRACE: Duration = Duration::from_millis(50);
const STALE: Marks = Marks::of_caller(0);

/// A partition and a key in it.
type Key = (u16, u8);

#[derive(Clone, Debug)]
enum Op {
    Get(Key),
    Set(Key, New),
    Add(Key, New),
    Update(Key, Update),
    Remove(Key),
    Prefetch(Vec<Key>),
    /// Applies a plan: shares of the total by weight; all zero for `Shared`.
    Plan([u8; PARTITIONS as usize]),
    /// Sets the ceiling on the bytes of all partitions, in 256ths of the total.
    Ceiling(u8),
    Flush(Option<u16>, u64),
    Step(usize),
    Wait(u64),
    /// Sets whether later accesses leave the recency unchanged.
    Pass(bool),
    /// Sets whether later accesses see stale items, negative entries and placeholders.
    See {
        stale: bool,
        absent: bool,
        places: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct New {
    bytes: u32,
    declared: bool,
    flags: u32,
    ttl_ms: Option<u64>,
    kind: ItemKind,
    tags: Tags,
}

#[derive(Clone, Copy, Debug)]
enum Update {
    Keep,
    Store(New),
    StoreMarked(New, Marks, Option<u64>),
    Amend(Option<u64>, Marks, NewCas),
    Touch(Option<u64>),
    Remove,
}

fn ttl() -> impl Strategy<Value = Option<u64>> {
    prop::option::weighted(0.3, 0..150_u64)
}

fn new() -> impl Strategy<Value = New> {
    // Many around the largest size that fits into a slot, with and without fields that may be added
    // later.
    let bytes =
        prop_oneof![4 => 0..300_u32, 2 => 300..8_110_u32, 2 => 8_110..8_180_u32, 1 => 8_180..VALUE_MAX + 20];
    let kind = prop_oneof![
        3 => Just(ItemKind::Plain),
        2 => Just(ItemKind::Graced),
        1 => Just(ItemKind::Absent),
        1 => Just(ItemKind::Placeholder),
    ];
    let tags = prop_oneof![3 => Just(Tags::NONE), 1 => any::<u64>().prop_map(Tags::from_bits)];
    let parts = (bytes, prop::bool::weighted(0.2), 0..2_u32, ttl(), kind, tags);
    parts.prop_map(|(bytes, declared, flags, ttl_ms, kind, tags)| New {
        bytes,
        declared,
        flags,
        ttl_ms,
        kind,
        tags,
    })
}

fn update() -> impl Strategy<Value = Update> {
    let marks = || any::<bool>().prop_map(|stale| if stale { STALE } else { Marks::NONE });
    let cas = prop_oneof![Just(NewCas::Keep), Just(NewCas::Next), any::<u64>().prop_map(NewCas::Given)];
    prop_oneof![
        1 => Just(Update::Keep),
        2 => new().prop_map(Update::Store),
        3 => (new(), marks(), prop::option::of(any::<u64>()))
            .prop_map(|(new, marks, cas)| Update::StoreMarked(new, marks, cas)),
        5 => (ttl(), marks(), cas).prop_map(|(ttl_ms, marks, cas)| Update::Amend(ttl_ms, marks, cas)),
        3 => ttl().prop_map(Update::Touch),
        1 => Just(Update::Remove),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let key = || (0..PARTITIONS, 0..60_u8);
    prop_oneof![
        8 => key().prop_map(Op::Get),
        8 => (key(), new()).prop_map(|(key, new)| Op::Set(key, new)),
        4 => (key(), new()).prop_map(|(key, new)| Op::Add(key, new)),
        14 => (key(), update()).prop_map(|(key, update)| Op::Update(key, update)),
        2 => key().prop_map(Op::Remove),
        1 => prop::collection::vec(key(), 0..40).prop_map(Op::Prefetch),
        2 => prop_oneof![3 => any::<[u8; 3]>(), 1 => Just([0; 3])].prop_map(Op::Plan),
        1 => any::<u8>().prop_map(Op::Ceiling),
        1 => (prop::option::of(0..PARTITIONS), prop_oneof![Just(0), 1..100_u64])
            .prop_map(|(partition, delay_ms)| Op::Flush(partition, delay_ms)),
        3 => (1..200_usize).prop_map(Op::Step),
        4 => (0..40_u64).prop_map(Op::Wait),
        1 => any::<bool>().prop_map(Op::Pass),
        2 => any::<[bool; 3]>()
            .prop_map(|[stale, absent, places]| Op::See { stale, absent, places }),
    ]
}

#[derive(Clone, Debug, PartialEq)]
enum Stored {
    Bytes(Vec<u8>),
    Declared(u32),
}

/// State of an item in the map.
#[derive(Clone, Debug)]
struct Known {
    value: Stored,
    flags: u32,
    expires: Option<Instant>,
    kind: ItemKind,
    tags: Tags,
    cas: u64,
    marks: Marks,
    /// True if the caller gave the item's CAS, which is then charged.
    has_own_cas: bool,
}

impl Known {
    fn value(&self) -> Value<'_> {
        match &self.value {
            Stored::Bytes(bytes) => Value::Bytes(bytes),
            Stored::Declared(bytes) => Value::Declared(*bytes),
        }
    }

    fn new_item(&self) -> NewItem<'_> {
        let Self { flags, expires, kind, tags, .. } = *self;
        NewItem { value: self.value(), flags, expires, kind, tags, received: None }
    }

    fn is(&self, item: &Item<'_>) -> bool {
        let Self { flags, expires, kind, tags, cas, marks, .. } = *self;
        self.value() == item.value
            && (flags, expires, cas, marks) == (item.flags, item.expires, item.cas, item.marks)
            && (kind, tags) == (item.kind, item.tags)
    }

    fn charge(&self, key: Key) -> u64 {
        let more = 8 * (usize::from(self.has_own_cas) + usize::from(!self.tags.is_empty()));
        charge(name(key).len(), self.value().len() + more)
    }
}

/// The cache and the map that it is compared with.
struct Pair {
    cache: Cache,
    truth: BTreeMap<Key, Known>,
    /// Time of the next flush of each partition.
    flushes: [Option<Instant>; PARTITIONS as usize],
    now: Instant,
    class: u8,
    passes: bool,
    sees_stale: bool,
    sees_absent: bool,
    sees_placeholders: bool,
}

fn two_classes() -> DeadlineOptions {
    let classes = DeadlineClasses::of_equal_width(2, Duration::from_millis(100)).expect("wide enough");
    DeadlineOptions { classes, ..DeadlineOptions::ONE }
}

impl Pair {
    fn new(eviction: Eviction, shards: u16) -> Self {
        let partition = |backend| Partition {
            grace: GRACE,
            deadlines: two_classes(),
            ..Partition::new(TenantId(0), BackendId(backend), TOTAL / u64::from(PARTITIONS))
        };
        let options = Options {
            total_bytes: TOTAL,
            item_bytes_max: VALUE_MAX,
            shards,
            eviction,
            ghost_rate: 0.5,
            ..Options::default()
        };
        let partitions: Vec<_> = (0..PARTITIONS).map(partition).collect();
        Self {
            cache: Cache::new(options, &partitions, SeededState::new(1)).expect("valid options"),
            truth: BTreeMap::new(),
            flushes: [None; PARTITIONS as usize],
            now: Instant::from_millis(1),
            class: 0,
            passes: false,
            sees_stale: false,
            sees_absent: false,
            sees_placeholders: false,
        }
    }

    fn access(&self) -> Access {
        let flag = |is, flag| if is { flag } else { AccessFlags::NONE };
        let flags = flag(self.passes, AccessFlags::KEEP_RECENCY)
            .with(flag(self.sees_stale, AccessFlags::SEE_STALE))
            .with(flag(self.sees_absent, AccessFlags::SEE_ABSENT))
            .with(flag(self.sees_placeholders, AccessFlags::SEE_PLACEHOLDERS));
        Access { class: Some(DeadlineClass(self.class)), flags, ..Access::at(self.now) }
    }

    fn expiry(&self, ttl_ms: Option<u64>) -> Option<Instant> {
        ttl_ms.map(|ms| self.now + Duration::from_millis(ms))
    }

    /// The item that the current access may find under a key.
    fn live(&self, key: Key) -> Option<Known> {
        self.truth.get(&key).filter(|known| self.is_seen(known)).cloned()
    }

    fn is_seen(&self, known: &Known) -> bool {
        let is_good = |for_longer| known.expires.is_none_or(|at| at + for_longer > self.now);
        match known.kind {
            ItemKind::Plain => is_good(Duration::ZERO),
            ItemKind::Graced => is_good(if self.sees_stale { GRACE } else { Duration::ZERO }),
            ItemKind::Absent => self.sees_absent && is_good(Duration::ZERO),
            ItemKind::Placeholder => self.sees_placeholders && is_good(Duration::ZERO),
        }
    }

    /// State of a new item, without its CAS.
    fn known(&self, key: Key, new: New) -> Known {
        let value = match new.declared {
            true => Stored::Declared(new.bytes),
            false => Stored::Bytes((0..new.bytes).map(|at| at as u8 ^ key.1).collect()),
        };
        let expires = self.expiry(new.ttl_ms);
        let kind = if new.kind == ItemKind::Graced && expires.is_none() { ItemKind::Plain } else { new.kind };
        let New { flags, tags, .. } = new;
        Known { value, flags, expires, kind, tags, cas: 0, marks: Marks::NONE, has_own_cas: false }
    }

    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        self.class = (self.class + 1) % 3;
        match *op {
            Op::Get(key) => self.get(key)?,
            Op::Set(key, new) => {
                let known = self.known(key, new);
                let set = self.cache.set(id(key.0), &name(key), known.new_item(), &self.access());
                self.learn(key, set.ok().map(|cas| Known { cas, ..known }));
            }
            Op::Add(key, new) => self.add(key, new)?,
            Op::Update(key, update) => self.update(key, update)?,
            Op::Remove(key) => {
                let removed = self.cache.remove(id(key.0), &name(key), &self.access());
                prop_assert!(!removed || self.live(key).is_some());
                self.learn(key, None);
            }
            Op::Prefetch(ref keys) => {
                let names: Vec<_> = keys.iter().map(|&key| (id(key.0), name(key))).collect();
                self.cache.prefetch(names.iter().map(|(partition, name)| (*partition, name.as_slice())));
            }
            Op::Plan(weights) => self.cache.apply(&plan(weights)).expect("shares of the total fit"),
            Op::Ceiling(part) => self.cache.set_ceiling(TOTAL / 256 * (1 + u64::from(part))),
            Op::Flush(partition, delay_ms) => {
                let at = self.now + Duration::from_millis(delay_ms);
                self.cache.flush(partition.map(id), at, self.now);
                let flushed = (0..PARTITIONS).filter(|&other| partition.is_none_or(|one| one == other));
                flushed.for_each(|partition| self.flushes[usize::from(partition)] = Some(at));
                self.pass_time();
            }
            Op::Step(items_max) => drop(self.cache.step(self.now, items_max)),
            Op::Wait(ms) => {
                self.now += Duration::from_millis(ms);
                self.pass_time();
            }
            Op::Pass(passes) => self.passes = passes,
            Op::See { stale, absent, places } => {
                (self.sees_stale, self.sees_absent, self.sees_placeholders) = (stale, absent, places);
            }
        }
        Ok(())
    }

    fn get(&mut self, key: Key) -> Result<(), TestCaseError> {
        let known = self.live(key);
        let is_right = |item: Item<'_>| known.as_ref().is_some_and(|known| known.is(&item));
        let right = self.cache.get(id(key.0), &name(key), &self.access(), is_right);
        prop_assert_ne!(right, Some(false), "{:?} is not {:?}", key, known);
        if let Some(known) = self.truth.get_mut(&key)
            && right.is_some()
            && !self.passes
            && matches!(known.value, Stored::Bytes(_))
        {
            known.marks = known.marks.with(Marks::USED);
        }
        Ok(())
    }

    fn add(&mut self, key: Key, new: New) -> Result<(), TestCaseError> {
        let known = self.known(key, new);
        let added = self.cache.add(id(key.0), &name(key), known.new_item(), &self.access());
        prop_assert!(added != Ok(false) || self.live(key).is_some(), "{:?} was not there", key);
        if added == Ok(true) {
            let all =
                AccessFlags::SEE_STALE.with(AccessFlags::SEE_ABSENT).with(AccessFlags::SEE_PLACEHOLDERS);
            let access = Access { flags: all, ..Access::at(self.now) };
            let cas = self.cache.peek(id(key.0), &name(key), &access, |item| item.cas);
            // The CAS of an item that is dead or evicted already cannot be read, and no access will
            // see it.
            self.learn(key, Some(Known { cas: cas.unwrap_or(0), ..known }));
        }
        Ok(())
    }

    fn update(&mut self, key: Key, update: Update) -> Result<(), TestCaseError> {
        let known = self.live(key);
        let after = self.after(key, update, known.as_ref());
        let done = self.cache.update_with_cas(id(key.0), &name(key), &self.access(), |item| {
            let right = item.map(|item| known.as_ref().is_some_and(|known| known.is(&item)));
            (self.change(update, after.as_ref()), right)
        });
        let Ok((found, cas)) = done else {
            self.learn(key, None);
            return Ok(());
        };
        prop_assert_ne!(found, Some(false), "{:?} is not {:?}", key, known);
        let stores = matches!(update, Update::Store(_) | Update::StoreMarked(..));
        if !stores && known.is_none() && !matches!(update, Update::Remove) {
            // An item that the access does not see is unchanged.
            return Ok(());
        }
        let after = after.filter(|_| stores || found.is_some());
        self.learn(key, after.map(|after| Known { cas: cas.unwrap_or(after.cas), ..after }));
        Ok(())
    }

    /// State of a key's item in the map after an update that saw `known`.
    fn after(&self, key: Key, update: Update, known: Option<&Known>) -> Option<Known> {
        match update {
            Update::Keep => known.cloned(),
            Update::Store(new) => Some(self.known(key, new)),
            Update::StoreMarked(new, marks, cas) => {
                let known = self.known(key, New { declared: false, ..new });
                Some(Known { marks, has_own_cas: cas.is_some(), ..known })
            }
            Update::Amend(ttl_ms, marks, cas) => {
                let amended = Known { expires: self.expiry(ttl_ms), ..known?.clone() };
                Some(match amended.value {
                    Stored::Declared(_) => amended,
                    Stored::Bytes(_) => {
                        let has_own_cas = amended.has_own_cas || cas != NewCas::Keep;
                        Known { marks, has_own_cas, ..amended }
                    }
                })
            }
            Update::Touch(ttl_ms) => Some(Known { expires: self.expiry(ttl_ms), ..known?.clone() }),
            Update::Remove => None,
        }
    }

    /// The change that turns an item into `after`.
    fn change<'a>(&self, update: Update, after: Option<&'a Known>) -> Change<'a> {
        match (update, after) {
            (Update::Store(_), Some(after)) => Change::Store(after.new_item()),
            (
                Update::StoreMarked(.., cas),
                Some(&Known { value: Stored::Bytes(ref value), flags, expires, kind, tags, marks, .. }),
            ) => {
                let value = Cow::Borrowed(value.as_slice());
                Change::StoreMarked { value, flags, expires, kind, tags, marks, cas }
            }
            (Update::Amend(ttl_ms, marks, cas), _) => {
                Change::Amend { expires: self.expiry(ttl_ms), marks, cas }
            }
            (Update::Touch(ttl_ms), _) => Change::Touch(self.expiry(ttl_ms)),
            (Update::Remove, _) => Change::Remove,
            _ => Change::Keep,
        }
    }

    fn learn(&mut self, key: Key, known: Option<Known>) {
        match known {
            Some(known) => drop(self.truth.insert(key, known)),
            None => drop(self.truth.remove(&key)),
        }
    }

    /// Applies flushes that are due.
    fn pass_time(&mut self) {
        for (partition, flush) in (0..).zip(&mut self.flushes) {
            if flush.take_if(|at| *at <= self.now).is_some() {
                self.truth.retain(|key, _| key.0 != partition);
            }
        }
    }

    /// Scans the cache, `entries` at a time, and compares every item with the map. Returns the
    /// keys and their charge.
    fn scanned(&self, entries: usize) -> Result<(BTreeSet<Key>, u64), TestCaseError> {
        let (mut keys, mut charge) = (BTreeSet::new(), 0);
        for partition in 0..PARTITIONS {
            let mut cursor = 0;
            loop {
                let mut wrong = None;
                cursor = self.cache.scan(id(partition), cursor, &self.access(), entries, |name, item| {
                    let key = (partition, name[0]);
                    let known = self.live(key).filter(|known| known.is(&item));
                    if keys.insert(key) {
                        charge += known.as_ref().map_or(0, |known| known.charge(key));
                    }
                    wrong = wrong.or(known.is_none().then_some(key));
                });
                prop_assert_eq!(wrong, None);
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok((keys, charge))
    }

    fn check(&self, entries: usize) -> Result<(), TestCaseError> {
        let (keys, charge) = self.scanned(entries)?;
        for key in (0..PARTITIONS).flat_map(|partition| (0..60).map(move |key| (partition, key))) {
            let peeked = self.cache.peek(id(key.0), &name(key), &self.access(), |_| ()).is_some();
            prop_assert_eq!(peeked, keys.contains(&key), "{:?}", key);
        }
        let total = self.cache.total();
        prop_assert!(charge <= total.used_bytes && total.used_bytes <= TOTAL, "{} {:?}", charge, total);
        if total.evictions == 0 {
            let live = self.truth.keys().filter(|&&key| self.live(key).is_some());
            prop_assert_eq!(keys.len(), live.count(), "no item disappears without a reason");
        }
        Ok(())
    }

    /// After enough background work the cache holds exactly the live items, within its budgets.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        (self.sees_stale, self.sees_absent, self.sees_placeholders) = (true, true, true);
        // A pass for dead items in flight ends, and another begins.
        self.now += Duration::from_secs(20);
        self.pass_time();
        for _ in 0..2 {
            while self.cache.step(self.now, 1000) {}
        }
        let (keys, charge) = self.scanned(1000)?;
        let total = self.cache.total();
        prop_assert_eq!((total.items, total.used_bytes), (keys.len() as u64, charge));
        for partition in (0..PARTITIONS).map(id) {
            let usage = self.cache.usage(partition);
            prop_assert!(usage.used_bytes <= usage.budget_bytes, "{:?}", usage);
            let curve = self.cache.miss_ratio_curve(partition).expect("there is a rate");
            prop_assert!((curve.gets - (usage.hits + usage.misses) as f64).abs() < 1e-6);
        }
        Ok(())
    }
}

fn plan(weights: [u8; PARTITIONS as usize]) -> CachePlan {
    let sum: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    match sum {
        0 => CachePlan::Shared,
        _ => CachePlan::Budgets(weights.iter().map(|&weight| TOTAL * u64::from(weight) / sum).collect()),
    }
}

fn id(partition: u16) -> PartitionId {
    PartitionId(partition)
}

/// Returns the bytes of a key; keys have many lengths.
fn name(key: Key) -> Vec<u8> {
    vec![key.1; 1 + usize::from(key.1) * 4]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn items_found_equal_the_last_stored_value_and_marks(
        ops in prop::collection::vec(op(), 1..250), shards in 0..3_u32, entries in 1..100_usize, lru: bool,
    ) {
        let mut pair = Pair::new(if lru { Eviction::Lru } else { Eviction::S3Fifo }, 1 << shards);
        for (number, op) in ops.iter().enumerate() {
            pair.apply(op)?;
            if number % 16 == 0 {
                pair.check(entries)?;
            }
        }
        pair.check(entries)?;
        pair.settle()?;
    }
}
