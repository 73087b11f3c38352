//! The rates of tenants' network traffic, common to listeners, gateway and backends.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sherwood_config::TenancySetup;
use sherwood_dispatch::{DebtPlace, DebtQueues, OverRate, TenantGate, TenantUse};
use sherwood_listener::Network;
use sherwood_model::{Instant, Legs, ResourceKind, TenantId};
use sherwood_process::clock::Clock;

use tokio::sync::oneshot;

/// The rates of tenants' network traffic.
pub(crate) struct TenantNetwork {
    /// The requests to the gateway that wait. Its lock comes before that of the gate.
    waiting: Mutex<DebtQueues<Waiting>>,
    gate: Mutex<TenantGate>,
    /// Counts of what waits and was refused, of each tenant.
    held: Vec<Held>,
    /// The traffic that is counted.
    legs: Legs,
    over: OverRate,
    clock: Clock,
}

/// A request to the gateway that waits.
struct Waiting {
    /// Bytes that it is charged at its start.
    bytes: u64,
    start: oneshot::Sender<()>,
}

/// A tenant's clients that wait until its debt is paid, and the requests to the gateway that were
/// refused instead.
#[derive(Debug, Default)]
struct Held {
    waiting: AtomicU32,
    refused: AtomicU64,
}

impl TenantNetwork {
    /// Creates the gate of the declared tenants, without limits; none without a resource of this
    /// kind.
    pub(crate) fn new(tenancy: &TenancySetup, clock: Clock) -> Option<Self> {
        tenancy.resources.iter().find(|resource| resource.kind == ResourceKind::Network)?;
        // A configuration has at most 1,024 tenants.
        let gate = TenantGate::new(tenancy.tenants.len() as u16, tenancy.options.lend);
        let (legs, over) = (tenancy.legs(), tenancy.options.over);
        let held = tenancy.tenants.iter().map(|_| Held::default()).collect();
        Some(Self { waiting: Mutex::default(), gate: Mutex::new(gate), held, legs, over, clock })
    }

    /// Sets the bytes per second of all tenants together, and of each tenant by its id.
    pub(crate) fn set_rates(&self, total_per_s: f64, per_s: &[f64]) {
        self.gate().set_rates(self.clock.now(), total_per_s, per_s);
    }

    /// Charges bytes between the node and a backend, if they are counted.
    pub(crate) fn charge_backend(&self, now: Instant, tenant: TenantId, bytes: usize) {
        if self.legs == Legs::Both {
            self.charge(now, tenant, bytes as u64);
        }
    }

    /// Waits until a tenant's debt is paid and those of its requests that came before have begun,
    /// and charges the `bytes` of the request.
    ///
    /// # Errors
    /// If that is later than `latest`, or nothing may wait: the time until the debt is paid.
    pub(crate) async fn admit(&self, tenant: TenantId, bytes: u64, latest: Instant) -> Result<(), Duration> {
        let Some(mut place) = self.enter(tenant, bytes, latest)? else { return Ok(()) };
        loop {
            let now = self.clock.now();
            if place.start.try_recv().is_ok() {
                return Ok(());
            }
            if now >= latest {
                return Err(self.refuse(now, tenant));
            }
            tokio::select! {
                biased;
                _ = &mut place.start => return Ok(()),
                () = tokio::time::sleep(self.next_look(now).min(latest) - now) => self.start_paid(),
            }
        }
    }

    /// Has a request wait behind those of its tenant; none if it may begin at once, which charges
    /// it.
    fn enter(&self, tenant: TenantId, bytes: u64, latest: Instant) -> Result<Option<Place<'_>>, Duration> {
        let mut waiting = self.waiting();
        let now = self.clock.now();
        let paid_at = self.charge(now, tenant, 0);
        let is_late = paid_at.is_some_and(|paid_at| self.over == OverRate::Refuse || paid_at > latest);
        if is_late {
            return Err(self.refuse(now, tenant));
        }
        let (sender, start) = oneshot::channel();
        let Some(place) = waiting.hold(now, tenant, paid_at, || Waiting { bytes, start: sender }) else {
            self.charge(now, tenant, bytes);
            return Ok(None);
        };
        self.note_waiting(tenant, true);
        Ok(Some(Place { network: self, place, start }))
    }

    /// Counts a refusal, and returns the time until the tenant's debt is paid.
    fn refuse(&self, now: Instant, tenant: TenantId) -> Duration {
        self.held.get(tenant.index()).inspect(|held| _ = held.refused.fetch_add(1, Relaxed));
        self.charge(now, tenant, 0).map_or(Duration::ZERO, |paid_at| paid_at - now)
    }

    /// Begins what waits and is paid for, in its order. Each that begins is charged before the next
    /// one is looked at.
    fn start_paid(&self) {
        let mut waiting = self.waiting();
        let now = self.clock.now();
        let paid_at = |tenant| self.charge(now, tenant, 0);
        while let Some((tenant, Waiting { bytes, start })) = waiting.start_next(now, paid_at) {
            self.note_waiting(tenant, false);
            self.charge(now, tenant, bytes);
            // Its place is taken back under this lock if it has gone.
            let _ = start.send(());
        }
    }

    /// The time at which something that waits may begin, or a debt is looked at again.
    fn next_look(&self, now: Instant) -> Instant {
        self.waiting().next_timeout().unwrap_or(now).max(now + LOOK_MIN)
    }

    /// Returns what a tenant has used, its clients that wait, and its refused requests.
    pub(crate) fn used(&self, tenant: TenantId) -> TenantUse {
        let used = self.gate().used(tenant);
        let Some(held) = self.held.get(tenant.index()) else { return used };
        TenantUse { waiting: held.waiting.load(Relaxed), refused: held.refused.load(Relaxed), ..used }
    }

    fn waiting(&self) -> MutexGuard<'_, DebtQueues<Waiting>> {
        self.waiting.lock().expect("no panics while held")
    }

    fn gate(&self) -> MutexGuard<'_, TenantGate> {
        self.gate.lock().expect("no panics while held")
    }
}

impl Network for TenantNetwork {
    fn charge(&self, now: Instant, tenant: TenantId, bytes: u64) -> Option<Instant> {
        self.gate().charge(now, tenant, bytes as f64)
    }

    fn note_waiting(&self, tenant: TenantId, waits: bool) {
        let Some(Held { waiting, .. }) = self.held.get(tenant.index()) else { return };
        if waits {
            waiting.fetch_add(1, Relaxed)
        } else {
            waiting.fetch_sub(1, Relaxed)
        };
    }
}

/// The place of a request to the gateway, given up when it is dropped: its client may disconnect.
struct Place<'a> {
    network: &'a TenantNetwork,
    place: DebtPlace,
    start: oneshot::Receiver<()>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.network.waiting().cancel(self.place).is_some() {
            self.network.note_waiting(self.place.tenant(), false);
        }
    }
}

/// Least time between two looks at what waits: all that wait look when something is due.
const LOOK_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use futures_util::FutureExt;

    use super::*;

    const TENANT: TenantId = TenantId(0);
    /// Bytes a second.
    const RATE: f64 = 1_000.0;

    /// A network of one tenant, whose clock the test moves.
    fn network(over: OverRate) -> (&'static AtomicU64, TenantNetwork) {
        let nanos: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(5_000_000_000)));
        let network = TenantNetwork {
            waiting: Mutex::default(),
            gate: Mutex::new(TenantGate::new(1, false)),
            held: vec![Held::default()],
            legs: Legs::Client,
            over,
            clock: Clock::driven(nanos),
        };
        network.set_rates(RATE, &[RATE]);
        nanos.fetch_add(1_000_000_000, Relaxed);
        (nanos, network)
    }

    fn pass(nanos: &AtomicU64, time: Duration) {
        nanos.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    #[tokio::test]
    async fn requests_begin_in_the_order_of_their_arrival_and_each_pays_before_the_next() {
        let (nanos, network) = network(OverRate::Wait);
        assert_eq!(
            network.admit(TENANT, 510, Instant::NEVER).now_or_never(),
            Some(Ok(())),
            "nothing is owed"
        );
        let mut first = Box::pin(network.admit(TENANT, 500, Instant::NEVER));
        let mut second = Box::pin(network.admit(TENANT, 100, Instant::NEVER));
        assert_eq!((first.as_mut().now_or_never(), second.as_mut().now_or_never()), (None, None));
        assert_eq!(network.used(TENANT).waiting, 2);
        pass(nanos, Duration::from_millis(500));
        // Whoever looks begins the one that came first.
        network.start_paid();
        assert_eq!(second.as_mut().now_or_never(), None, "the first has left a debt");
        assert_eq!(first.as_mut().now_or_never(), Some(Ok(())));
        assert_eq!(network.used(TENANT).waiting, 1);
        pass(nanos, Duration::from_millis(500));
        network.start_paid();
        assert_eq!(second.as_mut().now_or_never(), Some(Ok(())));
        assert_eq!(network.used(TENANT).own_units, 1_110.0);
    }

    #[tokio::test]
    async fn request_whose_client_has_gone_leaves_its_place_and_pays_nothing() {
        let (nanos, network) = network(OverRate::Wait);
        let _ = network.admit(TENANT, 510, Instant::NEVER).now_or_never();
        let mut gone = Box::pin(network.admit(TENANT, 5_000, Instant::NEVER));
        let mut next = Box::pin(network.admit(TENANT, 1, Instant::NEVER));
        assert_eq!((gone.as_mut().now_or_never(), next.as_mut().now_or_never()), (None, None));
        drop(gone);
        assert_eq!(network.used(TENANT).waiting, 1);
        pass(nanos, Duration::from_millis(500));
        network.start_paid();
        assert_eq!(next.as_mut().now_or_never(), Some(Ok(())));
        assert_eq!(network.used(TENANT).own_units, 511.0);
    }

    #[tokio::test]
    async fn request_that_may_not_wait_so_long_is_refused_with_the_time_to_try_again() {
        let debt = Some(Err(Duration::from_millis(500)));
        for (over, latest) in
            [(OverRate::Refuse, Instant::NEVER), (OverRate::Wait, Instant::from_millis(6_400))]
        {
            let (nanos, network) = network(over);
            let _ = network.admit(TENANT, 510, Instant::NEVER).now_or_never();
            assert_eq!(network.admit(TENANT, 1, latest).now_or_never(), debt);
            assert_eq!((network.used(TENANT).refused, network.used(TENANT).waiting), (1, 0));
            pass(nanos, Duration::from_secs(1));
            assert_eq!(network.admit(TENANT, 1, Instant::NEVER).now_or_never(), Some(Ok(())));
        }
        // Those before it take longer than its debt.
        let (nanos, network) = network(OverRate::Wait);
        let _ = network.admit(TENANT, 510, Instant::NEVER).now_or_never();
        let mut before = Box::pin(network.admit(TENANT, 5_000, Instant::NEVER));
        let mut late = Box::pin(network.admit(TENANT, 1, Instant::from_millis(6_600)));
        assert_eq!((before.as_mut().now_or_never(), late.as_mut().now_or_never()), (None, None));
        pass(nanos, Duration::from_millis(600));
        network.start_paid();
        let refused = tokio::time::timeout(Duration::from_secs(60), late).await.unwrap();
        assert_eq!(refused, Err(Duration::from_millis(4_990)));
    }
}
