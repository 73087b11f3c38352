//! An export of spans as received. A malformed part is dropped without affecting the others.

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::{DecodeError, Message};

/// The spans of an export, except malformed ones.
#[derive(Debug, Default)]
pub(super) struct Export {
    pub(super) resources: Vec<ResourceSpans>,
    pub(super) refused: Refused,
}

/// The spans of one resource, such as a process.
#[derive(Debug, Default)]
pub(super) struct ResourceSpans {
    pub(super) attributes: Vec<KeyValue>,
    pub(super) spans: Vec<Span>,
}

/// The spans of an export that were refused because they are malformed. A resource or scope that
/// cannot be read counts as one span, since the number of its spans is unknown.
#[derive(Debug, Default)]
pub(super) struct Refused {
    pub(super) spans: u64,
    /// The reason for the first refusal.
    pub(super) first: Option<String>,
}

/// Maximum number of spans in an export; further ones are refused. Exporters send some thousands at
/// a time.
const SPANS_MAX: usize = 1 << 16;

impl Refused {
    /// Returns true if an export with this many spans may have one more; otherwise counts a refused
    /// span.
    pub(super) fn has_room(&mut self, spans: usize) -> bool {
        let has_room = spans < SPANS_MAX;
        if !has_room {
            self.count(format!("an export has at most {SPANS_MAX} spans; send smaller batches"));
        }
        has_room
    }

    /// Counts a refused span, and keeps the reason if it is the first.
    pub(super) fn count(&mut self, reason: impl ToString) {
        self.spans += 1;
        self.first.get_or_insert_with(|| reason.to_string());
    }

    /// Returns the part if it could be read; otherwise counts it as refused.
    pub(super) fn read<T, E: ToString>(&mut self, part: Result<T, E>) -> Option<T> {
        part.map_err(|error| self.count(error)).ok()
    }
}

/// `ExportTraceServiceRequest`, whose parts are not decoded yet.
#[derive(Clone, PartialEq, Message)]
struct UnreadExport {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    resource_spans: Vec<Bytes>,
}

/// `ResourceSpans`, whose parts are not decoded yet.
#[derive(Clone, PartialEq, Message)]
struct UnreadResource {
    #[prost(bytes = "bytes", tag = "1")]
    resource: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    scope_spans: Vec<Bytes>,
}

/// `ScopeSpans`, whose spans are not decoded yet.
#[derive(Clone, PartialEq, Message)]
struct UnreadScope {
    #[prost(bytes = "bytes", repeated, tag = "2")]
    spans: Vec<Bytes>,
}

impl Export {
    /// Decodes an export in OTLP's protobuf encoding.
    ///
    /// # Errors
    /// When the outermost message cannot be read.
    pub(super) fn from_protobuf(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut refused = Refused::default();
        let (mut resources, mut count) = (Vec::new(), 0);
        for unread in UnreadExport::decode(bytes)?.resource_spans {
            let Some(unread) = refused.read(UnreadResource::decode(unread)) else { continue };
            let resource = refused.read(Resource::decode(unread.resource)).unwrap_or_default();
            let mut spans = Vec::new();
            for scope in unread.scope_spans {
                let scope = refused.read(UnreadScope::decode(scope)).unwrap_or_default();
                for span in &scope.spans {
                    if refused.has_room(count)
                        && let Some(span) = refused.read(Span::decode(&span[..]))
                    {
                        count += 1;
                        spans.push(span);
                    }
                }
            }
            resources.push(ResourceSpans { attributes: resource.attributes, spans });
        }
        Ok(Self { resources, refused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_parts_of_a_protobuf_export_are_refused_without_affecting_the_others() {
        let good = Span { name: "good".to_owned(), ..Span::default() }.encode_to_vec();
        // A name that is not UTF-8.
        let scope = UnreadScope { spans: vec![vec![0x2a, 1, 0xff].into(), good.into()] };
        let cut = Bytes::from_static(&[0x12, 9]);
        let resource = UnreadResource {
            resource: Bytes::new(),
            scope_spans: vec![cut.clone(), scope.encode_to_vec().into()],
        };
        let export = UnreadExport { resource_spans: vec![cut, resource.encode_to_vec().into()] };
        let export = Export::from_protobuf(export.encode_to_vec().into()).expect("an export");
        assert_eq!(export.refused.spans, 3, "a resource, a scope and a span");
        assert_eq!(export.resources.len(), 1);
        assert_eq!(export.resources[0].spans[0].name, "good");
        assert!(Export::from_protobuf(Bytes::from_static(&[1, 1, 1])).is_err());
    }
}
