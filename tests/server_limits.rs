//! What our own server bears: slow and many connections, quotas, and credentials that fail again and again
//! (rules A18, A26 and A31).

#[path = "support/keyed.rs"]
mod keyed;

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request};
use hooklog::api::access::OperatorToken;
use hooklog::api::serve::{Connections, Listeners, serve};
use hooklog::api::{ApiOptions, ApiState, Quotas};
use hooklog_projections::time::Millis;
use keyed::{LONG, Reply, World};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

struct Serving {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Serving {
    async fn start(state: &ApiState) -> Serving {
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = tcp.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(
            Listeners { tcp: Some(tcp), ..Listeners::default() },
            state.clone(),
            stop.clone(),
        ));
        Serving { address, stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(LONG, self.task).await.expect("in time").expect("no panic");
    }

    /// The status and head of an answer over a connection of its own.
    async fn get(&self, path: &str, key: &str, more: &str) -> (u16, String) {
        let asking = async {
            let mut stream = TcpStream::connect(self.address).await.expect("a connection");
            let ask = format!(
                "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\nauthorization: Bearer {key}\r\n{more}\r\n"
            );
            stream.write_all(ask.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer");
            answer
        };
        let answer = tokio::time::timeout(LONG, asking).await.expect("in time");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("{answer:?}")), answer)
    }
}

/// As many as fit, and as many again that say half a head or nothing: whoever asks properly is answered, and of
/// the slow ones those that waited longest have made room.
#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_slow_sockets_keep_nobody_out() {
    let world = World::new().await;
    let (_, key) = world.key(json!({ "role": "operator" })).await;
    let serving = Serving::start(&world.state).await;
    let mut slow = Vec::new();
    for n in 0..2_000 {
        let mut stream = TcpStream::connect(serving.address).await.expect("a connection");
        if n % 2 == 0 {
            stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: a\r\nx-slow: ").await.expect("sent");
        }
        slow.push(stream);
    }
    assert_eq!(serving.get("/v1/status", &key, "").await.0, 200);
    let mut first = slow.swap_remove(0);
    let mut nothing = Vec::new();
    let ended = tokio::time::timeout(LONG, first.read_to_end(&mut nothing)).await.expect("in time");
    assert!(ended.is_err() || nothing.is_empty(), "it was cut: {nothing:?}");
    drop(slow);
    assert_eq!(serving.get("/healthz", &key, "").await.0, 200);
    serving.stop().await;
}

/// One byte every half second is not enough, by a clock that jumps whenever nothing else happens.
#[tokio::test]
async fn a_head_that_drips_is_cut_in_time() {
    let world = World::new().await;
    let serving = Serving::start(&world.state).await;
    let mut stream = TcpStream::connect(serving.address).await.expect("a connection");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nx-slow: ").await.expect("sent");
    let (mut from, mut to) = stream.into_split();
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let dripping = tokio::spawn(async move {
        let mut beat = tokio::time::interval(Duration::from_millis(500));
        loop {
            beat.tick().await;
            if to.write_all(b"x").await.is_err() {
                return;
            }
        }
    });
    let mut answer = Vec::new();
    let _ = from.read_to_end(&mut answer).await;
    let lived = began.elapsed();
    tokio::time::resume();
    dripping.abort();
    assert!(answer.is_empty(), "{answer:?}");
    assert!(lived <= Duration::from_secs(15), "it lived for {lived:?}");
    serving.stop().await;
}

/// A connection that asked something may be cut for another only when it is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_house_makes_room_for_who_asks() {
    let connections = Connections { max: 2, ..Connections::default() };
    let world = World::with(ApiOptions { connections, ..ApiOptions::default() }).await;
    let (_, key) = world.key(json!({ "role": "operator" })).await;
    let serving = Serving::start(&world.state).await;
    for _ in 0..20 {
        // Kept open without a word; each makes room for the next.
        let mut idle = TcpStream::connect(serving.address).await.expect("a connection");
        let other = TcpStream::connect(serving.address).await.expect("a connection");
        assert_eq!(serving.get("/v1/status", &key, "").await.0, 200);
        let mut nothing = Vec::new();
        let ended = tokio::time::timeout(LONG, idle.read_to_end(&mut nothing)).await.expect("in time");
        assert!(ended.is_err() || nothing.is_empty());
        drop(other);
    }
    serving.stop().await;
}

/// Rule A18. A good key is taken all the while; a token that a person chose might be guessed, so it is not
/// looked at.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_fail_again_and_again_are_answered_429() {
    let token = OperatorToken::new("0123456789abcdef").expect("a token");
    let options = ApiOptions { operator_token: Some(token), trusted_hops: 1, ..ApiOptions::default() };
    let world = World::with(options).await;
    let (_, key) = world.key(json!({ "role": "operator" })).await;
    let serving = Serving::start(&world.state).await;
    let from = |address: &str| format!("x-forwarded-for: {address}\r\n");
    let (here, there) = (from("203.0.113.7"), from("198.51.100.7"));
    assert_eq!(serving.get("/v1/status", "0123456789abcdef", &here).await.0, 200);
    for n in 0..10 {
        let near = from(&format!("203.0.113.{n}"));
        assert_eq!(serving.get("/v1/status", "0123456789abcdeX", &near).await.0, 401, "{n}");
    }
    let (status, answer) = serving.get("/v1/status", "0123456789abcdeX", &here).await;
    assert_eq!(status, 429);
    assert!(answer.contains("retry-after: 300\r\n"), "{answer}");
    assert_eq!(serving.get("/v1/status", "0123456789abcdef", &here).await.0, 429, "not looked at");
    assert_eq!(serving.get("/v1/status", &key, &here).await.0, 200, "a good key is taken");
    assert_eq!(serving.get("/v1/status", "0123456789abcdef", &there).await.0, 200, "others are not meant");
    assert_eq!(serving.get("/v1/status", "wrong", &there).await.0, 401);
    world.clock.advance(Millis::from_secs(300));
    assert_eq!(serving.get("/v1/status", "0123456789abcdef", &here).await.0, 200, "it ends");
    serving.stop().await;
}

/// Rules A10 and A31.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_asks_for_so_much_in_a_while_and_no_more() {
    let quotas = Quotas { events_per_minute: 3, replays_per_hour: 2 };
    let world = World::with(ApiOptions { quotas, ..ApiOptions::default() }).await;
    let (account, other) = (world.account("A").await, world.account("B").await);
    let [_, event, _] = world.held(&account).await;
    let send = async |account: &str| {
        let event = json!({ "account_id": account, "type": "a.b", "data": 1 });
        world.locally("POST", "/v1/events", event).await
    };
    let field = |reply: &Reply, name: &str| {
        reply.headers.get(name).map(|value| value.to_str().expect("ASCII").to_owned()).unwrap_or_default()
    };
    // `held` was the first of the minute.
    for left in [1, 0] {
        let taken = send(&account).await;
        assert_eq!(taken.status, 202);
        assert_eq!(field(&taken, "ratelimit-policy"), r#""events";q=3;w=60"#);
        assert_eq!(field(&taken, "ratelimit"), format!(r#""events";r={left};t=60"#));
        assert_eq!(retry_after(&taken.headers), None);
    }
    let refused = send(&account).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "too-many-requests"));
    assert_eq!(refused.json()["violated-policies"], json!(["events"]));
    assert_eq!(field(&refused, "ratelimit"), r#""events";r=0;t=60"#);
    assert_eq!(field(&refused, "ratelimit-policy"), r#""events";q=3;w=60"#);
    let unlimited = world.locally("GET", "/v1/accounts", Value::Null).await;
    assert_eq!((field(&unlimited, "ratelimit"), field(&unlimited, "ratelimit-policy")), Default::default());
    assert_eq!(retry_after(&refused.headers), Some(60));
    let three = json!({ "events": [
        { "account_id": other, "type": "a.b", "data": 1 }, { "account_id": account, "type": "a.b", "data": 1 },
    ]});
    let batch = world.locally("POST", "/v1/events/batch", three).await;
    assert_eq!(field(&batch, "ratelimit"), r#""events";r=0;t=60"#, "the fullest is told");
    let batch = batch.ok(202);
    assert_eq!((&batch["results"][0]["status"], &batch["results"][1]["status"]), (&json!(202), &json!(429)));
    world.clock.advance(Millis::from_secs(60));
    assert_eq!(send(&account).await.status, 202);

    let (_, key) = world.key(json!({ "role": "account", "account_id": account })).await;
    let path = format!("/v1/events/{event}/replay");
    for status in [409, 409, 429] {
        assert_eq!(world.ask("POST", &path, Some(&key), "").await.status, status);
    }
    assert_eq!(retry_after(&world.ask("POST", &path, Some(&key), "").await.headers), Some(3_600));
    assert_eq!(world.locally("POST", &path, Value::Null).await.status, 409, "an operator is not held to it");
    world.clock.advance(Millis::from_secs(3_600));
    assert_eq!(world.ask("POST", &path, Some(&key), "").await.status, 409);

    // A bulk replay counts as any other; its plan begins nothing.
    let bulk = |dry_run: bool| json!({ "account_id": account, "filter": { "status": "dead" }, "reason": "again", "dry_run": dry_run });
    let begin =
        async |dry_run| world.ask("POST", "/v1/replays", Some(&key), &bulk(dry_run).to_string()).await.status;
    assert_eq!([begin(true).await, begin(false).await, begin(true).await], [200, 202, 200]);
    assert_eq!([begin(false).await, begin(true).await], [429, 200], "with the one before it was the second");
    assert_eq!(world.locally("POST", "/v1/replays", bulk(false)).await.status, 202);
}

/// Rule A27: what is no event is small. Every route that reads a body says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_no_event_has_32_kib_at_most() {
    const MOST: usize = 32 * 1024;
    let world = World::new().await;
    let account = world.account("A").await;
    let [endpoint, event, delivery] = world.held(&account).await;
    let queue = json!({ "account_id": account, "queue": "jobs", "event_types": ["no.job"] });
    world.locally("POST", "/v1/endpoints", queue).await.ok(201);
    let ids = [
        ("accounts", account.as_str()),
        ("endpoints", &endpoint),
        ("events", &event),
        ("deliveries", &delivery),
        ("leases", "lease_00000000000000000000000001"),
        ("queues", "jobs"),
        ("keys", "ak_00000000000000000000000001"),
    ];
    let takes_events = ["/v1/events", "/v1/events/batch", "/v1/events/raw", "/internal/webhooks/dispatch"];
    let mut tried = 0;
    for (method, path) in hooklog::api::routes() {
        let reads = matches!(method.as_str(), "POST" | "PATCH")
            && !takes_events.contains(&path)
            && path != "/v1/queues/{name}/jobs"
            // Holds an event that somebody captured.
            && path != "/v1/verify"
            // These take none, and read none.
            && !path.starts_with("/v1/store/");
        if !reads {
            continue;
        }
        let (noun, rest) = path.trim_start_matches("/v1/").split_once("/{").unwrap_or((path, ""));
        let id = ids.iter().find(|(known, _)| noun.ends_with(known)).map_or("", |(_, id)| id);
        let filled = match rest.split_once('}') {
            Some((_, rest)) => format!("{}{id}{rest}", &path[..path.find('{').expect("a brace")]),
            None => path.to_owned(),
        };
        for key in [false, true] {
            let send = async |bytes: usize| {
                let mut request = Request::builder()
                    .method(method.clone())
                    .uri(&filled)
                    .header("content-type", "application/json");
                if key {
                    request = request.header("idempotency-key", format!("{path} {bytes}"));
                }
                let body = Body::from(format!("{{{}}}", " ".repeat(bytes - 2)));
                World::send(&world.local, request.body(body).expect("a request")).await
            };
            let large = send(MOST + 1).await;
            assert_eq!((large.status, large.code().as_str()), (413, "too-large"), "{method} {filled}");
            assert_ne!(send(MOST).await.status, 413, "{method} {filled}");
        }
        tried += 1;
    }
    assert!(tried >= 25, "{tried}");
}

fn retry_after(headers: &HeaderMap) -> Option<u64> {
    headers.get("retry-after")?.to_str().ok()?.parse().ok()
}
