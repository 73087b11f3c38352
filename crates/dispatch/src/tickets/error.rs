//! The errors of clients of a scheduler.

use std::time::Duration;

use thiserror::Error;

use super::TicketId;

/// The reason why a scheduler refused a call. The client may go to the replica without a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TicketError {
    /// The time until the deadline is out of range: the client's mistake.
    #[error("getting a ticket: the deadline is in {within:?}, must be above 0 and at most 24 hours")]
    Within {
        /// The time until the deadline that was given.
        within: Duration,
    },
    /// As many tickets are held as may be. Asking again later can help.
    #[error(
        "getting a ticket: all {limit} are held, the limit of `tickets_max`; ask again later or raise it"
    )]
    Full {
        /// The largest number of tickets.
        limit: u32,
    },
    /// The ticket has ended, or was given out by another scheduler or an earlier process.
    #[error("ticket {:#018x} is not known: it has ended, or another scheduler gave it out; get a new one", id.to_bits())]
    Unknown {
        /// The id that was given.
        id: TicketId,
    },
    /// The ticket's turn has not come, so that no call can have ended.
    #[error("releasing ticket {:#018x}: its turn has not come; wait for it, or cancel the ticket", id.to_bits())]
    Waiting {
        /// The id that was given.
        id: TicketId,
    },
}
