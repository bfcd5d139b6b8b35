//! Sending again: one, and a thousand at once, called off at half and gone on with. What the receiver got is what
//! counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::chromium::{Browser, PATIENCE, Scripts, eventually};
use crate::support::receiver::{Receiver, answer};
use crate::support::server::{Host, text};

const MANY: usize = 1_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_are_sent_again_called_off_at_half_and_gone_on_with() {
    bulk(Scripts::On).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_are_sent_again_without_scripts() {
    bulk(Scripts::Off).await;
}

async fn bulk(scripts: Scripts) {
    let mended = Arc::new(AtomicBool::new(false));
    let told = mended.clone();
    let mut receiver = Receiver::answering(move |_| {
        if told.load(Ordering::SeqCst) { answer(200, "", "") } else { answer(404, "", "no such hook") }
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let server = Host::new(folder.path()).start().await;
    let (account, _) = server.api.account().await;
    server.api.endpoint(&account, &receiver.url("/in"), json!({ "in_flight_max": 100 })).await;
    for batch in 0..2 {
        let events: Vec<_> = (0..MANY / 2)
            .map(|n| json!({ "account_id": account, "id": format!("evt_{batch}_{n}"), "type": "payment.settled", "data": n }))
            .collect();
        server.api.post("/v1/events/batch", json!({ "events": events })).await;
    }
    assert_eq!(server.api.settled(2 * PATIENCE).await["dead"], MANY);
    receiver.so_far();
    mended.store(true, Ordering::SeqCst);

    let browser = Browser::open(&format!("http://{}", server.address), scripts).await;
    // One of them first, from its own page.
    browser.go("/deliveries?status=dead").await;
    browser.click("a.row").await;
    browser.says("No. Attempt 1 of 6 failed").await;
    browser.press("Replay…").await;
    browser.press("Replay").await;
    browser.says("It was replayed: a new run began").await;
    server.api.settled(PATIENCE).await;
    browser.go(browser.path().await.split('?').next().expect("a path")).await;
    browser.says("Yes. payment.settled was delivered").await;

    // The rest of them, by the plan.
    begin(&browser, MANY - 1, Some("100")).await;
    let id = browser.path().await;
    let id = id.trim_start_matches("/replays/").split('?').next().expect("an id").to_owned();
    let replay = async || server.api.get(&format!("/v1/replays/{id}?account_id={account}")).await;
    let half = (MANY - 1).div_ceil(2) as u64;
    eventually("half of them are begun", PATIENCE, async || {
        (replay().await["replayed"].as_u64()? >= half).then_some(())
    })
    .await;
    browser.press("Look again").await;
    browser.press("Call it off").await;
    browser.says("cancelled").await;
    server.api.settled(PATIENCE).await;
    let called_off = replay().await;
    assert_eq!(called_off["state"], "cancelled");
    let sent = called_off["replayed"].as_u64().expect("a number");
    assert!((half..MANY as u64 - 1).contains(&sent), "{called_off}");
    assert_eq!(called_off["delivered"], sent, "what was begun goes on to its end");

    // What is left is gone on with: again by the plan, which knows what it is.
    begin(&browser, MANY - 1 - sent as usize, None).await;
    let done = server.api.settled(2 * PATIENCE).await;
    eventually("all arrived", 2 * PATIENCE, async || {
        (server.api.figures().await["delivered"] == MANY).then_some(())
    })
    .await;
    assert_eq!(done["enqueued"], MANY);
    browser.go("/dead").await;
    browser.says("Nothing that was given up waits for a decision").await;
    browser.go("/replays").await;
    assert_eq!(browser.count("a.row").await, 2);
    browser.was_quiet().await;
    browser.quit().await;

    // Each once more, under the same id, and marked as what it is.
    let mut got: HashMap<String, u32> = HashMap::new();
    for request in receiver.so_far() {
        assert_eq!(request.values("webhook-replay"), ["2"]);
        *got.entry(request.values("webhook-id")[0].to_owned()).or_default() += 1;
    }
    assert_eq!((got.len(), got.values().max()), (MANY, Some(&1)));
    server.stop().await;
}

/// From the dead letters by their plan to a replay that runs.
async fn begin(browser: &Browser, count: usize, rate: Option<&str>) {
    browser.go("/dead").await;
    browser.press("Replay group…").await;
    browser.says("nothing is sent yet").await;
    if let Some(rate) = rate {
        browser.fill("input[name=rate_per_second]", rate).await;
    } else {
        browser.fill("input[name=rate_per_second]", "5000").await;
    }
    browser.fill("input[name=reason]", "their server is back").await;
    browser.press(&format!("Send {count} again")).await;
    browser.says(&format!("of {count} begun")).await;
    let value: Value = browser.eval("return location.pathname", json!([])).await;
    assert!(text(&value).starts_with("/replays/rpl_"), "{value}");
}
