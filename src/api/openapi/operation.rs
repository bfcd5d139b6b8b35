//! How an operation is said: what it takes from the address and the body, and what it answers. Never knows which
//! operations there are.

use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// One route, described.
pub(super) struct Operation {
    /// Method and path, as in the table of routes.
    pub route: &'static str,
    /// For generators: the name of a function.
    pub id: &'static str,
    pub summary: &'static str,
    pub parameters: Vec<Value>,
    pub body: Option<Value>,
    /// By status.
    pub answers: Map<String, Value>,
    /// Every shape that it names.
    pub shapes: Map<String, Value>,
}

/// POSTs that say nothing new about a key: they are safe to ask again, or are about a session.
const NEED_NO_KEY: [&str; 5] = ["/leases/", "/claim", "/store/", "/portal/session", "/verify"];

/// The beginning of a description. Its parts in braces are told from the path.
pub(super) fn op(route: &'static str, id: &'static str, summary: &'static str) -> Operation {
    let (_, path) = route.split_once(' ').expect("a method and a path");
    let parameters = path.split('/').zip(path.split('/').skip(1)).filter_map(|(noun, part)| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        let schema = match noun {
            "events" => json!({ "type": "string", "pattern": "^[A-Za-z0-9_~-]{1,64}$" }),
            "accounts" => id_schema("acct"),
            "endpoints" => id_schema("ep"),
            "deliveries" => id_schema("dlv"),
            "replays" => id_schema("rpl"),
            "keys" => id_schema("ak"),
            "attempts" => id_schema("att"),
            "leases" => id_schema("lease"),
            "queues" => json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$" }),
            _ => json!({ "type": "string" }),
        };
        Some(json!({ "name": name, "in": "path", "required": true, "schema": schema }))
    });
    let mut parameters: Vec<Value> = parameters.collect();
    if route.starts_with("POST") && !NEED_NO_KEY.iter().any(|part| path.contains(part)) {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header",
            "description": "Asked again under the same key, it is done once.",
            "schema": { "type": "string", "pattern": "^[!-~]([ -~]{0,253}[!-~])?$" },
        }));
    }
    Operation { route, id, summary, parameters, body: None, answers: Map::new(), shapes: Map::new() }
}

fn id_schema(prefix: &str) -> Value {
    json!({ "type": "string", "pattern": format!("^{prefix}_[0-7][0-9A-HJKMNP-TV-Z]{{25}}$") })
}

/// A query parameter that is empty is absent.
fn id_or_none(prefix: &str) -> Value {
    json!({ "type": "string", "pattern": format!("^({prefix}_[0-7][0-9A-HJKMNP-TV-Z]{{25}})?$") })
}

impl Operation {
    /// A query parameter.
    pub(super) fn query(mut self, name: &str, schema: Value, about: &str) -> Operation {
        let mut parameter = json!({ "name": name, "in": "query", "schema": schema });
        if !about.is_empty() {
            parameter["description"] = about.into();
        }
        self.parameters.push(parameter);
        self
    }

    /// A query parameter of a shape; `list`: several with commas between.
    pub(super) fn word<T: ToSchema>(self, name: &str, about: &str) -> Operation {
        self.query(name, value_of(&T::schema()), about)
    }

    /// Words with commas between.
    pub(super) fn words<T: ToSchema>(mut self, name: &str, about: &str) -> Operation {
        let schema = json!({ "type": "array", "items": value_of(&T::schema()) });
        self = self.query(name, schema, about);
        let last = self.parameters.last_mut().expect("one was pushed");
        (last["style"], last["explode"]) = ("form".into(), false.into());
        self
    }

    /// A moment in the query.
    pub(super) fn moment(self, name: &str, about: &str) -> Operation {
        // Without a format: an empty one is absent.
        self.query(name, json!({ "type": "string" }), about)
    }

    /// `account_id`, which tells one of an id from another account's.
    pub(super) fn of_account(self) -> Operation {
        self.query("account_id", id_or_none("acct"), "Whose it is, where that is not clear.")
    }

    /// `account_id`, which is wanted.
    pub(super) fn in_account(self) -> Operation {
        let about = "Whose they are. Not needed with a key that is bound to an account.";
        self.query("account_id", id_or_none("acct"), about)
    }

    /// `endpoint_id` as a filter.
    pub(super) fn in_endpoint(self) -> Operation {
        self.query("endpoint_id", id_or_none("ep"), "")
    }

    /// `event_type` as a filter.
    pub(super) fn of_type(self) -> Operation {
        let schema = json!({ "type": "string", "maxLength": 128 });
        self.query("event_type", schema, "`payment.settled`, or `payment.*`.")
    }

    /// `at`: as it was then.
    pub(super) fn at(self) -> Operation {
        self.moment("at", "As it stood at this moment of the past.")
    }

    /// A request header.
    pub(super) fn header(mut self, name: &str, about: &str) -> Operation {
        self.parameters.push(json!({
            "name": name, "in": "header", "description": about, "schema": { "type": "string" },
        }));
        self
    }

    /// A JSON body that must be there.
    pub(super) fn takes<T: ToSchema>(mut self) -> Operation {
        let schema = self.shape::<T>();
        // An unknown member is refused, within objects too.
        for shape in self.shapes.values_mut().filter(|shape| shape.get("properties").is_some()) {
            shape["additionalProperties"] = false.into();
        }
        self.body =
            Some(json!({ "required": true, "content": { "application/json": { "schema": schema } } }));
        self
    }

    /// A JSON body, or none.
    pub(super) fn may_take<T: ToSchema>(self) -> Operation {
        let mut this = self.takes::<T>();
        if let Some(body) = &mut this.body {
            body["required"] = false.into();
        }
        this
    }

    /// A body of any kind.
    pub(super) fn takes_bytes(mut self) -> Operation {
        let bytes = json!({ "schema": { "type": "string", "format": "binary" } });
        self.body = Some(json!({ "content": { "application/octet-stream": bytes } }));
        self
    }

    /// A JSON answer.
    pub(super) fn gives<T: ToSchema>(self, status: u16, about: &str) -> Operation {
        self.gives_as::<T>(status, "application/json", about)
    }

    /// An answer of lines or the like, each of a shape.
    pub(super) fn gives_as<T: ToSchema>(mut self, status: u16, media: &str, about: &str) -> Operation {
        let schema = self.shape::<T>();
        self.answer(status, media, json!({ "schema": schema }), about)
    }

    /// An answer that is no JSON.
    pub(super) fn gives_text(self, status: u16, media: &str, about: &str) -> Operation {
        self.answer(status, media, json!({ "schema": { "type": "string" } }), about)
    }

    /// A JSON object of no shape of ours.
    pub(super) fn gives_object(self, status: u16, about: &str) -> Operation {
        self.answer(status, "application/json", json!({ "schema": { "type": "object" } }), about)
    }

    /// A page of a list, with `limit` and `cursor`.
    pub(super) fn gives_page<T: ToSchema>(mut self, about: &str) -> Operation {
        let limit = json!({ "type": "integer", "minimum": 1, "default": 50 });
        self = self.query("limit", limit, "Rows of a page; more than 500 are 500.");
        self = self.query(
            "cursor",
            json!({ "type": "string" }),
            "`next_cursor` or `prev_cursor` of a page with the same filters.",
        );
        let items = self.shape::<T>();
        let name = format!("{}Page", T::name());
        let page = json!({
            "type": "object",
            "description": "A page of a list.",
            "required": ["data", "next_cursor", "prev_cursor"],
            "properties": {
                "data": { "type": "array", "items": items },
                "next_cursor": {
                    "type": ["string", "null"],
                    "description": "For the next page, with the same filters; `null` on the last.",
                },
                "prev_cursor": {
                    "type": ["string", "null"],
                    "description": "For the page before, with the same filters; `null` on the first.",
                },
                "searched_back_to": {
                    "type": "string",
                    "format": "date-time",
                    "description": "A search that was cut short got this far; go on with `next_cursor`.",
                },
                "searched_up_to": {
                    "type": "string",
                    "format": "date-time",
                    "description": "The same on the way back to the newest; go on with `prev_cursor`.",
                },
            },
        });
        let schema = json!({ "$ref": format!("#/components/schemas/{name}") });
        self.shapes.insert(name, page);
        self.answer(200, "application/json", json!({ "schema": schema }), about)
    }

    fn answer(mut self, status: u16, media: &str, content: Value, about: &str) -> Operation {
        let answer = json!({ "description": about, "content": { media: content } });
        self.answers.insert(status.to_string(), answer);
        self
    }

    /// Notes a shape with all that it names, and refers to it.
    fn shape<T: ToSchema>(&mut self) -> Value {
        let mut all = Vec::new();
        T::schemas(&mut all);
        all.push((T::name().into_owned(), T::schema()));
        self.shapes.extend(all.iter().map(|(name, schema)| (name.clone(), value_of(schema))));
        json!({ "$ref": format!("#/components/schemas/{}", T::name()) })
    }
}

/// A shape as JSON.
pub(super) fn value_of(schema: &impl serde::Serialize) -> Value {
    serde_json::to_value(schema).expect("a schema is JSON")
}
