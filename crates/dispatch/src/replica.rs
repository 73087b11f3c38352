//! What the dispatcher keeps for one replica.

use std::collections::VecDeque;

use sherwood_model::ReplicaId;

use crate::health::Health;
use crate::slab::Id;
use crate::{ReplicaLoad, ReplicaStats};

/// One server of the backend: its health, its calls, and the calls that wait for it, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) id: ReplicaId,
    pub(crate) health: Health,
    pub(crate) in_flight_calls: u32,
    pub(crate) queue: VecDeque<Id>,
    /// How often it went down.
    pub(crate) downs: u64,
}

impl Replica {
    pub(crate) fn new(id: ReplicaId) -> Self {
        Self { id, health: Health::new(), in_flight_calls: 0, queue: VecDeque::new(), downs: 0 }
    }

    /// Takes a call out of the queue, which it is in; linear in the queue's bounded length, and at
    /// the front as a rule.
    pub(crate) fn unqueue(&mut self, call: Id) {
        if let Some(position) = self.queue.iter().position(|queued| *queued == call) {
            self.queue.remove(position);
        }
    }

    pub(crate) fn load(&self) -> ReplicaLoad {
        ReplicaLoad {
            replica: self.id,
            in_flight_calls: self.in_flight_calls,
            queued_calls: self.queue.len() as u32,
        }
    }

    pub(crate) fn stats(&self) -> ReplicaStats {
        let ReplicaLoad { replica, in_flight_calls, queued_calls } = self.load();
        ReplicaStats { replica, up: self.health.is_up(), downs: self.downs, in_flight_calls, queued_calls }
    }
}
