//! The driver for MySQL and MariaDB, with mysql_async.
//!
//! A call has a connection of its own, so a dropped call leaves it within an answer. The connection
//! is then closed, and since a server notices that only when it writes, a `KILL` of the statement
//! is sent on another connection. There are at most as many of these as of the others.
//!
//! Keys and values are bound as byte strings. MySQL compares a string with a number numerically, so
//! `1x` finds the row 1. A statement with `:keys` is not affected, because its first column has to
//! equal the key byte for byte.

mod cell;
mod error;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use mysql_async::prelude::Queryable;
use mysql_async::{ClientIdentity, Conn, Opts, OptsBuilder, Params, SslOpts, Value};
use rustls::RootCertStore;
use sherwood_textfile::{Reader, Watched};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::Budget;
use super::answer::Answer;
use super::login;
use super::options::SqlOptions;
use super::pool::{Driver, Link};
use crate::remote::host::{Deadline, HostPort};
use crate::remote::sql::address::Address;
use crate::remote::template::LISTS_MAX;
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
    /// The options of connections, with the login, by its files as they are.
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
    // The library uses the process's default provider. If one is installed already, it is the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
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
                    return Ok(Connection { address, conn, opts, runtime });
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
    runtime: Handle,
}

impl Connection {
    fn cause(&self, bytes_max: u64) -> impl Fn(mysql_async::Error) -> Cause + Send + use<> {
        let address = Arc::clone(&self.address);
        move |error| error::cause(&address, Phase::Statement, bytes_max, &error)
    }
}

impl Link for Connection {
    fn is_closed(&self) -> bool {
        self.conn.is_disconnected()
    }

    async fn version(&mut self) -> Result<String, Cause> {
        let cause = self.cause(0);
        let version: Option<String> = self.conn.query_first("SELECT VERSION()").await.map_err(cause)?;
        let version: String = version.unwrap_or_default().chars().take(64).collect();
        // Such as `10.11.14-MariaDB-0+deb12u2` and `8.0.36`.
        Ok(match version.split_once("-MariaDB") {
            Some((version, _)) => format!("MariaDB {version}"),
            None => format!("MySQL {version}"),
        })
    }

    async fn prepare(&mut self, sql: &str) -> Result<Vec<String>, Cause> {
        let cause = self.cause(0);
        let statement = self.conn.prep(sql).await.map_err(cause)?;
        Ok(statement.columns().iter().map(|column| column.name_str().into_owned()).collect())
    }

    async fn ping(&mut self) -> Result<(), Cause> {
        let cause = self.cause(0);
        self.conn.ping().await.map_err(cause)
    }

    async fn rows(&mut self, sql: &str, bound: Vec<Bytes>, budget: &mut Budget) -> Result<Answer, Cause> {
        let cause = self.cause(budget.bytes_max);
        let statement = self.conn.prep(sql).await.map_err(&cause)?;
        let mut result = self.conn.exec_iter(&statement, parameters(&bound)).await.map_err(&cause)?;
        let columns = result.columns().unwrap_or_default();
        let mut answer = Answer {
            columns: columns.iter().map(|column| column.name_str().into_owned()).collect(),
            rows: Vec::new(),
        };
        while let Some(row) = result.next().await.map_err(&cause)? {
            let cells = columns.iter().zip(row.unwrap()).map(|(column, value)| cell::cell(column, value));
            let cells: Vec<_> = cells.collect();
            budget.spend(&cells)?;
            answer.rows.push(cells);
        }
        // A procedure returns several results; the first one counts.
        result.drop_result().await.map_err(&cause)?;
        Ok(answer)
    }

    async fn change(&mut self, sql: &str, bound: Vec<Bytes>) -> Result<u64, Cause> {
        let cause = self.cause(PACKET_BYTES as u64);
        let statement = self.conn.prep(sql).await.map_err(&cause)?;
        let result = self.conn.exec_iter(&statement, parameters(&bound)).await.map_err(&cause)?;
        let changed = result.affected_rows();
        result.drop_result().await.map_err(&cause)?;
        Ok(changed)
    }
}

fn parameters(bound: &[Bytes]) -> Params {
    Params::Positional(bound.iter().map(|bytes| Value::Bytes(bytes.to_vec())).collect())
}
