//! The driver for PostgreSQL, with tokio-postgres.
//!
//! The library reads a connection in a task of its own, and does not end the statement of a dropped
//! call: the server continues, and its answer is discarded. So a connection within an answer is
//! ended here: a cancel request is sent on another connection, as the protocol requires, and the
//! task and its socket are dropped. The library also accepts answers of any size; the socket below
//! it ([`Metered`]) bounds them.
//!
//! A connection to the server itself keeps its statements prepared. The server answers such a
//! statement with the columns that it had when it was prepared, or refuses it (`cached plan must
//! not change result type`), so the columns need no comparison here. Through a pooler statements
//! are run as [`pooler`] describes.

mod cell;
mod clear;
mod error;
mod parameter;
mod pooler;
mod socket;
mod statement;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::TryStreamExt;
use sherwood_textfile::{Reader, Watched};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{CancelToken, Client, Config, Error, NoTls, RowStream, SimpleQueryMessage};

use super::Budget;
use super::answer::Answer;
use super::login;
use super::options::SqlOptions;
use super::pool::{Driver, Link};
use crate::remote::host::{Deadline, HostPort};
use crate::remote::sql::address::Address;
use crate::remote::template::is_call;
use crate::remote::tls;
use crate::{Cause, OpenCause};
use clear::{Clear, Watch};
use error::Phase;
use parameter::Parameter;
use socket::{Encrypt, Meter, Metered};
use statement::{Form, KeptStatement, names};

/// Default port of PostgreSQL.
pub(super) const PORT: u16 = 5432;
/// Bytes of an answer besides its rows: the description of a statement, notices, and the messages
/// of a login.
const BESIDE_BYTES: u64 = 256 << 10;

/// The remark in the report of a check that a pooler has accepted the connection.
const POOLED: &str =
    "a pooler, such as PgBouncer, is in between: statements have no names and are parsed each time";
const POOLED_CALL: &str = "a pooler, such as PgBouncer, is in between, through which no CALL is run; name the server itself, or use a function";

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
    /// True if the types of some columns have to be looked up before a statement is sent through a
    /// pooler.
    looks_up: AtomicBool,
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
                let server_name = tls::server_name(tls, host)?;
                Some(Encrypt { config, server_name, watch: Watch::default() })
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
        let (options, looks_up) = (options.clone(), AtomicBool::new(false));
        let server = Server { address, login, options, looks_up };
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
        let watch = Watch::default();
        meter.allow(BESIDE_BYTES);
        let log_in = async {
            let (client, task) = match login.encrypt.clone() {
                Some(encrypt) => {
                    let encrypt = Encrypt { watch: watch.clone(), ..encrypt };
                    let (client, connection) = login.config.connect_raw(socket, encrypt).await?;
                    (client, tokio::spawn(connection))
                }
                None => {
                    let socket = Clear::new(socket, watch.clone());
                    let (client, connection) = login.config.connect_raw(socket, NoTls).await?;
                    (client, tokio::spawn(connection))
                }
            };
            let is_direct = pooler::is_absent(&client).await?;
            Ok::<_, Error>((client, task, is_direct))
        };
        match deadline.wait(log_in).await {
            Some(Ok((client, task, is_direct))) => {
                if !is_direct {
                    watch.refuse_names(true);
                }
                let (server, runtime) = (Arc::clone(server), Handle::current());
                Ok(Connection {
                    server,
                    client,
                    task: Some(task),
                    meter,
                    watch,
                    is_direct,
                    has_looked_up: false,
                    statements: HashMap::new(),
                    has_answered: false,
                    is_begun: false,
                    ended_early: false,
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
    watch: Watch,
    /// True if the connection leads to the server itself and not to a pooler.
    is_direct: bool,
    /// True if the types of columns were looked up, through a pooler.
    has_looked_up: bool,
    /// Statements kept by the connection, by their text: one for each of at most
    /// [`LISTS_MAX`](crate::remote::LISTS_MAX) lengths of a key list, and the writes.
    statements: HashMap<String, KeptStatement>,
    /// True if the connection has answered a statement.
    has_answered: bool,
    /// True if the server has begun to answer the last statement.
    is_begun: bool,
    /// True if the connection ended before the answer to the last statement began.
    ended_early: bool,
    runtime: Handle,
}

impl Connection {
    /// Prepares for a statement with an answer of at most `bytes`.
    fn expect(&mut self, bytes: u64) {
        self.meter.allow(bytes);
        self.watch.expect();
        (self.is_begun, self.ended_early) = (false, false);
    }

    /// The cause of a call that failed with `error`, or with the error that ended the connection's
    /// task.
    async fn cause(&mut self, error: Error, bytes_max: u64) -> Cause {
        let address = &self.server.address;
        // The call's error says only that the connection is closed; its task has the reason.
        let ended = match self.task.take_if(|_| error.is_closed()) {
            Some(task) => task.await.ok().and_then(Result::err),
            None => None,
        };
        let error = ended.as_ref().unwrap_or(&error);
        let is_end = error::is_end(error, self.watch.has_come());
        self.ended_early = self.has_answered && !self.is_begun && is_end;
        if error::is_named_statement(error) {
            // The next connection looks up the types of columns first.
            self.server.looks_up.store(true, Ordering::Relaxed);
            self.ended_early = true;
        }
        error::cause(address, Phase::Statement, bytes_max, error)
    }

    /// Returns a statement, and true if it was prepared just now. A kept statement may be outdated.
    async fn statement(&mut self, sql: &str) -> Result<(Form, bool), Failed> {
        if let Some(form) = self.statements.get(sql).and_then(KeptStatement::form) {
            return Ok((form, false));
        }
        let form = match self.is_direct {
            true => Form::Named(self.client.prepare(sql).await?),
            false if is_call(sql) => return Err(Cause::Unsupported { reason: POOLED_CALL }.into()),
            false => Form::Unnamed(pooler::parameters(&self.client, sql).await?.into()),
        };
        self.statements.entry(sql.to_owned()).or_default().keep(form.clone());
        Ok((form, true))
    }

    /// Returns true if the statement `sql` may be prepared again now; this then happens at its next
    /// use.
    fn renew(&mut self, sql: &str) -> bool {
        let is_renewed = self.statements.get_mut(sql).is_some_and(KeptStatement::renew);
        if is_renewed {
            self.client.clear_type_cache();
        }
        is_renewed
    }

    /// Returns true if a statement failed with `error` because it is, or may be, outdated, and may
    /// be run again at once. The type of a parameter that the server cannot read may have changed.
    fn recovers(&mut self, sql: &str, error: &Error) -> bool {
        let may_be_outdated =
            error::is_of_outdated_statement(error) || error::named_parameter(error).is_some();
        may_be_outdated && !self.is_closed() && self.renew(sql)
    }

    /// Returns a statement with its parameters; a parameter is none if its bytes are not valid for
    /// its type. Before it returns none, it prepares a kept statement again, if allowed, since the
    /// type may have changed.
    async fn fitted(&mut self, sql: &str, bound: &[Bytes]) -> Result<Fitted, Failed> {
        let (form, is_new) = self.statement(sql).await?;
        let parameters = form.fit(bound);
        if is_new || parameters.iter().all(Option::is_some) || !self.renew(sql) {
            return Ok(Fitted { form, parameters, is_new });
        }
        let (form, is_new) = self.statement(sql).await?;
        let parameters = form.fit(bound);
        Ok(Fitted { form, parameters, is_new })
    }

    /// Looks up the types of a statement's columns, if an earlier connection has found some that
    /// require it.
    async fn look_up(&mut self, sql: &str, form: &Form) -> Result<(), Failed> {
        if self.is_direct || self.has_looked_up || !self.server.looks_up.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.has_looked_up = true;
        let looked_up = pooler::look_up(&self.client, &self.watch, sql, form.kinds()).await;
        looked_up.map_err(|error| {
            drop(self.task.take().map(AbortOnDrop));
            match error::is_of_pooler(&error) {
                true => Cause::Unsupported { reason: error::POOLED_TYPE }.into(),
                false => Failed::Told(error),
            }
        })
    }

    async fn described(&mut self, sql: &str) -> Result<Vec<String>, Failed> {
        let (form, _) = self.statement(sql).await?;
        self.look_up(sql, &form).await?;
        Ok(self.names(sql, &form).await?)
    }

    async fn select(&mut self, sql: &str, bound: &[Bytes], budget: &mut Budget) -> Result<Answer, Failed> {
        let mut fitted = self.fitted(sql, bound).await?;
        self.look_up(sql, &fitted.form).await?;
        let rows = loop {
            self.expect(budget.left.saturating_add(BESIDE_BYTES));
            match self.send(sql, &fitted.form, &fitted.parameters).await {
                Ok(rows) => break rows,
                // The server names the key that it cannot read: each round excludes one key more,
                // unless the type of a kept statement may be outdated.
                Err(error) => match error::named_parameter(&error) {
                    Some(_) if !fitted.is_new && self.renew(sql) => fitted = self.fitted(sql, bound).await?,
                    Some(number) if Parameter::exclude(&mut fitted.parameters, number) => {}
                    _ => return Err(error.into()),
                },
            }
        };
        let form = fitted.form;
        self.is_begun = true;
        let mut answer = Answer::default();
        let mut rows = pin!(rows);
        while let Some(row) = rows.try_next().await? {
            if answer.columns.is_empty() {
                answer.columns = names(row.columns());
                let compared = row.columns().first().map(|column| cell::compared(column.type_()));
                answer.compared = compared.unwrap_or_default();
            }
            let cells: Vec<_> = (0..row.len()).map(|at| row.try_get(at)).collect::<Result<_, _>>()?;
            budget.spend(&cells)?;
            answer.rows.push(cells);
        }
        if answer.columns.is_empty() {
            answer.columns = self.names(sql, &form).await?;
        }
        Ok(answer)
    }

    /// Runs a statement that returns rows, and awaits the start of its answer.
    ///
    /// A key that is not a value of the parameter's type is bound as null, which equals nothing.
    async fn send(
        &self,
        sql: &str,
        form: &Form,
        parameters: &[Option<Parameter>],
    ) -> Result<RowStream, Error> {
        let parameters = parameters.iter().map(|fit| fit.as_ref().unwrap_or(&Parameter::NULL));
        match form {
            Form::Named(statement) => self.client.query_raw(statement, parameters).await,
            Form::Unnamed(kinds) => {
                self.client.query_typed_raw(sql, parameters.zip(kinds.iter().cloned())).await
            }
        }
    }

    /// Returns the names of a statement's columns, for an answer without rows, which does not
    /// contain them.
    async fn names(&mut self, sql: &str, form: &Form) -> Result<Vec<String>, Error> {
        let kinds = match form {
            Form::Named(statement) => return Ok(names(statement.columns())),
            Form::Unnamed(kinds) => kinds,
        };
        let kept = self.statements.entry(sql.to_owned()).or_default();
        if let Some(columns) = &kept.columns {
            return Ok(columns.clone());
        }
        let columns = pooler::columns(&self.client, sql, kinds).await?;
        kept.columns = Some(columns.clone());
        Ok(columns)
    }

    async fn execute(&mut self, sql: &str, bound: &[Bytes]) -> Result<u64, Failed> {
        let Fitted { form, parameters, .. } = self.fitted(sql, bound).await?;
        let fit = |(kind, fit): (_, Option<Parameter>)| fit.ok_or_else(|| unfit(kind));
        let parameters = form.kinds().iter().zip(parameters).map(fit).collect::<Result<Vec<_>, _>>()?;
        Ok(match &form {
            Form::Named(statement) => self.client.execute_raw(statement, parameters).await?,
            Form::Unnamed(kinds) => {
                let parameters = parameters.iter().zip(kinds.iter());
                let typed: Vec<_> =
                    parameters.map(|(bound, kind)| (bound as &(dyn ToSql + Sync), kind.clone())).collect();
                self.client.execute_typed(sql, &typed).await?
            }
        })
    }

    async fn settle<T>(&mut self, result: Result<T, Failed>, bytes_max: u64) -> Result<T, Cause> {
        self.has_answered |= result.is_ok();
        match result {
            Ok(value) => Ok(value),
            Err(Failed::Known(cause)) => Err(cause),
            Err(Failed::Told(error)) => Err(self.cause(error, bytes_max).await),
        }
    }
}

/// A statement with its parameters.
struct Fitted {
    form: Form,
    /// The parameters; none where bytes are not valid for the parameter's type.
    parameters: Vec<Option<Parameter>>,
    /// True if the statement was prepared for this call.
    is_new: bool,
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

fn unfit(kind: &tokio_postgres::types::Type) -> Cause {
    Cause::Key { detail: format!("it, or its value, is none of type {kind}") }
}

impl Link for Connection {
    fn is_closed(&self) -> bool {
        self.task.is_none() || self.client.is_closed()
    }

    fn ended_early(&self) -> bool {
        self.ended_early
    }

    fn remark(&self) -> Option<&'static str> {
        (!self.is_direct).then_some(POOLED)
    }

    async fn version(&mut self) -> Result<String, Cause> {
        self.expect(BESIDE_BYTES);
        match self.client.simple_query("SHOW server_version").await {
            Ok(said) => {
                let version = said.iter().find_map(|said| match said {
                    SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten(),
                    _ => None,
                });
                Ok(format!("PostgreSQL {}", version.unwrap_or_default().chars().take(64).collect::<String>()))
            }
            Err(error) => Err(self.cause(error, 0).await),
        }
    }

    async fn prepare(&mut self, sql: &str) -> Result<(), Cause> {
        self.expect(BESIDE_BYTES);
        let prepared = self.statement(sql).await.map(drop);
        self.settle(prepared, 0).await
    }

    async fn columns(&mut self, sql: &str) -> Result<Vec<String>, Cause> {
        self.expect(BESIDE_BYTES);
        let columns = self.described(sql).await;
        self.settle(columns, 0).await
    }

    async fn ping(&mut self) -> Result<(), Cause> {
        self.expect(BESIDE_BYTES);
        let answered = self.client.check_connection().await;
        self.settle(answered.map_err(Failed::Told), 0).await
    }

    async fn rows(&mut self, sql: &str, bound: Vec<Bytes>, budget: &mut Budget) -> Result<Answer, Cause> {
        let whole = *budget;
        self.expect(whole.left.saturating_add(BESIDE_BYTES));
        let mut result = self.select(sql, &bound, budget).await;
        if !is_call(sql) && matches!(&result, Err(Failed::Told(error)) if self.recovers(sql, error)) {
            *budget = whole;
            self.expect(whole.left.saturating_add(BESIDE_BYTES));
            result = self.select(sql, &bound, budget).await;
        }
        self.settle(result, whole.bytes_max).await
    }

    async fn change(&mut self, sql: &str, bound: Vec<Bytes>) -> Result<u64, Cause> {
        self.expect(BESIDE_BYTES);
        let mut result = self.execute(sql, &bound).await;
        // A statement that failed has changed nothing, except that a procedure may have committed.
        if matches!(&result, Err(Failed::Told(error)) if !is_call(sql) && self.recovers(sql, error)) {
            self.expect(BESIDE_BYTES);
            result = self.execute(sql, &bound).await;
        }
        self.settle(result, BESIDE_BYTES).await
    }
}
