//! Simulation of sPARE's evaluation: web applications of two tiers, whose servers are slowed down by
//! neighbours on their machines.
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
//! R. Birke, J. F. Pérez, Z. Qiu, M. Björkqvist and L. Y. Chen, *sPARE: Partial Replication for
//! Multi-tier Applications in the Cloud*, IEEE Transactions on Parallel and Distributed Systems.

#![expect(dead_code, reason = "the world of these scenarios follows")]

mod key;
mod policy;
mod scenario;
mod settings;
mod setup;

pub use policy::{Policy, policies};
pub use scenario::{SCENARIOS, Scenario};
pub use setup::{Knobs, Setup, SetupError};

use sherwood_model::BackendId;

/// The tiers, which are backends of the only node.
const TIERS: [BackendId; 2] = [PAGES, QUERIES];
const PAGES: BackendId = BackendId(0);
const QUERIES: BackendId = BackendId(1);
