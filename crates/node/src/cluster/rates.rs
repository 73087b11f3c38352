//! Rates of tenants that the nodes of a cluster share: asked of other nodes, lent to them, and set
//! at this node.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};

use sherwood_config::{ClusterSetup, TenancySetup};
use sherwood_dispatch::{PeerLoan, PeerNode, PeerRateOptions, PeerRates, RateAction, RateAsk, RateGrant};
use sherwood_model::{Instant, Rates, ResourceId};
use sherwood_process::clock::Clock;
use tokio::time::sleep;

use super::{Cluster, Direction};
use crate::control::RateLimits;
use crate::tenants::TenantCounters;

/// Upper bound of the messages that wait for the bus. Beyond it the oldest is dropped: each is
/// repeated within a second.
const WAITING_MAX: usize = 256;

/// The rates of tenants that a node shares with the others of its cluster.
pub(crate) struct ClusterRates {
    /// Held while rates are set, so that those of a later input are set later. Locks of backends
    /// are taken below it.
    machine: Mutex<PeerRates>,
    limits: RateLimits,
    counters: Arc<TenantCounters>,
    resources: usize,
    waiting: Mutex<VecDeque<RateMessage>>,
    cluster: Arc<Cluster>,
    clock: Clock,
}

/// A message of one node to another.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RateMessage {
    pub(crate) to: Arc<str>,
    pub(crate) contents: RateContents,
}

/// The contents of a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RateContents {
    Ask(RateAsk),
    Grant(RateGrant),
}

impl ClusterRates {
    /// Creates the rates of a process that starts now, and sets the lowest ones: an earlier process
    /// may have lent its part. `tenancy` has the totals of the whole cluster.
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        tenancy: &TenancySetup,
        limits: RateLimits,
        counters: Arc<TenantCounters>,
        clock: Clock,
    ) -> Arc<Self> {
        let totals: Vec<f64> = tenancy.resources.iter().map(|resource| resource.total_per_s).collect();
        let resources = totals.len();
        let options = PeerRateOptions {
            node: cluster.setup.node.as_str().into(),
            nodes: nodes(&cluster.setup),
            incarnation: cluster.incarnation(),
            totals,
            tenants: tenancy.dispatched().tenants,
            lends: tenancy.options.lend,
        };
        let machine = Mutex::new(PeerRates::new(clock.now(), options));
        let waiting = Mutex::default();
        let rates = Self { machine, limits, counters, resources, waiting, cluster, clock };
        let rates = Arc::new(rates);
        rates.drive(|_, _| {});
        rates
    }

    /// Takes the rates of a plan. O(tenants) for each resource.
    pub(crate) fn set_plan(&self, plan: &Rates) {
        self.drive(|machine, now| machine.set_plan(now, plan));
    }

    /// Takes other nodes, or other weights.
    pub(crate) fn set_nodes(&self, setup: &ClusterSetup) {
        self.drive(|machine, now| machine.set_nodes(now, nodes(setup)));
    }

    /// Takes a message of another node to this one.
    pub(crate) fn receive(&self, from: &str, contents: &RateContents) {
        self.drive(|machine, now| match contents {
            RateContents::Ask(ask) => machine.handle_ask(now, from, ask),
            RateContents::Grant(grant) => machine.handle_grant(now, from, grant),
        });
    }

    /// Takes the messages that wait for the bus.
    pub(crate) fn take_messages(&self) -> VecDeque<RateMessage> {
        mem::take(&mut *self.waiting.lock().expect("no panics while held"))
    }

    /// Looks at the use of each resource whenever that is due, for as long as the node runs.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let due = self.lock().next_timeout();
            sleep(due.since(self.clock.now())).await;
            self.look();
        }
    }

    fn look(&self) {
        // Counters take locks of backends, and may be a moment older than the look.
        let uses = self.counters.uses();
        self.drive(|machine, now| {
            for index in 0..self.resources {
                let of_resource: Vec<_> = uses.iter().map(|uses| uses[index]).collect();
                machine.handle_use(now, ResourceId::from_index(index), &of_resource);
            }
            machine.handle_timeout(now);
        });
    }

    /// Returns true in the first moments of a process, while it has the lowest rates.
    pub(crate) fn is_starting(&self) -> bool {
        let machine = self.lock();
        machine.is_starting(self.clock.now())
    }

    /// Returns the loans in force: those of other nodes to this one, and of this one to others.
    pub(crate) fn loans(&self) -> (Vec<PeerLoan>, Vec<PeerLoan>) {
        let machine = self.lock();
        let now = self.clock.now();
        (machine.borrowed(now).collect(), machine.lent(now).collect())
    }

    /// Returns the units per second that other nodes lend to this one, of each resource.
    pub(crate) fn borrowed(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.resources];
        for loan in self.loans().0 {
            sums[loan.amount.resource.index()] += loan.amount.per_s;
        }
        sums
    }

    /// Hands an input to the machine, and carries out what follows from it: rates are lowered
    /// before the answer that lends them is sent.
    fn drive(&self, input: impl FnOnce(&mut PeerRates, Instant)) {
        let mut machine = self.lock();
        let now = self.clock.now();
        input(&mut machine, now);
        while let Some(action) = machine.poll_action() {
            match action {
                RateAction::SetRates(resource, rates) => self.limits.set_in_force(resource, &rates),
                RateAction::Ask(to, ask) => self.send(RateMessage { to, contents: RateContents::Ask(ask) }),
                RateAction::Grant(to, grant) => {
                    self.send(RateMessage { to, contents: RateContents::Grant(grant) });
                }
            }
        }
    }

    fn send(&self, message: RateMessage) {
        let mut waiting = self.waiting.lock().expect("no panics while held");
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
            self.cluster.counters.count_dropped(Direction::Sent, 1);
        }
        waiting.push_back(message);
        self.cluster.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, PeerRates> {
        self.machine.lock().expect("no panics while held")
    }
}

fn nodes(setup: &ClusterSetup) -> Vec<PeerNode> {
    let each = setup.nodes.iter().zip(&setup.weights);
    each.map(|(name, &weight)| PeerNode { name: name.as_str().into(), weight }).collect()
}
