//! Measures the simulation speed of one LRU on a trace: the engine with declared sizes, used as by
//! the simulator's servers.
//!
//! Gets are processed in batches of 32, like the keys of a request: all are looked up together,
//! then the missing ones are stored one by one. A key that is missed twice within a batch therefore
//! counts as two misses, where an LRU that stores at once has a miss and a hit, and missed keys
//! become more recent than keys hit after them. On the trace of `draw` this adds at most a
//! hundredth of a percentage point of misses.
//!
//! `lru draw FILE` writes ten million gets of a million objects, Zipf 1.0, in the format
//! oracleGeneral. `lru FILE OBJECTS` runs a trace of that format through an LRU of that many
//! objects, ignoring their sizes, and prints a line of JSON: gets, misses, and the time between the
//! first and the last record, including reading the file. `scripts/bench.sh lcs` compares it with
//! libCacheSim.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this reads files and measures time"
)]

use std::env::args;
use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::time::Instant as Clock;

use sherwood_cache::{Access, Cache, Eviction, NewItem, Options, PREFETCH_KEYS_MAX, Partition, charge};
use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};
use sherwood_workload::trace::oracle_general;
use sherwood_workload::{Popularity, rng_from_seed};

const DRAWN: u32 = 10_000_000;
const OBJECTS: u64 = 1_000_000;
const ALPHA: f64 = 1.0;
/// Gets per second of the generated trace.
const RATE: u32 = 100_000;

const KEY_BYTES: usize = 8;
const PARTITION: PartitionId = PartitionId(0);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["draw", path] => draw(path),
        [path, objects] => simulate(path, objects.parse()?),
        _ => Err("usage: lru draw FILE, or lru FILE OBJECTS".into()),
    }
}

fn draw(path: &str) -> Result<(), Box<dyn Error>> {
    let (popularity, mut rng) = (Popularity::new(OBJECTS, ALPHA), rng_from_seed(1));
    let mut file = BufWriter::new(File::create(path)?);
    for number in 0..DRAWN {
        // libCacheSim may treat the first second as a warm-up, so it holds a single get.
        let time_s = if number == 0 { 0 } else { 1 + number / RATE };
        file.write_all(&time_s.to_le_bytes())?;
        file.write_all(&popularity.draw(&mut rng).to_le_bytes())?;
        file.write_all(&1_u32.to_le_bytes())?;
        // The next access is not recorded, since an LRU does not use it.
        file.write_all(&(-1_i64).to_le_bytes())?;
    }
    file.flush()?;
    Ok(())
}

/// A cache for `objects` objects without values.
fn cache(objects: u64) -> Result<Cache, Box<dyn Error>> {
    let total_bytes = objects * charge(KEY_BYTES, 0);
    let options =
        Options { total_bytes, shards: 1, eviction: Eviction::Lru, ghost_rate: 0.0, ..Options::default() };
    let partition = Partition::new(TenantId(0), BackendId(0), total_bytes);
    Ok(Cache::new(options, &[partition], SeededState::new(1))?)
}

fn simulate(path: &str, objects: u64) -> Result<(), Box<dyn Error>> {
    let cache = cache(objects)?;
    let access = Access::at(Instant::ZERO);
    let mut trace = oracle_general::read(BufReader::with_capacity(1 << 20, File::open(path)?));
    let mut keys = Vec::with_capacity(PREFETCH_KEYS_MAX);
    let mut missed = Vec::with_capacity(PREFETCH_KEYS_MAX);
    let began = Clock::now();
    loop {
        keys.clear();
        for record in trace.by_ref().take(PREFETCH_KEYS_MAX) {
            keys.push(record?.object.to_le_bytes());
        }
        if keys.is_empty() {
            break;
        }
        cache.get_each(PARTITION, &keys, &access, |position, item| {
            if item.is_none() {
                missed.push(keys[position]);
            }
        });
        cache.prefetch(missed.iter().map(|key| (PARTITION, &key[..])));
        for key in missed.drain(..) {
            cache.add(PARTITION, &key, NewItem::declared(0), &access)?;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let total = cache.total();
    let gets = total.hits + total.misses;
    println!(
        r#"{{"case":"lru","gets":{gets},"misses":{},"miss_ratio":{:.4},"gets_per_s":{:.0}}}"#,
        total.misses,
        total.misses as f64 / gets as f64,
        gets as f64 / seconds,
    );
    Ok(())
}
