//! The client of the schedulers of a backend's replicas.
//!
//! [`TicketedCall`] decides; this carries out its instructions: calls of `sherwood.v1.Tickets` over
//! one connection for each scheduler, which is opened when it is needed.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sherwood_config::SchedulerSource;
use sherwood_dispatch::{CallAction, CallOptions, SchedulerBackoff, TicketId, TicketOffer, TicketedCall};
use sherwood_model::{DEADLINE_MAX, Demand, DemandKind, Instant, ReplicaId};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::{Code, Response, Status};

use super::connection::{Connection, Endpoint, is_not_carried_out, is_of_the_connection};
use super::generated::tickets_client::TicketsClient;
use super::generated::{
    CancelTicketRequest, GetTicketRequest, Operation, ReleaseTicketRequest, WaitOnTicketRequest,
};
use sherwood_ports::access::AccessError;
use sherwood_process::clock::Clock;

/// Longest wait for a ticket. Chosen: several round trips between the zones of a region. A call
/// waits for half of the time that it has left, if that is less.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(50);
/// Shortest wait for a ticket, also of a call whose deadline is over: more than a scheduler needs
/// that works, so that it is not taken to have failed.
const ANSWER_TIMEOUT_MIN: Duration = Duration::from_millis(5);
/// Timeout of opening a connection, and of a call to a scheduler that waits for no turn.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The schedulers of a backend's replicas.
pub struct Schedulers {
    /// The scheduler of each replica, in the order of their ids.
    each: Vec<Arc<RemoteScheduler>>,
    /// True if a call that would come too late is rejected.
    may_reject: bool,
    /// Calls that were started without a ticket.
    failed_open: AtomicU64,
    clock: Clock,
    runtime: Handle,
}

/// The permission to call a replica, or not.
pub enum Turn {
    /// The call starts at this replica.
    Start(ReplicaId, Box<Held>),
    /// The call would come too late: after this time.
    Reject(Duration),
}

impl Schedulers {
    /// Reads the files of `sources`. Nothing is connected yet.
    ///
    /// # Errors
    /// Names the file, or the option of TLS, that is unusable.
    pub fn open(
        sources: Vec<SchedulerSource>,
        may_reject: bool,
        clock: Clock,
        runtime: Handle,
    ) -> Result<Self, AccessError> {
        let open = |source| Ok(Arc::new(RemoteScheduler::new(Endpoint::open(source)?)));
        let each = sources.into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { each, may_reject, failed_open: AtomicU64::new(0), clock, runtime })
    }

    /// Returns the number of calls that were started without a ticket.
    pub fn failed_open(&self) -> u64 {
        self.failed_open.load(Relaxed)
    }

    /// Waits for the turn of a call for `keys` keys to one of the `candidates`, whose answer is of
    /// no use after `expires_at`.
    pub async fn turn(
        self: Arc<Self>,
        candidates: &[ReplicaId],
        demand: &Demand,
        keys: usize,
        expires_at: Instant,
    ) -> Turn {
        let now = self.clock.now();
        let options = CallOptions {
            answer_timeout: answer_timeout(demand.deadline.unwrap_or(expires_at).min(expires_at) - now),
            may_reject: self.may_reject && !demand.best_effort,
        };
        let (events, arrivals) = mpsc::unbounded_channel();
        let request = GetTicketRequest {
            scheduler: String::new(),
            operation: match demand.kind {
                DemandKind::Read => Operation::Read,
                DemandKind::Write => Operation::Write,
            }
            .into(),
            within_us: demand.deadline.map(|deadline| micros((deadline - now).min(DEADLINE_MAX)).max(1)),
            best_effort: demand.best_effort,
            keys: u32::try_from(keys).unwrap_or(u32::MAX),
        };
        let call = TicketedCall::new(now, candidates, options);
        let mut held = Held { call, schedulers: self, events, arrivals, request, expires_at };
        loop {
            if let Some(turn) = held.carry_out() {
                held.close();
                return match turn {
                    CallAction::Start { replica } => Turn::Start(replica, Box::new(held)),
                    CallAction::Reject { expected } => Turn::Reject(expected),
                    other => unreachable!("{other:?} ends no wait"),
                };
            }
            held.next_event().await;
        }
    }
}

/// An answer of a scheduler.
enum Event {
    Ticket(ReplicaId, Option<TicketOffer>),
    Turn(bool),
}

/// The ticket of a call. When it is dropped before [`end`](Self::end), its ticket is given back.
pub struct Held {
    call: TicketedCall,
    schedulers: Arc<Schedulers>,
    /// Sender and receiver of the answers to calls in flight, at most one for each candidate and
    /// one to wait.
    events: mpsc::UnboundedSender<Event>,
    arrivals: mpsc::UnboundedReceiver<Event>,
    /// The request for a ticket, without the scheduler's name.
    request: GetTicketRequest,
    expires_at: Instant,
}

impl Held {
    /// Ends the call. `latency` is the time that the replica took, none if it failed.
    pub fn end(mut self, latency: Option<Duration>) {
        self.call.handle_end(latency);
    }

    /// Gives back tickets that arrived late. Those that arrive later are cancelled on arrival.
    fn close(&mut self) {
        self.arrivals.close();
        while let Ok(event) = self.arrivals.try_recv() {
            if let Event::Ticket(replica, offer) = event {
                self.call.handle_ticket(self.schedulers.clock.now(), replica, offer);
            }
        }
        self.carry_out();
    }

    async fn next_event(&mut self) {
        let clock = self.schedulers.clock;
        let due = self.call.next_timeout();
        let timeout = async {
            match due {
                Some(due) => tokio::time::sleep(due - clock.now()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = self.arrivals.recv() => match event.expect("a sender is held") {
                Event::Ticket(replica, offer) => self.call.handle_ticket(clock.now(), replica, offer),
                Event::Turn(has_turn) => self.call.handle_turn(has_turn),
            },
            () = timeout => {
                let now = clock.now();
                for replica in self.call.unanswered() {
                    self.schedulers.each[replica.index()].backoff().note_failure(now);
                }
                self.call.handle_timeout(now);
            }
        }
    }

    /// Carries out what is to be done; returns the action that ends the wait, if it has ended.
    fn carry_out(&mut self) -> Option<CallAction> {
        while let Some(action) = self.call.poll_action() {
            match action {
                CallAction::Get { replica } => self.get(replica),
                CallAction::Wait { replica, ticket } => self.wait(replica, ticket),
                CallAction::Cancel { replica, ticket } => {
                    let scheduler = Arc::clone(&self.schedulers.each[replica.index()]);
                    self.schedulers.runtime.spawn(async move { scheduler.cancel(ticket).await });
                }
                CallAction::Release { replica, ticket, latency } => {
                    let scheduler = Arc::clone(&self.schedulers.each[replica.index()]);
                    self.schedulers.runtime.spawn(async move { scheduler.release(ticket, latency).await });
                }
                CallAction::Start { .. } => {
                    if self.call.has_failed_open() {
                        self.schedulers.failed_open.fetch_add(1, Relaxed);
                    }
                    return Some(action);
                }
                CallAction::Reject { .. } => return Some(action),
            }
        }
        None
    }

    /// Asks for a ticket. An answer that comes after the call has ended is cancelled at once.
    fn get(&mut self, replica: ReplicaId) {
        let now = self.schedulers.clock.now();
        let scheduler = Arc::clone(&self.schedulers.each[replica.index()]);
        if !scheduler.backoff().may_ask(now) {
            return self.call.handle_ticket(now, replica, None);
        }
        let request =
            GetTicketRequest { scheduler: scheduler.endpoint.scheduler().to_owned(), ..self.request.clone() };
        let (events, clock) = (self.events.clone(), self.schedulers.clock);
        self.schedulers.runtime.spawn(async move {
            let offer = match tokio::time::timeout(CALL_TIMEOUT, scheduler.get(request)).await {
                Ok(Ok(offer)) => {
                    scheduler.backoff().note_answer();
                    Some(offer)
                }
                Ok(Err(status)) => {
                    scheduler.failed(clock.now(), &status);
                    None
                }
                Err(_) => None,
            };
            if let Err(mpsc::error::SendError(Event::Ticket(_, Some(offer)))) =
                events.send(Event::Ticket(replica, offer))
            {
                scheduler.cancel(offer.ticket).await;
            }
        });
    }

    fn wait(&mut self, replica: ReplicaId, ticket: TicketId) {
        let scheduler = Arc::clone(&self.schedulers.each[replica.index()]);
        let (events, clock) = (self.events.clone(), self.schedulers.clock);
        let left = self.expires_at - clock.now();
        self.schedulers.runtime.spawn(async move {
            let wait = async {
                tokio::select! {
                    turn = scheduler.wait(ticket) => turn,
                    // The call has ended, and with it the wait.
                    () = events.closed() => Ok(()),
                }
            };
            let has_turn = match tokio::time::timeout(left, wait).await {
                Ok(Ok(())) => true,
                Ok(Err(status)) => {
                    scheduler.failed(clock.now(), &status);
                    false
                }
                Err(_) => false,
            };
            let _ = events.send(Event::Turn(has_turn));
        });
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.call.handle_end(None);
        self.close();
    }
}

/// The scheduler of one replica.
struct RemoteScheduler {
    endpoint: Endpoint,
    /// The latest connection; none before the first call.
    latest: tokio::sync::Mutex<Option<Latest>>,
    backoff: Mutex<SchedulerBackoff>,
}

/// The latest connection to a scheduler: its number, and the client on it.
struct Latest {
    number: u64,
    connection: Connection,
    client: TicketsClient<Connection>,
}

/// The effect of making the same call twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeated {
    /// Calling twice has the same effect as calling once.
    Harmless,
    /// The second call gets a second ticket, which stays until its lease ends.
    Harmful,
}

impl RemoteScheduler {
    fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, latest: tokio::sync::Mutex::default(), backoff: Mutex::default() }
    }

    fn backoff(&self) -> MutexGuard<'_, SchedulerBackoff> {
        self.backoff.lock().expect("no panics while held")
    }

    /// Notes a failed call, unless the scheduler has answered it.
    fn failed(&self, now: Instant, status: &Status) {
        tracing::debug!("scheduler {}: {status}", self.endpoint.url());
        if matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied) {
            self.endpoint.reread_token();
        }
        if !matches!(status.code(), Code::ResourceExhausted | Code::NotFound | Code::Aborted) {
            self.backoff().note_failure(now);
        }
    }

    /// Returns a client, its connection's number, and true if the connection was already open. Uses
    /// the latest connection if its number is above `after`, else opens a new one.
    async fn client(&self, after: u64) -> Result<(TicketsClient<Connection>, u64, bool), Status> {
        let mut latest = self.latest.lock().await;
        if let Some(Latest { number, connection, client }) = &*latest
            && *number > after
            && !connection.is_closed()
        {
            return Ok((client.clone(), *number, true));
        }
        let unreachable = |error: io::Error| Status::unavailable(error.to_string());
        let connected = tokio::time::timeout(CALL_TIMEOUT, self.endpoint.connect()).await;
        let connection =
            connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(unreachable)?;
        let client = TicketsClient::with_origin(connection.clone(), self.endpoint.origin());
        let number = 1 + latest.as_ref().map_or(0, |latest| latest.number);
        *latest = Some(Latest { number, connection, client: client.clone() });
        Ok((client, number, false))
    }

    /// Makes a call. The scheduler, or a proxy before it, may close a reused connection just as the
    /// call is sent. The call is then made once more on a new connection, if the first attempt was
    /// not carried out or if carrying it out twice is harmless.
    async fn call<T, F>(
        &self,
        repeated: Repeated,
        make: impl Fn(TicketsClient<Connection>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let (client, number, is_reused) = self.client(0).await?;
        let response = match make(client).await {
            Err(status) if is_reused && may_be_repeated(repeated, &status) => {
                tracing::debug!("scheduler {}: {status}, on a kept connection", self.endpoint.url());
                let (client, ..) = self.client(number).await?;
                make(client).await
            }
            result => result,
        };
        response.map(Response::into_inner)
    }

    async fn get(&self, request: GetTicketRequest) -> Result<TicketOffer, Status> {
        let get = |mut client: TicketsClient<_>| {
            let request = request.clone();
            async move { client.get_ticket(request).await }
        };
        let given = self.call(Repeated::Harmful, get).await?;
        Ok(TicketOffer {
            ticket: TicketId::from_bits(given.ticket),
            expected: Duration::from_micros(u64::try_from(given.expected_us).unwrap_or(0)),
            fits: given.meets_deadline && !given.breaks_another,
            starts_at_once: given.starts_at_once,
        })
    }

    async fn wait(&self, ticket: TicketId) -> Result<(), Status> {
        let wait = |mut client: TicketsClient<_>| {
            let scheduler = self.endpoint.scheduler().to_owned();
            let request = WaitOnTicketRequest { scheduler, ticket: ticket.to_bits() };
            async move { client.wait_on_ticket(request).await }
        };
        self.call(Repeated::Harmless, wait).await.map(|_| ())
    }

    /// Cancels a ticket. If that fails the lease ends it.
    async fn cancel(&self, ticket: TicketId) {
        let cancel = |mut client: TicketsClient<_>| {
            let scheduler = self.endpoint.scheduler().to_owned();
            let request = CancelTicketRequest { scheduler, ticket: ticket.to_bits() };
            async move { client.cancel_ticket(request).await }
        };
        self.aside(async { self.call(Repeated::Harmless, cancel).await.map(|_| ()) }).await;
    }

    /// Releases a ticket. If that fails the lease ends it.
    async fn release(&self, ticket: TicketId, latency: Option<Duration>) {
        let release = |mut client: TicketsClient<_>| {
            let scheduler = self.endpoint.scheduler().to_owned();
            let latency_us = latency.map(micros);
            let request = ReleaseTicketRequest { scheduler, ticket: ticket.to_bits(), latency_us };
            async move { client.release_ticket(request).await }
        };
        self.aside(async { self.call(Repeated::Harmless, release).await.map(|_| ()) }).await;
    }

    async fn aside(&self, call: impl Future<Output = Result<(), Status>>) {
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(Ok(())) => {}
            Ok(Err(status)) => tracing::debug!("scheduler {}: {status}", self.endpoint.url()),
            Err(_) => tracing::debug!("scheduler {}: no answer", self.endpoint.url()),
        }
    }
}

/// Returns true if a call that failed on a reused connection may be made again.
fn may_be_repeated(repeated: Repeated, status: &Status) -> bool {
    match repeated {
        Repeated::Harmless => is_of_the_connection(status),
        Repeated::Harmful => is_not_carried_out(status),
    }
}

/// Returns the longest wait for a ticket of a call that has this time left.
fn answer_timeout(left: Duration) -> Duration {
    (left / 2).clamp(ANSWER_TIMEOUT_MIN, ANSWER_TIMEOUT)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_waits_for_a_ticket_for_half_of_its_time_and_within_bounds() {
        let wait = |ms| answer_timeout(Duration::from_millis(ms)).as_millis();
        assert_eq!([0, 8, 40, 100, 2_000].map(wait), [5, 5, 20, 50, 50]);
    }
}
