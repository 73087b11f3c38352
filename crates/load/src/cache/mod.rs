//! A load of gets and sets to a cache that speaks one of memcached's protocols or Redis's protocol.
//!
//! One thread drives all connections, with non-blocking sockets that are registered once with
//! `epoll(7)`. It sleeps in `ppoll(2)`, whose timeout has nanoseconds: at tens of thousands of
//! operations per second a timer of milliseconds would send them in bursts. Each connection
//! pipelines up to a stated number of operations. An operation that is due waits for the first
//! connection with a free place, and that wait is part of its latency and of the reported lateness.
//!
//! With `look_aside`, a get that misses is followed by a set of the value on the same connection,
//! in the same place of the pipeline; the operation ends with the set's answer. A get of several
//! keys (memcached's multi-get, Redis's `MGET`) is one operation and is not followed by sets. With
//! one connection and a pipeline of 1 a trace is replayed strictly in order, and its hits can be
//! compared with those of a simulation, access by access.
//!
//! ```text
//! driver ── operations due ──▶ pipeline ── bytes ──▶ connection ──▶ socket     protocol: encodes requests
//!   ▲                             ▲                      │                     and parses answers
//!   └── ended: tally              └───── answers ◀── input
//! ```

mod connection;
mod driver;
mod login;
mod operations;
mod pipeline;
mod protocol;
mod retry;
mod socket;
mod tally;

use std::io::BufRead;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use sherwood_workload::{KeyValueOptions, ValueSizes, tenants};

use crate::pace::{Schedule, wake_on_time};
use crate::{Control, LoadError, Pace, Report, Tls, within};

pub use login::Login;
use socket::Socket;

/// The protocol of the load's target. In every protocol, keys are limited to what memcached
/// accepts, 1 to 250 bytes without blanks, so that any load can be sent with any protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// memcached's text protocol: `get` and `set`.
    Memcached,
    /// memcached's binary protocol: `set` and `get`, or for several keys a `getq` each, followed by
    /// a `noop`.
    MemcachedBinary,
    /// Redis's, RESP2 in database 0: `GET`, `MGET` and `SET`.
    Redis,
}

/// Options of a run of gets and sets against a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The target's protocol.
    pub protocol: Protocol,
    /// `host:port`.
    pub address: String,
    /// Open or closed loop.
    pub pace: Pace,
    /// Connections, 1 to 1,024.
    pub connections: usize,
    /// Operations in flight on each connection, 1 to 65,536.
    pub pipeline: usize,
    /// Length of the run; without it, the run ends with the workload. Operations overdue at the end
    /// have another second to be sent, and count as errors if they are not.
    pub duration: Option<Duration>,
    /// Most operations of the run; without it, as many as the workload has.
    pub operations_max: Option<u64>,
    /// True if a get that misses is followed by a set.
    pub look_aside: bool,
    /// The deadline of each operation: above 0 and at most 24 hours, sent in whole milliseconds,
    /// rounded up. Only supported for gets of one key with memcached's text protocol, whose meta
    /// commands can carry it.
    pub deadline: Option<Duration>,
    /// TLS of every connection; none speaks without.
    pub tls: Option<Tls>,
    /// The user of every connection; without one, connections do not log in.
    pub login: Option<Login>,
    /// Seed of the times at which operations start; the workload has a seed of its own.
    pub seed: u64,
}

/// The operations to send. Values are repetitions of one byte.
pub enum Workload {
    /// An endless stream of gets and sets over a key space.
    KeyValue {
        /// The number of keys, sizes, popularity and share of gets.
        options: KeyValueOptions,
        /// Keys of one get, 1 to 1,000, distinct.
        batch: usize,
        /// Prefixes of the keys, not counted in the key size: key `k` has the prefix at `k` modulo
        /// their number, which is also its partition. Without any, all keys are in one partition.
        /// At most 1,024, and not with batches.
        prefixes: Vec<String>,
        /// Seed of the stream of operations.
        seed: u64,
    },
    /// A single pass over a cache2k trace, all gets; partitions are object types, keys such as
    /// `t07/0001a2b3`.
    Cache2k {
        /// The cache2k trace, xz-packed or not.
        input: Box<dyn BufRead + Send>,
        /// Distribution of the sizes of values; each access draws one, for a set after its miss.
        value_sizes: ValueSizes,
        /// Seed of the sizes.
        seed: u64,
    },
    /// A single pass over a RobinHood trace, all gets, request by request; partitions are backends,
    /// keys `backend:key`, values as large as recorded. Objects that must not be cached are read
    /// and never set.
    RobinHood {
        /// The RobinHood trace's text.
        input: Box<dyn BufRead + Send>,
    },
    /// The endless stream of a load of a validated scenario of tenants. Each tenant has keys of its
    /// own: a store has one value of a key, so writes of one tenant would remove it from the caches
    /// of the others.
    Tenant {
        /// Number of the tenant in the scenario, below 1,024. The first three bytes of its keys are
        /// `t` and the number as two digits of base 32, 0 to 9 and a to v.
        number: u16,
        /// Keys, popularity, writes and scans, which change over time.
        load: Box<tenants::Load>,
        /// Time before the measurement, from whose start changes count.
        warm_up: Duration,
        /// Seed of the stream.
        seed: u64,
    },
}

/// An operation that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Intended start of the operation, from the start of the run; in a closed loop, the time of
    /// sending.
    pub intended: Duration,
    /// Time from the intended start to the end of the operation.
    pub latency: Duration,
    /// Keys found by the operation.
    pub hits: u32,
    /// Keys not found by the operation.
    pub misses: u32,
    /// True if the operation was refused, disconnected or never sent.
    pub failed: bool,
    /// True if the operation failed because its key, or one of its keys, was rejected.
    pub rejected: bool,
}

/// Runs the workload to its end, its bounds, or [`Control::stop`]. Blocks; at most 11 s longer for
/// overdue operations and outstanding answers. `observe` is called with every operation as it ends,
/// on the calling thread, and must not block.
///
/// # Errors
/// When an option is out of range, the trace cannot be opened, or not all connections can be made.
/// Later failures are counted and named in the report.
pub fn run(
    options: &Options,
    workload: Workload,
    control: &Control,
    mut observe: impl FnMut(&Ended),
) -> Result<Report, LoadError> {
    within("connections", options.connections, 1..=1_024, "1 to 1024")?;
    within("pipeline", options.pipeline, 1..=65_536, "1 to 65536")?;
    if let Some(deadline) = options.deadline {
        check_deadline(options.protocol, deadline, &workload)?;
    }
    let schedule = Schedule::new(options.pace, options.seed)?;
    let prepared = Prepared::new(options, schedule, workload)?;
    prepared.run(options, control, &mut observe)
}

/// A run whose connections are made.
pub(crate) struct Prepared {
    schedule: Schedule,
    /// True if connections pause after a rejection, as clients of tenants do.
    pauses: bool,
    operations: Box<dyn operations::Operations>,
    sockets: Vec<Socket>,
}

impl Prepared {
    /// Makes the connections of a run with validated options.
    pub(crate) fn new(options: &Options, schedule: Schedule, workload: Workload) -> Result<Self, LoadError> {
        let pauses = matches!(workload, Workload::Tenant { .. });
        let operations = operations::from_workload(workload, options.operations_max)?;
        Ok(Self { schedule, pauses, operations, sockets: connect(options)? })
    }

    /// Carries out the run, as [`run`].
    pub(crate) fn run(
        self,
        options: &Options,
        control: &Control,
        observe: &mut dyn FnMut(&Ended),
    ) -> Result<Report, LoadError> {
        let Self { schedule, pauses, operations, sockets } = self;
        wake_on_time();
        let tally = tally::Tally::new(options.deadline, observe);
        let driver = driver::Driver::new(options, schedule, operations, sockets, control, tally);
        let driver = driver.map_err(|error| LoadError::System { source: error.into() })?;
        Ok(driver.pausing(pauses).run())
    }
}

fn check_deadline(protocol: Protocol, deadline: Duration, workload: &Workload) -> Result<(), LoadError> {
    crate::check_deadline(deadline)?;
    let batch = if let Workload::KeyValue { batch, .. } = workload { *batch } else { 1 };
    let found = match protocol {
        Protocol::Memcached if batch == 1 => return Ok(()),
        Protocol::Memcached => format!("{deadline:?} for gets of {batch} keys"),
        Protocol::MemcachedBinary => format!("{deadline:?} for a memcached-binary:// target"),
        Protocol::Redis => format!("{deadline:?} for a redis:// target"),
    };
    Err(LoadError::Option {
        option: "deadline",
        found,
        accepted: "gets of one key by memcached's text protocol",
    })
}

/// The time within which a connection has to be made, and each part of its handshake and login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

fn connect(options: &Options) -> Result<Vec<Socket>, LoadError> {
    let Options { address, login, protocol, tls, .. } = options;
    let resolve = |source| LoadError::Resolve { address: address.clone(), source };
    let candidates: Vec<_> = address.to_socket_addrs().map_err(resolve)?.collect();
    let each = (0..options.connections).map(|_| {
        let stream = connect_first(&candidates)
            .map_err(|source| LoadError::Connect { address: address.clone(), source })?;
        let secure = |source| match tls {
            Some(_) => LoadError::Tls { address: address.clone(), source },
            None => LoadError::System { source },
        };
        let mut socket = Socket::new(stream, tls.as_ref()).map_err(secure)?;
        if let Some(login) = login {
            let refused = |source| LoadError::Login { user: login.user.clone(), source };
            login.send(*protocol, &mut socket).map_err(refused)?;
        }
        socket.stream().set_nonblocking(true).map_err(|source| LoadError::System { source })?;
        Ok(socket)
    });
    each.collect()
}

fn connect_first(candidates: &[std::net::SocketAddr]) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::new(std::io::ErrorKind::AddrNotAvailable, "the name has no address");
    for candidate in candidates {
        match TcpStream::connect_timeout(candidate, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
                stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
