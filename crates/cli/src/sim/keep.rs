//! The directory in which finished work is kept, so that a command goes on where it was stopped.
//!
//! One file for each piece, which says what it followed from and what came out. A file appears
//! under its name when it is complete. One of another build, or that is no such piece (any more),
//! is made anew: what is kept saves time, and must never stand in the way.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sherwood_model::SeededState;

use super::runs::Inputs;
use crate::exit::Failure;
use crate::out;

/// A finished piece of work.
pub(super) trait Finished: Serialize + DeserializeOwned {
    /// What names of files of this kind begin with.
    const PREFIX: &str;

    /// What it followed from.
    fn inputs(&self) -> &Inputs;
}

/// The directory.
#[derive(Debug)]
pub(super) struct Keep {
    directory: PathBuf,
    /// Whether it was said that something is of no use any more.
    said: AtomicBool,
}

impl Keep {
    /// The directory, made when there is none.
    pub(super) fn open(directory: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(directory)
            .map_err(|error| Failure::failed(format!("making {}: {error}", directory.display())))?;
        Ok(Self { directory: directory.to_owned(), said: AtomicBool::new(false) })
    }

    /// Where it is, for messages.
    pub(super) fn directory(&self) -> impl Display {
        self.directory.display()
    }

    /// What followed from these inputs, if it was finished and this build can use it.
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

    /// Keeps what is finished.
    pub(super) fn write<F: Finished>(&self, kept: &F) -> Result<(), Failure> {
        let path = self.path::<F>(kept.inputs());
        let text = serde_json::to_string(kept).expect("results have string keys only") + "\n";
        // Of this process: another one that finishes the same piece writes beside it, and whole
        // files replace each other.
        let unfinished = path.with_extension(format!("{}.part", std::process::id()));
        fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, &path)).map_err(|error| {
            // Nobody else would; that it stays does no harm.
            let _ = fs::remove_file(&unfinished);
            Failure::failed(format!("keeping the finished run {}: {error}", path.display()))
        })
    }

    /// Words for people, and a number that tells all inputs apart but for the build: that of
    /// another one is replaced.
    fn path<F: Finished>(&self, inputs: &Inputs) -> PathBuf {
        let Inputs { version: _, scenario, document: _, policy, seed, scale, settings: _ } = inputs;
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let scenario: String = scenario.chars().map(plain).take(NAME_MAX).collect();
        let (prefix, mark) = (F::PREFIX, mark(inputs));
        self.directory.join(format!("{prefix}{scenario}_{policy}_scale-{scale}_seed-{seed}_{mark:016x}.json"))
    }
}

/// Letters of a scenario's name in that of a file, which takes 255 in all.
const NAME_MAX: usize = 80;

/// A number that tells inputs apart; files say what they are of.
fn mark(inputs: &Inputs) -> u64 {
    let Inputs { version: _, scenario, document, policy, seed, scale, settings } = inputs;
    let seed = seed.to_string();
    // Each with its length, lest parts of one be taken for parts of its neighbour.
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
    fn runs_that_differ_in_anything_have_files_of_their_own() {
        let directory = tempfile::tempdir().expect("a directory");
        let keep = Keep::open(directory.path()).expect("a directory");
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
    fn what_another_process_has_not_finished_is_in_nobodys_way() {
        let directory = tempfile::tempdir().expect("a directory");
        let keep = Keep::open(directory.path()).expect("a directory");
        let piece = Piece { inputs: inputs("a", None, &[]), found: 1 };
        let path = keep.path::<Piece>(&piece.inputs);
        // Names of this piece that cannot be written to: one without a process, and one of another.
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
    fn what_cannot_be_kept_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let keep = Keep::open(directory.path()).expect("a directory");
        let piece = Piece { inputs: inputs("a", None, &[]), found: 1 };
        fs::create_dir(keep.path::<Piece>(&piece.inputs)).expect("a directory");
        keep.write(&piece).expect_err("a directory is no file");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn what_another_build_kept_or_nobody_knows_is_made_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let keep = Keep::open(directory.path()).expect("a directory");
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
        // Another run's, under this name.
        let other = Piece { inputs: inputs("b", None, &[]), found: 3 };
        fs::write(&path, serde_json::to_string(&other).expect("plain")).expect("a file");
        assert_eq!(read(&old), None);
        keep.write(&Piece { inputs: new.clone(), found: 2 }).expect("it is kept");
        assert_eq!((read(&new), read(&old)), (Some(2), None), "the new one in its place");
    }
}
