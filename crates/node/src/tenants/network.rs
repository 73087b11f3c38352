//! The rates of tenants' network traffic, common to listeners, gateway and backends.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sherwood_config::{HTTP_CONNECTIONS_MAX, TenancySetup};
use sherwood_dispatch::{
    Charged as _, DebtOptions, DebtPlace, DebtQueues, DebtWork, RatesInForce, TenantGate, TenantRefusal,
    TenantUse,
};
use sherwood_model::{Instant, Legs, ResourceKind, TenantId};
use sherwood_process::clock::Clock;

use tokio::sync::{Notify, oneshot};

/// The rates of tenants' network traffic.
pub(crate) struct TenantNetwork {
    gate: Arc<TenantGate>,
    /// The gateway requests that wait.
    requests: Mutex<Requests>,
    /// Wakes the task that starts waiting requests, because the time of the next start has become
    /// earlier.
    earlier: Notify,
    /// The traffic that is counted.
    legs: Legs,
    clock: Clock,
}

/// The gateway requests that wait until the debts of their tenants are paid.
struct Requests {
    /// The waiting requests, each represented by the channel that tells it to start.
    waiting: DebtQueues<oneshot::Sender<()>>,
    /// True while a task runs that starts waiting requests. The task ends when no request waits.
    are_watched: bool,
}

impl TenantNetwork {
    /// Creates unlimited rates for the declared tenants; none without a network resource.
    pub(crate) fn new(tenancy: &TenancySetup, clock: Clock) -> Option<Self> {
        tenancy.resources.iter().find(|resource| resource.kind == ResourceKind::Network)?;
        // A configuration has at most 1,024 tenants.
        let tenants = tenancy.tenants.len() as u16;
        let gate = Arc::new(TenantGate::new(tenants, tenancy.options.lend));
        let options = DebtOptions { waiting_max: Some((WAITING_MAX, tenants)), over: tenancy.options.over };
        Some(Self::with_gate(gate, options, tenancy.legs(), clock))
    }

    fn with_gate(gate: Arc<TenantGate>, options: DebtOptions, legs: Legs, clock: Clock) -> Self {
        let requests = Requests { waiting: DebtQueues::new(gate.clone(), options), are_watched: false };
        Self { gate, requests: Mutex::new(requests), earlier: Notify::new(), legs, clock }
    }

    /// Returns the gate with the tenants' rates, which listeners charge for their clients.
    pub(crate) fn gate(&self) -> Arc<TenantGate> {
        Arc::clone(&self.gate)
    }

    /// Sets the bytes per second of all tenants together, and of each tenant by its id.
    pub(crate) fn set_rates(&self, total_per_s: f64, per_s: &[f64]) {
        self.gate.set_rates(self.clock.now(), total_per_s, per_s);
    }

    /// Sets rates with loans of other nodes, which end by themselves.
    pub(crate) fn set_rates_in_force(&self, rates: &RatesInForce) {
        self.gate.set_rates_in_force(self.clock.now(), rates);
    }

    /// Charges a tenant for the bytes of an answer of the gateway.
    pub(crate) fn charge_answer(&self, tenant: TenantId, bytes: usize) {
        self.gate.charge(self.clock.now(), tenant, bytes as f64);
    }

    /// Charges bytes between the node and a backend, if they are counted.
    pub(crate) fn charge_backend(&self, now: Instant, tenant: TenantId, bytes: usize) {
        if self.legs == Legs::Both {
            self.gate.charge(now, tenant, bytes as f64);
        }
    }

    /// Waits until a tenant's debt is paid and its earlier requests have started, and charges the
    /// `bytes` of the request.
    ///
    /// # Errors
    /// If the request would start later than `latest`, or may not wait.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        tenant: TenantId,
        bytes: usize,
        latest: Instant,
    ) -> Result<(), TenantRefusal> {
        let Some(mut place) = self.enter(tenant, bytes, latest)? else { return Ok(()) };
        let left = latest - self.clock.now();
        match tokio::time::timeout(left, &mut place.start).await {
            Ok(_) => Ok(()),
            Err(_) => place.refuse().map_or(Ok(()), Err),
        }
    }

    /// Queues a request behind the earlier ones of its tenant, and returns its place; none if it
    /// may start at once.
    fn enter(
        self: &Arc<Self>,
        tenant: TenantId,
        bytes: usize,
        latest: Instant,
    ) -> Result<Option<Place<'_>>, TenantRefusal> {
        let mut requests = self.requests();
        let before = requests.waiting.next_timeout();
        let (sender, start) = oneshot::channel();
        let work = DebtWork { units: bytes as f64, latest };
        let Some(place) = requests.waiting.enter(self.clock.now(), tenant, work, || sender)? else {
            return Ok(None);
        };
        if !requests.are_watched {
            requests.are_watched = true;
            tokio::spawn(Arc::clone(self).watch());
        } else if before.is_none() || requests.waiting.next_timeout() < before {
            // The task may sleep until the time of requests that have gone, so that none waited.
            self.earlier.notify_one();
        }
        Ok(Some(Place { network: self, place, start }))
    }

    /// Starts requests as soon as their tenants' debts are paid, until no request waits.
    async fn watch(self: Arc<Self>) {
        while let Some(wait) = self.start_paid() {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    /// Starts the requests whose tenants' debts are paid by now. Returns the time until the next
    /// check; none if no request waits. The task then ends, and the next request that waits spawns
    /// a new one.
    fn start_paid(&self) -> Option<Duration> {
        let mut requests = self.requests();
        let now = self.clock.now();
        while let Some((_, start)) = requests.waiting.start_next(now) {
            // A request that has gone has given up its place.
            let _ = start.send(());
        }
        let due = requests.waiting.next_timeout();
        requests.are_watched = due.is_some();
        due.map(|due| (due - now).max(LOOK_MIN))
    }

    /// Returns a tenant's use, and the numbers of its waiting and refused work items.
    pub(crate) fn used(&self, tenant: TenantId) -> TenantUse {
        self.gate.used(tenant)
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().expect("no panics while held")
    }
}

/// The place of a gateway request in the queue. Dropping it withdraws the request, as when its
/// client disconnects.
struct Place<'a> {
    network: &'a TenantNetwork,
    place: DebtPlace,
    start: oneshot::Receiver<()>,
}

impl Place<'_> {
    /// Refuses the request, which must not wait longer; returns none if it has started.
    fn refuse(&self) -> Option<TenantRefusal> {
        self.network.requests().waiting.refuse(self.network.clock.now(), self.place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.network.requests().waiting.give_up(self.place);
    }
}

/// Maximum number of gateway requests that wait. The remaining HTTP connections are left to tenants
/// without debts, and to administrators.
const WAITING_MAX: u32 = HTTP_CONNECTIONS_MAX as u32 / 2;

/// Minimum time between two checks of the waiting requests.
const LOOK_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use futures_util::FutureExt;
    use sherwood_dispatch::OverRate;

    use super::*;

    const TENANT: TenantId = TenantId(0);
    /// The tenant's rate, bytes per second.
    const RATE: f64 = 1_000.0;

    /// Returns a network with one tenant, and the clock that the test advances.
    fn network(over: OverRate) -> (&'static AtomicU64, Arc<TenantNetwork>) {
        let nanos: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(5_000_000_000)));
        let options = DebtOptions { waiting_max: Some((4, 1)), over };
        let gate = Arc::new(TenantGate::new(1, false));
        let network = TenantNetwork::with_gate(gate, options, Legs::Client, Clock::driven(nanos));
        network.set_rates(RATE, &[RATE]);
        nanos.fetch_add(1_000_000_000, Relaxed);
        (nanos, Arc::new(network))
    }

    fn pass(nanos: &AtomicU64, time: Duration) {
        nanos.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    #[tokio::test]
    async fn requests_start_in_order_of_arrival_each_after_the_debt_of_the_one_before_is_paid() {
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
        // The request that came first begins.
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
    async fn request_of_a_disconnected_client_leaves_the_queue_and_is_charged_nothing() {
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
    async fn new_request_after_a_cancelled_one_wakes_the_task_that_starts_waiting_requests() {
        let (nanos, network) = network(OverRate::Wait);
        let _ = network.admit(TENANT, 210, Instant::NEVER).now_or_never();
        let gone = network.enter(TENANT, 1, Instant::NEVER).unwrap().expect("the tenant is in debt");
        pass(nanos, Duration::from_millis(190));
        drop(gone);
        assert!(network.requests().are_watched && network.requests().waiting.is_empty());
        assert_eq!(network.earlier.notified().now_or_never(), None);
        let next = network.enter(TENANT, 1, Instant::NEVER).unwrap();
        assert!(next.is_some(), "10 ms of the debt are left");
        assert_eq!(network.earlier.notified().now_or_never(), Some(()));
    }

    #[tokio::test]
    async fn request_that_may_not_wait_long_enough_is_refused_with_the_time_to_retry() {
        let refused = |millis| Some(Err(TenantRefusal::TooLate { starts_in: Duration::from_millis(millis) }));
        for (over, latest) in
            [(OverRate::Refuse, Instant::NEVER), (OverRate::Wait, Instant::from_millis(6_400))]
        {
            let (nanos, network) = network(over);
            let _ = network.admit(TENANT, 510, Instant::NEVER).now_or_never();
            assert_eq!(network.admit(TENANT, 1, latest).now_or_never(), refused(500));
            assert_eq!((network.used(TENANT).refused, network.used(TENANT).waiting), (1, 0));
            pass(nanos, Duration::from_secs(1));
            assert_eq!(network.admit(TENANT, 1, Instant::NEVER).now_or_never(), Some(Ok(())));
        }
        // Those before it take longer than its debt.
        let (_, network) = network(OverRate::Wait);
        let _ = network.admit(TENANT, 510, Instant::NEVER).now_or_never();
        let mut before = Box::pin(network.admit(TENANT, 5_000, Instant::NEVER));
        assert_eq!(before.as_mut().now_or_never(), None);
        let late = network.admit(TENANT, 1, Instant::from_millis(6_600));
        assert_eq!(late.now_or_never(), refused(5_500));
    }

    #[tokio::test]
    async fn waiting_request_delayed_by_a_lowered_rate_is_refused_at_its_latest_start_time() {
        let (nanos, network) = network(OverRate::Wait);
        let _ = network.admit(TENANT, 20, Instant::NEVER).now_or_never();
        let mut waits = Box::pin(network.admit(TENANT, 1, Instant::from_millis(6_020)));
        assert_eq!(waits.as_mut().now_or_never(), None);
        network.set_rates(1.0, &[1.0]);
        pass(nanos, Duration::from_millis(20));
        let refused = waits.await;
        assert!(matches!(refused, Err(TenantRefusal::TooLate { .. })), "{refused:?}");
        assert_eq!((network.used(TENANT).refused, network.used(TENANT).waiting), (1, 0));
    }

    #[tokio::test]
    async fn request_is_refused_when_too_many_requests_wait() {
        let (_, network) = network(OverRate::Wait);
        let _ = network.admit(TENANT, 510, Instant::NEVER).now_or_never();
        let mut waiting: Vec<_> =
            (0..4).map(|_| Box::pin(network.admit(TENANT, 1, Instant::NEVER))).collect();
        assert!(waiting.iter_mut().all(|one| one.as_mut().now_or_never().is_none()));
        let beyond = network.admit(TENANT, 1, Instant::NEVER).now_or_never();
        assert!(matches!(beyond, Some(Err(TenantRefusal::Full { limit: 4, .. }))), "{beyond:?}");
    }

    #[tokio::test]
    async fn one_task_starts_all_waiting_requests_and_ends_when_none_is_left() {
        let (nanos, network) = network(OverRate::Wait);
        let _ = network.admit(TENANT, 510, Instant::NEVER).now_or_never();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let network = Arc::clone(&network);
                tokio::spawn(async move { network.admit(TENANT, 1, Instant::NEVER).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(network.requests().are_watched);
        pass(nanos, Duration::from_secs(1));
        for one in waiting {
            assert_eq!(one.await.unwrap(), Ok(()));
        }
        assert!(!network.requests().are_watched);
    }
}
