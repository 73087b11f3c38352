//! The repository's files: tracked ones and untracked ones that are not ignored.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The working tree this crate was built from.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    /// Paths of the files from the root with `/` between folders, in order, without ignored files.
    pub files: Vec<String>,
}

impl Tree {
    /// Lists the working tree.
    ///
    /// # Errors
    /// A sentence when git is missing or the folder is not a clone.
    pub fn open() -> Result<Self, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let listed = output(
            Command::new("git")
                // The tests may run as another user than the owner of the clone.
                .args([
                    "-c",
                    "safe.directory=*",
                    "ls-files",
                    "-z",
                    "--cached",
                    "--others",
                    "--exclude-standard",
                ])
                .current_dir(&root),
        )?;
        let mut files: Vec<String> = listed.split_terminator('\0').map(str::to_owned).collect();
        files.retain(|file| root.join(file).is_file());
        files.sort();
        files.dedup();
        Ok(Self { root, files })
    }

    /// Returns the files below `folder` whose names end in `suffix`, with their texts.
    ///
    /// # Panics
    /// When a file of the repository cannot be read as UTF-8 text.
    pub fn texts(&self, folder: &str, suffix: &str) -> impl Iterator<Item = (&str, String)> {
        let chosen = self.files.iter().filter(move |file| file.starts_with(folder) && file.ends_with(suffix));
        chosen.map(|file| (file.as_str(), self.text(file)))
    }

    /// Returns the names of the folders below `crates/` that hold a package, in order.
    pub fn crates(&self) -> impl Iterator<Item = &str> {
        self.files.iter().filter_map(|file| {
            let name = file.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            (!name.contains('/')).then_some(name)
        })
    }

    /// Returns the text of a file of the working tree.
    ///
    /// # Panics
    /// When it cannot be read as UTF-8 text.
    #[must_use]
    pub fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.root.join(file))
            .unwrap_or_else(|error| panic!("cannot read {file}: {error}"))
    }

    /// Returns the size in bytes of a file of the working tree.
    ///
    /// # Panics
    /// When it has been removed since it was listed.
    #[must_use]
    pub fn bytes(&self, file: &str) -> u64 {
        let metadata = self.root.join(file).metadata();
        metadata.unwrap_or_else(|error| panic!("cannot look at {file}: {error}")).len()
    }

    /// Returns true when `path` is a file or folder of the working tree.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Returns the output of `cargo metadata` for the workspace's own packages.
    ///
    /// # Errors
    /// A sentence when cargo fails or prints invalid JSON.
    pub fn metadata(&self) -> Result<serde_json::Value, String> {
        let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
        let json = output(Command::new(env!("CARGO")).args(arguments).current_dir(&self.root))?;
        serde_json::from_str(&json).map_err(|error| format!("cannot read cargo's metadata: {error}"))
    }
}

fn output(command: &mut Command) -> Result<String, String> {
    let result = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !result.status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&result.stderr).trim()));
    }
    String::from_utf8(result.stdout).map_err(|error| format!("{command:?} printed no UTF-8: {error}"))
}
