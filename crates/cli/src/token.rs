//! `--token-file`: the admin token of a node. It is read from a file because other users can list
//! the command lines of processes.

use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// The file of an admin token, if given.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TokenFile {
    /// Show the node the first token in this file, one that it accepts
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
}

impl TokenFile {
    /// Returns true when a token file is given.
    pub(crate) fn is_given(&self) -> bool {
        self.token_file.is_some()
    }

    /// Reads the token.
    pub(crate) fn read(&self) -> Result<Option<String>, Failure> {
        self.token_file.as_deref().map(first).transpose()
    }
}

fn first(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let text = sherwood_textfile::input(path).map_err(|error| {
        Failure::usage(format!("--token-file {shown} {error}; name the file of a node's tokens"))
    })?;
    let token = sherwood_textfile::entries(&text)
        .next()
        .filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()));
    let lack =
        || Failure::usage(format!("--token-file {shown} holds no token; name the file of a node's tokens"));
    token.map(str::to_owned).ok_or_else(lack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_token_of_the_file_is_used_and_invalid_text_is_not_printed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        std::fs::write(&path, "# ours\n\n first-token \nsecond-token\n").unwrap();
        assert_eq!(first(&path).unwrap(), "first-token");
        std::fs::write(&path, "\u{feff}first-token\r\n").unwrap();
        assert_eq!(first(&path).unwrap(), "first-token");
        for text in ["", "# none\n", "a secret\n"] {
            std::fs::write(&path, text).unwrap();
            let Err(Failure::Usage(said)) = first(&path) else { panic!("{text:?} was taken") };
            assert!(said.contains("holds no token") && !said.contains("secret"), "{said}");
        }
    }
}
