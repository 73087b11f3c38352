//! Trace files that the simulator replays.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sherwood_model::SeededState;
use sherwood_sim::{Requests, Trace};
use sherwood_workload::onerf::{Model, Replay};
use sherwood_workload::trace::{Position, TraceError, built_in, built_in_names, requests, unpacked};

use crate::exit::Failure;

/// A trace named by a scenario file.
#[derive(Debug)]
pub(super) struct TraceFile {
    input: Input,
    replay: Replay,
    /// Names of the backends.
    backends: Vec<String>,
    /// The decompressed contents of a packed trace, after the first use; every run reads them from
    /// the start.
    unpacked: Mutex<Option<Arc<[u8]>>>,
}

#[derive(Debug)]
enum Input {
    File(PathBuf),
    BuiltIn(String, &'static [u8]),
}

impl TraceFile {
    /// Returns the trace of a model whose document is at `scenario`, if its requests come from a
    /// trace: a built-in trace, or a file, relative to the scenario file's directory.
    pub(super) fn of(model: &Model, scenario: &Path) -> Result<Option<Self>, Failure> {
        let Some(replay) = model.replay() else { return Ok(None) };
        let path = scenario.parent().unwrap_or(Path::new("")).join(&replay.file);
        let input = match (File::open(&path), built_in(&replay.file)) {
            (Ok(_), _) => Input::File(path),
            (Err(_), Some(bytes)) => Input::BuiltIn(replay.file.clone(), bytes),
            (Err(error), None) => {
                return Err(Failure::usage(format!(
                    "{}: opening its trace {}: {error}; built in are: {}",
                    scenario.display(),
                    path.display(),
                    built_in_names().collect::<Vec<_>>().join(", ")
                )));
            }
        };
        let backends = model.backends().iter().map(|backend| backend.name.clone()).collect();
        Ok(Some(Self { input, replay: replay.clone(), backends, unpacked: Mutex::new(None) }))
    }

    /// Returns a hash that identifies the contents of the trace without reading all of them: path,
    /// length, modification and change times, and the first and last bytes. The change time cannot
    /// be set back.
    pub(super) fn mark(&self) -> u64 {
        let mut told = Vec::new();
        if let Input::File(path) = &self.input
            && let Ok(about) = path.metadata()
        {
            let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
            told.extend(about.len().to_le_bytes());
            told.extend(times.into_iter().flat_map(i64::to_le_bytes));
            // A pipe can be read only once.
            if about.is_file() {
                told.extend(ends(path).unwrap_or_default().to_le_bytes());
            }
            told.extend(path.canonicalize().unwrap_or_default().as_os_str().as_bytes());
        }
        SeededState::new(0).hash_bytes(&told)
    }

    fn open(&self) -> Result<Box<dyn BufRead + Send>, TraceError> {
        Ok(match &self.input {
            Input::BuiltIn(_, bytes) => Box::new(Cursor::new(*bytes)),
            Input::File(path) => {
                let file =
                    File::open(path).map_err(|source| TraceError::Read { at: Position::Byte(0), source })?;
                Box::new(BufReader::with_capacity(1 << 16, file))
            }
        })
    }

    /// Opens the decompressed trace. Concurrent callers wait for the first decompression.
    fn plain(&self) -> Result<Box<dyn BufRead + Send>, TraceError> {
        let mut held = self.unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            match unpacked(self.open()?)?.into_held() {
                Ok(bytes) => *held = Some(bytes.into()),
                Err(plain) => return Ok(Box::new(plain)),
            }
        }
        let bytes = held.clone().unwrap_or_default();
        Ok(Box::new(Cursor::new(bytes)))
    }
}

/// Bytes at the beginning and at the end of a file that are part of its hash.
const END_BYTES: u64 = 64 << 10;

/// Hashes a file's first and last bytes.
fn ends(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(END_BYTES).read_to_end(&mut bytes)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END_BYTES)))?;
    file.take(END_BYTES).read_to_end(&mut bytes)?;
    Ok(SeededState::new(0).hash_bytes(&bytes))
}

impl Trace for TraceFile {
    fn name(&self) -> String {
        match &self.input {
            Input::File(path) => path.display().to_string(),
            Input::BuiltIn(name, _) => name.clone(),
        }
    }

    fn requests(&self, sample: u32) -> Result<Requests, TraceError> {
        Ok(Box::new(requests::read(self.plain()?, &self.replay, self.backends.clone(), sample)?))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of(path: &Path) -> TraceFile {
        TraceFile { input: Input::File(path.to_owned()), ..orm_busy() }
    }

    #[test]
    fn changed_first_or_last_bytes_of_a_trace_change_its_hash() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace");
        let digest = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("a file");
            ends(&path).expect("it can be read")
        };
        let end = END_BYTES as usize;
        let plain = vec![b'a'; 3 * end];
        let before = digest(&plain);
        for (position, told) in
            [(0, true), (end - 1, true), (end, false), (2 * end, true), (3 * end - 1, true)]
        {
            let mut other = plain.clone();
            other[position] = b'b';
            assert_eq!(digest(&other) != before, told, "byte {position}");
        }
        assert_ne!(digest(b"short"), digest(b"shore"));
        assert_eq!(digest(&plain), before);
    }

    #[test]
    fn changed_contents_of_a_trace_change_its_hash_despite_the_old_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace");
        let mut bytes = vec![b'a'; 3 * END_BYTES as usize];
        fs::write(&path, &bytes).expect("a file");
        let (before, about) = (of(&path).mark(), path.metadata().expect("a file"));
        assert_eq!(of(&path).mark(), before);
        // A change in the middle of the file, which is not hashed.
        bytes[3 * END_BYTES as usize / 2] = b'b';
        let written = about.modified().expect("a time");
        // Waits until the file system's clock has advanced.
        while path.metadata().expect("a file").ctime_nsec() == about.ctime_nsec() {
            fs::write(&path, &bytes).expect("a file");
            File::options().write(true).open(&path).expect("a file").set_modified(written).expect("a time");
        }
        assert_eq!(path.metadata().expect("a file").modified().expect("a time"), written);
        assert_ne!(of(&path).mark(), before);
    }

    #[test]
    fn hash_of_a_trace_depends_on_the_canonical_path() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name| directory.path().join(name);
        fs::write(at("trace"), b"a").expect("a file");
        fs::hard_link(at("trace"), at("twin")).expect("a second name");
        std::os::unix::fs::symlink(at("trace"), at("link")).expect("a link");
        let mark = |name| of(&at(name)).mark();
        assert_ne!(mark("trace"), mark("twin"));
        assert_eq!(mark("trace"), mark("link"));
    }

    fn orm_busy() -> TraceFile {
        let document = include_str!("../../../../../examples/orm-busy.sim.json");
        let model = Model::from_json(document).expect("an example");
        TraceFile::of(&model, Path::new("orm-busy.sim.json")).expect("built in").expect("a trace")
    }

    #[test]
    fn packed_trace_is_decompressed_once_and_read_from_the_start() {
        let trace = orm_busy();
        let first = |trace: &TraceFile| {
            trace.requests(1).expect("it is sound").take(3).collect::<Result<Vec<_>, _>>()
        };
        let before = first(&trace).expect("three requests");
        let held = trace.unpacked.lock().expect("nobody panics").clone().expect("it is packed");
        assert_eq!(first(&trace).expect("three requests"), before);
        let again = trace.unpacked.lock().expect("nobody panics").clone().expect("it is packed");
        assert!(Arc::ptr_eq(&held, &again));
    }
}
