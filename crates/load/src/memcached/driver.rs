//! The loop that keeps to the schedule.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Options;
use super::connection::{Connection, Ending, Lost, Values};
use super::operations::{Operation, Operations};
use super::tally::Tally;
use crate::pace::Schedule;
use crate::{Control, Report};

pub(super) struct Driver<'a> {
    options: &'a Options,
    control: &'a Control,
    origin: Instant,
    /// No operation starts at or after this time.
    end_ns: u64,
    schedule: Schedule,
    operations: Box<dyn Operations>,
    connections: Vec<Connection>,
    /// Where to look for a free place next.
    turn: usize,
    /// Whether there is more to start.
    issuing: bool,
    incomplete_because: Option<String>,
    tally: Tally<'a>,
    values: Values,
    spare: Vec<Operation>,
}

/// How long after the end operations that were due before it are still sent: a moment's lateness is no error.
const CATCH_UP: Duration = Duration::from_secs(1);

/// How long outstanding answers are waited for once nothing more is sent.
const DRAIN: Duration = Duration::from_secs(10);

/// Operations built before they are sent. A longer backlog goes in pieces: its first does not wait for its last, and
/// answers are read between them.
const BATCH_MAX: usize = 256;

/// The longest sleep: how soon a stop is noticed.
const SLEEP_MAX_NS: u64 = 100_000_000;

impl<'a> Driver<'a> {
    pub(super) fn new(
        options: &'a Options,
        schedule: Schedule,
        operations: Box<dyn Operations>,
        streams: Vec<TcpStream>,
        control: &'a Control,
        tally: Tally<'a>,
    ) -> Self {
        Self {
            options,
            control,
            origin: Instant::now(),
            end_ns: options.duration.map_or(u64::MAX, nanos),
            schedule,
            operations,
            connections: streams.into_iter().map(Connection::new).collect(),
            turn: 0,
            issuing: true,
            incomplete_because: None,
            tally,
            values: Values::default(),
            spare: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Report {
        let mut give_up_ns = u64::MAX;
        loop {
            let now_ns = self.now_ns();
            self.issue(now_ns);
            self.flush();
            if !self.issuing {
                give_up_ns = give_up_ns.min(now_ns.saturating_add(nanos(DRAIN)));
            }
            let under_way = self.connections.iter().any(|connection| connection.under_way() > 0);
            if !self.issuing && (!under_way || now_ns >= give_up_ns) {
                break;
            }
            self.wait(now_ns);
            self.control.set_done(self.tally.ops);
        }
        self.finish()
    }

    fn now_ns(&self) -> u64 {
        nanos(self.origin.elapsed())
    }

    /// Starts operations that are due and have a free place, at most a batch of them.
    fn issue(&mut self, now_ns: u64) {
        if self.issuing && self.control.stopped() {
            self.end_early("stopped before its end".to_owned());
        }
        let mut started = 0;
        while self.issuing && started < BATCH_MAX {
            let intended_ns = self.schedule.next_start(now_ns);
            if intended_ns >= self.end_ns {
                self.issuing = false;
            } else if now_ns >= self.end_ns.saturating_add(nanos(CATCH_UP)) {
                self.count_unsent(now_ns);
            } else if intended_ns > now_ns {
                break;
            } else if let Some(index) = self.free_connection() {
                self.start_next(index, intended_ns);
                started += 1;
            } else {
                break;
            }
        }
    }

    fn start_next(&mut self, index: usize, intended_ns: u64) {
        let mut operation = self.spare.pop().unwrap_or_default();
        match self.operations.next(&mut operation) {
            Ok(true) => {
                self.schedule.advance();
                self.tally.built(intended_ns);
                self.connections[index].start(operation, intended_ns, &mut self.values);
            }
            Ok(false) => self.issuing = false,
            Err(error) => self.end_early(error.to_string()),
        }
    }

    /// The time to catch up is over too: what is still due counts as never sent. As many as the target fell behind.
    fn count_unsent(&mut self, now_ns: u64) {
        let intended_ns = self.schedule.next_start(now_ns);
        let waited = Duration::from_nanos(now_ns - intended_ns);
        self.tally.never_sent(Duration::from_nanos(intended_ns), waited);
        self.schedule.advance();
    }

    fn end_early(&mut self, reason: String) {
        self.issuing = false;
        self.incomplete_because.get_or_insert(reason);
    }

    fn free_connection(&mut self) -> Option<usize> {
        let count = self.connections.len();
        let free = (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|&index| self.connections[index].under_way() < self.options.pipeline)?;
        self.turn = (free + 1) % count;
        Some(free)
    }

    fn flush(&mut self) {
        let mut index = 0;
        while index < self.connections.len() {
            match self.connections[index].flush() {
                Ok(()) => index += 1,
                Err(lost) => self.drop_connection(index, &lost),
            }
        }
        if self.tally.has_built() {
            self.tally.sent(self.now_ns());
        }
    }

    /// Sleeps until an answer comes, the socket takes more, or the next operation is due; then reads what has come.
    fn wait(&mut self, now_ns: u64) {
        let sleep_ns = self.sleep_ns(now_ns);
        let interesting = |connection: &Connection| {
            let reads = if connection.under_way() > 0 { PollFlags::IN } else { PollFlags::empty() };
            let writes = if connection.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
            reads | writes
        };
        let mut polled: Vec<PollFd<'_>> = self
            .connections
            .iter()
            .map(|connection| PollFd::new(connection.stream(), interesting(connection)))
            .collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(sleep_ns).unwrap_or(i64::MAX) };
        // An interrupted or failed poll finds nothing ready, and the loop comes round again.
        let ready = poll(&mut polled, Some(&timeout)).unwrap_or(0);
        if ready == 0 {
            return;
        }
        let readable: Vec<usize> = polled
            .iter()
            .enumerate()
            .filter(|(_, fd)| fd.revents().intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP))
            .map(|(index, _)| index)
            .collect();
        self.receive(&readable);
    }

    fn sleep_ns(&self, now_ns: u64) -> u64 {
        let busy = self.connections.iter().all(|connection| connection.under_way() >= self.options.pipeline);
        // In a closed loop the next start is now: only a full batch leaves places free.
        if self.issuing && !busy {
            self.schedule.next_start(now_ns).saturating_sub(now_ns).min(SLEEP_MAX_NS)
        } else {
            SLEEP_MAX_NS
        }
    }

    fn receive(&mut self, readable: &[usize]) {
        let now_ns = self.now_ns();
        // From the last, so that a connection dropped moves none that is still to be read.
        for &index in readable.iter().rev() {
            let mut ending = Ending {
                now_ns,
                look_aside: self.options.look_aside,
                tally: &mut self.tally,
                values: &mut self.values,
                spare: &mut self.spare,
            };
            if let Err(lost) = self.connections[index].receive(&mut ending) {
                self.drop_connection(index, &lost);
            }
        }
    }

    fn drop_connection(&mut self, index: usize, lost: &Lost) {
        let mut connection = self.connections.remove(index);
        self.turn = 0;
        self.give_up(&mut connection);
        self.incomplete_because.get_or_insert_with(|| format!("{}: {lost}", self.options.address));
        if self.connections.is_empty() {
            self.issuing = false;
        }
    }

    fn give_up(&mut self, connection: &mut Connection) {
        connection.give_up(&mut Ending {
            now_ns: nanos(self.origin.elapsed()),
            look_aside: false,
            tally: &mut self.tally,
            values: &mut self.values,
            spare: &mut self.spare,
        });
    }

    fn finish(mut self) -> Report {
        for mut connection in std::mem::take(&mut self.connections) {
            self.give_up(&mut connection);
        }
        self.control.set_done(self.tally.ops);
        let duration_s = self.origin.elapsed().as_secs_f64();
        let open = self.schedule.is_open();
        let report = self.tally.report(self.operations.as_ref(), duration_s, open);
        Report {
            complete: self.incomplete_because.is_none(),
            incomplete_because: self.incomplete_because,
            ..report
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
