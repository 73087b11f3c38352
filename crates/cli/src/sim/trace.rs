//! Traces in files, for the simulator to replay.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use sherwood_model::SplitMix64;
use sherwood_sim::{Requests, Trace};
use sherwood_workload::onerf::{Model, Replay};
use sherwood_workload::trace::{Position, TraceError, built_in, built_in_names, requests, unpacked};

use crate::exit::Failure;

/// A trace that a scenario file names.
#[derive(Debug)]
pub(super) struct TraceFile {
    input: Input,
    replay: Replay,
    /// Names of the backends.
    backends: Vec<String>,
    /// What it is unpacked, once somebody has read it, if it is packed: every run reads it anew.
    unpacked: Mutex<Option<Arc<[u8]>>>,
}

#[derive(Debug)]
enum Input {
    File(PathBuf),
    BuiltIn(String, &'static [u8]),
}

impl TraceFile {
    /// The trace of a model whose document is at `scenario`, if its requests are in one: a file, beside that of the scenario unless
    /// its path begins at the root, or one that is built in.
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

    /// Tells contents apart without reading them: a file's length and when it was written.
    pub(super) fn mark(&self) -> u64 {
        let mut mark = SplitMix64::new(0);
        if let Input::File(path) = &self.input
            && let Ok(about) = path.metadata()
        {
            let written = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            mark.stir(about.len());
            mark.stir(written.map_or(0, |at| at.as_nanos() as u64));
        }
        mark.next_u64()
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

    /// The trace as it was before it was packed. Who comes while another unpacks it waits for that.
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
    use super::*;

    fn orm_busy() -> TraceFile {
        let document = include_str!("../../../../examples/orm-busy.sim.json");
        let model = Model::from_json(document).expect("an example");
        TraceFile::of(&model, Path::new("orm-busy.sim.json")).expect("built in").expect("a trace")
    }

    #[test]
    fn a_packed_trace_is_unpacked_once_and_read_from_its_start_each_time() {
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
