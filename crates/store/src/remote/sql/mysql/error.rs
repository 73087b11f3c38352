//! What MySQL's errors mean.

use std::io;

use mysql_async::{DriverError, Error, IoError, ServerError};

use crate::Cause;
use crate::remote::sql::address::Address;

/// What was going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A connection was being made.
    Connect,
    /// A statement ran.
    Statement,
}

/// Why a call failed; `bytes_max` is the bound of its answer.
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
            detail: "the server encrypts nothing".to_owned(),
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

fn protocol(address: &Address, detail: impl std::fmt::Display) -> Cause {
    Cause::Protocol { address: address.to_string(), expected: "MySQL", detail: detail.to_string() }
}

fn of_io(address: &Address, phase: Phase, bytes_max: u64, error: &io::Error) -> Cause {
    // What rustls says of a certificate is inside.
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return Cause::Certificate { address: address.to_string(), detail: error.to_string() };
    }
    match (error.kind(), phase) {
        // The codec's own complaints have no kind of their own; of those, only this one can befall a sane server.
        (io::ErrorKind::Other, Phase::Statement) if is_too_large(error) => Cause::TooLarge { bytes_max },
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

/// Codes are MySQL's; MariaDB has the same below 1900, and its own from there.
fn of_server(address: &Address, error: &ServerError) -> Cause {
    let ServerError { code, message, state } = error;
    let detail = || format!("{message} (error {code})");
    let missing = |what| Cause::Missing { what, detail: detail() };
    match code {
        // Too many connections, too many of this user, a resource's limit for this user.
        1040 | 1203 | 1226 => Cause::Busy { detail: detail() },
        // A lock that was waited for too long, a deadlock, a lock that nobody waits for.
        1205 | 1213 | 3572 => Cause::Busy { detail: detail() },
        // Wrong user or password; no right to the database, the table, the column, the procedure; a privilege that is missing.
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698 | 3118 | 3955 | 1862 => {
            Cause::Credentials { detail: detail() }
        }
        1049 => missing("a database"),
        1051 | 1109 | 1146 => missing("a table"),
        1054 => missing("a column"),
        1305 => missing("a procedure or function"),
        // Shutting down, or the connection or what it did was killed.
        1053 | 1079 | 1317 | 1927 | 3169 | 4031 => address.reset(detail()),
        // The host is barred after too many connections that came to nothing.
        1129 | 1130 => Cause::Credentials { detail: detail() },
        // Prepared statements: what they do not take.
        1210 | 1295 | 1390 => Cause::Statement { detail: detail() },
        // Data that does not fit a column, a constraint, and syntax with access rules.
        _ if ["22", "23", "42", "21"].iter().any(|class| state.starts_with(class)) => {
            Cause::Statement { detail: detail() }
        }
        // The same without a state of their own.
        1264 | 1265 | 1292 | 1364 | 1366 | 1406 => Cause::Statement { detail: detail() },
        _ => Cause::Server { detail: detail() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_causes() {
        let address = Address::parse("db:3306").unwrap();
        let label = |code, state: &str| {
            let error = ServerError { code, message: "said".into(), state: state.into() };
            cause(&address, Phase::Statement, 9, &Error::Server(error)).label()
        };
        for (code, state, expected) in [
            (1045, "28000", "credentials"),
            (1142, "42000", "credentials"),
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
            (1290, "HY000", "server"),
        ] {
            assert_eq!(label(code, state), expected, "{code}");
        }
    }

    #[test]
    fn a_packet_beyond_the_bound_is_an_answer_too_large_and_at_the_handshake_no_mysql() {
        let address = Address::parse("db:3306").unwrap();
        let error = || io::Error::other("Packet is larger than max_allowed_packet");
        let at = |phase| cause(&address, phase, 9, &Error::Io(IoError::Io(error())));
        assert_eq!(at(Phase::Statement), Cause::TooLarge { bytes_max: 9 });
        assert_eq!(at(Phase::Connect).label(), "protocol");
    }
}
