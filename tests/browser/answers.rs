//! The answer page for every state: the sentence at its top is the API's, and so is what can be done about it.

use serde_json::json;

use crate::chromium::{Browser, Scripts, squeezed};
use crate::stage::{Stage, Told};
use crate::support::case::text;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_every_state_says_what_the_api_says() {
    let stage = Stage::new().await;
    let told = stage.every_answer().await;
    for scripts in [Scripts::On, Scripts::Off] {
        let browser = Browser::open(&stage.origin, scripts).await;
        for told in &told {
            says_the_same(&stage, &browser, told).await;
        }
        browser.was_quiet().await;
        browser.quit().await;
    }
    stage.end().await;
}

async fn says_the_same(stage: &Stage, browser: &Browser, told: &Told) {
    let at = told.path.split_once("&at=").map_or(String::new(), |(_, at)| format!("&at={at}"));
    let path = format!("/v1/explain/{}?account_id={}{at}", told.event, stage.account);
    let api = stage.world.get(&path).await.ok(200);
    browser.go(&told.path).await;
    let sentence = squeezed(&text(&api["sentence"]).replace('`', ""));
    assert_eq!(browser.text("#answer").await, sentence, "{}", told.name);
    let words = browser.words().await;
    for reason in api["reasons"].as_array().expect("a list") {
        assert!(
            words.contains(&squeezed(&text(reason).replace('`', ""))),
            "{}: {reason} in {words}",
            told.name
        );
    }
    // Whatever cannot be done says why.
    let script = "return [...document.querySelectorAll('main button:disabled')]
        .filter((b) => !b.parentElement.querySelector('.why')?.textContent).map((b) => b.textContent)";
    assert_eq!(browser.eval(script, json!([])).await, json!([]), "{}", told.name);
}

/// A moment of the story leads to the page as it was then, and back.
#[tokio::test(flavor = "multi_thread")]
async fn one_goes_back_in_time_and_returns() {
    let stage = Stage::new().await;
    stage.endpoint(&stage.account, "hooks.acme.example.com", &["payment.*"]).await;
    let (event, delivery) = stage.sent("payment.flaky", json!({}), "tried").await;
    for (tries, minutes) in [(2, 2), (3, 6)] {
        stage.pass(minutes).await;
        stage.world.until_tried(&delivery, tries).await;
    }
    stage.world.until(&delivery, "delivered").await;
    for scripts in [Scripts::On, Scripts::Off] {
        let browser = Browser::open(&stage.origin, scripts).await;
        browser.go(&format!("/events/{event}?account_id={}", stage.account)).await;
        browser.says("Yes. payment.flaky was delivered").await;
        browser.press("As of an earlier moment").await;
        browser.press("Before its newest fact").await;
        browser.says("Not yet.").await;
        assert!(browser.path().await.contains("at="));
        assert_eq!(browser.count("main .actions").await, 0, "the past is not acted on");
        browser.press("Now").await;
        browser.says("Yes. payment.flaky was delivered").await;
        browser.was_quiet().await;
        browser.quit().await;
    }
    stage.end().await;
}
