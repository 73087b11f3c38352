//! A recorded trace in place of drawn requests.
//!
//! A trace provides popularity, sizes and bursts, so no laws are needed for them. A trace of single
//! accesses does not record which backend an object belongs to and which accesses form one request;
//! the document declares both.

use std::collections::BTreeMap;

use serde::Deserialize;
use sherwood_model::BackendId;

use super::validate::{Verdict, number, require};
use crate::trace::objects::Format;
use crate::unique;

/// A recorded trace, and how requests are formed from it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Name of the trace file.
    pub file: String,
    /// Format of the trace.
    pub format: Format,
    /// Unit of the recorded arrival times; none for the format's default, see [`Self::times`].
    times: Option<Times>,
    /// Accesses per request; none for 1, and where the trace has requests.
    batch: Option<u32>,
    /// Mapping of objects to backends; none with a single backend, or where the trace has it.
    route: Option<ObjectRoute>,
    /// Bytes of a value where the trace records none.
    value_bytes: Option<u32>,
}

/// Arrival times of the requests of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    /// Poisson arrivals at the profile's rate, whatever was recorded.
    Rate,
    /// Arrival times as recorded, in seconds.
    S,
    /// Arrival times as recorded, in milliseconds.
    Ms,
    /// Arrival times as recorded, in microseconds.
    Us,
}

/// Mapping of the objects of accesses to backends, which are numbered from 1 as in the document.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Document")]
pub enum ObjectRoute {
    /// All objects belong to this backend.
    One(u16),
    /// Each backend has a share of the objects, by a hash of the object.
    Shares(BTreeMap<u16, f64>),
    /// The object's type determines the backend, with a default for other types.
    Types(BTreeMap<u8, u16>, Option<u16>),
    /// The longest of these prefixes of the key determines the backend, with a default for other
    /// keys.
    Prefixes(BTreeMap<String, u16>, Option<u16>),
}

/// The mapping of objects to backends as written in the document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    backend: Option<u16>,
    #[serde(default, deserialize_with = "unique::map_or_none")]
    shares: Option<BTreeMap<u16, f64>>,
    #[serde(default, deserialize_with = "unique::map_or_none")]
    types: Option<BTreeMap<u8, u16>>,
    #[serde(default, deserialize_with = "unique::map_or_none")]
    prefixes: Option<BTreeMap<String, u16>>,
    others: Option<u16>,
}

impl TryFrom<Document> for ObjectRoute {
    type Error = &'static str;

    fn try_from(document: Document) -> Result<Self, Self::Error> {
        let Document { backend, shares, types, prefixes, others } = document;
        match (backend, shares, types, prefixes, others) {
            (Some(backend), None, None, None, None) => Ok(Self::One(backend)),
            (None, Some(shares), None, None, None) => Ok(Self::Shares(shares)),
            (None, None, Some(types), None, others) => Ok(Self::Types(types, others)),
            (None, None, None, Some(prefixes), others) => Ok(Self::Prefixes(prefixes, others)),
            _ => {
                Err("`route` takes one of `backend`, `shares`, `types` and `prefixes`, the latter two with \
                      `others` or without")
            }
        }
    }
}

impl Replay {
    /// Arrival times of requests; by default as recorded, in seconds, for formats that have times,
    /// else Poisson arrivals at the profile's rate.
    #[must_use]
    pub fn times(&self) -> Times {
        let usual = match self.format {
            Format::OracleGeneral | Format::Twitter => Times::S,
            Format::Cache2k | Format::RobinHood => Times::Rate,
        };
        self.times.unwrap_or(usual)
    }

    /// Number of accesses of the trace that form one request.
    #[must_use]
    pub fn batch(&self) -> u32 {
        self.batch.unwrap_or(1)
    }

    /// Mapping of objects to backends.
    #[must_use]
    pub fn route(&self) -> ObjectRoute {
        self.route.clone().unwrap_or(ObjectRoute::One(1))
    }

    /// Bytes of a value where the trace records none; 0 where it always does.
    #[must_use]
    pub fn value_bytes(&self) -> u32 {
        self.value_bytes.unwrap_or(0)
    }

    pub(super) fn validate(&self, backends: usize) -> Verdict {
        require(!self.file.is_empty(), || "trace.file".into(), "empty", "the name of a file")?;
        let requests = self.format == Format::RobinHood;
        let whole = "left out: the trace says itself which objects a request asks of which backend";
        require(!requests || self.batch.is_none(), || "trace.batch".into(), "given", whole)?;
        require(!requests || self.route.is_none(), || "trace.route".into(), "given", whole)?;
        number("trace.batch", f64::from(self.batch()), 1.0, 65_535.0)?;
        require(
            self.format != Format::Cache2k || self.times() == Times::Rate,
            || "trace.times".into(),
            "a unit of time",
            "left out, or \"rate\": cache2k traces record no times",
        )?;
        self.validate_sizes()?;
        require(
            requests || backends == 1 || self.route.is_some(),
            || "trace.route".into(),
            "missing",
            "given, since there are several backends",
        )?;
        self.route.as_ref().map_or(Ok(()), |route| self.validate_route(route, backends))
    }

    fn validate_sizes(&self) -> Verdict {
        let needed = matches!(self.format, Format::Cache2k | Format::Twitter);
        let at = || "trace.value_bytes".into();
        match self.value_bytes {
            None => require(!needed, at, "missing", "given, for accesses that have no size in the trace"),
            Some(_) if !needed => require(false, at, "given", "left out: the trace has all sizes"),
            Some(bytes) => number("trace.value_bytes", f64::from(bytes), 0.0, f64::from(1 << 30)),
        }
    }

    fn validate_route(&self, route: &ObjectRoute, backends: usize) -> Verdict {
        let known =
            |at: &str, id: u16| number(&format!("trace.route.{at}"), f64::from(id), 1.0, backends as f64);
        match route {
            ObjectRoute::One(id) => known("backend", *id),
            ObjectRoute::Shares(shares) => {
                for (&id, &share) in shares {
                    known("shares backend", id)?;
                    number(&format!("trace.route.shares.{id}"), share, 0.0, 1.0)?;
                }
                number("sum of trace.route.shares", shares.values().sum(), 1.0 - 1e-7, 1.0 + 1e-7)
            }
            ObjectRoute::Types(types, others) => {
                self.only(Format::Cache2k, "types", "a cache2k trace, whose objects have types")?;
                for (object_type, &id) in types {
                    number("trace.route.types type", f64::from(*object_type), 0.0, 31.0)?;
                    known(&format!("types.{object_type}"), id)?;
                }
                others.map_or(Ok(()), |id| known("others", id))
            }
            ObjectRoute::Prefixes(prefixes, others) => {
                self.only(Format::Twitter, "prefixes", "a twitter trace, whose keys are text")?;
                for (prefix, &id) in prefixes {
                    known(&format!("prefixes.{prefix}"), id)?;
                }
                others.map_or(Ok(()), |id| known("others", id))
            }
        }
    }

    fn only(&self, format: Format, field: &str, whose: &str) -> Verdict {
        require(
            self.format == format,
            || format!("trace.route.{field}"),
            "given",
            format!("left out but for {whose}"),
        )
    }
}

impl Times {
    /// Microseconds per unit of the recorded arrival times; none for drawn ones.
    #[must_use]
    pub const fn unit_us(self) -> Option<u64> {
        match self {
            Self::Rate => None,
            Self::S => Some(1_000_000),
            Self::Ms => Some(1_000),
            Self::Us => Some(1),
        }
    }
}

impl ObjectRoute {
    /// The backend of an object with this hash.
    pub(crate) fn by_hash(&self, hash: u64) -> Option<BackendId> {
        match self {
            Self::One(id) => Some(backend(*id)),
            Self::Shares(shares) => {
                // Uses the upper bits, which the hash table of objects does not.
                let mut left = (hash >> 11) as f64 / (1u64 << 53) as f64;
                let owner = shares.iter().find(|&(_, &share)| {
                    left -= share;
                    left < 0.0
                });
                owner.or(shares.iter().next_back()).map(|(&id, _)| backend(id))
            }
            Self::Types(..) | Self::Prefixes(..) => None,
        }
    }

    /// The backend of objects of this type.
    pub(crate) fn by_type(&self, object_type: u8) -> Option<BackendId> {
        let Self::Types(types, others) = self else { return None };
        types.get(&object_type).copied().or(*others).map(backend)
    }

    /// The backend of objects with this key.
    pub(crate) fn by_key(&self, key: &str) -> Option<BackendId> {
        let Self::Prefixes(prefixes, others) = self else { return None };
        let longest = prefixes.iter().filter(|(prefix, _)| key.starts_with(prefix.as_str()));
        longest.max_by_key(|(prefix, _)| prefix.len()).map(|(_, &id)| id).or(*others).map(backend)
    }
}

fn backend(id: u16) -> BackendId {
    BackendId(id.saturating_sub(1))
}
