//! Traces in files, for the simulator to replay.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sherwood_model::SplitMix64;
use sherwood_sim::{Requests, Trace};
use sherwood_workload::onerf::{Model, Replay};
use sherwood_workload::trace::{Position, TraceError, built_in, built_in_names, requests};

use crate::exit::Failure;

/// A trace that a scenario file names.
#[derive(Debug)]
pub(super) struct TraceFile {
    input: Input,
    replay: Replay,
    /// Names of the backends.
    backends: Vec<String>,
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
        Ok(Some(Self { input, replay: replay.clone(), backends }))
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
}

impl Trace for TraceFile {
    fn name(&self) -> String {
        match &self.input {
            Input::File(path) => path.display().to_string(),
            Input::BuiltIn(name, _) => name.clone(),
        }
    }

    fn requests(&self, sample: u32) -> Result<Requests, TraceError> {
        let input: Box<dyn BufRead + Send> = match &self.input {
            Input::BuiltIn(_, bytes) => Box::new(Cursor::new(*bytes)),
            Input::File(path) => {
                let file =
                    File::open(path).map_err(|source| TraceError::Read { at: Position::Byte(0), source })?;
                Box::new(BufReader::with_capacity(1 << 16, file))
            }
        };
        Ok(Box::new(requests::read(input, &self.replay, self.backends.clone(), sample)?))
    }
}
