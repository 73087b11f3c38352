//! `tao`: sizes that were right once.
//!
//! Facebook's TAO divides its memory by hand into arenas. What a careful operator would arrive at
//! is what RobinHood finds in a while; so that is learnt, and then frozen. As good as RobinHood
//! while the load stays what it was, and blind to every change afterwards: this is what adaptation
//! is measured against.
//!
//! RobinHood's paper (OSDI 2018, section 5.1) calls it TAO++ and freezes after a fifth of its first
//! experiment.

use std::time::Duration;

use super::Critical;
use crate::{Needs, Options, Policy, Proposal, TaoMode, TaoOptions, View};

/// RobinHood for a while, then what it found.
#[derive(Clone)]
pub(crate) struct Tao {
    learner: Critical,
    options: TaoOptions,
    /// Byte-nanoseconds of each partition so far.
    held: Vec<u128>,
    /// The time they are of.
    nanos: u128,
    /// Up to when it was counted.
    counted: Duration,
    /// The sizes found; empty while it learns.
    found: Vec<u64>,
}

impl Tao {
    pub(crate) fn new(options: &Options) -> Self {
        let learner = Critical::robinhood(options);
        let options = options.tao.clone();
        let found = options.budgets_bytes.clone();
        Self { learner, options, held: Vec::new(), nanos: 0, counted: Duration::ZERO, found }
    }

    /// Counts the budgets in force for the time since the last call, up to the end of learning.
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
        self.found = match self.options.mode {
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
        if self.found.len() != view.budgets.len() {
            self.count(view);
            if view.elapsed < self.options.learn {
                return self.learner.propose(view);
            }
            self.freeze(view);
        }
        Proposal::Budgets(self.found.clone())
    }
}
