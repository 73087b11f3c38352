//! Queries that take turns at three replicas, while schedulers are killed and messages are lost.
//!
//! Schedulers and clients have clocks of their own, an hour apart from each other. After the faults
//! comes a calm phase, in which every query must get its turn. All randomness is a function of the
//! seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;
use crate::draws::{Draws, below};
use crate::{CallAction, CallOptions, TicketOffer, TicketedCall};
use sherwood_model::ReplicaId;

const REPLICAS: u16 = 3;
const TIMEOUT: Duration = ms(300);
const LEASE: Duration = ms(100);
/// Faults end at this time, and the calm phase begins when their effects are over.
const FAULTS_END: Instant = Instant::from_millis(3_000);
const CALM_START: Instant = Instant::from_millis(3_700);
const END: Instant = Instant::from_millis(5_000);
const QUERIES_FAULTY: usize = 400;
const QUERIES_CALM: usize = 60;

/// A fault of the implementation, put in to see that the simulation finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// A query does not end with its timeout.
    NoTimeout,
    /// Leases do not end.
    NoLease,
    /// A client does not report the end of its call.
    NoRelease,
    /// A call whose turn will not come goes on waiting.
    NoFailOpen,
    /// Tickets that are not needed are not cancelled.
    NoCancel,
}

enum Event {
    Arrive(usize),
    ToScheduler(usize, CallAction, Option<Duration>),
    Ticket(usize, ReplicaId, Option<TicketOffer>),
    Turn(usize, bool),
    CallDue(usize),
    ServiceEnd(usize, Duration),
    QueryTimeout(usize),
    LeaseDue(usize),
    Kill(usize),
    Restart(usize),
}

struct Query {
    asked_at: Instant,
    within: Option<Duration>,
    call: Option<TicketedCall>,
    /// True once the query knows that its turn will not come, early enough to be answered.
    goes_on: bool,
    /// The number of times that the query has ended.
    ends: u32,
}

/// A scheduler; none while it is dead.
struct Server {
    tickets: Option<Tickets>,
    waiting: BTreeMap<TicketId, usize>,
    /// Time by which its clock is ahead.
    ahead: Duration,
    /// The earliest wake-up that is planned.
    wakes_at: Option<Instant>,
}

struct World {
    flaw: Flaw,
    draws: Draws,
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The events by their number.
    pending: Vec<Option<Event>>,
    queries: Vec<Query>,
    servers: Vec<Server>,
}

impl World {
    fn new(seed: u64, flaw: Flaw) -> Self {
        let mut draws = Draws::default();
        draws.stir(seed);
        let server = |hour: u16| Server {
            tickets: None,
            waiting: BTreeMap::new(),
            ahead: Duration::from_secs(3_600) * u32::from(hour),
            wakes_at: None,
        };
        let servers = (0..REPLICAS).map(server).collect();
        let (events, pending, queries) = (BinaryHeap::new(), Vec::new(), Vec::new());
        let mut world = Self { flaw, draws, now: at(0), events, pending, queries, servers };
        for server in 0..usize::from(REPLICAS) {
            world.restart(server);
            for _ in 0..4 {
                let killed = at(0) + world.draw(FAULTS_END - at(100));
                world.plan(killed, Event::Kill(server));
                let down = world.draw(ms(90));
                world.plan(killed + down, Event::Restart(server));
            }
        }
        for index in 0..QUERIES_FAULTY + QUERIES_CALM {
            let (from, length) =
                if index < QUERIES_FAULTY { (at(0), FAULTS_END - at(0)) } else { (CALM_START, ms(900)) };
            let asked_at = from + world.draw(length);
            let within = (!world.draws.next().is_multiple_of(3)).then(|| ms(5) + world.draw(ms(200)));
            world.queries.push(Query { asked_at, within, call: None, goes_on: false, ends: 0 });
            world.plan(asked_at, Event::Arrive(index));
        }
        world
    }

    fn draw(&mut self, below_this: Duration) -> Duration {
        Duration::from_nanos(below(self.draws.next(), below_this.as_nanos() as u64))
    }

    fn plan(&mut self, at: Instant, event: Event) {
        self.events.push(Reverse((at, self.pending.len())));
        self.pending.push(Some(event));
    }

    /// Sends a message, which takes a while and may get lost while there are faults.
    fn send(&mut self, event: Event) {
        let is_lost = self.now < FAULTS_END && self.draws.next().is_multiple_of(20);
        let delay = self.draw(ms(4));
        if !is_lost {
            self.plan(self.now + delay, event);
        }
    }

    fn restart(&mut self, server: usize) {
        let options = TicketOptions { slots: 2, tickets_max: 40, timeout: LEASE, ..TicketOptions::default() };
        let salt = self.draws.next();
        self.servers[server].tickets.get_or_insert_with(|| Tickets::new(options, salt).unwrap());
    }

    /// Runs to the end; returns the first violation.
    fn run(&mut self) -> Result<(), String> {
        let mut lapsed_before = None;
        while let Some(Reverse((at, number))) = self.events.pop() {
            if at >= END {
                break;
            }
            if at >= CALM_START && lapsed_before.is_none() {
                lapsed_before = Some(self.lapsed());
            }
            self.now = at;
            let event = self.pending[number].take().expect("each event happens once");
            self.handle(event)?;
        }
        for (index, query) in self.queries.iter().enumerate() {
            if query.ends != 1 {
                return Err(format!("query {index} ended {} times", query.ends));
            }
            let failed_open = query.call.as_ref().is_some_and(TicketedCall::has_failed_open);
            if index >= QUERIES_FAULTY && failed_open {
                return Err(format!("query {index} had no turn although nothing failed"));
            }
        }
        for server in &self.servers {
            let stats = server.tickets.as_ref().expect("it was restarted").stats();
            if stats.waiting + stats.started > 0 {
                return Err(format!("tickets are left: {stats:?}"));
            }
        }
        if lapsed_before != Some(self.lapsed()) {
            return Err("tickets lapsed although nothing failed".to_owned());
        }
        Ok(())
    }

    fn lapsed(&self) -> u64 {
        let tickets = self.servers.iter().filter_map(|server| server.tickets.as_ref());
        tickets.map(|tickets| tickets.stats().lapsed).sum()
    }

    fn end(&mut self, index: usize) -> Result<(), String> {
        let query = &mut self.queries[index];
        query.ends += 1;
        let took = self.now - query.asked_at;
        if query.ends > 1 || took > TIMEOUT {
            return Err(format!("query {index} ended {} times, after {took:?}", query.ends));
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        let now = self.now;
        match event {
            Event::Arrive(index) => {
                if self.flaw != Flaw::NoTimeout {
                    self.plan(now + TIMEOUT, Event::QueryTimeout(index));
                }
                let first = below(self.draws.next(), REPLICAS.into()) as u16;
                let candidates = [ReplicaId(first), ReplicaId((first + 1) % REPLICAS)];
                let options = CallOptions { answer_timeout: ms(20), may_reject: true };
                let call = TicketedCall::new(now, &candidates, options);
                self.plan(call.next_timeout().expect("it asks"), Event::CallDue(index));
                self.queries[index].call = Some(call);
            }
            Event::Ticket(index, replica, offer) => self.call(index).handle_ticket(now, replica, offer),
            Event::Turn(index, has_turn) => {
                let query = &mut self.queries[index];
                query.goes_on |= !has_turn && now + ms(10) < query.asked_at + TIMEOUT;
                if has_turn || self.flaw != Flaw::NoFailOpen {
                    self.call(index).handle_turn(has_turn);
                }
            }
            Event::CallDue(index) => self.call(index).handle_timeout(now),
            Event::ServiceEnd(index, took) => {
                if self.queries[index].ends == 0 {
                    self.end(index)?;
                }
                if self.flaw != Flaw::NoRelease {
                    self.call(index).handle_end(Some(took));
                }
            }
            Event::QueryTimeout(index) => {
                if self.queries[index].ends == 0 {
                    if self.queries[index].goes_on {
                        return Err(format!("query {index} timed out although its scheduler was gone"));
                    }
                    self.end(index)?;
                    self.call(index).handle_end(None);
                }
            }
            Event::ToScheduler(index, action, within) => return self.serve(index, action, within),
            Event::LeaseDue(_) if self.flaw == Flaw::NoLease => {}
            Event::LeaseDue(server) => {
                let Server { tickets, ahead, wakes_at, .. } = &mut self.servers[server];
                *wakes_at = None;
                tickets.iter_mut().for_each(|tickets| tickets.handle_timeout(now + *ahead));
                self.pump(server);
            }
            Event::Kill(server) => {
                self.servers[server].tickets = None;
                let waiting = std::mem::take(&mut self.servers[server].waiting);
                waiting.into_values().for_each(|index| self.send(Event::Turn(index, false)));
            }
            Event::Restart(server) => self.restart(server),
        }
        (0..self.queries.len()).try_for_each(|index| self.carry_out(index))
    }

    fn call(&mut self, index: usize) -> &mut TicketedCall {
        self.queries[index].call.as_mut().expect("it has arrived")
    }

    fn carry_out(&mut self, index: usize) -> Result<(), String> {
        while let Some(action) = self.queries[index].call.as_mut().and_then(TicketedCall::poll_action) {
            match action {
                CallAction::Start { .. } => {
                    let took = ms(1) + self.draw(ms(9));
                    self.plan(self.now + took, Event::ServiceEnd(index, took));
                }
                CallAction::Reject { .. } => self.end(index)?,
                CallAction::Cancel { .. } if self.flaw == Flaw::NoCancel => {}
                action => {
                    let Query { asked_at, within, .. } = self.queries[index];
                    let within = within.map(|within| (asked_at + within - self.now).max(ms(1)));
                    self.send(Event::ToScheduler(index, action, within));
                }
            }
        }
        Ok(())
    }

    /// Serves a message at a scheduler. A dead one answers as a closed port does.
    fn serve(&mut self, index: usize, action: CallAction, within: Option<Duration>) -> Result<(), String> {
        let replica = match action {
            CallAction::Get { replica }
            | CallAction::Wait { replica, .. }
            | CallAction::Cancel { replica, .. }
            | CallAction::Release { replica, .. } => replica,
            CallAction::Start { .. } | CallAction::Reject { .. } => unreachable!("not for a scheduler"),
        };
        let Server { tickets, waiting, ahead, .. } = &mut self.servers[replica.index()];
        let now = self.now + *ahead;
        let answer = match (action, tickets) {
            (CallAction::Get { .. }, None) => Some(Event::Ticket(index, replica, None)),
            (CallAction::Get { .. }, Some(tickets)) => {
                let request = TicketRequest { within, ..TicketRequest::default() };
                let offer = tickets.get(now, &request).ok().map(|GivenTicket { id, estimate }| TicketOffer {
                    ticket: id,
                    expected: estimate.completes_at - now,
                    fits: estimate.fits(),
                    starts_at_once: estimate.starts_at_once,
                });
                Some(Event::Ticket(index, replica, offer))
            }
            (CallAction::Wait { .. }, None) => Some(Event::Turn(index, false)),
            (CallAction::Wait { ticket, .. }, Some(tickets)) => match tickets.wait(now, ticket) {
                Ok(true) => Some(Event::Turn(index, true)),
                Ok(false) => {
                    waiting.insert(ticket, index);
                    None
                }
                Err(_) => Some(Event::Turn(index, false)),
            },
            // An unknown ticket is an error, which the client ignores.
            (CallAction::Cancel { ticket, .. }, Some(tickets)) => {
                waiting.remove(&ticket);
                let _ = tickets.cancel(now, ticket);
                None
            }
            (CallAction::Release { ticket, latency, .. }, Some(tickets)) => {
                let _ = tickets.release(now, ticket, latency);
                None
            }
            _ => None,
        };
        answer.into_iter().for_each(|answer| self.send(answer));
        self.pump(replica.index());
        Ok(())
    }

    /// Answers the calls that wait at a scheduler, and plans its wake-up.
    fn pump(&mut self, server: usize) {
        let Server { tickets, waiting, ahead, wakes_at } = &mut self.servers[server];
        let Some(tickets) = tickets else { return };
        let mut answers = Vec::new();
        while let Some(action) = tickets.poll_action() {
            let (id, has_turn) = match action {
                TicketAction::Turn(id) => (id, true),
                TicketAction::Lapse(id) => (id, false),
            };
            answers.extend(waiting.remove(&id).map(|index| Event::Turn(index, has_turn)));
        }
        let due = tickets.next_timeout().map(|due| due - *ahead);
        let due = due.filter(|due| wakes_at.is_none_or(|wakes_at| *due < wakes_at));
        *wakes_at = due.or(*wakes_at);
        answers.into_iter().for_each(|answer| self.send(answer));
        if let Some(due) = due {
            self.plan(due, Event::LeaseDue(server));
        }
    }
}

fn run(seed: u64, flaw: Flaw) -> Result<(), String> {
    World::new(seed, flaw).run().map_err(|error| format!("seed {seed}: {error}"))
}

#[test]
fn every_query_ends_once_in_time_with_schedulers_killed_and_tickets_lost() {
    for seed in 0..20 {
        run(seed, Flaw::None).unwrap();
    }
}

#[test]
fn flaw_in_a_client_or_a_scheduler_is_found() {
    for flaw in [Flaw::NoTimeout, Flaw::NoLease, Flaw::NoRelease, Flaw::NoFailOpen, Flaw::NoCancel] {
        assert!((0..20).any(|seed| run(seed, flaw).is_err()), "{flaw:?} is not found");
    }
}
