//! Addresses of `[[listener]]`, `[admin]` and `[otlp]`. Access restrictions are in [`access`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::spanned::Spanned;
use sherwood_model::BackendId;

use crate::flags::Flags;
use crate::meaning::{BackendConfig, BatchMode, Listener, Mode, Route, WriteThrough};
use crate::problem::{Origin, Problems};
use crate::raw::{RawFile, RawListener, RawScopedSlo};
use crate::scope::{Given, Setting, bytes, flag_or, given, in_range, one_of, unknown};
use crate::setup::AccessSetup;
use crate::units::quoted;
use sherwood_listener::{Address, DATABASES_MAX, Protocol, UnixSocket};

use super::tenants::Resolved;
use super::{access, clients};

const PROTOCOL: Setting = Setting::new("[[listener]]", "protocol", "\"memcached\"");
const BIND: Setting = Setting::new("[[listener]]", "bind", "\"127.0.0.1:11211\"");
const REDIS_BIND: Setting = Setting::new("[[listener]]", "bind", "\"127.0.0.1:6379\"");
const PERMISSIONS: Setting = Setting::new("[[listener]]", "permissions", "\"0700\"");
const ROUTE: Setting = Setting::new("[[listener]]", "route", "\"prefix\"");
const BACKEND: Setting = Setting::new("[[listener]]", "backend", "\"catalog\"");
const MODE: Setting = Setting::new("[[listener]]", "mode", "\"look-aside\"");
const DATABASES: Setting = Setting::new("[[listener]]", "databases", "16");
const WRITE_FIRST: Setting = Setting::new("[[listener]]", "write_first", "\"store\"");
const REQUESTS: Setting = Setting::new("[[listener]]", "requests", "\"auto\"");
const CLASS: Setting = Setting::new("[[listener]]", "class", "\"page\"");
const OTLP: Setting = Setting::new("[otlp]", "bind", "\"127.0.0.1:4317\"");
const ADMIN: Setting = Setting::new("[admin]", "bind", "\"127.0.0.1:8080\"");

/// Maximum of listeners of a node: one per backend and a few.
const LISTENERS_MAX: usize = 4096;

const ADMIN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Prefix of a UNIX socket's path.
const UNIX: &str = "unix:";

/// Resolved addresses of listeners and of the HTTP port, and access to them.
pub(super) struct Binds {
    pub(super) listeners: Vec<Listener>,
    pub(super) admin: Option<SocketAddr>,
    pub(super) otlp: Option<SocketAddr>,
    pub(super) access: AccessSetup,
}

/// The backends and tenants that the clients of listeners reach.
#[derive(Clone, Copy)]
struct Reached<'a> {
    backends: &'a [BackendConfig],
    tenants: Option<&'a Resolved>,
    /// Classes of requests that have an SLO.
    classes: &'a [Spanned<RawScopedSlo>],
}

/// An address and the place where it is written.
type Bind = Given<SocketAddr>;

pub(super) fn resolve(
    file: &RawFile,
    flags: &Flags,
    backends: &[BackendConfig],
    tenants: Option<&Resolved>,
    problems: &mut Problems<'_>,
) -> Binds {
    let access = access::admin(&file.admin, problems);
    let admin = admin(file, flags, problems);
    let otlp = otlp(file, problems);
    let reached = Reached { backends, tenants, classes: &file.slo.class };
    let mut listeners = listeners(&file.listener, flags, reached, problems);
    listeners.extend(unix_socket(flags, reached, problems));
    refuse_shared_addresses(admin.as_ref(), otlp.as_ref(), &listeners, problems);
    // A listener that is present but refused has a problem of its own.
    let by_flag = [&flags.memcached, &flags.redis, &flags.unix_socket].into_iter().any(Option::is_some);
    if admin.is_none() && file.listener.is_empty() && !by_flag {
        let message = "there is nothing to listen on; a node needs a listener or the admin API: add a [[listener]], give \
                       --memcached 127.0.0.1:11211, or leave the admin API on";
        problems.add(&Origin::Absent, message);
    }
    Binds {
        listeners: listeners.into_iter().map(|(_, listener)| listener).collect(),
        admin: admin.map(|admin| admin.value),
        otlp: otlp.map(|otlp| otlp.value),
        access,
    }
}

fn admin(file: &RawFile, flags: &Flags, problems: &mut Problems<'_>) -> Option<Bind> {
    match flag_or("--admin", flags.admin.clone(), &file.admin.bind) {
        Some(bind) if bind.value == "off" => None,
        Some(bind) => {
            let value = address(ADMIN, &bind, problems).unwrap_or(ADMIN_DEFAULT);
            let bind = Given { value, origin: bind.origin };
            access::refuse_open_admin(ADMIN, &bind, &file.admin, problems);
            Some(bind)
        }
        None => Some(Given { value: ADMIN_DEFAULT, origin: Origin::Absent }),
    }
}

fn otlp(file: &RawFile, problems: &mut Problems<'_>) -> Option<Bind> {
    let bind = given(&file.otlp.bind)?;
    let value = address(OTLP, &bind, problems)?;
    let bind = Given { value, origin: bind.origin };
    access::refuse_open_admin(OTLP, &bind, &file.admin, problems);
    Some(bind)
}

fn listeners(
    file: &[Spanned<RawListener>],
    flags: &Flags,
    reached: Reached<'_>,
    problems: &mut Problems<'_>,
) -> Vec<(Origin, Listener)> {
    if let Some(first) = file.get(LISTENERS_MAX) {
        let message =
            format!("there are {} listeners; at most {LISTENERS_MAX} are accepted: remove some", file.len());
        problems.add(&bytes(first), message);
    }
    let file = &file[..file.len().min(LISTENERS_MAX)];
    let mut binds: Vec<Option<Given<String>>> =
        file.iter().map(|table| given(&table.get_ref().bind)).collect();
    let mut added = Vec::new();
    for (flag, word, value) in
        [("--memcached", "memcached", &flags.memcached), ("--redis", "redis", &flags.redis)]
    {
        let Some(value) = value.clone() else { continue };
        let bind = Given { value, origin: Origin::Flag(flag) };
        let speaking: Vec<usize> = (0..file.len()).filter(|&at| protocol_word(&file[at]) == word).collect();
        match speaking[..] {
            [] => added.push((Spanned::new(0..0, RawListener::speaking(word)), bind)),
            [only] => binds[only] = Some(bind),
            _ => {
                let count = speaking.len();
                let message = format!(
                    "{flag} cannot say which of {count} listeners it moves; it must be one: change bind in the file"
                );
                problems.add(&bind.origin, message);
                return Vec::new();
            }
        }
    }
    let of_file = file.iter().zip(binds).filter_map(|(table, bind)| {
        let Some(bind) = bind else {
            let message = "[[listener]] has no bind; it must name an address and a port: set bind = \
                           \"127.0.0.1:11211\"";
            problems.add(&bytes(table), message);
            return None;
        };
        listener(table, &bind, reached, problems)
    });
    let mut listeners: Vec<_> = of_file.collect();
    listeners.extend(added.iter().filter_map(|(table, bind)| listener(table, bind, reached, problems)));
    listeners
}

/// Name of a listener's protocol, as written.
fn protocol_word(table: &Spanned<RawListener>) -> String {
    given(&table.get_ref().protocol).map_or_else(|| Protocol::ALL[0].name().to_owned(), |given| given.value)
}

/// Returns the listener on a UNIX socket that a flag adds to the listeners of the file.
fn unix_socket(
    flags: &Flags,
    reached: Reached<'_>,
    problems: &mut Problems<'_>,
) -> Option<(Origin, Listener)> {
    let value = format!("{UNIX}{}", flags.unix_socket.as_ref()?);
    let bind = Given { value, origin: Origin::Flag("--unix-socket") };
    listener(&Spanned::new(0..0, RawListener::default()), &bind, reached, problems)
}

fn listener(
    table: &Spanned<RawListener>,
    bind: &Given<String>,
    Reached { backends, tenants, classes }: Reached<'_>,
    problems: &mut Problems<'_>,
) -> Option<(Origin, Listener)> {
    let raw = table.get_ref();
    let protocol = one_of(
        problems,
        PROTOCOL,
        given(&raw.protocol),
        &Protocol::ALL.map(|protocol| (protocol.name(), protocol)),
    );
    let mode = handling(raw, problems);
    let requests = one_of(problems, REQUESTS, given(&raw.requests), &BATCH_MODES);
    let class = class(raw, classes, problems);
    let databases = databases(raw, (protocol, mode), problems);
    let setting = if matches!(bind.origin, Origin::Flag("--redis")) { REDIS_BIND } else { BIND };
    let address = bind_address(setting, bind, given(&raw.permissions), problems);
    let auth_file = access::auth_file(raw, problems);
    let tls = access::listener_tls(raw, problems);
    access::refuse_open_listener(setting, bind, address.as_ref(), raw, problems);
    let tenant = clients::tenant(table, bind, tenants, problems);
    let route = route(table, bind, backends, problems);
    if let (Some(route), Mode::ReadThrough | Mode::WriteThrough(_)) = (route, mode) {
        refuse_mode_without_store(raw, route, backends, problems);
    }
    Some((
        bind.origin.clone(),
        Listener {
            protocol,
            bind: address?,
            auth_file,
            tls,
            tenant,
            route: route?,
            mode,
            requests,
            class,
            databases,
        },
    ))
}

const BATCH_MODES: [(&str, BatchMode); 3] =
    [("auto", BatchMode::Auto), ("batches", BatchMode::Always), ("off", BatchMode::Never)];

/// Returns the class of the requests of a listener, which must be one that has an SLO.
fn class(
    raw: &RawListener,
    classes: &[Spanned<RawScopedSlo>],
    problems: &mut Problems<'_>,
) -> Option<String> {
    let class = given(&raw.class)?;
    let names: Vec<_> = classes.iter().filter_map(|table| given(&table.get_ref().name)).collect();
    let known: Vec<&str> = names.iter().map(|name| name.value.as_str()).collect();
    if known.is_empty() {
        let message = format!(
            "{} is \"{}\", and no class has an SLO; it must be one that has: add a [[slo.class]] of that name",
            CLASS.name(&class.origin),
            quoted(&class.value)
        );
        problems.add(&class.origin, message);
    } else if !known.contains(&class.value.as_str()) {
        unknown(problems, CLASS, &class, &known);
    }
    Some(class.value)
}

/// Returns the number of databases of a listener.
fn databases(raw: &RawListener, (protocol, mode): (Protocol, Mode), problems: &mut Problems<'_>) -> u8 {
    let Some(given) = given(&raw.databases) else { return 1 };
    let origin = given.origin.clone();
    let databases = in_range(problems, DATABASES, Some(given), 1, 1..=u64::from(DATABASES_MAX));
    let lack = match (databases, protocol, mode) {
        (1, ..) | (_, Protocol::Redis, Mode::LookAside) => return databases as u8,
        (_, Protocol::Redis, _) => {
            "its mode reads from a backend, which has no databases: set mode = \"look-aside\""
        }
        _ => "its protocol has none: set protocol = \"redis\"",
    };
    problems.add(&origin, format!("[[listener]] databases is {databases}, but {lack}, or remove databases"));
    1
}

fn handling(raw: &RawListener, problems: &mut Problems<'_>) -> Mode {
    let cache_first =
        one_of(problems, WRITE_FIRST, given(&raw.write_first), &[("store", false), ("cache", true)]);
    let admit = given(&raw.write_admit).is_none_or(|admit| admit.value);
    let through = Mode::WriteThrough(WriteThrough { cache_first, admit });
    let modes =
        [("look-aside", Mode::LookAside), ("read-through", Mode::ReadThrough), ("write-through", through)];
    let mode = one_of(problems, MODE, given(&raw.mode), &modes);
    let first = given(&raw.write_first).map(|given| ("write_first", given.origin));
    let admits = given(&raw.write_admit).map(|given| ("write_admit", given.origin));
    if mode != through {
        for (key, origin) in first.into_iter().chain(admits) {
            let message = format!(
                "[[listener]] has {key}, but its mode is not \"write-through\"; only that writes to a store: remove \
                 {key}, or set mode = \"write-through\""
            );
            problems.add(&origin, message);
        }
    }
    mode
}

fn route(
    table: &Spanned<RawListener>,
    bind: &Given<String>,
    backends: &[BackendConfig],
    problems: &mut Problems<'_>,
) -> Option<Route> {
    let raw = table.get_ref();
    let by_prefix = backends.iter().any(|backend| backend.prefix.is_some());
    match (given(&raw.route), given(&raw.backend)) {
        (Some(route), Some(_)) => {
            let message = "[[listener]] has both route and backend; it must have one of them: remove one";
            problems.add(&route.origin, message);
            None
        }
        (Some(route), None) if route.value != "prefix" => {
            unknown(problems, ROUTE, &route, &["prefix"]);
            None
        }
        (Some(route), None) if !by_prefix => {
            let message = "[[listener]] route is \"prefix\", but no backend has a prefix; at least one must: set prefix = \
                           \"catalog/\" there, or backend instead of route here";
            problems.add(&route.origin, message);
            None
        }
        (None, Some(backend)) => named(&backend, backends, problems),
        (None, None) if backends.len() == 1 && !by_prefix => Some(Route::Backend(BackendId(0))),
        (None, None) if !by_prefix => {
            let origin =
                if matches!(bind.origin, Origin::Flag(_)) { bind.origin.clone() } else { bytes(table) };
            let message = format!(
                "a listener has neither route nor backend, and there are {} backends; it must have one of them: set route \
                 = \"prefix\" or backend = \"{}\"",
                backends.len(),
                backends[0].name
            );
            problems.add(&origin, message);
            None
        }
        _ => Some(Route::Prefix),
    }
}

fn named(name: &Given<String>, backends: &[BackendConfig], problems: &mut Problems<'_>) -> Option<Route> {
    let index = backends.iter().position(|backend| backend.name == name.value);
    if index.is_none() {
        let names: Vec<&str> = backends.iter().map(|backend| backend.name.as_str()).collect();
        unknown(problems, BACKEND, name, &names);
    }
    index.map(|index| Route::Backend(BackendId::from_index(index)))
}

/// Refuses a mode that uses stores where no backend of the listener has one. Beside others that
/// have one, a backend without is a plain cache.
fn refuse_mode_without_store(
    raw: &RawListener,
    route: Route,
    backends: &[BackendConfig],
    problems: &mut Problems<'_>,
) {
    let reached = |(index, backend): &(usize, &BackendConfig)| match route {
        Route::Prefix => backend.prefix.is_some(),
        Route::Backend(id) => id.index() == *index,
    };
    let mut reached = backends.iter().enumerate().filter(reached).map(|(_, backend)| backend).peekable();
    let first = reached.peek().map(|backend| &backend.name);
    if let (Some(name), Some(mode)) = (first.cloned(), given(&raw.mode))
        && reached.all(|backend| backend.replicas.is_empty())
    {
        let message = format!(
            "[[listener]] mode is \"{}\", but backend \"{name}\" has no store: give it a store, or set mode = \
             \"look-aside\"",
            mode.value
        );
        problems.add(&mode.origin, message);
    }
}

/// Address of a listener.
fn bind_address(
    setting: Setting,
    bind: &Given<String>,
    permissions: Option<Given<String>>,
    problems: &mut Problems<'_>,
) -> Option<Address> {
    let Some(path) = bind.value.strip_prefix(UNIX) else {
        if let Some(permissions) = permissions {
            let message = "[[listener]] permissions are those of a UNIX socket, and bind is none: remove them, or set bind = \
                           \"unix:/run/sherwood.sock\"";
            problems.add(&permissions.origin, message);
        }
        if bind.value.starts_with('/') {
            let (name, shown) = (BIND.name(&bind.origin), quoted(&bind.value));
            let message = format!(
                "{name} is \"{shown}\"; it must be an IP address, or localhost, and a port, or a UNIX socket with {UNIX} before \
                 its path: write {UNIX}{shown}"
            );
            problems.add(&bind.origin, message);
            return None;
        }
        return address(setting, bind, problems).map(Address::Tcp);
    };
    let permissions = permissions.map_or(Some(UnixSocket::PERMISSIONS), |given| mode(&given, problems));
    if path.is_empty() || path.len() > UnixSocket::PATH_BYTES_MAX || path.contains('\0') {
        let message = format!(
            "{} names a socket by {} bytes; its path must have 1 to {}, none of them zero: {}",
            BIND.name(&bind.origin),
            path.len(),
            UnixSocket::PATH_BYTES_MAX,
            match bind.origin {
                Origin::Flag(flag) => format!("give {flag} /run/sherwood.sock"),
                _ => "set bind = \"unix:/run/sherwood.sock\"".to_owned(),
            }
        );
        problems.add(&bind.origin, message);
        return None;
    }
    Some(Address::Unix(UnixSocket { path: path.into(), permissions: permissions? }))
}

/// Returns the permissions of a UNIX socket, written in the notation of `chmod`.
fn mode(given: &Given<String>, problems: &mut Problems<'_>) -> Option<u32> {
    let Given { value, origin } = given;
    let octal = (3..=4).contains(&value.len()) && value.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = octal.then(|| u32::from_str_radix(value, 8).ok()).flatten().filter(|&mode| mode <= 0o777);
    if mode.is_none() {
        let (name, shown, remedy) = (PERMISSIONS.name(origin), quoted(value), PERMISSIONS.remedy(origin));
        problems
            .add(origin, format!("{name} is \"{shown}\"; it must be octal, \"0000\" to \"0777\": {remedy}"));
    }
    mode
}

/// Parses an IP address, or `localhost` for 127.0.0.1, and a port.
fn address(setting: Setting, given: &Given<String>, problems: &mut Problems<'_>) -> Option<SocketAddr> {
    let Given { value, origin } = given;
    let (name, remedy, shown) = (setting.name(origin), setting.remedy(origin), quoted(value));
    let local = value.strip_prefix("localhost:").map(|port| format!("{}:{port}", Ipv4Addr::LOCALHOST));
    let address = local.as_ref().unwrap_or(value).parse().ok();
    if address.is_none() {
        let accepted = "it must be an IP address, or localhost, and a port";
        problems.add(origin, format!("{name} is \"{shown}\"; {accepted}: {remedy}"));
    }
    address
}

/// Refuses two sockets with one address; port 0 stands for a different free port each time.
fn refuse_shared_addresses<'a>(
    admin: Option<&'a Bind>,
    otlp: Option<&'a Bind>,
    listeners: &[(Origin, Listener)],
    problems: &mut Problems<'_>,
) {
    let port = |bind: Option<&'a Bind>, table| {
        bind.map(|bind| (&bind.origin, Address::Tcp(bind.value), table)).into_iter()
    };
    let ports = port(admin, "[admin]").chain(port(otlp, "[otlp]"));
    let listeners =
        listeners.iter().map(|(origin, listener)| (origin, listener.bind.clone(), "[[listener]]"));
    let mut taken: Vec<(&Origin, Address, &str)> = Vec::new();
    let any_port = |address: &Address| address.tcp().is_some_and(|address| address.port() == 0);
    for (origin, address, table) in ports.chain(listeners).filter(|(_, address, _)| !any_port(address)) {
        match taken.iter().find(|(_, other, _)| *other == address) {
            None => taken.push((origin, address, table)),
            Some((first, _, other)) => {
                let name = BIND.name(origin);
                let first = problems.reference(first);
                let part = if address.tcp().is_some() { "port" } else { "path" };
                let message = format!(
                    "{name} is {address}, which {other} bind ({first}) has already; each needs its own: change the {part} of \
                     one"
                );
                problems.add(origin, message);
            }
        }
    }
}
