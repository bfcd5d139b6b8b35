//! The customer's entrance: a link opens it once, opening alone does not use it up, and inside an account sees its own
//! and nothing else.

use std::sync::atomic::Ordering;

use serde_json::json;

use crate::access::{look_through, look_through_without_scripts};
use crate::chromium::{Browser, Scripts};
use crate::stage::Stage;
use crate::support::case::text;

#[tokio::test(flavor = "multi_thread")]
async fn a_link_opens_the_portal_once() {
    let stage = Stage::new().await;
    stage.endpoint(&stage.account, "hooks.acme.example.com", &["payment.*"]).await;
    stage.sent("payment.settled", json!({}), "delivered").await;
    let link = stage.link(&stage.account, "account").await;
    let first = Browser::open(&stage.origin, Scripts::On).await;
    // Whatever only opens links, such as a mail's guard, uses nothing up, however often it comes.
    for _ in 0..2 {
        first.go_to("about:blank").await;
        first.go_to(&link).await;
        first.says("You are about to see the webhooks of your account").await;
        assert_eq!(first.path().await, "/portal", "the secret is out of the address");
    }
    first.press("Continue").await;
    first.says("payment.settled").await;
    assert_eq!(first.path().await, "/portal/");

    for scripts in [Scripts::On, Scripts::Off] {
        let second = Browser::open(&stage.origin, scripts).await;
        match scripts {
            Scripts::On => second.go_to(&link).await,
            Scripts::Off => {
                second.go("/portal").await;
                second.fill("#link", &link).await;
            }
        }
        second.press("Continue").await;
        second.says("A link opens these pages once").await;
        assert!(!second.words().await.contains("payment.settled"));
        second.go("/portal/").await;
        assert!(!second.words().await.contains("payment.settled"));
        // Another one does, for who runs no scripts as well.
        stage.enter(&second, &stage.account, "account_read").await;
        second.says("payment.settled").await;
        second.was_quiet().await;
        second.quit().await;
    }

    // Who came in first is still in, until it leaves.
    first.go("/portal/deliveries").await;
    first.says("payment.settled").await;
    first.press("Sign out").await;
    first.says("You are signed out").await;
    first.go("/portal/deliveries").await;
    assert!(!first.words().await.contains("payment.settled"));
    for url in first.asked().await {
        assert!(!url.contains("hl_link_"), "a secret was asked with: {url}");
    }
    first.was_quiet().await;
    first.quit().await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_sends_its_own_again_and_sees_nobody_elses() {
    let stage = Stage::new().await;
    let other = stage.world.account_of(json!({ "name": "Somebody else" })).await;
    stage.endpoint(&other, "hooks.other.example.com", &["secret.*"]).await;
    let theirs = stage.send(&other, "secret.plan", json!({})).await;
    stage.endpoint(&stage.account, "hooks.acme.example.com", &["payment.*"]).await;
    for scripts in [Scripts::On, Scripts::Off] {
        stage.mended.store(false, Ordering::SeqCst);
        let (event, delivery) = stage.sent("payment.fails", json!({ "max_tries": 1 }), "dead").await;
        stage.mended.store(true, Ordering::SeqCst);
        let browser = Browser::open(&stage.origin, scripts).await;
        stage.enter(&browser, &stage.account, "account").await;
        browser.fill("#q", &event).await;
        browser.press("Find").await;
        browser.says("No. ").await;
        browser.press("Replay…").await;
        browser.press("Replay").await;
        browser.says("It was replayed: a new run began").await;
        stage.world.until(&delivery, "delivered").await;
        browser.go(&format!("/portal/events/{event}")).await;
        browser.says("Yes. payment.fails was delivered").await;
        for page in ["/portal/", "/portal/events", "/portal/deliveries", "/portal/dead", "/portal/endpoints"]
        {
            browser.go(page).await;
            let words = browser.words().await;
            assert!(!words.contains("Somebody else") && !words.contains("secret.plan"), "{page}: {words}");
        }
        for theirs in [format!("/portal/events/{}", text(&theirs["id"])), "/portal/events/evt_never".into()] {
            browser.go(&theirs).await;
            assert!(browser.words().await.contains("404"), "{theirs}: {}", browser.words().await);
        }
        // The console is another entrance: this session is none of it.
        let cookies = browser.eval("return document.cookie", json!([])).await;
        assert_eq!(cookies, "", "no script reads the session");
        browser.was_quiet().await;
        browser.quit().await;
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_portal_is_for_everybody() {
    let stage = Stage::new().await;
    let told = stage.every_answer().await;
    let screens = stage.screens_of_portal(&told).await;
    let browser = Browser::open(&stage.origin, Scripts::On).await;
    look_through(&browser, &["/portal".to_owned()]).await;
    stage.enter(&browser, &stage.account, "account").await;
    look_through(&browser, &screens).await;
    look_through_without_scripts(&browser, &screens).await;
    browser.was_quiet().await;
    browser.quit().await;
    stage.end().await;
}
