//! Rules by which client spans belong to backends.

use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use sherwood_config::SpanRule;
use sherwood_model::BackendId;

/// Returns true if the attributes of a span include all attributes of at least one of the rule's
/// sets.
fn matches(rule: &SpanRule, attributes: &[KeyValue]) -> bool {
    rule.sets().iter().any(|set| set.iter().all(|(name, value)| has(attributes, name, value)))
}

fn has(attributes: &[KeyValue], name: &str, value: &str) -> bool {
    attributes.iter().any(|attribute| attribute.key == name && is(attribute.value.as_ref(), value))
}

/// Compares a value, as text.
fn is(found: Option<&AnyValue>, value: &str) -> bool {
    match found.and_then(|found| found.value.as_ref()) {
        Some(Value::StringValue(text)) => text == value,
        Some(Value::IntValue(number)) => value.parse() == Ok(*number),
        Some(Value::BoolValue(flag)) => value.parse() == Ok(*flag),
        _ => false,
    }
}

/// The backend of a client span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// No backend.
    None,
    /// A single backend, with the timeout of its queries.
    One(BackendId, Duration),
    /// Several backends.
    Several,
}

/// The rules of all backends.
#[derive(Debug)]
pub(super) struct Rules(Vec<(SpanRule, Duration)>);

impl Rules {
    pub(super) fn new(backends: impl IntoIterator<Item = (SpanRule, Duration)>) -> Self {
        Self(backends.into_iter().collect())
    }

    /// Returns the backend to which a client span with these attributes belongs: the `named` one
    /// if the span names it. O(backends × attributes).
    pub(super) fn owner(&self, named: Option<BackendId>, attributes: &[KeyValue]) -> Owner {
        if let Some(backend) = named {
            return Owner::One(backend, self.0[backend.index()].1);
        }
        let mut matching = self.0.iter().enumerate().filter(|(_, (rule, _))| matches(rule, attributes));
        match (matching.next(), matching.next()) {
            (None, _) => Owner::None,
            (Some((index, (_, timeout))), None) => Owner::One(BackendId::from_index(index), *timeout),
            _ => Owner::Several,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn attribute(key: &str, value: Value) -> KeyValue {
        let value = Some(AnyValue { value: Some(value) });
        KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
    }

    fn text(key: &str, value: &str) -> KeyValue {
        attribute(key, Value::StringValue(value.to_owned()))
    }

    fn store(json: &str) -> SpanRule {
        SpanRule::of_store(&serde_json::from_str(json).expect("options of a store"))
    }

    #[test]
    fn span_belongs_to_the_backend_whose_attributes_it_has() {
        let own = BTreeMap::from([
            ("db.namespace".to_owned(), "shop".to_owned()),
            ("server.port".to_owned(), "3306".to_owned()),
        ]);
        let redis = store(r#"{"kind": "redis", "address": "127.0.0.1:6379"}"#);
        let http = store(r#"{"kind": "http", "url": "http://user@prices.example:8080/v1/{key}"}"#);
        let rules = Rules::new([SpanRule::of(own), redis, http].map(|rule| (rule, Duration::from_secs(1))));
        let owner = |attributes: &[KeyValue]| rules.owner(None, attributes);
        let is = |id| Owner::One(BackendId(id), Duration::from_secs(1));
        let namespace = text("db.namespace", "shop");
        let port = attribute("server.port", Value::IntValue(3306));
        assert_eq!(owner(&[namespace.clone(), port.clone()]), is(0));
        assert_eq!(owner(std::slice::from_ref(&namespace)), Owner::None);
        assert_eq!(owner(&[text("db.system", "redis")]), is(1));
        assert_eq!(owner(&[text("db.system.name", "redis")]), is(1));
        assert_eq!(owner(&[text("server.address", "prices.example")]), is(2));
        assert_eq!(owner(&[namespace, port, text("db.system", "redis")]), Owner::Several);
        assert_eq!(owner(&[]), Owner::None);
        assert_eq!(rules.owner(Some(BackendId(2)), &[text("db.system", "redis")]), is(2));
    }
}
