//! The directory of finished results, which allows a command to continue where it was stopped.
//!
//! Each result is a file with its inputs and its outcome, renamed into place once complete. A file
//! from another build, or one that cannot be read, is replaced: kept results save time and must
//! never prevent a run.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sherwood_model::SeededState;

use super::inputs::Inputs;
use crate::cache_dir;
use crate::exit::Failure;
use crate::out;

/// A result that can be kept in a file for later commands.
pub(super) trait Finished: Serialize + DeserializeOwned {
    /// Prefix of the names of files with this kind of result.
    const PREFIX: &str;

    /// Returns the inputs from which the result was computed.
    fn inputs(&self) -> &Inputs;
}

/// The directory in which finished results are kept.
#[derive(Debug)]
pub(super) struct Keep {
    directory: PathBuf,
    /// True once a warning about unusable files was printed.
    said: AtomicBool,
    /// Locks of results that several runs need.
    shared: Mutex<BTreeMap<Inputs, Arc<Mutex<()>>>>,
}

impl Keep {
    /// Opens this directory, or else one in the user's cache, creating it if necessary.
    pub(super) fn open(directory: Option<&Path>) -> Result<Self, Failure> {
        let directory = match directory {
            Some(directory) => directory.to_owned(),
            None => cache_dir::default("sim", "--results")?,
        };
        fs::create_dir_all(&directory)
            .map_err(|error| Failure::failed(format!("making {}: {error}", directory.display())))?;
        Ok(Self { directory, said: AtomicBool::new(false), shared: Mutex::default() })
    }

    /// Path of the directory, for messages.
    pub(super) fn directory(&self) -> impl Display {
        self.directory.display()
    }

    /// Returns the lock of a result that several runs need. The thread that holds the lock computes
    /// and keeps the result; other threads wait for it.
    pub(super) fn lock(&self, inputs: &Inputs) -> Arc<Mutex<()>> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(shared.entry(inputs.clone()).or_default())
    }

    /// Reads the result for these inputs, if it was finished and this build can use it.
    pub(super) fn read<F: Finished>(&self, inputs: &Inputs) -> Result<Option<F>, Failure> {
        let path = self.path::<F>(inputs);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|error| {
                Failure::failed(format!("reading the finished run {}: {error}", path.display()))
            })?,
        };
        let kept = serde_json::from_slice(&bytes).ok().filter(|kept: &F| kept.inputs() == inputs);
        if kept.is_none() && !self.said.swap(true, Relaxed) {
            out::say(format_args!(
                "{} is of another build, or not what it should be: it is made anew, and so are others like it",
                path.display()
            ));
        }
        Ok(kept)
    }

    /// Writes a finished result.
    pub(super) fn write<F: Finished>(&self, kept: &F) -> Result<(), Failure> {
        let path = self.path::<F>(kept.inputs());
        // The name contains the process id, so that processes that finish the same result do not
        // write into the same file; complete files replace each other.
        let unfinished = path.with_extension(format!("{}.part", std::process::id()));
        fs::write(&unfinished, out::json(kept) + "\n").and_then(|()| fs::rename(&unfinished, &path)).map_err(
            |error| {
                // A file left behind is harmless.
                let _ = fs::remove_file(&unfinished);
                Failure::failed(format!("keeping the finished run {}: {error}", path.display()))
            },
        )
    }

    /// Path of a result: a readable name and a hash of all inputs except the build, so that a
    /// result replaces that of another build.
    fn path<F: Finished>(&self, inputs: &Inputs) -> PathBuf {
        let Inputs { version: _, scenario, document: _, policy, seed, scale, settings: _ } = inputs;
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let scenario: String = scenario.chars().map(plain).take(NAME_MAX).collect();
        let (prefix, mark) = (F::PREFIX, mark(inputs));
        self.directory.join(format!("{prefix}{scenario}_{policy}_scale-{scale}_seed-{seed}_{mark:016x}.json"))
    }
}

/// Characters of a scenario's name in a file name, which is limited to 255.
const NAME_MAX: usize = 80;

/// Hash of the inputs. The file itself contains the inputs, so a collision is detected.
fn mark(inputs: &Inputs) -> u64 {
    let Inputs { version: _, scenario, document, policy, seed, scale, settings } = inputs;
    let seed = seed.to_string();
    // Each part is preceded by its length, so that parts cannot be confused with their neighbours.
    let fixed = [Some(scenario), document.as_ref(), Some(policy), Some(&seed), Some(scale)];
    let texts = fixed.into_iter().chain(settings.iter().map(Some));
    let mut bytes = Vec::new();
    for text in texts {
        bytes.extend(text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
        bytes.extend(text.into_iter().flat_map(|text| text.bytes()));
    }
    SeededState::new(0).hash_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Piece {
        inputs: Inputs,
        found: u32,
    }

    impl Finished for Piece {
        const PREFIX: &str = "piece_";

        fn inputs(&self) -> &Inputs {
            &self.inputs
        }
    }

    fn inputs(scenario: &str, document: Option<&str>, settings: &[&str]) -> Inputs {
        Inputs {
            version: "1".to_owned(),
            scenario: scenario.to_owned(),
            document: document.map(str::to_owned),
            policy: "fair".to_owned(),
            seed: 1,
            scale: "0.01".to_owned(),
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
        }
    }

    #[test]
    fn results_of_runs_with_different_inputs_have_different_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let keep = Keep::open(Some(directory.path())).expect("a directory");
        let long = "l".repeat(300);
        let mut all = vec![
            inputs("a.b", None, &[]),
            inputs("a_b", None, &[]),
            inputs(&long, None, &[]),
            inputs(&(long.clone() + "r"), None, &[]),
            inputs("a", Some("b"), &[]),
            inputs("a", None, &["b"]),
            inputs("a", Some(""), &["b"]),
            inputs("a", None, &["walk=12"]),
            inputs("a", None, &["walk=21"]),
            inputs("a", None, &["walk=1", "2"]),
            inputs("a", None, &["walk=1", "", "2"]),
        ];
        all.push(Inputs { policy: "lama".to_owned(), ..inputs("a", None, &[]) });
        all.push(Inputs { seed: 2, ..inputs("a", None, &[]) });
        all.push(Inputs { scale: "1".to_owned(), ..inputs("a", None, &[]) });
        for (found, inputs) in (0..).zip(&all) {
            keep.write(&Piece { inputs: inputs.clone(), found }).expect("it is kept");
        }
        for (found, inputs) in (0..).zip(&all) {
            let piece = Piece { inputs: inputs.clone(), found };
            assert_eq!(keep.read(inputs).expect("it can be read"), Some(piece));
        }
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), all.len());
    }

    #[test]
    fn unfinished_results_file_of_another_process_is_ignored() {
        let directory = tempfile::tempdir().expect("a directory");
        let keep = Keep::open(Some(directory.path())).expect("a directory");
        let piece = Piece { inputs: inputs("a", None, &[]), found: 1 };
        let path = keep.path::<Piece>(&piece.inputs);
        // Two names that cannot be written to: the old one without a process id, and that of
        // another process.
        let others = ["part".to_owned(), format!("{}.part", std::process::id() ^ 1)];
        for other in &others {
            fs::create_dir(path.with_extension(other)).expect("a directory");
        }
        keep.write(&piece).expect("it is kept");
        assert_eq!(keep.read(&piece.inputs).expect("it can be read"), Some(piece));
        let names = || fs::read_dir(directory.path()).expect("a directory").count();
        assert_eq!(names(), 1 + others.len(), "nothing of it is left beside it");
    }

    #[test]
    fn failed_write_of_a_result_leaves_no_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let keep = Keep::open(Some(directory.path())).expect("a directory");
        let piece = Piece { inputs: inputs("a", None, &[]), found: 1 };
        fs::create_dir(keep.path::<Piece>(&piece.inputs)).expect("a directory");
        keep.write(&piece).expect_err("a directory is no file");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn unusable_results_file_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let keep = Keep::open(Some(directory.path())).expect("a directory");
        let old = inputs("a", None, &["tax=0.02"]);
        let new = Inputs { version: "2".to_owned(), ..old.clone() };
        keep.write(&Piece { inputs: old.clone(), found: 1 }).expect("it is kept");
        let read = |inputs| keep.read::<Piece>(inputs).expect("never a failure").map(|piece| piece.found);
        assert_eq!((read(&new), read(&old)), (None, Some(1)));
        let path = keep.path::<Piece>(&old);
        for wrong in [&b""[..], b"{}", b"{\"inputs\":{},\"found\":1}", b"\xff\xfe"] {
            fs::write(&path, wrong).expect("a file");
            assert_eq!(read(&new), None, "{wrong:?}");
        }
        // The result of another run, under this name.
        let other = Piece { inputs: inputs("b", None, &[]), found: 3 };
        fs::write(&path, serde_json::to_string(&other).expect("plain")).expect("a file");
        assert_eq!(read(&old), None);
        keep.write(&Piece { inputs: new.clone(), found: 2 }).expect("it is kept");
        assert_eq!((read(&new), read(&old)), (Some(2), None), "the new one in its place");
    }
}
