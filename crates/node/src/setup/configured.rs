//! From a configuration to a setup: opens what has to be opened.

use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use sherwood_model::{Band, Slo};
use sherwood_store::{OpenError, Store};

use super::{BackendSetup, MemcachedSetup, PartitionSetup, RouteSetup, Setup};
use crate::config::{self, Config, HTTP_CONNECTIONS_MAX, Mode, Route};
use crate::control::Pin;

/// Shards of the cache for each thread that serves it, so that two threads rarely meet at a lock.
const SHARDS_PER_THREAD: usize = 8;
/// What the engine takes.
const SHARDS_MAX: u16 = 1_024;
/// Every shard has pages of its own for each size of items, some of them partly empty: 2 to 4 MiB where sizes are mixed. In shards
/// of a quarter of this a cache held half of what it may, in a sixteenth hardly anything.
const SHARD_BYTES_MIN: u64 = 32 << 20;
/// Half of what a shard can name.
const SHARD_BYTES_MAX: u64 = 16 << 30;

impl Setup {
    /// The node that `config` describes, its stores opened.
    ///
    /// # Errors
    /// When a store cannot be opened.
    pub fn from_config(config: &Config) -> Result<Self, OpenError> {
        let threads = config.server.threads.map_or_else(cores, usize::from);
        let backends = config.backends.iter().map(backend).collect::<Result<_, _>>()?;
        Ok(Self {
            cache: sherwood_cache::Options {
                total_bytes: config.memory.total_bytes,
                item_bytes_max: config.memory.item_bytes_max,
                eviction: config.memory.eviction,
                shards: shards(threads, config.memory.total_bytes),
                threads: u16::try_from(threads).unwrap_or(u16::MAX),
                ghost_rate: config.memory.mrc_sample_ratio,
                ..sherwood_cache::Options::default()
            },
            tenants: config.tenants.clone(),
            backends,
            partitions: config
                .partitions
                .iter()
                .map(|one| partition(one, config.memory.total_bytes))
                .collect(),
            slo: slo(&config.slo),
            control: control(&config.control),
            policy: config.control.policy.clone(),
            memcached: config.listeners.iter().map(|one| listener(one, config, threads)).collect(),
            admin: config.admin,
            memcached_connections_max: config.server.connections_max as usize,
            http_connections_max: HTTP_CONNECTIONS_MAX,
            buffers_bytes_max: config.memory.buffers_bytes_max,
            slack_bytes: Some(slack_bytes(config)),
            threads,
            seed: None,
        })
    }
}

/// How far resident memory may exceed the total before the cache gives way: five eighths of what is promised, since the
/// remedy takes a moment to work, and what the embedded stores keep.
fn slack_bytes(config: &Config) -> u64 {
    let promised = config.memory.slack_bytes();
    (promised / 8 * 5).saturating_add(config.stores_bytes())
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Shards for a cache of `total_bytes` that `threads` threads serve: a power of two, at most what the engine takes.
fn shards(threads: usize, total_bytes: u64) -> u16 {
    let most = 1 << (total_bytes / SHARD_BYTES_MIN).max(1).ilog2();
    let least = total_bytes.div_ceil(SHARD_BYTES_MAX).next_power_of_two();
    let wanted = (threads * SHARDS_PER_THREAD).next_power_of_two() as u64;
    u16::try_from(wanted.min(most).max(least)).unwrap_or(SHARDS_MAX).min(SHARDS_MAX)
}

fn backend(backend: &config::Backend) -> Result<BackendSetup, OpenError> {
    let open = |(replica, options)| {
        let name = if backend.replicas.len() == 1 {
            backend.name.clone()
        } else {
            format!("{}/{replica}", backend.name)
        };
        sherwood_store::open(&name, options)
    };
    let stores: Vec<Arc<dyn Store>> =
        backend.replicas.iter().enumerate().map(open).collect::<Result<_, _>>()?;
    Ok(BackendSetup { name: backend.name.clone(), dispatch: backend.dispatch, ttl: backend.ttl, stores })
}

fn partition(partition: &config::Partition, total_bytes: u64) -> PartitionSetup {
    let max_bytes = Some(partition.bytes_max).filter(|&max| max < total_bytes);
    PartitionSetup {
        tenant: partition.tenant,
        backend: partition.backend,
        initial_bytes: Some(partition.initial_bytes),
        pin: Pin { min_bytes: partition.bytes_min, max_bytes },
    }
}

fn slo(slo: &config::Slo) -> Slo {
    let config::Slo { percentile, bound, window, observe } = *slo;
    Slo { percentile, bound, window, observe }
}

fn control(control: &config::Control) -> sherwood_policy::Options {
    let config::Control { policy: _, delta, rbc_window, band, tax_ratio, dry_run } = *control;
    sherwood_policy::Options {
        delta,
        rbc_window,
        band: Band::from(band),
        tax: tax_ratio,
        dry_run,
        ..sherwood_policy::Options::default()
    }
}

fn listener(listener: &config::Listener, config: &Config, threads: usize) -> MemcachedSetup {
    let route = match listener.route {
        Route::Backend(backend) => RouteSetup::Backend(backend),
        Route::Prefix => {
            let prefixes = config.backends.iter().enumerate();
            RouteSetup::Prefix(
                prefixes
                    .filter_map(|(i, backend)| {
                        Some((backend.prefix.clone()?, sherwood_model::BackendId::from_index(i)))
                    })
                    .collect(),
            )
        }
    };
    MemcachedSetup {
        protocol: listener.protocol,
        bind: listener.bind.clone(),
        route,
        read_through: listener.mode == Mode::ReadThrough,
        threads,
        idle_timeout: config.server.idle_timeout,
        pin_threads: config.server.pin_threads,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Flags;

    #[test]
    fn what_a_file_says_of_dispatch_is_what_the_backend_gets() {
        let text = "[[backend]]\nname = \"a\"\ntimeout = \"1s\"\n\
                    dispatch = { waiters_max = 7, retry = { per_call_max = 0 } }";
        let config = config::parse("a.toml", text, &Flags::default(), &["robinhood"]).expect("valid");
        let setup = Setup::from_config(&config).expect("nothing to open");
        let default = sherwood_dispatch::Options::default();
        let expected = sherwood_dispatch::Options {
            timeout: std::time::Duration::from_secs(1),
            waiters_max: 7,
            retry: sherwood_dispatch::RetryOptions { per_call_max: 0, ..default.retry },
            ..default
        };
        assert_eq!(setup.backends[0].dispatch, expected);
    }

    #[test]
    fn shards_follow_the_threads_as_far_as_memory_goes_round() {
        let of = |threads, mib: u64| shards(threads, mib << 20);
        assert_eq!([of(1, 4096), of(2, 4096), of(3, 4096), of(500, 1 << 20)], [8, 16, 32, 1_024]);
        assert_eq!([of(4, 1), of(4, 64), of(4, 100), of(4, 256), of(16, 1024)], [1, 2, 2, 8, 32]);
        // 400 GiB, and more than the engine is made for.
        assert_eq!([of(1, 400 << 10), of(1, 1 << 40)], [32, 1_024]);
    }

    #[test]
    fn the_idle_time_out_is_every_listeners_or_there_is_none() {
        let listeners = "[[listener]]\nbind = \"127.0.0.1:1\"\n[[listener]]\nbind = \"127.0.0.1:2\"\n";
        let timeouts = |server: &str| {
            let text = format!("{server}\n{listeners}");
            let config = config::parse("a.toml", &text, &Flags::default(), &["robinhood"]).expect("valid");
            let setup = Setup::from_config(&config).expect("nothing to open");
            setup.memcached.iter().map(|listener| listener.idle_timeout).collect::<Vec<_>>()
        };
        assert_eq!(timeouts(""), [None, None]);
        let minutes = Some(std::time::Duration::from_secs(600));
        assert_eq!(timeouts("[server]\nidle_timeout = \"10m\""), [minutes, minutes]);
    }
}
