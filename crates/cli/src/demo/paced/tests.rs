use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use sherwood_store::{ComputeOptions, Fault, StoreOptions, open};
use sherwood_workload::onerf::Model;

use super::workers::Workers;
use super::*;

const PROFILE: &str = "demo";

/// The second backend of the workload, which has one worker, in front of a small product. `stretch`
/// multiplies its service times, which are below a millisecond.
fn paced(stretch: f64, timer: &Timer) -> Paced {
    paced_share(stretch, LoadShare::WHOLE, timer)
}

fn paced_share(stretch: f64, share: LoadShare, timer: &Timer) -> Paced {
    let model = Model::onerf();
    let mut backend = model.backends()[1].clone();
    backend.service.base_ms *= stretch;
    backend.service.per_item_ms *= stretch;
    assert_eq!(backend.service.workers[PROFILE], 1);
    let inner = open("b02", &StoreOptions::Compute(ComputeOptions { n: 2, ..Default::default() })).unwrap();
    Paced::new(inner, &backend, PacedOptions { profile: PROFILE, share, seed: 1 }, timer)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

fn keys(count: u64) -> Vec<Bytes> {
    (0..count).map(crate::demo::catalogue::key).collect()
}

/// Polls a future once, which puts it into the queue if it is pending.
fn begin<T>(future: std::pin::Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn answer_comes_from_the_inner_store_after_the_service_time() {
    let timer = Timer::start().unwrap();
    let paced = paced(10.0, &timer);
    let expected = runtime().block_on(paced.inner.get_many(keys(3))).unwrap();
    // The same seed draws the same service time; a call may take longer but not shorter.
    let service_time = self::paced(10.0, &timer).server.service_time(3);
    let began = Instant::now();
    assert_eq!(runtime().block_on(paced.get_many(keys(3))).unwrap(), expected);
    assert!(began.elapsed() >= service_time);
}

#[test]
fn cancelled_call_keeps_its_worker_for_the_service_time() {
    let timer = Timer::start().unwrap();
    // With service times of hours, only the first call gets the worker.
    let paced = paced(1e8, &timer);
    {
        let mut first = pin!(paced.get_many(keys(1)));
        assert!(begin(first.as_mut()).is_pending());
        let mut second = pin!(paced.get_many(keys(1)));
        assert!(begin(second.as_mut()).is_pending());
        assert_eq!(paced.waiting(), 1);
    }
    assert_eq!(paced.waiting(), 0, "the second gave up while it waited");
    let mut third = pin!(paced.get_many(keys(1)));
    assert!(begin(third.as_mut()).is_pending());
    assert_eq!(paced.waiting(), 1, "the first gave up and still has the worker");
}

#[test]
fn call_above_the_waiting_limit_is_refused() {
    let timer = Timer::start().unwrap();
    let paced = paced(1e8, &timer);
    let mut calls: Vec<_> = (0..=WAITING_CALLS_MAX).map(|_| paced.get_many(keys(1))).collect();
    assert!(calls.iter_mut().all(|call| begin(call.as_mut()).is_pending()));
    let refused = runtime().block_on(paced.get_many(keys(1))).unwrap_err();
    assert_eq!(refused.fault(), Fault::Overloaded, "{refused}");
    assert_eq!(paced.waiting(), WAITING_CALLS_MAX);
}

#[test]
fn call_of_a_share_of_the_load_occupies_workers_for_the_rest() {
    let timer = Timer::start().unwrap();
    let quarter = LoadShare::WHOLE.smaller().and_then(LoadShare::smaller).unwrap();
    let paced = paced_share(1e8, quarter, &timer);
    paced.stand_in(true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let waiting = async {
        while paced.waiting() < 3 {
            tokio::task::yield_now().await;
        }
    };
    runtime.block_on(async {
        tokio::select! {
            answer = paced.get_many(keys(1)) => panic!("{answer:?} before the service time"),
            () = waiting => {}
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("{} calls wait", paced.waiting()),
        }
    });
}

#[test]
fn service_times_match_the_model_and_scale_with_the_limit() {
    let timer = Timer::start().unwrap();
    let paced = paced(1.0, &timer);
    let mean_ms =
        |paced: &Paced| (0..20_000).map(|_| paced.server.service_time(4).as_secs_f64()).sum::<f64>() / 20.0;
    let expected_ms = 0.596 + 4.0 * 0.164;
    assert!((mean_ms(&paced) / expected_ms - 1.0).abs() < 0.03);
    paced.set_capacity_ratio(0.25);
    assert!((mean_ms(&paced) / expected_ms - 4.0).abs() < 0.12);
}

#[test]
fn ending_timer_frees_remaining_workers() {
    let timer = Timer::start().unwrap();
    let workers = Workers::new(1);
    let worker = workers.try_get(Instant::now()).unwrap();
    let freed = timer.free_at(Instant::now() + Duration::from_secs(3600), worker).unwrap();
    assert!(workers.try_get(Instant::now()).is_none());
    drop(timer);
    assert!(workers.try_get(Instant::now()).is_some());
    assert!(freed.blocking_recv().is_err());
}
