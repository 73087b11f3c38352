//! Errors of commands and their exit statuses.

use std::fmt::{self, Display};
use std::process::ExitCode;

use crate::stderr;

/// The reason for which a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command ran and failed: exit status 1.
    Failed(String),
    /// The arguments or the configuration are invalid: exit status 2.
    Usage(String),
    /// The command ran to a result that does not count: exit status 3.
    Invalid(String),
    /// The command was interrupted: exit status 130, which shells report after Ctrl-C.
    Interrupted(String),
}

impl Failure {
    pub(crate) fn failed(error: impl ToString) -> Self {
        Self::Failed(error.to_string())
    }

    pub(crate) fn usage(error: impl ToString) -> Self {
        Self::Usage(error.to_string())
    }

    /// Prefixes the error's message with the subject that it is about.
    pub(crate) fn of(self, what: impl Display) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(format!("{what}: {error}")),
            Self::Usage(error) => Self::Usage(format!("{what}: {error}")),
            other @ (Self::Invalid(_) | Self::Interrupted(_)) => other,
        }
    }

    /// Appends more information to the message, on lines of its own.
    pub(crate) fn and(self, more: impl Display) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(format!("{error}\n{more}")),
            Self::Usage(error) => Self::Usage(format!("{error}\n{more}")),
            Self::Invalid(error) => Self::Invalid(format!("{error}\n{more}")),
            Self::Interrupted(error) => Self::Interrupted(format!("{error}\n{more}")),
        }
    }

    pub(crate) fn interrupted(what: impl ToString) -> Self {
        Self::Interrupted(what.to_string())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(message)
        | Self::Usage(message)
        | Self::Invalid(message)
        | Self::Interrupted(message)) = self;
        f.write_str(message)
    }
}

/// Exit status after SIGINT: 128 plus the signal's number, as shells report it.
pub(crate) const INTERRUPTED: u8 = 130;

/// Prints the error on standard error and returns the exit status.
pub(crate) fn report(outcome: Result<(), Failure>) -> ExitCode {
    let (message, status) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(message)) => (message, 1),
        Err(Failure::Usage(message)) => (message, 2),
        Err(Failure::Invalid(message)) => (message, 3),
        Err(Failure::Interrupted(message)) => (message, INTERRUPTED),
    };
    for line in message.lines() {
        stderr::fail(format_args!("sherwood: {line}"));
    }
    ExitCode::from(status)
}
