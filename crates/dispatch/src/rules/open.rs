//! `admit = "open"`: the bounds of the dispatcher are the only limit.

use sherwood_model::{Demand, Instant};

use super::{Admission, ReplicaLoad, Verdict};

/// Admission rule that admits every fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open;

impl Admission for Open {
    fn judge(&mut self, _now: Instant, _demand: &Demand, _picked: &[ReplicaLoad]) -> Verdict {
        Verdict::Admit
    }
}
