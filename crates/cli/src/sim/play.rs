//! Execution of a simulated world until its end or an interrupt.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use sherwood_sim::{Halt, TraceStop, World};

use crate::exit::Failure;

/// Simulated time between two checks for progress and interrupts.
const STRIDE: Duration = Duration::from_secs(10);

/// Runs the world to its end and repeatedly calls `seen` with the time that has passed. Returns
/// false when it was stopped.
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

/// Runs the world like [`play`], but ends early, with success, when `goes_on` returns false.
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

/// Returns the reason of a trace that ended early; any other halt is an error.
pub(super) fn trace_end(halt: Halt) -> Result<String, Failure> {
    match halt {
        Halt::Trace(end @ TraceStop::Ended { .. }) => Ok(end.to_string()),
        other => Err(Failure::failed(other)),
    }
}

/// Runs the world to the end of its warm-up.
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
