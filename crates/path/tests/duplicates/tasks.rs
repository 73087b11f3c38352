//! The driver's tasks at the duplicates: inspections, batches and copies.

use sherwood_dispatch::{BatchEnd, Marker};
use sherwood_model::ReplicaId;
use sherwood_path::{Change, DuplicateEvent, DuplicateStep};

use crate::events::{Event, KEYS, Key, TIMEOUT, Version, key, ms};
use crate::servers::{Command, Seat};
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
    /// A copy, or the removal of what the server has if there is nothing to copy from, which comes
    /// to this key next.
    Fill {
        from: Option<usize>,
        key: usize,
    },
}

impl World {
    /// Takes in a step of a log.
    pub(crate) fn take_step(&mut self, seat: Seat, step: Step) {
        self.tell(|| format!("{seat:?} is to do: {step:?}"));
        if matches!(step, DuplicateStep::Inspect | DuplicateStep::Clear | DuplicateStep::Close) {
            self.link(seat).give_up_connection();
        }
        if step == DuplicateStep::Close {
            return;
        }
        self.link(seat).steps.push_back(step);
        self.begin_task(seat);
    }

    /// Begins the next step at a duplicate, if none is going on.
    fn begin_task(&mut self, seat: Seat) {
        if !matches!(self.link(seat).task, Task::None) {
            return;
        }
        let Some(step) = self.link(seat).steps.pop_front() else { return };
        let (task, commands) = match step {
            DuplicateStep::Inspect => {
                self.link(seat).connect();
                (Task::Inspection, vec![Command::ReadMarker])
            }
            DuplicateStep::Apply { marker, entries } => {
                let changes = entries.iter().map(|entry| (entry.number, &entry.change.change));
                let commands = self.batch(seat, marker, changes);
                (Task::Batch { made: 0, missing: commands.len(), refused: Vec::new() }, commands)
            }
            DuplicateStep::Copy { from } => {
                (Task::Fill { from: Some(from.index()), key: 0 }, vec![Command::Mark(None)])
            }
            DuplicateStep::Close => return,
            DuplicateStep::Clear => {
                self.link(seat).connect();
                (Task::Fill { from: None, key: 0 }, vec![Command::Mark(None)])
            }
        };
        let link = self.link(seat);
        link.tasks += 1;
        link.task = task;
        let task = link.tasks;
        link.send(commands);
        let patience = if self.servers[seat.server].is_down(self.now) { ms(2) } else { TIMEOUT };
        self.plan(patience, Event::GiveUp { seat, task });
        self.keep_serving(seat.server);
    }

    fn batch<'a>(
        &self,
        seat: Seat,
        marker: Marker,
        changes: impl Iterator<Item = (u64, &'a Change<Version>)>,
    ) -> Vec<Command> {
        let changes = changes.map(|(in_log, change)| {
            self.check_sent(seat.partition, in_log);
            let write = self.numbers[&(seat.partition, in_log)];
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
    pub(crate) fn hear(&mut self, seat: Seat, command: Command, is_made: bool) {
        let marker = self.servers[seat.server].contents.markers.get(&seat.partition).copied();
        match (&mut self.link(seat).task, command) {
            (Task::Inspection, Command::ReadMarker) => {
                self.end_task(seat, DuplicateEvent::Inspected(Ok(marker)));
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
                    self.end_task(seat, DuplicateEvent::Applied(BatchEnd::Answered(&refused)));
                }
            }
            (Task::Fill { .. }, Command::Mark(_) | Command::Fill { .. }) => self.fill_next(seat),
            _ => {}
        }
    }

    /// Copies or removes one more key of the partition, or ends the task.
    fn fill_next(&mut self, seat: Seat) {
        let now = self.now;
        let Task::Fill { from, key: next } = self.link(seat).task else { return };
        let of_partition = |number: &usize| self.duplicates.partition(&key(*number)) == seat.partition;
        let Some(key) = (next..KEYS).find(of_partition) else {
            self.count(if from.is_some() { "copy done" } else { "duplicate left" });
            let event =
                if from.is_some() { DuplicateEvent::Copied(true) } else { DuplicateEvent::Cleared(true) };
            return self.end_task(seat, event);
        };
        let source = from.map(|from| &self.servers[from]);
        if source.is_some_and(|from| from.paused_until.max(from.down_until).max(from.cut_off_until) > now) {
            self.count("copy failed");
            return self.end_task(seat, DuplicateEvent::Copied(false));
        }
        let write = source.and_then(|source| source.contents.data.get(&key).copied());
        let link = self.link(seat);
        link.task = Task::Fill { from, key: key + 1 };
        link.send([Command::Fill { key, write }]);
        self.keep_serving(seat.server);
    }

    /// Reports the end of a task, and begins the next one.
    fn end_task(&mut self, seat: Seat, event: DuplicateEvent<'_>) {
        self.link(seat).task = Task::None;
        self.report(seat, event);
        self.begin_task(seat);
    }

    fn report(&mut self, seat: Seat, event: DuplicateEvent<'_>) {
        self.tell(|| format!("{seat:?}: {event:?}"));
        let (partition, replica) = (seat.partition, ReplicaId::from_index(seat.server));
        self.drive(|machine, now, cache| machine.handle_duplicate(now, cache, partition, replica, event));
    }

    /// Gives up a task that takes too long.
    pub(crate) fn give_up_task(&mut self, seat: Seat, task: u64) {
        let link = self.link(seat);
        if link.tasks == task && !matches!(link.task, Task::None) {
            self.break_connection(seat);
        }
    }

    /// Ends the connection of a duplicate, which the driver notices.
    pub(crate) fn break_connection(&mut self, seat: Seat) {
        let link = self.link(seat);
        if link.open().is_none() {
            return;
        }
        let task = std::mem::replace(&mut link.task, Task::None);
        link.give_up_connection();
        self.keep_serving(seat.server);
        let (what, event) = match task {
            Task::None => ("idle connection broken", DuplicateEvent::Broken),
            Task::Fill { from: Some(_), .. } => ("copy failed", DuplicateEvent::Broken),
            Task::Fill { from: None, .. } => ("removal failed", DuplicateEvent::Cleared(false)),
            Task::Inspection => ("inspection failed", DuplicateEvent::Inspected(Err(()))),
            Task::Batch { made, .. } => ("batch broken", DuplicateEvent::Applied(BatchEnd::Broken(made))),
        };
        self.count(what);
        self.report(seat, event);
    }
}
