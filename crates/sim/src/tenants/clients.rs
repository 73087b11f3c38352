//! Clients of the tenants: streams of requests, in closed or open loops.

use std::time::Duration;

use sherwood_model::{Instant, TenantId};
use sherwood_workload::tenants::{Arrival, Clients as Closed, Operations, Scenario, Tenant};
use sherwood_workload::{Arrivals, Operation, Rng};

use crate::traffic::stream;

/// Sources of requests of all tenants.
pub(super) struct Clients {
    /// Processes of closed loops, and one source for each open loop.
    processes: Vec<Process>,
    /// The process of each client.
    clients: Vec<u32>,
    measured_from: Instant,
}

/// A process: a stream of operations for each load of its tenant.
struct Process {
    tenant: TenantId,
    operations: Vec<Operations>,
    open: Option<Open>,
}

/// Arrivals of an open loop.
struct Open {
    rates: Vec<Arrival>,
    /// Arrivals of a rate of 1 per second, whose gaps are divided by the present rate.
    arrivals: Arrivals,
    draws: Rng,
}

/// Numbers of streams of draws. Tenants and processes have at most 1,024 each, and loads 64.
const OPERATIONS: u64 = 1 << 40;
const ARRIVALS: u64 = 2 << 40;

impl Clients {
    /// Returns the clients of a validated scenario.
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut sources = Self {
            processes: Vec::new(),
            clients: Vec::new(),
            measured_from: Instant::ZERO + scenario.warm_up.0,
        };
        for (index, tenant) in scenario.tenants.iter().enumerate() {
            let Closed { processes, depth } = tenant.clients.unwrap_or(Closed { processes: 1, depth: 1 });
            for process in 0..processes {
                sources.clients.extend((0..depth).map(|_| sources.processes.len() as u32));
                sources.processes.push(Process {
                    tenant: TenantId::from_index(index),
                    operations: operations(tenant, seed, index as u64, process.into()),
                    open: Open::of(tenant, seed, index as u64),
                });
            }
        }
        sources
    }

    /// Number of clients.
    pub(super) fn len(&self) -> u32 {
        self.clients.len() as u32
    }

    /// True if the client's requests arrive whatever becomes of those before.
    pub(super) fn is_open(&self, client: u32) -> bool {
        self.process(client).open.is_some()
    }

    /// The tenant of a client.
    pub(super) fn tenant(&self, client: u32) -> TenantId {
        self.process(client).tenant
    }

    /// Returns the time from `now`, that of the last arrival, to the next in an open loop; none in
    /// a closed one.
    pub(super) fn next_gap(&mut self, client: u32, now: Instant) -> Option<Duration> {
        let since = now.since(self.measured_from);
        let open = self.processes[self.clients[client as usize] as usize].open.as_mut()?;
        let after = open.rates.partition_point(|arrival| arrival.at.0 <= since);
        let rate = open.rates[after.max(1) - 1].per_s;
        Some(open.arrivals.next_gap(&mut open.draws).div_f64(rate))
    }

    /// Draws the operations of a client's next request, one for each load of its tenant.
    pub(super) fn next_request(&mut self, client: u32, now: Instant) -> impl Iterator<Item = Operation> {
        let since = now.since(self.measured_from);
        let process = &mut self.processes[self.clients[client as usize] as usize];
        process.operations.iter_mut().map(move |operations| operations.next(since))
    }

    fn process(&self, client: u32) -> &Process {
        &self.processes[self.clients[client as usize] as usize]
    }
}

/// Returns the streams of operations of a tenant's process.
pub(super) fn operations(tenant: &Tenant, seed: u64, number: u64, process: u64) -> Vec<Operations> {
    let of_load = |(load, at): (_, u64)| {
        let number = OPERATIONS + ((number << 20) | (process << 8) | at);
        Operations::new(load, rand_core::Rng::next_u64(&mut stream(seed, number)))
    };
    tenant.loads.iter().zip(0..).map(of_load).collect()
}

impl Open {
    fn of(tenant: &Tenant, seed: u64, number: u64) -> Option<Self> {
        if tenant.arrivals.is_empty() {
            return None;
        }
        Some(Self {
            rates: tenant.arrivals.clone(),
            arrivals: Arrivals::poisson(1.0).expect("one per second is in range"),
            draws: stream(seed, ARRIVALS + number),
        })
    }
}
