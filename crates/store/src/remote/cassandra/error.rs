//! Causes of errors that Cassandra's driver returns.

use std::error::Error as _;
use std::time::Duration;

use scylla::errors::{DbError, ExecutionError, RequestAttemptError};

use super::PROTOCOL;
use crate::Cause;

/// Returns the cause of a request to the server at `address` that failed with `error`.
pub(super) fn cause(error: &ExecutionError, address: &str, timeout: Duration) -> Cause {
    match error {
        ExecutionError::RequestTimeout(_) => Cause::unanswered(address, timeout),
        ExecutionError::LastAttemptError(error) => attempt_cause(error, address),
        ExecutionError::ConnectionPoolError(_) | ExecutionError::EmptyPlan => {
            Cause::Unreachable { address: address.to_owned(), detail: error.to_string() }
        }
        ExecutionError::BadQuery(_) => Cause::Statement { detail: error.to_string() },
        _ => Cause::Server { detail: error.to_string() },
    }
}

/// Returns the cause of a request that was sent once.
pub(super) fn attempt_cause(error: &RequestAttemptError, address: &str) -> Cause {
    let address = || address.to_owned();
    match error {
        RequestAttemptError::DbError(error, text) => answered_cause(error, text),
        RequestAttemptError::UnableToAllocStreamId => Cause::Busy { detail: error.to_string() },
        RequestAttemptError::BrokenConnectionError(_) => {
            let detail = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Cause::Reset { address: address(), detail }
        }
        RequestAttemptError::SerializationError(_) | RequestAttemptError::CqlRequestSerialization(_) => {
            Cause::Statement { detail: error.to_string() }
        }
        _ => Cause::Protocol { address: address(), expected: PROTOCOL, detail: error.to_string() },
    }
}

/// Returns the cause of an error that the server answered, with its text.
fn answered_cause(error: &DbError, text: &str) -> Cause {
    let detail = if text.is_empty() { error.to_string() } else { text.to_owned() };
    match error {
        DbError::Unauthorized => Cause::Forbidden { detail },
        DbError::AuthenticationError => Cause::Credentials { detail },
        // The server has not executed the request.
        DbError::Unavailable { .. } | DbError::Overloaded | DbError::IsBootstrapping => {
            Cause::Busy { detail }
        }
        DbError::Invalid | DbError::SyntaxError | DbError::ConfigError => {
            let is_missing = ["does not exist", "nconfigured table"].iter().any(|part| detail.contains(part));
            if is_missing {
                Cause::Missing { what: "the table", detail }
            } else {
                Cause::Statement { detail }
            }
        }
        // A write may have been made, or may be made later.
        _ => Cause::Server { detail },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;
    use scylla::errors::WriteType;
    use scylla::statement::Consistency;

    #[test]
    fn causes_of_cassandra_errors_say_whether_a_write_may_have_been_made() {
        let fault = |error| answered_cause(&error, "said").fault();
        let (consistency, write_type) = (Consistency::LocalQuorum, WriteType::Simple);
        let timeout = DbError::WriteTimeout { consistency, received: 0, required: 1, write_type };
        assert_eq!(fault(timeout), Fault::Broken);
        assert_eq!(fault(DbError::Unavailable { consistency, required: 2, alive: 1 }), Fault::Overloaded);
        assert_eq!(fault(DbError::Unauthorized), Fault::Rejected);
        let missing = answered_cause(&DbError::Invalid, "unconfigured table items");
        assert_eq!(missing.label(), "missing");
    }
}
