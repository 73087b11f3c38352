//! How a command ends.

use std::fmt::Display;
use std::process::ExitCode;

use crate::out;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It ran and failed: exit status 1.
    Failed(String),
    /// It was asked for something that makes no sense: exit status 2.
    Usage(String),
    /// Somebody stopped it before its end: exit status 130, as of a command that Ctrl-C ends.
    Interrupted(String),
}

impl Failure {
    pub(crate) fn failed(error: impl ToString) -> Self {
        Self::Failed(error.to_string())
    }

    pub(crate) fn usage(error: impl ToString) -> Self {
        Self::Usage(error.to_string())
    }

    /// The same, of something that it names.
    pub(crate) fn of(self, what: impl Display) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(format!("{what}: {error}")),
            Self::Usage(error) => Self::Usage(format!("{what}: {error}")),
            Self::Interrupted(error) => Self::Interrupted(error),
        }
    }

    pub(crate) fn interrupted(what: impl ToString) -> Self {
        Self::Interrupted(what.to_string())
    }
}

/// 128 and the number of SIGINT, which is what shells say of a command that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Says what went wrong on standard error, and gives the exit status.
pub(crate) fn report(outcome: Result<(), Failure>) -> ExitCode {
    let (message, status) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(message)) => (message, 1),
        Err(Failure::Usage(message)) => (message, 2),
        Err(Failure::Interrupted(message)) => (message, INTERRUPTED),
    };
    for line in message.lines() {
        out::say(format_args!("sherwood: {line}"));
    }
    ExitCode::from(status)
}
