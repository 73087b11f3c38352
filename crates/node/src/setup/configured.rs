//! Builds a setup from a configuration: opens the stores.

use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use sherwood_config::{Config, HTTP_CONNECTIONS_MAX, InstancesSetup, Mode, Route};
use sherwood_control::Pin;
use sherwood_model::{Band, SeededState, Slo};
use sherwood_ports::PassedSockets;
use sherwood_store::{OpenError, Store, StoreOptions};

use super::SnapshotSetup;
use super::{BackendSetup, ListenerSetup, PartitionSetup, RouteSetup, Setup};

impl Setup {
    /// Builds the node that `config` describes and opens its stores.
    ///
    /// # Errors
    /// Fails when a store cannot be opened.
    pub fn from_config(config: &Config) -> Result<Self, OpenError> {
        let threads = threads(config);
        let instances = instances(config);
        let total_bytes = config.memory.total_bytes;
        let own_bytes = if instances.is_some() { total_bytes.min(OWN_BYTES) } else { total_bytes };
        let backends = config.backends.iter().map(backend).collect::<Result<_, _>>()?;
        Ok(Self {
            cache: sherwood_cache::Options {
                item_bytes_max: config
                    .memory
                    .item_bytes_max
                    .min(u32::try_from(own_bytes).unwrap_or(u32::MAX)),
                eviction: config.memory.eviction,
                ghost_rate: config.memory.mrc_sample_ratio,
                ..sherwood_cache::Options::sized(own_bytes, u16::try_from(threads).unwrap_or(u16::MAX))
            },
            tenants: config.tenants.clone(),
            tenancy: config.tenancy.clone(),
            backends,
            partitions: config
                .partitions
                .iter()
                .map(|one| partition(one, config.memory.total_bytes))
                .collect(),
            instances,
            slo: slo(&config.slo),
            slos: config.slos.clone(),
            deadlines: config.deadlines.clone(),
            schedulers: config.schedulers.clone(),
            replication: config.replication.clone(),
            stores: config.stores.clone(),
            cluster: config.cluster.clone(),
            control: control(&config.control),
            policy: config.control.policy.clone(),
            listeners: listeners(config),
            admin: config.admin,
            otlp: config.otlp,
            spans: config.spans.clone(),
            passed: PassedSockets::default(),
            access: config.access.clone(),
            listener_connections_max: config.server.connections_max as usize,
            http_connections_max: HTTP_CONNECTIONS_MAX,
            buffers_bytes_max: config.memory.buffers_bytes_max,
            snapshot: config.snapshot.as_ref().map(|one| snapshot(one, config)),
            slack_bytes: Some(slack_bytes(config)),
            threads,
            seed: None,
        })
    }
}

/// Bytes by which resident memory may exceed the total before the cache shrinks: five eighths of
/// the documented slack, since shrinking takes a moment to have an effect, plus the memory of the
/// embedded stores.
pub(crate) fn slack_bytes(config: &Config) -> u64 {
    let slack_bytes = config.memory.slack_bytes();
    (slack_bytes / 8 * 5).saturating_add(config.stores_bytes())
}

/// Size of the node's own cache when external ones are resized: room for the gateway's fetches in
/// flight.
const OWN_BYTES: u64 = 8 << 20;

fn instances(config: &Config) -> Option<InstancesSetup> {
    let each: Vec<_> = config.partitions.iter().filter_map(|partition| partition.instance.clone()).collect();
    (!each.is_empty()).then_some(InstancesSetup { total_bytes: config.memory.total_bytes, each })
}

/// Snapshot of a node with these backends.
fn snapshot(snapshot: &sherwood_config::Snapshot, config: &Config) -> SnapshotSetup {
    let sherwood_config::Snapshot { path, time_max } = snapshot.clone();
    SnapshotSetup { path, time_max, fingerprint: fingerprint(config) }
}

/// Returns the fingerprint of the options that change backends' values or the values' time-to-live,
/// but not those of connections and dispatch.
pub(crate) fn fingerprint(config: &Config) -> u64 {
    let backends = config.backends.iter();
    let values: Vec<_> = backends
        .map(|sherwood_config::BackendConfig { name, prefix, freshness, replicas, .. }| {
            let sources: Vec<_> = replicas.iter().map(StoreOptions::source).collect();
            (name, prefix, &freshness.rules, sources)
        })
        .collect();
    SeededState::new(0).hash_bytes(format!("{values:?}").as_bytes())
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn backend(backend: &sherwood_config::BackendConfig) -> Result<BackendSetup, OpenError> {
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
    let sherwood_config::Freshness { rules, late_after } = backend.freshness.clone();
    let &sherwood_config::BackendConfig { ref name, dispatch, deadlines, writes, shared, .. } = backend;
    let (name, tickets, spans) = (name.clone(), backend.tickets.clone(), backend.spans.clone());
    let servers = backend.replicas.iter().map(StoreOptions::server).collect();
    Ok(BackendSetup {
        name,
        dispatch,
        deadlines,
        rules,
        late_after,
        writes,
        duplicates: backend.duplicates.clone(),
        shared,
        stores,
        servers,
        tickets,
        spans,
    })
}

fn partition(partition: &sherwood_config::Partition, total_bytes: u64) -> PartitionSetup {
    let max_bytes = Some(partition.bytes_max).filter(|&max| max < total_bytes);
    PartitionSetup {
        tenant: partition.tenant,
        backend: partition.backend,
        initial_bytes: Some(partition.initial_bytes),
        pin: Pin { min_bytes: partition.bytes_min, max_bytes, dry_run: partition.dry_run },
    }
}

fn slo(slo: &sherwood_config::Slo) -> Slo {
    let sherwood_config::Slo { percentile, bound, window, observe } = *slo;
    Slo { percentile, bound, window, observe }
}

fn control(control: &sherwood_config::Control) -> sherwood_policy::Options {
    let sherwood_config::Control { delta, rbc_window, band, tax_ratio, dry_run, guard, .. } = *control;
    sherwood_policy::Options {
        delta,
        rbc_window,
        band: Band::from(band),
        tax: tax_ratio,
        dry_run,
        guard,
        tao: control.tao.clone(),
        cliffhanger: control.cliffhanger.clone(),
        fair: control.fair.clone(),
        lama: control.lama.clone(),
        ..sherwood_policy::Options::default()
    }
}

/// Returns the listeners of a configuration.
pub(crate) fn listeners(config: &Config) -> Vec<ListenerSetup> {
    config.listeners.iter().map(|one| listener(one, config, threads(config))).collect()
}

/// Threads of each listener and of the HTTP port.
fn threads(config: &Config) -> usize {
    config.server.threads.map_or_else(cores, usize::from)
}

fn listener(listener: &sherwood_config::Listener, config: &Config, threads: usize) -> ListenerSetup {
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
    ListenerSetup {
        protocol: listener.protocol,
        bind: listener.bind.clone(),
        auth_file: listener.auth_file.clone(),
        tls: listener.tls.clone(),
        tenant: listener.tenant,
        route,
        read_through: listener.mode != Mode::LookAside,
        write_through: match listener.mode {
            Mode::WriteThrough(through) => Some(through),
            Mode::LookAside | Mode::ReadThrough => None,
        },
        requests: listener.requests,
        class: listener.class.clone(),
        databases: listener.databases,
        threads,
        idle_timeout: config.server.idle_timeout,
        pin_threads: config.server.pin_threads,
        io: config.server.io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherwood_config::Flags;

    #[test]
    fn dispatch_options_of_the_file_reach_the_backend() {
        let text = "[[backend]]\nname = \"a\"\ntimeout = \"1s\"\n\
                    dispatch = { waiters_max = 7, retry = { per_call_max = 0 } }";
        let config =
            sherwood_config::parse("a.toml", text, &Flags::default(), &["robinhood"]).expect("valid");
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
    fn write_options_of_the_file_reach_the_backend() {
        let parsed = |writes: &str| {
            let text = format!("[[backend]]\nname = \"a\"\n{writes}");
            sherwood_config::parse("a.toml", &text, &Flags::default(), &["robinhood"])
        };
        let of = |writes: &str| {
            Setup::from_config(&parsed(writes).expect("valid")).expect("nothing to open").backends[0].writes
        };
        assert_eq!(
            of(""),
            sherwood_config::Writes { to: sherwood_config::WriteTo::All, settle: std::time::Duration::ZERO }
        );
        let first = sherwood_config::Writes {
            to: sherwood_config::WriteTo::First,
            settle: std::time::Duration::from_millis(1500),
        };
        assert_eq!(of("writes = { to = \"first\", settle = \"1500ms\" }"), first);
        let refused =
            parsed("writes = { to = \"frist\", settle = \"2h\" }").expect_err("neither can be").to_string();
        assert!(
            refused.contains("did you mean \"first\"") && refused.contains("writes.settle is 2h"),
            "{refused}"
        );
    }

    #[test]
    fn snapshot_fingerprint_changes_only_with_options_that_change_values() {
        let fingerprint = |backend: &str, store: &str| {
            let text = format!(
                "[memory]\nsnapshot = {{ path = \"s\" }}\n[[backend]]\nname = \"a\"\n{backend}\n\
                 store = {{ kind = \"redis\", {store} }}"
            );
            let config =
                sherwood_config::parse("a.toml", &text, &Flags::default(), &["robinhood"]).expect("valid");
            snapshot(config.snapshot.as_ref().expect("it is there"), &config).fingerprint
        };
        let before = fingerprint("", "address = \"h:1\"");
        let asked_otherwise = "address = \"h:1\", connections_max = 9, answer_timeout = \"1s\", password_file = \"p\", tls = {}";
        assert_eq!(fingerprint("timeout = \"3s\"\nstale.after = \"9ms\"", asked_otherwise), before);
        for (backend, store) in [
            ("ttl = \"9s\"", "address = \"h:1\""),
            ("prefix = \"a/\"", "address = \"h:1\""),
            ("", "address = \"h:2\""),
            ("", "address = \"h:1\", db = 1"),
        ] {
            assert_ne!(fingerprint(backend, store), before, "{backend} {store}");
        }
    }

    #[test]
    fn idle_timeout_applies_to_every_listener() {
        let listeners = "[[listener]]\nbind = \"127.0.0.1:1\"\n[[listener]]\nbind = \"127.0.0.1:2\"\n";
        let timeouts = |server: &str| {
            let text = format!("{server}\n{listeners}");
            let config =
                sherwood_config::parse("a.toml", &text, &Flags::default(), &["robinhood"]).expect("valid");
            let setup = Setup::from_config(&config).expect("nothing to open");
            setup.listeners.iter().map(|listener| listener.idle_timeout).collect::<Vec<_>>()
        };
        assert_eq!(timeouts(""), [None, None]);
        let minutes = Some(std::time::Duration::from_secs(600));
        assert_eq!(timeouts("[server]\nidle_timeout = \"10m\""), [minutes, minutes]);
    }
}
