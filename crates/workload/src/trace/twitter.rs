//! Operations of Twitter's cache clusters as CSV, without a header: time in seconds, key, bytes of
//! the key, bytes of the value, client, operation, TTL in seconds.
//!
//! Keys are anonymised and may hold commas, so fields are counted from the end of the line. The
//! value of a get that missed is recorded with 0 bytes. See Yang, Yue and Rashmi, *A large scale
//! analysis of hundreds of in-memory cache clusters at Twitter*, OSDI 2020.
//!
//! ```
//! use sherwood_workload::trace::twitter;
//! let operation = twitter::read(&b"0,a:b,20,100,7,get,0\n"[..]).next().unwrap().unwrap();
//! assert_eq!((operation.key.as_str(), operation.value_bytes, operation.verb), ("a:b", 100, twitter::Verb::Get));
//! ```

use std::io::BufRead;

use super::{Position, TraceError, read_line};

/// An operation, recorded as one line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Time in seconds, from an arbitrary origin.
    pub time_s: u64,
    /// Key of the object, anonymised.
    pub key: String,
    /// Length of the original key in bytes.
    pub key_bytes: u32,
    /// Length of the value in bytes; 0 for a get that missed.
    pub value_bytes: u32,
    /// Type of the operation.
    pub verb: Verb,
    /// Time to live in seconds; 0 for none, or where it does not apply.
    pub ttl_s: u64,
}

/// Type of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `get` and `gets`.
    Get,
    /// `set`, `add`, `replace`, `cas`, `append`, `prepend`, `incr` and `decr`.
    Store,
    /// `delete`.
    Delete,
}

/// Iterator over the operations of a trace, in order; it ends after an error.
#[derive(Debug)]
pub struct Operations<R> {
    input: R,
    line: u64,
    buffer: Vec<u8>,
    ended: bool,
}

/// The longest line in bytes; a key has at most 250.
pub const LINE_BYTES_MAX: usize = 64 << 10;

const AN_OPERATION: &str = "an operation `time,key,key bytes,value bytes,client,operation,ttl`";

/// Starts reading `input`. Blank lines are skipped.
#[must_use]
pub fn read<R: BufRead>(input: R) -> Operations<R> {
    Operations { input, line: 0, buffer: Vec::new(), ended: false }
}

impl<R> Operations<R> {
    /// Position of the operation that was read last.
    pub(super) const fn last_at(&self) -> Position {
        Position::Line(self.line)
    }
}

impl<R: BufRead> Iterator for Operations<R> {
    type Item = Result<Operation, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            self.line += 1;
            let at = Position::Line(self.line);
            let found = match read_line(&mut self.input, &mut self.buffer, at, AN_OPERATION, LINE_BYTES_MAX) {
                Ok(true) if self.buffer.trim_ascii().is_empty() => continue,
                Ok(true) => Some(parse(&self.buffer, at)),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            };
            self.ended = !matches!(found, Some(Ok(_)));
            return found;
        }
        None
    }
}

fn parse(line: &[u8], at: Position) -> Result<Operation, TraceError> {
    let wrong = |detail: String| TraceError::Record { at, expected: AN_OPERATION, detail };
    // Only the last line may lack its end; an incomplete record there is most likely truncated.
    let cut = !line.ends_with(b"\n");
    let text = std::str::from_utf8(line).map_err(|error| wrong(error.to_string()))?.trim();
    let mut from_end = text.rsplitn(6, ',');
    let mut field = || from_end.next().unwrap_or_default();
    let [ttl, operation, _client, value_bytes, key_bytes, rest] = std::array::from_fn(|_| field());
    let Some((time, key)) = rest.split_once(',') else {
        if cut {
            return Err(TraceError::Truncated { at, expected: AN_OPERATION });
        }
        return Err(wrong(format!("it has {} fields", text.split(',').count())));
    };
    let verb = match operation {
        "get" | "gets" => Verb::Get,
        "set" | "add" | "replace" | "cas" | "append" | "prepend" | "incr" | "decr" => Verb::Store,
        "delete" => Verb::Delete,
        _ => return Err(wrong(format!("{operation:?} is no operation of memcached's"))),
    };
    let number = |name: &str, text: &str| {
        text.parse::<u64>().map_err(|_| wrong(format!("{name} is {text:?}, not a whole number")))
    };
    let size = |name: &str, text: &str| {
        u32::try_from(number(name, text)?)
            .map_err(|_| wrong(format!("{name} is {text}, and a size is below 4 GiB")))
    };
    Ok(Operation {
        time_s: number("the time", time)?,
        key: key.to_owned(),
        key_bytes: size("the size of the key", key_bytes)?,
        value_bytes: size("the size of the value", value_bytes)?,
        verb,
        ttl_s: number("the TTL", ttl)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        read(text.as_bytes()).find_map(Result::err).unwrap().to_string()
    }

    #[test]
    fn twitter_operations_are_read_and_keys_may_hold_commas() {
        let text = "0,k,20,0,1,gets,0\r\n\n5,a,b,c,30,4000000000,2,set,86400\n6,k,20,0,1,delete,0";
        let operations: Vec<_> = read(text.as_bytes()).collect::<Result<_, _>>().unwrap();
        let seen = operations.iter().map(|operation| (operation.key.as_str(), operation.verb));
        assert_eq!(seen.collect::<Vec<_>>(), [("k", Verb::Get), ("a,b,c", Verb::Store), ("k", Verb::Delete)]);
        assert_eq!((operations[1].time_s, operations[1].ttl_s), (5, 86400));
        assert_eq!((operations[1].key_bytes, operations[1].value_bytes), (30, 4_000_000_000));
    }

    #[test]
    fn byte_order_mark_at_the_start_of_a_trace_is_skipped() {
        let text = "\u{feff}0,k,20,0,1,get,0\n1,\u{feff}k,20,0,1,get,0\n";
        let keys: Vec<_> = read(text.as_bytes()).map(|operation| operation.unwrap().key).collect();
        assert_eq!(keys, ["k", "\u{feff}k"]);
        assert!(error("0,k,20,0,1,get,0\n\u{feff}0,k,20,0,1,get,0\n").contains("line 2"));
    }

    #[test]
    fn malformed_trace_line_is_refused_with_its_number_and_error() {
        assert!(error("0,k,20,0,1,get,0\n1,2,3\n").ends_with("it has 3 fields"));
        let verb = error("0,k,20,0,1,fetch,0\n");
        assert!(verb.contains("line 1") && verb.contains("\"fetch\" is no operation"), "{verb}");
        assert!(error("0,k,x,0,1,get,0\n").contains("the size of the key is \"x\", not a whole number"));
        assert!(
            error("0,k,1,5000000000,1,get,0\n")
                .contains("the size of the value is 5000000000, and a size is below 4 GiB")
        );
        assert!(error("0,\u{7f},1\n").contains("fields"));
        assert!(matches!(
            read(&b"0,k,20,0,1,get,0\n0,k,20"[..]).last(),
            Some(Err(TraceError::Truncated { at: Position::Line(2), .. }))
        ));
    }

    #[test]
    fn trace_line_above_the_length_limit_is_refused() {
        let endless = std::io::BufReader::new(std::io::repeat(b','));
        let error = read(endless).next().unwrap().unwrap_err().to_string();
        assert!(error.contains("longer than 65536 bytes"), "{error}");
    }
}
