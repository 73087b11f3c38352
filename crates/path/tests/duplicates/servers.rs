//! Servers: their data, and the connections over which the logs change it.

use std::collections::{BTreeMap, VecDeque};

use sherwood_dispatch::Marker;
use sherwood_model::Instant;

use crate::events::{Event, Key, TIMEOUT, ms};
use crate::tasks::{Step, Task};
use crate::world::World;

/// The contents of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    /// The last write of each key, by its number.
    pub(crate) data: BTreeMap<usize, u64>,
    /// The markers, by partition.
    pub(crate) markers: BTreeMap<usize, Marker>,
}

/// A server as a duplicate of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seat {
    pub(crate) server: usize,
    pub(crate) partition: usize,
}

/// A command to a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    Mark(Option<Marker>),
    ReadMarker,
    /// Make a write, which has this number in its log.
    Change {
        write: u64,
        in_log: u64,
    },
    /// Store what another server has of a key.
    Fill {
        key: usize,
        write: Option<u64>,
    },
}

/// A connection as its server sees it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) commands: VecDeque<Command>,
    pub(crate) is_open: bool,
    /// True if the server has ended since, so that it gets nothing more.
    is_severed: bool,
    /// The time until which the server still carries out commands after the driver has given the
    /// connection up. It is known once the server has answered over another one.
    ends: Instant,
}

/// A server.
pub(crate) struct Server {
    pub(crate) contents: Contents,
    /// An earlier state.
    pub(crate) snapshot: Contents,
    /// Times until which the server does nothing, does not run, gets nothing from the process,
    /// refuses values, and is slow.
    pub(crate) paused_until: Instant,
    pub(crate) down_until: Instant,
    pub(crate) cut_off_until: Instant,
    pub(crate) full_until: Instant,
    pub(crate) slow_until: Instant,
    /// True while it is planned that the server carries out a command.
    is_serving: bool,
}

/// The driver of a duplicate, and its connections as the server sees them.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connections: Vec<Connection>,
    /// Steps that the driver has still to carry out.
    pub(crate) steps: VecDeque<Step>,
    pub(crate) task: Task,
    /// Numbers of the latest task and of the latest connection.
    pub(crate) tasks: u64,
    pub(crate) opened: u64,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            contents: Contents::default(),
            snapshot: Contents::default(),
            paused_until: Instant::ZERO,
            down_until: Instant::ZERO,
            cut_off_until: Instant::ZERO,
            full_until: Instant::ZERO,
            slow_until: Instant::ZERO,
            is_serving: false,
        }
    }

    pub(crate) fn is_down(&self, now: Instant) -> bool {
        self.down_until > now
    }
}

impl Link {
    pub(crate) fn new() -> Self {
        Self { connections: Vec::new(), steps: VecDeque::new(), task: Task::None, tasks: 0, opened: 0 }
    }

    /// Gives up the connection, whose commands may still be carried out, and all that was to be
    /// done over it.
    pub(crate) fn give_up_connection(&mut self) {
        self.connections.iter_mut().for_each(|connection| connection.is_open = false);
        self.steps.clear();
        self.task = Task::None;
    }

    /// Opens a connection.
    pub(crate) fn connect(&mut self) {
        self.opened += 1;
        self.connections.push(Connection {
            commands: VecDeque::new(),
            is_open: true,
            is_severed: false,
            ends: Instant::NEVER,
        });
    }

    pub(crate) fn open(&mut self) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.is_open)
    }

    /// Sends commands over the open connection.
    pub(crate) fn send(&mut self, commands: impl IntoIterator<Item = Command>) {
        let open = self.open().expect("the log has had one opened");
        if !open.is_severed {
            open.commands.extend(commands);
        }
    }

    /// Ends the connections, since the server's process has ended.
    pub(crate) fn sever(&mut self) {
        for connection in &mut self.connections {
            connection.is_severed = true;
            connection.commands.clear();
        }
    }

    /// Limits the time for which commands of earlier connections are carried out, since the server
    /// has answered over a later one: less than the time for which the logs wait.
    fn end_earlier(&mut self, now: Instant) {
        let earlier = self.connections.iter_mut().filter(|connection| !connection.is_open);
        earlier.for_each(|connection| connection.ends = connection.ends.min(now + TIMEOUT - ms(5)));
    }
}

impl World {
    pub(crate) fn link(&mut self, seat: Seat) -> &mut Link {
        self.links.entry(seat).or_insert_with(Link::new)
    }

    /// Returns the drivers of a server.
    pub(crate) fn links_of(&mut self, server: usize) -> impl Iterator<Item = (Seat, &mut Link)> {
        let [first, end] = [server, server + 1].map(|server| Seat { server, partition: 0 });
        self.links.range_mut(first..end).map(|(seat, link)| (*seat, link))
    }

    /// Has a server carry out its commands, if it has any.
    pub(crate) fn keep_serving(&mut self, index: usize) {
        let (now, mut has_any, mut waits_for_open) = (self.now, false, true);
        for (_, link) in self.links_of(index) {
            link.connections.retain(|one| one.is_open || (one.ends > now && !one.commands.is_empty()));
            has_any |= link.connections.iter().any(|one| !one.commands.is_empty());
            waits_for_open &= link.connections.iter().all(|one| one.is_open || one.commands.is_empty());
        }
        let server = &mut self.servers[index];
        if server.is_serving || !has_any {
            return;
        }
        server.is_serving = true;
        let resumes = server.paused_until.max(server.down_until);
        let resumes = if waits_for_open { resumes.max(server.cut_off_until) } else { resumes };
        let longest = if server.slow_until > now { ms(30) } else { ms(1) };
        let delay = self.draw_time(longest);
        self.plan_at(resumes.max(now) + delay, Event::Serve(index));
    }

    /// A server carries out one command, of any connection.
    pub(crate) fn serve(&mut self, index: usize) {
        let now = self.now;
        self.servers[index].is_serving = false;
        let server = &self.servers[index];
        let (cut_off_until, idle_until) = (server.cut_off_until, server.paused_until.max(server.down_until));
        let is_ready = |one: &Connection| {
            !one.commands.is_empty() && (!one.is_open || cut_off_until <= now) && one.ends > now
        };
        let mut ready = Vec::new();
        for (seat, link) in self.links_of(index) {
            let of_link = link.connections.iter().enumerate().filter(|(_, one)| is_ready(one));
            ready.extend(of_link.map(|(at, _)| (seat, at)));
        }
        if !ready.is_empty() && idle_until <= now {
            let (seat, at) = ready[self.draw(ready.len() as u64) as usize];
            let connection = &mut self.link(seat).connections[at];
            let (command, is_heard) = (connection.commands.pop_front(), connection.is_open);
            command.into_iter().for_each(|command| self.carry_out_command(seat, command, is_heard));
        }
        self.keep_serving(index);
    }

    fn carry_out_command(&mut self, seat: Seat, command: Command, is_heard: bool) {
        self.tell(|| format!("{seat:?}: {command:?}{}", if is_heard { "" } else { ", late" }));
        if !is_heard {
            self.count("command landed late");
        }
        let (now, mut is_made) = (self.now, true);
        let server = &mut self.servers[seat.server];
        match command {
            Command::Mark(Some(marker)) => drop(server.contents.markers.insert(seat.partition, marker)),
            Command::Mark(None) => drop(server.contents.markers.remove(&seat.partition)),
            Command::ReadMarker if is_heard => self.link(seat).end_earlier(now),
            Command::ReadMarker => {}
            Command::Change { write, .. } => {
                let key = self.history.key(write);
                is_made = !self.history.is_put(write) || !(is_too_large(write) || server.full_until > now);
                if is_made {
                    server.contents.data.insert(key, write);
                } else {
                    self.count("change refused");
                }
            }
            Command::Fill { key, write } => {
                server.contents.data.remove(&key);
                server.contents.data.extend(write.map(|write| (key, write)));
            }
        }
        if is_heard {
            self.hear(seat, command, is_made);
        }
    }

    /// Returns the value that a server has of a key.
    pub(crate) fn value_at(&self, index: usize, key: Key) -> Option<u64> {
        let write = self.servers[index].contents.data.get(&crate::events::number_of(key)).copied();
        write.filter(|write| self.history.is_put(*write))
    }
}

/// True for the writes that every server refuses.
fn is_too_large(write: u64) -> bool {
    write.is_multiple_of(24)
}
