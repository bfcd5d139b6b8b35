//! What went wrong in other webhook senders around endpoints that point back at the sender, by the number of
//! the case: C127. C104 and C106 are `tests/cases_scheduler.rs`'s.
//!
//! There is no limit yet on how much an account may take in: a relay that makes a request of its own of each
//! delivery is only held by its endpoint's rate.

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::server::{Host, Server, text};

const LIMIT: Duration = Duration::from_secs(60);

/// Every delivery says in `user-agent`, which no endpoint can change, who sends it: that is the hop marker, and
/// no hop is allowed. Two servers that point at each other are the same to both.
#[tokio::test(flavor = "multi_thread")]
async fn c127_an_endpoint_that_points_at_an_ingest_address_comes_to_rest() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (here, there) = (Host::new(here.path()).start().await, Host::new(there.path()).start().await);
    for target in [&here, &there] {
        let (account, _) = here.api.account().await;
        let (other, _) = target.api.account().await;
        let back = if std::ptr::eq(target, &here) { &account } else { &other };
        let url = format!("http://{}/v1/events/raw?account_id={back}&type=payment.settled", target.address);
        here.api.endpoint(&account, &url, json!({})).await;
        let name = format!("evt_{}", target.address.port());
        assert_eq!(here.api.event(&account, &name, "{}").await.expect("an answer").status, 202);
        let delivery = ended(&here, &account, &name).await;
        assert_eq!(delivery["status"], "dead", "{delivery:#}");
        let attempts = here.api.attempts(&text(&delivery["id"])).await;
        assert_eq!(attempts.len(), 1, "refused for good: {attempts:#?}");
        assert!(format!("{attempts:?}").contains("422"), "{attempts:#?}");
    }
    assert_eq!(here.api.figures().await["enqueued"], 2, "nothing came of them");
    assert_eq!(there.api.figures().await["enqueued"], 0);
    // Nor in a batch, nor as an envelope; the code says why.
    for (path, body) in [("/v1/events", "{}"), ("/v1/events/raw", "{}"), ("/v1/events/batch", "{}")] {
        let refusal = as_a_delivery(&here, path, body).await;
        assert_eq!(
            (refusal["status"].as_u64(), refusal["code"].as_str()),
            (Some(422), Some("loop")),
            "{path}"
        );
    }
}

/// The only delivery of an event, once nothing is on its way any more.
async fn ended(server: &Server, account: &str, event: &str) -> Value {
    server.api.settled(LIMIT).await;
    let event = server.api.get(&format!("/v1/events/{event}?account_id={account}")).await;
    event["deliveries"][0].clone()
}

/// What a delivery is answered that comes in here.
async fn as_a_delivery(server: &Server, path: &str, body: &'static str) -> Value {
    let call = reqwest::Client::builder().user_agent("Hooklog/9.9.9").build().expect("a client");
    let url = format!("http://{}{path}", server.address);
    let answer = call.post(url).header("content-type", "application/json").body(body).send().await;
    serde_json::from_slice(&answer.expect("an answer").bytes().await.expect("a body")).expect("a problem")
}
