//! The choice of β (the percentile of latencies that admission assumes), as shown by events and the
//! admin API.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use sherwood_control::{Admission, AdmissionSeen, BetaChoice};

use crate::backend::BackendDriver;
use crate::deadlines::DeadlineCounts;

/// The backends with a target share of missed deadlines, and the counts of their ended deadlines.
pub(crate) struct AdmissionTargets {
    backends: Vec<Arc<BackendDriver>>,
    deadlines: Arc<DeadlineCounts>,
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
    /// Selects the backends that have a target share of missed deadlines.
    pub(crate) fn new(backends: &[Option<Arc<BackendDriver>>], deadlines: Arc<DeadlineCounts>) -> Self {
        let backends = backends.iter().flatten().filter(|backend| backend.admit.target().is_some());
        Self { backends: backends.map(Arc::clone).collect(), deadlines }
    }

    /// Returns the lever that chooses β for these backends.
    pub(super) fn lever(&self) -> Admission {
        Admission::new(self.backends.iter().filter_map(|of| Some((of.id, of.admit.target()?))))
    }

    pub(super) fn observe(&self) -> Vec<AdmissionSeen> {
        let seen = |backend: &Arc<BackendDriver>| {
            let ended = self.deadlines.of_backend(backend.id);
            AdmissionSeen::of(backend.id, &backend.stats(), (ended.met, ended.missed))
        };
        self.backends.iter().map(seen).collect()
    }

    /// Returns the text and data of the event that reports a change of β.
    pub(super) fn changed(&self, change: &BetaChoice) -> (String, Value) {
        let BetaChoice { backend, target, before, beta, reason, applied } = change;
        let name = self.backends.iter().find(|of| of.id == *backend).map_or("", |of| &of.name);
        let line = format!("{name}: {reason}");
        let data = json!({
            "backend": name,
            "target_ratio": target.ratio(),
            "before_beta": before.percent(),
            "after_beta": beta.percent(),
            "applied": applied,
            "line": line,
        });
        (line, data)
    }

    pub(super) fn view(&self, lever: &Admission) -> Vec<AdmissionView> {
        let backends = self.backends.iter().zip(lever.standings()).map(|(backend, standing)| AdmissionView {
            backend: backend.name.clone(),
            beta: backend.stats().beta.percent(),
            line: standing.reason.map(|reason| format!("{}: {reason}", backend.name)),
            target_ratio: standing.target.ratio(),
        });
        backends.collect()
    }
}
