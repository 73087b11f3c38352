//! Requests about the rows of a table.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::response::query_result::QueryResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;

use super::PROTOCOL;
use super::clock::{Clock, ClockRow};
use super::error::{attempt_cause, cause};
use crate::duplicate::CLOCK_KEY;
use crate::remote::requests::Requests;
use crate::{Cause, KeyChange, PAGE_KEYS_MAX, StoreKind};

/// Longest key in bytes that Cassandra accepts; the shortest has one.
const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Most bytes of a value: a request and a mutation have at most 16 MiB by default.
const VALUE_BYTES_MAX: usize = 15 << 20;

/// Time between two looks at the state of a connection.
const LOOK: Duration = Duration::from_millis(100);

/// The rows of a table over a session of the driver.
#[derive(Clone)]
pub(super) struct Rows(Arc<Inner>);

struct Inner {
    session: Session,
    statements: Statements,
    clock: Arc<Clock>,
    address: String,
    value_bytes_max: usize,
    answer_timeout: Duration,
}

/// The prepared statements.
struct Statements {
    get: PreparedStatement,
    has: PreparedStatement,
    put: PreparedStatement,
    delete: PreparedStatement,
    keys: PreparedStatement,
    clock: PreparedStatement,
}

impl Rows {
    /// Prepares the statements for `table`, a quoted name.
    pub(super) async fn prepare(
        session: Session,
        table: &str,
        clock: Arc<Clock>,
        address: String,
        value_bytes_max: u64,
        answer_timeout: Duration,
    ) -> Result<Self, Cause> {
        let prepared = |text: String| prepared(&session, text, &address, answer_timeout);
        let mut statements = Statements {
            get: prepared(format!("SELECT value FROM {table} WHERE key = ?")).await?,
            has: prepared(format!("SELECT key FROM {table} WHERE key = ?")).await?,
            put: prepared(format!("INSERT INTO {table} (key, value) VALUES (?, ?) USING TIMESTAMP ?"))
                .await?,
            delete: prepared(format!("DELETE FROM {table} USING TIMESTAMP ? WHERE key = ?")).await?,
            keys: prepared(format!("SELECT key FROM {table}")).await?,
            clock: prepared(format!("SELECT WRITETIME(value) FROM {table} WHERE key = ?")).await?,
        };
        // The constant is far below the range.
        statements.keys.set_page_size(PAGE_KEYS_MAX as i32);
        let value_bytes_max = usize::try_from(value_bytes_max).unwrap_or(usize::MAX).min(VALUE_BYTES_MAX);
        Ok(Self(Arc::new(Inner { session, statements, clock, address, value_bytes_max, answer_timeout })))
    }

    /// Returns the keys of a page, and the state for the next one; none after the last.
    pub(super) async fn page(&self, state: PagingState) -> Result<(Vec<Bytes>, Option<PagingState>), Cause> {
        let Inner { session, statements, address, answer_timeout, .. } = &*self.0;
        let page = session.execute_single_page(&statements.keys, (), state).await;
        let (result, next) = page.map_err(|error| cause(&error, address, *answer_timeout))?;
        let next = match next {
            PagingStateResponse::HasMorePages { state } => Some(state),
            PagingStateResponse::NoMorePages => None,
        };
        let rows = result.into_rows_result().map_err(|error| self.0.wrong(error))?;
        let rows = rows.rows::<(Bytes,)>().map_err(|error| self.0.wrong(error))?;
        let keys: Result<_, _> = rows.map(|row| row.map(|(key,)| key)).collect();
        Ok((keys.map_err(|error| self.0.wrong(error))?, next))
    }

    /// Returns the version of the server.
    pub(super) async fn version(&self) -> Result<String, Cause> {
        let Inner { session, address, answer_timeout, .. } = &*self.0;
        let answer = session.query_unpaged("SELECT release_version FROM system.local", ()).await;
        let answer = answer.map_err(|error| cause(&error, address, *answer_timeout))?;
        let rows = answer.into_rows_result().map_err(|error| self.0.wrong(error))?;
        let row = rows.maybe_first_row::<(String,)>().map_err(|error| self.0.wrong(error))?;
        Ok(row.map_or_else(String::new, |(version,)| version))
    }
}

/// Prepares a statement.
async fn prepared(
    session: &Session,
    text: String,
    address: &str,
    timeout: Duration,
) -> Result<PreparedStatement, Cause> {
    session.prepare(text).await.map_err(|error| match error {
        PrepareError::AllAttemptsFailed { first_attempt } => attempt_cause(&first_attempt, address),
        PrepareError::ConnectionPoolError(error) => {
            Cause::Unreachable { address: address.to_owned(), detail: error.to_string() }
        }
        error => cause(&error.into(), address, timeout),
    })
}

impl Inner {
    async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult, Cause> {
        let executed = self.session.execute_unpaged(statement, values).await;
        executed.map_err(|error| cause(&error, &self.address, self.answer_timeout))
    }

    fn wrong(&self, error: impl std::fmt::Display) -> Cause {
        Cause::Protocol { address: self.address.clone(), expected: PROTOCOL, detail: error.to_string() }
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Cause> {
        if !is_key(key) {
            return Ok(None);
        }
        let rows = self.execute(&self.statements.get, (key,)).await?.into_rows_result();
        let rows = rows.map_err(|error| self.wrong(error))?;
        let row = rows.maybe_first_row::<(Option<Bytes>,)>().map_err(|error| self.wrong(error))?;
        // A row without a value was written by others.
        Ok(row.and_then(|(value,)| value))
    }

    async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Cause> {
        let refused = |what, bytes, min, max| Err(Cause::Refused { what, bytes, min, max });
        if !is_key(key) {
            return refused("key", key.len(), 1, KEY_BYTES_MAX);
        }
        if value.len() > self.value_bytes_max {
            return refused("value", value.len(), 0, self.value_bytes_max);
        }
        let timestamp = self.clock.next(self).await?;
        self.execute(&self.statements.put, (key, value, timestamp)).await.map(drop)
    }

    async fn delete(&self, key: &[u8]) -> Result<(), Cause> {
        if !is_key(key) {
            return Ok(());
        }
        let timestamp = self.clock.next(self).await?;
        self.execute(&self.statements.delete, (timestamp, key)).await.map(drop)
    }
}

fn is_key(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len())
}

impl ClockRow for Inner {
    async fn read(&self) -> Result<Option<i64>, Cause> {
        let rows = self.execute(&self.statements.clock, (CLOCK_KEY.as_bytes(),)).await?.into_rows_result();
        let rows = rows.map_err(|error| self.wrong(error))?;
        let row = rows.maybe_first_row::<(Option<i64>,)>().map_err(|error| self.wrong(error))?;
        Ok(row.and_then(|(timestamp,)| timestamp))
    }

    async fn write(&self, timestamp: i64) -> Result<(), Cause> {
        let values = (CLOCK_KEY.as_bytes(), &b""[..], timestamp);
        self.execute(&self.statements.put, values).await.map(drop)
    }
}

impl Requests for Rows {
    const KIND: StoreKind = StoreKind::Cassandra;

    fn get(&self, key: &Bytes) -> impl Future<Output = Result<Option<Bytes>, Cause>> + Send + use<> {
        let (rows, key) = (Arc::clone(&self.0), key.clone());
        async move { rows.get(&key).await }
    }

    fn has(&self, key: &Bytes) -> impl Future<Output = Result<bool, Cause>> + Send + use<> {
        let (rows, key) = (Arc::clone(&self.0), key.clone());
        async move {
            if !is_key(&key) {
                return Ok(false);
            }
            let found = rows.execute(&rows.statements.has, (&key[..],)).await?.into_rows_result();
            Ok(found.map_err(|error| rows.wrong(error))?.rows_num() > 0)
        }
    }

    fn make(&self, change: KeyChange) -> impl Future<Output = Result<(), Cause>> + Send + use<> {
        let rows = Arc::clone(&self.0);
        async move {
            match change.value {
                Some(value) => rows.put(&change.key, &value).await,
                None => rows.delete(&change.key).await,
            }
        }
    }

    fn is_open(&self) -> bool {
        self.0.session.get_cluster_state().get_nodes_info().iter().any(|node| node.is_connected())
    }

    async fn ended(&self) {
        while self.is_open() {
            tokio::time::sleep(LOOK).await;
        }
    }
}
