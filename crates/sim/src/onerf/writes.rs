//! Writes through a server: to every replica of the backend, then to the cache as its machine says.

use sherwood_model::{BackendId, Demand, DemandKind, PartitionId, ReplicaId};
use sherwood_path::{Change, Write, WriteId, WriteOptions, WriteOrder, WriteOutcome, WriteRefused};

use super::World;
use crate::backend::Work;
use crate::key::Key;
use crate::server::{Server, SizedCache};

impl World {
    /// Gives an object another size, now, through a server and for the tenant of a partition. A
    /// replica applies the write when a worker is done with it. Objects of traces are not written.
    ///
    /// # Errors
    /// When the backend's machine refuses the write.
    pub fn write(
        &mut self,
        server: usize,
        partition: PartitionId,
        object: u64,
        bytes: u32,
    ) -> Result<(), WriteRefused> {
        let (tenant, backend) = self.partitions.pair(partition);
        let options = WriteOptions { tenant, ..WriteOptions::default() };
        let change = Change::Put(bytes);
        let write = Write { key: Key::new(object), change, partition: Some(partition), options };
        let Server { cache, machines, .. } = &mut self.servers[server];
        machines[backend.index()].handle_write(self.now, &SizedCache(cache), write)?;
        self.drive(server as u16, backend);
        Ok(())
    }

    /// Sends a write whose turn has come to its replicas.
    pub(super) fn send_write(&mut self, server: u16, backend: BackendId, write: WriteId) {
        let machine = &mut self.servers[usize::from(server)].machines[backend.index()];
        let Some(WriteOrder { replicas, key, change, .. }) = machine.take_write(self.now, write) else {
            return;
        };
        let Change::Put(bytes) = change else { return };
        for replica in replicas {
            let demand = Demand { kind: DemandKind::Write, ..Demand::default() };
            let work = Work::Write { write, object: key.object(), bytes };
            self.send(server, backend, replica, &demand, work);
        }
    }

    /// Applies a write at a replica, and reports its result to the server's state machine.
    pub(super) fn apply_write(
        &mut self,
        server: u16,
        backend: BackendId,
        replica: ReplicaId,
        (write, object, bytes): (WriteId, u64, u32),
    ) {
        let now = self.now;
        self.backends[backend.index()].store(replica, object, now, bytes);
        let Server { cache, machines, .. } = &mut self.servers[usize::from(server)];
        let outcome = WriteOutcome::Acknowledged;
        machines[backend.index()].handle_write_reply(now, &SizedCache(cache), write, replica, outcome);
    }

    /// Takes the parts of a write that has ended out of the replicas' queues. A part that a worker
    /// has begun goes on, and takes effect after the write's end.
    pub(super) fn withdraw_write(&mut self, server: u16, backend: BackendId, ended: WriteId) {
        for replica in (0..self.backends[backend.index()].replicas()).map(ReplicaId) {
            self.withdraw(
                server,
                backend,
                replica,
                |work| matches!(work, Work::Write { write, .. } if *write == ended),
            );
        }
    }
}
