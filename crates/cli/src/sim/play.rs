//! Execution of a simulated world until its end or an interrupt.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use sherwood_model::Instant;
use sherwood_sim::{Halt, Imbalance, Setup, TraceStop, World, microfuge, spare, tenants, zoolander};

use crate::exit::Failure;

/// A simulated world that is run piece by piece.
pub(super) trait Played: Sized {
    /// Scenario, policy, seed and settings of a run.
    type Setup: Sync;
    /// Reason for which it cannot go on.
    type Halt: Error;
    /// Simulated time between two checks for progress and interrupts.
    const STRIDE: Duration;

    /// Simulated time of a run; zero if its setup is invalid.
    fn duration(setup: &Self::Setup) -> Duration;

    /// Creates the world of a run, unless its setup is invalid.
    fn of(setup: &Self::Setup) -> Result<Self, Failure>;

    /// Current simulated time.
    fn now(&self) -> Instant;

    /// Simulated time of the end.
    fn end(&self) -> Instant;

    /// Number of queries so far.
    fn queries(&self) -> u64;

    /// Runs the world until a simulated time, at most its end.
    fn advance(&mut self, until: Instant) -> Result<(), Self::Halt>;
}

/// Implements [`Played`] by the methods of a world and of its setup.
macro_rules! played {
    ($world:ty, $setup:ty, $duration:expr, $halt:ty, $stride_s:literal, $queries:ident) => {
        impl Played for $world {
            type Setup = $setup;
            type Halt = $halt;
            const STRIDE: Duration = Duration::from_secs($stride_s);

            fn duration(setup: &$setup) -> Duration {
                ($duration)(setup)
            }

            fn of(setup: &$setup) -> Result<Self, Failure> {
                Self::new(setup).map_err(Failure::usage)
            }

            fn now(&self) -> Instant {
                self.now()
            }

            fn end(&self) -> Instant {
                self.end()
            }

            fn queries(&self) -> u64 {
                self.$queries()
            }

            fn advance(&mut self, until: Instant) -> Result<(), $halt> {
                self.advance(until)
            }
        }
    };
}

played!(World, Setup, |setup: &Setup| setup.duration().unwrap_or_default(), Halt, 10, queries);
played!(microfuge::World, microfuge::Setup, microfuge::Setup::duration, Imbalance, 1, requests);
played!(spare::World, spare::Setup, spare::Setup::duration, spare::SetupError, 10, queries);
played!(tenants::World, tenants::Setup, tenants::Setup::duration, Imbalance, 1, requests);
played!(zoolander::World, zoolander::Setup, zoolander::Setup::duration, Imbalance, 10, queries);

/// Runs the world to its end and repeatedly calls `seen` with the time that has passed. Returns
/// false when it was stopped.
pub(super) fn play<W: Played>(
    world: &mut W,
    stop: &AtomicBool,
    mut seen: impl FnMut(Duration, &W),
) -> Result<bool, Failure> {
    play_while(world, stop, |passed, world| {
        seen(passed, world);
        true
    })
    .map_err(Failure::failed)
}

/// Runs the world like [`play`], but ends early, with success, when `goes_on` returns false.
pub(super) fn play_while<W: Played>(
    world: &mut W,
    stop: &AtomicBool,
    mut goes_on: impl FnMut(Duration, &W) -> bool,
) -> Result<bool, W::Halt> {
    let mut until = world.now();
    while world.now() < world.end() {
        if stop.load(Relaxed) {
            return Ok(false);
        }
        let before = world.now();
        until += W::STRIDE;
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

/// Runs the world until a simulated time. Returns false if the command was stopped.
pub(super) fn play_until<W: Played>(
    world: &mut W,
    until: Instant,
    stop: &AtomicBool,
    mut seen: impl FnMut(Duration),
) -> Result<bool, Failure> {
    while world.now() < until {
        if stop.load(Relaxed) {
            return Ok(false);
        }
        let before = world.now();
        world.advance((before + W::STRIDE).min(until)).map_err(Failure::failed)?;
        seen(world.now() - before);
    }
    Ok(true)
}
