//! Differences between two configurations: those that a running node can adopt, and those that need
//! a restart.

use std::time::Duration;

use sherwood_dispatch::{ProbeOptions, RetryOptions};
use sherwood_model::{BackendId, PartitionId, Slo, TenantId};
use sherwood_path::Rules;
use sherwood_policy::GuardOptions;

use sherwood_listener::Address;

use super::meaning::{Config, Listener, Partition};
use super::setup::ClusterSetup;
use sherwood_control::Pin;

/// Values of a new configuration that a running node adopts. None and empty mean unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// `[memory] total`, bytes.
    pub total_bytes: Option<u64>,
    /// `[control] policy`.
    pub policy: Option<String>,
    /// `[control] dry_run`.
    pub dry_run: Option<bool>,
    /// `[control.guard]`: its new options, or that it is switched off.
    pub guard: Option<Option<GuardOptions>>,
    /// `min`, `max` and `dry_run` of partitions.
    pub pins: Vec<(PartitionId, Pin)>,
    /// `[slo]`, with the same window.
    pub slo: Option<Slo>,
    /// `[[slo.class]]` and `[[slo.tenant]]`, by their positions, with the same windows.
    pub slos: Vec<(usize, Slo)>,
    /// `[tenants] policy`.
    pub between: Option<String>,
    /// `weight` and `min` of tenants; none where it stays.
    pub terms: Vec<(TenantId, Option<f64>, Option<u64>)>,
    /// `timeout`, `dispatch.retry` and `dispatch.probe` of backends.
    pub times: Vec<(BackendId, Times)>,
    /// `ttl`, `ttl_rules`, `ttl_jitter` and `negative_ttl` of backends.
    pub lifetimes: Vec<(BackendId, Rules)>,
    /// `[cluster]` with other `nodes`, `weights` or `statistics`.
    pub cluster: Option<ClusterSetup>,
    /// True if `users` of a tenant differ.
    pub users: bool,
    /// The listeners added and removed.
    pub listeners: ListenerChanges,
}

/// Differences between two lists of listeners.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListenerChanges {
    /// For each listener of the new list, its position in the old one; none if it is added.
    pub kept: Vec<Option<usize>>,
    /// Addresses of the added ones.
    pub added: Vec<Address>,
    /// Addresses of those that the new list lacks.
    pub removed: Vec<Address>,
}

/// Times and retries of a backend's calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// Timeout of queries.
    pub timeout: Duration,
    /// Options of retries.
    pub retry: RetryOptions,
    /// Options of probes.
    pub probe: ProbeOptions,
}

impl Changes {
    /// Returns the changes that make a node with the configuration `old` one with `new`.
    ///
    /// # Errors
    /// The settings that differ and need a restart; then nothing is to be changed.
    pub fn between(old: &Config, new: &Config) -> Result<Self, Vec<String>> {
        let adopted = adopt(old, new);
        let needs = restarts(&adopted, new);
        if !needs.is_empty() {
            return Err(needs);
        }
        let partitions = old.partitions.iter().zip(&new.partitions).enumerate();
        let totals = (old.memory.total_bytes, new.memory.total_bytes);
        let pins = partitions.filter_map(|(index, (old, new))| {
            let (old, new) = (pin(old, totals.0), pin(new, totals.1));
            (old != new).then(|| (PartitionId::from_index(index), new))
        });
        let backends = old.backends.iter().zip(&new.backends).enumerate();
        let times = backends.filter_map(|(index, (old, new))| {
            let (old, new) = (Times::of(&old.dispatch), Times::of(&new.dispatch));
            (old != new).then(|| (BackendId::from_index(index), new))
        });
        let backends = old.backends.iter().zip(&new.backends).enumerate();
        let lifetimes = backends.filter_map(|(index, (old, new))| {
            let (old, new) = (&old.freshness.rules, &new.freshness.rules);
            (old != new).then(|| (BackendId::from_index(index), new.clone()))
        });
        let slos = old.slos.iter().zip(&new.slos).enumerate();
        let slos = slos.filter_map(|(index, (old, new))| (old != new).then_some((index, new.slo)));
        let tenants =
            |config: &Config| config.tenancy.clone().map(|tenancy| tenancy.tenants).unwrap_or_default();
        let terms =
            tenants(old).into_iter().zip(tenants(new)).enumerate().filter_map(|(index, (old, new))| {
                let weight = (old.weight != new.weight).then_some(new.weight);
                let bytes_min = (old.bytes_min != new.bytes_min).then_some(new.bytes_min);
                let differ = weight.is_some() || bytes_min.is_some();
                differ.then(|| (TenantId::from_index(index), weight, bytes_min))
            });
        let users =
            |config: &Config| -> Vec<_> { tenants(config).into_iter().map(|tenant| tenant.users).collect() };
        let between = |config: &Config| config.tenancy.as_ref().map(|tenancy| tenancy.options.policy.clone());
        Ok(Self {
            total_bytes: (totals.0 != totals.1).then_some(totals.1),
            policy: (old.control.policy != new.control.policy).then(|| new.control.policy.clone()),
            dry_run: (old.control.dry_run != new.control.dry_run).then_some(new.control.dry_run),
            guard: (old.control.guard != new.control.guard).then_some(new.control.guard),
            pins: pins.collect(),
            slo: (old.slo != new.slo).then_some(new.slo),
            slos: slos.collect(),
            between: between(new).filter(|new| between(old).as_ref() != Some(new)),
            terms: terms.collect(),
            times: times.collect(),
            lifetimes: lifetimes.collect(),
            cluster: new.cluster.clone().filter(|_| old.cluster != new.cluster),
            users: users(old) != users(new),
            listeners: ListenerChanges::between(&old.listeners, &new.listeners),
        })
    }

    /// The settings that change, for people.
    pub fn names(&self, config: &Config) -> Vec<String> {
        let mut names = Vec::new();
        let mut add = |is_changed: bool, name: &str| names.extend(is_changed.then(|| name.to_owned()));
        add(self.total_bytes.is_some(), "[memory] total");
        add(self.policy.is_some(), "[control] policy");
        add(self.dry_run.is_some(), "[control] dry_run");
        add(self.guard.is_some(), "[control.guard]");
        add(self.slo.is_some(), "[slo]");
        add(!self.slos.is_empty(), "[[slo.class]], [[slo.tenant]]");
        add(self.between.is_some(), "[tenants] policy");
        add(self.cluster.is_some(), "[cluster] nodes, weights and statistics");
        let pins = self.pins.iter().map(|(id, _)| &config.partitions[id.index()].name);
        names.extend(pins.map(|name| format!("min, max and dry_run of partition {name}")));
        let terms = self.terms.iter().map(|(id, ..)| &config.tenants[id.index()]);
        names.extend(terms.map(|name| format!("weight and min of tenant {name}")));
        let times = self.times.iter().map(|(id, _)| &config.backends[id.index()].name);
        names.extend(times.map(|name| format!("timeout, retry and probe of backend {name}")));
        let lifetimes = self.lifetimes.iter().map(|(id, _)| &config.backends[id.index()].name);
        names.extend(lifetimes.map(|name| format!("lifetimes of backend {name}")));
        names.extend(self.users.then(|| "users of tenants".to_owned()));
        let ListenerChanges { kept: _, added, removed } = &self.listeners;
        names.extend(added.iter().map(|address| format!("listener {address} added")));
        names.extend(removed.iter().map(|address| format!("listener {address} removed")));
        names
    }
}

impl ListenerChanges {
    fn between(old: &[Listener], new: &[Listener]) -> Self {
        let mut left: Vec<_> = old.iter().map(Some).collect();
        let mut kept = |listener: &Listener| {
            let position = left.iter().position(|old| *old == Some(listener))?;
            left[position] = None;
            Some(position)
        };
        let kept: Vec<_> = new.iter().map(&mut kept).collect();
        let added = new.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
        Self {
            added: added.map(|(listener, _)| listener.bind.clone()).collect(),
            removed: left.into_iter().flatten().map(|listener| listener.bind.clone()).collect(),
            kept,
        }
    }

    /// The addresses of listeners that are neither added nor removed, but differ.
    fn altered(&self) -> impl Iterator<Item = &Address> {
        let is_altered = |removed: &&Address| self.added.iter().any(|added| are_in_conflict(removed, added));
        self.removed.iter().filter(is_altered)
    }
}

/// True if only one listener at a time can have these addresses. Port 0 stands for a different port
/// each time.
fn are_in_conflict(a: &Address, b: &Address) -> bool {
    match (a, b) {
        (Address::Unix(a), Address::Unix(b)) => a.path == b.path,
        (Address::Tcp(a), Address::Tcp(b)) => {
            let is_any = a.ip().is_unspecified() || b.ip().is_unspecified();
            a.port() == b.port() && a.port() != 0 && (is_any || a.ip() == b.ip())
        }
        _ => false,
    }
}

impl Times {
    fn of(options: &sherwood_dispatch::Options) -> Self {
        Self { timeout: options.timeout, retry: options.retry, probe: options.probe }
    }
}

/// The pin of a partition of a cache of `total_bytes`.
fn pin(partition: &Partition, total_bytes: u64) -> Pin {
    let max_bytes = Some(partition.bytes_max).filter(|max| *max < total_bytes);
    Pin { min_bytes: partition.bytes_min, max_bytes, dry_run: partition.dry_run }
}

/// Returns `old` with all values of `new` that a running node adopts.
fn adopt(old: &Config, new: &Config) -> Config {
    let mut adopted = old.clone();
    adopted.memory.total_bytes = new.memory.total_bytes;
    adopted.control.policy.clone_from(&new.control.policy);
    adopted.control.dry_run = new.control.dry_run;
    adopted.control.guard = new.control.guard;
    adopted.slo = Slo { window: old.slo.window, ..new.slo };
    let scopes = |config: &Config| config.slos.iter().map(|slo| slo.to.clone()).collect::<Vec<_>>();
    if scopes(old) == scopes(new) {
        for (adopted, new) in adopted.slos.iter_mut().zip(&new.slos) {
            adopted.slo = Slo { window: adopted.slo.window, ..new.slo };
        }
    }
    if old.partitions.len() == new.partitions.len() {
        for (adopted, new) in adopted.partitions.iter_mut().zip(&new.partitions) {
            (adopted.bytes_min, adopted.bytes_max) = (new.bytes_min, new.bytes_max);
            (adopted.dry_run, adopted.initial_bytes) = (new.dry_run, new.initial_bytes);
        }
    }
    if let (Some(adopted), Some(new)) = (&mut adopted.tenancy, &new.tenancy)
        && adopted.tenants.len() == new.tenants.len()
    {
        adopted.options.policy.clone_from(&new.options.policy);
        for (adopted, new) in adopted.tenants.iter_mut().zip(&new.tenants) {
            (adopted.weight, adopted.bytes_min) = (new.weight, new.bytes_min);
            adopted.users.clone_from(&new.users);
            // They follow from the weights, unless they are stated.
            adopted.base_bytes = new.base_bytes;
            adopted.base_shares.clone_from(&new.base_shares);
        }
    }
    if let (Some(adopted), Some(new)) = (&mut adopted.cluster, &new.cluster) {
        adopted.nodes.clone_from(&new.nodes);
        adopted.weights.clone_from(&new.weights);
        adopted.statistics.clone_from(&new.statistics);
    }
    if old.backends.len() == new.backends.len() {
        for (adopted, new) in adopted.backends.iter_mut().zip(&new.backends) {
            let Times { timeout, retry, probe } = Times::of(&new.dispatch);
            adopted.dispatch = sherwood_dispatch::Options { timeout, retry, probe, ..adopted.dispatch };
            adopted.freshness.rules.take_lifetimes(&new.freshness.rules);
        }
    }
    adopted
}

/// Names what still differs.
fn restarts(adopted: &Config, new: &Config) -> Vec<String> {
    let mut names = Vec::new();
    let mut compare = |differ: bool, name: &str| names.extend(differ.then(|| name.to_owned()));
    compare(adopted.memory != new.memory, "[memory] other than total");
    compare(adopted.snapshot != new.snapshot, "[memory] snapshot");
    compare(adopted.server != new.server, "[server]");
    compare(
        adopted.tenants != new.tenants || adopted.tenancy != new.tenancy,
        "[tenants], [[tenant]], [[resource]]",
    );
    compare(adopted.slo != new.slo, "[slo] window");
    compare(adopted.slos != new.slos, "[[slo.class]] and [[slo.tenant]] added or removed, or their windows");
    compare(adopted.deadlines != new.deadlines, "[[deadline]]");
    compare(adopted.schedulers != new.schedulers, "[[scheduler]]");
    compare(adopted.control != new.control, "[control] other than policy, dry_run and guard");
    compare(adopted.replication != new.replication, "[replication]");
    compare(adopted.stores != new.stores, "[stores]");
    compare(adopted.cluster != new.cluster, "[cluster] other than nodes, weights and statistics");
    compare(adopted.admin != new.admin || adopted.access != new.access, "[admin]");
    compare(adopted.otlp != new.otlp || adopted.spans != new.spans, "[otlp]");
    let order = |config: &Config| config.partitions.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    let instances =
        |config: &Config| config.partitions.iter().map(|one| one.instance.clone()).collect::<Vec<_>>();
    compare(
        order(adopted) != order(new) || instances(adopted) != instances(new),
        "[[partition]] other than min, max and dry_run",
    );
    let listeners = ListenerChanges::between(&adopted.listeners, &new.listeners);
    names.extend(listeners.altered().map(|address| format!("[[listener]] {address}, which differs")));
    if adopted.backends.len() == new.backends.len() {
        let differ = adopted.backends.iter().zip(&new.backends).filter(|(old, new)| old != new);
        names.extend(differ.map(|(_, new)| {
            format!(
                "[[backend]] {:?} other than timeout, lifetimes, dispatch.retry and dispatch.probe",
                new.name
            )
        }));
    } else {
        names.push("[[backend]] added or removed".to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flags, load};

    fn config(text: &str) -> Config {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.toml");
        std::fs::write(&path, text).expect("written");
        load(&Flags { config: Some(path), ..Flags::default() }, sherwood_policy::available_without_options())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    const BASE: &str = "[control]\npolicy = \"static\"\n[slo]\nbound = \"100ms\"\n[[backend]]\nname = \"a\"\n[[backend]]\nname = \"b\"\n";

    fn changes(edit: impl Fn(String) -> String) -> Result<Vec<String>, Vec<String>> {
        let new = config(&edit(BASE.to_owned()));
        Changes::between(&config(BASE), &new).map(|changes| changes.names(&new))
    }

    #[test]
    fn safe_changes_are_adopted_and_others_are_named() {
        assert_eq!(changes(|text| text), Ok(vec![]));
        let adopted = changes(|text| {
            let text = text.replace("\"static\"", "\"robinhood\"\ndry_run = true").replace("100ms", "80ms");
            text + "timeout = \"7s\"\n[[partition]]\nbackend = \"a\"\nmin = \"1MiB\"\n"
        });
        let expected = [
            "[control] policy",
            "[control] dry_run",
            "[control.guard]",
            "[slo]",
            "min, max and dry_run of partition a",
            "timeout, retry and probe of backend b",
        ];
        assert_eq!(adopted, Ok(expected.map(str::to_owned).to_vec()));
        let refused = changes(|text| {
            "[memory]\nmax_item_size = \"2MiB\"\n".to_owned() + &text.replace("100ms", "80ms")
        });
        assert_eq!(refused, Err(vec!["[memory] other than total".to_owned()]));
        let listener =
            |port, rest| format!("[[listener]]\nbackend = \"a\"\nbind = \"127.0.0.1:{port}\"\n{rest}");
        let listeners = changes(|text| text + &listener(0, "") + &listener(7, "protocol = \"redis\"\n"));
        let added = ["listener 127.0.0.1:0 added", "listener 127.0.0.1:7 added"];
        assert_eq!(listeners, Ok(added.map(str::to_owned).to_vec()));
        let at =
            |bind: &str| config(&(BASE.to_owned() + &format!("[[listener]]\nbackend = \"a\"\n{bind}\n")));
        let altered = |old: &str, new: &str| Changes::between(&at(old), &at(new)).is_err();
        let unix = "bind = \"unix:/tmp/s\"";
        assert!(altered(unix, &format!("{unix}\npermissions = \"0660\"")));
        let port = "bind = \"127.0.0.1:7\"";
        assert!(altered(port, "auth_file = \"p\"\nnetwork = \"trusted\"\nbind = \"0.0.0.0:7\""));
        assert!(!altered(port, "bind = \"127.0.0.2:7\"") && !altered(port, unix));
        assert_eq!(changes(|text| text + "ttl = \"1s\"\n"), Ok(vec!["lifetimes of backend b".to_owned()]));
        let stale = changes(|text| text + "stale.if_error = \"90s\"\n").expect_err("needs a restart");
        assert!(stale[0].contains("[[backend]] \"b\""), "{stale:?}");
        let class = |name, bound| format!("[[slo.class]]\nname = \"{name}\"\nbound = \"{bound}\"\n");
        let classes = |old: String, new: String| {
            let (old, new) = (config(&(BASE.to_owned() + &old)), config(&(BASE.to_owned() + &new)));
            Changes::between(&old, &new).map(|changes| changes.names(&new))
        };
        assert_eq!(
            classes(class("page", "90ms"), class("page", "80ms")),
            Ok(vec!["[[slo.class]], [[slo.tenant]]".to_owned()])
        );
        assert!(classes(class("page", "90ms"), class("feed", "90ms")).is_err());
        let nodes = |old: &str, new: &str| {
            let bus = "bus.servers = [\"nats://127.0.0.1:4222\"]\n";
            let of = |cluster: &str| config(&format!("[cluster]\nname = \"s\"\n{bus}{cluster}"));
            let (old, new) = (of(old), of(new));
            Changes::between(&old, &new).map(|changes| changes.names(&new))
        };
        let before = "node = \"a\"\nnodes = [\"a\", \"b\"]";
        let adopted = Ok(vec!["[cluster] nodes, weights and statistics".to_owned()]);
        assert_eq!(nodes(before, "node = \"a\"\nnodes = [\"a\"]"), adopted);
        assert_eq!(nodes(before, &format!("{before}\nweights.b = 2")), adopted);
        assert_eq!(nodes(before, &format!("{before}\nstatistics = [\"b\"]")), adopted);
        assert_eq!(nodes(before, before), Ok(vec![]));
        let other = nodes(before, &before.replace("node = \"a\"", "node = \"b\""));
        let needs = Err(vec!["[cluster] other than nodes, weights and statistics".to_owned()]);
        assert_eq!(other, needs);
        assert_eq!(
            changes(|text| text + "[[backend]]\nname = \"c\"\n").expect_err("needs a restart").len(),
            2
        );
    }
}
