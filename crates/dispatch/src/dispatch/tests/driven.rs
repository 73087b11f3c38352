//! A dispatcher that is driven through virtual time by replicas of given latencies.

use std::collections::BTreeMap;

use super::*;

pub(super) const REPLICAS: usize = 3;

/// A dispatcher and the calls that its replicas work on. A replica answers a call after the same
/// time, whatever else it works on.
pub(super) struct Driven {
    pub(super) machine: Dispatch<u64, u64, u64>,
    latency_ms: [u64; REPLICAS],
    now_ms: u64,
    /// Replicas of the calls in flight, by the time of the answer.
    calls: BTreeMap<(u64, AttemptId), ReplicaId>,
    fetches: u64,
    /// Calls since the count began, and the most that were in flight at once.
    pub(super) made: [u64; REPLICAS],
    pub(super) together_max: [usize; REPLICAS],
}

impl Driven {
    /// Returns a dispatcher whose replicas all answer after a millisecond.
    pub(super) fn new(options: Options) -> Self {
        Self {
            machine: Dispatch::new(options, REPLICAS, SeededState::new(1)).unwrap(),
            latency_ms: [1; REPLICAS],
            now_ms: 1,
            calls: BTreeMap::new(),
            fetches: 0,
            made: [0; REPLICAS],
            together_max: [0; REPLICAS],
        }
    }

    pub(super) fn set_latencies(&mut self, latency_ms: [u64; REPLICAS]) {
        self.latency_ms = latency_ms;
    }

    /// Begins to count calls.
    pub(super) fn count(&mut self) {
        (self.made, self.together_max) = ([0; REPLICAS], [0; REPLICAS]);
    }

    /// Makes `burst` fetches at once every 10 ms, for so many seconds.
    pub(super) fn run(&mut self, seconds: u64, burst: u64) {
        let end_ms = self.now_ms + 1_000 * seconds;
        while self.now_ms < end_ms {
            for _ in 0..burst {
                self.fetches += 1;
                let asked = [(self.fetches, self.fetches)];
                self.machine.handle_fetch(at(self.now_ms), &Demand::default(), asked, self.fetches);
                self.carry_out(self.now_ms);
            }
            self.now_ms += 10;
            self.answer_until(self.now_ms);
        }
    }

    /// Gives the answers and serves the timeouts that are due.
    fn answer_until(&mut self, end_ms: u64) {
        while let Some((&(ms, attempt), _)) = self.calls.first_key_value()
            && ms <= end_ms
        {
            self.calls.pop_first();
            self.machine.handle_reply(at(ms), attempt, Reply::Ok(vec![None]));
            self.carry_out(ms);
        }
        self.machine.handle_timeout(at(end_ms));
        self.carry_out(end_ms);
    }

    fn carry_out(&mut self, ms: u64) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Call { attempt, replica, .. } => {
                    let index = replica.index();
                    self.calls.insert((ms + self.latency_ms[index], attempt), replica);
                    self.made[index] += 1;
                    let together = self.calls.values().filter(|at| **at == replica).count();
                    self.together_max[index] = self.together_max[index].max(together);
                }
                Action::Cancel { attempt, .. } => self.calls.retain(|(_, id), _| *id != attempt),
                Action::Deliver { .. } | Action::Probe { .. } => {}
            }
        }
    }
}
