//! Bulk loading of values into a store that is not open.

use std::fs::File;

use rusqlite::Connection;

use crate::embedded::open_error;
use crate::kv::KvSession;
use crate::{Attempt, Cause, OpenCause, OpenError, StoreError, StoreKind, StoreOptions, kv, sqlite};

/// Writes many values into a kv or sqlite store without waiting for the disk after each.
///
/// Nothing is durable until [`Loader::finish`] returns: an interrupted load leaves files that must
/// be deleted. It blocks, and the store must not be open.
pub struct Loader {
    name: String,
    engine: Engine,
}

enum Engine {
    Kv(KvSession),
    Sqlite { connection: Connection, path: std::path::PathBuf },
}

impl Engine {
    fn kind(&self) -> StoreKind {
        match self {
            Self::Kv(_) => StoreKind::Kv,
            Self::Sqlite { .. } => StoreKind::Sqlite,
        }
    }
}

impl Loader {
    /// Opens the store's files for loading, and creates them if they are absent.
    ///
    /// # Errors
    /// As [`crate::open`]; compute and synthetic stores have no data to load, and a store with a
    /// `query` reads tables of the user.
    pub fn open(name: &str, options: &StoreOptions) -> Result<Self, OpenError> {
        let engine = match options {
            StoreOptions::Kv(kv) => {
                kv::open(kv).map(Engine::Kv).map_err(|cause| open_error(name, Some(&kv.path), cause))?
            }
            StoreOptions::Sqlite(sqlite) => open_sqlite(sqlite)
                .map(|connection| Engine::Sqlite { connection, path: sqlite.path.clone() })
                .map_err(|cause| open_error(name, Some(&sqlite.path), cause))?,
            StoreOptions::Compute(_) | StoreOptions::Synthetic(_) => {
                return Err(open_error(name, None, OpenCause::NothingToLoad { kind: options.kind() }));
            }
            StoreOptions::Memcached(_)
            | StoreOptions::Redis(_)
            | StoreOptions::Http(_)
            | StoreOptions::MySql(_)
            | StoreOptions::Postgres(_)
            | StoreOptions::DynamoDb(_)
            | StoreOptions::Zookeeper(_)
            | StoreOptions::Cassandra(_) => {
                let detail = format!("the data of a {} store is with its server", options.kind());
                let remedy = "load it by the server's own tools";
                return Err(open_error(name, None, OpenCause::Remote { option: "kind", detail, remedy }));
            }
        };
        Ok(Self { name: name.to_owned(), engine })
    }

    /// Writes a value, replacing an earlier one of the same key.
    ///
    /// # Errors
    /// When the engine refuses the key or cannot write.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let put = match &self.engine {
            Engine::Kv(session) => session.put_unsynced(key, value),
            Engine::Sqlite { connection, .. } => {
                sqlite::insert(connection, key, value).map_err(sqlite::cause)
            }
        };
        put.map_err(|cause| StoreError::new(self.name.as_str(), self.engine.kind(), Attempt::Put, cause))
    }

    /// Waits until every value written is on disk and closes the files.
    ///
    /// # Errors
    /// When the engine or the disk fails; the files must then be deleted.
    pub fn finish(self) -> Result<(), StoreError> {
        let kind = self.engine.kind();
        let finished = match self.engine {
            Engine::Kv(session) => session.sync(),
            Engine::Sqlite { connection, path } => finish_sqlite(connection, &path),
        };
        finished.map_err(|cause| StoreError::new(self.name.as_str(), kind, Attempt::Put, cause))
    }
}

/// Opens the database file with one transaction and no journal, so that each page is written once.
fn open_sqlite(options: &crate::SqliteOptions) -> Result<Connection, OpenCause> {
    options.validate()?;
    if options.query.is_some() {
        return Err(OpenCause::Query {
            detail: "a store with its own `query` has tables of its own to load".to_owned(),
            remedy: "load them with the database's tools, or leave `query` out",
        });
    }
    let connection = sqlite::open_writer(options)?;
    let prepare = || -> rusqlite::Result<()> {
        connection.pragma_update(None, "journal_mode", "OFF")?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.execute_batch("BEGIN EXCLUSIVE")
    };
    prepare().map_err(sqlite::open_cause)?;
    Ok(connection)
}

fn finish_sqlite(connection: Connection, path: &std::path::Path) -> Result<(), Cause> {
    connection.execute_batch("COMMIT").map_err(sqlite::cause)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(sqlite::cause)?;
    connection.close().map_err(|(_, error)| sqlite::cause(error))?;
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| Cause::Engine { detail: error.to_string() })
}
