//! What went wrong on other webhook senders' dashboards, by the number of the case: C121, C122. At the level of HTTP:
//! what a browser would be given.

#[path = "support/browser.rs"]
mod browser;
#[path = "support/keyed.rs"]
mod keyed;
#[path = "support/receiver.rs"]
mod receiver;

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};

use axum::body::Body;
use axum::http::Request;
use browser::{Seen, enter, press, read, sign_in};
use futures::StreamExt;
use keyed::{LONG, World, text};
use receiver::{Receiver, answer, raw};
use serde_json::{Value, json};
use tower::ServiceExt;

/// Everything that is logged in this process.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no holder panics").write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

static LOGGED: LazyLock<Logged> = LazyLock::new(|| {
    let logged = Logged::default();
    let writer = logged.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || writer.clone())
        .init();
    logged
});

/// Every page of an entrance that shows a delivery, its endpoint, or what is searched for.
fn pages(base: &str, of: &[(&str, &str)], search: &str) -> Vec<String> {
    let mut out: Vec<String> = [
        "/",
        "/events",
        "/deliveries",
        "/deliveries?format=csv",
        "/deliveries?format=jsonl",
        "/dead",
        "/dead?format=csv",
        "/endpoints",
        "/replays",
        "/replays/new?status=dead",
        "/nowhere",
    ]
    .map(|path| format!("{base}{path}"))
    .into();
    out.extend(of.iter().map(|(noun, id)| format!("{base}/{noun}/{id}")));
    out.extend(
        ["find?q", "deliveries?event_type", "deliveries?status", "events/none?done", "dead?colour"]
            .map(|path| format!("{base}/{path}={search}")),
    );
    out
}

/// Tags that our pages are made of. Whatever else looks like one is a stranger's.
const TAGS: &str = "a b body br button circle code dd details dialog div dl dt fieldset figcaption figure footer form g \
    h1 h2 h3 h4 head header html input kbd label legend li link main meta nav ol option p path pre rect script search \
    section select span strong summary svg symbol table tbody td th thead time title tr ul use caption";

/// Whether all marks of a page are ours, and none does anything of a stranger's.
#[track_caller]
fn is_tame(page: &Seen, path: &str) {
    if !page.header("content-type").starts_with("text/html") {
        return is_saved(page, path);
    }
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self' 'nonce-"), "{path}: {policy}");
    for part in page.html.split('<').skip(1) {
        let tag = part.split_once('>').map_or(part, |(tag, _)| tag);
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap_or_default();
        assert!(name == "!DOCTYPE" || TAGS.split_whitespace().any(|known| known == name), "{path}: <{tag}>");
        // Within a tag, all that is not a value is a name of ours.
        let bare: String = tag.split('"').step_by(2).collect();
        assert!(
            !bare.split_whitespace().any(|word| word.to_lowercase().starts_with("on")),
            "{path}: <{tag}>"
        );
        let lower = tag.to_lowercase();
        for lead in ["javascript:", "data:", "//canary"] {
            let leads = ["href", "src", "action", "formaction"]
                .iter()
                .any(|name| lower.contains(&format!(" {name}=\"{lead}")));
            assert!(!leads, "{path}: <{tag}>");
        }
        assert!(
            name != "script" || tag.starts_with('/') || tag.contains(" src=\"/"),
            "{path}: a script of a page's own"
        );
    }
    for unseen in ['\u{2028}', '\u{202e}', '\u{1b}'] {
        assert!(!page.html.contains(unseen), "{path}: {unseen:?}");
    }
}

/// What is no page is saved by a browser, and never shown as one.
#[track_caller]
fn is_saved(page: &Seen, path: &str) {
    assert!(page.header("content-disposition").starts_with("attachment; "), "{path}: {page:?}");
    assert_eq!(page.header("x-content-type-options"), "nosniff", "{path}");
    assert_eq!(page.header("content-security-policy"), "sandbox", "{path}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c121_what_strangers_write_is_text_on_every_page_of_both_entrances() {
    LazyLock::force(&LOGGED);
    const MARKUP: [&str; 5] = [
        "<img src=x onerror=fetch('//canary')>",
        "\"><svg/onload=fetch('//canary')>",
        "</script><script>fetch('//canary')</script>",
        "{{constructor.constructor('fetch(1)')()}}",
        "javascript:fetch('//canary')",
    ];
    let world = World::new().await;
    let all = MARKUP.join(" ");
    let (phrase, field, body) = (all.clone(), all.clone(), format!("{all}\u{2028}\u{1b}[2J"));
    let receiver = Receiver::answering(move |_| {
        let head = format!("HTTP/1.1 500 {phrase}\r\nserver: {field}\r\nretry-after: {field}\r\n");
        vec![raw(format!("{head}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()))]
    })
    .await;
    let account = text(&world.locally("POST", "/v1/accounts", json!({ "name": all })).await.ok(201)["id"]);
    let url = receiver.url("/%3Cimg%20src=x%20onerror=fetch('//canary')%3E?q=%22%3E%3Csvg/onload=1%3E");
    let made = json!({ "account_id": account, "url": url, "description": all, "headers": { "x-own": all } });
    let endpoint = text(&world.locally("POST", "/v1/endpoints", made).await.ok(201)["id"]);
    // A type is a word, so nothing gets in by it.
    let odd = json!({ "account_id": account, "type": MARKUP[0], "data": 1 });
    assert_eq!(world.locally("POST", "/v1/events", odd).await.status, 422);
    let data = json!({ MARKUP[0]: MARKUP[1], MARKUP[2]: "\u{2028}", "all": all });
    let event = json!({ "account_id": account, "type": "x.y", "data": data, "max_tries": 1 });
    let event = world.locally("POST", "/v1/events", event).await.ok(202);
    let (id, delivery) = (text(&event["id"]), text(&event["deliveries"][0]["id"]));
    let sent = Request::post(format!("/v1/events/raw?account_id={account}&type=x.raw"))
        .header("content-type", "text/html;<img src=x onerror=fetch('//canary')>");
    let sent =
        World::send(&world.local, sent.body(Body::from(all.clone())).expect("a request")).await.ok(202);
    let page = text(&sent["id"]);
    world.dead(&delivery).await;
    let tried =
        world.locally("GET", &format!("/v1/deliveries/{delivery}/attempts"), Value::Null).await.ok(200);
    assert_eq!(tried["data"][0]["status_code"], 500, "{tried}");
    let attempt = text(&tried["data"][0]["id"]);
    let pause = json!({ "reason": all });
    world.locally("POST", &format!("/v1/endpoints/{endpoint}/pause"), pause).await.ok(200);

    let signed = async |role: &str| sign_in(&world, &world.key(json!({ "role": role })).await.1).await;
    let (operator, support) = (signed("operator").await, signed("support").await);
    let customer = enter(&world, &account, "account").await;
    let evidence = format!("{id}/evidence");
    let payload = format!("{page}/payload");
    let of = [
        ("events", id.as_str()),
        ("events", &page),
        ("events", &evidence),
        ("events", &payload),
        ("deliveries", &delivery),
        ("attempts", &attempt),
        ("endpoints", &endpoint),
    ];
    let search = "%3Cimg%20src=x%20onerror=fetch('//canary')%3E%22%3E%3Csvg/onload=1%3E%E2%80%A8%1B";
    let mut shown = 0;
    for (person, base) in [(&operator, ""), (&support, ""), (&customer, "/portal")] {
        let mut paths = pages(base, &of, search);
        if base.is_empty() {
            paths.extend([
                "/accounts".into(),
                format!("/accounts/{account}"),
                "/audit".into(),
                "/system".into(),
            ]);
            paths.push(format!("/events?account_id={account}"));
        }
        for path in paths {
            let page = read(&world, &person.cookie, &path).await;
            assert!(page.status < 500, "{path}: {}", page.words());
            is_tame(&page, &path);
            shown += usize::from(page.html.contains("&lt;img src=x onerror=fetch("));
        }
        let answered = read(&world, &person.cookie, &format!("{base}/deliveries/{delivery}")).await;
        // Shown it is: as text.
        for part in ["&lt;/script&gt;&lt;script&gt;", "{{constructor.constructor(", "U+2028", "HTTP 500"] {
            assert!(answered.html.contains(part), "{part}: {}", answered.html);
        }
        let raw = read(&world, &person.cookie, &format!("{base}/events/{payload}")).await;
        assert_eq!(raw.header("content-type"), "application/octet-stream");
        assert_eq!(raw.html, all, "byte for byte");
    }
    assert!(shown > 12, "{shown} pages show it");
}

#[tokio::test(flavor = "multi_thread")]
async fn c122_secrets_are_shown_to_nobody_and_still_sent() {
    let logged = LazyLock::force(&LOGGED);
    let world = World::new().await;
    let refusal = || answer(500, "set-cookie: session=TOPSECRET4\r\n", "no");
    let mut receiver = Receiver::answering(move |_| refusal()).await;
    let account = world.account("Acme").await;
    let own =
        json!({ "authorization": "Bearer TOPSECRET1", "x-api-key": "TOPSECRET2", "x-session": "TOPSECRET3" });
    // A cookie is nothing that an endpoint can be given, and the refusal does not tell its value.
    let cookie =
        json!({ "account_id": account, "url": receiver.url("/"), "headers": { "cookie": "a=TOPSECRET6" } });
    let cookie = world.locally("POST", "/v1/endpoints", cookie).await;
    assert_eq!(cookie.status, 422);
    let made = json!({ "account_id": account, "url": receiver.url("/hook"), "headers": own });
    let made = world.locally("POST", "/v1/endpoints", made).await.ok(201);
    let (endpoint, secret) = (text(&made["id"]), text(&made["signing_secret"]));
    let user = json!({ "account_id": account, "url": receiver.url("/").replace("//", "//user:TOPSECRET5@") });
    let refused = world.locally("POST", "/v1/endpoints", user).await;
    assert_eq!(refused.status, 422, "a URL has no password");

    // Read, changed, written back whole, as a program does it: what was masked stays what it was.
    let path = format!("/v1/endpoints/{endpoint}");
    let shown = world.locally("GET", &path, Value::Null).await.ok(200);
    assert_eq!(shown["headers"]["authorization"], "[redacted]");
    let change = json!({ "headers": shown["headers"], "description": "changed" });
    world.locally("PATCH", &path, change).await.ok(200);

    let (_, reads) = world.key(json!({ "role": "account_read", "account_id": account })).await;
    let (_, operator) = world.key(json!({ "role": "operator" })).await;
    let stream = Request::get("/v1/stream").header("authorization", format!("Bearer {operator}"));
    let stream = world.app.clone().oneshot(stream.body(Body::empty()).expect("a request")).await;
    let mut stream = stream.expect("infallible").into_body().into_data_stream();
    let event = json!({ "account_id": account, "type": "a.b", "data": 1, "max_tries": 1 });
    let event = world.locally("POST", "/v1/events", event).await.ok(202);
    let (id, delivery) = (text(&event["id"]), text(&event["deliveries"][0]["id"]));
    world.dead(&delivery).await;
    let came = receiver.next().await;
    for (name, value) in
        [("authorization", "Bearer TOPSECRET1"), ("x-api-key", "TOPSECRET2"), ("x-session", "TOPSECRET3")]
    {
        assert_eq!(came.values(name), [value], "the receiver gets it");
    }

    let tried =
        world.locally("GET", &format!("/v1/deliveries/{delivery}/attempts"), Value::Null).await.ok(200);
    let attempt = text(&tried["data"][0]["id"]);
    let mut told = Vec::new();
    for refused in [&refused, &cookie] {
        told.push(("a refusal".to_owned(), String::from_utf8_lossy(&refused.body).into_owned()));
    }
    for key in [&operator, &reads] {
        for path in [
            format!("/v1/endpoints?account_id={account}"),
            path.clone(),
            format!("/v1/accounts/{account}"),
            format!("/v1/deliveries?account_id={account}&include=payload,last_error"),
            format!("/v1/deliveries/{delivery}"),
            format!("/v1/deliveries/{delivery}/attempts"),
            format!("/v1/attempts/{attempt}"),
            format!("/v1/attempts/{attempt}/request"),
            format!("/v1/attempts/{attempt}/response"),
            format!("/v1/events/{id}"),
            format!("/v1/events/{id}/timeline"),
            format!("/v1/explain/{id}"),
            format!("/v1/dead?account_id={account}"),
        ] {
            let reply = world.ask("GET", &path, Some(key), "").await;
            assert_eq!(reply.status, 200, "{path}: {reply:?}");
            told.push((path, String::from_utf8_lossy(&reply.body).into_owned()));
        }
    }
    let audit = world.ask("GET", "/v1/audit", Some(&operator), "").await;
    told.push(("the audit".into(), String::from_utf8_lossy(&audit.body).into_owned()));
    let mut heard = String::new();
    while !heard.contains("\"Dead\"") {
        let part =
            tokio::time::timeout(LONG, stream.next()).await.expect("in time").expect("more").expect("bytes");
        heard.push_str(std::str::from_utf8(&part).expect("UTF-8"));
    }
    told.push(("the stream".into(), heard));

    let console = sign_in(&world, &operator).await;
    let customer = enter(&world, &account, "account").await;
    let evidence = format!("{id}/evidence");
    let of = [
        ("events", id.as_str()),
        ("events", &evidence),
        ("deliveries", &delivery),
        ("attempts", &attempt),
        ("endpoints", &endpoint),
    ];
    let mut masked = 0;
    for (person, base) in [(&console, ""), (&customer, "/portal")] {
        for path in pages(base, &of, "TOPSECRE") {
            let page = read(&world, &person.cookie, &path).await;
            masked += usize::from(page.html.contains("[redacted]"));
            told.push((path, page.html));
        }
        // The names are there, for who looks for them.
        let page = read(&world, &person.cookie, &format!("{base}/deliveries/{delivery}")).await;
        assert!(page.html.contains("x-api-key"), "{}", page.words());
    }
    assert!(masked >= 6, "{masked} pages show that something is masked");
    told.push((
        "the log".into(),
        String::from_utf8_lossy(&logged.0.lock().expect("no holder panics")).into_owned(),
    ));
    assert!(told.last().is_some_and(|(_, log)| !log.is_empty()), "logs are captured");
    let whole = secret.trim_start_matches("whsec_").to_owned();
    for (place, text) in &told {
        for canary in [
            "TOPSECRET1",
            "TOPSECRET2",
            "TOPSECRET3",
            "TOPSECRET4",
            "TOPSECRET5",
            "TOPSECRET6",
            whole.as_str(),
        ] {
            assert!(!text.contains(canary), "{place} shows {canary}");
        }
    }
    // Asked for, and only then: by a form, to who may.
    let page = read(&world, &customer.cookie, &format!("/portal/endpoints/{endpoint}")).await;
    assert!(press(&world, &customer.cookie, &page.form("reveal")).await.html.contains(&secret));
}
