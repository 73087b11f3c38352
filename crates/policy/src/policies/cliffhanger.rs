//! `cliffhanger`: memory where one more byte hits most often.
//!
//! Behind every partition a shadow queue remembers the keys that were evicted last. A miss that is
//! found there would have been a hit with a little more space, so the rate of such finds is the
//! slope of the hit rate, and where all slopes are equal the cache as a whole misses least. Every
//! find moves a credit of bytes to its partition, which all others pay alike. Nothing else has to
//! be measured, no request rates and no curves; but it climbs the hit ratio and not the tail: a
//! cheap backend that is asked all the time outbids a slow one that requests wait for.
//!
//! Cidon, Eisenman, Alizadeh, Katti: *Cliffhanger: Scaling Performance Cliffs in Web Memory
//! Caches*, NSDI 2016, section 4.1 (hill climbing), in the form RobinHood's paper compares with:
//! finds are counted between decisions, over all caches together, and moved at once. Scaling of
//! cliffs (section 4.2) is left out: that paper found the curves of its load largely convex.

use crate::{Kept, Needs, Options, Policy, Proposal, Reason, Signal, Target, View};

/// The words of a find.
const FOUND: Signal = Signal { before: "had ", after: " of the hits just beyond the budgets" };

/// Credits by finds in shadow queues.
#[derive(Clone)]
pub(crate) struct Cliffhanger {
    shadow_ratio: f64,
    credit_bytes: i128,
    /// Where the budgets should be by now: what is less than a page has not been moved yet.
    wanted: Vec<i128>,
}

impl Cliffhanger {
    pub(crate) fn new(options: &Options) -> Self {
        let crate::CliffhangerOptions { shadow, credit_bytes } = options.cliffhanger;
        Self { shadow_ratio: shadow, credit_bytes: credit_bytes.into(), wanted: Vec::new() }
    }

    /// What each budget should be after these finds: the present one, what is owed from earlier
    /// rounds (at most a page, so that what a rule held back is not owed for ever), and the
    /// credits.
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

/// Each partition's finds less the mean of the others', in bytes. They sum to nothing but for what
/// is rounded off; those without a count neither give nor get.
pub(super) fn credits(finds: &[Option<u64>], credit_bytes: i128) -> Vec<i128> {
    let counted: Vec<i128> = finds.iter().flatten().map(|&finds| i128::from(finds)).collect();
    let (n, sum) = (counted.len() as i128, counted.iter().sum::<i128>());
    let credit = |finds: u64| credit_bytes * (n * i128::from(finds) - sum) / (n - 1).max(1);
    finds.iter().map(|finds| finds.map_or(0, credit)).collect()
}
