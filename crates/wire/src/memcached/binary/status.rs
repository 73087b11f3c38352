//! The statuses of responses.

/// The status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// The command succeeded.
    Success = 0x00,
    /// The key has no item.
    NotFound = 0x01,
    /// The key already has an item, or its item has another CAS than the request.
    Exists = 0x02,
    /// The value is over the limit on its length.
    TooLarge = 0x03,
    /// The fields of the request do not fit its command.
    InvalidArguments = 0x04,
    /// The item of an `append` or `prepend` does not exist, or would become too large.
    NotStored = 0x05,
    /// The value to be incremented or decremented is not a number.
    NonNumeric = 0x06,
    /// The client has not logged in, or the login failed.
    AuthError = 0x20,
    /// The login needs another step.
    AuthContinue = 0x21,
    /// There is no such command.
    UnknownCommand = 0x81,
    /// The value is within the limit but does not fit into the cache.
    OutOfMemory = 0x82,
    /// The listener does not support the command.
    NotSupported = 0x83,
    /// The store has not acknowledged the change.
    Internal = 0x84,
    /// The command was refused for now.
    TemporaryFailure = 0x86,
}

impl Status {
    /// The text of an error response: memcached's text for this status where it has one.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Success | Self::AuthContinue => "",
            Self::NotFound => "Not found",
            Self::Exists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::InvalidArguments => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NonNumeric => "Non-numeric server-side value for incr or decr",
            Self::AuthError => "Auth failure.",
            Self::UnknownCommand => "Unknown command",
            Self::OutOfMemory => "Out of memory",
            Self::NotSupported => "Not supported",
            Self::Internal => "Internal error",
            Self::TemporaryFailure => "Temporary failure",
        }
    }
}
