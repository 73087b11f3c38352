//! Converts errors of MySQL and of its client library to causes.

use std::io;

use mysql_async::{DriverError, Error, IoError, ServerError};

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
    match error {
        Error::Server(error) => of_server(address, error),
        Error::Io(IoError::Tls(error)) => {
            Cause::Certificate { address: address.to_string(), detail: error.to_string() }
        }
        Error::Io(IoError::Io(error)) => of_io(address, phase, bytes_max, error),
        Error::Driver(DriverError::PacketTooLarge) if phase == Phase::Statement => {
            Cause::TooLarge { bytes_max }
        }
        Error::Driver(DriverError::ConnectionClosed) => address.reset("it closed the connection"),
        Error::Driver(DriverError::NoClientSslFlagFromServer) => Cause::Certificate {
            address: address.to_string(),
            detail: "the server offers no TLS: set it up there, or leave `tls` out".to_owned(),
        },
        Error::Driver(
            error @ (DriverError::UnknownAuthPlugin { .. }
            | DriverError::MysqlOldPasswordDisabled
            | DriverError::CleartextPluginDisabled
            | DriverError::InvalidParsecSalt),
        ) => Cause::Credentials { detail: error.to_string() },
        Error::Driver(
            error @ (DriverError::StmtParamsMismatch { .. }
            | DriverError::MixedParams
            | DriverError::Params(_)),
        ) => Cause::Statement { detail: error.to_string() },
        error => protocol(address, error),
    }
}

/// True if a kept statement failed with `error` because it is outdated: the server does not know
/// it, or could not adapt it to a changed table.
pub(super) fn is_of_outdated_statement(error: &Error) -> bool {
    matches!(error, Error::Server(ServerError { code: 1243 | 1615, .. }))
}

/// True if `error`, which occurred before an answer, means that the connection ended. A server that
/// ends an idle connection reports this with an error of its own.
pub(super) fn is_end(error: &Error) -> bool {
    match error {
        // Shutting down; the connection was killed, or idle for too long.
        Error::Server(error) => matches!(error.code, 1053 | 1079 | 1927 | 3169 | 4031),
        Error::Io(IoError::Io(error)) => matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof
        ),
        Error::Driver(error) => matches!(error, DriverError::ConnectionClosed),
        _ => false,
    }
}

/// The cause when a MySQL server requires an unsupported authentication method.
pub(super) fn unknown_login() -> Cause {
    let detail = "it wants the password in a way that is not known here; of MySQL's and MariaDB's, \
                  caching_sha2_password, mysql_native_password and ed25519 are";
    Cause::Credentials { detail: detail.to_owned() }
}

fn protocol(address: &Address, detail: impl std::fmt::Display) -> Cause {
    Cause::Protocol { address: address.to_string(), expected: "MySQL", detail: detail.to_string() }
}

fn of_io(address: &Address, phase: Phase, bytes_max: u64, error: &io::Error) -> Cause {
    // The error of rustls about a certificate is inside.
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return Cause::Certificate { address: address.to_string(), detail: tls::words(error) };
    }
    match (error.kind(), phase) {
        // Errors of the codec have no kind of their own; a correct server can cause only this one.
        (io::ErrorKind::Other, Phase::Statement) if is_too_large(error) => Cause::TooLarge { bytes_max },
        (io::ErrorKind::Other, Phase::Statement) if is_end_within(error) => address.reset(error),
        (io::ErrorKind::Other | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput, _) => {
            protocol(address, error)
        }
        (_, Phase::Connect) => address.io(error),
        (_, Phase::Statement) => address.reset(error),
    }
}

fn is_too_large(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.to_string().contains("larger than max_allowed_packet"))
}

/// The cause of an error that the server returned. Codes are MySQL's; MariaDB's are the same below
/// 1900, and its own from there.
fn of_server(address: &Address, error: &ServerError) -> Cause {
    let ServerError { code, message, state } = error;
    let detail = || format!("{} (error {code})", escape::message(&without_values(*code, state, message)));
    let missing = |what| Cause::Missing { what, detail: detail() };
    let read_only = || Cause::WrongServer { detail: detail(), remedy: "name its primary for writes" };
    let hidden = |what| Cause::Credentials {
        detail: format!("{}, which it says of a {what} that does not exist, too", detail()),
    };
    match code {
        // Too many connections, too many of this user, a resource's limit for this user.
        1040 | 1203 | 1226 => Cause::Busy { detail: detail() },
        // A lock timeout, a deadlock, a lock with NOWAIT.
        1205 | 1213 | 3572 => Cause::Busy { detail: detail() },
        // The statement's time limit, of MariaDB and of MySQL: the statement is rolled back.
        1969 | 3024 => Cause::Busy { detail: detail() },
        // No privilege for the database, the table or the column. A user without other privileges
        // does not learn if it exists.
        1044 => hidden("database"),
        1142 => hidden("table"),
        1143 => hidden("column"),
        // Wrong user or password; a password in an old form, or that has to be changed; TLS
        // required; no privilege for the procedure; another privilege missing.
        1045 | 1227 | 1251 | 1275 | 1370 | 1698 | 1820 | 1862 | 3118 | 3159 | 3955 => {
            Cause::Credentials { detail: detail() }
        }
        // Started with --read-only, or in such a mode or transaction; the first code is used for
        // other options as well.
        1290 if message.contains("read-only") || message.contains("read_only") => read_only(),
        1792 | 1836 => read_only(),
        1049 => missing("a database"),
        1051 | 1109 | 1146 => missing("a table"),
        1054 => missing("a column"),
        1305 => missing("a procedure or function"),
        // Shutting down, or the connection or statement was killed.
        1053 | 1079 | 1317 | 1927 | 3169 | 4031 => address.reset(detail()),
        // The host is blocked after too many failed connections, or not allowed.
        1129 | 1130 => Cause::Credentials { detail: detail() },
        // A key that is not text in the column's character set, or in any: codes of MariaDB and
        // MySQL.
        1267 | 1270 | 1271 | 1300 | 3854 | 3988 => Cause::Key { detail: detail() },
        // Unsupported in prepared statements.
        1210 | 1295 | 1390 => Cause::Statement { detail: detail() },
        // Data out of range, a constraint, syntax or access rules, and errors signalled by
        // triggers.
        _ if ["22", "23", "42", "21", "45"].iter().any(|class| state.starts_with(class)) => {
            Cause::Statement { detail: detail() }
        }
        // The same errors without a SQLSTATE of their own.
        1264 | 1265 | 1292 | 1364 | 1366 | 1406 => Cause::Statement { detail: detail() },
        _ => Cause::Server { detail: detail() },
    }
}

/// Removes the keys and values that a server's error message quotes, but keeps names of columns and
/// indexes.
fn without_values(code: u16, state: &str, message: &str) -> String {
    let told = match code {
        // These quote names only: out of range, truncated, too long for a column.
        1264 | 1265 | 1406 => return message.to_owned(),
        // The value is not quoted, so its start cannot be found.
        1526 => return "Table has no partition for the value".to_owned(),
        // A duplicate, with the index's name at the end.
        1062 | 1586 => " for key ",
        // Incorrect, illegal and truncated values, text in another character set, expressions out
        // of range.
        1292 | 1300 | 1366 | 1367 | 1411 | 1525 | 1690 | 3854 | 3988 => " for column ",
        _ if state.starts_with("22") => " for column ",
        _ => return message.to_owned(),
    };
    let before = message.split(['\'', '"']).next().unwrap_or_default().trim_end_matches([' ', ':']);
    let name = message.rsplit_once(told).map(|(_, name)| name).filter(|name| name.starts_with(['\'', '`']));
    name.map_or_else(|| before.to_owned(), |name| format!("{before}{told}{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mysql_messages_lose_quoted_values_and_keep_names_of_columns() {
        for (code, state, message, expected) in [
            (
                1062,
                "23000",
                "Duplicate entry 'hunter2' for key 'PRIMARY'",
                "Duplicate entry for key 'PRIMARY'",
            ),
            (
                1586,
                "23000",
                "Duplicate entry 'it's for key 'hunter2' for key 'item.code'",
                "Duplicate entry for key 'item.code'",
            ),
            (
                1366,
                "22007",
                "Incorrect decimal value: 'hunter2' for column `s`.`t`.`c` at row 1",
                "Incorrect decimal value for column `s`.`t`.`c` at row 1",
            ),
            (
                1292,
                "22007",
                "Truncated incorrect DOUBLE value: 'hunter2'",
                "Truncated incorrect DOUBLE value",
            ),
            (
                1292,
                "22007",
                "Incorrect datetime value: 'hunter2' for column hunter2",
                "Incorrect datetime value",
            ),
            (
                1300,
                "HY000",
                "Invalid utf8mb4 character string: '\\xFFhunter2'",
                "Invalid utf8mb4 character string",
            ),
            (
                1526,
                "HY000",
                "Table has no partition for value hunter2",
                "Table has no partition for the value",
            ),
            (
                3140,
                "22032",
                "Invalid JSON text: \"hunter2\" in value for column 't.c'.",
                "Invalid JSON text for column 't.c'.",
            ),
            (
                1264,
                "22003",
                "Out of range value for column 'n' at row 1",
                "Out of range value for column 'n' at row 1",
            ),
            (
                4025,
                "23000",
                "CONSTRAINT `positive` failed for `s`.`t`",
                "CONSTRAINT `positive` failed for `s`.`t`",
            ),
        ] {
            let error = ServerError { code, message: message.into(), state: state.into() };
            let address = Address::parse("db", 3306).unwrap();
            let said = cause(&address, Phase::Statement, 9, &Error::Server(error)).to_string();
            assert!(said.contains(&format!("({expected} (error {code}))")), "{said}");
        }
    }

    #[test]
    fn mysql_error_codes_are_mapped_to_their_causes() {
        let address = Address::parse("db", 3306).unwrap();
        let label = |code, state: &str| {
            let error = ServerError { code, message: "said".into(), state: state.into() };
            cause(&address, Phase::Statement, 9, &Error::Server(error)).label()
        };
        for (code, state, expected) in [
            (1045, "28000", "credentials"),
            (1142, "42000", "credentials"),
            (1275, "HY000", "credentials"),
            (1064, "42000", "statement"),
            (1146, "42S02", "missing"),
            (1054, "42S22", "missing"),
            (1049, "42000", "missing"),
            (1040, "08004", "busy"),
            (1213, "40001", "busy"),
            (1205, "HY000", "busy"),
            (1062, "23000", "statement"),
            (1406, "22001", "statement"),
            (1927, "70100", "reset"),
            (1271, "HY000", "key"),
            (1644, "45000", "statement"),
            (1836, "HY000", "wrong_server"),
            (1969, "70100", "busy"),
            (1290, "HY000", "server"),
        ] {
            assert_eq!(label(code, state), expected, "{code}");
        }
    }

    #[test]
    fn error_of_a_read_only_mysql_server_is_cause_wrong_server() {
        let message =
            "The MariaDB server is running with the --read-only option so it cannot execute this statement";
        let error = ServerError { code: 1290, message: message.into(), state: "HY000".into() };
        let address = Address::parse("db", 3306).unwrap();
        let cause = cause(&address, Phase::Statement, 9, &Error::Server(error));
        assert_eq!(cause.label(), "wrong_server");
    }

    #[test]
    fn mysql_packet_over_the_bound_is_an_answer_too_large_but_in_the_handshake_a_protocol_error() {
        let address = Address::parse("db", 3306).unwrap();
        let error = || io::Error::other("Packet is larger than max_allowed_packet");
        let at = |phase| cause(&address, phase, 9, &Error::Io(IoError::Io(error())));
        assert_eq!(at(Phase::Statement), Cause::TooLarge { bytes_max: 9 });
        assert_eq!(at(Phase::Connect).label(), "protocol");
    }
}
