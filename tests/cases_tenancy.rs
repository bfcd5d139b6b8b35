//! What went wrong in other webhook senders between accounts, by the number of the case: C107.

#[path = "support/keyed.rs"]
mod keyed;
#[path = "support/receiver.rs"]
mod receiver;

use axum::http::Method;
use hmac::{Hmac, KeyInit, Mac};
use hooklog::api::{ApiOptions, Quotas, routes};
use hooklog::clock::{Chance, SeededChance};
use keyed::{LONG, World, text};
use receiver::{Receiver, answer};
use serde_json::{Value, json};
use sha2::Sha256;

/// One of two customers who name everything alike.
struct Tenant {
    account: String,
    secret: String,
    endpoint: String,
    key: String,
    ingest: String,
    hook: Receiver,
}

impl Tenant {
    async fn settle(world: &World, name: &str, status: u16) -> Tenant {
        let made = world.locally("POST", "/v1/accounts", json!({ "name": name })).await.ok(201);
        let (account, secret) = (text(&made["id"]), text(&made["secret"]));
        let (_, key) = world.key(json!({ "role": "account", "account_id": account })).await;
        let (_, ingest) = world.key(json!({ "role": "ingest", "account_id": account })).await;
        let hook = Receiver::scripted(vec![answer(status, "", "")]).await;
        let wanted = json!({ "url": hook.url("/main"), "description": "main" }).to_string();
        let endpoint = text(&world.ask("POST", "/v1/endpoints", Some(&key), &wanted).await.ok(201)["id"]);
        Tenant { account, secret, endpoint, key, ingest, hook }
    }

    async fn send(&self, world: &World, id: &str, data: &str) -> keyed::Reply {
        let event = format!(r#"{{"id":"{id}","type":"payment.settled","data":{data}}}"#);
        world.ask("POST", "/v1/events", Some(&self.ingest), &event).await
    }

    /// All that the account's own key sees.
    async fn sees(&self, world: &World) -> Value {
        let mut all = Vec::new();
        for path in [
            format!("/v1/accounts/{}", self.account),
            "/v1/accounts".into(),
            "/v1/endpoints".into(),
            "/v1/deliveries".into(),
            format!("/v1/explain/{}", self.endpoint),
            format!("/v1/endpoints/{}", self.endpoint),
            "/v1/replays".into(),
        ] {
            all.push(world.ask("GET", &path, Some(&self.key), "").await.ok(200));
        }
        all.into()
    }
}

/// The same event id, type, path and description in both: each gets its own, signed with its own secret, and
/// what befalls one moves nothing of the other.
#[tokio::test(flavor = "multi_thread")]
async fn c107_accounts_that_name_everything_alike_do_not_meet() {
    let quotas = Quotas { events_per_minute: 30, replays_per_hour: 3 };
    let world = World::with(ApiOptions { quotas, ..ApiOptions::default() }).await;
    let mut a = Tenant::settle(&world, "A", 500).await;
    let mut b = Tenant::settle(&world, "B", 200).await;
    for (tenant, data) in [(&mut b, r#"{"of":"B"}"#), (&mut a, r#"{"of":"A"}"#)] {
        let sent = tenant.send(&world, "k1", data).await.ok(202);
        assert_eq!(sent["account_id"], json!(tenant.account));
        assert_eq!(sent["deliveries"].as_array().map(Vec::len), Some(1));
        let got = tokio::time::timeout(LONG, tenant.hook.next()).await.expect("in time");
        assert!(got.body().windows(data.len()).any(|part| part == data.as_bytes()));
        let mut mac = Hmac::<Sha256>::new_from_slice(tenant.secret.as_bytes()).expect("any key");
        mac.update(got.body());
        let tag: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(got.values("x-ledger-signature"), [format!("sha256={tag}")]);
    }
    assert_eq!((a.hook.so_far().len(), b.hook.so_far().len()), (0, 0), "each its own only");
    assert_eq!(a.send(&world, "k1", r#"{"of":"B"}"#).await.status, 422, "an id's content is its account's");
    for (tenant, of) in [(&a, "A"), (&b, "B")] {
        let payload = world.ask("GET", "/v1/events/k1/payload", Some(&tenant.key), "").await;
        assert!(String::from_utf8_lossy(&payload.body).contains(&format!(r#""of":"{of}""#)));
    }

    // Nothing of B moves while A fails, is paused, loses its secrets, and uses up its quotas.
    let delivered = format!("/v1/accounts/{}", b.account);
    let settled = async {
        loop {
            let shown = world.ask("GET", &delivered, Some(&b.key), "").await.ok(200);
            if shown["deliveries"]["delivered"] == 1 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, settled).await.expect("B's is delivered");
    let before = b.sees(&world).await;
    let mut refused = 0;
    for n in 0..40 {
        let status = a.send(&world, &format!("e{n}"), "1").await.status;
        refused += usize::from(status == 429);
        assert!(matches!(status, 202 | 429), "{status}");
    }
    assert!(refused > 0, "A is over its quota");
    for (method, path, body) in [
        ("POST", format!("/v1/endpoints/{}/secret/rotate", a.endpoint), ""),
        ("POST", format!("/v1/accounts/{}/secret/rotate", a.account), ""),
        ("POST", format!("/v1/endpoints/{}/pause", a.endpoint), ""),
        ("PATCH", format!("/v1/endpoints/{}", a.endpoint), r#"{"headers":{"x-of":"A"}}"#),
    ] {
        world.ask(method, &path, Some(&a.key), body).await.ok(200);
    }
    for _ in 0..5 {
        world.ask("POST", "/v1/events/k1/replay", Some(&a.key), "").await;
    }
    assert_eq!(world.ask("POST", "/v1/events/k1/replay", Some(&a.key), "").await.status, 429);
    assert_eq!(b.sees(&world).await, before);
    assert_eq!(
        world.ask("POST", "/v1/events/k1/replay", Some(&b.key), "").await.status,
        409,
        "its own quota"
    );
    b.send(&world, "k2", "2").await.ok(202);
    let got = tokio::time::timeout(LONG, b.hook.next()).await.expect("in time");
    assert_eq!(got.values("x-of"), [""; 0], "no header of A's");
    assert_eq!(got.values("webhook-id"), ["k2"]);
}

/// Ten thousand calls with the keys of one account, at any route, with the ids of another: nothing of it is in
/// any answer, and nothing of it is changed. The stream, which would not end, has its rows in `tests/access.rs`.
#[tokio::test(flavor = "multi_thread")]
async fn c107_no_call_with_foreign_ids_shows_or_changes_anything() {
    const SEED: u64 = 107;
    let world = World::new().await;
    let ours =
        text(&world.locally("POST", "/v1/accounts", json!({ "name": "only-of-a" })).await.ok(201)["id"]);
    let theirs = world.account("B").await;
    let [endpoint, event, delivery] = world.held(&ours).await;
    let (our_key_id, _) = world.key(json!({ "role": "account", "account_id": ours })).await;
    let secret = world.locally("GET", &format!("/v1/accounts/{ours}/secret"), Value::Null).await.ok(200);
    let secret = text(&secret["secret"]);
    let signing =
        world.locally("GET", &format!("/v1/endpoints/{endpoint}/secret"), Value::Null).await.ok(200);
    let signing = text(&signing["keys"][0]["secret"]);
    let mut keys = Vec::new();
    for role in ["account", "account_read", "ingest"] {
        keys.push(world.key(json!({ "role": role, "account_id": theirs })).await.1);
    }
    let session = world.session(&theirs, "account").await;
    let state = async || {
        let mut all = Vec::new();
        for path in [
            format!("/v1/accounts/{ours}"),
            format!("/v1/endpoints?account_id={ours}"),
            format!("/v1/deliveries?account_id={ours}"),
            format!("/v1/events/{event}/timeline?account_id={ours}"),
            format!("/v1/audit?account_id={ours}"),
        ] {
            all.push(world.locally("GET", &path, Value::Null).await.ok(200));
        }
        all
    };
    let before = state().await;

    let mut chance = SeededChance::new(SEED);
    let mut pick = |of: usize| (chance.draw() % of as u64) as usize;
    let all: Vec<(Method, &str)> = routes()
        .into_iter()
        .filter(|(_, path)| !path.contains("/stream") && !path.contains("/portal/"))
        .collect();
    let ids = [&ours, &endpoint, &event, &delivery, &our_key_id];
    let marks = [&ours, &endpoint, &event, &delivery, &our_key_id, &secret, &signing];
    let mut let_in = 0;
    for n in 0..10_000 {
        let (method, path) = &all[pick(all.len())];
        let id = ids[pick(ids.len())];
        let mut path: String = path
            .split('/')
            .map(|part| if part.starts_with('{') { id.as_str() } else { part })
            .collect::<Vec<_>>()
            .join("/");
        match pick(4) {
            0 => path += &format!("?account_id={ours}"),
            1 => path += &format!("?account_id={theirs}"),
            2 => path += &format!("?endpoint_id={endpoint}"),
            _ => {}
        }
        let account = [&ours, &theirs][pick(2)];
        let body = match pick(5) {
            0 => String::new(),
            1 => "{}".into(),
            2 => json!({ "account_id": account, "endpoint_id": endpoint, "type": "a.b", "data": 1 })
                .to_string(),
            3 => json!({ "account_id": account, "url": "https://b.example.com/", "event_types": ["no.one"] })
                .to_string(),
            _ => {
                json!({ "account_id": account, "filter": { "status": "dead" }, "dry_run": true }).to_string()
            }
        };
        let key = pick(keys.len() + 1);
        let reply = match keys.get(key) {
            Some(key) => world.ask(method.as_str(), &path, Some(key), &body).await,
            None => world.in_session(&session, method.as_str(), &path, &body).await,
        };
        let told = String::from_utf8_lossy(&reply.body);
        let call = format!("seed {SEED}, call {n}: {method} {path} {body}\n{reply:?}");
        assert!(reply.status < 500, "{call}");
        assert!(!told.contains("only-of-a") && !told.contains("hooks.customer.example.com"), "{call}");
        for mark in marks {
            // A refusal may name what was asked for; nothing else does.
            let named = reply.status >= 400 && (path.contains(mark.as_str()) || body.contains(mark.as_str()));
            assert!(named || !told.contains(mark.as_str()), "{call}");
        }
        let_in += usize::from(reply.status < 300);
    }
    assert!(let_in > 100, "it asked for things of its own as well: {let_in}");
    assert_eq!(state().await, before);
}
