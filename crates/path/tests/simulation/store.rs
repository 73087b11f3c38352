//! The replicas of one backend: the log of each, and the values that may be read from them.

use std::time::Duration;

use sherwood_model::Instant;

use crate::events::{At, Content};

/// Everything that was ever stored under one number at one replica, oldest first.
#[derive(Debug)]
pub(crate) struct Log {
    entries: Vec<Content>,
    /// Times from which on no entry before this position may be read; both ascend.
    floors: Vec<(Moment, usize)>,
    /// The same for writes that were acknowledged before they ended.
    early: Vec<(Moment, usize)>,
}

/// A time, and a number that orders events while the clock stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub(crate) step: u64,
    pub(crate) now: Instant,
}

#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) dead: bool,
    logs: Vec<Log>,
    /// Time at which the last copy from the primary arrives, so that copies keep their order.
    pub(crate) last_copy: Instant,
}

/// The replicas of one backend.
#[derive(Debug)]
pub(crate) struct Stores {
    pub(crate) replicas: Vec<Replica>,
    /// True if only the first replica is written to, and the others copy from it.
    pub(crate) primary: bool,
    /// Longest time by which a replica lags behind the first one.
    pub(crate) settle: Duration,
}

impl Stores {
    /// Creates replicas that have a value for each of `numbers` but 0. Those that copy lag by up to
    /// `lag`.
    pub(crate) fn new(backend: At, replicas: usize, numbers: u8, lag: Option<Duration>) -> Self {
        let log = |number| Log {
            entries: vec![(number != 0).then(|| value(backend, number, 0))],
            floors: Vec::new(),
            early: Vec::new(),
        };
        let replica =
            || Replica { dead: false, logs: (0..numbers).map(log).collect(), last_copy: Instant::ZERO };
        Self {
            replicas: (0..replicas).map(|_| replica()).collect(),
            primary: lag.is_some(),
            settle: lag.unwrap_or_default(),
        }
    }

    /// Returns the number of replicas that a write goes to.
    pub(crate) fn written_to(&self) -> usize {
        if self.primary { 1 } else { self.replicas.len() }
    }

    pub(crate) fn read(&self, replica: usize, number: u8) -> Content {
        *self.log(replica, number).entries.last().expect("it begins with one")
    }

    /// Stores a content, and returns its position in the replica's log.
    pub(crate) fn store(&mut self, replica: usize, number: u8, content: Content) -> usize {
        let entries = &mut self.replicas[replica].logs[usize::from(number)].entries;
        entries.push(content);
        entries.len() - 1
    }

    /// Returns the end of each replica's log of a number.
    pub(crate) fn ends(&self, number: u8) -> Vec<usize> {
        (0..self.replicas.len()).map(|replica| self.log(replica, number).entries.len() - 1).collect()
    }

    /// Forbids entries before `floors` to be read by reads that begin from `moment` on.
    pub(crate) fn raise_floors(&mut self, number: u8, moment: Moment, floors: &[usize]) {
        for (replica, &floor) in self.replicas.iter_mut().zip(floors) {
            let floors = &mut replica.logs[usize::from(number)].floors;
            let floor = floors.last().map_or(floor, |(_, last)| floor.max(*last));
            floors.push((moment, floor));
        }
    }

    /// Forbids reads that begin from `moment` on to return older values than a write that was
    /// acknowledged before it ended. `places` are the write's positions in the replicas' logs; at a
    /// replica that it has not reached, no present entry may be read.
    pub(crate) fn raise_early(&mut self, number: u8, moment: Moment, places: &[Option<usize>]) {
        for (replica, place) in self.replicas.iter_mut().zip(places) {
            let log = &mut replica.logs[usize::from(number)];
            log.early.push((moment, place.unwrap_or(log.entries.len())));
        }
    }

    /// Withdraws the restrictions of this moment, because not every replica made the write.
    pub(crate) fn withdraw(&mut self, number: u8, moment: Moment) {
        for replica in &mut self.replicas {
            replica.logs[usize::from(number)].early.retain(|(at, _)| *at != moment);
        }
    }

    /// Returns true if a read that began at `asked` may return this content.
    pub(crate) fn may_be_read(&self, number: u8, content: Content, asked: Moment) -> bool {
        let sources = if self.primary { 1 } else { self.replicas.len() };
        (0..sources).any(|replica| {
            let Log { entries, floors, early } = self.log(replica, number);
            let last = |of: &[(Moment, usize)]| {
                of.iter().rev().find(|(moment, _)| *moment <= asked).map_or(0, |(_, floor)| *floor)
            };
            entries[last(floors).max(last(early))..].contains(&content)
        })
    }

    /// Returns true if this content has not been stored at any replica.
    pub(crate) fn have_never_had(&self, number: u8, content: Content) -> bool {
        (0..self.replicas.len()).all(|replica| !self.log(replica, number).entries.contains(&content))
    }

    /// Returns true if a replica that is written to has this content.
    pub(crate) fn is_current(&self, number: u8, content: Content) -> bool {
        (0..self.written_to()).any(|replica| self.read(replica, number) == content)
    }

    /// Returns true if all replicas have the same content of a number.
    pub(crate) fn agree(&self, number: u8) -> bool {
        (1..self.replicas.len()).all(|replica| self.read(replica, number) == self.read(0, number))
    }

    fn log(&self, replica: usize, number: u8) -> &Log {
        &self.replicas[replica].logs[usize::from(number)]
    }
}

/// Returns a unique value, made of the backend, number and version.
pub(crate) fn value(backend: At, number: u8, version: u64) -> u64 {
    (backend as u64) << 56 | u64::from(number) << 48 | version
}
