//! Any trace as gets and stores of objects with sizes.
//!
//! A study of hit ratios needs the same of every format: the object, its size, and whether it is
//! read or written. Objects are identified by a 64-bit hash of their names.

use std::collections::VecDeque;
use std::io::BufRead;

use serde::Deserialize;
use sherwood_model::SeededState;

use super::records::Records;
use super::{TraceError, cache2k, oracle_general, robinhood, twitter};

/// Format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    /// [`cache2k`]: gets of objects whose sizes were not recorded.
    Cache2k,
    /// [`oracle_general`]: gets of objects with sizes. Keys count as 0 bytes.
    OracleGeneral,
    /// [`twitter`]: gets, stores and deletes.
    Twitter,
    /// [`robinhood`]: gets of a request's objects, in the order of layers and backends. Objects
    /// that may not be cached are left out.
    #[serde(rename = "robinhood")]
    RobinHood,
}

/// An access of a trace: an object, its sizes, and whether it is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Hash of the object's key.
    pub object: u64,
    /// Length of the object's key in bytes.
    pub key_bytes: u32,
    /// Length of the object's value in bytes; none for a get that missed, whose size was not
    /// recorded.
    pub value_bytes: Option<u32>,
    /// Type of the access: get, store or delete.
    pub kind: AccessKind,
}

/// Type of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Reads the object; on a miss a cache fills it if its size is known.
    Get,
    /// Writes the object.
    Store,
    /// Deletes the object.
    Remove,
}

/// Format of a trace, and hash and sizes of its objects.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Format of the trace.
    pub format: Format,
    /// Hash function of the keys.
    pub hash: SeededState,
    /// Length of the values where the format records none.
    pub value_bytes: u32,
}

/// Iterator over the accesses of a trace, in order; it ends after an error.
#[derive(Debug)]
pub struct Accesses<R> {
    options: Options,
    records: Records<R>,
    /// Remaining accesses of the request that was read last; a line of 16 MiB holds fewer than a
    /// million.
    pending: VecDeque<Access>,
}

/// Starts reading `input`, which is unpacked first if it is an xz file.
///
/// # Errors
/// See [`unpacked`](super::unpacked).
pub fn read<R: BufRead>(input: R, options: Options) -> Result<Accesses<R>, TraceError> {
    Ok(Accesses { options, records: Records::read(options.format, input)?, pending: VecDeque::new() })
}

impl<R: BufRead> Iterator for Accesses<R> {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Options { hash, value_bytes, .. } = self.options;
        let requests = match &mut self.records {
            Records::Cache2k(records) => {
                return Some(records.next()?.map(|access| of_cache2k(access, &hash, value_bytes)));
            }
            Records::OracleGeneral(records) => {
                return Some(records.next()?.map(|access| of_oracle_general(access, &hash)));
            }
            Records::Twitter(records) => {
                return Some(records.next()?.map(|operation| of_twitter(&operation, &hash)));
            }
            Records::RobinHood(requests) => requests,
        };
        while self.pending.is_empty() {
            match requests.next()? {
                Ok(request) => self.pending.extend(of_robinhood(&request, &hash)),
                Err(error) => return Some(Err(error)),
            }
        }
        self.pending.pop_front().map(Ok)
    }
}

/// Bytes of a stored key: a listener that routes by prefix removes the type, which leaves the eight
/// digits of the object.
const CACHE2K_KEY_BYTES: u32 = 8;

fn of_cache2k(access: cache2k::Access, hash: &SeededState, value_bytes: u32) -> Access {
    Access {
        object: hash.hash_bytes(&access.word().to_be_bytes()),
        key_bytes: CACHE2K_KEY_BYTES,
        value_bytes: Some(value_bytes),
        kind: AccessKind::Get,
    }
}

fn of_oracle_general(access: oracle_general::Access, hash: &SeededState) -> Access {
    Access {
        object: hash.hash_bytes(&access.object.to_le_bytes()),
        key_bytes: 0,
        value_bytes: Some(access.bytes),
        kind: AccessKind::Get,
    }
}

fn of_twitter(operation: &twitter::Operation, hash: &SeededState) -> Access {
    let kind = match operation.verb {
        twitter::Verb::Get => AccessKind::Get,
        twitter::Verb::Store => AccessKind::Store,
        twitter::Verb::Delete => AccessKind::Remove,
    };
    let missed = kind == AccessKind::Get && operation.value_bytes == 0;
    Access {
        object: hash.hash_bytes(operation.key.as_bytes()),
        key_bytes: operation.key_bytes,
        value_bytes: (!missed).then_some(operation.value_bytes),
        kind,
    }
}

fn of_robinhood(request: &robinhood::Request, hash: &SeededState) -> Vec<Access> {
    let mut name = Vec::new();
    let mut accesses = Vec::new();
    for query in request.layers.iter().flatten() {
        for object in query.objects.iter().filter(|object| object.cacheable) {
            name.clear();
            // Valid UTF-8 never contains this byte, so different pairs have different names.
            name.extend_from_slice(query.backend.as_bytes());
            name.push(0xFF);
            name.extend_from_slice(object.key.as_bytes());
            accesses.push(Access {
                object: hash.hash_bytes(&name),
                key_bytes: u32::try_from(object.key.len()).unwrap_or(u32::MAX),
                value_bytes: Some(object.bytes),
                kind: AccessKind::Get,
            });
        }
    }
    accesses
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::built_in;

    const ALL: [Format; 4] = [Format::Cache2k, Format::OracleGeneral, Format::Twitter, Format::RobinHood];

    fn options(format: Format) -> Options {
        Options { format, hash: SeededState::new(1), value_bytes: 100 }
    }

    fn accesses(input: &[u8], format: Format) -> Vec<Access> {
        read(input, options(format)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn objects_of_different_types_or_backends_have_different_ids() {
        let two_types = [1_u32 << 27 | 5, 2 << 27 | 5, 1 << 27 | 5].map(u32::to_be_bytes).concat();
        let found = accesses(&two_types, Format::Cache2k);
        assert!(found[0] == found[2] && found[0].object != found[1].object);
        assert_eq!((found[0].key_bytes, found[0].value_bytes), (8, Some(100)));
        let line =
            r#"{"t":0,"d":[{"b1":{"S":[7,8],"U":["x","y"],"C":[1,0]},"b2":{"S":[9],"U":["x"],"C":[1]}}]}"#;
        let found = accesses(line.as_bytes(), Format::RobinHood);
        assert_eq!(found.iter().map(|access| access.value_bytes).collect::<Vec<_>>(), [Some(7), Some(9)]);
        assert_ne!(found[0].object, found[1].object);
    }

    #[test]
    fn get_that_missed_has_no_size_and_empty_value_has_size_zero() {
        let text = "0,k,20,0,1,get,0\n1,k,20,0,1,set,0\n2,k,20,0,1,delete,0\n3,k,20,9,1,get,0\n";
        let found = accesses(text.as_bytes(), Format::Twitter);
        let seen: Vec<_> = found.iter().map(|access| (access.kind, access.value_bytes)).collect();
        assert_eq!(
            seen,
            [
                (AccessKind::Get, None),
                (AccessKind::Store, Some(0)),
                (AccessKind::Remove, Some(0)),
                (AccessKind::Get, Some(9))
            ]
        );
    }

    #[test]
    fn xz_input_is_unpacked_and_zstd_refused_by_name() {
        assert!(read(built_in("orm-night").unwrap(), options(Format::Cache2k)).is_ok());
        for format in ALL {
            let error = read(&b"\x28\xB5\x2F\xFD\0\0"[..], options(format)).unwrap_err().to_string();
            assert!(error.contains("packed with zstd") && error.contains("`zstd -d`"), "{error}");
        }
    }

    #[test]
    fn packed_input_is_detected_when_read_one_byte_at_a_time() {
        let whole = include_bytes!("../../data/cache2k/web12.trace.xz");
        let by_bytes = std::io::BufReader::with_capacity(1, &whole[..]);
        let found = read(by_bytes, options(Format::Cache2k)).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(found, accesses(whole, Format::Cache2k));
        let zstd = std::io::BufReader::with_capacity(1, &b"\x28\xB5\x2F\xFD\0\0"[..]);
        assert!(matches!(read(zstd, options(Format::Cache2k)), Err(TraceError::Packed { program: "zstd" })));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_as_a_trace_are_read_or_refused_without_panic(bytes: Vec<u8>) {
            for format in ALL {
                if let Ok(accesses) = read(&bytes[..], options(format)) {
                    let errors = accesses.filter(Result::is_err).count();
                    prop_assert!(errors <= 1, "an error ends the trace");
                }
            }
        }
    }
}
