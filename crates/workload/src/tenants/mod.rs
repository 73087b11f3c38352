//! Scenarios of several tenants that share a cache and backends.
//!
//! A [`Scenario`] says what a simulation or a run against a node needs: the tenants' baselines, the
//! clients of each and what they ask for, and the backends with the resources that are rationed. It
//! is read from JSON or TOML ([`Scenario::from_json`], [`Scenario::from_toml`]), or is one of the
//! scenarios of HARE's evaluation ([`Published`]).
//!
//! [`Operations`] are the gets and sets of a [`Load`], whose keys, popularity, writes and scans may
//! change over time.
//!
//! ```
//! use sherwood_workload::Operation;
//! use sherwood_workload::tenants::{Operations, Published, Scenario};
//! use std::time::Duration;
//!
//! let scenario = Published::new("hare-skew").expect("it is built in").scenario().scaled(0.01);
//! let load = &scenario.tenants[1].loads[0];
//! let mut operations = Operations::new(load, 1);
//! let (Operation::Get(key) | Operation::Set(key)) = operations.next(Duration::ZERO);
//! assert!(key < load.keys);
//! ```

mod error;
mod operations;
mod pause;
mod published;
mod scenario;
mod validate;

pub use error::ScenarioError;
pub use operations::Operations;
pub use pause::pause_after_refusal;
pub use published::{Published, PublishedError, SCENARIOS};
pub use scenario::{
    Arrival, Backend, Change, Clients, Control, Decide, Load, Resource, Scenario, Tenant, UnitName,
};
pub use sherwood_model::Legs;
