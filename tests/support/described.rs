//! Holds JSON against a schema, strictly: a member that the schema does not name is wrong, and so is a word of
//! schemas that is not known here. Stands in for: a client made from the description.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// What says nothing of which values fit.
const SILENT: [&str; 8] = [
    "description",
    "default",
    "example",
    "title",
    "required",
    "properties",
    "additionalProperties",
    "propertyNames",
];

/// The schema, or the one that it names.
pub fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(name) => document.pointer(&name[1..]).unwrap_or_else(|| panic!("{name} is not there")),
        None => schema,
    }
}

/// The members that an object of a schema may have.
pub fn members(document: &Value, schema: &Value) -> BTreeSet<String> {
    let properties = resolved(document, schema)["properties"].as_object();
    properties.into_iter().flat_map(Map::keys).cloned().collect()
}

/// What does not fit; empty if all does.
pub fn misfits(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    look(document, schema, value, "", &mut wrong);
    wrong
}

fn look(document: &Value, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    let schema = resolved(document, schema);
    for (word, says) in schema.as_object().expect("a schema is an object") {
        let fits = match word.as_str() {
            "type" => match says {
                Value::Array(types) => types.iter().any(|one| is(one, value)),
                one => is(one, value),
            },
            "enum" => says.as_array().expect("a list").contains(value),
            "oneOf" => {
                let either = says.as_array().expect("a list").iter();
                either.filter(|one| misfits(document, one, value).is_empty()).count() == 1
            }
            "format" => match (says.as_str().expect("a text"), value.as_str()) {
                ("date-time", Some(text)) => text.parse::<jiff::Timestamp>().is_ok(),
                ("uri", Some(text)) => url::Url::parse(text).is_ok(),
                ("int32" | "int64" | "date-time", _) => true,
                (other, _) => panic!("the format {other} is not known here"),
            },
            "minimum" => value.as_f64().is_none_or(|number| says.as_f64().is_some_and(|min| min <= number)),
            "items" => {
                for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                    look(document, says, item, &format!("{at}/{n}"), wrong);
                }
                true
            }
            "maximum" | "maxItems" | "minItems" | "pattern" | "minLength" | "maxLength" => true,
            word if SILENT.contains(&word) => true,
            other => panic!("`{other}` is not known here: {schema}"),
        };
        if !fits {
            wrong.push(format!("{at}: {word} {says} does not take {value}"));
        }
    }
    if let Some(object) = value.as_object() {
        look_at_members(document, schema, object, at, wrong);
    }
}

fn look_at_members(
    document: &Value,
    schema: &Value,
    object: &Map<String, Value>,
    at: &str,
    wrong: &mut Vec<String>,
) {
    for name in schema["required"].as_array().into_iter().flatten() {
        if !object.contains_key(name.as_str().expect("a name")) {
            wrong.push(format!("{at}: {name} is missing"));
        }
    }
    let (named, others) = (schema.get("properties"), schema.get("additionalProperties"));
    for (name, value) in object {
        let at = format!("{at}/{name}");
        match (named.and_then(|named| named.get(name)), others) {
            (Some(schema), _) => look(document, schema, value, &at, wrong),
            (None, Some(schema)) if schema.is_object() => look(document, schema, value, &at, wrong),
            (None, _) if named.is_some() => wrong.push(format!("{at} is not described")),
            // Anything may stand there.
            (None, _) => {}
        }
    }
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str().expect("a type is a text") {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("the type {other} is not known here"),
    }
}
