//! The set-up (kind of simulation) of sPARE: pages, whose copies ask queries of a second tier.

mod build;
mod connections;
mod copies;
mod search;
mod servers;

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_dispatch::{ConnectionAction, ConnectionId};
use sherwood_model::{BackendId, Demand, FinishedRequest, Instant, PartitionId, ReplicaId, RequestId};
use sherwood_path::{FetchKey, Query, Staleness};
use sherwood_workload::{Arrivals, Rng};

use super::key::Key;
use super::policy::{Policy, TIMEOUT};
use super::results::{Recorder, Results, Sample};
use super::scenario::Sizes;
use super::setup::{Copies, Setup};
use super::{PAGES, QUERIES};
use crate::slab::Slab;
use crate::world::{Ask, Family, Job, Live, Simulation};
use copies::{LeasedCall, PageCopy};
use servers::Server;

/// A simulated run.
///
/// Call [`World::advance`] with increasing times up to [`World::end`], then [`World::results`].
///
/// # Memory
/// Pages in flight, of which there are as many as arrive within the timeout if the servers are
/// overloaded, and a sample for each ten seconds.
pub type World = Simulation<Spare>;

/// An application of two tiers, with replication.
pub struct Spare {
    setup: Setup,
    policy: Policy,
    /// Draws of the servers that are asked about themselves.
    probe_draws: Rng,
    arrivals: Arrivals,
    arrival_draws: Rng,
    sizes: Sizes,
    /// Number of pages that have arrived.
    pages: u64,
    /// Number of queries that were asked, for all copies of pages.
    queries: u64,
    /// The servers of each tier.
    servers: [Vec<Server>; 2],
    /// The copies of pages that are being made.
    copies: Slab<PageCopy>,
    /// The copies that have a connection to the second tier.
    connections: BTreeMap<ConnectionId, u32>,
    /// The calls of queries over connections.
    calls: Slab<LeasedCall>,
    /// The number of copies of a page and of a query; none before they are searched for.
    copies_found: Option<Copies>,
    recorder: Recorder,
}

/// Events of users and servers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A user asks for a page.
    Arrive,
    /// A call at a server may have ended.
    Served { tier: BackendId, server: ReplicaId },
    /// The interference at a server changes.
    Neighbours { tier: BackendId, server: ReplicaId },
    /// Ten seconds are over.
    Sample,
    /// A measuring window of a search for copies is over.
    Window,
}

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender {
    /// A user, who asks for the page with this number.
    User { page: u64 },
    /// A copy of a page, which asks a query.
    Copy { copy: u32 },
}

const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// The only node.
const NODE: u16 = 0;
/// Bytes of each answer, which nothing depends on.
const BYTES: u32 = 1;

impl Family for Spare {
    type Key = Key;
    type Client = Sender;
    type Event = Event;

    fn happen(world: &mut World, event: Event) {
        match event {
            Event::Arrive => world.send_page(),
            Event::Served { tier, server } => world.end_served(tier, server),
            Event::Neighbours { tier, server } => world.change_interference(tier, server),
            Event::Sample => world.sample(),
            Event::Window => world.end_window(),
        }
    }

    fn ask(&mut self, _: Instant, sender: &mut Sender) -> Ask<Key> {
        let (backend, page, key) = match *sender {
            Sender::User { page } => (PAGES, page, Key::page(page, self.sizes.page(page))),
            Sender::Copy { copy } => {
                let key = self.next_query(copy);
                (QUERIES, key.page, key)
            }
        };
        let query = Query {
            backend,
            partition: PartitionId(backend.0),
            keys: vec![key],
            demand: Demand { request: RequestId::new(page + 1), ..Demand::default() },
            timeout: TIMEOUT,
            staleness: Staleness::default(),
            shared: None,
        };
        Ask { queries: vec![query], writes: Vec::new() }
    }

    fn finish(world: &mut World, live: Live<Key, Sender>, _: FinishedRequest) {
        let (now, latency) = (world.now, world.now - live.began);
        match live.client {
            Sender::User { page } => {
                let answers = live.request.iter().flat_map(|request| request.answers());
                let is_error = answers.filter(|(.., answer)| answer.error.is_some()).count() > 0;
                let Spare { recorder, sizes, .. } = &mut world.family;
                recorder.ended(now, PAGES.index(), latency);
                recorder.page(now, sizes.whole(page), is_error);
            }
            Sender::Copy { copy } => {
                world.family.recorder.ended(now, QUERIES.index(), latency);
                world.go_on(copy);
            }
        }
    }

    fn connection(world: &mut World, _: BackendId, action: ConnectionAction) {
        world.handle_connection(action);
    }

    fn serve(world: &mut World, backend: BackendId, job: u32) {
        world.start_call(backend, job);
    }

    fn service_time(&mut self, _: Instant, _: BackendId, _: &Job<Key>) -> Duration {
        // Only probes, which servers that are always up do not get, are served in this way.
        Duration::ZERO
    }

    fn read(&mut self, _: BackendId, _: ReplicaId, _: Instant, _: &FetchKey<Key>) -> u32 {
        BYTES
    }
}

impl World {
    /// Samples of the run so far, one for each ten seconds.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        self.family.recorder.samples()
    }

    /// Returns the results of the run so far.
    #[must_use]
    pub fn results(&self) -> Results {
        let Spare { recorder, setup, copies_found, .. } = &self.family;
        recorder.results(setup, copies_found.unwrap_or_default(), self.now >= self.end)
    }

    /// Sends a request for the next page.
    fn send_page(&mut self) {
        let page = self.family.pages;
        self.family.pages += 1;
        self.ask_servers(PAGES);
        let request = self.begin(NODE, self.now, Sender::User { page });
        self.arrive(request);
        self.schedule_page();
    }

    fn schedule_page(&mut self) {
        let Spare { arrivals, arrival_draws, .. } = &mut self.family;
        let at = self.now + arrivals.next_gap(arrival_draws);
        self.schedule(at, Event::Arrive);
    }

    fn sample(&mut self) {
        let factors = self.family.copies_found.unwrap_or_default().factors;
        self.family.recorder.sample(self.now, factors);
        self.schedule(self.now + SAMPLE_EVERY, Event::Sample);
    }
}

#[cfg(test)]
mod tests;
