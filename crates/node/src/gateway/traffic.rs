//! The traffic of the gateway's clients, which keeps to the rates of their tenants.

use std::sync::Arc;

use axum::http::StatusCode;
use bytes::Bytes;
use sherwood_model::{Instant, TenantId};
use sherwood_path::Query;
use sherwood_ports::http::Problem;

use crate::core::Core;

/// The traffic of a request.
pub(super) struct Traffic<'a> {
    pub(super) core: &'a Arc<Core>,
    /// The tenant of the request; none if no tenant pays for it.
    pub(super) tenant: Option<TenantId>,
}

impl Traffic<'_> {
    /// Waits until the tenant's debt is paid and its earlier requests have started, and charges the
    /// `bytes` of the request.
    ///
    /// # Errors
    /// If the wait would exceed the request's earliest deadline or the longest timeout of its
    /// backends, or if too many requests wait.
    pub(super) async fn admit(
        &self,
        arrival: Instant,
        bytes: usize,
        stages: &[Vec<Query<Bytes>>],
    ) -> Result<(), Problem> {
        let (Some(network), Some(tenant)) = (&self.core.network, self.tenant) else { return Ok(()) };
        let timeout = stages.iter().flatten().map(|query| query.timeout).max().unwrap_or_default();
        let deadlines = stages.iter().flatten().filter_map(|query| query.demand.deadline);
        let latest = deadlines.min().unwrap_or(Instant::NEVER).min(arrival + timeout);
        network.admit(tenant, bytes, latest).await.map_err(|refusal| {
            let error = format!("the request was refused because of the tenant's rate of network: {refusal}");
            Problem::new(StatusCode::TOO_MANY_REQUESTS, error).retry_in(refusal.retry_in())
        })
    }

    /// Charges the bytes of the answer to the tenant.
    pub(super) fn charge(&self, bytes: usize) {
        if let (Some(network), Some(tenant)) = (&self.core.network, self.tenant) {
            network.charge_answer(tenant, bytes);
        }
    }
}
