//! The description of the API against the API: it has every route and no other, requests take what it says, and
//! what is answered has no member that it does not name.
//!
//! `HOOKLOG_WRITE_OPENAPI=1 cargo test --test openapi` writes `docs/openapi.json` anew.

#[path = "support/described.rs"]
mod described;
#[path = "support/keyed.rs"]
mod keyed;
#[path = "support/receiver.rs"]
mod receiver;

use std::collections::BTreeSet;

use described::{members, misfits, resolved};
use hooklog::api::openapi::document;
use hooklog::api::routes;
use keyed::{Reply, World, text};
use receiver::{Receiver, answer};
use serde_json::{Value, json};

const FILE: &str = "docs/openapi.json";

fn described() -> BTreeSet<String> {
    let paths = document()["paths"].as_object().expect("paths");
    let of_path = |(path, methods): (&String, &Value)| -> Vec<String> {
        let methods = methods.as_object().expect("methods");
        methods.keys().map(|method| format!("{} {path}", method.to_uppercase())).collect()
    };
    paths.iter().flat_map(of_path).collect()
}

#[test]
fn every_route_is_described_and_nothing_else_is() {
    let routes: BTreeSet<String> =
        routes().into_iter().map(|(method, path)| format!("{method} {path}")).collect();
    let described = described();
    let lacking: Vec<_> = routes.difference(&described).collect();
    let invented: Vec<_> = described.difference(&routes).collect();
    assert!(lacking.is_empty() && invented.is_empty(), "not described: {lacking:?}; no route: {invented:?}");
    let ids: Vec<_> = operations().map(|(_, operation)| text(&operation["operationId"])).collect();
    assert_eq!(
        ids.iter().collect::<BTreeSet<_>>().len(),
        ids.len(),
        "each operation has its own id: {ids:?}"
    );
}

fn operations() -> impl Iterator<Item = (String, &'static Value)> {
    let paths = document()["paths"].as_object().expect("paths").iter();
    paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").iter();
        methods.map(move |(method, operation)| (format!("{} {path}", method.to_uppercase()), operation))
    })
}

#[test]
fn the_description_in_the_documents_is_this_one() {
    let text = format!("{:#}\n", document());
    if std::env::var_os("HOOKLOG_WRITE_OPENAPI").is_some() {
        std::fs::write(FILE, &text).expect("it can be written");
    }
    let written = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(written == text, "{FILE} is not what the routes say; the head of this test says how to write it");
}

#[test]
fn whatever_is_named_is_there() {
    fn look(value: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(name) = members.get("$ref") {
                    assert!(document().pointer(&text(name)[1..]).is_some(), "{name}");
                }
                members.values().for_each(look);
            }
            Value::Array(items) => items.iter().for_each(look),
            _ => {}
        }
    }
    look(document());
}

/// A running API in which every kind of thing is there once.
struct Walk {
    world: World,
    walked: BTreeSet<String>,
    wrong: Vec<String>,
    /// The next answers may be refusals.
    may_refuse: bool,
}

impl Walk {
    /// Asks a route, its parts in braces filled in order, and holds the answer against its description.
    async fn ask(&mut self, route: &str, parts: &[&str], query: &str, body: Value) -> Value {
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let reply = self.world.locally(method, &format!("{}{query}", filled(path, parts)), body).await;
        self.judge(route, &reply)
    }

    fn judge(&mut self, route: &str, reply: &Reply) -> Value {
        self.walked.insert(route.to_owned());
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let operation = &document()["paths"][path][method.to_lowercase()];
        let answer = match operation["responses"].get(reply.status.to_string()) {
            None if self.may_refuse => &document()["components"]["responses"]["Refusal"],
            answer => answer.unwrap_or(&Value::Null),
        };
        let media = reply.headers["content-type"].to_str().expect("ASCII");
        let Some(content) = answer["content"].get(media) else {
            self.wrong.push(format!("{route}: {} {media} is not described: {reply:?}", reply.status));
            return Value::Null;
        };
        let lines = match media {
            "application/json" | "application/problem+json" => vec![reply.json()],
            "application/x-ndjson" => {
                let lines = std::str::from_utf8(&reply.body).expect("text").lines();
                lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
            }
            _ => vec![Value::String("bytes".into())],
        };
        assert!(!lines.is_empty(), "{route}");
        for line in &lines {
            let misfits = misfits(document(), &content["schema"], line);
            self.wrong.extend(misfits.into_iter().map(|misfit| format!("{route}: {misfit}")));
        }
        lines.into_iter().next_back().unwrap_or_default()
    }
}

fn filled(path: &str, parts: &[&str]) -> String {
    let mut parts = parts.iter();
    let filled = path.split('/').map(|part| match part.starts_with('{') {
        true => parts.next().expect("a part for each brace"),
        false => part,
    });
    filled.collect::<Vec<_>>().join("/")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_as_described() {
    let walk = &mut Walk {
        world: World::new().await,
        walked: BTreeSet::new(),
        wrong: Vec::new(),
        may_refuse: false,
    };
    let none = || Value::Null;
    let members = json!({ "name": "A", "owner_email": "o@a.example", "schedule": { "waits": ["1m", 90] } });
    let account = text(&walk.ask("POST /v1/accounts", &[], "", members).await["id"]);
    let a = account.as_str();
    walk.ask("GET /v1/accounts", &[], "?limit=1", none()).await;
    walk.ask("GET /v1/accounts/{id}", &[a], "", none()).await;
    walk.ask("PATCH /v1/accounts/{id}", &[a], "", json!({ "webhook_retries": "on" })).await;
    walk.ask("GET /v1/accounts/{id}/secret", &[a], "?reason=why", none()).await;
    walk.ask("POST /v1/accounts/{id}/secret/rotate", &[a], "", json!({})).await;
    let in_account = format!("?account_id={a}");

    let url = "https://hooks.customer.example.com/";
    let wanted = json!({ "account_id": a, "url": url, "event_types": ["held.back"], "schedule": "ukue",
        "headers": { "x-of": "ours" }, "rate_per_second": 5, "disable_after_secs": 600 });
    let endpoint = text(&walk.ask("POST /v1/endpoints", &[], "", wanted).await["id"]);
    let e = endpoint.as_str();
    walk.ask("GET /v1/endpoints", &[], &in_account, none()).await;
    walk.ask("GET /v1/endpoints/{id}", &[e], "", none()).await;
    walk.ask("PATCH /v1/endpoints/{id}", &[e], "", json!({ "url": "https://b.customer.example.com/" })).await;
    let headers = json!({ "webhook-id": "evt_1", "webhook-timestamp": "1", "webhook-signature": ["v1,x"] });
    let captured = json!({ "headers": headers, "body": "{}", "endpoint_id": e });
    walk.ask("POST /v1/verify", &[], "", captured).await;
    walk.ask("POST /v1/endpoints/{id}/pause", &[e], "", json!({ "reason": "r" })).await;
    walk.ask("POST /v1/endpoints/{id}/resume", &[e], "", none()).await;
    let own = json!({ "ledger_secret": "0123456789abcdef" });
    walk.ask("POST /v1/endpoints/{id}/ledger-secret/rotate", &[e], "", own).await;
    let keys = walk.ask("POST /v1/endpoints/{id}/secret/rotate", &[e], "", json!({})).await;
    walk.ask("GET /v1/endpoints/{id}/secret", &[e], "", none()).await;
    let older = json!({ "key_id": keys["keys"][1]["id"] });
    walk.ask("POST /v1/endpoints/{id}/secret/retire", &[e], "", older).await;

    let [_, event, delivery] = walk.world.held(a).await;
    let (event, delivery) = (event.as_str(), delivery.as_str());
    let new = |kind: &str| json!({ "account_id": a, "type": kind, "data": { "n": 1 }, "id": "own-1" });
    walk.ask("POST /v1/events", &[], "", new("no.one")).await;
    walk.ask("POST /internal/webhooks/dispatch", &[], "", new("no.one")).await;
    let batch =
        json!({ "events": [new("no.one"), new("no one"), { "account_id": a, "type": "x", "data": 1 }] });
    walk.ask("POST /v1/events/batch", &[], "", batch).await;
    walk.ask("POST /v1/events/raw", &[], &format!("{in_account}&type=no.one"), json!("text")).await;
    walk.ask("GET /v1/events", &[], &format!("{in_account}&include=payload"), none()).await;
    walk.ask("GET /v1/events", &[], &format!("{in_account}&status=unmatched"), none()).await;
    walk.ask("GET /v1/event-types", &[], &in_account, none()).await;
    walk.ask("GET /v1/events/{id}", &[event], &in_account, none()).await;
    walk.ask("GET /v1/events/{id}/payload", &[event], "", none()).await;
    walk.ask("GET /v1/deliveries", &[], &format!("{in_account}&include=payload,last_error"), none()).await;
    walk.ask("GET /v1/deliveries/{id}", &[delivery], "", none()).await;
    walk.ask("POST /v1/deliveries/{id}/cancel", &[delivery], "", json!({ "reason": "r" })).await;

    // Jobs of a queue live and die without a network.
    let queue = json!({ "account_id": a, "queue": "jobs", "event_types": ["no.job"] });
    walk.ask("POST /v1/endpoints", &[], "", queue).await;
    walk.ask("GET /v1/queues/{name}", &["jobs"], "", none()).await;
    let mut jobs = Vec::new();
    for id in ["job-1", "job-2", "job-3"] {
        let job = json!({ "payload": { "n": 1 }, "id": id });
        jobs.push(walk.ask("POST /v1/queues/{name}/jobs", &["jobs"], "", job).await);
    }
    let claimed = walk.ask("POST /v1/queues/{name}/claim", &["jobs"], "", json!({ "max": 3 })).await;
    let lease = |at: usize| text(&claimed["jobs"][at]["lease"]);
    walk.ask("POST /v1/leases/{lease}/extend", &[&lease(0)], "", none()).await;
    walk.ask("POST /v1/leases/{lease}/complete", &[&lease(0)], "", none()).await;
    let lost = json!({ "error": "it broke", "permanent": true });
    walk.ask("POST /v1/leases/{lease}/fail", &[&lease(1)], "", lost).await;
    let dead = text(&claimed["jobs"][1]["id"]);
    let dead_event = text(&claimed["jobs"][1]["event_id"]);
    walk.ask("POST /v1/leases/{lease}/release", &[&lease(2)], "", none()).await;
    walk.ask("GET /v1/dead", &[], &in_account, none()).await;
    walk.ask("GET /v1/deliveries/{id}/attempts", &[&dead], "", none()).await;
    walk.ask("GET /v1/deliveries", &[], &format!("{in_account}&status=dead&include=last_error"), none())
        .await;

    let bulk = |dry_run: bool| {
        json!({ "account_id": a, "filter": { "status": "dead", "event_type": "no.such", "error": "worker" },
            "reason": "mended", "dry_run": dry_run })
    };
    walk.ask("POST /v1/replays", &[], "", bulk(true)).await;
    let replay = text(&walk.ask("POST /v1/replays", &[], "", bulk(false)).await["id"]);
    walk.ask("GET /v1/replays", &[], &in_account, none()).await;
    walk.ask("GET /v1/replays/{id}", &[&replay], "", none()).await;
    // It may be through by now.
    walk.may_refuse = true;
    walk.ask("DELETE /v1/replays/{id}", &[&replay], "", none()).await;
    walk.may_refuse = false;
    walk.ask("POST /v1/deliveries/{id}/replay", &[&dead], "", json!({ "reason": "r" })).await;
    walk.ask("POST /v1/deliveries/{id}/retry-now", &[&dead], "", none()).await;
    let again = json!({ "scope": "all", "confirm": true });
    let done = text(&claimed["jobs"][0]["event_id"]);
    walk.ask("POST /v1/events/{id}/replay", &[&done], "", again.clone()).await;
    walk.ask("GET /v1/events/{id}/timeline", &[&dead_event], "", none()).await;
    walk.ask("GET /v1/events/{id}/timeline", &[&done], "", none()).await;
    for id in [a, e, delivery, dead.as_str(), dead_event.as_str()] {
        walk.ask("GET /v1/explain/{id}", &[id], "", none()).await;
    }
    for group in ["", "&group=status", "&group=class", "&group=endpoint"] {
        walk.ask("GET /v1/stats", &[], &format!("{in_account}{group}"), none()).await;
        walk.ask("GET /v1/endpoints/{id}/stats", &[e], &format!("{in_account}{group}"), none()).await;
    }
    let claimed = walk.ask("POST /v1/queues/{name}/claim", &["jobs"], "", json!({ "max": 9 })).await;
    let third = claimed["jobs"].as_array().expect("a list").iter().find(|job| job["event_id"] == "job-3");
    let lease = text(&third.expect("it was given back")["lease"]);
    walk.ask("POST /v1/leases/{lease}/fail", &[&lease], "", json!({ "error": "", "permanent": true })).await;
    walk.ask("POST /events/{id}/replay", &["job-3"], "", none()).await;

    let receiver = Receiver::scripted(vec![answer(400, "server: x\r\n", "no")]).await;
    let to = json!({ "account_id": a, "url": receiver.url("/"), "event_types": ["tried.once"] });
    let here = text(&walk.ask("POST /v1/endpoints", &[], "", to).await["id"]);
    walk.ask("POST /v1/endpoints/{id}/test", &[&here], "", none()).await;
    let sent = walk
        .ask("POST /v1/events", &[], "", json!({ "account_id": a, "type": "tried.once", "data": 1 }))
        .await;
    let tried = text(&sent["deliveries"][0]["id"]);
    let attempt = loop {
        let attempts = walk.ask("GET /v1/deliveries/{id}/attempts", &[&tried], "", none()).await;
        if attempts["data"][0]["status"] == "failed" {
            break text(&attempts["data"][0]["id"]);
        }
        tokio::task::yield_now().await;
    };
    for route in ["GET /v1/attempts/{id}", "GET /v1/attempts/{id}/request", "GET /v1/attempts/{id}/response"]
    {
        walk.ask(route, &[&attempt], "", none()).await;
    }
    walk.ask("GET /v1/explain/{id}", &[&attempt], "", none()).await;
    walk.ask("GET /v1/events/{id}/timeline", &[&text(&sent["id"])], "", none()).await;

    let key = json!({ "role": "account", "account_id": a, "label": "theirs" });
    let key = text(&walk.ask("POST /v1/keys", &[], "", key).await["id"]);
    walk.ask("GET /v1/keys", &[], "", none()).await;
    walk.ask("GET /v1/keys/{id}", &[&key], "", none()).await;
    walk.ask("POST /v1/keys/{id}/rotate", &[&key], "", json!({})).await;
    walk.ask("DELETE /v1/keys/{id}", &[&key], "", none()).await;
    let link =
        json!({ "account_id": a, "role": "account", "return_url": "https://app.customer.example.com/" });
    let link = walk.ask("POST /v1/portal-sessions", &[], "", link).await;
    let secret = text(&link["url"]).split_once('#').expect("a fragment").1.to_owned();
    let reply = walk.world.exchange(&secret, &[]).await;
    walk.judge("POST /portal/session", &reply);
    let session = walk.world.session(a, "account").await;
    for method in ["GET", "DELETE"] {
        let reply = walk.world.in_session(&session, method, "/portal/session", "").await;
        walk.judge(&format!("{method} /portal/session"), &reply);
    }
    walk.ask("DELETE /v1/portal-sessions", &[], &in_account, none()).await;
    walk.ask("DELETE /v1/endpoints/{id}", &[e], "", json!({ "reason": "gone" })).await;
    walk.ask("GET /v1/audit", &[], "?limit=200", none()).await;
    for route in [
        "GET /v1/status",
        "POST /v1/store/verify",
        "POST /v1/store/rebuild",
        "GET /healthz",
        "GET /readyz",
        "GET /v1/openapi.json",
        "GET /docs/api",
    ] {
        walk.ask(route, &[], "", none()).await;
    }
    assert!(walk.wrong.is_empty(), "{}", walk.wrong.join("\n"));
    // It never ends; its lines are a timeline's.
    walk.walked.insert("GET /v1/stream".into());
    assert_eq!(walk.walked, described(), "a new route has a step of this walk");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_take_the_members_that_are_described() {
    let world = World::new().await;
    let account = world.account("A").await;
    let [endpoint, event, delivery] = world.held(&account).await;
    let (key, _) = world.key(json!({ "role": "support" })).await;
    let queue = json!({ "account_id": account, "queue": "jobs", "event_types": ["no.job"] });
    world.locally("POST", "/v1/endpoints", queue).await.ok(201);
    let mut seen = 0;
    for (route, operation) in operations() {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        if schema.is_null() {
            continue;
        }
        seen += 1;
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let part = match path.split('/').rev().skip_while(|part| !part.starts_with('{')).nth(1) {
            Some("accounts") => &account,
            Some("endpoints") => &endpoint,
            Some("events") => &event,
            Some("deliveries") => &delivery,
            Some("keys") => &key,
            Some("queues") => "jobs",
            _ => "lease_00000000000000000000000000",
        };
        let path = filled(path, &[part]);
        let (mut body, mut pointer) = (json!({ "zzz": 1 }), "/zzz");
        if path == "/v1/events/batch" {
            // Each event answers for itself.
            let answer = world.locally(method, &path, json!({ "events": [body] })).await.ok(202);
            let item = &resolved(document(), schema)["properties"]["events"]["items"];
            assert_eq!(told(&answer["results"][0], "/events/0/zzz"), members(document(), item), "{route}");
        }
        let answer = world.locally(method, &path, body).await.ok(422);
        assert_eq!(told(&answer, pointer), members(document(), schema), "{route}");
        if path == "/v1/replays" {
            (body, pointer) = (json!({ "filter": { "zzz": 1 } }), "/filter/zzz");
            let answer = world.locally(method, &path, body).await.ok(422);
            let filter = &resolved(document(), schema)["properties"]["filter"];
            assert_eq!(told(&answer, pointer), members(document(), filter), "{route}");
        }
    }
    assert!(seen > 20, "{seen}");
}

/// The members that a refusal of an unknown one names.
fn told(problem: &Value, pointer: &str) -> BTreeSet<String> {
    let errors = problem["errors"].as_array().unwrap_or_else(|| panic!("no errors: {problem}"));
    let error = errors.iter().find(|error| error["pointer"] == pointer);
    let error = error.unwrap_or_else(|| panic!("no {pointer}: {problem}"));
    assert_eq!(error["code"], "unknown-member");
    let detail = text(&error["detail"]);
    let (_, names) = detail.split_once("; there ").expect("the members there are");
    let names = names.strip_prefix("are ").unwrap_or_default();
    names.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Nothing is loaded from anywhere: the policy forbids it, and there is nothing to load.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_whole_by_itself() {
    let world = World::new().await;
    let page = world.ask("GET", "/docs/api", None, "").await;
    assert_eq!(page.status, 200);
    let policy = page.headers["content-security-policy"].to_str().expect("ASCII");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    let html = String::from_utf8(page.body.to_vec()).expect("UTF-8");
    for loads in ["<script", "<link", "<img", "<iframe", "src=", "url(", "@import", "://"] {
        assert!(!html.contains(loads), "{loads}");
    }
    for (_, operation) in operations() {
        assert!(html.contains(&format!("id=\"{}\"", text(&operation["operationId"]))), "{operation}");
    }
    let ids: BTreeSet<_> = html.split("id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    for target in html.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(ids.contains(target), "#{target} leads nowhere");
    }
}
