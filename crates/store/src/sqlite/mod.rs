//! An SQLite file: each read is an indexed join of two tables.
//!
//! By default the store owns two tables, `item(id, key, bytes)` and `content(item_id, body)`: a
//! read finds the item by its unique index on the key, then the content by its primary key. A
//! user's `query` reads tables of any schema, and makes the store read-only.
//!
//! The file is in write-ahead mode, so readers and the writer do not block each other. Every thread
//! has a read connection; all share one for writing. Memory: the page caches of all connections
//! together stay within `cache_bytes`. An acknowledged write is on disk (`synchronous = FULL`).

mod query;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, params};

use crate::remote::LISTS_MAX;
use crate::session::Session;
use crate::{Cause, OpenCause, SqliteOptions, StoreKind};
use query::Query;

/// The read statement of a store with its own tables.
const DEFAULT_QUERY: &str =
    "SELECT content.body FROM item JOIN content ON content.item_id = item.id WHERE item.key = ?1";

/// The store's own tables. `key` has no type, so that SQLite compares bytes without conversion.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, bytes INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS content (item_id INTEGER PRIMARY KEY, body BLOB NOT NULL);
";

/// Bytes of a database page. Values of tens of kilobytes are stored in chains of pages, which pages
/// of 16 KiB make four times shorter than the default.
const PAGE_BYTES: u32 = 16 << 10;
/// Time that a writer waits for a writer of another process before the file counts as busy.
const BUSY_TIMEOUT_MS: u32 = 1000;
/// Most prepared statements of a connection: one for each list length, and the store's own.
const STATEMENTS_MAX: usize = LISTS_MAX + 8;
/// SQLite's limit on a value, which is at its default in our build.
const VALUE_BYTES_MAX: usize = 1_000_000_000;

/// Opens the file and returns one session per thread, each with a read connection; all share one
/// connection for writing.
pub(crate) fn sessions(options: &SqliteOptions) -> Result<Vec<Box<dyn Session>>, OpenCause> {
    options.validate()?;
    let writer = match options.query {
        None => Some(Arc::new(Mutex::new(open_writer(options)?))),
        Some(_) => None,
    };
    let session = || -> Result<Box<dyn Session>, OpenCause> {
        let reader = open_reader(options)?;
        let query = Query::new(options.query.as_deref().unwrap_or(DEFAULT_QUERY), &reader)?;
        Ok(Box::new(SqliteSession { reader, query, writer: writer.clone() }))
    };
    (0..options.threads).map(|_| session()).collect()
}

/// Opens a connection for writing, and creates the file and its tables if they are absent.
pub(crate) fn open_writer(options: &SqliteOptions) -> Result<Connection, OpenCause> {
    if let Some(directory) = options.path.parent() {
        std::fs::create_dir_all(directory).map_err(|source| OpenCause::Directory { source })?;
    }
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open(options, flags)?;
    let prepare = || -> rusqlite::Result<()> {
        // The page size takes effect only in an empty file.
        connection.pragma_update(None, "page_size", PAGE_BYTES)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch(SCHEMA)
    };
    prepare().map_err(open_cause)?;
    Ok(connection)
}

fn open_reader(options: &SqliteOptions) -> Result<Connection, OpenCause> {
    // Not read-only, since a reader of a write-ahead file writes to its shared memory. It runs only
    // the query.
    let connection = open(options, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.pragma_update(None, "query_only", true).map_err(open_cause)?;
    Ok(connection)
}

fn open(options: &SqliteOptions, flags: OpenFlags) -> Result<Connection, OpenCause> {
    let connection = Connection::open_with_flags(&options.path, flags).map_err(open_cause)?;
    let connections = u64::from(options.threads) + 1;
    let cache_kib = (options.cache_bytes / connections / 1024).max(1);
    let prepare = || -> rusqlite::Result<()> {
        connection.busy_timeout(std::time::Duration::from_millis(u64::from(BUSY_TIMEOUT_MS)))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        // A negative size is in KiB, a positive one in pages.
        connection.pragma_update(None, "cache_size", -(cache_kib as i64))
    };
    prepare().map_err(open_cause)?;
    Ok(connection)
}

const READ_ONLY: Cause = Cause::ReadOnly {
    reason: "it reads with a `query` of its own, and where to write is not known; write to the database directly, or leave \
             `query` out",
};

struct SqliteSession {
    reader: Connection,
    query: Query,
    writer: Option<Arc<Mutex<Connection>>>,
}

impl SqliteSession {
    fn write<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Cause> {
        let Some(writer) = &self.writer else {
            return Err(READ_ONLY);
        };
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        let write = || -> rusqlite::Result<T> {
            let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let result = work(&transaction)?;
            transaction.commit()?;
            Ok(result)
        };
        write().map_err(cause)
    }
}

impl Session for SqliteSession {
    fn get_many(&mut self, keys: &[Bytes], pause: &mut dyn FnMut()) -> Result<Vec<Option<Bytes>>, Cause> {
        self.query.run(&mut self.reader, keys, pause).map_err(cause)
    }

    fn read_only(&self) -> Option<Cause> {
        self.writer.is_none().then_some(READ_ONLY)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Cause> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Cause::Refused { what: "value", bytes: value.len(), min: 0, max: VALUE_BYTES_MAX });
        }
        self.write(|connection| insert(connection, key, value))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Cause> {
        self.write(|connection| {
            let id: Option<i64> = connection
                .prepare_cached("DELETE FROM item WHERE key = ?1 RETURNING id")?
                .query_row(params![bound(key)], |row| row.get(0))
                .optional()?;
            connection.prepare_cached("DELETE FROM content WHERE item_id = ?1")?.execute(params![id])?;
            Ok(())
        })
    }
}

/// Writes one item into the default tables, replacing an existing one.
pub(crate) fn insert(connection: &Connection, key: &[u8], value: &[u8]) -> rusqlite::Result<()> {
    let id: i64 = connection
        .prepare_cached(
            "INSERT INTO item (key, bytes) VALUES (?1, ?2)
             ON CONFLICT (key) DO UPDATE SET bytes = excluded.bytes RETURNING id",
        )?
        .query_row(params![bound(key), value.len() as i64], |row| row.get(0))?;
    connection
        .prepare_cached(
            "INSERT INTO content (item_id, body) VALUES (?1, ?2)
             ON CONFLICT (item_id) DO UPDATE SET body = excluded.body",
        )?
        .execute(params![id, value])?;
    Ok(())
}

/// Binds a key as a parameter: as text if it is UTF-8, so that it compares with text columns of
/// users' tables.
fn bound(key: &[u8]) -> rusqlite::types::ToSqlOutput<'_> {
    rusqlite::types::ToSqlOutput::Borrowed(match std::str::from_utf8(key) {
        Ok(_) => ValueRef::Text(key),
        Err(_) => ValueRef::Blob(key),
    })
}

pub(crate) fn cause(error: rusqlite::Error) -> Cause {
    let detail = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Cause::Busy { detail },
        _ => Cause::Engine { detail },
    }
}

pub(crate) fn open_cause(error: rusqlite::Error) -> OpenCause {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenCause::Locked,
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
            OpenCause::Directory { source: std::io::Error::other(error) }
        }
        _ => OpenCause::Engine { kind: StoreKind::Sqlite, detail: error.to_string() },
    }
}

#[cfg(test)]
mod tests;
