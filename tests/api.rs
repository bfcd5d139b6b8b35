//! The HTTP API over a real store in a folder of its own, its deliveries to a receiver on loopback.

#[path = "support/receiver.rs"]
mod receiver;

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use hooklog::api::access::OperatorToken;
use hooklog::api::serve::{Listeners, bind_unix, serve};
use hooklog::api::{ApiOptions, ApiState, router};
use hooklog::clock::SystemClock;
use hooklog::delivery::guard::Policy;
use hooklog::store::{Options, Store};
use receiver::{Receiver, Step, answer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// Long enough never to matter on a busy machine.
const LONG: Duration = Duration::from_secs(60);

struct World {
    app: Router,
    state: ApiState,
    store: Store,
    folder: TempDir,
}

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {:?}", self.body))
    }

    /// The body of an answer that had to have this status.
    #[track_caller]
    fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{:?}", self.body);
        self.json()
    }

    /// The code of a refusal in the one shape, with this status.
    #[track_caller]
    fn refusal(&self, status: u16) -> String {
        let body = self.ok(status);
        assert_eq!(self.headers["content-type"], "application/problem+json", "{body}");
        assert_eq!(body["status"], status, "{body}");
        assert_eq!(body["request_id"], self.headers["x-request-id"].to_str().expect("ASCII"));
        for text in ["type", "title", "detail"] {
            assert!(body[text].as_str().is_some_and(|text| !text.is_empty()), "{text} of {body}");
        }
        let code = body["code"].as_str().expect("a code").to_owned();
        assert!(body["type"].as_str().expect("a text").ends_with(&format!("#{code}")));
        code
    }

    /// The pointers and codes of what does not fit.
    fn errors(&self) -> Vec<String> {
        let body = self.json();
        let errors = body["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|e| format!("{} {}", text(&e["pointer"]), text(&e["code"]))).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

impl World {
    async fn new() -> World {
        World::with(ApiOptions { open: true, ..ApiOptions::default() }).await
    }

    async fn with(options: ApiOptions) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let guard = Policy {
            allow: vec!["127.0.0.1".parse().expect("a line")],
            allow_http: true,
            ..Policy::default()
        };
        let clock = SystemClock::start();
        let opening = Options { guard: guard.clone(), ..Options::new(folder.path()) };
        let store = Store::open(opening, clock.clone(), true, &mut |_, _| {}).expect("a store");
        let state = ApiState::new(store.handle().clone(), store.master().clone(), clock, guard, options);
        World { app: router(state.clone()), state, store, folder }
    }

    async fn send(&self, request: Request<Body>) -> Reply {
        let answered = self.app.clone().oneshot(request);
        let response = tokio::time::timeout(LONG, answered).await.expect("in time").expect("infallible");
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.expect("a body");
        assert_eq!(parts.headers["cache-control"], "no-store");
        Reply { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&self, path: &str) -> Reply {
        self.send(Request::get(path).body(Body::empty()).expect("a request")).await
    }

    async fn post(&self, path: &str, body: impl Into<Body>) -> Reply {
        self.call(Method::POST, path, body).await
    }

    async fn call(&self, method: Method, path: &str, body: impl Into<Body>) -> Reply {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        self.send(request.body(body.into()).expect("a request")).await
    }

    async fn account(&self, members: Value) -> String {
        text(&self.post("/v1/accounts", members.to_string()).await.ok(201)["id"])
    }

    async fn endpoint(&self, account: &str, url: &str) -> String {
        let body = json!({ "account_id": account, "url": url }).to_string();
        text(&self.post("/v1/endpoints", body).await.ok(201)["id"])
    }

    async fn event(&self, account: &str, members: Value) -> Value {
        let mut body =
            json!({ "account_id": account, "type": "payment.settled", "data": { "amount": 12900 } });
        for (name, value) in members.as_object().expect("an object") {
            body[name] = value.clone();
        }
        self.post("/v1/events", body.to_string()).await.ok(202)
    }

    /// The delivery once it is in a status; what it waits for is under way already.
    async fn until(&self, delivery: &str, status: &str) -> Value {
        let path = format!("/v1/deliveries/{delivery}");
        let seen = async {
            loop {
                let now = self.get(&path).await.ok(200);
                if now["status"] == status {
                    return now;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, seen).await.unwrap_or_else(|_| panic!("never {status}"))
    }
}

/// Of an event that nothing is sent of during a test.
fn put_off() -> Value {
    let due = jiff::Timestamp::now() + jiff::Span::new().hours(48);
    json!({ "deliver_at": due.to_string() })
}

fn first_delivery(event: &Value) -> String {
    text(&event["deliveries"][0]["id"])
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_are_made_listed_and_changed() {
    let world = World::new().await;
    let made = world
        .post(
            "/v1/accounts",
            r#"{"name":"Acme","owner_email":"owner@acme.example","schedule":{"waits":["90s",5]}}"#,
        )
        .await;
    assert!(made.headers["location"].to_str().expect("ASCII").starts_with("/v1/accounts/acct_"));
    let made = made.ok(201);
    assert!(text(&made["secret"]).starts_with("whsec_"));
    assert_eq!(made["schedule"], json!({ "waits": ["90s", "5s"], "jitter_percent": 10 }));
    let path = format!("/v1/accounts/{}", text(&made["id"]));

    let shown = world.get(&path).await.ok(200);
    assert_eq!(shown.get("secret"), None);
    assert_eq!(shown["deliveries"]["enqueued"], 0);
    let created_at = text(&shown["created_at"]);
    assert!(created_at.len() == 24 && created_at.ends_with('Z'), "{created_at}");

    let change = r#"{"owner_email":null,"webhook_retries":"off","schedule":"ukue"}"#;
    let changed = world.call(Method::PATCH, &path, change).await.ok(200);
    assert_eq!((&changed["name"], &changed["owner_email"]), (&json!("Acme"), &Value::Null));
    assert_eq!((&changed["webhook_retries"], &changed["schedule"]), (&json!("off"), &json!("ukue")));

    for wish in [r#"{"secret":"0123456789abcdef"}"#, r#"{"name":null}"#] {
        assert_eq!(world.call(Method::PATCH, &path, wish).await.refusal(422), "invalid");
    }
    let brought = r#"{"name":"B","secret":"0123456789abcdef"}"#;
    assert_eq!(world.post("/v1/accounts", brought).await.ok(201)["secret"], "0123456789abcdef");
    assert_eq!(world.get("/v1/accounts").await.ok(200)["data"].as_array().map(Vec::len), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_changes_of_one_account_all_stay() {
    let world = World::new().await;
    let path = format!("/v1/accounts/{}", world.account(json!({ "name": "Acme" })).await);
    let changes = [r#"{"name":"B"}"#, r#"{"owner_email":"a@b.example"}"#, r#"{"webhook_retries":"on"}"#];
    futures::future::join_all(changes.map(|change| world.call(Method::PATCH, &path, change))).await;
    let now = world.get(&path).await.ok(200);
    assert_eq!(
        (&now["name"], &now["owner_email"], &now["webhook_retries"]),
        (&json!("B"), &json!("a@b.example"), &json!("on"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_endpoint_gets_a_new_key_and_no_old_headers() {
    let world = World::new().await;
    let account = world.account(json!({ "name": "Acme" })).await;
    let body = json!({
        "account_id": account, "url": "https://hooks.customer.example.com/a",
        "headers": { "Authorization": "Bearer t0ken" }, "event_types": ["payment.*"],
    });
    let made = world.post("/v1/endpoints", body.to_string()).await;
    assert_eq!(made.headers["etag"], "\"1\"");
    let made = made.ok(201);
    let secret = text(&made["signing_secret"]);
    assert!(secret.starts_with("whsec_"));
    assert_eq!(made["headers"], json!({ "Authorization": "[redacted]" }));
    assert_eq!(
        (&made["status"], &made["timeout_ms"], &made["in_flight_max"]),
        (&json!("active"), &json!(10000), &json!(8))
    );
    let path = format!("/v1/endpoints/{}", text(&made["id"]));
    let patch = |body: &'static str| world.call(Method::PATCH, &path, body);

    // Same receiver: keys and headers stay, also where a header is sent back as it was shown.
    let same = r#"{"url":"https://hooks.customer.example.com/b","headers":{"authorization":"[redacted]"}}"#;
    let changed = patch(same).await.ok(200);
    assert_eq!((&changed["version"], changed.get("signing_secret")), (&json!(2), None));
    assert_eq!(patch("{}").await.ok(200)["version"], 2);

    // Another one: the old key and what was meant for the old host never reach it.
    let moved = patch(r#"{"url":"https://other.customer.example.com/b"}"#).await.ok(200);
    assert_ne!(text(&moved["signing_secret"]), secret);
    assert_eq!(moved["headers"], json!({}));
    let unknown = patch(r#"{"headers":{"x-a":"[redacted]"}}"#).await;
    assert_eq!(
        (unknown.refusal(422).as_str(), unknown.errors()),
        ("invalid", vec!["/headers/x-a redacted".into()])
    );

    for (wanted, status) in [("\"3\"", 200), ("*", 200), ("\"3\"", 412), ("W/\"5\"", 412), ("x", 412)] {
        let change = json!({ "description": format!("{wanted} {status}") }).to_string();
        let request =
            Request::patch(&path).header("content-type", "application/json").header("if-match", wanted);
        assert_eq!(world.send(request.body(change.into()).expect("a request")).await.status.as_u16(), status);
    }

    let paused = world.post(&format!("{path}/pause"), r#"{"reason":"maintenance"}"#).await.ok(200);
    assert_eq!((&paused["status"], &paused["held"]["reason"]), (&json!("paused"), &json!("maintenance")));
    assert_eq!(world.post(&format!("{path}/pause"), "").await.refusal(409), "already-so");
    let bare = Request::post(format!("{path}/resume")).body(Body::empty()).expect("a request");
    assert_eq!(world.send(bare).await.ok(200)["status"], "active");
    let listed = world.get(&format!("/v1/endpoints?account_id={account}")).await.ok(200);
    assert_eq!(listed["data"][0]["id"], made["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_arrives_and_its_story_can_be_read() {
    let world = World::new().await;
    let mut customer = Receiver::scripted(vec![answer(200, "", "thanks")]).await;
    let account = world.account(json!({ "name": "Acme" })).await;
    let endpoint = world.endpoint(&account, &customer.url("/hooks?token=s3cret")).await;
    let body = json!({ "account_id": account, "type": "payment.settled", "data": { "a": 1 } }).to_string();
    let sent = world.post("/internal/webhooks/dispatch", body).await;
    let location = sent.headers["location"].to_str().expect("ASCII").to_owned();
    let sent = sent.ok(202);
    assert_eq!(
        (&sent["duplicate"], &sent["deliveries"][0]["endpoint_id"]),
        (&json!(false), &json!(endpoint))
    );
    let delivery = first_delivery(&sent);

    let request = customer.next().await;
    assert_eq!(request.values("webhook-id"), [text(&sent["id"])]);
    let delivered = world.until(&delivery, "delivered").await;
    assert_eq!(
        (&delivered["try"], &delivered["tries"], &delivered["attempts"]),
        (&json!(1), &json!(6), &json!(1))
    );
    assert_eq!(delivered["last_attempt"]["status_code"], 200);
    assert_eq!(delivered.get("due_at"), None);
    let sentence = text(&delivered["explanation"]["sentence"]);
    assert!(sentence.starts_with("Yes. `payment.settled` was delivered to 127.0.0.1 at "), "{sentence}");
    assert!(!delivered["explanation"].to_string().contains("s3cret"));

    let event = world.get(&location).await.ok(200);
    assert_eq!(
        (&event["deliveries"][0]["id"], &event["explanation"]),
        (&json!(delivery), &delivered["explanation"])
    );
    let attempts = world.get(&format!("/v1/deliveries/{delivery}/attempts")).await.ok(200);
    let attempt = &attempts["data"][0];
    assert_eq!((&attempt["status"], &attempt["response_body"]), (&json!("delivered"), &json!("thanks")));
    assert_eq!((&attempt["reused"], &attempt["resent"]), (&json!(false), &json!(false)));
    let address = customer.address.to_string();
    assert_eq!((&attempt["address"], attempt.get("tried_in_vain")), (&json!(address), None));
    let timings = attempt["timings"].as_object().expect("where the time went");
    let parts: Vec<_> = timings.keys().map(String::as_str).collect();
    assert_eq!(parts, ["body_us", "connect_us", "first_byte_us", "queue_ms"], "an address needs no name");
    let spent: u64 = parts
        .iter()
        .filter(|part| part.ends_with("_us"))
        .map(|part| timings[*part].as_u64().expect("a number"))
        .sum();
    assert!(spent > 0 && spent <= (attempt["took_ms"].as_u64().expect("a number") + 1) * 1000, "{attempt}");
    let timeline = world.get(&format!("/v1/events/{}/timeline", text(&sent["id"]))).await.ok(200);
    let facts: Vec<_> =
        timeline["data"].as_array().expect("a list").iter().map(|e| text(&e["fact"])).collect();
    assert_eq!(facts, ["Accepted", "Enqueued", "Attempted", "Delivered"]);
    for id in [text(&sent["id"]), delivery, endpoint, account.clone()] {
        let page = world.get(&format!("/v1/explain/{id}")).await.ok(200);
        assert!(
            page["sentence"].as_str().is_some_and(|s| !s.is_empty()) && page["next_step"].is_string(),
            "{page}"
        );
    }
    let status = world.get("/v1/status").await.ok(200);
    assert_eq!((&status["conserved"], &status["deliveries"]["delivered"]), (&json!(true), &json!(1)));
    let listed =
        world.get(&format!("/v1/deliveries?account_id={account}&status=delivered&status=dead")).await.ok(200);
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
}

/// Cases C01, C02 and C04: what is sent is what came in, byte for byte, whatever it holds.
#[tokio::test(flavor = "multi_thread")]
async fn data_is_never_touched() {
    let world = World::new().await;
    let mut customer = Receiver::scripted(vec![answer(500, "", ""), answer(200, "", "")]).await;
    let account = world.account(json!({ "name": "Acme" })).await;
    world.endpoint(&account, &customer.url("/")).await;
    let datas = [
        r#"{"b":"café 🚀 \u0026 \/","a":12900.00}"#,
        r#"{"a":12900.00,"b":1E2,"c":117.63331139400017,"d":18446744073709551616,"e":9007199254740993,"f":-0}"#,
        r#"{"$serde_json::private::Number":"1"}"#,
        r#"{"C":0,"$serde_json::private::Number":0}"#,
        r#"{"$serde_json::private::RawValue":"[1"}"#,
        r#"{"a":1,"a":2, "a" :	[1e400,"\ud800"]}"#,
        r#""text""#,
        "null",
        "1e400",
    ];
    for (n, data) in datas.iter().enumerate() {
        let id = format!("evt_{n:02}");
        let envelope = format!(
            r#" {{"account_id":"{account}", "data":  {data}  ,"id":"{id}","type":"payment.settled"}} "#
        );
        let sent = world.post("/v1/events", envelope).await.ok(202);
        let wanted = format!(r#"{{"id":"{id}","type":"payment.settled","data":{data}}}"#);
        assert_eq!(std::str::from_utf8(customer.next().await.body()), Ok(wanted.as_str()));
        if n == 0 {
            // The first attempt failed; what is tried again comes from the disk, and is the same.
            let delivery = first_delivery(&sent);
            world.until(&delivery, "pending").await;
            world.post(&format!("/v1/deliveries/{delivery}/retry-now"), "").await.ok(202);
            assert_eq!(customer.next().await.body(), wanted.as_bytes());
            world.until(&delivery, "delivered").await;
        }
        let payload = world.get(&format!("/v1/events/{id}/payload")).await;
        assert_eq!(payload.headers["content-type"], "application/octet-stream");
        assert_eq!(payload.body, wanted.as_bytes());
    }
    let p1 = r#"{"b":"café 🚀 \u0026 \/","a":12900.00}"#;
    let raw = format!("/v1/events/raw?account_id={account}&type=payment.settled&id=evt_raw");
    world.post(&raw, p1).await.ok(202);
    let request = customer.next().await;
    assert_eq!((request.body(), request.body().len()), (p1.as_bytes(), 41));

    // A list that shows them is still JSON, with the very same text in it.
    let list = world.get(&format!("/v1/deliveries?account_id={account}&include=payload,last_error")).await;
    assert_eq!(list.status, StatusCode::OK);
    // By grammar: the reader of the other tests knows numbers, surrogates and markers of its own.
    let _: Box<serde_json::value::RawValue> = serde_json::from_slice(&list.body).expect("JSON");
    let shown = std::str::from_utf8(&list.body).expect("UTF-8");
    for data in datas {
        assert!(shown.contains(&format!(r#""data":{data}}}"#)), "{data}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_go_only_where_no_signature_breaks() {
    let world = World::new().await;
    let mut customer = Receiver::scripted(vec![answer(200, "", "")]).await;
    let account = world.account(json!({ "name": "Acme" })).await;
    let endpoint = world.endpoint(&account, &customer.url("/")).await;
    let post = || {
        let path = format!("/v1/events/raw?account_id={account}&type=a.b");
        Request::post(path)
            .header("content-type", "image/png")
            .body(Body::from(vec![0u8, 0xff, 0x80]))
            .expect("one")
    };
    assert_eq!(world.send(post()).await.refusal(422), "not-utf8");
    let path = format!("/v1/endpoints/{endpoint}");
    world.call(Method::PATCH, &path, r#"{"signature_schemes":["ledger"]}"#).await.ok(200);
    world.send(post()).await.ok(202);
    let request = customer.next().await;
    assert_eq!(
        (request.body(), request.values("content-type")),
        ([0u8, 0xff, 0x80].as_slice(), vec!["image/png"])
    );
    let list = world.get(&format!("/v1/deliveries?account_id={account}&include=payload")).await.ok(200);
    assert_eq!(list["data"][0]["payload_base64"], "AP+A");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_id_is_used_once_in_an_account() {
    let world = World::new().await;
    let (one, other) =
        (world.account(json!({ "name": "A" })).await, world.account(json!({ "name": "B" })).await);
    let mut customer = Receiver::scripted(vec![answer(200, "", "")]).await;
    world.endpoint(&one, &customer.url("/")).await;
    let body = |account: &str, data: &str| {
        format!(r#"{{"account_id":"{account}","id":"order-7","type":"a.b","data":{data}}}"#)
    };
    // Twice at the same moment: one event, whoever comes first.
    let (a, b) =
        tokio::join!(world.post("/v1/events", body(&one, "1")), world.post("/v1/events", body(&one, "1")));
    let statuses = BTreeSet::from([a.status.as_u16(), b.status.as_u16()]);
    assert_eq!(statuses, BTreeSet::from([200, 202]));
    assert_eq!(
        (a.json()["deliveries"].clone(), a.json()["accepted_at"].clone()),
        (b.json()["deliveries"].clone(), b.json()["accepted_at"].clone())
    );
    customer.next().await;

    let again = world.post("/v1/events", body(&one, "1")).await.ok(200);
    assert_eq!(again["duplicate"], true);
    assert_eq!(world.post("/v1/events", body(&one, "2")).await.refusal(422), "event-id-reused");

    // Another account's is another event.
    let alone = world.post("/v1/events", body(&other, "2")).await.ok(202);
    assert!(text(&alone["explanation"]["sentence"]).starts_with("No endpoint subscribed to `a.b`"));
    let several = world.get("/v1/events/order-7").await;
    assert_eq!(several.refusal(409), "ambiguous-id");
    let candidates: BTreeSet<_> =
        several.json()["candidates"].as_array().expect("a list").iter().map(text).collect();
    assert_eq!(candidates, BTreeSet::from([one.clone(), other.clone()]));
    assert_eq!(
        world.get(&format!("/v1/events/order-7?account_id={other}")).await.ok(200)["account_id"],
        other
    );
    assert_eq!(customer.so_far().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_do_not_fit_are_refused_with_the_place() {
    let world = World::new().await;
    let account = world.account(json!({ "name": "Acme" })).await;
    let head = format!(r#"{{"account_id":"{account}","type":"a.b","data":"#);
    let with = |data: &str| format!("{head}{data}}}").into_bytes();
    let around = |members: &str| format!(r#"{{"account_id":"{account}","data":1,{members}}}"#).into_bytes();

    let largest = format!("\"{}\"", "x".repeat(65_534));
    world.post("/v1/events", with(&largest)).await.ok(202);

    let table: Vec<(&str, Vec<u8>, u16, &str, &str)> = vec![
        ("data too large", with(&format!("\"{}\"", "x".repeat(65_535))), 413, "too-large", "65537 bytes"),
        ("body too large", with(&format!("\"{}\"", "x".repeat(200_000))), 413, "too-large", "98304 bytes"),
        ("no JSON", with("{,}"), 400, "not-json", "line 1, column "),
        ("no JSON within", with("{\"a\":[1,tru]}"), 400, "not-json", "in `data.a[1]`"),
        ("cut off", b"{\"type\":".to_vec(), 400, "not-json", "line 1"),
        ("two values", [with("1"), b" 2".to_vec()].concat(), 400, "not-json", "trailing"),
        ("empty", Vec::new(), 400, "not-json", "line 1"),
        ("not UTF-8", [with("\"a"), vec![0xff]].concat(), 400, "not-json", "offset"),
        ("brackets in data", with(&"[".repeat(100_000)), 413, "too-large", "bytes"),
        ("brackets that fit", with(&"[".repeat(50_000)), 400, "nested-too-deep", "128"),
        ("closed brackets", with(&("[".repeat(200) + &"]".repeat(200))), 400, "nested-too-deep", "128"),
        ("no object", b"[]".to_vec(), 422, "invalid", "object"),
        ("doubled member", around(r#""type":"a.b","type":"a.c""#), 422, "invalid", "/type"),
        ("unknown member", around(r#""type":"a.b","statu\u0073":1"#), 422, "invalid", "/status"),
        ("bad type", around(r#""type":"a b""#), 422, "invalid", "/type"),
        ("wrong kind", around(r#""type":7"#), 422, "invalid", "/type"),
        ("bad id", around(r#""type":"a.b","id":"a.b""#), 422, "invalid", "/id"),
        ("bad time", around(r#""type":"a.b","deliver_at":"tomorrow""#), 422, "invalid", "/deliver_at"),
        (
            "far time",
            around(r#""type":"a.b","deliver_at":"9999-01-01T00:00:00Z""#),
            422,
            "invalid",
            "/deliver_at",
        ),
        ("no tries", around(r#""type":"a.b","max_tries":0"#), 422, "invalid", "/max_tries"),
        (
            "no data",
            format!(r#"{{"account_id":"{account}","type":"a"}}"#).into_bytes(),
            422,
            "invalid",
            "/data",
        ),
        ("bad account", br#"{"account_id":"x","type":"a","data":1}"#.to_vec(), 422, "invalid", "/account_id"),
        (
            "no such account",
            br#"{"account_id":"acct_00000000000000000000000000","type":"a","data":1}"#.to_vec(),
            404,
            "not-found",
            "account",
        ),
        (
            "no such endpoint",
            around(r#""type":"a.b","endpoint_id":"ep_00000000000000000000000000""#),
            404,
            "not-found",
            "endpoint",
        ),
    ];
    for (name, body, status, code, detail) in table {
        let reply = world.post("/v1/events", body).await;
        assert_eq!(reply.refusal(status), code, "{name}: {}", reply.json());
        assert!(text(&reply.json()["detail"]).contains(detail), "{name}: {}", reply.json());
    }
    let all = world.post("/v1/events", r#"{"type":"a b","x":1,"max_tries":"1"}"#).await;
    let wanted = [
        "/account_id missing",
        "/type bad-type",
        "/data missing",
        "/max_tries wrong-type",
        "/x unknown-member",
    ];
    assert_eq!(all.errors(), wanted);

    let brackets = world.post("/v1/accounts", "[".repeat(30_000)).await;
    assert_eq!(brackets.refusal(400), "nested-too-deep");
    let plain = Request::post("/v1/events").header("content-type", "text/plain").body(with("1").into());
    assert_eq!(world.send(plain.expect("a request")).await.refusal(415), "unsupported-media-type");
    let counts = world.get("/v1/status").await.ok(200);
    assert_eq!(counts["events"], 1, "nothing refused was taken in");
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_and_endpoints_that_do_not_fit_are_refused_with_the_place() {
    let world = World::new().await;
    let account = world.account(json!({ "name": "Acme" })).await;
    let long = "x".repeat(201);
    for (members, wanted) in [
        (json!({}), vec!["/name missing"]),
        (json!({ "name": null }), vec!["/name missing"]),
        (json!({ "name": "" }), vec!["/name length"]),
        (json!({ "name": long }), vec!["/name length"]),
        (json!({ "name": "a\nb" }), vec!["/name character"]),
        (json!({ "name": "a\u{202e}b" }), vec!["/name character"]),
        (json!({ "name": "a", "owner_email": "a@b@c" }), vec!["/owner_email bad-email"]),
        (json!({ "name": "a", "owner_email": "a b@c.example" }), vec!["/owner_email bad-email"]),
        (json!({ "name": "a", "owner_email": "a\r\nBcc: x@y" }), vec!["/owner_email character"]),
        (json!({ "name": "a", "secret": "short" }), vec!["/secret length"]),
        (json!({ "name": "a", "webhook_retries": "maybe" }), vec!["/webhook_retries unknown-word"]),
        (json!({ "name": "a", "schedule": { "waits": ["0s"] } }), vec!["/schedule out-of-range"]),
        (json!({ "name": "a", "schedule": { "waits": ["é"] } }), vec!["/schedule bad-wait"]),
        (json!({ "name": "a", "schedule": "never" }), vec!["/schedule unknown-word"]),
        (
            json!({ "name": "a", "response_policy": 1, "b": 2 }),
            vec!["/response_policy wrong-type", "/b unknown-member"],
        ),
    ] {
        let reply = world.post("/v1/accounts", members.to_string()).await;
        assert_eq!(
            (reply.refusal(422).as_str(), reply.errors()),
            ("invalid", wanted.iter().map(|e| e.to_string()).collect()),
            "{members}"
        );
    }
    let long = format!("https://a.example.com/{}", "x".repeat(3_000));
    for url in [
        "http://a.example.com:9999/",
        "ftp://a.example.com/",
        "https://user:pw@a.example.com/",
        "https://a.example.com/#f",
        "https://10.0.0.1/",
        "https://[::1]/",
        "https://169.254.169.254/latest",
        "https://0x7f.1/",
        "https://localhost/",
        "https://metadata.google.internal/",
        "https://a.example.com:22/",
        "https://a.example.com:0/",
        "https://a.example.com\\@b/",
        "https:/a.example.com/",
        "not a url",
        long.as_str(),
    ] {
        let body = json!({ "account_id": account, "url": url }).to_string();
        let reply = world.post("/v1/endpoints", body).await;
        if url.starts_with("https://localhost") {
            // Loopback is allowed in this world.
            reply.ok(201);
            continue;
        }
        assert_eq!(
            (reply.refusal(422).as_str(), reply.errors()),
            ("invalid", vec!["/url url-not-allowed".to_owned()]),
            "{url}"
        );
    }
    for (member, value, wanted) in [
        ("timeout_ms", json!(999), "/timeout_ms out-of-range"),
        ("timeout_ms", json!(30_001), "/timeout_ms out-of-range"),
        ("in_flight_max", json!(0), "/in_flight_max out-of-range"),
        ("in_flight_max", json!(1.5), "/in_flight_max wrong-type"),
        ("event_types", json!([]), "/event_types length"),
        ("event_types", json!(["a*"]), "/event_types bad-type"),
        ("signature_schemes", json!(["md5"]), "/signature_schemes unknown-word"),
        ("headers", json!({ "Host": "x" }), "/headers/Host header-not-allowed"),
        ("headers", json!({ "x/y": "x" }), "/headers/x~1y header-not-allowed"),
        ("headers", json!({ "x-a": "a\r\nb: c" }), "/headers/x-a header-not-allowed"),
        ("headers", json!({ "x-a": "1", "X-A": "2" }), "/headers header-not-allowed"),
        ("headers", json!([]), "/headers wrong-type"),
        ("description", json!("x".repeat(1_001)), "/description length"),
        ("version", json!(7), "/version unknown-member"),
    ] {
        let body =
            json!({ "account_id": account, "url": "https://a.example.com/", member: value }).to_string();
        assert_eq!(world.post("/v1/endpoints", body).await.errors(), [wanted]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_event_is_replayed_once_by_two_clicks() {
    let world = World::new().await;
    let mut customer = Receiver::scripted(vec![answer(404, "", "no such hook"), answer(200, "", "")]).await;
    let account = world.account(json!({ "name": "Acme" })).await;
    world.endpoint(&account, &customer.url("/")).await;
    let event = world.event(&account, json!({})).await;
    let delivery = first_delivery(&event);
    customer.next().await;
    let dead = world.until(&delivery, "dead").await;
    assert_eq!((&dead["dead_reason"], &dead["last_error"]), (&json!("refused"), &json!("HTTP 404")));
    assert!(text(&dead["explanation"]["sentence"]).starts_with("No. "));

    let path = format!("/events/{}/replay", text(&event["id"]));
    let (a, b) = tokio::join!(world.post(&path, r#"{"reason":"fixed"}"#), world.post(&path, ""));
    let won: Vec<_> = [&a, &b].into_iter().filter(|reply| reply.status == StatusCode::ACCEPTED).collect();
    assert_eq!(won.len(), 1, "{:?} {:?}", a.body, b.body);
    assert_eq!(won[0].json()["deliveries"][0]["id"], delivery);
    let lost = if a.status == StatusCode::ACCEPTED { &b } else { &a };
    assert_eq!(lost.refusal(409), "nothing-to-replay");

    let request = customer.next().await;
    assert_eq!(request.values("webhook-replay"), ["2"]);
    let delivered = world.until(&delivery, "delivered").await;
    assert_eq!(
        (&delivered["run"], &delivered["try"], &delivered["attempts"]),
        (&json!(2), &json!(1), &json!(2))
    );
    assert_eq!(customer.so_far().len(), 0, "one run only");

    // Delivered ones again: only with a confirmation, and nothing is dead.
    assert_eq!(world.post(&path, "").await.refusal(409), "nothing-to-replay");
    assert_eq!(world.post(&path, r#"{"scope":"all"}"#).await.refusal(422), "confirm-needed");
    world.post(&path, r#"{"scope":"all","confirm":true}"#).await.ok(202);
    assert_eq!(customer.next().await.values("webhook-replay"), ["3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_delivery_is_hurried_or_cancelled_but_not_replayed() {
    let world = World::new().await;
    let mut customer = Receiver::scripted(vec![answer(500, "", ""), vec![Step::Hold]]).await;
    let account = world.account(json!({ "name": "Acme" })).await;
    let endpoint = world.endpoint(&account, &customer.url("/")).await;
    let event = world.event(&account, json!({})).await;
    let path = format!("/v1/deliveries/{}", first_delivery(&event));
    customer.next().await;
    let waiting = world.until(&first_delivery(&event), "pending").await;
    assert_eq!((&waiting["try"], &waiting["last_error"]), (&json!(1), &json!("HTTP 500")));
    let sentence = text(&waiting["explanation"]["sentence"]);
    assert!(
        sentence.starts_with("Not yet. Attempt 1 of 6 failed: 127.0.0.1 answered HTTP 500"),
        "{sentence}"
    );

    for path in [format!("{path}/replay"), format!("/v1/events/{}/replay", text(&event["id"]))] {
        let refused = world.post(&path, "").await;
        assert_eq!(refused.refusal(409), "nothing-to-replay");
        assert!(text(&refused.json()["detail"]).contains("retry-now"));
    }
    world.post(&format!("/v1/endpoints/{endpoint}/pause"), r#"{"reason":"their deploy"}"#).await.ok(200);
    let held = world.get(&path).await.ok(200);
    assert_eq!((&held["status"], &held["held_by"]), (&json!("pending"), &json!("paused")));
    assert!(text(&held["explanation"]["sentence"]).contains("their deploy"));
    world.post(&format!("/v1/endpoints/{endpoint}/resume"), "").await.ok(200);
    world.post(&format!("{path}/retry-now"), "").await.ok(202);
    customer.next().await;
    // In flight now: neither hurried, cancelled nor replayed.
    for (wish, code) in
        [("retry-now", "not-pending"), ("cancel", "not-pending"), ("replay", "nothing-to-replay")]
    {
        assert_eq!(world.post(&format!("{path}/{wish}"), "").await.refusal(409), code, "{wish}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_is_put_off_can_be_cancelled() {
    let world = World::new().await;
    let account = world.account(json!({ "name": "Acme" })).await;
    world.endpoint(&account, "https://hooks.customer.example.com/").await;
    let event = world.event(&account, put_off()).await;
    let path = format!("/v1/deliveries/{}", first_delivery(&event));
    assert!(
        text(&world.get(&path).await.ok(200)["explanation"]["sentence"])
            .starts_with("Not yet. It is not due")
    );
    let cancelled = world.post(&format!("{path}/cancel"), r#"{"reason":"sent by post"}"#).await.ok(200);
    assert_eq!((&cancelled["status"], cancelled.get("due_at")), (&json!("cancelled"), None));
    assert!(text(&cancelled["explanation"]["sentence"]).contains("sent by post"));
    assert_eq!(world.post(&format!("{path}/cancel"), "").await.refusal(409), "not-pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_and_unknown_ids_are_not_there() {
    let world = World::new().await;
    let (ours, theirs) =
        (world.account(json!({ "name": "A" })).await, world.account(json!({ "name": "B" })).await);
    let endpoint = world.endpoint(&ours, "https://hooks.customer.example.com/").await;
    let event = world.event(&ours, put_off()).await;
    let (event, delivery) = (text(&event["id"]), first_delivery(&event));
    let nobody = "00000000000000000000000000";
    for path in [
        format!("/v1/events/{event}?account_id={theirs}"),
        format!("/v1/events/{event}/payload?account_id={theirs}"),
        format!("/v1/events/{event}/timeline?account_id={theirs}"),
        format!("/v1/deliveries/{delivery}?account_id={theirs}"),
        format!("/v1/deliveries/{delivery}/attempts?account_id={theirs}"),
        format!("/v1/endpoints/{endpoint}?account_id={theirs}"),
        format!("/v1/explain/{delivery}?account_id={theirs}"),
        format!("/v1/explain/{endpoint}?account_id={theirs}"),
        format!("/v1/deliveries?account_id=acct_{nobody}"),
        format!("/v1/endpoints?account_id=acct_{nobody}"),
        format!("/v1/accounts/acct_{nobody}"),
        format!("/v1/deliveries/dlv_{nobody}"),
        format!("/v1/endpoints/ep_{nobody}"),
        format!("/v1/events/evt_{nobody}"),
        "/v1/deliveries/dlv_7ZZZZZZZZZZZZZZZZZZZZZZZZZ".into(),
        "/v1/deliveries/x".into(),
        "/v1/accounts/..".into(),
        "/v1/explain/%00".into(),
    ] {
        assert_eq!(world.get(&path).await.refusal(404), "not-found", "{path}");
    }
    for path in [
        format!("/v1/events/{event}/replay?account_id={theirs}"),
        format!("/v1/deliveries/{delivery}/cancel?account_id={theirs}"),
        format!("/v1/endpoints/{endpoint}/pause?account_id={theirs}"),
    ] {
        assert_eq!(world.post(&path, "").await.refusal(404), "not-found", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_the_framework_have_the_one_shape() {
    let world = World::new().await;
    assert_eq!(world.get("/nowhere").await.refusal(404), "not-found");
    assert_eq!(world.get("/").await.refusal(404), "not-found");
    let wrong = world.call(Method::DELETE, "/v1/accounts", "").await;
    assert_eq!(wrong.refusal(405), "method-not-allowed");
    assert!(wrong.headers["allow"].to_str().expect("ASCII").contains("POST"), "{:?}", wrong.headers);
    assert_eq!(world.post("/v1/accounts", "{").await.refusal(400), "not-json");
    assert_eq!(world.post("/v1/accounts", " ".repeat(200_000)).await.refusal(413), "too-large");
    let no_type = Request::post("/v1/accounts").body(Body::from("{}")).expect("a request");
    assert_eq!(world.send(no_type).await.refusal(415), "unsupported-media-type");
    assert_eq!(world.get("/v1/accounts/%ff").await.refusal(400), "bad-request");
    for query in ["limit=0", "limit=-1", "limit=x", "limit=1&limit=2", "nothing=1", "cursor=rubbish"] {
        let code = if query.starts_with("cursor") { "bad-cursor" } else { "bad-query" };
        assert_eq!(world.get(&format!("/v1/accounts?{query}")).await.refusal(400), code, "{query}");
    }
    world.get("/v1/accounts?limit=1000000000").await.ok(200);
    let named =
        Request::get("/nowhere").header("x-request-id", "mine-7").body(Body::empty()).expect("a request");
    assert_eq!(world.send(named).await.headers["x-request-id"], "mine-7");
    let hostile =
        Request::get("/nowhere").header("x-request-id", "a b\"c").body(Body::empty()).expect("a request");
    let id = world.send(hostile).await.headers["x-request-id"].to_str().expect("ASCII").to_owned();
    assert!(id.starts_with("req_") && id.len() == 30, "{id}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_each_row_once_while_more_arrive() {
    let world = World::new().await;
    let (ours, theirs) =
        (world.account(json!({ "name": "A" })).await, world.account(json!({ "name": "B" })).await);
    world.endpoint(&ours, "https://hooks.customer.example.com/").await;
    let later = put_off();
    let mut there = BTreeSet::new();
    for _ in 0..23 {
        there.insert(first_delivery(&world.event(&ours, later.clone()).await));
    }
    let list = format!("/v1/deliveries?account_id={ours}&status=pending");
    for limit in [1, 7, 23, 100] {
        let (mut seen, mut path) = (Vec::new(), format!("{list}&limit={limit}"));
        loop {
            let page = world.get(&path).await;
            let link = page.headers.get("link").map(|link| link.to_str().expect("ASCII").to_owned());
            let page = page.ok(200);
            assert_ne!(page["data"], json!([]), "limit {limit}: a page of nothing");
            seen.extend(page["data"].as_array().expect("a list").iter().map(|row| text(&row["id"])));
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            path = format!("{list}&limit={limit}&cursor={cursor}");
            let next = format!("<{list}&limit={limit}&cursor={cursor}>; rel=\"next\"");
            assert!(link.as_deref().is_some_and(|link| link.ends_with(&next)), "{next} in {link:?}");
            world.event(&ours, later.clone()).await;
        }
        let once: BTreeSet<_> = seen.iter().cloned().collect();
        assert_eq!(once.len(), seen.len(), "limit {limit}: a row twice");
        assert!(there.is_subset(&once), "limit {limit}: a row is missing");
    }
    let cursor = text(&world.get(&format!("{list}&limit=1")).await.ok(200)["next_cursor"]);
    for foreign in [
        format!("/v1/deliveries?account_id={theirs}&status=pending&cursor={cursor}"),
        format!("/v1/deliveries?account_id={ours}&status=dead&cursor={cursor}"),
        format!("/v1/deliveries?account_id={ours}&cursor={cursor}"),
        format!("{list}&cursor={}", &cursor[1..]),
        format!("{list}&cursor={}", "A".repeat(10_000)),
        format!("/v1/endpoints?account_id={ours}&cursor={cursor}"),
        format!("/v1/accounts?cursor={cursor}"),
    ] {
        assert_eq!(world.get(&foreign).await.refusal(400), "bad-cursor");
    }
    for query in
        ["since=yesterday", "since=2026-02-30T00:00:00Z", "status=gone", "endpoint_id=x", "include=all"]
    {
        assert_eq!(world.get(&format!("{list}&{query}")).await.status.as_u16(), 400, "{query}");
    }
    // Equal moments are equal filters, whatever their offset, and `+` may stand bare.
    let newest = world.get(&format!("{list}&limit=1")).await.ok(200)["data"][0].clone();
    let at = text(&newest["created_at"]);
    let found = world.get(&format!("{list}&since={at}")).await.ok(200);
    assert!(found["data"].as_array().expect("a list").iter().any(|row| row["id"] == newest["id"]));
    let far = world.get(&format!("{list}&since=2099-01-01T07:00:00+07:00")).await.ok(200);
    assert_eq!(far["data"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_answered_item_by_item() {
    let world = World::new().await;
    let account = world.account(json!({ "name": "Acme" })).await;
    let good =
        |id: &str| format!(r#"{{"account_id":"{account}","id":"{id}","type":"a.b","data":{{"a":1,"a":2}}}}"#);
    let bad = format!(r#"{{"account_id":"{account}","type":"a b","data":1}}"#);
    let large = format!(r#"{{"account_id":"{account}","type":"a","data":"{}"}}"#, "x".repeat(65_535));
    let events = [good("one"), bad, good("two"), good("one"), large, "7".into()].join(",");
    let reply = world.post("/v1/events/batch", format!(r#"{{"events":[{events}]}}"#)).await.ok(202);
    let results = reply["results"].as_array().expect("a list");
    let statuses: Vec<_> =
        results.iter().map(|result| result["status"].as_u64().expect("a number")).collect();
    assert_eq!(statuses, [202, 422, 202, 200, 413, 422]);
    assert_eq!(
        (&results[0]["id"], &results[2]["id"], &results[3]["duplicate"]),
        (&json!("one"), &json!("two"), &json!(true))
    );
    assert_eq!(results[1]["errors"][0]["pointer"], "/events/1/type");
    assert_eq!(results[5]["errors"][0]["pointer"], "/events/5");

    let many = |n: usize| format!(r#"{{"events":[{}]}}"#, vec!["1"; n].join(","));
    assert_eq!(
        world.post("/v1/events/batch", many(500)).await.ok(202)["results"].as_array().map(Vec::len),
        Some(500)
    );
    assert_eq!(world.post("/v1/events/batch", many(501)).await.errors(), ["/events length"]);
    assert_eq!(world.post("/v1/events/batch", many(0)).await.status.as_u16(), 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_opens_all_routes_and_health_needs_none() {
    let token = OperatorToken::new("0123456789abcdef").expect("a token");
    let world = World::with(ApiOptions { operator_token: Some(token), ..ApiOptions::default() }).await;
    let ask = |path: &str, header: Option<&str>| {
        let mut request = Request::get(path);
        if let Some(value) = header {
            request = request.header("authorization", value);
        }
        world.send(request.body(Body::empty()).expect("a request"))
    };
    for header in [None, Some("Bearer wrong"), Some("Basic 0123456789abcdef"), Some("0123456789abcdef")] {
        for path in ["/v1/accounts", "/v1/status", "/nowhere"] {
            let refused = ask(path, header).await;
            assert_eq!(refused.refusal(401), "unauthorized");
            assert!(refused.headers.contains_key("www-authenticate"));
        }
    }
    ask("/v1/accounts", Some("bearer 0123456789abcdef")).await.ok(200);
    ask("/healthz", None).await.ok(200);
    assert_eq!(ask("/readyz", None).await.ok(200)["checks"]["engine"], "ok");
    // Over the socket's file nothing is asked.
    let local = router(world.state.local());
    let request = Request::get("/v1/accounts").body(Body::empty()).expect("a request");
    assert_eq!(local.oneshot(request).await.expect("infallible").status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_cannot_make_a_browser_ask() {
    let world = World::new().await;
    for (origin, status) in [("http://127.0.0.1:8080", 200), ("https://evil.example", 403), ("null", 403)] {
        let request =
            Request::post("/v1/store/verify").header("host", "127.0.0.1:8080").header("origin", origin);
        assert_eq!(world.send(request.body(Body::empty()).expect("a request")).await.status.as_u16(), status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_is_verified_and_rebuilt_beside_traffic() {
    let world = World::new().await;
    let account = world.account(json!({ "name": "Acme" })).await;
    world.endpoint(&account, "https://hooks.customer.example.com/").await;
    world.event(&account, put_off()).await;
    for (path, result) in [("verify", "clean"), ("rebuild", "rebuilt"), ("verify", "clean")] {
        let reply = world.post(&format!("/v1/store/{path}"), "").await;
        assert_eq!(reply.headers["content-type"], "application/x-ndjson");
        let lines: Vec<Value> = std::str::from_utf8(&reply.body)
            .expect("UTF-8")
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line of JSON"))
            .collect();
        let last = lines.last().expect("a line");
        assert_eq!((&last["result"], &last["findings"]), (&json!(result), &json!([])), "{path}");
        assert!(last["entries"].as_u64().is_some_and(|entries| entries >= 5));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_store_says_so() {
    let world = World::new().await;
    let account = world.account(json!({ "name": "Acme" })).await;
    let World { app, store, folder: _folder, .. } = world;
    store.close(LONG).await.expect("in order");
    let body = format!(r#"{{"account_id":"{account}","type":"a","data":1}}"#);
    let request =
        Request::post("/v1/events").header("content-type", "application/json").body(Body::from(body));
    let response = app.clone().oneshot(request.expect("a request")).await.expect("infallible");
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key("retry-after"));
    let request = Request::get("/readyz").body(Body::empty()).expect("a request");
    let response = app.oneshot(request).await.expect("infallible");
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["content-type"], "application/json");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_listeners_serve_and_stop() {
    let token = OperatorToken::new("0123456789abcdef").expect("a token");
    let world = World::with(ApiOptions { operator_token: Some(token), ..ApiOptions::default() }).await;
    let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = tcp.local_addr().expect("an address");
    let path = world.folder.path().join("api.sock");
    let unix = bind_unix(&path).expect("a socket");
    drop(unix);
    let unix = bind_unix(&path).expect("in the place of a dead one");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).expect("a file").permissions());
    assert_eq!(mode & 0o777, 0o600);
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve(
        Listeners { tcp: Some(tcp), unix: Some(unix), admin: None },
        world.state.clone(),
        stop.clone(),
    ));
    let ask = b"GET /v1/accounts HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let mut over_tcp = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let mut over_unix = tokio::net::UnixStream::connect(&path).await.expect("a connection");
    let (mut refused, mut served) = (String::new(), String::new());
    over_tcp.write_all(ask).await.expect("sent");
    over_tcp.read_to_string(&mut refused).await.expect("an answer");
    over_unix.write_all(ask).await.expect("sent");
    over_unix.read_to_string(&mut served).await.expect("an answer");
    assert!(
        refused.starts_with("HTTP/1.1 401 ") && served.starts_with("HTTP/1.1 200 "),
        "{refused}\n{served}"
    );
    // An idle connection does not keep it from stopping.
    let _idle = tokio::net::TcpStream::connect(address).await.expect("a connection");
    stop.cancel();
    tokio::time::timeout(LONG, serving).await.expect("in time").expect("no panic");
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

/// Rule A26, by a clock that jumps whenever nothing else happens.
#[tokio::test]
async fn slow_heads_and_bodies_are_cut() {
    let world = World::new().await;
    let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = tcp.local_addr().expect("an address");
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve(
        Listeners { tcp: Some(tcp), ..Listeners::default() },
        world.state.clone(),
        stop.clone(),
    ));
    for (sent, wanted) in [
        ("GET /healthz HTTP/1.1\r\nhost: a\r\nx-slow: ", ""),
        ("", ""),
        (
            "POST /v1/accounts HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
            "HTTP/1.1 408 ",
        ),
    ] {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        stream.write_all(sent.as_bytes()).await.expect("sent");
        tokio::time::pause();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("the end");
        tokio::time::resume();
        assert!(answer.starts_with(wanted), "{answer}");
        assert!(wanted.is_empty() || answer.contains("body-too-slow"), "{answer}");
    }
    stop.cancel();
    serving.await.expect("no panic");
}

/// The figures are those of the deliveries, live, after a rebuild, and of every reader.
#[tokio::test(flavor = "multi_thread")]
async fn stats_count_how_attempts_ended() {
    let world = World::new().await;
    let script = vec![answer(200, "", ""), answer(404, "", ""), answer(503, "", ""), answer(200, "", "")];
    let customer = Receiver::scripted(script).await;
    let other = Receiver::scripted(vec![answer(200, "", "")]).await;
    let account = world.account(json!({ "name": "Acme" })).await;
    let elsewhere = world.account(json!({ "name": "B" })).await;
    let endpoint = world.endpoint(&account, &customer.url("/")).await;
    for status in ["delivered", "dead"] {
        let delivery = first_delivery(&world.event(&account, json!({})).await);
        world.until(&delivery, status).await;
    }
    let late = first_delivery(&world.event(&account, json!({})).await);
    world.until(&late, "pending").await;
    let settled = world.get(&format!("/v1/deliveries/{late}")).await.ok(200);
    assert_eq!(settled["last_attempt"]["status_code"], 503);
    world.post(&format!("/v1/deliveries/{late}/cancel"), "{}").await.ok(200);
    let second = world.endpoint(&account, &other.url("/")).await;
    let event = world.event(&account, json!({ "endpoint_id": second })).await;
    world.until(&first_delivery(&event), "delivered").await;
    world.endpoint(&elsewhere, &other.url("/")).await;
    let event = world.event(&elsewhere, json!({})).await;
    world.until(&first_delivery(&event), "delivered").await;

    let check = async || {
        let total = world.get("/v1/stats").await.ok(200)["total"].clone();
        assert_eq!(
            (&total["attempts"], &total["delivered"], &total["failed"], &total["dead"], &total["cancelled"]),
            (&json!(5), &json!(3), &json!(2), &json!(1), &json!(1)),
            "{total}"
        );
        let of = async |path: String| world.get(&path).await.ok(200);
        let acme = of(format!("/v1/stats?account_id={account}&bucket=1d")).await;
        assert_eq!(acme["total"]["classes"], json!({ "2xx": 2, "4xx": 1, "5xx": 1 }));
        assert!(acme["total"]["p50_ms"].as_u64() <= acme["total"]["p95_ms"].as_u64());
        assert!(acme["total"]["p95_ms"].as_u64().is_some_and(|ms| (1..60_000).contains(&ms)), "{acme}");
        let one = of(format!("/v1/endpoints/{endpoint}/stats")).await;
        assert_eq!((&one["total"]["attempts"], &one["now"]["waiting"]), (&json!(3), &json!(0)), "{one}");
        assert_eq!(one["now"]["failures"], 2);
        let named = of(format!("/v1/stats?endpoint_id={endpoint}")).await;
        assert_eq!((&named["data"], &named["total"]), (&one["data"], &one["total"]));
        let sum = |data: &Value, name: &str, member: &str, group: &str| -> u64 {
            let of = data.as_array().expect("a list").iter().filter(|point| point[name] == group);
            of.filter_map(|point| point[member].as_u64()).sum()
        };
        let grouped = of(format!("/v1/stats?account_id={account}&group=endpoint")).await;
        for (endpoint, attempts) in [(&endpoint, 3), (&second, 1)] {
            assert_eq!(sum(&grouped["data"], "endpoint_id", "attempts", endpoint), attempts, "{grouped}");
        }
        let grouped = of(format!("/v1/stats?account_id={account}&group=class")).await;
        assert_eq!(sum(&grouped["data"], "group", "count", "2xx"), 2, "{grouped}");
        let grouped = of("/v1/stats?group=status".to_owned()).await;
        assert_eq!(sum(&grouped["data"], "group", "count", "delivered"), 3, "{grouped}");
        assert_eq!(of("/v1/stats?until=2020-01-01T00:00:00Z".to_owned()).await["data"], json!([]));
    };
    check().await;
    let rebuilt = world.post("/v1/store/rebuild", "").await;
    assert!(String::from_utf8_lossy(&rebuilt.body).contains("rebuilt"), "{:?}", rebuilt.body);
    check().await;
    let verified = world.post("/v1/store/verify", "").await;
    assert!(String::from_utf8_lossy(&verified.body).contains("clean"), "{:?}", verified.body);
    check().await;

    let nobody = "ep_00000000000000000000000001";
    for (path, status) in [
        ("/v1/stats?bucket=1w".to_owned(), 400),
        ("/v1/stats?group=type".to_owned(), 400),
        ("/v1/stats?group=endpoint".to_owned(), 400),
        ("/v1/stats?since=2001-01-01T00:00:00Z".to_owned(), 400),
        ("/v1/stats?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z".to_owned(), 400),
        (format!("/v1/endpoints/{nobody}/stats"), 404),
        (format!("/v1/endpoints/{endpoint}/stats?account_id={elsewhere}"), 404),
        (format!("/v1/stats?endpoint_id={endpoint}&account_id={elsewhere}"), 404),
    ] {
        world.get(&path).await.refusal(status);
    }
}
