//! What went wrong in other webhook senders around idempotent requests, by the number of the case: C109, C110.

mod support;

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;
use support::case::{Answer, Hook, World, text};
use support::receiver::answer;

/// Posts under a key.
async fn keyed(world: &World, path: &str, key: &str, body: impl Into<Body>) -> Answer {
    of_type(world, path, key, "application/json", body).await
}

async fn of_type(world: &World, path: &str, key: &str, kind: &str, body: impl Into<Body>) -> Answer {
    let request = Request::post(path).header("content-type", kind).header("idempotency-key", key);
    world.send(request.body(body.into()).expect("a request")).await
}

fn replayed(answer: &Answer) -> bool {
    answer.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
}

async fn accounts(world: &World) -> usize {
    world.get("/v1/accounts?limit=500").await.ok(200)["data"].as_array().expect("a list").len()
}

#[tokio::test(flavor = "multi_thread")]
async fn c109_a_key_stands_for_one_request() {
    let mut world = World::new().await;
    let body = r#"{"name":"Acme"}"#;
    let first = keyed(&world, "/v1/accounts", "k 1", body).await;
    let made = first.ok(201);
    world.keep_secret(&text(&made["secret"]));
    assert!(!replayed(&first));
    for restart in [false, true] {
        if restart {
            world.restart().await;
        }
        let again = keyed(&world, "/v1/accounts", "k 1", body).await;
        assert_eq!(again.ok(201), made, "the same answer, secret and all");
        assert!(replayed(&again));
        assert_eq!(again.headers["location"], first.headers["location"]);
    }
    assert_eq!(accounts(&world).await, 1);
    // Another body, path or type under the same key.
    for (path, kind, body) in [
        ("/v1/accounts", "application/json", r#"{"name":"Acmf"}"#),
        ("/v1/accounts", "application/json; charset=utf-8", body),
        ("/v1/endpoints", "application/json", body),
    ] {
        assert_eq!(of_type(&world, path, "k 1", kind, body).await.refused(422), ["idempotency-key-reused"]);
    }
    // What is refused does nothing, and its key is free.
    assert_eq!(keyed(&world, "/v1/accounts", "k2", "{}").await.refused(422)[0], "invalid");
    world.keep_secret(&text(&keyed(&world, "/v1/accounts", "k2", body).await.ok(201)["secret"]));
    for (key, fits) in [
        ("", false),
        ("x".repeat(255).as_str(), true),
        ("x".repeat(256).as_str(), false),
        ("x".repeat(10_000).as_str(), false),
        ("k\u{fc}", false),
        ("k\t1", false),
    ] {
        let answer = keyed(&world, "/v1/accounts", key, "{}").await;
        let wanted = if fits { 422 } else { 400 };
        assert_eq!(answer.status.as_u16(), wanted, "{} characters", key.len());
    }
    // After a day it is another request.
    world.advance_secs(24 * 3600).await;
    let later = keyed(&world, "/v1/accounts", "k 1", r#"{"name":"Acmf"}"#).await;
    world.keep_secret(&text(&later.ok(201)["secret"]));
    assert_eq!(accounts(&world).await, 3);
    world.always_true(&mut []).await;
    let handle = world.store().handle().clone();
    let report = tokio::task::spawn_blocking(move || handle.check(&mut |_, _, _| {})).await.expect("it ends");
    assert_eq!(report.expect("it can be read").findings, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn c109_an_event_under_a_key_is_one_event() {
    let mut world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    let body =
        |n: u32| format!(r#"{{"account_id":"{account}","type":"payment.settled","data":{{"n":{n}}}}}"#);
    let first = keyed(&world, "/v1/events", "order-7", body(1)).await.ok(202);
    world.restart().await;
    let again = keyed(&world, "/v1/events", "order-7", body(1)).await;
    assert!(replayed(&again));
    let again = again.ok(200);
    assert_eq!((&again["id"], &again["deliveries"]), (&first["id"], &first["deliveries"]));
    assert_eq!(keyed(&world, "/v1/events", "order-7", body(2)).await.refused(422), ["event-id-reused"]);
    // Another account's event is another one; one with an id of its own is guarded by that.
    let other = world.account().await;
    let theirs = body(1).replace(&account, &other);
    keyed(&world, "/v1/events", "order-7", theirs).await.ok(202);
    let own = body(3).replacen('{', r#"{"id":"evt_own","#, 1);
    assert_eq!(keyed(&world, "/v1/events", "order-7", own).await.ok(202)["id"], "evt_own");
    // A batch: each item by its place.
    let batch = format!(r#"{{"events":[{},{}]}}"#, body(5), body(5));
    let one = keyed(&world, "/v1/events/batch", "batch-1", batch.clone()).await.ok(202);
    let two = keyed(&world, "/v1/events/batch", "batch-1", batch).await.ok(202);
    let ids = |answer: &Value| [0, 1].map(|n| text(&answer["results"][n]["id"]));
    assert_eq!(ids(&one), ids(&two));
    assert_ne!(ids(&one)[0], ids(&one)[1]);
    assert_eq!(two["results"][0]["status"], 200);
    let raw = format!("/v1/events/raw?account_id={account}&type=a.b");
    let first = of_type(&world, &raw, "raw", "text/plain", "x").await.ok(202);
    assert_eq!(of_type(&world, &raw, "raw", "text/plain", "x").await.ok(200)["id"], first["id"]);
    assert_eq!(of_type(&world, &raw, "raw", "text/html", "x").await.refused(422), ["event-id-reused"]);
    assert_eq!(hook.take(5).await.len(), 5);
    world.always_true(&mut [&mut hook]).await;
}

/// C110: of many at once under one new key, one is done.
#[tokio::test(flavor = "multi_thread")]
async fn c110_of_fifty_at_once_one_is_done() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    let event = format!(r#"{{"account_id":"{account}","type":"payment.settled","data":1}}"#);
    for round in 0..20 {
        let key = format!("round-{round}");
        let events = (0..50).map(|_| keyed(&world, "/v1/events", &key, event.clone()));
        let events = futures::future::join_all(events).await;
        let mut ids: Vec<_> =
            events.iter().map(|answer| text(&answer.ok(answer.status.as_u16())["id"])).collect();
        ids.dedup();
        assert_eq!(ids.len(), 1);
        let accepted = events.iter().filter(|answer| answer.status == 202).count();
        assert!(accepted == 1 && events.iter().all(|answer| matches!(answer.status.as_u16(), 200 | 202)));
        let path = format!("/v1/endpoints/{endpoint}/{}", if round % 2 == 0 { "pause" } else { "resume" });
        let pauses = (0..50).map(|_| keyed(&world, &path, &key, ""));
        let pauses = futures::future::join_all(pauses).await;
        let statuses: Vec<_> = pauses.iter().map(|answer| answer.status.as_u16()).collect();
        assert!(statuses.iter().all(|status| matches!(status, 200 | 409)), "{statuses:?}");
        let done = pauses.iter().filter(|answer| answer.status == 200 && !replayed(answer)).count();
        assert_eq!(done, 1, "{statuses:?}");
    }
    let status = world.get("/v1/status").await.ok(200);
    assert_eq!(status["deliveries"]["enqueued"], 20, "{status:#}");
    assert_eq!(hook.take(20).await.len(), 20);
    world.always_true(&mut [&mut hook]).await;
}
