//! `queue = "fifo"`: first come, first served.

use sherwood_model::{Demand, Instant};

use super::{QueueOrder, Rank};

/// Queue order that gives every attempt the same rank, so that the order of arrival decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fifo;

impl QueueOrder for Fifo {
    fn rank(&self, _now: Instant, _demand: &Demand) -> Rank {
        Rank::default()
    }
}
