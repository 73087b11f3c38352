//! What a run is asked, without running it.

use sherwood_model::{BackendId, Instant};

use crate::partitions::Partitions;
use crate::setup::{Setup, SetupError};
use crate::traffic::{Arrived, Traffic};

/// One request of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// When it arrives.
    pub at: Instant,
    /// Number of the application server it is sent to, from 0.
    pub server: usize,
    /// Who is asked for which objects, in order.
    pub queries: Vec<(BackendId, Vec<u64>)>,
}

impl Setup {
    /// The requests that a run of this setup meets, whatever the policy, in the order of their
    /// arrival, without an end but a trace's: for who wants to ask somebody else the same.
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
    /// When the setup names what there is not, or a number in it is out of range.
    pub fn requests(&self) -> Result<impl Iterator<Item = Met> + use<>, SetupError> {
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
            Some(Met { at, server, queries: queries.collect() })
        }))
    }
}
