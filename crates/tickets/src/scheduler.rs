//! A scheduler of the node: the machine of `dispatch` under a lock, and the calls that wait for a
//! turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sherwood_config::SchedulerSetup;
use sherwood_dispatch::{
    GivenTicket, OptionsError, TicketAction, TicketError, TicketId, TicketOptions, TicketRequest,
    TicketStats, Tickets,
};
use sherwood_model::Instant;
use tokio::sync::{Notify, oneshot};

use sherwood_process::clock::Clock;

/// A scheduler that the node serves.
pub struct Scheduler {
    /// The name, unique within the node.
    pub name: String,
    /// The options of the scheduler's tickets.
    pub options: TicketOptions,
    state: Mutex<State>,
    rearm: Notify,
    clock: Clock,
}

struct State {
    tickets: Tickets,
    /// The call that waits for each ticket, at most one for each ticket that is held. An entry
    /// whose call was cancelled stays until the ticket has its turn or ends.
    waiting: HashMap<TicketId, oneshot::Sender<Result<(), TicketError>>>,
}

/// The end of a wait: the turn, or the reason why it does not come.
pub(crate) type TurnReceiver = oneshot::Receiver<Result<(), TicketError>>;

/// Memory of a waiting ticket, bytes: its entries in the queues of [`Tickets`] and in the table of
/// waiting calls. Chosen: more than the entries take when tables are half empty.
const TICKET_BYTES: usize = 512;

impl Scheduler {
    /// Returns the maximum memory that the scheduler's tickets can take, bytes.
    pub fn bytes_max(&self) -> usize {
        let Self { options: TicketOptions { slots, tickets_max, .. }, .. } = self;
        TICKET_BYTES * (*slots as usize + *tickets_max as usize)
    }

    /// Creates an idle scheduler. `salt` is 64 random bits.
    ///
    /// # Errors
    /// If an option is 0.
    pub fn new(setup: SchedulerSetup, clock: Clock, salt: u64) -> Result<Arc<Self>, OptionsError> {
        let SchedulerSetup { name, options } = setup;
        let state = State { tickets: Tickets::new(options, salt)?, waiting: HashMap::new() };
        Ok(Arc::new(Self { name, options, state: Mutex::new(state), rearm: Notify::new(), clock }))
    }

    /// Gives out a ticket. Returns also the time until its call is expected to end.
    pub(crate) fn get(&self, request: &TicketRequest) -> Result<(GivenTicket, Duration), TicketError> {
        self.drive(|state, now| {
            let given = state.tickets.get(now, request)?;
            Ok((given, given.estimate.completes_at - now))
        })
    }

    /// Gives out a ticket and begins to wait for its turn.
    pub(crate) fn get_and_wait(
        self: &Arc<Self>,
        request: &TicketRequest,
    ) -> Result<(AwaitedTicket, TurnReceiver), TicketError> {
        let (sender, turn) = oneshot::channel();
        let given = self.drive(|state, now| {
            let given = state.tickets.get_and_wait(now, request)?;
            state.waiting.insert(given.id, sender);
            Ok(given)
        })?;
        Ok((AwaitedTicket { scheduler: Arc::clone(self), id: given.id, has_turn: false }, turn))
    }

    /// Begins to wait for the turn of a ticket. A call that waits for the same ticket already ends
    /// without a turn.
    pub(crate) fn wait(&self, id: TicketId) -> Result<TurnReceiver, TicketError> {
        let (sender, turn) = oneshot::channel();
        self.drive(|state, now| {
            if state.tickets.wait(now, id)? {
                let _ = sender.send(Ok(()));
            } else {
                state.waiting.insert(id, sender);
            }
            Ok(turn)
        })
    }

    /// Cancels a ticket that is not needed; a call that waits for it ends without a turn.
    ///
    /// # Errors
    /// If the ticket is unknown.
    pub(crate) fn cancel(&self, id: TicketId) -> Result<(), TicketError> {
        self.drive(|state, now| {
            state.tickets.cancel(now, id)?;
            if let Some(call) = state.waiting.remove(&id) {
                let _ = call.send(Err(TicketError::Unknown { id }));
            }
            Ok(())
        })
    }

    /// Ends the call of a ticket; `latency` is the time that the server took, none if it failed.
    ///
    /// # Errors
    /// If the ticket is unknown or has not had its turn.
    pub(crate) fn release(&self, id: TicketId, latency: Option<Duration>) -> Result<(), TicketError> {
        self.drive(|state, now| state.tickets.release(now, id, latency))
    }

    /// Returns the number of tickets by state, and counts since the start.
    pub fn stats(&self) -> TicketStats {
        self.lock().tickets.stats()
    }

    /// Ends leases when they are over, until the runtime ends.
    pub async fn wake_up(self: Arc<Self>) {
        loop {
            let due = self.lock().tickets.next_timeout();
            let Some(due) = due else {
                self.rearm.notified().await;
                continue;
            };
            // A lease that is added ends after those before it, since all are equally long.
            tokio::time::sleep(due.since(self.clock.now())).await;
            self.drive(|state, now| state.tickets.handle_timeout(now));
        }
    }

    /// Gives the machine an input and answers the calls whose wait is over. The time is read under
    /// the lock, so that it never steps back.
    fn drive<R>(&self, input: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.lock();
        let was_empty = state.tickets.next_timeout().is_none();
        let now = self.clock.now();
        let result = input(&mut state, now);
        while let Some(action) = state.tickets.poll_action() {
            let (id, end) = match action {
                TicketAction::Turn(id) => (id, Ok(())),
                TicketAction::Lapse(id) => (id, Err(TicketError::Unknown { id })),
            };
            if let Some(call) = state.waiting.remove(&id) {
                // The client may have gone; its lease then ends the ticket.
                let _ = call.send(end);
            }
        }
        if was_empty && state.tickets.next_timeout().is_some() {
            self.rearm.notify_one();
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panics while held")
    }
}

/// A ticket whose id its client does not know yet: cancelled on drop until the turn was passed on.
pub(crate) struct AwaitedTicket {
    scheduler: Arc<Scheduler>,
    id: TicketId,
    has_turn: bool,
}

impl AwaitedTicket {
    /// Returns the id, for a client that learns of the turn.
    pub(crate) fn take_turn(mut self) -> TicketId {
        self.has_turn = true;
        self.id
    }
}

impl Drop for AwaitedTicket {
    fn drop(&mut self) {
        if !self.has_turn {
            // The lease may have ended it.
            let _ = self.scheduler.cancel(self.id);
        }
    }
}
