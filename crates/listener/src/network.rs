//! Rates of tenants' network traffic: a client whose tenant is in debt gets no turn until it is
//! paid.

use std::collections::{BTreeSet, VecDeque};
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

    /// Notes that one more of a tenant's clients waits until its debt is paid, or one fewer.
    fn note_waiting(&self, tenant: TenantId, waits: bool);
}

/// The place of a waiting client among those whose tenants' debts are paid at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(u64);

/// Most clients of a tenant on one thread that wait for its debt although they have finished
/// sending. They may have gone, so the oldest of more is ended.
const FINISHED_MAX: usize = 64;

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
    /// For each slot, clients that had finished sending when they began to wait, the oldest first.
    finished: Vec<VecDeque<Token>>,
}

impl Unpaid {
    /// Creates the state of a thread whose clients have this many slots of tenants.
    pub(super) fn new(network: Arc<dyn Network>, slots: usize) -> Self {
        Self {
            network,
            charged: vec![0; slots],
            waiting: BTreeSet::new(),
            serial: 0,
            finished: vec![VecDeque::new(); slots],
        }
    }

    /// Charges a tenant what its clients of this thread have exchanged since the last charge.
    /// Returns the time at which its debt is paid, if it is in debt then.
    pub(super) fn charge(
        &mut self,
        now: Instant,
        (slot, tenant): (TenantSlot, TenantId),
        counters: &Counters,
    ) -> Option<Instant> {
        let exchanged = counters.exchanged();
        let charged = &mut self.charged[slot.index()];
        let bytes = exchanged.wrapping_sub(std::mem::replace(charged, exchanged));
        self.network.charge(now, tenant, bytes)
    }

    /// Has a tenant's client wait until `until`, at the place that it had, or behind all others.
    pub(super) fn wait(&mut self, (token, tenant): (Token, TenantId), until: Instant, place: Option<Place>) {
        self.network.note_waiting(tenant, true);
        let Place(serial) = place.unwrap_or(Place(self.serial));
        self.serial += u64::from(place.is_none());
        self.waiting.insert((until, serial, token.number()));
    }

    /// Notes that a tenant's client waits no longer, because it may go on or has gone.
    pub(super) fn end_wait(&self, tenant: TenantId) {
        self.network.note_waiting(tenant, false);
    }

    /// Lists a client that has finished sending and waits. Returns the oldest one if these are too
    /// many; it may have ended since.
    pub(super) fn list_finished(&mut self, token: Token, slot: TenantSlot) -> Option<Token> {
        let listed = &mut self.finished[slot.index()];
        listed.push_back(token);
        (listed.len() > FINISHED_MAX).then(|| listed.pop_front()).flatten()
    }

    /// Has one tenant pay bytes that were counted for another.
    pub(super) fn transfer(&mut self, from: TenantSlot, to: TenantSlot, bytes: u64) {
        if from != to {
            let charged = &mut self.charged;
            charged[from.index()] = charged[from.index()].wrapping_add(bytes);
            charged[to.index()] = charged[to.index()].wrapping_sub(bytes);
        }
    }

    /// Returns the time at which a client may be read again; none if none waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.first().map(|(until, ..)| *until)
    }

    /// Removes a client whose time has come, and returns it with its place. Another one of its
    /// tenant may have gone first, so its tenant may be in debt again.
    pub(super) fn next_paid(&mut self, now: Instant) -> Option<(Token, Place)> {
        let first = *self.waiting.first().filter(|(until, ..)| *until <= now)?;
        self.waiting.remove(&first);
        let (_, serial, token) = first;
        Some((Token::from_number(token), Place(serial)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::counters::Count;

    /// Charges made, by tenant.
    #[derive(Default)]
    struct Charges(Mutex<Vec<(u16, u64)>>);

    impl Network for Charges {
        fn charge(&self, _: Instant, tenant: TenantId, bytes: u64) -> Option<Instant> {
            self.0.lock().unwrap().push((tenant.0, bytes));
            None
        }

        fn note_waiting(&self, _: TenantId, _: bool) {}
    }

    fn unpaid() -> (Arc<Charges>, Unpaid) {
        let charges = Arc::new(Charges::default());
        (Arc::clone(&charges), Unpaid::new(charges, 2))
    }

    #[test]
    fn client_without_a_turn_keeps_its_place_before_one_that_had_a_turn() {
        let (_, mut unpaid) = unpaid();
        let [a, b] = [1, 2].map(Token::from_number);
        let at = Instant::from_millis;
        unpaid.wait((a, TenantId(0)), at(1), None);
        unpaid.wait((b, TenantId(0)), at(1), None);
        let next = |unpaid: &mut Unpaid, now| {
            unpaid.next_paid(at(now)).map(|(token, place)| (token.number(), place))
        };
        // The first has a turn, after which the tenant is in debt again.
        let (first, _) = next(&mut unpaid, 1).unwrap();
        unpaid.wait((a, TenantId(0)), at(2), None);
        let (second, place) = next(&mut unpaid, 1).unwrap();
        unpaid.wait((b, TenantId(0)), at(2), Some(place));
        assert_eq!((first, second), (1, 2));
        assert_eq!([next(&mut unpaid, 2), next(&mut unpaid, 2)].map(|found| found.unwrap().0), [2, 1]);
        assert!(next(&mut unpaid, 2).is_none());
    }

    #[test]
    fn tenant_of_a_login_pays_for_the_turn_of_the_login() {
        let (charges, mut unpaid) = unpaid();
        let [nobody, someone] = [Counters::default(), Counters::default()];
        let [slot, other] = [TenantSlot::default(), TenantSlot(1)];
        nobody.add(Count::BytesRead, 70);
        unpaid.transfer(slot, other, 50);
        unpaid.charge(Instant::ZERO, (other, TenantId(7)), &someone);
        unpaid.charge(Instant::ZERO, (slot, TenantId(0)), &nobody);
        assert_eq!(*charges.0.lock().unwrap(), [(7, 50), (0, 20)]);
    }
}
