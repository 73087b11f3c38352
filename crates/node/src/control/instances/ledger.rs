//! Tracks the memory of all instances, so that an instance grows only by memory that another has
//! released.
//!
//! Lowering a limit takes a moment, and releasing memory takes longer: pages are emptied one by
//! one. An instance that may grow takes memory as fast as it is written to. If both were resized at
//! once, all instances together would use more than the total meanwhile, and a machine with no more
//! memory would kill one of them.
//!
//! An instance *has*, in this module, the most bytes it may use: its limit, or its use if that is
//! still larger, or a grant that was not yet seen to be in force. An unreachable instance has what
//! it had last. When instances are first reached, they may have more than the total together. None
//! grows then, and none is shrunk because of it; only a smaller wanted size shrinks one.

use tokio::sync::watch;

/// The most bytes that each instance may use out of a total, under one short lock.
#[derive(Debug)]
pub(crate) struct Ledger {
    total_bytes: u64,
    /// The most bytes that each instance may use, in the order of the partitions. Subscribers are
    /// notified when one falls.
    has: watch::Sender<Vec<u64>>,
}

impl Ledger {
    /// Creates a ledger of `total_bytes` in which no instance is known to have any.
    pub(crate) fn new(total_bytes: u64, instances: usize) -> Self {
        Self { total_bytes, has: watch::channel(vec![0; instances]).0 }
    }

    /// Records the most `bytes` that an instance may use, as last seen.
    pub(super) fn note(&self, instance: usize, bytes: u64) {
        self.has.send_if_modified(|has| std::mem::replace(&mut has[instance], bytes) > bytes);
    }

    /// Returns and records the limit to give an instance that has `own` bytes already (its limit,
    /// or its use if it has no limit) and wants `wish`: the whole wish if it shrinks, otherwise at
    /// most what is free, and at least `own`.
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

    /// Subscribes to the moments at which an instance has released memory.
    pub(super) fn releases(&self) -> watch::Receiver<Vec<u64>> {
        self.has.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn growing_instance_gets_free_bytes_and_is_notified_of_releases() {
        let ledger = Ledger::new(100, 2);
        ledger.note(0, 60);
        ledger.note(1, 40);
        let mut releases = ledger.releases();
        assert_eq!(ledger.grant(0, 20, 60), 20, "to shrink needs no room");
        assert_eq!(
            (ledger.grant(1, 80, 40), releases.has_changed().unwrap()),
            (40, false),
            "it has it still"
        );
        ledger.note(0, 35);
        assert!(releases.has_changed().unwrap());
        releases.mark_unchanged();
        assert_eq!(ledger.grant(1, 80, 40), 65);
        ledger.note(1, 65);
        ledger.note(0, 20);
        assert_eq!(ledger.grant(1, 80, 65), 80);
    }

    #[test]
    fn bytes_granted_to_an_instance_are_not_granted_to_another() {
        let ledger = Ledger::new(100, 3);
        (0..3).for_each(|instance| ledger.note(instance, 20));
        assert_eq!([ledger.grant(0, 50, 20), ledger.grant(1, 50, 20)], [50, 30]);
    }

    #[test]
    fn unlimited_instance_keeps_its_use_when_nothing_is_free() {
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
        /// Instances are first reached with any size, some without a limit. No step brings their
        /// sum above the total, or further above it than their initial sizes did.
        #[test]
        fn instances_exceed_the_total_only_by_their_initial_sizes(
            own in prop::array::uniform4((prop_oneof![Just(0), 1..100_u64], 0..100_u64)),
            wishes in prop::array::uniform4(0..=40_u64),
            steps in prop::collection::vec((0..4_usize, 0..30_u64), 0..200),
        ) {
            const TOTAL: u64 = 160;
            let ledger = Ledger::new(TOTAL, 4);
            // Limit and use of each instance reached so far.
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

        /// Instances that start within the total and resize at different speeds never exceed it
        /// together, and reach their wanted sizes in the end.
        #[test]
        fn instances_that_start_within_the_total_stay_so_and_reach_their_wanted_sizes(
            shares in prop::collection::vec(prop::collection::vec(1..40_u64, 4), 1..6),
            steps in prop::collection::vec((0..4_usize, 0..30_u64), 0..200),
        ) {
            const TOTAL: u64 = 160;
            let ledger = Ledger::new(TOTAL, 4);
            // Limit and use of each instance.
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
