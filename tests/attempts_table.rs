//! A table of retries of one's own, moved over and written out again: what waits goes on, what is dead can be replayed,
//! and the brief's own check of the table holds for what is written.

#[path = "support/receiver.rs"]
mod receiver;
#[path = "support/server.rs"]
mod server;

use std::time::Duration;

use receiver::{Receiver, answer};
use serde_json::{Value, json};
use server::{Host, eventually, text};

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn pending_and_dead_rows_are_moved_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = Host::new(folder.path());
    let server = host.start().await;
    let (account, _) = server.api.account().await;
    let mut shop = Receiver::scripted(vec![answer(200, "", "")]).await;
    server.api.endpoint(&account, &shop.url("/hooks"), json!({})).await;
    let row = |id: u64, event: &str, attempt: u32, status: &str, due_at: &str| {
        let head = format!(r#"{{"id":{id},"event_id":{event},"attempt":{attempt},"status":"{status}""#);
        let tail =
            format!(r#""due_at":"{due_at}","response_code":503,"created_at":"2026-01-01T00:00:00+00:00""#);
        format!(r#"{head},{tail},"account_id":"{account}","type":"payment.settled","data":{{"n" : {id}}}}}"#)
    };
    let lines = [
        row(1, "\"waits\"", 4, "failed", "2026-01-01T00:00:00+00:00"),
        row(2, "\"waits\"", 4, "pending", "2099-01-01T00:00:00+00:00"),
        row(3, "17", 5, "dead", "2026-01-01T00:00:00+00:00"),
        row(4, "\"over\"", 1, "pending", "2026-01-01T00:00:00+00:00"),
        row(5, "\"over\"", 1, "delivered", "2026-01-01T00:00:00+00:00"),
        String::new(),
        row(6, "\"odd\"", 1, "asleep", "2026-01-01T00:00:00+00:00"),
        row(7, "\"late\"", 0, "pending", "2026-01-01T00:00:00.123456+02:00"),
        "{".into(),
    ];
    let mut lines = lines.join("\n");
    // 2099 is further ahead than anything may be put off: that one line is told, and the others are moved.
    let file = folder.path().join("attempts.jsonl");
    std::fs::write(&file, &lines).expect("a file");
    let import = ["import", "delivery-attempts", file.to_str().expect("text"), "--json"];
    let moved = host.on_store(&import).await;
    let sum: Value = serde_json::from_str(&moved.out).unwrap_or_else(|error| panic!("{error}: {moved:?}"));
    assert_eq!(
        sum,
        json!({ "pending": 1, "dead": 1, "moved_before": 0, "over": 1, "refused": 3 }),
        "{moved:?}"
    );
    assert_eq!(moved.code, Some(1));
    for told in ["line 2:", "366 days", "line 7: `asleep`", "line 9:"] {
        assert!(moved.err.contains(told), "{told}: {moved:?}");
    }

    // With a moment that can be kept, and again: what was moved stays as it is.
    let soon = host.shell("date -u -d tomorrow +%Y-%m-%dT%H:%M:%SZ").await;
    lines = lines.replace("2099-01-01T00:00:00+00:00", soon.out.trim());
    std::fs::write(&file, &lines).expect("a file");
    let again = host.on_store(&import).await;
    let sum: Value = serde_json::from_str(&again.out).expect("JSON");
    assert_eq!(
        sum,
        json!({ "pending": 1, "dead": 0, "moved_before": 2, "over": 1, "refused": 2 }),
        "{again:?}"
    );

    let sent = shop.next().await;
    let body = String::from_utf8(sent.body().to_vec()).expect("text");
    assert_eq!(body, r#"{"id":"late","type":"payment.settled","data":{"n" : 7}}"#, "as it stood");
    let event = async |id: &str| server.api.get(&format!("/v1/events/{id}?account_id={account}")).await;
    let waits = event("waits").await;
    assert_eq!(
        (&waits["deliveries"][0]["status"], &waits["deliveries"][0]["tries"]),
        (&json!("pending"), &json!(2))
    );
    let dead = event("17").await;
    assert_eq!(dead["deliveries"][0]["dead_reason"], "imported", "{dead}");
    assert!(dead["explanation"].to_string().contains("given up elsewhere before it came here"), "{dead}");
    let groups = server.api.get(&format!("/v1/dead?account_id={account}&reason=imported")).await;
    assert_eq!(groups["dead"], 1, "{groups}");
    assert!(shop.so_far().is_empty(), "what is dead is not sent by itself");

    // A person may still have it sent.
    server
        .api
        .post(&format!("/v1/events/17/replay?account_id={account}"), json!({ "reason": "asked for" }))
        .await;
    let replayed = shop.next().await;
    assert_eq!(replayed.values("webhook-id"), ["17"]);
    eventually("it is delivered", LIMIT, async || {
        (event("17").await["deliveries"][0]["status"] == "delivered").then_some(())
    })
    .await;
    host.verify().await;
    server.stop().await;
    host.verify().await;
}

/// The brief: an endpoint that fails twice, then succeeds: three rows, the last of them `delivered`.
#[tokio::test(flavor = "multi_thread")]
async fn attempts_are_written_out_row_by_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = Host::new(folder.path()).with("--schedule", "1m,1m,12h").with("--wait-divisor", "10000");
    let server = host.start().await;
    let (account, _) = server.api.account().await;
    let shop = Receiver::scripted(vec![answer(500, "", ""), answer(503, "", ""), answer(200, "", "")]).await;
    let (endpoint, _) = server.api.endpoint(&account, &shop.url("/hooks"), json!({})).await;
    server.api.event(&account, "evt-1", "1").await.expect("an answer").good();
    server.api.settled(LIMIT).await;
    // One that will be tried, one that is refused for good, one that never went anywhere.
    let refusing = Receiver::scripted(vec![answer(404, "", "")]).await;
    let (other, _) =
        server.api.endpoint(&account, &refusing.url("/hooks"), json!({ "event_types": ["a.b"] })).await;
    let send = async |body: Value| server.api.post("/v1/events", body).await;
    send(json!({ "account_id": account, "id": "evt-2", "type": "a.b", "data": 2, "endpoint_id": other }))
        .await;
    server.api.settled(LIMIT).await;
    let gone = json!({ "account_id": account, "id": "evt-3", "type": "a.b", "data": 3, "endpoint_id": other, "given_up": true });
    send(gone).await;
    server.api.post(&format!("/v1/endpoints/{endpoint}/pause"), json!({})).await;
    send(json!({ "account_id": account, "id": "evt-4", "type": "a.b", "data": 4, "endpoint_id": endpoint }))
        .await;

    let written = host.on_store(&["export", "delivery-attempts", "--format", "jsonl"]).await;
    assert_eq!(written.code, Some(0), "{written:?}");
    let rows: Vec<Value> =
        written.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |id: &str| -> Vec<(u64, String, Value)> {
        let of = rows.iter().filter(|row| row["event_id"] == id);
        of.map(|row| {
            (row["attempt"].as_u64().expect("a number"), text(&row["status"]), row["response_code"].clone())
        })
        .collect()
    };
    let row = |attempt: u64, status: &str, code: Value| (attempt, status.to_owned(), code);
    assert_eq!(
        of("evt-1"),
        [row(1, "failed", json!(500)), row(2, "failed", json!(503)), row(3, "delivered", json!(200))]
    );
    assert_eq!(of("evt-2"), [row(1, "dead", json!(404))]);
    assert_eq!(of("evt-3"), [row(0, "dead", Value::Null)]);
    assert_eq!(of("evt-4"), [row(1, "pending", Value::Null)]);
    let ids: std::collections::BTreeSet<String> = rows.iter().map(|row| text(&row["id"])).collect();
    assert_eq!(ids.len(), rows.len(), "ids are unique");

    let written = host.on_store(&["export", "delivery-attempts", "--account", &account]).await;
    let mut lines = written.out.lines();
    assert_eq!(lines.next(), Some("id,event_id,attempt,status,due_at,response_code,created_at"));
    assert_eq!(lines.count(), rows.len());
    server.stop().await;
}
