//! Counts of finished requests by tenant, blocking backend and latency.

use std::collections::BTreeMap;

use crate::{BackendId, FinishedRequest, LatencyBucket, TenantId};

/// Number of requests by tenant, blocking backend and middle of the latency bucket.
///
/// A table has at most 16,384 cells, and beyond them one for each further tenant and backend; a
/// request that would need another cell is counted in that of its tenant and backend with the
/// nearest latency.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    cells: BTreeMap<Cell, u64>,
}

type Cell = (Sender, u32);
/// Tenant and blocking backend.
type Sender = (TenantId, Option<BackendId>);

/// Largest number of cells of a table: four times those of 20 backends with 200 buckets each; about
/// half a megabyte.
const CELLS_MAX: usize = 16_384;

impl Table {
    /// Counts `times` equal requests. Logarithmic in the number of cells.
    pub(crate) fn add(&mut self, request: FinishedRequest, times: u64) {
        let middle = LatencyBucket::of(request.latency_us).middle_us();
        let cell = ((request.tenant, request.blocking()), middle);
        if self.cells.len() >= CELLS_MAX
            && !self.cells.contains_key(&cell)
            && let Some(nearest) = self.nearest(cell)
        {
            *self.cells.get_mut(&nearest).expect("it was found there") += times;
            return;
        }
        *self.cells.entry(cell).or_default() += times;
    }

    /// Returns the cell with the same tenant and backend as `cell` and the nearest latency.
    fn nearest(&self, cell: Cell) -> Option<Cell> {
        let (sender, middle) = cell;
        let below = self.cells.range((sender, 0)..cell).next_back();
        let above = self.cells.range(cell..=(sender, u32::MAX)).next();
        below.into_iter().chain(above).map(|(&cell, _)| cell).min_by_key(|cell| cell.1.abs_diff(middle))
    }

    /// Returns true if a request of this tenant and blocking backend was counted.
    pub(crate) fn has(&self, tenant: TenantId, blocking: Option<BackendId>) -> bool {
        let sender = (tenant, blocking);
        self.cells.range((sender, 0)..=(sender, u32::MAX)).next().is_some()
    }

    /// The cells as a tenant, a blocking backend, a latency in microseconds and a number of
    /// requests, in this order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TenantId, Option<BackendId>, u32, u64)> {
        self.cells.iter().map(|(&((tenant, backend), middle), &count)| (tenant, backend, middle, count))
    }

    /// Returns true if no request was counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_counted_requests_stays_within_its_bound_of_cells() {
        let mut table = Table::default();
        for i in 0..200_000_u32 {
            let latency = std::time::Duration::from_micros(i.wrapping_mul(0x9E37_79B9).into());
            table.add(FinishedRequest::new(latency, Some(BackendId((i % 50) as u16))), 1);
        }
        assert!(table.cells.len() <= CELLS_MAX + 50);
        assert_eq!(table.iter().map(|cell| cell.3).sum::<u64>(), 200_000);
    }
}
