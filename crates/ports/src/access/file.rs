//! Errors of the files of certificates, keys, tokens and passwords.
//!
//! Users may replace these files while a node runs, without a restart or a signal. They are read
//! again when they change ([`Watched`](sherwood_textfile::Watched)). If a changed file is invalid,
//! the previous contents stay in force, with a warning.

use std::path::{Path, PathBuf};

use sherwood_textfile::{ReadError, Reader, Rules};

/// Error of a file of certificates, keys, tokens or passwords.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}: {refusal}", .path.display())]
pub struct AccessError {
    /// Configuration key that names the file, such as `[admin] token_file`.
    pub what: &'static str,
    /// Path of the unusable file.
    pub path: PathBuf,
    /// Cause of the error.
    pub refusal: Refusal,
}

/// The reason why a file of certificates, keys, tokens or passwords cannot be used. No message
/// repeats contents of the file.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The file cannot be read, or violates the [rules](Rules) for its size and permissions.
    #[error(transparent)]
    File(#[from] ReadError),
    /// The file has no entry of the expected kind, which the text names together with the remedy.
    #[error("holds no {0}")]
    Empty(&'static str),
    /// A line of the file is invalid.
    #[error("line {line} {problem}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Description of the line's error, with what is accepted.
        problem: &'static str,
    },
    /// The file is not in PEM format; the text is the parser's error.
    #[error("is not PEM: {0}")]
    NotPem(String),
    /// The private key does not belong to the first certificate in the file at this path.
    #[error("is not the key of the first certificate in {}: name a certificate and its key", .0.display())]
    Mismatch(PathBuf),
    /// The TLS library refuses the file; the text is its error.
    #[error("cannot be used: {0}")]
    Unusable(String),
}

/// Builds the error of `path`, the file of the configuration key `what`.
pub fn refused(what: &'static str, path: &Path, refusal: impl Into<Refusal>) -> AccessError {
    AccessError { what, path: path.to_owned(), refusal: refusal.into() }
}

/// Reads a file that anyone may read.
pub(crate) fn public_bytes(
    what: &'static str,
    path: &Path,
    reader: &mut Reader,
) -> Result<Vec<u8>, AccessError> {
    reader.bytes(path, Rules::DEFAULT).map_err(|error| refused(what, path, error))
}

/// Reads a secret file: only its owner may have write permission and only its owner and group read
/// permission.
pub fn secret_bytes(what: &'static str, path: &Path, reader: &mut Reader) -> Result<Vec<u8>, AccessError> {
    reader.bytes(path, Rules::PRIVATE).map_err(|error| refused(what, path, error))
}
