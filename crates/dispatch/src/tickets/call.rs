//! A client of schedulers: the tickets of one call.

use std::collections::VecDeque;
use std::time::Duration;

use sherwood_model::{Instant, ReplicaId};
use smallvec::SmallVec;

use super::TicketId;

/// The tickets of one call to one of a few replicas, each with a scheduler.
///
/// It asks the schedulers of the candidates for a ticket, keeps the better one, cancels the others,
/// waits for its turn, and releases it when the call has ended. Guo et al., "`MicroFuge`" (2014),
/// section II-B.1. Not in the paper: a scheduler that gives no answer in time is left out, and if
/// none gives a ticket or a turn, the call starts without (*fails open*).
///
/// ```text
///  asking ──▶ waiting ──(turn)──▶ calling ──▶ ended
///    │           └───(failure)──▶ calling, without a ticket
///    ├─(the replica is idle)────▶ calling
///    ├─(no ticket in time)──────▶ calling, without a ticket
///    └─(refused by all)─────────▶ ended
/// ```
///
/// # Inputs, outputs, wake-ups
/// - Inputs: [`handle_ticket`](Self::handle_ticket), [`handle_turn`](Self::handle_turn),
///   [`handle_end`](Self::handle_end), [`handle_timeout`](Self::handle_timeout), in any order.
///   Answers may be late or missing; one that comes after the end is still to be handed in, so that
///   its ticket is cancelled.
/// - Outputs: after creation and after every input, [`poll_action`](Self::poll_action) until it
///   returns none.
/// - Wake-ups: [`handle_timeout`](Self::handle_timeout) at [`next_timeout`](Self::next_timeout).
///
/// Every ticket that a scheduler has given is cancelled or released, once, if the driver reports
/// the end of the call and carries the actions out. If it does neither, leases end them.
///
/// ```
/// use sherwood_dispatch::{CallAction, CallOptions, TicketId, TicketOffer, TicketedCall};
/// use sherwood_model::{Instant, ReplicaId};
/// use std::time::Duration;
///
/// let now = Instant::from_secs(1);
/// let (a, b) = (ReplicaId(0), ReplicaId(1));
/// let options = CallOptions { answer_timeout: Duration::from_millis(20), may_reject: true };
/// let mut call = TicketedCall::new(now, &[a, b], options);
/// assert_eq!(call.poll_action(), Some(CallAction::Get { replica: a }));
/// assert_eq!(call.poll_action(), Some(CallAction::Get { replica: b }));
/// let expected = Duration::from_millis(3);
/// let ticket = TicketId::from_bits(7);
/// let offer = TicketOffer { ticket, expected, fits: true, starts_at_once: false };
/// call.handle_ticket(now, a, Some(offer));
/// call.handle_timeout(now + options.answer_timeout);
/// assert_eq!(call.poll_action(), Some(CallAction::Wait { replica: a, ticket }));
/// call.handle_turn(true);
/// assert_eq!(call.poll_action(), Some(CallAction::Start { replica: a }));
/// call.handle_end(Some(expected));
/// let latency = Some(expected);
/// assert_eq!(call.poll_action(), Some(CallAction::Release { replica: a, ticket, latency }));
/// ```
#[derive(Clone, Debug)]
pub struct TicketedCall {
    options: CallOptions,
    candidates: SmallVec<[Candidate; 2]>,
    state: State,
    actions: VecDeque<CallAction>,
    failed_open: bool,
}

/// Settings of a [`TicketedCall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOptions {
    /// Longest wait for the answers of schedulers that are asked for a ticket.
    pub answer_timeout: Duration,
    /// True if the call is rejected when every candidate has answered that it would miss its
    /// deadline, or make another miss its. A call that would start at once is made all the same.
    pub may_reject: bool,
}

/// A ticket that a scheduler has given, and what it expects of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketOffer {
    /// The ticket.
    pub ticket: TicketId,
    /// Time until the call is expected to end.
    pub expected: Duration,
    /// True if the call is expected to meet its deadline and to let others meet theirs.
    pub fits: bool,
    /// True if the replica is idle, so that the ticket has its turn already. The call is made even
    /// if it does not fit: its latency may be the only sign that a replica which was too slow has
    /// recovered.
    pub starts_at_once: bool,
}

/// An instruction to the driver of a [`TicketedCall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAction {
    /// Ask the replica's scheduler for a ticket, then report with
    /// [`TicketedCall::handle_ticket`].
    Get {
        /// The replica whose scheduler is asked.
        replica: ReplicaId,
    },
    /// Wait for the ticket's turn, then report with [`TicketedCall::handle_turn`].
    Wait {
        /// The replica whose scheduler gave the ticket.
        replica: ReplicaId,
        /// The ticket.
        ticket: TicketId,
    },
    /// Cancel the ticket. There is nothing to report.
    Cancel {
        /// The replica whose scheduler gave the ticket.
        replica: ReplicaId,
        /// The ticket.
        ticket: TicketId,
    },
    /// Call the replica, then report with [`TicketedCall::handle_end`].
    Start {
        /// The replica to call.
        replica: ReplicaId,
    },
    /// End the call without an answer: it would come too late.
    Reject {
        /// Time after which the answer would have been expected.
        expected: Duration,
    },
    /// Release the ticket. There is nothing to report.
    Release {
        /// The replica whose scheduler gave the ticket.
        replica: ReplicaId,
        /// The ticket.
        ticket: TicketId,
        /// Time that the replica took; none if the call failed.
        latency: Option<Duration>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    replica: ReplicaId,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Missing,
    Failed,
    Offer(TicketOffer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Answers are missing until this time.
    Asking(Instant),
    Waiting(ReplicaId, TicketId),
    /// The call is in flight, with the ticket if it has one.
    Calling(Option<(ReplicaId, TicketId)>),
    Ended,
}

impl TicketedCall {
    /// Creates a call that may go to any of `candidates`, at least one and each once, the first one
    /// if no scheduler answers.
    ///
    /// # Panics
    /// If there are no candidates.
    #[must_use]
    pub fn new(now: Instant, candidates: &[ReplicaId], options: CallOptions) -> Self {
        assert!(!candidates.is_empty(), "a call needs a replica");
        let asked = |&replica: &ReplicaId| Candidate { replica, answer: Answer::Missing };
        Self {
            options,
            candidates: candidates.iter().map(asked).collect(),
            state: State::Asking(now + options.answer_timeout),
            actions: candidates.iter().map(|&replica| CallAction::Get { replica }).collect(),
            failed_open: false,
        }
    }

    /// Takes in the ticket of a candidate; none if its scheduler gave none. A ticket that is not
    /// needed any more is cancelled.
    pub fn handle_ticket(&mut self, now: Instant, replica: ReplicaId, offer: Option<TicketOffer>) {
        self.handle_timeout(now);
        let State::Asking(_) = self.state else {
            let ticket = offer.map(|offer| offer.ticket);
            self.actions.extend(ticket.map(|ticket| CallAction::Cancel { replica, ticket }));
            return;
        };
        let is_missing =
            |candidate: &&mut Candidate| candidate.replica == replica && candidate.answer == Answer::Missing;
        if let Some(candidate) = self.candidates.iter_mut().find(is_missing) {
            candidate.answer = offer.map_or(Answer::Failed, Answer::Offer);
        }
        if self.candidates.iter().all(|candidate| candidate.answer != Answer::Missing) {
            self.choose();
        }
    }

    /// Takes in the end of the wait: the turn has come, or it never will.
    pub fn handle_turn(&mut self, has_turn: bool) {
        let State::Waiting(replica, ticket) = self.state else { return };
        if has_turn {
            self.start(replica, Some((replica, ticket)));
        } else {
            // The scheduler may know the ticket, and have failed to say so.
            self.actions.push_back(CallAction::Cancel { replica, ticket });
            self.start(replica, None);
        }
    }

    /// Takes in that the call has ended, or that its answer is no longer needed, at any time:
    /// releases its ticket with the latency of the replica, or cancels it.
    pub fn handle_end(&mut self, latency: Option<Duration>) {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Asking(_) => self.cancel_except(None),
            State::Waiting(replica, ticket) => {
                self.actions.push_back(CallAction::Cancel { replica, ticket });
            }
            State::Calling(Some((replica, ticket))) => {
                self.actions.push_back(CallAction::Release { replica, ticket, latency });
            }
            State::Calling(None) | State::Ended => {}
        }
    }

    /// Leaves out the schedulers that have not answered in time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let State::Asking(until) = self.state
            && until <= now
        {
            self.choose();
        }
    }

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout) at.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Asking(until) => Some(until),
            State::Waiting(..) | State::Calling(_) | State::Ended => None,
        }
    }

    /// Returns the next instruction; none until the next input.
    pub fn poll_action(&mut self) -> Option<CallAction> {
        self.actions.pop_front()
    }

    /// Returns true if the call was started without a ticket.
    #[must_use]
    pub fn has_failed_open(&self) -> bool {
        self.failed_open
    }

    /// Returns the candidates whose schedulers have not answered.
    pub fn unanswered(&self) -> impl Iterator<Item = ReplicaId> {
        let missing = self.candidates.iter().filter(|candidate| candidate.answer == Answer::Missing);
        missing.map(|candidate| candidate.replica)
    }

    /// Keeps the best of the tickets that were given.
    fn choose(&mut self) {
        let offers = self.candidates.iter().filter_map(|candidate| match candidate.answer {
            Answer::Offer(offer) => Some((candidate.replica, offer)),
            Answer::Missing | Answer::Failed => None,
        });
        let is_last = offers.clone().count() == self.candidates.len();
        // As `Estimate::is_better_than` compares.
        let best = offers.min_by_key(|(_, offer)| (!offer.fits, offer.expected));
        let Some((replica, TicketOffer { ticket, expected, fits, starts_at_once })) = best else {
            return self.start(self.candidates[0].replica, None);
        };
        if !fits && !starts_at_once && is_last && self.options.may_reject {
            self.cancel_except(None);
            self.state = State::Ended;
            self.actions.push_back(CallAction::Reject { expected });
            return;
        }
        self.cancel_except(Some(replica));
        if starts_at_once {
            return self.start(replica, Some((replica, ticket)));
        }
        self.state = State::Waiting(replica, ticket);
        self.actions.push_back(CallAction::Wait { replica, ticket });
    }

    fn start(&mut self, replica: ReplicaId, ticket: Option<(ReplicaId, TicketId)>) {
        self.failed_open = ticket.is_none();
        self.state = State::Calling(ticket);
        self.actions.push_back(CallAction::Start { replica });
    }

    fn cancel_except(&mut self, kept: Option<ReplicaId>) {
        for Candidate { replica, answer } in &self.candidates {
            if let Answer::Offer(TicketOffer { ticket, .. }) = *answer
                && Some(*replica) != kept
            {
                self.actions.push_back(CallAction::Cancel { replica: *replica, ticket });
            }
        }
    }
}

/// The times at which a scheduler that failed is asked again: after 100 ms, and after twice as long
/// with each further failure, up to 10 s. Until then calls need not wait for its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerBackoff {
    /// Failures since the latest answer.
    failures: u32,
    until: Option<Instant>,
}

impl SchedulerBackoff {
    /// Returns true if the scheduler is to be asked.
    #[must_use]
    pub fn may_ask(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// Notes an answer.
    pub fn note_answer(&mut self) {
        *self = Self::default();
    }

    /// Notes that a call gave no answer. Calls that were in flight together count once.
    pub fn note_failure(&mut self, now: Instant) {
        if self.may_ask(now) {
            let wait = BACKOFF_MIN.saturating_mul(1 << self.failures.min(10)).min(BACKOFF_MAX);
            self.failures = self.failures.saturating_add(1);
            self.until = Some(now + wait);
        }
    }
}

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const A: ReplicaId = ReplicaId(0);
    const B: ReplicaId = ReplicaId(1);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn call(candidates: &[ReplicaId], may_reject: bool) -> TicketedCall {
        let options = CallOptions { answer_timeout: Duration::from_millis(20), may_reject };
        let mut call = TicketedCall::new(at(0), candidates, options);
        let gets: Vec<_> = candidates.iter().map(|&replica| CallAction::Get { replica }).collect();
        assert_eq!(actions(&mut call), gets);
        call
    }

    fn actions(call: &mut TicketedCall) -> Vec<CallAction> {
        std::iter::from_fn(|| call.poll_action()).collect()
    }

    fn ticket(bits: u64) -> TicketId {
        TicketId::from_bits(bits)
    }

    fn offer(bits: u64, ms: u64, fits: bool) -> Option<TicketOffer> {
        let (ticket, expected) = (ticket(bits), Duration::from_millis(ms));
        Some(TicketOffer { ticket, expected, fits, starts_at_once: false })
    }

    fn wait(replica: ReplicaId, bits: u64) -> CallAction {
        CallAction::Wait { replica, ticket: ticket(bits) }
    }

    fn cancel(replica: ReplicaId, bits: u64) -> CallAction {
        CallAction::Cancel { replica, ticket: ticket(bits) }
    }

    #[test]
    fn better_ticket_is_kept_and_the_other_cancelled() {
        for (of_a, of_b, kept, other) in [
            ((5, true), (3, true), (B, 2), (A, 1)),
            ((5, true), (3, false), (A, 1), (B, 2)),
            ((5, false), (3, false), (B, 2), (A, 1)),
        ] {
            let mut call = call(&[A, B], false);
            call.handle_ticket(at(1), A, offer(1, of_a.0, of_a.1));
            assert_eq!(actions(&mut call), []);
            call.handle_ticket(at(2), B, offer(2, of_b.0, of_b.1));
            assert_eq!(actions(&mut call), [cancel(other.0, other.1), wait(kept.0, kept.1)]);
        }
    }

    #[test]
    fn call_that_fits_nowhere_is_rejected_only_if_every_scheduler_says_so() {
        let mut refused = call(&[A, B], true);
        refused.handle_ticket(at(1), A, offer(1, 5, false));
        refused.handle_ticket(at(1), B, offer(2, 3, false));
        let expected = Duration::from_millis(3);
        assert_eq!(actions(&mut refused), [cancel(A, 1), cancel(B, 2), CallAction::Reject { expected }]);
        let mut silent = call(&[A, B], true);
        silent.handle_ticket(at(1), A, offer(1, 5, false));
        silent.handle_ticket(at(1), B, None);
        assert_eq!(actions(&mut silent), [wait(A, 1)]);
    }

    #[test]
    fn call_that_starts_at_once_is_made_without_a_wait_although_it_will_be_late() {
        let mut call = call(&[A, B], true);
        let idle = offer(1, 3, false).map(|offer| TicketOffer { starts_at_once: true, ..offer });
        call.handle_ticket(at(1), A, idle);
        call.handle_ticket(at(1), B, offer(2, 5, false));
        assert_eq!(actions(&mut call), [cancel(B, 2), CallAction::Start { replica: A }]);
        assert!(!call.has_failed_open());
        call.handle_end(None);
        assert_eq!(
            actions(&mut call),
            [CallAction::Release { replica: A, ticket: ticket(1), latency: None }]
        );
    }

    #[test]
    fn call_starts_without_a_ticket_if_no_scheduler_answers_and_late_tickets_are_cancelled() {
        let mut call = call(&[A, B], true);
        call.handle_ticket(at(1), B, None);
        call.handle_timeout(at(19));
        assert_eq!(actions(&mut call), []);
        assert_eq!(call.unanswered().collect::<Vec<_>>(), [A]);
        call.handle_timeout(at(20));
        assert_eq!(actions(&mut call), [CallAction::Start { replica: A }]);
        assert!(call.has_failed_open());
        call.handle_ticket(at(21), A, offer(1, 1, true));
        assert_eq!(actions(&mut call), [cancel(A, 1)]);
        call.handle_end(Some(Duration::from_millis(1)));
        assert_eq!(actions(&mut call), []);
    }

    #[test]
    fn call_starts_without_a_ticket_if_its_turn_will_not_come() {
        let mut call = call(&[A], true);
        call.handle_ticket(at(1), A, offer(1, 1, true));
        call.handle_turn(false);
        assert_eq!(actions(&mut call), [wait(A, 1), cancel(A, 1), CallAction::Start { replica: A }]);
        assert!(call.has_failed_open());
        call.handle_turn(true);
        call.handle_end(None);
        assert_eq!(actions(&mut call), []);
    }

    #[test]
    fn end_at_any_time_gives_back_what_is_held() {
        let mut asking = call(&[A, B], false);
        asking.handle_ticket(at(1), A, offer(1, 1, true));
        asking.handle_end(None);
        asking.handle_ticket(at(2), B, offer(2, 1, true));
        assert_eq!(actions(&mut asking), [cancel(A, 1), cancel(B, 2)]);
        let mut waiting = call(&[A], false);
        waiting.handle_ticket(at(1), A, offer(1, 1, true));
        waiting.handle_end(None);
        waiting.handle_end(None);
        assert_eq!(actions(&mut waiting), [wait(A, 1), cancel(A, 1)]);
    }

    #[test]
    fn failing_scheduler_is_asked_less_and_less_often() {
        let mut backoff = SchedulerBackoff::default();
        assert!(backoff.may_ask(at(0)));
        backoff.note_failure(at(0));
        backoff.note_failure(at(1));
        assert!(!backoff.may_ask(at(99)) && backoff.may_ask(at(100)));
        backoff.note_failure(at(100));
        assert!(!backoff.may_ask(at(299)) && backoff.may_ask(at(300)));
        for _ in 0..100 {
            backoff.note_failure(at(1_000_000));
            backoff.until = None;
        }
        backoff.note_failure(at(0));
        assert!(!backoff.may_ask(at(9_999)) && backoff.may_ask(at(10_000)));
        backoff.note_answer();
        assert!(backoff.may_ask(at(0)));
    }
}
