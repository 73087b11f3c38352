//! The control loop: what it observes of the tenants, and when it decides.

use std::time::Duration;

use sherwood_cache::Cache;
use sherwood_control::{Act, Admission, ControlLoop, Levels, Pin, Said, Seen};
use sherwood_model::{BackendId, CachePlan, Instant, Legs, PartitionId, Plan, ResourceKind, TenantId};
use sherwood_path::DemandCounts;
use sherwood_policy::tenants::{
    Division, MissCurve, ReadCounts, Share, TenantControlOptions, TenantController, TenantCounts,
    TenantObservation, TenantOptions, TenantPartition, TenantResource, TenantTerms, UnitCounts, by_name,
};
use sherwood_policy::{Options, TwoLevels};
use sherwood_workload::tenants::{
    self as workload, Control as Spec, Decide, Kind, Resource, Scenario, Tenant,
};

use super::part::{Asked, Part};
use super::setup::{Setup, SetupError};
use super::within::{self, Statistics};

/// The control loop around both levels, and the times at which they have something to do.
pub(super) struct Control {
    rounds: ControlLoop,
    decide: Decide,
    resources: Vec<Counted>,
    /// Time of the next [`advance`](Self::advance); none after a single decision.
    due: Option<Instant>,
    /// The plan of a single decision, which is applied at once.
    once: Option<Plan>,
    /// Statistics for the policy within tenants; none without one.
    statistics: Option<Statistics>,
    pub(super) decisions: u64,
    pub(super) applied: u64,
}

/// A resource that is counted.
struct Counted {
    resource: Resource,
    kind: ResourceKind,
    legs: Legs,
}

/// Result of [`Control::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// The plan is as before.
    Same,
    /// The plan has changed.
    Changed,
    /// The plan has changed, and caches are to be filled as after a long time.
    Refill,
}

impl Control {
    pub(super) fn new(setup: &Setup, scenario: &Scenario, parts: &[Part]) -> Result<Self, SetupError> {
        let Spec { decide, period, window, salt, apply_over } = scenario.control;
        let (begins, period, window) = match decide {
            Decide::Live => (Instant::ZERO, period.0, window.0.max(period.0)),
            Decide::Once => {
                let middle = scenario.warm_up.0 / 2;
                let window = window.0.min(middle);
                (Instant::ZERO + middle - window, window, window)
            }
        };
        let options = TenantControlOptions { period, window, salt, apply_over, ..Default::default() };
        let resources: Vec<Counted> =
            scenario.resources.iter().map(|resource| Counted::new(resource, scenario)).collect();
        let described = resources.iter().map(|counted| counted.described(scenario)).collect();
        let least = scenario.tenants.iter().map(|tenant| tenant.cache.0).min().unwrap_or(0);
        let chunk_bytes = (least / CHUNKS).max(1);
        let policy = by_name(&setup.policy, TenantOptions { chunk_bytes, conserving: true })?;
        let terms = scenario.tenants.iter().map(|tenant| terms(tenant, scenario)).collect();
        let between = TenantController::new(policy, options, described, scenario.cache_bytes(), terms)?;
        let levels = TwoLevels::new(between, within::controllers(setup, scenario, parts)?)?;
        let levels = Levels::Two(Box::new(levels));
        let (admission, pins) = (Admission::default(), vec![Pin::default(); parts.len()]);
        Ok(Self {
            rounds: ControlLoop::new(levels, admission, Options::default(), pins, Instant::ZERO),
            decide,
            resources,
            due: Some(begins),
            once: None,
            statistics: setup.knobs.within.is_some().then(|| Statistics::new(scenario, parts)),
            decisions: 0,
            applied: 0,
        })
    }

    /// The plan in force.
    pub(super) fn plan(&self) -> Plan {
        self.once.clone().unwrap_or_else(|| self.rounds.levels().plan())
    }

    /// The level between tenants.
    fn between(&self) -> &TenantController {
        self.rounds.levels().tenants().expect("there are two levels").between()
    }

    /// True if tenants share one cache and common rates.
    pub(super) fn shares_all(&self) -> bool {
        self.between().policy().shares_all()
    }

    /// Bytes of cache of all partitions of a tenant.
    pub(super) fn bytes(&self, tenant: TenantId, parts: &[Part]) -> u64 {
        match self.plan().cache {
            CachePlan::Budgets(budgets) => {
                let own = parts.iter().zip(budgets).filter(|(part, _)| part.tenant == tenant);
                own.map(|(_, bytes)| bytes).sum()
            }
            CachePlan::Shared => self.between().bytes()[tenant.index()],
        }
    }

    /// The kind of each resource, in the order of the scenario.
    pub(super) fn kinds(&self) -> Vec<ResourceKind> {
        self.resources.iter().map(|counted| counted.kind).collect()
    }

    /// Time of the next [`advance`](Self::advance); none if there is none.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Statistics for the policy within tenants; none without one.
    pub(super) fn statistics(&mut self) -> Option<&mut Statistics> {
        self.statistics.as_mut()
    }

    /// Least gain of the last decision's division, and its bound.
    pub(super) fn predicted(&self) -> (f64, Option<f64>) {
        let latest = self.between().latest();
        latest.map_or((1.0, None), |decision| (decision.division.gain, decision.division.bound))
    }

    /// Units of each resource that a tenant took, or would have taken, since the start.
    pub(super) fn units(&self, asked: &[Asked]) -> Vec<UnitCounts> {
        self.resources.iter().map(|counted| counted.units(asked)).collect()
    }

    /// Number of times that the bytes of a miss or a write count for network; 0 without network.
    pub(super) fn legs(&self) -> u64 {
        let network = self.resources.iter().find(|counted| counted.kind == ResourceKind::Network);
        network.map_or(0, |network| network.legs.count())
    }

    /// Has the level between tenants observe, decide and take a step. `asked` is what each tenant
    /// asked of its partitions, and `waiting` how many of its operations wait for units.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        cache: &Cache,
        asked: &[Vec<Asked>],
        waiting: &[u32],
    ) -> Round {
        let reads_curves = now >= self.between().decides_at();
        let seen = asked.iter().zip(waiting).map(|(asked, &waiting)| TenantObservation {
            counts: TenantCounts {
                requests: asked.iter().map(|asked| asked.counts.requests()).sum(),
                units: self.units(asked),
            },
            waiting,
            refused: 0,
            partitions: asked.iter().map(|asked| observed(cache, asked, reads_curves)).collect(),
        });
        let seen: Vec<_> = seen.collect();
        self.rounds.handle_seen(now, Seen { cache: None, tenants: Some(seen) });
        let (mut changed, mut decided) = (false, None);
        while let Some(act) = self.rounds.poll_act() {
            match act {
                Act::Apply(_) => changed = true,
                Act::Say(Said::Tenants(decision)) => decided = Some(decision),
                // The simulated curves cover the whole run.
                Act::FadeCurves | Act::Say(_) => {}
            }
        }
        // A controller that is late asks for the present again; time has to pass.
        self.due = Some(self.between().next_timeout().max(now + STEP_MIN));
        if let Some(decision) = &decided {
            self.decisions += 1;
            self.applied += u64::from(decision.kept.is_none());
            if self.decide == Decide::Once {
                self.due = None;
                if decision.kept.is_none() {
                    self.once = Some(scaled(&decision.division, cache, asked));
                }
                return if self.once.is_some() { Round::Refill } else { Round::Same };
            }
        }
        if changed { Round::Changed } else { Round::Same }
    }

    /// Has the policy within each tenant divide the tenant's cache.
    pub(super) fn decide_within(&mut self, now: Instant, cache: &Cache, asked: &[Vec<Asked>]) {
        let Some(statistics) = &mut self.statistics else { return };
        let seen = statistics.observe(now, &self.rounds.levels().needs(), cache, asked);
        self.rounds.handle_seen(now, Seen { cache: Some(seen), tenants: None });
        // The caller puts the plan in force.
        while self.rounds.poll_act().is_some() {}
    }
}

impl Counted {
    fn new(resource: &Resource, scenario: &Scenario) -> Self {
        let named = resource.backend.as_deref().and_then(|name| scenario.backend(name));
        let backend = BackendId::from_index(named.unwrap_or(0));
        let kind = match resource.kind {
            Kind::Reads => ResourceKind::Reads(backend),
            Kind::Writes => ResourceKind::Writes(backend),
            Kind::Network => ResourceKind::Network,
        };
        let legs = match resource.legs {
            workload::Legs::Both => Legs::Both,
            workload::Legs::Client => Legs::Client,
        };
        Self { resource: resource.clone(), kind, legs }
    }

    fn described(&self, scenario: &Scenario) -> TenantResource {
        let name = self.resource.name.clone();
        let total_per_s = scenario.tenants.iter().map(|tenant| tenant.rates[&name]).sum();
        TenantResource { name, kind: self.kind, total_per_s }
    }

    /// Units of the resource that a tenant took, or would have taken.
    fn units(&self, asked: &[Asked]) -> UnitCounts {
        let mut units = UnitCounts::default();
        for Asked { backend, counts, read_units, .. } in asked {
            match self.kind {
                ResourceKind::Reads(of) if of == *backend => {
                    units.add_read(0.0, counts.read_units_if_miss as f64, *read_units);
                }
                ResourceKind::Writes(of) if of == *backend => units.add_write(counts.write_units as f64),
                ResourceKind::Network => {
                    let [if_hit, if_miss, used] = [
                        counts.network_if_hit(self.legs),
                        counts.network_if_miss(self.legs),
                        counts.network(self.legs),
                    ];
                    units.add_read(if_hit as f64, if_miss as f64, used as f64);
                }
                ResourceKind::Reads(_) | ResourceKind::Writes(_) => {}
            }
        }
        units
    }
}

/// Returns the observation of a partition.
fn observed(cache: &Cache, asked: &Asked, reads_curve: bool) -> TenantPartition {
    let Asked { partition, backend, counts, .. } = *asked;
    let usage = cache.usage(partition);
    let DemandCounts { hits, misses, joined, .. } = counts;
    TenantPartition {
        backend,
        budget_bytes: usage.budget_bytes,
        used_bytes: usage.used_bytes,
        reads: ReadCounts { hits, misses, joined },
        curve: if reads_curve { curve(cache, partition) } else { None },
    }
}

/// Returns the plan of a division in which each tenant's partitions have the parts that they have
/// now.
fn scaled(division: &Division, cache: &Cache, asked: &[Vec<Asked>]) -> Plan {
    let mut budgets = Vec::new();
    for (asked, &bytes) in asked.iter().zip(&division.bytes) {
        let now = asked.iter().map(|asked| u128::from(cache.usage(asked.partition).budget_bytes));
        let sum: u128 = now.clone().sum();
        budgets.extend(now.map(|budget| (budget * u128::from(bytes) / sum.max(1)) as u64));
    }
    Plan { rates: Some(division.rates.clone()), ..CachePlan::Budgets(budgets).into() }
}

/// Returns the terms of a tenant: its baseline, and no least share beside the controller's own.
fn terms(tenant: &Tenant, scenario: &Scenario) -> TenantTerms {
    let rates = scenario.resources.iter().map(|resource| tenant.rates[&resource.name]).collect();
    let base = Share { bytes: tenant.cache.0, rates };
    TenantTerms { name: tenant.name.clone(), weight: 1.0, base: Some(base), min: Share::default() }
}

/// Returns the miss ratio curve of a partition; none without one.
pub(super) fn curve(cache: &Cache, partition: PartitionId) -> Option<MissCurve> {
    let curve = cache.miss_ratio_curve(partition)?;
    Some(MissCurve { misses_per_read: curve.misses(), sampled_reads: curve.sampled_gets })
}

/// Chunks of a baseline that policies with chunks move at a time, as in the published evaluation.
const CHUNKS: u64 = 64;
/// Least time between two observations.
const STEP_MIN: Duration = Duration::from_millis(1);
