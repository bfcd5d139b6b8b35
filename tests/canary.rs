//! No credential is kept, logged or told again (rules A2 and A6): one of each is made, used well and badly, and
//! then looked for in the store's folder, in its log, in everything that was logged, and in every answer.

#[path = "support/keyed.rs"]
mod keyed;

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use hooklog_projections::ids::Seq;
use keyed::{LONG, World, text};
use serde_json::{Value, json};

/// Everything that is logged in this process.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no holder panics").write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_credential_is_found_where_it_was_not_given() {
    let logged = Logged::default();
    let writer = logged.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .init();
    let world = World::new().await;
    let account = world.account("A").await;
    let (mut canaries, mut answers) = (Vec::new(), Vec::new());
    for (role, bound) in
        [("operator", false), ("support", false), ("account", true), ("account_read", true), ("ingest", true)]
    {
        let mut wanted = json!({ "role": role, "label": role });
        if bound {
            wanted["account_id"] = json!(account);
        }
        let (id, key) = world.key(wanted).await;
        let rotated = world.locally("POST", &format!("/v1/keys/{id}/rotate"), Value::Null).await.ok(200);
        canaries.extend([key, text(&rotated["key"])]);
    }
    let link = world.link(&account, "account").await;
    let session = world.session(&account, "account").await;
    // Well and badly.
    for key in canaries.iter().chain([&link]) {
        for path in ["/v1/status", "/v1/accounts", "/v1/keys", "/v1/audit", "/nowhere"] {
            answers.push(world.ask("GET", path, Some(key), "").await);
        }
        answers.push(world.ask("GET", &format!("/v1/status?token={key}"), None, "").await);
        answers.push(world.ask("GET", &format!("/v1/accounts?x={key}"), None, "").await);
        answers.push(world.ask("GET", &format!("/v1/events/{key}"), Some(key), "").await);
        let cut = &key[..key.len() - 1];
        answers.push(world.ask("GET", "/v1/status", Some(cut), "").await);
        let basic = Request::get("/v1/status").header("authorization", format!("Basic {key}"));
        answers.push(World::send(&world.app, basic.body(Body::empty()).expect("a request")).await);
    }
    let secret = session.cookie.split_once('=').expect("a value").1.to_owned();
    for method in ["GET", "PATCH", "DELETE"] {
        answers.push(world.browse(&session, method, "/portal/session", &[], "").await);
        answers.push(world.in_session(&session, method, "/v1/accounts", "").await);
    }
    answers.push(world.exchange(&link, &[]).await);
    answers.push(world.exchange(&link, &[]).await);
    answers.push(world.locally("GET", "/v1/keys", Value::Null).await);
    answers.push(world.locally("GET", "/v1/audit", Value::Null).await);
    // The parts that nobody may know; the ids before them are no secrets.
    let part = |key: &String| key[key.len() - 49..key.len() - 6].to_owned();
    let mut canaries: Vec<String> = canaries.iter().chain([&link]).map(part).collect();
    canaries.push(secret);
    assert_eq!(canaries.len(), 12);

    let mut facts = String::new();
    {
        let view = world.store.handle().view();
        for seq in 1..=view.head().0 {
            facts += &format!("{:?}\n", view.entry(Seq(seq)).expect("it can be read"));
        }
    }
    assert!(facts.contains("ApiKeyRotated") && facts.contains("PortalLinkUsed"));
    let World { store, folder, app, local, state, .. } = world;
    drop((app, local, state));
    store.close(LONG).await.expect("in order");
    let said = logged.0.lock().expect("no holder panics").clone();
    assert!(String::from_utf8_lossy(&said).contains("a credential came in an address"), "logs are captured");
    let files = files(folder.path());
    assert!(files.len() > 3, "the store has files");
    for canary in &canaries {
        assert!(!facts.contains(canary.as_str()), "a fact holds it");
        assert!(!contains(&said, canary), "it was logged");
        for (name, bytes) in &files {
            assert!(!contains(bytes, canary), "{name} holds it");
        }
        for answer in &answers {
            assert!(!contains(&answer.body, canary), "{answer:?}");
            // The cookie is set in the answer that begins a session, which is not among these but once.
            let headers = format!("{:?}", answer.headers);
            assert!(!headers.contains(canary.as_str()), "{answer:?}");
        }
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder can be read") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            out.extend(files(&path));
        } else if path.is_file() {
            let mut bytes = std::fs::read(&path).expect("a file can be read");
            // Journals reserve zeroes for what was never written.
            bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1));
            out.push((path.display().to_string(), bytes));
        }
    }
    out
}
