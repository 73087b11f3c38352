//! Requests that wait for their tenant's rate of network.

use sherwood_dispatch::{TenantQueueOptions, TenantQueues};
use sherwood_model::Instant;
use sherwood_workload::tenants::{Scenario, Tenant};

use super::{Event, WAITING_MAX, World};
use crate::tenants::setup::Setup;

/// Requests that wait for their tenant's rate of network.
pub(super) struct Network {
    pub(super) queues: TenantQueues<u32>,
    /// The time of the next wake-up.
    armed: Option<Instant>,
    /// Bytes that a request of each tenant takes at least.
    pub(super) least_bytes: Vec<f64>,
}

impl Network {
    pub(super) fn new(setup: &Setup, scenario: &Scenario) -> Self {
        let options = TenantQueueOptions {
            tenants: scenario.tenants.len() as u16,
            waiting_max: WAITING_MAX,
            burst_units: 0,
            lends: setup.knobs.lends,
        };
        let least = |tenant: &Tenant| tenant.loads.iter().map(|load| load.item_bytes() as f64).sum();
        Self {
            queues: TenantQueues::new(options),
            armed: None,
            least_bytes: scenario.tenants.iter().map(least).collect(),
        }
    }
}

impl World {
    /// Executes the requests that the rates of network allow.
    pub(super) fn admit(&mut self) {
        while let Some(started) = self.network.queues.start_next(self.now) {
            self.change(started.work, |live| live.payer = started.payer);
            self.execute(started.work);
        }
        if let Some(due) = self.network.queues.next_timeout()
            && self.network.armed.is_none_or(|armed| due < armed)
        {
            self.network.armed = Some(due);
            self.events.schedule(due.max(self.now), Event::Network);
        }
    }

    pub(super) fn wake_network(&mut self) {
        if self.network.armed.is_some_and(|armed| armed <= self.now) {
            self.network.armed = None;
        }
        self.admit();
    }
}
