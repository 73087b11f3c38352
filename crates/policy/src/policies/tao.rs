//! `tao`: sizes learnt once and then frozen.
//!
//! Facebook's TAO divides its memory by hand into arenas. The sizes that a careful operator would
//! find are learnt here by RobinHood and then frozen. The policy is as good as RobinHood while the
//! load is unchanged and does not adapt to later changes: it is the baseline for the value of
//! adaptation.
//!
//! RobinHood's paper (OSDI 2018, section 5.1) calls it TAO++ and freezes after a fifth of its first
//! experiment.

use std::time::Duration;

use super::Critical;
use crate::{Needs, Options, Policy, Proposal, TaoMode, TaoOptions, View};

/// Allocation by RobinHood while learning, then fixed.
#[derive(Clone)]
pub(crate) struct Tao {
    learner: Critical,
    options: TaoOptions,
    /// Budget of each partition summed over the learning time so far, in byte-nanoseconds.
    held: Vec<u128>,
    /// Time over which `held` is summed, in nanoseconds.
    nanos: u128,
    /// Time up to which `held` is counted, since the policy was chosen.
    counted: Duration,
    /// The learned allocation in bytes; empty while learning.
    learned: Vec<u64>,
}

impl Tao {
    pub(crate) fn new(options: &Options) -> Self {
        let learner = Critical::robinhood(options);
        let options = options.tao.clone();
        let learned = options.budgets_bytes.clone();
        Self { learner, options, held: Vec::new(), nanos: 0, counted: Duration::ZERO, learned }
    }

    /// Adds the budgets in force, for the time since the last call, to the mean of the learning
    /// time.
    fn count(&mut self, view: &View<'_>) {
        if self.held.len() != view.budgets.len() {
            (self.held, self.nanos) = (vec![0; view.budgets.len()], 0);
            self.counted = view.elapsed;
        }
        let until = view.elapsed.min(self.options.learn).max(self.counted);
        let nanos = (until - self.counted).as_nanos();
        for (held, &bytes) in self.held.iter_mut().zip(view.budgets) {
            *held += nanos * u128::from(bytes);
        }
        self.nanos += nanos;
        self.counted = until;
    }

    fn freeze(&mut self, view: &View<'_>) {
        let mean = |held: &u128| u64::try_from(held / self.nanos).expect("a mean is at most the largest");
        self.learned = match self.options.mode {
            TaoMode::Mean if self.nanos > 0 => self.held.iter().map(mean).collect(),
            _ => view.budgets.to_vec(),
        };
    }
}

impl Policy for Tao {
    fn name(&self) -> &'static str {
        "tao"
    }

    fn needs(&self) -> Needs {
        self.learner.needs()
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        if self.learned.len() != view.budgets.len() {
            self.count(view);
            if view.elapsed < self.options.learn {
                return self.learner.propose(view);
            }
            self.freeze(view);
        }
        Proposal::Budgets(self.learned.clone())
    }
}
