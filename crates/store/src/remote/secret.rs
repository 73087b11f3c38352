//! The places from which passwords and tokens are read.

use std::path::PathBuf;

use serde::Deserialize;

use crate::OpenCause;

/// Longest password or token in bytes.
const SECRET_BYTES_MAX: usize = 64 << 10;

/// The place from which a password or token is read when a store is opened. `Debug` shows the place
/// and not the secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Secret {
    /// A file; a line end after the secret is removed.
    File(PathBuf),
    /// An environment variable of this name.
    Env(String),
}

impl Secret {
    /// Reads the password or token from its place.
    ///
    /// # Errors
    /// When it is absent, empty, longer than 64 KiB or not UTF-8.
    pub fn read(&self) -> Result<String, OpenCause> {
        match self {
            Self::File(_) => {
                self.read_for("password_file", "name a file of one line that this user may read")
            }
            Self::Env(_) => self.read_for("password_env", "set the variable, or use `password_file`"),
        }
    }

    /// Reads the secret for the option called `option`; `remedy` is that of an error.
    pub(super) fn read_for(&self, option: &'static str, remedy: &'static str) -> Result<String, OpenCause> {
        let refused = |detail| OpenCause::Remote { option, detail, remedy };
        match self {
            Self::File(path) => {
                let wrong = |detail: &str| refused(format!("{}: {detail}", path.display()));
                let text = std::fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
                let text = text.strip_suffix('\n').unwrap_or(&text);
                let text = text.strip_suffix('\r').unwrap_or(text);
                match text.len() {
                    0 => Err(wrong("it is empty")),
                    1..=SECRET_BYTES_MAX => Ok(text.to_owned()),
                    _ => Err(wrong("it is longer than 64 KiB")),
                }
            }
            Self::Env(name) => std::env::var(name)
                .ok()
                .filter(|text| !text.is_empty())
                .ok_or_else(|| refused(format!("{name} is not set"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_the_line_of_its_file_and_an_empty_or_absent_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let secret = Secret::File(path.clone());
        assert!(secret.read().unwrap_err().to_string().starts_with("`password_file` cannot be used"));
        std::fs::write(&path, "\n").unwrap();
        assert!(secret.read().unwrap_err().to_string().contains("it is empty"));
        std::fs::write(&path, " sesame \r\n").unwrap();
        assert_eq!(secret.read().unwrap(), " sesame ");
        assert!(!format!("{secret:?}").contains("sesame"));
    }
}
