//! The requests of open loops without a simulation, to be sent to another system.

use sherwood_model::{Instant, TenantId};
use sherwood_workload::Operation;

use super::clients::Clients;
use super::setup::{Setup, SetupError};

/// A request of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRequest {
    /// The time at which it is sent.
    pub at: Instant,
    /// The tenant that sends it.
    pub tenant: TenantId,
    /// The keys that it reads, as ranks of popularity, at most one for each of the tenant's loads.
    pub keys: Vec<u64>,
}

impl Setup {
    /// Returns the unending requests of all open loops in order of time. Closed loops, and the keys
    /// that a request writes, are left out.
    ///
    /// # Errors
    /// If the policy does not exist or a number is out of range.
    pub fn requests(&self) -> Result<impl Iterator<Item = TenantRequest>, SetupError> {
        let (scenario, _) = self.validate()?;
        let mut clients = Clients::new(&scenario, self.seed);
        let count = clients.len();
        let first = |client| Some(Instant::ZERO + clients.next_gap(client, Instant::ZERO)?);
        let mut due: Vec<Option<Instant>> = (0..count).map(first).collect();
        let next = move || {
            let open = due.iter().enumerate().filter_map(|(client, due)| Some(((*due)?, client)));
            let (at, client) = open.min()?;
            let number = client as u32;
            due[client] = clients.next_gap(number, at).map(|gap| at + gap);
            let get = |operation| match operation {
                Operation::Get(rank) => Some(rank),
                Operation::Set(_) => None,
            };
            let keys = clients.next_request(number, at).filter_map(get).collect();
            Some(TenantRequest { at, tenant: clients.tenant(number), keys })
        };
        Ok(std::iter::from_fn(next))
    }
}
