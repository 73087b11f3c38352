//! Choice of β for the backends whose admission has a target: the percentile of latencies that
//! estimates take, for a wanted share of missed deadlines.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use sherwood_dispatch::{BetaDecision, DeadlineCounts, Percent};

use crate::backend::BackendDriver;
use crate::deadlines;
use crate::observe::events::Events;

/// The backends with a target, and the latest decision about each.
pub(crate) struct AdmissionTargets {
    backends: Vec<WithTarget>,
    deadlines: Arc<deadlines::DeadlineCounts>,
}

struct WithTarget {
    backend: Arc<BackendDriver>,
    target: Percent,
    /// The latest decision in words; none before the first one.
    line: Option<String>,
}

/// A backend whose admission has a target of missed deadlines.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Admission")]
pub(crate) struct AdmissionView {
    backend: String,
    /// Percentile of latencies that estimates take, in percent.
    beta: f64,
    /// The latest decision in words; null before the first one.
    line: Option<String>,
    /// Share of deadlines that may be missed.
    target_ratio: f64,
}

impl AdmissionTargets {
    /// Takes those of `backends` that have a target. Their deadlines are counted in `deadlines`.
    pub(crate) fn new(
        backends: &[Option<Arc<BackendDriver>>],
        deadlines: Arc<deadlines::DeadlineCounts>,
    ) -> Self {
        let with_target = |backend: &Arc<BackendDriver>| {
            let target = backend.admit.target()?;
            Some(WithTarget { backend: Arc::clone(backend), target, line: None })
        };
        Self { backends: backends.iter().flatten().filter_map(with_target).collect(), deadlines }
    }

    /// Decides about each backend. In a dry run β stays and the decision is only reported. A
    /// decision that changes nothing is no event, since the shares in it differ each time.
    pub(crate) fn decide(&mut self, events: &Events, dry_run: bool) {
        for WithTarget { backend, target, line } in &mut self.backends {
            let ended = self.deadlines.of_backend(backend.id);
            let ended = DeadlineCounts { met: ended.met, missed: ended.missed, rejected: 0 };
            let decided = backend.drive(|state, _, _| {
                let before = state.machine.stats().beta;
                let decision = state.machine.choose_beta(ended)?;
                if !dry_run {
                    state.machine.set_beta(decision.beta);
                }
                Some((before, decision))
            });
            let Some((before, BetaDecision { beta, reason })) = decided else { continue };
            let message = format!("{}: {reason}", backend.name);
            if beta != before {
                let data = json!({
                    "backend": backend.name,
                    "target_ratio": target.ratio(),
                    "before_beta": before.percent(),
                    "after_beta": beta.percent(),
                    "applied": !dry_run,
                    "line": message,
                });
                events.say("decision", message.clone(), data);
            }
            *line = Some(message);
        }
    }

    /// The backends with a target, as the admin API shows them.
    pub(crate) fn view(&self) -> Vec<AdmissionView> {
        let backends = self.backends.iter().map(|WithTarget { backend, target, line }| AdmissionView {
            backend: backend.name.clone(),
            beta: backend.stats().beta.percent(),
            line: line.clone(),
            target_ratio: target.ratio(),
        });
        backends.collect()
    }
}
