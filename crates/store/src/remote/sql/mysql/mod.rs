//! The driver for MySQL and MariaDB, with mysql_async.
//!
//! A call has a connection of its own, so a dropped call leaves it within an answer. The connection
//! is then closed, and since a server notices that only when it writes, a `KILL` of the statement
//! is sent on another connection. There are at most as many of these as of the others.
//!
//! Keys and values are bound as byte strings. MySQL compares a string with a number numerically, so
//! key `1x` finds row 1.

mod cell;
mod error;

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use mysql_async::prelude::Queryable;
use mysql_async::{ClientIdentity, Column, Conn, Error, Opts, OptsBuilder, Params, SslOpts, Value};
use rustls::RootCertStore;
use sherwood_textfile::{Reader, Watched};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::Budget;
use super::answer::Answer;
use super::login;
use super::options::SqlOptions;
use super::pool::{Driver, Link};
use super::renewal::Renewal;
use crate::remote::host::{Deadline, HostPort};
use crate::remote::sql::address::Address;
use crate::remote::template::{LISTS_MAX, is_call};
use crate::remote::tls::{self, TlsOptions};
use crate::{Cause, OpenCause};
use error::Phase;

/// Default port of MySQL.
pub(super) const PORT: u16 = 3306;
/// Most prepared statements of a connection: one for each length of a key list, the writes, and
/// room for those of the library.
const STATEMENTS_MAX: usize = LISTS_MAX + 8;
/// Bytes of a packet besides values: the names and lengths of the other columns.
const PACKET_BYTES: usize = 64 << 10;
/// Time in which a host that did not answer has to accept a connection to count as reachable.
const PROBE_TIMEOUT: Duration = Duration::from_millis(200);
/// Timeout of an orderly disconnect from the server.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes connections to a MySQL or MariaDB server.
pub(super) struct MySql {
    address: Arc<Address>,
    options: SqlOptions,
    /// The options of connections, including the login that its files contain at present.
    opts: Watched<Opts>,
    /// Permits for the connections that send a `KILL`.
    killers: Arc<Semaphore>,
}

impl MySql {
    /// Makes a driver for the server of `options`. `values` is the number of occurrences of the
    /// written value in a statement.
    pub(super) fn new(options: &SqlOptions, values: usize) -> Result<Self, OpenCause> {
        let address = Arc::new(Address::parse(&options.address, PORT)?);
        let opts = {
            let (address, options) = (Arc::clone(&address), options.clone());
            Watched::open(move |reader: &mut Reader| opts(&address, &options, values, reader))?
        };
        let killers = Arc::new(Semaphore::new(options.remote.connections_max.into()));
        Ok(Self { address, options: options.clone(), opts, killers })
    }
}

/// Makes the options of connections; reads the files of the login.
fn opts(
    address: &Address,
    options: &SqlOptions,
    values: usize,
    reader: &mut Reader,
) -> Result<Opts, OpenCause> {
    let password = options.password.as_ref().map(|place| place.password(reader)).transpose()?;
    let builder = match address {
        Address::Tcp(HostPort { host, port }) => {
            OptsBuilder::default().ip_or_hostname(host.as_str()).tcp_port(*port)
        }
        Address::Unix(path) => OptsBuilder::default().socket(Some(path.to_string_lossy())),
    };
    let builder = builder
        .user(Some(options.user.as_str()))
        .pass(password)
        .db_name(Some(options.database.as_str()))
        // Otherwise the library switches from TCP to a socket named by the server.
        .prefer_socket(false)
        .tcp_nodelay(true)
        .stmt_cache_size(STATEMENTS_MAX)
        // An update counts rows found, also those that already have the new values.
        .client_found_rows(true)
        // Setting both saves a query for the server's values; the second is for the library's pool,
        // which is not used.
        .max_allowed_packet(Some(options.remote.value_bytes_max as usize * values + PACKET_BYTES))
        .wait_timeout(Some(0))
        // An acknowledged change must be committed, whatever the server's default.
        .setup(vec!["SET autocommit = 1"])
        .ssl_opts(options.remote.tls.as_ref().map(|tls| ssl_opts(tls, reader)).transpose()?);
    Ok(builder.into())
}

/// Converts the TLS options to those of the library, like [`tls::client_config`].
fn ssl_opts(options: &TlsOptions, reader: &mut Reader) -> Result<SslOpts, OpenCause> {
    // Reports errors of the files now.
    tls::client_config(options, reader)?;
    // The library uses the process's default provider.
    tls::install_provider();
    // The library would read the files at the first connection.
    let roots = match &options.ca {
        Some(ca) => vec![tls::pem("tls.ca", ca, reader)?.into()],
        None => system_roots().into_iter().map(Into::into).collect(),
    };
    let identity = match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => {
            let chain = tls::pem("tls.cert", cert, reader)?;
            Some(ClientIdentity::new(chain.into(), tls::pem("tls.key", key, reader)?.into()))
        }
        _ => None,
    };
    Ok(SslOpts::default()
        .with_disable_built_in_roots(true)
        .with_root_certs(roots)
        .with_client_identity(identity)
        .with_danger_tls_hostname_override(options.server_name.clone().map(Cow::Owned)))
}

/// The certificate authorities that the system trusts, without certificates that the library cannot
/// parse.
fn system_roots() -> Vec<Vec<u8>> {
    let certificates = rustls_native_certs::load_native_certs().certs;
    let sound = certificates.into_iter().filter(|one| RootCertStore::empty().add(one.clone()).is_ok());
    sound.map(|one| one.to_vec()).collect()
}

impl Driver for MySql {
    type Link = Connection;

    async fn connect(&self) -> Result<Connection, Cause> {
        login::retried(&self.opts, |opts| self.log_in(opts)).await
    }

    fn abandon(&self, link: Connection) {
        let Connection { conn, opts, runtime, .. } = link;
        // The server of the connection, and the password as it is now.
        let opts = OptsBuilder::from_opts(opts).pass(self.opts.current().pass());
        let kill = format!("KILL {}", conn.id());
        runtime.spawn(close(conn));
        let Ok(killer) = Arc::clone(&self.killers).try_acquire_owned() else { return };
        let timeout = self.options.remote.connect_timeout();
        runtime.spawn(async move {
            let work = async {
                let mut conn = Conn::new(opts).await?;
                conn.query_drop(kill).await?;
                conn.disconnect().await
            };
            // Best effort: a statement that cannot be killed ends by itself.
            let _ = tokio::time::timeout(timeout, work).await;
            drop(killer);
        });
    }
}

impl MySql {
    async fn log_in(&self, opts: Arc<Opts>) -> Result<Connection, Cause> {
        let deadline = Deadline::new(self.options.remote.connect_timeout());
        let mut refused = self.address.unreachable("its name has no address");
        for opts in self.candidates(opts, deadline).await? {
            // The library panics on some authentication methods, which the server chooses, because
            // their features are not compiled in.
            match deadline.wait(AssertUnwindSafe(Conn::new(opts.clone())).catch_unwind()).await {
                Some(Ok(Ok(conn))) => {
                    let (address, runtime) = (Arc::clone(&self.address), Handle::current());
                    let (statements, has_answered, ended_early) = (HashMap::new(), false, false);
                    return Ok(Connection {
                        address,
                        conn,
                        opts,
                        statements,
                        has_answered,
                        ended_early,
                        runtime,
                    });
                }
                Some(Ok(Err(error))) => {
                    let bytes_max = self.options.remote.value_bytes_max;
                    refused = error::cause(&self.address, Phase::Connect, bytes_max, &error);
                    if !matches!(refused, Cause::Unreachable { .. }) {
                        break;
                    }
                }
                Some(Err(_)) => return Err(error::unknown_login()),
                None => return Err(timeout_cause(&self.address, &opts, deadline).await),
            }
        }
        Err(refused)
    }

    /// Connection options for each address of the server's name, so that a `KILL` can go to the
    /// server of the connection: on another server its number means another connection.
    async fn candidates(&self, opts: Arc<Opts>, deadline: Deadline) -> Result<Vec<Opts>, Cause> {
        if let Address::Unix(_) = *self.address {
            return Ok(vec![Opts::clone(&opts)]);
        }
        let found = self.address.look_up(deadline).await?;
        let way = |address: SocketAddr| {
            OptsBuilder::from_opts(Opts::clone(&opts)).resolved_ips(Some(vec![address.ip()])).into()
        };
        Ok(found.into_iter().map(way).collect())
    }
}

/// Closes a connection without reading the rest of its answer, which the library would do.
async fn close(conn: Conn) {
    // The result does not matter.
    let _ = tokio::time::timeout(DISCONNECT_TIMEOUT, conn.disconnect()).await;
}

/// The cause of a connection attempt that timed out. The library does not tell at which step.
async fn timeout_cause(address: &Address, opts: &Opts, deadline: Deadline) -> Cause {
    let ips = opts.resolved_ips().iter().flatten();
    let found: Vec<_> = ips.map(|ip| SocketAddr::new(*ip, opts.tcp_port())).collect();
    let answered = match address {
        Address::Unix(_) => true,
        Address::Tcp(host) => host.reach(&found, Deadline::new(PROBE_TIMEOUT)).await.is_ok(),
    };
    match answered {
        true => Cause::silent(address, deadline.timeout()),
        false => address.unreachable(deadline.spent("no answer")),
    }
}

/// A connection to a MySQL or MariaDB server.
pub(super) struct Connection {
    address: Arc<Address>,
    conn: Conn,
    /// The options that the connection was made with, with the address of its server.
    opts: Opts,
    /// The time at which each statement was last prepared again, by the statement's text.
    statements: HashMap<String, Renewal>,
    /// True if the connection has answered a statement.
    has_answered: bool,
    /// True if the connection ended before the answer to the last statement began.
    ended_early: bool,
    runtime: Handle,
}

/// The failure of a statement, by the point at which it occurred.
enum Failed {
    /// A failure detected by this driver.
    Known(Cause),
    /// An error before the answer began.
    Unanswered(Error),
    /// An error in the middle of the answer.
    Within(Error),
}

impl From<Cause> for Failed {
    fn from(cause: Cause) -> Self {
        Self::Known(cause)
    }
}

impl Connection {
    async fn select(&mut self, sql: &str, bound: &[Bytes], budget: &mut Budget) -> Result<Answer, Failed> {
        let statement = self.conn.prep(sql).await.map_err(Failed::Unanswered)?;
        let mut result =
            self.conn.exec_iter(&statement, parameters(bound)).await.map_err(Failed::Unanswered)?;
        let columns = result.columns().unwrap_or_default();
        let compared = columns.first().map(cell::compared).unwrap_or_default();
        let mut answer = Answer { columns: names(&columns), compared, rows: Vec::new() };
        while let Some(row) = result.next().await.map_err(Failed::Within)? {
            let cells = columns.iter().zip(row.unwrap()).map(|(column, value)| cell::cell(column, value));
            let cells: Vec<_> = cells.collect();
            budget.spend(&cells)?;
            answer.rows.push(cells);
        }
        // A procedure returns several results; the first one counts.
        result.drop_result().await.map_err(Failed::Within)?;
        Ok(answer)
    }

    async fn execute(&mut self, sql: &str, bound: &[Bytes]) -> Result<u64, Failed> {
        let statement = self.conn.prep(sql).await.map_err(Failed::Unanswered)?;
        let result = self.conn.exec_iter(&statement, parameters(bound)).await.map_err(Failed::Unanswered)?;
        let changed = result.affected_rows();
        result.drop_result().await.map_err(Failed::Within)?;
        Ok(changed)
    }

    /// Returns true if a statement failed because the server does not know it, or because it no
    /// longer fits its tables, and it may be run again at once. The statement was then closed, so
    /// that it is prepared again.
    async fn recovers<T>(&mut self, sql: &str, result: &Result<T, Failed>) -> bool {
        let is_outdated =
            matches!(result, Err(Failed::Unanswered(error)) if error::is_of_outdated_statement(error));
        if !is_outdated || !self.statements.entry(sql.to_owned()).or_default().allow() {
            return false;
        }
        // It is kept, so this asks the server for nothing.
        match self.conn.prep(sql).await {
            Ok(statement) => self.conn.close(statement).await.is_ok(),
            Err(_) => false,
        }
    }

    fn settle<T>(&mut self, result: Result<T, Failed>, bytes_max: u64) -> Result<T, Cause> {
        self.has_answered |= result.is_ok();
        let (error, is_begun) = match result {
            Ok(value) => return Ok(value),
            Err(Failed::Known(cause)) => return Err(cause),
            Err(Failed::Unanswered(error)) => (error, false),
            Err(Failed::Within(error)) => (error, true),
        };
        self.ended_early = self.has_answered && !is_begun && error::is_end(&error);
        Err(error::cause(&self.address, Phase::Statement, bytes_max, &error))
    }
}

fn names(columns: &[Column]) -> Vec<String> {
    columns.iter().map(|column| column.name_str().into_owned()).collect()
}

impl Link for Connection {
    fn is_closed(&self) -> bool {
        self.conn.is_disconnected()
    }

    fn ended_early(&self) -> bool {
        self.ended_early
    }

    fn remark(&self) -> Option<&'static str> {
        None
    }

    async fn version(&mut self) -> Result<String, Cause> {
        let version = self.conn.query_first("SELECT VERSION()").await.map_err(Failed::Unanswered);
        let version: Option<String> = self.settle(version, 0)?;
        let version: String = version.unwrap_or_default().chars().take(64).collect();
        // Such as `10.11.14-MariaDB-0+deb12u2` and `8.0.36`.
        Ok(match version.split_once("-MariaDB") {
            Some((version, _)) => format!("MariaDB {version}"),
            None => format!("MySQL {version}"),
        })
    }

    async fn prepare(&mut self, sql: &str) -> Result<(), Cause> {
        self.columns(sql).await.map(drop)
    }

    async fn columns(&mut self, sql: &str) -> Result<Vec<String>, Cause> {
        let prepared = self.conn.prep(sql).await.map_err(Failed::Unanswered);
        Ok(names(&self.settle(prepared, 0)?.columns()))
    }

    async fn ping(&mut self) -> Result<(), Cause> {
        let answered = self.conn.ping().await.map_err(Failed::Unanswered);
        self.settle(answered, 0)
    }

    async fn rows(&mut self, sql: &str, bound: Vec<Bytes>, budget: &mut Budget) -> Result<Answer, Cause> {
        let whole = *budget;
        let mut result = self.select(sql, &bound, budget).await;
        if !is_call(sql) && self.recovers(sql, &result).await {
            *budget = whole;
            result = self.select(sql, &bound, budget).await;
        }
        self.settle(result, whole.bytes_max)
    }

    async fn change(&mut self, sql: &str, bound: Vec<Bytes>) -> Result<u64, Cause> {
        let mut result = self.execute(sql, &bound).await;
        // A statement that failed has changed nothing, except that a procedure may have committed.
        if !is_call(sql) && self.recovers(sql, &result).await {
            result = self.execute(sql, &bound).await;
        }
        self.settle(result, PACKET_BYTES as u64)
    }
}

fn parameters(bound: &[Bytes]) -> Params {
    Params::Positional(bound.iter().map(|bytes| Value::Bytes(bytes.to_vec())).collect())
}
