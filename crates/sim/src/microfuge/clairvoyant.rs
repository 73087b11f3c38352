//! A scheduler that knows the service times: a bound for all others.

use std::time::Duration;

use sherwood_dispatch::Holders;
use sherwood_model::{DeadlineClass, Instant, ReplicaId};

use super::key::Key;
use super::setup::Setup;

/// Servers that start the read with the earliest deadline first, and accept a read only if with it
/// every read can still meet its deadline. So no read is late.
///
/// A read goes to the server that would finish it first, of those that can accept it. Accepting a
/// read takes time linear in the number of waiting reads. `W` identifies a waiter for a read.
pub(super) struct Clairvoyant<W> {
    servers: Vec<Server<W>>,
}

#[derive(Debug)]
struct Server<W> {
    /// The read in each slot, with the time of its end.
    slots: Vec<Option<(Instant, Read<W>)>>,
    /// Reads that wait, the earliest deadline first.
    waiting: Vec<Read<W>>,
}

/// A read for one or more waiters.
#[derive(Clone, Debug)]
pub(super) struct Read<W> {
    pub(super) key: Key,
    pub(super) class: DeadlineClass,
    pub(super) deadline: Instant,
    pub(super) time: Duration,
    pub(super) waiters: Vec<W>,
}

impl<W: Copy> Clairvoyant<W> {
    pub(super) fn new(setup: &Setup) -> Self {
        let slots = setup.knobs.slots as usize;
        let server = || Server { slots: (0..slots).map(|_| None).collect(), waiting: Vec::new() };
        Self { servers: (0..setup.knobs.servers).map(|_| server()).collect() }
    }

    /// Accepts a read and returns its server, or returns none: the request has then to be rejected.
    pub(super) fn accept(&mut self, now: Instant, copies: Holders, read: Read<W>) -> Option<ReplicaId> {
        let servers = self.servers.len();
        let holders = (0..servers).map(ReplicaId::from_index);
        let holders = holders.filter(|server| copies.include(*server, servers));
        for server in holders.clone() {
            if self.servers[server.index()].join(now, &read) {
                return Some(server);
            }
        }
        let end = |server: ReplicaId| Some((self.servers[server.index()].end_with(now, &read)?, server));
        let (_, server) = holders.filter_map(end).min()?;
        let Server { waiting, .. } = &mut self.servers[server.index()];
        let place = waiting.partition_point(|other| other.deadline <= read.deadline);
        waiting.insert(place, read);
        Some(server)
    }

    /// Starts the next read of a server, if one waits and a slot is free. Returns its slot and the
    /// time of its end.
    pub(super) fn start_next(&mut self, now: Instant, server: ReplicaId) -> Option<(u32, Instant)> {
        let Server { slots, waiting } = &mut self.servers[server.index()];
        let free = slots.iter().position(Option::is_none)?;
        if waiting.is_empty() {
            return None;
        }
        let read = waiting.remove(0);
        let end = now + read.time;
        slots[free] = Some((end, read));
        Some((free as u32, end))
    }

    /// Removes the read of a slot that has ended.
    pub(super) fn complete(&mut self, server: ReplicaId, slot: u32) -> Option<Read<W>> {
        self.servers[server.index()].slots[slot as usize].take().map(|(_, read)| read)
    }
}

impl<W: Copy> Server<W> {
    /// Adds the waiters of `read` to another read of the same record that runs or waits, if that
    /// ends in time, and returns true.
    fn join(&mut self, now: Instant, read: &Read<W>) -> bool {
        let in_slot = |slot: &&mut Option<(Instant, Read<W>)>| {
            slot.as_ref().is_some_and(|(end, other)| other.key == read.key && *end <= read.deadline)
        };
        if let Some(Some((_, other))) = self.slots.iter_mut().find(in_slot) {
            other.waiters.extend(&read.waiters);
            return true;
        }
        let Some(place) = self.waiting.iter().position(|other| other.key == read.key) else { return false };
        if self.waiting[place].deadline > read.deadline {
            let other = self.waiting.remove(place);
            let urgent = Read { deadline: read.deadline, ..other.clone() };
            if self.end_with(now, &urgent).is_none() {
                self.waiting.insert(place, other);
                return false;
            }
            let before = self.waiting.partition_point(|other| other.deadline <= urgent.deadline);
            self.waiting.insert(before, urgent);
            return self.join(now, read);
        }
        self.waiting[place].waiters.extend(&read.waiters);
        true
    }

    /// Returns the time at which `read` would end if it were accepted; none if it or another read
    /// would then be late.
    fn end_with(&self, now: Instant, read: &Read<W>) -> Option<Instant> {
        let mut free: Vec<Instant> =
            self.slots.iter().map(|slot| slot.as_ref().map_or(now, |(end, _)| *end)).collect();
        let place = self.waiting.partition_point(|other| other.deadline <= read.deadline);
        let (before, after) = self.waiting.split_at(place);
        let mut end = None;
        for (index, next) in before.iter().chain([read]).chain(after).enumerate() {
            let slot = free.iter_mut().min()?;
            *slot += next.time;
            if *slot > next.deadline {
                return None;
            }
            if index == place {
                end = Some(*slot);
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(record: u64, deadline_ms: u64, time_ms: u64, request: u32) -> Read<u32> {
        Read {
            key: Key::new(0, record, 0, 0),
            class: DeadlineClass(0),
            deadline: Instant::from_millis(deadline_ms),
            time: Duration::from_millis(time_ms),
            waiters: vec![request],
        }
    }

    fn one_server() -> (Clairvoyant<u32>, Holders) {
        (Clairvoyant::new(&Setup::new("clairvoyant", 1)), Holders::One(ReplicaId(3)))
    }

    #[test]
    fn read_is_rejected_if_it_or_another_one_would_be_late() {
        let (mut servers, holders) = one_server();
        let now = Instant::ZERO;
        assert!(servers.accept(now, holders, read(1, 10, 6, 1)).is_some());
        assert!(servers.accept(now, holders, read(2, 11, 6, 2)).is_none(), "it would end at 12 ms");
        assert!(servers.accept(now, holders, read(3, 9, 5, 3)).is_none(), "the first would end at 11 ms");
        assert!(servers.accept(now, holders, read(4, 4, 4, 4)).is_some());
        assert_eq!(servers.start_next(now, ReplicaId(3)), Some((0, Instant::from_millis(4))));
        assert_eq!(servers.start_next(now, ReplicaId(3)), None);
        assert_eq!(servers.complete(ReplicaId(3), 0).map(|read| read.waiters), Some(vec![4]));
        let now = Instant::from_millis(4);
        assert_eq!(servers.start_next(now, ReplicaId(3)), Some((0, Instant::from_millis(10))));
    }

    #[test]
    fn request_joins_a_read_of_its_record_that_ends_in_time() {
        let (mut servers, holders) = one_server();
        let now = Instant::ZERO;
        servers.accept(now, holders, read(1, 30, 6, 1)).expect("it is idle");
        servers.accept(now, holders, read(2, 40, 6, 2)).expect("both end in time");
        // The second read moves before the first, which still ends in time.
        servers.accept(now, holders, read(2, 8, 6, 3)).expect("it joins");
        assert_eq!(servers.start_next(now, ReplicaId(3)), Some((0, Instant::from_millis(6))));
        servers.accept(now, holders, read(2, 6, 6, 4)).expect("it joins what has begun");
        assert!(servers.accept(now, holders, read(2, 5, 6, 5)).is_none());
        assert_eq!(servers.complete(ReplicaId(3), 0).map(|read| read.waiters), Some(vec![2, 3, 4]));
    }
}
