//! What the API is asked about what was: events in a list, their types, one attempt with its request and answer,
//! whether a captured request is signed; and that all that is wrong with a question is told at once.

mod support;

use std::collections::BTreeMap;

use hooklog_projections::time::Millis;
use serde_json::{Value, json};
use support::case::{Hook, SECOND, SECRET, World, delivery, moment, text};
use support::receiver::{Received, answer, raw};

/// The ids of a list over all its pages, `limit` a page.
async fn walked(world: &World, list: &str, limit: usize) -> Vec<String> {
    let (mut ids, mut path) = (Vec::new(), format!("{list}&limit={limit}"));
    loop {
        let answer = world.get(&path).await;
        let page = answer.ok(200);
        let data = page["data"].as_array().expect("a list");
        assert!(data.len() <= limit);
        ids.extend(data.iter().map(|row| text(&row["id"])));
        match page["next_cursor"].as_str() {
            None => {
                let link = answer.headers.get("link").map_or("", |link| link.to_str().expect("ASCII"));
                assert!(!link.contains(r#"rel="next""#) && page.get("searched_back_to").is_none(), "{link}");
                return ids;
            }
            Some(cursor) => {
                let link = answer.headers["link"].to_str().expect("ASCII");
                path = format!("{list}&limit={limit}&cursor={cursor}");
                assert!(link.contains(cursor) && link.ends_with(r#">; rel="next""#), "{link}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_listed_newest_first_whoever_wanted_them() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let (account, other) = (world.account().await, world.account().await);
    for path in ["/1", "/2", "/3"] {
        let wanted = json!({ "signing_secret": SECRET, "event_types": ["order.*"] });
        world.endpoint_of(&account, &hook.url(path), wanted).await;
    }
    let send = async |account: &str, id: &str, kind: &str| {
        let event = json!({ "account_id": account, "id": id, "type": kind, "data": { "n": id } });
        world.post("/v1/events", event).await.ok(202)
    };
    let (mut all, mut unmatched) = (Vec::new(), Vec::new());
    let mut middle = world.now();
    for n in 0..12 {
        if n == 6 {
            world.advance(Millis(1_000)).await;
            middle = world.now();
        }
        let (id, kind) = match n % 3 {
            0 => (format!("e{n}"), "order.paid"),
            1 => (format!("e{n}"), "order.sent"),
            _ => (format!("e{n}"), "user.made"),
        };
        send(&account, &id, kind).await;
        if n % 3 == 2 {
            unmatched.insert(0, id.clone());
        }
        all.insert(0, id);
    }
    send(&other, "theirs", "order.paid").await;
    hook.take(24).await;
    let list = format!("/v1/events?account_id={account}");
    for limit in [1, 2, 5, 100] {
        assert_eq!(walked(&world, &list, limit).await, all, "{limit} a page");
        assert_eq!(walked(&world, &format!("{list}&status=unmatched"), limit).await, unmatched);
        let orders: Vec<_> = all.iter().filter(|id| !unmatched.contains(id)).cloned().collect();
        assert_eq!(walked(&world, &format!("{list}&event_type=order.*"), limit).await, orders);
        let paid = walked(&world, &format!("{list}&event_type=order.paid"), limit).await;
        assert_eq!(paid, ["e9", "e6", "e3", "e0"]);
        let none = walked(&world, &format!("{list}&event_type=order.*&status=unmatched"), limit).await;
        assert_eq!(none, [""; 0]);
        let at = hooklog::api::moment_text(middle);
        assert_eq!(walked(&world, &format!("{list}&since={at}"), limit).await, all[..6]);
        assert_eq!(walked(&world, &format!("{list}&until={at}"), limit).await, all[6..]);
        let nothing = walked(&world, &format!("{list}&since={at}&until={at}"), limit).await;
        assert_eq!(nothing, [""; 0]);
    }
    let page = world.get(&format!("{list}&limit=3&include=payload")).await.ok(200);
    assert_eq!(page["data"][0]["payload"]["data"], json!({ "n": "e11" }));
    let counts: Vec<_> =
        page["data"].as_array().expect("a list").iter().map(|e| &e["delivery_count"]).collect();
    assert_eq!(counts, [&json!(0), &json!(3), &json!(3)]);
    assert_eq!(page["data"][1].get("payload_base64"), None);

    // A cursor is this list's only, and rows that come in meanwhile move none of those that were there.
    let cursor = text(&page["next_cursor"]);
    send(&account, "later", "order.paid").await;
    let next = world.get(&format!("{list}&limit=3&include=payload&cursor={cursor}")).await.ok(200);
    assert_eq!(next["data"][0]["id"], "e8");
    let changed = if cursor.ends_with('A') { 'Q' } else { 'A' };
    for other in [
        format!("{list}&event_type=order.*&cursor={cursor}"),
        format!("/v1/deliveries?account_id={account}&cursor={cursor}"),
        format!("/v1/events?account_id={other}&cursor={cursor}"),
        format!("{list}&cursor={}{changed}", &cursor[..cursor.len() - 1]),
    ] {
        assert_eq!(world.get(&other).await.refused(400), ["bad-cursor"], "{other}");
    }
    hook.take(3).await;

    // What is sent to somebody later was not in vain.
    let late = json!({ "signing_secret": SECRET, "event_types": ["user.made"] });
    world.endpoint_of(&account, &hook.url("/late"), late).await;
    world
        .post(&format!("/v1/events/e11/replay?account_id={account}"), json!({ "scope": "missing" }))
        .await
        .ok(202);
    hook.take(1).await;
    assert_eq!(walked(&world, &format!("{list}&status=unmatched"), 5).await, ["e8", "e5", "e2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn types_are_told_with_when_they_were_seen_also_after_a_restart() {
    let mut world = World::new().await;
    let (account, other) = (world.account().await, world.account().await);
    let send = async |world: &World, kind: &str| {
        world.post("/v1/events", json!({ "account_id": account, "type": kind, "data": 1 })).await.ok(202);
    };
    let first = world.now();
    send(&world, "b.two").await;
    send(&world, "a.one").await;
    world.advance(Millis(5_000)).await;
    send(&world, "b.two").await;
    let list = format!("/v1/event-types?account_id={account}");
    let before = world.get(&list).await.ok(200);
    assert_eq!(before["complete"], true);
    let told = |types: &Value| -> Vec<(String, u64)> {
        let types = types["data"].as_array().expect("a list");
        types.iter().map(|one| (text(&one["type"]), one["events"].as_u64().expect("a number"))).collect()
    };
    assert_eq!(told(&before), [("a.one".to_owned(), 1), ("b.two".to_owned(), 2)]);
    let two = &before["data"][1];
    assert_eq!((moment(&two["first_seen_at"]), moment(&two["last_seen_at"])), (first, first + Millis(5_000)));
    assert_eq!(told(&world.get(&format!("/v1/event-types?account_id={other}")).await.ok(200)), []);
    world.restart().await;
    assert_eq!(world.get(&list).await.ok(200), before);

    // Whoever makes a type of each id has the first thousand told, and hears that there are more.
    let events: Vec<Value> =
        (0..1_005).map(|n| json!({ "account_id": other, "type": format!("t{n:04}"), "data": 1 })).collect();
    for part in events.chunks(500) {
        world.post("/v1/events/batch", json!({ "events": part })).await.ok(202);
    }
    let full = world.get(&format!("/v1/event-types?account_id={other}")).await.ok(200);
    assert_eq!((&full["complete"], full["data"].as_array().map(Vec::len)), (&json!(false), Some(1_000)));
    assert_eq!(world.get(&list).await.ok(200), before, "one account's are no other's");
    let refused = world.get("/v1/event-types?x=1").await.refused(400);
    assert_eq!(refused, ["bad-query", "/account_id bad-parameter", "/x bad-parameter"]);
}

/// The request as it is shown is the one that came, but for what is written down nowhere or is somebody's secret.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_shows_the_request_that_came_and_the_answer_that_went() {
    let world = World::new().await;
    let replies = |request: &Received| match request.number {
        0 => answer(503, "server: nginx\r\nretry-after: 60\r\n", "busy"),
        1 => vec![raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\u{7f}"), raw([0xff])],
        _ => vec![raw("no HTTP at all\r\n\r\n")],
    };
    let mut hook = Hook::answering(replies).await;
    let account = world.account().await;
    let settings = json!({ "signing_secret": SECRET, "headers": { "X-Api-Key": "t0psecret" } });
    let endpoint = world.endpoint_of(&account, &hook.url("/in?a=1"), settings).await;
    world.keep_secret("t0psecret");
    let event = world.event(&account, "evt_1", r#"{"a": 1}"#).await;
    let id = delivery(&event);
    let first = hook.next().await;
    world.until_tried(&id, 1).await;
    // The endpoint is another one by now; the attempt was made to the one of then.
    let url = hook.url("/elsewhere");
    world.patch(&format!("/v1/endpoints/{endpoint}"), json!({ "url": url, "headers": {} })).await.ok(200);
    world.advance_secs(67).await;
    let second = hook.next().await;
    world.until(&id, "delivered").await;
    let attempts = world.attempts(&id).await;
    let path = |n: usize, part: &str| format!("/v1/attempts/{}{part}", text(&attempts[n]["id"]));

    for (n, received) in [(0, &first), (1, &second)] {
        let shown = world.get(&path(n, "")).await.ok(200);
        assert_eq!((&shown["delivery_id"], &shown["event_id"]), (&json!(id), &json!("evt_1")));
        assert_eq!((&shown["account_id"], &shown["endpoint_id"]), (&json!(account), &json!(endpoint)));
        for (name, value) in attempts[n].as_object().expect("an object") {
            assert_eq!(shown[name], *value, "{name}");
        }
        let sent = world.get(&path(n, "/request")).await.ok(200);
        assert_eq!(sent["method"], "POST");
        let target = received.line().split(' ').nth(1).expect("a target").to_owned();
        assert_eq!(text(&sent["url"]), hook.url(&target));
        let mut came: BTreeMap<String, String> = received
            .headers()
            .into_iter()
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        for name in ["webhook-timestamp", "webhook-signature", "x-ledger-signature"] {
            came.insert(name.into(), "[not kept]".into());
        }
        if n == 0 {
            assert_eq!(came.insert("x-api-key".into(), "[redacted]".into()).as_deref(), Some("t0psecret"));
        }
        let told: BTreeMap<String, String> = serde_json::from_value(sent["headers"].clone()).expect("texts");
        let told: BTreeMap<_, _> =
            told.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
        assert_eq!(told, came);
        assert_eq!(sent["body"]["size"], received.body().len());
        assert_eq!(
            (&sent["body"]["form"], &sent["body"]["content_type"]),
            (&json!("envelope"), &json!("application/json"))
        );
        assert_eq!(world.get(&text(&sent["body"]["payload"])).await.body, received.body());
        assert_eq!(sent["signed_with"].as_array().map(Vec::len), Some(1));
    }
    let busy = world.get(&path(0, "/response")).await.ok(200);
    assert_eq!((&busy["status_code"], &busy["body"]), (&json!(503), &json!("busy")));
    assert_eq!(busy["headers"], json!({ "server": "nginx", "retry-after": "60" }));
    assert_eq!((&busy["truncated"], busy.get("body_base64")), (&json!(false), None));
    let bytes = world.get(&path(1, "/response")).await.ok(200);
    assert_eq!(
        (&bytes["status_code"], &bytes["body_base64"], bytes.get("body")),
        (&json!(200), &json!("f/8="), None)
    );

    // The same names in the other places that show attempts.
    let timeline = world.get("/v1/events/evt_1/timeline").await.ok(200);
    let named: Vec<(String, String)> = timeline["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|entry| entry.get("attempt_id").is_some())
        .map(|entry| (text(&entry["fact"]), text(&entry["attempt_id"])))
        .collect();
    let name = |n: usize| text(&attempts[n]["id"]);
    let facts = [("Attempted", 0), ("Failed", 0), ("Attempted", 1), ("Delivered", 1)];
    assert_eq!(named, facts.map(|(fact, n)| (fact.to_owned(), name(n))));
    let explained = world.get(&format!("/v1/explain/{}", name(0))).await.ok(200);
    let of_delivery = world.get(&format!("/v1/explain/{id}")).await.ok(200);
    assert_eq!((&explained["kind"], &explained["sentence"]), (&json!("attempt"), &of_delivery["sentence"]));

    // One that was never answered says why there is no answer.
    let event = world.event_with(&account, "evt_2", "1", r#","max_tries":1"#).await;
    let id = delivery(&event);
    world.until(&id, "dead").await;
    let attempt = text(&world.attempts(&id).await[0]["id"]);
    let refused = world.get(&format!("/v1/attempts/{attempt}/response")).await;
    assert_eq!(refused.refused(404), ["not-found"]);
    assert!(text(&refused.ok(404)["detail"]).starts_with("there is no answer: "), "{:?}", refused.body);
    world.get(&format!("/v1/attempts/{attempt}/request")).await.ok(200);
    world.always_true(&mut [&mut hook]).await;
}

/// A worker is sent nothing, and its attempt is not one of its leases.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_of_a_worker_has_no_request() {
    let world = World::new().await;
    let account = world.account().await;
    let queue = json!({ "account_id": account, "queue": "jobs", "event_types": ["no.job"] });
    world.post("/v1/endpoints", queue).await.ok(201);
    world.post("/v1/queues/jobs/jobs", json!({ "payload": 1 })).await.ok(202);
    let claimed = world.post("/v1/queues/jobs/claim", json!({})).await.ok(200);
    let (id, lease) = (text(&claimed["jobs"][0]["id"]), text(&claimed["jobs"][0]["lease"]));
    let attempt = text(&world.attempts(&id).await[0]["id"]);
    assert_ne!(attempt.strip_prefix("att_"), lease.strip_prefix("lease_"));
    let as_lease = attempt.replace("att_", "lease_");
    let refused = world.post(&format!("/v1/leases/{as_lease}/complete"), json!({})).await;
    assert_eq!(refused.refused(409), ["lease-over"], "whoever reads attempts ends no job");
    for (part, why) in [("request", "no request was made"), ("response", "in flight")] {
        let refused = world.get(&format!("/v1/attempts/{attempt}/{part}")).await.ok(404);
        assert!(text(&refused["detail"]).contains(why), "{refused}");
    }
    world.post(&format!("/v1/leases/{lease}/complete"), json!({})).await.ok(200);
    assert_eq!(world.get(&format!("/v1/attempts/{attempt}")).await.ok(200)["status"], "delivered");
    let refused = world.get(&format!("/v1/attempts/{attempt}/response")).await.ok(404);
    assert!(text(&refused["detail"]).contains("a worker did the job"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_captured_request_is_judged_with_an_endpoints_secrets_or_with_ones_own() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    world.keep_secret(SECOND);
    let event = world.event(&account, "evt_01", r#"{"amount":12900,"currency":"EUR"}"#).await;
    let request = hook.next().await;
    world.until(&delivery(&event), "delivered").await;
    let headers: serde_json::Map<String, Value> =
        request.headers().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let body = String::from_utf8(request.body().to_vec()).expect("text");
    let check = async |change: Value| {
        let mut captured = json!({ "headers": headers, "body": body });
        for (name, value) in change.as_object().expect("an object") {
            captured[name] = value.clone();
        }
        let answer = world.post("/v1/verify", captured).await;
        let whole = String::from_utf8(answer.body.to_vec()).expect("text");
        for secret in [SECRET, SECOND] {
            assert!(!whole.contains(&secret[6..]), "a secret is in {whole}");
        }
        let verdict = answer.ok(200);
        let checks = verdict["checks"].as_array().expect("a list").iter();
        let told: Vec<_> =
            checks.map(|check| format!("{} {}", text(&check["scheme"]), text(&check["result"]))).collect();
        (verdict["valid"].as_bool().expect("a flag"), told.join(", "))
    };
    let right = (true, "standard valid, ledger valid".to_owned());
    let of_endpoint = json!({ "endpoint_id": endpoint });
    assert_eq!(check(of_endpoint.clone()).await, right);
    let brought = json!({ "signing_secrets": [SECOND, SECRET], "ledger_secrets": [SECRET] });
    assert_eq!(check(brought).await, right);
    let only_theirs = json!({ "signing_secrets": [SECOND], "ledger_secrets": [SECRET] });
    assert_eq!(check(only_theirs).await, (false, "standard other-secret, ledger valid".to_owned()));
    let unchecked = json!({ "ledger_secrets": [SECRET] });
    assert_eq!(check(unchecked).await, (true, "standard unchecked, ledger valid".to_owned()));
    let mut ended = of_endpoint.clone();
    ended["body"] = format!("{body}\n").into();
    assert_eq!(check(ended).await, (false, "standard body-changed, ledger body-changed".to_owned()));
    let mut old = of_endpoint.clone();
    old["at"] = "2030-01-01T00:00:00Z".into();
    assert_eq!(check(old).await, (false, "standard too-old, ledger valid".to_owned()));
    let mut twice = of_endpoint.clone();
    twice["headers"] = json!({ "webhook-id": ["a", "b"], "x-ledger-signature": "sha256=x" });
    assert_eq!(check(twice).await, (false, "standard doubled-header, ledger malformed-signature".to_owned()));

    for (captured, wanted) in [
        (json!({}), vec!["/headers missing", "/body choose-one", "/endpoint_id choose-one"]),
        (
            json!({ "headers": { "a": 1 }, "body": 1, "body_base64": "%", "endpoint_id": endpoint,
                "signing_secrets": [SECRET], "at": "now" }),
            vec![
                "/body wrong-type",
                "/body_base64 bad-base64",
                "/at bad-time",
                "/body choose-one",
                "/endpoint_id choose-one",
                "/headers/a wrong-type",
            ],
        ),
        (
            json!({ "headers": {}, "body": "", "signing_secrets": [SECRET, "whsec_short"], "ledger_secrets": [] }),
            vec!["/signing_secrets bad-secret", "/ledger_secrets length"],
        ),
        (json!({ "headers": {}, "body": "", "endpoint_id": "ep_1" }), vec!["/endpoint_id bad-id"]),
    ] {
        let mut refused = world.post("/v1/verify", captured).await.refused(422);
        let mut wanted: Vec<_> = ["invalid"].into_iter().chain(wanted).collect();
        refused.sort();
        wanted.sort();
        assert_eq!(refused, wanted);
    }
    let unknown = json!({ "headers": {}, "body": "", "endpoint_id": "ep_00000000000000000000000009" });
    assert_eq!(world.post("/v1/verify", unknown).await.refused(404), ["not-found"]);
    // Neither a secret nor what was captured is logged; what is checked under a key is kept under none.
    world.always_true(&mut [&mut hook]).await;
}

/// Each route tells all that is wrong with its query, in one shape.
#[tokio::test(flavor = "multi_thread")]
async fn every_misfit_of_a_query_is_told_at_once() {
    let world = World::new().await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, "http://127.0.0.1:1/").await;
    let many = "limit=0&status=lost&since=yesterday&until=x&zzz=1&endpoint_id=e&event_type=";
    let long = "t".repeat(129);
    for (path, wanted) in [
        ("/v1/deliveries", "/endpoint_id /event_type /limit /since /status /until /zzz"),
        ("/v1/events", "/endpoint_id /event_type /limit /since /status /until /zzz"),
        ("/v1/stream", "/endpoint_id /event_type /limit /since /status /until /zzz"),
        ("/v1/dead", "/endpoint_id /event_type /limit /since /status /until /zzz"),
        ("/v1/stats", "/endpoint_id /event_type /limit /since /status /until /zzz"),
        ("/v1/audit", "/endpoint_id /event_type /limit /since /status /until /zzz"),
    ] {
        let answer = world.get(&format!("{path}?account_id={account}&{many}{long}")).await;
        let mut told: Vec<String> = answer.refused(400).split_off(1);
        told.sort();
        let wanted: Vec<_> = wanted.split(' ').map(|name| format!("{name} bad-parameter")).collect();
        assert_eq!(told, wanted, "{path}");
        assert_eq!(answer.ok(400)["code"], "bad-query");
        assert!(text(&answer.ok(400)["detail"]).starts_with("7 parameters do not fit"), "{path}");
    }
    for (path, wanted) in [
        ("/v1/deliveries?include=x&error=y&http_status=9", "/error /http_status /include"),
        ("/v1/events?include=x&limit=1&limit=2", "/account_id /include /limit"),
        ("/v1/endpoints?limit=0", "/account_id /limit"),
        ("/v1/replays?limit=0&x=1", "/account_id /limit /x"),
        ("/v1/accounts?limit=0&x=1", "/limit /x"),
        ("/v1/keys?limit=0&x=1", "/limit /x"),
        ("/v1/dead?reason=bored&limit=0", "/limit /reason"),
        ("/v1/stats?bucket=1w&group=x&since=y", "/bucket /group /since"),
        ("/v1/stats?group=endpoint&bucket=1w", "/bucket /group"),
        ("/v1/stream?fact=No%20such&since=y", "/fact /since"),
        ("/v1/deliveries/dlv_1?at=x&y=1", "/at /y"),
    ] {
        let mut told: Vec<String> = world.get(path).await.refused(400).split_off(1);
        told.sort();
        let wanted: Vec<_> = wanted.split(' ').map(|name| format!("{name} bad-parameter")).collect();
        assert_eq!(told, wanted, "{path}");
    }
    let secret = format!("/v1/endpoints/{endpoint}/secret?reason=a%00b&x=1");
    assert_eq!(
        world.get(&secret).await.refused(400),
        ["bad-query", "/reason bad-parameter", "/x bad-parameter"]
    );
    let raw =
        world.call(axum::http::Method::POST, "/v1/events/raw?type=a%20b&id=&x=1", "text/plain", "x").await;
    let mut told = raw.refused(400).split_off(1);
    told.sort();
    assert_eq!(told, ["/account_id", "/id", "/type", "/x"].map(|name| format!("{name} bad-parameter")));
    // What another account has is not there, whatever else is wrong.
    let foreign = "/v1/deliveries?account_id=acct_00000000000000000000000009&limit=1";
    assert_eq!(world.get(foreign).await.refused(404), ["not-found"]);
}
