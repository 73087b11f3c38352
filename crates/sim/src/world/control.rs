//! Rounds of a node's control loop. Plans take effect here and nowhere else.

use sherwood_control::{Act, Admission, ControlLoop, Levels, Pin, Said, Seen};
use sherwood_model::{DemandKind, Instant, Plan, Rates, ResourceId, ResourceKind, TenantId};
use sherwood_policy::{Controller, Options, by_name};

use super::node::{Node, SizedCache};
use super::{Family, Simulation};

/// Returns a control loop that leaves the cache divided into these budgets.
pub(crate) fn fixed_division(admission: Admission, budgets: Vec<u64>) -> ControlLoop {
    let options = Options::default();
    let policy = by_name(STATIC, &options).expect("there is such a policy");
    let pins = vec![Pin::default(); budgets.len()];
    let controller = Controller::new(policy, &options, vec![STATIC.to_owned(); budgets.len()], budgets);
    ControlLoop::new(Levels::One(Box::new(controller)), admission, options, pins, Instant::ZERO)
}

/// Policy that leaves the sizes of partitions unchanged.
const STATIC: &str = "static";

impl<F: Family> Simulation<F> {
    /// Passes an observation to a node's control loop, and returns the actions (acts) that it
    /// decides on.
    pub(crate) fn decide(&mut self, node: usize, seen: Seen) -> Vec<Act> {
        let control = &mut self.nodes[node].control;
        control.handle_seen(self.now, seen);
        std::iter::from_fn(|| control.poll_act()).collect()
    }

    /// Carries out the actions that a node's control loop has decided on.
    ///
    /// # Panics
    /// If the loop refused a plan of its own policies, which is a bug.
    pub(crate) fn carry_out(&mut self, node: usize, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Apply(plan) => self.apply(node, plan),
                Act::FadeCurves if self.family.fades_curves() => self.nodes[node].cache.fade_curves(),
                Act::Say(Said::Refused(refused)) => panic!("{refused}"),
                Act::FadeCurves | Act::Say(_) => {}
            }
        }
    }

    /// Puts a plan in force at a node. Rates are set first, so that a tenant that gives up cache
    /// already has the units that it gets in return.
    ///
    /// # Panics
    /// If the plan's budgets exceed the cache's total, which is a bug.
    pub(crate) fn apply(&mut self, node: usize, plan: Plan) {
        let Plan { cache: division, rates, backends } = plan;
        if let Some(rates) = rates {
            self.set_rates(node, &rates);
        }
        let now = self.now;
        let Node { cache, machines, resizing, .. } = &mut self.nodes[node];
        let division = resizing.plan(division, cache.total_bytes());
        backends.iter().for_each(|plan| machines[plan.backend.index()].apply(plan));
        self.nodes[node].divide(now, &division);
    }

    /// Applies the next step of a gradual change of budgets; called once a second.
    pub(crate) fn go_on_resizing(&mut self, node: usize) {
        let now = self.now;
        let node = &mut self.nodes[node];
        if let Some(division) = node.resizing.next(node.cache.total_bytes()) {
            node.divide(now, &division);
        }
    }

    fn set_rates(&mut self, node: usize, rates: &Rates) {
        let resources = self.nodes[node].between().resources();
        let resources: Vec<_> =
            resources.iter().map(|resource| (resource.kind, resource.total_per_s)).collect();
        for (index, (kind, total)) in resources.into_iter().enumerate() {
            let id = ResourceId::from_index(index);
            let each = (0..rates.tenants()).map(|tenant| rates.get(TenantId::from_index(tenant), id));
            let each: Vec<f64> = each.collect();
            self.set_rate(node, kind, total, if rates.are_common() { &[] } else { &each });
        }
    }

    fn set_rate(&mut self, node: usize, kind: ResourceKind, total: f64, each: &[f64]) {
        let (backend, kind) = match kind {
            ResourceKind::Network => {
                if let Some(network) = &mut self.nodes[node].network {
                    network.set_rates(self.now, total, each);
                }
                return self.admit(node as u16);
            }
            ResourceKind::Reads(backend) => (backend, DemandKind::Read),
            ResourceKind::Writes(backend) => (backend, DemandKind::Write),
        };
        let Node { cache, machines, .. } = &mut self.nodes[node];
        machines[backend.index()].set_rates(self.now, &SizedCache(cache), kind, total, each);
        self.drive(node as u16, backend);
    }
}
