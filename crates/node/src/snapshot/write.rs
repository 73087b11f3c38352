//! Writes the cache to a snapshot.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant as Monotonic};

use sherwood_cache::{Access, Cache, Eviction, Item, ItemKind, Marks, Value};
use sherwood_model::{Instant, PartitionId};
use sherwood_process::clock::Clock;

use super::file::{BLOCK_BYTES, Header, MAGIC, write_block};
use super::record::Record;
use super::{SnapshotError, SnapshotSetup, Standing, Written};
use crate::names::Names;

/// Number of parts of about equal bytes that the items are written in, the warmest first.
const PARTS: usize = 4;
/// Number of age classes: one for each half of a power of two seconds, up to 2³² s, and as many
/// again for items that were never hit.
const CLASSES: usize = 2 * AGES;
const AGES: usize = 64;
/// Number of entries scanned per call, between two checks of the time; small because values may be
/// large.
const PLACES: usize = 32;
/// Number of entries sampled to divide the items by age. A scan goes in the order of hashes, so its
/// first entries are a random sample. With many items, the end of a part is precise to about half a
/// percent of the bytes.
const SAMPLED_PLACES: usize = 1 << 16;

/// Writes the live items of `cache`, and `standing`, for at most [`SnapshotSetup::time_max`]. The
/// cache should have no other users meanwhile: it is read, and the file written, under the locks of
/// its shards.
///
/// The file is not synced to the disk, which would take several times as long. After a power
/// failure an incomplete file is recognised by its checksums.
pub(super) fn write(
    setup: &SnapshotSetup,
    cache: &Cache,
    names: &Names,
    standing: Standing,
    clock: &Clock,
) -> Result<Written, SnapshotError> {
    let part = setup.beside(".part");
    let now = clock.now();
    let Standing { budgets, unsettled } = standing;
    let unix_ms = |at: Option<Instant>| at.map_or(0, |at| millis(clock.unix(at)));
    let header = Header {
        unix_ms: millis(clock.unix(now)),
        fingerprint: setup.fingerprint,
        partitions: names.partitions().iter().map(|partition| partition.name.clone()).collect(),
        budgets,
        unsettled_unix_ms: unsettled.into_iter().map(unix_ms).collect(),
    };
    let walk = Walk { cache, now, until: Monotonic::now() + setup.time_max };
    let written = Output::create(&part, &header).and_then(|output| output.write(&walk, clock));
    let kept = written.and_then(|written| fs::rename(&part, &setup.path).map(|()| written));
    kept.map_err(|error| {
        let _ = fs::remove_file(&part);
        failed(setup, error)
    })
}

/// Checks that a snapshot can be written, at start-up rather than at the stop. Removes the file of
/// a node that was killed while writing.
pub(super) fn try_out(setup: &SnapshotSetup) -> io::Result<()> {
    let part = setup.beside(".part");
    new_file(&part).and_then(|_| fs::remove_file(&part))
}

fn failed(setup: &SnapshotSetup, error: io::Error) -> SnapshotError {
    SnapshotError::Io { doing: "writing", path: setup.path.display().to_string(), error }
}

/// Creates a file that only this user can read, since values may be secret. An existing file or
/// link is removed first: others may have access to its target.
fn new_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// Scans of the cache for items to write, until the time limit.
struct Walk<'a> {
    cache: &'a Cache,
    now: Instant,
    until: Monotonic,
}

impl Walk<'_> {
    /// Calls `visit` with the live items among `places_max` entries until it fails, leaving out
    /// stale and negative ones; returns false when the time ran out first.
    fn each(
        &self,
        places_max: usize,
        mut visit: impl FnMut(PartitionId, &[u8], Item<'_>) -> io::Result<()>,
    ) -> io::Result<bool> {
        let (mut cursor, mut places) = (0, 0);
        loop {
            if Monotonic::now() >= self.until {
                return Ok(false);
            }
            let mut result = Ok(());
            cursor = self.cache.scan_all(cursor, &Access::at(self.now), PLACES, |partition, key, item| {
                if result.is_ok() {
                    result = visit(partition, key, item);
                }
            });
            result?;
            places += PLACES;
            if cursor == 0 || places >= places_max {
                return Ok(true);
            }
        }
    }

    /// Returns the age classes at which the parts of the snapshot end, so that each part has about
    /// as many bytes.
    fn parts(&self) -> io::Result<Vec<usize>> {
        let mut bytes = vec![0_u64; CLASSES];
        self.each(SAMPLED_PLACES, |_, key, item| {
            bytes[self.class(&item)] += (key.len() + item.value.len()) as u64;
            Ok(())
        })?;
        let whole: u64 = bytes.iter().sum();
        let (mut sum, mut ends) = (0, Vec::with_capacity(PARTS));
        for (class, bytes) in bytes.iter().enumerate() {
            sum += bytes;
            if *bytes > 0 && ends.len() + 1 < PARTS && sum >= (ends.len() as u64 + 1) * whole / PARTS as u64 {
                ends.push(class + 1);
            }
        }
        ends.push(CLASSES);
        Ok(ends)
    }

    /// Age class of an item, 0 for the warmest. Under S3-FIFO, which records no time of use, items
    /// that were hit are warmer than those that were not.
    fn class(&self, item: &Item<'_>) -> usize {
        let age = self.cache.since(item.last_use, self.now).as_secs() + 1;
        let power = age.ilog2() as usize;
        let half = usize::from(power > 0 && (age >> (power - 1)) & 1 == 1);
        let by_time = self.cache.options().eviction == Eviction::Lru;
        let unused = if by_time || item.marks.contains(Marks::USED) { 0 } else { AGES };
        (2 * power + half).min(AGES - 1) + unused
    }
}

/// The snapshot file being written.
struct Output {
    file: File,
    /// Current block of each part.
    blocks: [Vec<u8>; PARTS],
    written: Written,
}

impl Output {
    fn create(path: &Path, header: &Header) -> io::Result<Self> {
        let mut file = new_file(path)?;
        let mut first = MAGIC.to_vec();
        serde_json::to_writer(&mut first, header)?;
        let mut block = Vec::new();
        write_block(&mut block, &first)?;
        // Writes it in one call, so that the file of a killed node always begins with its magic
        // number.
        file.write_all(&block)?;
        Ok(Self { file, blocks: Default::default(), written: Written::default() })
    }

    /// Writes the warmest part, then all others together if there is enough time: most of the time
    /// of a scan is spent on visiting the items, written or not. Otherwise it writes one part after
    /// the other, so that the coldest is lost when time runs out.
    fn write(mut self, walk: &Walk<'_>, clock: &Clock) -> io::Result<Written> {
        let ends = walk.parts()?;
        let (mut begin, mut end) = (0, 1);
        self.written.whole = true;
        while begin < ends.len() && self.written.whole {
            let begun = Monotonic::now();
            self.written.whole = self.write_parts(begin..end, &ends, walk, clock)?;
            begin = end;
            let left = walk.until.saturating_duration_since(Monotonic::now());
            end = end_of_next(begin, ends.len(), begun.elapsed(), left);
        }
        Ok(self.written)
    }

    /// Writes some of the parts, which end at the classes `ends`, in one scan; returns false when
    /// the time ran out first.
    fn write_parts(
        &mut self,
        parts: Range<usize>,
        ends: &[usize],
        walk: &Walk<'_>,
        clock: &Clock,
    ) -> io::Result<bool> {
        let whole = walk.each(usize::MAX, |partition, key, item| {
            let class = walk.class(&item);
            let part = ends.partition_point(|end| *end <= class);
            match item.value {
                Value::Bytes(value) if parts.contains(&part) => {
                    let expires = item.expires.map(|expires| millis(clock.unix(expires)));
                    let Item { flags, marks, tags, kind, .. } = item;
                    let record = Record {
                        partition: partition.0,
                        marks,
                        graced: kind == ItemKind::Graced,
                        flags,
                        expires_unix_ms: expires,
                        tags,
                        key,
                        value,
                    };
                    self.record(part, &record)
                }
                _ => Ok(()),
            }
        })?;
        parts.into_iter().try_for_each(|part| self.end_block(part))?;
        Ok(whole)
    }

    fn record(&mut self, part: usize, record: &Record<'_>) -> io::Result<()> {
        let block = &mut self.blocks[part];
        if block.is_empty() {
            block.push(part as u8);
        }
        if record.put(block) {
            self.written.items += 1;
            self.written.bytes += (record.key.len() + record.value.len()) as u64;
        }
        if block.len() >= BLOCK_BYTES { self.end_block(part) } else { Ok(()) }
    }

    fn end_block(&mut self, part: usize) -> io::Result<()> {
        let block = &mut self.blocks[part];
        if !block.is_empty() {
            write_block(&mut self.file, block)?;
            block.clear();
        }
        Ok(())
    }
}

/// End of the range of parts that the next scan writes, after a scan that `took` so long: all
/// remaining parts if there is time for one such scan each, otherwise one part.
pub(super) fn end_of_next(begin: usize, parts: usize, took: Duration, left: Duration) -> usize {
    let more = u32::try_from(parts - begin).unwrap_or(u32::MAX);
    if took.saturating_mul(more) <= left { parts } else { begin + 1 }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
