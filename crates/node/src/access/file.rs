//! Files with secrets: read whole, refused when others could have read them, and read again when
//! they change.
//!
//! Certificates are renewed and tokens replaced while a node runs. Nobody is asked to restart it,
//! and no signal or watcher is needed: whoever needs a file's contents has its time of change
//! looked at, once a second at most. A file that became unusable leaves what was read before in
//! force, with a warning.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Largest file, bytes: a thousand certificates.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Rights that nobody but the owner may have on a file with secrets, the group's right to read
/// excepted: containers are given their secrets so.
const FOREIGN_RIGHTS: u32 = 0o037;
/// The time between looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Why a file of certificates, keys, tokens or passwords is of no use.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}: {refusal}", .path.display())]
pub struct AccessError {
    /// The setting that names the file: `[admin] token_file`.
    pub what: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub refusal: Refusal,
}

/// The problem with it. No refusal repeats anything that is in the file.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It is not there, or not to be read.
    #[error("cannot be read: {error}; check its path, and that the node's user may read it")]
    Unreadable {
        /// The system's words.
        error: io::Error,
    },
    /// Others may read or change it.
    #[error("its mode is {mode:04o}, so others may read or change it, and it holds secrets: chmod 600 it")]
    Exposed {
        /// The permissions of the file.
        mode: u32,
    },
    /// It is larger than 4 MiB.
    #[error("is larger than 4 MiB: name the right file")]
    TooLarge,
    /// There is nothing in it.
    #[error("holds no {0}")]
    Empty(&'static str),
    /// A line is not as it has to be.
    #[error("line {line} {problem}")]
    Line {
        /// From 1.
        line: usize,
        /// The problem, and what is accepted.
        problem: &'static str,
    },
    /// It is not in the form that certificates and keys have to have.
    #[error("is not PEM: {0}")]
    NotPem(String),
    /// The key belongs to another certificate.
    #[error("is not the key of the first certificate in {}: name a certificate and its key", .0.display())]
    Mismatch(PathBuf),
    /// The TLS library will not have it.
    #[error("cannot be used: {0}")]
    Unusable(String),
}

/// A refusal of `path`, which is `what`.
pub(crate) fn refused(what: &'static str, path: &Path, refusal: Refusal) -> AccessError {
    AccessError { what, path: path.to_owned(), refusal }
}

/// The same, for want of reading it.
fn cannot(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AccessError {
    move |error| refused(what, path, Refusal::Unreadable { error })
}

/// What is in a file; where it is `secret`, nobody but its owner may write and nobody outside its
/// group read it.
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

/// What tells a file from what it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    number: u64,
    bytes: u64,
    /// When its contents, and when its contents or anything about it changed, in seconds and
    /// nanoseconds.
    times: [(i64, i64); 2],
}

impl Stamp {
    /// Nothing of a file that is not there, nor of a pipe, which can be read once: it never seems
    /// to change.
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

/// What some files say, as they are now, give or take a second.
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
    /// What `load` makes of the files at `paths`, of which there are a few.
    ///
    /// # Errors
    /// Those of `load`.
    pub(crate) fn open(
        paths: Vec<PathBuf>,
        load: impl Fn() -> Result<T, AccessError> + Send + Sync + 'static,
    ) -> Result<Self, AccessError> {
        // Looked at before they are read: what changes in between is read again.
        let stamps = stamps(&paths);
        let value = Arc::new(load()?);
        let state = Mutex::new(State { value, stamps, looked: Instant::now() });
        Ok(Self { paths, load: Box::new(load), interval: LOOK_INTERVAL, state })
    }

    /// The same, looked at with every use.
    #[cfg(test)]
    pub(crate) fn eager(mut self) -> Self {
        self.interval = Duration::ZERO;
        self
    }

    /// What they say. Takes a lock, and every second the time to look at the files.
    pub(crate) fn current(&self) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= self.interval {
            self.look(&mut state);
        }
        Arc::clone(&state.value)
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
    fn secrets_that_others_may_read_are_refused_with_the_remedy() {
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
    fn a_file_that_is_too_large_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("large");
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        let error = file_bytes("[admin] tls cert", &path, false).unwrap_err();
        assert!(matches!(error.refusal, Refusal::TooLarge), "{error}");
    }

    #[test]
    fn what_changes_is_read_again_and_what_breaks_is_not_taken() {
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
