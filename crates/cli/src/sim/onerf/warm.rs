//! Worlds at the end of their warm-up.
//!
//! No backend is limited before the measurement, so runs with the same policy, seed and settings
//! are equal until then, in every scenario and at every depth of the limits. Their warm-up is
//! simulated once, and each run continues from a copy.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use sherwood_sim::{Setup, World};

use crate::exit::Failure;
use crate::sim::play;

/// The most recently used worlds, up to a maximum number, which bounds the memory.
pub(in crate::sim) struct WarmUps {
    most: usize,
    /// Worlds in order of use, the most recent one last.
    worlds: Mutex<VecDeque<Arc<WarmUp>>>,
}

struct WarmUp {
    /// The setup of a run with this warm-up.
    setup: Setup,
    /// The world, once simulated. The lock is held during the simulation, since other users need
    /// the result anyway.
    world: Mutex<Option<World>>,
}

impl WarmUps {
    /// Creates a cache of at most `most` worlds.
    pub(in crate::sim) fn new(most: usize) -> Self {
        Self { most, worlds: Mutex::default() }
    }

    /// Returns the world of a run at the end of its warm-up, which other runs may share; none if
    /// the command was stopped.
    pub(super) fn world(&self, setup: &Setup, stop: &AtomicBool) -> Result<Option<World>, Failure> {
        let warm_up = self.find(setup)?;
        let mut world = warm_up.world.lock().unwrap_or_else(PoisonError::into_inner);
        let warm = match &mut *world {
            Some(warm) => warm,
            none => {
                let mut cold = World::new(setup).map_err(Failure::usage)?;
                let until = cold.measured_from();
                if !play::play_until(&mut cold, until, stop, |_| ())? {
                    return Ok(None);
                }
                none.insert(cold)
            }
        };
        warm.fork(setup).map(Some).map_err(Failure::usage)
    }

    fn find(&self, setup: &Setup) -> Result<Arc<WarmUp>, Failure> {
        let mut worlds = self.worlds.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for (index, warm_up) in worlds.iter().enumerate() {
            if warm_up.setup.shares_warm_up(setup).map_err(Failure::usage)? {
                found = Some(index);
            }
        }
        let warm_up = match found.and_then(|index| worlds.remove(index)) {
            Some(warm_up) => warm_up,
            None => Arc::new(WarmUp { setup: setup.clone(), world: Mutex::default() }),
        };
        worlds.push_back(Arc::clone(&warm_up));
        if worlds.len() > self.most {
            worlds.pop_front();
        }
        Ok(warm_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(policy: &str, depth: f64) -> Setup {
        let mut setup = Setup::new("onerf-spikes", policy, 1);
        (setup.knobs.warmup_min, setup.knobs.measure_min) = (Some(0.01), Some(0.01));
        (setup.knobs.load_ratio, setup.knobs.cache_ratio) = (0.05, 0.02);
        setup.knobs.limit_depth = depth;
        setup
    }

    fn queries(warm_ups: &WarmUps, setup: &Setup) -> Option<u64> {
        let world = warm_ups.world(setup, &AtomicBool::new(false)).expect("a valid setup")?;
        assert_eq!(world.now(), world.measured_from());
        Some(world.queries())
    }

    #[test]
    fn runs_with_other_depths_of_limits_share_a_warm_up_and_the_oldest_is_evicted() {
        let warm_ups = WarmUps::new(2);
        let names = || {
            let worlds = warm_ups.worlds.lock().expect("nobody panics");
            worlds.iter().map(|warm_up| warm_up.setup.policy.clone()).collect::<Vec<_>>()
        };
        let first = queries(&warm_ups, &setup("robinhood", 1.0));
        assert!(first > Some(0));
        assert_eq!(queries(&warm_ups, &setup("fair", 1.0)), first, "the same requests");
        assert_eq!(names(), ["robinhood", "fair"]);
        assert_eq!(queries(&warm_ups, &setup("robinhood", 2.0)), first);
        assert_eq!(names(), ["fair", "robinhood"], "one for both depths");
        queries(&warm_ups, &setup("lama", 1.0));
        assert_eq!(names(), ["robinhood", "lama"]);
    }

    #[test]
    fn stopped_warm_up_is_not_kept() {
        let warm_ups = WarmUps::new(1);
        let warm = warm_ups.world(&setup("fair", 1.0), &AtomicBool::new(true)).expect("a valid setup");
        assert!(warm.is_none());
        assert!(queries(&warm_ups, &setup("fair", 1.0)).is_some(), "it is made again");
    }
}
