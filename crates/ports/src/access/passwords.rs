//! Names and passwords of a listener: `user:password`, one a line, as in memcached's file of them.
//!
//! A user is found by its name, which is no secret, in a hash table. Its password is compared as a
//! keyed hash (see [`secrets`](super::secrets)), in constant time. The hash of an unknown user is
//! computed and compared as well, so that the time does not tell which names exist.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ring::hmac;
use sherwood_listener::Passwords;
use sherwood_model::TenantId;
use sherwood_textfile::{Reader, Watched};

use super::file::{AccessError, Refusal, refused, secret_bytes};
use super::secrets;

/// Configuration key of a listener's password file, for error messages.
const WHAT: &str = "[[listener]] auth_file";
/// Minimum length of a password, from NIST SP 800-63B for passwords chosen by people.
const PASSWORD_BYTES_MIN: usize = 8;
/// Maximum length of a name or a password, bytes: memcached's limit.
const WORD_BYTES_MAX: usize = 256;
/// Maximum of users of a file: four for each of 1,024 tenants.
const USERS_MAX: usize = 4096;

/// The tenants of a listener's users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserTenants {
    /// All users belong to one tenant, except those that others have listed.
    One {
        /// The tenant of the listener.
        tenant: TenantId,
        /// Users that tenants have listed, with their tenants.
        listed: HashMap<String, TenantId>,
    },
    /// Each user belongs to the tenant that has listed it.
    Listed(HashMap<String, TenantId>),
}

impl UserTenants {
    /// Returns the tenant of a user, or the reason why it cannot log in here.
    fn of(&self, user: &[u8]) -> Result<TenantId, &'static str> {
        let listed = |tenants: &HashMap<String, TenantId>| {
            std::str::from_utf8(user).ok().and_then(|user| tenants.get(user)).copied()
        };
        match self {
            Self::One { tenant, listed: others } => match listed(others) {
                Some(other) if other != *tenant => Err(
                    "names a user of another tenant than the listener's: remove the line, or the user from that [[tenant]]",
                ),
                _ => Ok(*tenant),
            },
            Self::Listed(tenants) => listed(tenants).ok_or(
                "names a user of no tenant: list it in users of a [[tenant]], or set tenant in [[listener]]",
            ),
        }
    }
}

/// A file of the names and passwords that a listener accepts.
pub struct PasswordFile {
    path: PathBuf,
    /// The tenants of the users, with which the file is read when it changes.
    tenants: Arc<Mutex<UserTenants>>,
    users: Watched<Users>,
}

impl fmt::Debug for PasswordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordFile")
    }
}

impl PasswordFile {
    /// Opens the file at `path`, which is reloaded when it changes.
    ///
    /// # Errors
    /// Fails when the file cannot be read, others can read it, or it has no users, invalid lines or
    /// users without a tenant.
    pub fn open(path: &Path, tenants: UserTenants) -> Result<Self, AccessError> {
        let tenants = Arc::new(Mutex::new(tenants));
        let load = {
            let (path, tenants) = (path.to_owned(), Arc::clone(&tenants));
            move |reader: &mut Reader| {
                Users::read(&path, &tenants.lock().unwrap_or_else(PoisonError::into_inner), reader)
            }
        };
        let users = Watched::open(load)?;
        Ok(Self { path: path.to_owned(), tenants, users })
    }

    /// Reads the users as they are with other tenants; none if the tenants are the present ones.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn reread(&self, tenants: &UserTenants) -> Result<Option<Users>, AccessError> {
        let is_same = *self.tenants.lock().unwrap_or_else(PoisonError::into_inner) == *tenants;
        if is_same { Ok(None) } else { Users::read(&self.path, tenants, &mut Reader::new()).map(Some) }
    }

    /// Makes `users`, [read](Self::reread) with `tenants`, those who can log in from now on.
    pub fn adopt(&self, tenants: UserTenants, users: Users) {
        *self.tenants.lock().unwrap_or_else(PoisonError::into_inner) = tenants;
        self.users.set(users);
    }
}

impl Passwords for PasswordFile {
    fn know(&self, user: &[u8], password: &[u8]) -> Option<TenantId> {
        let long = user.len().max(password.len()) > WORD_BYTES_MAX;
        if long { None } else { self.users.current().know(user, password) }
    }
}

/// Users with the hashes of their passwords and their tenants; about 150 bytes each.
pub struct Users {
    key: hmac::Key,
    known: HashMap<Box<[u8]>, User>,
    /// Compared with the password of an unknown user.
    nobody: User,
}

struct User {
    tag: hmac::Tag,
    tenant: TenantId,
}

impl Users {
    /// Reads the file at `path`.
    fn read(path: &Path, tenants: &UserTenants, reader: &mut Reader) -> Result<Self, AccessError> {
        let bytes = secret_bytes(WHAT, path, reader)?;
        Self::parse(&bytes, tenants).map_err(|refusal| refused(WHAT, path, refusal))
    }

    /// Parses one `user:password` a line; empty lines and lines that begin with `#` are skipped.
    fn parse(bytes: &[u8], tenants: &UserTenants) -> Result<Self, Refusal> {
        let key = secrets::random_key();
        let nobody = User { tag: secrets::tag(&key, [b"", b""]), tenant: TenantId(0) };
        let mut users = Self { key, known: HashMap::new(), nobody };
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() && !line.starts_with(b"#") {
                users.add(line, tenants).map_err(|problem| Refusal::Line { line: index + 1, problem })?;
            }
        }
        if users.known.is_empty() {
            return Err(Refusal::Empty("name and password: write a line `name:password` into it"));
        }
        Ok(users)
    }

    /// Adds the user of a line, or returns the line's problem.
    fn add(&mut self, line: &[u8], tenants: &UserTenants) -> Result<(), &'static str> {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            return Err("has to be a name, a colon and a password, such as `app:…`");
        };
        let (user, password) = (&line[..colon], &line[colon + 1..]);
        if user.is_empty() || user.len() > WORD_BYTES_MAX || user.contains(&b' ') {
            return Err("has to begin with a name of 1 to 256 characters without blanks");
        }
        if !(PASSWORD_BYTES_MIN..=WORD_BYTES_MAX).contains(&password.len()) {
            return Err(
                "has to end with a password of 8 to 256 characters: make one by `openssl rand -hex 32`",
            );
        }
        let (tag, tenant) = (secrets::tag(&self.key, [user, password]), tenants.of(user)?);
        if self.known.insert(user.into(), User { tag, tenant }).is_some() {
            return Err("names somebody for the second time: remove one of the lines");
        }
        if self.known.len() > USERS_MAX {
            return Err("is beyond the 4096 names that a file may hold: remove some");
        }
        Ok(())
    }

    /// Returns the tenant of a user with this password. Computes one hash and compares it in
    /// constant time, whether the user is known or not.
    fn know(&self, user: &[u8], password: &[u8]) -> Option<TenantId> {
        let (is_known, User { tag, tenant }) = match self.known.get(user) {
            Some(known) => (true, known),
            None => (false, &self.nobody),
        };
        let is_right = secrets::verify(&self.key, [user, password], tag);
        (is_known & is_right).then_some(*tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TenantId = TenantId(3);

    fn of_one() -> UserTenants {
        UserTenants::One { tenant: ONE, listed: HashMap::from([("mallory".to_owned(), TenantId(1))]) }
    }

    fn parse(text: &[u8]) -> Result<Users, Refusal> {
        Users::parse(text, &of_one())
    }

    fn refusal(users: Result<Users, Refusal>) -> String {
        users.err().expect("it is wrong").to_string()
    }

    #[test]
    fn password_file_line_is_a_name_and_a_password() {
        let known = parse(b"# who\nalice:open:sesame \r\n\nbob:12345678").unwrap();
        assert_eq!(known.know(b"alice", b"open:sesame "), Some(ONE));
        assert_eq!(known.know(b"bob", b"12345678"), Some(ONE));
        for (user, password) in
            [("alice:open", "sesame "), ("bob", "1234567"), ("alice", "12345678"), ("", ""), ("eve", "")]
        {
            assert_eq!(known.know(user.as_bytes(), password.as_bytes()), None, "{user} {password}");
        }
    }

    #[test]
    fn invalid_password_file_line_is_refused_without_being_quoted() {
        let wrong = |text: &str| refusal(parse(text.as_bytes()));
        assert!(wrong("alice:12345678\nsecret").starts_with("line 2 has to be a name, a colon"));
        assert!(wrong(":12345678").contains("begin with a name"));
        assert!(wrong("a b:12345678").contains("begin with a name"));
        assert!(wrong("alice:secret").contains("8 to 256") && !wrong("alice:secret").contains("secret"));
        assert!(wrong("alice:12345678\nalice:87654321").contains("second time"));
        assert!(wrong("# nobody").contains("holds no name"));
    }

    #[test]
    fn each_of_4096_users_has_its_tenant_and_one_more_is_refused() {
        let name = |index: usize| format!("user-{index}");
        let tenants = (0..=4096).map(|index| (name(index), TenantId::from_index(index / 4))).collect();
        let tenants = UserTenants::Listed(tenants);
        let lines = |count: usize| -> String {
            (0..count).map(|index| format!("{}:password-{index}\n", name(index))).collect()
        };
        let users = Users::parse(lines(4096).as_bytes(), &tenants).unwrap();
        for index in 0..4096 {
            let (user, right) = (name(index), format!("password-{index}"));
            let tenant = users.know(user.as_bytes(), right.as_bytes());
            assert_eq!(tenant, Some(TenantId::from_index(index / 4)));
            let other = format!("password-{}", (index + 1) % 4096);
            assert_eq!(users.know(user.as_bytes(), other.as_bytes()), None);
        }
        let wrong = refusal(Users::parse(lines(4097).as_bytes(), &tenants));
        assert!(wrong.starts_with("line 4097 is beyond the 4096 names"), "{wrong}");
    }

    #[test]
    fn user_of_no_tenant_or_of_another_than_the_listeners_is_refused() {
        let listed = UserTenants::Listed(HashMap::from([("alice".to_owned(), ONE)]));
        let wrong = refusal(Users::parse(b"alice:12345678\nbob:12345678", &listed));
        assert!(wrong.starts_with("line 2 names a user of no tenant: list it in users"), "{wrong}");
        let wrong = refusal(Users::parse(b"\xff:12345678", &listed));
        assert!(wrong.starts_with("line 1 names a user of no tenant"), "{wrong}");
        let wrong = refusal(parse(b"bob:12345678\nmallory:12345678"));
        assert!(wrong.starts_with("line 2 names a user of another tenant"), "{wrong}");
    }
}
