//! Requests in the JSON lines of RobinHood's test bed.
//!
//! Each line is one object: `t`, an integer time stamp that is not used for pacing, and `d`, the
//! request's layers, each a map from a backend's name to three parallel arrays: `S` sizes in bytes,
//! `U` keys, `C` whether the object may be cached (0 or 1). Layers follow one another; the backends
//! of a layer are queried in parallel.
//!
//! ```
//! use sherwood_workload::trace::robinhood;
//! let line = r#"{"t":0,"d":[{"b1":{"S":[20788],"U":["8d4d"],"C":[1]}}]}"#;
//! let request = robinhood::read(line.as_bytes()).next().unwrap().unwrap();
//! assert_eq!(request.layers[0][0].backend, "b1");
//! assert_eq!(request.layers[0][0].objects[0].bytes, 20788);
//! ```

use std::io::BufRead;

use serde::Deserialize;
use sherwood_model::misread;

use super::{Position, TraceError, read_line};
use crate::unique::Unique;

/// A request of a RobinHood trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Time stamp as recorded; not suitable for pacing.
    pub time: i64,
    /// Layers, one after the other; the queries of a layer in the order of their backends' names,
    /// one per backend.
    pub layers: Vec<Vec<Query>>,
}

/// A query of a request to one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The backend's name.
    pub backend: String,
    /// The objects in the order of the trace, with repeats.
    pub objects: Vec<Object>,
}

/// An object of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Key of the object within its backend.
    pub key: String,
    /// Size of the object in bytes.
    pub bytes: u32,
    /// True if the object may be cached.
    pub cacheable: bool,
}

/// Iterator over the requests of a trace, in order; it ends after an error.
#[derive(Debug)]
pub struct Requests<R> {
    input: R,
    line: u64,
    buffer: Vec<u8>,
    ended: bool,
}

/// The longest line in bytes; a request of 300 objects takes about 12 KB.
pub const LINE_BYTES_MAX: usize = 16 << 20;

const A_REQUEST: &str = "a request {\"t\":…,\"d\":[{backend:{\"S\":[…],\"U\":[…],\"C\":[…]}}]}";

/// Starts reading `input`. Blank lines are skipped.
#[must_use]
pub fn read<R: BufRead>(input: R) -> Requests<R> {
    Requests { input, line: 0, buffer: Vec::new(), ended: false }
}

impl<R> Requests<R> {
    /// Position of the request that was read last.
    pub(super) const fn last_at(&self) -> Position {
        Position::Line(self.line)
    }
}

impl<R: BufRead> Iterator for Requests<R> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let parsed = self.next_line();
            self.ended = !matches!(parsed, Ok(TraceLine::Blank | TraceLine::Request(_)));
            match parsed {
                Ok(TraceLine::Request(request)) => return Some(Ok(request)),
                Ok(TraceLine::Blank | TraceLine::None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}

enum TraceLine {
    None,
    Blank,
    Request(Request),
}

impl<R: BufRead> Requests<R> {
    fn next_line(&mut self) -> Result<TraceLine, TraceError> {
        self.line += 1;
        let at = Position::Line(self.line);
        if !read_line(&mut self.input, &mut self.buffer, at, A_REQUEST, LINE_BYTES_MAX)? {
            return Ok(TraceLine::None);
        }
        if self.buffer.trim_ascii().is_empty() {
            return Ok(TraceLine::Blank);
        }
        parse(&self.buffer, at).map(TraceLine::Request)
    }
}

fn parse(line: &[u8], at: Position) -> Result<Request, TraceError> {
    let document: Document = serde_json::from_slice(line).map_err(|error| {
        // Only the last line may lack its end; an incomplete record there is most likely truncated.
        if error.is_eof() && !line.ends_with(b"\n") {
            TraceError::Truncated { at, expected: A_REQUEST }
        } else {
            TraceError::Record { at, expected: A_REQUEST, detail: misread::json(&error) }
        }
    })?;
    let layers = document
        .layers
        .into_iter()
        .map(|Unique(layer)| layer.into_iter().map(|(name, arrays)| arrays.query(name, at)));
    let layers = layers.map(Iterator::collect).collect::<Result<_, _>>()?;
    Ok(Request { time: document.time, layers })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "t")]
    time: i64,
    #[serde(rename = "d")]
    layers: Vec<Unique<String, Arrays>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arrays {
    #[serde(rename = "S")]
    sizes: Vec<u32>,
    #[serde(rename = "U")]
    keys: Vec<String>,
    #[serde(rename = "C")]
    cacheable: Vec<u8>,
}

impl Arrays {
    fn query(self, backend: String, at: Position) -> Result<Query, TraceError> {
        let Self { sizes, keys, cacheable } = self;
        let wrong = |detail| TraceError::Record { at, expected: A_REQUEST, detail };
        if sizes.len() != keys.len() || keys.len() != cacheable.len() {
            let (s, u, c) = (sizes.len(), keys.len(), cacheable.len());
            return Err(wrong(format!(
                "S, U and C of backend `{backend}` have {s}, {u} and {c} elements, not equally many"
            )));
        }
        if let Some(flag) = cacheable.iter().find(|&&flag| flag > 1) {
            return Err(wrong(format!("C of backend `{backend}` holds {flag}, not 0 or 1")));
        }
        let objects = keys.into_iter().zip(sizes).zip(cacheable);
        let objects = objects.map(|((key, bytes), flag)| Object { key, bytes, cacheable: flag == 1 });
        Ok(Query { backend, objects: objects.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[u8] = include_bytes!("../../data/robinhood/trace-200.json");

    fn error(text: &str) -> String {
        read(text.as_bytes()).find_map(Result::err).unwrap().to_string()
    }

    #[test]
    fn published_robinhood_sample_has_two_backends_and_three_objects_per_request() {
        let requests: Vec<Request> = read(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!(requests.len(), 200);
        assert_eq!(requests[0].layers[0][0].objects[0].key, "8d424355000941");
        for request in &requests {
            assert_eq!(request.layers.len(), 1);
            assert_eq!(request.layers[0].iter().map(|query| query.objects.len()).sum::<usize>(), 3);
        }
    }

    #[test]
    fn malformed_trace_line_is_refused_with_its_number_and_error() {
        let good = r#"{"t":0,"d":[{"b":{"S":[1],"U":["x"],"C":[1]}}]}"#;
        let lengths = error(&format!("{good}\n\n{}", good.replace("[1],\"U", "[1,2],\"U")));
        assert!(lengths.contains("line 3") && lengths.contains("2, 1 and 1 elements"), "{lengths}");
        let flag = error(&good.replace("\"C\":[1]", "\"C\":[2]"));
        assert!(flag.contains("not 0 or 1"), "{flag}");
        let field = error(&good.replace("\"t\"", "\"time\""));
        assert!(field.contains("unknown key `time`; the keys here are "), "{field}");
        assert!(error("nonsense\n").contains("line 1"));
        assert_eq!(read(format!("\u{feff}{good}").as_bytes()).filter(Result::is_ok).count(), 1);
        let twice = error(&good.replace(
            "\"d\":[{",
            "\"d\":[{\"b01\":{\"S\":[],\"U\":[],\"C\":[]},\"b01\":{\"S\":[],\"U\":[],\"C\":[]},",
        ));
        assert!(twice.contains("line 1") && twice.contains("the key \"b01\" is repeated"), "{twice}");
    }

    #[test]
    fn incomplete_last_line_of_a_trace_is_reported_as_truncated() {
        let cut = &SAMPLE[..SAMPLE.len() - 20];
        let ends: Vec<_> = read(cut).collect();
        assert_eq!(ends.len(), 200);
        assert!(matches!(ends[199], Err(TraceError::Truncated { at: Position::Line(200), .. })));
        let without_newline = SAMPLE.trim_ascii_end();
        assert_eq!(read(without_newline).filter(Result::is_ok).count(), 200);
    }

    #[test]
    fn trace_line_above_the_length_limit_is_refused() {
        let endless = std::io::BufReader::new(std::io::repeat(b'['));
        let error = read(endless).next().unwrap().unwrap_err().to_string();
        assert!(error.contains("longer than 16777216 bytes"), "{error}");
    }
}
