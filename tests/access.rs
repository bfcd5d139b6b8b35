//! Who may do what: every route with every kind of credential, as a table, and what a credential's life is.
//!
//! A route that the table does not know fails; a new one is one line.

#[path = "support/keyed.rs"]
mod keyed;
#[path = "support/receiver.rs"]
mod receiver;

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::http::Request;
use hooklog::api::access::OperatorToken;
use hooklog::api::{ApiOptions, ApiState, routes};
use hooklog::clock::{Clock, SystemClock};
use hooklog::delivery::guard::Policy;
use hooklog_projections::time::Millis;
use keyed::{LONG, World, text};
use receiver::{Receiver, answer};
use serde_json::{Value, json};

/// Who asks, in the order of the columns.
const CALLERS: [&str; 10] =
    ["none", "broken", "expired", "revoked", "other", "reads", "ingest", "account", "support", "operator"];

/// Where a session of the portal with all rights of the account is answered otherwise than the account's key.
const SESSION: &[(&str, &str)] = &[
    // It comes last.
    ("POST /v1/endpoints/{id}/pause", "409"),
    ("POST /v1/endpoints/{id}/resume", "409"),
    ("GET /portal/session", "200"),
    ("DELETE /portal/session", "200"),
];

/// Method, path, body, and the status for each caller: no credential, a broken, an expired, a revoked one; an
/// account's key that asks for another account's things; a reading key, an ingest key and a full key of the
/// account; a support's, an operator's. `A` is the account; `{id}` is a thing of it. A 400, 409 or 422 is an answer
/// of the route itself: access was given.
#[rustfmt::skip]
const TABLE: &[(&str, &str, &str, &str)] = &[
    //                                                        none brkn expd rvkd othr read ingt acct supp oper
    ("POST /v1/accounts", "", r#"{"name":"x"}"#,             "401 401 401 401 403 403 403 403 403 201"),
    ("GET /v1/accounts", "", "",                             "401 401 401 401 200 200 403 200 200 200"),
    ("GET /v1/accounts/{id}", "", "",                        "401 401 401 401 404 200 403 200 200 200"),
    ("PATCH /v1/accounts/{id}", "", r#"{"name":"y"}"#,       "401 401 401 401 403 403 403 403 403 200"),
    ("GET /v1/accounts/{id}/secret", "", "",                 "401 401 401 401 404 403 403 200 403 200"),
    ("POST /v1/accounts/{id}/secret/rotate", "", "",         "401 401 401 401 404 403 403 200 403 200"),
    ("POST /v1/endpoints", "", r#"{"account_id":"A","url":"https://n.customer.example.com/","event_types":["no.one"]}"#,
                                                             "401 401 401 401 404 403 403 201 403 201"),
    ("GET /v1/endpoints", "?account_id=A", "",               "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/endpoints/{id}", "", "",                       "401 401 401 401 404 200 403 200 200 200"),
    ("PATCH /v1/endpoints/{id}", "", r#"{"description":"d"}"#,
                                                             "401 401 401 401 404 403 403 200 403 200"),
    // Refused for its body, so that the endpoint stays for the rows below.
    ("DELETE /v1/endpoints/{id}", "", r#"{"x":1}"#,          "401 401 401 401 404 403 403 422 403 422"),
    ("POST /v1/endpoints/{id}/pause", "", "",                "401 401 401 401 404 403 403 200 409 409"),
    ("POST /v1/endpoints/{id}/test", "", r#"{"x":1}"#,       "401 401 401 401 404 403 403 422 422 422"),
    ("POST /v1/endpoints/{id}/resume", "", "",               "401 401 401 401 404 403 403 200 409 409"),
    ("GET /v1/endpoints/{id}/secret", "", "",                "401 401 401 401 404 403 403 200 403 200"),
    ("POST /v1/endpoints/{id}/secret/rotate", "", "",        "401 401 401 401 404 403 403 200 403 200"),
    ("POST /v1/endpoints/{id}/secret/retire", "", r#"{"key_id":5}"#,
                                                             "401 401 401 401 404 403 403 422 403 422"),
    ("POST /v1/endpoints/{id}/ledger-secret/rotate", "", "", "401 401 401 401 404 403 403 200 403 200"),
    ("POST /v1/events", "", r#"{"account_id":"A","type":"a.b","data":1}"#,
                                                             "401 401 401 401 403 403 202 403 403 202"),
    ("POST /v1/events/batch", "", r#"{"events":[{"account_id":"A","type":"a.b","data":1}]}"#,
                                                             "401 401 401 401 403 403 202 403 403 202"),
    ("POST /v1/events/raw", "?account_id=A&type=a.b", "1",   "401 401 401 401 403 403 202 403 403 202"),
    ("POST /internal/webhooks/dispatch", "", r#"{"account_id":"A","type":"a.b","data":1}"#,
                                                             "401 401 401 401 403 403 202 403 403 202"),
    ("GET /v1/events", "?account_id=A", "",                  "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/event-types", "?account_id=A", "",             "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/events/{id}", "", "",                          "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/events/{id}/payload", "", "",                  "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/events/{id}/timeline", "", "",                 "401 401 401 401 404 200 403 200 200 200"),
    ("POST /v1/events/{id}/replay", "", "",                  "401 401 401 401 404 403 403 409 409 409"),
    ("POST /events/{id}/replay", "", "",                     "401 401 401 401 404 403 403 409 409 409"),
    ("GET /v1/deliveries", "?account_id=A", "",              "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/deliveries/{id}", "", "",                      "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/deliveries/{id}/attempts", "", "",             "401 401 401 401 404 200 403 200 200 200"),
    ("POST /v1/deliveries/{id}/replay", "", "",              "401 401 401 401 404 403 403 409 409 409"),
    ("POST /v1/deliveries/{id}/retry-now", "", r#"{"x":1}"#, "401 401 401 401 404 403 403 422 422 422"),
    ("POST /v1/deliveries/{id}/cancel", "", r#"{"x":1}"#,    "401 401 401 401 404 403 403 422 422 422"),
    ("GET /v1/attempts/{id}", "", "",                        "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/attempts/{id}/request", "", "",                "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/attempts/{id}/response", "", "",               "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/dead", "?account_id=A", "",                    "401 401 401 401 404 200 403 200 200 200"),
    ("POST /v1/replays", "", r#"{"account_id":"A","filter":{"status":"dead"},"dry_run":true}"#,
                                                             "401 401 401 401 404 403 403 200 200 200"),
    ("GET /v1/replays", "?account_id=A", "",                 "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/replays/{id}", "", "",                         "401 401 401 401 404 200 403 200 200 200"),
    ("DELETE /v1/replays/{id}", "", "",                      "401 401 401 401 404 403 403 409 409 409"),
    ("GET /v1/queues/{name}", "", "",                        "401 401 401 401 404 200 403 200 200 200"),
    ("POST /v1/queues/{name}/jobs", "", r#"{"payload":1}"#,  "401 401 401 401 403 403 202 403 403 202"),
    ("POST /v1/queues/{name}/claim", "", r#"{"max":0}"#,     "401 401 401 401 422 403 403 422 403 422"),
    // A lease is a secret by itself: whoever has a key for work and knows it may end it.
    ("POST /v1/leases/{lease}/extend", "", "",               "401 401 401 401 409 403 403 409 403 409"),
    ("POST /v1/leases/{lease}/complete", "", "",             "401 401 401 401 409 403 403 409 403 409"),
    ("POST /v1/leases/{lease}/fail", "", r#"{"error":"e"}"#, "401 401 401 401 409 403 403 409 403 409"),
    ("POST /v1/leases/{lease}/release", "", "",              "401 401 401 401 409 403 403 409 403 409"),
    ("GET /v1/explain/{id}", "", "",                         "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/stats", "?account_id=A", "",                   "401 401 401 401 404 200 403 200 200 200"),
    ("GET /v1/endpoints/{id}/stats", "", "",                 "401 401 401 401 404 200 403 200 200 200"),
    // It would never end: a filter that is none answers whoever is let in.
    ("GET /v1/stream", "?account_id=A&status=x", "",         "401 401 401 401 404 400 403 400 400 400"),
    // Every account may check with secrets of its own.
    ("POST /v1/verify", "", r#"{"x":1}"#,                    "401 401 401 401 422 422 403 422 422 422"),
    ("POST /v1/keys", "", r#"{"role":"ingest"}"#,            "401 401 401 401 403 403 403 403 403 201"),
    ("GET /v1/keys", "", "",                                 "401 401 401 401 403 403 403 403 403 200"),
    ("GET /v1/keys/{id}", "", "",                            "401 401 401 401 403 403 403 403 403 200"),
    ("POST /v1/keys/{id}/rotate", "", "",                    "401 401 401 401 403 403 403 403 403 200"),
    ("DELETE /v1/keys/{id}", "", "",                         "401 401 401 401 403 403 403 403 403 200"),
    ("GET /v1/audit", "?account_id=A", "",                   "401 401 401 401 403 403 403 403 403 200"),
    ("GET /v1/status", "", "",                               "401 401 401 401 403 403 403 403 200 200"),
    ("POST /v1/store/verify", "", "",                        "401 401 401 401 403 403 403 403 403 200"),
    ("POST /v1/store/rebuild", "", "",                       "401 401 401 401 403 403 403 403 403 200"),
    ("POST /v1/portal-sessions", "", r#"{"account_id":"A","role":"account_read"}"#,
                                                             "401 401 401 401 403 403 403 403 201 201"),
    ("DELETE /v1/portal-sessions", "?account_id=B", "",      "401 401 401 401 403 403 403 403 200 200"),
    // Open, and the link is none.
    ("POST /portal/session", "", r#"{"link":"hl_link_none"}"#,
                                                             "401 401 401 401 401 401 401 401 401 401"),
    ("GET /portal/session", "", "",                          "401 401 401 401 403 403 403 403 403 403"),
    ("DELETE /portal/session", "", "",                       "401 401 401 401 403 403 403 403 403 403"),
    ("GET /v1/openapi.json", "", "",                         "200 200 200 200 200 200 200 200 200 200"),
    ("GET /docs/api", "", "",                                "200 200 200 200 200 200 200 200 200 200"),
    ("GET /healthz", "", "",                                 "200 200 200 200 200 200 200 200 200 200"),
    ("GET /readyz", "", "",                                  "200 200 200 200 200 200 200 200 200 200"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_route_answers_every_role_as_the_table_says() {
    let world = World::new().await;
    let (account, other) = (world.account("A").await, world.account("B").await);
    let [endpoint, event, delivery] = world.held(&account).await;
    let queue = json!({ "account_id": account, "queue": "jobs", "event_types": ["no.job"] });
    world.locally("POST", "/v1/endpoints", queue).await.ok(201);
    let wish = json!({ "account_id": account, "filter": { "status": "dead" }, "reason": "to be called off" });
    let replay = text(&world.locally("POST", "/v1/replays", wish).await.ok(202)["id"]);
    world.locally("DELETE", &format!("/v1/replays/{replay}"), Value::Null).await;
    let receiver = Receiver::scripted(vec![answer(200, "", "thanks")]).await;
    let attempt = text(&tried(&world, &account, &receiver.url("/")).await["id"]);
    let expires_at = moment(world.clock.now().0 + 60_000);
    let mut keys = BTreeMap::new();
    for (caller, members) in [
        ("expired", json!({ "role": "operator", "expires_at": expires_at })),
        ("revoked", json!({ "role": "operator" })),
        ("other", json!({ "role": "account", "account_id": other })),
        ("reads", json!({ "role": "account_read", "account_id": account })),
        ("ingest", json!({ "role": "ingest", "account_id": account })),
        ("account", json!({ "role": "account", "account_id": account })),
        ("support", json!({ "role": "support" })),
        ("operator", json!({ "role": "operator" })),
    ] {
        keys.insert(caller, world.key(members).await);
    }
    // It was good until now.
    let (_, expired) = &keys["expired"];
    assert_eq!(world.ask("GET", "/v1/status", Some(expired), "").await.status, 200);
    world.clock.advance(Millis(60_000));
    world.locally("DELETE", &format!("/v1/keys/{}", keys["revoked"].0), Value::Null).await.ok(200);
    let broken = format!("{}x", keys["operator"].1);
    let session = world.session(&account, "account").await;
    let (sacrificed, _) = world.key(json!({ "role": "ingest" })).await;

    let known: BTreeSet<String> = TABLE.iter().map(|(route, ..)| (*route).to_owned()).collect();
    let there: BTreeSet<String> = routes().iter().map(|(method, path)| format!("{method} {path}")).collect();
    assert_eq!(known, there, "the table of this test and the router's differ");
    assert_eq!(known.len(), TABLE.len(), "a row stands there twice");

    let mut wrong = Vec::new();
    for (route, query, body, expected) in TABLE {
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let id = match path.split('/').nth(2).filter(|_| !path.starts_with("/events")).unwrap_or("events") {
            "accounts" => &account,
            "endpoints" => &endpoint,
            "deliveries" => &delivery,
            "keys" => &sacrificed,
            "attempts" => &attempt,
            "replays" => &replay,
            _ => &event,
        };
        let path = format!("{path}{query}")
            .replace("{id}", id)
            .replace("{name}", "jobs")
            .replace("{lease}", "none")
            .replace("=A", &format!("={account}"))
            .replace("=B", &format!("={other}"));
        let body = body.replace("\"A\"", &format!("\"{account}\""));
        let mut seen = Vec::new();
        for caller in CALLERS {
            let key = match caller {
                "none" => None,
                "broken" => Some(broken.as_str()),
                _ => Some(keys[caller].1.as_str()),
            };
            let reply = world.ask(method, &path, key, &body).await;
            if reply.status >= 400 {
                assert_eq!(reply.headers["content-type"], "application/problem+json", "{route} {reply:?}");
            }
            seen.push(reply.status.to_string());
        }
        let reply = world.in_session(&session, method, &path, &body).await;
        let as_account = expected.split(' ').nth(7).expect("a column");
        let differs = SESSION.iter().find(|(known, _)| known == route).map(|(_, status)| *status);
        if reply.status.to_string() != differs.unwrap_or(as_account) {
            wrong.push(format!("{route}\n  in a session: {reply:?}"));
        }
        if seen.join(" ") != *expected {
            wrong.push(format!("{route}\n  wanted {expected}\n  was    {}", seen.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", CALLERS.join(" "), wrong.join("\n"));

    // Log positions are not for customers.
    let path = format!("/v1/events/{event}/timeline");
    let seq = async |caller: &str| {
        world.ask("GET", &path, Some(&keys[caller].1), "").await.ok(200)["data"][0].get("seq").cloned()
    };
    assert!(seq("operator").await.is_some() && seq("support").await.is_some());
    assert_eq!((seq("account").await, seq("reads").await), (None, None));

    // Where there is no route, or not for the method, a credential is wanted before that is told.
    for (method, path, status) in
        [("GET", "/nowhere", 404), ("DELETE", "/v1/accounts", 405), ("DELETE", "/v1/events", 405)]
    {
        assert_eq!(world.ask(method, path, None, "").await.status, 401, "{path}");
        assert_eq!(world.ask(method, path, Some(&keys["ingest"].1), "").await.status, status, "{path}");
    }
    // A list has the own account only.
    let listed = world.ask("GET", "/v1/accounts", Some(&keys["other"].1), "").await.ok(200);
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["data"][0]["id"], json!(other));
}

/// The attempt of an event that was sent to a receiver and arrived.
async fn tried(world: &World, account: &str, url: &str) -> Value {
    let endpoint = json!({ "account_id": account, "url": url, "event_types": ["tried.once"] });
    world.locally("POST", "/v1/endpoints", endpoint).await.ok(201);
    let event = json!({ "account_id": account, "type": "tried.once", "data": 1 });
    let event = world.locally("POST", "/v1/events", event).await.ok(202);
    let path = format!("/v1/deliveries/{}/attempts", text(&event["deliveries"][0]["id"]));
    let arrived = async {
        loop {
            let attempts = world.locally("GET", &path, Value::Null).await.ok(200);
            if attempts["data"][0]["status"] == "delivered" {
                return attempts["data"][0].clone();
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, arrived).await.expect("it arrives")
}

/// An attempt of another account is answered as one that never was, whatever its id looks like.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_of_another_account_is_not_there() {
    let world = World::new().await;
    let (ours, theirs) = (world.account("A").await, world.account("B").await);
    let receiver = Receiver::scripted(vec![answer(200, "", "thanks")]).await;
    let attempt = tried(&world, &ours, &receiver.url("/")).await;
    let id = text(&attempt["id"]);
    let (_, own) = world.key(json!({ "role": "account", "account_id": ours })).await;
    let (_, other) = world.key(json!({ "role": "account", "account_id": theirs })).await;
    let (_, operator) = world.key(json!({ "role": "operator" })).await;
    assert!(attempt.get("address").is_some(), "an operator sees it: {attempt}");
    let shown = world.ask("GET", &format!("/v1/attempts/{id}"), Some(&own), "").await.ok(200);
    assert_eq!((&shown["account_id"], shown.get("address")), (&json!(ours), None), "a customer does not");
    let delivery = text(&shown["delivery_id"]);
    // Nor are the secrets of its endpoint there to be checked with.
    let captured =
        |endpoint: &Value| json!({ "headers": {}, "body": "", "endpoint_id": endpoint }).to_string();
    let ours_by = async |key: &str, endpoint: &Value| {
        world.ask("POST", "/v1/verify", Some(key), &captured(endpoint)).await
    };
    assert_eq!(ours_by(&own, &shown["endpoint_id"]).await.ok(200)["valid"], false);
    let nobodys = ours_by(&other, &json!("ep_00000000000000000000000009")).await.tell();
    assert_eq!(nobodys.0, 404);
    assert_eq!(ours_by(&other, &shown["endpoint_id"]).await.tell(), nobodys);
    // The same number as another kind's name, one with a changed end, one that was never drawn, and no id at all.
    let other_end = if id.ends_with('0') { "1" } else { "0" };
    let changed = format!("{}{other_end}", &id[..id.len() - 1]);
    let foreign = [
        id.as_str(),
        &delivery.replace("dlv_", "att_"),
        &changed,
        "att_00000000000000000000000009",
        "att_1",
        &delivery,
        "x",
    ];
    for part in ["", "/request", "/response"] {
        let nobody = world.ask("GET", &format!("/v1/attempts/none{part}"), Some(&other), "").await.tell();
        assert_eq!(nobody.0, 404);
        for id in foreign {
            let path = format!("/v1/attempts/{id}{part}");
            assert_eq!(world.ask("GET", &path, Some(&other), "").await.tell(), nobody, "{path}");
        }
        for id in &foreign[1..] {
            let path = format!("/v1/attempts/{id}{part}");
            assert_eq!(world.ask("GET", &path, Some(&operator), "").await.tell(), nobody, "{path}");
        }
        let elsewhere = format!("/v1/attempts/{id}{part}?account_id={theirs}");
        assert_eq!(world.ask("GET", &elsewhere, Some(&operator), "").await.tell(), nobody);
    }
}

/// The account of a key need not be said, and no other can be.
#[tokio::test(flavor = "multi_thread")]
async fn the_account_comes_from_the_key() {
    let world = World::new().await;
    let (ours, theirs) = (world.account("A").await, world.account("B").await);
    let (_, key) = world.key(json!({ "role": "account", "account_id": ours })).await;
    let (_, ingest) = world.key(json!({ "role": "ingest", "account_id": ours })).await;
    let (_, ingest_all) = world.key(json!({ "role": "ingest" })).await;
    let made = r#"{"url":"https://hooks.customer.example.com/","event_types":["no.one"]}"#;
    let made = world.ask("POST", "/v1/endpoints", Some(&key), made).await.ok(201);
    assert_eq!(made["account_id"], json!(ours));
    let listed = world.ask("GET", "/v1/endpoints", Some(&key), "").await.ok(200);
    assert_eq!(listed["data"][0]["id"], made["id"]);
    assert_eq!(
        world.ask("GET", "/v1/deliveries", Some(&key), "").await.ok(200)["data"].as_array().map(Vec::len),
        Some(0)
    );
    let event = r#"{"type":"a.b","data":1}"#;
    let accepted = world.ask("POST", "/v1/events", Some(&ingest), event).await.ok(202);
    assert_eq!(accepted["account_id"], json!(ours));
    assert_eq!(world.ask("POST", "/v1/events/raw?type=a.b", Some(&ingest), "1").await.status, 202);
    assert_eq!(world.ask("POST", "/v1/events", Some(&ingest_all), event).await.status, 422, "whose is it?");
    let nobody = "acct_00000000000000000000000009";
    let foreign = |account: &str| format!(r#"{{"account_id":"{account}","type":"a.b","data":1}}"#);
    let (foreign, unknown) = (foreign(&theirs), foreign(nobody));
    assert_eq!(world.ask("POST", "/v1/events", Some(&ingest_all), &foreign).await.status, 202);
    let refused = world.ask("POST", "/v1/events", Some(&ingest), &foreign).await;
    assert_eq!(refused.tell(), world.ask("POST", "/v1/events", Some(&ingest), &unknown).await.tell());
    assert_eq!(refused.status, 404);
    let batch = format!(r#"{{"events":[{foreign},{unknown},{event}]}}"#);
    let batch = world.ask("POST", "/v1/events/batch", Some(&ingest), &batch).await.ok(202);
    let statuses: Vec<_> =
        batch["results"].as_array().expect("a list").iter().map(|one| one["status"].clone()).collect();
    assert_eq!(statuses, [404, 404, 202]);
    for (members, pointer) in [
        (json!({ "role": "account" }), "/account_id"),
        (json!({ "role": "operator", "account_id": ours }), "/account_id"),
        (json!({ "role": "king" }), "/role"),
        (json!({ "role": "ingest", "expires_at": "2020-01-01T00:00:00Z" }), "/expires_at"),
        (json!({ "role": "ingest", "scopes": ["all"] }), "/scopes"),
    ] {
        let refused = world.locally("POST", "/v1/keys", members).await;
        assert_eq!(refused.ok(422)["errors"][0]["pointer"], pointer);
    }
    let of_nobody = json!({ "role": "account", "account_id": nobody });
    assert_eq!(world.locally("POST", "/v1/keys", of_nobody).await.status, 404);
}

/// Rules A5 and A6.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_rotated_with_an_overlap_and_revoked_at_once() {
    let world = World::new().await;
    let (id, first) = world.key(json!({ "role": "support", "label": "desk" })).await;
    let path = format!("/v1/keys/{id}");
    let status = async |key: &str| world.ask("GET", "/v1/status", Some(key), "").await.status;
    let shown = world.locally("GET", &path, Value::Null).await.ok(200);
    assert_eq!((&shown["label"], &shown["status"]), (&json!("desk"), &json!("active")));
    assert_eq!((&shown["last_used_at"], shown.get("key")), (&Value::Null, None), "shown once");
    assert_eq!(status(&first).await, 200);
    let used = text(&world.locally("GET", &path, Value::Null).await.ok(200)["last_used_at"]);
    assert!(used.ends_with(":00.000Z"), "to the minute: {used}");

    let rotated =
        world.locally("POST", &format!("{path}/rotate"), json!({ "overlap_hours": 1 })).await.ok(200);
    let second = text(&rotated["key"]);
    assert_eq!(rotated["id"], json!(id));
    assert_eq!((status(&first).await, status(&second).await), (200, 200));
    world.clock.advance(Millis::from_secs(2 * 3600));
    assert_eq!((status(&first).await, status(&second).await), (401, 200));
    let rotated =
        world.locally("POST", &format!("{path}/rotate"), json!({ "overlap_hours": 0 })).await.ok(200);
    let third = text(&rotated["key"]);
    assert_eq!((status(&second).await, status(&third).await), (401, 200), "no overlap at all");

    world.locally("DELETE", &path, Value::Null).await.ok(200);
    let revoked = world.ask("GET", "/v1/status", Some(&third), "").await;
    assert_eq!(world.locally("GET", &path, Value::Null).await.ok(200)["status"], "revoked");
    assert_eq!(world.locally("DELETE", &path, Value::Null).await.code(), "already-so");
    assert_eq!(world.locally("POST", &format!("{path}/rotate"), Value::Null).await.code(), "already-so");
    // Whatever is wrong with a credential, the answer is the same.
    let (_, other) = world.key(json!({ "role": "support" })).await;
    let other_secret = format!("{}{}", &third[..34], &other[34..]);
    for wrong in [other_secret.as_str(), &third[..40], "", "0123456789abcdef", "hl_op_"] {
        let refused = world.ask("GET", "/v1/status", Some(wrong), "").await;
        assert_eq!(refused.tell(), revoked.tell(), "{wrong}");
        assert!(refused.headers.contains_key("www-authenticate"));
    }
    let gone = format!("/v1/keys/{}", id.replace(|c: char| c.is_ascii_digit(), "0"));
    assert_eq!(world.locally("GET", &gone, Value::Null).await.status, 404);
    let listed = world.locally("GET", "/v1/keys?limit=1", Value::Null).await.ok(200);
    assert_eq!(listed["data"][0]["id"], json!(id));
    let next = text(&listed["next_cursor"]);
    let rest = world.locally("GET", &format!("/v1/keys?cursor={next}"), Value::Null).await.ok(200);
    assert_eq!(rest["data"].as_array().map(Vec::len), Some(1));
}

/// Rule A4: an address ends up in logs.
#[tokio::test(flavor = "multi_thread")]
async fn a_credential_in_an_address_is_refused() {
    let world = World::new().await;
    let (_, key) = world.key(json!({ "role": "operator" })).await;
    for query in [format!("token={key}"), format!("x={key}"), "access_token=anything".into()] {
        let refused = world.ask("GET", &format!("/v1/status?{query}"), Some(&key), "").await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "bad-query"), "{query}");
        assert!(!String::from_utf8_lossy(&refused.body).contains(&key));
    }
}

/// A store that nobody can reach gets one key, once.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_is_made_once_and_only_where_it_is_needed() {
    let world = World::new().await;
    let state = |options| {
        let (handle, master) = (world.store.handle().clone(), world.store.master().clone());
        ApiState::new(handle, master, SystemClock::start(), Policy::default(), options)
    };
    let token = OperatorToken::new("0123456789abcdef").expect("a token");
    let chosen = state(ApiOptions { operator_token: Some(token), ..ApiOptions::default() });
    assert_eq!(chosen.first_operator_key().await.expect("it can be looked"), None);
    let open = state(ApiOptions { open: true, ..ApiOptions::default() });
    assert_eq!(open.first_operator_key().await.expect("it can be looked"), None);
    let wanted = state(ApiOptions::default());
    let first = wanted.first_operator_key().await.expect("it can be made").expect("it is the first");
    assert_eq!(world.ask("GET", "/v1/keys", Some(&first), "").await.ok(200)["data"][0]["role"], "operator");
    assert_eq!(wanted.first_operator_key().await.expect("it can be looked"), None, "once");
    assert!(world.folder.path().exists());
}

fn moment(millis: u64) -> String {
    jiff::Timestamp::from_millisecond(millis as i64).expect("a moment").to_string()
}

/// Reveals stand in the audit before a secret is shown; deliveries never do.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_says_who_administered_what_and_why() {
    let world = World::new().await;
    let account = world.account("A").await;
    let other = world.account("B").await;
    let [endpoint, event, delivery] = world.held(&account).await;
    let (id, key) = world.key(json!({ "role": "account", "account_id": account, "label": "theirs" })).await;
    let (_, operator) = world.key(json!({ "role": "operator" })).await;
    let reason = "?reason=a%20receiver%20cannot%20verify";
    let path = format!("/v1/endpoints/{endpoint}/secret{reason}");
    let shown = world.ask("GET", &path, Some(&key), "").await.ok(200);
    world.ask("GET", &format!("/v1/accounts/{account}/secret"), Some(&operator), "").await.ok(200);
    let pause = format!("/v1/endpoints/{endpoint}/pause");
    world.ask("POST", &pause, Some(&key), r#"{"reason":"moving"}"#).await.ok(200);
    let cancel = format!("/v1/deliveries/{delivery}/cancel");
    world.ask("POST", &cancel, Some(&key), r#"{"reason":"no more"}"#).await.ok(200);
    world.locally("DELETE", &format!("/v1/keys/{id}"), Value::Null).await.ok(200);

    let all = world.locally("GET", "/v1/audit", Value::Null).await.ok(200);
    let lines = |page: &Value| -> Vec<String> {
        page["data"].as_array().expect("a list").iter().map(|entry| text(&entry["fact"])).collect()
    };
    let facts = [
        "ApiKeyRevoked",
        "EndpointPaused",
        "SecretRevealed",
        "SecretRevealed",
        "ApiKeyCreated",
        "ApiKeyCreated",
        "EndpointCreated",
        "AccountCreated",
        "AccountCreated",
    ];
    assert_eq!(lines(&all), facts);
    assert_eq!(all["data"][0]["actor"], "the command line");
    assert_eq!((&all["data"][1]["actor"], &all["data"][1]["reason"]), (&json!(id), &json!("moving")));
    assert_eq!(
        (&all["data"][2]["endpoint_id"], &all["data"][2]["account_id"]),
        (&Value::Null, &json!(account))
    );
    let of_key = &all["data"][3];
    assert_eq!((&of_key["actor"], &of_key["endpoint_id"]), (&json!(id), &json!(endpoint)));
    assert_eq!(of_key["reason"], "a receiver cannot verify");
    for secret in [text(&shown["keys"][0]["secret"]), key.clone(), event] {
        assert!(!all.to_string().contains(&secret), "{all}");
    }
    // By account, by actor, and page by page.
    let of_other = world.locally("GET", &format!("/v1/audit?account_id={other}"), Value::Null).await.ok(200);
    assert_eq!(lines(&of_other), ["AccountCreated"]);
    let by_key = world.locally("GET", &format!("/v1/audit?actor={id}"), Value::Null).await.ok(200);
    assert_eq!(lines(&by_key), ["EndpointPaused", "SecretRevealed"]);
    assert_eq!((&by_key["next_cursor"], by_key.get("searched_back_to")), (&Value::Null, None));
    let (mut path, mut walked) = ("/v1/audit?limit=2".to_owned(), Vec::new());
    loop {
        let page = world.locally("GET", &path, Value::Null).await.ok(200);
        walked.extend(lines(&page));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/audit?limit=2&cursor={cursor}");
    }
    assert_eq!(walked, facts);
    let foreign = format!("{path}&actor=x");
    assert_eq!(world.locally("GET", &foreign, Value::Null).await.code(), "bad-cursor");
    // What cannot be recorded is not shown.
    let World { app, store, folder: _folder, .. } = world;
    store.close(LONG).await.expect("in order");
    let path = format!("/v1/accounts/{account}/secret");
    let asked = Request::get(path).header("authorization", format!("Bearer {operator}"));
    let refused = World::send(&app, asked.body(Body::empty()).expect("a request")).await;
    assert_eq!(refused.code(), "draining");
}
