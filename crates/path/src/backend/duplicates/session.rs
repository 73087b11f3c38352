//! Consistency of reads, and the sessions of clients.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use thiserror::Error;

/// The earlier changes of a replicated store that a read reflects, beside those that all duplicates
/// have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// None: a duplicate may lag, by a quarter of the backend's timeout at most.
    Eventual,
    /// The acknowledged changes of the same session.
    #[default]
    ReadYourWrites,
    /// The acknowledged changes of the same session, and everything that may precede what it has
    /// read: a session never sees an older state than before.
    Causal,
}

/// Record of what a client has done and seen at a replicated store: its later reads must reflect
/// that. The client carries it, as text.
///
/// All changes of a store are numbered in the order in which they were accepted, so that one number
/// covers all partitions. A session of an earlier process asks for nothing: what its duplicates
/// have is what there is.
///
/// ```
/// use sherwood_path::Session;
///
/// let session: Session = "1f.2a".parse()?;
/// assert_eq!(session.to_string(), "1f.2a");
/// assert!("1f".parse::<Session>().is_err());
/// # Ok::<(), sherwood_path::SessionError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session {
    /// The number of the process.
    pub(super) epoch: u64,
    /// The number of the last change that reads must reflect, among all changes of the process.
    pub(super) stamp: u64,
}

impl Session {
    /// A session whose reads reflect every change that was accepted before.
    pub const LATEST: Self = Self { epoch: u64::MAX, stamp: u64::MAX };

    /// Adds what another session has done and seen.
    pub fn join(&mut self, other: Self) {
        *self = (*self).max(other);
    }

    /// Returns the last change that reads must reflect in a process that has had these numbers.
    pub(super) fn stamp_in(self, epochs: RangeInclusive<u64>) -> u64 {
        if epochs.contains(&self.epoch) || self == Self::LATEST { self.stamp } else { 0 }
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:x}", self.epoch, self.stamp)
    }
}

/// The error of a text that is not a session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{}\" is not a session; it must be two hexadecimal numbers of up to 16 digits, as in \"1f.2a\": send back what the last answer had", .0.escape_default())]
pub struct SessionError(String);

impl FromStr for Session {
    type Err = SessionError;

    fn from_str(text: &str) -> Result<Self, SessionError> {
        let number = |digits: &str| {
            let is_number = (1..=16).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            is_number.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
        };
        let both = text.split_once('.').and_then(|(epoch, stamp)| Some((number(epoch)?, number(stamp)?)));
        let (epoch, stamp) = both.ok_or_else(|| SessionError(text.chars().take(64).collect()))?;
        Ok(Self { epoch, stamp })
    }
}
