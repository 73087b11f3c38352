//! Fetches: from a node's state machines to servers, and their results back to requests.

use sherwood_dispatch::FetchError;
use sherwood_model::{BackendId, Demand, PartitionId};
use sherwood_path::{Action, FetchKey, QueryFetch};

use super::node::{Node, SizedCache, Waiter};
use super::servers::Work;
use super::{Event, Family, Simulation};

impl<F: Family> Simulation<F> {
    /// Fetches the misses of a request's query.
    #[inline]
    pub(super) fn fetch(&mut self, request: u32, node: u16, fetch: QueryFetch<F::Key>) {
        if F::takes(self, request, &fetch) {
            return;
        }
        let QueryFetch { backend, partition, keys, demand, .. } = fetch;
        // A single replica needs no random number.
        let several = self.servers.replicas(backend) > 1;
        let entropy = if several { rand_core::Rng::next_u64(&mut self.route_draws) } else { 0 };
        let keys =
            keys.into_iter().map(|(key, slot)| (FetchKey { partition, key }, Waiter { request, slot }));
        let Node { cache, machines, .. } = &mut self.nodes[usize::from(node)];
        let machine = &mut machines[backend.index()];
        machine.handle_fetch(self.now, &SizedCache(cache), &demand, keys, entropy);
        self.drive(node, backend);
    }

    /// Performs the pending actions of the state machine of a node's backend.
    pub(crate) fn drive(&mut self, node: u16, backend: BackendId) {
        let place = (usize::from(node), backend.index());
        while let Some(action) = self.nodes[place.0].machines[place.1].poll_action() {
            match action {
                Action::Call { attempt, replica, keys, demand, .. } => {
                    F::calling(self, node, backend, replica, keys.len() as u32);
                    let work = Work::Call { attempt, tenant: demand.tenant, keys };
                    self.send((node, backend, replica), &demand, work);
                }
                Action::Probe { replica, .. } => {
                    self.send((node, backend, replica), &Demand::default(), Work::Probe);
                }
                Action::Cancel { attempt: cancelled, replica, .. } => {
                    // A call that a worker has begun goes on.
                    let wanted =
                        |work: &_| matches!(work, Work::Call { attempt, .. } if *attempt == cancelled);
                    self.servers.withdraw((node, backend, replica), wanted);
                }
                Action::Deliver { key, result, waiters } => {
                    for waiter in waiters {
                        self.tell(waiter, key.partition, result.clone());
                    }
                }
                Action::StartWrite(write) => self.start_write(node, backend, write),
                // Simulated nodes do not share backends, and no store has duplicates.
                Action::Announce(_) | Action::Duplicate { .. } | Action::StoreLog { .. } => {}
                Action::EndWrite { write, outcome, .. } => self.end_write(node, backend, write, outcome),
            }
        }
        while let Some(action) = self.nodes[place.0].machines[place.1].poll_connection() {
            F::connection(self, backend, action);
        }
        self.arm(node, backend);
    }

    /// Schedules the next wake-up of a state machine, unless one is scheduled earlier. A state
    /// machine that is woken too early is scheduled again.
    #[inline]
    fn arm(&mut self, node: u16, backend: BackendId) {
        let Node { machines, armed, .. } = &mut self.nodes[usize::from(node)];
        let armed = &mut armed[backend.index()];
        if let Some(due) = machines[backend.index()].next_timeout()
            && armed.is_none_or(|armed| due < armed)
        {
            *armed = Some(due);
            self.events.schedule(due.max(self.now), Event::Wake { node, backend: backend.0 });
        }
    }

    pub(super) fn wake(&mut self, node: u16, backend: BackendId) {
        let Node { cache, machines, armed, .. } = &mut self.nodes[usize::from(node)];
        let armed = &mut armed[backend.index()];
        // The earlier of two alarms was scheduled later and left the other one in place.
        if armed.is_some_and(|armed| armed <= self.now) {
            *armed = None;
        }
        machines[backend.index()].handle_timeout(self.now, &SizedCache(cache));
        self.drive(node, backend);
    }

    /// Passes the result of a fetch to the request that waits for it.
    #[inline]
    pub(crate) fn tell(
        &mut self,
        waiter: Waiter,
        partition: PartitionId,
        result: Result<Option<u32>, FetchError>,
    ) {
        let Some(live) = self.live.get_mut(waiter.request) else { return };
        let Some(request) = &mut live.request else { return };
        request.handle_result(self.now, waiter.slot, result);
        let finished = request.finished();
        self.family.operation_ended(self.now, live, partition);
        if let Some(finished) = finished
            && live.writes == 0
        {
            self.finish(waiter.request, finished);
        }
    }
}
