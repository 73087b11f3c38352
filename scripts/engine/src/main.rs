//! What the engine costs, beside other caches in the same run.
//!
//!     cargo run --release --manifest-path scripts/engine/Cargo.toml -- throughput [rounds] [part of a cache's name]
//!     … -- memory [value bytes]     bytes an item at two million items with keys of 20 bytes
//!     … -- reclaim [MiB] [value bytes]     a full cache gives up a tenth
//!
//! Caches take turns within a round and medians are printed, so that a busy machine is busy for all of them. Times of one thread
//! are of its processor, times of two are of the clock: those are worth something only where two cores are free.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Clock};

use sherwood_cache::{Access, Cache, Eviction, Memory, NewItem, Options, Partition, Value, charge};
use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, SeededState, TenantId};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS: usize = 1_000_000;
const CAPACITY: usize = KEYS / 10;
const ACCESSES: usize = 2_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, default: usize| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    match arguments.first().map(String::as_str) {
        Some("throughput") | None => throughput(number(1, 5), arguments.get(2).map_or("", String::as_str)),
        Some("memory") => memory(number(1, 100)),
        Some("reclaim") => reclaim(number(1, 2048), number(2, 1024)),
        Some(other) => panic!("{other} is none of throughput, memory, reclaim"),
    }
}

/// One access of a look-aside user: whether it hit; a miss is followed by an insertion.
trait Peer: Sync {
    fn access(&self, key: u64) -> bool;
}

struct Sherwood(Cache);

impl Sherwood {
    fn new(eviction: Eviction, shards: u16, threads: u16) -> Self {
        let total_bytes = CAPACITY as u64 * charge(8, 8);
        let partition = |backend| Partition {
            tenant: TenantId(0),
            backend: BackendId(backend),
            budget_bytes: total_bytes / 4,
        };
        let partitions: Vec<_> = (0..4).map(partition).collect();
        let options = Options { total_bytes, shards, eviction, threads, ..Options::default() };
        Self(Cache::new(options, &partitions, SeededState::new(1)).expect("valid options"))
    }
}

impl Peer for Sherwood {
    fn access(&self, key: u64) -> bool {
        let access = Access::at(Instant::from_secs(1));
        let (partition, name) = (PartitionId((key % 4) as u16), key.to_le_bytes());
        let value = self.0.get(partition, &name, &access, |item| match item.value {
            Value::Bytes(bytes) => u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
            Value::Declared(_) => 0,
        });
        if value.is_none() {
            self.0.set(partition, &name, NewItem::bytes(&name), &access).expect("it fits");
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

/// A name, and how to make one.
type Maker = (&'static str, fn() -> Box<dyn Peer>);

const PEERS: &[Maker] = &[
    ("sherwood s3-fifo", || Box::new(Sherwood::new(Eviction::S3Fifo, 64, 2))),
    ("sherwood s3-fifo, one stripe", || Box::new(Sherwood::new(Eviction::S3Fifo, 64, 1))),
    ("sherwood lru", || Box::new(Sherwood::new(Eviction::Lru, 64, 2))),
    ("quick_cache::sync", || Box::new(QuickCache(quick_cache::sync::Cache::new(CAPACITY)))),
    ("moka", || Box::new(Moka(moka::sync::Cache::new(CAPACITY as u64)))),
    ("hashlink, mutex", || Box::new(HashLink(Mutex::new(hashlink::LruCache::new(CAPACITY))))),
];

fn throughput(rounds: usize, name: &str) {
    let keys = zipf(4 * ACCESSES);
    let peers: Vec<&Maker> = PEERS.iter().filter(|(peer, _)| peer.contains(name)).collect();
    // A quarter of the capacity, so that all of them are there once each has been asked for.
    let popular: Vec<u32> = keys.iter().copied().filter(|&key| (key as usize) < CAPACITY / 4).collect();
    let mut results = vec![[const { Vec::new() }; 4]; peers.len()];
    for _ in 0..rounds {
        for (result, (_, make)) in results.iter_mut().zip(&peers) {
            let peer = make();
            run(&*peer, &keys[..2 * ACCESSES]);
            let (one, hits) = run(&*peer, &keys[2 * ACCESSES..3 * ACCESSES]);
            result[0].push(one.as_nanos() as f64 / ACCESSES as f64);
            result[1].push(two_threads(&*peer, &keys[2 * ACCESSES..]));
            result[2].push(hits as f64 / ACCESSES as f64);
            run(&*peer, &popular[..ACCESSES]);
            result[3].push(two_threads(&*peer, &popular[..2 * ACCESSES]));
        }
    }
    println!(
        "{:<28} {:>12} {:>14} {:>10} {:>20}",
        "", "1 thread ns", "2 threads M/s", "hit ratio", "2 threads, hits M/s"
    );
    for ((name, _), [one, two, hits, popular]) in peers.iter().zip(results) {
        let [one, two, hits, popular] = [one, two, hits, popular].map(median);
        println!("{name:<28} {one:>12.1} {two:>14.2} {hits:>10.4} {popular:>20.2}");
    }
}

/// Millions of accesses a second by two threads that have half of the keys each.
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

/// What this thread has had of a processor.
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

/// Keys by Zipf's law with exponent 0.99, the same in every run.
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

/// A mapping for each block, given back at once. The node keeps to fewer mappings; what is resident is the same.
#[derive(Debug)]
struct Mapped;

// SAFETY: each block is a new mapping of its own until it is released.
unsafe impl Memory for Mapped {
    fn allocate(&self, bytes: usize) -> NonNull<[u8]> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address the system chooses touches nothing that is there.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "there is memory");
        NonNull::slice_from_raw_parts(NonNull::new(start.cast()).expect("nothing is mapped at 0"), bytes)
    }

    unsafe fn release(&self, block: NonNull<[u8]>) {
        // SAFETY: by the caller's promise this is a whole mapping that nobody refers to any more.
        unsafe { libc::munmap(block.as_ptr().cast(), block.len()) };
    }
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split(' ').nth(1).expect("two numbers").parse::<usize>().expect("a number") * 4096
}

fn one_partition(total_bytes: u64) -> Cache {
    let partition = Partition { tenant: TenantId(0), backend: BackendId(0), budget_bytes: total_bytes };
    let options = Options { total_bytes, ..Options::default() };
    Cache::with_memory(options, &[partition], SeededState::new(1), Arc::new(Mapped)).expect("valid options")
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

fn reclaim(mib: usize, value_bytes: usize) {
    let total = (mib as u64) << 20;
    let cache = one_partition(total);
    let value = vec![1; value_bytes];
    let access = Access::at(Instant::ZERO);
    let items = total / charge(20, value_bytes);
    let mut state = 1_u64;
    for number in 0..2 * items {
        // Every other store goes to a random key, so that the order of places is not that of eviction.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = if number % 2 == 0 { number } else { (state >> 33) % (2 * items) };
        let key = format!("key:{number:016}");
        cache.set(PartitionId(0), key.as_bytes(), NewItem::bytes(&value), &access).expect("it fits");
    }
    while cache.step(access.now, 1000) {}
    let (held, before, full) = (cache.total(), resident(), processor_time());
    cache.apply(&CachePlan::Budgets(vec![total / 10 * 9])).expect("less than the total");
    let (mut longest, mut reached) = (Duration::ZERO, None);
    loop {
        let start = processor_time();
        let more = cache.step(access.now, 64);
        longest = longest.max(processor_time() - start);
        if reached.is_none() && cache.used_bytes() <= total / 10 * 9 {
            reached = Some(processor_time() - full);
        }
        if !more {
            break;
        }
    }
    let (reached, all) = (reached.expect("the budget is reached"), processor_time() - full);
    let gone = held.items - cache.total().items;
    println!(
        "{mib} MiB of {value_bytes} B: {gone} items in {:.1} ms, {:.0} ns each; memory back after {:.1} ms: {} of {} MiB; longest step of 64 {:.0} us",
        reached.as_secs_f64() * 1e3,
        reached.as_nanos() as f64 / gone as f64,
        all.as_secs_f64() * 1e3,
        (before.saturating_sub(resident())) >> 20,
        (held.used_bytes - cache.used_bytes()) >> 20,
        longest.as_secs_f64() * 1e6,
    );
}
