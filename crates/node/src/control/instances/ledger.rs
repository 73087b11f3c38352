//! What the instances have together, so that one grows only into what another has given.
//!
//! To lower a limit takes a moment, and to give the memory back takes longer: pages are emptied one
//! by one. One that is told to grow takes memory as fast as it is written to. Were both told at
//! once, all together would have more than the total in between, and the machine that has no more
//! than that would have to kill one.
//!
//! What an instance *has* here is the most it may take: its limit, or what it still holds beyond
//! that, or what it has been granted and was not seen to have yet. One that is not reached has what
//! it had. What instances have of their own when they are met may be more than the total: nobody
//! grows then, and nobody is made to give up what it has for that; it takes a smaller wish.

use tokio::sync::watch;

/// Who has how much of a total. All of it is under one short lock.
#[derive(Debug)]
pub(crate) struct Ledger {
    total_bytes: u64,
    /// What each has, in the order of the partitions; told to who waits when somebody has less.
    has: watch::Sender<Vec<u64>>,
}

impl Ledger {
    /// Nobody has anything of `total_bytes`, as far as is known.
    pub(crate) fn new(total_bytes: u64, instances: usize) -> Self {
        Self { total_bytes, has: watch::channel(vec![0; instances]).0 }
    }

    /// An instance was seen to have so much.
    pub(super) fn note(&self, instance: usize, bytes: u64) {
        self.has.send_if_modified(|has| std::mem::replace(&mut has[instance], bytes) > bytes);
    }

    /// What an instance may be told to have, that has `own` already (its limit, or what it holds
    /// where it has none) and is to have `wish`: all of that if it is to shrink, else as much as
    /// nobody has, and no less than its own.
    pub(super) fn grant(&self, instance: usize, wish: u64, own: u64) -> u64 {
        let mut granted = wish;
        self.has.send_if_modified(|has| {
            let others = has.iter().enumerate().filter(|(other, _)| *other != instance);
            let others = others.fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
            if wish > own {
                granted = wish.min(self.total_bytes.saturating_sub(others)).max(own);
            }
            has[instance] = has[instance].max(own).max(granted);
            false
        });
        granted
    }

    /// Hears when somebody has given.
    pub(super) fn gifts(&self) -> watch::Receiver<Vec<u64>> {
        self.has.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_grows_gets_what_nobody_has_and_hears_of_what_is_given() {
        let ledger = Ledger::new(100, 2);
        ledger.note(0, 60);
        ledger.note(1, 40);
        let mut gifts = ledger.gifts();
        assert_eq!(ledger.grant(0, 20, 60), 20, "to shrink needs no room");
        assert_eq!((ledger.grant(1, 80, 40), gifts.has_changed().unwrap()), (40, false), "it has it still");
        ledger.note(0, 35);
        assert!(gifts.has_changed().unwrap());
        gifts.mark_unchanged();
        assert_eq!(ledger.grant(1, 80, 40), 65);
        ledger.note(1, 65);
        ledger.note(0, 20);
        assert_eq!(ledger.grant(1, 80, 65), 80);
    }

    #[test]
    fn what_one_has_been_granted_no_other_gets() {
        let ledger = Ledger::new(100, 3);
        (0..3).for_each(|instance| ledger.note(instance, 20));
        assert_eq!([ledger.grant(0, 50, 20), ledger.grant(1, 50, 20)], [50, 30]);
    }

    #[test]
    fn who_has_no_limit_keeps_what_it_holds_and_is_not_made_smaller_for_want_of_room() {
        let ledger = Ledger::new(100, 2);
        ledger.note(0, 60);
        assert_eq!(ledger.grant(1, 80, 50), 50, "ten are free, and what it holds is no growth");
        ledger.note(1, 50);
        assert_eq!(ledger.grant(0, 70, 60), 60, "nobody grows beyond the total");
        assert_eq!(ledger.grant(1, 30, 50), 30, "unless it is to have less");
        let one = Ledger::new(100, 2);
        one.grant(0, 30, 90);
        assert_eq!(one.grant(1, 40, 5), 10, "what shrinks has its own until it is seen to have less");
    }

    proptest! {
        /// Instances that are met with whatever they have, some without a limit: no turn brings all
        /// of them together beyond the total, or further beyond it than what they had of their own
        /// did.
        #[test]
        fn they_have_more_than_the_total_only_by_what_they_had_of_their_own(
            own in prop::array::uniform4((prop_oneof![Just(0), 1..100_u64], 0..100_u64)),
            wishes in prop::array::uniform4(0..=40_u64),
            steps in prop::collection::vec((0..4_usize, 0..30_u64), 0..200),
        ) {
            const TOTAL: u64 = 160;
            let ledger = Ledger::new(TOTAL, 4);
            // Limit and use of each that has been met.
            let mut met: [Option<(u64, u64)>; 4] = [None; 4];
            let takes = |(limit, used): (u64, u64)| limit.max(used);
            for (instance, gives) in steps {
                let before = met;
                let (limit, used) = met[instance].unwrap_or(own[instance]);
                let of_its_own = if limit == 0 { used } else { limit };
                let limit = ledger.grant(instance, wishes[instance], of_its_own);
                let used = if used > limit { used.saturating_sub(gives).max(limit) } else { limit };
                met[instance] = Some((limit, used));
                ledger.note(instance, takes((limit, used)));
                let sum = |met: &[Option<(u64, u64)>; 4]| met.iter().flatten().copied().map(takes).sum::<u64>();
                let came = if before[instance].is_none() { takes(own[instance]) } else { 0 };
                prop_assert!(sum(&met) <= TOTAL.max(sum(&before) + came), "{:?} {:?}", before, met);
                prop_assert!(limit >= wishes[instance].min(of_its_own), "it lost what it may have: {:?}", met);
            }
        }

        /// Instances that begin within the total and do what they are told, each at its own pace,
        /// never have more than that together, and have their shares in the end.
        #[test]
        fn they_never_have_more_than_the_total_and_come_to_their_wishes(
            shares in prop::collection::vec(prop::collection::vec(1..40_u64, 4), 1..6),
            steps in prop::collection::vec((0..4_usize, 0..30_u64), 0..200),
        ) {
            const TOTAL: u64 = 160;
            let ledger = Ledger::new(TOTAL, 4);
            // Limit and use of each.
            let mut each = [(40, 40); 4];
            (0..4).for_each(|instance| ledger.note(instance, 40));
            let turn = |each: &mut [(u64, u64); 4], wishes: &[u64], instance: usize, gives: u64| {
                let (limit, used) = &mut each[instance];
                *limit = ledger.grant(instance, wishes[instance], *limit);
                *used = if *used > *limit { (*used - gives.min(*used)).max(*limit) } else { *limit };
                ledger.note(instance, (*limit).max(*used));
            };
            let mut wishes = vec![40; 4];
            for shares in shares {
                let sum: u64 = shares.iter().sum();
                wishes = shares.iter().map(|share| TOTAL * share / sum).collect();
                for &(instance, gives) in &steps {
                    turn(&mut each, &wishes, instance, gives);
                    let has: u64 = each.iter().map(|(limit, used)| *limit.max(used)).sum();
                    prop_assert!(has <= TOTAL, "{:?}", each);
                }
            }
            (0..20).for_each(|_| (0..4).for_each(|instance| turn(&mut each, &wishes, instance, TOTAL)));
            prop_assert_eq!(each.map(|(limit, _)| limit).to_vec(), wishes);
        }
    }
}
