//! The reference of the configuration: its JSON Schema, and a page of the book.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::golden::{assert_current, indented};
use crate::schema::{self, schema};

/// Tables with a section of their own, in the order of the page; stores are those of backends.
const SECTIONS: [(&str, &str, &str); 18] = [
    ("`[memory]`", "memory", "Memory"),
    ("`[server]`", "server", "Server"),
    ("`[[listener]]`", "listener", "Listener"),
    ("`[[backend]]`", "backend", "Backend"),
    ("A store", STORE, "Store"),
    ("`[tenants]`", "tenants", "Tenants"),
    ("`[[tenant]]`", "tenant", "Tenant"),
    ("`[[resource]]`", "resource", "Resource"),
    ("`[[partition]]`", "partition", "Partition"),
    ("`[slo]`", "slo", "Slo"),
    ("`[[deadline]]`", "deadline", "Deadline"),
    ("`[[scheduler]]`", "scheduler", "Scheduler"),
    ("`[control]`", "control", "Control"),
    ("`[replication]`", "replication", "Replication"),
    ("`[stores]`", "stores", "Stores"),
    ("`[cluster]`", "cluster", "Cluster"),
    ("`[admin]`", "admin", "Admin"),
    ("`[otlp]`", "otlp", "Otlp"),
];
const STORE: &str = "store";

const INTRODUCTION: &str = "# Configuration reference

Made from the code; [Configuration](../configuration.md) explains it. Tables are named as in the
file; `a.b` is key `b` of `a = { … }`, or of a table `[….a]`. A key without a default has no effect
unless it is set; **required** keys have to be set in their table. The kinds of stores that have a
key are in brackets.

Sizes are written with their unit, such as `\"64MiB\"` or `\"1.5GB\"`, or as plain bytes; durations with
`us`, `ms`, `s`, `m`, `h` or `d`.

`sherwood config-schema` prints the same as a JSON Schema, which editors use
[for completion and checks](../configuration.md#in-an-editor).
";

struct Page<'a> {
    definitions: &'a Map<String, Value>,
    text: String,
}

impl Page<'_> {
    fn table<'t>(&'t self, key: &'t Value) -> Option<(&'t str, &'t Value)> {
        let reference = |key: &'t Value| key["$ref"].as_str()?.strip_prefix("#/$defs/");
        let inner = [key, &key["items"], &key["additionalProperties"]].into_iter().find_map(reference);
        let variants = || key["anyOf"].as_array()?.iter().find_map(reference);
        let name = inner.or_else(variants)?;
        let definition = self.definitions.get_key_value(name)?;
        match definition.1["anyOf"].is_array() {
            true => self.table(definition.1),
            false => Some((definition.0, definition.1)),
        }
    }

    /// Adds the rows of a table's keys, those of inner tables below their own.
    fn rows(&mut self, prefix: &str, table: &Value) {
        let required = table["required"].as_array().cloned().unwrap_or_default();
        for (name, key) in table["properties"].as_object().unwrap() {
            let inner = self.table(key).map(|(name, inner)| (name.to_owned(), inner.clone()));
            let value = self.value(key);
            let default = match required.contains(&Value::from(name.as_str())) {
                true => "**required**".to_owned(),
                false => schema::default(key.as_object().unwrap()).unwrap_or_default(),
            };
            let text = key["description"].as_str().unwrap_or_default();
            let text = text.replace("](", "](../").replace('\n', " ");
            let kinds: Vec<_> = key["x-kinds"].as_array().into_iter().flatten().collect();
            let kinds: Vec<_> = kinds.into_iter().filter_map(Value::as_str).collect();
            let kinds = if kinds.is_empty() { String::new() } else { format!("({}) ", kinds.join(", ")) };
            writeln!(self.text, "| `{prefix}{name}` | {value} | {kinds}{text} | {default} |").unwrap();
            match inner {
                Some((name, _)) if name == "Store" => {}
                Some((_, inner)) => {
                    let named = key["additionalProperties"].is_object();
                    let prefix = format!("{prefix}{name}.{}", if named { "NAME." } else { "" });
                    self.rows(&prefix, &inner);
                }
                None => {}
            }
        }
    }

    /// Returns the values that a key accepts in words.
    fn value(&self, key: &Value) -> String {
        if let Some(values) = key["enum"].as_array() {
            return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
        }
        if let Some(variants) = key["anyOf"].as_array() {
            return variants.iter().map(|value| self.value(value)).collect::<Vec<_>>().join(", or ");
        }
        if let Some(name) = key["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/")) {
            return match (name, &self.definitions[name]) {
                ("Store", _) => "[a store](#a-store)".to_owned(),
                (_, named) if named["anyOf"].is_array() => self.value(named),
                _ => "a table".to_owned(),
            };
        }
        let kind = match (key["type"].as_str(), key["pattern"].as_str()) {
            (_, Some(pattern)) if pattern.contains("MiB") => "a size",
            (_, Some(pattern)) if pattern.contains("ms") => "a duration",
            (Some("string"), _) => "a text",
            (Some("integer"), _) => "an integer",
            (Some("number"), _) => "a number",
            (Some("boolean"), _) => "`true`, `false`",
            (Some("array"), _) => return format!("a list, each {}", self.value(&key["items"])),
            (Some("object"), _) if key["properties"].is_object() => "a table",
            (Some("object"), _) => {
                return format!("a table of names, each {}", self.value(&key["additionalProperties"]));
            }
            other => panic!("no words for {other:?} of {key}"),
        };
        let range = schema::range(key.as_object().unwrap());
        range.map_or(kind.to_owned(), |range| format!("{kind}, {range}"))
    }
}

fn page() -> String {
    let reference = schema::reference();
    let definitions = reference["$defs"].as_object().unwrap();
    let listed: Vec<_> = SECTIONS.iter().map(|(_, key, _)| *key).filter(|key| *key != STORE).collect();
    let mut known: Vec<_> = reference["properties"].as_object().unwrap().keys().collect();
    known.sort_by_key(|key| listed.iter().position(|listed| listed == key));
    assert_eq!(known, listed, "every table has a section");
    let mut page = Page { definitions, text: INTRODUCTION.to_owned() };
    for (heading, _, definition) in SECTIONS {
        let table = &definitions[definition];
        let about = match definition {
            "Store" => "Keys of `[backend.store]`, or of each entry in `replicas`.",
            _ => table["description"].as_str().unwrap(),
        };
        writeln!(page.text, "\n## {heading}\n\n{}\n", wrapped(&about.replace("](", "](../"))).unwrap();
        page.text.push_str("| key | value | meaning | default |\n|---|---|---|---|\n");
        page.rows("", table);
    }
    page.text
}

/// Breaks lines at 100 columns.
fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= 100 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[test]
fn reference_of_the_configuration_is_current() {
    assert_current("docs/sherwood.schema.json", &indented(&schema()));
    assert_current("docs/src/reference/configuration.md", &page());
}
