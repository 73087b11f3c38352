//! Connections of copies of pages to the second tier.

use std::time::Duration;

use rand_core::Rng as _;
use sherwood_dispatch::{ConnectionAction, ConnectionId};
use sherwood_model::Demand;

use super::copies::LeasedCall;
use super::{NODE, World};
use crate::spare::QUERIES;
use crate::spare::policy::TIMEOUT;
use crate::world::{Node, SizedCache};

impl World {
    /// Asks the next query of a copy over its connection, which is opened for the first one.
    pub(super) fn ask_over_connection(&mut self, number: u32) {
        if self.family.copies.get(number).is_some_and(|copy| copy.connection.is_none()) {
            self.open_connection(number);
        }
        let now = self.now;
        let Some(copy) = self.family.copies.get_mut(number) else { return };
        let Some(connection) = copy.connection else { return };
        copy.asked_at = now;
        let query = copy.asked;
        copy.asked += 1;
        self.family.queries += 1;
        let Node { cache, machines, .. } = &mut self.nodes[usize::from(NODE)];
        machines[QUERIES.index()].ask(now, &SizedCache(cache), connection, query.into());
        self.drive(NODE, QUERIES);
    }

    /// Asks the second tier's dispatcher for a connection. Without one the copy ends.
    fn open_connection(&mut self, number: u32) {
        let entropy = self.route_draws.next_u64();
        let Node { cache, machines, .. } = &mut self.nodes[usize::from(NODE)];
        let machine = &mut machines[QUERIES.index()];
        match machine.connect(self.now, &SizedCache(cache), &Demand::default(), HELD_MAX, entropy) {
            Ok(connection) => {
                self.family.connections.insert(connection, number);
                if let Some(copy) = self.family.copies.get_mut(number) {
                    copy.connection = Some(connection);
                }
            }
            Err(_) => self.end_copy(number),
        }
        self.drive(NODE, QUERIES);
    }

    /// Closes the connection of a copy that ends.
    pub(super) fn close_connection(&mut self, connection: ConnectionId) {
        self.family.connections.remove(&connection);
        let Node { cache, machines, .. } = &mut self.nodes[usize::from(NODE)];
        machines[QUERIES.index()].disconnect(self.now, &SizedCache(cache), connection);
        self.drive(NODE, QUERIES);
    }

    /// Starts a call at a server, or ends the copy of a page whose connection has failed.
    pub(super) fn handle_connection(&mut self, action: ConnectionAction) {
        match action {
            ConnectionAction::Call { connection, lease, replica, call } => {
                let Some(&copy) = self.family.connections.get(&connection) else { return };
                let Some(page) = self.family.copies.get(copy).map(|copy| copy.page) else { return };
                let work = self.family.sizes.query(page, call as u16);
                let number = self.family.calls.insert(LeasedCall { lease, page, copy, work });
                self.compute(QUERIES, replica, number, work);
            }
            ConnectionAction::Fail { connection, .. } | ConnectionAction::End { connection, .. } => {
                let number = self.family.connections.remove(&connection);
                number.into_iter().for_each(|number| self.end_copy(number));
            }
        }
    }

    /// Ends a call over a slot. The copy that waits for its answer goes on.
    pub(super) fn end_leased_call(&mut self, number: u32) {
        let Some(call) = self.family.calls.remove(number) else { return };
        self.count_query(call.page, call.copy, call.work);
        let now = self.now;
        let Node { cache, machines, .. } = &mut self.nodes[usize::from(NODE)];
        let is_awaited = machines[QUERIES.index()].end_call(now, &SizedCache(cache), call.lease, true);
        if is_awaited && let Some(copy) = self.family.copies.get(call.copy) {
            let latency = now - copy.asked_at;
            self.family.recorder.ended(now, QUERIES.index(), latency);
            self.go_on(call.copy);
        }
        self.drive(NODE, QUERIES);
    }
}

/// Longest time that a copy holds a connection.
const HELD_MAX: Duration = TIMEOUT.saturating_mul(60);
