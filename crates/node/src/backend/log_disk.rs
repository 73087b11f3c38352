//! The logs of a replicated store on disk: the files of each partition in a directory of its own.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use sherwood_config::Duplicates;
use sherwood_dispatch::{FrameWrite, LogEntry, LogFiles, LogRecord, Recovered, StoreEnd};
use sherwood_path::{Backend as Machine, Change, Logged};
use sherwood_store::Found;
use thiserror::Error;

use crate::backend::BackendDriver;
use crate::backend::waiter::Waiter;

type Records = Vec<LogRecord<Bytes, Logged<Found>>>;

/// The reason why a node cannot start with its logs.
#[derive(Debug, Error)]
pub enum LogDiskError {
    /// A directory or file cannot be used.
    #[error(
        "the log {path} cannot be opened: {error}; make it readable and writable for this user, or choose another directory \
         ([[backend]] log.path)"
    )]
    Io {
        /// The path that was tried.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// Another backend, or another node, has the directory.
    #[error(
        "the logs in {0} are in use; a directory is for one backend of one node: stop the other node, or choose another \
         directory ([[backend]] log.path)"
    )]
    InUse(PathBuf),
    /// The directory has logs of another number of partitions.
    #[error(
        "{path} is a log of another number of partitions than {partitions}, whose keys are others; start with the earlier \
         number until all duplicates are current, then stop the node and remove the log, or choose another directory \
         ([[backend]] log.path)"
    )]
    Partitions {
        /// The path of the log that was found.
        path: PathBuf,
        /// The number of partitions.
        partitions: u16,
    },
    /// A file is damaged before its end.
    #[error(
        "the log {path} is damaged at byte {offset}, and not only at its end; restore the file from a copy, or move its \
         directory away: the node then goes on from what the duplicates have, and changes that none of them has are lost"
    )]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// Offset of the first damaged frame, bytes.
        offset: u64,
    },
}

/// The logs of a backend on disk, and what they had at the start.
pub(crate) struct OpenedLogs {
    disk: LogDisk,
    recovered: Vec<Recovered<Bytes, Logged<Found>>>,
}

impl OpenedLogs {
    /// Has a new machine go on from the logs.
    pub(super) fn enter(self, machine: &mut Machine<Bytes, Found, Waiter>) -> LogDisk {
        machine.keep_logs_on_disk(self.recovered);
        self.disk
    }
}

/// The logs of a backend on disk. No other process uses the directory meanwhile.
pub(crate) struct LogDisk {
    partitions: Vec<Mutex<PartitionDisk>>,
    _lock: File,
}

impl LogDisk {
    /// Opens the logs of these duplicates, and reads them; none if they are in memory only.
    pub(crate) fn open(duplicates: Option<&Duplicates>) -> Result<Option<OpenedLogs>, LogDiskError> {
        let Some((options, path)) = duplicates.and_then(|of| Some((of, of.path.as_ref()?))) else {
            return Ok(None);
        };
        create_directory(path)?;
        let lock = lock(path)?;
        let ending = format!("-of-{}", options.partitions);
        for entry in entries(path)? {
            if entry.contains("-of-") && !entry.ends_with(&ending) {
                let (path, partitions) = (path.join(entry), options.partitions);
                return Err(LogDiskError::Partitions { path, partitions });
            }
        }
        let open = |partition| PartitionDisk::open(path.join(format!("{partition}{ending}")), options);
        let opened = (1..=options.partitions).map(open).collect::<Result<Vec<_>, _>>()?;
        let (partitions, recovered) = opened.into_iter().map(|(disk, of)| (Mutex::new(disk), of)).unzip();
        Ok(Some(OpenedLogs { disk: Self { partitions, _lock: lock }, recovered }))
    }

    /// Appends records to the log of a partition, and syncs them. Blocks.
    fn store(&self, backend: &str, partition: usize, records: Records, first: u64) -> StoreEnd {
        // What a panic left unfinished is found out by the length of the file.
        let mut disk = self.partitions[partition].lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(records[..], [LogRecord::Begin { continues: false, .. }, ..]) && disk.has_entries {
            let path = disk.directory.display();
            tracing::warn!(backend, %path, "the log on disk is not used: duplicates have later changes");
        }
        let (write, after) =
            disk.files.write(records, first, |logged: &Logged<Found>| match &logged.change {
                Change::Put(found) => Some(&found.value),
                Change::Delete => None,
            });
        match disk.append(&write) {
            Ok(()) => {
                (disk.files, disk.has_entries) = (after, false);
                disk.removed.extend(write.removed);
                disk.remove_files();
                StoreEnd::Stored
            }
            Err((end, error)) => {
                let path = disk.path(write.file);
                let effect = match end {
                    StoreEnd::Unknown => "writes of the partition are refused until the node is restarted",
                    StoreEnd::Stored | StoreEnd::NotStored => "writes are refused until it can",
                };
                tracing::error!(backend, path = %path.display(), %error, "the log cannot be written: {effect}");
                end
            }
        }
    }
}

/// The files of the log of one partition.
struct PartitionDisk {
    directory: PathBuf,
    files: LogFiles,
    /// The file that was written last, and its number.
    current: Option<(u64, File)>,
    /// Files to remove. One is removed only after all before it.
    removed: VecDeque<u64>,
    /// True until the first write, if entries were found at the start.
    has_entries: bool,
}

impl PartitionDisk {
    fn open(
        directory: PathBuf,
        options: &Duplicates,
    ) -> Result<(Self, Recovered<Bytes, Logged<Found>>), LogDiskError> {
        create_directory(&directory)?;
        let mut recovered = Recovered::new(options.entries_max as usize, options.bytes_max);
        let mut disk = Self {
            directory,
            files: LogFiles::of_log(options.bytes_max),
            current: None,
            removed: VecDeque::new(),
            has_entries: false,
        };
        let numbers =
            entries(&disk.directory)?.into_iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok());
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        for &number in &numbers {
            let path = disk.path(number);
            let contents = fs::read(&path).map_err(|error| failed(&path, error))?;
            let is_last = Some(&number) == numbers.last();
            let end = disk.files.read(number, is_last, &contents, |record| {
                let (record, bytes) = owned(record);
                recovered.take(record, bytes)
            });
            let length = end.map_err(|offset| LogDiskError::Damaged { path: path.clone(), offset })?;
            let torn = contents.len() as u64 - length;
            if torn > 0 {
                tracing::warn!(path = %path.display(), bytes = torn, "the end of a log was not completely written, and is cut off");
                cut(&path, length).map_err(|error| failed(&path, error))?;
            }
        }
        disk.has_entries = recovered.entries() > 0;
        Ok((disk, recovered))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:016}.log"))
    }

    /// Writes and syncs a frame. A frame that could not be written is cut off again; after a failed
    /// sync, nothing is known of what the disk has.
    fn append(&mut self, write: &FrameWrite) -> Result<(), (StoreEnd, io::Error)> {
        if self.current.as_ref().is_none_or(|(number, _)| *number != write.file) {
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(self.path(write.file));
            self.current = Some((write.file, file.map_err(|error| (StoreEnd::NotStored, error))?));
        }
        let Some((_, file)) = &self.current else { return Ok(()) };
        if let Err(error) = file.write_all_at(&write.frame, write.offset) {
            let is_cut = file.set_len(write.offset).and_then(|()| file.sync_data()).is_ok();
            return Err((if is_cut { StoreEnd::NotStored } else { StoreEnd::Unknown }, error));
        }
        let synced = file.sync_data();
        let synced =
            if write.offset > 0 { synced } else { synced.and_then(|()| sync_directory(&self.directory)) };
        synced.map_err(|error| (StoreEnd::Unknown, error))
    }

    fn remove_files(&mut self) {
        while let Some(number) = self.removed.front() {
            let path = self.path(*number);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return tracing::warn!(path = %path.display(), %error, "a log that is not needed cannot be removed");
                }
                _ => self.removed.pop_front(),
            };
        }
    }
}

impl BackendDriver {
    /// Has records stored in the log of a partition by a thread that may block.
    pub(super) fn store_log(self: &Arc<Self>, partition: usize, records: Records, first: u64) {
        let backend = Arc::clone(self);
        self.runtime.spawn_blocking(move || {
            let Some(disk) = &backend.log_disk else { return };
            let end = disk.store(&backend.name, partition, records, first);
            backend.drive(|state, now, cache| state.machine.handle_stored(now, cache, partition, end));
        });
    }
}

/// Copies a record, and returns the bytes of its key and value.
fn owned(record: LogRecord<&[u8], Option<&[u8]>>) -> (LogRecord<Bytes, Logged<Found>>, u64) {
    match record {
        LogRecord::Begin { epoch, last, continues } => (LogRecord::Begin { epoch, last, continues }, 0),
        LogRecord::Void { number, may_be_made } => (LogRecord::Void { number, may_be_made }, 0),
        LogRecord::Change(LogEntry { number, key, change }) => {
            let bytes = key.len() + change.map_or(0, <[u8]>::len);
            let put = |value| Change::Put(Found::from(Bytes::copy_from_slice(value)));
            let change = Logged::recovered(change.map_or(Change::Delete, put));
            (LogRecord::Change(LogEntry { number, key: Bytes::copy_from_slice(key), change }), bytes as u64)
        }
    }
}

fn failed(path: &Path, error: io::Error) -> LogDiskError {
    LogDiskError::Io { path: path.to_owned(), error }
}

fn create_directory(path: &Path) -> Result<(), LogDiskError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| failed(path, error))
}

/// Returns the names in a directory; those that are not text are none of ours.
fn entries(path: &Path) -> Result<Vec<String>, LogDiskError> {
    let names = fs::read_dir(path).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>()
    });
    let names = names.map_err(|error| failed(path, error))?;
    Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
}

/// Locks a directory against other processes, and other backends of this one, until the file is
/// closed.
fn lock(directory: &Path) -> Result<File, LogDiskError> {
    let path = directory.join("lock");
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(|error| failed(&path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LogDiskError::InUse(directory.to_owned())),
        Err(TryLockError::Error(error)) => Err(failed(&path, error)),
    }
}

fn cut(path: &Path, length: u64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.set_len(length)?;
    file.sync_data()
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests;
