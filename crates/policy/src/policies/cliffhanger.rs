//! `cliffhanger`: memory goes where one more byte gains the most hits.
//!
//! A shadow queue behind every partition holds the keys that were evicted last. A miss that is
//! found there would have been a hit with a little more space, so the rate of such shadow hits is
//! the slope of the hit rate; where all slopes are equal the cache as a whole misses least. Every
//! shadow hit moves a credit of bytes to its partition, at the equal expense of all others. Nothing
//! else has to be measured, neither request rates nor curves. The policy maximises the hit ratio
//! and ignores the tail: a fast backend with many look-ups outbids a slow one that blocks requests.
//!
//! Cidon, Eisenman, Alizadeh, Katti: *Cliffhanger: Scaling Performance Cliffs in Web Memory
//! Caches*, NSDI 2016, section 4.1 (hill climbing), in the form with which RobinHood's paper
//! compares: shadow hits are counted between decisions, over all caches together, and credited at
//! once. Cliff scaling (section 4.2) is left out: RobinHood's authors found the curves of their
//! load largely convex.

use crate::{Kept, Needs, Options, Policy, Proposal, Reason, Signal, Target, View};

/// Words around a percentage in the log: a partition's share of all hits in shadow queues.
const FOUND: Signal = Signal { before: "had ", after: " of the hits just beyond the budgets" };

/// Allocation by credits for hits in shadow queues.
#[derive(Clone)]
pub(crate) struct Cliffhanger {
    shadow_ratio: f64,
    credit_bytes: i128,
    /// Target budgets, including changes of less than a page that have not been applied yet.
    wanted: Vec<i128>,
}

impl Cliffhanger {
    pub(crate) fn new(options: &Options) -> Self {
        let crate::CliffhangerOptions { shadow, credit_bytes } = options.cliffhanger;
        Self { shadow_ratio: shadow, credit_bytes: credit_bytes.into(), wanted: Vec::new() }
    }

    /// Returns the target budgets after these shadow hits (`finds`): the present budget, the change
    /// still owed from earlier rounds (at most a page, so that a change blocked by a bound is not
    /// owed for ever), and the credit.
    fn wanted(&self, view: &View<'_>, finds: &[Option<u64>]) -> Vec<i128> {
        let page = i128::from(view.page_bytes);
        let credits = credits(finds, self.credit_bytes);
        let wanted = |(index, credit): (usize, i128)| {
            let budget = i128::from(view.budgets[index]);
            let owed = self.wanted.get(index).map_or(0, |wanted| (wanted - budget).clamp(-page, page));
            budget + owed + credit
        };
        credits.into_iter().enumerate().map(wanted).collect()
    }
}

impl Policy for Cliffhanger {
    fn name(&self) -> &'static str {
        "cliffhanger"
    }

    fn needs(&self) -> Needs {
        Needs { look_ups: true, shadow_ratio: Some(self.shadow_ratio), ..Needs::default() }
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        let finds: Vec<Option<u64>> = view.seen.partitions.iter().map(|seen| seen.shadow_hits).collect();
        if finds.iter().flatten().count() < 2 {
            return Proposal::Keep(Kept::NotMeasured);
        }
        let all: u128 = finds.iter().flatten().map(|&finds| u128::from(finds)).sum();
        if all == 0 {
            return Proposal::Keep(Kept::NoClaim);
        }
        self.wanted = self.wanted(view, &finds);
        let bytes = |&wanted: &i128| u64::try_from(wanted.max(0)).unwrap_or(u64::MAX);
        let reason = |finds: &Option<u64>| Reason::Claim {
            ratio: finds.unwrap_or(0) as f64 / all as f64,
            signal: FOUND,
        };
        let budgets = self.wanted.iter().map(bytes).collect();
        Proposal::Toward(Target { budgets, reasons: finds.iter().map(reason).collect() })
    }
}

/// Each partition's shadow hits minus the mean of the others', converted to bytes. They sum to zero
/// up to rounding; partitions without a count neither give nor receive.
pub(super) fn credits(finds: &[Option<u64>], credit_bytes: i128) -> Vec<i128> {
    let counted: Vec<i128> = finds.iter().flatten().map(|&finds| i128::from(finds)).collect();
    let (n, sum) = (counted.len() as i128, counted.iter().sum::<i128>());
    let credit = |finds: u64| credit_bytes * (n * i128::from(finds) - sum) / (n - 1).max(1);
    finds.iter().map(|finds| finds.map_or(0, credit)).collect()
}
