//! Simulation of Zoolander's experiments with a replicated store: [`Scenario::Diurnal`], in which
//! the load falls at night, so that nodes are left over, which may be idle, switched off, or used
//! as duplicates; and [`Scenario::Model`], which compares measured service levels with predicted
//! ones.
//!
//! By day and at night requests make twenty accesses, each after the one before, and violate the
//! SLO if they take more than 150 ms. Most accesses take some milliseconds; a few stall. A stall
//! delays the accesses behind it as well, since nodes serve one access at a time, first come, first
//! served. A [`Policy`] chooses the layout of the store, partitions and their duplicates, and how
//! many duplicates an access asks.
//!
//! In [`Scenario::Model`] the load is constant and requests make one access. Day and night are a
//! warm-up and the measurement.
//!
//! The decisions are a node's: the store is a [`sherwood_path::Backend`], which sends accesses to
//! the duplicates of their keys and makes the copies, and the
//! [`Manager`](sherwood_policy::stores::Manager) chooses layouts. This module adds the arrivals,
//! the service times and the bookkeeping.
//!
//! # Model
//! Requests arrive by a Poisson process, whose rate is that of the day and then that of the night.
//! Accesses are reads of keys that are not in the cache. The service times of an access are drawn
//! from seed, access and duplicate alone, so that they are common to all policies. A change of the
//! layout takes effect at once, for accesses that begin after it, and moving the data takes neither
//! time nor load. The manager knows the distribution of service times and the rates.
//!
//! ```
//! use sherwood_sim::zoolander::{Scenario, Setup, World};
//!
//! let mut setup = Setup::new(Scenario::Diurnal, "zoolander", 1);
//! setup.set("seconds", "1+1")?;
//! let mut world = World::new(&setup)?;
//! world.advance(world.end())?;
//! let results = world.results();
//! assert!(results.complete && results.requests > 600);
//! assert!((results.extra_load_ratio.night - 1.0).abs() < 0.01, "both duplicates are asked");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! C. Stewart, A. Chakrabarti and R. Griffith, *Zoolander: Efficiently Meeting Very Strict,
//! Low-Latency SLOs*, ICAC 2013.

mod key;
mod pairs;
mod policy;
mod results;
mod scenario;
mod services;
mod settings;
mod setup;
mod world;

pub use policy::Policy;
pub use results::{ByPhase, Results, Sample};
pub use scenario::{SCENARIOS, Scenario};
pub use setup::{Knobs, Setup, SetupError};
pub use world::{Level, ModelResults, World, Zoolander};

/// Number of nodes.
const NODES: u16 = 144;
