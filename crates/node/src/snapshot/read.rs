//! Reads a snapshot into the cache.
//!
//! The file is read twice: once to find how much of it is intact, then from the coldest part to the
//! warmest, since the cache takes the items stored last for the warmest, and evicts them last. The
//! second reading verifies checksums again.

use std::fs::{self, File};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::process::geteuid;
use sherwood_cache::{Access, Cache, Change, ItemKind, Marks, NewCas, NewItem, Value};
use sherwood_model::PartitionId;
use sherwood_process::clock::Clock;

use super::file::{Header, MAGIC, NextBlock, is_of_another_version, read_block};
use super::record::Record;
use super::{SnapshotError, SnapshotSetup, Standing};
use crate::names::Names;

/// Summary of a restored snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Restored {
    pub(super) items: u64,
    pub(super) bytes: u64,
    /// Number of items that had expired.
    pub(super) expired: u64,
    /// True if the file was damaged; nothing behind the damage was read.
    pub(super) damaged: bool,
}

/// Restores the snapshot of the last stop into `cache`, which is empty; none when there is no file.
/// The file is removed afterwards. `regain` receives the state kept beside the items before any
/// item is stored.
///
/// # Errors
/// Fails when the file cannot be read, or is of other backends, of another version or from the
/// future.
pub(super) fn read(
    setup: &SnapshotSetup,
    cache: &Cache,
    names: &Names,
    clock: &Clock,
    regain: impl FnOnce(Standing),
) -> Result<Option<Restored>, SnapshotError> {
    let path = setup.path.display().to_string();
    let failed = |error| SnapshotError::Io { doing: "reading", path: path.clone(), error };
    let refused = |why| SnapshotError::Refused { path: path.clone(), why };
    let taken = setup.beside(".read");
    if !take(setup, &taken).map_err(failed)? {
        return Ok(None);
    }
    let restored = open(&taken).map_err(failed).and_then(|file| {
        let mut reading = Reading { file: file.map_err(refused)?, block: Vec::new() };
        let header = reading.header().map_err(failed)?;
        let sound = header.and_then(|header| checked(header, setup, names, clock));
        let header = sound.map_err(refused)?;
        regain(standing(&header, clock));
        reading.restore(cache, clock, &header).map_err(failed)
    });
    if let Err(error) = fs::remove_file(&taken) {
        tracing::warn!(
            "{}, which was read and has values in it, cannot be removed: {error}",
            taken.display()
        );
    }
    restored.map(Some)
}

/// Moves the snapshot to `taken`, so that it is not read a second time, not even after a power
/// failure. Returns false if there is none. A file left by a node that was killed while reading is
/// not read again.
fn take(setup: &SnapshotSetup, taken: &Path) -> io::Result<bool> {
    match fs::rename(&setup.path, taken) {
        Ok(()) => setup.sync_directory().map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Usually there is no such file.
            let _ = fs::remove_file(taken);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Opens the file if only this user could have written it: its contents are served to clients.
fn open(path: &Path) -> io::Result<Result<BufReader<File>, String>> {
    // Does not follow a link, nor wait for a pipe.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Err("it is no plain file".to_owned()));
    }
    let (owner, us) = (metadata.uid(), geteuid().as_raw());
    if owner != us {
        return Ok(Err(format!(
            "it is of user {owner}, and the node runs as {us}, who alone may write there"
        )));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Ok(Err(format!(
            "its mode is {mode:04o}, so others may have changed it; only the node's user may write there"
        )));
    }
    Ok(Ok(BufReader::with_capacity(1 << 16, file)))
}

/// Returns the state that the snapshot has in addition to the items.
fn standing(header: &Header, clock: &Clock) -> Standing {
    let until = |&unix_ms: &u64| (unix_ms > 0).then(|| clock.at_unix(Duration::from_millis(unix_ms)));
    Standing {
        budgets: header.budgets.clone(),
        unsettled: header.unsettled_unix_ms.iter().map(until).collect(),
    }
}

/// Returns the header if it belongs to this node.
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
    /// Reads the header, or returns the reason why it is invalid.
    fn header(&mut self) -> io::Result<Result<Header, String>> {
        let refused = |why: &str| Ok(Err(why.to_owned()));
        if !matches!(read_block(&mut self.file, &mut self.block)?, NextBlock::Block(_)) {
            return match is_of_another_version(&mut self.file)? {
                true => refused("it is of another version of Sherwood, whose format is another"),
                false => refused("it is damaged from its beginning"),
            };
        }
        let Some(text) = self.block.strip_prefix(MAGIC) else {
            return refused("it is no snapshot");
        };
        Ok(serde_json::from_slice(text).map_err(|error| format!("its header is not understood: {error}")))
    }

    /// Stores the records of all intact blocks that follow, the coldest part first.
    fn restore(&mut self, cache: &Cache, clock: &Clock, header: &Header) -> io::Result<Restored> {
        let mut restored = Restored::default();
        let (mut at, mut blocks) = (self.file.stream_position()?, Vec::new());
        loop {
            match read_block(&mut self.file, &mut self.block)? {
                NextBlock::Block(bytes) => {
                    blocks.push((self.block.first().copied(), at));
                    at += bytes as u64;
                }
                NextBlock::End => break,
                NextBlock::Damaged => {
                    restored.damaged = true;
                    break;
                }
            }
        }
        blocks.sort_unstable_by(|one, other| other.cmp(one));
        for (_, at) in blocks {
            self.file.seek(SeekFrom::Start(at))?;
            match (read_block(&mut self.file, &mut self.block)?, self.block.split_first()) {
                (NextBlock::Block(_), Some((_, records))) => {
                    store(records, cache, clock, header, &mut restored)
                }
                _ => restored.damaged = true,
            }
        }
        Ok(restored)
    }
}

/// Stores the records of one block.
fn store(mut records: &[u8], cache: &Cache, clock: &Clock, header: &Header, restored: &mut Restored) {
    let now = clock.now();
    while !records.is_empty() {
        let known =
            Record::take(&mut records).filter(|one| usize::from(one.partition) < header.partitions.len());
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
        let kind = if graced { ItemKind::Graced } else { ItemKind::Plain };
        let item = NewItem { value: Value::Bytes(value), flags, expires, kind, tags, received: None };
        let stored = cache.set(partition, key, item, &access).and_then(|_| {
            let noted = (Change::Amend { expires, marks, cas: NewCas::Keep }, ());
            if marks == Marks::NONE { Ok(()) } else { cache.update(partition, key, &access, |_| noted) }
        });
        // An item that does not fit into a smaller cache counts as evicted.
        if stored.is_ok() {
            restored.items += 1;
            restored.bytes += (key.len() + value.len()) as u64;
        }
    }
}
