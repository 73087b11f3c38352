//! The path of a request: from its arrival, past the cache and its backends, to its end.
//!
//! A user waits for a request, not for a query, and a request takes as long as the last key of its
//! slowest query. A [`Request`] looks up every key, returns the keys to fetch, takes their results,
//! and reports at the end its latency and the backend that answered last.
//!
//! A [`Backend`] makes the decisions for one backend: which fetches and writes are sent to which
//! replica and when, and which results the cache keeps.
//!
//! Neither blocks, draws random numbers or has a clock. A driver carries [`QueryFetch`]es to
//! backends, actions to replicas and results back.
//!
//! ```
//! use sherwood_cache::{Access, Cache, Options, Partition, Value};
//! use sherwood_dispatch::{Options as DispatchOptions, Reply};
//! use sherwood_model::{BackendId, Demand, Instant, PartitionId, SeededState, Tags, TenantId};
//! use sherwood_path::{
//!     Action, AnswerCache, Backend, BackendOptions, FetchKey, Fetched, Query, Request, Staleness,
//! };
//!
//! /// Keeps the sizes of objects.
//! struct Sizes<'a>(&'a Cache);
//!
//! impl AnswerCache<u32> for Sizes<'_> {
//!     fn cache(&self) -> &Cache {
//!         self.0
//!     }
//!
//!     fn fetched<'a>(&self, bytes: &'a u32) -> Fetched<'a> {
//!         Fetched { value: Value::Declared(*bytes), flags: 0, good_for: None, tags: Tags::NONE }
//!     }
//! }
//!
//! let (id, partition) = (BackendId(0), PartitionId(0));
//! let partitions = [Partition::new(TenantId(0), id, 1 << 20)];
//! let cache = Cache::new(Options::default(), &partitions, SeededState::new(1))?;
//! let options = BackendOptions::new(DispatchOptions::default(), 1, vec![partition]);
//! let (timeout, staleness) = (options.dispatch.timeout, Staleness::default());
//! let arrived = Instant::from_millis(0);
//! let mut backend = Backend::new(options, arrived, SeededState::new(2))?;
//!
//! let (keys, demand) = (vec!["p:1"], Demand::default());
//! let query = Query { backend: id, partition, keys, demand, timeout, staleness, shared: None };
//! let mut request: Request<&str, u32> = Request::start(arrived, vec![query]);
//! for fetch in request.look_up(&cache, &Access::at(arrived), |_, _, item| item.value.len() as u32) {
//!     let keys = fetch.keys.into_iter().map(|(key, slot)| (FetchKey { partition, key }, slot));
//!     backend.handle_fetch(arrived, &Sizes(&cache), &fetch.demand, keys, 0x5eed);
//! }
//!
//! // Four milliseconds later the backend has answered: the object has 1,200 bytes.
//! let now = Instant::from_millis(4);
//! let Some(Action::Call { attempt, .. }) = backend.poll_action() else { panic!("one call") };
//! backend.handle_reply(now, &Sizes(&cache), attempt, Reply::Ok(vec![Some(1_200)]));
//! while let Some(Action::Deliver { result, waiters, .. }) = backend.poll_action() {
//!     for slot in waiters {
//!         request.handle_result(now, slot, result.clone());
//!     }
//! }
//! let finished = request.finished().expect("every key has its answer");
//! assert_eq!((finished.latency_us, finished.blocking()), (4_000, Some(id)));
//! assert_eq!(cache.usage(partition).items, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod backend;
mod fences;
mod freshness;
mod peers;
mod query;
mod request;
mod revalidation;

pub use answer::{Answer, LatencyGroup, Status};
pub use backend::{
    Action, AnswerCache, Backend, BackendOptions, BackendUse, CallCost, Change, Consistency, DUPLICATES_MAX,
    DuplicateEvent, DuplicateOptions, DuplicateStanding, DuplicateStep, FetchKey, FillCounts, Holdings,
    Invalidation, LayoutError, Logged, LogsStanding, Placement, Session, SessionError, Units, Write,
    WriteOptions, WriteOrder, WriteTo, partition_of, possible_layouts,
};
pub use fences::{WriteId, WriteOutcome, WriteRefused};
pub use freshness::{Fetched, Lifetime, Rules, Staleness};
pub use peers::{
    Announced, Beat, ChangedKeys, Changes, OverallTrust, PeerAction, PeerBeat, PeerMessage, PeerOptions,
    PeerReport, PeerStanding, Peers, SharedBackends, SharedChange, SharedTerms, SharedValues, WithoutBus,
};
pub use query::{Query, QueryFetch, Slot, classify};
pub use request::Request;
pub use sherwood_dispatch::Acknowledge;
pub use sherwood_model::DemandCounts;
