//! Gradual application of a decided plan.

use sherwood_model::CachePlan;

use crate::setup::Resize;

/// Progress of a cache towards the partition budgets of the plan it was last given.
#[derive(Clone)]
pub(crate) struct Resizing {
    speed: Resize,
    /// Budgets of the partitions that are in force, bytes.
    budgets: Vec<u64>,
    /// Budgets to be reached; none if they are in force already.
    target: Option<Vec<u64>>,
}

impl Resizing {
    pub(crate) fn new(speed: Resize, budgets: Vec<u64>) -> Self {
        Self { speed, budgets, target: None }
    }

    /// Returns the plan to put in force after `plan` was decided.
    pub(crate) fn plan(&mut self, plan: CachePlan, total_bytes: u64) -> CachePlan {
        match (self.speed, plan) {
            (Resize::BytesPerSecond(_), CachePlan::Budgets(target)) => {
                let first = self.target.is_none();
                self.target = Some(target);
                // The first second of a resize begins with the decision; a resize in progress keeps
                // its pace.
                let next = if first { self.next(total_bytes) } else { None };
                next.unwrap_or_else(|| CachePlan::Budgets(self.budgets.clone()))
            }
            (_, plan) => plan,
        }
    }

    /// Returns the plan for the next second; none if the target budgets are reached.
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
    fn resize_at_once_applies_the_plan_immediately() {
        let mut resizing = Resizing::new(Resize::AtOnce, vec![60, 40]);
        assert_eq!(resizing.plan(CachePlan::Budgets(vec![10, 90]), 100), CachePlan::Budgets(vec![10, 90]));
        assert_eq!(resizing.next(100), None);
    }

    #[test]
    fn resize_by_rate_moves_bytes_second_by_second() {
        let mut resizing = Resizing::new(Resize::BytesPerSecond(20), vec![60, 40]);
        let target = CachePlan::Budgets(vec![10, 90]);
        assert_eq!(resizing.plan(target.clone(), 100), CachePlan::Budgets(vec![40, 60]));
        assert_eq!(resizing.next(100), Some(CachePlan::Budgets(vec![20, 80])));
        assert_eq!(resizing.next(100), Some(target));
        assert_eq!(resizing.next(100), None);
    }
}
