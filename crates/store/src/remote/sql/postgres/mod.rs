//! The driver for PostgreSQL, with tokio-postgres.
//!
//! The library reads a connection in a task of its own, and does not end the statement of a dropped
//! call: the server continues, and its answer is discarded. So a connection within an answer is
//! ended here: a cancel request is sent on another connection, as the protocol requires, and the
//! task and its socket are dropped. The library also accepts answers of any size; the socket below
//! it ([`Metered`]) bounds them.

mod cell;
mod error;
mod parameter;
mod socket;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use sherwood_textfile::{Reader, Watched};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{CancelToken, Client, Config, Error, NoTls, SimpleQueryMessage, Statement};

use super::Budget;
use super::answer::{Answer, Cell};
use super::login;
use super::options::SqlOptions;
use super::pool::{Driver, Link};
use crate::remote::host::{Deadline, HostPort};
use crate::remote::sql::address::Address;
use crate::remote::tls;
use crate::{Cause, OpenCause};
use error::Phase;
use parameter::Parameter;
use socket::{Encrypt, Meter, Metered};

/// Default port of PostgreSQL.
pub(super) const PORT: u16 = 5432;
/// Bytes of an answer besides its rows: the description of a statement, notices, and the messages
/// of a login.
const BESIDE_BYTES: u64 = 256 << 10;

/// Makes connections to a PostgreSQL server.
pub(super) struct Postgres {
    server: Arc<Server>,
    /// Permits for the connections that send a cancel request.
    cancels: Arc<Semaphore>,
}

/// The address and login of a PostgreSQL server.
struct Server {
    address: Address,
    login: Watched<Login>,
    options: SqlOptions,
}

/// The login of a connection.
struct Login {
    config: Config,
    encrypt: Option<Encrypt>,
}

impl Login {
    /// Reads the files of the login to the server at `address`.
    fn read(address: &Address, options: &SqlOptions, reader: &mut Reader) -> Result<Self, OpenCause> {
        let mut config = Config::new();
        config.user(&options.user).dbname(&options.database).application_name("sherwood");
        if let Some(place) = &options.password {
            config.password(place.password(reader)?);
        }
        let encrypt = match (&options.remote.tls, address) {
            (Some(tls), Address::Tcp(HostPort { host, .. })) => {
                let config = Arc::new(tls::client_config(tls, reader)?);
                Some(Encrypt { config, server_name: tls::server_name(tls, host)? })
            }
            // As in PostgreSQL's own clients, a UNIX socket is not encrypted.
            _ => None,
        };
        config.ssl_mode(if encrypt.is_some() { SslMode::Require } else { SslMode::Disable });
        Ok(Self { config, encrypt })
    }
}

impl Postgres {
    pub(super) fn new(options: &SqlOptions) -> Result<Self, OpenCause> {
        let address = Address::parse(&options.address, PORT)?;
        let login = {
            let (address, options) = (address.clone(), options.clone());
            Watched::open(move |reader: &mut Reader| Login::read(&address, &options, reader))?
        };
        let cancels = Arc::new(Semaphore::new(options.remote.connections_max.into()));
        let server = Server { address, login, options: options.clone() };
        Ok(Self { server: Arc::new(server), cancels })
    }
}

impl Driver for Postgres {
    type Link = Connection;

    async fn connect(&self) -> Result<Connection, Cause> {
        login::retried(&self.server.login, |login| self.log_in(login)).await
    }

    fn abandon(&self, link: Connection) {
        let Connection { server, client, task, runtime, .. } = link;
        let permit = Arc::clone(&self.cancels).try_acquire_owned();
        let (token, end) = (client.cancel_token(), task.map(AbortOnDrop));
        let Ok(permit) = permit else { return };
        runtime.spawn(async move {
            // The server forgets the connection's key when it is closed, so it is closed after the
            // request.
            let _connection = (client, end);
            // Best effort: a statement that cannot be cancelled ends by itself.
            let _ =
                tokio::time::timeout(server.options.remote.connect_timeout(), cancel(&server, token)).await;
            drop(permit);
        });
    }
}

impl Postgres {
    async fn log_in(&self, login: Arc<Login>) -> Result<Connection, Cause> {
        let server = &self.server;
        let deadline = Deadline::new(server.options.remote.connect_timeout());
        let (socket, meter) = Metered::new(socket::dial(&server.address, deadline).await?);
        meter.allow(BESIDE_BYTES);
        let log_in = async {
            Ok::<_, Error>(match login.encrypt.clone() {
                Some(encrypt) => {
                    let (client, connection) = login.config.connect_raw(socket, encrypt).await?;
                    (client, tokio::spawn(connection))
                }
                None => {
                    let (client, connection) = login.config.connect_raw(socket, NoTls).await?;
                    (client, tokio::spawn(connection))
                }
            })
        };
        match deadline.wait(log_in).await {
            Some(Ok((client, task))) => {
                let (server, runtime) = (Arc::clone(server), Handle::current());
                Ok(Connection {
                    server,
                    client,
                    task: Some(task),
                    meter,
                    statements: HashMap::new(),
                    runtime,
                })
            }
            Some(Err(error)) => Err(error::cause(&server.address, Phase::Connect, 0, &error)),
            None => Err(Cause::silent(&server.address, deadline.timeout())),
        }
    }
}

async fn cancel(server: &Server, token: CancelToken) -> Option<()> {
    let socket =
        socket::dial(&server.address, Deadline::new(server.options.remote.connect_timeout())).await.ok()?;
    let (socket, meter) = Metered::new(socket);
    meter.allow(BESIDE_BYTES);
    match server.login.current().encrypt.clone() {
        Some(encrypt) => token.cancel_query_raw(socket, encrypt).await.ok(),
        None => token.cancel_query_raw(socket, NoTls).await.ok(),
    }
}

/// The task that reads a connection; dropping it aborts the task and closes the socket.
struct AbortOnDrop(JoinHandle<Result<(), Error>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection to a PostgreSQL server. When it is dropped, its task disconnects and ends.
pub(super) struct Connection {
    server: Arc<Server>,
    client: Client,
    /// The task that reads the connection's socket; none once its result was taken.
    task: Option<JoinHandle<Result<(), Error>>>,
    meter: Meter,
    /// Prepared statements of the connection by their text: at most
    /// [`LISTS_MAX`](crate::remote::LISTS_MAX) lengths of a key list, and the writes.
    statements: HashMap<String, Statement>,
    runtime: Handle,
}

impl Connection {
    /// The cause of a call that failed with `error`, or with the error that ended the connection's
    /// task.
    async fn cause(&mut self, error: Error, bytes_max: u64) -> Cause {
        let address = &self.server.address;
        // The call's error says only that the connection is closed; its task has the reason.
        let ended = match self.task.take_if(|_| error.is_closed()) {
            Some(task) => task.await.ok().and_then(Result::err),
            None => None,
        };
        error::cause(address, Phase::Statement, bytes_max, ended.as_ref().unwrap_or(&error))
    }

    async fn statement(&mut self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    async fn select(&mut self, sql: &str, bound: Vec<Bytes>, budget: &mut Budget) -> Result<Answer, Failed> {
        let statement = self.statement(sql).await?;
        // A key that is not a value of the parameter's type is bound as null, which equals nothing.
        let fit = |(kind, bytes)| Parameter::new(kind, bytes).unwrap_or(Parameter::NULL);
        let parameters: Vec<_> = statement.params().iter().zip(bound).map(fit).collect();
        let mut answer = Answer { columns: names(&statement), rows: Vec::new() };
        let mut rows = pin!(self.client.query_raw(&statement, parameters).await?);
        let mut wrong = None;
        while let Some(row) = rows.try_next().await? {
            let cells = (0..row.len()).map(|at| row.try_get::<_, Cell>(at));
            match cells.collect::<Result<Vec<_>, _>>() {
                Ok(cells) => {
                    budget.spend(&cells)?;
                    answer.rows.push(cells);
                }
                // The meter would count the remaining rows for the next statement, so they are
                // read.
                Err(error) => wrong = Some(unread(&error)),
            }
        }
        wrong.map_or(Ok(answer), |cause| Err(cause.into()))
    }

    async fn execute(&mut self, sql: &str, bound: Vec<Bytes>) -> Result<u64, Failed> {
        let statement = self.statement(sql).await?;
        let fit = |(kind, bytes)| Parameter::new(kind, bytes).ok_or_else(|| unfit(kind));
        let parameters: Vec<_> = statement.params().iter().zip(bound).map(fit).collect::<Result<_, _>>()?;
        Ok(self.client.execute_raw(&statement, parameters).await?)
    }

    async fn settle<T>(&mut self, result: Result<T, Failed>, bytes_max: u64) -> Result<T, Cause> {
        match result {
            Ok(value) => Ok(value),
            Err(Failed::Known(cause)) => Err(cause),
            Err(Failed::Told(error)) => Err(self.cause(error, bytes_max).await),
        }
    }
}

fn names(statement: &Statement) -> Vec<String> {
    statement.columns().iter().map(|column| column.name().to_owned()).collect()
}

/// The failure of a statement, detected by this driver or by the library.
enum Failed {
    Known(Cause),
    Told(Error),
}

impl From<Cause> for Failed {
    fn from(cause: Cause) -> Self {
        Self::Known(cause)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

/// The cause of a failed conversion of a column whose type is not supported.
fn unread(error: &Error) -> Cause {
    let detail = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    Cause::Statement { detail }
}

fn unfit(kind: &tokio_postgres::types::Type) -> Cause {
    Cause::Key { detail: format!("it, or its value, is none of type {kind}") }
}

impl Link for Connection {
    fn is_closed(&self) -> bool {
        self.task.is_none() || self.client.is_closed()
    }

    async fn version(&mut self) -> Result<String, Cause> {
        self.meter.allow(BESIDE_BYTES);
        match self.client.simple_query("SHOW server_version").await {
            Ok(said) => {
                let version = said.iter().find_map(|said| match said {
                    SimpleQueryMessage::Row(row) => row.get(0),
                    _ => None,
                });
                Ok(format!("PostgreSQL {}", version.unwrap_or_default().chars().take(64).collect::<String>()))
            }
            Err(error) => Err(self.cause(error, 0).await),
        }
    }

    async fn prepare(&mut self, sql: &str) -> Result<Vec<String>, Cause> {
        self.meter.allow(BESIDE_BYTES);
        match self.statement(sql).await {
            Ok(statement) => Ok(names(&statement)),
            Err(error) => Err(self.cause(error, 0).await),
        }
    }

    async fn ping(&mut self) -> Result<(), Cause> {
        self.meter.allow(BESIDE_BYTES);
        match self.client.check_connection().await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.cause(error, 0).await),
        }
    }

    async fn rows(&mut self, sql: &str, bound: Vec<Bytes>, budget: &mut Budget) -> Result<Answer, Cause> {
        self.meter.allow(budget.left.saturating_add(BESIDE_BYTES));
        let bytes_max = budget.bytes_max;
        let result = self.select(sql, bound, budget).await;
        self.settle(result, bytes_max).await
    }

    async fn change(&mut self, sql: &str, bound: Vec<Bytes>) -> Result<u64, Cause> {
        self.meter.allow(BESIDE_BYTES);
        let result = self.execute(sql, bound).await;
        self.settle(result, BESIDE_BYTES).await
    }
}
