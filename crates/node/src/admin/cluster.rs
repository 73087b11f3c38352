//! `/v1/cluster`: the other nodes, as this node knows them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use sherwood_control::cluster::Source;
use sherwood_dispatch::PeerLoan;
use sherwood_model::Instant;
use sherwood_path::PeerStanding;
use sherwood_ports::http::Problem;

use crate::cluster::Cluster;
use crate::core::Core;

/// The node's place in a cluster.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Cluster")]
pub(crate) struct ClusterView {
    /// Name of this node.
    node: String,
    /// Number of this process. A later process of the node has a larger one.
    incarnation: u64,
    /// Other nodes, by name.
    peers: Vec<PeerView>,
    /// Shared backends.
    shared: Vec<SharedView>,
    /// Statistics of requests that decisions use.
    statistics: StatisticsView,
    /// Rates that other nodes lend to this one.
    loans: Vec<LoanView>,
    /// Rates that this node lends to others.
    lent: Vec<LoanView>,
}

/// A tenant's rate on loan between this node and another one.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Loan")]
struct LoanView {
    resource: String,
    /// Tenant that uses the units.
    tenant: String,
    /// The other node.
    node: String,
    units_per_s: f64,
}

/// Statistics of requests that decisions use.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "StatisticsSource")]
struct StatisticsView {
    /// Node that merged those of all: the statistics node that this one follows, or this node
    /// itself; null while decisions use its own requests alone.
    from: Option<String>,
    /// Seconds since the snapshot of the statistics node; null while none is followed.
    age_s: Option<f64>,
}

/// Another node.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Peer")]
struct PeerView {
    node: String,
    /// Seconds since its latest message; null before the first.
    seen_s: Option<f64>,
    /// Seconds for which cached values may be served if nothing more is heard of it; negative since
    /// they may not; null before it was heard.
    trusted_s: Option<f64>,
    /// Number of its process; 0 before the first message.
    incarnation: u64,
    /// True if it has heard this process.
    answered: bool,
    /// True if its configuration does not name this node.
    lacks_us: bool,
}

/// A backend whose values the nodes cache.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SharedBackend")]
struct SharedView {
    backend: String,
    /// Seconds for which all its cached values may still be served; negative since they may not.
    trusted_s: f64,
    /// Seconds until writes are acknowledged; null while a node does not name this one; 0 now.
    writes_in_s: Option<f64>,
    /// Look-ups whose value could not be trusted, since the start.
    untrusted: u64,
}

pub(crate) async fn show(State(core): State<Arc<Core>>) -> Result<Json<ClusterView>, Problem> {
    let cluster = core.cluster.as_ref().ok_or_else(alone)?;
    let now = core.clock.now();
    let (peers, incarnation) = cluster.standings();
    let shared = cluster.shared_backends().filter_map(|backend| {
        let values = cluster.shared(backend)?;
        let writes = values.writes_from(now);
        Some(SharedView {
            backend: core.names.backend(backend).to_owned(),
            trusted_s: between(now, values.trusted_until()),
            writes_in_s: match writes {
                None => Some(0.0),
                Some(Instant::NEVER) => None,
                Some(from) => Some(between(now, from)),
            },
            untrusted: values.untrusted(),
        })
    });
    let (loans, lent) = core.rates.as_ref().map(|rates| rates.loans()).unwrap_or_default();
    Ok(Json(ClusterView {
        node: cluster.setup.node.clone(),
        incarnation,
        peers: peers.into_iter().map(|peer| PeerView::of(now, peer)).collect(),
        shared: shared.collect(),
        statistics: core
            .statistics
            .as_ref()
            .map(|of| StatisticsView::of(&of.source(now), cluster))
            .unwrap_or_default(),
        loans: loans.iter().map(|loan| LoanView::of(&core, loan)).collect(),
        lent: lent.iter().map(|loan| LoanView::of(&core, loan)).collect(),
    }))
}

impl LoanView {
    fn of(core: &Core, PeerLoan { node, amount }: &PeerLoan) -> Self {
        let tenancy = core.tenancy.as_ref();
        let resource = tenancy.map(|of| of.resources[amount.resource.index()].name.clone());
        Self {
            resource: resource.unwrap_or_default(),
            tenant: core.names.tenant(amount.tenant).to_owned(),
            node: node.to_string(),
            units_per_s: amount.per_s,
        }
    }
}

impl StatisticsView {
    fn of(source: &Source, cluster: &Cluster) -> Self {
        match source {
            Source::All { .. } => Self { from: Some(cluster.setup.node.clone()), age_s: None },
            Source::Snapshot { node, age, .. } => {
                Self { from: Some(node.clone()), age_s: Some(age.as_secs_f64()) }
            }
            Source::Own { .. } => Self::default(),
        }
    }
}

impl PeerView {
    fn of(now: Instant, peer: PeerStanding) -> Self {
        let PeerStanding { node, incarnation, silent_for, trusted_until, answered, lacks_us } = peer;
        Self {
            node,
            seen_s: silent_for.map(|time| time.as_secs_f64()),
            trusted_s: trusted_until.map(|until| between(now, until)),
            incarnation,
            answered,
            lacks_us,
        }
    }
}

/// Returns the seconds from one time to another, negative if that is earlier.
fn between(from: Instant, to: Instant) -> f64 {
    (to - from).as_secs_f64() - (from - to).as_secs_f64()
}

fn alone() -> Problem {
    let error = "this node has no [cluster]; name its nodes in the configuration, and restart it";
    Problem::new(StatusCode::NOT_FOUND, error)
}
