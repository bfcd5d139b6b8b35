//! What went wrong in other webhook senders around replays, by the number of the case, and bulk replays from their
//! plan to their end.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use axum::http::Method;
use hooklog::api::moment_text;
use hooklog_projections::time::Millis;
use serde_json::{Value, json};
use support::case::{Hook, LONG, SECRET, World, deliveries, delivery, text};
use support::receiver::{Step, answer};

/// A receiver that answers what it is told to, from now on.
async fn hook(first: u16) -> (Hook, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(first));
    let told = status.clone();
    (Hook::answering(move |_| answer(told.load(Ordering::SeqCst), "", "")).await, status)
}

/// So many dead deliveries to one endpoint: their ids.
async fn dead(world: &World, account: &str, name: &str, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..count {
        let id = delivery(&world.event(account, &format!("evt_{name}_{n}"), "{}").await);
        world.until(&id, "dead").await;
        ids.push(id);
    }
    ids
}

async fn replay_once_it(world: &World, id: &str, what: &str, so: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let seen = async {
        loop {
            last = world.get(&format!("/v1/replays/{id}")).await.ok(200);
            if so(&last) {
                return last.clone();
            }
            tokio::task::yield_now().await;
        }
    };
    let seen = tokio::time::timeout(LONG, seen).await;
    seen.unwrap_or_else(|_| panic!("the replay never {what}"))
}

/// Through, and nothing of it is on its way.
async fn through(world: &World, id: &str) -> Value {
    replay_once_it(world, id, "ends", |now| now["state"] == "ended" && now["open"] == 0).await
}

fn bulk(account: &str, filter: Value) -> Value {
    json!({ "account_id": account, "filter": filter, "reason": "their outage is over", "rate_per_second": 10_000 })
}

/// Proves the store.
async fn verify(world: &World) {
    let handle = world.store().handle().clone();
    let report = tokio::task::spawn_blocking(move || handle.check(&mut |_, _, _| {})).await.expect("it ends");
    assert_eq!(report.expect("it can be read").findings, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_is_planned_begun_and_ends_with_its_figures() {
    let world = World::new().await;
    let (mut first, one) = hook(404).await;
    let (mut second, other) = hook(404).await;
    let account = world.account().await;
    world.endpoint(&account, &first.url("/a")).await;
    world.endpoint(&account, &second.url("/b")).await;
    let mut bytes = 0;
    for n in 0..25 {
        let event = world.event(&account, &format!("evt_{n}"), r#"{"n":1}"#).await;
        bytes += 2 * world.get(&format!("/v1/events/evt_{n}/payload")).await.body.len();
        for delivery in support::case::deliveries(&event) {
            world.until(&delivery, "dead").await;
        }
    }
    let body = json!({ "account_id": account, "filter": { "status": "dead" }, "dry_run": true });
    let plan = world.post("/v1/replays", body).await.ok(200);
    assert_eq!((&plan["planned"], &plan["skipped"]), (&json!(50), &json!(0)), "{plan:#}");
    assert_eq!(plan["groups"].as_array().expect("a list").len(), 2, "{plan:#}");
    assert_eq!(plan["groups"][0]["count"], 25, "{plan:#}");
    assert_eq!(plan["groups"][0]["endpoint_url"], plan["groups"][0]["url_then"], "{plan:#}");
    assert_eq!(plan["searched_to"], Value::Null);
    assert_eq!(plan["bytes"], bytes, "{plan:#}");
    let none = world.get(&format!("/v1/replays?account_id={account}")).await.ok(200);
    assert_eq!(none["data"], json!([]), "a plan begins nothing");

    one.store(200, Ordering::SeqCst);
    other.store(403, Ordering::SeqCst);
    let begun = world.post("/v1/replays", bulk(&account, json!({ "status": "dead" }))).await;
    let id = text(&begun.ok(202)["id"]);
    assert!(begun.headers["location"].to_str().expect("ASCII").contains(&id));
    let ended = through(&world, &id).await;
    let wanted = json!({ "planned": 50, "replayed": 50, "delivered": 25, "dead": 25, "open": 0, "left": 0, "skipped": 0 });
    for (name, figure) in wanted.as_object().expect("an object") {
        assert_eq!(&ended[name], figure, "{name}: {ended:#}");
    }
    assert_eq!((first.count(), second.count()), (50, 50), "each once more");
    let timeline = world.get("/v1/events/evt_3/timeline").await.ok(200);
    let replayed =
        timeline["data"].as_array().expect("a list").iter().find(|fact| fact["fact"] == "Replayed");
    let replayed = replayed.expect("a new run");
    assert_eq!((&replayed["replay_id"], &replayed["reason"]), (&json!(id), &json!("their outage is over")));
    let again = world.get(&format!("/v1/replays?account_id={account}")).await.ok(200);
    assert_eq!(again["data"][0]["id"], json!(id));
    world.always_true(&mut [&mut first, &mut second]).await;
    verify(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_ones_are_counted_in_groups() {
    let world = World::new().await;
    let (mut hook, status) = hook(404).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/a")).await;
    world.account().await;
    let gone = dead(&world, &account, "gone", 3).await;
    status.store(500, Ordering::SeqCst);
    let once = delivery(&world.event_with(&account, "once", "1", r#","max_tries":1"#).await);
    world.until(&once, "dead").await;
    let groups = async |query: &str| world.get(&format!("/v1/dead{query}")).await.ok(200);
    let all = groups("").await;
    assert_eq!((&all["dead"], &all["complete"]), (&json!(4), &json!(true)), "{all:#}");
    let [refused, exhausted] = &all["data"].as_array().expect("a list")[..] else { panic!("{all:#}") };
    assert_eq!((&refused["reason"], &refused["count"]), (&json!("refused"), &json!(3)));
    assert_eq!((&exhausted["reason"], &exhausted["count"]), (&json!("exhausted"), &json!(1)));
    assert_eq!(
        (&refused["endpoint_id"], &refused["event_type"]),
        (&json!(endpoint), &json!("payment.settled"))
    );
    assert_eq!(groups(&format!("?account_id={account}&reason=exhausted")).await["dead"], 1);
    assert_eq!(groups(&format!("?endpoint_id={endpoint}&event_type=payment.*")).await["dead"], 4);
    assert_eq!(groups("?event_type=refund.*").await["data"], json!([]));
    assert_eq!(groups("?limit=1").await["complete"], false);
    assert_eq!(world.get("/v1/dead?reason=bored").await.refused(400), ["bad-query", "/reason bad-parameter"]);
    // What is replayed leaves its group; a group of none is gone.
    status.store(200, Ordering::SeqCst);
    for id in [&gone[..], &[once]].concat() {
        world.post(&format!("/v1/deliveries/{id}/replay"), json!({})).await.ok(202);
        world.until(&id, "delivered").await;
    }
    assert_eq!(groups("").await["data"], json!([]));
    world.always_true(&mut [&mut hook]).await;
    verify(&world).await;
}

/// Only what had died when it began: what dies of it is not taken again, else it would never end.
#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_takes_what_its_filter_says_and_each_once() {
    let world = World::new().await;
    let (mut hook, status) = hook(404).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    dead(&world, &account, "gone", 4).await;
    status.store(403, Ordering::SeqCst);
    dead(&world, &account, "forbidden", 3).await;
    let other = format!(r#"{{"account_id":"{account}","id":"other","type":"refund.made","data":1}}"#);
    let other = world.call(Method::POST, "/v1/events", "application/json", other).await.ok(202);
    world.until(&delivery(&other), "dead").await;
    let plan = async |filter: Value, more: Value| {
        let mut body = json!({ "account_id": account, "filter": filter, "dry_run": true });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        world.post("/v1/replays", body).await.ok(200)["planned"].as_u64().expect("a number")
    };
    let none = json!({});
    assert_eq!(plan(json!({ "status": "dead" }), none.clone()).await, 8);
    assert_eq!(plan(json!({ "status": "dead", "http_status": "404" }), none.clone()).await, 4);
    assert_eq!(plan(json!({ "status": "dead", "http_status": ["403", "5xx"] }), none.clone()).await, 4);
    assert_eq!(plan(json!({ "status": "dead", "error": "timeout" }), none.clone()).await, 0);
    assert_eq!(plan(json!({ "status": "dead", "event_type": "refund.*" }), none.clone()).await, 1);
    assert_eq!(plan(json!({ "status": "dead", "since": "2030-01-01T00:00:00Z" }), none.clone()).await, 0);
    assert_eq!(plan(json!({ "status": "dead", "until": "2030-01-01T00:00:00Z" }), none.clone()).await, 8);
    assert_eq!(plan(json!({ "status": "delivered" }), none.clone()).await, 0);
    world.patch(&format!("/v1/endpoints/{endpoint}"), json!({ "event_types": ["refund.*"] })).await.ok(200);
    assert_eq!(plan(json!({ "status": "dead" }), none).await, 8, "as then");
    assert_eq!(plan(json!({ "status": "dead" }), json!({ "routing": "as_now" })).await, 1);

    let before = hook.count();
    let filter = json!({ "status": "dead", "http_status": "403", "endpoint_id": endpoint });
    let id = text(&world.post("/v1/replays", bulk(&account, filter)).await.ok(202)["id"]);
    let ended = through(&world, &id).await;
    assert_eq!((&ended["replayed"], &ended["dead"]), (&json!(4), &json!(4)), "{ended:#}");
    assert_eq!(hook.count(), before + 4);
    world.always_true(&mut [&mut hook]).await;
    verify(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_goes_on_after_a_restart_and_begins_nothing_twice() {
    let mut world = World::new().await;
    let (mut hook, status) = hook(404).await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    let ids = dead(&world, &account, "e", 40).await;
    status.store(200, Ordering::SeqCst);
    let mut body = bulk(&account, json!({ "status": "dead" }));
    body["rate_per_second"] = json!(20);
    let id = text(&world.post("/v1/replays", body).await.ok(202)["id"]);
    for round in 1..=2 {
        replay_once_it(&world, &id, "goes on", |now| now["replayed"].as_u64() >= Some(round * 4)).await;
        world.restart().await;
    }
    let running = world.get(&format!("/v1/replays/{id}")).await.ok(200);
    assert_eq!(running["state"], "running", "the restarts fell into it: {running:#}");
    let ended = through(&world, &id).await;
    assert_eq!(
        (&ended["replayed"], &ended["delivered"], &ended["skipped"]),
        (&json!(40), &json!(40), &json!(0))
    );
    for id in ids {
        let row = world.delivery(&id).await;
        assert_eq!((&row["run"], &row["status"]), (&json!(2), &json!("delivered")), "{row:#}");
    }
    hook.all();
    verify(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_is_called_off_and_what_it_began_goes_on() {
    let world = World::new().await;
    let (mut hook, status) = hook(404).await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    dead(&world, &account, "e", 20).await;
    status.store(200, Ordering::SeqCst);
    let mut body = bulk(&account, json!({ "status": "dead" }));
    body["rate_per_second"] = json!(1);
    let id = text(&world.post("/v1/replays", body).await.ok(202)["id"]);
    let path = format!("/v1/replays/{id}");
    replay_once_it(&world, &id, "begins", |now| now["delivered"].as_u64() >= Some(1)).await;
    let cancelled = world.call(Method::DELETE, &path, "application/json", "").await.ok(200);
    assert_eq!(cancelled["state"], "cancelled");
    assert!(cancelled["replayed"].as_u64() < Some(20), "{cancelled:#}");
    let again = world.call(Method::DELETE, &path, "application/json", "").await;
    assert_eq!(again.refused(409), ["replay-not-running"]);
    assert_eq!(
        world.call(Method::DELETE, "/v1/replays/rpl_x", "application/json", "").await.refused(404),
        ["not-found"]
    );
    let rest = json!({ "account_id": account, "filter": { "status": "dead" }, "dry_run": true });
    let rest = world.post("/v1/replays", rest).await.ok(200)["planned"].as_u64();
    assert_eq!(rest, cancelled["replayed"].as_u64().map(|done| 20 - done), "the others are dead as before");
    hook.all();
    verify(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_says_what_is_wrong_with_it_all_at_once() {
    let world = World::new().await;
    let account = world.account().await;
    let refused = async |body: Value| world.post("/v1/replays", body).await.refused(422);
    assert_eq!(
        refused(json!({})).await,
        ["invalid", "/account_id missing", "/filter missing", "/reason missing"]
    );
    let filter = json!({ "status": "pending", "since": "yesterday", "http_status": ["6", "5xx"], "error": "ouch", "x": 1 });
    let wrong =
        refused(json!({ "account_id": account, "filter": filter, "rate_per_second": 0, "dry_run": true }))
            .await;
    assert_eq!(
        wrong,
        [
            "invalid",
            "/filter/status unknown-word",
            "/filter/since bad-time",
            "/filter/http_status bad-status",
            "/filter/error unknown-word",
            "/filter/x unknown-member",
            "/rate_per_second out-of-range",
        ]
    );
    let missing = json!({ "account_id": account, "filter": { "status": "missing" }, "dry_run": true });
    assert_eq!(refused(missing).await, ["invalid", "/filter/endpoint_id missing", "/filter/since missing"]);
    let delivered = bulk(&account, json!({ "status": "delivered" }));
    assert_eq!(refused(delivered).await, ["confirm-needed"]);
}

/// C97: a double click is one replay.
#[tokio::test(flavor = "multi_thread")]
async fn c97_of_twenty_replays_at_once_one_is_done() {
    let world = World::new().await;
    let (mut hook, status) = hook(404).await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    let ids = dead(&world, &account, "e", 1).await;
    status.store(200, Ordering::SeqCst);
    let path = format!("/v1/deliveries/{}/replay", ids[0]);
    let all = (0..20).map(|_| world.call(Method::POST, &path, "application/json", "{}"));
    let answers = futures::future::join_all(all).await;
    let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [[202].as_slice(), &[409; 19]].concat());
    let now = world.until(&ids[0], "delivered").await;
    assert_eq!((&now["run"], &now["attempts"]), (&json!(2), &json!(2)));
    assert_eq!(hook.count(), 2);
    let timeline = world.get("/v1/events/evt_e_0/timeline").await.ok(200);
    let replayed =
        timeline["data"].as_array().expect("a list").iter().filter(|fact| fact["fact"] == "Replayed");
    assert_eq!(replayed.count(), 1);
    world.always_true(&mut [&mut hook]).await;
}

/// C98: what is out or waits is not replayed but hurried, and then the schedule has one entry less, not one more.
#[tokio::test(flavor = "multi_thread")]
async fn c98_a_hurried_try_takes_the_place_of_the_one_that_was_due() {
    let world = World::new().await;
    let mut slow = Hook::scripted(vec![answer(500, "", ""), vec![Step::Hold], answer(200, "", "")]).await;
    let account = world.account().await;
    let other = world.account().await;
    // It is held until the attempt's own limit ends it.
    let members = json!({ "signing_secret": SECRET, "timeout_ms": 1_000 });
    world.endpoint_of(&account, &slow.url("/"), members).await;
    let id = delivery(&world.event(&account, "evt_slow", "{}").await);
    let path = format!("/v1/deliveries/{id}");
    world.until_tried(&id, 1).await;
    world.post(&format!("{path}/retry-now"), json!({})).await.ok(202);
    slow.take(2).await;
    for (wish, body, code) in [
        ("replay", json!({}), "nothing-to-replay"),
        ("replay", json!({ "scope": "all", "confirm": true }), "nothing-to-replay"),
        ("retry-now", json!({}), "not-pending"),
    ] {
        assert_eq!(world.post(&format!("{path}/{wish}"), body).await.refused(409), [code], "in flight");
    }
    assert_eq!(slow.count(), 2, "none is beside the one that is out");
    let waits = world.until_tried(&id, 2).await;
    assert_eq!((&waits["status"], &waits["try"]), (&json!("pending"), &json!(2)));
    let refused = world.post(&format!("{path}/replay"), json!({})).await;
    assert_eq!(refused.refused(409), ["nothing-to-replay"]);
    assert!(text(&refused.ok(409)["detail"]).contains("retry-now"), "it says what to do");
    // Twenty at once hurry it once; what was due is not sent besides.
    let hurried = (0..20).map(|_| async { world.post(&format!("{path}/retry-now"), json!({})).await.status });
    let hurried = futures::future::join_all(hurried).await;
    assert!(hurried.iter().any(|status| *status == 202), "{hurried:?}");
    world.until(&id, "delivered").await;
    for _ in 0..4 {
        world.advance_secs(3_600).await;
    }
    assert_eq!((slow.count(), world.attempts(&id).await.len()), (3, 3));

    // What fails goes on with the next wait, and has as many tries as without being hurried.
    let (mut down, _) = hook(500).await;
    world.endpoint(&other, &down.url("/")).await;
    let id = delivery(&world.event(&other, "evt_down", "{}").await);
    let path = format!("/v1/deliveries/{id}/retry-now");
    let mut waits = vec![world.due_in(&world.until_tried(&id, 1).await).0];
    let mut tried = 1;
    loop {
        tried += 1;
        if tried % 2 == 0 {
            world.post(&path, json!({})).await.ok(202);
            // After five failures in a row the breaker wants a pause.
            world.advance_secs(60).await;
        } else {
            world.advance(Millis(*waits.last().expect("it waits"))).await;
        }
        let now = world.until_tried(&id, tried).await;
        assert_eq!((&now["try"], &now["run"]), (&json!(tried), &json!(1)), "{now}");
        if now["status"] == "dead" {
            break;
        }
        waits.push(world.due_in(&now).0);
    }
    assert_eq!((tried, down.count()), (6, 6));
    assert!(waits.is_sorted(), "each wait is its own step's: {waits:?}");
    world.always_true(&mut [&mut slow, &mut down]).await;
}

/// C100: what arrived is sent again on purpose only; the first arrival stays in the history.
#[tokio::test(flavor = "multi_thread")]
async fn c100_a_delivered_event_is_replayed_with_a_confirmation_only() {
    let world = World::new().await;
    let (mut hook, _) = hook(200).await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    let id = delivery(&world.event(&account, "evt_1", "{}").await);
    world.until(&id, "delivered").await;
    let first = world.attempts(&id).await;
    let path = format!("/v1/deliveries/{id}/replay");
    assert_eq!(world.post(&path, json!({})).await.refused(409), ["nothing-to-replay"]);
    assert_eq!(world.post(&path, json!({ "scope": "all" })).await.refused(422), ["confirm-needed"]);
    world.post(&path, json!({ "scope": "all", "confirm": true })).await.ok(202);
    world.until_tried(&id, 2).await;
    let attempts = world.attempts(&id).await;
    assert_eq!(attempts[0], first[0], "what was is as it was");
    assert_eq!((&attempts[1]["run"], &attempts[1]["try"]), (&json!(2), &json!(1)));
    let [one, two] = hook.take(2).await.try_into().expect("two");
    assert_eq!(one.values("webhook-id"), two.values("webhook-id"));
    assert_eq!(one.values("idempotency-key"), two.values("idempotency-key"));
    assert!(one.values("webhook-replay").is_empty());
    assert_eq!(two.values("webhook-replay"), ["2"]);
    let status = world.get("/v1/status").await.ok(200);
    assert_eq!(status["deliveries"]["delivered"], 1, "counted once: {status:#}");
    // The same in bulk.
    let body = json!({ "account_id": account, "filter": { "status": "delivered" }, "reason": "lost", "confirm": true });
    let replay = text(&world.post("/v1/replays", body).await.ok(202)["id"]);
    assert_eq!(through(&world, &replay).await["delivered"], 1);
    assert_eq!(hook.count(), 3);
    world.always_true(&mut [&mut hook]).await;
    verify(&world).await;
}

/// C101: URL, key and headers are the current ones; the history keeps those of then.
#[tokio::test(flavor = "multi_thread")]
async fn c101_a_replay_goes_where_the_endpoint_is_now() {
    let world = World::new().await;
    let (mut old, _) = hook(404).await;
    let (mut new, _) = hook(200).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &old.url("/old")).await;
    let id = dead(&world, &account, "e", 1).await.remove(0);
    let change = json!({ "url": new.url("/new"), "event_types": ["refund.*"], "headers": { "x-team": "b" } });
    world.patch(&format!("/v1/endpoints/{endpoint}"), change).await.ok(200);
    let plan = json!({ "account_id": account, "filter": { "status": "dead" }, "dry_run": true });
    let plan = world.post("/v1/replays", plan).await.ok(200);
    assert_eq!(plan["groups"][0]["url_then"], json!(old.url("/old")));
    assert_eq!(plan["groups"][0]["endpoint_url"], json!(new.url("/new")));
    assert!(plan["warnings"].to_string().contains("another URL"), "{plan:#}");
    world.post(&format!("/v1/deliveries/{id}/replay"), json!({})).await.ok(202);
    world.until(&id, "delivered").await;
    assert_eq!((old.count(), new.count()), (1, 1));
    let request = new.all()[0].clone();
    assert_eq!(request.values("x-team"), ["b"]);
    assert_eq!(request.body(), old.all()[0].body());
    let attempts = world.attempts(&id).await;
    assert_eq!((&attempts[0]["endpoint_version"], &attempts[1]["endpoint_version"]), (&json!(1), &json!(2)));
    world.always_true(&mut [&mut old, &mut new]).await;
}

/// C103: nothing is replayed to what is gone or disabled; in bulk it is skipped and counted.
#[tokio::test(flavor = "multi_thread")]
async fn c103_nothing_is_replayed_to_an_endpoint_that_is_disabled_or_not_there() {
    let mut world = World::new().await;
    let (mut hook, status) = hook(410).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    let id = dead(&world, &account, "e", 1).await.remove(0);
    assert_eq!(world.get(&format!("/v1/endpoints/{endpoint}")).await.ok(200)["status"], "disabled");
    status.store(200, Ordering::SeqCst);
    for path in [format!("/v1/deliveries/{id}/replay"), "/v1/events/evt_e_0/replay".into()] {
        assert_eq!(world.post(&path, json!({})).await.refused(409), ["endpoint-disabled"]);
    }
    let replay = world.post("/v1/replays", bulk(&account, json!({ "status": "dead" }))).await.ok(202);
    assert_eq!(replay["planned"], 0);
    let ended = through(&world, &text(&replay["id"])).await;
    assert_eq!((&ended["skipped"], &ended["replayed"]), (&json!(1), &json!(0)), "{ended:#}");
    let unknown = format!("/v1/deliveries/{}/replay", id.replace(&id[8..], "000000000000000000000Z"));
    assert_eq!(world.post(&unknown, json!({})).await.refused(404), ["not-found"]);
    let other = world.account().await;
    let foreign = format!("/v1/deliveries/{id}/replay?account_id={other}");
    assert_eq!(world.post(&foreign, json!({})).await.refused(404), ["not-found"]);
    for _ in 0..2 {
        world.restart().await;
    }
    assert_eq!(hook.count(), 1, "nothing left");
    world.post(&format!("/v1/endpoints/{endpoint}/resume"), json!({})).await.ok(200);
    world.post(&format!("/v1/deliveries/{id}/replay"), json!({})).await.ok(202);
    world.until(&id, "delivered").await;
    world.always_true(&mut [&mut hook]).await;
    verify(&world).await;
}

/// Of an event that two endpoints gave up on, what one of them cannot get is told beside what the other gets.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_is_refused_in_part_says_so() {
    let world = World::new().await;
    let (gone, _) = hook(410).await;
    let (down, status) = hook(404).await;
    let account = world.account().await;
    let left = world.endpoint(&account, &gone.url("/")).await;
    world.endpoint(&account, &down.url("/")).await;
    let event = world.event(&account, "evt_two", "{}").await;
    for id in deliveries(&event) {
        world.until(&id, "dead").await;
    }
    status.store(200, Ordering::SeqCst);
    let replayed = world.post("/v1/events/evt_two/replay", json!({})).await.ok(202);
    assert_eq!(replayed["deliveries"].as_array().map(Vec::len), Some(1), "{replayed:#}");
    let refused: Vec<_> = replayed["refused"].as_array().expect("a list").iter().map(text).collect();
    assert!(
        refused.len() == 1 && refused[0].starts_with(&left) && refused[0].contains("disabled"),
        "{refused:?}"
    );
    world.until(&text(&replayed["deliveries"][0]["id"]), "delivered").await;
}

/// Where nothing goes out, nothing is hurried; and what it waits for until when is told with it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_back_is_not_hurried() {
    let world = World::new().await;
    let (mut down, _) = hook(500).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &down.url("/")).await;
    let deadline = moment_text(world.now() + Millis::from_secs(600));
    let event =
        json!({ "account_id": account, "id": "evt_held", "type": "a.b", "data": 1, "expire_at": deadline });
    let id = delivery(&world.post("/v1/events", event).await.ok(202));
    let tried = world.until_tried(&id, 1).await;
    assert_eq!(text(&tried["expire_at"]), deadline, "{tried:#}");
    world.post(&format!("/v1/endpoints/{endpoint}/pause"), json!({ "reason": "they move" })).await.ok(200);
    let retry = format!("/v1/deliveries/{id}/retry-now");
    assert_eq!(world.post(&retry, json!({})).await.refused(409), ["endpoint-paused"]);
    let reasons = world.get("/v1/explain/evt_held").await.ok(200)["reasons"].to_string();
    assert!(reasons.contains("Its deadline is "), "{reasons}");
    world.advance_secs(601).await;
    let told = world.get("/v1/explain/evt_held").await.ok(200);
    assert!(text(&told["sentence"]).starts_with("No. Its deadline passed at"), "{told:#}");
    assert_eq!(down.count(), 1);
    world.always_true(&mut [&mut down]).await;
}

/// What an endpoint never got: it was made later, or wanted other types then.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_gets_what_it_missed() {
    let mut world = World::new().await;
    let (mut early, _) = hook(200).await;
    let (mut late, _) = hook(200).await;
    let account = world.account().await;
    let nobody = world.post(
        "/v1/events",
        json!({ "account_id": account, "id": "evt_alone", "type": "payment.settled", "data": 0 }),
    );
    assert_eq!(nobody.await.ok(202)["deliveries"], json!([]));
    let first = world.endpoint(&account, &early.url("/")).await;
    for n in 0..5 {
        let id = delivery(&world.event(&account, &format!("evt_{n}"), &format!("{{\"n\":{n}}}")).await);
        world.until(&id, "delivered").await;
    }
    let second = world.endpoint(&account, &late.url("/")).await;
    let both = world.event(&account, "evt_both", "{}").await;
    for id in support::case::deliveries(&both) {
        world.until(&id, "delivered").await;
    }
    // One event: whoever wants it now and never got it.
    let path = "/v1/events/evt_0/replay";
    let one = world.post(path, json!({ "scope": "missing" })).await.ok(202);
    let id = delivery(&one);
    assert_eq!(one["deliveries"][0]["endpoint_id"], json!(second));
    world.until(&id, "delivered").await;
    assert_eq!(world.post(path, json!({ "scope": "missing" })).await.refused(409), ["nothing-to-replay"]);
    let event = world.get("/v1/events/evt_0").await.ok(200);
    assert_eq!(support::case::deliveries(&event).len(), 2, "the event names it: {event:#}");
    let again =
        json!({ "account_id": account, "id": "evt_0", "type": "payment.settled", "data": { "n": 0 } });
    let again = world.post("/v1/events", again).await.ok(200);
    assert_eq!(support::case::deliveries(&again).len(), 2, "so does its duplicate: {again:#}");
    let timeline = world.get("/v1/events/evt_0/timeline").await.ok(200);
    assert!(
        timeline["data"].as_array().expect("a list").iter().any(|fact| fact["late"] == true),
        "{timeline:#}"
    );

    // In bulk, over a restart and a rebuild.
    let filter = json!({ "status": "missing", "endpoint_id": second, "since": "2020-01-01T00:00:00Z" });
    let plan = json!({ "account_id": account, "filter": filter, "dry_run": true });
    let plan = world.post("/v1/replays", plan).await.ok(200);
    assert_eq!((&plan["planned"], &plan["groups"][0]["count"]), (&json!(5), &json!(5)), "{plan:#}");
    let mut wish = bulk(&account, filter.clone());
    wish["rate_per_second"] = json!(10);
    let replay = text(&world.post("/v1/replays", wish).await.ok(202)["id"]);
    replay_once_it(&world, &replay, "begins", |now| now["replayed"].as_u64() >= Some(1)).await;
    world.restart().await;
    let ended = through(&world, &replay).await;
    assert_eq!((&ended["replayed"], &ended["delivered"]), (&json!(5), &json!(5)), "{ended:#}");
    assert_eq!((early.count(), late.count()), (6, 7), "each event once at each");
    let plan = json!({ "account_id": account, "filter": filter, "dry_run": true });
    assert_eq!(world.post("/v1/replays", plan).await.ok(200)["planned"], 0);
    let alone = world.get("/v1/events/evt_alone").await.ok(200);
    assert_eq!(alone["deliveries"][0]["endpoint_id"], json!(second), "{alone:#}");
    // What came late is sent again like any other.
    world.post(path, json!({ "scope": "all", "confirm": true })).await.ok(202);
    world.until_tried(&id, 2).await;
    assert_ne!(first, second);
    verify(&world).await;
    let handle = world.store().handle().clone();
    tokio::task::spawn_blocking(move || handle.rebuild(&mut |_, _| {}))
        .await
        .expect("it ends")
        .expect("rebuilt");
    world.always_true(&mut [&mut early, &mut late]).await;
    verify(&world).await;
}

/// C104: an endpoint is removed with much waiting for it. Nothing is sent any more, what waits is cancelled also over
/// a restart, what is in flight ends, and the history stays.
#[tokio::test(flavor = "multi_thread")]
async fn c104_a_removed_endpoint_gets_nothing_more_and_its_history_stays() {
    let mut world = World::new().await;
    let (mut other, _) = hook(200).await;
    let mut slow = Hook::scripted(vec![vec![support::receiver::Step::Hold]]).await;
    let account = world.account().await;
    let endpoint =
        world.endpoint_of(&account, &slow.url("/"), json!({ "in_flight_max": 2, "timeout_ms": 5000 })).await;
    let mut ids = Vec::new();
    for n in 0..250 {
        ids.push(delivery(&world.event(&account, &format!("evt_{n}"), "{}").await));
    }
    slow.take(2).await;
    let path = format!("/v1/endpoints/{endpoint}");
    let removed =
        world.call(Method::DELETE, &path, "application/json", r#"{"reason":"moved away"}"#).await.ok(200);
    assert_eq!((&removed["status"], &removed["held"]["reason"]), (&json!("removed"), &json!("moved away")));
    assert_eq!(world.call(Method::DELETE, &path, "application/json", "").await.refused(409), ["already-so"]);
    world.restart().await;
    for id in &ids {
        world.until(id, "cancelled").await;
    }
    let status = world.get("/v1/status").await.ok(200);
    assert_eq!(status["deliveries"]["cancelled"], 250, "not dead: nobody is mailed: {status:#}");
    assert_eq!(slow.count(), 2, "nothing more left");
    // It is gone from lists, and takes nothing; what was is still read.
    let list = world.get(&format!("/v1/endpoints?account_id={account}")).await.ok(200);
    assert_eq!(list["data"], json!([]));
    assert_eq!(world.patch(&path, json!({ "description": "x" })).await.refused(410), ["endpoint-removed"]);
    assert_eq!(world.post(&format!("{path}/resume"), json!({})).await.refused(410), ["endpoint-removed"]);
    let aimed = json!({ "account_id": account, "type": "a.b", "data": 1, "endpoint_id": endpoint });
    assert_eq!(world.post("/v1/events", aimed).await.refused(410), ["endpoint-removed"]);
    let attempts = world.attempts(&ids[0]).await;
    assert_eq!((attempts.len(), &attempts[0]["status"]), (1, &json!("failed")), "{attempts:#?}");
    let replay = world.post(&format!("/v1/deliveries/{}/replay", ids[0]), json!({})).await;
    assert_eq!(replay.refused(409), ["nothing-to-replay"]);
    assert!(
        world.get(&format!("/v1/explain/{endpoint}")).await.ok(200)["sentence"]
            .to_string()
            .contains("removed")
    );
    // The same URL again is another endpoint, and gets only what is new.
    world.endpoint(&account, &other.url("/")).await;
    let new = delivery(&world.event(&account, "evt_new", "{}").await);
    world.until(&new, "delivered").await;
    assert_eq!(other.count(), 1);
    world.always_true(&mut [&mut other, &mut slow]).await;
    verify(&world).await;
}
