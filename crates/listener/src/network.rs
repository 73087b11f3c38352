//! Rates of tenants' network traffic: a client whose tenant is in debt gets no turn until it is
//! paid.

use std::collections::BTreeSet;
use std::sync::Arc;

use sherwood_model::{Instant, TenantId};

use super::counters::Counters;
use super::slots::Token;
use super::tenants::TenantSlot;

/// Rates of the bytes that tenants exchange with their clients.
pub trait Network: Send + Sync {
    /// Charges a tenant so many bytes, 0 to charge none. Returns the time before which its clients
    /// are not to be read; none if they may be at once.
    fn charge(&self, now: Instant, tenant: TenantId, bytes: u64) -> Option<Instant>;
}

/// Clients of one thread whose tenants' traffic is not paid for yet; each once.
pub(super) struct Unpaid {
    network: Arc<dyn Network>,
    /// Bytes of each tenant's clients that were charged.
    charged: Vec<u64>,
    /// Clients by the time at which their tenant's debt is paid, then in the order in which they
    /// came.
    waiting: BTreeSet<(Instant, u64, u64)>,
    /// Serial number of the next client that waits.
    serial: u64,
}

impl Unpaid {
    /// Creates the state of a thread whose clients have this many slots of tenants.
    pub(super) fn new(network: Arc<dyn Network>, slots: usize) -> Self {
        Self { network, charged: vec![0; slots], waiting: BTreeSet::new(), serial: 0 }
    }

    /// Charges a tenant what its clients of this thread have exchanged since the last charge. Has
    /// the client wait, and returns true, if the tenant is in debt then.
    pub(super) fn charge(
        &mut self,
        now: Instant,
        token: Token,
        (slot, tenant): (TenantSlot, TenantId),
        counters: &Counters,
    ) -> bool {
        let exchanged = counters.exchanged();
        let charged = &mut self.charged[slot.index()];
        let bytes = exchanged.wrapping_sub(std::mem::replace(charged, exchanged));
        let Some(until) = self.network.charge(now, tenant, bytes) else { return false };
        self.waiting.insert((until, self.serial, token.number()));
        self.serial += 1;
        true
    }

    /// Returns the time at which a client may be read again; none if none waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.first().map(|(until, ..)| *until)
    }

    /// Removes and returns a client whose time has come. Another one of its tenant may have gone
    /// first, so its tenant may be in debt again.
    pub(super) fn next_paid(&mut self, now: Instant) -> Option<Token> {
        let first = *self.waiting.first().filter(|(until, ..)| *until <= now)?;
        self.waiting.remove(&first);
        Some(Token::from_number(first.2))
    }
}
