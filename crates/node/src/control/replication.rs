//! The choice of copies in the tiers of an application, as observed, and as shown by events and the
//! admin API.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use sherwood_config::ReplicationSetup;
use sherwood_control::{ControlLoop, CopiesDecision, Replication, ReplicationSeen};
use sherwood_model::{BackendId, Instant};
use sherwood_policy::replication::{Replicator, TierStanding};

use crate::backend::BackendDriver;

/// The backends that are tiers of an application, the first tier first.
pub(crate) struct Tiers {
    setup: ReplicationSetup,
    backends: Vec<Arc<BackendDriver>>,
}

/// The choice of copies, and what it was made from.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Replication")]
pub(crate) struct ReplicationView {
    policy: &'static str,
    /// The latency that is minimised: `mean`, `p95` or `p99`.
    target: &'static str,
    /// `searching`, `settled`, or `ones` while there is one copy in each tier.
    state: &'static str,
    /// Choices that the search has tried, without the first.
    tries: u32,
    tiers: Vec<TierView>,
    /// Time of replicas for calls whose answer was not needed, as a share of that of the others,
    /// over all tiers and the last minute or two.
    extra_load_ratio: f64,
    /// The latest decision in words.
    reason: String,
}

/// A tier in the latest measuring window.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tier")]
struct TierView {
    backend: String,
    servers: u32,
    cores: u32,
    /// Copies of each call.
    factor: u8,
    /// Calls that may be in flight at one server; null where calls do not wait for tokens.
    tokens: Option<u32>,
    arrivals_per_s: f64,
    connections_per_s: f64,
    /// Core time of a call.
    demand_ms: f64,
    /// Time for which a call holds its token.
    held_ms: f64,
    /// Share of the core time in use.
    utilisation: f64,
    /// Share of the tokens in use; null without tokens.
    token_utilisation: Option<f64>,
    /// The high percentile of the latencies over their mean.
    variability: f64,
    /// Probability that copies of one request of the first tier meet at a server.
    collision_probability: f64,
}

impl Tiers {
    /// Selects the backends of the tiers; none without stores there.
    pub(crate) fn new(setup: ReplicationSetup, backends: &[Option<Arc<BackendDriver>>]) -> Option<Self> {
        let of = |id: &BackendId| backends.get(id.index())?.clone();
        let backends = setup.backends.iter().map(of).collect::<Option<_>>()?;
        Some(Self { setup, backends })
    }

    /// Returns the lever that chooses copies for these backends.
    pub(super) fn lever(&self, now: Instant) -> Replication {
        let replicator = Replicator::new(self.setup.options.clone());
        Replication::new(replicator, self.setup.backends.clone(), now)
    }

    /// Returns what was measured since the start of a window.
    pub(super) fn observe(&self, since: Instant) -> Vec<ReplicationSeen> {
        let seen = |backend: &Arc<BackendDriver>| {
            let window = backend.drive(|state, now, _| state.machine.tier_window(now, since));
            Some(ReplicationSeen { backend: backend.id, tier: (&window?).into() })
        };
        self.backends.iter().filter_map(seen).collect()
    }

    /// Returns the text and data of the event that reports a decision.
    pub(super) fn decided(&self, decision: &CopiesDecision) -> (String, Value) {
        let outcome = &decision.outcome;
        let data = json!({
            "tiers": self.backends.iter().map(|backend| &backend.name).collect::<Vec<_>>(),
            "factors": outcome.factors,
            "state": outcome.state.name(),
            "tries": outcome.tries,
            "applied": decision.applied,
            "line": outcome.reason,
        });
        (outcome.reason.clone(), data)
    }

    /// Returns the choice of the loop's lever.
    pub(super) fn view(&self, rounds: &ControlLoop) -> Option<ReplicationView> {
        let replicator = rounds.replication()?.replicator();
        let outcome = replicator.outcome();
        let stats: Vec<_> = self.backends.iter().map(|backend| backend.stats()).collect();
        let tiers =
            self.backends.iter().zip(replicator.standings()).map(|(backend, tier)| view(backend, &tier));
        let options = replicator.options();
        let extra: f64 = stats.iter().map(|stats| stats.extra_load_ratio).sum();
        Some(ReplicationView {
            policy: options.policy.name(),
            target: options.target.name(),
            state: outcome.state.name(),
            tries: outcome.tries,
            tiers: tiers.collect(),
            extra_load_ratio: extra / stats.len() as f64,
            reason: outcome.reason,
        })
    }
}

fn view(backend: &BackendDriver, tier: &TierStanding) -> TierView {
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1_000.0;
    let seen = &tier.seen;
    TierView {
        backend: backend.name.clone(),
        servers: seen.servers,
        cores: seen.cores,
        factor: tier.factor,
        tokens: backend.tokens,
        arrivals_per_s: seen.arrivals_per_s,
        connections_per_s: seen.connections_per_s,
        demand_ms: ms(seen.demand),
        held_ms: ms(seen.held),
        utilisation: tier.utilisation,
        token_utilisation: tier.token_utilisation,
        variability: tier.variability,
        collision_probability: tier.collision_probability,
    }
}
