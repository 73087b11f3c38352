//! Simulation of tenants that share a cache and backends, each with a baseline of both.
//!
//! A [`Scenario`](sherwood_workload::tenants::Scenario) gives the tenants' clients and loads. A
//! [`Policy`] divides the cache and the rates of all resources among them. Everything that decides
//! is a node's: the cache with a partition for each tenant and backend, its miss ratio curves, a
//! [`sherwood_path::Backend`] for each backend with the tenants' rates in front of it, and the
//! policies of [`sherwood_policy::tenants`]. This module adds the clients, backends that answer
//! after a fixed time, and the bookkeeping.
//!
//! # Model
//! An operation reaches the node at once if its tenant's rate of network allows, and its answer the
//! client a tenth of a millisecond after that ([`ROUND_TRIP`]). A call of a backend takes the
//! backend's latency, whatever else it serves, up to its number of slots. A client of a closed loop
//! sends its next request when it has the answer to the last.
//!
//! Before a run, and after the single decision of a steady scenario, caches are filled as they
//! would be after a long time of the same load, without time passing.
//!
//! Policies are judged against a run of `baseline` with the same seed ([`Measured`]): a tenant's
//! *normalized* throughput is its own divided by that in the baseline's run over the same seconds.
//!
//! ```
//! use sherwood_sim::tenants::{Setup, World};
//!
//! let mut setup = Setup::published("hare-skew", "drf", 1).expect("it is built in");
//! setup.scale = 0.01;
//! setup.set("seconds", "40+20")?;
//! let mut world = World::new(&setup)?;
//! world.advance(world.end())?;
//! let mut base = World::new(&setup.baseline())?;
//! base.advance(base.end())?;
//! let results = world.results(&base.measured());
//! assert!(results.tenants.iter().all(|tenant| tenant.normalized > 0.8));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod clients;
mod control;
mod key;
mod part;
mod policy;
mod record;
mod requests;
mod results;
mod settings;
mod setup;
mod warm;
mod within;
mod world;

pub use policy::{BASELINE, Policy, policies};
pub use record::{Measured, Sample, TenantMeasured, TenantSample};
pub use requests::TenantRequest;
pub use results::{ByResource, ByTenant, Holdings, Results};
pub use setup::{Knobs, Setup, SetupError};
pub use world::{ROUND_TRIP, Tenants, World};
