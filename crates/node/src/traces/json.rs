//! An export in OTLP's JSON encoding: protobuf's JSON mapping, with ids in hexadecimal digits.
//!
//! As the mapping allows, `null` stands for an unset field, integers may be strings, have a
//! fraction of zero or an exponent, and an enumeration value may be its name. Only fields that are
//! used are read; others may have any form.

use std::borrow::Cow;
use std::fmt;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::value::RawValue;
use sherwood_model::misread;
use sherwood_ports::http::{Misread, Text, without_mark};

use super::export::{Export, Refused, ResourceSpans};

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct UnreadExport<'a> {
    #[serde(borrow)]
    resource_spans: Option<Vec<&'a RawValue>>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct UnreadResource<'a> {
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
    #[serde(borrow)]
    scope_spans: Option<Vec<&'a RawValue>>,
}

#[derive(serde::Deserialize)]
struct UnreadScope<'a> {
    #[serde(borrow)]
    spans: Option<Vec<&'a RawValue>>,
}

#[derive(serde::Deserialize)]
struct JsonResource<'a> {
    #[serde(borrow)]
    attributes: Option<Vec<Attribute<'a>>>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonSpan<'a> {
    trace_id: Option<Id>,
    parent_span_id: Option<Id>,
    kind: Option<Kind>,
    start_time_unix_nano: Option<Integer>,
    end_time_unix_nano: Option<Integer>,
    #[serde(borrow)]
    attributes: Option<Vec<Attribute<'a>>>,
    status: Option<JsonStatus>,
}

#[derive(serde::Deserialize)]
struct JsonStatus {
    code: Option<Code>,
}

#[derive(serde::Deserialize)]
struct Attribute<'a> {
    #[serde(borrow)]
    key: Option<Text<'a>>,
    #[serde(borrow)]
    value: Option<AttributeValue<'a>>,
}

/// An attribute's value, if its type is one that rules can compare.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttributeValue<'a> {
    #[serde(borrow)]
    string_value: Option<Text<'a>>,
    bool_value: Option<bool>,
    int_value: Option<Integer>,
}

/// Parses an export. Bytes that are not valid UTF-8 are replaced.
///
/// # Errors
/// When the body is not a JSON object with a list of `resourceSpans`.
pub(super) fn export(body: &[u8]) -> Result<Export, Misread> {
    let text = String::from_utf8_lossy(without_mark(body));
    let unread: UnreadExport<'_> =
        serde_json::from_str(&text).map_err(|_| Misread::of::<UnreadExport<'_>>(text.as_bytes()))?;
    let (mut export, mut count) = (Export::default(), 0);
    let refused = &mut export.refused;
    for resource in unread.resource_spans.into_iter().flatten() {
        let Some(resource) = read(refused, serde_json::from_str::<UnreadResource<'_>>(resource.get())) else {
            continue;
        };
        let attributes = resource.resource.map(|raw| serde_json::from_str(raw.get()).and_then(of_resource));
        let attributes = attributes.and_then(|part| read(refused, part)).unwrap_or_default();
        let mut found = Vec::new();
        for scope in resource.scope_spans.into_iter().flatten() {
            spans(scope, count, &mut found, refused);
        }
        count += found.len();
        export.resources.push(ResourceSpans { attributes, spans: found });
    }
    Ok(export)
}

/// Returns the part if it could be read; otherwise counts it as refused.
fn read<T>(refused: &mut Refused, part: Result<T, serde_json::Error>) -> Option<T> {
    refused.read(part.map_err(|error| misread::json(&error)))
}

fn of_resource(resource: JsonResource<'_>) -> Result<Vec<KeyValue>, serde_json::Error> {
    attributes(resource.attributes)
}

/// Appends the spans of a scope to an export that has `count` spans of other resources.
fn spans(scope: &RawValue, count: usize, spans: &mut Vec<Span>, refused: &mut Refused) {
    let scope = read(refused, serde_json::from_str::<UnreadScope<'_>>(scope.get()));
    let unread = scope.and_then(|scope| scope.spans).unwrap_or_default();
    for raw in unread {
        if refused.has_room(count + spans.len())
            && let Some(span) = read(refused, serde_json::from_str(raw.get()).and_then(span))
        {
            spans.push(span);
        }
    }
}

fn span(json: JsonSpan<'_>) -> Result<Span, serde_json::Error> {
    let id = |id: Option<Id>| id.map_or_else(Vec::new, |Id(bytes)| bytes);
    let time = |time: Option<Integer>| time.map_or(Ok(0), |time| time.fits::<u64>("a time"));
    Ok(Span {
        trace_id: id(json.trace_id),
        parent_span_id: id(json.parent_span_id),
        kind: json.kind.map_or(0, |Kind(kind)| kind),
        start_time_unix_nano: time(json.start_time_unix_nano)?,
        end_time_unix_nano: time(json.end_time_unix_nano)?,
        attributes: attributes(json.attributes)?,
        status: json
            .status
            .and_then(|status| status.code)
            .map(|Code(code)| Status { code, ..Status::default() }),
        ..Span::default()
    })
}

fn attributes(json: Option<Vec<Attribute<'_>>>) -> Result<Vec<KeyValue>, serde_json::Error> {
    json.into_iter().flatten().map(attribute).collect()
}

fn attribute(json: Attribute<'_>) -> Result<KeyValue, serde_json::Error> {
    let text = |text: Text<'_>| text.0.into_owned();
    let value = match json.value {
        Some(AttributeValue { string_value: Some(value), .. }) => Some(Value::StringValue(text(value))),
        Some(AttributeValue { bool_value: Some(value), .. }) => Some(Value::BoolValue(value)),
        Some(AttributeValue { int_value: Some(value), .. }) => {
            Some(Value::IntValue(value.fits("an integer")?))
        }
        _ => None,
    };
    let key = json.key.map(text).unwrap_or_default();
    Ok(KeyValue { key, value: Some(AnyValue { value }), ..KeyValue::default() })
}

/// An id in hexadecimal digits.
struct Id(Vec<u8>);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        let invalid =
            || de::Error::custom("an id has characters that are not hexadecimal digits, or half a byte");
        let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
        let (bytes, rest) = digits.as_deref().ok_or_else(invalid)?.as_chunks::<2>();
        match rest {
            [] => Ok(Self(bytes.iter().map(|[high, low]| (high << 4 | low) as u8).collect())),
            _ => Err(invalid()),
        }
    }
}

/// An integer: a number without a fraction, or a string with such a number.
#[derive(Clone, Copy)]
struct Integer(i128);

impl Integer {
    fn fits<T: TryFrom<i128>>(self, what: &str) -> Result<T, serde_json::Error> {
        T::try_from(self.0)
            .map_err(|_| de::Error::custom(format!("{what} is {}, which is out of its range", self.0)))
    }

    fn of_text(text: &str) -> Option<Self> {
        text.parse().map(Self).ok().or_else(|| Self::of_number(text.parse().ok()?))
    }

    fn of_number(number: f64) -> Option<Self> {
        // Beyond this bound no type of the mapping has values, and the conversion is exact below.
        (number.fract() == 0.0 && number.abs() < 1e30).then_some(Self(number as i128))
    }
}

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Named::deserialize(deserializer)? {
            Named::Number(integer) => Ok(integer),
            Named::Text(text) => Self::of_text(&text).ok_or_else(|| {
                de::Error::invalid_value(de::Unexpected::Str(&text), &"an integer, also as a text")
            }),
        }
    }
}

/// The kind of a span, given by number or name.
struct Kind(i32);

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        enumeration(deserializer, |name| SpanKind::from_str_name(name).map(|kind| kind as i32)).map(Self)
    }
}

/// The code of a status, given by number or name.
struct Code(i32);

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        enumeration(deserializer, |name| StatusCode::from_str_name(name).map(|code| code as i32)).map(Self)
    }
}

fn enumeration<'de, D: Deserializer<'de>>(
    deserializer: D,
    named: impl Fn(&str) -> Option<i32>,
) -> Result<i32, D::Error> {
    let (value, text) = match Named::deserialize(deserializer)? {
        Named::Number(Integer(number)) => (i32::try_from(number).ok(), number.to_string()),
        Named::Text(text) => {
            let number = || i32::try_from(Integer::of_text(&text)?.0).ok();
            (named(&text).or_else(number), text.into_owned())
        }
    };
    value.ok_or_else(|| de::Error::custom(format!("{text:?} is no value of the enumeration")))
}

/// An integer or a string.
enum Named<'a> {
    Number(Integer),
    Text(Cow<'a, str>),
}

impl<'de> Deserialize<'de> for Named<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NamedVisitor)
    }
}

struct NamedVisitor;

impl<'de> Visitor<'de> for NamedVisitor {
    type Value = Named<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an integer, also as a text")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Named<'de>, E> {
        Ok(Named::Number(Integer(number.into())))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Named<'de>, E> {
        Ok(Named::Number(Integer(number.into())))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Named<'de>, E> {
        let integer = Integer::of_number(number);
        integer.map(Named::Number).ok_or_else(|| E::invalid_value(de::Unexpected::Float(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Named<'de>, E> {
        Ok(Named::Text(text.to_owned().into()))
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Named<'de>, E> {
        Ok(Named::Text(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn span_with(fields: &Json) -> Json {
        let mut span = json!({"traceId": TRACE, "spanId": "b7ad6b7169203331", "kind": 3,
            "startTimeUnixNano": "1", "endTimeUnixNano": "2"});
        span.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        span
    }

    fn read(spans: &Json) -> Export {
        let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string();
        export(body.as_bytes()).expect("an export")
    }

    #[test]
    fn every_form_allowed_by_the_protobuf_json_mapping_is_read() {
        let attributes = |value: Json| json!({"attributes": [{"key": "a", "value": value}]});
        for fields in [
            json!({"attributes": null, "events": null, "links": null, "status": null, "parentSpanId": null}),
            json!({"kind": "3", "flags": "257", "droppedAttributesCount": "3"}),
            json!({"kind": "SPAN_KIND_CLIENT", "kind2": {"unknown": [1]}}),
            json!({"startTimeUnixNano": 1, "endTimeUnixNano": 2.0}),
            json!({"startTimeUnixNano": "1.0", "endTimeUnixNano": "2e0"}),
            json!({"traceId": TRACE.to_uppercase()}),
            attributes(json!({"doubleValue": "NaN"})),
            attributes(json!({"doubleValue": "-Infinity"})),
            attributes(json!({"intValue": "7"})),
            attributes(json!({"arrayValue": {"values": [{"boolValue": null}]}})),
            attributes(json!(null)),
        ] {
            let Export { resources, refused } = read(&json!([span_with(&fields)]));
            assert_eq!((refused.spans, refused.first), (0, None), "{fields}");
            let span = &resources[0].spans[0];
            assert_eq!(span.trace_id[..2], [0x0a, 0xf7], "{fields}");
            let times = (span.start_time_unix_nano, span.end_time_unix_nano);
            assert_eq!((span.kind, times), (3, (1, 2)), "{fields}");
        }
    }

    #[test]
    fn malformed_json_span_is_refused_and_the_others_are_read() {
        for fields in [
            json!({"traceId": "0af76"}),
            json!({"traceId": 7}),
            json!({"kind": "CLIENT"}),
            json!({"kind": 4_294_967_296_u64}),
            json!({"startTimeUnixNano": "99999999999999999999"}),
            json!({"startTimeUnixNano": -1}),
            json!({"startTimeUnixNano": 1.5}),
            json!({"attributes": {"a": "b"}}),
            json!({"attributes": [{"key": "a", "value": {"intValue": 1e20}}]}),
        ] {
            let Export { resources, refused } = read(&json!([span_with(&fields), span_with(&json!({}))]));
            assert_eq!((resources[0].spans.len(), refused.spans), (1, 1), "{fields}");
        }
        let Export { resources, refused } = read(&json!([7, null, "a", span_with(&json!({}))]));
        assert_eq!((resources[0].spans.len(), refused.spans), (1, 3));
    }

    #[test]
    fn malformed_json_resource_or_scope_is_refused_and_the_others_are_read() {
        let scope = json!({"spans": [span_with(&json!({}))]});
        let body =
            json!({"resourceSpans": [7, {"scopeSpans": [7, scope]}, {"resource": 7, "scopeSpans": [scope]}]});
        let Export { resources, refused } = export(body.to_string().as_bytes()).expect("an export");
        let spans: Vec<_> = resources.iter().map(|resource| resource.spans.len()).collect();
        assert_eq!((spans, refused.spans), (vec![1, 1], 3));
    }

    #[test]
    fn lone_surrogate_refuses_its_span_while_invalid_utf8_is_replaced_and_a_bom_is_ignored() {
        let span =
            |name: &str| span_with(&json!({"attributes": [{"key": name, "value": {"stringValue": "x"}}]}));
        let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": [span("LONE"), span("BYTE"), span("good")]}]}]});
        let body = format!("\u{feff}{body}").replace("LONE", "\\ud800");
        let mut body = body.into_bytes();
        let byte = body.windows(4).position(|part| part == b"BYTE").expect("it is there");
        body[byte] = 0xff;
        let Export { resources, refused } = export(&body).expect("an export");
        let keys: Vec<_> = resources[0].spans.iter().map(|span| span.attributes[0].key.as_str()).collect();
        assert_eq!((keys, refused.spans), (vec!["\u{fffd}YTE", "good"], 1));
    }

    #[test]
    fn body_that_is_not_an_export_is_an_error() {
        for body in ["", "[]", "{", "7", "{\"resourceSpans\": 7}", "{} {}"] {
            assert!(export(body.as_bytes()).is_err(), "{body}");
        }
        assert!(export(b"{\"resourceSpans\": null}").expect("none").resources.is_empty());
    }
}
