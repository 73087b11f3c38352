//! The nodes of a cluster, and this node's part of each resource.

use std::sync::Arc;
use std::time::Duration;

use sherwood_model::{Instant, ResourceId};

use super::messages::{RateAsk, RatePart};
use super::terms::{ANSWER_GAP, NODES_MAX, Terms};

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerNode {
    /// Unique name.
    pub name: Arc<str>,
    /// Weight of the node's part, above 0.
    pub weight: f64,
}

/// The nodes of a cluster as this node's configuration has them, and this node's level: the part of
/// each resource that it may use or lend.
///
/// Nodes get another configuration one after the other, by a reload or a restart. Each node tells
/// the others their parts in its own configuration, and uses the least of its part in all of them.
/// It lowers its level at once, and raises it only after all nodes have answered since its own
/// change. A node whose process has just started has no level until then, and until all loans of an
/// earlier process have ended. So, with two configurations, all levels fit into one of them.
#[derive(Clone, Debug)]
pub(super) struct Members {
    node: Arc<str>,
    totals: Vec<f64>,
    nodes: Vec<PeerNode>,
    /// The other nodes, and nodes that the configuration does not have, which are told so.
    peers: Vec<Peer>,
    levels: Vec<f64>,
    /// Start of the process.
    started_at: Instant,
    /// Start of the configuration.
    changed_at: Instant,
    silent_after: Duration,
}

/// Another node.
#[derive(Clone, Debug)]
struct Peer {
    name: Arc<str>,
    is_member: bool,
    /// The latest message.
    heard_at: Option<Instant>,
    /// The latest answer that was sent, and the request.
    answered: Option<(Instant, u64, Instant)>,
    /// This node's parts in the other one's configuration, since the latest change of this one's.
    stated: Option<Vec<RatePart>>,
}

impl Members {
    /// Creates the nodes of a process that starts at `now`; all levels are 0.
    pub(super) fn new(
        now: Instant,
        node: Arc<str>,
        nodes: Vec<PeerNode>,
        totals: Vec<f64>,
        terms: &Terms,
    ) -> Self {
        let levels = vec![0.0; totals.len()];
        let mut members = Self {
            node,
            totals,
            nodes: Vec::new(),
            peers: Vec::new(),
            levels,
            started_at: now,
            changed_at: now,
            silent_after: Duration::ZERO,
        };
        members.change(now, nodes, terms.silent_at_start);
        members
    }

    /// Takes other nodes or weights. Nodes without an answer for `silent_after` from now on count
    /// as stopped.
    pub(super) fn change(&mut self, now: Instant, nodes: Vec<PeerNode>, silent_after: Duration) {
        (self.nodes, self.changed_at, self.silent_after) = (nodes, now, silent_after);
        for peer in &mut self.peers {
            (peer.is_member, peer.stated) = (false, None);
        }
        for PeerNode { name, .. } in self.nodes.clone() {
            if name == self.node {
                continue;
            }
            match self.peers.iter_mut().find(|peer| peer.name == name) {
                Some(peer) => peer.is_member = true,
                None => self.peers.push(Peer {
                    name,
                    is_member: true,
                    heard_at: None,
                    answered: None,
                    stated: None,
                }),
            }
        }
        self.peers.retain(|peer| peer.is_member);
    }

    /// Returns the part of a node, units per second.
    fn part(&self, name: &str, resource: usize) -> f64 {
        let sum: f64 = self.nodes.iter().map(|node| node.weight).sum();
        let own = self.nodes.iter().find(|node| *node.name == *name && sum > 0.0);
        own.map_or(0.0, |own| self.totals[resource] * own.weight / sum)
    }

    /// Units per second of a resource in the whole cluster.
    pub(super) fn total(&self, resource: usize) -> f64 {
        self.totals[resource]
    }

    /// Number of resources.
    pub(super) fn resources(&self) -> usize {
        self.totals.len()
    }

    /// Units per second of a resource that this node may use or lend.
    pub(super) fn level(&self, resource: usize) -> f64 {
        self.levels[resource]
    }

    /// True if these are the nodes.
    pub(super) fn are(&self, nodes: &[PeerNode]) -> bool {
        self.nodes == nodes
    }

    /// True while a new process lacks some of its part, and may still get it when a silent node
    /// counts as stopped.
    pub(super) fn is_starting(&self, now: Instant, terms: &Terms) -> bool {
        now < self.started_at + terms.silent_at_start + terms.forgets_after && !self.is_whole()
    }

    /// True if the node has its whole part of every resource, but for errors of rounding.
    fn is_whole(&self) -> bool {
        let part = |resource| self.part(&self.node, resource) * (1.0 - 1e-9);
        (0..self.resources()).all(|resource| self.levels[resource] >= part(resource))
    }

    /// Names of the other nodes.
    pub(super) fn others(&self) -> impl Iterator<Item = &Arc<str>> {
        self.peers.iter().filter(|peer| peer.is_member).map(|peer| &peer.name)
    }

    /// True if a node is another one of the configuration.
    pub(super) fn has(&self, name: &str) -> bool {
        self.others().any(|other| **other == *name)
    }

    /// Names of the nodes that have to state this node's parts: all, while it lacks some of them.
    pub(super) fn unheard(&self) -> Vec<Arc<str>> {
        if self.is_whole() { Vec::new() } else { self.others().cloned().collect() }
    }

    /// Notes a request. Returns the name of its sender, to be answered; none if it has had an
    /// answer just before, or to a later request.
    pub(super) fn note_ask(&mut self, now: Instant, from: &str, ask: &RateAsk) -> Option<Arc<str>> {
        let RateAsk { incarnation, stamp, .. } = *ask;
        let peer = self.heard(now, from)?;
        let is_due = peer.answered.is_none_or(|(answered_at, process, latest)| {
            now >= answered_at + ANSWER_GAP && (process != incarnation || stamp > latest)
        });
        if !is_due {
            return None;
        }
        peer.answered = Some((now, incarnation, stamp));
        Some(Arc::clone(&peer.name))
    }

    /// Returns the node with this name, from which a message has come; none if there are too many.
    fn heard(&mut self, now: Instant, from: &str) -> Option<&mut Peer> {
        if *from == *self.node {
            return None;
        }
        let at = match self.peers.iter().position(|peer| *peer.name == *from) {
            Some(at) => at,
            None => {
                let strangers = self.peers.iter().filter(|peer| !peer.is_member).count();
                if strangers >= NODES_MAX {
                    return None;
                }
                let name = Arc::from(from);
                self.peers.push(Peer {
                    name,
                    is_member: false,
                    heard_at: None,
                    answered: None,
                    stated: None,
                });
                self.peers.len() - 1
            }
        };
        let peer = &mut self.peers[at];
        peer.heard_at = Some(now);
        Some(peer)
    }

    /// Notes the parts of this node that another one states in an answer to the request with this
    /// stamp. None is stated by a node that has to settle itself.
    pub(super) fn note_parts(
        &mut self,
        now: Instant,
        from: &str,
        stamp: Instant,
        parts: Option<&[RatePart]>,
    ) {
        let changed_at = self.changed_at;
        let Some(peer) = self.heard(now, from) else { return };
        // An answer from before the change says nothing about the time after it.
        if let Some(parts) = parts
            && stamp > changed_at
        {
            peer.stated = Some(parts.to_vec());
        }
    }

    /// Adapts the levels to what the other nodes have stated; returns true if one has changed.
    pub(super) fn settle(&mut self, now: Instant, terms: &Terms) -> bool {
        let is_new = now < self.started_at + terms.forgets_after;
        let silent_after = self.silent_after;
        let is_awaited = |peer: &Peer| {
            let since = peer.heard_at.map_or(self.changed_at, |heard_at| heard_at.max(self.changed_at));
            peer.stated.is_none() && now < since + silent_after
        };
        let members = self.peers.iter().filter(|peer| peer.is_member);
        let may_rise = !is_new && !members.clone().any(is_awaited);
        let stated: Vec<&RatePart> = members.filter_map(|peer| peer.stated.as_ref()).flatten().collect();
        let level = |resource: usize| {
            let id = ResourceId::from_index(resource);
            let of_others = stated.iter().filter(|part| part.resource == id).map(|part| part.per_s);
            let least = of_others.fold(self.part(&self.node, resource), f64::min).max(0.0);
            if may_rise { least } else { least.min(self.levels[resource]) }
        };
        let levels: Vec<f64> = (0..self.resources()).map(level).collect();
        let has_changed = levels != self.levels;
        self.levels = levels;
        has_changed
    }

    /// Returns the parts of another node in this node's configuration; none while this node's own
    /// use, with the rates `lent` of each resource, may exceed its parts.
    pub(super) fn parts_of(
        &self,
        now: Instant,
        name: &str,
        terms: &Terms,
        lent: impl Fn(usize) -> f64,
    ) -> Option<Vec<RatePart>> {
        let is_within = |resource| lent(resource) <= self.part(&self.node, resource);
        if now < self.started_at + terms.forgets_after || !(0..self.resources()).all(is_within) {
            return None;
        }
        let part = |resource| RatePart {
            resource: ResourceId::from_index(resource),
            per_s: self.part(name, resource),
        };
        Some((0..self.resources()).map(part).collect())
    }

    /// True for a time after a change, in which answers are asked for more often.
    pub(super) fn has_just_changed(&self, now: Instant) -> bool {
        now < self.changed_at + Duration::from_secs(3)
    }
}
