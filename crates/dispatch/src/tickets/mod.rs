//! The scheduler beside a replica, which clients in other processes ask for their turn.

mod call;
mod error;

use std::collections::VecDeque;
use std::time::Duration;

use sherwood_model::{Demand, DemandKind, Instant};

use crate::slab::{Id, Slab};
use crate::{Estimate, OptionsError, QueueChoice, QueueOptions, QueuedCall, ReplicaQueue};
pub use call::{CallAction, CallOptions, SchedulerBackoff, TicketOffer, TicketedCall};
pub use error::TicketError;
use sherwood_model::Percent;

/// The scheduler of one replica, for clients that call the replica themselves.
///
/// A client asks for a ticket, which reserves a turn in the replica's queue, and learns when its
/// call is expected to end. It waits for its turn, calls the replica, and releases the ticket with
/// the latency of the call, from which later estimates are made. A client that has tickets of two
/// replicas keeps the [better](Estimate::is_better_than) one and cancels the other.
///
/// ```text
///  get ─▶ waiting ─(turn)─▶ started ─▶ release
///            │                 │
///            └─▶ cancel        └─▶ cancel
///            └─▶ lapse (lease) └─▶ lapse (lease)
/// ```
/// Guo et al., "`MicroFuge`" (2014), section II-B. Not in the paper: a ticket is a lease. The turn
/// of a client that has vanished passes on when the lease is over: one after its last call while
/// the ticket waits, and one after its turn has come. A turn comes in the order of the queue even
/// if the client has not begun to wait for it.
///
/// Every ticket ends once: by a release, a cancellation, or the end of its lease. An id that has
/// ended, or was given out by another scheduler, is refused.
///
/// # Inputs, outputs, wake-ups
/// - Inputs: [`get`](Self::get), [`get_and_wait`](Self::get_and_wait), [`wait`](Self::wait),
///   [`cancel`](Self::cancel), [`release`](Self::release),
///   [`handle_timeout`](Self::handle_timeout).
/// - Outputs: after every input, [`poll_action`](Self::poll_action) until it returns none.
/// - Wake-ups: [`handle_timeout`](Self::handle_timeout) at [`next_timeout`](Self::next_timeout).
///
/// Every input takes a time logarithmic in the number of tickets that wait, and linear in that of
/// those that have their turn. Both are bounded, by [`TicketOptions::tickets_max`] and by
/// [`TicketOptions::slots`]. Memory: some 250 bytes for each.
///
/// ```
/// use sherwood_dispatch::{TicketAction, TicketOptions, TicketRequest, Tickets};
/// use sherwood_model::Instant;
/// use std::time::Duration;
///
/// let mut tickets = Tickets::new(TicketOptions::default(), 0x5eed)?;
/// let now = Instant::from_secs(1);
/// let request = TicketRequest { within: Some(Duration::from_millis(50)), ..TicketRequest::default() };
/// let first = tickets.get(now, &request)?;
/// let second = tickets.get(now, &request)?;
/// assert!(first.estimate.fits());
/// assert!(tickets.wait(now, first.id)?, "its turn has come");
/// assert!(!tickets.wait(now, second.id)?);
/// tickets.release(now, first.id, Some(Duration::from_millis(4)))?;
/// assert_eq!(tickets.poll_action(), Some(TicketAction::Turn(second.id)));
/// let error = tickets.release(now, first.id, None).unwrap_err();
/// assert!(error.to_string().contains("is not known"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tickets {
    lease: Duration,
    limit: u32,
    salt: u64,
    queue: ReplicaQueue<Id>,
    tickets: Slab<Ticket>,
    /// The ends of leases in their order, since all are equally long. An entry whose ticket has
    /// ended, or has begun its lease again, is removed when it reaches the front, or together with
    /// others when they are more than half of the entries.
    leases: VecDeque<(Instant, Id)>,
    actions: VecDeque<TicketAction>,
    lapsed: u64,
}

/// Settings of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketOptions {
    /// The order in which turns come.
    pub order: QueueChoice,
    /// Number of calls that the replica works on at a time, at least 1.
    pub slots: u32,
    /// Number of tickets that may be held, at least 1.
    pub tickets_max: u32,
    /// The backend's timeout, above 0: deadline of a ticket that has none, and the lease.
    pub timeout: Duration,
    /// The percentile of latencies that estimates take as the time of each call (β).
    pub beta: Percent,
}

/// The call that a client wants a turn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketRequest {
    /// The kind of call.
    pub kind: DemandKind,
    /// Time that is left until the client's deadline, above 0 and at most 24 hours; none if any
    /// time will do.
    pub within: Option<Duration>,
    /// True if the client can do without the answer.
    pub best_effort: bool,
    /// Number of keys that the call is for, at least 1.
    pub keys: u32,
}

/// The id of a ticket of one scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(u64);

/// A ticket that was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenTicket {
    /// The id, for the calls that follow.
    pub id: TicketId,
    /// Expectation about the call, from before the ticket was added.
    pub estimate: Estimate,
}

/// A message to a client that waits for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketAction {
    /// The turn of the ticket has come.
    Turn(TicketId),
    /// The lease is over, and the ticket with it.
    Lapse(TicketId),
}

/// The number of tickets by state, and counts since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketStats {
    /// Tickets whose turn has not come.
    pub waiting: u32,
    /// Tickets whose turn has come and that have not ended.
    pub started: u32,
    /// Tickets that ended with their lease.
    pub lapsed: u64,
    /// Number of times that a ticket was deferred because it could not meet its deadline.
    pub deferred: u64,
    /// Number of latencies that were ignored because no call takes so long.
    pub dropped_latencies: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ticket {
    expires_at: Instant,
    has_turn: bool,
    /// True while the client waits for the turn.
    is_awaited: bool,
}

impl Default for TicketOptions {
    fn default() -> Self {
        Self {
            order: QueueChoice::Edf { alpha: Percent::ALPHA },
            slots: 1,
            tickets_max: 100_000,
            timeout: Duration::from_secs(2),
            beta: Percent::BETA,
        }
    }
}

impl Default for TicketRequest {
    fn default() -> Self {
        Self { kind: DemandKind::Read, within: None, best_effort: false, keys: 1 }
    }
}

impl TicketId {
    /// Returns the id as a number, for messages.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the id of a number, which may be that of no ticket.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl Tickets {
    /// Creates a scheduler of an idle replica. `salt` is 64 random bits, so that the tickets of an
    /// earlier process are not taken for those of this one.
    ///
    /// # Errors
    /// If an option is 0.
    pub fn new(options: TicketOptions, salt: u64) -> Result<Self, OptionsError> {
        let TicketOptions { order, slots, tickets_max, timeout, beta } = options;
        let zeros =
            [("slots", slots == 0), ("tickets_max", tickets_max == 0), ("timeout", timeout.is_zero())];
        if let Some((option, _)) = zeros.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(OptionsError::Zero { option });
        }
        let queue =
            QueueOptions { order, timeout, beta: Some(beta), ..QueueOptions::fifo(slots, tickets_max) };
        Ok(Self {
            lease: timeout,
            limit: tickets_max,
            salt,
            queue: ReplicaQueue::new(queue),
            tickets: Slab::new(),
            leases: VecDeque::new(),
            actions: VecDeque::new(),
            lapsed: 0,
        })
    }

    /// Gives out a ticket: `get_ticket` of the paper.
    ///
    /// # Errors
    /// If the time until the deadline is out of range, or the scheduler has given out as many
    /// tickets as it may.
    pub fn get(&mut self, now: Instant, request: &TicketRequest) -> Result<GivenTicket, TicketError> {
        self.give(now, request, false)
    }

    /// Gives out a ticket whose client waits for the turn: `get_ticket_and_wait` of the paper. An
    /// [`TicketAction::Turn`] follows, at once if the turn has come.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_and_wait(
        &mut self,
        now: Instant,
        request: &TicketRequest,
    ) -> Result<GivenTicket, TicketError> {
        self.give(now, request, true)
    }

    fn give(
        &mut self,
        now: Instant,
        request: &TicketRequest,
        is_awaited: bool,
    ) -> Result<GivenTicket, TicketError> {
        self.handle_timeout(now);
        let TicketRequest { kind, within, best_effort, keys } = *request;
        if let Some(within) = within.filter(|within| within.is_zero() || *within > WITHIN_MAX) {
            return Err(TicketError::Within { within });
        }
        let limit = self.limit;
        if self.tickets.len() >= limit as usize {
            return Err(TicketError::Full { limit });
        }
        let demand =
            Demand { deadline: within.map(|within| now + within), kind, best_effort, ..Demand::default() };
        let estimate = self.queue.estimate(now, &demand, keys);
        let expires_at = now + self.lease;
        let id = self.tickets.insert(Ticket { expires_at, has_turn: false, is_awaited });
        self.leases.push_back((expires_at, id));
        let is_queued = self.queue.enqueue(now, id, &demand, QueuedCall { keys, is_extra: false });
        debug_assert!(is_queued, "the queue has room for `tickets_max`");
        self.pass_turns(now);
        Ok(GivenTicket { id: self.public(id), estimate })
    }

    /// Has a client wait for the turn of its ticket: `wait_on_ticket` of the paper. Returns true if
    /// the turn has come; if not, an [`TicketAction`] follows. The lease begins again.
    ///
    /// # Errors
    /// If there is no such ticket.
    pub fn wait(&mut self, now: Instant, id: TicketId) -> Result<bool, TicketError> {
        self.handle_timeout(now);
        let key = self.private(id);
        let ticket = self.tickets.get_mut(key).ok_or(TicketError::Unknown { id })?;
        if ticket.has_turn {
            return Ok(true);
        }
        ticket.is_awaited = true;
        self.renew(now, key);
        Ok(false)
    }

    /// Ends a ticket that is not needed, whether its turn has come or not: `cancel_ticket` of the
    /// paper.
    ///
    /// # Errors
    /// If there is no such ticket.
    pub fn cancel(&mut self, now: Instant, id: TicketId) -> Result<(), TicketError> {
        self.handle_timeout(now);
        let key = self.private(id);
        self.tickets.get(key).ok_or(TicketError::Unknown { id })?;
        self.end(now, key, None);
        Ok(())
    }

    /// Ends a ticket whose call has ended: `release_ticket` of the paper. `latency` is the time
    /// that the replica took, none if the call failed. An absurd one is counted and ignored.
    ///
    /// # Errors
    /// If there is no such ticket, or its turn has not come.
    pub fn release(
        &mut self,
        now: Instant,
        id: TicketId,
        latency: Option<Duration>,
    ) -> Result<(), TicketError> {
        self.handle_timeout(now);
        let key = self.private(id);
        let ticket = self.tickets.get(key).ok_or(TicketError::Unknown { id })?;
        if !ticket.has_turn {
            return Err(TicketError::Waiting { id });
        }
        self.end(now, key, latency);
        Ok(())
    }

    /// Ends the tickets whose leases are over.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(expires_at, id)) = self.leases.front()
            && expires_at <= now
        {
            self.lapsed += 1;
            if self.tickets.get(id).is_some_and(|ticket| ticket.is_awaited) {
                self.actions.push_back(TicketAction::Lapse(self.public(id)));
            }
            self.end(now, id, None);
        }
    }

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout) at; none while there is no
    /// ticket.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.leases.front().map(|(at, _)| *at)
    }

    /// Returns the next message to a client that waits; none until the next input.
    pub fn poll_action(&mut self) -> Option<TicketAction> {
        self.actions.pop_front()
    }

    /// Makes estimates take another percentile of latencies.
    pub fn set_beta(&mut self, beta: Percent) {
        self.queue.set_beta(beta);
    }

    /// Returns the number of tickets by state, and counts since the start.
    #[must_use]
    pub fn stats(&self) -> TicketStats {
        TicketStats {
            waiting: self.queue.queued(),
            started: self.queue.in_flight(),
            lapsed: self.lapsed,
            deferred: self.queue.deferred(),
            dropped_latencies: self.queue.dropped_latencies(),
        }
    }

    /// Removes a ticket, and passes its turn on if it had it.
    fn end(&mut self, now: Instant, id: Id, latency: Option<Duration>) {
        let Some(ticket) = self.tickets.remove(id) else { return };
        if ticket.has_turn {
            self.queue.complete(id, latency);
            self.pass_turns(now);
        } else {
            self.queue.cancel(id);
        }
        self.remove_ended_leases();
    }

    fn pass_turns(&mut self, now: Instant) {
        while let Some(id) = self.queue.start_next(now) {
            let public = self.public(id);
            let Some(ticket) = self.tickets.get_mut(id) else { continue };
            ticket.has_turn = true;
            if std::mem::take(&mut ticket.is_awaited) {
                self.actions.push_back(TicketAction::Turn(public));
            }
            self.renew(now, id);
        }
    }

    /// Begins the lease of a ticket again.
    fn renew(&mut self, now: Instant, id: Id) {
        let Some(ticket) = self.tickets.get_mut(id) else { return };
        ticket.expires_at = now + self.lease;
        self.leases.push_back((ticket.expires_at, id));
        self.remove_ended_leases();
    }

    /// Restores the invariant that the first of the leases belongs to a ticket, and that at most
    /// half of them, and a few more, belong to none.
    fn remove_ended_leases(&mut self) {
        let Self { leases, tickets, .. } = self;
        let is_current =
            |&(at, id): &(Instant, Id)| tickets.get(id).is_some_and(|ticket| ticket.expires_at == at);
        while leases.front().is_some_and(|lease| !is_current(lease)) {
            leases.pop_front();
        }
        if leases.len() > 2 * tickets.len() + SPARE_LEASES {
            leases.retain(is_current);
        }
    }

    fn public(&self, id: Id) -> TicketId {
        TicketId(id.to_bits() ^ self.salt)
    }

    fn private(&self, id: TicketId) -> Id {
        Id::from_bits(id.0 ^ self.salt)
    }
}

/// Leases without a ticket that are kept beside as many as there are tickets.
const SPARE_LEASES: usize = 32;

/// Longest time until a deadline. A later one is a mistake in a unit.
const WITHIN_MAX: Duration = Duration::from_secs(24 * 3_600);

#[cfg(test)]
mod tests;
