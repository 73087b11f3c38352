//! The event loop of a listener's thread on a simulated network, under a virtual clock: short reads
//! and writes, calls that would block or are interrupted, connections that are closed, reset or
//! half-closed at any moment, clients that are slow, silent or never read, answers of backends that
//! come late or after their client has gone, places that are taken again, timeouts, and an end of
//! the listener in the midst of it. Clients speak memcached's text and meta commands, RESP2 and
//! RESP3, look-aside and read-through, with and without passwords. Everything follows from one
//! seed. Whatever happens:
//!
//! - each client receives exactly the answers to its own commands, in order, or a prefix of them
//!   where its connection broke. What they are is computed beforehand by a conversation without
//!   sockets that has no other clients;
//! - a client that keeps to the protocol, reads and is not cut off receives all of them;
//! - when all clients have gone, no connection and no buffer is left;
//! - the listener does not panic.
//!
//! `SEED=n cargo test -p sherwood-listener --test sockets` replays a seed and writes to the
//! terminal what happens.

#![allow(
    clippy::disallowed_methods,
    reason = "the seeds are shared out among threads, and the one to replay comes from the environment"
)]

mod backends;
mod client;
mod draw;
mod network;
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
/// How often each event of [`MUST_HAPPEN`] has to occur in all seeds together.
const OCCURRENCES_MIN: u64 = 100;

/// Occurrences of events.
type Seen = BTreeMap<&'static str, u64>;

thread_local! {
    /// Panics of this thread.
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Runs the world of a seed. The listener survives a panic of one connection; a seed does not.
fn live(seed: u64, told: bool) -> Seen {
    let seen = world::live(seed, told);
    assert_eq!(PANICS.get(), 0, "the listener panicked");
    seen
}

#[test]
fn each_client_receives_the_answers_to_its_own_commands() {
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
                    // The others need not go on.
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
    assert!(rare.is_empty(), "the simulation says nothing without these events: {rare:?} in {total:?}");
}

/// Events without which the properties would hold of a network in which nothing happens.
const MUST_HAPPEN: &[&str] = &[
    "accept: aborted",
    "accept: no descriptors",
    "answer after its client left",
    "answer late",
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
    "receive: interrupted",
    "receive: short",
    "receive: would block",
    "send: broken",
    "send: interrupted",
    "send: short",
    "send: to a closed client",
    "send: would block",
    "world: look-aside",
    "world: memcached",
    "world: passwords",
    "world: read-through",
    "world: redis",
];
