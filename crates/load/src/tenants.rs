//! A scenario of tenants, each with its own connections, user and operations, against one cache.
//!
//! Every tenant has a thread, and a connection for each request that its processes make at the same
//! time, so that no answer waits for another's; or starts operations at the scenario's arrivals.
//! The measurement begins after the warm-up, at the same moment for all tenants.

use std::fmt;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use sherwood_workload::tenants::{Scenario, Tenant};

use crate::cache::{self, Ended, Login, Prepared, Protocol, Workload};
use crate::pace::Schedule;
use crate::{Control, Latencies, LatencySummary, LoadError, Pace, Tls, within};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The target's protocol.
    pub protocol: Protocol,
    /// `host:port`.
    pub address: String,
    /// TLS of every connection; none speaks without.
    pub tls: Option<Tls>,
    /// The user of each tenant, by its place in the scenario; none if it does not log in.
    pub logins: Vec<Option<Login>>,
    /// Length of the intervals whose throughput is reported, above 0.
    pub interval: Duration,
    /// Seed of all tenants' operations and arrivals.
    pub seed: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantsReport {
    /// Name of the scenario.
    pub scenario: String,
    /// Measured time, seconds.
    pub measured_s: f64,
    /// Length of an interval of [`TenantReport::throughput_by_interval`], seconds.
    pub interval_s: f64,
    /// The tenants, in the order of the scenario.
    pub tenants: Vec<TenantReport>,
    /// True if every tenant reached the end.
    pub complete: bool,
    /// The reason why a tenant ended early, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete_because: Option<String>,
}

/// The measured operations of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TenantReport {
    /// Name of the tenant.
    pub name: String,
    /// Operations that ended, failed ones included.
    pub ops: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Operations per second that did not fail.
    pub throughput: f64,
    /// Latency of all operations.
    pub latency_us: LatencySummary,
    /// [`Self::throughput`] of each interval, without what is left after the last whole one.
    pub throughput_by_interval: Vec<f64>,
    /// The answer to the first operation that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

/// Most connections of all tenants together.
const CONNECTIONS_MAX: usize = 16_384;

/// Most intervals of a run.
const INTERVALS_MAX: u128 = 1_000_000;

/// Runs a validated scenario to its end or [`Control::stop`]. Blocks, with a thread for each
/// tenant.
///
/// # Errors
/// If a tenant has loads of several backends, an option is out of its range, or a connection or a
/// login fails. Later failures are counted and named in the report.
pub fn run(options: &Options, scenario: &Scenario, control: &Control) -> Result<TenantsReport, LoadError> {
    let measure = scenario.measure.0;
    let intervals = measure.as_nanos() / options.interval.as_nanos().max(1);
    within("number of intervals", intervals, 1..=INTERVALS_MAX, "1 to 1000000 within the measured time")?;
    let connections = scenario.tenants.iter().map(|tenant| connections_of(tenant).0).sum();
    let accepted = "up to 16384 processes times depth of all tenants";
    within("number of connections", connections, 1..=CONNECTIONS_MAX, accepted)?;
    let mut prepared = Vec::new();
    for number in 0..scenario.tenants.len() {
        prepared.push(prepare(options, scenario, number)?);
    }
    let runs = thread::scope(|scope| {
        let start = |(cache_options, run): (cache::Options, Prepared)| {
            let mut measured = Measured::new(scenario, options.interval);
            scope.spawn(move || {
                let report = run.run(&cache_options, control, &mut |ended| measured.count(ended));
                (report, measured)
            })
        };
        let threads: Vec<_> = prepared.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("a run does not panic")).collect::<Vec<_>>()
    });
    let mut report = TenantsReport {
        scenario: scenario.name.clone(),
        measured_s: measure.as_secs_f64(),
        interval_s: options.interval.as_secs_f64(),
        tenants: Vec::new(),
        complete: true,
        incomplete_because: None,
    };
    for (tenant, (whole, measured)) in scenario.tenants.iter().zip(runs) {
        let whole = whole?;
        report.complete &= whole.complete;
        report.incomplete_because = report.incomplete_because.or(whole.incomplete_because);
        report.tenants.push(measured.report(tenant, whole.first_error));
    }
    Ok(report)
}

/// Returns a tenant's connections, and the operations in flight on each.
fn connections_of(tenant: &Tenant) -> (usize, usize) {
    tenant.clients.map_or((ARRIVAL_CONNECTIONS, ARRIVAL_DEPTH), |clients| {
        (clients.processes as usize * clients.depth as usize, 1)
    })
}

/// Connections of a tenant with arrivals, and operations in flight on each; further ones wait,
/// which counts as latency.
const ARRIVAL_CONNECTIONS: usize = 16;
const ARRIVAL_DEPTH: usize = 64;

fn prepare(
    options: &Options,
    scenario: &Scenario,
    number: usize,
) -> Result<(cache::Options, Prepared), LoadError> {
    let tenant = &scenario.tenants[number];
    let [load] = &tenant.loads[..] else {
        let found = format!("{} of tenant {}", tenant.loads.len(), tenant.name);
        return Err(LoadError::Option { option: "number of loads", found, accepted: "1, or simulate it" });
    };
    let (warm_up, measure) = (scenario.warm_up.0, scenario.measure.0);
    // The seeds of tenants are far apart, since those of a run's streams are near each other.
    let seed = options.seed.wrapping_add((number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let (connections, pipeline) = connections_of(tenant);
    let cache_options = cache::Options {
        protocol: options.protocol,
        address: options.address.clone(),
        pace: Pace::Closed,
        connections,
        pipeline,
        duration: Some(warm_up + measure),
        operations_max: None,
        look_aside: false,
        deadline: None,
        tls: options.tls.clone(),
        login: options.logins.get(number).cloned().flatten(),
        seed,
    };
    let rates: Vec<_> = tenant.arrivals.iter().map(|arrival| (arrival.at.0, arrival.per_s)).collect();
    let schedule = match &rates[..] {
        [] => Schedule::Closed,
        rates => Schedule::changing(&since_start(rates, warm_up), seed),
    };
    let workload = Workload::Tenant {
        number: u16::try_from(number).unwrap_or(u16::MAX),
        load: Box::new(load.clone()),
        warm_up,
        seed,
    };
    let prepared = Prepared::new(&cache_options, schedule, workload)?;
    Ok((cache_options, prepared))
}

/// Rates by the time since the start of the run, from those since the start of the measurement: the
/// first one holds in the warm-up, too.
fn since_start(rates: &[(Duration, f64)], warm_up: Duration) -> Vec<(Duration, f64)> {
    let later = |&(at, rate): &(Duration, f64)| (if at.is_zero() { at } else { at + warm_up }, rate);
    rates.iter().map(later).collect()
}

/// The operations of a tenant that ended while it was measured.
struct Measured {
    warm_up: Duration,
    measure: Duration,
    interval: Duration,
    latencies: Latencies,
    errors: u64,
    /// Operations that did not fail, by interval.
    succeeded: Vec<u64>,
}

impl Measured {
    fn new(scenario: &Scenario, interval: Duration) -> Self {
        let (warm_up, measure) = (scenario.warm_up.0, scenario.measure.0);
        let intervals = measure.as_nanos().div_ceil(interval.as_nanos());
        let succeeded = vec![0; intervals as usize];
        Self { warm_up, measure, interval, latencies: Latencies::default(), errors: 0, succeeded }
    }

    fn count(&mut self, ended: &Ended) {
        let Some(at) = (ended.intended + ended.latency).checked_sub(self.warm_up) else { return };
        if at >= self.measure {
            return;
        }
        self.latencies.record(ended.latency);
        if ended.failed {
            self.errors += 1;
        } else {
            self.succeeded[(at.as_nanos() / self.interval.as_nanos()) as usize] += 1;
        }
    }

    fn report(self, tenant: &Tenant, first_error: Option<String>) -> TenantReport {
        let Self { measure, interval, latencies, errors, succeeded, .. } = self;
        let whole = (measure.as_nanos() / interval.as_nanos()) as usize;
        let per_s = |count: u64, time: Duration| count as f64 / time.as_secs_f64();
        TenantReport {
            name: tenant.name.clone(),
            ops: latencies.count(),
            errors,
            throughput: per_s(succeeded.iter().sum(), measure),
            latency_us: LatencySummary::of(&latencies),
            throughput_by_interval: succeeded[..whole].iter().map(|&count| per_s(count, interval)).collect(),
            first_error,
        }
    }
}

impl fmt::Display for TenantsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, measured_s, interval_s, tenants, .. } = self;
        writeln!(f, "{scenario}, measured for {measured_s} s")?;
        let (least, p99_9) = (format!("least {interval_s} s"), "P99.9 ms");
        writeln!(
            f,
            "{:<12} {:>12} {least:>12} {:>9} {:>9} {p99_9:>9} {:>9}",
            "tenant", "requests/s", "P50 ms", "P99 ms", "errors"
        )?;
        for tenant in tenants {
            let least = tenant.throughput_by_interval.iter().copied().fold(f64::INFINITY, f64::min);
            let LatencySummary { p50, p99, p99_9, .. } = tenant.latency_us;
            writeln!(
                f,
                "{:<12} {:>12.1} {least:>12.1} {:>9.2} {:>9.2} {:>9.2} {:>9}",
                tenant.name,
                tenant.throughput,
                p50 / 1e3,
                p99 / 1e3,
                p99_9 / 1e3,
                tenant.errors
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = r#"
        name = "pair"
        warm_up = "10s"
        measure = "25s"
        backends = [{ name = "db" }]
        [[tenants]]
        name = "a"
        cache = "1MiB"
        clients = { processes = 2, depth = 3 }
        loads = [{ backend = "db", keys = 10 }]
    "#;

    #[test]
    fn operations_that_end_in_the_measured_time_are_counted_by_interval() {
        let scenario = Scenario::from_toml(SCENARIO).unwrap();
        let mut measured = Measured::new(&scenario, Duration::from_secs(10));
        for (intended_s, latency_s, failed) in [
            (9, 0, false),
            (9, 2, false),
            (19, 0, false),
            (20, 0, true),
            (22, 0, false),
            (31, 0, false),
            (34, 2, false),
        ] {
            let [intended, latency] = [intended_s, latency_s].map(Duration::from_secs);
            measured.count(&Ended { intended, latency, hits: 0, misses: 0, failed, rejected: false });
        }
        let report = measured.report(&scenario.tenants[0], None);
        assert_eq!((report.ops, report.errors, report.throughput), (5, 1, 4.0 / 25.0));
        assert_eq!(report.throughput_by_interval, [0.2, 0.1], "5 s are no interval");
    }

    #[test]
    fn rates_of_arrivals_change_after_the_warm_up() {
        let seconds = Duration::from_secs;
        let rates = since_start(&[(seconds(0), 5.0), (seconds(60), 50.0)], seconds(10));
        assert_eq!(rates, [(seconds(0), 5.0), (seconds(70), 50.0)]);
    }
}
