//! The calls of one client connection, over the slots that it has leased.

use sherwood_model::ReplicaId;
use smallvec::SmallVec;

use crate::LeaseId;

/// The slots of a client connection, one a replica, and the call that is under way.
///
/// sPARE, section 4: a connection takes the tokens of several servers and keeps them until it
/// closes. Each of its calls goes to all of these servers, as far as they are free: a server that
/// still works for an earlier call of the connection gets this one afterwards, unless it has been
/// answered by then. The connection asks for one call at a time, and the first answer counts.
///
/// Every input takes time linear in the slots.
///
/// ```
/// use sherwood_dispatch::{Dispatch, Leased, LeaseAction, LeasedEnd, Options};
/// use sherwood_model::{Demand, Instant, ReplicaId, SeededState};
/// use std::time::Duration;
///
/// let mut dispatch = Dispatch::<u8, u8, u8>::new(Options::default(), 2, SeededState::new(7))?;
/// let mut connection = Leased::default();
/// let now = Instant::ZERO;
/// for _ in 0..2 {
///     dispatch.lease(now, &Demand::default(), Duration::from_secs(9), 0).unwrap();
///     let Some(LeaseAction::Grant { lease, replica, .. }) = dispatch.poll_lease() else { panic!() };
///     assert_eq!(connection.grant(lease, replica), None);
/// }
/// let calls = connection.ask('a');
/// assert_eq!(calls.len(), 2);
/// let (first, other) = (calls[0].lease, calls[1].lease);
/// assert_eq!(connection.end(first, true), (LeasedEnd::Answered('a'), None));
/// // The other server still works for `a`.
/// assert_eq!(connection.ask('b').len(), 1);
/// assert_eq!(connection.end(other, true).1.map(|call| call.call), Some('b'));
/// # Ok::<(), sherwood_dispatch::OptionsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Leased<C> {
    slots: SmallVec<[Slot<C>; 2]>,
    /// The call that has no answer yet.
    open: Option<C>,
}

/// A leased slot, which serves one call at a time.
#[derive(Clone, Copy, Debug)]
struct Slot<C> {
    lease: LeaseId,
    replica: ReplicaId,
    serves: Option<C>,
    /// True if the open call has failed here.
    has_failed: bool,
}

/// A call to be made over a leased slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedCall<C> {
    /// The lease of the slot.
    pub lease: LeaseId,
    /// The replica of the slot.
    pub replica: ReplicaId,
    /// The call, as it was [asked](Leased::ask) for.
    pub call: C,
}

/// The meaning of the end of a call over one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeasedEnd<C> {
    /// It is the answer of this call.
    Answered(C),
    /// The call has failed at every slot.
    Failed(C),
    /// The call was answered before, or goes on at other slots.
    Needless,
}

impl<C> Default for Leased<C> {
    fn default() -> Self {
        Self { slots: SmallVec::new(), open: None }
    }
}

impl<C: Copy + Eq> Leased<C> {
    /// Adds a slot, and returns the open call if there is one, which goes there as well.
    pub fn grant(&mut self, lease: LeaseId, replica: ReplicaId) -> Option<LeasedCall<C>> {
        self.slots.push(Slot { lease, replica, serves: None, has_failed: false });
        let open = self.open?;
        self.slots.last_mut()?.start(open)
    }

    /// Opens a call in place of the one before, and returns where it starts now.
    pub fn ask(&mut self, call: C) -> SmallVec<[LeasedCall<C>; 2]> {
        self.open = Some(call);
        self.slots.iter_mut().for_each(|slot| slot.has_failed = false);
        self.slots.iter_mut().filter_map(|slot| slot.start(call)).collect()
    }

    /// Takes in that the call over a slot has ended, with an answer or without. Returns what that
    /// means, and the open call if it starts there next.
    pub fn end(&mut self, lease: LeaseId, is_answer: bool) -> (LeasedEnd<C>, Option<LeasedCall<C>>) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.lease == lease) else {
            return (LeasedEnd::Needless, None);
        };
        let ended = slot.serves.take();
        let Some(open) = self.open else { return (LeasedEnd::Needless, None) };
        if ended != Some(open) {
            return (LeasedEnd::Needless, slot.start(open));
        }
        slot.has_failed = !is_answer;
        if is_answer {
            self.open = None;
            return (LeasedEnd::Answered(open), None);
        }
        (self.failed(), None)
    }

    /// Removes a slot whose lease has ended. A call that is under way there is not waited for; the
    /// open call has failed if it has at all slots that are left.
    pub fn remove(&mut self, lease: LeaseId) -> LeasedEnd<C> {
        self.slots.retain(|slot| slot.lease != lease);
        self.failed()
    }

    /// Returns the end of the open call if it has failed at every slot.
    fn failed(&mut self) -> LeasedEnd<C> {
        let has_failed = self.slots.iter().all(|slot| slot.has_failed);
        let failed = self.open.take_if(|_| has_failed);
        failed.map_or(LeasedEnd::Needless, LeasedEnd::Failed)
    }

    /// Returns the leases of all slots, which the client ends when the connection closes.
    pub fn leases(&self) -> impl Iterator<Item = LeaseId> {
        self.slots.iter().map(|slot| slot.lease)
    }
}

impl<C: Copy + Eq> Slot<C> {
    /// Starts the open call if the slot is free.
    fn start(&mut self, call: C) -> Option<LeasedCall<C>> {
        if self.serves.is_some() || self.has_failed {
            return None;
        }
        self.serves = Some(call);
        Some(LeasedCall { lease: self.lease, replica: self.replica, call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    /// Returns a connection with slots of `count` replicas, and their leases.
    fn connection(count: u16) -> (Leased<char>, Vec<LeaseId>) {
        let (mut connection, mut ids) = (Leased::default(), Slab::new());
        let leases: Vec<_> = (0..count).map(|replica| LeaseId(ids.insert(replica))).collect();
        for (lease, replica) in leases.iter().zip(0..) {
            assert_eq!(connection.grant(*lease, ReplicaId(replica)), None);
        }
        (connection, leases)
    }

    #[test]
    fn slot_that_works_for_an_earlier_call_gets_the_open_one_afterwards() {
        let (mut connection, leases) = connection(2);
        assert_eq!(connection.ask('a').len(), 2);
        assert_eq!(connection.end(leases[0], true), (LeasedEnd::Answered('a'), None));
        assert_eq!(connection.ask('b').len(), 1);
        let (end, next) = connection.end(leases[1], true);
        assert_eq!(
            (end, next.map(|call| (call.lease, call.call))),
            (LeasedEnd::Needless, Some((leases[1], 'b')))
        );
        assert_eq!(connection.end(leases[1], true), (LeasedEnd::Answered('b'), None));
        assert_eq!(connection.end(leases[0], true), (LeasedEnd::Needless, None));
    }

    #[test]
    fn call_that_waits_for_a_slot_starts_with_the_first_one() {
        let mut connection = Leased::default();
        assert!(connection.ask('a').is_empty());
        let lease = LeaseId(Slab::new().insert(0));
        let call = connection.grant(lease, ReplicaId(3)).unwrap();
        assert_eq!((call.replica, call.call), (ReplicaId(3), 'a'));
        assert_eq!(connection.leases().collect::<Vec<_>>(), [lease]);
    }

    #[test]
    fn call_fails_when_it_has_failed_at_every_slot() {
        let (mut connection, leases) = connection(2);
        connection.ask('a');
        assert_eq!(connection.end(leases[0], false), (LeasedEnd::Needless, None));
        assert_eq!(connection.end(leases[1], false), (LeasedEnd::Failed('a'), None));
        assert_eq!(connection.ask('b').len(), 2, "the slots are used again");
        assert_eq!(connection.end(leases[0], false), (LeasedEnd::Needless, None));
        assert_eq!(connection.remove(leases[1]), LeasedEnd::Failed('b'), "no other slot is left");
        assert_eq!(connection.leases().collect::<Vec<_>>(), [leases[0]]);
    }
}
