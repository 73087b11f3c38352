//! Resolution of parsed tables: one file per table, all problems collected.
//!
//! A refused value counts as its default from there on, so that one mistake is reported once and
//! later checks still run.

mod access;
mod backends;
mod binds;
mod bus;
mod classes;
mod clients;
mod cluster;
mod control;
mod deadlines;
mod dispatch;
mod duplicates;
mod dynamodb;
mod freshness;
mod guard;
mod instances;
mod managed_stores;
mod partitions;
mod policies;
mod remote;
mod replication;
mod resources;
mod schedulers;
mod shared;
mod slos;
mod spans;
mod stores;
mod tenants;
mod tickets;

use std::time::Duration;

use sherwood_cache::Eviction;
use sherwood_listener::Io;

use super::flags::Flags;
use super::meaning::{BUFFERS_BYTES_MAX, Config, Memory, Server, Snapshot};
use super::problem::Problems;
use super::raw::{RawFile, RawMemory, RawServer, RawSnapshot};
use super::scope::{Setting, bytes, flag_or, given, in_range, one_of, parsed_flag_or};
use super::units::{ByteSize, Span};

const TOTAL: Setting = Setting::new("[memory]", "total", "\"1GiB\"");
const ITEM: Setting = Setting::new("[memory]", "max_item_size", "\"1MiB\"");
const BUFFERS: Setting = Setting::new("[memory]", "buffers", "\"256MiB\"");
const SAMPLE: Setting = Setting::new("[memory]", "mrc_sample", "0.03125");
const MAX_TIME: Setting = Setting::new("[memory]", "snapshot.max_time", "\"10s\"");
const THREADS: Setting = Setting::new("[server]", "threads", "2");
const IO: Setting = Setting::new("[server]", "io", "\"auto\"");
const CONNECTIONS: Setting = Setting::new("[server]", "max_connections", "1024");
const IDLE: Setting = Setting::new("[server]", "idle_timeout", "\"5m\"");
const EVICTION: Setting = Setting::new("[memory]", "eviction", "\"s3-fifo\"");

const MIB: u64 = 1 << 20;
/// Minimum of the idle timeout. Chosen: a client that pauses for less than a second is not idle,
/// and a connection without input for a year is dead.
const IDLE_MIN: Span = Span(Duration::from_secs(1));
const IDLE_MAX: Span = Span(Duration::from_secs(365 * 24 * 3600));
/// Default sample ratio. Curves are precise to about a percentage point, and the cost is too small
/// to be measured beside a look-up.
const MRC_SAMPLE: f64 = 1.0 / 32.0;

/// Resolves `file` and `flags` to a configuration. The result is usable only if no problem was
/// added.
pub(super) fn resolve(
    file: &RawFile,
    flags: &Flags,
    policies: &[&str],
    problems: &mut Problems<'_>,
) -> Config {
    let memory = memory(&file.memory, flags, problems);
    let server = server(&file.server, flags, problems);
    let mut backends = backends::resolve(file, problems);
    let replication = replication::resolve(&file.replication, &mut backends, problems);
    let declared = tenants::resolve(file, &backends, memory.total_bytes, problems);
    let partitions::Division { tenants, partitions } =
        partitions::resolve(&file.partition, &backends, memory.total_bytes, declared.as_ref(), problems);
    let binds::Binds { listeners, admin, otlp, access } =
        binds::resolve(file, flags, &backends, declared.as_ref(), problems);
    let spans = spans::resolve(&file.otlp, problems);
    let slo = control::slo(&file.slo, problems);
    let slos = slos::resolve(&file.slo, &slo, &tenants, problems);
    let deadlines = deadlines::resolve(&file.deadline, &backends, &tenants, problems);
    let stores = managed_stores::resolve(&file.stores, &backends, &slo, problems);
    let schedulers = schedulers::resolve(&file.scheduler, admin.is_some(), problems);
    let cluster = cluster::resolve(&file.cluster, flags, problems);
    let mut control = control::control(&file.control, &slo, flags, policies, problems);
    let snapshot = snapshot(&file.memory, problems);
    instances::check(file, flags, (&partitions, &listeners), &control, problems);
    if declared.is_some() {
        tenants::check(file, flags, &control, problems);
        control.guard = None;
    }
    Config {
        memory,
        snapshot,
        server,
        listeners,
        backends,
        tenants,
        partitions,
        tenancy: declared.map(|declared| declared.setup),
        slo,
        slos,
        deadlines,
        schedulers,
        control,
        replication,
        stores,
        cluster,
        admin,
        otlp,
        spans,
        access,
    }
}

fn memory(file: &RawMemory, flags: &Flags, problems: &mut Problems<'_>) -> Memory {
    let total = parsed_flag_or(problems, "--memory", flags.memory.as_deref(), &file.total);
    let total = in_range(problems, TOTAL, total, ByteSize(64 * MIB), ByteSize(MIB)..=ByteSize(64 << 40));
    let item =
        parsed_flag_or(problems, "--max-item-size", flags.max_item_size.as_deref(), &file.max_item_size);
    let item_max = ByteSize(total.0.min(128 * MIB));
    let item = in_range(problems, ITEM, item, ByteSize(MIB), ByteSize(1 << 10)..=item_max);
    let eviction = flag_or("--eviction", flags.eviction.clone(), &file.eviction);
    let eviction =
        one_of(problems, EVICTION, eviction, &[("s3-fifo", Eviction::S3Fifo), ("lru", Eviction::Lru)]);
    let buffers = given(&file.buffers);
    let buffers = in_range(
        problems,
        BUFFERS,
        buffers,
        ByteSize(BUFFERS_BYTES_MAX),
        ByteSize(32 * MIB)..=ByteSize(64 << 40),
    );
    let mrc_sample_ratio = in_range(problems, SAMPLE, given(&file.mrc_sample), MRC_SAMPLE, 0.0..=1.0);
    let item_bytes_max = u32::try_from(item.0).unwrap_or(u32::MAX);
    Memory { total_bytes: total.0, item_bytes_max, eviction, buffers_bytes_max: buffers.0, mrc_sample_ratio }
}

/// Resolves `[memory] snapshot`; none without that table.
fn snapshot(file: &RawMemory, problems: &mut Problems<'_>) -> Option<Snapshot> {
    let table = file.snapshot.as_ref()?;
    let RawSnapshot { path, max_time } = table.get_ref();
    let times = Span(Duration::from_millis(100))..=Span(Duration::from_secs(600));
    let time_max = in_range(problems, MAX_TIME, given(max_time), Span(Duration::from_secs(10)), times).0;
    let path = given(path).filter(|path| !path.value.is_empty());
    if path.is_none() {
        let message = "[memory] snapshot has no path; it must name a file: set snapshot = { path = \"sherwood.snapshot\" }";
        problems.add(&bytes(table), message);
    }
    Some(Snapshot { path: path?.value.into(), time_max })
}

fn server(file: &RawServer, flags: &Flags, problems: &mut Problems<'_>) -> Server {
    let threads = flag_or("--threads", flags.threads, &file.threads);
    let threads = threads.map(|given| in_range(problems, THREADS, Some(given), 1, 1..=256));
    let connections = flag_or("--max-connections", flags.max_connections, &file.max_connections);
    let connections = in_range(problems, CONNECTIONS, connections, 1024, 1..=65_536);
    let idle_timeout = given(&file.idle_timeout)
        .map(|given| in_range(problems, IDLE, Some(given), IDLE_MIN, IDLE_MIN..=IDLE_MAX).0);
    Server {
        threads: threads.map(|threads| threads as u16),
        connections_max: connections as u32,
        idle_timeout,
        pin_threads: flags.pin || file.pin_threads.as_ref().is_some_and(|pin| *pin.get_ref()),
        io: one_of(problems, IO, flag_or("--io", flags.io.clone(), &file.io), &Io::ALL),
    }
}
