//! What monitors are told: every series is described and bounded, the document and the alert rules name what there is,
//! and when the scheduler stands still somebody hears of it, while an endpoint's own backlog raises nothing.
//!
//! `HOOKLOG_WRITE_METRICS=1 cargo test --test metrics` writes the table of `docs/metrics.md` anew.

#[path = "support/mail.rs"]
mod mail;
mod support;

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use hooklog::alert::{Options, Watch};
use hooklog::api::routes;
use hooklog::metrics::{Described, Gauges, Metrics, Process};
use hooklog::notify::Channel;
use hooklog::scheduler::Holder;
use serde_json::{Value, json};
use support::case::{Hook, LONG, World, delivery, text};
use support::exposition::Exposition;
use support::receiver::{Received, answer};

const DOCUMENT: &str = "docs/metrics.md";
const MARKER: &str = "<!-- written from what is registered -->\n";

fn registered() -> Metrics {
    Metrics::new(&Holder::ALL.map(Holder::as_str))
}

fn described() -> BTreeMap<String, Described> {
    registered().described().into_iter().map(|one| (one.name.clone(), one)).collect()
}

/// The described metric that a sample is of.
fn of<'a>(known: &'a BTreeMap<String, Described>, sample: &str) -> Option<&'a Described> {
    known.get(sample).or_else(|| {
        let base = ["_bucket", "_count", "_sum"].iter().find_map(|end| sample.strip_suffix(end))?;
        known.get(base).filter(|one| one.kind == "histogram")
    })
}

#[test]
fn the_document_is_what_is_registered() {
    let there = std::fs::read_to_string(DOCUMENT).expect("the document");
    let (head, _) = there.split_once(MARKER).expect("the marker");
    let wanted = format!("{head}{MARKER}\n{}", registered().document());
    if std::env::var_os("HOOKLOG_WRITE_METRICS").is_some() {
        std::fs::write(DOCUMENT, &wanted).expect("it can be written");
    } else {
        assert!(there == wanted, "{DOCUMENT} differs: HOOKLOG_WRITE_METRICS=1 cargo test --test metrics");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_series_is_described_with_all_its_labels() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", ""), answer(404, "", "")]).await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/a")).await;
    let first = delivery(&world.event(&account, "evt_1", "{}").await);
    world.until(&first, "delivered").await;
    let second = delivery(&world.event(&account, "evt_2", "{}").await);
    world.until(&second, "dead").await;
    world.post(&format!("/v1/deliveries/{second}/replay"), json!({})).await;
    assert_eq!(world.post("/v1/events", json!({ "data": 1 })).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    world.get("/nowhere").await;
    let text = world.api().exposition(Process::now(1.0));
    let (known, exposition) = (described(), Exposition::of(&text));
    for sample in &exposition.samples {
        let one = of(&known, &sample.name).unwrap_or_else(|| panic!("{} is not described", sample.name));
        let told: BTreeSet<&str> = one.labels.iter().map(|(name, _)| *name).collect();
        let has: BTreeSet<&str> =
            sample.labels.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "le").collect();
        assert_eq!(told, has, "{}", sample.name);
    }
    for one in known.values() {
        let name = one.name.trim_end_matches("_total").trim_end_matches("_info");
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
        assert!(text.contains(&format!("# TYPE {name} {}\n", one.kind)), "{name}");
        assert_eq!(text.contains(&format!("# UNIT {name} {}\n", one.unit)), !one.unit.is_empty(), "{name}");
    }
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(exposition.value("hooklog_attempts_total", &[("class", "2xx")]), 1.0);
    assert_eq!(exposition.value("hooklog_events_accepted_total", &[]), 2.0);
    let other = [("route", "other"), ("method", "other"), ("status", "4xx")];
    assert_eq!(exposition.value("http_server_requests_total", &other), 1.0);
    let refused = exposition.all("hooklog_events_rejected_total");
    assert_eq!(refused.iter().map(|sample| sample.value).sum::<f64>(), 1.0, "{refused:?}");
    world.always_true(&mut [&mut hook]).await;
}

#[test]
fn there_are_never_more_series_than_routes_and_words_allow() {
    // Every route of the API and of the pages, and `other`, in each of the four classes of answers; with five buckets, count
    // and sum.
    let rows = routes().len() + hooklog::pages::routes().len() + 1;
    let metrics = registered();
    let fresh = Exposition::of(&metrics.text(&Gauges::default())).samples.len();
    let facts = 60;
    let reasons = hooklog::api::problem::Kind::ALL.len();
    let most = fresh + rows * (4 + 5 + 2) + facts + reasons;
    assert!(most < 2_000, "{most}: {fresh} from the start");
}

/// The names that look like metrics in an expression.
fn names(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours =
        |word: &&str| ["hooklog_", "http_server_", "process_"].iter().any(|prefix| word.starts_with(prefix));
    words.filter(ours).map(str::to_owned).collect()
}

#[test]
fn alert_rules_name_metrics_that_exist_and_a_paragraph_of_the_runbook() {
    let rules = std::fs::read_to_string("docs/alerts.yml").expect("the rules");
    let tests = std::fs::read_to_string("docs/alerts_test.yml").expect("their tests");
    let runbook = std::fs::read_to_string("docs/runbook.md").expect("the runbook");
    let known = described();
    let named = names(&rules);
    assert!(named.contains("hooklog_oldest_due_attempt_age_seconds"));
    for name in named.iter().chain(&names(&tests)) {
        assert!(of(&known, name).is_some(), "the alert rules name {name}, which is no metric");
    }
    let (missing, _) = rules
        .split_once("- alert: MetricsMissing")
        .and_then(|(_, rule)| rule.split_once("for:"))
        .expect("the rule on what is missing");
    for name in &named {
        assert!(missing.contains(&format!("absent({name})")), "without {name} a rule would be silent");
    }
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 6, "{alerts:?}");
    for alert in alerts {
        assert!(runbook.contains(&format!("\n## {alert}\n")), "the runbook has no paragraph on {alert}");
        let link = format!("runbook.md#{}", alert.to_lowercase());
        assert!(rules.contains(&link), "{alert} does not lead to {link}");
        let asked: Vec<_> = tests.match_indices(&format!("alertname: {alert}")).collect();
        let fires = |at: usize| {
            let after = tests[at..].split("alertname: ").nth(1).unwrap_or_default();
            after.lines().take(2).any(|line| line.contains("exp_alerts:"))
        };
        let (firing, quiet): (Vec<_>, Vec<_>) = asked.into_iter().partition(|(at, _)| fires(*at));
        assert!(
            !firing.is_empty() && !quiet.is_empty(),
            "{alert} wants a test that fires, and one that does not"
        );
    }
}

/// The next message of a service that takes JSON.
async fn told(hook: &mut Hook) -> Value {
    serde_json::from_slice(hook.next().await.body()).expect("JSON")
}

/// The path of a request.
fn path(request: &Received) -> &str {
    request.line().split(' ').nth(1).expect("a path")
}

/// Waits until no request is out.
async fn idle(world: &World) {
    let quiet = async {
        while world.get("/v1/status").await.ok(200)["deliveries"]["in_flight"] != 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, quiet).await.expect("all requests end");
}

/// Lets time pass, and the writer look at what is late by then.
async fn pass(world: &World, secs: u64) {
    world.advance_secs(secs).await;
    world.turn().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_stands_is_told_of_and_an_endpoints_own_backlog_is_not() {
    let world = World::new().await;
    let mut hook = Hook::answering(|request| match path(request) {
        "/gated" => answer(429, "retry-after: 86000\r\n", ""),
        _ => answer(200, "", ""),
    })
    .await;
    let mut service = Hook::scripted(vec![answer(503, "", ""), answer(202, "", "")]).await;
    let mut switch = Hook::scripted(vec![answer(200, "", "")]).await;
    let store = world.store();
    let (handle, client, clock) = (store.handle().clone(), store.client().clone(), store.clock().clone());
    let options = Options {
        channel: Channel::Service { url: service.url("/pager"), key: None },
        email: None,
        ping_url: Some(switch.url("/ping/secret")),
        base: Some("https://hooks.example.com".to_owned()),
    };
    let mut watch = Watch::new(handle.clone(), client, clock, options);
    let account = world.account().await;
    let mut endpoints = BTreeMap::new();
    for (name, members) in [
        ("well", json!({})),
        ("paused", json!({})),
        ("gated", json!({})),
        ("slowly", json!({ "rate_per_second": 1 })),
    ] {
        let mut members = members;
        members["event_types"] = json!([format!("to.{name}")]);
        let id = world.endpoint_of(&account, &hook.url(&format!("/{name}")), members).await;
        endpoints.insert(name, id);
    }
    world.post(&format!("/v1/endpoints/{}/pause", endpoints["paused"]), json!({})).await.ok(200);
    let send = async |name: &str, count: usize| {
        let event = json!({ "account_id": account, "type": format!("to.{name}"), "data": {} });
        let events = vec![event; count];
        let taken = world.post("/v1/events/batch", json!({ "events": events })).await.ok(202);
        text(&taken["results"][count - 1]["deliveries"][0]["id"])
    };

    // All is well, and each limit of an endpoint's own holds back a backlog for ten minutes.
    pass(&world, 1).await;
    watch.look().await;
    assert_eq!(path(&switch.next().await), "/ping/secret");
    for name in ["paused", "gated", "slowly"] {
        send(name, 200).await;
    }
    idle(&world).await;
    for _ in 0..10 {
        pass(&world, 61).await;
        watch.look().await;
        switch.next().await;
    }
    let status = world.get("/v1/status").await.ok(200);
    assert_eq!((&status["healthy"], &status["late_ms"]), (&json!(true), &json!(0)), "{status}");
    let held = &status["held"]["endpoints"];
    assert_eq!((&held["pause"], &held["gate"], &held["rate"]), (&json!(1), &json!(1), &json!(1)), "{status}");
    assert!(status["held"]["oldest_ms"].as_u64().expect("a number") >= 600_000, "{status}");
    assert_eq!(service.count(), 0, "somebody was told of an endpoint's own backlog");
    assert_eq!(switch.count(), 11);

    // The scheduler stands, with work due: the switch is not pinged any more at once, the alert comes at five minutes.
    handle.fault_scheduler(true);
    let stranded = send("well", 1).await;
    pass(&world, 61).await;
    watch.look().await;
    let status = world.get("/v1/status").await.ok(200);
    assert_eq!(status["healthy"], false, "{status}");
    assert!(text(&status["ailment"]).contains("the scheduler has stood still"), "{status}");
    assert_eq!(service.count(), 0, "it is not late by five minutes yet");
    pass(&world, 240).await;
    watch.look().await;
    let refused = told(&mut service).await;
    assert_eq!(refused["type"], "hooklog.deliveries_late");
    // It was refused: the same is sent again, once.
    pass(&world, 5).await;
    watch.look().await;
    let late = told(&mut service).await;
    assert_eq!((&late["id"], &late["type"]), (&refused["id"], &refused["type"]));
    assert!(late["late_ms"].as_u64().expect("a number") > 300_000, "{late}");
    assert!(text(&late["text"]).contains("https://hooks.example.com/"), "{late}");
    for _ in 0..5 {
        pass(&world, 60).await;
        watch.look().await;
    }
    assert_eq!((service.count(), switch.count()), (2, 11), "told once, pinged never");
    let exposition = Exposition::of(&world.api().exposition(Process::default()));
    let late = exposition.value("hooklog_oldest_due_attempt_age_seconds", &[]);
    assert!(late > 600.0, "{late} s");
    assert_eq!(exposition.value("hooklog_healthy", &[]), 0.0);
    assert_eq!(exposition.value("hooklog_ready", &[]), 1.0);
    assert_eq!(exposition.value("hooklog_operator_alerts_total", &[("outcome", "sent")]), 1.0);
    let status = world.get("/v1/status").await.ok(200);
    assert!(status["late_ms"].as_u64().expect("a number") > 600_000, "{status}");

    // It goes on: the all clear comes once, and the pings go on.
    handle.fault_scheduler(false);
    pass(&world, 1).await;
    world.until(&stranded, "delivered").await;
    pass(&world, 2).await;
    for _ in 0..4 {
        watch.look().await;
        pass(&world, 61).await;
    }
    let over = told(&mut service).await;
    assert_eq!(over["type"], "hooklog.deliveries_on_time");
    assert!(over["lasted_ms"].as_u64().expect("a number") > 300_000, "{over}");
    assert_eq!(service.count(), 3);
    assert!(switch.count() > 11);
    let logged = String::from_utf8_lossy(&support::case::logs()).into_owned();
    assert!(!logged.contains("/ping/secret"), "whoever reads the log could ping");
    world.always_true(&mut [&mut hook]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_is_told_by_mail_once_and_once_more_when_it_is_over() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let mut server = mail::Peer::start(|_, _| mail::Do::Well).await;
    let store = world.store();
    let (handle, client, clock) = (store.handle().clone(), store.client().clone(), store.clock().clone());
    let options = Options {
        channel: mail::channel(server.address.port()),
        email: Some("oncall@product.example".to_owned()),
        ping_url: None,
        base: None,
    };
    let mut watch = Watch::new(handle.clone(), client, clock, options);
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/a")).await;
    handle.fault_scheduler(true);
    let stranded = delivery(&world.event(&account, "evt_1", "{}").await);
    pass(&world, 360).await;
    watch.look().await;
    let letter = server.next().await;
    assert_eq!(letter.to, ["RCPT TO:<oncall@product.example>"]);
    let [subject] = &letter.field("subject")[..] else { panic!("one subject: {:?}", letter.fields()) };
    assert_eq!(subject, "Hooklog: deliveries are late, the oldest by 6 min");
    handle.fault_scheduler(false);
    pass(&world, 1).await;
    world.until(&stranded, "delivered").await;
    pass(&world, 2).await;
    watch.look().await;
    pass(&world, 61).await;
    watch.look().await;
    let letter = server.next().await;
    let [subject] = &letter.field("subject")[..] else { panic!("one subject: {:?}", letter.fields()) };
    assert_eq!(subject, "Hooklog: deliveries are on time again");
    assert_eq!(server.so_far().len(), 0);
    world.always_true(&mut [&mut hook]).await;
}
