//! The driver's tasks at the duplicates: inspections and batches.

use sherwood_dispatch::{BatchEnd, Marker};
use sherwood_model::ReplicaId;
use sherwood_path::{Change, DuplicateEvent, DuplicateStep};

use crate::events::{Key, Version};
use crate::servers::Command;
use crate::world::World;

/// A step of a log at a duplicate.
pub(crate) type Step = DuplicateStep<Key, Version>;

/// What the driver waits for at a server.
#[derive(Debug)]
pub(crate) enum Task {
    None,
    Inspection,
    /// A batch, with the number of answers that are missing.
    Batch {
        missing: usize,
    },
}

impl World {
    /// Takes in a step of a log.
    pub(crate) fn take_step(&mut self, index: usize, step: Step) {
        self.tell(|| format!("server {index} is to do: {step:?}"));
        if matches!(step, DuplicateStep::Inspect) {
            self.servers[index].give_up_connection();
        }
        self.servers[index].steps.push_back(step);
        self.begin_task(index);
    }

    /// Begins the next step at a server, if none is going on.
    fn begin_task(&mut self, index: usize) {
        if !matches!(self.servers[index].task, Task::None) {
            return;
        }
        let Some(step) = self.servers[index].steps.pop_front() else { return };
        let (task, commands) = match step {
            DuplicateStep::Inspect => {
                self.servers[index].connect();
                (Task::Inspection, vec![Command::ReadMarker])
            }
            DuplicateStep::Apply { marker, entries } => {
                let commands = self.batch(
                    index,
                    marker,
                    entries.iter().map(|entry| (entry.number, &entry.change.change)),
                );
                (Task::Batch { missing: commands.len() }, commands)
            }
            DuplicateStep::Copy { .. } => unreachable!("no duplicate differs"),
        };
        let server = &mut self.servers[index];
        server.task = task;
        server.send(commands);
        self.keep_serving(index);
    }

    fn batch<'a>(
        &self,
        index: usize,
        marker: Marker,
        changes: impl Iterator<Item = (u64, &'a Change<Version>)>,
    ) -> Vec<Command> {
        let partition = index / self.duplicates.duplicates;
        let changes = changes.map(|(in_log, change)| {
            let write = self.numbers[&(partition, in_log)];
            assert!(*change == self.change(write), "entry {in_log} has the change of write {write}");
            Command::Change { write }
        });
        [Command::Mark(Some(marker))].into_iter().chain(changes).collect()
    }

    /// Returns the change that a write makes.
    pub(crate) fn change(&self, write: u64) -> Change<Version> {
        if self.history.is_put(write) { Change::Put(Version::new(write)) } else { Change::Delete }
    }

    /// Takes in the answer to a command over the open connection.
    pub(crate) fn hear(&mut self, index: usize, command: Command) {
        match (&mut self.servers[index].task, command) {
            (Task::Inspection, Command::ReadMarker) => {
                let marker = self.servers[index].contents.marker;
                self.end_task(index, DuplicateEvent::Inspected(Ok(marker)));
            }
            (Task::Batch { missing }, Command::Mark(_) | Command::Change { .. }) => {
                *missing -= 1;
                if *missing == 0 {
                    self.end_task(index, DuplicateEvent::Applied(BatchEnd::Answered(&[])));
                }
            }
            _ => {}
        }
    }

    /// Reports the end of a task, and begins the next one.
    fn end_task(&mut self, index: usize, event: DuplicateEvent<'_>) {
        self.servers[index].task = Task::None;
        self.report(index, event);
        self.begin_task(index);
    }

    fn report(&mut self, index: usize, event: DuplicateEvent<'_>) {
        self.tell(|| format!("server {index}: {event:?}"));
        let replica = ReplicaId::from_index(index);
        self.drive(|machine, now, cache| machine.handle_duplicate(now, cache, replica, event));
    }
}
