//! The kept data of a finished run.

use serde::{Deserialize, Serialize};
use sherwood_sim::Results;

use crate::sim::keep::Finished;
use crate::sim::onerf::plotted::Series;
use crate::sim::runs::Inputs;

/// A finished run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sim) struct Kept {
    pub(in crate::sim) inputs: Inputs,
    pub(in crate::sim) outcome: RunOutcome,
    pub(in crate::sim) series: Series,
}

/// Results in the format of `sherwood sim run --json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::sim) struct RunOutcome {
    #[serde(flatten)]
    pub(in crate::sim) results: Results,
    pub(in crate::sim) wall_s: f64,
    pub(in crate::sim) queries_per_s: f64,
}

impl Finished for Kept {
    const PREFIX: &str = "";

    fn inputs(&self) -> &Inputs {
        &self.inputs
    }
}
