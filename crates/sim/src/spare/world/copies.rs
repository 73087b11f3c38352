//! Copies of pages, which are made in parts, with a query between two parts.

use std::time::Duration;

use sherwood_dispatch::{ConnectionId, LeaseId};
use sherwood_model::{BackendId, Instant, ReplicaId};

use super::{NODE, Sender, Spare, World};
use crate::spare::key::Key;
use crate::spare::{PAGES, QUERIES};
use crate::world::{Node, SizedCache, Work};

/// A copy of a page, from the start of its call to its end.
#[derive(Clone, Debug)]
pub(super) struct PageCopy {
    /// The call that the copy is made for.
    job: u32,
    pub(super) page: u64,
    server: ReplicaId,
    /// Time of a core that each part of the page takes.
    part: Duration,
    /// Number of queries that were asked.
    pub(super) asked: u16,
    pub(super) connection: Option<ConnectionId>,
    /// Time at which the query over the connection was asked.
    pub(super) asked_at: Instant,
    /// Time of cores that the parts and queries have taken so far.
    served: Duration,
}

/// A call of a query, over a slot that a connection has leased.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeasedCall {
    pub(super) lease: LeaseId,
    pub(super) page: u64,
    pub(super) copy: u32,
    pub(super) work: Duration,
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
        let copy = PageCopy {
            job: number,
            page,
            server,
            part,
            asked: 0,
            connection: None,
            asked_at: self.now,
            served: Duration::ZERO,
        };
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
        let job = copy.job;
        if self.family.policy.reports_progress {
            self.report_progress(job);
        }
        if self.family.policy.by_connection {
            self.ask_over_connection(number)
        } else {
            self.ask_query(number)
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

    /// Ends the call of a query.
    pub(super) fn end_query_call(&mut self, number: u32) {
        if self.family.policy.by_connection {
            return self.end_leased_call(number);
        }
        if let Some(Work::Call { keys, .. }) = self.servers.jobs.get(number).map(|job| &job.work) {
            let Key { page, copy, work, .. } = keys[0].key;
            self.count_query(page, copy, work);
        }
        self.note_answer(QUERIES, number);
        self.done(QUERIES, number);
    }

    /// Counts the work of a query for its page, unless the copy that asked has ended.
    pub(super) fn count_query(&mut self, page: u64, copy: u32, work: Duration) {
        match self.family.copies.get_mut(copy).filter(|copy| copy.page == page) {
            Some(copy) => copy.served += work,
            None => self.family.recorder.served(self.now, work),
        }
    }

    fn ask_query(&mut self, copy: u32) {
        self.ask_servers(QUERIES);
        let request = self.begin(NODE, self.now, Sender::Copy { copy });
        self.arrive(request);
    }

    /// Ends a copy of a page and its connection, and answers its call.
    pub(super) fn end_copy(&mut self, number: u32) {
        let Some(copy) = self.family.copies.remove(number) else { return };
        self.family.recorder.served(self.now, copy.served);
        copy.connection.into_iter().for_each(|connection| self.close_connection(connection));
        self.note_answer(PAGES, copy.job);
        self.done(PAGES, copy.job);
    }
}

impl Spare {
    /// Returns the key of the next query of a copy, in order.
    pub(super) fn next_query(&mut self, number: u32) -> Key {
        let copy = self.copies.get_mut(number).expect("a copy that asks is there");
        let (page, query) = (copy.page, copy.asked);
        copy.asked += 1;
        self.queries += 1;
        Key::query(self.queries, page, number, self.sizes.query(page, query))
    }
}
