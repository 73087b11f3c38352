//! Reads a whole file, with rules for its size and permissions.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::stamp::Stamp;

/// Permissions that group and others must not have on a private file. The group may read it, since
/// containers receive their secrets that way.
const FOREIGN_RIGHTS: u32 = 0o037;

/// Largest input of a command, bytes. Chosen: far more than any scenario or table has.
const INPUT_BYTES_MAX: u64 = 256 << 20;

/// Longest secret of one line, bytes.
const SECRET_BYTES_MAX: usize = 64 << 10;

/// The mark that some editors put before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Rules for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Largest size of the file, bytes.
    pub bytes_max: u64,
    /// True if only the owner may have write permission, and only owner and group read permission.
    pub is_private: bool,
}

impl Rules {
    /// At most 4 MiB, enough for a thousand certificates; any permissions.
    pub const DEFAULT: Self = Self { bytes_max: 4 << 20, is_private: false };
    /// As [`DEFAULT`](Self::DEFAULT), for a file that other users may neither read nor change.
    pub const PRIVATE: Self = Self { is_private: true, ..Self::DEFAULT };
}

/// The reason why a file cannot be used, as a continuation of its path. No message repeats contents
/// of the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file does not exist or cannot be read.
    #[error("cannot be read: {0}; check its path, and that the process's user may read it")]
    Unreadable(#[source] io::Error),
    /// The path is not a regular file but, for example, a directory or a pipe.
    #[error("is a {0}, where a regular file is expected, which can be read again: name a file")]
    NotAFile(&'static str),
    /// Other users may read or change a private file.
    #[error("its mode is {mode:04o}, so others may read or change it, and it holds secrets: chmod 600 it")]
    Exposed {
        /// Permissions (mode) of the file.
        mode: u32,
    },
    /// The file is too large.
    #[error("is larger than {} MiB: name the right file", .bytes_max >> 20)]
    TooLarge {
        /// Largest size accepted, bytes.
        bytes_max: u64,
    },
    /// The file is not UTF-8 text.
    #[error("is not text in UTF-8, at line {line} column {column}: save it as UTF-8")]
    NotText {
        /// Line of the first invalid byte, from 1.
        line: usize,
        /// Column of that byte, from 1, in bytes.
        column: usize,
    },
    /// The file of a secret is empty.
    #[error("is empty: write the secret into it, as one line")]
    Empty,
    /// The file of a secret has several lines.
    #[error("has {0} lines, where one is accepted: write the secret as one line, with at most one line end")]
    Lines(usize),
    /// The secret is too long.
    #[error("has a line of more than 64 KiB: name the file of a secret")]
    Long,
}

/// Reads a regular file, without a byte order mark at its beginning.
///
/// # Errors
/// When the file cannot be read, breaks a rule, or is a directory, a pipe or a device.
pub fn bytes(path: &Path, rules: Rules) -> Result<Vec<u8>, ReadError> {
    stamped(path, rules).map(|(bytes, _)| bytes)
}

/// Reads a regular file of UTF-8, without a byte order mark at its beginning.
///
/// # Errors
/// As [`bytes`], and when the file is not UTF-8.
pub fn text(path: &Path, rules: Rules) -> Result<String, ReadError> {
    into_text(bytes(path, rules)?)
}

/// Reads a secret: a file of one line of UTF-8. One line end after it, LF or CRLF, is removed.
///
/// # Errors
/// As [`text`], and when the file is empty, has several lines, or one of more than 64 KiB.
pub fn secret(path: &Path, rules: Rules) -> Result<String, ReadError> {
    one_line(bytes(path, rules)?)
}

/// Reads the input of a command: a file of UTF-8 of at most 256 MiB, or a pipe, which is waited
/// for, without a byte order mark at its beginning.
///
/// # Errors
/// When the input cannot be read, is too large or is not UTF-8.
pub fn input(path: &Path) -> Result<String, ReadError> {
    input_from(File::open(path).map_err(ReadError::Unreadable)?)
}

/// Returns the lines of a file of entries, such as tokens: without white space around them, empty
/// ones, and comments, which begin with `#`.
pub fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Reads the input of a command from an open file, as [`input`] does.
///
/// # Errors
/// As [`input`].
pub fn input_from(file: impl Read) -> Result<String, ReadError> {
    into_text(bounded(file, INPUT_BYTES_MAX)?)
}

/// Reads a regular file. Also returns its stamp (metadata by which a change is detected) from the
/// time it was opened.
pub(crate) fn stamped(path: &Path, rules: Rules) -> Result<(Vec<u8>, Stamp), ReadError> {
    // Before opening, which takes effect on some devices.
    check_kind(fs::metadata(path).map_err(ReadError::Unreadable)?.file_type())?;
    // Should it have become a pipe meanwhile, opening does not wait for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(ReadError::Unreadable)?;
    let metadata = file.metadata().map_err(ReadError::Unreadable)?;
    check_kind(metadata.file_type())?;
    check_mode(&metadata, rules)?;
    Ok((bounded(file, rules.bytes_max)?, Stamp::from(&metadata)))
}

fn check_kind(kind: FileType) -> Result<(), ReadError> {
    let other = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => "directory",
        _ if kind.is_fifo() => "pipe",
        _ if kind.is_socket() => "socket",
        _ => "device",
    };
    Err(ReadError::NotAFile(other))
}

fn check_mode(metadata: &Metadata, rules: Rules) -> Result<(), ReadError> {
    let mode = metadata.mode() & 0o7777;
    let is_exposed = rules.is_private && mode & FOREIGN_RIGHTS != 0;
    if is_exposed { Err(ReadError::Exposed { mode }) } else { Ok(()) }
}

fn bounded(file: impl Read, bytes_max: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(ReadError::Unreadable)?;
    if read as u64 > bytes_max {
        return Err(ReadError::TooLarge { bytes_max });
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

fn into_text(bytes: Vec<u8>) -> Result<String, ReadError> {
    String::from_utf8(bytes).map_err(|error| not_text(error.as_bytes(), error.utf8_error().valid_up_to()))
}

/// The error of bytes that are not UTF-8 text, the first invalid one at `position`.
fn not_text(bytes: &[u8], position: usize) -> ReadError {
    let before = &bytes[..position];
    let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
    let column = 1 + before.iter().rev().take_while(|&&byte| byte != b'\n').count();
    ReadError::NotText { line, column }
}

/// Returns the only line of a file.
pub(crate) fn one_line(bytes: Vec<u8>) -> Result<String, ReadError> {
    let mut text = into_text(bytes)?;
    let line = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    // A carriage return alone ends a line as well, and zero bytes are those of UTF-16.
    if let Some(position) = line.find('\0') {
        return Err(not_text(line.as_bytes(), position));
    }
    match line.matches(['\n', '\r']).count() - line.matches("\r\n").count() {
        0 if line.is_empty() => return Err(ReadError::Empty),
        0 if line.len() > SECRET_BYTES_MAX => return Err(ReadError::Long),
        0 => {}
        ends => return Err(ReadError::Lines(ends + 1)),
    }
    text.truncate(line.len());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    /// Creates a file with these contents in a new directory.
    fn file(contents: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, contents).unwrap();
        (directory, path)
    }

    fn secret_of(contents: &[u8]) -> Result<String, String> {
        let (_directory, path) = file(contents);
        secret(&path, Rules::DEFAULT).map_err(|error| error.to_string())
    }

    #[test]
    fn secret_is_the_only_line_of_its_file_without_line_end_or_byte_order_mark() {
        for contents in [&b"sesame"[..], b"sesame\n", b"sesame\r\n", b"\xef\xbb\xbfsesame\n"] {
            assert_eq!(secret_of(contents).unwrap(), "sesame", "{contents:?}");
        }
        assert_eq!(secret_of(b" open\tsesame \n").unwrap(), " open\tsesame ");
        let longest = [b'x'; SECRET_BYTES_MAX];
        assert_eq!(secret_of(&longest).unwrap().len(), SECRET_BYTES_MAX);
    }

    #[test]
    fn invalid_secret_file_is_refused_and_its_error_does_not_quote_it() {
        for (contents, said) in [
            (&b""[..], "is empty"),
            (b"\n", "is empty"),
            (b"\r\n", "is empty"),
            (b"\xef\xbb\xbf\n", "is empty"),
            (b"sesame\nother", "has 2 lines, where one is accepted"),
            (b"sesame\nother\n", "has 2 lines"),
            (b"sesame\r\nother\r\n", "has 2 lines"),
            (b"sesame\n\n", "has 2 lines"),
            (b"sesame\r\rother\n", "has 3 lines"),
            (b"s\0e\0s\0a\0", "is not text in UTF-8"),
            (b"\xff\xfes\0e\0", "is not text in UTF-8"),
            (&[b'x'; SECRET_BYTES_MAX + 1], "more than 64 KiB"),
        ] {
            let error = secret_of(contents).unwrap_err();
            assert!(error.contains(said) && !error.contains("sesame"), "{said}: {error}");
        }
    }

    #[test]
    fn only_a_single_leading_byte_order_mark_is_removed() {
        let (_directory, path) = file("\u{feff}a\u{feff}b".as_bytes());
        assert_eq!(text(&path, Rules::DEFAULT).unwrap(), "a\u{feff}b");
        assert_eq!(input(&path).unwrap(), "a\u{feff}b");
        let (_directory, path) = file(b"\xef\xbb");
        assert!(matches!(text(&path, Rules::DEFAULT), Err(ReadError::NotText { line: 1, column: 1 })));
        let (_directory, path) = file(b"a\nbc\xff");
        assert!(matches!(input(&path), Err(ReadError::NotText { line: 2, column: 3 })));
    }

    #[test]
    fn private_file_readable_by_others_is_refused_with_the_remedy() {
        let (_directory, path) = file(b"x");
        for (mode, fine) in
            [(0o600, true), (0o640, true), (0o400, true), (0o644, false), (0o660, false), (0o601, false)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let read = bytes(&path, Rules::PRIVATE);
            assert_eq!(read.is_ok(), fine, "{mode:o}");
            if let Err(error) = read {
                let said = error.to_string();
                assert!(said.contains("chmod 600") && said.contains(&format!("{mode:04o}")), "{said}");
            }
            assert!(bytes(&path, Rules::DEFAULT).is_ok());
        }
    }

    #[test]
    fn oversized_file_is_refused() {
        let (_directory, path) = file(b"");
        let largest = Rules::DEFAULT.bytes_max;
        File::options().write(true).open(&path).unwrap().set_len(largest).unwrap();
        assert_eq!(bytes(&path, Rules::DEFAULT).unwrap().len() as u64, largest);
        File::options().write(true).open(&path).unwrap().set_len(largest + 1).unwrap();
        let error = bytes(&path, Rules::DEFAULT).unwrap_err().to_string();
        assert!(error.contains("larger than 4 MiB"), "{error}");
    }

    #[test]
    fn pipe_socket_directory_or_device_is_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        let _socket = UnixListener::bind(path("socket")).unwrap();
        let refusal = |path: &Path| bytes(path, Rules::DEFAULT).unwrap_err().to_string();
        // No process ever writes to the pipe.
        assert!(refusal(&path("pipe")).starts_with("is a pipe"));
        assert!(refusal(&path("socket")).starts_with("is a socket"));
        assert!(refusal(directory.path()).starts_with("is a directory"));
        assert!(refusal(Path::new("/dev/null")).starts_with("is a device"));
        assert!(refusal(&path("none")).starts_with("cannot be read"));
    }

    #[test]
    fn input_of_a_command_may_be_a_pipe() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let writer = std::thread::spawn({
            let path = path.clone();
            move || fs::write(path, "\u{feff}text")
        });
        assert_eq!(input(&path).unwrap(), "text");
        writer.join().unwrap().unwrap();
    }
}
