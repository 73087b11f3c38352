use std::sync::atomic::AtomicU64;
use std::sync::mpsc;

use super::*;

/// A simulated clock, which moves only to times that a thread waits for. Each reading of the
/// processor clock adds one millisecond.
#[derive(Default)]
pub(crate) struct DrivenClock {
    times: Mutex<Times>,
    asked: Condvar,
    cpu_ms: AtomicU64,
}

#[derive(Default)]
struct Times {
    now: Instant,
    /// The time that a sleeping thread waits for; none if no thread has slept since the last step.
    asked: Option<Instant>,
}

impl DrivenClock {
    /// Waits until a thread of `pool` sleeps until some time, and moves the clock to that time, at
    /// most to `end`; returns true while `end` is in the future.
    pub(crate) fn step(&self, pool: &Pool, end: Instant) -> bool {
        let mut times = self.times.lock().unwrap();
        while times.asked.is_none() {
            times = self.asked.wait(times).unwrap();
        }
        times.now = times.now.max(times.asked.take().unwrap()).min(end);
        let more = times.now < end;
        drop(times);
        if more {
            pool.wake();
        }
        more
    }
}

impl Clock for DrivenClock {
    fn now(&self) -> Instant {
        self.times.lock().unwrap().now
    }

    fn thread_cpu(&self) -> Duration {
        Duration::from_millis(self.cpu_ms.fetch_add(1, Ordering::SeqCst))
    }

    fn sleep(&self, _: Instant, until: Instant) -> Option<Duration> {
        self.times.lock().unwrap().asked = Some(until);
        self.asked.notify_all();
        None
    }
}

/// A session whose calls report their start on one channel, and wait on another until they may end.
struct Stepped {
    begun: mpsc::Sender<Bytes>,
    may_end: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Session for Stepped {
    fn get_many(&mut self, keys: &[Bytes], _: &mut dyn FnMut()) -> Result<Vec<Option<Bytes>>, Cause> {
        assert_ne!(keys[0], "panic", "asked to");
        let _ = self.begun.send(keys[0].clone());
        let _ = self.may_end.lock().unwrap().recv();
        Ok(keys.iter().cloned().map(Some).collect())
    }

    fn put(&mut self, _: &[u8], _: &[u8]) -> Result<(), Cause> {
        Ok(())
    }

    fn delete(&mut self, _: &[u8]) -> Result<(), Cause> {
        Ok(())
    }
}

/// A pool whose sessions wait for the test, with the test's ends of their channels.
struct Stage {
    pool: Pool,
    begun: mpsc::Receiver<Bytes>,
    may_end: mpsc::Sender<()>,
}

fn stage(threads: usize, queued_calls_max: usize) -> Stage {
    let (begun_sender, begun) = mpsc::channel();
    let (may_end, may_end_receiver) = mpsc::channel();
    let may_end_receiver = Arc::new(Mutex::new(may_end_receiver));
    let session = || -> Box<dyn Session> {
        Box::new(Stepped { begun: begun_sender.clone(), may_end: Arc::clone(&may_end_receiver) })
    };
    let sessions = (0..threads).map(|_| session()).collect();
    let pool = Pool::start("stage", sessions, queued_calls_max, Arc::new(DrivenClock::default())).unwrap();
    Stage { pool, begun, may_end }
}

type Answer = oneshot::Receiver<Result<Vec<Option<Bytes>>, Cause>>;

fn get(pool: &Pool, key: &'static str) -> Result<Answer, Cause> {
    let (reply, answer) = oneshot::channel();
    pool.submit(Job::Get { keys: vec![Bytes::from_static(key.as_bytes())], reply }).map(|()| answer)
}

/// A pool without threads: the test takes calls from the queue itself.
fn unattended() -> Pool {
    Pool::start("unattended", Vec::new(), 10_000, Arc::new(DrivenClock::default())).unwrap()
}

#[test]
fn slots_of_a_store_bound_its_running_calls() {
    let pool = unattended();
    pool.set_limit(Limit::Slots(Some(2)));
    let _answers = ["a", "b", "c", "d"].map(|key| get(&pool, key).unwrap());
    let mut state = pool.shared.lock();
    let mut begins = || matches!(state.next(Instant::ZERO), ThreadStep::Job(_));
    assert_eq!([begins(), begins(), begins(), begins()], [true, true, false, false]);
    state.gate.end();
    let mut begins = || matches!(state.next(Instant::ZERO), ThreadStep::Job(_));
    assert_eq!([begins(), begins()], [true, false], "one ended, one begins");
}

/// The number of calls that end in ten seconds if each takes a thread 10 ms of simulated time and
/// the queue is never empty.
fn ended_in_ten_seconds(slots: Option<u32>, threads: usize) -> usize {
    let pool = unattended();
    pool.set_limit(Limit::Slots(slots));
    let answers: Vec<Answer> = (0..10_000).map(|_| get(&pool, "key").unwrap()).collect();
    let mut state = pool.shared.lock();
    let mut ended = 0;
    for tick in 0..1_000 {
        let begin =
            |state: &mut State| matches!(state.next(Instant::from_millis(10 * tick)), ThreadStep::Job(_));
        let running = (0..threads).filter(|_| begin(&mut state)).count();
        (0..running).for_each(|_| state.gate.end());
        ended += running;
    }
    drop(state);
    drop(answers);
    ended
}

#[test]
fn throughput_at_the_limit_is_the_slots_divided_by_the_time_of_a_call() {
    assert_eq!(ended_in_ten_seconds(Some(1), 4), 1_000, "100 per second and slot");
    assert_eq!(ended_in_ten_seconds(Some(3), 4), 3_000);
    assert_eq!(ended_in_ten_seconds(Some(9), 4), 4_000, "more slots than threads change nothing");
    assert_eq!(ended_in_ten_seconds(None, 4), 4_000);
}

#[test]
fn freed_slot_or_lifted_limit_wakes_a_waiting_thread() {
    let stage = stage(3, 8);
    stage.pool.set_limit(Limit::Slots(Some(1)));
    let answers = ["a", "b", "c", "d"].map(|key| get(&stage.pool, key).unwrap());
    assert_eq!(stage.begun.recv().unwrap(), "a");
    stage.may_end.send(()).unwrap();
    assert_eq!(stage.begun.recv().unwrap(), "b");
    stage.pool.set_limit(Limit::Slots(None));
    let rest = [stage.begun.recv().unwrap(), stage.begun.recv().unwrap()];
    assert!(rest.contains(&"c".into()) && rest.contains(&"d".into()), "{rest:?}");
    for _ in 0..3 {
        stage.may_end.send(()).unwrap();
    }
    for answer in answers {
        assert!(answer.blocking_recv().unwrap().is_ok());
    }
}

#[test]
fn full_queue_refuses_calls_and_calls_dropped_by_the_caller_make_room() {
    let stage = stage(1, 2);
    let running = get(&stage.pool, "running").unwrap();
    stage.begun.recv().unwrap();
    let (first, second) = (get(&stage.pool, "first").unwrap(), get(&stage.pool, "second").unwrap());
    assert_eq!(get(&stage.pool, "third").unwrap_err(), Cause::Overloaded { queued_calls_max: 2 });

    drop(first);
    let third = get(&stage.pool, "third").unwrap();
    for _ in 0..3 {
        stage.may_end.send(()).unwrap();
    }
    assert!(running.blocking_recv().unwrap().is_ok());
    assert!(second.blocking_recv().unwrap().is_ok());
    assert!(third.blocking_recv().unwrap().is_ok());
    // The abandoned call was never started.
    assert_eq!(stage.begun.try_iter().collect::<Vec<_>>(), ["second", "third"]);
}

#[test]
fn dropped_pool_fails_queued_calls_and_waits_for_running_ones() {
    let stage = stage(1, 8);
    let running = get(&stage.pool, "running").unwrap();
    stage.begun.recv().unwrap();
    let queued = get(&stage.pool, "queued").unwrap();
    let Stage { pool, begun, may_end } = stage;
    let dropping = std::thread::spawn(move || drop(pool));
    // The running call ends only when the test lets it, after the queued one was answered.
    assert_eq!(queued.blocking_recv().unwrap(), Err(Cause::Closed));
    may_end.send(()).unwrap();
    assert!(running.blocking_recv().unwrap().is_ok());
    dropping.join().unwrap();
    assert!(begun.try_recv().is_err(), "the threads have ended, and none began the queued call");
}

#[test]
fn dropped_pool_ends_threads_that_wait_for_a_limit() {
    let stage = stage(1, 8);
    stage.pool.set_limit(Limit::OpsPerS(Some(0.001)));
    stage.may_end.send(()).unwrap();
    assert!(get(&stage.pool, "paid").unwrap().blocking_recv().unwrap().is_ok());
    let waiting = get(&stage.pool, "waiting").unwrap();
    drop(stage.pool);
    assert_eq!(waiting.blocking_recv().unwrap(), Err(Cause::Closed));
}

#[test]
fn panic_of_the_engine_fails_only_the_call_that_caused_it() {
    let stage = stage(1, 8);
    stage.pool.set_limit(Limit::Slots(Some(1)));
    let answer = get(&stage.pool, "panic").unwrap().blocking_recv().unwrap();
    assert!(matches!(answer, Err(Cause::Engine { detail }) if detail.contains("asked to")));
    stage.may_end.send(()).unwrap();
    assert!(get(&stage.pool, "next").unwrap().blocking_recv().unwrap().is_ok());
}
