//! A world in which a service meets its load, under a clock of its own.
//!
//! Whoever is about to deploy Sherwood asks what each policy would do to *their* P99, and nobody
//! can try it on their users. This room answers on a laptop: application servers, each with a cache
//! and a controller, in front of backends whose workers serve queues. What misses a cache loads a
//! backend, what waits there makes requests slow, what is slow decides how caches are divided next,
//! and what caches hold decides what misses.
//!
//! It has no logic of its own: requests are [`sherwood_path`]'s, what follows a miss is
//! [`sherwood_dispatch`]'s, the caches and their evictions are [`sherwood_cache`]'s with declared
//! sizes, decisions are [`sherwood_policy`]'s. What is here is what surrounds a node in real life:
//! the time things take ([`EventQueue`]), workers and their queues ([`Station`]), the statistics
//! that travel between servers, and a judge who sees every request end.
//!
//! Nothing here reads a clock or draws from anywhere but the seed, and mathematics is `libm`'s: a
//! seed gives the same bytes on every machine. What went in is what came out at every step, or the
//! run ends with an [`Imbalance`]. Requests are drawn, or those of a [`Trace`] that the caller
//! opens.
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
mod beyond;
mod events;
mod frontier;
mod key;
mod partitions;
mod record;
mod recorded;
mod requests;
mod resize;
mod results;
mod sample;
mod server;
mod settings;
mod setup;
mod sizes;
mod slab;
mod station;
mod statistics;
mod traffic;
mod verdict;
mod world;

pub use events::EventQueue;
pub use frontier::{Axis, Board, Bracket, Next, Probe, STEPS_MAX, Search};
pub use recorded::{Requests, Trace, TraceStop};
pub use requests::Met;
pub use results::{Allocation, BackendSample, DominantRbc, LimitLine, Results, Sample};
pub use settings::{Setting, SettingError};
pub use setup::{Knobs, Resize, Setup, SetupError};
pub use station::Station;
pub use verdict::{Tally, Verdict};
pub use world::{ForkError, Halt, Imbalance, World};
