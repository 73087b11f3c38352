//! Runs statements through a pooler, such as PgBouncer.
//!
//! A pooler may run each statement, or each transaction, on another one of its connections to the
//! server. A statement that was prepared on one of them is unknown on the others, or its name
//! belongs to another client's statement. So through a pooler a statement has no name, and is
//! parsed, bound, described and executed in one round trip. The types of its parameters are
//! requested once, in one message of several SQL statements, which a pooler sends to a single
//! connection in each of its modes.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;

use futures_util::TryStreamExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::types::{Kind, Type};
use tokio_postgres::{CancelToken, Client, Error, SimpleQueryMessage};

use super::clear::{Clear, Watch};
use super::parameter::Parameter;
use super::statement::names;

/// Size in bytes of a request to cancel a statement: length, code, process and secret.
const CANCEL_BYTES: usize = 16;

/// True if `client` is connected to the server itself, and not to a pooler: the process that runs
/// statements is then the one that was named at login, to which cancel requests go.
///
/// # Errors
/// When the connection fails.
pub(super) async fn is_absent(client: &Client) -> Result<bool, Error> {
    let named = process(&client.cancel_token()).await;
    let running = match client.simple_query("SELECT pg_catalog.pg_backend_pid()").await {
        Ok(said) => cells(&said).next().and_then(|cell| cell?.parse().ok()),
        // A server that only speaks the protocol, and has no such function.
        Err(error) if error.as_db_error().is_some() && !client.is_closed() => None,
        Err(error) => return Err(error),
    };
    Ok(named.is_some() && named == running)
}

/// Returns the process that a cancel request names, from the bytes of such a request, since the
/// library does not expose it in any other way.
async fn process(token: &CancelToken) -> Option<i32> {
    let mut sent = Vec::new();
    // With TLS the library first asks the server for it, and is told yes.
    token.cancel_query_raw(tokio::io::join(&b"S"[..], &mut sent), AsItIs).await.ok()?;
    let request = sent.last_chunk::<CANCEL_BYTES>()?;
    let [_, _, _, _, _, _, _, _, process @ .., _, _, _, _] = *request;
    Some(i32::from_be_bytes(process))
}

/// Leaves an in-memory stream unencrypted where the library adds TLS.
struct AsItIs;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> TlsConnect<S> for AsItIs {
    type Stream = Clear<S>;
    type Error = Infallible;
    type Future = Ready<Result<Clear<S>, Infallible>>;

    fn connect(self, stream: S) -> Self::Future {
        ready(Ok(Clear::new(stream, Watch::default())))
    }
}

/// Returns the types of a statement's parameters; for a domain, the type that it is based on.
///
/// # Errors
/// When the server does not accept the statement, or the connection fails.
pub(super) async fn parameters(client: &Client, sql: &str) -> Result<Vec<Type>, Error> {
    let name = name();
    let said = client
        .simple_query(&format!(
            "PREPARE {name} AS {sql}
            ;WITH RECURSIVE kind (place, oid) AS (
                SELECT parameter.place, parameter.oid FROM pg_catalog.pg_prepared_statements AS statement,
                    pg_catalog.unnest(statement.parameter_types::pg_catalog.oid[])
                        WITH ORDINALITY AS parameter (oid, place)
                WHERE statement.name = '{name}'
                UNION ALL
                SELECT kind.place, domain.typbasetype FROM kind
                    JOIN pg_catalog.pg_type AS domain ON domain.oid = kind.oid AND domain.typtype = 'd')
            SELECT type.oid, type.typname FROM kind
                JOIN pg_catalog.pg_type AS type ON type.oid = kind.oid AND type.typtype <> 'd'
            ORDER BY kind.place;
            DEALLOCATE {name}"
        ))
        .await?;
    let kind = |(oid, name): (Option<&str>, Option<&str>)| {
        let oid = oid?.parse().ok()?;
        let other = || Type::new(name.unwrap_or_default().to_owned(), oid, Kind::Simple, String::new());
        Some(Type::from_oid(oid).unwrap_or_else(other))
    };
    let cells: Vec<_> = cells(&said).collect();
    Ok(cells.chunks_exact(2).filter_map(|pair| kind((pair[0], pair[1]))).collect())
}

/// Returns the names of the columns of a statement with parameters of these types, without running
/// it: the statement is joined to the right of a single row, and none of its own rows are
/// requested.
///
/// # Errors
/// As [`parameters`], and when the statement changes rows, which is not allowed inside another
/// statement.
pub(super) async fn columns(client: &Client, sql: &str, kinds: &[Type]) -> Result<Vec<String>, Error> {
    let sql = sql.trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    let joined = format!(
        "SELECT answer.* FROM (SELECT) AS one LEFT JOIN (SELECT * FROM ({sql}
        ) AS every LIMIT 0) AS answer ON true"
    );
    let nulls = kinds.iter().map(|kind| (Parameter::NULL, kind.clone()));
    let mut rows = pin!(client.query_typed_raw(&joined, nulls).await?);
    let mut columns = Vec::new();
    while let Some(row) = rows.try_next().await? {
        columns = names(row.columns());
    }
    Ok(columns)
}

/// Looks up the types of a statement's columns that the library does not know, such as
/// enumerations, so that `client` knows them afterwards. The library uses named statements for
/// this, so it happens in a transaction, during which a pooler keeps the same connection. The
/// statements are then removed.
///
/// # Errors
/// When the pooler does not support transactions, a name is taken, or the connection fails. The
/// connection must not be used afterwards.
pub(super) async fn look_up(client: &Client, watch: &Watch, sql: &str, kinds: &[Type]) -> Result<(), Error> {
    client.batch_execute("BEGIN").await?;
    let before = names_of_statements(client).await?;
    watch.refuse_names(false);
    columns(client, sql, kinds).await?;
    watch.refuse_names(true);
    let after = names_of_statements(client).await?;
    let added = after.iter().filter(|name| is_of_the_library(name) && !before.contains(name));
    let removal: String =
        added.map(|name| format!("DEALLOCATE \"{}\";", name.replace('"', "\"\""))).collect();
    client.batch_execute(&format!("{removal} COMMIT")).await
}

/// True for a name that the client library gives, such as `s1`. A pooler that tracks the statements
/// of its clients gives them names of its own and shares them between clients, so these must not be
/// removed.
fn is_of_the_library(name: &str) -> bool {
    name.strip_prefix('s')
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

async fn names_of_statements(client: &Client) -> Result<Vec<String>, Error> {
    let said = client.simple_query("SELECT name FROM pg_catalog.pg_prepared_statements").await?;
    Ok(cells(&said).flatten().map(str::to_owned).collect())
}

/// Returns a name for a statement within one message. It is random, since a message that fails in
/// the middle may leave its statement behind.
fn name() -> String {
    format!("sherwood_{:016x}", RandomState::new().hash_one(()))
}

/// Returns the cells of all rows in the answer to a message.
fn cells(said: &[SimpleQueryMessage]) -> impl Iterator<Item = Option<&str>> {
    said.iter().flat_map(|said| match said {
        SimpleQueryMessage::Row(row) => {
            (0..row.len()).map(|at| row.try_get(at).ok().flatten()).collect::<Vec<_>>()
        }
        _ => Vec::new(),
    })
}
