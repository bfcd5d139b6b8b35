//! What went wrong in the metrics of other webhook senders, by the number of the case: C124 and C125.
//!
//! Scaled down, because each size is paid in requests over loopback: C124 has 250 endpoints and 1,000 events in place
//! of 5,000 and 20,000 (100 statuses, 1,000 requests to random paths and the bounds on series and bytes are as written),
//! C125 has thousands of rows in place of 5 million (a scrape reads none, which the frozen disk shows). Nothing expires
//! yet, so retention is not among what goes on meanwhile. Times are bounded loosely: other tests run beside these.

mod support;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Method, Request};
use hooklog::api::{ApiOptions, ApiState};
use hooklog::clock::{Clock, ManualClock, SeededChance};
use hooklog::delivery::{Answer as Heard, Outcome, guard};
use hooklog::engine::driver::{self, Courier};
use hooklog::engine::{Attempt, Command, Engine, ServerPolicy};
use hooklog::log::mark::MemoryMark;
use hooklog::log::{self, Log, Mark, MemoryDisk};
use hooklog::metrics::Process;
use hooklog::secrets::MasterKey;
use hooklog_projections::fact::{AccountSettings, Actor, Sealed};
use hooklog_projections::ids::AccountId;
use hooklog_projections::policy::Rollout;
use hooklog_projections::time::{Millis, Timestamp};
use serde_json::json;
use support::case::{Hook, LONG, World, text};
use support::chance::Draw;
use support::exposition::Exposition;
use support::receiver::answer;

const STATUSES: [&str; 5] = ["pending", "in_flight", "delivered", "dead", "cancelled"];
/// A scrape may take so long in a test, on a machine that does other things; the cases say 100 and 200 ms.
const SCRAPE_MAX: Duration = Duration::from_secs(5);

fn scrape(api: &ApiState) -> String {
    let began = Instant::now();
    let text = api.exposition(Process::now(1.0));
    assert!(began.elapsed() < SCRAPE_MAX, "{:?}", began.elapsed());
    text
}

/// How often there is a scrape: five times as often as the case has it.
fn looks() -> tokio::time::Interval {
    tokio::time::interval(Duration::from_millis(20))
}

/// Waits until no request is out and nothing waits that could start.
async fn idle(api: &ApiState, attempts: f64) {
    let quiet = async {
        let mut looks = looks();
        loop {
            looks.tick().await;
            let now = Exposition::of(&scrape(api));
            let ended: f64 = now.all("hooklog_attempts_total").iter().map(|sample| sample.value).sum();
            if ended >= attempts && now.value("hooklog_deliveries", &[("status", "in_flight")]) == 0.0 {
                return;
            }
        }
    };
    tokio::time::timeout(2 * LONG, quiet).await.expect("all attempts end");
}

#[tokio::test(flavor = "multi_thread")]
async fn c124_labels_are_words_of_ours_and_no_more_than_there_are() {
    const ENDPOINTS: usize = 250;
    const EVENTS: usize = 1_000;
    let mut statuses = (0..).map(|n| 200 + (n % 100) * 4);
    let hook = Hook::answering(move |_| answer(statuses.next().expect("endless"), "", "")).await;
    let world = World::new().await;
    let account = world.account().await;
    let mut draw = Draw::new(124);
    let (mut series, mut secrets) = (Vec::new(), vec![account.clone(), "127.0.0.1".to_owned()]);
    for run in 1..=2 {
        for n in 0..ENDPOINTS {
            let url = hook.url(&format!("/hidden-{run}-{n}-{}", draw.text(8)));
            let members = json!({ "event_types": [format!("sekret{run}.type{n}")] });
            secrets.push(world.endpoint_of(&account, &url, members).await);
        }
        for first in (0..EVENTS).step_by(200) {
            let event = |n: usize| {
                json!({ "account_id": account, "id": format!("event-{run}-{n}"), "data": { "word": "payload" },
                        "type": format!("sekret{run}.type{}", n % ENDPOINTS) })
            };
            let events: Vec<_> = (first..first + 200).map(event).collect();
            let taken = world.post("/v1/events/batch", json!({ "events": events })).await.ok(202);
            assert!(taken["results"].as_array().expect("a list").iter().all(|one| one["status"] == 202));
        }
        for n in 0..1_000 {
            let method = match n % 3 {
                0 => Method::from_bytes(format!("FOO{n}").as_bytes()).expect("a method"),
                1 => Method::GET,
                _ => Method::DELETE,
            };
            let prefix = ["", "/v1", "/v1/events", "/v1/endpoints", "/portal"][n % 5];
            let path = format!("{prefix}/fragment{run}{n}-{}", draw.text(12));
            let request =
                Request::builder().method(method).uri(path).header("authorization", "Bearer token-tkn");
            world.send(request.body(Body::empty()).expect("a request")).await;
        }
        idle(&world.api(), (run * EVENTS) as f64).await;
        let text = scrape(&world.api());
        let now = Exposition::of(&text);
        assert!(now.samples.len() < 2_000, "{} series", now.samples.len());
        assert!(text.len() < 1_000_000, "{} bytes", text.len());
        let ours = [
            "hidden", "sekret", "event-", "payload", "fragment", "FOO", "tkn", "acct_", "ep_0", "dlv_",
            "evt_",
        ];
        for word in ours.iter().copied().chain(secrets.iter().map(String::as_str)) {
            assert!(!text.contains(word), "`{word}` is in the metrics");
        }
        let names: Vec<_> =
            now.samples.iter().map(|sample| format!("{}{:?}", sample.name, sample.labels)).collect();
        series.push(names);
    }
    let (mut first, mut second) = (series[0].clone(), series[1].clone());
    first.sort();
    second.sort();
    assert_eq!(first, second, "the second run made other series than the first");
}

/// What holds of every scrape. Gives the deliveries of all statuses.
fn sound(text: &str) -> f64 {
    let now = Exposition::of(text);
    for sample in now.samples.iter().filter(|sample| sample.name.starts_with("hooklog_")) {
        assert!(sample.value >= 0.0, "{sample:?}");
        // Moments and bytes are large by nature; nothing else is, unless it went below zero.
        let large = sample.name.contains("timestamp") || sample.name.ends_with("_bytes");
        assert!(large || sample.value <= 1e9, "{sample:?}");
    }
    assert_eq!(now.value("hooklog_deliveries_unaccounted", &[]), 0.0);
    STATUSES.iter().map(|status| now.value("hooklog_deliveries", &[("status", status)])).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn c125_gauges_are_read_as_one_and_are_what_a_recount_finds() {
    const BATCHES: usize = 20;
    const EACH: usize = 50;
    let mut n = 0;
    let hook = Hook::answering(move |_| {
        n += 1;
        answer([200, 404, 503][n % 3], "", "")
    })
    .await;
    let mut world = World::new().await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/a")).await;
    let held = world.endpoint_of(&account, &hook.url("/b"), json!({ "event_types": ["is.held"] })).await;
    world.post(&format!("/v1/endpoints/{held}/pause"), json!({})).await.ok(200);
    let (mut enqueued, mut scrapes) = (0.0, 0);
    for round in 1..=3 {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (api, known) = (world.api(), enqueued);
        // Each scrape finds at least what the one before it found.
        let scraping = tokio::spawn(async move {
            let (mut stopped, mut last, mut count, mut looks) = (stopped, known, 0, looks());
            while stopped.try_recv().is_err() {
                looks.tick().await;
                let sum = sound(&scrape(&api));
                assert!(sum >= last, "{sum} deliveries after {last}");
                (last, count) = (sum, count + 1);
            }
            (last, count)
        });
        for batch in 0..BATCHES {
            let kind = if batch % 5 == 0 { "is.held" } else { "payment.settled" };
            let event = json!({ "account_id": account, "type": kind, "data": {} });
            let taken = world.post("/v1/events/batch", json!({ "events": vec![event; EACH] })).await.ok(202);
            let results = taken["results"].as_array().expect("a list");
            let made = |one: &serde_json::Value| one["deliveries"].as_array().map_or(0, Vec::len);
            enqueued += results.iter().map(made).sum::<usize>() as f64;
        }
        if round > 1 {
            let wish = json!({ "account_id": account, "filter": { "status": "dead" }, "reason": "once more",
                               "rate_per_second": 10_000 });
            let started = world.post("/v1/replays", wish).await.ok(202);
            let path = format!("/v1/replays/{}", text(&started["id"]));
            let through = async {
                while world.get(&path).await.ok(200)["state"] != "ended" {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(LONG, through).await.expect("the replay ends");
        }
        idle(&world.api(), 0.0).await;
        let _ = stop.send(());
        let (last, count) = scraping.await.expect("every scrape is sound");
        assert!(last <= enqueued, "{last} of {enqueued}");
        scrapes += count;
        assert_eq!(sound(&scrape(&world.api())), enqueued);
        recount(&world, &account).await;
        world.restart().await;
        // The gauges go on where they were; what is counted by the process begins anew, and a scrape says so.
        let api = world.api();
        world.turn().await;
        let now = Exposition::of(&scrape(&api));
        assert_eq!(sound(&scrape(&api)), enqueued);
        assert_eq!(now.value("hooklog_events_accepted_total", &[]), 0.0);
    }
    assert!(scrapes >= 30, "{scrapes} scrapes");
}

/// Nothing is under way: the gauges are what a walk over all rows, and a fold of the whole log, finds.
async fn recount(world: &World, account: &str) {
    let mut found: BTreeMap<String, f64> = BTreeMap::new();
    for row in world.all_deliveries(account).await {
        *found.entry(text(&row["status"])).or_default() += 1.0;
    }
    let now = Exposition::of(&scrape(&world.api()));
    for status in STATUSES {
        let gauge = now.value("hooklog_deliveries", &[("status", status)]);
        assert_eq!(gauge, found.get(status).copied().unwrap_or(0.0), "{status}: {found:?}");
    }
    let handle = world.store().handle().clone();
    let report = tokio::task::spawn_blocking(move || handle.check(&mut |_, _, _| {})).await.expect("it ends");
    assert!(report.as_ref().is_ok_and(|report| report.clean()), "{report:?}");
}

/// Answers 200 at once.
struct Fine;

impl Courier for Fine {
    fn carry(&self, _: Attempt) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        let answer = Heard {
            status: 200,
            headers: Vec::new(),
            body: bytes::Bytes::new(),
            truncated: false,
            address: None,
        };
        Box::pin(async { Outcome::of(Ok(answer), Millis(1)) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c125_a_scrape_is_answered_while_the_store_hangs() {
    let (disk, mark) = (MemoryDisk::new(), MemoryMark::default());
    let clock = ManualClock::at(Timestamp(1_800_000_000_000));
    let master = Arc::new(MasterKey::from_bytes([7; 32].into()));
    let opened =
        Log::open(Arc::new(disk.clone()), Mark::memory(&mark), log::Options::default()).expect("a log");
    let mut engine =
        Engine::start(opened, &master, ServerPolicy::default(), clock.now(), &mut SeededChance::new(1))
            .expect("an engine");
    engine.set_sending(true);
    let running = driver::run(engine, Arc::new(Fine), clock.clone(), tokio::runtime::Handle::current());
    let handle = running.handle.clone();
    let api =
        ApiState::new(handle.clone(), master, clock.clone(), guard::Policy::default(), ApiOptions::default());
    let account = async |n: u128| {
        let settings = AccountSettings {
            name: "Acme".into(),
            owner_email: None,
            schedule: None,
            response_policy: None,
            webhook_retries: Rollout::On,
        };
        let command = Command::CreateAccount { account: AccountId(n), settings, secret: Sealed(vec![0]) };
        handle.ask(Actor::Cli, command).await
    };
    account(1).await.expect("it is new");
    disk.freeze();
    let asked = account(2);
    let looking = async {
        let hangs = |text: &str| Exposition::of(text).value("hooklog_log_write_age_seconds", &[]);
        while hangs(&scrape(&api)) < 60.0 {
            clock.advance(Millis(100));
            tokio::task::yield_now().await;
        }
        let text = scrape(&api);
        sound(&text);
        let now = Exposition::of(&text);
        assert_eq!(now.value("hooklog_ready", &[]), 0.0);
        assert_eq!(now.value("hooklog_healthy", &[]), 0.0);
        let ticked = now.value("hooklog_scheduler_last_tick_timestamp_seconds", &[]);
        assert!(
            clock.now().0 as f64 / 1_000.0 - ticked >= 60.0,
            "the scheduler's last tick is as old as the write"
        );
        disk.thaw();
    };
    let (made, ()) = tokio::join!(asked, looking);
    made.expect("it was written at last");
    assert_eq!(Exposition::of(&scrape(&api)).value("hooklog_log_write_age_seconds", &[]), 0.0);
    running.stop(LONG).await.expect("in order");
}
