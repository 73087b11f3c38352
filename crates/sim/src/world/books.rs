//! Checks that nothing is lost: inputs equal outputs plus what is still in flight.

use sherwood_model::CachePlan;

use super::{Family, Imbalance, Simulation};

impl<F: Family> Simulation<F> {
    /// Checks that every request has ended or is in flight, that every key requested from a backend
    /// has a result or is waited for, and that neither budgets nor caches exceed their totals.
    pub(super) fn balance(&self) -> Result<(), Imbalance> {
        F::balance(self)?;
        let requests = self.ended + self.live.iter().count() as u64;
        self.equal("the number of requests that ended or are waiting", requests, self.began)?;
        let (mut asked, mut settled) = (0, 0);
        for stats in self.nodes.iter().flat_map(|node| &node.machines).map(|machine| machine.stats()) {
            let counters = stats.counters;
            asked += counters.asked;
            let ended = counters.answered + counters.timed_out + counters.failed + counters.refused;
            settled += ended + u64::from(stats.waiters);
        }
        self.equal("the number of keys answered, failed or waited for", settled, asked)?;
        for node in &self.nodes {
            let total = node.cache.total_bytes();
            self.at_most("bytes in a cache", node.cache.used_bytes(), total)?;
            if let CachePlan::Budgets(budgets) = node.cache.plan() {
                self.at_most("the sum of budgets", budgets.iter().sum(), total)?;
            }
        }
        Ok(())
    }

    pub(crate) fn equal(&self, what: &'static str, found: u64, expected: u64) -> Result<(), Imbalance> {
        if found == expected { Ok(()) } else { Err(self.imbalance(what, found, expected)) }
    }

    pub(crate) fn at_most(&self, what: &'static str, found: u64, expected: u64) -> Result<(), Imbalance> {
        if found <= expected { Ok(()) } else { Err(self.imbalance(what, found, expected)) }
    }

    fn imbalance(&self, what: &'static str, found: u64, expected: u64) -> Imbalance {
        Imbalance { seconds: self.now.as_nanos() / 1_000_000_000, what, found, expected }
    }
}
