//! Checks that nothing is lost: inputs equal outputs plus what is still in flight.

use sherwood_model::CachePlan;

use super::{Imbalance, World};

impl World {
    /// Checks that every key looked up was a hit or a miss, that every miss was requested from a
    /// backend, and that every requested key is settled or waited for; that budgets add up to the
    /// total, and that no cache exceeds it.
    pub(super) fn balance(&self) -> Result<(), Imbalance> {
        let (mut hits, mut misses) = (0, 0);
        for server in &self.servers {
            let total = server.cache.total();
            (hits, misses) = (hits + total.hits, misses + total.misses);
        }
        self.equal("the number of hits and misses", hits + misses, self.queries)?;
        let (mut asked, mut settled) = (0, 0);
        for stats in self.machines().map(|machine| machine.stats()) {
            let counters = stats.counters;
            asked += counters.asked;
            let ended = counters.answered + counters.timed_out + counters.failed + counters.refused;
            settled += ended + u64::from(stats.waiters);
        }
        let what = "the number of keys that backends were asked for";
        // A query of a trace may contain an object twice; one call then answers both.
        if self.sizes.is_some() {
            self.at_most(what, asked, misses)?;
        } else {
            self.equal(what, asked, misses)?;
        }
        self.equal("the number of keys answered, failed or waited for", settled, asked)?;
        self.balance_bytes()
    }

    fn balance_bytes(&self) -> Result<(), Imbalance> {
        for server in &self.servers {
            let total = server.cache.total_bytes();
            self.at_most("bytes in a cache", server.cache.used_bytes(), total)?;
            if let CachePlan::Budgets(budgets) = server.cache.plan() {
                self.equal("the sum of budgets", budgets.iter().sum(), total)?;
            }
        }
        Ok(())
    }

    fn equal(&self, what: &'static str, found: u64, expected: u64) -> Result<(), Imbalance> {
        if found == expected { Ok(()) } else { Err(self.imbalance(what, found, expected)) }
    }

    fn at_most(&self, what: &'static str, found: u64, expected: u64) -> Result<(), Imbalance> {
        if found <= expected { Ok(()) } else { Err(self.imbalance(what, found, expected)) }
    }

    fn imbalance(&self, what: &'static str, found: u64, expected: u64) -> Imbalance {
        Imbalance { seconds: self.now.as_nanos() / 1_000_000_000, what, found, expected }
    }
}
