//! `[cluster] bus`: servers of NATS, and the access to them.
//!
//! Messages carry keys and counts, never values, yet who can publish may invalidate the whole cache
//! and borrow its rates. Beyond loopback the servers therefore need to know the nodes, by
//! credentials or by client certificates, or at least to be known to them, by TLS.

use std::path::PathBuf;

use sherwood_store::TlsOptions;

use crate::problem::{Origin, Problems};
use crate::raw::{Key, RawBus, RawBusTls, RawCluster};
use crate::scope::{Given, bytes, given};
use crate::setup::{BusCredentials, BusServer, BusSetup};
use crate::spanned::Spanned;
use crate::units::quoted;

/// Maximum of servers: a connection tries them in turn.
const SERVERS_MAX: usize = 16;

const EXAMPLE: &str = "bus = { servers = [\"nats://127.0.0.1:4222\"] }";

/// Resolves the access to NATS, which a cluster requires.
pub(super) fn resolve(cluster: &Spanned<RawCluster>, problems: &mut Problems<'_>) -> Option<BusSetup> {
    let Some(table) = &cluster.get_ref().bus else {
        let message = format!("[cluster] has no bus; it must name servers of NATS: set {EXAMPLE}");
        problems.add(&bytes(cluster), message);
        return None;
    };
    let raw = table.get_ref();
    let servers = servers(table, problems);
    let credentials = credentials(raw, problems);
    let tls = raw.tls.as_ref().map(|tls| self::tls(tls, problems));
    // A key with an invalid value is present: its problem has been reported.
    let RawBus { servers: _, credentials: file, user, password_file, token_file, tls: _ } = raw;
    let is_secured = [file, user, password_file, token_file].iter().any(|key| key.is_some()) || tls.is_some();
    for Given { value, origin } in &servers {
        if !is_secured && !value.is_tls() && !value.is_loopback() {
            refuse_open(value, origin, problems);
        }
    }
    Some(BusSetup { servers: servers.into_iter().map(|server| server.value).collect(), credentials, tls })
}

fn refuse_open(server: &BusServer, origin: &Origin, problems: &mut Problems<'_>) {
    let message = format!(
        "[cluster] bus.servers has {server}, which other machines may reach; beyond loopback the bus must have credentials or \
         TLS: set bus.credentials = \"bus.creds\", or bus.tls = {{ ca = \"ca.pem\" }}"
    );
    problems.add(origin, message);
}

fn servers(table: &Spanned<RawBus>, problems: &mut Problems<'_>) -> Vec<Given<BusServer>> {
    let Some(list) = &table.get_ref().servers else {
        let message =
            format!("[cluster] bus has no servers; it must name 1 to {SERVERS_MAX} of NATS: set {EXAMPLE}");
        problems.add(&bytes(table), message);
        return Vec::new();
    };
    let texts = list.get_ref();
    if !(1..=SERVERS_MAX).contains(&texts.len()) {
        let count = texts.len();
        let message = format!(
            "[cluster] bus.servers has {count} servers; it must have 1 to {SERVERS_MAX}: set {EXAMPLE}"
        );
        problems.add(&bytes(list), message);
    }
    let mut servers = Vec::new();
    for text in texts.iter().take(SERVERS_MAX) {
        let origin = bytes(text);
        match text.get_ref().parse() {
            Ok(value) => servers.push(Given { value, origin }),
            Err(error) => {
                // It may have a password.
                let has_user = text.get_ref().contains('@');
                let shown = if has_user { "…".to_owned() } else { quoted(text.get_ref()) };
                let message = format!(
                    "[cluster] bus.servers has \"{shown}\"; {error}: set {EXAMPLE}; credentials go into files"
                );
                problems.add(&origin, message);
            }
        }
    }
    servers
}

/// Returns the secret that the node presents; at most one kind of it may be configured.
fn credentials(raw: &RawBus, problems: &mut Problems<'_>) -> Option<BusCredentials> {
    let RawBus { servers: _, credentials, user, password_file, token_file, tls: _ } = raw;
    let user_or_password = given(user).or_else(|| given(password_file)).map(|given| given.origin);
    let kinds = [
        ("credentials", given(credentials).map(|given| given.origin)),
        ("user", user_or_password.clone()),
        ("token_file", given(token_file).map(|given| given.origin)),
    ];
    let mut kinds = kinds.into_iter().filter_map(|(kind, origin)| Some((kind, origin?)));
    let (first, second) = (kinds.next()?.0, kinds.next());
    if let Some((second, origin)) = second {
        let message =
            format!("[cluster] bus has both {first} and {second}; a node logs in by one of them: remove one");
        problems.add(&origin, message);
        return None;
    }
    let credentials = path("credentials", credentials, problems).map(BusCredentials::File);
    let token = path("token_file", token_file, problems).map(BusCredentials::Token);
    if let (Some(origin), true) = (user_or_password, user.is_none() || password_file.is_none()) {
        let message = "[cluster] bus has user or password_file alone; it must have both: set bus.user = \"sherwood\" and \
                       bus.password_file = \"bus-password\"";
        problems.add(&origin, message);
        return None;
    }
    let password_file = path("password_file", password_file, problems);
    let password = given(user).zip(password_file);
    let password =
        password.map(|(user, password_file)| BusCredentials::Password { user: user.value, password_file });
    credentials.or(token).or(password)
}

fn tls(table: &Spanned<RawBusTls>, problems: &mut Problems<'_>) -> TlsOptions {
    let RawBusTls { ca, cert, key } = table.get_ref();
    if cert.is_some() != key.is_some() {
        let message = "[cluster] bus.tls has cert or key alone; a client certificate needs both: set bus.tls.cert = \
                       \"node.pem\" and bus.tls.key = \"node.key\"";
        problems.add(&bytes(table), message);
    }
    let mut path = |name, key| path(name, key, problems);
    TlsOptions {
        ca: path("tls.ca", ca),
        cert: path("tls.cert", cert),
        key: path("tls.key", key),
        server_name: None,
    }
}

/// Returns the path of the file that a key of the bus names.
fn path(name: &str, key: &Key<String>, problems: &mut Problems<'_>) -> Option<PathBuf> {
    let Given { value, origin } = given(key)?;
    if value.is_empty() || value.contains('\0') {
        let message = format!(
            "[cluster] bus.{name} names no file; it must have a path: set bus.{name} = \"bus.secret\""
        );
        problems.add(&origin, message);
        return None;
    }
    Some(value.into())
}
