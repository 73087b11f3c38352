//! Faults of servers, connections and the process.

use std::time::Duration;

use sherwood_dispatch::{Acknowledge, DuplicateState};
use sherwood_path::DuplicateStanding;

use crate::disks::Disk;
use crate::events::{ALONE_AFTER, Event, FAULTY, OUTAGE, ms};
use crate::servers::{Contents, Seat};
use crate::world::World;

/// A fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A connection of a server breaks.
    Break(usize),
    /// A server does nothing for some time.
    Pause(usize),
    /// A server gets nothing from the process for some time.
    CutOff(usize),
    /// A server refuses all values for some time.
    Fill(usize),
    /// A server is slow for some time.
    Slow(usize),
    /// The state of a server is kept, to go back to.
    Snapshot(usize),
    /// A server ends, and starts again.
    Kill(usize),
    /// The process ends, and starts again with the disk that it had, if there is one.
    Crash,
    /// The process ends, and starts again without disk, or with what was on it some time ago.
    Restart { keeps_earlier: bool },
    /// The disk is full for some time.
    FillDisk,
    /// The disk is slow for some time.
    SlowDisk,
    /// The next write to the disk fails for good.
    BreakDisk,
    /// A server is cut off for longer than a process that starts at the same time waits for it.
    Outage(usize),
    /// The state of the disk is kept, to go back to.
    SnapshotDisk,
}

impl World {
    /// Draws the faults of a run.
    pub(crate) fn plan_faults(&mut self) {
        for server in 0..self.servers.len() {
            for _ in 0..self.draw(16) {
                let kinds = [
                    Fault::Break(server),
                    Fault::Pause(server),
                    Fault::CutOff(server),
                    Fault::Fill(server),
                    Fault::Slow(server),
                    Fault::Snapshot(server),
                    Fault::Kill(server),
                ];
                let kind = kinds[self.draw(kinds.len() as u64) as usize];
                let at = self.draw_time(FAULTY);
                self.plan(at, Event::Fail(kind));
            }
        }
        for _ in 0..self.draw(3) {
            let at = self.draw_time(FAULTY);
            let keeps_earlier = self.once_in(2);
            let loses_disk = self.disks.is_none() || self.once_in(4);
            let restart = if loses_disk { Fault::Restart { keeps_earlier } } else { Fault::Crash };
            self.plan(at, Event::Fail(restart));
        }
        for _ in 0..self.draw(6) {
            let kinds =
                [Fault::FillDisk, Fault::SlowDisk, Fault::BreakDisk, Fault::SnapshotDisk, Fault::Crash];
            let kind = kinds[self.draw(kinds.len() as u64) as usize];
            let at = self.draw_time(FAULTY);
            if self.disks.is_some() {
                self.plan(at, Event::Fail(kind));
            }
        }
        for _ in 0..self.draw(6) {
            let at = self.draw_time(FAULTY);
            self.plan(at, Event::Change);
        }
        self.plan(FAULTY, Event::Heal);
        if self.once_in(2) {
            let server = self.draw(self.servers.len() as u64) as usize;
            self.plan(FAULTY + ms(250), Event::Fail(Fault::Outage(server)));
        }
    }

    pub(crate) fn fail(&mut self, fault: Fault) {
        self.tell(|| format!("fault: {fault:?}"));
        let until = self.now + self.draw_time(ms(150));
        match fault {
            Fault::Break(server) => {
                let seats: Vec<Seat> = self.links_of(server).map(|(seat, _)| seat).collect();
                if !seats.is_empty() {
                    let seat = seats[self.draw(seats.len() as u64) as usize];
                    self.break_connection(seat);
                }
            }
            Fault::Pause(server) => {
                self.count("server paused");
                self.servers[server].paused_until = until;
            }
            Fault::CutOff(server) => {
                self.count("server cut off");
                self.servers[server].cut_off_until = until;
            }
            Fault::Fill(server) => self.servers[server].full_until = until,
            Fault::Slow(server) => self.servers[server].slow_until = until,
            Fault::Snapshot(server) => {
                self.servers[server].snapshot = self.servers[server].contents.clone();
            }
            Fault::Kill(server) => self.kill(server),
            Fault::Crash => {
                self.lose_with_process();
                self.crash();
            }
            Fault::Restart { keeps_earlier } => self.restart(keeps_earlier),
            Fault::Outage(server) => self.cut_off_for_long(server),
            Fault::FillDisk => self.disk_faults.full_until = until,
            Fault::SlowDisk => self.disk_faults.slow_until = until,
            Fault::BreakDisk => self.disk_faults.breaks = true,
            Fault::SnapshotDisk => self.earlier = (self.disks.clone(), self.numbers.clone()),
        }
    }

    /// Ends a server, which starts again with its data, with earlier data or without any. The
    /// driver notices it before that.
    fn kill(&mut self, index: usize) {
        self.count("server killed");
        let may_lose = self.may_lose(index);
        let kind = self.draw(3);
        let down = ms(2) + self.draw_time(ms(50));
        self.links_of(index).for_each(|(_, link)| link.sever());
        let server = &mut self.servers[index];
        server.down_until = self.now + down;
        if may_lose && kind < 2 {
            server.contents = if kind == 0 { Contents::default() } else { server.snapshot.clone() };
        }
        if may_lose && kind < 2 {
            self.count(if kind == 0 { "server lost its data" } else { "server went back to earlier data" });
        }
        let noticed = self.draw_time(down);
        let opened: Vec<_> = self.links_of(index).map(|(seat, link)| (seat, link.opened)).collect();
        for (seat, connection) in opened {
            self.plan(noticed, Event::Notice { seat, connection });
        }
    }

    /// Has a server end together with the process and lose its data, if another duplicate of each
    /// of its partitions is read: that one gets the changes that it lacks from the disk.
    fn lose_with_process(&mut self) {
        let index = self.draw(self.servers.len() as u64) as usize;
        if self.has_others(index, |_| true) {
            self.count("server lost its data with the process");
            self.links_of(index).for_each(|(_, link)| link.sever());
            self.servers[index].contents = Contents::default();
        }
    }

    /// True if another duplicate of each of the server's partitions is read and has every change.
    fn may_lose(&self, index: usize) -> bool {
        self.has_others(index, |one| one.lag == 0)
    }

    /// True if another duplicate of each of the server's partitions is read, and is so.
    fn has_others(&self, index: usize, is_so: impl Fn(&DuplicateStanding) -> bool) -> bool {
        let logs = self.machine.logs().expect("it has logs");
        let own = logs.duplicates.iter().filter(|one| one.replica.index() == index);
        let is_elsewhere = |of: usize| {
            let mut others =
                logs.duplicates.iter().filter(|one| one.partition == of && one.replica.index() != index);
            others.any(|one| {
                let is_complete = one.state == DuplicateState::Current && is_so(one);
                is_complete && !self.servers[one.replica.index()].is_down(self.now)
            })
        };
        own.map(|one| one.partition).all(is_elsewhere)
    }

    /// Cuts a server off and ends the process, if another server has all that it has, or has just
    /// lost all that it had in common with it. Clients come back when the next process may have
    /// gone on without it.
    fn cut_off_for_long(&mut self, server: usize) {
        let is_recorded = self.options.acknowledge != Acknowledge::First || self.disks.is_some();
        let other = (server + 1) % self.servers.len();
        let logs = self.machine.logs().expect("it has logs");
        let are_two = logs.is_settled && logs.layout.is_some_and(|layout| layout.duplicates == 2);
        let is_needed = are_two || self.options.acknowledge == Acknowledge::Majority;
        if is_recorded && is_needed && self.once_in(2) && self.may_lose(other) {
            self.count("server cut off while another one has lost its data");
            self.links_of(other).for_each(|(_, link)| link.sever());
            self.servers[other].contents = Contents::default();
        } else if !is_recorded || !self.may_lose(server) {
            return;
        }
        self.count("server cut off while a process starts");
        self.servers[server].cut_off_until = self.now + OUTAGE;
        self.quiet_until = self.now + ALONE_AFTER;
        self.busy_until = self.quiet_until + ms(300);
        self.crash();
    }

    /// Ends the process, and starts the next one without the disk. That one goes by the markers,
    /// which need not record what the first duplicate has acknowledged.
    fn restart(&mut self, keeps_earlier: bool) {
        let is_recorded = self.options.acknowledge != Acknowledge::First || self.are_acknowledged_recorded();
        if !is_recorded {
            return self.plan(Duration::from_micros(100), Event::Fail(Fault::Restart { keeps_earlier }));
        }
        if let Some(disks) = &mut self.disks {
            disks.fill_with(Disk::new);
            self.count(if keeps_earlier { "disk went back to earlier data" } else { "disk lost" });
        }
        if keeps_earlier {
            (self.disks, self.numbers) = self.earlier.clone();
        }
        self.crash();
    }

    /// Ends the process, and starts the next one. Some of what it has sent is lost.
    fn crash(&mut self) {
        self.count("process started again");
        self.kept = self.history.acknowledged();
        self.crash_disks();
        for seat in self.links.keys().copied().collect::<Vec<_>>() {
            self.link(seat).give_up_connection();
            for at in 0..self.link(seat).connections.len() {
                let length = self.link(seat).connections[at].commands.len() as u64;
                let arrive = if self.once_in(2) { self.draw(length + 1) } else { length };
                self.link(seat).connections[at].commands.truncate(arrive as usize);
            }
        }
        self.abandon_clients();
        self.calls.clear();
        self.start();
    }

    /// True if some marker in each partition says that all acknowledged writes are applied.
    fn are_acknowledged_recorded(&self) -> bool {
        (0..self.duplicates.partitions).all(|partition| {
            let found = self.servers.iter().filter_map(|server| server.contents.markers.get(&partition));
            let recorded = found.max().map_or(0, |marker| marker.applied);
            let later = self.numbers.range((partition, recorded + 1)..(partition + 1, 0));
            !later.into_iter().any(|(_, write)| self.history.is_acknowledged(*write))
        })
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        self.faulty = false;
        (self.disk_faults.full_until, self.disk_faults.slow_until) = (self.now, self.now);
        for index in 0..self.servers.len() {
            let (now, server) = (self.now, &mut self.servers[index]);
            for until in [
                &mut server.paused_until,
                &mut server.cut_off_until,
                &mut server.full_until,
                &mut server.slow_until,
            ] {
                *until = now.min(*until);
            }
        }
    }
}
