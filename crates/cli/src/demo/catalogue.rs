//! Values of the demo's twenty backends, loaded once and kept on disk.
//!
//! Bytes generated in memory would show nothing about a cache in front of real backends. So the
//! workload's `io` backends are SQLite files, its `kv` backends LSM trees and its `cpu` backends
//! matrix products. The workload defines the number and sizes of objects. Values are pseudo-random
//! bytes derived from (backend, object), so that nothing has to be shipped and every run reads the
//! same.
//!
//! Loading takes a while and is done once per cache directory. A backend is complete when the
//! marker beside its files names the parameters it was loaded with; the marker is written after the
//! files are on disk. A backend with no marker or a different one is deleted and loaded again, so
//! an interrupted load repeats only the backends that were unfinished.
//!
//! The workload also asks for new objects, with ids from the catalogue size N on. These are
//! unlimited in number, so they read the row `id mod N`; the node still caches them under their own
//! keys.

use std::fs::{self, File, TryLockError};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use sherwood_store::{
    BoxFuture, ComputeOptions, Found, KvOptions, Limit, LimitError, Limits, Loader, OpenError, SqliteOptions,
    Store, StoreError, StoreKind, StoreOptions, ValueBytes,
};
use sherwood_workload::SplitMix64;
use sherwood_workload::onerf::{self, Model};
use thiserror::Error;

use crate::out;

/// The backends of one profile and the directory that keeps their files.
pub(crate) struct Catalogue {
    directory: PathBuf,
    backends: Vec<BackendObjects>,
}

/// The objects of one backend of the demo.
#[derive(Clone, Debug)]
struct BackendObjects {
    backend: Arc<onerf::BackendModel>,
    /// Catalogue size N, at least 1.
    objects: u64,
    /// Calls that the backend works on at the same time.
    workers: u32,
}

/// The reason for which the values of the demo's backends could not be loaded.
#[derive(Debug, Error)]
pub(crate) enum CatalogueError {
    /// Another process is loading values into the cache directory.
    #[error("could not load {}: another process is loading it; wait for it, or name another directory with --cache-dir", .directory.display())]
    Locked {
        /// The cache directory.
        directory: PathBuf,
    },
    /// The disk has too little space.
    #[error(
        "could not load {}: {} MB are needed and {} MB are free; make room, or name a directory on another disk with \
         --cache-dir",
        .directory.display(), needed_bytes.div_ceil(1_000_000), free_bytes / 1_000_000
    )]
    DiskFull {
        /// The cache directory.
        directory: PathBuf,
        /// Bytes needed by the missing values.
        needed_bytes: u64,
        /// Bytes available to this user.
        free_bytes: u64,
    },
    /// The cache directory cannot be used.
    #[error("could not use {}: {source}; make it a directory this user may write to, or name another with --cache-dir", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A store refused a value.
    #[error("{0}; delete the demo's cache directory and start again")]
    Put(#[from] StoreError),
}

impl Catalogue {
    /// Creates the catalogue of `model` at the scale of `profile`, one of its profiles.
    pub(crate) fn new(model: &Model, profile: &str, directory: PathBuf) -> Self {
        let objects_of = |backend: &onerf::BackendModel| BackendObjects {
            backend: Arc::new(backend.clone()),
            objects: backend.objects[profile],
            workers: backend.service.workers[profile],
        };
        Self { directory, backends: model.backends().iter().map(objects_of).collect() }
    }

    /// Loads the missing values and prints progress on standard error. Blocks: seconds to a minute
    /// the first time, depending on the disk, and not at all later.
    ///
    /// # Errors
    /// See [`CatalogueError`]; complete backends are kept.
    pub(crate) fn load(&self) -> Result<(), CatalogueError> {
        let directory = &self.directory;
        fs::create_dir_all(directory).map_err(|source| io_error(directory, source))?;
        let _lock = lock(directory)?;
        let mut missing: Vec<&BackendObjects> =
            self.backends.iter().filter(|backend| !backend.is_complete(directory)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        for backend in &missing {
            backend.clear(directory)?;
        }
        let bytes = missing.iter().map(|backend| backend.value_bytes()).sum();
        check_free(directory, bytes)?;
        // The largest come first, so that the threads end at about the same time.
        missing.sort_by_key(|backend| std::cmp::Reverse(backend.value_bytes()));
        let progress = Progress::new(directory, bytes);
        load_all(&missing, directory, &progress)?;
        progress.finish();
        Ok(())
    }

    /// Reads every file once, so that the first policy of a comparison finds the same files in the
    /// system's page cache as later ones.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn warm(&self) -> Result<(), CatalogueError> {
        for backend in &self.backends {
            let path = backend.path(&self.directory);
            absent_is_fine(read_whole(&path)).map_err(|source| io_error(&path, source))?;
        }
        Ok(())
    }

    /// Opens the stores in the order of the workload's backends. They must have been loaded.
    /// Blocks.
    ///
    /// # Errors
    /// The [`OpenError`] of the first store that does not open.
    pub(crate) fn open(&self) -> Result<Vec<Arc<dyn Store>>, OpenError> {
        self.backends.iter().map(|backend| backend.open(&self.directory)).collect()
    }
}

/// Reads a file, or all files below a directory, and discards the bytes.
fn read_whole(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        return io::copy(&mut fs::File::open(path)?, &mut io::sink()).map(drop);
    }
    fs::read_dir(path)?.try_for_each(|entry| read_whole(&entry?.path()))
}

/// Loads the values of `missing` backends with two threads, which keep the disk busy; each store is
/// written by one thread.
fn load_all(
    missing: &[&BackendObjects],
    directory: &Path,
    progress: &Progress,
) -> Result<(), CatalogueError> {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(backend) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
            backend.load(directory, progress)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let here = work();
        let there = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        here.and(there)
    })
}

impl BackendObjects {
    fn name(&self) -> &str {
        &self.backend.name
    }

    /// Returns the engine for the workload's resource: the engine that uses this resource most.
    fn kind(&self) -> StoreKind {
        match self.backend.kind {
            onerf::LimitedResource::Cpu => StoreKind::Compute,
            onerf::LimitedResource::Io => StoreKind::Sqlite,
            onerf::LimitedResource::Kv => StoreKind::Kv,
        }
    }

    fn options(&self, directory: &Path) -> StoreOptions {
        let path = self.path(directory);
        // More than two concurrent calls gain nothing on a small machine. `Paced`, not the number
        // of threads, enforces the workload's worker slots.
        let threads = self.workers.clamp(1, 2) as u16;
        match self.kind() {
            StoreKind::Kv => StoreOptions::Kv(KvOptions { threads, ..KvOptions::new(path) }),
            StoreKind::Sqlite => StoreOptions::Sqlite(SqliteOptions { threads, ..SqliteOptions::new(path) }),
            _ => StoreOptions::Compute(self.compute_options()),
        }
    }

    fn compute_options(&self) -> ComputeOptions {
        ComputeOptions { n: MATRIX_N, threads: self.workers.clamp(1, 2) as u16, ..ComputeOptions::default() }
    }

    /// Path of the store's directory or file.
    fn path(&self, directory: &Path) -> PathBuf {
        match self.kind() {
            StoreKind::Sqlite => directory.join(self.name()).join("items.db"),
            _ => directory.join(self.name()),
        }
    }

    fn marker(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{}.complete", self.name()))
    }

    /// Text of the marker: all parameters that determine the loaded values.
    fn parameters(&self) -> String {
        let onerf::SizeLaw { dist, ln_mu, ln_sigma, min, max, mean_bytes: _ } =
            self.backend.size.as_ref().expect("the model built in draws its requests");
        let parameters = serde_json::json!({
            "format": FORMAT,
            "kind": self.kind().to_string(),
            "backend": self.backend.id,
            "objects": self.objects,
            "size": {"dist": dist, "ln_mu": ln_mu, "ln_sigma": ln_sigma, "min": min, "max": max},
        });
        format!("{parameters}\n")
    }

    fn is_complete(&self, directory: &Path) -> bool {
        self.kind() == StoreKind::Compute
            || (self.path(directory).exists()
                && fs::read_to_string(self.marker(directory)).is_ok_and(|found| found == self.parameters()))
    }

    /// Removes the remains of an interrupted or outdated load, the marker first.
    fn clear(&self, directory: &Path) -> Result<(), CatalogueError> {
        let files = directory.join(self.name());
        absent_is_fine(fs::remove_file(self.marker(directory))).map_err(|source| io_error(&files, source))?;
        absent_is_fine(fs::remove_dir_all(&files)).map_err(|source| io_error(&files, source))
    }

    /// Returns the total bytes of all values of a backend.
    fn value_bytes(&self) -> u64 {
        (0..self.objects).map(|object| u64::from(self.backend.object_bytes(object))).sum()
    }

    fn load(&self, directory: &Path, progress: &Progress) -> Result<(), CatalogueError> {
        let mut loader = Loader::open(self.name(), &self.options(directory))?;
        let mut value = Vec::new();
        for object in 0..self.objects {
            self.write_value(object, &mut value);
            loader.put(&key(object), &value)?;
            progress.add(value.len());
        }
        loader.finish()?;
        let marker = self.marker(directory);
        write_whole(&marker, &self.parameters()).map_err(|source| io_error(&marker, source))
    }

    /// Writes the value of a row: pseudo-random bytes derived from backend and object.
    fn write_value(&self, object: u64, value: &mut Vec<u8>) {
        let bytes = self.backend.object_bytes(object) as usize;
        let mut draws = SplitMix64::new(!((u64::from(self.backend.id) << 40).wrapping_add(object)));
        value.clear();
        value.reserve(bytes + 8);
        while value.len() < bytes {
            value.extend_from_slice(&draws.next_u64().to_le_bytes());
        }
        value.truncate(bytes);
    }

    fn open(&self, directory: &Path) -> Result<Arc<dyn Store>, OpenError> {
        let inner = match self.kind() {
            StoreKind::Compute => {
                let backend = Arc::clone(&self.backend);
                let bytes = move |key: &[u8]| object(key).map(|object| backend.object_bytes(object));
                sherwood_store::open_compute(
                    self.name(),
                    &self.compute_options(),
                    ValueBytes::ByKey(Arc::new(bytes)),
                )?
            }
            _ => sherwood_store::open(self.name(), &self.options(directory))?,
        };
        Ok(Arc::new(Rows { inner, objects: self.objects }))
    }
}

/// The key of an object: `o` and its id in decimal.
pub(crate) fn key(object: u64) -> Bytes {
    format!("o{object}").into()
}

/// Parses the object id of a key.
fn object(key: &[u8]) -> Option<u64> {
    std::str::from_utf8(key.strip_prefix(b"o")?).ok()?.parse().ok()
}

/// A store in which every object has a row: ids from `objects` on read the row `id mod objects`.
struct Rows {
    inner: Arc<dyn Store>,
    objects: u64,
}

impl Rows {
    /// Maps a key to the key of the row it reads. A key that names no object is returned unchanged;
    /// the store does not find it.
    fn row(&self, key: Bytes) -> Bytes {
        match object(&key) {
            Some(object) if object >= self.objects => self::key(object % self.objects),
            _ => key,
        }
    }
}

impl Store for Rows {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn kind(&self) -> StoreKind {
        self.inner.kind()
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        self.inner.get_many(keys.into_iter().map(|key| self.row(key)).collect())
    }

    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.put(self.row(key), value)
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.delete(self.row(key))
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn set_limit(&self, limit: Limit) -> Result<(), LimitError> {
        self.inner.set_limit(limit)
    }

    fn cpu_time(&self) -> Duration {
        self.inner.cpu_time()
    }
}

/// Progress of a load: a bar on a terminal, or a log line every few seconds.
struct Progress {
    bar: ProgressBar,
    log: Option<Mutex<Instant>>,
    bytes: u64,
    done_bytes: AtomicU64,
}

impl Progress {
    fn new(directory: &Path, bytes: u64) -> Self {
        let megabytes = bytes.div_ceil(1_000_000);
        out::say(format_args!(
            "loading the demo's values, once: {megabytes} MB into {}",
            directory.display()
        ));
        let terminal = io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(bytes) } else { ProgressBar::hidden() };
        let style = "{wide_bar} {decimal_bytes}/{decimal_total_bytes}, {eta} left";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        let log = (!terminal).then(|| Mutex::new(Instant::now()));
        Self { bar, log, bytes, done_bytes: AtomicU64::new(0) }
    }

    fn add(&self, bytes: usize) {
        let done_bytes = self.done_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        self.bar.set_position(done_bytes);
        if let Some(logged) = &self.log {
            let mut logged = logged.lock().unwrap_or_else(PoisonError::into_inner);
            if logged.elapsed() >= LOG_EVERY {
                *logged = Instant::now();
                out::say(format_args!(
                    "loading the demo's values: {}%",
                    100 * done_bytes / self.bytes.max(1)
                ));
            }
        }
    }

    fn finish(self) {
        self.bar.finish_and_clear();
        out::say("the demo's values are loaded");
    }
}

/// Locks `directory` against loading by another process. The system releases the lock when the
/// process ends.
fn lock(directory: &Path) -> Result<File, CatalogueError> {
    let path = directory.join("load.lock");
    let file = File::create(&path).map_err(|source| io_error(&path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(CatalogueError::Locked { directory: directory.to_owned() }),
        Err(TryLockError::Error(source)) => Err(io_error(&path, source)),
    }
}

/// Returns an error when the disk has too little space for the values.
fn check_free(directory: &Path, value_bytes: u64) -> Result<(), CatalogueError> {
    let needed_bytes = value_bytes + value_bytes / 100 * DISK_OVERHEAD_PERCENT + DISK_FIXED_BYTES;
    let free_bytes = free_bytes(directory).map_err(|source| io_error(directory, source))?;
    if free_bytes < needed_bytes {
        return Err(CatalogueError::DiskFull { directory: directory.to_owned(), needed_bytes, free_bytes });
    }
    Ok(())
}

/// Bytes that this user may still write to the disk of `directory`.
fn free_bytes(directory: &Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(directory.as_os_str().as_bytes())?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` ends in a nul byte, and `found` is writable and has the size that the call
    // fills; both outlive the call.
    if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it filled the structure.
    let found = unsafe { found.assume_init() };
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Writes a file atomically: after a crash it is either absent or complete.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("draft");
    let mut file = File::create(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn io_error(path: &Path, source: io::Error) -> CatalogueError {
    CatalogueError::Io { path: path.to_owned(), source }
}

/// Version of the file contents, to be changed when equal parameters give different files.
const FORMAT: u32 = 1;
/// Rows and columns of the matrices of `cpu` backends. A product takes about 10 µs per key, similar
/// to a read of the other engines; all twenty backends use a fifth of a core under the demo's load
/// of 5,000 missed keys a second.
const MATRIX_N: u16 = 32;
/// Additional disk space that engines need beyond the values (page remainders, indexes): 5%
/// measured, doubled for safety.
const DISK_OVERHEAD_PERCENT: u64 = 10;
/// Disk space that engines need independent of the amount of data: journals.
const DISK_FIXED_BYTES: u64 = 64 << 20;
/// Interval between progress lines in a log.
const LOG_EVERY: Duration = Duration::from_secs(3);

#[cfg(test)]
impl Catalogue {
    /// Creates a catalogue of every backend of the workload, with a few objects each.
    pub(crate) fn small(directory: &Path) -> Self {
        let mut catalogue = Self::new(&Model::onerf(), "demo", directory.to_owned());
        for backend in &mut catalogue.backends {
            backend.objects = backend.objects.min(5);
        }
        catalogue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(store: &Arc<dyn Store>, keys: &[&'static str]) -> Vec<Option<Bytes>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found =
            runtime.block_on(store.get_many(keys.iter().map(|key| Bytes::from(*key)).collect())).unwrap();
        found.into_iter().map(|found| found.map(|found| found.value)).collect()
    }

    #[test]
    fn every_demo_backend_serves_values_of_the_workloads_sizes() {
        let directory = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::small(directory.path());
        catalogue.load().unwrap();
        let stores = catalogue.open().unwrap();
        assert_eq!(stores.len(), 20);
        for (store, backend) in stores.iter().zip(&catalogue.backends) {
            let values = get(store, &["o0", "o1", "missing"]);
            let found: Vec<_> =
                values.iter().map(|value| value.as_ref().map(|value| value.len() as u32)).collect();
            let bytes = |object| Some(backend.backend.object_bytes(object));
            assert_eq!(found, [bytes(0), bytes(1), None], "{}", backend.name());
            assert!(store.cpu_time() > Duration::ZERO, "{} worked for nothing", backend.name());
        }
    }

    #[test]
    fn object_beyond_the_catalogue_reads_the_row_of_its_id_modulo_the_catalogue_size() {
        let directory = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::small(directory.path());
        catalogue.load().unwrap();
        for (store, backend) in catalogue.open().unwrap().iter().zip(&catalogue.backends) {
            let new_object = backend.objects * 1_000_000 + 1;
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let values = runtime.block_on(store.get_many(vec![key(1), key(new_object)])).unwrap();
            assert!(values[0].is_some() && values[0] == values[1], "{}", backend.name());
        }
    }

    #[test]
    fn completely_loaded_demo_backends_are_reused_and_others_reloaded() {
        let directory = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::small(directory.path());
        catalogue.load().unwrap();
        let modified = |name: &str| fs::metadata(directory.path().join(name)).unwrap().modified().unwrap();
        let (kept, redone) = (modified("b03.complete"), directory.path().join("b05.complete"));
        fs::remove_file(&redone).unwrap();
        fs::write(directory.path().join("b05/items.db"), "half a file").unwrap();
        catalogue.load().unwrap();
        assert_eq!(modified("b03.complete"), kept);
        assert!(redone.exists());
        assert!(get(&catalogue.open().unwrap()[4], &["o4"])[0].is_some());
    }

    #[test]
    fn changed_catalogue_size_causes_a_reload() {
        let directory = tempfile::tempdir().unwrap();
        let mut catalogue = Catalogue::small(directory.path());
        catalogue.load().unwrap();
        catalogue.backends[2].objects = 7;
        assert!(!catalogue.backends[2].is_complete(directory.path()));
        catalogue.load().unwrap();
        assert!(catalogue.backends[2].is_complete(directory.path()));
    }

    #[test]
    fn second_process_cannot_load_demo_values_into_the_same_directory() {
        let directory = tempfile::tempdir().unwrap();
        let _held = lock(directory.path()).unwrap();
        let refused = Catalogue::small(directory.path()).load().unwrap_err();
        assert!(matches!(refused, CatalogueError::Locked { .. }), "{refused}");
    }

    #[test]
    fn full_disk_is_reported_before_any_demo_value_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let refused = check_free(directory.path(), 1 << 60).unwrap_err();
        assert!(refused.to_string().contains("MB are needed and"), "{refused}");
        check_free(directory.path(), 0).unwrap();
    }

    #[test]
    fn key_of_an_object_is_parsed_back_to_the_object() {
        assert_eq!(key(17), "o17");
        assert_eq!(object(b"o17"), Some(17));
        assert_eq!([object(b"17"), object(b"o"), object(b"o-1"), object(b"\xff")], [None; 4]);
    }
}
