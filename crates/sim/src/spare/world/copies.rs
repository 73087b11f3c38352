//! Copies of pages, which are made in parts, with a query between two parts.

use std::time::Duration;

use rand_core::Rng as _;
use sherwood_dispatch::{LeaseAction, LeaseId};
use sherwood_model::{BackendId, Demand, ReplicaId, RequestId};

use super::{NODE, Sender, Spare, World};
use crate::spare::key::Key;
use crate::spare::policy::TIMEOUT;
use crate::spare::{PAGES, QUERIES};
use crate::world::{Node, SizedCache, Work};

/// A copy of a page, from the start of its call to its end.
#[derive(Clone, Debug)]
pub(super) struct PageCopy {
    /// The call that the copy is made for.
    job: u32,
    page: u64,
    server: ReplicaId,
    /// Time of a core that each part of the page takes.
    part: Duration,
    /// Number of queries that were asked.
    asked: u16,
    connection: Option<Connection>,
    /// Time of cores that the parts and queries have taken so far.
    served: Duration,
}

/// A connection of a copy to the second tier.
#[derive(Clone, Copy, Debug)]
struct Connection {
    lease: LeaseId,
    server: ReplicaId,
}

impl World {
    /// Starts a call that has reached its server.
    pub(super) fn start_call(&mut self, backend: BackendId, number: u32) {
        let Some(job) = self.servers.jobs.get(number) else { return };
        let server = job.replica;
        let Work::Call { keys, .. } = &job.work else { return self.serve(backend, number) };
        let Key { page, work, .. } = keys[0].key;
        self.note_call(backend, server);
        if backend == QUERIES {
            return self.compute(QUERIES, server, number, work);
        }
        let part = self.family.sizes.part(page);
        let copy =
            PageCopy { job: number, page, server, part, asked: 0, connection: None, served: Duration::ZERO };
        let copy = self.family.copies.insert(copy);
        self.compute(PAGES, server, copy, part);
    }

    /// Asks the next query of a copy whose last part has ended, or ends the copy.
    pub(super) fn end_page_part(&mut self, number: u32) {
        let queries = self.family.setup.scenario.queries;
        let Some(copy) = self.family.copies.get_mut(number) else { return };
        copy.served += copy.part;
        if copy.asked == queries {
            self.end_copy(number);
            return;
        }
        let (job, has_connection) = (copy.job, copy.connection.is_some());
        if self.family.policy.reports_progress {
            self.report_progress(job);
        }
        if has_connection || !self.family.policy.by_connection {
            self.ask_query(number);
        } else {
            self.open_connection(number);
        }
    }

    /// Tells the dispatcher of pages that the copy of this call asks a query.
    fn report_progress(&mut self, job: u32) {
        let Some(Work::Call { attempt, .. }) = self.servers.jobs.get(job).map(|job| &job.work) else {
            return;
        };
        let Node { cache, machines, .. } = &mut self.nodes[usize::from(NODE)];
        machines[PAGES.index()].handle_progress(self.now, &SizedCache(cache), *attempt);
        self.drive(NODE, PAGES);
    }

    /// Goes on with a copy whose query has ended.
    pub(super) fn go_on(&mut self, number: u32) {
        if let Some(&PageCopy { server, part, .. }) = self.family.copies.get(number) {
            self.compute(PAGES, server, number, part);
        }
    }

    /// Ends the call of a query, whose work counts for its page.
    pub(super) fn end_query_call(&mut self, number: u32) {
        if let Some(Work::Call { keys, .. }) = self.servers.jobs.get(number).map(|job| &job.work) {
            let Key { page, copy, work, .. } = keys[0].key;
            match self.family.copies.get_mut(copy).filter(|copy| copy.page == page) {
                Some(copy) => copy.served += work,
                None => self.family.recorder.served(self.now, work),
            }
        }
        self.note_answer(QUERIES, number);
        self.done(QUERIES, number);
    }

    fn ask_query(&mut self, copy: u32) {
        self.ask_servers(QUERIES);
        let request = self.begin(NODE, self.now, Sender::Copy { copy });
        self.arrive(request);
    }

    /// Asks the second tier's dispatcher for a connection.
    fn open_connection(&mut self, number: u32) {
        let Some(page) = self.family.copies.get(number).map(|copy| copy.page) else { return };
        let demand = Demand { request: RequestId::new(page + 1), ..Demand::default() };
        let entropy = self.route_draws.next_u64();
        let Node { cache, machines, .. } = &mut self.nodes[usize::from(NODE)];
        let machine = &mut machines[QUERIES.index()];
        match machine.lease(self.now, &SizedCache(cache), &demand, HELD_MAX, entropy) {
            Ok(lease) => _ = self.family.connections.insert(lease, number),
            Err(_) => self.end_copy(number),
        }
        self.drive(NODE, QUERIES);
    }

    /// Takes in that a copy has got its connection, and asks its first query; or that it waited for
    /// too long, and ends it.
    pub(super) fn connect(&mut self, action: LeaseAction) {
        let connections = &mut self.family.connections;
        match action {
            LeaseAction::Grant { lease, replica, .. } => {
                let Some(&number) = connections.get(&lease) else { return };
                let Some(copy) = self.family.copies.get_mut(number) else { return };
                copy.connection = Some(Connection { lease, server: replica });
                self.ask_query(number);
            }
            LeaseAction::End { lease, .. } => {
                let Some(number) = connections.remove(&lease) else { return };
                let waits = |copy: &PageCopy| copy.connection.is_none();
                if self.family.copies.get(number).is_some_and(waits) {
                    self.end_copy(number);
                }
            }
        }
    }

    /// Ends a copy of a page and its connection, and answers its call.
    fn end_copy(&mut self, number: u32) {
        let Some(copy) = self.family.copies.remove(number) else { return };
        self.family.recorder.served(self.now, copy.served);
        if let Some(Connection { lease, .. }) = copy.connection {
            self.family.connections.remove(&lease);
            let Node { cache, machines, .. } = &mut self.nodes[usize::from(NODE)];
            machines[QUERIES.index()].end_lease(self.now, &SizedCache(cache), lease);
            self.drive(NODE, QUERIES);
        }
        self.note_answer(PAGES, copy.job);
        self.done(PAGES, copy.job);
    }
}

impl Spare {
    /// Returns the key of the next query of a copy, which has a connection.
    pub(super) fn next_query(&mut self, number: u32) -> Key {
        let copy = self.copies.get_mut(number).expect("a copy that asks is there");
        // Without a connection any server may be asked.
        let server = copy.connection.map_or(ReplicaId(0), |connection| connection.server);
        let (page, query) = (copy.page, copy.asked);
        copy.asked += 1;
        self.queries += 1;
        Key::query(self.queries, server, page, number, self.sizes.query(page, query))
    }
}

/// Longest time that a copy holds a connection.
const HELD_MAX: Duration = TIMEOUT.saturating_mul(60);
