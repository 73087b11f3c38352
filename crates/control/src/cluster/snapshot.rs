//! Snapshots: made of merged statistics, and read by the nodes that follow them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sherwood_model::{RequestSelection, RequestSnapshot};
use sherwood_policy::{BandCounts, Needs, Observation};

use super::Wants;
use super::members::KnownNames;
use super::messages::{PartitionSnapshot, RequestsSnapshot, Snapshot, Stamp};

/// A snapshot whose requests are not sorted yet, which takes longest.
#[derive(Clone, Debug)]
pub struct SnapshotDraft {
    pub(super) names: Arc<KnownNames>,
    pub(super) wants: Wants,
    pub(super) stamp: Stamp,
    pub(super) nodes: Vec<(String, Stamp)>,
    /// The requests of all tenants, and then those of each tenant.
    pub(super) requests: Vec<RequestSelection>,
    pub(super) partitions: BTreeMap<String, PartitionSnapshot>,
}

impl SnapshotDraft {
    /// Counts the requests: O(n log n).
    #[must_use]
    pub fn finish(self) -> Snapshot {
        let Self { names, wants, stamp, nodes, requests, partitions } = self;
        let tenants = std::iter::once(None).chain(names.tenants().iter().cloned().map(Some));
        let requests = tenants.zip(requests);
        let requests = requests.map(|(tenant, of)| counted(tenant, of, &wants.needs, &names)).collect();
        let (has_curves, shadow_ratio) = (wants.needs.miss_ratio_curves, wants.needs.shadow_ratio);
        Snapshot { stamp, nodes, requests, has_curves, shadow_ratio, partitions }
    }
}

fn counted(
    tenant: Option<String>,
    selection: RequestSelection,
    needs: &Needs,
    names: &KnownNames,
) -> RequestsSnapshot {
    let reach = selection.reach();
    let finished = RequestSnapshot::from(selection);
    let seen = Observation::of_requests(&finished, needs, names.backends().len());
    let blocking = seen.blocking.iter().map(|of| (of.band, names.of_backends(&of.counts)));
    RequestsSnapshot {
        tenant,
        count: seen.requests,
        reach,
        latency_range: seen.latency_range,
        quantile: needs.quantile,
        tail: seen.tail,
        blocking: blocking.collect(),
    }
}

/// Observations that a policy needs and a snapshot lacks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Lack {
    /// The blocking counts of a band, in percent.
    #[error("blocking counts between the percentiles {0} and {1}")]
    Band(f64, f64),
    /// A quantile of latency, 0 to 1.
    #[error("the quantile {0} of latency")]
    Quantile(f64),
    /// The requests of a tenant.
    #[error("requests of the tenant {0:?} alone")]
    Tenant(String),
    /// The miss ratio curves.
    #[error("miss ratio curves")]
    Curves,
    /// The hits of shadow queues of this share of the total.
    #[error("hits of shadow queues of {0} of the cache")]
    ShadowHits(f64),
}

impl Snapshot {
    /// Returns the first of the wanted observations that the snapshot lacks.
    pub(super) fn lack(&self, wants: &Wants, names: &KnownNames) -> Option<Lack> {
        let needs = &wants.needs;
        if needs.miss_ratio_curves && !self.has_curves {
            return Some(Lack::Curves);
        }
        if let Some(ratio) = needs.shadow_ratio.filter(|_| self.shadow_ratio != needs.shadow_ratio) {
            return Some(Lack::ShadowHits(ratio));
        }
        if !needs.requests {
            return None;
        }
        self.wanted(wants, names).find_map(|(tenant, found)| match (tenant, found) {
            (_, Some(found)) => found.lack(needs),
            (Some(tenant), None) => Some(Lack::Tenant(tenant.clone())),
            (None, None) => needs.bands.first().map(|band| Lack::Band(band.low, band.high)),
        })
    }

    /// Returns the wanted observations of requests, each with the time that it covers; wanted ones
    /// that the snapshot lacks are empty.
    pub(super) fn observations(&self, wants: &Wants, names: &KnownNames) -> Vec<(Duration, Observation)> {
        let seen = |of: Option<&RequestsSnapshot>| {
            let of = of.cloned().unwrap_or_default();
            (of.reach, of.observation(&wants.needs, names))
        };
        self.wanted(wants, names).map(|(_, found)| seen(found)).collect()
    }

    /// The requests of each tenant where these are wanted, otherwise those of all.
    fn wanted<'a>(
        &'a self,
        wants: &Wants,
        names: &'a KnownNames,
    ) -> impl Iterator<Item = (Option<&'a String>, Option<&'a RequestsSnapshot>)> {
        let tenants = names.tenants().iter().map(Some).filter(|_| wants.by_tenant);
        let all = std::iter::once(None).filter(|_| !wants.by_tenant);
        let find = |tenant: Option<&String>| self.requests.iter().find(|of| of.tenant.as_ref() == tenant);
        tenants.chain(all).map(move |tenant| (tenant, find(tenant)))
    }
}

impl RequestsSnapshot {
    fn lack(&self, needs: &Needs) -> Option<Lack> {
        let is_counted = |band: &_| self.blocking.iter().any(|(counted, _)| counted == band);
        if let Some(band) = needs.bands.iter().find(|band| !is_counted(band)) {
            return Some(Lack::Band(band.low, band.high));
        }
        needs.quantile.filter(|_| self.quantile != needs.quantile).map(Lack::Quantile)
    }

    fn observation(self, needs: &Needs, names: &KnownNames) -> Observation {
        let counts = |&band| {
            let counted = self.blocking.iter().find(|(counted, _)| *counted == band);
            let counts = counted.map(|(_, counts)| names.by_backend(counts)).unwrap_or_default();
            BandCounts { band, counts }
        };
        Observation {
            requests: self.count,
            latency_range: self.latency_range,
            tail: self.tail.filter(|_| needs.quantile.is_some()),
            blocking: needs.bands.iter().map(counts).collect(),
            ..Observation::default()
        }
    }
}
