//! Names and passwords of a listener: `user:password`, one a line, as in memcached's file of them.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::file::{AccessError, Refusal, Reloading, file_bytes, refused};
use super::secrets::Secrets;
use sherwood_listener::Passwords;

/// Configuration key of a listener's password file, for error messages.
const WHAT: &str = "[[listener]] auth_file";
/// Minimum length of a password, from NIST SP 800-63B for passwords chosen by people.
const PASSWORD_BYTES_MIN: usize = 8;
/// Maximum length of a name or a password, bytes: memcached's limit.
const WORD_BYTES_MAX: usize = 256;
/// Maximum of users: each costs every attempt a hash comparison.
const USERS_MAX: usize = 64;

/// A file of the names and passwords that a listener accepts.
pub(crate) struct PasswordFile(Reloading<Secrets>);

impl fmt::Debug for PasswordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordFile")
    }
}

impl PasswordFile {
    /// Opens the file at `path`, which is reloaded when it changes.
    ///
    /// # Errors
    /// Fails when the file cannot be read, others can read it, or it has no users or invalid lines.
    pub(crate) fn open(path: &Path) -> Result<Self, AccessError> {
        let file: PathBuf = path.to_owned();
        let load = move || {
            let bytes = file_bytes(WHAT, &file, true)?;
            parse(&bytes).map_err(|refusal| refused(WHAT, &file, refusal))
        };
        Reloading::open(vec![path.to_owned()], load).map(Self)
    }
}

impl Passwords for PasswordFile {
    fn know(&self, user: &[u8], password: &[u8]) -> bool {
        let long = user.len().max(password.len()) > WORD_BYTES_MAX;
        !long && self.0.current().know([user, password])
    }
}

/// Parses one `user:password` a line; empty lines and lines that begin with `#` are skipped.
fn parse(bytes: &[u8]) -> Result<Secrets, Refusal> {
    let (mut users, mut secrets) = (HashSet::new(), Vec::new());
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let refuse = |problem| Err(Refusal::Line { line: index + 1, problem });
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            return refuse("has to be a name, a colon and a password, such as `app:…`");
        };
        let (user, password) = (&line[..colon], &line[colon + 1..]);
        if user.is_empty() || user.len() > WORD_BYTES_MAX || user.contains(&b' ') {
            return refuse("has to begin with a name of 1 to 256 characters without blanks");
        }
        if !(PASSWORD_BYTES_MIN..=WORD_BYTES_MAX).contains(&password.len()) {
            return refuse(
                "has to end with a password of 8 to 256 characters: make one by `openssl rand -hex 32`",
            );
        }
        if !users.insert(user) {
            return refuse("names somebody for the second time: remove one of the lines");
        }
        if users.len() > USERS_MAX {
            return refuse("is beyond the 64 names that a file may hold: remove some");
        }
        secrets.push([user, password]);
    }
    if secrets.is_empty() {
        return Err(Refusal::Empty("name and password: write a line `name:password` into it"));
    }
    Ok(Secrets::new(secrets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_file_line_is_a_name_and_a_password() {
        let known = parse(b"# who\nalice:open:sesame \r\n\nbob:12345678").unwrap();
        assert!(known.know([b"alice", b"open:sesame "]) && known.know([b"bob", b"12345678"]));
        for (user, password) in
            [("alice:open", "sesame "), ("bob", "1234567"), ("alice", "12345678"), ("", "")]
        {
            assert!(!known.know([user.as_bytes(), password.as_bytes()]), "{user} {password}");
        }
    }

    #[test]
    fn invalid_password_file_line_is_refused_without_being_quoted() {
        let wrong = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
        assert!(wrong("alice:12345678\nsecret").starts_with("line 2 has to be a name, a colon"));
        assert!(wrong(":12345678").contains("begin with a name"));
        assert!(wrong("a b:12345678").contains("begin with a name"));
        assert!(wrong("alice:secret").contains("8 to 256") && !wrong("alice:secret").contains("secret"));
        assert!(wrong("alice:12345678\nalice:87654321").contains("second time"));
        assert!(wrong("# nobody").contains("holds no name"));
    }
}
