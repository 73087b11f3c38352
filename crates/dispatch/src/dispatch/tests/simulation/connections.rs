//! Connections of a simulated backend: calls that end late or without an answer, and clients that
//! close late, twice or never.

use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId};

use super::backend::{Backend, Echo};
use super::draws::Draws;
use crate::fetch::{Attempt, AttemptState};
use crate::slab::Id;
use crate::{AttemptId, ConnectionAction, ConnectionId, CopiesChoice, LeaseId};

impl Backend {
    /// Opens a connection and asks for a call, and plans that its client closes it never, once or
    /// twice. With an open connection, the call may be asked for there.
    pub(super) fn connect(
        &mut self,
        now: Instant,
        demand: &Demand,
        draws: &mut Draws,
    ) -> Vec<(Duration, Echo)> {
        let timeout = self.options.timeout;
        let down_before = self.down();
        let mut echoes = Vec::new();
        let again = draws.chance(50).then(|| self.connections.keys().next_back().copied()).flatten();
        let connection = match again {
            Some(connection) => Ok(connection),
            None => self.dispatch.connect(now, demand, draws.up_to(timeout), draws.next()),
        };
        if let Ok(connection) = connection {
            let call = draws.next();
            self.connections.insert(connection, Some(call));
            self.dispatch.ask(now, connection, call);
            let ends = draws.within(0..=2);
            echoes.extend((0..ends).map(|_| (draws.up_to(timeout), Echo::Disconnect(connection))));
        }
        echoes.extend(self.follow(now, &down_before, draws));
        echoes
    }

    pub(super) fn end_call(
        &mut self,
        now: Instant,
        lease: LeaseId,
        is_answer: bool,
        draws: &mut Draws,
    ) -> Vec<(Duration, Echo)> {
        let down_before = self.down();
        let connection = self.leased.remove(&lease).expect("a call ends once");
        if self.dispatch.end_call(now, lease, is_answer) {
            let call = self.connections.get_mut(&connection).and_then(Option::take);
            assert!(is_answer && call.is_some(), "a client gets an answer that it waits for");
        }
        self.follow(now, &down_before, draws)
    }

    pub(super) fn disconnect(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        draws: &mut Draws,
    ) -> Vec<(Duration, Echo)> {
        let down_before = self.down();
        self.dispatch.disconnect(now, connection);
        // It may have expired at this very time.
        let mut echoes = self.follow_connections(draws);
        self.connections.remove(&connection);
        echoes.extend(self.follow(now, &down_before, draws));
        echoes
    }

    /// Records and checks the dispatcher's steps for connections.
    pub(super) fn follow_connections(&mut self, draws: &mut Draws) -> Vec<(Duration, Echo)> {
        let mut echoes = Vec::new();
        while let Some(action) = self.dispatch.poll_connection() {
            match action {
                ConnectionAction::Call { connection, lease, replica, call } => {
                    // The client may have closed the connection.
                    if let Some(open) = self.connections.get(&connection) {
                        assert_eq!(*open, Some(call), "a call of {connection:?} starts at {replica:?}");
                        let before = self.leased.insert(lease, connection);
                        assert_eq!(before, None, "a slot serves one call at a time");
                        let end = Echo::EndCall(lease, draws.chance(80));
                        echoes.push((draws.up_to(self.options.timeout), end));
                    }
                }
                ConnectionAction::Fail { connection, call } => {
                    let open = self.connections.get_mut(&connection).and_then(Option::take);
                    assert_eq!(open, Some(call), "a call fails once, and has no answer");
                }
                ConnectionAction::End { connection, .. } => {
                    assert!(self.connections.remove(&connection).is_some(), "a connection ends once");
                }
            }
        }
        echoes
    }

    /// Checks the leases, and that a connection has at most as many as a call has copies.
    pub(super) fn check_connections(&self) {
        assert_eq!(self.dispatch.connections.len(), self.connections.len());
        let leases = self.leases().count();
        assert!(leases <= self.options.queued_calls_max as usize);
        assert_eq!(self.dispatch.stats().leases as usize, leases);
        let most = match self.options.copies {
            CopiesChoice::Fixed { factor } => factor.into(),
            _ => 1,
        };
        for connection in self.connections.keys() {
            assert!((1..=most).contains(&self.dispatch.leases(*connection).count()), "{most} copies");
        }
    }

    /// Returns the attempts that wait for a slot for a connection, or hold one.
    pub(super) fn leases(&self) -> impl Iterator<Item = Id> {
        self.connections.keys().flat_map(|connection| self.dispatch.leases(*connection))
    }

    /// Returns the attempts that hold a slot for a connection, with their replicas.
    pub(super) fn held(&self) -> impl Iterator<Item = (AttemptId, Option<ReplicaId>)> {
        let attempts = &self.dispatch.attempts;
        self.leases().filter_map(|attempt| {
            let Attempt { state, replica, .. } =
                attempts.get(attempt).expect("a lease waits or holds a slot");
            (*state != AttemptState::Queued).then_some((AttemptId(attempt), *replica))
        })
    }
}
