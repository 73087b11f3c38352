//! All divisions among a few tenants, on a coarse grid.
//!
//! Prices and exchanges between two tenants can miss divisions that only pay if three tenants move
//! at once. Up to four tenants, every division into chunks can be tried.

use super::grid::{Grid, largest};

/// Most tenants for which all divisions are tried.
const TENANTS_MAX: usize = 4;
/// Number of chunks: 6,545 divisions among four tenants.
const CHUNKS: u64 = 32;

/// Returns the best of all divisions of the total into 32 chunks that respect the floors; none
/// above four tenants, or if no such division exists.
pub(super) fn best(grid: &Grid) -> Option<Vec<u64>> {
    let tenants = grid.tenants();
    if tenants > TENANTS_MAX {
        return None;
    }
    let sizes: Vec<u64> = (0..=CHUNKS).map(|chunks| bytes(grid, chunks)).collect();
    let mut costs = Vec::with_capacity(tenants * sizes.len() * grid.resources);
    for tenant in 0..tenants {
        for &bytes in &sizes {
            let start = costs.len();
            costs.resize(start + grid.resources, 0.0);
            grid.add_at(tenant, bytes, 1.0, &mut costs[start..]);
        }
    }
    let mut search = Search { grid, sizes, costs, chunks: vec![0; tenants], best: None };
    search.tenant(0, CHUNKS as usize, &vec![0.0; grid.resources]);
    let Search { sizes, best, .. } = search;
    best.map(|(_, chunks)| chunks.into_iter().map(|chunks| sizes[chunks]).collect())
}

fn bytes(grid: &Grid, chunks: u64) -> u64 {
    let bytes = u128::from(grid.total_bytes) * u128::from(chunks) / u128::from(CHUNKS);
    u64::try_from(bytes).expect("at most the total")
}

struct Search<'a> {
    grid: &'a Grid,
    sizes: Vec<u64>,
    /// Costs by tenant, chunks and resource.
    costs: Vec<f64>,
    chunks: Vec<usize>,
    best: Option<(f64, Vec<usize>)>,
}

impl Search<'_> {
    /// Tries all chunks of `tenant` and of those after it, which share `left`; `sums` are the costs
    /// of those before. The last tenant takes what is left.
    fn tenant(&mut self, tenant: usize, left: usize, sums: &[f64]) {
        if tenant == self.chunks.len() {
            let cost = largest(sums);
            if self.best.as_ref().is_none_or(|(best, _)| cost < *best) {
                self.best = Some((cost, self.chunks.clone()));
            }
            return;
        }
        let last = tenant + 1 == self.chunks.len();
        for chunks in if last { left } else { 0 }..=left {
            if self.sizes[chunks] < self.grid.sizes(tenant)[0] {
                continue;
            }
            let start = (tenant * self.sizes.len() + chunks) * self.grid.resources;
            let costs = &self.costs[start..start + self.grid.resources];
            let sums: Vec<f64> = sums.iter().zip(costs).map(|(sum, cost)| sum + cost).collect();
            self.chunks[tenant] = chunks;
            self.tenant(tenant + 1, left - chunks, &sums);
        }
    }
}
