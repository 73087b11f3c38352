//! Every route of the admin API with a value of every wrong type for each of its inputs. Routes and
//! inputs are those of the API's own description.

use serde_json::{Value, json};
use sherwood_node::Node;

use crate::support::{Answer, Fake, Http, setup};

/// Phrases of serde's and axum's errors, which name types of Rust.
const BARE: [&str; 8] = [
    "invalid type:",
    "invalid value:",
    "missing field `",
    "unknown variant `",
    "unknown field `",
    "data did not match any variant",
    "Failed to deserialize",
    " at line ",
];

/// An input by its JSON path or the name of its parameter.
struct Input {
    /// Fields from the body to the input; `[]` stands for the first element of an array.
    path: Vec<String>,
    types: Vec<String>,
}

fn node() -> Node {
    Node::start(setup(vec![("catalog", vec![Fake::new([])])])).expect("it starts")
}

/// Returns the schema that `schema` refers to.
fn referred<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    match schema["$ref"].as_str() {
        Some(reference) => &document["components"]["schemas"][reference.rsplit('/').next().expect("a name")],
        None => schema,
    }
}

fn types(schema: &Value) -> Vec<String> {
    match &schema["type"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        other => panic!("an input without a type: {other} in {schema}"),
    }
}

/// Adds the input at `path`, and those within it.
fn inputs(document: &Value, schema: &Value, path: &[String], found: &mut Vec<Input>) {
    let schema = referred(document, schema);
    found.push(Input { path: path.to_vec(), types: types(schema) });
    let below = |name: &str| [path, &[name.to_owned()]].concat();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        inputs(document, field, &below(name), found);
    }
    if schema["items"].is_object() {
        inputs(document, &schema["items"], &below("[]"), found);
    }
    if schema["additionalProperties"].is_object() {
        inputs(document, &schema["additionalProperties"], &below("any"), found);
    }
}

/// A value of each type, and the words for it in an error.
fn values() -> [(&'static str, Value, &'static str); 8] {
    [
        ("string", json!("no such value"), "\"no such value\""),
        ("number", json!(1.5), "1.5"),
        ("integer", json!(12_345_678_901_234_567_u64), "12345678901234567"),
        ("negative", json!(-7), "-7"),
        ("boolean", json!(true), "true"),
        ("array", json!([true]), "an array"),
        ("object", json!({"wrong": 1}), "an object"),
        ("null", Value::Null, "null"),
    ]
}

/// Returns true if an input of these types takes a value of type `kind`, or is checked against a
/// range afterwards.
fn takes(types: &[String], kind: &str) -> bool {
    let takes = |kind: &str| types.iter().any(|one| one == kind);
    match kind {
        "integer" => takes("integer") || takes("number"),
        "negative" => takes("number"),
        other => takes(other),
    }
}

/// Returns what is wrong with the refusal of an input called `name`.
fn fault(answer: &Answer, name: &str, words: &[&str]) -> Option<String> {
    let body = &answer.body;
    if answer.status != 400 {
        return Some(format!("{} {body}", answer.status));
    }
    let error = answer.json()["error"].as_str().expect("a text").to_owned();
    let is_whole = error.contains(name)
        && words.iter().any(|words| error.contains(words))
        && ["write ", "the keys here are", "the parameters here are"].iter().any(|form| error.contains(form))
        && !BARE.iter().any(|bare| error.contains(bare));
    (!is_whole).then_some(error)
}

/// Returns the body with `value` at `path` alone.
fn body(path: &[String], value: Value) -> Value {
    path.iter().rev().fold(value, |value, key| match key.as_str() {
        "[]" => json!([value]),
        key => json!({ key: value }),
    })
}

/// Sends every value of a wrong type for every input of a body, and collects faults.
fn bodies(http: Http, method: &str, path: &str, all: &[Input], faults: &mut Vec<String>) {
    for Input { path: at, types } in all {
        let name = at.iter().rev().find(|name| *name != "[]").map_or("", String::as_str);
        let is_optional = !at.is_empty() && !["[]", "any"].contains(&at[at.len() - 1].as_str());
        for (kind, value, words) in values() {
            // Null stands for an absent field.
            if takes(types, kind) || (kind == "null" && is_optional) {
                continue;
            }
            let answer = http.ask(method, path, &body(at, value).to_string());
            // The fields of an object are read from an array, too, and refused there.
            let elements = if kind == "array" { "true" } else { words };
            if let Some(fault) = fault(&answer, name, &[words, elements]) {
                faults.push(format!("{method} {path} {} = {kind}: {fault}", at.join(".")));
            }
        }
        if takes(types, "object") {
            let answer = http.ask(method, path, &body(at, json!({"wrong": 1})).to_string());
            let is_map = all.iter().any(|input| input.path == [at.as_slice(), &["any".to_owned()]].concat());
            let fault = (!is_map).then(|| fault(&answer, "", &["`wrong`", "\"wrong\""])).flatten();
            faults.extend(fault.map(|fault| format!("{method} {path} {} = unknown: {fault}", at.join("."))));
        }
    }
}

/// Sends every value of a wrong type for every parameter of a query, and collects faults.
fn queries(http: Http, method: &str, path: &str, operation: &Value, faults: &mut Vec<String>) {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
        let name = parameter["name"].as_str().expect("a name");
        let types = types(&parameter["schema"]);
        for value in ["no-such-value", "1.5", "-7", "true", "[]", "{}", "null", ""] {
            let is_read = match types[0].as_str() {
                "integer" => value.parse::<u64>().is_ok(),
                "number" => value.parse::<f64>().is_ok(),
                "boolean" => value.parse::<bool>().is_ok(),
                _ => true,
            };
            if is_read {
                continue;
            }
            let answer = http.ask(method, &format!("{path}?{name}={}", value.replace(['{', '}'], "%7B")), "");
            let words = format!("\"{}\"", value.replace(['{', '}'], "{"));
            if let Some(fault) = fault(&answer, name, &[&words]) {
                faults.push(format!("{method} {path}?{name}={value}: {fault}"));
            }
        }
        let unknown = http.ask(method, &format!("{path}?wrong=1"), "");
        faults
            .extend(fault(&unknown, "", &["`wrong`"]).map(|fault| format!("{method} {path}?wrong: {fault}")));
    }
}

fn filled(path: &str) -> String {
    let mut filled = path.to_owned();
    for (name, value) in
        [("{backend}", "catalog"), ("{name}", "catalog"), ("{partition}", "catalog"), ("{key}", "k")]
    {
        filled = filled.replace(name, value);
    }
    filled.replace("{*key}", "k").replace("{file}", "a.js")
}

#[test]
fn input_of_a_wrong_type_is_refused_with_its_name_the_value_and_the_accepted_form() {
    let node = node();
    let http = Http::of(&node);
    let document = http.get("/v1/openapi.json");
    let (mut faults, mut checked) = (Vec::new(), 0);
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let (method, path) = (method.to_uppercase(), filled(path));
            queries(http, &method, &path, operation, &mut faults);
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            if schema.is_object() {
                let mut all = Vec::new();
                inputs(&document, schema, &[], &mut all);
                bodies(http, &method, &path, &all, &mut faults);
                checked += all.len();
            }
        }
    }
    assert!(checked > 40, "{checked}");
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn method_that_a_path_lacks_is_refused_with_the_accepted_ones() {
    let node = node();
    let http = Http::of(&node);
    let document = http.get("/v1/openapi.json");
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let answer = http.ask("PATCH", &filled(path), "");
        let error = answer.refusal(405);
        let head = answer.head.to_uppercase();
        let allowed = head.lines().find_map(|line| line.strip_prefix("ALLOW: ")).expect("the header Allow");
        for method in methods.as_object().expect("methods").keys() {
            let method = method.to_uppercase();
            assert!(error.contains("PATCH") && error.contains(&method), "{method} {path}: {error}");
            assert!(allowed.split(',').any(|one| one == method), "{method} {path}: {allowed}");
        }
    }
}

#[test]
fn size_with_its_unit_is_accepted_where_bytes_are() {
    let node = node();
    let http = Http::of(&node);
    http.ask("PUT", "/v1/control", r#"{"policy":"static"}"#);
    let set =
        http.ask("PUT", "/v1/partitions/catalog", r#"{"allocated_bytes":"2MiB","min_bytes":"1.5 MiB"}"#);
    assert_eq!(
        (set.json()["allocated_bytes"].as_u64(), set.json()["min_bytes"].as_u64()),
        (Some(2 << 20), Some(3 << 19))
    );
    let refusal = http.ask("PUT", "/v1/partitions/catalog", r#"{"allocated_bytes":"2 MB/s"}"#).refusal(400);
    assert!(refusal.contains("at allocated_bytes: \"2 MB/s\" is no size; write"), "{refusal}");
}
