//! From the cache to the file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant as Monotonic};

use sherwood_cache::{Access, Cache, Eviction, Item, Kind, Marks, Value};
use sherwood_model::{Instant, PartitionId};

use super::file::{BLOCK_BYTES, Header, MAGIC, write_block};
use super::record::Record;
use super::{SnapshotError, SnapshotSetup, Written};
use crate::clock::Clock;
use crate::names::Names;

/// Parts of about equal bytes that the items are written in, the warmest first; each is a walk through the cache.
const PARTS: usize = 4;
/// Classes of ages: one for each half of a power of two seconds, up to 2³² s, and as many again for what was never hit.
const CLASSES: usize = 2 * AGES;
const AGES: usize = 64;
/// Places that one call looks at.
const PLACES: usize = 4_096;
/// Bytes after which the disk is asked to keep up, so that the last time is short.
const SYNC_BYTES: u64 = 64 << 20;

/// Writes what is live in `cache`, and its budgets, for at most [`SnapshotSetup::time_max`]. Nobody should wait for the cache meanwhile:
/// it is read, and the file written, under the locks of its shards.
pub(super) fn write(
    setup: &SnapshotSetup,
    cache: &Cache,
    names: &Names,
    budgets: Vec<u64>,
    clock: &Clock,
) -> Result<Written, SnapshotError> {
    let part = setup.beside(".part");
    let now = clock.now();
    let header = Header {
        unix_ms: millis(clock.unix(now)),
        fingerprint: setup.fingerprint,
        partitions: names.partitions().iter().map(|partition| partition.name.clone()).collect(),
        budgets,
    };
    let walk =
        Walk { cache, partitions: header.partitions.len(), now, until: Monotonic::now() + setup.time_max };
    let written = Output::create(&part, &header).and_then(|output| output.write(&walk, clock));
    let kept = written.and_then(|written| {
        fs::rename(&part, &setup.path)?;
        // The name is on the disk when its directory is.
        let directory = setup.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(written)
    });
    kept.map_err(|error| {
        let _ = fs::remove_file(&part);
        SnapshotError::Io { doing: "writing", path: setup.path.display().to_string(), error }
    })
}

/// Ways through the cache.
struct Walk<'a> {
    cache: &'a Cache,
    partitions: usize,
    now: Instant,
    until: Monotonic,
}

impl Walk<'_> {
    /// Calls `visit` with each item until it fails, but stale ones and word that there is no value; false when the time was over first.
    fn each(
        &self,
        mut visit: impl FnMut(PartitionId, &[u8], Item<'_>) -> io::Result<()>,
    ) -> io::Result<bool> {
        for partition in (0..self.partitions).map(PartitionId::from_index) {
            let mut cursor = 0;
            loop {
                if Monotonic::now() >= self.until {
                    return Ok(false);
                }
                let mut result = Ok(());
                cursor = self.cache.scan(partition, cursor, &Access::at(self.now), PLACES, |key, item| {
                    if result.is_ok() {
                        result = visit(partition, key, item);
                    }
                });
                result?;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(true)
    }

    /// Where the parts end, in classes, so that each has about as many bytes. What there is no time to look at counts as none.
    fn parts(&self) -> io::Result<Vec<usize>> {
        let mut bytes = vec![0_u64; CLASSES];
        self.each(|_, key, item| {
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

    /// How warm an item is, 0 for the warmest. Under S3-FIFO, where a use leaves no time, one that was hit is warmer than one
    /// that was not.
    fn class(&self, item: &Item<'_>) -> usize {
        let age = self.cache.since(item.last_use, self.now).as_secs() + 1;
        let power = age.ilog2() as usize;
        let half = usize::from(power > 0 && (age >> (power - 1)) & 1 == 1);
        let by_time = self.cache.options().eviction == Eviction::Lru;
        let unused = if by_time || item.marks.contains(Marks::USED) { 0 } else { AGES };
        (2 * power + half).min(AGES - 1) + unused
    }
}

/// The file as it is written.
struct Output {
    file: File,
    block: Vec<u8>,
    unsynced: u64,
    written: Written,
}

impl Output {
    fn create(path: &Path, header: &Header) -> io::Result<Self> {
        let mut options = File::options();
        // Values may be secret.
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(path)?;
        let mut first = MAGIC.to_vec();
        serde_json::to_writer(&mut first, header)?;
        write_block(&mut file, &first)?;
        let block = Vec::with_capacity(BLOCK_BYTES);
        Ok(Self { file, block, unsynced: 0, written: Written::default() })
    }

    fn write(mut self, walk: &Walk<'_>, clock: &Clock) -> io::Result<Written> {
        let mut begin = 0;
        self.written.whole = true;
        for end in walk.parts()? {
            let part = begin..end;
            let whole = walk.each(|partition, key, item| match item.value {
                Value::Bytes(value) if part.contains(&walk.class(&item)) => {
                    let expires = item.expires.map(|expires| millis(clock.unix(expires)));
                    let Item { flags, marks, tags, kind, .. } = item;
                    self.record(&Record {
                        partition: partition.0,
                        marks,
                        graced: kind == Kind::Graced,
                        flags,
                        expires_unix_ms: expires,
                        tags,
                        key,
                        value,
                    })
                }
                _ => Ok(()),
            })?;
            if !whole {
                self.written.whole = false;
                break;
            }
            begin = end;
        }
        self.end_block()?;
        self.file.sync_all()?;
        Ok(self.written)
    }

    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        if record.put(&mut self.block) {
            self.written.items += 1;
            self.written.bytes += (record.key.len() + record.value.len()) as u64;
        }
        if self.block.len() >= BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        write_block(&mut self.file, &self.block)?;
        self.unsynced += self.block.len() as u64;
        self.block.clear();
        if self.unsynced >= SYNC_BYTES {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
