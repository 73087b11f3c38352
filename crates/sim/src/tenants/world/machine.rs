//! Backends: their state machines, and the answers that they give after a fixed time.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_dispatch::{
    AttemptId, FetchError, Options as DispatchOptions, OverRate, Reply, RetryOptions, TenantOptions,
};
use sherwood_model::{BackendId, Instant, PartitionId, ReplicaId, SeededState, Unit};
use sherwood_path::{
    Action, Backend, BackendOptions, Units, WriteId, WriteOrder, WriteOutcome, WriteRefused,
};
use sherwood_workload::Rng;
use sherwood_workload::tenants::{Kind, Resource, Scenario};

use super::{Event, Outcome, WAITING_MAX, World};
use crate::server::SizedCache;
use crate::tenants::key::Key;
use crate::tenants::part::Part;
use crate::tenants::setup::{Setup, SetupError};
use crate::traffic::stream;

/// A backend and its driver's state.
pub(super) struct Machine {
    pub(super) backend: Backend<Key, u32, u32>,
    latency: Duration,
    /// The time at which the backend is woken up next.
    armed: Option<Instant>,
    /// The request and the partition of each write in flight.
    pub(super) writes: BTreeMap<WriteId, (u32, PartitionId)>,
    /// Random numbers with which the dispatcher chooses replicas.
    pub(super) draws: Rng,
}

/// Number of the first backend's stream of random draws with which its dispatcher chooses replicas.
const ROUTES: u64 = 3 << 40;

impl Machine {
    pub(super) fn new(
        setup: &Setup,
        scenario: &Scenario,
        parts: &[Part],
        id: BackendId,
        hash: SeededState,
    ) -> Result<Self, SetupError> {
        let own = parts.iter().enumerate().filter(|(_, part)| part.backend == id);
        let partitions = own.map(|(index, _)| PartitionId::from_index(index)).collect();
        let spec = &scenario.backends[id.index()];
        let dispatch = DispatchOptions {
            batch_keys_max: 1,
            in_flight_calls_max: spec.slots,
            queued_calls_max: WAITING_MAX,
            waiters_max: WAITING_MAX,
            timeout: TIMEOUT,
            tenants: Some(TenantOptions {
                tenants: scenario.tenants.len() as u16,
                burst_units: TenantOptions::BURST_UNITS,
                lends: setup.knobs.lends,
                over: OverRate::Wait,
            }),
            retry: RetryOptions { per_call_max: 0, ..RetryOptions::default() },
            ..DispatchOptions::default()
        };
        let options =
            BackendOptions { units: units(scenario, id), ..BackendOptions::new(dispatch, 1, partitions) };
        Ok(Self {
            backend: Backend::new(options, Instant::ZERO, hash)?,
            latency: spec.latency.0,
            armed: None,
            writes: BTreeMap::new(),
            draws: stream(setup.seed, ROUTES + id.0 as u64),
        })
    }
}

/// Returns the units of a backend's reads and writes, as the scenario's resources say.
pub(super) fn units(scenario: &Scenario, id: BackendId) -> Units {
    let unit = |kind: Kind| {
        let is_own = |resource: &&Resource| {
            let backend = resource.backend.as_deref().and_then(|name| scenario.backend(name));
            resource.kind == kind && backend == Some(id.index())
        };
        scenario.resources.iter().find(is_own).map_or(Unit::Count, Resource::measure)
    };
    Units { reads: unit(Kind::Reads), writes: unit(Kind::Writes) }
}

/// The time after which a refused write may be tried again, if that is known.
pub(super) fn retry_in(refused: &WriteRefused) -> Option<Duration> {
    match refused {
        WriteRefused::OverRate(refusal) => Some(refusal.retry_in()),
        WriteRefused::NoTurn(wait) => Some(*wait),
        WriteRefused::Full { .. } | WriteRefused::KeyFull { .. } => None,
    }
}

/// Timeout of backends: far beyond the time for which a client of a closed loop waits for its
/// tenant's rate.
const TIMEOUT: Duration = Duration::from_secs(60);

impl World {
    /// Performs the pending actions of a backend.
    pub(super) fn drive(&mut self, id: BackendId) {
        while let Some(action) = self.backends[id.index()].backend.poll_action() {
            match action {
                Action::Call { attempt, keys, .. } => {
                    // Calls have one key each.
                    for key in keys {
                        let event = Event::Answer { attempt, partition: key.partition };
                        self.events.schedule(self.now + self.backends[id.index()].latency, event);
                    }
                }
                Action::Deliver { key, result, waiters } => {
                    let mut outcome = match &result {
                        Ok(_) => Outcome::Miss,
                        Err(FetchError::OverRate(refusal)) => Outcome::Refused(Some(refusal.retry_in())),
                        Err(_) => Outcome::Refused(None),
                    };
                    for request in waiters {
                        self.end_operation(request, key.partition, outcome);
                        if outcome == Outcome::Miss {
                            outcome = Outcome::Joined;
                        }
                    }
                }
                Action::StartWrite(write) => self.start_write(id, write),
                Action::EndWrite { write, outcome, .. } => {
                    let is_written = outcome == WriteOutcome::Acknowledged;
                    let outcome = if is_written { Outcome::Written } else { Outcome::Refused(None) };
                    if let Some((request, partition)) = self.backends[id.index()].writes.remove(&write) {
                        self.end_operation(request, partition, outcome);
                    }
                }
                // A call that is no longer needed is served nevertheless; backends are never down.
                Action::Cancel { .. } | Action::Probe { .. } => {}
            }
        }
        let Machine { backend, armed, .. } = &mut self.backends[id.index()];
        if let Some(due) = backend.next_timeout()
            && armed.is_none_or(|armed| due < armed)
        {
            *armed = Some(due);
            self.events.schedule(due.max(self.now), Event::Wake { backend: id });
        }
    }

    pub(super) fn wake(&mut self, id: BackendId) {
        let Machine { backend, armed, .. } = &mut self.backends[id.index()];
        if armed.is_some_and(|armed| armed <= self.now) {
            *armed = None;
        }
        backend.handle_timeout(self.now, &SizedCache(&self.cache));
        self.drive(id);
    }

    fn start_write(&mut self, id: BackendId, write: WriteId) {
        let Machine { backend, latency, .. } = &mut self.backends[id.index()];
        let Some(WriteOrder { replicas, .. }) = backend.take_write(self.now, write) else { return };
        let at = self.now + *latency;
        for replica in replicas {
            self.events.schedule(at, Event::Written { backend: id, write, replica });
        }
    }

    pub(super) fn written(&mut self, id: BackendId, write: WriteId, replica: ReplicaId) {
        let machine = &mut self.backends[id.index()].backend;
        let outcome = WriteOutcome::Acknowledged;
        machine.handle_write_reply(self.now, &SizedCache(&self.cache), write, replica, outcome);
        self.drive(id);
    }

    pub(super) fn answer(&mut self, attempt: AttemptId, partition: PartitionId) {
        let Part { backend, value_bytes, .. } = self.parts[partition.index()];
        let reply = Reply::Ok(vec![Some(value_bytes)]);
        let machine = &mut self.backends[backend.index()].backend;
        machine.handle_reply(self.now, &SizedCache(&self.cache), attempt, reply);
        self.drive(backend);
    }
}
