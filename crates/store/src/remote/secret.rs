//! The places from which passwords and tokens are read, and read again when they change.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use sherwood_textfile::{Reader, Rules, Watched};

use crate::{Cause, OpenCause};

/// The place of a password or token. `Debug` shows the place and not the secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Secret {
    /// A file of one line, which is read again when it changes or the server refuses the secret.
    File(PathBuf),
    /// An environment variable of this name, which cannot change while the process runs.
    Env(String),
}

impl Secret {
    /// Reads the password from its place.
    ///
    /// # Errors
    /// When it is absent, empty, longer than 64 KiB, of several lines or not UTF-8.
    pub(super) fn password(&self, reader: &mut Reader) -> Result<String, OpenCause> {
        match self {
            Self::File(_) => {
                self.read_for("password_file", "name a file of one line that this user may read", reader)
            }
            Self::Env(_) => self.read_for("password_env", "set the variable, or use `password_file`", reader),
        }
    }

    /// Reads the secret for the option called `option`; `remedy` is that of an error.
    pub(super) fn read_for(
        &self,
        option: &'static str,
        remedy: &'static str,
        reader: &mut Reader,
    ) -> Result<String, OpenCause> {
        let refused = |detail| OpenCause::Remote { option, detail, remedy };
        match self {
            Self::File(path) => reader
                .secret(path, Rules::DEFAULT)
                .map_err(|error| refused(format!("{} {error}", path.display()))),
            Self::Env(name) => std::env::var(name)
                .ok()
                .filter(|text| !text.is_empty())
                .ok_or_else(|| refused(format!("{name} is not set"))),
        }
    }
}

/// The password of a connector's login, which is read again when it changes.
#[derive(Clone, Debug)]
pub(crate) struct Password(Arc<Watched<String>>);

impl Password {
    /// Reads the password from its place.
    ///
    /// # Errors
    /// As [`Secret::password`].
    pub(crate) fn open(place: &Secret) -> Result<Self, OpenCause> {
        let place = place.clone();
        let watched = Watched::open(move |reader: &mut Reader| place.password(reader))?;
        Ok(Self(Arc::new(watched)))
    }

    /// Returns the current password.
    pub(crate) fn current(&self) -> Arc<String> {
        self.0.current()
    }

    /// True if a login with the password `used` failed by `cause` and there is another password
    /// now.
    pub(crate) fn has_changed(&self, used: &Arc<String>, cause: &Cause) -> bool {
        matches!(cause, Cause::Credentials { .. }) && self.0.newer_than(used).is_some()
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
        let refusal = |secret: &Secret| Password::open(secret).unwrap_err().to_string();
        assert!(refusal(&secret).starts_with("`password_file` cannot be used"));
        std::fs::write(&path, "\n").unwrap();
        assert!(refusal(&secret).contains("is empty"));
        std::fs::write(&path, " sesame \r\nopen\r\n").unwrap();
        assert!(refusal(&secret).contains("has 2 lines") && !refusal(&secret).contains("sesame"));
        std::fs::write(&path, " sesame \r\n").unwrap();
        let password = Password::open(&secret).unwrap();
        assert_eq!(*password.current(), " sesame ");
        assert!(!format!("{secret:?} {password:?}").contains("sesame"));
    }

    #[test]
    fn password_file_is_reread_after_a_refused_login_but_not_after_other_failures() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "old").unwrap();
        let password = Password::open(&Secret::File(path.clone())).unwrap();
        let used = password.current();
        std::fs::write(&path, "new").unwrap();
        assert!(!password.has_changed(&used, &Cause::Closed));
        assert!(password.has_changed(&used, &Cause::Credentials { detail: String::new() }));
        assert_eq!(*password.current(), "new");
    }
}
