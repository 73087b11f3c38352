//! The statement that reads an SQLite store: once per key, or once per list of keys.
//!
//! Keys are passed as bound parameters only. A statement with `:keys` has as many parameters as
//! there are keys, padded as for other databases.

use bytes::Bytes;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params_from_iter};

use super::{bound, open_cause};
use crate::OpenCause;
use crate::remote::{Asking, Compared, KEYS_MAX, Rows, Template, distinct, padded};

/// A validated statement that reads keys from an SQLite file.
pub(super) enum Query {
    /// Runs once per key, with one parameter and one column.
    PerKey { sql: String },
    /// Runs once per up to [`KEYS_MAX`] keys, with `:keys` and two columns.
    PerList { list: Template },
}

impl Query {
    /// Checks the statement `sql` by preparing it on `connection`.
    pub(super) fn new(sql: &str, connection: &Connection) -> Result<Self, OpenCause> {
        let list = Template::of_list(sql).map_err(|detail| OpenCause::Query { detail, remedy: REMEDY })?;
        let query = match list {
            None => Self::PerKey { sql: sql.to_owned() },
            Some(list) => Self::PerList { list },
        };
        query.check(connection)?;
        Ok(query)
    }

    fn check(&self, connection: &Connection) -> Result<(), OpenCause> {
        let refused = |detail: String| Err(OpenCause::Query { detail, remedy: REMEDY });
        let statement = match connection.prepare(&self.sql(1)) {
            Ok(statement) => statement,
            Err(error @ (rusqlite::Error::SqliteFailure(..) | rusqlite::Error::SqlInputError { .. })) => {
                return match open_cause(error) {
                    OpenCause::Engine { detail, .. } => refused(detail),
                    other => Err(other),
                };
            }
            Err(error) => return refused(error.to_string()),
        };
        let columns = match self {
            Self::PerKey { .. } => 1,
            Self::PerList { .. } => 2,
        };
        if !statement.readonly() {
            return refused("it writes".to_owned());
        }
        if statement.parameter_count() != 1 {
            return refused(format!(
                "it has {} parameters, where 1 is accepted",
                statement.parameter_count()
            ));
        }
        if statement.column_count() != columns {
            return refused(format!(
                "it returns {} columns, where {columns} is accepted",
                statement.column_count()
            ));
        }
        Ok(())
    }

    /// Returns the text of the statement for a list of `keys` keys.
    fn sql(&self, keys: usize) -> String {
        match self {
            Self::PerKey { sql } => sql.clone(),
            Self::PerList { list } => list.sql(keys),
        }
    }

    /// Reads `keys` in one snapshot and answers in their order.
    pub(super) fn run(
        &self,
        connection: &mut Connection,
        keys: &[Bytes],
        pause: &mut dyn FnMut(),
    ) -> rusqlite::Result<Vec<Option<Bytes>>> {
        let snapshot = connection.transaction()?;
        let values = match self {
            Self::PerKey { sql } => per_key(&snapshot, sql, keys, pause)?,
            Self::PerList { .. } => {
                let mut values = Vec::with_capacity(keys.len());
                for keys in keys.chunks(KEYS_MAX) {
                    values.extend(self.per_list(&snapshot, keys, pause)?);
                }
                values
            }
        };
        snapshot.finish()?;
        Ok(values)
    }

    /// Reads keys with one statement, and with further ones if the key of a row is spelled
    /// differently from the key for which SQLite finds it.
    fn per_list(
        &self,
        connection: &Connection,
        keys: &[Bytes],
        pause: &mut dyn FnMut(),
    ) -> rusqlite::Result<Vec<Option<Bytes>>> {
        let mut rows = self.list(connection, keys)?;
        pause();
        let mut values = Vec::with_capacity(keys.len());
        if rows.append(keys, &None, &mut values) {
            return Ok(values);
        }
        let (mut asking, mut list) = (Asking::new(), distinct(keys));
        loop {
            asking.answered(list, rows).for_each(drop);
            match asking.next() {
                Some(next) => list = next,
                None => break,
            }
            rows = self.list(connection, &list)?;
            pause();
        }
        let found = asking.into_answers();
        Ok(keys.iter().map(|key| found.get(key).cloned().flatten()).collect())
    }

    fn list(&self, connection: &Connection, keys: &[Bytes]) -> rusqlite::Result<Rows<Option<Bytes>>> {
        let padded = padded(keys);
        let mut statement = connection.prepare_cached(&self.sql(padded.len()))?;
        let mut rows = statement.query(params_from_iter(padded.iter().map(|key| bound(key))))?;
        let mut found = Vec::with_capacity(keys.len());
        let mut compared = None;
        while let Some(row) = rows.next()? {
            let column = row.get_ref(0)?;
            // A column may have values of several types.
            let kind = self::compared(column);
            compared =
                Some(if compared.is_none_or(|before| before == kind) { kind } else { Compared::Other });
            if let Some(key) = bytes(column) {
                found.push((key, bytes(row.get_ref(1)?)));
            }
        }
        let mut rows = Rows::new(compared.unwrap_or_default(), found.len());
        found.into_iter().for_each(|(key, value)| rows.insert(key, value));
        Ok(rows)
    }
}

fn per_key(
    connection: &Connection,
    sql: &str,
    keys: &[Bytes],
    pause: &mut dyn FnMut(),
) -> rusqlite::Result<Vec<Option<Bytes>>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut values = Vec::with_capacity(keys.len());
    for key in keys {
        let mut rows = statement.query([bound(key)])?;
        values.push(match rows.next()? {
            Some(row) => bytes(row.get_ref(0)?),
            None => None,
        });
        drop(rows);
        pause();
    }
    Ok(values)
}

/// Returns the way in which SQLite compares keys with a value of a key column.
fn compared(column: ValueRef<'_>) -> Compared {
    match column {
        ValueRef::Integer(_) => Compared::Decimal,
        ValueRef::Real(_) => Compared::Float,
        ValueRef::Text(_) => Compared::Text,
        ValueRef::Blob(_) => Compared::Bytes,
        ValueRef::Null => Compared::Other,
    }
}

/// Converts a column to bytes: text and blobs unchanged, numbers in decimal; none for null.
fn bytes(column: ValueRef<'_>) -> Option<Bytes> {
    match column {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string().into()),
        ValueRef::Real(number) => Some(number.to_string().into()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(Bytes::copy_from_slice(bytes)),
    }
}

const REMEDY: &str = "write a SELECT of one column with the one parameter ?1, or one of two columns, key and value, with \
                      `IN (:keys)`";
