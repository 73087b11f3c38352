//! `[cluster]`: names of the nodes, and their weights.

use crate::spanned::Spanned;

use super::bus;
use crate::flags::Flags;
use crate::problem::{Origin, Problems};
use crate::raw::{Key, RawCluster};
use crate::scope::{Given, Setting, bytes, either, flag_or, given};
use crate::setup::ClusterSetup;
use crate::units::quoted;

const NAME: Setting = Setting::new("[cluster]", "name", "\"shop\"");
const NODE: Setting = Setting::new("[cluster]", "node", "\"a\"");

/// Maximum of nodes: each hears every other, and keeps the time until which it trusts it.
const NODES_MAX: usize = 64;
/// Maximum length of a name; NATS' subjects are a few names long.
const NAME_CHARS_MAX: usize = 64;
/// Names that [`is_name`] accepts, for messages.
const NAMES: &str = "1 to 64 of a-z, 0-9 and '-'";
/// Range of weights, that of tenants.
const WEIGHT_MIN: f64 = 0.001;
const WEIGHT_MAX: f64 = 1_000.0;

/// Resolves the node's place in a cluster; none for a node alone.
pub(super) fn resolve(
    file: &Key<RawCluster>,
    flags: &Flags,
    problems: &mut Problems<'_>,
) -> Option<ClusterSetup> {
    let Some(table) = file else {
        refuse_node_without_cluster(flags, problems);
        return None;
    };
    let raw = table.get_ref();
    let name = name(NAME, table, given(&raw.name), problems);
    let node = self::name(NODE, table, flag_or("--node", flags.node.clone(), &raw.node), problems);
    let nodes = nodes(table, problems);
    if let (Some(node), false) = (&node, nodes.is_empty())
        && !nodes.contains(&node.value)
    {
        let (shown, known) = (quoted(&node.value), listed(&nodes));
        let message = format!(
            "{} is \"{shown}\", which nodes lacks; it must be {known}: add it to nodes on every node, or {}",
            NODE.name(&node.origin),
            NODE.remedy(&node.origin)
        );
        problems.add(&node.origin, message);
    }
    let bus = bus::resolve(table, problems);
    if nodes.is_empty() {
        return None;
    }
    let weights = weights(raw, &nodes, problems);
    let statistics = statistics(raw, &nodes, problems);
    Some(ClusterSetup { name: name?.value, node: node?.value, nodes, weights, statistics, bus: bus? })
}

fn refuse_node_without_cluster(flags: &Flags, problems: &mut Problems<'_>) {
    if let Some(node) = &flags.node {
        let message = format!(
            "--node is \"{}\", and there is no [cluster]; only its nodes have names: add [cluster], or leave --node out",
            quoted(node)
        );
        problems.add(&Origin::Flag("--node"), message);
    }
}

/// Returns true if `name` is a token of a subject: of NATS' special characters it has none.
fn is_name(name: &str) -> bool {
    let accepted = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(accepted)
}

/// Returns the name of the cluster or of the node, which is required.
fn name(
    setting: Setting,
    table: &Spanned<RawCluster>,
    given: Option<Given<String>>,
    problems: &mut Problems<'_>,
) -> Option<Given<String>> {
    let Some(Given { value, origin }) = given else {
        let key = setting.key;
        let message = format!("[cluster] has no {key}; it must have one: set {key} = {}", setting.example);
        problems.add(&bytes(table), message);
        return None;
    };
    if !is_name(&value) {
        let (name, remedy) = (setting.name(&origin), setting.remedy(&origin));
        problems.add(&origin, format!("{name} is \"{}\"; it must be {NAMES}: {remedy}", quoted(&value)));
        return None;
    }
    Some(Given { value, origin })
}

/// Returns the names of all nodes; those that are refused are left out.
fn nodes(table: &Spanned<RawCluster>, problems: &mut Problems<'_>) -> Vec<String> {
    let Some(list) = &table.get_ref().nodes else {
        let message =
            "[cluster] has no nodes; it must list the names of all nodes: set nodes = [\"a\", \"b\", \"c\"]";
        problems.add(&bytes(table), message);
        return Vec::new();
    };
    let names = list.get_ref();
    if !(1..=NODES_MAX).contains(&names.len()) {
        let message = format!(
            "[cluster] nodes has {} names; it must have 1 to {NODES_MAX}: set nodes = [\"a\", \"b\", \"c\"]",
            names.len()
        );
        problems.add(&bytes(list), message);
    }
    let mut nodes: Vec<String> = Vec::new();
    for name in names.iter().take(NODES_MAX) {
        let (value, shown) = (name.get_ref(), quoted(name.get_ref()));
        if !is_name(value) {
            problems.add(
                &bytes(name),
                format!("[cluster] nodes has \"{shown}\"; a name must be {NAMES}: rename it"),
            );
        } else if nodes.contains(value) {
            let message = format!("[cluster] nodes has \"{shown}\" twice; names must be unique: remove one");
            problems.add(&bytes(name), message);
        } else {
            nodes.push(value.clone());
        }
    }
    nodes
}

/// Returns each node's share of resources, in the order of `nodes`.
fn weights(raw: &RawCluster, nodes: &[String], problems: &mut Problems<'_>) -> Vec<f64> {
    let mut weights = vec![1.0; nodes.len()];
    for (name, weight) in raw.weights.iter().flat_map(|weights| weights.get_ref()) {
        let value = *weight.get_ref();
        let shown = quoted(name);
        let Some(index) = nodes.iter().position(|node| node == name) else {
            let known = listed(nodes);
            let message = format!(
                "[cluster] weights has \"{shown}\", which nodes lacks; it must be {known}: remove it, or add it to nodes"
            );
            problems.add(&bytes(weight), message);
            continue;
        };
        if (WEIGHT_MIN..=WEIGHT_MAX).contains(&value) {
            weights[index] = value;
        } else {
            let message = format!(
                "[cluster] weights.{shown} is {value}; it must be {WEIGHT_MIN} to {WEIGHT_MAX}: set weights.{shown} = 1"
            );
            problems.add(&bytes(weight), message);
        }
    }
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Returns the names of the nodes that merge all requests.
fn statistics(raw: &RawCluster, nodes: &[String], problems: &mut Problems<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in raw.statistics.iter().flat_map(|names| names.get_ref()) {
        let (value, shown) = (name.get_ref(), quoted(name.get_ref()));
        if !nodes.contains(value) {
            let known = listed(nodes);
            let message = format!(
                "[cluster] statistics has \"{shown}\", which nodes lacks; it must be {known}: remove it, or add it to nodes"
            );
            problems.add(&bytes(name), message);
        } else if names.contains(value) {
            let message = format!("[cluster] statistics has \"{shown}\" twice; list each once: remove one");
            problems.add(&bytes(name), message);
        } else {
            names.push(value.clone());
        }
    }
    names
}

/// Lists nodes for a message.
fn listed(nodes: &[String]) -> String {
    either(&nodes.iter().map(String::as_str).collect::<Vec<_>>())
}
