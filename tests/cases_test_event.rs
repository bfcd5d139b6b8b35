//! The test event of an endpoint, and the cases of the areas *redirect* and *ssrf* that need it: it leads nowhere that
//! a delivery does not lead.

mod support;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use support::case::{Hook, SECRET, World, delivery, signed_with, text};
use support::receiver::{Receiver, answer};

/// Whatever a redirect names, through a delivery, a test event, or the making of an endpoint: nothing else hears
/// anything, no signature, body, credential or address leaves for elsewhere, and nothing of elsewhere is kept.
#[tokio::test(flavor = "multi_thread")]
async fn c29_c61_neither_a_test_event_nor_a_delivery_follows_a_redirect() {
    let world = World::new().await;
    let canary = Receiver::scripted(vec![answer(200, "", "canary")]).await;
    let port = canary.address.port();
    let locations = [
        format!("http://localhost:{port}/other-name"),
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("//127.0.0.1:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1/".to_owned(),
    ];
    let codes = [301, 302, 303, 307, 308];
    let all: Vec<(u16, String)> =
        codes.iter().flat_map(|code| locations.iter().map(|to| (*code, to.clone()))).collect();
    let table = all.clone();
    let mut hook = Hook::answering(move |request| {
        let path = request.line().split(' ').nth(1).expect("a target");
        let n: usize = path.trim_start_matches("/?token=s3cret&n=").parse().expect("a number");
        let (code, to) = &table[n];
        answer(*code, &format!("location: {to}\r\n"), "moved")
    })
    .await;
    let account = world.account().await;
    for (n, (code, to)) in all.iter().enumerate() {
        let settings = json!({
            "signing_secret": SECRET, "event_types": [format!("e{n}")],
            "headers": { "Authorization": "Bearer t0ken" },
        });
        let endpoint =
            world.endpoint_of(&account, &hook.url(&format!("/?token=s3cret&n={n}")), settings).await;
        assert_eq!(hook.count(), 2 * n, "making an endpoint sends nothing");
        let test = world.post(&format!("/v1/endpoints/{endpoint}/test"), json!({})).await.ok(202);
        let plain = json!({ "account_id": account, "type": format!("e{n}"), "data": 1, "max_tries": 1 });
        let plain = world.post("/v1/events", plain).await.ok(202);
        for event in [test, plain] {
            hook.next().await;
            let id = delivery(&event);
            assert_eq!(world.until(&id, "dead").await["attempts"], 1, "{code} to {to}");
            let attempt = text(&world.attempts(&id).await[0]["id"]);
            let kept = world.get(&format!("/v1/attempts/{attempt}/response")).await.ok(200);
            assert_eq!((&kept["status_code"], &kept["body"]), (&json!(code), &json!("moved")));
            assert_eq!(kept["headers"]["location"], json!(to));
        }
    }
    assert_eq!(canary.connections(), 0);
    world.always_true(&mut [&mut hook]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_event_goes_to_its_endpoint_alone_once_and_signed() {
    let world = World::new().await;
    let (mut service, teller) = world.telling().await;
    let mut hook = Hook::scripted(vec![answer(500, "", "no")]).await;
    let mut other = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    // It is sent whatever the endpoint subscribed to, and to none that subscribed to everything.
    let wanted = json!({ "signing_secret": SECRET, "event_types": ["payment.settled"] });
    let endpoint = world.endpoint_of(&account, &hook.url("/"), wanted).await;
    world.endpoint(&account, &other.url("/")).await;
    let path = format!("/v1/endpoints/{endpoint}/test");
    let asked = world.send(Request::post(&path).body(Body::empty()).expect("a request")).await;
    let event = asked.ok(202);
    let location = asked.headers["location"].to_str().expect("ASCII").to_owned();
    assert_eq!(location, format!("/v1/events/{}?account_id={account}", text(&event["id"])));
    assert_eq!((&event["type"], &event["duplicate"]), (&json!("hooklog.test"), &json!(false)));
    assert_eq!(event["deliveries"], json!([{ "id": delivery(&event), "endpoint_id": endpoint }]));
    let received = hook.next().await;
    signed_with(&received, &[SECRET], SECRET);
    let body: Value = serde_json::from_slice(received.body()).expect("JSON");
    assert_eq!(
        body,
        json!({ "id": event["id"], "type": "hooklog.test",
        "data": { "test": true, "endpoint_id": endpoint } })
    );
    let dead = world.until(&delivery(&event), "dead").await;
    assert_eq!((&dead["attempts"], &dead["tries"]), (&json!(1), &json!(1)), "once: whoever asked is looking");
    assert_eq!(world.get(&location).await.ok(200)["deliveries"][0]["status"], "dead");

    // Asked again under its key it is the same event; without one it is another.
    let keyed = |key: &str| {
        let request = Request::builder().method(Method::POST).uri(&path).header("idempotency-key", key);
        request.body(Body::empty()).expect("a request")
    };
    let (first, second) = (world.send(keyed("k1")).await, world.send(keyed("k1")).await);
    assert_eq!(first.ok(202), second.ok(202));
    assert_eq!(second.headers["idempotent-replayed"], "true");
    hook.next().await;
    assert_ne!(world.post(&path, json!({})).await.ok(202)["id"], first.ok(202)["id"]);
    hook.next().await;
    world.turn().await;
    assert_eq!((hook.count(), other.count()), (3, 0));

    // The owner is not written to about tests, and is about the event that dies after them.
    let real = json!({ "account_id": account, "endpoint_id": endpoint, "type": "payment.settled", "data": 1,
        "max_tries": 1, "id": "real" });
    world.post("/v1/events", real).await.ok(202);
    hook.next().await;
    let message = service.next().await;
    let message = String::from_utf8_lossy(message.body()).into_owned();
    assert!(message.contains("payment.settled") && !message.contains("hooklog.test"), "{message}");
    teller.abort();
    assert_eq!(service.count(), 1);
    world.always_true(&mut [&mut hook, &mut other]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_tested_says_why_and_what_to_do() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(410, "", ""), answer(200, "", "")]).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    let path = format!("/v1/endpoints/{endpoint}");
    let test = async |wanted: u16| {
        let answer = world.post(&format!("{path}/test"), json!({})).await.ok(wanted);
        (text(&answer["code"]), text(&answer["detail"]))
    };
    world.post(&format!("{path}/pause"), json!({ "reason": "moving" })).await.ok(200);
    let (code, detail) = test(409).await;
    assert_eq!(code, "endpoint-paused");
    assert!(detail.contains("paused since") && detail.contains("resume it first"), "{detail}");
    world.post(&format!("{path}/resume"), json!({})).await.ok(200);

    // The test itself is answered 410, which disables the endpoint.
    let event = world.post(&format!("{path}/test"), json!({})).await.ok(202);
    hook.next().await;
    world.until(&delivery(&event), "dead").await;
    world.turn().await;
    let (code, detail) = test(409).await;
    assert_eq!(code, "endpoint-disabled");
    assert!(detail.contains("disabled since") && detail.contains("resume it first"), "{detail}");
    world.post(&format!("{path}/resume"), json!({})).await.ok(200);
    let event = world.post(&format!("{path}/test"), json!({})).await.ok(202);
    hook.next().await;
    world.until(&delivery(&event), "delivered").await;

    assert_eq!(
        world.post(&format!("{path}/test"), json!({ "x": 1 })).await.refused(422),
        ["invalid", "/x unknown-member"]
    );
    let removing = Request::delete(&path).body(Body::empty()).expect("a request");
    world.send(removing).await.ok(200);
    assert_eq!(test(410).await.0, "endpoint-removed");
    let queue = json!({ "account_id": account, "queue": "jobs" });
    let queue = text(&world.post("/v1/endpoints", queue).await.ok(201)["id"]);
    let refused = world.post(&format!("/v1/endpoints/{queue}/test"), json!({})).await;
    assert_eq!(refused.refused(409), ["not-of-a-queue"]);
    let nobody = "/v1/endpoints/ep_00000000000000000000000009/test";
    assert_eq!(world.post(nobody, json!({})).await.refused(404), ["not-found"]);
    assert_eq!(
        world.get("/v1/status").await.ok(200)["deliveries"]["enqueued"],
        2,
        "nothing else was taken in"
    );
    world.always_true(&mut [&mut hook]).await;
}
