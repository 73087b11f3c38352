//! Requests, reads of listeners, writes, the cache and dispatchers together in a world of faults:
//! replicas that die and return, answers that are lost, late, repeated or in another order, writes
//! that race reads and each other, or whose outcome nobody knows and which land late, stores that
//! others change, listeners whose clients change the cache, a clock that stands still and jumps,
//! and a node that ends and starts again, with a snapshot or without. Everything follows from one
//! seed. Whatever happens:
//!
//! - each key of each request ends exactly once and in time, and the request counts as it must;
//!   each write ends exactly once;
//! - no value is read that was not written to that key, and none that is older than the last write
//!   that was acknowledged, or the last invalidation that was answered, before the read began;
//! - nothing is cached that the store does not have, unless the store was changed behind the node's
//!   back;
//! - replicas have the same in the end, unless the last write was not acknowledged by all of them;
//! - nothing grows beyond its bound, and at rest there is nothing left;
//! - the healthy backend notices nothing.
//!
//! A seed that fails is told with the command that replays it:
//! `SEED=n cargo test -p sherwood-path --test simulation` writes to the terminal what happens.

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

/// How often what must happen for the properties to say anything did.
type Seen = BTreeMap<&'static str, u64>;

/// One world from its beginning to its end.
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
fn nothing_goes_wrong_whatever_happens() {
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
                    // The others need not go on.
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
    assert!(rare.is_empty(), "it says nothing if this does not happen: {rare:?} in {total:?}");
}

fn add(to: &mut Seen, more: &Seen) {
    more.iter().for_each(|(what, count)| *to.entry(what).or_default() += count);
}

/// Without these the properties would hold of a world in which nothing happens.
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
    "write kept",
    "write waited for its turn",
    "write waited for what may land",
    "write beside another",
    "write landed after its end",
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
    "listener changed the cache",
    "started warm",
    "started cold",
    "replica that lags is spared",
    "refresh put off",
    "action carried out late",
    "action carried out twice",
    "action never carried out",
];
