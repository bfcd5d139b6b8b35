//! What went wrong in other webhook senders around endpoints that point back at the sender, by the number of
//! the case: C127; around what endpoints that take long hold up: C43; and around the end of an endpoint: C104, of
//! which another part is `tests/cases_replay.rs`'s. C106 is `tests/cases_scheduler.rs`'s.

mod support;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hooklog::engine::Command;
use hooklog_projections::policy::Rollout;
use hooklog_projections::time::Millis;
use serde_json::{Value, json};
use support::judge::Judge;
use support::server::{Host, Server, text};
use support::stage::Stage;

const LIMIT: Duration = Duration::from_secs(60);

/// Every delivery says in `user-agent`, which no endpoint can change, who sends it: that is the hop marker, and
/// no hop is allowed (the case's N is 0). Two servers that point at each other are the same to both. The endpoint has
/// a key for events of the account among its headers, so that nothing else refuses what it brings.
#[tokio::test(flavor = "multi_thread")]
async fn c127_an_endpoint_that_points_at_an_ingest_address_comes_to_rest() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let hosts = [Host::new(here.path()), Host::new(there.path())];
    let (here, there) = (hosts[0].start().await, hosts[1].start().await);
    let judge = Judge::start().await;
    let (calm, secret) = here.api.account().await;
    let (_, signing) = here.api.endpoint(&calm, &judge.url("/calm"), json!({})).await;
    judge.expect("/calm", &signing, &secret);
    for target in [&here, &there] {
        let (account, _) = here.api.account().await;
        let (other, _) = target.api.account().await;
        let back = if std::ptr::eq(target, &here) { &account } else { &other };
        let key = json!({ "role": "ingest", "account_id": back });
        let key = text(&target.api.post("/v1/keys", key).await["key"]);
        // The key opens the door: without the mark it is taken in.
        let url = format!("http://{}/v1/events/raw?account_id={back}&type=payment.settled", target.address);
        let taken = reqwest::Client::new()
            .post(&url)
            .bearer_auth(&key)
            .header("content-type", "application/json")
            .body("{}")
            .send()
            .await;
        assert_eq!(taken.expect("an answer").status(), 202);
        let headers = json!({ "headers": { "authorization": format!("Bearer {key}") } });
        here.api.endpoint(&account, &url, headers).await;
        let name = format!("evt_{}", target.address.port());
        assert_eq!(here.api.event(&account, &name, "{}").await.expect("an answer").status, 202);
        // Others go on meanwhile.
        let mut took = Vec::new();
        for n in 0..50 {
            let begun = std::time::Instant::now();
            let taken = here.api.event(&calm, &format!("calm-{}-{n}", target.address.port()), "{}").await;
            assert_eq!(taken.expect("an answer").status, 202);
            took.push(begun.elapsed());
        }
        took.sort_unstable();
        println!(
            "c127: another account's events are taken in within {:?} (p99)",
            took[took.len() * 99 / 100]
        );
        let delivery = ended(&here, &account, &name).await;
        assert_eq!(delivery["status"], "dead", "{delivery:#}");
        let attempts = here.api.attempts(&text(&delivery["id"])).await;
        assert_eq!(attempts.len(), 1, "refused for good: {attempts:#?}");
        assert_eq!(attempts[0]["status_code"], 422, "{attempts:#?}");
        let refusal: Value = serde_json::from_str(&text(&attempts[0]["response_body"])).expect("a problem");
        assert_eq!(refusal["code"], "loop", "{refusal}");
    }
    let figures = here.api.figures().await;
    assert_eq!((&figures["enqueued"], &figures["dead"]), (&json!(102), &json!(2)), "nothing came of them");
    assert_eq!(there.api.figures().await["enqueued"], 0);
    judge.content();
    assert_eq!(judge.count(), 100);
    // Nor in a batch, nor as an envelope; the code says why.
    for (path, body) in [("/v1/events", "{}"), ("/v1/events/raw", "{}"), ("/v1/events/batch", "{}")] {
        let refusal = as_a_delivery(&here, path, body).await;
        assert_eq!(
            (refusal["status"].as_u64(), refusal["code"].as_str()),
            (Some(422), Some("loop")),
            "{path}"
        );
    }
    for host in hosts {
        host.verify().await;
        host.last_log();
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

/// Also of C43, for the whole service: who answers at once and then drips, or lets every connection hang until its
/// limit, holds a permit for as long as who times out; all of these share half. Nobody else waits for them.
#[test]
fn c43_who_takes_long_shares_half_of_the_permits_whatever_comes_of_it() {
    for word in ["drips", "black-hole", "timeout"] {
        let mut stage = Stage::new();
        stage.account(None, Rollout::On);
        stage.policy.in_flight_max = 64;
        stage.start();
        stage.endpoint("well", "well", &["200"], None);
        stage.enqueue("well-0", "well", b"{}").expect("it is taken");
        stage.run_for(Millis(1_000));
        for n in 0..50 {
            stage.endpoint(&format!("slow-{n}"), "slow", &[word], None);
        }
        for n in 0..20 {
            stage.enqueue(&format!("slow-{n}"), "slow", b"{}").expect("it is taken");
        }
        for n in 1..120 {
            stage.run_for(Millis(997));
            assert!(stage.out.len() <= 32, "{word}: {} out after {n} s", stage.out.len());
            let event = format!("well-{n}");
            stage.enqueue(&event, "well", b"{}").expect("it is taken");
            assert_eq!(stage.sent.last().expect("one").event.as_str(), event, "{word}: at once");
        }
        assert!(stage.sent.len() > 119 + 100, "{word}: they are tried: {}", stage.sent.len());
        stage.always_true();
    }
}

/// The process dies at each of the batches in which what waited is cancelled: the next one goes on with it, sends
/// nothing, and tells nobody.
#[test]
fn c104_a_removal_that_is_cut_short_is_finished_by_the_next_start() {
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    let shop = stage.endpoint_with("shop", "*", &["200"], |_| ());
    stage.enqueue("before", "payment.settled", b"{}").expect("it is taken");
    stage.run_to_rest();
    stage.latency = Millis(500);
    stage.enqueue_many((0..1_008).map(|n| format!("evt-{n}")), "payment.settled");
    assert_eq!(stage.out.len(), 8);
    let cuts = Rc::new(RefCell::new(Vec::new()));
    let seen = cuts.clone();
    stage.after_batch = Some(Box::new(move |disk, mark| seen.borrow_mut().push((disk, mark))));
    let removed = stage.ask(Command::RemoveEndpoint { key: shop, reason: "moved".into() });
    removed.expect("it is there");
    stage.after_batch = None;
    let cuts = cuts.take();
    assert!(cuts.len() >= 4, "more than one batch: {}", cuts.len());
    for (disk, mark) in cuts {
        let mut next = Stage::on(disk.crash(), mark.after_kill(), stage.now);
        (next.known, next.sent) = (stage.known.clone(), stage.sent.clone());
        next.run_for(Millis(3_600_000));
        assert_eq!(next.sent.len(), stage.sent.len(), "nothing more left");
        let counts = next.counts();
        // What was out when the process died was interrupted, and is not tried again.
        assert_eq!((counts.delivered, counts.cancelled, counts.dead, counts.pending), (1, 1_008, 0, 0));
        let view = next.engine.as_ref().expect("it runs").published().view();
        assert_eq!(view.owed(None, 10).expect("rows"), []);
        next.always_true();
    }
}

/// A relay makes events of its own of each delivery, two of one, under a name that is nobody's: what an account may
/// take in ends it, and the operator's log says so once, not for each refusal. Other accounts are not held to that.
#[tokio::test(flavor = "multi_thread")]
async fn c127_a_relay_that_multiplies_events_is_ended_by_its_accounts_quota() {
    const QUOTA: u64 = 30;
    let folder = tempfile::tempdir().unwrap();
    let host = Host::new(folder.path()).with("--events-per-minute", &QUOTA.to_string());
    let here = host.start().await;
    let (account, _) = here.api.account().await;
    let (other, _) = here.api.account().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let relay = format!("http://{}/", listener.local_addr().expect("an address"));
    let into = format!("http://{}/v1/events", here.address);
    let refused = Arc::new(AtomicUsize::new(0));
    let (again, counter) = (account.clone(), refused.clone());
    let app = axum::Router::new().fallback(move || {
        let (into, again, counter) = (into.clone(), again.clone(), counter.clone());
        async move {
            for _ in 0..2 {
                let event = json!({ "account_id": again, "type": "payment.settled", "data": 1 });
                let sent = reqwest::Client::new().post(&into).json(&event).send().await.expect("an answer");
                counter.fetch_add(usize::from(sent.status() == 429), Ordering::SeqCst);
            }
        }
    });
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    here.api.endpoint(&account, &relay, json!({})).await;
    assert_eq!(here.api.event(&account, "evt_first", "{}").await.expect("an answer").status, 202);
    let figures = here.api.settled(LIMIT).await;
    // A minute may end in the middle, and begin another quota; no chain outlives the refusals of its links.
    let enqueued = figures["enqueued"].as_u64().expect("a number");
    assert!((QUOTA..=3 * QUOTA).contains(&enqueued), "{figures}");
    assert!(refused.load(Ordering::SeqCst) > 0);
    assert_eq!(here.api.event(&other, "evt_other", "{}").await.expect("an answer").status, 202);
    let told = host.last_log().matches("has used up its events of a minute").count();
    assert!((1..=3).contains(&told), "{told} times, of {refused:?} refusals");
    serving.abort();
    host.verify().await;
}
