//! Options of a ZooKeeper server.

use serde::Deserialize;

use crate::OpenCause;
use crate::escape::quoted;
use crate::remote::host::HostPort;
use crate::remote::options::{self, RemoteOptions};
use crate::remote::secret::Secret;

/// Default port of ZooKeeper.
pub(crate) const PORT: u16 = 2181;

/// Options of a ZooKeeper server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZookeeperOptions {
    /// Host and port of one server; the port is 2181 by default.
    pub address: String,
    /// Path of the node whose children are the items; `/sherwood` by default. A write creates it if
    /// it is absent.
    #[serde(default = "default_root")]
    pub root: String,
    /// User of the scheme `digest`; with `password`. Nodes that are created are accessible to this
    /// user only.
    #[serde(default)]
    pub user: Option<String>,
    /// The password of `user`.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Options of the connections to the server. Calls share one connection, so that
    /// `connections_max` has no effect.
    #[serde(default)]
    pub remote: RemoteOptions,
}

impl ZookeeperOptions {
    /// Defaults for the server at `address`.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        let remote = RemoteOptions::default();
        Self { address: address.into(), root: default_root(), user: None, password: None, remote }
    }

    pub(crate) fn validate(&self) -> Result<(), OpenCause> {
        let Self { address, root, user, password, remote } = self;
        remote.validate()?;
        HostPort::parse("address", address, PORT)?;
        if user.is_some() != password.is_some() {
            return Err(options::half_a_login());
        }
        if user.as_ref().is_some_and(|user| user.contains(':') || user.is_empty()) {
            let detail = "it is empty or has a colon in it, where ZooKeeper ends the name".to_owned();
            return Err(OpenCause::Remote { option: "user", detail, remedy: "choose another name" });
        }
        if !root.strip_prefix('/').is_some_and(|root| root.split('/').all(is_component)) {
            return Err(OpenCause::Remote {
                option: "root",
                detail: format!("{} is no path of a node below the root", quoted("root", root)),
                remedy: "write names of letters, digits, `-`, `_` and `.`, such as \"/sherwood/profiles\"",
            });
        }
        if remote.tls.as_ref().is_some_and(|tls| tls.server_name.is_some()) {
            return Err(OpenCause::Remote {
                option: "tls.server_name",
                detail: "ZooKeeper's client verifies the host of `address`".to_owned(),
                remedy: "leave it out, and write the certificate's name in `address`",
            });
        }
        Ok(())
    }
}

/// Returns true for a name of a node in `root`. The node `/zookeeper` is the server's own.
fn is_component(name: &str) -> bool {
    let is_of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !matches!(name, "" | "." | "..") && name.bytes().all(is_of_a_name)
}

fn default_root() -> String {
    "/sherwood".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TlsOptions;

    #[test]
    fn zookeeper_options_that_cannot_be_used_are_refused_by_name() {
        let options = ZookeeperOptions::new("127.0.0.1");
        assert!(options.validate().is_ok());
        let refusal = |options: ZookeeperOptions| options.validate().unwrap_err().to_string();
        for root in ["", "/", "a", "/a/", "//a", "/a/../b", "/a b"] {
            let refused = refusal(ZookeeperOptions { root: root.into(), ..options.clone() });
            assert!(refused.starts_with("`root` cannot be used"), "{refused}");
        }
        let user = ZookeeperOptions { user: Some("a".into()), ..options.clone() };
        assert!(refusal(user).contains("password_file"));
        let password = Some(Secret::Env("P".into()));
        let user = ZookeeperOptions { user: Some("a:b".into()), password, ..options.clone() };
        assert!(refusal(user).contains("colon"));
        let tls = Some(TlsOptions { server_name: Some("a".into()), ..TlsOptions::default() });
        let remote = RemoteOptions { tls, ..RemoteOptions::default() };
        assert!(refusal(ZookeeperOptions { remote, ..options }).contains("`tls.server_name`"));
    }
}
