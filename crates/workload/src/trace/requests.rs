//! Any trace as requests: queries to backends, with arrival times.
//!
//! RobinHood's traces consist of requests. In the other formats a declared number of accesses form
//! a request, each to the backend given by a declared rule. Objects are identified by a 64-bit
//! hash, separately for each backend.

use std::io::BufRead;

use sherwood_model::{BackendId, SeededState};

use super::records::Records;
use super::{Position, TraceError, twitter};
use crate::onerf::{ObjectRoute, Replay, Times};

/// A request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Position of the request in the trace.
    pub at: Position,
    /// Arrival time as recorded, in the trace's unit; 0 if not recorded. Non-decreasing.
    pub time: i64,
    /// Queries of the request, which start at the same time: at most one per backend, and at least
    /// one.
    pub queries: Vec<Query>,
}

/// A query of a request to one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Backend that is queried.
    pub backend: BackendId,
    /// Objects in the order of the trace, with repeats; at least one.
    pub objects: Vec<Object>,
}

/// An object of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Hash of the object's key.
    pub id: u64,
    /// Length of the object's value in bytes; none if it may not be cached.
    pub bytes: Option<u32>,
}

/// Iterator over the requests of a trace, in order; it ends after an error.
///
/// All layers of a RobinHood request start at once. Of accesses only gets are read; a get without a
/// recorded size has the declared one. Memory: one request, and the unpacked size of packed input.
#[derive(Debug)]
pub struct Requests<R> {
    replay: Replay,
    route: ObjectRoute,
    /// Number of objects of which one is read, with all of its accesses.
    sample: u64,
    /// Names of the backends, to which the trace refers.
    names: Vec<String>,
    records: Records<R>,
    /// Hash function of keys; the same in every run.
    hash: SeededState,
    /// The latest arrival time read so far; none before the first.
    latest: Option<i64>,
    ended: bool,
}

/// A get of an object in a trace of single accesses.
struct Access {
    at: Position,
    time: i64,
    backend: BackendId,
    object: Object,
}

/// Starts reading `input` as declared by `replay`; an xz file is unpacked first. `names` are the
/// backends' names. Of accesses, only those to one in `sample` objects (at least 1), chosen by a
/// hash, are read.
///
/// # Errors
/// See [`unpacked`](super::unpacked).
pub fn read<R: BufRead>(
    input: R,
    replay: &Replay,
    names: Vec<String>,
    sample: u32,
) -> Result<Requests<R>, TraceError> {
    Ok(Requests {
        replay: replay.clone(),
        route: replay.route(),
        sample: sample.max(1).into(),
        names,
        records: Records::read(replay.format, input)?,
        hash: SeededState::new(0),
        latest: None,
        ended: false,
    })
}

impl<R: BufRead> Iterator for Requests<R> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next =
            self.next_request().and_then(|request| request.map(|request| self.in_order(request)).transpose());
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

impl<R: BufRead> Requests<R> {
    fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        if let Records::RobinHood(_) = self.records {
            return self.next_whole();
        }
        let Some(first) = self.next_get()? else { return Ok(None) };
        let mut request = Request { at: first.at, time: first.time, queries: Vec::new() };
        request.ask(first.backend, first.object);
        for _ in 1..self.replay.batch() {
            let Some(access) = self.next_get()? else { break };
            request.ask(access.backend, access.object);
        }
        Ok(Some(request))
    }

    /// The next request of a trace of requests; those without queries are skipped.
    fn next_whole(&mut self) -> Result<Option<Request>, TraceError> {
        let Records::RobinHood(requests) = &mut self.records else { return Ok(None) };
        while let Some(whole) = requests.next().transpose()? {
            let mut request = Request { at: requests.last_at(), time: whole.time, queries: Vec::new() };
            for query in whole.layers.into_iter().flatten() {
                let backend = named(&self.names, &query.backend, request.at)?;
                for object in query.objects {
                    let bytes = object.cacheable.then_some(object.bytes);
                    request.ask(backend, Object { id: self.hash.hash_bytes(object.key.as_bytes()), bytes });
                }
            }
            if !request.queries.is_empty() {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    /// The next get of an object in the sample.
    fn next_get(&mut self) -> Result<Option<Access>, TraceError> {
        loop {
            match self.next_of_all()? {
                Some(access) if !access.object.id.is_multiple_of(self.sample) => {}
                access => return Ok(access),
            }
        }
    }

    /// The next get of any object, in the sample or not.
    fn next_of_all(&mut self) -> Result<Option<Access>, TraceError> {
        let (replay, records) = (&self.replay, &mut self.records);
        let (at, time, id, bytes, backend) = match records {
            Records::Cache2k(accesses) => {
                let Some(access) = accesses.next().transpose()? else { return Ok(None) };
                let id = self.hash.hash_bytes(&access.word().to_be_bytes());
                let backend = self.route.by_type(access.object_type());
                (accesses.last_at(), 0, id, replay.value_bytes(), backend)
            }
            Records::OracleGeneral(accesses) => {
                let Some(access) = accesses.next().transpose()? else { return Ok(None) };
                let id = self.hash.hash_bytes(&access.object.to_le_bytes());
                (accesses.last_at(), access.time_s.into(), id, access.bytes, None)
            }
            Records::Twitter(operations) => {
                let get = |operation: &Result<twitter::Operation, _>| !matches!(operation, Ok(operation) if operation.verb != twitter::Verb::Get);
                let Some(operation) = operations.find(get).transpose()? else { return Ok(None) };
                let id = self.hash.hash_bytes(operation.key.as_bytes());
                let bytes =
                    if operation.value_bytes == 0 { replay.value_bytes() } else { operation.value_bytes };
                let time = i64::try_from(operation.time_s).unwrap_or(i64::MAX);
                (operations.last_at(), time, id, bytes, self.route.by_key(&operation.key))
            }
            Records::RobinHood(_) => return Ok(None),
        };
        let Some(backend) = backend.or_else(|| self.route.by_hash(id)) else {
            let detail = "give it a backend there, or all that have none by `others`".to_owned();
            return Err(TraceError::Record {
                at,
                expected: "an access that `trace.route` knows a backend for",
                detail,
            });
        };
        Ok(Some(Access { at, time, backend, object: Object { id, bytes: Some(bytes) } }))
    }

    /// Returns the request if its time is not before that of the previous one.
    fn in_order(&mut self, mut request: Request) -> Result<Request, TraceError> {
        if self.replay.times() == Times::Rate {
            request.time = 0;
        }
        match self.latest.replace(request.time) {
            Some(before) if before > request.time => Err(TraceError::Record {
                at: request.at,
                expected: "in the order of time",
                detail: format!(
                    "its time is {}, after {before}; sort the trace, or set `trace.times` to \"rate\"",
                    request.time
                ),
            }),
            _ => Ok(request),
        }
    }
}

impl Request {
    /// Adds an object to the request's query to `backend`.
    fn ask(&mut self, backend: BackendId, object: Object) {
        match self.queries.iter_mut().find(|query| query.backend == backend) {
            Some(query) => query.objects.push(object),
            None => self.queries.push(Query { backend, objects: vec![object] }),
        }
    }
}

/// Returns the backend called `name`.
fn named(names: &[String], name: &str, at: Position) -> Result<BackendId, TraceError> {
    let place = names.iter().position(|known| known == name);
    place.map(BackendId::from_index).ok_or_else(|| TraceError::Record {
        at,
        expected: "a request to the backends of the scenario",
        detail: format!("it asks `{name}`; there are: {}", names.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(json: &str) -> Replay {
        serde_json::from_str(&format!(r#"{{"file":"f",{json}}}"#)).expect("a declaration")
    }

    fn names() -> Vec<String> {
        ["a", "b"].map(str::to_owned).to_vec()
    }

    fn requests(input: &[u8], json: &str) -> Vec<Request> {
        read(input, &replay(json), names(), 1).unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn error(input: &[u8], json: &str) -> String {
        let mut requests = read(input, &replay(json), names(), 1).unwrap();
        let error = requests.find_map(Result::err).expect("it is wrong").to_string();
        assert!(requests.next().is_none(), "an error is the end");
        error
    }

    /// Backends and numbers of objects of a request.
    fn shape(request: &Request) -> Vec<(u16, usize)> {
        request.queries.iter().map(|query| (query.backend.0, query.objects.len())).collect()
    }

    #[test]
    fn accesses_are_grouped_into_requests_and_routed_to_backends() {
        let words =
            [1_u32 << 27 | 5, 2 << 27 | 5, 1 << 27 | 6, 1 << 27 | 5, 3 << 27].map(u32::to_be_bytes).concat();
        let json = r#""format":"cache2k","value_bytes":100,"batch":3,"route":{"types":{"1":1},"others":2}"#;
        let found = requests(&words, json);
        assert_eq!(found.iter().map(shape).collect::<Vec<_>>(), [vec![(0, 2), (1, 1)], vec![(0, 1), (1, 1)]]);
        assert_eq!(found[0].queries[0].objects[0], found[1].queries[0].objects[0]);
        assert_eq!((found[1].at, found[1].queries[1].objects[0].bytes), (Position::Byte(12), Some(100)));
        let unknown = error(&words, r#""format":"cache2k","value_bytes":1,"route":{"types":{"1":1,"2":1}}"#);
        assert!(
            unknown.contains("byte 16 is not an access that `trace.route` knows a backend for"),
            "{unknown}"
        );
    }

    #[test]
    fn twitter_gets_are_read_with_times_and_writes_left_out() {
        let text = "7,u:1,20,0,1,get,0\n7,u:1,20,50,1,set,0\n9,v:1,20,30,1,gets,0\n9,u:x:2,20,4,1,get,0\n";
        let json = r#""format":"twitter","value_bytes":9,"route":{"prefixes":{"u:":1,"u:x":2},"others":2}"#;
        let found = requests(text.as_bytes(), json);
        assert_eq!(found.iter().map(shape).collect::<Vec<_>>(), [[(0, 1)], [(1, 1)], [(1, 1)]]);
        assert_eq!(found.iter().map(|request| request.time).collect::<Vec<_>>(), [7, 9, 9]);
        let bytes = |request: &Request| request.queries[0].objects[0].bytes;
        assert_eq!(found.iter().map(bytes).collect::<Vec<_>>(), [Some(9), Some(30), Some(4)]);
        assert_eq!(requests(text.as_bytes(), &format!(r#"{json},"times":"rate""#))[2].time, 0);
        let back = error(format!("{text}8,v:1,20,30,1,get,0\n").as_bytes(), json);
        assert_eq!(
            back,
            "the trace at line 5 is not in the order of time: its time is 8, after 9; sort the trace, or set \
             `trace.times` to \"rate\""
        );
    }

    #[test]
    fn objects_are_divided_among_backends_by_the_declared_shares() {
        let record = |object: u64| [&[0; 4][..], &object.to_le_bytes(), &[8, 0, 0, 0], &[0; 8]].concat();
        let file: Vec<u8> = (0..4_000).flat_map(record).collect();
        let found = requests(&file, r#""format":"oracleGeneral","route":{"shares":{"1":0.75,"2":0.25}}"#);
        let first = found.iter().filter(|request| request.queries[0].backend.0 == 0).count();
        assert!((2_900..3_100).contains(&first), "{first}");
    }

    #[test]
    fn sample_of_objects_has_all_accesses_to_them_in_full_batches() {
        let words: Vec<u8> = (0..4_000_u32).flat_map(|n| (n % 500).to_be_bytes()).collect();
        let replay = replay(r#""format":"cache2k","value_bytes":1,"batch":5"#);
        let objects = |sample| {
            let found =
                read(&words[..], &replay, names(), sample).unwrap().map(|request| request.unwrap().queries);
            let (whole, rest): (Vec<_>, Vec<_>) =
                found.map(|mut queries| queries.remove(0).objects).partition(|objects| objects.len() == 5);
            assert!(rest.len() <= 1, "the last may be smaller");
            whole.into_iter().chain(rest).flatten().map(|object| object.id).collect::<Vec<_>>()
        };
        let (all, quarter) = (objects(1), objects(4));
        assert_eq!(all.len(), 4_000);
        assert!((600..1_400).contains(&quarter.len()) && quarter.len() % 8 == 0, "{}", quarter.len());
        assert_eq!(quarter, all.into_iter().filter(|id| id.is_multiple_of(4)).collect::<Vec<_>>());
    }

    #[test]
    fn robinhood_requests_are_read_whole_and_empty_ones_skipped() {
        let line =
            r#"{"t":3,"d":[{"b":{"S":[1,2],"U":["x","x"],"C":[1,0]}},{"a":{"S":[3],"U":["x"],"C":[1]}}]}"#;
        let empty = r#"{"t":2,"d":[{}]}"#;
        let found = requests(format!("{empty}\n{line}\n").as_bytes(), r#""format":"robinhood","times":"ms""#);
        assert_eq!(found.len(), 1, "a request without queries is skipped");
        assert_eq!(
            (shape(&found[0]), found[0].time, found[0].at),
            (vec![(1, 2), (0, 1)], 3, Position::Line(2))
        );
        let bytes: Vec<_> = found[0].queries[0].objects.iter().map(|object| object.bytes).collect();
        assert_eq!(bytes, [Some(1), None]);
        let unknown = error(line.replace("\"a\"", "\"c\"").as_bytes(), r#""format":"robinhood""#);
        assert_eq!(
            unknown,
            "the trace at line 1 is not a request to the backends of the scenario: it asks `c`; there are: a, b"
        );
        let cut = error(format!("{line}\n{}", &line[..40]).as_bytes(), r#""format":"robinhood""#);
        assert!(cut.contains("line 2: the file is truncated"), "{cut}");
    }
}
