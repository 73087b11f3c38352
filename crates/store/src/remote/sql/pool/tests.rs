use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// Counts of a test driver's connections, and the behaviour of their pings.
#[derive(Default)]
struct Counts {
    made: AtomicUsize,
    abandoned: AtomicUsize,
    dropped: AtomicUsize,
    pinged: AtomicUsize,
    /// True if pings of connections fail.
    dead: AtomicBool,
    /// True if pings of connections are not answered.
    hangs: AtomicBool,
}

impl Counts {
    fn read(&self) -> [usize; 3] {
        [&self.made, &self.abandoned, &self.dropped].map(|count| count.load(Ordering::SeqCst))
    }
}

struct Fake(Arc<Counts>);

struct FakeLink(Arc<Counts>);

impl Drop for FakeLink {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Driver for Fake {
    type Link = FakeLink;

    async fn connect(&self) -> Result<FakeLink, Cause> {
        self.0.made.fetch_add(1, Ordering::SeqCst);
        Ok(FakeLink(Arc::clone(&self.0)))
    }

    fn abandon(&self, _link: FakeLink) {
        self.0.abandoned.fetch_add(1, Ordering::SeqCst);
    }
}

impl Link for FakeLink {
    fn is_closed(&self) -> bool {
        false
    }

    async fn version(&mut self) -> Result<String, Cause> {
        Ok("fake".to_owned())
    }

    fn ended_early(&self) -> bool {
        true
    }

    fn remark(&self) -> Option<&'static str> {
        None
    }

    async fn prepare(&mut self, _: &str) -> Result<(), Cause> {
        Ok(())
    }

    async fn columns(&mut self, _: &str) -> Result<Vec<String>, Cause> {
        Ok(Vec::new())
    }

    async fn ping(&mut self) -> Result<(), Cause> {
        self.0.pinged.fetch_add(1, Ordering::SeqCst);
        if self.0.hangs.load(Ordering::SeqCst) {
            std::future::pending().await
        }
        if self.0.dead.load(Ordering::SeqCst) { Err(reset()) } else { Ok(()) }
    }

    async fn rows(&mut self, _: &str, _: Vec<Bytes>, _: &mut Budget) -> Result<Answer, Cause> {
        Ok(Answer::default())
    }

    async fn change(&mut self, _: &str, _: Vec<Bytes>) -> Result<u64, Cause> {
        Ok(0)
    }
}

fn pool(connections_max: u16, queued_calls_max: u32) -> (Pool<Fake>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let options = RemoteOptions { connections_max, queued_calls_max, ..RemoteOptions::default() };
    (Pool::new(Fake(Arc::clone(&counts)), "db:1", &options), counts)
}

fn reset() -> Cause {
    Cause::Reset { address: "db:1".into(), detail: "gone".into() }
}

const FINE: Result<(), Cause> = Ok(());

#[tokio::test(start_paused = true)]
async fn returned_database_connection_is_reused() {
    let (pool, counts) = pool(2, 1);
    pool.take().await.unwrap().settle(&FINE);
    pool.take().await.unwrap().settle(&Err::<(), _>(Cause::Statement { detail: "no".into() }));
    pool.take().await.unwrap().settle(&FINE);
    assert_eq!(counts.read(), [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn connection_of_a_dropped_call_is_closed_and_not_reused() {
    let (pool, counts) = pool(1, 1);
    drop(pool.take().await.unwrap());
    pool.take().await.unwrap().settle(&Err::<(), _>(Cause::TooLarge { bytes_max: 1 }));
    assert_eq!(counts.read(), [2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn call_that_closes_its_connection_in_an_answer_gets_another() {
    let (pool, counts) = pool(1, 1);
    let mut lease = pool.take().await.unwrap();
    lease.abandon();
    assert!(lease.is_abandoned());
    pool.renew(&mut lease).await.unwrap();
    assert!(!lease.is_abandoned());
    lease.settle(&FINE);
    pool.take().await.unwrap().settle(&FINE);
    assert_eq!(counts.read(), [2, 1, 1]);
    let mut lease = pool.take().await.unwrap();
    lease.abandon();
    lease.settle(&FINE);
    assert_eq!(counts.read(), [2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn reused_connection_that_ended_is_replaced_by_a_new_one_and_not_by_an_idle_one() {
    let (pool, counts) = pool(2, 1);
    let (mut lease, other) = (pool.take().await.unwrap(), pool.take().await.unwrap());
    other.settle(&FINE);
    assert!(lease.ended_early());
    pool.replace(&mut lease).await.unwrap();
    assert_eq!(counts.read(), [3, 0, 2]);
    lease.settle(&FINE);
    pool.take().await.unwrap().settle(&FINE);
    assert_eq!(counts.read(), [3, 0, 2]);
}

#[tokio::test(start_paused = true)]
async fn broken_connection_of_a_call_closes_the_idle_connections() {
    let (pool, counts) = pool(3, 1);
    let (one, other, third) =
        (pool.take().await.unwrap(), pool.take().await.unwrap(), pool.take().await.unwrap());
    one.settle(&FINE);
    other.settle(&FINE);
    third.settle(&Err::<(), _>(reset()));
    assert_eq!(counts.read(), [3, 0, 3]);
    pool.take().await.unwrap().settle(&FINE);
    assert_eq!(counts.read(), [4, 0, 3]);
}

#[tokio::test(start_paused = true)]
async fn connection_idle_for_long_is_pinged_before_it_is_used() {
    let (pool, counts) = pool(1, 1);
    pool.take().await.unwrap().settle(&FINE);
    tokio::time::advance(TRUSTED).await;
    pool.take().await.unwrap().settle(&FINE);
    assert_eq!((counts.read(), counts.pinged.load(Ordering::SeqCst)), ([1, 0, 0], 1));
    counts.dead.store(true, Ordering::SeqCst);
    tokio::time::advance(TRUSTED).await;
    pool.take().await.unwrap().settle(&FINE);
    assert_eq!((counts.read(), counts.pinged.load(Ordering::SeqCst)), ([2, 0, 1], 2));
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_all_closed_if_one_does_not_answer_a_ping() {
    let (pool, counts) = pool(2, 1);
    let (one, other) = (pool.take().await.unwrap(), pool.take().await.unwrap());
    one.settle(&FINE);
    other.settle(&FINE);
    tokio::time::advance(TRUSTED).await;
    counts.hangs.store(true, Ordering::SeqCst);
    let waited_ms = 1_000;
    assert_eq!(pool.take().await.err(), Some(Cause::Silent { address: "db:1".into(), waited_ms }));
    assert_eq!(counts.read(), [2, 1, 2]);
    assert!(pool.take().await.is_ok(), "a new one is not asked");
}

#[tokio::test(start_paused = true)]
async fn connection_of_a_refused_or_unsent_statement_is_reused() {
    let (pool, counts) = pool(2, 1);
    let (one, other) = (pool.take().await.unwrap(), pool.take().await.unwrap());
    one.settle(&FINE);
    let detail = || "no".to_owned();
    other.settle(&Err::<(), _>(Cause::Key { detail: detail() }));
    for cause in [
        Cause::Key { detail: detail() },
        Cause::Credentials { detail: detail() },
        Cause::Forbidden { detail: detail() },
        Cause::Unsupported { reason: "read-only" },
        Cause::Busy { detail: detail() },
    ] {
        pool.take().await.unwrap().settle(&Err::<(), _>(cause));
    }
    assert_eq!(counts.read(), [2, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn connections_idle_for_too_long_are_closed() {
    let (pool, counts) = pool(2, 1);
    let (one, other) = (pool.take().await.unwrap(), pool.take().await.unwrap());
    one.settle(&FINE);
    // The task that closes them checks when the first one is due.
    tokio::time::sleep(IDLE_MAX / 2).await;
    other.settle(&FINE);
    tokio::time::sleep(IDLE_MAX / 2 + Duration::from_millis(2)).await;
    assert_eq!(counts.read(), [2, 0, 1]);
    tokio::time::sleep(IDLE_MAX / 2).await;
    assert_eq!(counts.read(), [2, 0, 2]);
    assert!(!pool.shared.idle().swept);
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_a_connection_up_to_a_bound() {
    let (pool, counts) = pool(1, 1);
    let pool = Arc::new(pool);
    let first = pool.take().await.unwrap();
    let waits = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { pool.take().await.map(|lease| lease.settle(&FINE)) }
    });
    tokio::task::yield_now().await;
    assert_eq!(pool.take().await.err(), Some(Cause::Overloaded { queued_calls_max: 1 }));
    first.settle(&FINE);
    assert_eq!(waits.await.unwrap(), Ok(()));
    assert!(pool.take().await.is_ok());
    assert_eq!(counts.read(), [1, 1, 1]);
}
