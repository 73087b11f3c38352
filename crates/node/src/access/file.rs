//! Secret files: read whole, refused when other users could have read them, and reloaded when they
//! change.
//!
//! Certificates and tokens are replaced while a node runs, without a restart or a signal: every use
//! of a file's contents checks its time of change, once a second at most. If a changed file is
//! invalid, the previous contents stay in force, with a warning.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum size of a file, bytes: enough for a thousand certificates.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Permissions that group and others may not have on a secret file. The group may read: containers
/// are given their secrets that way.
const FOREIGN_RIGHTS: u32 = 0o037;
/// Minimum interval between two checks whether the secret files have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

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

/// Cause of an unusable secret file. No message repeats contents of the file.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The file does not exist or cannot be read.
    #[error("cannot be read: {error}; check its path, and that the node's user may read it")]
    Unreadable {
        /// Error of the operating system.
        error: io::Error,
    },
    /// Other users may read or change the file.
    #[error("its mode is {mode:04o}, so others may read or change it, and it holds secrets: chmod 600 it")]
    Exposed {
        /// Permissions (mode) of the file.
        mode: u32,
    },
    /// The file is larger than 4 MiB.
    #[error("is larger than 4 MiB: name the right file")]
    TooLarge,
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
pub(crate) fn refused(what: &'static str, path: &Path, refusal: Refusal) -> AccessError {
    AccessError { what, path: path.to_owned(), refusal }
}

/// Builds the error of a file that cannot be read.
fn cannot(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AccessError {
    move |error| refused(what, path, Refusal::Unreadable { error })
}

/// Contents of a file. If it is `secret`, only its owner may have write permission and only its
/// owner and group read permission.
pub(crate) fn file_bytes(what: &'static str, path: &Path, secret: bool) -> Result<Vec<u8>, AccessError> {
    let mut file = File::open(path).map_err(cannot(what, path))?;
    let metadata = file.metadata().map_err(cannot(what, path))?;
    let mode = metadata.mode() & 0o7777;
    if secret && metadata.is_file() && mode & FOREIGN_RIGHTS != 0 {
        return Err(refused(what, path, Refusal::Exposed { mode }));
    }
    let mut bytes = Vec::new();
    let read = file.by_ref().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot(what, path))?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(refused(what, path, Refusal::TooLarge));
    }
    Ok(bytes)
}

/// Properties of a file by which a change is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    number: u64,
    bytes: u64,
    /// Times at which the file's contents, and its contents or metadata, last changed, in seconds
    /// and nanoseconds.
    times: [(i64, i64); 2],
}

impl Stamp {
    /// Stamp of the file; none if it does not exist or is a pipe, which can be read only once and
    /// never counts as changed.
    fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().filter(Metadata::is_file).map(|metadata| Self::from(&metadata))
    }
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            number: metadata.ino(),
            bytes: metadata.len(),
            times: [(metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec())],
        }
    }
}

type Load<T> = Box<dyn Fn() -> Result<T, AccessError> + Send + Sync>;

/// Parsed contents of some files, at most about a second old.
pub(crate) struct Reloading<T> {
    paths: Vec<PathBuf>,
    load: Load<T>,
    interval: Duration,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    stamps: Vec<Option<Stamp>>,
    looked: Instant,
}

impl<T> Reloading<T> {
    /// Loads the files at `paths`, which should be few, with `load`.
    ///
    /// # Errors
    /// Returns the errors of `load`.
    pub(crate) fn open(
        paths: Vec<PathBuf>,
        load: impl Fn() -> Result<T, AccessError> + Send + Sync + 'static,
    ) -> Result<Self, AccessError> {
        // Taken before the files are read, so that a change in between is reloaded.
        let stamps = stamps(&paths);
        let value = Arc::new(load()?);
        let state = Mutex::new(State { value, stamps, looked: Instant::now() });
        Ok(Self { paths, load: Box::new(load), interval: LOOK_INTERVAL, state })
    }

    /// Makes every use check whether the files have changed, without a minimum interval.
    #[cfg(test)]
    pub(crate) fn eager(mut self) -> Self {
        self.interval = Duration::ZERO;
        self
    }

    /// Returns the current contents. Takes a lock, and once a second checks the files.
    pub(crate) fn current(&self) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= self.interval {
            self.look(&mut state);
        }
        Arc::clone(&state.value)
    }

    /// Replaces the contents by others that were read from the files a moment ago. The next look
    /// reads the files again, in case they have changed since.
    pub(crate) fn set(&self, value: T) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.value = Arc::new(value);
        state.stamps.clear();
    }

    fn look(&self, state: &mut State<T>) {
        let stamps = stamps(&self.paths);
        if stamps != state.stamps {
            match (self.load)() {
                Ok(value) => {
                    tracing::info!("read again, having changed: {}", listed(&self.paths));
                    state.value = Arc::new(value);
                }
                Err(error) => tracing::warn!("{error}; what was read before stays in force"),
            }
            state.stamps = stamps;
        }
        state.looked = Instant::now();
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    paths.iter().map(|path| Stamp::of(path)).collect()
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn secret_file_readable_by_others_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        fs::write(&path, "x").unwrap();
        for (mode, fine) in
            [(0o600, true), (0o640, true), (0o400, true), (0o644, false), (0o660, false), (0o601, false)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let read = file_bytes("[admin] token_file", &path, true);
            assert_eq!(read.is_ok(), fine, "{mode:o}");
            if let Err(error) = read {
                let said = error.to_string();
                assert!(said.contains("chmod 600") && said.contains(&format!("{mode:04o}")), "{said}");
            }
            assert!(file_bytes("[admin] tls cert", &path, false).is_ok());
        }
        let error = file_bytes("[admin] token_file", &directory.path().join("none"), true).unwrap_err();
        assert!(error.to_string().contains("cannot be read"), "{error}");
    }

    #[test]
    fn oversized_secret_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("large");
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        let error = file_bytes("[admin] tls cert", &path, false).unwrap_err();
        assert!(matches!(error.refusal, Refusal::TooLarge), "{error}");
    }

    #[test]
    fn changed_secret_file_is_reloaded_and_invalid_one_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        fs::write(&path, "1").unwrap();
        let load = {
            let path = path.clone();
            move || match file_bytes("a test's", &path, false)? {
                bytes if bytes.is_empty() => Err(refused("a test's", &path, Refusal::Empty("number"))),
                bytes => Ok(bytes),
            }
        };
        let file = Reloading::open(vec![path.clone()], load).unwrap().eager();
        assert_eq!(*file.current(), b"1");
        fs::write(&path, "22").unwrap();
        assert_eq!(*file.current(), b"22");
        fs::write(&path, "").unwrap();
        assert_eq!(*file.current(), b"22");
        fs::remove_file(&path).unwrap();
        assert_eq!(*file.current(), b"22");
        fs::write(&path, "3").unwrap();
        assert_eq!(*file.current(), b"3");
    }
}
