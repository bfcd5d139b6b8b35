//! What went wrong in other webhook senders around lists, times, numbers and edits of their APIs, by the number of
//! the case: C112, C113, C115, C116. What is idempotent stands in `tests/cases_idempotency.rs`.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use axum::body::Body;
use axum::http::{Method, Request};
use hooklog_projections::time::{Millis, Timestamp};
use serde_json::{Value, json};
use support::case::{Answer, Hook, World, deliveries, delivery, moment, text};
use support::receiver::answer;

fn ids(page: &Value) -> Vec<String> {
    page["data"].as_array().expect("a list").iter().map(|row| text(&row["id"])).collect()
}

/// The address of a `Link` with this relation (RFC 8288).
fn linked(answer: &Answer, rel: &str) -> Option<String> {
    let links = answer.headers.get("link")?.to_str().expect("ASCII");
    let link = links.split(", ").find(|link| link.ends_with(&format!("; rel=\"{rel}\"")))?;
    Some(link.split_once('>').expect("an address").0.trim_start_matches('<').to_owned())
}

/// Walks a list to its end by `next` and to its beginning by `prev`; `between` is done before each page but the first.
async fn there_and_back(world: &World, list: &str, between: impl AsyncFn()) -> [Vec<String>; 2] {
    let mut last = world.get(list).await;
    let mut page = last.ok(200);
    assert_eq!(page["prev_cursor"], Value::Null, "{list}");
    assert_eq!(linked(&last, "prev"), None, "{list}");
    let mut there = ids(&page);
    while let Some(next) = linked(&last, "next") {
        between().await;
        let cursor = text(&page["next_cursor"]);
        assert!(next.ends_with(&format!("cursor={cursor}")), "{next}");
        last = world.get(&next).await;
        page = last.ok(200);
        assert!(page["prev_cursor"].is_string(), "{list}");
        there.extend(ids(&page));
    }
    assert_eq!(page["next_cursor"], Value::Null, "{list}");
    let mut back = ids(&page);
    while let Some(prev) = linked(&last, "prev") {
        between().await;
        last = world.get(&prev).await;
        page = last.ok(200);
        assert!(page["next_cursor"].is_string(), "{list}");
        back.splice(0..0, ids(&page));
    }
    assert_eq!(page["prev_cursor"], Value::Null, "{list}");
    [there, back]
}

/// C112: equal moments, both ways, while more comes in and states change; and what is no cursor of this list.
#[tokio::test(flavor = "multi_thread")]
async fn c112_pages_neither_skip_nor_repeat() {
    let world = World::new().await;
    let (ours, theirs) = (world.account().await, world.account().await);
    // Nothing is sent: what waits, waits; the clock stands, so all moments are one.
    let endpoint = world.endpoint(&ours, "https://hooks.customer.example.com/").await;
    let other = world.endpoint(&theirs, "https://hooks.customer.example.com/").await;
    for endpoint in [&endpoint, &other] {
        world.post(&format!("/v1/endpoints/{endpoint}/pause"), json!({})).await.ok(200);
    }
    let batch = async |account: &str, name: &str, count: usize| {
        let event =
            |n| json!({ "account_id": account, "id": format!("{name}-{n}"), "type": "a.b", "data": n });
        let events: Vec<_> = (0..count).map(event).collect();
        let taken = world.post("/v1/events/batch", json!({ "events": events })).await.ok(202);
        let results = taken["results"].as_array().expect("a list").clone();
        results.iter().flat_map(deliveries).collect::<Vec<_>>()
    };
    let mut all = batch(&ours, "one", 500).await;
    all.extend(batch(&ours, "two", 500).await);
    let all: BTreeSet<_> = all.into_iter().collect();
    assert_eq!(all.len(), 1_000);
    let at = world.get(&format!("/v1/deliveries?account_id={ours}&limit=1")).await.ok(200);
    let at = text(&at["data"][0]["created_at"]);
    let list = format!("/v1/deliveries?account_id={ours}");
    for (filter, limits) in [
        ("", [7, 100]),
        ("&status=pending", [7, 500]),
        ("&status=pending,in_flight,dead", [100, 999]),
        ("&event_type=a.*", [100, 500]),
        (format!("&endpoint_id={endpoint}").as_str(), [33, 250]),
        (format!("&since={at}").as_str(), [100, 1_000_000_000]),
    ] {
        for limit in limits {
            let path = format!("{list}{filter}&limit={limit}");
            let [there, back] = there_and_back(&world, &path, async || ()).await;
            assert_eq!(there, back, "{path}");
            assert_eq!(there.len(), 1_000, "{path}: no row twice");
            assert_eq!(there.into_iter().collect::<BTreeSet<_>>(), all, "{path}");
        }
    }
    // One at a time, a window of them.
    let small = batch(&theirs, "few", 20).await;
    let path = format!("/v1/deliveries?account_id={theirs}&limit=1");
    let [there, back] = there_and_back(&world, &path, async || ()).await;
    assert_eq!((there.len(), &there), (small.len(), &back));

    // While others come in and some leave the list.
    let leaving: Vec<_> = all.iter().step_by(11).cloned().collect();
    let left = AtomicU16::new(0);
    let path = format!("{list}&status=pending&limit=100");
    let walks = there_and_back(&world, &path, async || {
        let n = left.fetch_add(1, Ordering::SeqCst);
        batch(&ours, &format!("late{n}"), 10).await;
        for id in leaving.iter().skip(usize::from(n) * 4).take(4) {
            world.post(&format!("/v1/deliveries/{id}/cancel"), json!({})).await.ok(200);
        }
    });
    for seen in walks.await {
        let once: BTreeSet<_> = seen.iter().cloned().collect();
        assert_eq!(once.len(), seen.len(), "a row twice");
        let stays: BTreeSet<_> = all.iter().filter(|id| !leaving.contains(id)).cloned().collect();
        assert!(stays.is_subset(&once), "a row is missing");
    }
    assert!(left.load(Ordering::SeqCst) > 15);

    // Every other list, both ways.
    let quiet = world.account().await;
    for n in 0..5 {
        world.event(&quiet, &format!("nobody-{n}"), "{}").await;
        world.endpoint(&ours, &format!("https://h{n}.customer.example.com/")).await;
        world.post("/v1/keys", json!({ "role": "support", "label": format!("{n}") })).await.ok(201);
        let filter = json!({ "status": "dead" });
        world
            .post("/v1/replays", json!({ "account_id": ours, "filter": filter, "reason": "r" }))
            .await
            .ok(202);
    }
    for (list, rows) in [
        ("/v1/accounts?".to_owned(), 3),
        (format!("/v1/endpoints?account_id={ours}"), 6),
        (format!("/v1/replays?account_id={ours}"), 5),
        (format!("/v1/events?account_id={theirs}"), 20),
        (format!("/v1/events?account_id={theirs}&event_type=a.*&since={at}"), 20),
        (format!("/v1/events?account_id={theirs}&event_type=no.such"), 0),
        (format!("/v1/events?account_id={quiet}&status=unmatched"), 5),
        (format!("/v1/events?account_id={quiet}"), 5),
        ("/v1/keys?".to_owned(), 5),
    ] {
        for limit in [1, 2, 3, 50] {
            let path = format!("{list}&limit={limit}");
            let [there, back] = there_and_back(&world, &path, async || ()).await;
            assert_eq!((there.len(), &there), (rows, &back), "{path}");
        }
    }
    let seqs = |page: &Value| -> Vec<u64> {
        page["data"].as_array().expect("a list").iter().map(|row| row["seq"].as_u64().expect("one")).collect()
    };
    let whole = seqs(&world.get("/v1/audit?limit=500").await.ok(200));
    for filter in ["", "&actor=nobody"] {
        let (mut last, mut there) = (world.get(&format!("/v1/audit?limit=4{filter}")).await, Vec::new());
        there.extend(seqs(&last.ok(200)));
        while let Some(next) = linked(&last, "next") {
            last = world.get(&next).await;
            there.extend(seqs(&last.ok(200)));
        }
        let mut back = seqs(&last.ok(200));
        while let Some(prev) = linked(&last, "prev") {
            last = world.get(&prev).await;
            back.splice(0..0, seqs(&last.ok(200)));
        }
        let wanted = if filter.is_empty() { whole.clone() } else { Vec::new() };
        assert_eq!((&there, &back), (&wanted, &wanted), "{filter}");
    }

    // Cursors of something else, and texts that are none.
    let pages = world.get(&format!("{list}&limit=1")).await.ok(200);
    let next = text(&pages["next_cursor"]);
    let second = world.get(&format!("{list}&limit=1&cursor={next}")).await.ok(200);
    for cursor in [next, text(&second["prev_cursor"])] {
        for other in [
            format!("/v1/deliveries?account_id={theirs}&cursor={cursor}"),
            format!("{list}&status=pending&cursor={cursor}"),
            format!("{list}&since={at}&cursor={cursor}"),
            format!("/v1/endpoints?account_id={ours}&cursor={cursor}"),
            format!("/v1/accounts?cursor={cursor}"),
            format!("/v1/audit?cursor={cursor}"),
        ] {
            let refused = world.get(&other).await;
            assert_eq!(refused.refused(400), ["bad-cursor"], "{other}");
            let detail = text(&refused.ok(400)["detail"]);
            assert!(detail.contains("another list, account or filter"), "{detail}");
        }
        for rubbish in [&cursor[..cursor.len() - 1], "AAAA", "e30", "%00", &"A".repeat(10_240)] {
            let refused = world.get(&format!("{list}&cursor={rubbish}")).await;
            assert_eq!(refused.refused(400), ["bad-cursor"], "{rubbish}");
            let detail = text(&refused.ok(400)["detail"]);
            assert!(detail.contains("no cursor of this store"), "{detail}");
        }
        // Of another size of page it is as good.
        world.get(&format!("{list}&limit=9&cursor={cursor}")).await.ok(200);
    }
    for limit in ["0", "-1", "1.5", "x"] {
        let refused = world.get(&format!("{list}&limit={limit}")).await;
        assert_eq!(refused.refused(400), ["bad-query", "/limit bad-parameter"], "{limit}");
    }
    let empty = world.get(&format!("{list}&event_type=no.such")).await.ok(200);
    assert_eq!(
        (&empty["data"], &empty["next_cursor"], &empty["prev_cursor"]),
        (&json!([]), &Value::Null, &Value::Null)
    );
}

/// C113: one instant in any spelling selects the same; ranges are half open; what goes out can come in.
#[tokio::test(flavor = "multi_thread")]
async fn c113_equal_instants_are_equal_filters() {
    let world = World::new().await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, "https://hooks.customer.example.com/").await;
    world.post(&format!("/v1/endpoints/{endpoint}/pause"), json!({})).await.ok(200);
    // 2026-03-01T00:00:00Z, and a millisecond before and after.
    let middle = Timestamp(1_772_323_200_000);
    world.advance(Millis(middle.0 - 1 - world.now().0)).await;
    let mut made = Vec::new();
    for n in 0..3 {
        made.push(delivery(&world.event(&account, &format!("evt_{n}"), "{}").await));
        world.advance(Millis(1)).await;
    }
    let list = format!("/v1/deliveries?account_id={account}");
    let found = async |query: &str| {
        let mut found = ids(&world.get(&format!("{list}&{query}")).await.ok(200));
        found.reverse();
        found
    };
    for spelling in [
        "2026-03-01T00:00:00Z",
        "2026-03-01t00:00:00z",
        "2026-03-01T00:00:00.000000000Z",
        "2026-03-01T00:00:00-00:00",
        "2026-03-01T07:00:00%2B07:00",
        "2026-03-01T07:00:00+07:00",
        "2026-02-28T18:30:00-05:30",
    ] {
        assert_eq!(found(&format!("since={spelling}")).await, made[1..], "{spelling}");
        assert_eq!(found(&format!("until={spelling}")).await, made[..1], "{spelling}");
    }
    // Between two milliseconds there is nothing: what is before is before, what is after is after.
    for within in
        ["2026-03-01T00:00:00.000000001Z", "2026-03-01T00:00:00.0005Z", "2026-03-01T00:00:00.000999999Z"]
    {
        assert_eq!(found(&format!("since={within}")).await, made[2..], "{within}");
        assert_eq!(found(&format!("until={within}")).await, made[..2], "{within}");
    }
    // A leap second is the end of its minute.
    assert_eq!(found("since=2026-02-28T23:59:60Z").await.len(), 3);
    assert_eq!(found("since=1970-01-01T00:00:00Z").await, made);
    assert_eq!(found("until=1970-01-01T00:00:00Z").await.len(), 0);
    assert_eq!(found("since=9999-12-30T00:00:00Z").await.len(), 0);
    assert_eq!(found("until=9999-12-30T00:00:00Z").await, made);
    let same = "2026-03-01T00:00:00Z";
    assert_eq!(found(&format!("since={same}&until={same}")).await.len(), 0, "an empty range is none");
    for wrong in [
        "since=2026-03-01",
        "since=2026-03-01T00:00:00",
        "since=0000-01-01T00:00:00Z",
        "since=2026-02-30T00:00:00Z",
        "since=2026-03-01T24:30:00Z",
        "since=1772323200",
        "until=yesterday",
        "since=2026-03-02T00:00:00Z&until=2026-03-01T00:00:00Z",
        "since=2026-03-01T00:00:00Z&since=2026-03-01T00:00:00Z",
    ] {
        let name = &wrong[..5];
        let refused = world.get(&format!("{list}&{wrong}")).await.refused(400);
        assert_eq!(refused, ["bad-query".to_owned(), format!("/{name} bad-parameter")], "{wrong}");
    }
    // Whatever is shown finds what it was shown of.
    for row in world.get(&list).await.ok(200)["data"].as_array().expect("a list") {
        let at = text(&row["created_at"]);
        assert!(at.len() == 24 && at.ends_with('Z'), "one form: {at}");
        assert!(found(&format!("since={at}")).await.contains(&text(&row["id"])));
        assert!(!found(&format!("until={at}")).await.contains(&text(&row["id"])));
        // Never tried, so there is no moment of a try, not even one long ago.
        assert_eq!(row.get("last_attempt").unwrap_or(&Value::Null), &Value::Null, "{row}");
        assert!(!row.to_string().contains("1970-") && !row.to_string().contains("0001-"), "{row}");
    }
}

/// C115: attempts are numbered and ordered alike wherever they are shown, and only what waits has a next try.
#[tokio::test(flavor = "multi_thread")]
async fn c115_attempts_count_alike_everywhere() {
    let mut world = World::new().await;
    let status = Arc::new(AtomicU16::new(500));
    let told = status.clone();
    let mut hook = Hook::answering(move |_| answer(told.load(Ordering::SeqCst), "", "")).await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    let id = delivery(&world.event_with(&account, "evt_1", "{}", r#","max_tries":11"#).await);
    // Hurried, so that several fall into one millisecond of a clock that stands; until the breaker wants a pause.
    for tried in 1..11 {
        let now = world.until_tried(&id, tried).await;
        assert!(world.due_in(&now).0 > 0, "{now}");
        world.post(&format!("/v1/deliveries/{id}/retry-now"), json!({})).await.ok(202);
        if tried >= 5 {
            world.advance_secs(60).await;
        }
    }
    let dead = world.until(&id, "dead").await;
    assert_eq!(dead.get("due_at"), None, "it is over");
    status.store(200, Ordering::SeqCst);
    world.post(&format!("/v1/deliveries/{id}/replay"), json!({})).await.ok(202);
    world.advance_secs(60).await;
    world.until(&id, "delivered").await;
    let mut before = Value::Null;
    for restarted in [false, true] {
        if restarted {
            world.restart().await;
        }
        let now = world.delivery(&id).await;
        assert_eq!((&now["attempts"], &now["run"], &now["try"]), (&json!(12), &json!(2), &json!(1)));
        assert_eq!((&now["last_attempt"]["number"], now.get("due_at")), (&json!(12), None), "{now}");
        assert_eq!(now["last_attempt"]["status_code"], 200);
        let attempts = world.attempts(&id).await;
        let numbers: Vec<_> = attempts.iter().map(|attempt| attempt["number"].as_u64()).collect();
        assert_eq!(numbers, (1..=12).map(Some).collect::<Vec<_>>());
        let tries: Vec<_> = attempts.iter().map(|a| (a["run"].as_u64(), a["try"].as_u64())).collect();
        let wanted = (1..=11).map(|n| (Some(1), Some(n))).chain([(Some(2), Some(1))]);
        assert_eq!(tries, wanted.collect::<Vec<_>>());
        assert!(attempts.is_sorted_by_key(|attempt| moment(&attempt["started_at"])));
        let listed = world.get(&format!("/v1/deliveries?account_id={account}")).await.ok(200);
        assert_eq!(listed["data"][0]["last_attempt"], now["last_attempt"]);
        let timeline = world.get("/v1/events/evt_1/timeline").await.ok(200);
        let facts = timeline["data"].as_array().expect("a list");
        for name in ["Attempted", "Failed", "Delivered"] {
            let numbers =
                facts.iter().filter(|fact| fact["fact"] == name).map(|fact| fact["attempt"].as_u64());
            let wanted = match name {
                "Attempted" => 1..=12,
                "Failed" => 1..=11,
                _ => 12..=12,
            };
            assert_eq!(numbers.collect::<Vec<_>>(), wanted.map(Some).collect::<Vec<_>>(), "{name}");
        }
        let explained = world.get(&format!("/v1/explain/{id}")).await.ok(200);
        assert!(explained.to_string().contains("Yes. "), "{explained}");
        if restarted {
            assert_eq!(now, before, "the same after a restart");
        }
        before = now;
    }
    assert_eq!(hook.count(), 12);
    world.always_true(&mut [&mut hook]).await;
}

/// C116: edits at once all hold or say that they do not; `null` clears, what is absent stays.
#[tokio::test(flavor = "multi_thread")]
async fn c116_edits_neither_get_lost_nor_fail_by_themselves() {
    let world = World::new().await;
    let account = world.account().await;
    let url = "https://hooks.customer.example.com/";
    let endpoint = world.endpoint(&account, url).await;
    let path = format!("/v1/endpoints/{endpoint}");
    let fields = [
        ("description", json!("d")),
        ("timeout_ms", json!(5_000)),
        ("in_flight_max", json!(3)),
        ("rate_per_second", json!(9)),
        ("disable_after_secs", json!(600)),
        ("event_types", json!(["a.*"])),
    ];
    // Thirty at once, five of each member; the last value of a member is anyone's, but all six are changed.
    let patch = |n: usize| {
        let (name, value) = &fields[n % fields.len()];
        let path = path.clone();
        let world = &world;
        async move { world.patch(&path, json!({ *name: value })).await.status.as_u16() }
    };
    let statuses = futures::future::join_all((0..30).map(patch)).await;
    assert_eq!(statuses, [200; 30]);
    let now = world.get(&path).await.ok(200);
    for (name, value) in &fields {
        assert_eq!(&now[*name], value, "{now}");
    }
    assert_eq!(now["version"], 7, "each accepted change is one: {now}");
    // Of thirty who saw the same version, one changes it.
    let if_match = |n: usize| {
        let body = Body::from(json!({ "description": format!("by {n}") }).to_string());
        let request = Request::patch(&path)
            .header("content-type", "application/json")
            .header("if-match", "\"7\"")
            .body(body)
            .expect("a request");
        let world = &world;
        async move { world.send(request).await.status.as_u16() }
    };
    let mut statuses = futures::future::join_all((0..30).map(if_match)).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200], vec![412; 29]].concat());

    // Names that must be unique: one of two at once.
    let queue = json!({ "account_id": account, "queue": "jobs" });
    let make = || world.post("/v1/endpoints", queue.clone());
    let (one, two) = tokio::join!(make(), make());
    let mut statuses = [one.status.as_u16(), two.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409]);

    let put = async |body: Value| world.patch(&path, body).await;
    put(json!({ "headers": { "x-a": "1" } })).await.ok(200);
    assert_eq!(put(json!({})).await.ok(200)["headers"], json!({ "x-a": "[redacted]" }), "absent stays");
    assert_eq!(put(json!({ "headers": {} })).await.ok(200)["headers"], json!({}), "none is none");
    put(json!({ "headers": { "x-a": "1" } })).await.ok(200);
    assert_eq!(put(json!({ "headers": null })).await.ok(200)["headers"], json!({}), "null clears");
    let cleared =
        put(json!({ "rate_per_second": null, "timeout_ms": null, "description": null })).await.ok(200);
    assert_eq!(
        (cleared.get("rate_per_second"), &cleared["timeout_ms"], &cleared["description"]),
        (None, &json!(10_000), &json!(""))
    );
    let version = cleared["version"].clone();
    for (body, status, code) in [
        (r#"{"colour":"red"}"#.to_owned(), 422, "invalid"),
        (r#"{"timeout_ms":"5"}"#.to_owned(), 422, "invalid"),
        (r#"{"description":7}"#.to_owned(), 422, "invalid"),
        (r#"{"url":null}"#.to_owned(), 422, "invalid"),
        (format!(r#"{{"description":"{}"}}"#, "x".repeat(1 << 20)), 413, "too-large"),
        (r#"{"description":"a","description":"b"}"#.to_owned(), 422, "invalid"),
        ("[]".to_owned(), 422, "invalid"),
        ("{".to_owned(), 400, "not-json"),
    ] {
        let refused = world.call(Method::PATCH, &path, "application/json", body.clone()).await;
        let shown: String = body.chars().take(60).collect();
        assert_eq!(refused.refused(status)[0], code, "{shown}");
    }
    let now = world.get(&path).await.ok(200);
    assert_eq!(now["version"], version, "what is refused changes nothing");
    let audit = world.get("/v1/audit?limit=500").await.ok(200);
    let changed = audit["data"].as_array().expect("a list").iter();
    let changed =
        changed.filter(|row| row["fact"] == "EndpointChanged" && row["endpoint_id"] == json!(endpoint));
    assert_eq!(
        changed.count() as u64 + 1,
        version.as_u64().expect("a number"),
        "each change is on the log once"
    );
    world.always_true(&mut []).await;
}
