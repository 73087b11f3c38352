//! Redis commands about the server: description, counters, settings and flushes.

use std::fmt::Write;

use sherwood_wire::resp::{Args, reply};

use super::VERSION;
use super::failure::{Failure, SYNTAX};
use super::glob;
use super::session::{CommandResult, Session, arg, command_name, is};
use super::words;
use crate::clock::CpuTimes;
use crate::counters::Count;
use crate::output::Output;
use crate::standing::TenantStanding;
use crate::work::{COUNTERS, FLUSH};

/// Executes the Redis command `TIME`.
pub(super) fn time(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    let now = session.shared.clock.unix(session.moment.now);
    reply::array(out, 2);
    reply::bulk(out, now.as_secs().to_string().as_bytes());
    reply::bulk(out, now.subsec_micros().to_string().as_bytes());
    Ok(())
}

/// Returns the work of a flush.
pub(super) fn flush_work(session: &Session<'_>) -> u64 {
    FLUSH * session.routing().partitions().len() as u64
}

/// Checks the arguments of a flush.
pub(super) fn check_flush(args: Args<'_>) -> CommandResult {
    match (args.get(1), args.len()) {
        (None, _) => Ok(()),
        (Some(word), 2) if is(word, "async") || is(word, "sync") => Ok(()),
        _ => Err(SYNTAX),
    }
}

/// Executes the Redis command `FLUSHALL [ASYNC | SYNC]`.
pub(super) fn flush(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    check_flush(args)?;
    out.work.add(flush_work(session));
    session.counters.increment(Count::CmdFlush);
    let service = &session.shared.service;
    let now = session.moment.now;
    for partition in session.routing().partitions() {
        let mut flush = || service.cache.flush(Some(partition), now, now);
        match &service.backends {
            // The backends of a transaction's partitions have learnt of it.
            Some(backends) if session.exclusive.is_none() => backends.flush(partition, now, &mut flush),
            _ => flush(),
        }
    }
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// A section of the answer to `INFO`: its name and the function that writes it.
type Section = (&'static str, fn(&Session<'_>, &mut String) -> std::fmt::Result);

const SECTIONS: [Section; 11] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Commandstats", command_stats),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
    ("Tenant", tenant),
];

/// Returns the work of an `INFO`, three sections of which read the counters of all partitions.
pub(super) fn info_work(session: &Session<'_>) -> u64 {
    3 * COUNTERS * session.routing().partitions().len() as u64 + CARD_WORK * session.hub.clients.len() as u64
}

/// Cost, in the unit of a scheduling turn's [`Work`](crate::work::Work), of adding one client's
/// number of commands to the total that `INFO` reports.
const CARD_WORK: u64 = 64;

/// Executes the Redis command `INFO [section …]`.
pub(super) fn info(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    out.work.add(info_work(session));
    let asked = |words: &[&str]| args.from(1).any(|word| words.iter().any(|one| is(word, one)));
    let (all, default) = (asked(&["all", "everything"]), args.len() == 1 || asked(&["default"]));
    let mut text = String::new();
    for (name, write) in SECTIONS {
        let is_absent = match name {
            "Tenant" => session.shared.service.standings.is_none(),
            "Commandstats" => session.shared.service.users.slots() > 1,
            _ => false,
        };
        if is_absent {
            continue;
        }
        if all || default && name != "Commandstats" || args.from(1).any(|word| is(word, name)) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            // Writing to a string does not fail.
            let _ = write!(text, "# {name}\r\n");
            let _ = write(session, &mut text);
        }
    }
    reply::text(out, session.version(), &text);
    Ok(())
}

fn server(session: &Session<'_>, text: &mut String) -> std::fmt::Result {
    let options = &session.shared.options;
    let uptime = session.moment.now.since(session.shared.started.now).as_secs();
    write!(text, "redis_version:{VERSION}\r\nsherwood_version:{}\r\n", env!("CARGO_PKG_VERSION"))?;
    write!(text, "redis_mode:standalone\r\narch_bits:64\r\nmultiplexing_api:epoll\r\n")?;
    write!(text, "process_id:{}\r\ntcp_port:{}\r\n", std::process::id(), port(session))?;
    write!(text, "uptime_in_seconds:{uptime}\r\nuptime_in_days:{}\r\n", uptime / 86_400)?;
    write!(text, "io_threads_active:{}\r\n", u8::from(options.threads > 1))
}

/// Returns the TCP port of the listener, or 0 for a UNIX socket.
fn port(session: &Session<'_>) -> u16 {
    session.shared.options.bind.tcp().map_or(0, |address| address.port())
}

fn clients(session: &Session<'_>, text: &mut String) -> std::fmt::Result {
    let max = session.shared.service.connection_limit.max();
    write!(text, "connected_clients:{}\r\nmaxclients:{max}\r\n", session.shared.connections.now())?;
    write!(text, "blocked_clients:0\r\n")
}

fn memory(session: &Session<'_>, text: &mut String) -> std::fmt::Result {
    let used = session.shared.service.usage(session.client.slot).used_bytes;
    let max = session.shared.service.bytes_max(session.client.slot);
    write!(text, "used_memory:{used}\r\nused_memory_human:{}\r\n", human(used))?;
    write!(text, "used_memory_dataset:{used}\r\n")?;
    write!(text, "maxmemory:{max}\r\nmaxmemory_human:{}\r\nmaxmemory_policy:{POLICY}\r\n", human(max))
}

/// Formats a number of bytes for people as Redis does: `512B`, `1.50M`.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    let mut size = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, larger);
    }
    if unit == "B" { format!("{bytes}B") } else { format!("{size:.2}{unit}") }
}

fn persistence(_: &Session<'_>, text: &mut String) -> std::fmt::Result {
    write!(
        text,
        "loading:0\r\nrdb_changes_since_last_save:0\r\nrdb_bgsave_in_progress:0\r\naof_enabled:0\r\n"
    )
}

fn stats(session: &Session<'_>, text: &mut String) -> std::fmt::Result {
    let (shared, slot) = (session.shared, session.client.slot);
    let (usage, counts) = (shared.service.usage(slot), shared.counts_since_reset(slot));
    let connections = &shared.connections;
    write!(text, "total_connections_received:{}\r\n", connections.total())?;
    write!(text, "total_commands_processed:{}\r\n", session.hub.clients.commands(slot) + session.commands)?;
    write!(text, "total_net_input_bytes:{}\r\n", counts.get(Count::BytesRead))?;
    write!(text, "total_net_output_bytes:{}\r\n", counts.get(Count::BytesWritten))?;
    write!(text, "rejected_connections:{}\r\n", connections.rejected())?;
    write!(text, "expired_keys:{}\r\nevicted_keys:{}\r\n", usage.expired, usage.evictions)?;
    write!(text, "keyspace_hits:{}\r\n", counts.get(Count::GetHits))?;
    write!(text, "keyspace_misses:{}\r\n", counts.get(Count::GetMisses))
}

fn replication(_: &Session<'_>, text: &mut String) -> std::fmt::Result {
    write!(text, "role:master\r\nconnected_slaves:0\r\n")
}

/// Writes the section `cpu` of `INFO`: processor time of the whole node.
fn cpu(session: &Session<'_>, text: &mut String) -> std::fmt::Result {
    let CpuTimes { user, system } = session.shared.clock.cpu_times();
    write!(text, "used_cpu_sys:{:.6}\r\nused_cpu_user:{:.6}\r\n", system.as_secs_f64(), user.as_secs_f64())
}

/// Writes the section `commandstats` of `INFO`. The time of single commands is not measured, so 0
/// is reported.
fn command_stats(session: &Session<'_>, text: &mut String) -> std::fmt::Result {
    let mut calls = session.hub.calls.since_reset();
    calls.try_for_each(|(at, calls)| {
        let name = command_name(at);
        write!(text, "cmdstat_{name}:calls={calls},usec=0,usec_per_call=0.00\r\n")
    })
}

fn cluster(_: &Session<'_>, text: &mut String) -> std::fmt::Result {
    write!(text, "cluster_enabled:0\r\n")
}

/// Writes the section `keyspace` of `INFO`. Expired items are counted until they are removed. The
/// number of items with an expiry is not tracked, so 0 is reported.
fn keyspace(session: &Session<'_>, text: &mut String) -> std::fmt::Result {
    match session.shared.service.usage(session.client.slot).items {
        0 => Ok(()),
        keys => write!(text, "db0:keys={keys},expires=0,avg_ttl=0\r\n"),
    }
}

/// Writes the section `tenant` of `INFO`: quotas, use and throughput of the client's tenant.
fn tenant(session: &Session<'_>, text: &mut String) -> std::fmt::Result {
    let standing = session.shared.service.standing(session.client.slot);
    let mut lines = standing.iter().flat_map(TenantStanding::lines);
    lines.try_for_each(|(name, value)| write!(text, "{name}:{value}\r\n"))
}

/// The eviction policy that is reported as Redis's `maxmemory-policy`, the nearest to the actual
/// one: eviction of the least recently used of all keys.
const POLICY: &str = "allkeys-lru";

/// Number of settings that `CONFIG GET` knows.
const SETTINGS: usize = 20;
/// Maximum length of a setting's name, bytes.
const SETTING_BYTES_MAX: usize = 24;

/// Returns Redis's settings with the values that this listener reports, in the order of their
/// names.
fn settings(session: &Session<'_>) -> [(&'static str, String); SETTINGS] {
    let options = &session.shared.options;
    let service = &session.shared.service;
    let unix = options.bind.unix();
    [
        ("appendonly", "no".to_owned()),
        ("bind", options.bind.tcp().map(|address| address.ip().to_string()).unwrap_or_default()),
        ("cluster-enabled", "no".to_owned()),
        ("databases", "1".to_owned()),
        ("io-threads", options.threads.to_string()),
        ("lazyfree-lazy-user-del", "yes".to_owned()),
        ("lazyfree-lazy-user-flush", "yes".to_owned()),
        ("maxclients", service.connection_limit.max().to_string()),
        ("maxmemory", service.bytes_max(session.client.slot).to_string()),
        ("maxmemory-policy", POLICY.to_owned()),
        // Frameworks read it before enabling keyspace notifications; empty means disabled.
        ("notify-keyspace-events", String::new()),
        ("port", port(session).to_string()),
        ("proto-max-bulk-len", options.item_size_max.to_string()),
        ("replicaof", String::new()),
        ("requirepass", String::new()),
        ("save", String::new()),
        ("tcp-keepalive", "0".to_owned()),
        ("timeout", options.idle_timeout.unwrap_or_default().as_secs().to_string()),
        ("unixsocket", unix.map(|place| place.path.display().to_string()).unwrap_or_default()),
        ("unixsocketperm", unix.map_or_else(|| "0".to_owned(), |place| format!("{:o}", place.permissions))),
    ]
}

/// Returns the work of a `CONFIG GET`: each setting is matched with all patterns.
pub(super) fn config_work(args: Args<'_>) -> u64 {
    let steps: usize = args.from(2).map(|pattern| glob::steps_max(pattern, SETTING_BYTES_MAX)).sum();
    SETTINGS as u64 * glob::work(steps)
}

/// Executes the Redis command `CONFIG GET pattern …`.
pub(super) fn config_get(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    out.work.begin(config_work(args))?;
    let wanted = |name: &str| args.from(2).any(|pattern| glob::matches(pattern, name.as_bytes(), true));
    let found: Vec<_> = settings(session).into_iter().filter(|(name, _)| wanted(name)).collect();
    reply::map(out, session.version(), found.len());
    for (name, value) in found {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
    Ok(())
}

/// Executes the Redis command `CONFIG SET parameter value …`: settings come from the node's
/// configuration and cannot be changed here; setting the present value succeeds.
pub(super) fn config_set(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    if !args.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    let settings = settings(session);
    for index in (2..args.len()).step_by(2) {
        let (name, value) = (arg(args, index), arg(args, index + 1));
        let (_, current) = settings.iter().find(|(known, _)| is(name, known)).ok_or_else(|| {
            Failure::about("ERR Unknown option or number of arguments for CONFIG SET - '", name, "'")
        })?;
        if !is(value, current) {
            let why = "') - can't set immutable config";
            return Err(Failure::about("ERR CONFIG SET failed (possibly related to argument '", name, why));
        }
    }
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Executes the Redis command `CONFIG RESETSTAT`.
pub(super) fn config_resetstat(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    session.shared.reset(session.client.slot);
    if session.shared.service.users.slots() == 1 {
        session.hub.calls.reset();
    }
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Executes the Redis command `CONFIG HELP`.
pub(super) fn config_help(_: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    words::help(
        out,
        "CONFIG",
        &[
            ("GET <pattern> [<pattern> ...]", "Settings whose names match."),
            ("SET <name> <value> [<name> <value> ...]", "Accepted where it changes nothing."),
            ("RESETSTAT", "Let counters begin at 0 again."),
        ],
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_readable_number_of_bytes_has_a_unit() {
        let told = [0, 1023, 1024, 1_572_864, 1 << 40, u64::MAX].map(human);
        assert_eq!(told, ["0B", "1023B", "1.00K", "1.50M", "1.00T", "16384.00P"]);
    }
}
