//! A file of events goes through the real server by `hooklog send --jsonl` while that server is killed once in
//! the middle: every event reaches both endpoints, byte for byte as it stood in its line, well signed.
//!
//! The file is `HOOKLOG_INPUT`, or a small one of our own. `tests/real_input FILE` runs this in a release build
//! and prints the figures.

mod support;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use support::judge::{Judge, Say};
use support::server::{Host, eventually, text};

const OWN: &str = "fixtures/events/small.jsonl";
const PATHS: [&str; 2] = ["/first", "/second"];
const LIMIT: Duration = Duration::from_secs(300);

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_events_arrives_byte_for_byte_although_the_server_is_killed() {
    let input = std::env::var_os("HOOKLOG_INPUT").map_or_else(|| OWN.into(), PathBuf::from);
    let read = std::fs::read_to_string(&input).unwrap_or_else(|error| panic!("{}: {error}", input.display()));
    let folder = tempfile::tempdir().expect("a folder");
    let host = Host::new(folder.path()).with("--wait-divisor", "1000");
    let judge = Judge::start().await;
    let mut lines = 0;
    for (at, line) in read.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let Line { event_type, data } = serde_json::from_str(line).expect("a line of {type, data}");
        let id = format!("line-{}", at + 1);
        let body = format!(r#"{{"id":"{id}","type":"{event_type}","data":{}}}"#, data.get());
        judge.expect_body(&id, body.as_bytes());
        lines += 1;
    }
    let deliveries = lines * PATHS.len() as u64;
    // One event in seven is refused once by each endpoint.
    let mut refused = BTreeSet::new();
    judge.answer(move |arrival| {
        let sum = arrival.event.bytes().map(u64::from).sum::<u64>();
        let first = refused.insert((arrival.event.clone(), arrival.path.clone()));
        if sum % 7 == 0 && first { Say::Status(500) } else { Say::Status(200) }
    });
    let server = host.start().await;
    let (account, secret) = server.api.account().await;
    for path in PATHS {
        let (_, signing) = server.api.endpoint(&account, &judge.url(path), json!({})).await;
        judge.expect(path, &signing, &secret);
    }

    let file = input.to_str().expect("a path in UTF-8");
    let send = ["send", "--jsonl", file, "--account", &account, "--id-prefix", "line", "--json"];
    let story = async {
        // A third is taken in and some of it is out: `send` is in the middle of a longer file.
        eventually("events come in", LIMIT, async || {
            let status = server.api.get("/v1/status").await;
            (status["events"].as_u64() >= Some(lines.div_ceil(3))).then_some(())
        })
        .await;
        judge.arrivals_reach(1, LIMIT).await;
        server.kill().await;
        judge.next_life().await;
        host.start().await
    };
    let (sent, server) = tokio::join!(host.on_store(&send), story);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let sum: Value = serde_json::from_str(&sent.out).expect("JSON");
    let number = |name: &str| sum[name].as_u64().expect("a number");
    assert_eq!(number("accepted") + number("duplicates"), lines, "{sum}");
    assert_eq!((number("refused"), number("deliveries")), (0, deliveries), "{sum}");

    let figures = server.api.settled(LIMIT).await;
    assert_eq!((&figures["enqueued"], &figures["delivered"]), (&json!(deliveries), &json!(deliveries)));
    judge.content();
    assert_eq!(judge.verified(), judge.count(), "a signature that does not hold");
    // Nothing arrived twice but what was out when the server was killed.
    let mut arrived: BTreeMap<_, u64> = BTreeMap::new();
    for arrival in judge.arrivals().into_iter().filter(|arrival| arrival.said == Say::Status(200)) {
        *arrived.entry((arrival.event, arrival.path)).or_default() += 1;
    }
    assert_eq!(arrived.len() as u64, deliveries, "an event did not reach an endpoint");
    let (mut interrupted, mut twice) = (0, 0);
    for at in 1..=read.lines().count() {
        let id = format!("line-{at}");
        if !arrived.contains_key(&(id.clone(), PATHS[0].to_owned())) {
            continue;
        }
        let event = server.api.get(&format!("/v1/events/{id}?account_id={account}")).await;
        for delivery in event["deliveries"].as_array().expect("a list") {
            let url = text(&delivery["endpoint_url"]);
            let path = PATHS.iter().find(|path| url.ends_with(*path)).expect("one of ours");
            let attempts = server.api.attempts(&text(&delivery["id"])).await;
            let unknown = attempts.iter().filter(|a| a["error"] == "interrupted").count() as u64;
            let more = arrived[&(id.clone(), (*path).to_owned())] - 1;
            assert!(more <= unknown, "{more} too many: {attempts:#?}");
            interrupted += unknown;
            twice += more;
        }
    }
    host.verify().await;
    server.stop().await;
    host.verify().await;
    println!(
        "{}: {lines} events, {deliveries} deliveries, all delivered; {} requests, {} signatures verified; killed \
         once with {interrupted} requests out, {twice} arrived twice; {} events were answered at the first asking, \
         {} when asked again",
        input.file_name().unwrap_or_default().display(),
        judge.count(),
        judge.verified(),
        number("accepted"),
        number("duplicates"),
    );
}
