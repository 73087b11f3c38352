//! Writes: through a node's state machine to the replicas that hold the key.

use std::time::Duration;

use sherwood_model::{BackendId, Demand, DemandKind, FinishedRequest, ReplicaId};
use sherwood_path::{Change, Write, WriteId, WriteOrder, WriteOutcome, WriteRefused};

use super::family::{AskedWrite, Family};
use super::node::{Node, PendingWrite, SizedCache};
use super::servers::Work;
use super::{Live, Simulation};

impl<F: Family> Simulation<F> {
    /// Passes a write to the state machine of a node's backend. The caller then
    /// [drives](Self::drive) the machine.
    pub(crate) fn begin_write(
        &mut self,
        node: u16,
        asked: AskedWrite<F::Key>,
    ) -> Result<WriteId, WriteRefused> {
        let AskedWrite { backend, partition, key, bytes, options } = asked;
        let write = Write { key, change: Change::Put(bytes), partition: Some(partition), options };
        let Node { cache, machines, .. } = &mut self.nodes[usize::from(node)];
        let write = machines[backend.index()].handle_write(self.now, &SizedCache(cache), write)?;
        self.charge_backend_leg(node, options.tenant, key.as_ref().len() as u64 + u64::from(bytes));
        Ok(write)
    }

    /// Begins a write of a request. A refused write ends at once.
    pub(super) fn write_for(&mut self, request: u32, node: u16, asked: AskedWrite<F::Key>) {
        let (backend, pending) = (asked.backend, PendingWrite { request, partition: asked.partition });
        match self.begin_write(node, asked) {
            Ok(write) => {
                self.nodes[usize::from(node)].writes.insert((backend, write), pending);
                self.drive(node, backend);
            }
            Err(refused) => {
                self.end_part(pending, backend, |client| F::refused(client, retry_in(&refused)));
            }
        }
    }

    /// Sends a write that its state machine has started to the replicas that hold its key.
    pub(super) fn start_write(&mut self, node: u16, backend: BackendId, write: WriteId) {
        let machine = &mut self.nodes[usize::from(node)].machines[backend.index()];
        let Some(WriteOrder { replicas, key, change: Change::Put(bytes), .. }) =
            machine.take_write(self.now, write)
        else {
            return;
        };
        for replica in replicas {
            let demand = Demand { kind: DemandKind::Write, ..Demand::default() };
            self.send((node, backend, replica), &demand, Work::Write { write, key, bytes });
        }
    }

    /// Ends a write. If it failed, its jobs that wait for a worker are withdrawn. A job that a
    /// worker has begun goes on, and takes effect after the write's end.
    pub(super) fn end_write(&mut self, node: u16, backend: BackendId, ended: WriteId, outcome: WriteOutcome) {
        let is_acknowledged = outcome == WriteOutcome::Acknowledged;
        if !is_acknowledged {
            for replica in (0..self.servers.replicas(backend)).map(ReplicaId) {
                let wanted = |work: &_| matches!(work, Work::Write { write, .. } if *write == ended);
                self.servers.withdraw((node, backend, replica), wanted);
            }
        }
        let Some(pending) = self.nodes[usize::from(node)].writes.remove(&(backend, ended)) else { return };
        self.end_part(pending, backend, |client| {
            if !is_acknowledged {
                F::write_failed(client);
            }
        });
    }

    /// Counts a write of a request as ended, and ends the request if that was its last operation.
    fn end_part(&mut self, pending: PendingWrite, backend: BackendId, change: impl FnOnce(&mut F::Client)) {
        let PendingWrite { request: number, partition, .. } = pending;
        let Some(live) = self.live.get_mut(number) else { return };
        live.writes -= 1;
        change(&mut live.client);
        self.family.operation_ended(self.now, live, partition);
        let Live { node, began, request, writes, .. } = live;
        if *writes == 0 && request.as_ref().is_some_and(|request| request.finished().is_some()) {
            let tenant = self.nodes[usize::from(*node)].owners[partition.index()].0;
            let finished = FinishedRequest::new(self.now - *began, Some(backend)).of(tenant);
            self.finish(number, finished);
        }
    }
}

/// Returns the time after which a refused write may be tried again, if known.
fn retry_in(refused: &WriteRefused) -> Option<Duration> {
    match refused {
        WriteRefused::OverRate(refusal) => Some(refusal.retry_in()),
        WriteRefused::NoTurn(wait) => Some(*wait),
        WriteRefused::Unknown(wait) => *wait,
        WriteRefused::Full { .. } | WriteRefused::KeyFull { .. } | WriteRefused::Log(_) => None,
    }
}
