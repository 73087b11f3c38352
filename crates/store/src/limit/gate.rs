//! All limits of one store, checked together before a call starts.

use std::time::Duration;

use sherwood_model::{Instant, TokenBucket};

use super::{Limit, Limits};

/// Time for which a rate of operations that was not used up may be caught up later: enough to
/// compensate for a thread that wakes late, too little for a noticeable burst.
const OPS_BURST: Duration = Duration::from_millis(10);
/// Unused processor time that may be used later: one time slice of the system's scheduler.
const CPU_BURST: Duration = Duration::from_millis(10);

/// Decides by the store's limits when the call at the head of its queue may start. Each
/// [`begin`](Self::begin) is followed by an [`end`](Self::end).
#[derive(Debug)]
pub(crate) struct Gate {
    limits: Limits,
    running: u32,
    ops: TokenBucket,
    cpu: TokenBucket,
}

/// The time at which the next queued call of a store may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The call may start now.
    Now,
    /// The call may not start before this time; check again then.
    At(Instant),
    /// The call may start once a running call has ended.
    AfterACall,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            limits: Limits::default(),
            running: 0,
            ops: TokenBucket::unlimited(OPS_BURST),
            cpu: TokenBucket::unlimited(CPU_BURST),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes one limit of the store; the value has been validated.
    pub(crate) fn set(&mut self, now: Instant, limit: Limit) {
        match limit {
            Limit::Slots(slots) => self.limits.slots = slots,
            Limit::OpsPerS(ops_per_s) => {
                self.limits.ops_per_s = ops_per_s;
                self.ops.set_rate(now, ops_per_s);
            }
            Limit::CpuRatio(cpu_ratio) => {
                self.limits.cpu_ratio = cpu_ratio;
                self.cpu.set_rate(now, cpu_ratio);
            }
        }
    }

    /// The time at which the next queued call may start under the store's limits.
    pub(crate) fn admission(&self, now: Instant) -> Admission {
        if self.limits.slots.is_some_and(|slots| self.running >= slots) {
            return Admission::AfterACall;
        }
        let ready_at = self.ops.ready_at().max(self.cpu.ready_at());
        if ready_at <= now { Admission::Now } else { Admission::At(ready_at) }
    }

    /// Counts the start of a call of `ops` operations against the store's limits.
    pub(crate) fn begin(&mut self, now: Instant, ops: usize) {
        self.running += 1;
        self.ops.charge(now, ops as f64);
    }

    /// Counts the end of a call, which frees its slot.
    pub(crate) fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// Charges processor time used by threads of the store to its processor limit.
    pub(crate) fn charge_cpu(&mut self, now: Instant, cpu: Duration) {
        self.cpu.charge(now, cpu.as_secs_f64());
    }

    /// The time at which a running call may use the processor again after the store's processor
    /// limit paused it; now or in the past means at once.
    pub(crate) fn cpu_ready_at(&self) -> Instant {
        self.cpu.ready_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_secs(1);

    #[test]
    fn slots_bound_running_calls_and_a_smaller_number_takes_effect_as_calls_end() {
        let mut gate = Gate::new();
        gate.set(NOW, Limit::Slots(Some(2)));
        gate.begin(NOW, 1);
        assert_eq!(gate.admission(NOW), Admission::Now);
        gate.begin(NOW, 1);
        assert_eq!(gate.admission(NOW), Admission::AfterACall);

        gate.set(NOW, Limit::Slots(Some(1)));
        gate.end();
        assert_eq!(gate.admission(NOW), Admission::AfterACall, "one still runs, one is allowed");
        gate.end();
        assert_eq!(gate.admission(NOW), Admission::Now);
    }

    #[test]
    fn call_waits_until_the_operations_per_second_allow_the_calls_before_it() {
        let mut gate = Gate::new();
        gate.set(NOW, Limit::OpsPerS(Some(100.0)));
        gate.begin(NOW, 50);
        assert_eq!(gate.admission(NOW), Admission::At(NOW + Duration::from_millis(500)));
        assert_eq!(gate.admission(NOW + Duration::from_millis(500)), Admission::Now);
        gate.set(NOW, Limit::OpsPerS(None));
        assert_eq!(gate.admission(NOW), Admission::Now);
    }

    #[test]
    fn admitted_processor_time_per_second_is_the_configured_ratio() {
        let mut gate = Gate::new();
        gate.set(NOW, Limit::CpuRatio(Some(0.25)));
        let (mut now, slice) = (NOW, Duration::from_millis(1));
        let mut used = Duration::ZERO;
        while now < NOW + Duration::from_secs(10) {
            // A slice of work takes the same time on the wall clock as on the processor; then the
            // thread is parked.
            now += slice;
            used += slice;
            gate.charge_cpu(now, slice);
            now = now.max(gate.cpu_ready_at());
        }
        let ratio = used.as_secs_f64() / 10.0;
        assert!((0.249..0.252).contains(&ratio), "{ratio}");
    }
}
