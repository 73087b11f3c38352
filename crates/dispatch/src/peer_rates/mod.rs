//! Rates of tenants in a cluster: loans of idle units between nodes.
//!
//! ```text
//!   Lending     units lent to others: missing here until the lender's end
//!   Borrowing   units borrowed from others: used here until the borrower's end
//! ```

#![allow(dead_code, reason = "the state machine that lends and borrows is still missing")]

mod borrowing;
mod lending;
mod messages;
mod steps;
mod terms;

pub use messages::{PeerAction, PeerLoan, RateAmount, RateAsk, RateGrant, RatePart};
