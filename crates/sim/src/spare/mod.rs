//! Simulation of sPARE's evaluation: web applications of two tiers, whose servers are slowed down
//! by neighbours on their machines.
//!
//! Users read pages. A server of the first tier makes a page in parts, with a query to a server of
//! the second tier between two parts. Both tiers have more servers than the load needs, but at any
//! time some of them are slow, and calls wait for slow servers although others are idle. A
//! [`Policy`] chooses the servers, and how many copies of a page and of a query are made.
//!
//! The decisions are a node's: each tier is a [`sherwood_path::Backend`], which chooses the servers
//! of calls and makes the copies. A copy of a page that is served asks the second tier over one
//! connection of its own. This module adds the arrivals, the servers and the bookkeeping.
//!
//! # Model
//! The cores of a server are shared by the calls in service. Pages arrive by a Poisson process. The
//! work of a page and of each query is drawn from seed and number alone: it is common to all copies
//! and policies, and so are the times of neighbours. What copies differ in is the slowdown of their
//! server.
//!
//! ```
//! use sherwood_sim::spare::{Scenario, Setup, World};
//!
//! let mut setup = Setup::new(Scenario::by_name("spare-solr").expect("known"), "none", 1);
//! setup.set("seconds", "5+60")?;
//! let mut world = World::new(&setup)?;
//! world.advance(world.end())?;
//! let results = world.results();
//! assert!(results.complete && results.requests > 2_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! R. Birke, J. F. Pérez, Z. Qiu, M. Björkqvist and L. Y. Chen, *sPARE: Partial Replication for
//! Multi-tier Applications in the Cloud*, IEEE Transactions on Parallel and Distributed Systems.

mod key;
mod policy;
mod results;
mod scenario;
mod settings;
mod setup;
mod world;

pub use policy::{Policy, TIMEOUT, policies};
pub use results::{Results, Sample};
pub use scenario::{SCENARIOS, Scenario};
pub use setup::{Knobs, Setup, SetupError};
pub use world::{Spare, World};

use sherwood_model::BackendId;

/// The tiers, which are backends of the only node.
const TIERS: [BackendId; 2] = [PAGES, QUERIES];
const PAGES: BackendId = BackendId(0);
const QUERIES: BackendId = BackendId(1);
