//! Budgets and used bytes of all partitions.
//!
//! A budget is only a number: changing it moves no item. Stores and the background step compare the
//! used bytes of each partition with its budget and evict. A change of budgets costs no more than
//! writing the numbers, and bytes freed in one partition are immediately available to any other.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use sherwood_model::{CachePlan, PartitionId};
use thiserror::Error;

/// Budgets and charges of all partitions.
#[derive(Debug)]
pub(crate) struct Ledger {
    total_bytes: AtomicU64,
    used: AtomicU64,
    /// Temporary limit of the used bytes, at most the total.
    ceiling: AtomicU64,
    shared: AtomicBool,
    accounts: Box<[Account]>,
    /// The plan in force. Its lock also serialises changes of plan.
    plan: Mutex<CachePlan>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Account {
    used: AtomicU64,
    /// Budget in bytes; `u64::MAX` under `Shared`, so that no partition is over it.
    budget: AtomicU64,
}

impl Ledger {
    pub(crate) fn new(total_bytes: u64, budgets: Vec<u64>) -> Self {
        let account = |&budget| Account { used: AtomicU64::new(0), budget: AtomicU64::new(budget) };
        Self {
            total_bytes: AtomicU64::new(total_bytes),
            used: AtomicU64::new(0),
            ceiling: AtomicU64::new(total_bytes),
            shared: AtomicBool::new(false),
            accounts: budgets.iter().map(account).collect(),
            plan: Mutex::new(CachePlan::Budgets(budgets)),
        }
    }

    /// Returns a copy of the budgets and charges, for a copy of the cache.
    pub(crate) fn copy(&mut self) -> Self {
        let account = |account: &mut Account| Account {
            used: AtomicU64::new(*account.used.get_mut()),
            budget: AtomicU64::new(*account.budget.get_mut()),
        };
        Self {
            total_bytes: AtomicU64::new(*self.total_bytes.get_mut()),
            used: AtomicU64::new(*self.used.get_mut()),
            ceiling: AtomicU64::new(*self.ceiling.get_mut()),
            shared: AtomicBool::new(*self.shared.get_mut()),
            accounts: self.accounts.iter_mut().map(account).collect(),
            plan: Mutex::new(self.plan.get_mut().unwrap_or_else(PoisonError::into_inner).clone()),
        }
    }

    pub(crate) fn apply(&self, plan: &CachePlan) -> Result<(), PlanError> {
        let mut in_force = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        self.check(plan, self.total_bytes())?;
        self.put_in_force(plan, &mut in_force);
        Ok(())
    }

    /// Changes the total, and puts a plan for it in force. A ceiling at the total stays there.
    pub(crate) fn resize(&self, total_bytes: u64, plan: &CachePlan) -> Result<(), PlanError> {
        let mut in_force = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        self.check(plan, total_bytes)?;
        let before = self.total_bytes.swap(total_bytes, Relaxed);
        if self.ceiling() == before {
            self.ceiling.store(total_bytes, Relaxed);
        } else {
            self.ceiling.fetch_min(total_bytes, Relaxed);
        }
        self.put_in_force(plan, &mut in_force);
        Ok(())
    }

    fn put_in_force(&self, plan: &CachePlan, in_force: &mut CachePlan) {
        for (index, account) in self.accounts.iter().enumerate() {
            let budget = plan.budget(PartitionId::from_index(index)).unwrap_or(u64::MAX);
            account.budget.store(budget, Relaxed);
        }
        self.shared.store(*plan == CachePlan::Shared, Relaxed);
        in_force.clone_from(plan);
    }

    pub(crate) fn check(&self, plan: &CachePlan, total_bytes: u64) -> Result<(), PlanError> {
        let CachePlan::Budgets(budgets) = plan else { return Ok(()) };
        if budgets.len() != self.accounts.len() {
            return Err(PlanError::Partitions { given: budgets.len(), partitions: self.accounts.len() });
        }
        let sum = budgets.iter().map(|&budget| u128::from(budget)).sum();
        if sum > u128::from(total_bytes) {
            return Err(PlanError::OverTotal { sum, total_bytes });
        }
        Ok(())
    }

    pub(crate) fn plan(&self) -> CachePlan {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Relaxed)
    }

    #[inline]
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Relaxed)
    }

    #[inline]
    pub(crate) fn total_used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Largest charge of an item in `partition`: its budget, or the total under `Shared`.
    #[inline]
    pub(crate) fn budget(&self, partition: PartitionId) -> u64 {
        self.accounts[partition.index()].budget.load(Relaxed).min(self.total_bytes())
    }

    pub(crate) fn used(&self, partition: PartitionId) -> u64 {
        self.accounts[partition.index()].used.load(Relaxed)
    }

    pub(crate) fn add(&self, partition: PartitionId, bytes: u64) {
        self.accounts[partition.index()].used.fetch_add(bytes, Relaxed);
        self.used.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn release(&self, partition: PartitionId, bytes: u64) {
        self.accounts[partition.index()].used.fetch_sub(bytes, Relaxed);
        self.used.fetch_sub(bytes, Relaxed);
    }

    /// Counts `new` used bytes of a partition in place of `old` ones. Writes nothing if they are
    /// equal.
    #[inline]
    pub(crate) fn exchange(&self, partition: PartitionId, old: u64, new: u64) {
        match new.cmp(&old) {
            Ordering::Greater => self.add(partition, new - old),
            Ordering::Less => self.release(partition, old - new),
            Ordering::Equal => {}
        }
    }

    /// Bytes by which `partition` (all items under `Shared`) would be over its budget with `bytes`
    /// more.
    #[inline]
    pub(crate) fn excess_with(&self, partition: PartitionId, bytes: u64) -> u64 {
        let (used, budget) = match self.is_shared() {
            true => (self.total_used(), self.total_bytes()),
            false => (self.used(partition), self.accounts[partition.index()].budget.load(Relaxed)),
        };
        (used + bytes).saturating_sub(budget)
    }

    /// Bytes by which `partition` is over its budget.
    #[inline]
    pub(crate) fn excess(&self, partition: PartitionId) -> u64 {
        let account = &self.accounts[partition.index()];
        account.used.load(Relaxed).saturating_sub(account.budget.load(Relaxed))
    }

    #[inline]
    pub(crate) fn is_over(&self, partition: PartitionId) -> bool {
        self.excess(partition) > 0
    }

    /// Bytes by which the total is exceeded.
    pub(crate) fn total_excess(&self) -> u64 {
        self.total_used().saturating_sub(self.total_bytes())
    }

    #[inline]
    pub(crate) fn ceiling(&self) -> u64 {
        self.ceiling.load(Relaxed)
    }

    pub(crate) fn set_ceiling(&self, bytes: u64) {
        self.ceiling.store(bytes.min(self.total_bytes()), Relaxed);
    }

    #[inline]
    pub(crate) fn is_ceiling_over(&self) -> bool {
        self.total_used() > self.ceiling()
    }

    /// The partition with items that exceeds its budget by the most bytes (or, if none does, is
    /// nearest to it), the first of equals; with its excess.
    pub(crate) fn most_over(&self) -> Option<(PartitionId, i128)> {
        let mut most = None;
        for (index, account) in self.accounts.iter().enumerate() {
            let excess = account.excess();
            if account.used.load(Relaxed) > 0 && most.is_none_or(|(_, least)| excess > least) {
                most = Some((PartitionId::from_index(index), excess));
            }
        }
        most
    }
}

impl Account {
    fn excess(&self) -> i128 {
        i128::from(self.used.load(Relaxed)) - i128::from(self.budget.load(Relaxed))
    }
}

/// Reason why a plan was not applied. The plan in force is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The plan is for another number of partitions.
    #[error("the plan has {given} budgets for {partitions} partitions: give one for each")]
    Partitions {
        /// Number of budgets in the plan.
        given: usize,
        /// Number of partitions of the cache.
        partitions: usize,
    },
    /// The budgets exceed the total.
    #[error("the plan's budgets sum to {sum} bytes, more than the total of {total_bytes}")]
    OverTotal {
        /// Sum of the budgets in bytes.
        sum: u128,
        /// Total of the cache in bytes.
        total_bytes: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_plan_leaves_the_plan_in_force_unchanged() {
        let ledger = Ledger::new(10, vec![4, 6]);
        let too_many = ledger.apply(&CachePlan::Budgets(vec![1, 2, 3]));
        assert_eq!(too_many, Err(PlanError::Partitions { given: 3, partitions: 2 }));
        let too_much = ledger.apply(&CachePlan::Budgets(vec![u64::MAX, u64::MAX]));
        assert_eq!(too_much, Err(PlanError::OverTotal { sum: 2 * u128::from(u64::MAX), total_bytes: 10 }));
        assert_eq!(ledger.plan(), CachePlan::Budgets(vec![4, 6]));
    }

    #[test]
    fn changed_total_comes_with_a_plan_that_fits_it_and_moves_the_ceiling() {
        let ledger = Ledger::new(100, vec![40, 60]);
        ledger.add(PartitionId(0), 90);
        let plan = CachePlan::Budgets(vec![20, 30]);
        assert_eq!(ledger.resize(49, &plan), Err(PlanError::OverTotal { sum: 50, total_bytes: 49 }));
        assert_eq!((ledger.total_bytes(), ledger.plan()), (100, CachePlan::Budgets(vec![40, 60])));
        ledger.resize(50, &plan).unwrap();
        assert_eq!((ledger.total_bytes(), ledger.ceiling(), ledger.total_excess()), (50, 50, 40));
        ledger.set_ceiling(30);
        ledger.resize(60, &plan).unwrap();
        assert_eq!(ledger.ceiling(), 30, "it was lowered for another reason");
        ledger.resize(20, &CachePlan::Shared).unwrap();
        assert_eq!((ledger.ceiling(), ledger.total_excess()), (20, 70));
    }

    #[test]
    fn partition_most_over_budget_is_by_bytes_and_first_of_equals() {
        let ledger = Ledger::new(100, vec![10, 50, 0]);
        assert_eq!(ledger.most_over(), None);
        ledger.add(PartitionId(0), 30);
        ledger.add(PartitionId(1), 70);
        assert_eq!(ledger.most_over(), Some((PartitionId(0), 20)));
        ledger.add(PartitionId(1), 1);
        assert_eq!(ledger.most_over(), Some((PartitionId(1), 21)));
    }

    #[test]
    fn no_partition_is_over_its_budget_under_a_shared_plan() {
        let ledger = Ledger::new(100, vec![0, 0]);
        ledger.add(PartitionId(0), 70);
        assert!(ledger.is_over(PartitionId(0)));
        ledger.apply(&CachePlan::Shared).unwrap();
        assert!(ledger.is_shared() && !ledger.is_over(PartitionId(0)));
        assert_eq!(ledger.budget(PartitionId(1)), 100);
    }
}
