//! `[stores]`: the manager of replicated stores.

use sherwood_dispatch::{CopiesChoice, Layout};
use sherwood_model::{BackendId, Slo};
use sherwood_path::possible_layouts;
use sherwood_policy::slo::{Composition, Costs, StorePlan};
use sherwood_policy::stores::{Forecast, ManagerAim, ManagerOptions};

use crate::meaning::{BackendConfig, Duplicates};
use crate::problem::{Origin, Problems};
use crate::raw::{Key, RawForecast, RawStores};
use crate::scope::{Setting, bytes, given, in_range, one_of};
use crate::setup::{ManagedStore, StoresSetup};

const MANAGER: Setting = Setting::new("[stores]", "manager", "\"slo\"");
const DAY: Setting = Setting::new("[stores]", "forecast.day", "4000.0");
const NIGHT: Setting = Setting::new("[stores]", "forecast.night", "1000.0");
const NODES: Setting = Setting::new("[stores]", "nodes", "4");
const NODE_COST: Setting = Setting::new("[stores]", "node_cost", "1.0");
const IDLE_COST: Setting = Setting::new("[stores]", "idle_cost", "0.0");

/// Maximum of nodes: 64 partitions of 8 duplicates.
const NODES_MAX: u32 = 512;
const COST_MAX: f64 = 1e6;
const RATE_MAX: f64 = 1e9;

#[derive(Clone, Copy, Debug, PartialEq)]
enum ManagerKind {
    None,
    Fixed,
    Slo,
}

const KINDS: [(&str, ManagerKind); 3] =
    [("none", ManagerKind::None), ("fixed", ManagerKind::Fixed), ("slo", ManagerKind::Slo)];

/// Resolves `[stores]`; none without the table, or without a manager.
pub(super) fn resolve(
    table: &Key<RawStores>,
    backends: &[BackendConfig],
    slo: &Slo,
    problems: &mut Problems<'_>,
) -> Option<StoresSetup> {
    let table = table.as_ref()?;
    let RawStores { manager, layouts, forecast: expected, nodes, node_cost, idle_cost, dry_run } =
        table.get_ref();
    let is_set = |key: &Key<bool>| key.as_ref().is_some_and(|set| *set.get_ref());
    let kind = one_of(problems, MANAGER, given(manager), &KINDS);
    let origin = given(nodes).map(|nodes| nodes.origin);
    let nodes = given(nodes).map(|nodes| in_range(problems, NODES, Some(nodes), 1, 1..=NODES_MAX));
    let costs = Costs {
        node: in_range(problems, NODE_COST, given(node_cost), 1.0, 0.0..=COST_MAX),
        idle: in_range(problems, IDLE_COST, given(idle_cost), 0.0, 0.0..=COST_MAX),
    };
    let options = ManagerOptions {
        nodes: nodes.unwrap_or(NODES_MAX),
        accesses: 1,
        composition: Composition::Parallel,
        bound_ms: slo.bound.as_secs_f64() * 1e3,
        level: slo.percentile / 100.0,
        aim: match (kind, nodes) {
            (ManagerKind::Slo, Some(_)) => ManagerAim::BestLevel,
            (ManagerKind::Slo, None) => ManagerAim::Cheapest,
            _ => ManagerAim::Present,
        },
        costs,
        gain_min: ManagerOptions::GAIN_MIN,
        move_cost: ManagerOptions::MOVE_COST,
        error_max: ManagerOptions::ERROR_MAX,
        hedged_max: 1.0,
        keeps_layout: !is_set(layouts),
        dry_run: is_set(dry_run),
    };
    let forecast = expected.as_ref().map(|table| forecast(table.get_ref(), &bytes(table), problems));
    let stores = stores(&options, backends, &bytes(table), problems);
    if let (Some(nodes), Some(origin)) = (nodes, origin) {
        check_nodes(nodes, !options.keeps_layout, &stores, backends, &origin, problems);
    }
    (kind != ManagerKind::None).then_some(StoresSetup { forecast, stores })
}

fn forecast(raw: &RawForecast, origin: &Origin, problems: &mut Problems<'_>) -> Forecast {
    let mut rate = |setting, key: &Key<f64>, name| {
        if key.is_none() {
            let message =
                format!("[stores] forecast has no {name}; it has a rate by day and one at night: add {name}");
            problems.add(origin, message);
        }
        in_range(problems, setting, given(key), 0.0, 0.0..=RATE_MAX)
    };
    Forecast { day: rate(DAY, &raw.day, "day"), night: rate(NIGHT, &raw.night, "night") }
}

/// Returns the backends with duplicates.
fn stores(
    options: &ManagerOptions,
    backends: &[BackendConfig],
    origin: &Origin,
    problems: &mut Problems<'_>,
) -> Vec<ManagedStore> {
    let mut stores = Vec::new();
    for (index, backend) in backends.iter().enumerate() {
        let Some(duplicates) = &backend.duplicates else { continue };
        check_copies(backend, origin, problems);
        let &Duplicates { partitions, duplicates, .. } = duplicates;
        let all = StorePlan::all_asked(partitions.into(), duplicates.into());
        let nodes = options.nodes.min(all.nodes());
        let options = ManagerOptions { nodes, hedged_max: backend.dispatch.retry.ratio, ..*options };
        let plan = StorePlan { asked: backend.dispatch.copies.factor().into(), ..all };
        let layouts = possible_layouts(Layout { partitions, duplicates });
        stores.push(ManagedStore { backend: BackendId::from_index(index), options, plan, layouts });
    }
    if stores.is_empty() {
        let message = "[stores] is for backends that the node replicates, and none has duplicates: set duplicates = 2 in a \
                       [[backend]], or remove [stores]";
        problems.add(origin, message);
    }
    stores
}

/// Refuses a store of which the model cannot tell how it is asked, and one that has another manager
/// of its copies.
fn check_copies(backend: &BackendConfig, origin: &Origin, problems: &mut Problems<'_>) {
    let name = &backend.name;
    if matches!(backend.dispatch.copies, CopiesChoice::Tied { .. } | CopiesChoice::Idle { .. }) {
        let message = format!(
            "[stores] is for backend {name:?}, whose dispatch.copies are tied or idle, which the model does not describe; \
             set them to \"one\", \"fixed\" or \"hedge\""
        );
        problems.add(origin, message);
    }
    if backend.dispatch.cores.is_some() {
        let message = format!(
            "[stores] is for backend {name:?}, which is one of the tiers of [replication], and both choose its copies: \
             remove it there, or remove [stores]"
        );
        problems.add(origin, message);
    }
}

/// Refuses more nodes than a store has replicas, and where layouts may change, fewer than it has
/// partitions: each needs one.
fn check_nodes(
    nodes: u32,
    may_change: bool,
    stores: &[ManagedStore],
    backends: &[BackendConfig],
    origin: &Origin,
    problems: &mut Problems<'_>,
) {
    for ManagedStore { backend, plan, .. } in stores {
        let (name, replicas) = (&backends[backend.index()].name, plan.nodes());
        if nodes > replicas {
            let message = format!(
                "[stores] nodes is {nodes}, and backend {name:?} has {replicas} replicas, which are its nodes: lower it, or \
                 add replicas"
            );
            problems.add(origin, message);
        }
        let partitions = plan.partitions;
        if may_change && nodes < partitions {
            let message = format!(
                "[stores] nodes is {nodes}, and backend {name:?} has {partitions} partitions, each on a node at least: raise \
                 it, or remove layouts"
            );
            problems.add(origin, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Flags, parse};

    const DUPLICATES: &str = r#"
        [[backend]]
        name = "a"
        duplicates = 2
        replicas = [{ kind = "redis", address = "127.0.0.1:1" }, { kind = "redis", address = "127.0.0.1:2" }]
    "#;

    fn parsed(stores: &str, backend: &str) -> Result<Config, String> {
        let text = format!("{backend}\n[stores]\n{stores}\n[slo]\nbound = \"15ms\"\npercentile = 99.9\n");
        let policies = sherwood_policy::available_without_options();
        parse("a.toml", &text, &Flags::default(), policies).map_err(|error| error.to_string())
    }

    #[test]
    fn manager_has_the_slo_and_the_layout_of_each_store() {
        let managed = |stores| parsed(stores, DUPLICATES).unwrap().stores;
        assert_eq!([managed(""), managed("manager = \"none\"")], [None, None]);
        let setup = managed("manager = \"slo\"\nforecast = { day = 10, night = 2 }\ndry_run = true").unwrap();
        assert_eq!(setup.forecast, Some(Forecast { day: 10.0, night: 2.0 }));
        let [ManagedStore { options, plan, .. }] = &setup.stores[..] else { panic!("{setup:?}") };
        assert!(options.bound_ms == 15.0 && (options.level - 0.999).abs() < 1e-9, "{options:?}");
        assert_eq!((options.aim, options.nodes, options.dry_run), (ManagerAim::Cheapest, 2, true));
        assert_eq!((options.hedged_max, plan.nodes(), plan.asked), (0.1, 2, 1));
        let layouts = |stores| {
            let store = managed(stores).unwrap().stores.remove(0);
            let possible: Vec<_> = store.layouts.iter().map(ToString::to_string).collect();
            (store.options.keeps_layout, possible.join(" "))
        };
        assert_eq!(layouts("manager = \"slo\""), (true, "1x1 1x2".to_owned()));
        assert_eq!(layouts("manager = \"slo\"\nlayouts = true"), (false, "1x1 1x2".to_owned()));
        let aim = |stores| managed(stores).unwrap().stores[0].options.aim;
        assert_eq!(aim("manager = \"slo\"\nnodes = 2"), ManagerAim::BestLevel);
        assert_eq!(aim("manager = \"fixed\""), ManagerAim::Present);
    }

    #[test]
    fn invalid_manager_is_refused_with_the_accepted_range() {
        let tied = format!("{DUPLICATES}\ndispatch = {{ copies = \"tied\" }}");
        let fixed = format!("{DUPLICATES}\ndispatch = {{ copies = \"fixed\" }}");
        let divided = DUPLICATES.replace("duplicates = 2", "partitions = 2\nduplicates = 1");
        let alone = "[[backend]]\nname = \"a\"";
        for (stores, backend, expected) in [
            ("manager = \"best\"", DUPLICATES, "manager"),
            ("manager = \"slo\"", alone, "none has duplicates: set duplicates = 2"),
            ("manager = \"slo\"", &tied, "set them to \"one\", \"fixed\" or \"hedge\""),
            ("\n[replication]\ntiers = [\"a\"]", &fixed, "both choose its copies"),
            ("nodes = 0", DUPLICATES, "nodes is 0; it must be at least 1"),
            ("nodes = 3", DUPLICATES, "nodes is 3, and backend \"a\" has 2 replicas"),
            ("layouts = true\nnodes = 1", &divided, "nodes is 1, and backend \"a\" has 2 partitions"),
            ("nodes = 513", DUPLICATES, "nodes is 513; it must be 1 to 512"),
            ("node_cost = -1", DUPLICATES, "[stores] node_cost is -1"),
            ("idle_cost = nan", DUPLICATES, "[stores] idle_cost is NaN"),
            ("forecast = { day = 1 }", DUPLICATES, "forecast has no night"),
            ("forecast = { day = -1, night = 1 }", DUPLICATES, "[stores] forecast.day is -1"),
        ] {
            let error = parsed(stores, backend).expect_err(stores);
            assert!(error.contains(expected), "{stores}: {error}");
        }
    }
}
