//! What pages give to take along, what they say of the server, and the way through their lists: exports, evidence, the
//! request as a command; draining, rebuilding, late; newer and older.

#[path = "support/browser.rs"]
mod browser;
#[path = "support/keyed.rs"]
mod keyed;
#[path = "support/receiver.rs"]
mod receiver;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use browser::{enter, read, sign_in};
use hooklog::clock::Clock;
use hooklog_projections::time::Millis;
use keyed::{LONG, World, text};
use receiver::{Receiver, answer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

async fn operator(world: &World) -> String {
    sign_in(world, &world.key(json!({ "role": "operator" })).await.1).await.cookie
}

/// Many events that wait for days; the ids of some are formulas to a spreadsheet.
async fn many(world: &World, account: &str, count: usize) {
    world.held(account).await;
    let due = (jiff::Timestamp::now() + jiff::Span::new().hours(48)).to_string();
    for batch in 0..count.div_ceil(100) {
        let of = batch * 100..count.min(batch * 100 + 100);
        let events: Vec<Value> = of
            .map(|n| {
                json!({ "account_id": account, "id": format!("-{n}"), "type": "held.back", "data": { "n": n },
                    "deliver_at": due })
            })
            .collect();
        world.locally("POST", "/v1/events/batch", json!({ "events": events })).await.ok(202);
    }
}

/// All rows that the filters take, whatever page one was on, and no cell that a spreadsheet would run.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_exported_with_its_filters_and_without_formulas() {
    let world = World::new().await;
    let (account, other) = (world.account("Acme").await, world.account("Other").await);
    many(&world, &account, 620).await;
    world.held(&other).await;
    let cookie = operator(&world).await;
    let list = read(&world, &cookie, &format!("/deliveries?account_id={account}&status=pending")).await;
    for format in ["csv", "jsonl"] {
        let link =
            format!("href=\"/deliveries?account_id={account}&amp;status=pending&amp;format={format}\"");
        assert!(list.html.contains(&link), "{link}: {}", list.html);
    }
    let path = format!("/deliveries?account_id={account}&status=pending&limit=5&format=csv");
    let file = read(&world, &cookie, &path).await;
    assert_eq!(file.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(file.header("content-disposition"), "attachment; filename=\"deliveries.csv\"");
    assert_eq!(file.header("x-content-type-options"), "nosniff");
    let lines: Vec<&str> = file.html.lines().collect();
    assert_eq!(lines.len(), 622, "a head, and each delivery once");
    assert!(lines[0].starts_with("id,event_id,event_type,"), "{}", lines[0]);
    assert!(lines.iter().any(|line| line.contains(",'-7,")), "a formula is none: {}", lines[1]);
    assert!(!file.html.contains(",-"), "no cell begins with a sign");
    let rows = |path: String| {
        let (world, cookie) = (&world, &cookie);
        async move {
            let file = read(world, cookie, &path).await;
            assert_eq!(file.status, 200, "{}", file.words());
            file.html.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<Value>>()
        }
    };
    assert_eq!(rows("/deliveries?format=jsonl".into()).await.len(), 622, "of both accounts");
    assert_eq!(rows(format!("/deliveries?account_id={account}&status=dead&format=jsonl")).await.len(), 0);
    let events = rows(format!("/events?account_id={account}&format=jsonl")).await;
    assert_eq!(events.len(), 621);
    assert!(events.iter().all(|event| event["account_id"] == account.as_str()));
    let csv = read(&world, &cookie, &format!("/events?account_id={account}&format=csv")).await.html;
    assert!(csv.starts_with("id,type,account_id,") && csv.contains("\n'-7,held.back,"), "{}", &csv[..200]);
    // A customer's file holds its own.
    let session = enter(&world, &other, "account_read").await;
    let own = read(&world, &session.cookie, "/portal/deliveries?format=jsonl").await;
    assert_eq!((own.html.lines().count(), own.html.contains(&account)), (1, false), "{}", own.html);
    // What is wrong is told on a page, before a file begins.
    for path in ["/deliveries?format=xlsx", "/deliveries?format=csv&status=x", "/dead?format=csv&colour=red"]
    {
        let refused = read(&world, &cookie, path).await;
        assert_eq!(
            (refused.status, refused.header("content-type")),
            (400, "text/html; charset=utf-8"),
            "{path}"
        );
    }
    let dead = read(&world, &cookie, "/dead?format=csv").await;
    assert_eq!(dead.html, "account_id,endpoint_id,endpoint_url,event_type,reason,count,first_at,last_at\n");
}

/// Rows of the third page of 25: of all accounts there is one more.
fn rows_of(first: &str) -> usize {
    if first.ends_with("account_id=") { 11 } else { 10 }
}

/// Page by page to the oldest, and back to the newest.
#[tokio::test(flavor = "multi_thread")]
async fn lists_go_both_ways() {
    let world = World::new().await;
    let account = world.account("Acme").await;
    many(&world, &account, 59).await;
    let cookie = operator(&world).await;
    let session = enter(&world, &account, "account_read").await;
    world.held(&world.account("Other").await).await;
    for (cookie, first) in [
        // Of all accounts: off the log, and put together out of theirs.
        (&cookie, "/deliveries?limit=25&event_type=held.back&account_id=".to_owned()),
        (&cookie, "/deliveries?status=pending&limit=25&account_id=".into()),
        (&cookie, format!("/deliveries?account_id={account}&status=pending&limit=25")),
        (&cookie, format!("/events?account_id={account}&limit=25")),
        (&session.cookie, "/portal/events?limit=25".into()),
    ] {
        let follow = async |path: &str, rel: &str| {
            let page = read(&world, cookie, path).await;
            let (before, _) = page.html.split_once(&format!("\" rel=\"{rel}\""))?;
            Some(before.rsplit_once("href=\"").expect("an address").1.replace("&amp;", "&"))
        };
        let rows = async |path: &str| {
            let page = read(&world, cookie, path).await;
            let rows = page.html.split("<a class=\"row\" href=\"").skip(1);
            rows.map(|row| row.split_once('"').expect("an end").0.to_owned()).collect::<Vec<_>>()
        };
        let second = follow(&first, "next").await.expect("older ones");
        let third = follow(&second, "next").await.expect("older ones");
        assert_eq!(follow(&third, "next").await, None, "the end");
        assert_eq!(follow(&first, "prev").await, None, "the beginning");
        assert_eq!((rows(&first).await.len(), rows(&third).await.len()), (25, rows_of(&first)), "{first}");
        let back = follow(&third, "prev").await.expect("newer ones");
        assert_eq!(rows(&back).await, rows(&second).await, "{back}");
        let start = follow(&back, "prev").await.expect("newer ones");
        assert_eq!(rows(&start).await, rows(&first).await, "{start}");
    }
}

/// The payload's bytes and hash, the facts, the requests; and the request as a command that a shell takes.
#[tokio::test(flavor = "multi_thread")]
async fn what_happened_can_be_taken_along() {
    let world = World::new().await;
    let receiver = Receiver::answering(|_| answer(500, "", "it's down")).await;
    let account = world.account("Acme").await;
    let made = json!({ "account_id": account, "url": receiver.url("/hook?a=it's"), "headers": { "x-api-key": "TOPSECRET" } });
    world.locally("POST", "/v1/endpoints", made).await.ok(201);
    let event =
        json!({ "account_id": account, "type": "a.b", "data": { "who": "it's $(me)" }, "max_tries": 1 });
    let event = world.locally("POST", "/v1/events", event).await.ok(202);
    let (id, delivery) = (text(&event["id"]), text(&event["deliveries"][0]["id"]));
    world.dead(&delivery).await;
    let cookie = operator(&world).await;
    let page = read(&world, &cookie, &format!("/events/{id}")).await;
    for part in [
        "curl -g -X POST 'http://127.0.0.1:",
        "/hook?a=it%27s' \\ -H 'Idempotency-Key: ",
        &format!("-H 'webhook-id: {id}'"),
        "it'\\''s $(me)",
        "# Left out, for it is not kept or not to be copied:",
        "Download evidence",
    ] {
        assert!(page.words().contains(part), "{part}: {}", page.words());
    }
    let session = enter(&world, &account, "account").await;
    for (cookie, base, sees_all) in [(&cookie, "", true), (&session.cookie, "/portal", false)] {
        let file = read(&world, cookie, &format!("{base}/events/{id}/evidence")).await;
        assert_eq!(file.header("content-disposition"), format!("attachment; filename=\"{id}.json\""));
        let told: Value = serde_json::from_str(&file.html).expect("JSON");
        let payload = STANDARD.decode(text(&told["event"]["payload_base64"])).expect("base64");
        let hash: String = Sha256::digest(&payload).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(told["event"]["sha256"], hash.as_str());
        assert!(String::from_utf8_lossy(&payload).contains("it's $(me)"));
        let one = &told["deliveries"][0];
        let facts: Vec<_> =
            one["facts"].as_array().expect("a list").iter().map(|fact| text(&fact["fact"])).collect();
        assert_eq!(facts[..3], ["Accepted", "Enqueued", "Attempted"], "{told}");
        assert_eq!(one["attempts"][0]["status_code"], 500);
        assert_eq!(one["requests"][0]["headers"]["x-api-key"], "[redacted]");
        assert_eq!(one["facts"][0].get("seq").is_some(), sees_all);
        assert!(!file.html.contains("TOPSECRET"));
    }
}

/// The strip stands on every page while there is something to say, and on none when it is over.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_says_when_deliveries_are_late() {
    let world = World::new().await;
    let account = world.account("Acme").await;
    let (cookie, session) = (operator(&world).await, enter(&world, &account, "account_read").await);
    let made = json!({ "account_id": account, "url": "http://127.0.0.1:9/" });
    world.locally("POST", "/v1/endpoints", made).await.ok(201);
    let handle = world.store.handle();
    handle.fault_scheduler(true);
    let event = json!({ "account_id": account, "type": "a.b", "data": 1 });
    let event = world.locally("POST", "/v1/events", event).await.ok(202);
    let pages =
        [(&cookie, "/"), (&cookie, "/deliveries"), (&cookie, "/audit"), (&session.cookie, "/portal/dead")];
    for (cookie, path) in pages {
        let page = read(&world, cookie, path).await;
        assert!(!page.words().contains("Deliveries are late"), "{path}: {}", page.words());
    }
    let path = format!("/v1/deliveries/{}", text(&event["deliveries"][0]["id"]));
    let waits = world.locally("GET", &path, Value::Null).await.ok(200);
    assert_eq!(waits["status"], "pending", "{waits}");
    world.clock.advance(Millis::from_secs(6 * 60));
    // The writer looks within its next turn.
    let looked = async {
        while handle.health().late(world.clock.monotonic()) < Millis::from_secs(6 * 60) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, looked).await.expect("it looks");
    for (cookie, path) in pages {
        let page = read(&world, cookie, path).await;
        let words =
            "Deliveries are late: the oldest by 6 min, through this server and not through its receiver.";
        assert!(page.words().contains(words), "{path}: {}", page.words());
    }
    let customer = read(&world, &session.cookie, "/portal/").await;
    assert!(!customer.words().contains("permits"), "{}", customer.words());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_says_when_views_are_rebuilt_and_when_the_server_stops() {
    let world = World::new().await;
    let account = world.account("Acme").await;
    // So many entries that they are folded in steps.
    many(&world, &account, 600).await;
    let (cookie, session) = (operator(&world).await, enter(&world, &account, "account_read").await);
    let handle = world.store.handle().clone();
    let now = tokio::runtime::Handle::current();
    let looked = tokio::task::block_in_place(|| {
        let mut looked = 0;
        let progress = &mut |_, _| {
            for (cookie, path) in [(&cookie, "/system"), (&session.cookie, "/portal/")] {
                let page = now.block_on(read(&world, cookie, path));
                assert!(page.words().contains("The views are rebuilt"), "{path}: {}", page.words());
                looked += 1;
            }
        };
        handle.rebuild(progress).expect("a rebuild");
        looked
    });
    assert!(looked > 0);
    let page = read(&world, &cookie, "/system").await;
    assert!(!page.words().contains("rebuilt") && page.words().contains("Ready."), "{}", page.words());

    // It stops when what is out has ended; that request waits for an answer.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", silent.local_addr().expect("an address"));
    let made = json!({ "account_id": account, "url": url, "event_types": ["x.y"], "timeout_ms": 30_000 });
    world.locally("POST", "/v1/endpoints", made).await.ok(201);
    let event = json!({ "account_id": account, "type": "x.y", "data": 1, "max_tries": 1 });
    let event = world.locally("POST", "/v1/events", event).await.ok(202);
    world.comes_to(&text(&event["deliveries"][0]["id"]), "in_flight").await;
    let World { app, store, folder: _folder, .. } = world;
    let draining = store.handle().health().closing().clone();
    let closing = tokio::spawn(store.close(LONG));
    draining.cancelled().await;
    for (cookie, path) in [(&cookie, "/deliveries"), (&session.cookie, "/portal/deliveries")] {
        let request = axum::http::Request::get(path).header("cookie", cookie);
        let reply = World::send(&app, request.body(axum::body::Body::empty()).expect("a request")).await;
        let html = String::from_utf8_lossy(&reply.body);
        assert!(html.contains("The server is stopping."), "{path}: {html}");
    }
    drop(silent);
    closing.await.expect("no panic").expect("in order");
}

/// A receiver that asked for patience, a pause, a new URL, a new key, and a restart stand in the story, with who did it.
#[tokio::test(flavor = "multi_thread")]
async fn the_timeline_tells_what_happened_to_the_endpoint_meanwhile() {
    let world = World::new().await;
    let receiver = Receiver::answering(|_| answer(429, "retry-after: 7200\r\n", "slowly")).await;
    let account = world.account("Acme").await;
    let made = json!({ "account_id": account, "url": receiver.url("/old") });
    let endpoint = text(&world.locally("POST", "/v1/endpoints", made).await.ok(201)["id"]);
    let event = json!({ "account_id": account, "type": "a.b", "data": 1 });
    let event = world.locally("POST", "/v1/events", event).await.ok(202);
    let (id, delivery) = (text(&event["id"]), text(&event["deliveries"][0]["id"]));
    let mut heads = world.store.handle().published().heads();
    loop {
        heads.borrow_and_update();
        let shown = world.locally("GET", &format!("/v1/deliveries/{delivery}"), Value::Null).await.ok(200);
        if shown["attempts"] == 1 && shown["status"] == "pending" {
            break;
        }
        tokio::time::timeout(LONG, heads.changed()).await.expect("in time").expect("it runs");
    }
    let session = enter(&world, &account, "account").await;
    let path = format!("/portal/endpoints/{endpoint}");
    let pause = read(&world, &session.cookie, &path).await.form("pause").with("reason", "we move");
    assert_eq!(browser::press(&world, &session.cookie, &pause).await.status, 303);
    let change = json!({ "url": receiver.url("/new") });
    world.locally("PATCH", &format!("/v1/endpoints/{endpoint}"), change).await.ok(200);
    let rotate = read(&world, &session.cookie, &path).await.form("rotate");
    assert_eq!(browser::press(&world, &session.cookie, &rotate).await.status, 200);
    let resume = read(&world, &session.cookie, &path).await.form("resume");
    assert_eq!(browser::press(&world, &session.cookie, &resume).await.status, 303);
    let page = read(&world, &session.cookie, &format!("/portal/events/{id}")).await.words();
    let mut rest = page.as_str();
    for part in [
        "Failed: HTTP 429",
        "The receiver asked for patience",
        "Endpoint paused: “we move” by the portal",
        "Endpoint changed: URL",
        "/new",
        "Signing keys replaced",
        "Endpoint resumed",
    ] {
        let at =
            rest.find(part).unwrap_or_else(|| panic!("{part} is not there, or not in its place: {page}"));
        rest = &rest[at + part.len()..];
    }
}
