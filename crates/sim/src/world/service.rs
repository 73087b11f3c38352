//! Service: jobs wait for a worker of their replica, are served, and are answered.

use sherwood_dispatch::{QueuedCall, Reply};
use sherwood_model::{BackendId, Demand, ReplicaId};
use sherwood_path::WriteOutcome;

use super::node::{Node, SizedCache};
use super::servers::{Job, Work};
use super::{Event, Family, Simulation};

impl<F: Family> Simulation<F> {
    /// Sends a job of a node to a replica of a backend.
    #[inline]
    pub(super) fn send(
        &mut self,
        (node, backend, replica): (u16, BackendId, ReplicaId),
        demand: &Demand,
        work: Work<F::Key>,
    ) {
        let job = self.servers.jobs.insert(Job { node, replica, sent: self.now, work });
        self.enqueue(backend, job, demand);
    }

    /// Adds a job to the queue of its replica.
    pub(crate) fn enqueue(&mut self, backend: BackendId, number: u32, demand: &Demand) {
        let Some(&Job { replica, ref work, .. }) = self.servers.jobs.get(number) else { return };
        let call = QueuedCall { keys: work.keys(), is_extra: false };
        let is_queued = self.servers.queue(backend, replica).enqueue(self.now, number, demand, call);
        debug_assert!(is_queued, "the queue has no bound of its own");
        self.start_next(backend, replica);
    }

    /// Starts jobs of a replica as long as one waits and a worker is idle.
    fn start_next(&mut self, backend: BackendId, replica: ReplicaId) {
        while let Some(next) = self.servers.queue(backend, replica).start_next(self.now) {
            match self.servers.jobs.get(next) {
                Some(job) if self.family.gives_up(self.now, job) => {
                    self.servers.jobs.remove(next);
                    self.servers.queue(backend, replica).complete(next, None);
                }
                _ => F::serve(self, backend, next),
            }
        }
    }

    /// Starts the service of a job, which ends after its service time.
    #[inline]
    pub(crate) fn serve(&mut self, backend: BackendId, number: u32) {
        let Some(job) = self.servers.jobs.get(number) else { return };
        let done = self.now + self.family.service_time(self.now, backend, job);
        self.events.schedule(done, Event::Done { backend: backend.0, job: number });
    }

    /// Ends a job that was served, and passes its answer to the node.
    pub(crate) fn done(&mut self, backend: BackendId, number: u32) {
        let Some(&Job { replica, .. }) = self.servers.jobs.get(number) else { return };
        self.servers.queue(backend, replica).complete(number, None);
        self.start_next(backend, replica);
        let Some(Job { node, work, sent, .. }) = self.servers.jobs.remove(number) else { return };
        let Node { cache, machines, .. } = &mut self.nodes[usize::from(node)];
        let machine = &mut machines[backend.index()];
        match work {
            Work::Call { attempt, tenant, keys } => {
                // The keys are filled next.
                cache.prefetch(keys.iter().map(|key| (key.partition, key.as_ref())));
                let family = &mut self.family;
                let read = |key| Some(family.read(backend, replica, sent, &key));
                let key_bytes: usize = keys.iter().map(|key| key.as_ref().len()).sum();
                let sizes: Vec<_> = keys.into_iter().map(read).collect();
                let bytes = key_bytes as u64 + sizes.iter().flatten().copied().map(u64::from).sum::<u64>();
                machine.handle_reply(self.now, &SizedCache(cache), attempt, Reply::Ok(sizes));
                self.charge_backend_leg(node, tenant, bytes);
            }
            Work::Write { write, key, bytes } => {
                self.family.stored(self.now, backend, replica, key, bytes);
                let outcome = WriteOutcome::Acknowledged;
                machine.handle_write_reply(self.now, &SizedCache(cache), write, replica, outcome);
            }
            Work::Echo { .. } => return,
            Work::Probe => machine.handle_probe(self.now, &SizedCache(cache), replica, true),
        }
        self.drive(node, backend);
    }
}
