//! Statistics of all nodes: published once a second, received from others, and used by decisions.

use std::fmt::{self, Display};
use std::mem::discriminant;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use sherwood_config::ClusterSetup;
use sherwood_control::cluster::{
    ClusterStatistics, Ignored, KnownNames, KnownRequests, Members, NodeStatistics, STATISTICS_AGE_MAX,
    Snapshot, SnapshotDraft, Source, Wants,
};
use sherwood_control::{Merged, Report};
use sherwood_model::{Band, CollectedRequests, Instant};
use sherwood_policy::Needs;
use sherwood_process::clock::Clock;
use tokio::sync::watch;

use crate::names::Names;
use crate::observe::events::Events;

/// Statistics of all nodes of a cluster.
///
/// The control thread publishes and reads them, the bus hands in those of other nodes; each holds
/// the lock for some milliseconds at most. Requests are sorted on copies, without the lock.
#[derive(Debug)]
pub(crate) struct Statistics {
    known: Mutex<ClusterStatistics>,
    /// Observations that snapshots have to contain, and the bytes of the cache.
    wanted: Mutex<(Wants, u64)>,
    outgoing: watch::Sender<Option<Arc<Published>>>,
    /// The source that was reported last.
    said: Mutex<Option<Source>>,
    events: Arc<Events>,
    started: Instant,
}

/// Messages of this node to all others.
#[derive(Debug)]
pub(crate) struct Published {
    /// The node's own statistics, for the nodes that merge.
    pub(crate) batch: NodeStatistics,
    /// The statistics of all nodes; none unless this is a statistics node.
    pub(crate) snapshot: Option<Snapshot>,
}

impl Statistics {
    /// Returns the statistics of a node that has just started.
    pub(crate) fn new(
        setup: &ClusterSetup,
        names: &Names,
        rbc_window: Duration,
        (clock, events): (Clock, Arc<Events>),
    ) -> Self {
        let members = Members {
            own: setup.node.clone(),
            nodes: setup.nodes.clone(),
            statistics: setup.statistics.clone(),
        };
        let partitions = names.partitions().iter().map(|partition| partition.name.clone()).collect();
        let names = KnownNames::new(names.backends().to_vec(), names.tenants().to_vec(), partitions);
        let started = clock.now();
        // Another number after each start, unless the clock is set back to the same nanosecond.
        let incarnation = u64::try_from(clock.unix(started).as_nanos()).unwrap_or(u64::MAX);
        Self {
            known: Mutex::new(ClusterStatistics::new(members, names, rbc_window, incarnation)),
            wanted: Mutex::default(),
            outgoing: watch::Sender::new(None),
            said: Mutex::default(),
            events,
            started,
        }
    }

    /// Publishes the node's requests since the last call and its report, and a snapshot if it is a
    /// statistics node. Called once a second.
    pub(crate) fn publish(&self, now: Instant, requests: CollectedRequests, report: Report) {
        let (wants, total_bytes) = self.wanted.lock().expect("no panics while held").clone();
        let (batch, draft) = {
            let mut known = self.lock();
            let batch = known.publish(now, requests, report);
            (batch, known.begin_snapshot(now, &wants, total_bytes))
        };
        let snapshot = draft.map(SnapshotDraft::finish);
        if let Some(snapshot) = &snapshot {
            let mut known = self.lock();
            let own = known.members().own.clone();
            // It is ignored if a reload has made the node no statistics node meanwhile.
            let _ = known.handle_snapshot(now, &own, snapshot.clone());
        }
        self.outgoing.send_replace(Some(Arc::new(Published { batch, snapshot })));
    }

    /// Returns the messages to send: the latest ones, of which a receiver that is slow misses some.
    pub(crate) fn outgoing(&self) -> watch::Receiver<Option<Arc<Published>>> {
        self.outgoing.subscribe()
    }

    /// Replaces the nodes of the cluster, and those that merge statistics.
    pub(crate) fn set_nodes(&self, nodes: Vec<String>, statistics: Vec<String>) {
        self.lock().set_nodes(nodes, statistics);
    }

    /// Returns true if the statistics of other nodes are of use to this one.
    pub(crate) fn merges(&self) -> bool {
        self.lock().members().merges()
    }

    /// Returns true if a node is one of the cluster.
    pub(crate) fn has(&self, node: &str) -> bool {
        self.lock().members().nodes.iter().any(|known| known == node)
    }

    /// Takes in the statistics of another node.
    ///
    /// # Errors
    /// If they are left out; nothing has changed then.
    pub(crate) fn receive_batch(
        &self,
        now: Instant,
        node: &str,
        batch: &NodeStatistics,
    ) -> Result<(), Ignored> {
        self.lock().handle_batch(now, node, batch)
    }

    /// Takes in a snapshot of another node.
    ///
    /// # Errors
    /// If it is left out; nothing has changed then.
    pub(crate) fn receive_snapshot(
        &self,
        now: Instant,
        node: &str,
        snapshot: Snapshot,
    ) -> Result<(), Ignored> {
        self.lock().handle_snapshot(now, node, snapshot)
    }

    /// Sets the observations that the node's snapshots contain from now on: those that decisions
    /// need, and the blocking counts of the `shown` band.
    pub(crate) fn want(&self, mut wants: Wants, shown: Band, total_bytes: u64) {
        wants.needs.requests = true;
        if !wants.needs.bands.contains(&shown) {
            wants.needs.bands.push(shown);
        }
        *self.wanted.lock().expect("no panics while held") = (wants, total_bytes);
    }

    /// Returns the partitions and the requests for a decision; no requests if none are wanted, or
    /// if the node decides on its own. `own` are the node's own partitions. Reports a change of the
    /// source.
    pub(crate) fn known(
        &self,
        now: Instant,
        wants: &Wants,
        total_bytes: u64,
        own: Vec<Merged>,
    ) -> (Vec<Merged>, Option<KnownRequests>) {
        let (partitions, requests, source) = {
            let mut known = self.lock();
            let requests = known.requests(now, wants).filter(|_| wants.needs.requests);
            let source = known.source(now, wants);
            (known.partitions(now, wants, total_bytes, own), requests, source)
        };
        self.say(now, source);
        (partitions, requests)
    }

    /// Returns the requests of all tenants with the blocking counts of `band`, and the names of
    /// their nodes; no requests if the node decides on its own.
    pub(crate) fn blocking(&self, now: Instant, needs: &Needs) -> (Vec<String>, Option<KnownRequests>) {
        let wants = Wants { needs: needs.clone(), by_tenant: false };
        let known = self.lock();
        let nodes = match known.source(now, &wants) {
            Source::All { nodes } | Source::Snapshot { nodes, .. } => nodes,
            Source::Own { .. } => vec![known.members().own.clone()],
        };
        (nodes, known.requests(now, &wants))
    }

    /// Returns the source of the statistics that decisions use.
    pub(crate) fn source(&self, now: Instant) -> Source {
        let (wants, _) = self.wanted.lock().expect("no panics while held").clone();
        self.lock().source(now, &wants)
    }

    fn lock(&self) -> MutexGuard<'_, ClusterStatistics> {
        self.known.lock().expect("no panics while held")
    }

    /// Reports a change of the source. In the first seconds after the start there are no statistics
    /// yet, which is not reported.
    fn say(&self, now: Instant, source: Source) {
        let mut said = self.said.lock().expect("no panics while held");
        let is_own = matches!(source, Source::Own { .. });
        let is_first = said.is_none();
        if said.as_ref().is_some_and(|said| is_same(said, &source))
            || is_first && is_own && now.since(self.started) < STATISTICS_AGE_MAX
        {
            return;
        }
        let (message, data) = (Saying(&source).to_string(), data(&source));
        if is_own {
            self.events.warn("cluster", message, data);
        } else if !is_first || matches!(source, Source::Snapshot { .. }) {
            self.events.say("cluster", message, data);
        }
        *said = Some(source);
    }
}

/// Returns true if both are statistics of the same kind and of the same statistics node.
fn is_same(a: &Source, b: &Source) -> bool {
    match (a, b) {
        (Source::Snapshot { node, .. }, Source::Snapshot { node: other, .. }) => node == other,
        (Source::Own { lacks }, Source::Own { lacks: other }) => lacks == other,
        _ => discriminant(a) == discriminant(b),
    }
}

/// A source in the words of an event.
struct Saying<'a>(&'a Source);

impl Display for Saying<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Source::All { .. } => to.write_str("decisions use the requests of all nodes"),
            Source::Snapshot { node, .. } => {
                write!(
                    to,
                    "decisions use the requests of all nodes, as the statistics node {node} counts them"
                )
            }
            Source::Own { lacks: None } => to.write_str(
                "decisions use this node's requests alone: no statistics with them are young enough; \
                 is the bus reachable, and does a node of `[cluster] statistics` run?",
            ),
            Source::Own { lacks: Some((node, lack)) } => write!(
                to,
                "decisions use this node's requests alone: the snapshots of {node} lack {lack}; \
                 give all nodes the same policy, band and tenants"
            ),
        }
    }
}

fn data(source: &Source) -> Value {
    let from = match source {
        Source::All { .. } => "all",
        Source::Snapshot { node, .. } => node,
        Source::Own { .. } => "own",
    };
    json!({ "statistics": from })
}

#[cfg(test)]
mod tests {
    use sherwood_config::BusSetup;
    use sherwood_model::{BackendId, FinishedRequest, TenantId};

    use super::*;

    const BAND: Band = Band { low: 0.0, high: 100.0 };
    const SECOND: Duration = Duration::from_secs(1);

    fn node(name: &str, statistics: &[&str]) -> Statistics {
        let bus = BusSetup { servers: Vec::new(), credentials: None, tls: None };
        let setup = ClusterSetup {
            name: "shop".to_owned(),
            node: name.to_owned(),
            nodes: vec!["a".to_owned(), "b".to_owned()],
            weights: vec![0.5; 2],
            statistics: statistics.iter().map(|name| (*name).to_owned()).collect(),
            bus,
        };
        let pair = (TenantId(0), BackendId(0));
        let names = Names::new(vec!["orders".to_owned()], vec!["default".to_owned()], &[pair]);
        let clock = Clock::start();
        let events = Arc::new(Events::new(clock));
        let node = Statistics::new(&setup, &names, 60 * SECOND, (clock, events));
        node.want(wants(), BAND, 1_000);
        node
    }

    fn wants() -> Wants {
        let needs = Needs { requests: true, bands: vec![Band::TAIL], ..Needs::default() };
        Wants { needs, by_tenant: false }
    }

    fn publish(node: &Statistics, now: Instant) -> Arc<Published> {
        let requests = vec![FinishedRequest::of_micros(5, Some(BackendId(0))); 2];
        node.publish(now, CollectedRequests::Each(requests), Report::default());
        let published = node.outgoing().borrow().clone();
        published.expect("it was just published")
    }

    /// Returns the nodes whose requests are counted, and their number.
    fn blocked(node: &Statistics, now: Instant) -> (String, Option<u64>) {
        let needs = Needs { bands: vec![BAND], ..wants().needs };
        let (nodes, known) = node.blocking(now, &needs);
        (nodes.join(" "), known.map(|known| known.observations(&needs, 1)[0].blocking(BAND)[0]))
    }

    fn decide(node: &Statistics, now: Instant) {
        node.known(now, &wants(), 1_000, vec![Merged::default()]);
    }

    fn said(node: &Statistics) -> Vec<(bool, String)> {
        node.events.latest().into_iter().map(|event| (event.warns, event.message)).collect()
    }

    #[test]
    fn nodes_that_merge_count_the_requests_of_all() {
        let nodes = ["a", "b"].map(|name| node(name, &[]));
        let now = nodes[0].started + SECOND;
        assert_eq!(blocked(&nodes[0], now), ("a".to_owned(), None));
        let published = publish(&nodes[0], now);
        nodes[1].receive_batch(now, "a", &published.batch).unwrap();
        assert_eq!(nodes[1].receive_batch(now, "a", &published.batch), Err(Ignored::NotNewer));
        publish(&nodes[1], now);
        assert_eq!(blocked(&nodes[0], now), ("a".to_owned(), None));
        assert_eq!(blocked(&nodes[1], now), ("a b".to_owned(), Some(4)));
        decide(&nodes[1], now);
        assert_eq!(said(&nodes[1]), [], "as expected");
    }

    #[test]
    fn change_of_the_statistics_that_decisions_use_is_reported_once() {
        let nodes = ["a", "b"].map(|name| node(name, &["b"]));
        let start = nodes[0].started.max(nodes[1].started);
        decide(&nodes[0], start + SECOND);
        assert_eq!(said(&nodes[0]), [], "the node has just started");
        (6..8).for_each(|second| decide(&nodes[0], start + second * SECOND));
        let alone = "decisions use this node's requests alone: ";
        let why = "no statistics with them are young enough; is the bus reachable, and does a node of \
                   `[cluster] statistics` run?";
        let warned = (true, format!("{alone}{why}"));
        assert_eq!(said(&nodes[0]), std::slice::from_ref(&warned));
        let now = start + 10 * SECOND;
        nodes[1].receive_batch(now, "a", &publish(&nodes[0], now).batch).unwrap();
        let published = publish(&nodes[1], now);
        nodes[0].receive_snapshot(now, "b", published.snapshot.clone().unwrap()).unwrap();
        decide(&nodes[0], now);
        assert_eq!(blocked(&nodes[0], now), ("a b".to_owned(), Some(4)));
        assert!(matches!(nodes[0].source(now), Source::Snapshot { node, .. } if node == "b"));
        let follows = "decisions use the requests of all nodes, as the statistics node b counts them";
        assert_eq!(said(&nodes[0])[1..], [(false, follows.to_owned())]);
        decide(&nodes[0], now + 3 * SECOND);
        assert_eq!(said(&nodes[0])[2..], [warned]);
        let lacking = Wants { by_tenant: true, ..wants() };
        nodes[0].known(now, &lacking, 1_000, vec![Merged::default()]);
        let lacks = "the snapshots of b lack requests of the tenant \"default\" alone; give all nodes the \
                     same policy, band and tenants";
        assert_eq!(said(&nodes[0])[3..], [(true, format!("{alone}{lacks}"))]);
    }
}
