//! One request from arrival to finish.
//!
//! What a user waits for is not a query but a request, and a request is as slow as the last key of
//! its slowest query. So somebody has to hold a request together: look every key up, hand what
//! misses to the backends' dispatchers, take the answers as they come, each key for itself, and say
//! at the end how long it took and who was the last. That is a [`Request`]. It waits for nothing
//! and nobody: a driver carries [`QueryFetch`]es to `sherwood_dispatch::Dispatch` and the results
//! back, and [`fill`]s the cache once for each key delivered, however many requests wait for it.
//!
//! ```
//! use sherwood_cache::{Access, Cache, Options, Partition, Value};
//! use sherwood_dispatch::{Action, Dispatch, Options as DispatchOptions, Reply};
//! use sherwood_model::{BackendId, Demand, Instant, PartitionId, SeededState, TenantId};
//! use sherwood_path::{Query, Request, Staleness, fill};
//!
//! let (backend, partition) = (BackendId(0), PartitionId(0));
//! let partitions = [Partition::new(TenantId(0), backend, 1 << 20)];
//! let cache = Cache::new(Options::default(), &partitions, SeededState::new(1))?;
//! let options = DispatchOptions::default();
//! let (timeout, staleness) = (options.timeout, Staleness::default());
//! let mut dispatch = Dispatch::new(options, 1, SeededState::new(2))?;
//!
//! let arrived = Instant::from_millis(0);
//! let (keys, demand) = (vec!["p:1"], Demand::default());
//! let query = Query { backend, partition, keys, demand, timeout, staleness };
//! let mut request: Request<&str, u32> = Request::start(arrived, vec![query]);
//! for fetch in request.look_up(&cache, &Access::at(arrived), |_, _, item| item.value.len() as u32) {
//!     dispatch.handle_fetch(arrived, &fetch.demand, fetch.keys, 0x5eed);
//! }
//!
//! // Four milliseconds later the backend has answered: the object has 1,200 bytes.
//! let now = Instant::from_millis(4);
//! let Some(Action::Call { attempt, .. }) = dispatch.poll_action() else { panic!("one call") };
//! dispatch.handle_reply(now, attempt, Reply::Ok(vec![Some(1_200)]));
//! while let Some(Action::Deliver { key, result, fill: may_fill, waiters }) = dispatch.poll_action() {
//!     if let (true, Ok(Some(bytes))) = (may_fill, &result) {
//!         fill(&cache, partition, key.as_bytes(), Value::Declared(*bytes), None, &Access::at(now))?;
//!     }
//!     for slot in waiters {
//!         request.handle_result(now, slot, result.clone());
//!     }
//! }
//! let finished = request.finished().expect("every key has its answer");
//! assert_eq!((finished.latency_us, finished.blocking), (4_000, Some(backend)));
//! assert_eq!(cache.usage(partition).items, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod fill;
mod freshness;
mod query;
mod refresh;
mod request;
mod write;

pub use answer::{Alike, Answer, Status};
pub use fill::fill;
pub use freshness::{Fetched, Lifetime, Rules, Staleness};
pub use query::{Query, QueryFetch, Slot};
pub use refresh::Refreshes;
pub use request::Request;
pub use write::{Begun, Ended, Outcome, Settled, Write, WriteId, WriteOptions, WriteRefused, Writes};
