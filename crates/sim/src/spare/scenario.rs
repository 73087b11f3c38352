//! Applications, and the work of their pages and queries.

use std::time::Duration;

use sherwood_model::SplitMix64;
use sherwood_workload::normal_quantile;

use crate::traffic::stream;

/// An application of two tiers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// The scenario's name.
    pub name: &'static str,
    /// Description, for help texts.
    pub about: &'static str,
    /// Pages per second, unless the setting gives another rate.
    pub rate: f64,
    /// Tokens of a server in each tier, unless the setting gives others: those of the paper.
    pub tokens: [u32; 2],
    /// Number of queries of a page, one after the other.
    pub queries: u16,
    page: Law,
    query: Law,
}

/// Distribution of the work of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Law {
    /// Mean time of a core.
    mean_ms: f64,
    spread: Spread,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Spread {
    /// Log-normal, with this standard deviation of the logarithm.
    LogNormal(f64),
    Exponential,
}

/// All scenarios. The work was set, with [`none`](super::policies) alone and the seeds 101 to 105,
/// so that latencies are the paper's: for MediaWiki, a mean of 482 ms in pattern 1 at 20 pages a
/// second, of which 127 in queries; for Solr, those of its table 4 at 40 pages a second, together
/// with the mean slowdown by neighbours.
pub const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "spare-mediawiki",
        about: "sPARE's web server: pages of 60 queries; policies and settings of its own",
        rate: 20.0,
        tokens: [1, 12],
        queries: 60,
        page: Law { mean_ms: 355.0, spread: Spread::LogNormal(0.3) },
        query: Law { mean_ms: 1.33, spread: Spread::Exponential },
    },
    Scenario {
        name: "spare-solr",
        about: "sPARE's web search: pages of one query; policies and settings of its own",
        rate: 40.0,
        tokens: [1, 3],
        queries: 1,
        page: Law { mean_ms: 15.0, spread: Spread::LogNormal(0.1) },
        query: Law { mean_ms: 7.5, spread: Spread::LogNormal(0.1) },
    },
];

impl Scenario {
    /// Returns the scenario called `name`; none if there is no such scenario.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        SCENARIOS.into_iter().find(|scenario| scenario.name == name)
    }

    /// Number of parts of a page, between which queries are asked.
    fn parts(&self) -> u32 {
        u32::from(self.queries) + 1
    }
}

/// The work of each page and query of a run: the same for all copies, and with the same seed for
/// all policies.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    scenario: Scenario,
    seed: u64,
}

/// Number of the stream of draws for the work of pages and queries.
const SIZES: u64 = 2;

impl Sizes {
    pub(super) fn new(scenario: Scenario, seed: u64) -> Self {
        Self { scenario, seed: rand_core::Rng::next_u64(&mut stream(seed, SIZES)) }
    }

    /// Returns the time of a core that each part of a page takes, of which it has one more than
    /// queries.
    pub(super) fn part(&self, page: u64) -> Duration {
        self.scenario.page.work(self.draw(page, 0)) / self.scenario.parts()
    }

    /// Returns the time of a core that a page takes.
    pub(super) fn page(&self, page: u64) -> Duration {
        self.part(page) * self.scenario.parts()
    }

    /// Returns the time of a core that a query of a page takes.
    pub(super) fn query(&self, page: u64, query: u16) -> Duration {
        self.scenario.query.work(self.draw(page, u64::from(query) + 1))
    }

    /// Returns the time of a core that a page takes together with its queries, without copies.
    pub(super) fn whole(&self, page: u64) -> Duration {
        let queries = (0..self.scenario.queries).map(|query| self.query(page, query));
        self.page(page) + queries.sum::<Duration>()
    }

    /// Returns random bits for a page (number 0) or one of its queries.
    fn draw(&self, page: u64, number: u64) -> u64 {
        SplitMix64::new(self.seed ^ ((page << 16) | number)).next_u64()
    }
}

impl Law {
    fn work(self, bits: u64) -> Duration {
        let p = ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let ratio = match self.spread {
            Spread::LogNormal(sigma) => libm::exp(sigma * normal_quantile(p) - sigma * sigma / 2.0),
            Spread::Exponential => -libm::log(1.0 - p),
        };
        Duration::from_secs_f64(ratio * self.mean_ms / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_the_mean_of_its_law_and_does_not_depend_on_the_order_of_draws() {
        for scenario in SCENARIOS {
            let sizes = Sizes::new(scenario, 7);
            let mean = |work: &dyn Fn(u64) -> Duration| {
                (0..20_000).map(work).sum::<Duration>().as_secs_f64() / 20_000.0 * 1e3
            };
            let [page, query] =
                [mean(&|page| sizes.page(page)), mean(&|page| sizes.query(page / 2, (page % 2) as u16))];
            assert!((page / scenario.page.mean_ms - 1.0).abs() < 0.01, "{page}");
            assert!((query / scenario.query.mean_ms - 1.0).abs() < 0.02, "{query}");
            assert_ne!(sizes.page(1), sizes.page(2));
            assert_ne!(Sizes::new(scenario, 8).page(1), sizes.page(1));
        }
    }
}
