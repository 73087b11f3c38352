//! Measurements of a backend for a replicator: its calls in a measuring window.

use std::time::Duration;

use sherwood_model::{CoreCounts, DemandMeter, Instant, LatencySketch, ReplicaId, TierWindow};

/// Measures the calls of a backend since the start of a window. O(1) time for each event.
#[derive(Clone, Debug)]
pub(crate) struct TierMeter {
    cores: u32,
    since: Instant,
    servers: Vec<DemandMeter>,
    /// The slots of all servers, which hold calls or leases.
    slots: DemandMeter,
    /// Counts of all servers, and of the slots, at the start of the window.
    before: [CoreCounts; 2],
    arrivals: u64,
    connections: u64,
    latencies: LatencySketch,
    sum: Duration,
}

impl TierMeter {
    /// Returns a meter of idle servers of so many cores each.
    pub(crate) fn new(cores: u32, servers: usize) -> Self {
        Self {
            cores,
            since: Instant::ZERO,
            servers: vec![DemandMeter::new(cores, Instant::ZERO); servers],
            slots: DemandMeter::new(cores, Instant::ZERO),
            before: Default::default(),
            arrivals: 0,
            connections: 0,
            latencies: LatencySketch::default(),
            sum: Duration::ZERO,
        }
    }

    /// Counts a fetch that makes its first attempt. With tokens its calls hold some.
    pub(crate) fn note_fetch(&mut self, has_tokens: bool) {
        self.arrivals += 1;
        self.connections += u64::from(has_tokens);
    }

    /// Counts a connection of a client, which asks for slots.
    pub(crate) fn note_connection(&mut self) {
        self.connections += 1;
    }

    /// Counts a call that a client asks for over its connection.
    pub(crate) fn note_leased_call(&mut self) {
        self.arrivals += 1;
    }

    /// Notes that a slot of a replica is taken by a call, or by a lease, over which calls may
    /// follow.
    pub(crate) fn note_slot_taken(&mut self, now: Instant, replica: ReplicaId, is_call: bool) {
        self.slots.handle_arrival(now);
        if is_call {
            self.note_start(now, replica);
        }
    }

    /// Notes that a call or a lease gives its slot back.
    pub(crate) fn note_slot_freed(&mut self, now: Instant, replica: ReplicaId, is_call: bool) {
        self.slots.handle_departure(now);
        if is_call {
            self.note_end(now, replica);
        }
    }

    /// Notes that a replica begins a call.
    pub(crate) fn note_start(&mut self, now: Instant, replica: ReplicaId) {
        self.servers[replica.index()].handle_arrival(now);
    }

    /// Notes that a call of a replica has ended.
    pub(crate) fn note_end(&mut self, now: Instant, replica: ReplicaId) {
        self.servers[replica.index()].handle_departure(now);
    }

    /// Counts a fetch that was answered after this time.
    pub(crate) fn note_answer(&mut self, latency: Duration) {
        self.latencies.record(latency);
        self.sum += latency;
    }

    /// Returns what was measured since `since`, and begins a window there if that is not the start
    /// of the present one.
    pub(crate) fn window(&mut self, now: Instant, since: Instant, tokens: u32) -> TierWindow {
        let counts = self.servers.iter_mut().map(|server| server.counts(now));
        let counts =
            [counts.fold(CoreCounts::default(), |sum, counts| sum.plus(&counts)), self.slots.counts(now)];
        if since != self.since {
            (self.since, self.before) = (since, counts);
            (self.arrivals, self.connections, self.sum) = (0, 0, Duration::ZERO);
            self.latencies.clear();
        }
        let requests = self.latencies.count();
        let quantile = |quantile| self.latencies.quantile(quantile).unwrap_or_default();
        let [calls, slots] = [0, 1].map(|index| counts[index].since(&self.before[index]));
        TierWindow {
            servers: self.servers.len() as u32,
            cores: self.cores,
            tokens,
            length: now - since,
            arrivals: self.arrivals,
            connections: self.connections,
            demand: calls.demand(),
            held: slots.held(),
            requests,
            mean: self.sum.checked_div(u32::try_from(requests).unwrap_or(u32::MAX)).unwrap_or_default(),
            p95: quantile(0.95),
            p99: quantile(0.99),
        }
    }
}

#[cfg(test)]
impl TierMeter {
    /// True if no call, and no lease, is counted as in service.
    pub(crate) fn is_idle(&self) -> bool {
        self.servers.iter().chain([&self.slots]).all(|server| server.in_service() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_counts_calls_and_latencies_since_its_start() {
        let at = Instant::from_millis;
        let mut meter = TierMeter::new(2, 2);
        let empty = meter.window(at(1_000), at(1_000), 4);
        assert_eq!((empty.arrivals, empty.requests, empty.demand), (0, 0, Duration::ZERO));
        let replicas = [0, 1, 1].map(ReplicaId);
        for replica in replicas {
            meter.note_fetch(false);
            meter.note_slot_taken(at(1_000), replica, false);
            meter.note_start(at(1_000), replica);
        }
        for replica in replicas {
            meter.note_slot_freed(at(1_040), replica, false);
            meter.note_end(at(1_030), replica);
            meter.note_answer(Duration::from_millis(30));
        }
        meter.note_connection();
        let window = meter.window(at(2_000), at(1_000), 4);
        assert_eq!((window.servers, window.cores, window.tokens), (2, 2, 4));
        assert_eq!((window.arrivals, window.connections, window.requests), (3, 1, 3));
        assert_eq!(window.length, Duration::from_secs(1));
        assert_eq!((window.demand, window.mean), (Duration::from_millis(30), Duration::from_millis(30)));
        assert_eq!(window.held, Duration::from_millis(40));
        assert!(window.p99 >= window.p95 && window.p95.as_millis() >= 29);
        assert_eq!(meter.window(at(2_000), at(2_000), 4).arrivals, 0, "a new window");
    }
}
