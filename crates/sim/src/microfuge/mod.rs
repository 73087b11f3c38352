//! Simulation of MicroFuge's evaluation: clients with deadlines in front of a cache and a store.
//!
//! Sixteen servers keep the data, each record on three of them that are neighbours on a ring. A
//! cache holds a fifth of the data. Clients read (and write) records drawn as YCSB draws them and
//! know by when they need the answer: the same record always has the same deadline. In a closed
//! loop, each client sends its next request when it has the answer of the last; in an open loop,
//! requests arrive at a rate, whatever becomes of them.
//!
//! A [`Policy`] is the cache, the rules of the dispatcher and the behaviour of the clients. The
//! decisions are a node's: a single [`sherwood_path::Backend`] stands for the clients and the
//! schedulers of all servers, so that its queue of a replica is the server's, shared by all
//! clients. This module adds the clients, the time that a server needs and the bookkeeping.
//!
//! If admission has a target, β is chosen as a node's control loop chooses it, every 5 s, from the
//! requests that ended.
//!
//! # Model
//! A look-up in the cache takes half a millisecond, which stands for the network, too. A read that
//! misses occupies a slot of a server for a time of [`ReadTimes`](sherwood_workload::ReadTimes),
//! which depends on seed, client and number of the request alone: all policies meet the same times.
//! A write occupies a slot of each of its record's servers as long as a read from memory.
//!
//! Clients of a look-aside cache fetch what they miss by themselves: two of them that miss the same
//! record make two reads. Through a node, the second joins the first.
//!
//! ```
//! use sherwood_sim::microfuge::{Setup, World};
//!
//! let mut setup = Setup::new("memcached+p2c", 1);
//! setup.set("clients", "24")?;
//! setup.set("records", "2000")?;
//! setup.set("seconds", "1+2")?;
//! let mut world = World::new(&setup)?;
//! world.advance(world.end())?;
//! let results = world.results();
//! assert!(results.complete && results.requests > 1_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod clairvoyant;
mod clients;
mod key;
mod policy;
mod requests;
mod results;
mod settings;
mod setup;
mod world;

pub use policy::{Policy, policies};
pub use requests::ScheduledRead;
pub use results::{ByDeadline, ByTenant, Results, Sample, Shares};
pub use setup::{Keys, Knobs, Setup, SetupError, Tenants};
pub use world::{MicroFuge, World};

/// Name of the scenario.
pub const SCENARIO: &str = "microfuge";

/// Maximum and default number of servers.
const SERVERS: u16 = 16;
/// Number of servers with a record.
const COPIES: u16 = 3;
