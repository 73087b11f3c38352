//! Text files that users write: configurations, passwords, tokens, certificates, scenarios.
//!
//! Editors and tools put a byte order mark before a text, a line end after a password, or leave a
//! file half written for a moment. All crates read such files here, so that each file is treated
//! alike: [`bytes`] and [`text`] read a whole regular file of bounded size, [`input`] a file or a
//! pipe, and [`secret`] a file of one line. [`Watched`] holds a value derived from files, and
//! derives it again when they change.
//!
//! ```
//! use sherwood_textfile::{Rules, secret};
//! let directory = tempfile::tempdir().unwrap();
//! let path = directory.path().join("password");
//! std::fs::write(&path, "\u{feff}sesame\r\n").unwrap();
//! assert_eq!(secret(&path, Rules::DEFAULT).unwrap(), "sesame");
//! ```
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it reads files and their times"
)]

mod read;
mod stamp;
mod watched;

pub use read::{ReadError, Rules, bytes, entries, input, input_from, secret, text};
pub use watched::{Reader, Watched};
