//! From the plan that was decided to the one that is in force.

use sherwood_model::CachePlan;

use crate::setup::Resize;

/// Where a cache is on its way to the plan it was last given.
#[derive(Clone)]
pub(crate) struct Resizing {
    speed: Resize,
    /// Budgets in force.
    budgets: Vec<u64>,
    /// Budgets it is on its way to.
    target: Option<Vec<u64>>,
}

impl Resizing {
    pub(crate) fn new(speed: Resize, budgets: Vec<u64>) -> Self {
        Self { speed, budgets, target: None }
    }

    /// The plan to put in force now that `plan` was decided.
    pub(crate) fn plan(&mut self, plan: CachePlan, total_bytes: u64) -> CachePlan {
        match (self.speed, plan) {
            (Resize::BytesPerSecond(_), CachePlan::Budgets(target)) => {
                let first = self.target.is_none();
                self.target = Some(target);
                // The first second of a resize begins with the decision; one that is under way
                // keeps its pace.
                let next = if first { self.next(total_bytes) } else { None };
                next.unwrap_or_else(|| CachePlan::Budgets(self.budgets.clone()))
            }
            (_, plan) => plan,
        }
    }

    /// The plan for the next second, while there is a way to go.
    pub(crate) fn next(&mut self, total_bytes: u64) -> Option<CachePlan> {
        let (Resize::BytesPerSecond(step), Some(target)) = (self.speed, &self.target) else { return None };
        for (budget, &target) in self.budgets.iter_mut().zip(target) {
            *budget -= budget.saturating_sub(target).min(step);
        }
        let mut free = total_bytes - self.budgets.iter().sum::<u64>();
        for (budget, &target) in self.budgets.iter_mut().zip(target) {
            let gift = target.saturating_sub(*budget).min(free);
            *budget += gift;
            free -= gift;
        }
        if self.budgets == *target {
            self.target = None;
        }
        Some(CachePlan::Budgets(self.budgets.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_once_is_at_once() {
        let mut resizing = Resizing::new(Resize::AtOnce, vec![60, 40]);
        assert_eq!(resizing.plan(CachePlan::Budgets(vec![10, 90]), 100), CachePlan::Budgets(vec![10, 90]));
        assert_eq!(resizing.next(100), None);
    }

    #[test]
    fn pages_change_hands_one_second_after_another() {
        let mut resizing = Resizing::new(Resize::BytesPerSecond(20), vec![60, 40]);
        let target = CachePlan::Budgets(vec![10, 90]);
        assert_eq!(resizing.plan(target.clone(), 100), CachePlan::Budgets(vec![40, 60]));
        assert_eq!(resizing.next(100), Some(CachePlan::Budgets(vec![20, 80])));
        assert_eq!(resizing.next(100), Some(target));
        assert_eq!(resizing.next(100), None);
    }
}
