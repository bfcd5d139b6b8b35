//! Answers as of an earlier moment, against the answers that were given at that moment: a store is asked at every
//! turn of a delivery's life, and asked again at the end how it stood then.

#[path = "support/receiver.rs"]
mod receiver;
#[path = "support/server.rs"]
mod server;

use std::time::Duration;

use hyper::Method;
use receiver::{Receiver, answer};
use serde_json::{Value, json};
use server::{Host, Server, eventually, text};

const LONG: Duration = Duration::from_secs(60);

/// What is asked at each turn.
struct Asked {
    turn: &'static str,
    at: String,
    explained: Value,
    attempts: usize,
}

struct World {
    server: Server,
    event: String,
    delivery: String,
    asked: Vec<Asked>,
}

impl World {
    /// Asks now, and lets the clock go on: what follows is of a later millisecond.
    async fn turn(&mut self, turn: &'static str) {
        let explained = self.server.api.get(&format!("/v1/explain/{}", self.event)).await;
        let attempts = self.server.api.attempts(&self.delivery).await.len();
        let at = jiff::Timestamp::now();
        eventually("the clock goes on", LONG, async || {
            (jiff::Timestamp::now().as_millisecond() > at.as_millisecond()).then_some(())
        })
        .await;
        self.asked.push(Asked { turn, at: format!("{at:.3}"), explained, attempts });
    }

    async fn until(&self, status: &str) {
        let path = format!("/v1/deliveries/{}", self.delivery);
        eventually(status, LONG, async || {
            (self.server.api.get(&path).await["status"] == status).then_some(())
        })
        .await;
    }

    async fn post(&self, path: &str, body: Value) {
        self.server.api.post(path, body).await;
    }
}

/// A sentence without what depends on the very second of the question.
fn without_times(sentence: &str) -> String {
    let mut out = String::new();
    let mut inside = 0;
    for c in sentence.chars() {
        match c {
            '(' => inside += 1,
            ')' => inside -= 1,
            c if inside > 0 || (c.is_ascii_digit() && out.ends_with('#')) => {}
            c if c.is_ascii_digit() => out.push('#'),
            c => out.push(c),
        }
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn how_it_stood_is_what_was_said_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = Host::new(folder.path());
    let server = host.start().await;
    let (account, _) = server.api.account().await;
    let customer = Receiver::scripted(vec![
        answer(503, "retry-after: 3600\r\n", ""),
        answer(404, "", ""),
        answer(200, "", ""),
    ])
    .await;
    let settings = json!({ "schedule": { "waits": ["1h", "2h"], "jitter_percent": 0 } });
    let (endpoint, _) = server.api.endpoint(&account, &customer.url("/"), settings).await;
    let before = format!("{:.3}", jiff::Timestamp::now() - jiff::SignedDuration::from_secs(1));
    let sent = server.api.event(&account, "evt_story", "{}").await.expect("an answer").good();
    let delivery = text(&sent["deliveries"][0]["id"]);
    let event = text(&sent["id"]);
    let mut world = World { server, event: event.clone(), delivery: delivery.clone(), asked: Vec::new() };
    world.until("pending").await;
    world.turn("gated").await;
    let endpoint = format!("/v1/endpoints/{endpoint}");
    world.post(&format!("{endpoint}/pause"), json!({ "reason": "their deploy" })).await;
    world.turn("paused").await;
    world.post(&format!("{endpoint}/resume"), json!({})).await;
    world.turn("resumed").await;
    let change = json!({ "schedule": { "waits": ["1h"], "jitter_percent": 0 } }).to_string();
    let changed = world.server.api.call(Method::PATCH, &endpoint, Some(("application/json", change.into())));
    assert_eq!(changed.await.expect("an answer").status, 200);
    world.turn("changed").await;
    world.post(&format!("/v1/deliveries/{delivery}/retry-now"), json!({})).await;
    world.until("dead").await;
    world.turn("dead").await;
    world.post(&format!("/v1/events/{event}/replay"), json!({ "reason": "they mended it" })).await;
    world.until("delivered").await;
    world.turn("delivered").await;

    let statuses: Vec<_> =
        world.asked.iter().map(|asked| text(&asked.explained["deliveries"][0]["status"])).collect();
    assert_eq!(statuses, ["pending", "pending", "pending", "pending", "dead", "delivered"]);
    // Again over a rebuild: what was is in the log, not in the views' past.
    for round in ["live", "rebuilt"] {
        for Asked { turn, at, explained, attempts } in &world.asked {
            let query = format!("at={at}");
            let then = world.server.api.get(&format!("/v1/explain/{event}?{query}")).await;
            assert_eq!(then["as_of"], *at);
            let sentence = |value: &Value| without_times(value["sentence"].as_str().expect("a sentence"));
            assert_eq!(sentence(&then), sentence(explained), "{round}, {turn}");
            let (was, is) = (&then["deliveries"][0], &explained["deliveries"][0]);
            for member in [
                "status",
                "held_by",
                "due_at",
                "run",
                "try",
                "tries",
                "attempts",
                "updated_at",
                "last_attempt",
                "last_error",
                "dead_reason",
            ] {
                assert_eq!(was[member], is[member], "{round}, {turn}: {member}");
            }
            let reasons = |value: &Value| -> Vec<String> {
                let all = value["reasons"].as_array().expect("a list").iter().map(text);
                let known = |reason: &String| {
                    !reason.contains(" wait for ")
                        && !reason.contains(" waits for ")
                        && !reason.starts_with("So it")
                };
                all.filter(known).map(|reason| without_times(&reason)).collect()
            };
            assert_eq!(reasons(&then), reasons(explained), "{round}, {turn}");
            let of_delivery = world.server.api.get(&format!("/v1/deliveries/{delivery}?{query}")).await;
            assert_eq!(
                (&of_delivery["status"], sentence(&of_delivery["explanation"])),
                (&was["status"], sentence(&then))
            );
            let of_event = world.server.api.get(&format!("/v1/events/{event}?{query}")).await;
            assert_eq!(of_event["explanation"], of_delivery["explanation"]);
            let then = world.server.api.get(&format!("/v1/deliveries/{delivery}/attempts?{query}")).await;
            assert_eq!(then["data"].as_array().map(Vec::len), Some(*attempts), "{round}, {turn}");
        }
        assert_eq!(host.on_store(&["store", "rebuild"]).await.code, Some(0));
    }
    host.verify().await;

    // A second that is named without its parts is all of it.
    let whole = |at: &str| format!("{}Z", &at[..19]);
    let of_event = world.server.api.get(&format!("/v1/events/{event}")).await;
    for at in [text(&of_event["accepted_at"]), jiff::Timestamp::now().to_string()] {
        let told = world.server.api.get(&format!("/v1/explain/{event}?at={}", whole(&at))).await;
        assert!(!text(&told["sentence"]).contains("had not been taken in"), "{at}: {told:#}");
    }

    // Before it was there, in time to come, and of what has figures only.
    let early = world.server.api.get(&format!("/v1/explain/{event}?at={before}")).await;
    let sentence = text(&early["sentence"]);
    assert!(sentence.starts_with("Not yet. At ") && sentence.contains("had not been taken in"), "{sentence}");
    assert_eq!(early["deliveries"], json!([]));
    for (path, status) in [
        (format!("/v1/deliveries/{delivery}?at={before}"), 404),
        (format!("/v1/deliveries/{delivery}?at=2001-01-01T00:00:00Z"), 404),
        (format!("/v1/explain/{event}?at=2101-01-01T00:00:00Z"), 400),
        (format!("/v1/explain/{event}?at=yesterday"), 400),
        (format!("/v1/explain/{account}?at={before}"), 400),
    ] {
        let refused = world.server.api.call(Method::GET, &path, None).await.expect("an answer");
        assert_eq!(refused.status, status, "{path}: {refused:?}");
    }

    // The command line says the same.
    let dead = &world.asked[4];
    let said = host.on_store(&["explain", &event, "--at", &dead.at]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("No. ") && said.out.contains("So it stood at "), "{}", said.out);
    assert!(!said.out.contains("HTTP 200"), "the attempt to come is left out: {}", said.out);
    world.server.stop().await;
}
