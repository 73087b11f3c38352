//! How a command ends.

use std::fmt::{self, Display};
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

    /// The same, and what is to be said beside, on lines of its own.
    pub(crate) fn and(self, more: impl Display) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(format!("{error}\n{more}")),
            Self::Usage(error) => Self::Usage(format!("{error}\n{more}")),
            Self::Interrupted(error) => Self::Interrupted(format!("{error}\n{more}")),
        }
    }

    pub(crate) fn interrupted(what: impl ToString) -> Self {
        Self::Interrupted(what.to_string())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(message) | Self::Usage(message) | Self::Interrupted(message)) = self;
        f.write_str(message)
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
