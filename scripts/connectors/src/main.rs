//! Benchmark of each connector beside the client library that could replace it, in the same run.
//!
//! ```text
//! cargo run --release --manifest-path scripts/connectors/Cargo.toml -- \
//!     [rounds] [seconds of a turn] [part of a backend's name]
//! ```
//!
//! MariaDB, PostgreSQL, Redis and memcached are Debian's packages, each started on a free loopback
//! port as in the tests of the connectors; the HTTP service is one of hyper's in this process, on a
//! thread of its own. Each has 10,000 values of 1 KiB. Both sides ask for the same keys with the
//! same number of tasks, each of which waits for its answer before it asks again. The sides take
//! turns and alternate in going first, so that other load affects both. Each side has its default
//! number of connections: that of the connector; for clients, one if shared (PostgreSQL eight), one
//! per task if not, and eight in MySQL's pool.
//!
//! Prints a JSON line for each backend, number of keys of a call and number of tasks: medians over
//! the rounds, and their ratios.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement: it owns clocks, files and processes"
)]

// The same servers as in the tests, which use more of them.
#[allow(dead_code, reason = "tests kill, restart and log in to them, too")]
#[path = "../../../crates/store/tests/connectors/databases.rs"]
mod databases;
mod direct;
mod filled;
#[allow(dead_code, reason = "tests kill, restart and log in to them, too")]
#[path = "../../../crates/store/tests/connectors/servers.rs"]
mod servers;
mod service;
mod side;

use std::time::Duration;

use filled::Filled;
use serde_json::json;
use side::{Figures, Worker, turn};

/// Keys of one call.
const KEYS: [usize; 2] = [1, 20];
/// Tasks that ask at a time.
const TASKS: [usize; 2] = [1, 16];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, default: f64| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (rounds, time) = (number(0, 5.0) as usize, Duration::from_secs_f64(number(1, 2.0)));
    let part = arguments.get(2).map_or("", String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for name in filled::NAMES.into_iter().filter(|name| name.contains(part)) {
            let filled = Filled::start(name).await;
            measure(&filled, rounds.max(1), time).await;
        }
    });
}

/// Measures all cases of one backend.
async fn measure(filled: &Filled, rounds: usize, time: Duration) {
    let most = TASKS.into_iter().max().expect("there are some");
    let mut connector = filled.connector(most);
    let mut direct = filled.direct(most).await;
    for keys in KEYS {
        for tasks in TASKS {
            // The first answers establish connections and prepare statements.
            for workers in [&mut connector, &mut direct] {
                turn(workers, tasks, keys, time / 4).await;
            }
            let mut figures: [Vec<Figures>; 2] = [Vec::new(), Vec::new()];
            for round in 0..rounds {
                for at in [round % 2, 1 - round % 2] {
                    let workers: &mut Vec<Box<dyn Worker>> =
                        if at == 0 { &mut connector } else { &mut direct };
                    figures[at].push(turn(workers, tasks, keys, time).await);
                }
            }
            let [ours, theirs] = figures.map(|of_a_side| Figures::median(&of_a_side));
            println!("{}", line(filled, keys, tasks, rounds, &ours, &theirs));
        }
    }
}

fn line(
    filled: &Filled,
    keys: usize,
    tasks: usize,
    rounds: usize,
    ours: &Figures,
    theirs: &Figures,
) -> String {
    let rounded = |figure: f64| (figure * 1_000.0).round() / 1_000.0;
    let side = |figures: &Figures| {
        json!({
            "p50_us": rounded(figures.p50_us),
            "p99_us": rounded(figures.p99_us),
            "ops_per_s": figures.ops_per_s.round(),
        })
    };
    json!({
        "backend": filled.name(),
        "client": filled.client(),
        "keys": keys,
        "concurrency": tasks,
        "rounds": rounds,
        "connector": side(ours),
        "direct": side(theirs),
        "ratio": {
            "p50": rounded(ours.p50_us / theirs.p50_us),
            "p99": rounded(ours.p99_us / theirs.p99_us),
            "ops": rounded(ours.ops_per_s / theirs.ops_per_s),
        },
    })
    .to_string()
}
