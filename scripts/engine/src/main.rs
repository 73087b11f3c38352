//! Benchmark of the engine beside other caches in the same run.
//!
//! ```text
//! cargo run --release --manifest-path scripts/engine/Cargo.toml -- \
//!     throughput [rounds] [part of a cache's name] [--json]
//!     hits          hit ratios on the public traces, at 1, 3, 10 and 30% of their objects
//!     memory [value bytes]
//!                   bytes per item at two million items with keys of 20 bytes
//!     reclaim [MiB] [value bytes] [rounds]
//!                   a full cache gives up a tenth, repeatedly
//! ```
//!
//! Caches take turns within a round and medians are printed, so that other load affects all of
//! them. Times of one thread are processor time. Times of two threads are wall time and are
//! meaningful only when two cores are free.

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Clock};

use sherwood_cache::{Access, Cache, Eviction, Memory, NewItem, Options, Partition, Value, charge};
use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, SeededState, TenantId};
use sherwood_workload::trace::cache2k;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS: usize = 1_000_000;
const CAPACITY: usize = KEYS / 10;
const ACCESSES: usize = 2_000_000;

fn main() {
    let (flags, arguments): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument == "--json");
    let number =
        |at: usize, default: usize| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    match arguments.first().map(String::as_str) {
        Some("throughput") | None => {
            throughput(number(1, 5), arguments.get(2).map_or("", String::as_str), !flags.is_empty());
        }
        Some("hits") => hits(),
        Some("memory") => memory(number(1, 100)),
        Some("reclaim") => reclaim(number(1, 2048), number(2, 1024), number(3, 5)),
        Some(other) => panic!("{other} is none of throughput, hits, memory, reclaim"),
    }
}

/// A cache in the benchmark. An access returns true for a hit; a miss is followed by an insertion.
trait Peer: Sync {
    fn access(&self, key: u64) -> bool;
}

/// The size of a cache in items, and the division of ours.
#[derive(Clone, Copy)]
struct Size {
    items: usize,
    partitions: u16,
    shards: u16,
}

struct Sherwood {
    cache: Cache,
    partitions: u64,
}

impl Sherwood {
    fn new(eviction: Eviction, size: Size, threads: u16) -> Self {
        let total_bytes = size.items as u64 * charge(8, 8);
        let partition = |backend| Partition::new(TenantId(0), BackendId(backend), total_bytes / u64::from(size.partitions));
        let partitions: Vec<_> = (0..size.partitions).map(partition).collect();
        let options = Options { total_bytes, shards: size.shards, eviction, threads, ..Options::default() };
        let cache = Cache::new(options, &partitions, SeededState::new(1)).expect("valid options");
        Self { cache, partitions: u64::from(size.partitions) }
    }
}

impl Peer for Sherwood {
    fn access(&self, key: u64) -> bool {
        let access = Access::at(Instant::from_secs(1));
        let (partition, name) = (PartitionId((key % self.partitions) as u16), key.to_le_bytes());
        let value = self.cache.get(partition, &name, &access, |item| match item.value {
            Value::Bytes(bytes) => u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
            Value::Declared(_) => 0,
        });
        if value.is_none() {
            self.cache.set(partition, &name, NewItem::bytes(&name), &access).expect("it fits");
        }
        black_box(value).is_some()
    }
}

struct QuickCache(quick_cache::sync::Cache<u64, u64>);

impl Peer for QuickCache {
    fn access(&self, key: u64) -> bool {
        let value = self.0.get(&key);
        if value.is_none() {
            self.0.insert(key, key);
        }
        black_box(value).is_some()
    }
}

struct Moka(moka::sync::Cache<u64, u64>);

impl Peer for Moka {
    fn access(&self, key: u64) -> bool {
        let value = self.0.get(&key);
        if value.is_none() {
            self.0.insert(key, key);
        }
        black_box(value).is_some()
    }
}

struct HashLink(Mutex<hashlink::LruCache<u64, u64>>);

impl Peer for HashLink {
    fn access(&self, key: u64) -> bool {
        let mut cache = self.0.lock().expect("nobody panics");
        let value = cache.get(&key).copied();
        if value.is_none() {
            cache.insert(key, key);
        }
        black_box(value).is_some()
    }
}

/// A name and a constructor.
type Maker = (&'static str, fn(Size) -> Box<dyn Peer>);

const PEERS: &[Maker] = &[
    ("sherwood s3-fifo", |size| Box::new(Sherwood::new(Eviction::S3Fifo, size, 2))),
    ("sherwood s3-fifo, one stripe", |size| Box::new(Sherwood::new(Eviction::S3Fifo, size, 1))),
    ("sherwood lru", |size| Box::new(Sherwood::new(Eviction::Lru, size, 2))),
    ("quick_cache::sync", |size| Box::new(QuickCache(quick_cache::sync::Cache::new(size.items)))),
    ("moka", |size| Box::new(Moka(moka::sync::Cache::new(size.items as u64)))),
    ("hashlink, mutex", |size| Box::new(HashLink(Mutex::new(hashlink::LruCache::new(size.items))))),
];

fn throughput(rounds: usize, name: &str, as_json: bool) {
    let keys = zipf(4 * ACCESSES);
    // The number of shards of a node with two threads from 2 GiB on.
    let size = Size { items: CAPACITY, partitions: 4, shards: 16 };
    let peers: Vec<&Maker> = PEERS.iter().filter(|(peer, _)| peer.contains(name)).collect();
    // A quarter of the capacity, so that all keys are cached once each has been accessed.
    let popular: Vec<u32> = keys.iter().copied().filter(|&key| (key as usize) < CAPACITY / 4).collect();
    let mut results = vec![[const { Vec::new() }; 4]; peers.len()];
    for _ in 0..rounds {
        for (result, (_, make)) in results.iter_mut().zip(&peers) {
            let peer = make(size);
            run(&*peer, &keys[..2 * ACCESSES]);
            let (one, hits) = run(&*peer, &keys[2 * ACCESSES..3 * ACCESSES]);
            result[0].push(one.as_nanos() as f64 / ACCESSES as f64);
            result[1].push(two_threads(&*peer, &keys[2 * ACCESSES..]));
            result[2].push(hits as f64 / ACCESSES as f64);
            run(&*peer, &popular[..ACCESSES]);
            result[3].push(two_threads(&*peer, &popular[..2 * ACCESSES]));
        }
    }
    if !as_json {
        println!(
            "{:<28} {:>12} {:>14} {:>10} {:>20}",
            "", "1 thread ns", "2 threads M/s", "hit ratio", "2 threads, hits M/s"
        );
    }
    for ((name, _), result) in peers.iter().zip(results) {
        let [one, two, hits, popular] = result.map(median);
        if as_json {
            println!(
                r#"{{"case":"engine","cache":"{name}","rounds":{rounds},"one_thread_ns":{one:.1},"two_threads_accesses_per_s":{:.0},"hit_ratio":{hits:.4},"two_threads_hits_per_s":{:.0}}}"#,
                two * 1e6,
                popular * 1e6
            );
        } else {
            println!("{name:<28} {one:>12.1} {two:>14.2} {hits:>10.4} {popular:>20.2}");
        }
    }
}

/// Compares hit ratios; our cache is undivided and in sixteen shards, with few items each in the
/// smallest.
fn hits() {
    let names = PEERS.iter().map(|(name, _)| format!("{name:>18}")).collect::<String>();
    println!("{:<12} {:>7}{names}", "", "items");
    for trace in ["orm-busy", "orm-night", "web07", "web12"] {
        let path =
            format!("{}/../../crates/workload/data/cache2k/{trace}.trace.xz", env!("CARGO_MANIFEST_DIR"));
        let packed = std::fs::read(path).expect("the traces are in the repository");
        let word = |access: cache2k::Access| u32::from(access.object_type()) << 27 | access.object();
        let read = cache2k::read(&packed[..]).expect("a trace");
        let keys: Vec<u32> = read.map(|access| word(access.expect("a trace"))).collect();
        let objects = keys.iter().collect::<HashSet<_>>().len();
        for percent in [1, 3, 10, 30] {
            let size = Size { items: objects * percent / 100, partitions: 1, shards: 16 };
            let ratio =
                |make: &fn(Size) -> Box<dyn Peer>| run(&*make(size), &keys).1 as f64 / keys.len() as f64;
            let ratios = PEERS.iter().map(|(_, make)| format!("{:>18.4}", ratio(make))).collect::<String>();
            println!("{trace:<12} {:>7}{ratios}", size.items);
        }
    }
}

/// Measures millions of accesses a second by two threads with half of the keys each.
fn two_threads(peer: &dyn Peer, keys: &[u32]) -> f64 {
    let start = Clock::now();
    std::thread::scope(|scope| {
        for part in keys.chunks(keys.len() / 2) {
            scope.spawn(move || run(peer, part));
        }
    });
    keys.len() as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn run(peer: &dyn Peer, keys: &[u32]) -> (Duration, usize) {
    let start = processor_time();
    let hits = keys.iter().filter(|&&key| peer.access(u64::from(key))).count();
    (processor_time() - start, hits)
}

/// Processor time used by this thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that lives until the call returns.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(done, 0, "every thread has a clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Draws keys from Zipf's law with exponent 0.99; they are the same in every run.
fn zipf(count: usize) -> Vec<u32> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += (rank as f64).powf(-0.99);
            sum
        })
        .collect();
    let mut state = 88_172_645_463_325_252_u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let rank = |drawn: f64| sums.partition_point(|&sum| sum < drawn) as u32;
    (0..count).map(|_| rank(draw() * sum)).collect()
}

/// Blocks of a single mapping that is large enough for all. Unlike in the node's memory, released
/// blocks are returned to the system before the call returns, and reused for blocks of the same
/// size, the last first.
#[derive(Debug)]
struct Mapped {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    /// Addresses never handed out.
    rest: Range<usize>,
    by_bytes: HashMap<usize, Vec<usize>>,
}

impl Mapped {
    fn new(bytes: usize) -> Self {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping at an address that the system chooses affects no existing one.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "there are addresses");
        let start = start.expose_provenance();
        Self { free: Mutex::new(Free { rest: start..start + bytes, by_bytes: HashMap::new() }) }
    }
}

// SAFETY: each block is a part of the mapping, which is never unmapped, and is not handed out again
// until it is released.
unsafe impl Memory for Mapped {
    fn allocate(&self, bytes: usize) -> NonNull<[u8]> {
        let mut free = self.free.lock().expect("nobody panics");
        let start = free.by_bytes.get_mut(&bytes).and_then(Vec::pop).unwrap_or_else(|| {
            let start = free.rest.start;
            free.rest.start += bytes;
            assert!(free.rest.start <= free.rest.end, "the mapping is large enough");
            start
        });
        let start =
            NonNull::new(std::ptr::with_exposed_provenance_mut(start)).expect("nothing is mapped at 0");
        NonNull::slice_from_raw_parts(start, bytes)
    }

    unsafe fn release(&self, block: NonNull<[u8]>) {
        let (start, bytes) = (block.cast::<u8>().as_ptr(), block.len());
        // SAFETY: whole pages of the mapping, to which no references exist, as the caller
        // guarantees.
        unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) };
        let mut free = self.free.lock().expect("nobody panics");
        free.by_bytes.entry(bytes).or_default().push(start.expose_provenance());
    }
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split(' ').nth(1).expect("two numbers").parse::<usize>().expect("a number") * 4096
}

fn one_partition(total_bytes: u64) -> Cache {
    let partition = Partition::new(TenantId(0), BackendId(0), total_bytes);
    let options = Options { total_bytes, ..Options::default() };
    let memory = Mapped::new(2 * total_bytes as usize + (1 << 30));
    Cache::with_memory(options, &[partition], SeededState::new(1), Arc::new(memory)).expect("valid options")
}

fn memory(value_bytes: usize) {
    const ITEMS: usize = 2_000_000;
    let cache = one_partition(ITEMS as u64 * charge(20, value_bytes) * 5 / 4);
    let value = vec![1; value_bytes];
    let before = resident();
    for number in 0..ITEMS {
        let key = format!("key:{number:016}");
        cache
            .set(PartitionId(0), key.as_bytes(), NewItem::bytes(&value), &Access::at(Instant::ZERO))
            .expect("it fits");
    }
    assert_eq!(cache.total().items, ITEMS as u64);
    let each = (resident() - before) as f64 / ITEMS as f64;
    println!(
        "{value_bytes} B: {each:.1} bytes an item, {:.1} beyond key and value; charged {}",
        each - (20 + value_bytes) as f64,
        charge(20, value_bytes)
    );
}

/// Measurements of a round in which a tenth is given up.
struct GivenUp {
    items: u64,
    ns_each: f64,
    reached_ms: f64,
    back_ms: f64,
    back_mib: usize,
    longest_us: f64,
}

fn reclaim(mib: usize, value_bytes: usize, rounds: usize) {
    let total = (mib as u64) << 20;
    let cache = one_partition(total);
    let value = vec![1; value_bytes];
    let items = total / charge(20, value_bytes);
    let (mut state, mut stores) = (1_u64, 0);
    let mut store = |count| {
        for number in stores..stores + count {
            // Every other store goes to a random key, so that the order in memory differs from that
            // of eviction.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = if number % 2 == 0 { number } else { (state >> 33) % (2 * items) };
            let key = format!("key:{number:016}");
            let access = Access::at(Instant::ZERO);
            cache.set(PartitionId(0), key.as_bytes(), NewItem::bytes(&value), &access).expect("it fits");
        }
        stores += count;
    };
    store(2 * items);
    let mut seen = Vec::new();
    for _ in 0..rounds {
        cache.apply(&CachePlan::Budgets(vec![total])).expect("the total");
        store(items / 2);
        while cache.step(Instant::ZERO, 1000) {}
        // A named thread can be identified in a profile.
        let shrink = std::thread::Builder::new().name("shrink".to_owned());
        seen.push(std::thread::scope(|scope| {
            let worker = shrink.spawn_scoped(scope, || give_up_a_tenth(&cache, total)).expect("a thread");
            worker.join().expect("it does not panic")
        }));
    }
    let of = |field: fn(&GivenUp) -> f64| median(seen.iter().map(field).collect());
    println!(
        "{mib} MiB of {value_bytes} B: {:.0} items in {:.1} ms, {:.0} ns each; memory back after {:.1} ms: {:.0} of {} MiB; longest step of 64 {:.0} us",
        of(|one| one.items as f64),
        of(|one| one.reached_ms),
        of(|one| one.ns_each),
        of(|one| one.back_ms),
        of(|one| one.back_mib as f64),
        mib / 10,
        of(|one| one.longest_us),
    );
    // The system frees everything at once at exit, which keeps it out of profiles.
    std::mem::forget(cache);
}

fn give_up_a_tenth(cache: &Cache, total: u64) -> GivenUp {
    let (held, before, start) = (cache.total(), resident(), processor_time());
    cache.apply(&CachePlan::Budgets(vec![total / 10 * 9])).expect("less than the total");
    let (mut longest, mut reached) = (Duration::ZERO, None);
    loop {
        let start_step = processor_time();
        let more = cache.step(Instant::ZERO, 64);
        let end_step = processor_time();
        longest = longest.max(end_step - start_step);
        if reached.is_none() && cache.used_bytes() <= total / 10 * 9 {
            reached = Some(end_step - start);
        }
        if !more {
            break;
        }
    }
    let (reached, back) = (reached.expect("the budget is reached"), processor_time() - start);
    let items = held.items - cache.total().items;
    GivenUp {
        items,
        ns_each: reached.as_nanos() as f64 / items as f64,
        reached_ms: reached.as_secs_f64() * 1e3,
        back_ms: back.as_secs_f64() * 1e3,
        back_mib: before.saturating_sub(resident()) >> 20,
        longest_us: longest.as_secs_f64() * 1e6,
    }
}
