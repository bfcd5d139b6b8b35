//! Cases of the areas *dns* and *ssrf* that only a whole service shows: what is recorded of the addresses that an
//! attempt tried, what becomes of a name that is bound to another address, and how much one receiver gets from all
//! accounts together. The client's own part of them is `tests/cases_client.rs`'s.

mod support;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use hooklog::delivery::client::Lookup;
use hooklog::delivery::guard::Policy;
use hooklog::engine::ServerPolicy;
use hooklog::notify::{Channel, Teller};
use hooklog_projections::time::Millis;
use serde_json::{Value, json};
use support::case::{Hook, Setup, World, deliveries, delivery, moment, text};
use support::receiver::{Receiver, Step, answer};

const NAME: &str = "hooks.customer.com";

/// One name, and where it leads now.
struct Bound(Mutex<Vec<IpAddr>>);

impl Bound {
    fn to(addresses: &[&str]) -> Arc<Bound> {
        let bound = Arc::new(Bound(Mutex::default()));
        bound.anew(addresses);
        bound
    }

    fn anew(&self, addresses: &[&str]) {
        *self.0.lock().expect("no panic") =
            addresses.iter().map(|address| address.parse().expect("an address")).collect();
    }
}

impl Lookup for Bound {
    fn lookup(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let addresses = self.0.lock().expect("no panic").clone();
        Box::pin(async move { Ok(addresses) })
    }
}

/// A world whose only name is bound so, and that may reach this port.
fn world(names: &Arc<Bound>, port: u16) -> World {
    let mut setup = Setup { names: Some(names.clone()), ..Setup::default() };
    setup.guard.ports.push(port);
    World::with(setup)
}

/// The IPv6 address takes the connection and swallows what is sent: the try after that goes to the other one, and
/// the record names the address of each. What was tried in vain within one attempt stands there too.
#[tokio::test(flavor = "multi_thread")]
async fn c56_every_address_that_was_tried_is_in_the_record() {
    let silent = Receiver::scripted_at("[::1]:0".parse().expect("one"), vec![vec![Step::Hold]]).await;
    let port = silent.address.port();
    let good = Receiver::scripted_at(([127, 0, 0, 1], port).into(), vec![answer(200, "", "ok")]).await;
    let names = Bound::to(&["::1", "127.0.0.1"]);
    let world = world(&names, port);
    let account = world.account().await;
    let url = format!("http://{NAME}:{port}/h");
    let endpoint = json!({ "timeout_ms": 1000, "schedule": { "waits": ["1m"], "jitter_percent": 0 } });
    world.endpoint_of(&account, &url, endpoint).await;
    let id = delivery(&world.event(&account, "e1", "1").await);
    world.until_tried(&id, 1).await;
    world.advance_secs(61).await;
    world.until(&id, "delivered").await;
    let attempts = world.attempts(&id).await;
    let addresses: Vec<_> = attempts.iter().map(|attempt| text(&attempt["address"])).collect();
    assert_eq!(addresses, [silent.address.to_string(), good.address.to_string()]);
    assert_eq!(attempts[0]["error"], "timeout");
    // It went out on one connection each: none was tried in vain beside it.
    assert!(attempts.iter().all(|attempt| attempt.get("tried_in_vain").is_none()), "{attempts:#?}");
    let second = &attempts[1]["timings"];
    assert!(
        second["queue_ms"].as_u64().is_some_and(|ms| ms >= 1_000),
        "due a second before it left: {second}"
    );

    // Nobody listens at the first address: it is left within the attempt, and named beside the other one.
    names.anew(&["127.0.0.3", "127.0.0.1"]);
    let id = delivery(&world.event(&account, "e2", "1").await);
    world.until(&id, "delivered").await;
    let kept = &world.attempts(&id).await[0];
    assert_eq!((&kept["reused"], &kept["address"]), (&json!(true), &json!(good.address.to_string())));
    names.anew(&["127.0.0.3", "127.0.0.4"]);
    let id = delivery(&world.event(&account, "e3", "1").await);
    world.until_tried(&id, 1).await;
    let refused = &world.attempts(&id).await[0];
    assert_eq!((&refused["error"], &refused["reason"]), (&json!("connect"), &json!("refused")));
    let mut tried = [text(&refused["address"]), text(&refused["tried_in_vain"][0])];
    tried.sort();
    assert_eq!(tried, [3, 4].map(|last| SocketAddr::from(([127, 0, 0, last], port)).to_string()));
    world.always_true(&mut []).await;
}

/// The name is good when the endpoint is made and for the first event, and leads inside from then on: each of a
/// hundred events is refused as often as it has tries, no sooner than its schedule says, and dies; the owner hears
/// of all of them in one message.
#[tokio::test(flavor = "multi_thread")]
async fn c62_a_name_that_comes_to_lead_inside_costs_tries_and_ends() {
    const WAITS: [u64; 2] = [60, 300];
    const EVENTS: usize = 100;
    let mut hook = Hook::scripted(vec![answer(200, "", "ok")]).await;
    let names = Bound::to(&["127.0.0.1"]);
    let world = world(&names, hook.port());
    let account = world.account().await;
    let url = format!("http://{NAME}:{}/h", hook.port());
    let endpoint =
        json!({ "schedule": { "waits": ["1m", "5m"], "jitter_percent": 10 }, "in_flight_max": 16 });
    let endpoint = world.endpoint_of(&account, &url, endpoint).await;
    let first = delivery(&world.event(&account, "before", "1").await);
    world.until(&first, "delivered").await;

    names.anew(&["10.0.0.5"]);
    let mut ids = Vec::new();
    for n in 0..EVENTS {
        ids.push(delivery(&world.event(&account, &format!("e{n:03}"), "1").await));
    }
    // Nothing happens between the moments that something is due at: after each step all that is due was tried.
    let mut seconds = 0;
    let dead = loop {
        let mut rows = Vec::new();
        for id in &ids {
            rows.push(world.until_idle(id).await);
        }
        if rows.iter().all(|row| row["status"] == "dead") {
            break rows;
        }
        assert!(seconds < 2 * WAITS.iter().sum::<u64>(), "they do not end: {rows:#?}");
        seconds += 10;
        world.advance_secs(10).await;
    };
    for (id, row) in ids.iter().zip(&dead) {
        assert_eq!((&row["dead_reason"], &row["attempts"]), (&json!("exhausted"), &json!(3)), "{row}");
        let attempts = world.attempts(id).await;
        let started: Vec<_> = attempts.iter().map(|attempt| moment(&attempt["started_at"])).collect();
        for (wait, pair) in WAITS.iter().zip(started.windows(2)) {
            let gap = pair[1].since(pair[0]);
            assert!(gap >= Millis(wait * 900), "{gap:?} for {wait} s");
        }
        for attempt in &attempts {
            assert_eq!(attempt["counted"], true);
            assert_eq!(
                (&attempt["error"], &attempt["reason"], &attempt["detail"], &attempt["rule"]),
                (
                    &json!("egress_denied"),
                    &json!("address-not-allowed"),
                    &json!("address not allowed"),
                    &json!("egress-denied")
                )
            );
            // Nothing of the inside is told (rule S10), and nothing was connected.
            assert!(!attempt.to_string().contains("10.0.0.5"), "{attempt}");
            assert_eq!(attempt.get("address"), None);
            assert_eq!(attempt["timings"].get("connect_us"), None);
        }
    }
    let explained = world.get(&format!("/v1/explain/{}", ids[0])).await.ok(200);
    assert!(explained.to_string().contains("is not allowed"), "{explained}");
    assert_eq!((hook.count(), hook.connections()), (1, 1));

    // All died within one window of the teller, which begins here.
    let mut service = Hook::scripted(vec![answer(202, "", "")]).await;
    let channel = Channel::Service { url: service.url("/messages"), key: None };
    let store = world.store();
    let (handle, client, clock) = (store.handle().clone(), store.client().clone(), store.clock().clone());
    let teller = tokio::spawn(Teller::new(handle, client, clock, channel, Millis(0)).run());
    let message: Value = serde_json::from_slice(service.next().await.body()).expect("JSON");
    assert_eq!((&message["endpoint_id"], &message["count"]), (&json!(endpoint), &json!(EVENTS)));
    assert!(!message.to_string().contains("10.0.0.5"), "{message}");
    while !world.store().handle().view().owed(None, 1).expect("rows").is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(service.count(), 1);
    teller.abort();
    // It leads outside again: what is replayed arrives, with the endpoint's next probe.
    names.anew(&["127.0.0.1"]);
    world.post("/v1/events/e000/replay", json!({})).await.ok(202);
    world.advance_secs(31).await;
    world.until(&ids[0], "delivered").await;
    world.always_true(&mut [&mut hook]).await;
}

/// Rule S16: accounts have a limit of endpoints, and one receiver gets no more at a time than its cap, however many
/// accounts' endpoints lead there. Another receiver's are in nobody's way.
#[tokio::test(flavor = "multi_thread")]
async fn s16_no_account_and_no_number_of_them_floods_a_receiver() {
    let policy = ServerPolicy { endpoints_max: 2, target_in_flight_max: Some(2), ..ServerPolicy::default() };
    let world = World::with(Setup { policy, ..Setup::default() });
    let mut crowded = Hook::scripted(vec![vec![Step::Hold], vec![Step::Hold], answer(200, "", "ok")]).await;
    let mut other = Hook::scripted(vec![answer(200, "", "ok")]).await;
    let mut ids = Vec::new();
    for n in 0..4 {
        let account = world.account().await;
        world.endpoint_of(&account, &crowded.url(&format!("/{n}")), json!({ "timeout_ms": 1000 })).await;
        ids.push(delivery(&world.event(&account, &format!("e{n}"), "1").await));
        world.endpoint(&account, &other.url("/")).await;
        let third = json!({ "account_id": account, "url": other.url("/third") });
        assert_eq!(world.post("/v1/endpoints", third).await.refused(422), ["too-many-endpoints"]);
    }
    crowded.take(2).await;
    world.turn().await;
    assert_eq!(world.get("/v1/status").await.ok(200)["deliveries"]["in_flight"], 2);
    assert_eq!(crowded.count(), 2);
    let account = text(&world.delivery(&ids[0]).await["account_id"]);
    let both = world.event(&account, "both", "1").await;
    assert_eq!(other.next().await.values("webhook-id"), ["both"]);
    // The two time out; the others' turn comes, in the order in which they wait.
    for id in &ids[2..] {
        world.until(id, "delivered").await;
    }
    assert_eq!(both["deliveries"].as_array().map(Vec::len), Some(2));
    // One that timed out has let both of them through; the second one may still be out.
    for id in &ids[..2] {
        world.until_tried(id, 1).await;
    }
    world.advance_secs(66).await;
    world.until(&ids[0], "delivered").await;
    world.until(&ids[1], "delivered").await;
    world.always_true(&mut [&mut crowded, &mut other]).await;
}

/// A name server that says nothing good at first, then an address.
struct Recovering(Mutex<Vec<io::Result<Vec<IpAddr>>>>);

impl Lookup for Recovering {
    fn lookup(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let next = self.0.lock().expect("no panic").pop();
        Box::pin(async move { next.unwrap_or_else(|| Ok(vec![[127, 0, 0, 1].into()])) })
    }
}

/// A name that is not there, cannot be said, is not said in time, or has no address, costs one try and its wait.
#[tokio::test(flavor = "multi_thread")]
async fn c55_whatever_a_name_server_says_is_tried_again() {
    for (says, reason) in [
        (Err(io::ErrorKind::NotFound.into()), "no-such-name"),
        (Err(io::ErrorKind::TimedOut.into()), "name-server-silent"),
        (Err(io::Error::other("SERVFAIL")), "name-server-failed"),
        (Ok(Vec::new()), "no-address"),
    ] {
        let mut hook = Hook::scripted(vec![answer(200, "", "ok")]).await;
        let names: Arc<dyn Lookup> = Arc::new(Recovering(Mutex::new(vec![says])));
        let mut setup = Setup { names: Some(names), ..Setup::default() };
        setup.guard.ports.push(hook.port());
        let world = World::with(setup);
        let account = world.account().await;
        world.endpoint(&account, &format!("http://{NAME}:{}/h", hook.port())).await;
        let id = delivery(&world.event(&account, "e1", "1").await);
        let row = world.until_tried(&id, 1).await;
        assert_eq!(row["status"], "pending", "{reason}");
        let first = &world.attempts(&id).await[0];
        assert_eq!((&first["error"], &first["reason"]), (&json!("dns"), &json!(reason)));
        world.advance_secs(67).await;
        assert_eq!(world.until(&id, "delivered").await["attempts"], 2);
        world.always_true(&mut [&mut hook]).await;
    }
}

/// The URLs were stored when loopback was allowed; it is not any more. What is stored is judged again.
#[tokio::test(flavor = "multi_thread")]
async fn c59_an_address_in_stored_state_is_judged_when_it_is_called() {
    let mut world = World::new().await;
    let hook = Hook::scripted(vec![answer(200, "", "ok")]).await;
    let account = world.account().await;
    for host in ["127.0.0.1", "localhost", "[::1]", "127.9.8.7", "[::ffff:127.0.0.1]"] {
        world.endpoint(&account, &format!("http://{host}:{}/", hook.port())).await;
    }
    world.stop().await;
    world.resume_with(Policy { allow_http: true, ..Policy::default() });
    let event = world.event(&account, "e1", "1").await;
    assert_eq!(deliveries(&event).len(), 5);
    for id in deliveries(&event) {
        let row = world.until_tried(&id, 1).await;
        assert_eq!(row["status"], "pending", "a try like any other: {row}");
        let refused = &world.attempts(&id).await[0];
        assert_eq!(
            (&refused["error"], &refused["detail"]),
            (&json!("egress_denied"), &json!("address not allowed"))
        );
    }
    assert_eq!(hook.connections(), 0);
    world.always_true(&mut []).await;
}
