//! Rates of tenants' network traffic: a client whose tenant is in debt gets no turn until it is
//! paid.

use std::collections::VecDeque;
use std::sync::Arc;

use sherwood_dispatch::{Charged, DebtOptions, DebtPlace, DebtQueues, DebtWork};
use sherwood_model::{Instant, TenantId};

use super::counters::Counters;
use super::slots::Token;
use super::tenants::TenantSlot;

/// Most clients of a tenant on one thread that wait for its debt although they have finished
/// sending. They may have gone, so the oldest of more is ended.
const FINISHED_MAX: usize = 64;

/// Clients of one thread whose tenants' traffic is not paid for yet; each once.
pub(super) struct Unpaid {
    /// Bytes of each tenant's clients that were charged.
    charged: Vec<u64>,
    waiting: DebtQueues<Token>,
    /// For each slot, clients that had finished sending when they began to wait, the oldest first.
    finished: Vec<VecDeque<Token>>,
}

impl Unpaid {
    /// Creates the state of a thread whose clients have this many slots of tenants.
    pub(super) fn new(network: Arc<dyn Charged>, slots: usize) -> Self {
        let finished = vec![VecDeque::new(); slots];
        // As many wait as are connected, at most.
        let waiting = DebtQueues::new(network, DebtOptions::default());
        Self { charged: vec![0; slots], waiting, finished }
    }

    /// Charges a tenant what its clients of this thread have exchanged since the last charge.
    pub(super) fn charge(
        &mut self,
        now: Instant,
        (slot, tenant): (TenantSlot, TenantId),
        counters: &Counters,
    ) {
        let exchanged = counters.exchanged();
        let charged = &mut self.charged[slot.index()];
        let bytes = exchanged.wrapping_sub(std::mem::replace(charged, exchanged));
        self.waiting.charge(now, tenant, bytes as f64);
    }

    /// Has a client wait for its turn, behind all of its tenant's that wait, if the tenant is in
    /// debt or others wait. Returns its place; none if it may have its turn.
    pub(super) fn hold(
        &mut self,
        now: Instant,
        token: Token,
        (slot, tenant): (TenantSlot, TenantId),
        counters: &Counters,
    ) -> Option<DebtPlace> {
        self.charge(now, (slot, tenant), counters);
        let turn = DebtWork { units: 0.0, latest: Instant::NEVER };
        self.waiting.enter(now, tenant, turn, || token).ok().flatten()
    }

    /// Ends the wait of a client that has gone.
    pub(super) fn cancel(&mut self, place: DebtPlace) {
        self.waiting.give_up(place);
    }

    /// Ends the wait of all clients.
    pub(super) fn cancel_all(&mut self) {
        self.waiting.give_up_all();
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

    /// Returns the time at which a client may have a turn, or a debt is looked at again; none if
    /// none waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.next_timeout()
    }

    /// Returns the number of clients that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the next client whose tenant's debt is paid, which has to have its turn and to be
    /// charged for it before the next call.
    pub(super) fn next_paid(&mut self, now: Instant) -> Option<Token> {
        self.waiting.start_next(now).map(|(_, token)| token)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use sherwood_dispatch::LOOK_AGAIN;

    use super::*;
    use crate::counters::Count;

    /// Charges made, by tenant.
    #[derive(Default)]
    struct Charges(Mutex<Vec<(u16, u64)>>);

    impl Charged for Charges {
        fn charge(&self, _: Instant, tenant: TenantId, bytes: f64) -> Option<Instant> {
            self.0.lock().unwrap().push((tenant.0, bytes as u64));
            None
        }

        fn expected_start(&self, now: Instant, _: TenantId, _: f64, _: f64) -> Instant {
            now
        }

        fn is_shared(&self, _: Instant, _: TenantId) -> bool {
            false
        }

        fn note_waiting(&self, _: TenantId, _: bool) {}

        fn note_refused(&self, _: TenantId) {}
    }

    fn unpaid() -> (Arc<Charges>, Unpaid) {
        let charges = Arc::new(Charges::default());
        (Arc::clone(&charges), Unpaid::new(charges, 2))
    }

    /// A tenant whose debt takes a day.
    struct Indebted;

    impl Charged for Indebted {
        fn charge(&self, now: Instant, _: TenantId, _: f64) -> Option<Instant> {
            Some(now + Duration::from_secs(86_400))
        }

        fn expected_start(&self, now: Instant, _: TenantId, _: f64, _: f64) -> Instant {
            now
        }

        fn is_shared(&self, _: Instant, _: TenantId) -> bool {
            false
        }

        fn note_waiting(&self, _: TenantId, _: bool) {}

        fn note_refused(&self, _: TenantId) {}
    }

    #[test]
    fn long_debt_is_looked_at_again_since_the_rate_may_rise() {
        let mut unpaid = Unpaid::new(Arc::new(Indebted), 1);
        let (now, counters) = (Instant::from_secs(9), Counters::default());
        let of = (TenantSlot::default(), TenantId(0));
        assert!(unpaid.hold(now, Token::from_number(7), of, &counters).is_some());
        assert_eq!(unpaid.due(), Some(now + LOOK_AGAIN));
        let later = now + LOOK_AGAIN;
        assert!(unpaid.next_paid(later).is_none(), "it is not paid");
        assert_eq!(unpaid.due(), Some(later + LOOK_AGAIN));
    }

    #[test]
    fn tenant_of_a_login_pays_for_the_turn_of_the_login() {
        let (charges, mut unpaid) = unpaid();
        let [before_login, after_login] = [Counters::default(), Counters::default()];
        let [slot, other] = [TenantSlot::default(), TenantSlot(1)];
        before_login.add(Count::BytesRead, 70);
        unpaid.transfer(slot, other, 50);
        unpaid.charge(Instant::ZERO, (other, TenantId(7)), &after_login);
        unpaid.charge(Instant::ZERO, (slot, TenantId(0)), &before_login);
        assert_eq!(*charges.0.lock().unwrap(), [(7, 50), (0, 20)]);
    }
}
