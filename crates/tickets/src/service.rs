//! The five calls of `sherwood.v1.Tickets`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::Next;
use sherwood_config::DEFAULT_SCHEDULER;
use sherwood_dispatch::{TicketError, TicketId, TicketRequest};
use sherwood_model::DemandKind;
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status};

use super::generated::tickets_server::{self, TicketsServer};
use super::generated::{
    CancelTicketRequest, CancelTicketResponse, GetTicketAndWaitResponse, GetTicketRequest, GetTicketResponse,
    Operation, ReleaseTicketRequest, ReleaseTicketResponse, WaitOnTicketRequest, WaitOnTicketResponse,
};
use super::scheduler::{Scheduler, TurnReceiver};
use sherwood_ports::http::{WholeBody, listed, stopped};
use sherwood_process::buffers::Buffers;

/// The paths of the calls.
pub const CALLS: &str = "/sherwood.v1.Tickets/{call}";

/// Largest message from a client, bytes: many times the largest that the definition allows.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Bytes of gRPC before a message.
const PREFIX_BYTES: usize = 5;

/// Largest number of keys of one call.
const KEYS_MAX: u32 = 10_000;

/// Reads the message of a call to its end before the call is served, within the bounds of all
/// bodies. The server of gRPC would wait for the end for ever.
pub async fn whole_message(
    State(buffers): State<Arc<Buffers>>,
    request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    let (head, body) = request.into_parts();
    match WholeBody::of_value(body, &buffers, MESSAGE_BYTES_MAX + PREFIX_BYTES).await {
        Ok(WholeBody { bytes, hold: _hold }) => {
            next.run(axum::extract::Request::from_parts(head, Body::from(bytes))).await
        }
        Err(problem) => {
            let code = match problem.status() {
                StatusCode::PAYLOAD_TOO_LARGE => Code::OutOfRange,
                StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
                StatusCode::SERVICE_UNAVAILABLE => Code::ResourceExhausted,
                _ => Code::InvalidArgument,
            };
            Status::new(code, problem.error()).into_http()
        }
    }
}

/// The schedulers of the node, as clients call them.
#[derive(Clone)]
pub struct TicketService {
    schedulers: Arc<[Arc<Scheduler>]>,
    /// True from the moment the node begins to drain.
    stopping: watch::Receiver<bool>,
}

impl TicketService {
    /// Creates the server of `schedulers`.
    pub fn server(schedulers: Arc<[Arc<Scheduler>]>, stopping: watch::Receiver<bool>) -> TicketsServer<Self> {
        TicketsServer::new(Self { schedulers, stopping }).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn scheduler(&self, name: &str) -> Result<&Arc<Scheduler>, Status> {
        let name = if name.is_empty() { DEFAULT_SCHEDULER } else { name };
        self.schedulers.iter().find(|scheduler| scheduler.name == name).ok_or_else(|| {
            let known: Vec<_> = self.schedulers.iter().map(|scheduler| scheduler.name.clone()).collect();
            let name: String = name.chars().take(64).collect();
            Status::not_found(format!(
                "finding scheduler {name:?}: there are {}; name one of them, or add a [[scheduler]]",
                listed(&known)
            ))
        })
    }

    /// Waits for a turn, until the lease is over or the node stops.
    async fn turn(&self, turn: TurnReceiver) -> Result<(), Status> {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            end = turn => match end {
                Ok(end) => end.map_err(status),
                Err(_) => Err(Status::aborted(
                    "waiting for a ticket: a later call waits for it; wait for a ticket once at a time",
                )),
            },
            () = stopped(&mut stopping) => {
                Err(Status::unavailable("waiting for a ticket: the node is stopping; call the server without one"))
            }
        }
    }
}

#[tonic::async_trait]
impl tickets_server::Tickets for TicketService {
    async fn get_ticket(
        &self,
        request: Request<GetTicketRequest>,
    ) -> Result<Response<GetTicketResponse>, Status> {
        let request = request.into_inner();
        let scheduler = self.scheduler(&request.scheduler)?;
        let (given, expected) = scheduler.get(&demanded(&request)?).map_err(status)?;
        Ok(Response::new(GetTicketResponse {
            ticket: given.id.to_bits(),
            expected_us: micros(expected),
            meets_deadline: given.estimate.meets_deadline,
            breaks_another: given.estimate.breaks_another,
            lease_us: micros(scheduler.options.timeout),
            starts_at_once: given.estimate.starts_at_once,
        }))
    }

    async fn cancel_ticket(
        &self,
        request: Request<CancelTicketRequest>,
    ) -> Result<Response<CancelTicketResponse>, Status> {
        let CancelTicketRequest { scheduler, ticket } = request.into_inner();
        self.scheduler(&scheduler)?.cancel(TicketId::from_bits(ticket)).map_err(status)?;
        Ok(Response::new(CancelTicketResponse {}))
    }

    async fn wait_on_ticket(
        &self,
        request: Request<WaitOnTicketRequest>,
    ) -> Result<Response<WaitOnTicketResponse>, Status> {
        let WaitOnTicketRequest { scheduler, ticket } = request.into_inner();
        let turn = self.scheduler(&scheduler)?.wait(TicketId::from_bits(ticket)).map_err(status)?;
        self.turn(turn).await?;
        Ok(Response::new(WaitOnTicketResponse {}))
    }

    async fn release_ticket(
        &self,
        request: Request<ReleaseTicketRequest>,
    ) -> Result<Response<ReleaseTicketResponse>, Status> {
        let ReleaseTicketRequest { scheduler, ticket, latency_us } = request.into_inner();
        let latency = latency_us.map(latency);
        self.scheduler(&scheduler)?.release(TicketId::from_bits(ticket), latency).map_err(status)?;
        Ok(Response::new(ReleaseTicketResponse {}))
    }

    async fn get_ticket_and_wait(
        &self,
        request: Request<GetTicketRequest>,
    ) -> Result<Response<GetTicketAndWaitResponse>, Status> {
        let request = request.into_inner();
        let scheduler = self.scheduler(&request.scheduler)?;
        let (ticket, turn) = scheduler.get_and_wait(&demanded(&request)?).map_err(status)?;
        self.turn(turn).await?;
        Ok(Response::new(GetTicketAndWaitResponse { ticket: ticket.take_turn().to_bits() }))
    }
}

/// Converts a request whose fields may be out of range.
fn demanded(request: &GetTicketRequest) -> Result<TicketRequest, Status> {
    let GetTicketRequest { scheduler: _, operation, within_us, best_effort, keys } = *request;
    let kind = match Operation::try_from(operation) {
        Ok(Operation::Read) => DemandKind::Read,
        Ok(Operation::Write) => DemandKind::Write,
        Err(_) => {
            return Err(Status::invalid_argument(format!(
                "getting a ticket: the operation is {operation}, must be 0 (read) or 1 (write)"
            )));
        }
    };
    if keys > KEYS_MAX {
        return Err(Status::invalid_argument(format!(
            "getting a ticket: the call has {keys} keys, must have at most {KEYS_MAX}; make several calls"
        )));
    }
    // A negative time is refused with the same words as one of zero.
    let within = within_us.map(|us| Duration::from_micros(u64::try_from(us).unwrap_or(0)));
    Ok(TicketRequest { kind, within, best_effort, keys: keys.max(1) })
}

/// Converts a latency. The scheduler counts and ignores the longest one, which stands for a
/// negative one.
fn latency(us: i64) -> Duration {
    u64::try_from(us).map_or(Duration::MAX, Duration::from_micros)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn status(error: TicketError) -> Status {
    let message = error.to_string();
    match error {
        TicketError::Within { .. } => Status::invalid_argument(message),
        TicketError::Full { .. } => Status::resource_exhausted(message),
        TicketError::Unknown { .. } => Status::not_found(message),
        TicketError::Waiting { .. } => Status::failed_precondition(message),
    }
}
