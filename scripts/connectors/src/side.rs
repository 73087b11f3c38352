//! Tasks that use one of the two sides for some time, and their measurements.

use std::pin::Pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::filled::{VALUE_BYTES, VALUES};

/// The client used by one task.
pub(crate) trait Worker: Send {
    /// Fetches keys, all of which exist, and returns the total bytes of their values.
    fn get<'a>(&'a mut self, keys: &'a [Bytes]) -> Pin<Box<dyn Future<Output = usize> + Send + 'a>>;
}

/// Measurements of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Calls a second of all tasks together.
    pub(crate) ops_per_s: f64,
}

impl Figures {
    /// Returns the median of each figure.
    pub(crate) fn median(all: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| {
            let mut figures: Vec<f64> = all.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        Self {
            p50_us: of(|one| one.p50_us),
            p99_us: of(|one| one.p99_us),
            ops_per_s: of(|one| one.ops_per_s),
        }
    }
}

/// Lets the first `tasks` of `workers` ask for `keys` keys a call, for `time`.
pub(crate) async fn turn(
    workers: &mut Vec<Box<dyn Worker>>,
    tasks: usize,
    keys: usize,
    time: Duration,
) -> Figures {
    let mut asking = JoinSet::new();
    let start = Instant::now();
    for (at, mut worker) in workers.drain(..tasks).enumerate() {
        asking.spawn(async move {
            let mut latencies = Vec::new();
            // Tasks begin at different keys and go through all of them.
            let mut next = at * VALUES / tasks;
            while start.elapsed() < time {
                let keys: Vec<Bytes> = (next..next + keys).map(|key| key_of(key % VALUES)).collect();
                next += keys.len();
                let asked = Instant::now();
                let bytes = worker.get(&keys).await;
                latencies.push(asked.elapsed());
                assert_eq!(bytes, keys.len() * VALUE_BYTES, "every key is there");
            }
            (worker, latencies)
        });
    }
    let mut latencies = Vec::new();
    for (worker, of_a_task) in asking.join_all().await {
        workers.push(worker);
        latencies.extend(of_a_task);
    }
    let took = start.elapsed();
    latencies.sort();
    let at = |part: f64| latencies[(latencies.len() as f64 * part) as usize].as_secs_f64() * 1e6;
    let ops_per_s = latencies.len() as f64 / took.as_secs_f64();
    Figures { p50_us: at(0.5), p99_us: at(0.99), ops_per_s }
}

/// The name of a key by its number.
pub(crate) fn key_of(number: usize) -> Bytes {
    format!("item-{number:05}").into()
}
