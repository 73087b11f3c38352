//! The requests of a run, without simulating it.

use sherwood_model::{BackendId, Instant};

use crate::partitions::Partitions;
use crate::setup::{Setup, SetupError};
use crate::traffic::{Arrived, Traffic};

/// A request of a run, with its arrival time and server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledRequest {
    /// Arrival time of the request.
    pub at: Instant,
    /// Number of the application server that the request is sent to, from 0.
    pub server: usize,
    /// Backends and objects that are read, in order.
    pub queries: Vec<(BackendId, Vec<u64>)>,
}

impl Setup {
    /// Returns the requests of a run of this setup in order of arrival, which are the same for
    /// every policy; without an end unless they come from a trace. They serve to send the same
    /// requests to another system.
    ///
    /// ```
    /// use sherwood_sim::Setup;
    /// let setup = Setup::new("none", "robinhood", 1);
    /// let first: Vec<_> = setup.requests()?.take(2).collect();
    /// assert!(first[0].at < first[1].at && first[0].server < 4);
    /// # Ok::<(), sherwood_sim::SetupError>(())
    /// ```
    ///
    /// # Errors
    /// If the setup names something that does not exist, or a number in it is out of range.
    pub fn requests(&self) -> Result<impl Iterator<Item = ScheduledRequest> + use<>, SetupError> {
        self.validate()?;
        let servers = self.knobs.servers.unwrap_or(self.profile()?.app_servers);
        let partitions = Partitions::new(1, self.model.backends().len());
        let mut traffic = Traffic::new(self, partitions, servers)?;
        Ok(std::iter::from_fn(move || {
            let at = traffic.next_arrival().ok()?;
            let Arrived { server, queries, .. } = traffic.next_request();
            let queries = queries
                .into_iter()
                .map(|query| (query.backend, query.keys.into_iter().map(|key| key.object()).collect()));
            Some(ScheduledRequest { at, server, queries: queries.collect() })
        }))
    }
}
