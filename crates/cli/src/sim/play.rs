//! Lets a simulated world run to its end, or until somebody wants it to stop.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use sherwood_sim::{Halt, TraceStop, World};

use crate::exit::Failure;

/// Simulated time between two looks at progress and interrupts.
const STRIDE: Duration = Duration::from_secs(10);

/// Lets time pass until the end, and tells `seen` how much did, again and again; false when it was
/// stopped before.
pub(super) fn play(
    world: &mut World,
    stop: &AtomicBool,
    mut seen: impl FnMut(Duration, &World),
) -> Result<bool, Failure> {
    play_while(world, stop, |passed, world| {
        seen(passed, world);
        true
    })
    .map_err(Failure::failed)
}

/// The same, until `goes_on` says that it has seen enough; that is no stop.
pub(super) fn play_while(
    world: &mut World,
    stop: &AtomicBool,
    mut goes_on: impl FnMut(Duration, &World) -> bool,
) -> Result<bool, Halt> {
    let mut until = world.now();
    while world.now() < world.end() {
        if stop.load(Relaxed) {
            return Ok(false);
        }
        let before = world.now();
        until += STRIDE;
        world.advance(until)?;
        if !goes_on(world.now() - before, world) {
            break;
        }
    }
    Ok(true)
}

/// Whether a run stopped because its trace ended as it should; anything else that halts one is a
/// failure.
pub(super) fn trace_end(halt: Halt) -> Result<String, Failure> {
    match halt {
        Halt::Trace(end @ TraceStop::Ended { .. }) => Ok(end.to_string()),
        other => Err(Failure::failed(other)),
    }
}

/// Lets the warm-up pass, likewise.
pub(super) fn warm_up(
    world: &mut World,
    stop: &AtomicBool,
    mut seen: impl FnMut(Duration),
) -> Result<bool, Failure> {
    while world.now() < world.measured_from() {
        if stop.load(Relaxed) {
            return Ok(false);
        }
        let before = world.now();
        world.advance((before + STRIDE).min(world.measured_from())).map_err(Failure::failed)?;
        seen(world.now() - before);
    }
    Ok(true)
}
