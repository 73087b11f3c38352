//! A generative model of a page-rendering service in front of many backends, in the style of OneRF.
//!
//! No production trace of such a service is public, so the mix of requests is *generated* from a
//! model fitted to the aggregates that RobinHood published (Berger et al., OSDI 2018, table 1 and
//! sections 2 and 5). The model comes as one JSON document, schema `onerf-workload/1`:
//! [`Model::onerf`] is the one built in, [`Model::from_json`] takes a user's.
//!
//! A [`Model`] holds four things. [`Profile`]s are scales: how many servers, how much cache, how
//! many requests a second. [`Backend`]s say how many objects there are, how popular and how large
//! each is, and how long a call takes. [`RequestType`]s say which backends a request asks and for
//! how many objects; [`RequestMix`] draws requests from them. [`Scenario`]s say which backends are
//! slowed down when; [`Limits`] is one realisation of that.
//!
//! A document may name a trace instead of request types, a [`Replay`]: then objects, their sizes
//! and their popularity are the trace's.
//!
//! What the model leaves out: temporal locality beyond popularity, correlation between the batches
//! of one request beyond its type, writes, and expiry.

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

pub use backend::{Backend, Expectation, Kind, PublishedRow, SizeLaw};
pub use limited::Limited;
pub use mix::{Batch, RequestMix};
pub use model::{Batching, Model, ModelError, Profile, RequestType, Slo};
pub use replay::{Replay, Route, Times};
pub use replicas::Replicas;
pub use scenario::{Course, Limits, RandomWalk, Scenario, Walk};
pub use service::{Measured, ServiceLaw};
