//! From the file to the cache.
//!
//! The file is read twice: once to see how far it is sound, once from there backwards, since what is stored last is taken for the
//! warmest, and evicted last. That the second reading finds what the first did is checked again.

use std::fs::{self, File};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use sherwood_cache::{Access, Cache, Change, Kind, Marks, NewCas, NewItem, Value};
use sherwood_model::PartitionId;

use super::file::{Header, MAGIC, Next, read_block};
use super::record::Record;
use super::{SnapshotError, SnapshotSetup};
use crate::clock::Clock;
use crate::names::Names;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Restored {
    pub(super) items: u64,
    pub(super) bytes: u64,
    /// Items whose time had come.
    pub(super) expired: u64,
    /// Whether the file had damage, behind which nothing was read.
    pub(super) damaged: bool,
}

/// Puts what was written at the last stop into `cache`, which is empty; none when there is no file. The file is gone afterwards.
/// `budgets` is told what was in force when it was written, in bytes, before anything is stored.
///
/// # Errors
/// When it cannot be read, or is of other backends, of another version or from the future.
pub(super) fn read(
    setup: &SnapshotSetup,
    cache: &Cache,
    names: &Names,
    clock: &Clock,
    budgets: impl FnOnce(&[u64]),
) -> Result<Option<Restored>, SnapshotError> {
    let path = setup.path.display().to_string();
    let failed = |error| SnapshotError::Io { doing: "reading", path: path.clone(), error };
    let taken = setup.beside(".read");
    match fs::rename(&setup.path, &taken) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        renamed => renamed.map_err(failed)?,
    }
    let restored = Reading::open(&taken).map_err(failed).and_then(|mut reading| {
        let header = reading.header().map_err(failed)?;
        let sound = header.and_then(|header| checked(header, setup, names, clock));
        let header = sound.map_err(|why| SnapshotError::Refused { path: path.clone(), why })?;
        budgets(&header.budgets);
        reading.restore(cache, clock, &header).map_err(failed)
    });
    fs::remove_file(&taken).map_err(failed)?;
    restored.map(Some)
}

/// The header, if it is this node's.
fn checked(header: Header, setup: &SnapshotSetup, names: &Names, clock: &Clock) -> Result<Header, String> {
    let now = clock.unix(clock.now());
    if Duration::from_millis(header.unix_ms) > now {
        return Err(
            "it is from the future: the system's clock was set back, and lives cannot be told".to_owned()
        );
    }
    let same = header.partitions.iter().eq(names.partitions().iter().map(|partition| &partition.name));
    if header.fingerprint != setup.fingerprint || !same {
        return Err("it is of another configuration of backends or partitions".to_owned());
    }
    Ok(header)
}

struct Reading {
    file: BufReader<File>,
    block: Vec<u8>,
}

impl Reading {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: BufReader::with_capacity(1 << 16, File::open(path)?), block: Vec::new() })
    }

    /// The first block, or why it is none.
    fn header(&mut self) -> io::Result<Result<Header, String>> {
        let refused = |why: &str| Ok(Err(why.to_owned()));
        if !matches!(read_block(&mut self.file, &mut self.block)?, Next::Block(_)) {
            return refused("it is damaged from its beginning");
        }
        let Some(text) = self.block.strip_prefix(MAGIC) else {
            return refused("it is no snapshot, or one of another version");
        };
        Ok(serde_json::from_slice(text).map_err(|error| format!("its header is not understood: {error}")))
    }

    /// Stores the records of all sound blocks that follow, the last block first.
    fn restore(&mut self, cache: &Cache, clock: &Clock, header: &Header) -> io::Result<Restored> {
        let mut restored = Restored::default();
        let (mut at, mut blocks) = (self.file.stream_position()?, Vec::new());
        loop {
            match read_block(&mut self.file, &mut self.block)? {
                Next::Block(bytes) => {
                    blocks.push(at);
                    at += bytes as u64;
                }
                Next::End => break,
                Next::Damaged => {
                    restored.damaged = true;
                    break;
                }
            }
        }
        for at in blocks.into_iter().rev() {
            self.file.seek(SeekFrom::Start(at))?;
            if matches!(read_block(&mut self.file, &mut self.block)?, Next::Block(_)) {
                store(&self.block, cache, clock, header, &mut restored);
            } else {
                restored.damaged = true;
            }
        }
        Ok(restored)
    }
}

/// Stores the records of a block.
fn store(mut block: &[u8], cache: &Cache, clock: &Clock, header: &Header, restored: &mut Restored) {
    let now = clock.now();
    while !block.is_empty() {
        let known =
            Record::take(&mut block).filter(|one| usize::from(one.partition) < header.partitions.len());
        let Some(record) = known else {
            restored.damaged = true;
            return;
        };
        let expires = record.expires_unix_ms.map(|at| clock.at_unix(Duration::from_millis(at)));
        if expires.is_some_and(|expires| expires <= now) {
            restored.expired += 1;
            continue;
        }
        let Record { partition, marks, graced, flags, tags, key, value, .. } = record;
        let (partition, access) = (PartitionId(partition), Access::at(now));
        let kind = if graced { Kind::Graced } else { Kind::Plain };
        let item = NewItem { value: Value::Bytes(value), flags, expires, kind, tags };
        let stored = cache.set(partition, key, item, &access).and_then(|_| {
            let noted = (Change::Amend { expires, marks, cas: NewCas::Keep }, ());
            if marks == Marks::NONE { Ok(()) } else { cache.update(partition, key, &access, |_| noted) }
        });
        // One that no longer fits, in a cache that is smaller now, is one that was evicted.
        if stored.is_ok() {
            restored.items += 1;
            restored.bytes += (key.len() + value.len()) as u64;
        }
    }
}
