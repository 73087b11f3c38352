//! Where a password comes from: a file or the environment, never the configuration itself.
//!
//! A configuration gets copied, shown and committed; a password must not travel along. So options hold the place only.

use std::path::PathBuf;

use serde::Deserialize;

use crate::OpenCause;

/// Where a secret is kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Secret {
    /// A file that holds it, without the line end it may have.
    File(PathBuf),
    /// A variable of the environment.
    Env(String),
}

impl Secret {
    /// Reads it.
    ///
    /// # Errors
    /// When the file cannot be read, the variable is not set, or it is no text. The error names the place and never what is in
    /// it.
    pub(crate) fn read(&self) -> Result<String, OpenCause> {
        match self {
            Self::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => Err(OpenCause::Remote {
                    option: "password_file",
                    detail: format!("{}: {error}", path.display()),
                    remedy: "name a file of text that this user may read",
                }),
            },
            Self::Env(name) => std::env::var(name).map_err(|error| OpenCause::Remote {
                option: "password_env",
                detail: format!("{name}: {}", absent(&error)),
                remedy: "set the variable in the environment that the node is started in, or take `password_file`",
            }),
        }
    }
}

/// Without the bytes that [`std::env::VarError`] shows of what is no text.
fn absent(error: &std::env::VarError) -> &'static str {
    match error {
        std::env::VarError::NotPresent => "the environment has no such variable",
        std::env::VarError::NotUnicode(_) => "it is no valid UTF-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_its_text_without_the_line_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "se cret \r\n").unwrap();
        assert_eq!(Secret::File(path).read().unwrap(), "se cret ");
    }

    #[test]
    fn a_secret_that_is_not_there_is_refused_by_place() {
        let refusal = Secret::File("/nowhere/password".into()).read().unwrap_err().to_string();
        assert!(refusal.starts_with("`password_file` cannot be used (/nowhere/password: "), "{refusal}");
        let refusal = Secret::Env("SHERWOOD_TEST_NO_SUCH".into()).read().unwrap_err().to_string();
        assert!(refusal.contains("SHERWOOD_TEST_NO_SUCH: the environment has no such variable"), "{refusal}");
    }
}
