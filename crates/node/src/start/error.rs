//! Reasons that a node does not start.

use std::io;
use std::net::SocketAddr;

use sherwood_ports::PassedError;
use sherwood_ports::access::AccessError;

use crate::backend::log_disk::LogDiskError;
use crate::control::TenancyError;
use crate::spans::SpanExportError;

/// The reason a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The cache's options are invalid.
    #[error(transparent)]
    Cache(#[from] sherwood_cache::OptionsError),
    /// The options of a backend's dispatcher are invalid.
    #[error("backend `{backend}`: {error}")]
    Dispatch {
        /// Name of the backend.
        backend: String,
        /// Reason why the options are invalid.
        error: sherwood_dispatch::OptionsError,
    },
    /// The options of a scheduler are invalid.
    #[error("scheduler `{scheduler}`: {error}")]
    Scheduler {
        /// Name of the scheduler.
        scheduler: String,
        /// Reason why the options are invalid.
        error: sherwood_dispatch::OptionsError,
    },
    /// The control loop's options are invalid.
    #[error(transparent)]
    Control(#[from] sherwood_policy::OptionsError),
    /// No policy has this name.
    #[error(transparent)]
    Policy(#[from] sherwood_policy::PolicyError),
    /// The tenants cannot be divided among.
    #[error(transparent)]
    Tenants(#[from] TenancyError),
    /// A port could not be bound.
    #[error(
        "{name} cannot listen on {address}: {error}; choose another port ({settings}), or stop what uses it"
    )]
    Bind {
        /// Purpose of the port.
        name: &'static str,
        /// Settings that choose the address.
        settings: &'static str,
        /// Address of the port that could not be bound.
        address: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
    },
    /// A listener could not be bound.
    #[error(transparent)]
    Listener(#[from] sherwood_listener::BindError),
    /// io_uring is configured and not available.
    #[error(
        "io_uring cannot be used: {0}; it needs Linux 6.1 and permission (a seccomp filter or kernel.io_uring_disabled may \
         forbid it): allow it, or set [server] io = \"auto\" (--io auto)"
    )]
    IoUring(io::Error),
    /// A socket that another process opened cannot be used.
    #[error(transparent)]
    Passed(#[from] PassedError),
    /// A file of certificates, keys, tokens or passwords is unusable.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Spans cannot be exported as configured.
    #[error(transparent)]
    Spans(#[from] SpanExportError),
    /// The bus of the cluster cannot be used as configured.
    #[error("[cluster] bus: {0}")]
    Bus(String),
    /// The logs of a replicated store cannot be kept on disk.
    #[error(transparent)]
    Log(#[from] LogDiskError),
    /// The snapshot's file cannot be written.
    #[error(
        "the snapshot {path} cannot be written: {error}; make its directory, writable for this user, or choose another path \
         ([memory] snapshot)"
    )]
    Snapshot {
        /// The path that was tried.
        path: String,
        /// Error of the operating system.
        error: io::Error,
    },
    /// Another kind of file is in the snapshot's place.
    #[error(
        "the snapshot would take the place of {path}, which is {what}; remove that, or choose another path ([memory] snapshot)"
    )]
    SnapshotPlace {
        /// The path of that file.
        path: String,
        /// The kind of that file, such as `a directory`.
        what: &'static str,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}; raise the limit on processes (ulimit -u)")]
    Thread(io::Error),
    /// A listener's backend has no partition of the default tenant.
    #[error("a listener leads to backend `{backend}`, which has no partition of the default tenant; add one")]
    NoPartition {
        /// Name of the backend.
        backend: String,
    },
    /// The prefixes of a listener's routes are ambiguous.
    #[error(transparent)]
    Routing(#[from] sherwood_listener::RoutingError),
}

impl StartError {
    pub(crate) fn no_partition(backend: &str) -> Self {
        Self::NoPartition { backend: backend.to_owned() }
    }
}
