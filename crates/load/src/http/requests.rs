//! Workloads as a stream of request bodies.

use std::io::BufRead;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use sherwood_workload::onerf::{Batch, RequestMix};
use sherwood_workload::trace::{TraceError, robinhood};
use sherwood_workload::{KeyValue, Rng, rng_from_seed};

use super::Workload;
use crate::LoadError;

/// A stream of bodies for `POST /v1/requests`.
pub(super) trait Requests: Send {
    /// Returns the body of the next request; none at the end of the workload.
    fn next(&mut self) -> Result<Option<Bytes>, TraceError>;
}

/// The answers that requests ask for.
#[derive(Clone, Copy)]
pub(super) struct Answers {
    /// True if they contain the values.
    pub(super) values: bool,
    /// The time by which they are wanted.
    pub(super) deadline: Option<Duration>,
}

/// Returns the workload's requests, at most `max`.
pub(super) fn from_workload(
    workload: Workload,
    answers: Answers,
    max: Option<u64>,
) -> Result<Box<dyn Requests>, LoadError> {
    let requests = all_of(workload, answers)?;
    Ok(match max {
        Some(left) => Box::new(Bounded { requests, left }),
        None => requests,
    })
}

/// The first requests of a workload, up to a maximum number.
struct Bounded {
    requests: Box<dyn Requests>,
    left: u64,
}

impl Requests for Bounded {
    fn next(&mut self) -> Result<Option<Bytes>, TraceError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        self.requests.next()
    }
}

fn all_of(workload: Workload, answers: Answers) -> Result<Box<dyn Requests>, LoadError> {
    Ok(match workload {
        Workload::Mix { model, profile, seed } => {
            let names = model.backends().iter().map(|backend| backend.name.clone()).collect();
            Box::new(Mix { mix: model.mix(&profile)?, rng: rng_from_seed(seed), names, answers })
        }
        Workload::KeySpace { backend, options, batch, seed } => {
            crate::within("batch", batch, 1..=crate::BATCH_MAX, "1 to 1000 keys")?;
            Box::new(KeySpace { backend, stream: KeyValue::new(options, seed)?, batch, answers })
        }
        Workload::RobinHood { input } => Box::new(RobinHood { requests: robinhood::read(input), answers }),
    })
}

#[derive(Serialize)]
struct Body<'a> {
    values: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<f64>,
    queries: Vec<Query<'a>>,
}

#[derive(Serialize)]
struct Query<'a> {
    backend: &'a str,
    keys: Vec<String>,
}

fn encode(answers: Answers, queries: Vec<Query<'_>>) -> Bytes {
    let Answers { values, deadline } = answers;
    let body =
        Body { values, deadline_ms: deadline.map(|deadline| deadline.as_nanos() as f64 / 1e6), queries };
    serde_json::to_vec(&body).expect("a body has string keys only and a vector takes every write").into()
}

/// Returns a request for keys of one backend, without their values.
pub(super) fn one_query(backend: &str, keys: Vec<String>) -> Bytes {
    encode(Answers { values: false, deadline: None }, vec![Query { backend, keys }])
}

struct Mix {
    mix: RequestMix,
    rng: Rng,
    names: Vec<String>,
    answers: Answers,
}

impl Requests for Mix {
    fn next(&mut self) -> Result<Option<Bytes>, TraceError> {
        let request = self.mix.next_request(&mut self.rng);
        let queries = request.iter().map(|Batch { backend, objects }| Query {
            backend: &self.names[backend.index()],
            keys: objects.iter().map(|object| object_key(*object)).collect(),
        });
        Ok(Some(encode(self.answers, queries.collect())))
    }
}

/// Returns the key of an object of the workload's model, such as `o42`.
fn object_key(object: u64) -> String {
    format!("o{object}")
}

struct KeySpace {
    backend: String,
    stream: KeyValue,
    batch: usize,
    answers: Answers,
}

impl Requests for KeySpace {
    fn next(&mut self) -> Result<Option<Bytes>, TraceError> {
        let mut drawn = Vec::with_capacity(self.batch);
        self.stream.extend_batch(&mut drawn, self.batch);
        let keys = drawn.into_iter().map(|key| key_text(&self.stream, key)).collect();
        let query = Query { backend: &self.backend, keys };
        Ok(Some(encode(self.answers, vec![query])))
    }
}

/// Returns the text of a key of the key space.
fn key_text(stream: &KeyValue, key: u64) -> String {
    let mut text = Vec::new();
    stream.write_key(key, &mut text);
    String::from_utf8(text).expect("keys are made of text and digits")
}

struct RobinHood {
    requests: robinhood::Requests<Box<dyn BufRead + Send>>,
    answers: Answers,
}

impl Requests for RobinHood {
    fn next(&mut self) -> Result<Option<Bytes>, TraceError> {
        let Some(request) = self.requests.next().transpose()? else {
            return Ok(None);
        };
        let queries = request.layers.iter().flatten().map(|query| Query {
            backend: &query.backend,
            keys: query.objects.iter().map(|object| object.key.clone()).collect(),
        });
        Ok(Some(encode(self.answers, queries.collect())))
    }
}
