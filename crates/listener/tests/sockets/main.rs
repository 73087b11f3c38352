//! Fault simulation of a listener's event loop on a simulated network, under a virtual clock. Reads
//! and writes are short, would block or are interrupted; connections are closed, reset or
//! half-closed at any time; clients are slow, silent or never read; backends answer late or after
//! their client has gone; slots of connections are reused; timeouts expire; the listener stops
//! while clients are active. Several clients may be served in one round, whose operations end in
//! any order, some of them never. Clients speak memcached's text and meta commands, its binary
//! protocol, RESP2 and RESP3, look-aside, read-through and write-through, with and without
//! passwords; traffic has rates, so that a client may have to wait for a debt to be paid.
//! Everything is derived from one seed. Always:
//!
//! - each client receives exactly the answers to its own commands, in order, or a prefix of them if
//!   its connection broke. The expected answers are computed beforehand by a conversation without
//!   sockets and other clients;
//! - a client that follows the protocol, reads, and is not cut off receives all of them;
//! - a request made of a batch takes no longer than the simulation, and a refill costs at most 10
//!   s and counts once; nobody refills what a listener fetches;
//! - when all clients have gone, no connection and no buffer is left;
//! - the listener does not panic.
//!
//! `SEED=n cargo test -p sherwood-listener --test sockets` replays a seed and writes its events to
//! the terminal.

#![allow(
    clippy::disallowed_methods,
    reason = "the seeds are shared out among threads, and the one to replay comes from the environment"
)]

mod backends;
mod batches;
mod binary;
mod client;
mod draw;
#[path = "../common/fake.rs"]
#[allow(dead_code, reason = "changes are observed elsewhere")]
mod fake;
mod network;
mod rates;
mod script;
mod world;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::env;
use std::num::NonZero;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

const SEEDS: u64 = 10_000;
/// Smallest number of times that each event of [`MUST_HAPPEN`] has to occur in all seeds together.
const OCCURRENCES_MIN: u64 = 100;

/// The number of times that each event has occurred.
type Seen = BTreeMap<&'static str, u64>;

thread_local! {
    /// Number of panics of this thread.
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Runs the simulation of a seed. The listener survives a panic of one connection, but the seed
/// fails.
fn live(seed: u64, told: bool) -> Seen {
    let seen = world::live(seed, told);
    assert_eq!(PANICS.get(), 0, "the listener panicked");
    seen
}

#[test]
fn each_client_of_a_faulty_network_receives_the_answers_to_its_own_commands() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.set(PANICS.get() + 1);
        hook(info);
    }));
    if let Ok(seed) = env::var("SEED") {
        live(seed.parse().expect("SEED is a number"), true);
        return;
    }
    let (next, total) = (AtomicU64::new(0), Mutex::new(Seen::new()));
    let take_turns = || {
        let mut seen = Seen::new();
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= SEEDS {
                break;
            }
            match catch_unwind(AssertUnwindSafe(|| live(seed, false))) {
                Ok(one) => one.iter().for_each(|(what, count)| *seen.entry(what).or_default() += count),
                Err(panic) => {
                    // The other threads can stop.
                    next.store(SEEDS, Relaxed);
                    eprintln!(
                        "seed {seed} failed; SEED={seed} cargo test -p sherwood-listener --test sockets replays it"
                    );
                    resume_unwind(panic);
                }
            }
        }
        let mut total = total.lock().expect("no panics while held");
        seen.iter().for_each(|(what, count)| *total.entry(what).or_default() += count);
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(take_turns);
        }
    });
    let total = total.into_inner().expect("no panics while held");
    let rare: Vec<_> =
        MUST_HAPPEN.iter().filter(|what| total.get(*what).copied().unwrap_or(0) < OCCURRENCES_MIN).collect();
    assert!(rare.is_empty(), "events too rare to test the invariants: {rare:?} in {total:?}");
}

/// Events that have to occur often enough for the invariants to be tested.
const MUST_HAPPEN: &[&str] = &[
    "accept: aborted",
    "accept: no descriptors",
    "answer after its client left",
    "answer late",
    "answer to a write late",
    "batch: never refilled",
    "batch: refilled",
    "batch: request",
    "client: all answers received",
    "client: closed",
    "client: closed by timeout",
    "client: half-closed",
    "client: never read",
    "client: reset",
    "client: silent",
    "client: turned away",
    "listener: ended amid work",
    "place taken again",
    "receive: broken",
    "receive: end",
    "receive: in place",
    "receive: interrupted",
    "receive: short",
    "receive: would block",
    "round: in place",
    "round: incomplete",
    "round: receive",
    "round: send",
    "send: broken",
    "send: interrupted",
    "send: parts",
    "send: short",
    "send: to a closed client",
    "send: would block",
    "world: look-aside",
    "world: memcached",
    "world: memcached binary",
    "world: passwords",
    "world: rates",
    "world: read-through",
    "world: redis",
    "world: write-through",
];
