//! The directory in which finished work is kept, so that a command goes on where it was stopped.
//!
//! One file for each piece, which says what it followed from and what came out. A file appears under its name when it is
//! complete; one of other inputs under the same name is made anew.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sherwood_model::SeededState;

use super::runs::Inputs;
use crate::exit::Failure;

/// A finished piece of work.
pub(super) trait Finished: Serialize + DeserializeOwned {
    /// What names of files of this kind begin with.
    const PREFIX: &str;

    /// What it followed from.
    fn inputs(&self) -> &Inputs;
}

/// The directory.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    directory: PathBuf,
}

impl Keep {
    /// The directory, made when there is none.
    pub(super) fn open(directory: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(directory)
            .map_err(|error| Failure::failed(format!("making {}: {error}", directory.display())))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Where it is, for messages.
    pub(super) fn directory(&self) -> impl Display {
        self.directory.display()
    }

    /// What followed from these inputs, if it was finished.
    pub(super) fn read<F: Finished>(&self, inputs: &Inputs) -> Result<Option<F>, Failure> {
        let path = self.path::<F>(inputs);
        let failed = |error: &dyn Display| {
            let path = path.display();
            Failure::failed(format!(
                "reading the finished run {path}: {error}; remove it to have it made again"
            ))
        };
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| failed(&error))?,
        };
        let kept: F = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        Ok((kept.inputs() == inputs).then_some(kept))
    }

    /// Keeps what is finished.
    pub(super) fn write<F: Finished>(&self, kept: &F) -> Result<(), Failure> {
        let path = self.path::<F>(kept.inputs());
        let text = serde_json::to_string(kept).expect("results have string keys only") + "\n";
        let unfinished = path.with_extension("part");
        fs::write(&unfinished, text)
            .and_then(|()| fs::rename(&unfinished, &path))
            .map_err(|error| Failure::failed(format!("keeping the finished run {}: {error}", path.display())))
    }

    fn path<F: Finished>(&self, inputs: &Inputs) -> PathBuf {
        let Inputs { version: _, scenario, document, policy, seed, scale, settings } = inputs;
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let scenario: String = scenario.chars().map(plain).collect();
        let mut name = format!("{}{scenario}_{policy}_scale-{scale}_seed-{seed}", F::PREFIX);
        if !settings.is_empty() || document.is_some() {
            name += &format!("_{:08x}", mark(document.as_ref(), settings));
        }
        self.directory.join(name + ".json")
    }
}

/// A number that tells documents and lists of settings apart in names of files; the files say what they are of.
fn mark(document: Option<&String>, settings: &[String]) -> u32 {
    let texts = document.into_iter().chain(settings);
    let bytes: Vec<u8> = texts.flat_map(|text| text.bytes().chain([0])).collect();
    (SeededState::new(0).hash_bytes(&bytes) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_same_letters_are_told_apart() {
        let lists = [
            &["walk=12"][..],
            &["walk=21"],
            &["wakl=12"],
            &["walk=1", "2"],
            &["depth=1.477"],
            &["depth=4.177"],
        ];
        let mark =
            |list: &[&str]| mark(None, &list.iter().map(|&setting| setting.to_owned()).collect::<Vec<_>>());
        let mut marks = lists.map(mark);
        marks.sort_unstable();
        assert!(marks.windows(2).all(|pair| pair[0] != pair[1]), "{marks:?}");
    }
}
