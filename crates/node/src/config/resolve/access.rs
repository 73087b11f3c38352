//! Access to the node's ports: `[admin] tls`, `token_file` and `read_token_file`, `[[listener]]
//! auth_file` and `network`.
//!
//! Beyond loopback every port requires authentication. The HTTP port can encrypt, so it must.
//! Listeners cannot: clients of memcached and Redis send passwords in the clear. A password still
//! keeps out clients that can connect but cannot intercept traffic; whether traffic can be
//! intercepted only the operator knows, so the network must be declared `trusted` explicitly.

use std::net::SocketAddr;
use std::path::PathBuf;

use toml::Spanned;

use crate::config::problem::Problems;
use crate::config::raw::{Key, RawAdmin, RawAdminTls, RawListener};
use crate::config::scope::{Given, Setting, bytes, given, one_of};
use crate::setup::AccessSetup;
use crate::tls::TlsFiles;
use sherwood_listener::Address;

const TOKENS: Setting = Setting::new("[admin]", "token_file", "\"tokens\"");
const READ_TOKENS: Setting = Setting::new("[admin]", "read_token_file", "\"read-tokens\"");
const CERT: Setting = Setting::new("[admin]", "tls.cert", "\"cert.pem\"");
const KEY: Setting = Setting::new("[admin]", "tls.key", "\"key.pem\"");
const CLIENT_CA: Setting = Setting::new("[admin]", "tls.client_ca", "\"clients.pem\"");
const AUTH: Setting = Setting::new("[[listener]]", "auth_file", "\"passwords\"");
const NETWORK: Setting = Setting::new("[[listener]]", "network", "\"trusted\"");

/// Network from which a listener can be reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    /// The network of this machine only.
    Loopback,
    /// A network with other machines, none of which intercepts traffic.
    Trusted,
}

/// TLS and token files of `[admin]`.
pub(super) fn admin(file: &RawAdmin, problems: &mut Problems<'_>) -> AccessSetup {
    let access = AccessSetup {
        tls: file.tls.as_ref().and_then(|tls| self::tls(tls, problems)),
        token_file: path(TOKENS, &file.token_file, problems),
        read_token_file: path(READ_TOKENS, &file.read_token_file, problems),
    };
    if let Some(read) = given(&file.read_token_file) {
        let message = match &access.token_file {
            None => {
                "[admin] read_token_file is of no use without token_file: everything is open to everybody; set token_file \
                 = \"tokens\", too"
            }
            tokens if *tokens == access.read_token_file => {
                "[admin] read_token_file is token_file, whose tokens may do everything; name another file"
            }
            Some(_) => return access,
        };
        problems.add(&read.origin, message);
    }
    access
}

fn tls(table: &Spanned<RawAdminTls>, problems: &mut Problems<'_>) -> Option<TlsFiles> {
    let RawAdminTls { cert, key, client_ca } = table.get_ref();
    if cert.is_none() || key.is_none() {
        let message = "[admin] tls has no cert or no key; it must have both: set tls = { cert = \"cert.pem\", key = \"key.pem\" }";
        problems.add(&bytes(table), message);
    }
    let (cert, key) = (path(CERT, cert, problems), path(KEY, key, problems));
    let client_ca = path(CLIENT_CA, client_ca, problems);
    Some(TlsFiles { cert: cert?, key: key?, client_ca })
}

/// Returns the path of the file that a configuration key names.
fn path(setting: Setting, key: &Key<String>, problems: &mut Problems<'_>) -> Option<PathBuf> {
    let Given { value, origin } = given(key)?;
    if value.is_empty() || value.contains('\0') {
        let (name, remedy) = (setting.name(&origin), setting.remedy(&origin));
        problems.add(&origin, format!("{name} names no file; it must have a path: {remedy}"));
        return None;
    }
    Some(value.into())
}

/// Returns the path of a listener's password file.
pub(super) fn auth_file(raw: &RawListener, problems: &mut Problems<'_>) -> Option<PathBuf> {
    path(AUTH, &raw.auth_file, problems)
}

/// Refuses an HTTP port that other machines can reach without TLS or without a token.
pub(super) fn refuse_open_admin(
    setting: Setting,
    bind: &Given<SocketAddr>,
    file: &RawAdmin,
    problems: &mut Problems<'_>,
) {
    // A key with an invalid value is present: its problem has been reported.
    let mut missing = Vec::new();
    if file.tls.is_none() {
        missing.push("tls = { cert = \"cert.pem\", key = \"key.pem\" }");
    }
    if file.token_file.is_none() {
        missing.push("token_file = \"tokens\"");
    }
    if bind.value.ip().is_loopback() || missing.is_empty() {
        return;
    }
    let (name, address, remedy) = (setting.name(&bind.origin), bind.value, setting.remedy(&bind.origin));
    let missing = missing.join(" and ");
    let message = format!(
        "{name} is {address}, which other machines may reach; beyond loopback the HTTP port must have TLS and ask for a token: set \
         {missing} in [admin], or {remedy}"
    );
    problems.add(&bind.origin, message);
}

/// Refuses a listener that other machines can reach, if it requires no password or its network is
/// not declared trusted.
pub(super) fn refuse_open_listener(
    setting: Setting,
    bind: &Given<String>,
    address: Option<&Address>,
    raw: &RawListener,
    problems: &mut Problems<'_>,
) {
    let said = given(&raw.network);
    let networks = [("loopback", Network::Loopback), ("trusted", Network::Trusted)];
    let network = one_of(problems, NETWORK, said.clone(), &networks);
    let address = match address {
        Some(Address::Tcp(address)) => address,
        Some(Address::Unix(_)) => {
            if let Some(said) = said {
                let message =
                    "[[listener]] network is that of an address, and bind is a UNIX socket: remove it";
                problems.add(&said.origin, message);
            }
            return;
        }
        None => return,
    };
    let mut missing = Vec::new();
    if raw.auth_file.is_none() {
        missing.push("auth_file = \"passwords\"");
    }
    if network != Network::Trusted {
        missing.push("network = \"trusted\"");
    }
    if address.ip().is_loopback() || missing.is_empty() {
        return;
    }
    let (name, remedy, missing) =
        (setting.name(&bind.origin), setting.remedy(&bind.origin), missing.join(" and "));
    let message = format!(
        "{name} is {address}, which other machines may reach; beyond loopback a listener must ask for a password, and since it sends \
         and takes everything unencrypted its network must be said to be trusted: set {missing} in [[listener]], or {remedy}"
    );
    problems.add(&bind.origin, message);
}
