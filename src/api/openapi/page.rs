//! The description as a page: one document, no script, nothing from anywhere else. Never knows what it describes.

use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:64rem;padding:1rem}\
code,.path{font-family:ui-monospace,monospace;font-size:.9em;overflow-wrap:anywhere}\
section{border-top:1px solid #8886;padding:.25rem 0 .75rem}\
h3{margin:.5rem 0;font-size:1rem}\
.method{display:inline-block;min-width:4.5em;font-weight:700}\
table{border-collapse:collapse;width:100%}\
td,th{border-bottom:1px solid #8883;padding:.25rem .5rem;text-align:left;vertical-align:top}\
nav li{display:inline-block;margin-right:1rem}\
nav ul{padding:0}\
a{color:LinkText}\
.table{overflow-x:auto}";

/// The page, and the policy that lets its one style sheet be used and nothing else be loaded.
pub(super) fn page(document: &Value) -> (String, String) {
    let hash = STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Hooklog: the API</title>\
         <style>{STYLE}</style></head><body><header><h1>The API, version {}</h1><p>{}</p>\
         <p>For programs: <a href=\"/v1/openapi.json\">openapi.json</a></p></header>",
        text(&document["info"]["version"]),
        text(&document["info"]["description"])
    );
    let tags = document["tags"].as_array().into_iter().flatten().filter_map(|tag| tag["name"].as_str());
    out.push_str("<nav aria-label=\"Parts\"><ul>");
    for tag in tags.clone().chain(["shapes"]) {
        let _ = write!(out, "<li><a href=\"#{tag}\">{tag}</a></li>");
    }
    out.push_str("</ul></nav><main>");
    for tag in tags {
        let _ = write!(out, "<h2 id=\"{tag}\">{tag}</h2>");
        for (path, methods) in members(&document["paths"]) {
            for (method, operation) in members(methods) {
                if operation["tags"][0] == *tag {
                    section(&mut out, method, path, operation);
                }
            }
        }
    }
    out.push_str("<h2 id=\"shapes\">shapes</h2>");
    for (name, schema) in members(&document["components"]["schemas"]) {
        let _ = write!(out, "<section><h3 id=\"{name}\"><code>{name}</code></h3>");
        shape(&mut out, schema);
        out.push_str("</section>");
    }
    out.push_str("</main></body></html>");
    (out, policy)
}

fn section(out: &mut String, method: &str, path: &str, operation: &Value) {
    let id = text(&operation["operationId"]);
    let _ = write!(
        out,
        "<section><h3 id=\"{id}\"><span class=\"method\">{}</span> <span class=\"path\">{}</span></h3>\
         <p>{} {}</p>",
        method.to_uppercase(),
        escaped(path),
        text(&operation["summary"]),
        text(&operation["description"])
    );
    let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !parameters.is_empty() {
        out.push_str(
            "<div class=\"table\"><table><tr><th>Parameter</th><th>In</th><th>Is</th><th></th></tr>",
        );
        for parameter in parameters {
            let _ = write!(
                out,
                "<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td></tr>",
                text(&parameter["name"]),
                text(&parameter["in"]),
                kind(&parameter["schema"]),
                text(&parameter["description"])
            );
        }
        out.push_str("</table></div>");
    }
    if let Some(body) = operation.get("requestBody") {
        let must = if body["required"] == true { "must be there" } else { "may be there" };
        for (media, content) in members(&body["content"]) {
            let _ = write!(
                out,
                "<p>Body ({must}): <code>{}</code> {}</p>",
                escaped(media),
                kind(&content["schema"])
            );
        }
    }
    out.push_str("<ul>");
    for (status, answer) in members(&operation["responses"]) {
        if status == "default" {
            out.push_str("<li>else: <a href=\"#Problem\">Problem</a></li>");
        }
        for (media, content) in members(&answer["content"]) {
            let _ = write!(
                out,
                "<li>{status}: {} <code>{}</code> {}</li>",
                text(&answer["description"]),
                escaped(media),
                kind(&content["schema"])
            );
        }
    }
    out.push_str("</ul></section>");
}

fn shape(out: &mut String, schema: &Value) {
    let _ = write!(out, "<p>{} {}</p>", text(&schema["description"]), kind(schema));
    let properties = members(&schema["properties"]);
    if properties.clone().next().is_none() {
        return;
    }
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    out.push_str("<div class=\"table\"><table><tr><th>Member</th><th>Is</th><th></th></tr>");
    for (name, member) in properties {
        let may = if required.iter().any(|one| one == name) { "" } else { " (may be absent)" };
        let _ = write!(
            out,
            "<tr><td><code>{}</code></td><td>{}{may}</td><td>{}</td></tr>",
            escaped(name),
            kind(member),
            text(&member["description"])
        );
    }
    out.push_str("</table></div>");
}

/// What a value is, in a few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return format!("<a href=\"#{0}\">{0}</a>", escaped(name));
    }
    if let Some(words) = schema["enum"].as_array() {
        return words
            .iter()
            .map(|word| format!("<code>{}</code>", text(word)))
            .collect::<Vec<_>>()
            .join(", ");
    }
    if let Some(either) = schema["oneOf"].as_array() {
        return either.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    let mut out = match &schema["type"] {
        Value::Array(types) => types.iter().map(text).collect::<Vec<_>>().join(" or "),
        Value::String(only) if only == "array" => format!("list of {}", kind(&schema["items"])),
        Value::String(only) => escaped(only),
        _ => "anything".into(),
    };
    let limits = [
        ("format", ""),
        ("minLength", "characters ≥ "),
        ("maxLength", "characters ≤ "),
        ("minItems", "items ≥ "),
        ("maxItems", "items ≤ "),
        ("minimum", "≥ "),
        ("maximum", "≤ "),
    ];
    for (limit, words) in limits {
        if let Some(value) = schema.get(limit).filter(|_| schema["type"] != "array" || limit != "format") {
            let _ = write!(out, ", {words}{}", text(value));
        }
    }
    out
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> + Clone {
    value.as_object().into_iter().flatten()
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => escaped(text),
        other => escaped(&other.to_string()),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
