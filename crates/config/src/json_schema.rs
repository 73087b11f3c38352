//! Changes to JSON Schemas that are made of types.

use serde_json::{Map, Value};

/// Calls `change` with every object of a document, inner ones first.
pub fn for_each_object(document: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    match document {
        Value::Array(values) => values.iter_mut().for_each(|value| for_each_object(value, change)),
        Value::Object(object) => {
            object.values_mut().for_each(|value| for_each_object(value, change));
            change(object);
        }
        _ => {}
    }
}

/// Removes null from the types of an optional value, for documents where it is left out instead,
/// and the formats of numbers, which name types of Rust.
pub fn without_null(schema: &mut Map<String, Value>) {
    without_format(schema);
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = &mut types[..] {
            schema["type"] = only.take();
        }
    }
    if let Some(Value::Array(variants)) = schema.get_mut("anyOf") {
        variants.retain(|variant| variant.get("type").is_none_or(|kind| kind != "null"));
        if let [only] = &mut variants[..] {
            let only = only.take();
            schema.remove("anyOf");
            for (key, value) in only.as_object().cloned().unwrap_or_default() {
                schema.entry(key).or_insert(value);
            }
        }
    }
}

/// Removes the format of a number, which names a type of Rust.
pub fn without_format(schema: &mut Map<String, Value>) {
    if schema.get("format").is_some_and(Value::is_string) {
        schema.remove("format");
    }
}

/// Removes links and line ends from a description.
pub fn in_plain_text(schema: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = without_links(text).split_whitespace().collect::<Vec<_>>().join(" ");
    }
}

/// Replaces links as Markdown writes them by their texts.
fn without_links(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(middle) = rest.find("](") {
        let (before, after) = rest.split_at(middle);
        let Some((start, end)) = before.rfind('[').zip(after.find(')')) else { break };
        plain.push_str(&before[..start]);
        plain.push_str(&before[start + 1..]);
        rest = &after[end + 1..];
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_removed_from_optional_types() {
        let mut schema = json!({ "properties": {
            "a": { "type": ["integer", "null"], "format": "uint64" },
            "b": { "anyOf": [{ "$ref": "#/$defs/B" }, { "type": "null" }], "description": "b" },
            "c": { "anyOf": [{ "type": "string" }, { "type": "number" }, { "type": "null" }] },
        } });
        for_each_object(&mut schema, &mut without_null);
        let expected = json!({ "properties": {
            "a": { "type": "integer" },
            "b": { "$ref": "#/$defs/B", "description": "b" },
            "c": { "anyOf": [{ "type": "string" }, { "type": "number" }] },
        } });
        assert_eq!(schema, expected);
    }

    #[test]
    fn links_are_replaced_by_their_texts() {
        let plain = |text: &str| without_links(text);
        assert_eq!(plain("[a b](c.md#d) e, [f](g) [h"), "a b e, f [h");
        assert_eq!(plain("](a [b](c"), "](a [b](c");
    }
}
