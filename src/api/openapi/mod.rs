//! `/v1/openapi.json` and `/docs/api`: the API described (OpenAPI 3.1), for programs and for people, out of the
//! table of routes, the operations and the shapes. Holds nothing of a store, so it is for everybody.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `operations` | one entry for each route |
//! | `operation` | how an entry is said |
//! | `shapes`, `told`, `words` | what requests bring; answers that have no type of their own; words |
//! | `page` | the description as a page |

mod operation;
mod operations;
mod page;
mod shapes;
mod told;
pub(super) mod words;

use std::sync::LazyLock;

use axum::http::HeaderValue;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hooklog_projections::access::Role;
use serde_json::{Map, Value, json};

use super::access::Right;
use super::routes;
use operation::{Operation, op};

/// The whole description, as JSON.
pub fn document() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(assembled);
    &DOCUMENT
}

pub(super) async fn description() -> Response {
    let body = document().to_string();
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

pub(super) async fn reference() -> Response {
    static PAGE: LazyLock<(String, String)> = LazyLock::new(|| page::page(document()));
    let (page, policy) = &*PAGE;
    let policy = HeaderValue::from_str(policy).expect("a policy is ASCII");
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    ([(CONTENT_TYPE, html), (CONTENT_SECURITY_POLICY, policy)], page.clone()).into_response()
}

fn assembled() -> Value {
    let (mut paths, mut schemas, mut tags) = (Map::new(), Map::new(), Vec::new());
    let refusal = op("GET /", "", "").gives::<told::Problem>(400, "");
    schemas.extend(refusal.shapes);
    for (tag, operations) in operations::all() {
        tags.push(json!({ "name": tag }));
        for operation in operations {
            let (method, path) = operation.route.split_once(' ').expect("a method and a path");
            let described = described(tag, &operation, right(operation.route));
            schemas.extend(operation.shapes);
            let of_path = paths.entry(path.to_owned()).or_insert_with(|| json!({}));
            of_path[method.to_lowercase()] = described;
        }
    }
    let known = schemas.clone();
    schemas.values_mut().for_each(|schema| flatten(schema, &known));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Hooklog",
            "version": "1",
            "summary": "Self-hosted outbound webhook delivery.",
            "description": "JSON in and out. Moments are RFC 3339: with any offset in, UTC to the millisecond out. An unknown member or \
                parameter is refused; an optional one may be absent, empty (parameters) or `null` (members). Every \
                refusal is `application/problem+json`. What is optional in an answer is absent, not `null`.",
            "license": { "name": env!("CARGO_PKG_LICENSE") },
        },
        "servers": [{ "url": "/" }],
        "tags": tags,
        "security": [{ "key": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                "Refusal": {
                    "description": "It was refused, and why.",
                    "content": {
                        "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } },
                    },
                },
            },
            "securitySchemes": {
                "key": { "type": "http", "scheme": "bearer", "description": "A key of the API." },
                "session": { "type": "apiKey", "in": "cookie", "name": "__Host-hooklog" },
            },
        },
    })
}

/// What a route wants; `None` if there is no such route (`tests/openapi.rs` fails then).
fn right(route: &str) -> Option<Right> {
    let (method, path) = route.split_once(' ')?;
    routes::right_of(path, &method.parse().ok()?)
}

fn described(tag: &str, operation: &Operation, right: Option<Right>) -> Value {
    let roles = Role::ALL.into_iter().filter(|role| right.is_some_and(|right| right.is_of(*role)));
    let roles: Vec<_> = roles.map(|role| format!("`{}`", role.as_str())).collect();
    let (whose, security) = match right {
        Some(Right::Open) => ("For everybody.".to_owned(), Some(json!([]))),
        Some(Right::Session) => ("For a session of the portal.".to_owned(), Some(json!([{ "session": [] }]))),
        _ => (format!("For {}.", roles.join(", ")), None),
    };
    let mut responses = operation.answers.clone();
    responses.insert("default".into(), json!({ "$ref": "#/components/responses/Refusal" }));
    let mut out = json!({
        "operationId": operation.id,
        "tags": [tag],
        "summary": operation.summary,
        "description": whose,
        "responses": responses,
    });
    if !operation.parameters.is_empty() {
        out["parameters"] = json!(operation.parameters);
    }
    if let Some(body) = &operation.body {
        out["requestBody"] = body.clone();
    }
    if let Some(security) = security {
        out["security"] = security;
    }
    out
}

/// Makes one object of an object and those that it takes in whole: generators make one type of it then.
fn flatten(schema: &mut Value, known: &Map<String, Value>) {
    let Some(parts) = schema["allOf"].as_array().cloned() else { return };
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for mut part in parts {
        if let Some(name) = part["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            part = known[name].clone();
        }
        flatten(&mut part, known);
        properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
        required.extend(part["required"].as_array().cloned().unwrap_or_default());
    }
    let description = schema["description"].take();
    *schema = json!({ "type": "object", "properties": properties, "required": required });
    if !description.is_null() {
        schema["description"] = description;
    }
}
