//! Policies that do not learn.

use crate::share::share_equally;
use crate::{Policy, Proposal, View};

/// `shared-lru`: one LRU over all partitions.
#[derive(Clone)]
pub(crate) struct Shared;

/// `static`: the budgets as configured or set by hand. The only policy that may leave bytes free,
/// since only an operator may choose to.
#[derive(Clone)]
pub(crate) struct Static;

/// `equal`: the same size for every partition.
#[derive(Clone)]
pub(crate) struct Equal;

impl Policy for Shared {
    fn name(&self) -> &'static str {
        "shared-lru"
    }

    fn starts_shared(&self) -> bool {
        true
    }

    fn propose(&mut self, _: &View<'_>) -> Proposal {
        Proposal::Shared
    }
}

impl Policy for Static {
    fn name(&self) -> &'static str {
        "static"
    }

    fn propose(&mut self, _: &View<'_>) -> Proposal {
        Proposal::AsSet
    }
}

impl Policy for Equal {
    fn name(&self) -> &'static str {
        "equal"
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        let caps = vec![u64::MAX; view.budgets.len()];
        Proposal::Budgets(share_equally(view.total_bytes.into(), &caps))
    }
}
