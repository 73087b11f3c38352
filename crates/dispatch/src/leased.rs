//! The calls of one client connection, over the slots that it has leased.

use std::time::Duration;

use sherwood_model::{Instant, ReplicaId};
use smallvec::SmallVec;

use crate::LeaseId;

/// The slots of a client connection, one a replica, and the call that is open.
///
/// A slot serves one call at a time. The connection asks for one call at a time, which goes to all
/// free slots, and the first answer counts. A slot that still works for an earlier call gets the
/// open one afterwards. Every input takes time linear in the slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leased {
    slots: SmallVec<[Slot; 2]>,
    /// The call that has no answer yet, and the time at which it was asked for.
    open: Option<(u64, Instant)>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    lease: LeaseId,
    replica: ReplicaId,
    /// The call that is served, and the time of its start.
    serves: Option<(u64, Instant)>,
    /// True if the open call has failed here.
    has_failed: bool,
}

/// A call that starts at a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotCall {
    pub(crate) lease: LeaseId,
    pub(crate) replica: ReplicaId,
    pub(crate) call: u64,
}

/// The end of a call at a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotEnd {
    pub(crate) replica: ReplicaId,
    /// The time that the slot worked for it.
    pub(crate) took: Duration,
    /// The time since the open call was asked for, if this is its answer.
    pub(crate) latency: Option<Duration>,
    /// The open call, if it starts at this slot now.
    pub(crate) next: Option<SlotCall>,
}

impl Leased {
    /// Adds a slot, and returns the open call if there is one, which goes there as well.
    pub(crate) fn grant(&mut self, now: Instant, lease: LeaseId, replica: ReplicaId) -> Option<SlotCall> {
        self.slots.push(Slot { lease, replica, serves: None, has_failed: false });
        let (open, _) = self.open?;
        self.slots.last_mut()?.start(now, open)
    }

    /// Opens a call in place of the one before, and returns where it starts now.
    pub(crate) fn ask(&mut self, now: Instant, call: u64) -> SmallVec<[SlotCall; 2]> {
        self.open = Some((call, now));
        self.slots.iter_mut().for_each(|slot| slot.has_failed = false);
        self.slots.iter_mut().filter_map(|slot| slot.start(now, call)).collect()
    }

    /// Takes in that the call at a slot has ended, with an answer or without; none if there was
    /// none.
    pub(crate) fn end(&mut self, now: Instant, lease: LeaseId, is_answer: bool) -> Option<SlotEnd> {
        let slot = self.slots.iter_mut().find(|slot| slot.lease == lease)?;
        let (ended, since) = slot.serves.take()?;
        let mut end = SlotEnd { replica: slot.replica, took: now - since, latency: None, next: None };
        match self.open {
            Some((open, asked_at)) if open == ended => {
                slot.has_failed = !is_answer;
                if is_answer {
                    self.open = None;
                    end.latency = Some(now - asked_at);
                }
            }
            Some((open, _)) => end.next = slot.start(now, open),
            None => {}
        }
        Some(end)
    }

    /// Removes the slot of a lease that has ended. Returns its replica and the start of the call
    /// that it serves, if any.
    pub(crate) fn remove(&mut self, lease: LeaseId) -> Option<(ReplicaId, Instant)> {
        let place = self.slots.iter().position(|slot| slot.lease == lease)?;
        let slot = self.slots.remove(place);
        slot.serves.map(|(_, since)| (slot.replica, since))
    }

    /// Ends the open call if it has failed at every one of `slots`, the number of slots that the
    /// connection has or waits for, and returns it.
    pub(crate) fn take_failed(&mut self, slots: usize) -> Option<u64> {
        let failed = self.slots.iter().filter(|slot| slot.has_failed).count();
        self.open.take_if(|_| failed == slots).map(|(call, _)| call)
    }
}

impl Slot {
    /// Starts the open call if the slot is free.
    fn start(&mut self, now: Instant, call: u64) -> Option<SlotCall> {
        if self.serves.is_some() || self.has_failed {
            return None;
        }
        self.serves = Some((call, now));
        Some(SlotCall { lease: self.lease, replica: self.replica, call })
    }
}
