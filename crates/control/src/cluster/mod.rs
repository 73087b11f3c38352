//! Statistics of all nodes of a cluster, and which of them a node decides on.
//!
//! ```text
//!   requests, report ─ publish ─▶ NodeStatistics ──▶ bus ──▶ handle_batch of the nodes that merge
//!                                                                 │
//!   without statistics nodes: every node merges, and decides on what it merged
//!   with statistics nodes:    those merge ─ begin_snapshot ─▶ Snapshot ─▶ bus ─▶ handle_snapshot
//!                             of every node, which decides on the snapshots of the one it follows
//! ```
//!
//! Requests, blocking counts, hits, misses, curves and shadow hits are those of all nodes. Used and
//! allocated bytes, latencies of queries and misses, and deadlines stay a node's own, as in Berger
//! et al., RobinHood (OSDI 2018), section 3.2.
//!
//! Any message may be lost, late or repeated. A message that is not newer than the last one of its
//! sender is left out. What a node decides on is younger than 5 s by its own clock: the statistics
//! of each node count from their arrival, and a snapshot is followed only while it contains a
//! message that this node published within the last 5 s. So a statistics node that was paused, or a
//! snapshot that was held up, is noticed without comparing clocks. Requests of a node that has
//! become silent stay among those of the window until they leave it.

mod look_ups;
mod members;
mod messages;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sherwood_model::{CollectedRequests, Instant, RequestSelection, RequestSnapshot};
use sherwood_policy::{Needs, Observation, RequestLog};

use crate::{Merged, MergedNames, Merger, Report, followed};
use look_ups::{Counts, DecidedCounts, OWN_SOURCES, Reading};
pub use members::{KnownNames, Members};
pub use messages::{Ignored, NodeStatistics, PartitionSnapshot, RequestsSnapshot, Snapshot, Stamp};
pub use snapshot::{Lack, SnapshotDraft};

/// Age from which statistics are not decided on.
pub const STATISTICS_AGE_MAX: Duration = Duration::from_secs(5);

/// Largest number of own messages that are remembered: more than a driver publishes in
/// [`STATISTICS_AGE_MAX`], if it does so once a second.
const PUBLISHED_MAX: usize = 64;

/// Observations that are wanted of the statistics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wants {
    /// Observations that the policy needs.
    pub needs: Needs,
    /// True if the requests of each tenant are wanted by themselves.
    pub by_tenant: bool,
}

/// Source of the statistics that a node decides on.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The statistics of all nodes, merged by this one.
    All {
        /// Nodes whose statistics are younger than 5 s.
        nodes: Vec<String>,
    },
    /// The snapshots of a statistics node.
    Snapshot {
        /// The statistics node.
        node: String,
        /// Age of its latest snapshot.
        age: Duration,
        /// Nodes whose statistics are in the snapshot.
        nodes: Vec<String>,
    },
    /// The node's own observations alone.
    Own {
        /// The statistics node that would be followed, and what its snapshot lacks; none if there
        /// are no statistics that are young enough.
        lacks: Option<(String, Lack)>,
    },
}

/// Statistics of all nodes, as one of them knows them.
///
/// # Inputs, outputs
/// - Once a second: [`publish`](Self::publish), whose message is sent to all nodes; after it
///   [`begin_snapshot`](Self::begin_snapshot), and if there is one, the finished
///   [`Snapshot`] is sent to all nodes and handed to [`handle_snapshot`](Self::handle_snapshot).
/// - Messages of other nodes: [`handle_batch`](Self::handle_batch) and
///   [`handle_snapshot`](Self::handle_snapshot).
/// - At a decision: [`requests`](Self::requests) and [`partitions`](Self::partitions).
///
/// Memory: a [`RequestLog`] (8 MB, and tables above a million requests), the latest report of each
/// node, of known partitions, and the latest snapshot of each statistics node.
#[derive(Clone, Debug)]
pub struct ClusterStatistics {
    members: Members,
    names: Arc<KnownNames>,
    incarnation: u64,
    /// Number of messages sent.
    sent: u64,
    /// The latest own statistics: when they were published, and their number.
    published: VecDeque<(Instant, u64)>,
    log: RequestLog,
    /// The latest statistics of each node, in the order of the configuration.
    heard: Vec<Option<Heard>>,
    merger: Merger,
    /// Look-ups of all nodes by partition.
    merged: Vec<Counts>,
    /// The latest snapshot of each statistics node with its arrival, in the order of the list.
    snapshots: Vec<Option<(Instant, Snapshot)>>,
    /// Shadow hits of the node's own cache, by partition.
    own: Vec<Counts>,
    decided: DecidedCounts,
}

/// The latest statistics of a node.
#[derive(Clone, Debug)]
struct Heard {
    at: Instant,
    stamp: Stamp,
    counts: Vec<Counts>,
    report: Report,
}

/// A choice among the sources; its position among the readings of look-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Own,
    All,
    Snapshot(usize),
}

impl Choice {
    fn index(self) -> usize {
        match self {
            Self::Own => 0,
            Self::All => 1,
            Self::Snapshot(position) => OWN_SOURCES + position,
        }
    }
}

/// Finished requests for a decision, those of all tenants or of each tenant.
#[derive(Clone, Debug)]
pub enum KnownRequests {
    /// Requests of this node's log.
    Selected(Vec<RequestSelection>),
    /// Requests of a snapshot: the time that they cover, and their observation.
    Counted(Vec<(Duration, Observation)>),
}

impl KnownRequests {
    /// Time that the first of them cover.
    #[must_use]
    pub fn reach(&self) -> Duration {
        match self {
            Self::Selected(each) => each.first().map(RequestSelection::reach),
            Self::Counted(each) => each.first().map(|(reach, _)| *reach),
        }
        .unwrap_or_default()
    }

    /// Returns the observations that a policy needs, for so many backends: O(n log n) for n
    /// requests of the log.
    #[must_use]
    pub fn observations(self, needs: &Needs, backends: usize) -> Vec<Observation> {
        match self {
            Self::Selected(each) => {
                let each = each.into_iter().map(RequestSnapshot::from);
                each.map(|finished| Observation::of_requests(&finished, needs, backends)).collect()
            }
            Self::Counted(each) => each.into_iter().map(|(_, seen)| seen).collect(),
        }
    }
}

impl ClusterStatistics {
    /// Returns the statistics of a node that has just started and heard nothing. `incarnation`
    /// differs from those of its earlier processes.
    #[must_use]
    pub fn new(members: Members, names: KnownNames, rbc_window: Duration, incarnation: u64) -> Self {
        let partitions = names.partitions().len();
        let zeros = vec![Counts::default(); partitions];
        let sources = vec![Some(Reading { incarnation: 0, counts: zeros.clone() }); OWN_SOURCES];
        Self {
            names: Arc::new(names),
            incarnation,
            sent: 0,
            published: VecDeque::new(),
            log: RequestLog::new(rbc_window, rbc_window),
            heard: vec![None; members.nodes.len()],
            merger: Merger::of_new([members.own.clone()]),
            merged: zeros.clone(),
            snapshots: vec![None; members.statistics.len()],
            own: zeros,
            decided: DecidedCounts::new(partitions, sources, members.statistics.len()),
            members,
        }
    }

    /// The nodes of the cluster.
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Replaces the nodes of the cluster, of which this node is still one. What is known of the
    /// nodes that stay is kept.
    pub fn set_nodes(&mut self, nodes: Vec<String>, statistics: Vec<String>) {
        let old = std::mem::take(&mut self.members);
        let mut heard: BTreeMap<_, _> = old.nodes.into_iter().zip(self.heard.drain(..)).collect();
        self.heard = nodes.iter().map(|node| heard.remove(node).flatten()).collect();
        let mut snapshots: BTreeMap<_, _> =
            old.statistics.into_iter().zip(self.snapshots.drain(..)).collect();
        self.snapshots = statistics.iter().map(|node| snapshots.remove(node).flatten()).collect();
        self.decided.replace_followed(statistics.len());
        self.members = Members { own: old.own, nodes, statistics };
    }

    /// Returns the statistics that this node sends to all, of its requests since the last call and
    /// of its cache; they count here from now on.
    pub fn publish(&mut self, now: Instant, requests: CollectedRequests, report: Report) -> NodeStatistics {
        let own = self.members.own.clone();
        let report = Report { node: own.clone(), ..report };
        let message = NodeStatistics { stamp: self.next_stamp(), report, ..self.names.named(requests) };
        self.published.retain(|(at, _)| now.since(*at) < STATISTICS_AGE_MAX);
        if self.published.len() == PUBLISHED_MAX {
            self.published.pop_front();
        }
        self.published.push_back((now, message.stamp.number));
        // A node that merges nothing leaves its own out as well.
        let _ = self.handle_batch(now, &own, &message);
        message
    }

    /// Handles the statistics of a node. Its requests count as finished at `now`.
    ///
    /// # Errors
    /// If the message is left out; nothing has changed then.
    pub fn handle_batch(
        &mut self,
        now: Instant,
        node: &str,
        message: &NodeStatistics,
    ) -> Result<(), Ignored> {
        let position = self.position(node)?;
        if !self.members.merges() {
            return Err(Ignored::NotStatistics);
        }
        let last = self.heard[position].as_ref();
        if !message.stamp.is_after(last.map(|last| last.stamp)) {
            return Err(Ignored::NotNewer);
        }
        if message.requests.count() > messages::REQUESTS_MAX {
            return Err(Ignored::TooMany);
        }
        let rename = self.names.renaming(message);
        for request in message.requests.each() {
            self.log.record(now, now, rename(*request));
        }
        for equal in message.requests.counted() {
            self.log.record_times(now, now, rename(equal.request), equal.times);
        }
        let counts = Counts::of_report(&message.report, self.names.partitions());
        match last {
            Some(last) if last.continues(now, message.stamp) => {
                look_ups::add(&mut self.merged, &look_ups::since(&counts, &last.counts));
            }
            None if node == self.members.own => look_ups::add(&mut self.merged, &counts),
            // The age of earlier look-ups is unknown.
            _ => self.merger.forget(node),
        }
        let known = |name: &String| Some((name.clone(), message.report.partitions.get(name)?.clone()));
        let partitions = self.names.partitions().iter().filter_map(known).collect();
        let report = Report { node: node.to_owned(), partitions, deadlines: BTreeMap::new() };
        self.heard[position] = Some(Heard { at: now, stamp: message.stamp, counts, report });
        Ok(())
    }

    /// Handles a snapshot of a statistics node.
    ///
    /// # Errors
    /// If the snapshot is left out; nothing has changed then.
    pub fn handle_snapshot(&mut self, now: Instant, node: &str, snapshot: Snapshot) -> Result<(), Ignored> {
        self.position(node)?;
        let position = self.members.statistics.iter().position(|name| name == node);
        let position = position.ok_or(Ignored::NotStatistics)?;
        let last = self.snapshots[position].as_ref().map(|(_, last)| last.stamp);
        if !snapshot.stamp.is_after(last) {
            return Err(Ignored::NotNewer);
        }
        self.snapshots[position] = Some((now, snapshot));
        Ok(())
    }

    /// Merges what is known of all nodes for a snapshot, whose requests are counted by
    /// [`SnapshotDraft::finish`]; none if this node is no statistics node.
    pub fn begin_snapshot(&mut self, now: Instant, wants: &Wants, total_bytes: u64) -> Option<SnapshotDraft> {
        if !self.members.publishes_snapshots() {
            return None;
        }
        let mut requests = vec![self.log.for_decision(now)];
        if wants.by_tenant {
            requests.extend(self.log.for_decision_by_tenant(now, self.names.tenants().len()));
        }
        let merged = self.merge(now, &wants.needs, total_bytes);
        let partition = |(merged, counts): (Merged, &Counts)| PartitionSnapshot {
            hits: counts.hits,
            misses: counts.misses,
            shadow_hits: counts.shadow_hits,
            curve: merged.curve,
        };
        let partitions = merged.into_iter().zip(&self.merged).map(partition);
        let partitions = self.names.partitions().iter().cloned().zip(partitions).collect();
        let nodes = self.fresh(now).map(|heard| (heard.report.node.clone(), heard.stamp)).collect();
        let (names, wants) = (Arc::clone(&self.names), wants.clone());
        Some(SnapshotDraft { names, wants, stamp: self.next_stamp(), nodes, requests, partitions })
    }

    /// Returns the source of the statistics for decisions at `now`.
    #[must_use]
    pub fn source(&self, now: Instant, wants: &Wants) -> Source {
        match self.choose(now, wants) {
            (Choice::Own, lacks) => Source::Own {
                lacks: lacks.map(|(position, lack)| (self.members.statistics[position].clone(), lack)),
            },
            (Choice::All, _) => {
                Source::All { nodes: self.fresh(now).map(|heard| heard.report.node.clone()).collect() }
            }
            (Choice::Snapshot(position), _) => {
                let (at, nodes) = self.snapshots[position].as_ref().map_or((now, Vec::new()), |(at, of)| {
                    (*at, of.nodes.iter().map(|(node, _)| node.clone()).collect())
                });
                Source::Snapshot {
                    node: self.members.statistics[position].clone(),
                    age: now.since(at),
                    nodes,
                }
            }
        }
    }

    /// Returns the finished requests for a decision at `now`; none if the node decides on its own,
    /// which this object does not know by themselves.
    #[must_use]
    pub fn requests(&self, now: Instant, wants: &Wants) -> Option<KnownRequests> {
        match self.choose(now, wants).0 {
            Choice::Own => None,
            Choice::All if wants.by_tenant => {
                let tenants = self.names.tenants().len();
                Some(KnownRequests::Selected(self.log.for_decision_by_tenant(now, tenants)))
            }
            Choice::All => Some(KnownRequests::Selected(vec![self.log.for_decision(now)])),
            Choice::Snapshot(position) => {
                let (_, snapshot) = self.snapshots[position].as_ref()?;
                Some(KnownRequests::Counted(snapshot.observations(wants, &self.names)))
            }
        }
    }

    /// Returns the partitions for a decision at `now`, in the order of their ids: hits and misses
    /// as counters that never decrease, and shadow hits since the last call. `own` are the node's
    /// own, with counters since its start.
    pub fn partitions(
        &mut self,
        now: Instant,
        wants: &Wants,
        total_bytes: u64,
        own: Vec<Merged>,
    ) -> Vec<Merged> {
        for (counts, own) in self.own.iter_mut().zip(&own) {
            let shadow_hits = counts.shadow_hits.saturating_add(own.shadow_hits.unwrap_or(0));
            *counts = Counts { hits: own.hits, misses: own.misses, shadow_hits };
        }
        let chosen = self.choose(now, wants).0;
        let merges = self.members.statistics.is_empty();
        let all = if merges { self.merge(now, &wants.needs, total_bytes) } else { Vec::new() };
        let of_this = |counts: &Vec<Counts>| Some(Reading { incarnation: 0, counts: counts.clone() });
        let mut readings = vec![of_this(&self.own), of_this(&self.merged)];
        readings.extend((0..self.snapshots.len()).map(|position| self.reading(now, position)));
        let added = self.decided.advance(readings, chosen.index());
        match chosen {
            Choice::Own => self.decided.partitions(&wants.needs, &added, own.into_iter()),
            Choice::All => self.decided.partitions(&wants.needs, &added, all.into_iter()),
            Choice::Snapshot(position) => {
                let snapshot = self.snapshots[position].as_ref();
                let curve = |name| snapshot?.1.partitions.get(name)?.curve.clone();
                let curves = self.names.partitions().iter();
                let curves = curves.map(|name| Merged { curve: curve(name), ..Merged::default() });
                self.decided.partitions(&wants.needs, &added, curves)
            }
        }
    }

    /// Returns the look-ups of a statistics node's snapshot; none if it is too old to be followed.
    fn reading(&self, now: Instant, position: usize) -> Option<Reading> {
        let (_, snapshot) =
            self.snapshots[position].as_ref().filter(|_| self.usable(now, position).is_some())?;
        let counts = |name| {
            let of = snapshot.partitions.get(name)?;
            Some(Counts { hits: of.hits, misses: of.misses, shadow_hits: of.shadow_hits })
        };
        let counts = self.names.partitions().iter().map(|name| counts(name).unwrap_or_default()).collect();
        Some(Reading { incarnation: snapshot.stamp.incarnation, counts })
    }

    /// Returns the source for decisions, and the position of a statistics node that is not followed
    /// because its snapshot lacks something.
    fn choose(&self, now: Instant, wants: &Wants) -> (Choice, Option<(usize, Lack)>) {
        let Members { own, nodes, statistics } = &self.members;
        if statistics.is_empty() {
            let is_published = self.fresh(now).any(|heard| heard.report.node == *own);
            let hears_others = nodes.len() == 1 || self.fresh(now).any(|heard| heard.report.node != *own);
            return (if is_published && hears_others { Choice::All } else { Choice::Own }, None);
        }
        let usable = (0..statistics.len()).map(|position| self.usable(now, position));
        let Some(position) = followed(now, usable) else { return (Choice::Own, None) };
        let lack = self.snapshots[position].as_ref().and_then(|(_, of)| of.lack(wants, &self.names));
        match lack {
            Some(lack) => (Choice::Own, Some((position, lack))),
            None => (Choice::Snapshot(position), None),
        }
    }

    /// Returns the arrival of a statistics node's latest snapshot; none if it contains no message
    /// that this node has published within the last 5 s.
    fn usable(&self, now: Instant, position: usize) -> Option<Instant> {
        let (at, snapshot) = self.snapshots[position].as_ref()?;
        let (_, newest) = snapshot.nodes.iter().find(|(node, _)| *node == self.members.own)?;
        let is_recent =
            |&(at, number): &(Instant, u64)| number == newest.number && now.since(at) < STATISTICS_AGE_MAX;
        let is_usable = newest.incarnation == self.incarnation && self.published.iter().any(is_recent);
        is_usable.then_some(*at)
    }

    /// Merges the reports of the nodes whose statistics are younger than 5 s.
    fn merge(&mut self, now: Instant, needs: &Needs, total_bytes: u64) -> Vec<Merged> {
        let reports: Vec<Report> = self.fresh(now).map(|heard| heard.report.clone()).collect();
        let partitions: Vec<_> = self.names.partitions().iter().map(String::as_str).collect();
        let names = MergedNames { partitions: &partitions, backends: &[] };
        let merged = self.merger.merge(names, needs, total_bytes, &reports).partitions;
        for (counts, merged) in self.merged.iter_mut().zip(&merged) {
            counts.shadow_hits = counts.shadow_hits.saturating_add(merged.shadow_hits.unwrap_or(0));
        }
        merged
    }

    /// The nodes whose statistics are younger than 5 s, in the order of the configuration.
    fn fresh(&self, now: Instant) -> impl Iterator<Item = &Heard> {
        self.heard.iter().flatten().filter(move |heard| now.since(heard.at) < STATISTICS_AGE_MAX)
    }

    fn position(&self, node: &str) -> Result<usize, Ignored> {
        let position = self.members.nodes.iter().position(|name| name == node);
        position.ok_or(Ignored::UnknownNode)
    }

    fn next_stamp(&mut self) -> Stamp {
        self.sent += 1;
        Stamp { incarnation: self.incarnation, number: self.sent }
    }
}

impl Heard {
    /// Returns true if a message at `now` continues the counts of this one: it is of the same
    /// incarnation, and no more than 5 s lie between them.
    fn continues(&self, now: Instant, stamp: Stamp) -> bool {
        stamp.incarnation == self.stamp.incarnation && now.since(self.at) < STATISTICS_AGE_MAX
    }
}
