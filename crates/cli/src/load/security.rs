//! TLS and logins of `sherwood load`.

use std::path::{Path, PathBuf};

use sherwood_load::cache::Login;
use sherwood_load::{Target, Tls};
use sherwood_store::{ClientTls, TlsOptions};

/// Options of TLS and of logins.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Security {
    /// Trust the certificate authorities in this PEM file, of a target with TLS [default: those of
    /// the system]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Log in with the first line of this file of user:password lines, such as a listener's
    /// `auth_file`; caches only
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "passwords"])]
    password_file: Option<PathBuf>,
    /// Log in with the line of this user instead
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
}

impl Security {
    /// Makes the TLS of a target that speaks it.
    pub(super) fn tls(&self, target: &Target) -> Result<Option<Tls>, String> {
        if !target.tls {
            return match self.ca {
                Some(_) => {
                    Err("--ca applies to a memcacheds://, rediss:// or https:// target only; leave it out"
                        .to_owned())
                }
                None => Ok(None),
            };
        }
        let options = TlsOptions { ca: self.ca.clone(), ..TlsOptions::default() };
        let config = ClientTls::open(&options, &[])
            .map_err(|error| format!("TLS to {target}: {error}; name a PEM file with --ca"))?
            .current();
        let tls = Tls::new(config, target.host()).ok_or_else(|| {
            format!("TLS to {target}: {:?} is neither a host's name nor an address", target.host())
        })?;
        Ok(Some(tls))
    }

    /// Returns the login of every connection to a cache.
    pub(super) fn login(&self) -> Result<Option<Login>, String> {
        let Self { password_file, user, .. } = self;
        let Some(file) = password_file else { return Ok(None) };
        let logins = logins("--password-file", file)?;
        let login = match user {
            Some(user) => logins.into_iter().find(|login| login.user == *user),
            None => logins.into_iter().next(),
        };
        let missing = user.as_deref().unwrap_or("USER");
        login.map(Some).ok_or_else(|| {
            format!("--password-file {} has no line {missing}:PASSWORD; add one", file.display())
        })
    }

    /// Returns true when a file of passwords is given.
    pub(super) fn has_password(&self) -> bool {
        self.password_file.is_some()
    }
}

/// Reads the lines `user:password` of the file that `flag` names.
pub(super) fn logins(flag: &str, file: &Path) -> Result<Vec<Login>, String> {
    let text =
        sherwood_textfile::input(file).map_err(|error| format!("{flag} {} {error}", file.display()))?;
    let login =
        |(user, password): (&str, &str)| Login { user: user.to_owned(), password: password.to_owned() };
    Ok(sherwood_textfile::entries(&text).filter_map(|line| line.split_once(':').map(login)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_of_a_file_are_its_lines_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        std::fs::write(&path, "# ours\n\nann:one:two\nbob:three\r\n").unwrap();
        let login = |user: &str, password: &str| Login { user: user.into(), password: password.into() };
        assert_eq!(logins("--passwords", &path).unwrap(), [login("ann", "one:two"), login("bob", "three")]);
        let absent = logins("--passwords", &directory.path().join("none")).unwrap_err();
        assert!(absent.starts_with("--passwords /") && absent.contains("none"), "{absent}");
    }
}
