//! Simulation of a service under load, with its own clock.
//!
//! It predicts, on a laptop, the effect of each policy on an operator's P99, which cannot be tried
//! on users. It simulates application servers, each with a cache and a controller, in front of
//! backends whose workers serve queues. Misses load the backends, waiting times there make requests
//! slow, slow requests determine how the caches are divided next, and the contents of the caches
//! determine the misses.
//!
//! The logic is that of a node: requests are processed by [`sherwood_path`], misses by
//! [`sherwood_dispatch`], the caches are [`sherwood_cache`]'s with declared sizes, and the
//! decisions [`sherwood_policy`]'s. This crate adds the environment of a node: durations
//! ([`EventQueue`]), workers behind their queues ([`sherwood_dispatch::ReplicaQueue`]), statistics
//! exchanged between servers, and a recorder of all finished requests.
//!
//! The simulation reads no clock, all random numbers are derived from the seed, and mathematical
//! functions are `libm`'s: a seed gives the same bytes on every machine. Inputs and outputs are
//! compared after every [`World::advance`], which returns an [`Imbalance`] if they differ. Requests
//! are drawn, or those of a [`Trace`] that the caller opens.
//!
//! All set-ups (kinds of simulation) share one world, [`Simulation`]: [`World`] simulates
//! application servers in front of backends; [`microfuge`], [`spare`], [`tenants`] and
//! [`zoolander`] contain the others.
//!
//! ```
//! use sherwood_sim::{Setup, World};
//!
//! let mut setup = Setup::new("onerf-spikes", "robinhood", 1);
//! (setup.knobs.warmup_min, setup.knobs.measure_min) = (Some(0.05), Some(0.1));
//! let mut world = World::new(&setup)?;
//! world.advance(world.end())?;
//! let results = world.results();
//! assert!(results.complete && results.requests > 2_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backend;
mod batches;
mod bus;
mod events;
mod frontier;
mod key;
pub mod microfuge;
mod onerf;
mod partitions;
mod policy;
mod record;
mod recorded;
mod requests;

mod results;
mod sample;
mod settings;
mod setup;
mod sizes;
mod slab;
pub mod spare;
mod statistics;
pub mod tenants;
mod traffic;
mod verdict;
mod world;
pub mod zoolander;

pub use bus::Bus;
pub use events::EventQueue;
pub use frontier::{Axis, Board, Bracket, Probe, STEPS_MAX, Search, WorkerAction};
pub use onerf::{ForkError, Halt, OneRf, World};
pub use policy::PolicyError;
pub use recorded::{Requests, Trace, TraceStop};
pub use requests::ScheduledRequest;
pub use results::{Allocation, BackendSample, DominantRbc, LimitLine, Results, Sample};
pub use settings::{RangeError, Setting, SettingError};
pub use setup::{Knobs, Resize, Setup, SetupError};
pub use verdict::{Tally, Verdict};
pub use world::{Imbalance, Simulation};
