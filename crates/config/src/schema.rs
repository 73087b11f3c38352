//! The JSON Schema of the configuration file, made of the structs that read it.

use std::ops::Range;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::raw::RawFile;
use crate::json_schema::{for_each_object, in_plain_text, without_null};
use crate::scope::either;

/// Returns the JSON Schema (2020-12) of a configuration file.
///
/// It accepts every file that the node accepts, but sees less: relations between keys, ranges of
/// sizes and durations, and what is needed beside a key are checked by [`super::load`] alone.
#[must_use]
pub fn schema() -> Value {
    let mut schema = reference();
    for_each_object(&mut schema, &mut |object| {
        for property in object.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
            describe(property.1);
        }
        in_plain_text(object);
    });
    schema
}

/// Returns the schema with the links of its descriptions, and without ranges in them.
pub(super) fn reference() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<RawFile>().to_value();
    for_each_object(&mut schema, &mut |object| {
        without_null(object);
        list_required(object);
        if let Some(Value::String(reference)) = object.get_mut("$ref") {
            *reference = reference.replace("/Raw", "/");
        }
    });
    schema["title"] = "Configuration of Sherwood".into();
    let definitions = schema["$defs"].as_object_mut().expect("tables are definitions");
    *definitions = std::mem::take(definitions)
        .into_iter()
        .map(|(name, table)| (name.trim_start_matches("Raw").to_owned(), table))
        .collect();
    refuse_keys_of_other_kinds(&mut definitions["Store"]);
    schema
}

/// Turns marks of required keys into the list of them.
fn list_required(table: &mut Map<String, Value>) {
    let keys = table.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten();
    let marked = keys.filter_map(|(name, key)| {
        key.as_object_mut()?.remove("x-required")?;
        Some(Value::from(name.as_str()))
    });
    let required: Vec<_> = marked.collect();
    if !required.is_empty() {
        table.insert("required".to_owned(), required.into());
    }
}

/// Adds the range and the default to a key's description.
fn describe(key: &mut Value) {
    let Some(key) = key.as_object_mut() else { return };
    let range = range(key);
    let default = default(key).map(|default| format!("default: {default}"));
    let facts: Vec<_> = range.into_iter().chain(default).collect();
    if !facts.is_empty() {
        let description = key.entry("description").or_insert("".into());
        let text = description.as_str().unwrap_or_default();
        *description = format!("{text} {}.", upper(&facts.join("; "))).trim().into();
    }
}

/// Returns the range of a number, size or duration in words.
pub(super) fn range(key: &Map<String, Value>) -> Option<String> {
    let bound = |size: &str, number: &str| {
        let number = || {
            let bound = key.get(number).filter(|_| key.get("pattern").is_none());
            bound.and_then(Value::as_f64).map(|bound| bound.to_string())
        };
        key.get(size).and_then(Value::as_str).map(str::to_owned).or_else(number)
    };
    match (bound("x-min", "minimum"), bound("x-max", "maximum")) {
        (Some(min), Some(max)) => Some(format!("{min} to {max}")),
        (Some(min), None) if min != "0" => Some(format!("at least {min}")),
        (None, Some(max)) => Some(format!("at most {max}")),
        _ => None,
    }
}

/// Returns the default of a key in words.
pub(super) fn default(key: &Map<String, Value>) -> Option<String> {
    match (key.get("default"), key.get("x-default")) {
        (Some(Value::String(text)), _) if text.is_empty() => Some("empty".to_owned()),
        (Some(Value::String(text)), _) => Some(text.clone()),
        (Some(value), _) => Some(value.to_string()),
        (None, Some(words)) => words.as_str().map(str::to_owned),
        (None, None) => None,
    }
}

/// The schema with links, made once.
static REFERENCE: LazyLock<Value> = LazyLock::new(reference);

/// Returns the accepted range or names of the key at `path`, such as `["slo", "percentile"]`; none
/// if the schema has none.
pub(super) fn accepted(path: &[String]) -> Option<String> {
    let mut at = &*REFERENCE;
    for key in path {
        at = within(at)["properties"].get(key)?;
    }
    let key = within(at).as_object()?;
    if key.get("maxProperties").is_some_and(|max| *max == 1) {
        let names = key["properties"].as_object()?.keys();
        return Some(names.map(|name| format!("{{ {name} = … }}")).collect::<Vec<_>>().join(" or "));
    }
    match key.get("enum").and_then(Value::as_array) {
        Some(names) => Some(either(&names.iter().filter_map(Value::as_str).collect::<Vec<_>>())),
        None => range(key),
    }
}

/// Returns the path and place of the first array within `tree` where a table must be: readers take
/// one for the values of the table's keys in their order.
pub(super) fn array_for_table(tree: &DeTable<'_>) -> Option<(Vec<String>, Range<usize>)> {
    within_table(tree, &REFERENCE)
}

fn within_table(table: &DeTable<'_>, schema: &'static Value) -> Option<(Vec<String>, Range<usize>)> {
    table.iter().find_map(|(name, value)| {
        let schema = within(schema)["properties"].get(name.get_ref().as_ref())?;
        let (mut path, place) = array_at(value, schema)?;
        path.insert(0, name.get_ref().to_string());
        Some((path, place))
    })
}

fn array_at(value: &Spanned<DeValue<'_>>, schema: &'static Value) -> Option<(Vec<String>, Range<usize>)> {
    let table = referred(schema);
    match (value.get_ref(), table.get("items")) {
        (DeValue::Array(values), Some(items)) => values.iter().find_map(|value| array_at(value, items)),
        // A value that may be a text as well is never read from an array.
        (DeValue::Array(_), None) if definition(schema)["anyOf"].is_array() => None,
        (DeValue::Array(_), None) => table.get("properties").map(|_| (Vec::new(), value.span())),
        (DeValue::Table(values), _) => within_table(values, table),
        _ => None,
    }
}

/// Returns the schema that a reference names.
fn definition(schema: &'static Value) -> &'static Value {
    let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
    name.map_or(schema, |name| &REFERENCE["$defs"][name])
}

/// Returns the table that a schema refers to, or whose elements are in its array.
fn within(schema: &'static Value) -> &'static Value {
    let schema = referred(schema);
    schema.get("items").map_or(schema, within)
}

/// Returns the schema that `schema` refers to; that of the table where it is a table or a text.
fn referred(schema: &'static Value) -> &'static Value {
    let schema = definition(schema);
    let mut variants = schema["anyOf"].as_array().into_iter().flatten().map(referred);
    variants.find(|variant| variant["properties"].is_object()).unwrap_or(schema)
}

fn upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Adds a condition for each kind of stores: the keys that it has.
fn refuse_keys_of_other_kinds(store: &mut Value) {
    let properties = store["properties"].as_object().expect("a table has keys");
    let kinds = properties["kind"]["enum"].as_array().expect("kinds are listed").clone();
    let has = |key: &Value, kind: &Value| key["x-kinds"].as_array().is_none_or(|kinds| kinds.contains(kind));
    let condition = |kind: &Value| {
        let keys: Vec<_> =
            properties.iter().filter(|(_, key)| has(key, kind)).map(|(name, _)| name.clone()).collect();
        json!({
            "if": { "properties": { "kind": { "const": kind } }, "required": ["kind"] },
            "then": { "propertyNames": { "enum": keys } },
        })
    };
    let conditions: Vec<_> = kinds.iter().map(condition).collect();
    store["allOf"] = conditions.into();
}
