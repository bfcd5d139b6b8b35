//! Replays and dead letters by the program itself: what an operator types, and what scripts pipe.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use support::receiver::{Receiver, answer};
use support::server::{Ended, Host, Server};

const LIMIT: Duration = Duration::from_secs(60);

struct Scene {
    _folder: tempfile::TempDir,
    host: Host,
    server: Server,
    account: String,
    endpoint: String,
    status: Arc<AtomicU16>,
    _hook: Receiver,
}

impl Scene {
    /// A server with so many dead deliveries.
    async fn new(dead: usize) -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        let status = Arc::new(AtomicU16::new(404));
        let told = status.clone();
        let hook = Receiver::answering(move |_| answer(told.load(Ordering::SeqCst), "", "")).await;
        let host = Host::new(folder.path());
        let server = host.start().await;
        let (account, _) = server.api.account().await;
        let (endpoint, _) = server.api.endpoint(&account, &hook.url("/in"), json!({})).await;
        for n in 0..dead {
            server.api.event(&account, &format!("evt_{n}"), "{}").await.expect("an answer").good();
        }
        server.api.settled(LIMIT).await;
        Scene { _folder: folder, host, server, account, endpoint, status, _hook: hook }
    }

    async fn hooklog(&self, args: &[&str]) -> Ended {
        self.host.on_store(args).await
    }

    async fn figure(&self, name: &str) -> Value {
        self.server.api.settled(LIMIT).await[name].clone()
    }
}

#[track_caller]
fn good(ended: Ended) -> String {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.out
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_shows_its_plan_asks_and_is_followed() {
    let scene = Scene::new(12).await;
    let plan = good(scene.hooklog(&["replay", "--status", "dead", "--dry-run"]).await);
    assert!(plan.contains("12 to send again") && plan.contains(&scene.endpoint), "{plan}");
    assert!(plan.contains("at 50 a second"), "{plan}");
    let plan = good(scene.hooklog(&["replay", "--status", "dead", "--dry-run", "--json"]).await);
    let plan: Value = serde_json::from_str(&plan).expect("JSON");
    assert_eq!((&plan["planned"], &plan["dry_run"]), (&json!(12), &json!(true)));
    // Nobody is there to be asked: what is missing is named.
    let silent = scene.hooklog(&["replay", "--status", "dead", "--yes", "--no-input"]).await;
    assert_eq!(silent.code, Some(2), "{silent:?}");
    assert!(silent.err.contains("--reason"), "{silent:?}");
    let silent = scene.hooklog(&["replay", "--status", "dead", "--reason", "mended"]).await;
    assert_eq!(silent.code, Some(2), "{silent:?}");
    assert!(silent.err.contains("--yes"), "{silent:?}");
    let none = scene.hooklog(&["replay", "--status", "dead", "--since", "2030-01-01T00:00:00Z"]).await;
    assert!(good(none).contains("Nothing would be sent again"));
    assert_eq!(scene.figure("dead").await, 12, "nothing was sent");

    scene.status.store(200, Ordering::SeqCst);
    let (endpoint, mended) =
        (scene.endpoint.as_str(), ["--reason", "mended", "--yes", "--follow", "--rate", "1000/s"]);
    let sent =
        [&["replay", "--status", "dead", "--endpoint", endpoint, "--http", "4xx"][..], &mended].concat();
    let sent = good(scene.hooklog(&sent).await);
    assert!(sent.contains("ended: 12 of 12 sent again"), "{sent}");
    assert_eq!(scene.figure("delivered").await, 12);
    let again = [
        "replay",
        "--status",
        "delivered",
        "--account",
        &scene.account,
        "--reason",
        "lost",
        "--yes",
        "--json",
    ];
    let again: Value = serde_json::from_str(&good(scene.hooklog(&again).await)).expect("JSON");
    assert_eq!(again["state"], "running", "{again}");
    let wrong = scene.hooklog(&["replay", "--status", "dead", "evt_1"]).await;
    assert_eq!(wrong.code, Some(2), "ids and a choice: {wrong:?}");
    let none = scene.hooklog(&["replay"]).await;
    assert_eq!(none.code, Some(0), "no ids came in: {none:?}");
    scene.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_listed_as_dead_is_piped_into_retry() {
    let scene = Scene::new(5).await;
    let groups = good(scene.hooklog(&["dead", "group", "--json"]).await);
    let groups: Value = serde_json::from_str(&groups).expect("JSON");
    assert_eq!((&groups[0]["count"], &groups[0]["reason"]), (&json!(5), &json!("refused")), "{groups}");
    assert_eq!(groups.as_array().map(Vec::len), Some(1), "{groups}");
    let table = good(scene.hooklog(&["dead", "group", "--account", &scene.account]).await);
    assert!(table.contains("5      refused  payment.settled"), "{table}");
    let lines = good(scene.hooklog(&["dead", "export", "--endpoint", &scene.endpoint]).await);
    assert_eq!(lines.lines().count(), 5, "{lines}");
    let line: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&line["last_error"], &line["payload"]["data"]), (&json!("HTTP 404"), &json!({})), "{line}");
    let listed = good(scene.hooklog(&["dead", "list", "--limit", "2"]).await);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    scene.status.store(200, Ordering::SeqCst);
    let pipe = r#"hooklog list --store "$STORE" --state dead --format jsonl | grep -o '"id":"dlv_[0-9A-Z]*"' |
        cut -d'"' -f4 | hooklog retry --store "$STORE" --reason mended"#;
    let piped = good(scene.host.shell(pipe).await);
    assert_eq!(piped.matches("replayed:").count(), 5, "{piped}");
    let none = scene.hooklog(&["dead", "group"]).await;
    assert!(none.err.contains("nothing is dead") && good(none).is_empty());
    assert_eq!(scene.figure("delivered").await, 5);
    scene.server.stop().await;
}
