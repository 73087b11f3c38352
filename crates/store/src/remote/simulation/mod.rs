//! Fault simulation of the connectors whose codec is part of this project, Redis and memcached, on
//! a [simulated transport](super::simulated) with a virtual clock. Connections end at any byte in
//! either direction, while idle or in use. The server is slow, refuses connections and requests,
//! and sends answers that are too short, too long, incomplete, repeated or of another type. Calls
//! are dropped. Everything is derived from one seed. The invariants are:
//!
//! - an answer has the values of its own keys, whole, or none;
//! - a write is received at most once, exactly once if it succeeded, and never done if its error
//!   says that nothing was done;
//! - a read of a server that only closes idle connections does not fail;
//! - every call ends, and once the store is dropped, no connection is left.
//!
//! The invariants of a connection for changes in their order are stated in [`batches`].
//!
//! `SEED=n cargo test -p sherwood-store --lib simulation` replays a seed and writes its events to
//! the terminal.

mod batches;
mod server;
mod world;

use std::env;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use super::simulated::Seen;

const SEEDS: u64 = 10_000;
/// Smallest number of times, over all seeds, that each event of [`MUST_HAPPEN`] has to occur.
const OCCURRENCES_MIN: u64 = 100;

#[test]
fn every_call_gets_its_own_answer_or_an_error_though_connections_end_at_any_byte() {
    for_each_seed(SEEDS, world::live, MUST_HAPPEN);
}

#[test]
fn changes_reported_as_made_were_made_in_order_though_connections_end_at_any_byte() {
    for_each_seed(SEEDS, batches::live, batches::MUST_HAPPEN);
}

/// Runs a simulation with each seed below `seeds`, or with that of the environment, and checks that
/// the events in `must_happen` occur often enough.
fn for_each_seed(seeds: u64, live: fn(u64, bool) -> Seen, must_happen: &[&str]) {
    if let Ok(seed) = env::var("SEED") {
        live(seed.parse().expect("SEED is a number"), true);
        return;
    }
    let (next, total) = (AtomicU64::new(0), Mutex::new(Seen::new()));
    let take_turns = || {
        let mut seen = Seen::new();
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds {
                break;
            }
            match catch_unwind(AssertUnwindSafe(|| live(seed, false))) {
                Ok(one) => one.iter().for_each(|(what, count)| *seen.entry(what).or_default() += count),
                Err(panic) => {
                    // The other threads can stop.
                    next.store(seeds, Relaxed);
                    eprintln!(
                        "seed {seed} failed; SEED={seed} cargo test -p sherwood-store --lib simulation replays it"
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
        must_happen.iter().filter(|what| total.get(*what).copied().unwrap_or(0) < OCCURRENCES_MIN).collect();
    assert!(rare.is_empty(), "events too rare to test the invariants: {rare:?} in {total:?}");
}

/// Events that have to occur often enough for the invariants to be tested.
const MUST_HAPPEN: &[&str] = &[
    "call: dropped",
    "client: wrote after the end",
    "connection: cut on the way to the client",
    "connection: cut on the way to the server",
    "connection: opened",
    "connection: refused",
    "read: answered",
    "read: failed",
    "read: sent to a connection that had ended, and answered",
    "server: answered another type",
    "server: answered half",
    "server: answered late",
    "server: answered too long",
    "server: answered too short",
    "server: answered twice",
    "server: closed an idle connection",
    "server: refused a connection",
    "server: refused a request",
    "write: done",
    "write: not done",
    "write: unknown",
];
