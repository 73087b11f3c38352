//! `sherwood serve`.

mod manager;

use std::path::PathBuf;

use sherwood_config::{Config, Flags, Protocol};
use sherwood_node::{Node, PassedSockets, ReloadError, ReloadOptions, ReloadRequest, Reloaded, Setup};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Failure;
use crate::{descriptors, logs, stderr};

/// Runs a node: a cache, or a sidecar in front of backends
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood serve --memory 1GiB --memcached 127.0.0.1:11211       a plain cache
  sherwood serve --memory 1GiB --redis 127.0.0.1:6379            the same for clients of Redis
  sherwood serve --config sherwood.toml                          backends, partitions, an SLO
  sherwood serve --config sherwood.toml --policy static          the same, sized by hand

Flags override the configuration file. SIGHUP reads it again. SIGTERM and SIGINT drain and exit 0, or 1 if the snapshot \
cannot be written. SHERWOOD_LOG=debug logs more, warn less.")]
pub(crate) struct Args {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Bytes for keys, values, index and metadata: 512MiB, 1GiB, … [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Listen here for the memcached text protocol
    #[arg(long, value_name = "ADDR:PORT")]
    memcached: Option<String>,
    /// Listen here too for the memcached text protocol; only this user may connect
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<String>,
    /// Listen here for the protocol of Redis
    #[arg(long, value_name = "ADDR:PORT")]
    redis: Option<String>,
    /// Admin API and gateway, or `off` [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR:PORT|off")]
    admin: Option<String>,
    /// Threads of each listener, and as many for the HTTP port [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<u64>,
    /// Keep each thread of a listener to one core
    #[arg(long)]
    pin: bool,
    /// Use io_uring on listeners: io_uring, epoll (do not) or auto (if available) [default: auto]
    #[arg(long, value_name = "NAME")]
    io: Option<String>,
    /// Connections at once, over all memcached and Redis listeners [default: 1024]
    #[arg(long, value_name = "N")]
    max_connections: Option<u64>,
    /// Largest value [default: 1MiB]
    #[arg(long, value_name = "SIZE")]
    max_item_size: Option<String>,
    /// Which item of a partition goes first, s3-fifo or lru [default: s3-fifo]
    #[arg(long, value_name = "NAME")]
    eviction: Option<String>,
    /// Which policy sizes the partitions [default: robinhood]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Name of this node in its cluster, so that nodes may share a file
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// How log lines are written
    #[arg(long, value_enum, default_value_t)]
    log_format: logs::Format,
}

impl Args {
    fn flags(&self) -> Flags {
        Flags {
            config: self.config.clone(),
            memory: self.memory.clone(),
            memcached: self.memcached.clone(),
            unix_socket: self.unix_socket.clone(),
            redis: self.redis.clone(),
            admin: self.admin.clone(),
            threads: self.threads,
            pin: self.pin,
            io: self.io.clone(),
            max_connections: self.max_connections,
            max_item_size: self.max_item_size.clone(),
            eviction: self.eviction.clone(),
            policy: self.policy.clone(),
            node: self.node.clone(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if matches!(args.log_format, logs::Format::Json) {
        stderr::use_json();
    }
    logs::start(args.log_format, logs::filter("info")?);
    let passed = manager::passed_sockets()?;
    let config = load(&args.flags()).map_err(Failure::usage)?;
    serve(&args.flags(), config, passed)
}

fn load(flags: &Flags) -> Result<Config, sherwood_config::ConfigError> {
    sherwood_config::load(flags, sherwood_policy::available_without_options())
}

fn serve(flags: &Flags, mut config: Config, passed: PassedSockets) -> Result<(), Failure> {
    let waiting =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    // Signals are caught before anything is opened, so that none is lost.
    let (mut terminate, mut interrupt, mut hangup) = waiting.block_on(async {
        let catch = |kind| signal(kind).map_err(Failure::failed);
        let (terminate, interrupt) = (catch(SignalKind::terminate())?, catch(SignalKind::interrupt())?);
        Ok::<_, Failure>((terminate, interrupt, catch(SignalKind::hangup())?))
    })?;
    stderr::announce(config.memory_line());
    stderr::announce(config.backends_line());
    stderr::announce(config.requests_line());
    let (files, wanted) = (descriptors::raise_limit(), config.descriptors());
    if files < wanted {
        tracing::warn!(
            "at most {files} open files are allowed, and full use of all connections takes {wanted}; raise ulimit -n"
        );
    }
    manager::starting();
    let setup = Setup::from_config(&config).map_err(Failure::failed)?;
    let node = Node::start(Setup { passed, ..setup }).map_err(Failure::failed)?;
    if let Some(url) = node.admin_url() {
        stderr::announce(format!("dashboard: {url}/"));
    }
    stderr::announce(ready(&node));
    manager::started(&ready(&node));
    let mut requests = node.reload_requests();
    waiting.block_on(async {
        let mut watchdog = manager::Watchdog::start();
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => drop(reload(&node, flags, &mut config, ReloadOptions::default())),
                Some(ReloadRequest { options, answer }) = requests.recv() => {
                    // A client that has gone does not wait for the answer.
                    let _ = answer.send(reload(&node, flags, &mut config, options));
                }
                () = watchdog.due() => report_life(&node),
            }
        }
    });
    manager::stopping();
    // The drain has ended; a restart that counts on the snapshot must learn that it is missing.
    node.stop().snapshot_error.map_or(Ok(()), |error| Err(Failure::Failed(error)))
}

/// Tells the watchdog that the node is alive, if it is.
fn report_life(node: &Node) {
    if node.is_responsive() {
        manager::alive();
    } else {
        tracing::warn!("a thread of the node does not answer; the watchdog is not told that it is alive");
    }
}

/// Reads the configuration again and has the node adopt it, and logs what became of it. `config` is
/// the one in force.
fn reload(node: &Node, flags: &Flags, config: &mut Config, options: ReloadOptions) -> Reloaded {
    manager::reloading();
    let reloaded = load(flags).map_err(|error| ReloadError::Invalid(error.to_string())).and_then(|new| {
        let changed = node.reload(config, &new, options)?;
        *config = new;
        Ok(changed)
    });
    let result = match &reloaded {
        Ok(changed) if changed.is_empty() => "the configuration was read again: nothing differs".to_owned(),
        Ok(changed) => format!("the configuration was read again; changed: {}", changed.join(", ")),
        Err(error) => format!("the configuration was read again, and the old one stays: {error}"),
    };
    match &reloaded {
        Ok(_) => tracing::info!("{result}"),
        Err(_) => tracing::error!("{result}"),
    }
    manager::started(&result);
    reloaded
}

/// Formats the line that announces the listeners and their addresses.
fn ready(node: &Node) -> String {
    let mut line = "ready".to_owned();
    for protocol in Protocol::ALL {
        for address in node.addresses(protocol) {
            line.push_str(&format!(" {}={address}", protocol.name()));
        }
    }
    if let Some(url) = node.admin_url() {
        line.push_str(&format!(" admin={url}"));
    }
    line
}
