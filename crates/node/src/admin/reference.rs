//! The reference of the admin API: its OpenAPI document, and the part of the book's page that lists
//! requests and types.

use std::fmt::Write;

use serde_json::Value;

use super::operation::document;
use super::routes;
use crate::golden::{assert_current, indented};

const INTRODUCTION: &str = "## Requests

Made from the code, as is `GET /v1/openapi.json` (OpenAPI 3.1; in the repository
`docs/openapi.json`). *Open* requests need no token.
";

/// Returns a schema in words.
fn words(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(variants) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        return variants.iter().map(words).collect::<Vec<_>>().join(" or ");
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    }
    let types = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => return "any".to_owned(),
    };
    let word = |kind: &&str| match *kind {
        "array" if schema["items"].is_object() => format!("list of {}", words(&schema["items"])),
        "array" => "list".to_owned(),
        "object" if schema["additionalProperties"].is_object() => {
            format!("object of {}", words(&schema["additionalProperties"]))
        }
        other => other.to_owned(),
    };
    types.iter().map(word).collect::<Vec<_>>().join(" or ")
}

fn content(of: &Value) -> Option<String> {
    let (media, content) = of["content"].as_object()?.iter().next()?;
    Some(if media == "application/json" { words(&content["schema"]) } else { format!("`{media}`") })
}

fn operation(text: &mut String, method: &str, operation: &Value) {
    let open = if operation["security"].is_array() { " *Open.*" } else { "" };
    let summary = operation["summary"].as_str().unwrap();
    writeln!(text, "\n**{}**: {summary}.{open}\n", method.to_uppercase()).unwrap();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let meaning = parameter["description"].as_str().unwrap_or_default();
        let (name, place) = (parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap());
        let separator = if meaning.is_empty() { "" } else { ": " };
        writeln!(text, "- {place} `{name}`{separator}{meaning}").unwrap();
    }
    if let Some(body) = content(&operation["requestBody"]) {
        writeln!(text, "- takes {body}").unwrap();
    }
    for (status, response) in operation["responses"].as_object().unwrap() {
        let reason = response["description"].as_str();
        match (content(response), reason) {
            _ if status == "default" => {}
            (Some(content), _) => writeln!(text, "- {status}: {content}").unwrap(),
            (None, Some(reason)) => writeln!(text, "- {status}: {reason}").unwrap(),
            (None, None) => writeln!(text, "- {status}").unwrap(),
        }
    }
}

fn schema(text: &mut String, name: &str, schema: &Value) {
    writeln!(text, "\n### {name}\n").unwrap();
    if let Some(about) = schema["description"].as_str() {
        writeln!(text, "{about}\n").unwrap();
    }
    let Some(fields) = schema["properties"].as_object() else {
        writeln!(text, "{}", words(schema)).unwrap();
        return;
    };
    text.push_str("| field | type | meaning |\n|---|---|---|\n");
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (field, of) in fields {
        let optional = if required.contains(&Value::from(field.as_str())) { "" } else { ", optional" };
        let meaning = of["description"].as_str().unwrap_or_default();
        writeln!(text, "| `{field}` | {}{optional} | {meaning} |", words(of)).unwrap();
    }
}

/// Breaks long lines of text at 100 columns; those of tables and headings stay.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if line.len() <= 100 || line.starts_with(['|', '#']) {
            out.push_str(line);
        } else {
            let mut width = 0;
            for word in line.split(' ') {
                if width > 0 && width + 1 + word.len() > 100 {
                    let indent = if line.starts_with("- ") { "\n  " } else { "\n" };
                    out.push_str(indent);
                    width = indent.len() - 1;
                } else if width > 0 {
                    out.push(' ');
                    width += 1;
                }
                out.push_str(word);
                width += word.len();
            }
        }
        out.push('\n');
    }
    out
}

fn page(document: &Value) -> String {
    let mut text = INTRODUCTION.to_owned();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let methods = methods.as_object().unwrap();
        let names = methods.keys().map(|method| method.to_uppercase()).collect::<Vec<_>>().join(", ");
        // The path comes first, so that anchors differ from those of the page's sections.
        writeln!(text, "\n### {path}: {names}").unwrap();
        for (method, of) in methods {
            operation(&mut text, method, of);
        }
    }
    text.push_str("\n## Types\n");
    for (name, of) in document["components"]["schemas"].as_object().unwrap() {
        schema(&mut text, name, of);
    }
    wrapped(&text)
}

#[test]
fn reference_of_the_admin_api_is_current() {
    let document = document(&routes::all().described);
    assert_current("docs/openapi.json", &indented(&document));
    assert_current("docs/src/reference/admin-api.md", &page(&document));
}

#[test]
fn every_route_has_an_operation_of_its_own() {
    let routes = routes::all().described;
    let mut ids: Vec<String> = routes.iter().map(|route| format!("{:?}", route.operation)).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), routes.len());
}
