//! The loop that starts operations on schedule and reads their answers.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use super::Options;
use super::connection::{Connection, Lost};
use super::operations::{Operation, Operations};
use super::pipeline::{Ending, Values};
use super::socket::Socket;
use super::tally::Tally;
use crate::pace::Schedule;
use crate::{Control, Report};

pub(super) struct Driver<'a> {
    options: &'a Options,
    control: &'a Control,
    origin: Instant,
    /// End of the run: no operation starts at or after this time.
    end_ns: u64,
    schedule: Schedule,
    operations: Box<dyn Operations>,
    /// Connections by number; none in the place of one that broke.
    connections: Vec<Option<Connection>>,
    /// Numbers of the connections with a free place in their pipeline, in the order in which they
    /// receive operations; each once.
    free: VecDeque<usize>,
    /// True if the connections of a closed loop pause after a rejection.
    pauses: bool,
    /// Numbers of the connections that pause, each once, by the end of their pause.
    paused: BTreeSet<(u64, usize)>,
    /// The epoll instance of all sockets.
    queue: OwnedFd,
    /// The last events of the sockets; the memory is reused.
    events: Vec<epoll::Event>,
    /// True while there are operations to start.
    issuing: bool,
    incomplete_because: Option<String>,
    tally: Tally<'a>,
    /// Operations that the control has counted.
    noted: u64,
    values: Values,
    spare: Vec<Operation>,
}

/// Time after the end of the run in which operations due before it are still sent: a short delay is
/// not an error.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Time to wait for outstanding answers once nothing more is sent.
const DRAIN: Duration = Duration::from_secs(10);

/// Most operations whose requests are built before they are sent. A longer backlog is sent in
/// pieces, so that its first operations do not wait for the last, and answers are read in between.
const BATCH_MAX: usize = 256;

/// The longest sleep of the loop, which bounds the delay of a stop.
const SLEEP_MAX_NS: u64 = 100_000_000;

impl<'a> Driver<'a> {
    pub(super) fn new(
        options: &'a Options,
        schedule: Schedule,
        operations: Box<dyn Operations>,
        sockets: Vec<Socket>,
        control: &'a Control,
        tally: Tally<'a>,
    ) -> Result<Self, Errno> {
        let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, socket) in sockets.iter().enumerate() {
            let edges = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&queue, socket.stream(), epoll::EventData::new_u64(number as u64), edges)?;
        }
        let mut driver = Self {
            options,
            control,
            origin: Instant::now(),
            end_ns: options.duration.map_or(u64::MAX, nanos),
            schedule,
            operations,
            events: Vec::with_capacity(sockets.len()),
            free: VecDeque::with_capacity(sockets.len()),
            pauses: false,
            paused: BTreeSet::new(),
            connections: sockets.into_iter().map(|socket| Some(Connection::new(socket, options))).collect(),
            queue,
            issuing: true,
            incomplete_because: None,
            tally,
            noted: 0,
            values: Values::default(),
            spare: Vec::new(),
        };
        (0..driver.connections.len()).for_each(|index| driver.list(index));
        Ok(driver)
    }

    /// Has the connections of a closed loop pause after a rejection, if `pauses`.
    pub(super) fn pausing(self, pauses: bool) -> Self {
        Self { pauses: pauses && !self.schedule.is_open(), ..self }
    }

    pub(super) fn run(mut self) -> Report {
        let mut give_up_ns = u64::MAX;
        loop {
            let now_ns = self.now_ns();
            self.end_pauses(now_ns);
            self.issue(now_ns);
            self.flush();
            if !self.issuing {
                give_up_ns = give_up_ns.min(now_ns.saturating_add(nanos(DRAIN)));
            }
            let in_flight = self.connections.iter().flatten().any(|connection| connection.in_flight() > 0);
            if !self.issuing && (!in_flight || now_ns >= give_up_ns) {
                break;
            }
            self.wait(now_ns);
            self.note_done();
        }
        self.finish()
    }

    fn note_done(&mut self) {
        self.control.add_done(self.tally.ops - self.noted);
        self.noted = self.tally.ops;
    }

    fn now_ns(&self) -> u64 {
        nanos(self.origin.elapsed())
    }

    /// Starts operations that are due while a connection has a free place, at most [`BATCH_MAX`].
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
        match self.operations.next(Duration::from_nanos(intended_ns), &mut operation) {
            Ok(true) => {
                self.schedule.advance();
                self.tally.built(intended_ns);
                if let Some(connection) = &mut self.connections[index] {
                    connection.start(operation, intended_ns, &mut self.values);
                }
                self.list(index);
            }
            Ok(false) => self.issuing = false,
            Err(error) => self.end_early(error.to_string()),
        }
    }

    /// Counts an operation that is still due [`CATCH_UP`] after the end of the run as never sent.
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

    /// Takes the connection with a free place that has waited longest for an operation.
    fn free_connection(&mut self) -> Option<usize> {
        while let Some(index) = self.free.pop_front() {
            if let Some(connection) = &mut self.connections[index] {
                connection.listed = false;
                return Some(index);
            }
        }
        None
    }

    fn flush(&mut self) {
        for index in 0..self.connections.len() {
            if let Some(connection) = self.connections[index].as_mut().filter(|one| one.has_unsent())
                && let Err(lost) = connection.flush()
            {
                self.drop_connection(index, &lost);
            }
        }
        if self.tally.has_built() {
            self.tally.sent(self.now_ns());
        }
    }

    /// Sleeps until an answer arrives, a socket accepts more, or the next operation is due; then
    /// reads the answers.
    fn wait(&mut self, now_ns: u64) {
        let sleep_ns = self.sleep_ns(now_ns);
        let mut events = std::mem::take(&mut self.events);
        // Only ppoll(2) sleeps for less than a millisecond on every kernel; it is called if there
        // are no events.
        if sleep_ns < SLEEP_MAX_NS && collect(&self.queue, &mut events, 0) == 0 {
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(sleep_ns).unwrap_or(i64::MAX) };
            let _ = poll(&mut [PollFd::new(&self.queue, PollFlags::IN)], Some(&timeout));
            collect(&self.queue, &mut events, 0);
        } else if sleep_ns >= SLEEP_MAX_NS {
            collect(&self.queue, &mut events, SLEEP_MAX_NS);
        }
        let now_ns = self.now_ns();
        for event in &events {
            let (flags, number) = (event.flags, event.data.u64());
            if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
                self.receive(number, now_ns);
            }
        }
        self.events = events;
    }

    fn sleep_ns(&self, now_ns: u64) -> u64 {
        let pause_ns = self.paused.first().map_or(u64::MAX, |(end_ns, _)| end_ns.saturating_sub(now_ns));
        self.issue_in_ns(now_ns).min(pause_ns)
    }

    /// Time until an operation may start if no connection pauses, at most [`SLEEP_MAX_NS`].
    fn issue_in_ns(&self, now_ns: u64) -> u64 {
        let busy = self.free.is_empty();
        // In a closed loop the next start is now, since only a full batch leaves places free.
        if self.issuing && !busy {
            self.schedule.next_start(now_ns).saturating_sub(now_ns).min(SLEEP_MAX_NS)
        } else {
            SLEEP_MAX_NS
        }
    }

    fn receive(&mut self, number: u64, now_ns: u64) {
        let Some(index) = usize::try_from(number).ok().filter(|&index| index < self.connections.len()) else {
            return;
        };
        let Some(connection) = &mut self.connections[index] else { return };
        let mut ending = Ending {
            now_ns,
            look_aside: self.options.look_aside,
            tally: &mut self.tally,
            values: &mut self.values,
            spare: &mut self.spare,
        };
        match connection.receive(&mut ending) {
            Ok(()) => match self.tally.take_pause().filter(|_| self.pauses) {
                Some(pause) => {
                    self.paused.insert((now_ns.saturating_add(nanos(pause)), index));
                }
                None => self.list(index),
            },
            Err(lost) => self.drop_connection(index, &lost),
        }
    }

    /// Lists the connections whose pause has ended.
    fn end_pauses(&mut self, now_ns: u64) {
        while let Some(&(end_ns, index)) = self.paused.first()
            && end_ns <= now_ns
        {
            self.paused.pop_first();
            self.list(index);
        }
    }

    /// Adds a connection to those with a free place in their pipeline, if it has one.
    fn list(&mut self, index: usize) {
        if let Some(connection) = &mut self.connections[index]
            && !connection.listed
            && !connection.is_full()
        {
            connection.listed = true;
            self.free.push_back(index);
        }
    }

    fn drop_connection(&mut self, index: usize, lost: &Lost) {
        let Some(mut connection) = self.connections[index].take() else { return };
        self.give_up(&mut connection);
        self.incomplete_because.get_or_insert_with(|| format!("{}: {lost}", self.options.address));
        if self.connections.iter().all(Option::is_none) {
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
        for mut connection in std::mem::take(&mut self.connections).into_iter().flatten() {
            self.give_up(&mut connection);
        }
        self.note_done();
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

/// Waits for events of the sockets, at most `wait_ns`, and returns their number. If the wait is
/// interrupted or fails, there are none, and the loop tries again.
fn collect(queue: &OwnedFd, events: &mut Vec<epoll::Event>, wait_ns: u64) -> usize {
    events.clear();
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(wait_ns).unwrap_or(i64::MAX) };
    epoll::wait(queue, spare_capacity(events), Some(&timeout)).unwrap_or(0)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
