//! Converts errors of PostgreSQL and of its client library to causes.

use std::error::Error as _;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity};

use super::clear::Named;
use super::socket::Exceeded;
use crate::remote::sql::address::{Address, is_end_within};
use crate::remote::tls;
use crate::{Cause, escape};

/// The operation in progress when an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A connection was being opened.
    Connect,
    /// A statement was running.
    Statement,
}

/// The cause of a call that failed with `error`; `bytes_max` is the bound of its answer.
pub(super) fn cause(address: &Address, phase: Phase, bytes_max: u64, error: &Error) -> Cause {
    if let Some(error) = error.as_db_error() {
        return of_server(address, phase, error);
    }
    if error.is_closed() {
        return address.reset("it closed the connection");
    }
    let said = error.to_string();
    let detail = error.source().map_or_else(|| said.clone(), |source| format!("{said}: {source}"));
    let untrusted = |detail| Cause::Certificate { address: address.to_string(), detail };
    let protocol = |detail| Cause::Protocol { address: address.to_string(), expected: "PostgreSQL", detail };
    if let Some(error) = error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
        return match (error.kind(), error.get_ref()) {
            (_, Some(inner)) if inner.is::<Exceeded>() && phase == Phase::Connect => protocol(detail),
            (_, Some(inner)) if inner.is::<Exceeded>() => Cause::TooLarge { bytes_max },
            (_, Some(inner)) if inner.is::<Named>() => Cause::Unsupported { reason: POOLED_TYPE },
            (_, Some(inner)) if inner.is::<rustls::Error>() => {
                untrusted(inner.downcast_ref().map_or_else(|| inner.to_string(), tls::words))
            }
            (io::ErrorKind::Other, _) if phase == Phase::Statement && is_end_within(error) => {
                address.reset(error)
            }
            (io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Other, _) => {
                protocol(detail)
            }
            _ => address.reset(error),
        };
    }
    // The library exposes the kind of its errors only as text.
    match said.as_str() {
        "error performing TLS handshake" => untrusted(detail),
        // A missing password, or an authentication method that the library does not support.
        "authentication error" | "invalid configuration" if phase == Phase::Connect => {
            Cause::Credentials { detail }
        }
        said if said.starts_with("expected ") || said.starts_with("error serializing") => {
            Cause::Statement { detail }
        }
        _ => protocol(detail),
    }
}

/// The reason why the types of columns are not looked up through a pooler.
pub(super) const POOLED_TYPE: &str = "a pooler, such as PgBouncer, is in between, and columns of enumerations, citext and other types of the \
     database are not read through it in statement mode; cast them, as in `column::text`, or use its transaction mode";

/// True if the connection failed because it was about to send a statement with a name to a pooler.
pub(super) fn is_named_statement(error: &Error) -> bool {
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    io.and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<Named>())
}

/// True if `error` comes from the pooler, or from another client's statement on one of the pooler's
/// connections.
pub(super) fn is_of_pooler(error: &Error) -> bool {
    let code = error.code().map_or("", |code| code.code());
    error.is_closed() || ["08P01", "42P05"].contains(&code)
}

/// True if a kept statement may have failed with `error` because it is outdated: the types of its
/// tables have changed, or the server does not know the statement, or knows another one by its
/// name.
pub(super) fn is_of_outdated_statement(error: &Error) -> bool {
    let Some(error) = error.as_db_error().filter(|error| !is_fatal(error)) else { return false };
    match error.code().code() {
        "0A000" => error.routine() == Some("RevalidateCachedQuery"),
        // No statement of this name, another one of this name, other parameters than expected.
        "26000" | "42P05" | "08P01" => true,
        // No operator or several for these types, a column of another type, no such cast, no such
        // type.
        "42883" | "42725" | "42804" | "42846" | "42704" => true,
        // A type that was dropped; internal errors are not translated.
        "XX000" => error.message().starts_with("cache lookup failed"),
        _ => false,
    }
}

/// True if `error` means that the connection ended before any byte of the answer arrived;
/// `has_come` is true if one did. A server that ends an idle connection reports this with an error
/// of its own.
pub(super) fn is_end(error: &Error, has_come: bool) -> bool {
    if let Some(error) = error.as_db_error() {
        // Ended by an administrator, by a crash, or idle for too long. A pooler's own FATAL errors
        // are about the request, which is not sent again at once to a server in trouble.
        return is_fatal(error) && ["57P01", "57P02", "57P05"].contains(&error.code().code());
    }
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let is_reset = io.is_some_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof
        )
    });
    (error.is_closed() || is_reset) && !has_come
}

fn is_fatal(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic)) || error.severity() == "FATAL"
}

/// The part of a PostgreSQL error that is quoted. Its `DETAIL` is not, since it contains rows and
/// keys; names of constraints, tables and columns are in the message as well. Messages of class 22
/// quote the invalid value. Hints are added for errors of statements.
fn message(code: &str, message: &str, hint: Option<&str>) -> String {
    let unfit = |what: &str| what.to_owned();
    match code {
        "22001" => unfit("a text is too long for its column"),
        "22003" | "22008" => unfit("a value is out of its type's range"),
        "22012" => unfit("division by zero"),
        "22P02" | "22007" => unfit("a text is no value of the type that is wanted"),
        "22P05" | "22021" => unfit("a text has characters that the character set lacks"),
        _ if code.starts_with("22") => unfit("a value does not fit"),
        _ => {
            let hint =
                hint.filter(|_| code.starts_with("42")).map(|hint| format!(" ({})", escape::message(hint)));
            escape::message(message) + &hint.unwrap_or_default()
        }
    }
}

/// The cause of an error that the server returned, by SQLSTATE: five characters, the first two of
/// which are the class.
fn of_server(address: &Address, phase: Phase, error: &DbError) -> Cause {
    let code = error.code().code();
    let detail =
        || format!("{} (SQLSTATE {})", message(code, error.message(), error.hint()), escape::message(code));
    let missing = |what| Cause::Missing { what, detail: detail() };
    match code {
        "42501" => Cause::Credentials { detail: detail() },
        "42P01" => missing("a table"),
        "42703" => missing("a column"),
        "3D000" => missing("a database"),
        "3F000" => missing("a schema"),
        "42883" => missing("a function or operator"),
        "42704" => missing("a type or other object"),
        // No more connections; starting up; a lock with NOWAIT, a deadlock, a serialization
        // failure.
        "53300" | "57P03" | "55P03" | "40P01" | "40001" => Cause::Busy { detail: detail() },
        // The `statement_timeout`, or an administrator: the statement is rolled back.
        "57014" => Cause::Busy { detail: detail() },
        "25006" => Cause::WrongServer { detail: detail(), remedy: "name its primary for writes" },
        // Text that is not of the parameter's type: not a number, a date or a value of an
        // enumeration; or text that the character set of the database, or any, lacks.
        "22P02" | "22003" | "22007" | "22008" | "22P05" | "22021" => Cause::Key { detail: detail() },
        // An administrator ended the connection, or the server crashed.
        "57P01" | "57P02" | "57P04" | "57P05" => address.reset(detail()),
        // The prepared statement no longer fits the tables, or was dropped: the next connection
        // prepares it again.
        "26000" => Cause::Server { detail: detail() },
        // A pooler has one code for all the reasons for which it refuses a client.
        "08P01" if phase == Phase::Connect => match error.message() {
            said if said.contains("authentication failed") || said.contains("no such user") => {
                Cause::Credentials { detail: detail() }
            }
            said if said.contains("no such database") => missing("a database"),
            _ => Cause::Server { detail: detail() },
        },
        "0A000" if error.routine() == Some("RevalidateCachedQuery") => Cause::Server { detail: detail() },
        _ => match &code[..2.min(code.len())] {
            "28" => Cause::Credentials { detail: detail() },
            // The last class is raised by functions and triggers.
            "0A" | "21" | "22" | "23" | "42" | "44" | "P0" => Cause::Statement { detail: detail() },
            _ => Cause::Server { detail: detail() },
        },
    }
}

/// Returns the number, from 1, of the parameter that the server could not read before it ran the
/// statement; none if `error` does not name one.
pub(super) fn named_parameter(error: &Error) -> Option<usize> {
    let error = error.as_db_error().filter(|error| error.code().code().starts_with("22"))?;
    parameter_of(error.where_()?)
}

/// Parses the context `unnamed portal parameter $2`, in any language, after which some versions
/// append `= '...'`. Contexts with values, which the server adds to errors of a running statement
/// too, are not accepted.
fn parameter_of(context: &str) -> Option<usize> {
    let context = context.strip_suffix(" = '...'").unwrap_or(context);
    let (before, number) = context.split_once('$')?;
    let is_list = before.trim_end().ends_with([':', '：']) || before.contains(['\n', '\'']);
    number.parse().ok().filter(|_| !is_list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_messages_that_quote_values_are_replaced() {
        let quoting = "invalid input syntax for type integer: \"hunter2\"";
        for code in ["22P02", "22007", "22003", "22008", "22001", "22021", "22023"] {
            let said = message(code, quoting, Some("try hunter2"));
            assert!(!said.contains("hunter2") && !said.is_empty(), "{code}: {said}");
        }
    }

    #[test]
    fn number_of_an_unreadable_parameter_is_parsed_from_the_context_of_a_postgres_error() {
        assert_eq!(parameter_of("unnamed portal parameter $3"), Some(3));
        assert_eq!(parameter_of("unnamed portal parameter $12 = '...'"), Some(12));
        assert_eq!(parameter_of("unbenanntes Portal, Parameter $2 = '...'"), Some(2));
        for other in [
            "unnamed portal with parameters: $1 = '...'",
            "unnamed portal with parameters: $1 = '7', $2 = '...'",
            "unnamed portal parameter $1 = '$7'",
            "PL/pgSQL function shop$1(integer) line 1 at RETURN",
            "PL/pgSQL function f(integer) line 1\nunnamed portal parameter $1",
            "SQL function \"f\" statement 1",
            "$",
            "",
        ] {
            assert_eq!(parameter_of(other), None, "{other}");
        }
    }

    #[test]
    fn postgres_messages_are_quoted_with_hints_for_statements() {
        let raised = "new row for relation \"item\" violates check constraint \"item_price_check\"";
        assert_eq!(message("23514", raised, Some("hunter2")), raised);
        assert_eq!(message("42703", "no b", Some("a?")), "no b (a?)");
        assert_eq!(message("42P01", "a\nb", None), "a\\nb");
    }
}
