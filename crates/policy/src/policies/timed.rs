//! Policies that follow a schedule: replay of known sizes, and a varying total.

use std::time::Duration;

use crate::options::check_times;
use crate::{Needs, Options, OptionsError, Policy, PolicyError, Proposal, SizeStage, TotalStage, View};

/// `offline_opt`: configured sizes, each for a period.
#[derive(Clone)]
pub(crate) struct OfflineOpt {
    stages: Vec<SizeStage>,
}

impl OfflineOpt {
    pub(crate) fn new(options: &Options) -> Result<Self, PolicyError> {
        let stages = options.offline_opt.clone();
        if stages.is_empty() {
            return Err(PolicyError::Missing { policy: "offline_opt" });
        }
        check_times("offline_opt", &stages.iter().map(|stage| stage.until_s).collect::<Vec<_>>())?;
        Ok(Self { stages })
    }
}

impl Policy for OfflineOpt {
    fn name(&self) -> &'static str {
        "offline_opt"
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        let stage = in_force(&self.stages, view.elapsed, |stage| stage.until_s);
        Proposal::Budgets(stage.budgets_bytes.clone())
    }
}

/// `bubble_wrap`: another policy under a varying total. Bytes that the total loses or gains pass
/// through that policy's pool.
#[derive(Clone)]
pub(crate) struct BubbleWrapped {
    inner: Box<dyn Policy>,
    stages: Vec<TotalStage>,
}

impl BubbleWrapped {
    pub(crate) fn new(inner: Box<dyn Policy>, stages: Vec<TotalStage>) -> Result<Self, OptionsError> {
        check_times("bubble_wrap", &stages.iter().map(|stage| stage.until_s).collect::<Vec<_>>())?;
        Ok(Self { inner, stages })
    }
}

impl Policy for BubbleWrapped {
    fn name(&self) -> &'static str {
        "bubble_wrap"
    }

    fn needs(&self) -> Needs {
        self.inner.needs()
    }

    fn starts_shared(&self) -> bool {
        self.inner.starts_shared()
    }

    fn total_bytes(&self, elapsed: Duration, total_bytes: u64) -> u64 {
        in_force(&self.stages, elapsed, |stage| stage.until_s).total_bytes.min(total_bytes)
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        self.inner.propose(view)
    }
}

/// The stage of a schedule that is in force at `elapsed`, or the last. `stages` is not empty: the
/// constructors check it.
fn in_force<T>(stages: &[T], elapsed: Duration, until_s: impl Fn(&T) -> f64) -> &T {
    let stage = stages.iter().find(|stage| elapsed.as_secs_f64() < until_s(stage));
    stage.or(stages.last()).expect("a timed list has a stage")
}
