//! Every key of the configuration with a value of every wrong type.

use serde_json::Value as Schema;
use sherwood_config::{ConfigError, Flags, parse, schema};
use toml::{Table, Value};

/// Phrases of serde and of clap's and axum's errors, which name types of Rust.
const BARE: [&str; 7] = [
    "invalid type:",
    "invalid value:",
    "missing field `",
    "unknown variant `",
    "unknown field `",
    "data did not match any variant",
    " at line ",
];
/// Words before the accepted form of a value.
const ACCEPTED: [&str; 6] = ["write ", "must be ", "is accepted", "set ", "choose ", "must have "];

/// A key by its path from the root of the file; `[]` after a key stands for one element of an
/// array.
#[derive(Clone, Debug)]
struct Key {
    path: Vec<String>,
    types: Vec<String>,
    minimum: Option<f64>,
}

/// Returns the schema that `schema` refers to.
fn referred<'s>(root: &'s Schema, schema: &'s Schema) -> &'s Schema {
    match schema["$ref"].as_str() {
        Some(reference) => &root["$defs"][reference.rsplit('/').next().expect("a name")],
        None => schema,
    }
}

fn types(root: &Schema, schema: &Schema) -> Vec<String> {
    let schema = referred(root, schema);
    if let Some(variants) = schema["anyOf"].as_array() {
        return variants.iter().flat_map(|variant| types(root, variant)).collect();
    }
    match &schema["type"] {
        Schema::String(one) => vec![one.clone()],
        Schema::Array(all) => all.iter().filter_map(Schema::as_str).map(str::to_owned).collect(),
        _ if schema["enum"].is_array() => vec!["string".to_owned()],
        other => panic!("a key without a type: {other} in {schema}"),
    }
}

/// Adds the key at `path`, and those within it.
fn keys(root: &Schema, schema: &Schema, path: &[String], found: &mut Vec<Key>) {
    let below = |name: &str| [path, &[name.to_owned()]].concat();
    let schema = referred(root, schema);
    if !path.is_empty() {
        let minimum = schema["minimum"].as_f64();
        found.push(Key { path: path.to_vec(), types: types(root, schema), minimum });
    }
    for variant in schema["anyOf"].as_array().into_iter().flatten() {
        let before = found.len();
        keys(root, variant, path, found);
        // The value itself is the key above.
        found.remove(before);
    }
    for (name, key) in schema["properties"].as_object().into_iter().flatten() {
        keys(root, key, &below(name), found);
    }
    if schema["items"].is_object() {
        keys(root, &schema["items"], &below("[]"), found);
    }
    if schema["additionalProperties"].is_object() {
        keys(root, &schema["additionalProperties"], &below("any"), found);
    }
}

/// Returns a file with `value` at `path`, and the names of the tables around it.
fn file(path: &[String], value: Value) -> String {
    let mut nested = value;
    for (index, key) in path.iter().enumerate().rev() {
        nested = match (key.as_str(), nested) {
            ("[]", Value::Table(mut table)) => {
                if ["backend", "class", "tenant"].contains(&path[index - 1].as_str()) {
                    table.entry("name").or_insert("a".into());
                }
                Value::Array(vec![Value::Table(table)])
            }
            ("[]", value) => Value::Array(vec![value]),
            (key, value) => Value::Table(Table::from_iter([(key.to_owned(), value)])),
        };
    }
    toml::to_string(&nested).expect("it is a table")
}

/// Returns tables without which nothing is said about the key.
fn beside(path: &[String]) -> &'static str {
    match path[0].as_str() {
        "tenants" => "[[tenant]]\nname = \"a\"\n",
        _ => "",
    }
}

/// Values of each type, and the words for them in an error.
fn values() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("string", Value::from("no such value"), "\"no such value\""),
        ("number", Value::from(1.5), "1.5"),
        ("integer", Value::from(12_345_678_901_i64), "12345678901"),
        ("negative", Value::from(-7), "-7"),
        ("boolean", Value::from(true), "true"),
        ("array", Value::from(vec![true]), "an array"),
        ("object", Value::Table(Table::from_iter([("wrong".to_owned(), 1.into())])), "a table"),
    ]
}

/// Returns true if `key` takes a value of type `kind`.
fn takes(key: &Key, kind: &str) -> bool {
    let takes = |kind: &str| key.types.iter().any(|one| one == kind);
    match kind {
        "integer" => takes("integer") || takes("number"),
        "negative" => {
            key.minimum.is_none_or(|minimum| minimum < 0.0) && (takes("integer") || takes("number"))
        }
        other => takes(other),
    }
}

/// Returns what is wrong with the refusal of `value` for `key`.
fn fault(key: &Key, value: Value, words: &str) -> Option<String> {
    let text = file(&key.path, value) + beside(&key.path);
    let refused = parse("a.toml", &text, &Flags::default(), &["robinhood", "static"]);
    let Err(ConfigError { problems, .. }) = refused else { return Some("it is accepted".to_owned()) };
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    if let Some(bare) = lines.iter().find(|line| BARE.iter().any(|bare| line.contains(bare))) {
        return Some(bare.clone());
    }
    let name = key.path.iter().rev().find(|name| *name != "[]").expect("a name");
    let about = |line: &&String| line.contains(name.as_str());
    // Errors about tables name the key that is unknown there; those about a rule's key, the rule.
    let has_value = |line: &&String| {
        [words, "`wrong`", "is one table", "has an effect with"].iter().any(|words| line.contains(words))
    };
    let has_form = |line: &&String| {
        ACCEPTED.iter().any(|accepted| line.contains(accepted)) || line.contains("the keys here are")
    };
    let is_whole = lines.iter().filter(about).filter(has_value).any(|line| has_form(&line));
    (!is_whole).then(|| lines.join("\n  "))
}

#[test]
fn value_of_a_wrong_type_is_refused_with_its_key_the_value_and_the_accepted_form() {
    let (root, mut all) = (schema(), Vec::new());
    keys(&root, &root, &[], &mut all);
    assert!(all.len() > 200, "{}", all.len());
    let mut faults = Vec::new();
    for key in &all {
        for (kind, value, words) in values() {
            let is_checked = !takes(key, kind);
            if let Some(fault) = is_checked.then(|| fault(key, value, words)).flatten() {
                faults.push(format!("{} = {kind}: {fault}", key.path.join(".")));
            }
        }
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n"));
}
