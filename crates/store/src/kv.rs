//! A key-value store on disk: a log-structured merge tree (fjall) in a directory of its own.
//!
//! Memory: the block cache (`cache_bytes`), at most three write buffers of [`WRITE_BUFFER_BYTES`]
//! while writing, and the index blocks of the tables. Acknowledged writes are in the journal and
//! the journal is on disk, so they survive a crash of the process and of the machine.

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use bytes::Bytes;

use crate::session::Session;
use crate::{Cause, KvOptions, OpenCause, StoreKind};

/// Size at which a write buffer is sorted and written to a table; fjall's default of 64 MiB is for
/// large machines.
const WRITE_BUFFER_BYTES: u64 = 4 << 20;
/// The only keyspace in the database's directory.
const KEYSPACE: &str = "values";
/// Longest key in bytes that the engine, fjall, accepts.
const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Opens the database and returns a session per thread.
pub(crate) fn sessions(options: &KvOptions) -> Result<Vec<Box<dyn Session>>, OpenCause> {
    let session = open(options)?;
    Ok((0..options.threads).map(|_| Box::new(session.clone()) as Box<dyn Session>).collect())
}

pub(crate) fn open(options: &KvOptions) -> Result<KvSession, OpenCause> {
    options.validate()?;
    std::fs::create_dir_all(&options.path).map_err(|source| OpenCause::Directory { source })?;
    let database = Database::builder(&options.path)
        .cache_size(options.cache_bytes)
        .worker_threads(1)
        .open()
        .map_err(open_cause)?;
    let values = database
        .keyspace(KEYSPACE, || KeyspaceCreateOptions::default().max_memtable_size(WRITE_BUFFER_BYTES))
        .map_err(open_cause)?;
    Ok(KvSession { database, values })
}

/// A handle of the key-value database for one thread; clones share the database.
#[derive(Clone)]
pub(crate) struct KvSession {
    database: Database,
    values: Keyspace,
}

impl KvSession {
    /// Writes without waiting for the disk; [`KvSession::sync`] waits.
    pub(crate) fn put_unsynced(&self, key: &[u8], value: &[u8]) -> Result<(), Cause> {
        check_key(key)?;
        self.values.insert(key, value).map_err(engine)
    }

    /// Waits until everything written is on disk.
    pub(crate) fn sync(&self) -> Result<(), Cause> {
        self.database.persist(PersistMode::SyncData).map_err(engine)
    }
}

impl Session for KvSession {
    fn get_many(&mut self, keys: &[Bytes], pause: &mut dyn FnMut()) -> Result<Vec<Option<Bytes>>, Cause> {
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            let value = match check_key(key) {
                Ok(()) => self.values.get(key).map_err(engine)?,
                // Such a key cannot have been written, so it is absent.
                Err(_) => None,
            };
            values.push(value.map(|value| Bytes::copy_from_slice(&value)));
            pause();
        }
        Ok(values)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Cause> {
        self.put_unsynced(key, value)?;
        self.sync()
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Cause> {
        if check_key(key).is_ok() {
            self.values.remove(key).map_err(engine)?;
            self.sync()?;
        }
        Ok(())
    }
}

fn check_key(key: &[u8]) -> Result<(), Cause> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    Err(Cause::Refused { what: "key", bytes: key.len(), min: 1, max: KEY_BYTES_MAX })
}

fn engine(error: fjall::Error) -> Cause {
    Cause::Engine { detail: error.to_string() }
}

fn open_cause(error: fjall::Error) -> OpenCause {
    match error {
        fjall::Error::Locked => OpenCause::Locked,
        fjall::Error::Io(source) => OpenCause::Directory { source },
        other => OpenCause::Engine { kind: StoreKind::Kv, detail: other.to_string() },
    }
}
