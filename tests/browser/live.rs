//! What happens while a page is open: a row is there within a second, nothing moves under the hand, and a list only
//! counts what is new.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::chromium::{Browser, PATIENCE, Scripts, TAB, eventually};
use crate::support::receiver::{Receiver, answer};
use crate::support::server::{Host, Server};

/// A server with an account whose receiver takes everything.
async fn running(host: &Host) -> (Server, String) {
    let receiver = Receiver::scripted(vec![answer(200, "", "ok")]).await;
    let server = host.start().await;
    let (account, _) = server.api.account().await;
    server.api.endpoint(&account, &receiver.url("/in"), json!({})).await;
    send(&server, &account, "before.first").await;
    server.api.settled(PATIENCE).await;
    (server, account)
}

async fn send(server: &Server, account: &str, kind: &str) {
    server.api.post("/v1/events", json!({ "account_id": account, "type": kind, "data": 1 })).await;
}

async fn shows(browser: &Browser, words: &str) -> bool {
    let script = "return document.querySelector('#fresh').textContent.includes(arguments[0])";
    browser.eval(script, json!([words])).await == true
}

async fn is_live(browser: &Browser) {
    eventually("the page listens", PATIENCE, async || (browser.text("#live").await == "live").then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_there_within_a_second() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, account) = running(&Host::new(folder.path())).await;
    let browser = Browser::open(&format!("http://{}", server.address), Scripts::On).await;
    browser.go("/").await;
    // Nobody is in the part that is made anew.
    browser.point(20, 700).await;
    is_live(&browser).await;
    let mut took = Vec::new();
    for n in 0..5 {
        let kind = format!("live.n{n}");
        send(&server, &account, &kind).await;
        let begun = Instant::now();
        eventually(&kind, PATIENCE, async || shows(&browser, &kind).await.then_some(())).await;
        took.push(begun.elapsed());
    }
    took.sort();
    assert!(took[2] <= Duration::from_secs(1), "{took:?}");
    assert_eq!(browser.count("#fresh").await, 1);
    browser.was_quiet().await;
    browser.quit().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_moves_under_the_hand() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, account) = running(&Host::new(folder.path())).await;
    let browser = Browser::open(&format!("http://{}", server.address), Scripts::On).await;
    browser.go("/").await;
    browser.point(20, 700).await;
    is_live(&browser).await;
    // With the focus on a row, it stays there while others come; once it is gone, they are shown.
    browser
        .eval(
            "document.querySelector('#fresh a.row').focus(); document.querySelector('#fresh').was = 1",
            json!([]),
        )
        .await;
    let before = browser.heard().await;
    send(&server, &account, "live.meanwhile").await;
    eventually("it is heard", PATIENCE, async || (browser.heard().await > before).then_some(())).await;
    // Three times as long as it takes when nobody is there.
    browser.eval_later("setTimeout(arguments[0], 1500)", json!([])).await;
    assert_eq!(browser.eval("return document.activeElement.className", json!([])).await, "row");
    assert_eq!(
        browser.eval("return document.querySelector('#fresh').was", json!([])).await,
        1,
        "it was not made anew"
    );
    assert!(!shows(&browser, "live.meanwhile").await);
    browser.eval("document.activeElement.blur()", json!([])).await;
    eventually("it is shown", PATIENCE, async || shows(&browser, "live.meanwhile").await.then_some(())).await;

    // A list counts; its rows stay where they are until one asks for more.
    browser.go("/deliveries?event_type=list.*").await;
    browser.says("No deliveries match").await;
    is_live(&browser).await;
    for _ in 0..3 {
        send(&server, &account, "list.new").await;
    }
    eventually("it counts", PATIENCE, async || (browser.text("#news").await == "3 new: show").then_some(()))
        .await;
    assert_eq!(browser.text("#status").await, "3 new: show", "it is said aloud, too");
    assert_eq!(browser.count("main a.row").await, 0);
    browser.press("3 new: show").await;
    eventually("they are there", PATIENCE, async || (browser.count("main a.row").await == 3).then_some(()))
        .await;

    // Keys.
    browser.keys(&['j']).await;
    browser.keys(&['j']).await;
    let at = "return [...document.querySelectorAll('a.row')].indexOf(document.activeElement)";
    assert_eq!(browser.eval(at, json!([])).await, 1);
    browser.keys(&['g']).await;
    browser.keys(&['d']).await;
    browser.says("No dead letters yet").await;
    browser.keys(&['?']).await;
    eventually("the help", PATIENCE, async || {
        (browser.eval("return document.querySelector('#keys').open", json!([])).await == true).then_some(())
    })
    .await;
    browser.keys(&['\u{e00c}']).await;
    browser.keys(&[TAB]).await;
    browser.was_quiet().await;
    browser.quit().await;
    server.stop().await;
}
