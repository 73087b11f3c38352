//! Causes of errors that ZooKeeper's client returns.

use zookeeper_client::Error;

use crate::Cause;

/// Returns the cause of a request to the server at `address` that failed with `error`.
pub(super) fn cause(error: &Error, address: &str) -> Cause {
    let detail = error.to_string();
    let address = || address.to_owned();
    match error {
        Error::NoAuth => Cause::Forbidden { detail },
        Error::AuthFailed => Cause::Credentials { detail },
        Error::Throttled => Cause::Busy { detail },
        Error::NotReadOnly => {
            Cause::WrongServer { detail, remedy: "ask a server whose ensemble has a quorum" }
        }
        Error::NotEmpty
        | Error::NoChildrenForEphemerals
        | Error::InvalidAcl
        | Error::QuotaExceeded
        | Error::NoNode
        | Error::Unimplemented
        | Error::BadArguments(_) => Cause::Statement { detail },
        Error::UnmarshalError { .. } => {
            Cause::Protocol { address: address(), expected: super::PROTOCOL, detail }
        }
        Error::MarshallingError | Error::UnexpectedErrorCode(_) => Cause::Server { detail },
        // The session or its connection has ended, by one side or the other.
        _ => Cause::Reset { address: address(), detail },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    #[test]
    fn causes_of_zookeeper_errors_say_whether_a_write_may_have_been_made() {
        let fault = |error| cause(&error, "h:2181").fault();
        for error in [Error::ConnectionLoss, Error::SessionExpired, Error::ClientClosed, Error::Timeout] {
            assert_eq!(fault(error), Fault::Broken);
        }
        for error in [Error::NoAuth, Error::NotEmpty, Error::NotReadOnly, Error::QuotaExceeded] {
            assert_eq!(fault(error), Fault::Rejected);
        }
        assert_eq!(fault(Error::Throttled), Fault::Overloaded);
    }
}
