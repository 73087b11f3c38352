//! Values derived from files, which are derived again when the files change.
//!
//! Passwords and certificates are replaced while a process runs, without a restart or a signal. So
//! each use of a value checks the files' metadata, at most once a second. When a server refuses a
//! secret, its files are read again even if their metadata are unchanged, also at most once a
//! second. While a changed file is invalid, missing or written in part, the previous value stays in
//! force, with one warning.

use std::fmt::{self, Display};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::read::{self, ReadError, Rules};
use crate::stamp::Stamp;

/// Minimum interval between two checks of the files' metadata, and between two reads of the files
/// because of refusals.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reads the files of a [`Watched`] value, and records their metadata and contents to detect
/// changes.
pub struct Reader {
    /// The files read, with their stamps; none for those that could not be read.
    files: Vec<(PathBuf, Option<Stamp>)>,
    contents: <RandomState as BuildHasher>::Hasher,
    begun: SystemTime,
}

impl Reader {
    /// Makes a reader for files whose changes are not watched.
    #[must_use]
    pub fn new() -> Self {
        Self::with_seed(&RandomState::new())
    }

    fn with_seed(seed: &RandomState) -> Self {
        Self { files: Vec::new(), contents: seed.build_hasher(), begun: SystemTime::now() }
    }

    /// Reads a file as [`read::bytes`](crate::bytes) does.
    ///
    /// # Errors
    /// As [`bytes`](crate::bytes).
    pub fn bytes(&mut self, path: &Path, rules: Rules) -> Result<Vec<u8>, ReadError> {
        // The stamp of a file that cannot be used tells when to try it again.
        let before = Stamp::of(path);
        let read = read::stamped(path, rules);
        let stamp = read.as_ref().map_or(before, |(_, stamp)| Some(*stamp));
        self.files.push((path.to_owned(), stamp));
        let bytes = read?.0;
        self.include(&bytes);
        Ok(bytes)
    }

    /// Reads a secret as [`secret`](crate::secret) does.
    ///
    /// # Errors
    /// As [`secret`](crate::secret).
    pub fn secret(&mut self, path: &Path, rules: Rules) -> Result<String, ReadError> {
        read::one_line(self.bytes(path, rules)?)
    }

    /// Adds contents that the value also depends on but that are not read here, such as the
    /// system's certificates. If they differ, the value counts as changed.
    pub fn include(&mut self, contents: &[u8]) {
        self.contents.write_usize(contents.len());
        self.contents.write(contents);
    }

    /// True if every later change of a file will change the file's stamp.
    fn is_settled(&self) -> bool {
        self.files.iter().all(|(_, stamp)| stamp.is_none_or(|stamp| stamp.is_settled(self.begun)))
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

type Load<T> = Box<dyn Fn(&mut Reader) -> Result<T, String> + Send + Sync>;

/// A value derived from files, at most about a second out of date.
pub struct Watched<T> {
    load: Load<T>,
    interval: Duration,
    /// Seed of the fingerprints. They are kept instead of the contents, which are secrets.
    seed: RandomState,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    /// The previous value, which becomes current again if a server refuses `value`.
    previous: Option<Arc<T>>,
    /// Hash of the contents that the value was made of; none if it was [set](Watched::set).
    fingerprint: Option<u64>,
    /// The files read the last time, with their stamps.
    files: Vec<(PathBuf, Option<Stamp>)>,
    is_settled: bool,
    looked: Instant,
    /// The time at which the files were last read because of a refusal.
    reread: Option<Instant>,
    /// The last failure since the value was made, with the hash of the contents that caused it.
    failure: Option<(u64, String)>,
}

impl<T> Watched<T> {
    /// Creates a value that `load` derives from a few files.
    ///
    /// # Errors
    /// Returns the error of `load`.
    pub fn open<E: Display>(
        load: impl Fn(&mut Reader) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let seed = RandomState::new();
        let mut reader = Reader::with_seed(&seed);
        let value = Arc::new(load(&mut reader)?);
        let state = Mutex::new(State {
            value,
            previous: None,
            fingerprint: Some(reader.contents.finish()),
            is_settled: reader.is_settled(),
            files: reader.files,
            looked: Instant::now(),
            reread: None,
            failure: None,
        });
        let load: Load<T> = Box::new(move |reader| load(reader).map_err(|error| error.to_string()));
        Ok(Self { load, interval: INTERVAL, seed, state })
    }

    /// Returns the present value. Takes a lock, and once a second checks the files' metadata.
    pub fn current(&self) -> Arc<T> {
        let mut state = self.lock();
        if state.looked.elapsed() >= self.interval {
            state.looked = Instant::now();
            let differs = |(path, stamp): &(PathBuf, Option<Stamp>)| Stamp::of(path) != *stamp;
            if !state.is_settled || state.files.iter().any(differs) {
                self.read(&mut state);
            }
        }
        Arc::clone(&state.value)
    }

    /// Returns the value to be used instead of `refused`, which a server refused. Reads the files
    /// again, at most once a second. If they are unchanged, the previous value becomes current
    /// again, in case a server does not know the new one yet. None if there is no other value.
    pub fn newer_than(&self, refused: &Arc<T>) -> Option<Arc<T>> {
        let mut state = self.lock();
        let is_due = state.reread.is_none_or(|at| at.elapsed() >= self.interval);
        if is_due && Arc::ptr_eq(&state.value, refused) {
            let now = Instant::now();
            (state.reread, state.looked) = (Some(now), now);
            self.read(&mut state);
            if Arc::ptr_eq(&state.value, refused)
                && let Some(previous) = state.previous.take()
            {
                tracing::debug!(
                    "refused, so that what was read before is in force: {}",
                    listed(&state.files)
                );
                state.previous = Some(std::mem::replace(&mut state.value, previous));
            }
        }
        (!Arc::ptr_eq(&state.value, refused)).then(|| Arc::clone(&state.value))
    }

    /// Replaces the value by one that the caller has just derived from the files. The next check
    /// reads the files again, in case they have changed since.
    pub fn set(&self, value: T) {
        let mut state = self.lock();
        (state.value, state.fingerprint, state.is_settled) = (Arc::new(value), None, false);
    }

    /// Reads the files, and derives the value again if they have changed and are valid.
    fn read(&self, state: &mut State<T>) {
        let mut reader = Reader::with_seed(&self.seed);
        let loaded = (self.load)(&mut reader);
        let fingerprint = reader.contents.finish();
        state.is_settled = reader.is_settled();
        state.files = reader.files;
        match loaded {
            Ok(_) if state.fingerprint == Some(fingerprint) => state.failure = None,
            Ok(value) => {
                tracing::info!("read again, having changed: {}", listed(&state.files));
                state.previous = Some(std::mem::replace(&mut state.value, Arc::new(value)));
                (state.fingerprint, state.failure) = (Some(fingerprint), None);
            }
            Err(error) => {
                let failure = Some((fingerprint, error));
                if state.failure != failure {
                    let (_, error) = failure.as_ref().expect("it was just made");
                    tracing::warn!("{error}; what was read before stays in force");
                    state.failure = failure;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does not print the value, which may be a secret.
impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

fn listed(files: &[(PathBuf, Option<Stamp>)]) -> String {
    files.iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
