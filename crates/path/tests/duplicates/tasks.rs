//! The driver's tasks at the duplicates: inspections, batches and copies.

use sherwood_dispatch::{BatchEnd, Marker};
use sherwood_model::ReplicaId;
use sherwood_path::{Change, DuplicateEvent, DuplicateStep};

use crate::events::{Event, KEYS, Key, TIMEOUT, Version, ms};
use crate::servers::Command;
use crate::world::World;

/// A step of a log at a duplicate.
pub(crate) type Step = DuplicateStep<Key, Version>;

/// The task whose end the driver waits for at a server.
#[derive(Debug)]
pub(crate) enum Task {
    None,
    Inspection,
    /// A batch, with the last change made before a refusal, the answers that are missing, and the
    /// changes refused.
    Batch {
        made: u64,
        missing: usize,
        refused: Vec<u64>,
    },
    /// A copy, which stores this key next.
    Copy {
        from: usize,
        key: usize,
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
                (Task::Batch { made: 0, missing: commands.len(), refused: Vec::new() }, commands)
            }
            DuplicateStep::Copy { from } => {
                (Task::Copy { from: from.index(), key: 0 }, vec![Command::Mark(None)])
            }
        };
        let server = &mut self.servers[index];
        server.tasks += 1;
        server.task = task;
        server.send(commands);
        let patience = if server.is_down(self.now) { ms(2) } else { TIMEOUT };
        let task = server.tasks;
        self.plan(patience, Event::GiveUp { server: index, task });
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
            Command::Change { write, in_log }
        });
        [Command::Mark(Some(marker))].into_iter().chain(changes).collect()
    }

    /// Returns the change that a write makes.
    pub(crate) fn change(&self, write: u64) -> Change<Version> {
        if self.history.is_put(write) { Change::Put(Version::new(write)) } else { Change::Delete }
    }

    /// Takes in the answer to a command over the open connection.
    pub(crate) fn hear(&mut self, index: usize, command: Command, is_made: bool) {
        match (&mut self.servers[index].task, command) {
            (Task::Inspection, Command::ReadMarker) => {
                let marker = self.servers[index].contents.marker;
                self.end_task(index, DuplicateEvent::Inspected(Ok(marker)));
            }
            (Task::Batch { made, missing, refused }, Command::Mark(_) | Command::Change { .. }) => {
                if let Command::Change { in_log, .. } = command {
                    if !is_made {
                        refused.push(in_log);
                    } else if refused.is_empty() {
                        *made = in_log;
                    }
                }
                *missing -= 1;
                if *missing == 0 {
                    let refused = std::mem::take(refused);
                    self.end_task(index, DuplicateEvent::Applied(BatchEnd::Answered(&refused)));
                }
            }
            (Task::Copy { .. }, Command::Mark(_) | Command::Fill { .. }) => self.copy_next(index),
            _ => {}
        }
    }

    /// Copies one more key, or ends the copy.
    fn copy_next(&mut self, index: usize) {
        let now = self.now;
        let Task::Copy { from, key } = self.servers[index].task else { return };
        if key == KEYS {
            self.count("copy done");
            return self.end_task(index, DuplicateEvent::Copied(true));
        }
        let source = &self.servers[from];
        if source.paused_until.max(source.down_until).max(source.cut_off_until) > now {
            self.count("copy failed");
            return self.end_task(index, DuplicateEvent::Copied(false));
        }
        let write = source.contents.data.get(&key).copied();
        let server = &mut self.servers[index];
        server.task = Task::Copy { from, key: key + 1 };
        server.send([Command::Fill { key, write }]);
        self.keep_serving(index);
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

    /// Gives up a task that takes too long.
    pub(crate) fn give_up_task(&mut self, index: usize, task: u64) {
        let server = &self.servers[index];
        if server.tasks == task && !matches!(server.task, Task::None) {
            self.break_connection(index);
        }
    }

    /// Ends the connection of a server, which the driver notices.
    pub(crate) fn break_connection(&mut self, index: usize) {
        if self.servers[index].open().is_none() {
            return;
        }
        let task = std::mem::replace(&mut self.servers[index].task, Task::None);
        self.servers[index].give_up_connection();
        self.keep_serving(index);
        let (what, event) = match task {
            Task::None => ("idle connection broken", DuplicateEvent::Broken),
            Task::Copy { .. } => ("copy failed", DuplicateEvent::Broken),
            Task::Inspection => ("inspection failed", DuplicateEvent::Inspected(Err(()))),
            Task::Batch { made, .. } => ("batch broken", DuplicateEvent::Applied(BatchEnd::Broken(made))),
        };
        self.count(what);
        self.report(index, event);
    }
}
