//! Connectors to MySQL, MariaDB and PostgreSQL: a key is a parameter of a prepared statement, and a
//! row is a value.
//!
//! They share most parts: [`template`](super::template) places the key in a statement, [`answer`]
//! finds the value in a row, `lists` finds the rows of many keys, [`pool`] lends connections to
//! calls. `mysql` and `postgres` are the drivers, each with its client library, types and errors.
//!
//! A statement with `:keys` gets as many placeholders as there are keys, rounded up by at most a
//! quarter with repetitions of the last key, so that a connection prepares at most 28 statements
//! instead of one for every length.

mod address;
mod answer;
mod lists;
mod login;
mod mysql;
mod options;
mod pool;
mod postgres;
mod renewal;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::remote::template::{Dialect, KEYS_MAX, Purpose, Template};
use crate::remote::{Each, all, named_each, tls};
use crate::{Attempt, BoxFuture, Cause, Found, KeyAnswers, OpenCause, Report, Store, StoreError, StoreKind};
pub(super) use address::Address;
use answer::{Cell, Shape};
pub use options::{SqlOptions, SqlValue};
use pool::{Driver, Lease, Link, Pool};

/// Opens a store on a MySQL or MariaDB server, which need not be reachable yet.
pub(crate) fn open_mysql(name: &str, options: &SqlOptions) -> Result<Arc<dyn Store>, OpenCause> {
    let plan = StatementPlan::new(options, Dialect::MySql)?;
    let values = plan.write.as_ref().map_or(1, Template::values);
    Ok(Arc::new(Sql::new(name, StoreKind::MySql, plan, mysql::MySql::new(options, values)?, options)))
}

/// Opens a store on a PostgreSQL server, which need not be reachable yet.
pub(crate) fn open_postgres(name: &str, options: &SqlOptions) -> Result<Arc<dyn Store>, OpenCause> {
    let plan = StatementPlan::new(options, Dialect::Postgres)?;
    Ok(Arc::new(Sql::new(name, StoreKind::Postgres, plan, postgres::Postgres::new(options)?, options)))
}

/// The parsed statements of a store, with the use of their columns.
struct StatementPlan {
    query: Template,
    write: Option<Template>,
    delete: Option<Template>,
    shape: Shape,
    value_max: u64,
    answer_timeout: Duration,
}

impl SqlOptions {
    /// Checks the options that need neither a file nor a server: addresses, ranges and statements.
    pub(crate) fn validate(&self, kind: StoreKind) -> Result<(), OpenCause> {
        let dialect = if kind == StoreKind::MySql { Dialect::MySql } else { Dialect::Postgres };
        StatementPlan::new(self, dialect)?;
        Address::parse(&self.address, port(kind)).map(drop)
    }
}

/// Returns the default port of a server of this kind.
pub(super) fn port(kind: StoreKind) -> u16 {
    if kind == StoreKind::MySql { mysql::PORT } else { postgres::PORT }
}

impl StatementPlan {
    fn new(options: &SqlOptions, dialect: Dialect) -> Result<Self, OpenCause> {
        options.remote.validate()?;
        let parse = |text: &Option<String>, purpose| {
            text.as_ref().map(|text| Template::parse(text, dialect, purpose)).transpose()
        };
        let query = Template::parse(&options.query, dialect, Purpose::Query)?;
        Ok(Self {
            shape: Shape::new(options, query.reads_many()),
            query,
            write: parse(&options.write, Purpose::Write)?,
            delete: parse(&options.delete, Purpose::Delete)?,
            value_max: options.remote.value_bytes_max,
            answer_timeout: options.remote.answer_timeout(),
        })
    }
}

/// A store on an SQL server.
struct Sql<D: Driver> {
    name: Arc<str>,
    kind: StoreKind,
    plan: StatementPlan,
    pool: Pool<D>,
    /// The server's address, which errors name.
    address: String,
    /// Descriptions of the connection to the server, for reports.
    details: Vec<String>,
}

impl<D: Driver> Sql<D> {
    fn new(name: &str, kind: StoreKind, plan: StatementPlan, driver: D, options: &SqlOptions) -> Self {
        let pool = Pool::new(driver, &options.address, &options.remote);
        let (address, details) = (options.address.clone(), details(options, &plan));
        Self { name: name.into(), kind, plan, pool, address, details }
    }

    async fn read(&self, keys: &[Bytes]) -> Result<Vec<Each>, Cause> {
        let mut lease = self.pool.take().await?;
        let mut found = self.read_on(&mut lease, keys).await;
        // The server closed a connection just as it was used again, and has not seen the call.
        if found.is_err() && lease.ended_early() {
            self.pool.replace(&mut lease).await?;
            found = self.read_on(&mut lease, keys).await;
        }
        lease.settle(&found);
        found
    }

    async fn read_on(&self, lease: &mut Lease<D>, keys: &[Bytes]) -> Result<Vec<Each>, Cause> {
        if keys.is_empty() {
            self.in_time(lease.link().ping()).await.map(|()| Vec::new())
        } else if self.plan.query.reads_many() {
            self.read_lists(lease, keys).await
        } else {
            self.read_each(lease, keys).await
        }
    }

    async fn read_each(&self, lease: &mut Lease<D>, keys: &[Bytes]) -> Result<Vec<Each>, Cause> {
        let sql = self.plan.query.sql(1);
        let mut budget = Budget::new(self.plan.value_max);
        let mut values = Vec::with_capacity(keys.len());
        let mut too_large = 0;
        for key in keys {
            let Some(bound) = self.plan.query.bind(key, &Bytes::new()) else {
                // A key without a part that the statement needs does not exist.
                values.push(Ok(None));
                continue;
            };
            if lease.is_abandoned() {
                self.pool.renew(lease).await?;
            }
            let before = budget;
            let answer = self.in_time(lease.link().rows(&sql, bound, &mut budget)).await;
            let found = answer.and_then(|answer| self.plan.shape.one(answer));
            match &found {
                // The server cannot interpret this key; the connection stays usable.
                Ok(_) | Err(Cause::Key { .. }) => {}
                // The statement may fail for this key alone, which must not affect the others; but
                // not if the statement itself is invalid.
                Err(Cause::Statement { .. }) => self.check_columns(lease, &sql).await?,
                // The rest of the answer is not read yet.
                Err(Cause::TooLarge { .. }) if too_large < ABANDONED_MAX => {
                    too_large += 1;
                    budget = before;
                    lease.abandon();
                }
                Err(cause) => return Err(cause.clone()),
            }
            values.push(found);
        }
        Ok(values)
    }

    /// Checks that the server accepts the statement `sql`, with the columns that the options name.
    async fn check_columns(&self, lease: &mut Lease<D>, sql: &str) -> Result<(), Cause> {
        let columns = self.in_time(lease.link().columns(sql)).await?;
        self.plan.shape.check(&columns)
    }

    /// Awaits `work`, a statement on the server, for at most the answer timeout.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Cause>>) -> Result<T, Cause> {
        let timeout = self.plan.answer_timeout;
        tokio::time::timeout(timeout, work)
            .await
            .unwrap_or_else(|_| Err(Cause::unanswered(&self.address, timeout)))
    }

    async fn write(&self, change: Change, key: &Bytes, value: &Bytes) -> Result<(), Cause> {
        let StatementPlan { write, delete, .. } = &self.plan;
        let (template, other, reason) = match change {
            Change::Write => (write, delete, NO_WRITE),
            Change::Delete => (delete, write, NO_DELETE),
        };
        let template = template.as_ref().ok_or_else(|| Cause::no_way(reason, other.is_some()))?;
        let (bytes, max) = (value.len(), self.plan.value_max as usize);
        if bytes > max {
            return Err(Cause::Refused { what: "value", bytes, min: 0, max });
        }
        let bound = template.bind(key, value).ok_or_else(|| Cause::Key {
            detail: "it has fewer parts, split at each `:`, than the statement names".to_owned(),
        })?;
        let mut lease = self.pool.take().await?;
        let changed = self.in_time(lease.link().change(&template.sql(1), bound)).await;
        lease.settle(&changed);
        match changed.map_err(|cause| self.of_change(template, cause))? {
            0 if change == Change::Write && template.counts_rows() => Err(Cause::Missing {
                what: "the row to write",
                detail: "the statement changed nothing".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// The cause of a failed write or removal, from the `cause` of its statement. A refused read
    /// has no effect; a change may have been made in part.
    fn of_change(&self, template: &Template, cause: Cause) -> Cause {
        match cause {
            Cause::Statement { detail } | Cause::Busy { detail } | Cause::Key { detail }
                if template.is_call() =>
            {
                Cause::Server { detail }
            }
            Cause::TooLarge { bytes_max } => Cause::Protocol {
                address: self.address.clone(),
                expected: "a statement that changes rows",
                detail: format!("more than {bytes_max} bytes came back; leave out its RETURNING"),
            },
            cause => cause,
        }
    }

    /// Checks that the server accepts the store's statements, without running them.
    async fn report(&self) -> Result<Report, Cause> {
        let mut lease = self.pool.take().await?;
        let mut prepared = self.in_time(self.prepare(&mut lease)).await;
        if prepared.is_err() && lease.ended_early() {
            self.pool.replace(&mut lease).await?;
            prepared = self.in_time(self.prepare(&mut lease)).await;
        }
        lease.settle(&prepared);
        let Prepared { server, key_column, remark } = prepared?;
        // A statement whose first column is not the key works, but slowly and not always, without
        // any other sign of it.
        let keyed =
            key_column.map(|name| format!("a row is the value of the keys that equal its column {name}"));
        let remark = remark.map(str::to_owned);
        Ok(Report { server, details: self.details.iter().cloned().chain(keyed).chain(remark).collect() })
    }

    async fn prepare(&self, lease: &mut Lease<D>) -> Result<Prepared, Cause> {
        let columns = lease.link().columns(&self.plan.query.sql(1)).await?;
        self.plan.shape.check(&columns)?;
        let key_column = columns.into_iter().next().filter(|_| self.plan.query.reads_many());
        for template in [&self.plan.write, &self.plan.delete].into_iter().flatten() {
            lease.link().prepare(&template.sql(1)).await?;
        }
        let link = lease.link();
        Ok(Prepared { server: link.version().await?, key_column, remark: link.remark() })
    }

    fn error(&self, attempt: Attempt) -> impl Fn(Cause) -> StoreError + use<D> {
        let (name, kind) = (Arc::clone(&self.name), self.kind);
        move |cause| StoreError::new(Arc::clone(&name), kind, attempt, cause)
    }
}

impl<D: Driver> Store for Sql<D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> StoreKind {
        self.kind
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        let error = self.error(Attempt::Get { keys: keys.len() });
        Box::pin(async move { self.read(&keys).await.and_then(all).map_err(error) })
    }

    fn get_each(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<KeyAnswers, StoreError>> {
        let error = self.error(Attempt::Get { keys: keys.len() });
        Box::pin(async move { Ok(named_each(&self.name, self.kind, self.read(&keys).await.map_err(error)?)) })
    }

    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        let error = self.error(Attempt::Put);
        Box::pin(async move { self.write(Change::Write, &key, &value).await.map_err(error) })
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        let error = self.error(Attempt::Delete);
        Box::pin(async move { self.write(Change::Delete, &key, &Bytes::new()).await.map_err(error) })
    }

    /// False unless the value is a single column without time to live and tags: a row may contain
    /// more than was written.
    fn answers_as_written(&self) -> bool {
        self.plan.shape.is_single_column()
    }

    fn check(&self) -> BoxFuture<'_, Result<Report, StoreError>> {
        let error = self.error(Attempt::Check);
        Box::pin(async move { self.report().await.map_err(error) })
    }
}

fn details(options: &SqlOptions, plan: &StatementPlan) -> Vec<String> {
    let security = match &options.remote.tls {
        // A UNIX socket is local, and the servers do not encrypt it.
        Some(tls) if !options.address.starts_with("unix:") => format!("TLS, {}", tls::trust(tls)),
        _ => "no TLS".to_owned(),
    };
    let keys = if plan.query.reads_many() { format!("up to {KEYS_MAX} keys") } else { "1 key".to_owned() };
    let can = |template: &Option<_>, verb| if template.is_some() { verb } else { "" };
    let (writes, deletes) = (can(&plan.write, ", writes"), can(&plan.delete, ", deletes"));
    vec![
        format!("{}, {security}", options.address),
        format!("database {} as {}", options.database, options.user),
        format!("reads {keys} by a statement{writes}{deletes}"),
    ]
}

/// The result of preparing a store's statements for a check.
struct Prepared {
    server: String,
    /// The key column of a statement that reads several keys.
    key_column: Option<String>,
    /// A note about the connection for `sherwood backend check`; none if there is nothing to say.
    remark: Option<&'static str>,
}

/// The kind of a change: a write or a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Write,
    Delete,
}

const NO_WRITE: &str =
    "it has no statement to write with; set the backend's `write`, or write to the database directly";
const NO_DELETE: &str =
    "it has no statement to delete with; set the backend's `delete`, or delete from the database directly";

/// Most connections that one call may close in the middle of an answer because of values that are
/// too large; with one more such value the call fails.
const ABANDONED_MAX: usize = 4;

/// The bytes that all answers to one call may still have.
#[derive(Clone, Copy, Debug)]
struct Budget {
    bytes_max: u64,
    left: u64,
}

/// Bytes counted for a row and for each cell besides its content, so that empty rows and cells are
/// bounded too. No server sends more than this and the text for a cell.
const ROW_BYTES: usize = 16;
const CELL_BYTES: usize = 12;

impl Budget {
    fn new(bytes_max: u64) -> Self {
        Self { bytes_max, left: bytes_max }
    }

    /// Takes a row's bytes from the budget; an error if too few are left.
    fn spend(&mut self, row: &[Cell]) -> Result<(), Cause> {
        let bytes = row.iter().map(|cell| cell.len() + CELL_BYTES).sum::<usize>() + ROW_BYTES;
        match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.exceeded()),
        }
    }

    /// Refunds the bytes of values that are not part of the answer.
    fn refund(&mut self, values: impl Iterator<Item = Each>) {
        let bytes: usize = values.flatten().flatten().map(|found| found.value.len()).sum();
        self.left = self.bytes_max.min(self.left + bytes as u64);
    }

    fn exceeded(&self) -> Cause {
        Cause::TooLarge { bytes_max: self.bytes_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_of_a_call_bounds_the_bytes_and_rows_of_its_answers() {
        let mut budget = Budget::new(64);
        let row = [Cell::Text("abcd".into())];
        assert_eq!((budget.spend(&row), budget.spend(&row)), (Ok(()), Ok(())));
        assert_eq!(budget.spend(&[]), Err(Cause::TooLarge { bytes_max: 64 }));
    }
}
