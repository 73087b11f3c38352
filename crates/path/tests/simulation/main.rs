//! Fault simulation of requests, listeners' reads, writes, the cache and dispatchers together.
//! Replicas die and return; answers are lost, late, repeated or reordered; writes race reads and
//! each other, or have an unknown outcome and land late; other programs change the stores, and
//! listeners' clients the cache; the clock stands still and jumps; the node restarts, with a
//! snapshot or without; tenants have rates, which change; its driver carries actions out late,
//! twice or never, and reports answers twice, too early or to no call. Everything is derived from
//! one seed. Always:
//!
//! - each key of each request ends exactly once and in time, the request's latency and blocking
//!   backend are right, and each write ends exactly once;
//! - every value that is read was written to that key, and is no older than the last write that was
//!   acknowledged, or the last invalidation that was answered, before the read began; what a write
//!   to the cache first stores may be read before the store has it;
//! - every cached value is in the store, unless the store was changed without the node's knowledge;
//! - replicas agree in the end, unless the last write was not acknowledged by all of them;
//! - every collection stays within its bound, and is empty at rest;
//! - the healthy backend is not affected.
//!
//! A failing seed is printed with the command that replays it: `SEED=n cargo test -p sherwood-path
//! --test simulation` writes the events to the terminal.

#![allow(
    clippy::disallowed_methods,
    reason = "the seeds are shared out among threads, and the one to replay comes from the environment"
)]

mod events;
mod reads;
mod side;
mod store;
mod traffic;
mod walks;
mod world;
mod writing;

use std::collections::BTreeMap;
use std::env;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use world::World;

const SEEDS: u64 = 10_000;

/// Number of times that each event of [`MUST_HAPPEN`] occurred.
type Seen = BTreeMap<&'static str, u64>;

/// Runs one simulated world from its beginning to its end; `told` writes its events to the
/// terminal.
fn live(seed: u64, told: bool) -> Seen {
    let mut world = World::new(seed, told);
    world.plan_inputs();
    world.run();
    world.heal();
    world.run();
    world.assert_at_rest();
    let seen = world.seen();
    world.assert_all_backends_are_used_again();
    seen
}

#[test]
fn invariants_of_reads_writes_and_cache_hold_under_faults() {
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
                Ok(one) => add(&mut seen, &one),
                Err(panic) => {
                    // The other threads can stop.
                    next.store(SEEDS, Relaxed);
                    eprintln!(
                        "seed {seed} failed; SEED={seed} cargo test -p sherwood-path --test simulation replays it"
                    );
                    resume_unwind(panic);
                }
            }
        }
        add(&mut total.lock().expect("no panics while held"), &seen);
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(take_turns);
        }
    });
    let total = total.into_inner().expect("no panics while held");
    let rare: Vec<_> =
        MUST_HAPPEN.iter().filter(|what| total.get(*what).copied().unwrap_or(0) < 100).collect();
    assert!(rare.is_empty(), "events too rare to test the invariants: {rare:?} in {total:?}");
}

fn add(to: &mut Seen, more: &Seen) {
    more.iter().for_each(|(what, count)| *to.entry(what).or_default() += count);
}

/// Events that have to occur often enough for the invariants to be tested.
const MUST_HAPPEN: &[&str] = &[
    "key: Hit",
    "key: Miss",
    "key: Stale",
    "key: NotFound",
    "key: Rejected",
    "key: Timeout",
    "key: Error",
    "write: Acknowledged",
    "write: NotDone",
    "write: Unknown",
    "write refused",
    "write refused for its key",
    "write refused for what may land",
    "write refused for its tenant's rate",
    "write waited for its tenant's rate",
    "fetch waited for its tenant's rate",
    "read refused for its tenant's rate",
    "value read before the store had it",
    "write kept",
    "write waited for its turn",
    "write waited for what may land",
    "write beside another",
    "write landed after its end",
    "write answered after its end",
    "write not handed out again",
    "write never sent",
    "write acknowledged before its end",
    "call over a connection",
    "call over a connection failed",
    "connection ended",
    "connection expired or given up",
    "connection refused",
    "answer to a write repeated",
    "answer to a write that was not sent",
    "answer to a write that has ended",
    "answer of a replica that is not written to",
    "fill withheld",
    "absence kept",
    "listener asked though absence was kept",
    "ramp refused",
    "ramp ended",
    "key settled",
    "all settled",
    "changed behind the node's back",
    "item invalidated",
    "number invalidated",
    "flushed at once",
    "flushed for later",
    "listener changed the cache",
    "started warm",
    "started cold",
    "replica that lags is spared",
    "refresh put off",
    "action carried out late",
    "action carried out twice",
    "action never carried out",
];
