//! The reads of an open loop without a simulation, to be sent to another system.

use std::time::Duration;

use sherwood_model::Instant;
use sherwood_workload::ReadTimes;

use super::clients::{Clients, Drawn};
use super::key::Key;
use super::setup::{Setup, SetupError};
use super::world::LOOK_UP;

/// A read as it reaches the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledRead {
    /// The time at which it reaches the cache.
    pub at: Instant,
    /// The record's key.
    pub key: String,
    /// Time left until its deadline when it reaches the cache.
    pub within: Duration,
    /// Time that a server needs for it.
    pub time: Duration,
}

impl Setup {
    /// Returns the unending reads of the first stream of an open loop; a closed loop has none.
    ///
    /// # Errors
    /// If the policy does not exist or a number is out of range.
    pub fn reads(&self) -> Result<impl Iterator<Item = ScheduledRead>, SetupError> {
        self.validate()?;
        let (mut clients, times) = (Clients::new(self)?, ReadTimes { scale: self.knobs.scale });
        let mut sent = Instant::ZERO;
        let next = move || {
            sent += clients.next_gap(0, sent)?;
            let Drawn { tenant, record, within, draw, .. } = clients.next_request(0);
            let key = Key::new(tenant.0, record, 0, draw);
            Some(ScheduledRead {
                at: sent + LOOK_UP,
                key: String::from_utf8_lossy(key.as_ref()).into_owned(),
                within: within.saturating_sub(LOOK_UP),
                time: times.of(draw),
            })
        };
        Ok(std::iter::from_fn(next))
    }
}
