//! The first visit: signing in, the three commands that the page names, the first delivery; then any id to its page.
//! And what a page weighs.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::chromium::{Browser, ENTER, Scripts};
use crate::stage::Stage;
use crate::support::receiver::{Receiver, answer};
use crate::support::server::{Host, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_first_visit_ends_with_a_first_delivery() {
    first_visit(Scripts::On).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_visit_without_scripts() {
    first_visit(Scripts::Off).await;
}

/// What the page says is to be typed is typed as it stands there, but for the ids and the receiver.
async fn first_visit(scripts: Scripts) {
    let folder = tempfile::tempdir().expect("a folder");
    let receiver = Receiver::scripted(vec![answer(200, "", "ok")]).await;
    let host = Host::new(folder.path()).closed();
    let server = host.start().await;
    let made = host.on_store(&["keys", "create", "--role", "operator", "--json"]).await;
    let made: Value = serde_json::from_str(&made.out).unwrap_or_else(|_| panic!("{made:?}"));
    let key = text(&made["key"]);

    let browser = Browser::open(&format!("http://{}", server.address), scripts).await;
    browser.go("/deliveries").await;
    assert_eq!(browser.path().await, "/sign-in?next=%2Fdeliveries");
    browser.fill("#key", "hl_op_wrong").await;
    browser.press("Sign in").await;
    browser.says("not one that is taken here").await;
    browser.fill("#key", &key).await;
    browser.press("Sign in").await;
    browser.says("No deliveries yet").await;
    assert_eq!(browser.path().await, "/deliveries");
    browser.click("nav a[href='/']").await;
    browser.says("Nothing was sent yet").await;

    let lines = browser
        .eval("return [...document.querySelectorAll('.steps code')].map((c) => c.textContent)", json!([]));
    let lines: Vec<String> = serde_json::from_value(lines.await).expect("texts");
    assert_eq!(lines.len(), 3, "{lines:?}");
    let mut account = String::new();
    for line in &lines {
        let line =
            line.replace("acct_…", &account).replace("https://example.com/hooks", &receiver.url("/in"));
        let line = if line.starts_with("hooklog accounts") { format!("{line} --json") } else { line };
        let ran = host.shell(&format!("{line} --store \"$STORE\"")).await;
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        if account.is_empty() {
            let made: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
            account = text(&made["id"]);
        }
    }

    if scripts == Scripts::Off {
        browser.go("/").await;
    }
    browser.says("payment.settled").await;
    browser.says("delivered").await;
    browser.click("a.row[href^='/deliveries/']").await;
    browser.says("Yes. payment.settled was delivered to 127.0.0.1").await;
    browser.press("Sign out").await;
    browser.says("Sign in").await;
    browser.go("/").await;
    assert_eq!(browser.path().await, "/sign-in");
    browser.was_quiet().await;
    browser.quit().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_id_leads_to_its_page() {
    let stage = Stage::new().await;
    stage.endpoint(&stage.account, "hooks.acme.example.com", &["payment.*"]).await;
    let (event, delivery) = stage.sent("payment.settled", json!({ "id": "INV-2041_a" }), "delivered").await;
    let attempt = text(&stage.world.attempts(&delivery).await[0]["id"]);
    let mut endpoints = stage.world.get(&format!("/v1/endpoints?account_id={}", stage.account)).await.ok(200);
    let endpoint = text(&endpoints["data"][0]["id"].take());
    for scripts in [Scripts::On, Scripts::Off] {
        let browser = Browser::open(&stage.origin, scripts).await;
        browser.go("/").await;
        for (id, says) in [
            (&*event, "Yes. payment.settled was delivered"),
            (&*delivery, "Yes. payment.settled was delivered"),
            (&*attempt, "Yes. payment.settled was delivered"),
            (&*endpoint, "hooks.acme.example.com"),
            (&*stage.account, "Acme Payments"),
            ("evt_never", "Nothing is known by this id"),
        ] {
            browser.click("#q").await;
            browser.fill("#q", id).await;
            if id == event {
                browser.keys(&[ENTER]).await
            } else {
                browser.press("Find").await
            }
            browser.says(says).await;
        }
        browser.was_quiet().await;
        browser.quit().await;
    }
    stage.end().await;
}

fn gzip(bytes: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("into memory");
    encoder.finish().expect("into memory").len()
}

/// As the browser got them: the document of fifty rows, and all scripts that it runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_fifty_rows_is_light() {
    let stage = Stage::new().await;
    stage.endpoint(&stage.account, "hooks.acme.example.com", &["payment.*"]).await;
    let events = (0..60).map(|n| {
        json!({ "account_id": stage.account, "type": "payment.settled",
        "id": format!("evt_{n}"), "data": n, "deliver_at": "2026-12-01T08:00:00Z" })
    });
    let events = events.collect::<Vec<_>>();
    stage.does("/v1/events/batch", json!({ "events": events })).await;
    let browser = Browser::open(&stage.origin, Scripts::On).await;
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    for (path, rows) in [("/deliveries", 50), ("/", 20)] {
        browser.go(path).await;
        assert_eq!(browser.count("a.row").await, rows, "{path}");
        let page = browser.eval("return document.documentElement.outerHTML", json!([])).await;
        let html = gzip(page.as_str().expect("a text").as_bytes());
        assert!(html <= 60 * 1024, "{path}: {html} bytes");
    }
    let mut scripts = 0;
    let mut asked = browser.asked().await;
    asked.sort();
    asked.dedup();
    for url in asked.iter().filter(|url| url.ends_with(".js")) {
        let file = client.get(url).send().await.expect("an answer").bytes().await.expect("a file");
        scripts += gzip(&file);
    }
    assert!((1..=20 * 1024).contains(&scripts), "{scripts} bytes of scripts");
    browser.quit().await;
    stage.end().await;
}
