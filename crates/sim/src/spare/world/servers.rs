//! Servers, which share their cores among calls and are slowed down by neighbours.

use std::time::Duration;

use rand_core::Rng as _;
use sherwood_dispatch::Figures;
use sherwood_model::{BackendId, Instant, ReplicaId};

use super::{Event, NODE, World};
use crate::spare::policy::{CORES, Telling};
use crate::spare::{PAGES, TIERS};
use crate::world::{Interference, Job, Sharing};

/// A server of a tier.
#[derive(Clone, Debug)]
pub(super) struct Server {
    sharing: Sharing,
    /// Neighbours of the server; none if nothing slows it down.
    interference: Option<Interference>,
    /// The time of the next event at which a call may have ended.
    armed: Instant,
    /// Calls that have reached the server and not ended, and the time that the latest one took.
    calls: u32,
    latest: Duration,
}

/// Servers that are asked about themselves for each call, as in Prequal.
const PROBES: u32 = 3;

impl Server {
    /// Returns an idle server.
    pub(super) fn new(interference: Option<Interference>) -> Self {
        Self {
            sharing: Sharing::new(CORES),
            interference,
            armed: Instant::NEVER,
            calls: 0,
            latest: Duration::ZERO,
        }
    }
}

impl World {
    /// Has a server work on the part of a copy of a page, or on the call of a query.
    pub(super) fn compute(&mut self, tier: BackendId, server: ReplicaId, number: u32, work: Duration) {
        let now = self.now;
        self.server(tier, server).sharing.add(now, number, work);
        self.arm_server(tier, server);
    }

    /// Notes that a call has reached a server.
    pub(super) fn note_call(&mut self, tier: BackendId, server: ReplicaId) {
        self.server(tier, server).calls += 1;
    }

    /// Notes that a call is about to be answered. If servers tell about themselves with answers,
    /// the dispatcher is told.
    pub(super) fn note_answer(&mut self, tier: BackendId, job: u32) {
        let Some(&Job { replica, sent, .. }) = self.servers.jobs.get(job) else { return };
        let now = self.now;
        let server = self.server(tier, replica);
        server.calls -= 1;
        server.latest = now - sent;
        if self.family.policy.figures == Telling::WithAnswers {
            self.tell_figures(tier, replica);
        }
    }

    /// Asks three servers of a tier about themselves, if the policy does that.
    pub(super) fn ask_servers(&mut self, tier: BackendId) {
        if self.family.policy.figures != Telling::WhenAsked {
            return;
        }
        for _ in 0..PROBES {
            let servers = self.family.servers[tier.index()].len() as u64;
            let server = self.family.probe_draws.next_u64() % servers;
            self.tell_figures(tier, ReplicaId::from_index(server as usize));
        }
    }

    fn tell_figures(&mut self, tier: BackendId, replica: ReplicaId) {
        let &mut Server { calls, latest: latency, .. } = self.server(tier, replica);
        let machine = &mut self.nodes[usize::from(NODE)].machines[tier.index()];
        machine.handle_figures(self.now, replica, &Figures { calls, latency });
    }

    /// Ends the work that a server has finished by now.
    pub(super) fn end_served(&mut self, tier: BackendId, server: ReplicaId) {
        let now = self.now;
        let place = self.server(tier, server);
        if place.armed <= now {
            place.armed = Instant::NEVER;
        }
        while let Some(number) = self.server(tier, server).sharing.take_ended(now) {
            if tier == PAGES { self.end_page_part(number) } else { self.end_query_call(number) }
        }
        self.arm_server(tier, server);
    }

    /// Changes a server's slowdown.
    pub(super) fn change_interference(&mut self, tier: BackendId, server: ReplicaId) {
        let now = self.now;
        let Server { sharing, interference: Some(interference), .. } = self.server(tier, server) else {
            return;
        };
        sharing.set_slowdown(now, interference.change(now));
        let next = interference.next_change();
        self.schedule(next, Event::Neighbours { tier, server });
        self.arm_server(tier, server);
    }

    /// Schedules the first change of the interference at each server.
    pub(super) fn schedule_neighbours(&mut self) {
        for tier in TIERS {
            for server in (0..self.family.servers[tier.index()].len()).map(ReplicaId::from_index) {
                let interference = &self.server(tier, server).interference;
                if let Some(at) = interference.as_ref().map(Interference::next_change) {
                    self.schedule(at, Event::Neighbours { tier, server });
                }
            }
        }
    }

    /// Schedules the next end of work at a server, unless there is an earlier event. An event that
    /// comes too early schedules the next.
    fn arm_server(&mut self, tier: BackendId, server: ReplicaId) {
        let place = self.server(tier, server);
        if let Some(due) = place.sharing.next_end().filter(|due| *due < place.armed) {
            place.armed = due;
            self.schedule(due, Event::Served { tier, server });
        }
    }

    fn server(&mut self, tier: BackendId, server: ReplicaId) -> &mut Server {
        &mut self.family.servers[tier.index()][server.index()]
    }
}
