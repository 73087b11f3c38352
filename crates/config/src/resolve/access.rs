//! Access to the node's ports: `[admin] tls`, `token_file` and `read_token_file`, `[[listener]]
//! auth_file`, `tls` and `network`.
//!
//! Beyond loopback every port requires authentication. The HTTP port must encrypt, too. Many
//! clients of memcached and Redis cannot, and send passwords in the clear. A password still keeps
//! out clients that can connect but cannot intercept traffic; whether traffic can be intercepted
//! only the operator knows, so the network of a listener without TLS must be declared `trusted`
//! explicitly.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::spanned::Spanned;

use crate::problem::Problems;
use crate::raw::{Key, RawAdmin, RawListener, RawServerTls};
use crate::scope::{Given, Setting, bytes, given, one_of};
use crate::setup::AccessSetup;
use crate::setup::TlsFiles;
use sherwood_listener::Address;

const TOKENS: Setting = Setting::new("[admin]", "token_file", "\"tokens\"");
const READ_TOKENS: Setting = Setting::new("[admin]", "read_token_file", "\"read-tokens\"");
const AUTH: Setting = Setting::new("[[listener]]", "auth_file", "\"passwords\"");
const NETWORK: Setting = Setting::new("[[listener]]", "network", "\"trusted\"");

/// The keys of a port's TLS files.
struct TlsSettings {
    /// The table with `tls`.
    of: &'static str,
    cert: Setting,
    key: Setting,
    client_ca: Setting,
}

const ADMIN_TLS: TlsSettings = TlsSettings::of("[admin]");
const LISTENER_TLS: TlsSettings = TlsSettings::of("[[listener]]");

impl TlsSettings {
    const fn of(table: &'static str) -> Self {
        Self {
            of: table,
            cert: Setting::new(table, "tls.cert", "\"cert.pem\""),
            key: Setting::new(table, "tls.key", "\"key.pem\""),
            client_ca: Setting::new(table, "tls.client_ca", "\"clients.pem\""),
        }
    }
}

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
        tls: file.tls.as_ref().and_then(|tls| self::tls(&ADMIN_TLS, tls, problems)),
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

fn tls(
    settings: &TlsSettings,
    table: &Spanned<RawServerTls>,
    problems: &mut Problems<'_>,
) -> Option<TlsFiles> {
    let RawServerTls { cert, key, client_ca } = table.get_ref();
    if cert.is_none() || key.is_none() {
        let of = settings.of;
        let message = format!(
            "{of} tls has no cert or no key; it must have both: set tls = {{ cert = \"cert.pem\", key = \"key.pem\" }}"
        );
        problems.add(&bytes(table), message);
    }
    let (cert, key) = (path(settings.cert, cert, problems), path(settings.key, key, problems));
    let client_ca = path(settings.client_ca, client_ca, problems);
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

/// Returns the files of a listener's TLS.
pub(super) fn listener_tls(raw: &RawListener, problems: &mut Problems<'_>) -> Option<TlsFiles> {
    raw.tls.as_ref().and_then(|table| tls(&LISTENER_TLS, table, problems))
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

/// Refuses a listener that other machines can reach, if it requires neither a password nor a
/// client certificate, or if it has no TLS and its network is not declared trusted.
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
            let said = said.map(|said| ("network", said.origin));
            let tls = raw.tls.as_ref().map(|tls| ("tls", bytes(tls)));
            for (key, origin) in said.into_iter().chain(tls) {
                let message =
                    format!("[[listener]] {key} is that of an address, and bind is a UNIX socket: remove it");
                problems.add(&origin, message);
            }
            return;
        }
        None => return,
    };
    let mut missing = Vec::new();
    let tls = raw.tls.as_ref().map(Spanned::get_ref);
    if raw.auth_file.is_none() && tls.is_none_or(|tls| tls.client_ca.is_none()) {
        missing.push("auth_file = \"passwords\"");
    }
    if tls.is_none() && network != Network::Trusted {
        missing.push("tls = { cert = \"cert.pem\", key = \"key.pem\" } or network = \"trusted\"");
    }
    if address.ip().is_loopback() || missing.is_empty() {
        return;
    }
    let (name, remedy, missing) =
        (setting.name(&bind.origin), setting.remedy(&bind.origin), missing.join(" and "));
    let message = format!(
        "{name} is {address}, which other machines may reach; beyond loopback a listener must ask for a password, and have TLS or \
         a network that is said to be trusted: set {missing} in [[listener]], or {remedy}"
    );
    problems.add(&bind.origin, message);
}
