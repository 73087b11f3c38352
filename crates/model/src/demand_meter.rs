//! Core demand of a request, and the time for which a token is held, from arrivals and departures.

use std::time::Duration;

use crate::Instant;

/// Measures one server from the times at which requests arrive at it and depart: the baseline
/// estimator of Pérez, Casale and Pacheco-Sanchez, "Estimating computational requirements in
/// multi-threaded applications" (2015), section 5.1 of sPARE.
///
/// With n requests in service a server of V cores is assumed to work on min(n, V) of them at a
/// time, so that each interval has min(n, V) times its length of core time. The estimator is the
/// sum of that over the departures; it is exact for a server that shares its cores among all
/// requests, whatever its speed. Time that a request waits for another tier counts as work.
///
/// A meter of connections, which hold a token each, measures the time that a token is held. O(1)
/// time for each event, 64 bytes.
#[derive(Clone, Debug)]
pub struct DemandMeter {
    cores: u32,
    in_service: u32,
    /// The time up to which `counts` are complete.
    counted: Instant,
    counts: CoreCounts,
}

/// Counts of one or more servers since their start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreCounts {
    /// Core time that was in use, ns.
    busy_ns: u128,
    /// Sum of the requests in service over time, ns.
    held_ns: u128,
    departures: u64,
}

impl DemandMeter {
    /// Returns a meter of an idle server with this number of cores.
    #[must_use]
    pub fn new(cores: u32, now: Instant) -> Self {
        Self { cores, in_service: 0, counted: now, counts: CoreCounts::default() }
    }

    /// Counts a request that arrives.
    pub fn handle_arrival(&mut self, now: Instant) {
        self.advance(now);
        self.in_service = self.in_service.saturating_add(1);
    }

    /// Counts a request that departs: answered, failed or cancelled. Without a request in service
    /// it has no effect.
    pub fn handle_departure(&mut self, now: Instant) {
        self.advance(now);
        if self.in_service > 0 {
            self.in_service -= 1;
            self.counts.departures += 1;
        }
    }

    /// Number of requests in service.
    #[must_use]
    pub fn in_service(&self) -> u32 {
        self.in_service
    }

    /// Returns the counts up to `now`.
    pub fn counts(&mut self, now: Instant) -> CoreCounts {
        self.advance(now);
        self.counts
    }

    fn advance(&mut self, now: Instant) {
        let passed = now.since(self.counted).as_nanos();
        self.counted = self.counted.max(now);
        self.counts.busy_ns += passed * u128::from(self.in_service.min(self.cores));
        self.counts.held_ns += passed * u128::from(self.in_service);
    }
}

impl CoreCounts {
    /// Returns the counts of two servers together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            busy_ns: self.busy_ns + other.busy_ns,
            held_ns: self.held_ns + other.held_ns,
            departures: self.departures + other.departures,
        }
    }

    /// Returns what was counted since `earlier`; zero where a server has started anew.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            held_ns: self.held_ns.saturating_sub(earlier.held_ns),
            departures: self.departures.saturating_sub(earlier.departures),
        }
    }

    /// Number of requests that departed.
    #[must_use]
    pub fn departures(&self) -> u64 {
        self.departures
    }

    /// The core time of a request (T), zero if none departed.
    #[must_use]
    pub fn demand(&self) -> Duration {
        self.each(self.busy_ns)
    }

    /// The time from arrival to departure (of a connection, the time that it holds its token: TK),
    /// zero if none departed.
    #[must_use]
    pub fn held(&self) -> Duration {
        self.each(self.held_ns)
    }

    fn each(&self, sum_ns: u128) -> Duration {
        let mean = sum_ns.checked_div(self.departures.into()).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn core_time_is_shared_among_the_requests_in_service_up_to_the_cores() {
        let mut meter = DemandMeter::new(2, at(0));
        // In service: 1 until 10 ms, 3 until 40 ms, 2 until 60 ms, 0 until 100 ms.
        meter.handle_arrival(at(0));
        meter.handle_arrival(at(10));
        meter.handle_arrival(at(10));
        meter.handle_departure(at(40));
        meter.handle_departure(at(60));
        meter.handle_departure(at(60));
        let counts = meter.counts(at(100));
        assert_eq!((counts.departures(), counts.demand()), (3, (10 + 60 + 40) * MS / 3));
        assert_eq!(counts.held(), (10 + 90 + 40) * MS / 3);
    }

    #[test]
    fn window_counts_what_happened_since_its_start_in_both_servers() {
        let [mut one, mut other] = [1, 1].map(|cores| DemandMeter::new(cores, at(0)));
        one.handle_arrival(at(0));
        let before = one.counts(at(10)).plus(&other.counts(at(10)));
        assert_eq!((before.demand(), before.held()), (Duration::ZERO, Duration::ZERO), "none departed");
        one.handle_departure(at(30));
        other.handle_arrival(at(20));
        other.handle_departure(at(60));
        let counts = one.counts(at(60)).plus(&other.counts(at(60)));
        assert_eq!(counts.since(&before).demand(), 30 * MS);
        assert_eq!(before.since(&counts), CoreCounts::default(), "a server that has started anew");
    }

    #[test]
    fn departure_from_an_idle_server_and_a_clock_set_back_count_nothing() {
        let mut meter = DemandMeter::new(1, at(50));
        meter.handle_departure(at(60));
        assert_eq!(meter.counts(at(60)), CoreCounts::default());
        meter.handle_arrival(at(60));
        meter.handle_departure(at(0));
        assert_eq!(meter.counts(at(60)).demand(), Duration::ZERO);
        assert_eq!(meter.counts(at(60)).departures(), 1);
    }

    /// Returns the departures (ns) of a server that shares its cores equally among the requests in
    /// service, by integration in small steps.
    fn shared(cores: u32, mut jobs: Vec<(u64, f64)>) -> Vec<(u64, bool)> {
        const STEP: u64 = 1_000;
        let mut events: Vec<_> = jobs.iter().map(|&(arrival, _)| (arrival, true)).collect();
        let mut now = 0;
        while !jobs.is_empty() {
            let served = jobs.iter().filter(|(arrival, _)| *arrival <= now).count();
            let rate = (f64::from(cores) / served.max(1) as f64).min(1.0);
            now += STEP;
            for (_, work) in jobs.iter_mut().filter(|(arrival, _)| *arrival < now) {
                *work -= rate * STEP as f64;
            }
            let before = jobs.len();
            jobs.retain(|(_, work)| *work > 0.0);
            events.extend(std::iter::repeat_n((now, false), before - jobs.len()));
        }
        events.sort_by_key(|&(at, arrives)| (at, arrives));
        events
    }

    proptest! {
        #[test]
        fn demand_of_a_server_that_shares_its_cores_is_the_mean_work(
            cores in 1_u32..4,
            jobs in proptest::collection::vec((0_u64..500, 10_u32..100), 1..20),
        ) {
            let jobs: Vec<_> = jobs.into_iter().map(|(at, work)| (at * 1_000, f64::from(work) * 1e3)).collect();
            let mean = jobs.iter().map(|(_, work)| work).sum::<f64>() / jobs.len() as f64;
            let mut meter = DemandMeter::new(cores, Instant::ZERO);
            for (at, arrives) in shared(cores, jobs) {
                let now = Instant::from_nanos(at);
                if arrives { meter.handle_arrival(now) } else { meter.handle_departure(now) }
            }
            let measured = meter.counts(Instant::from_nanos(1 << 30)).demand().as_nanos() as f64;
            // Each departure is late by a step of the integration at most.
            prop_assert!((measured - mean).abs() <= 2_000.0, "{measured} of {mean}");
        }
    }
}
