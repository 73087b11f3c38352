//! A generative model of a page-rendering service with many backends, in the style of OneRF.
//!
//! No production trace of such a service is public, so requests are generated from a model fitted
//! to the aggregates that RobinHood published (Berger et al., OSDI 2018, table 1 and sections 2 and
//! 5). The model is a JSON document of schema `onerf-workload/1`: [`Model::onerf`] is the built-in
//! one, [`Model::from_json`] reads a user's.
//!
//! A [`Model`] holds four parts. [`Profile`]s are scales: number of servers, cache size, request
//! rate. [`BackendModel`]s define the number, popularity and size of objects and the time of a
//! call. [`RequestType`]s define which backends a request queries and for how many objects;
//! [`RequestMix`] draws requests from them. [`Scenario`]s define when backends are slowed down;
//! [`Limits`] is one realisation of a scenario.
//!
//! A document may name a trace instead of request types, a [`Replay`]: objects, their sizes and
//! their popularity are then those of the trace.
//!
//! The model leaves out temporal locality beyond popularity, correlation between the batches of one
//! request beyond its type, writes, and expiry.

mod backend;
mod limited;
mod mix;
mod model;
mod replay;
mod replicas;
mod scenario;
mod service;
#[cfg(test)]
mod tests;
mod validate;

pub use backend::{BackendModel, Expectation, LimitedResource, PublishedRow, SizeLaw};
pub use limited::Limited;
pub use mix::{Batch, RequestMix};
pub use model::{Batching, Model, ModelError, Profile, RequestType, Slo};
pub use replay::{ObjectRoute, Replay, Times};
pub use replicas::Replicas;
pub use scenario::{Course, Limits, RandomWalk, Scenario, Walk};
pub use service::{Measured, ServiceLaw};
