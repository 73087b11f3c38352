//! The description of a request of the admin API, next to its route: parameters, bodies, answers.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use sherwood_config::json_schema::{for_each_object, in_plain_text, without_format, without_null};
use sherwood_ports::http::ProblemBody;

/// Media type of JSON.
const JSON: &str = "application/json";

/// The schema of a type, in a document whose definitions the generator collects.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A request that the admin API takes.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    id: &'static str,
    summary: &'static str,
    query: Option<SchemaOf>,
    header: Option<(&'static str, &'static str)>,
    body: Option<Content>,
    answer: (StatusCode, Option<Content>),
    /// Statuses of refusals, and their reasons.
    refusals: Vec<(StatusCode, &'static str)>,
    is_open: bool,
}

/// The content of a body.
#[derive(Clone, Debug)]
struct Content {
    media: &'static str,
    schema: Option<SchemaOf>,
}

impl Operation {
    /// Creates an operation that answers 204; `id` is unique.
    pub(super) fn new(id: &'static str, summary: &'static str) -> Self {
        Self {
            id,
            summary,
            query: None,
            header: None,
            body: None,
            answer: (StatusCode::NO_CONTENT, None),
            refusals: Vec::new(),
            is_open: false,
        }
    }

    /// Answers with JSON.
    pub(super) fn answers<T: JsonSchema>(self) -> Self {
        let content = Content { media: JSON, schema: Some(|schemas| schemas.subschema_for::<T>()) };
        Self { answer: (StatusCode::OK, Some(content)), ..self }
    }

    /// Answers with another media type.
    pub(super) fn answers_with(self, media: &'static str) -> Self {
        Self { answer: (StatusCode::OK, Some(Content { media, schema: None })), ..self }
    }

    /// Takes a body of JSON.
    pub(super) fn takes<T: JsonSchema>(self) -> Self {
        Self {
            body: Some(Content { media: JSON, schema: Some(|schemas| schemas.subschema_for::<T>()) }),
            ..self
        }
    }

    /// Takes a body of another media type.
    pub(super) fn takes_with(self, media: &'static str) -> Self {
        Self { body: Some(Content { media, schema: None }), ..self }
    }

    /// Takes the fields of `T` as query parameters.
    pub(super) fn query<T: JsonSchema>(self) -> Self {
        Self { query: Some(|_| schemars::schema_for!(T)), ..self }
    }

    /// Takes an optional header.
    pub(super) fn header(self, name: &'static str, meaning: &'static str) -> Self {
        Self { header: Some((name, meaning)), ..self }
    }

    /// Refuses with this status for a reason.
    pub(super) fn refuses(mut self, status: u16, reason: &'static str) -> Self {
        let status = StatusCode::from_u16(status).expect("a status");
        self.refusals.push((status, reason));
        self
    }

    /// Needs no token.
    pub(super) fn open(self) -> Self {
        Self { is_open: true, ..self }
    }
}

/// An operation with its method and the pattern of its path.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) operation: Operation,
}

const ABOUT: &str = "Admin API and gateway of a node of Sherwood. Units are part of the names: `_bytes`, `_ms`, `_us`, `_s`, and \
                     `_ratio` from 0 to 1. Answers are one line; `?pretty`, or `Accept: text/plain`, indents them.";

/// Returns the OpenAPI 3.1 document of routes.
pub(super) fn document(routes: &[Route]) -> Value {
    let settings = || {
        SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
        })
    };
    let mut asked = settings().into_generator();
    let mut answered = settings().for_serialize().into_generator();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for Route { method, path, operation } in routes {
        let described = describe(path, operation, &mut asked, &mut answered);
        let path = path.replace("{*", "{");
        paths.entry(path).or_default().insert(method.to_lowercase(), described);
    }
    let problem = answered.subschema_for::<ProblemBody>();
    let mut asked = json!(asked.take_definitions(true));
    for_each_object(&mut asked, &mut without_null);
    let mut schemas = json!(answered.take_definitions(true));
    for_each_object(&mut schemas, &mut without_format);
    for (name, schema) in asked.as_object().cloned().unwrap_or_default() {
        schemas[name] = schema;
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sherwood",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:8080", "description": "the default of `[admin] bind`" }],
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A line of `[admin] token_file`, or of `read_token_file` for methods that change nothing.",
                },
            },
            "responses": {
                "Problem": {
                    "description": "A refusal, with the remedy in words.",
                    "content": { JSON: { "schema": problem } },
                },
            },
        },
    });
    for_each_object(&mut document, &mut in_plain_text);
    document
}

fn describe(
    path: &str,
    operation: &Operation,
    asked: &mut SchemaGenerator,
    answered: &mut SchemaGenerator,
) -> Value {
    let Operation { id, summary, query, header, body, answer, refusals, is_open } = operation;
    let in_path =
        path.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0.trim_start_matches('*')));
    let text = json!({ "type": "string" });
    let mut parameters: Vec<_> =
        in_path.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text })).collect();
    parameters.extend(query.iter().flat_map(|of| query_parameters(of(asked).to_value())));
    parameters.extend(header.iter().map(
        |(name, meaning)| json!({ "name": name, "in": "header", "description": meaning, "schema": text }),
    ));
    let (status, content) = answer;
    let mut answer = json!({ "description": status.canonical_reason() });
    if let Some(content) = content {
        answer["content"] = of_media(content, answered);
    }
    let mut responses = Map::new();
    responses.insert(status.as_str().to_owned(), answer);
    let problem = json!({ "$ref": "#/components/responses/Problem" });
    let refused = refusals.iter().map(|(status, reason)| {
        let mut refusal = problem.clone();
        refusal["description"] = (*reason).into();
        (status.as_str().to_owned(), refusal)
    });
    responses.extend(refused);
    responses.insert("default".to_owned(), problem.clone());
    let mut described = json!({ "operationId": id, "summary": summary, "responses": responses });
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(content) = body {
        described["requestBody"] = json!({ "required": true, "content": of_media(content, asked) });
    }
    if *is_open {
        described["security"] = json!([]);
    }
    described
}

fn of_media(Content { media, schema }: &Content, schemas: &mut SchemaGenerator) -> Value {
    let schema = schema.map_or_else(|| json!({}), |schema| schema(schemas).to_value());
    json!({ *media: { "schema": schema } })
}

/// Returns the parameters of a query whose fields have this schema.
fn query_parameters(mut schema: Value) -> Vec<Value> {
    for_each_object(&mut schema, &mut without_null);
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    let parameter = |(name, mut schema): (String, Value)| {
        let meaning = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let required = required.contains(&Value::from(name.as_str()));
        let mut parameter = json!({ "name": name, "in": "query", "required": required, "schema": schema });
        if let Some(meaning) = meaning {
            parameter["description"] = meaning;
        }
        parameter
    };
    fields.into_iter().map(parameter).collect()
}
