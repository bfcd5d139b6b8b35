//! The pages, without a browser: who sees which, what they say, what their forms do, and that whatever strangers
//! wrote is shown and never obeyed (rules A15, A16, A19–A22).

#[path = "support/browser.rs"]
mod browser;
#[path = "support/keyed.rs"]
mod keyed;
#[path = "support/receiver.rs"]
mod receiver;

use std::io::Write;

use axum::body::Body;
use axum::http::Request;
use browser::{ORIGIN, Seen, post, read, sign_in, submit};
use flate2::Compression;
use flate2::write::GzEncoder;
use hooklog_projections::time::Millis;
use keyed::{Session, World, text};
use receiver::{Receiver, answer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

fn gzip(bytes: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("into memory");
    encoder.finish().expect("into memory").len()
}

/// Somebody of each role, signed in.
struct People {
    operator: Session,
    support: Session,
    account: Session,
    reads: Session,
}

impl People {
    async fn of(world: &World, account: &str) -> People {
        let signed = async |members: Value| sign_in(world, &world.key(members).await.1).await;
        People {
            operator: signed(json!({ "role": "operator" })).await,
            support: signed(json!({ "role": "support" })).await,
            account: signed(json!({ "role": "account", "account_id": account })).await,
            reads: signed(json!({ "role": "account_read", "account_id": account })).await,
        }
    }
}

/// What a form sends.
type Form = &'static [(&'static str, &'static str)];

/// Every page for who has not signed in, for an operator, support, an account's own key, one that only looks, and
/// another account's.
#[rustfmt::skip]
const TABLE: &[(&str, Form, &str)] = &[
    //                                                    none oper supp acct read othr
    ("GET /", &[],                                       "303 200 200 200 200 200"),
    ("GET /events", &[],                                 "303 200 200 200 200 200"),
    ("GET /events/{id}", &[],                            "303 200 200 200 200 404"),
    ("POST /events/{id}", &[("do", "nothing")],          "401 400 400 400 403 400"),
    ("GET /events/{id}/payload", &[],                    "303 200 200 200 200 404"),
    ("GET /events/{id}/evidence", &[],                   "303 200 200 200 200 404"),
    ("GET /deliveries", &[],                             "303 200 200 200 200 200"),
    ("GET /deliveries/{id}", &[],                        "303 200 200 200 200 404"),
    ("POST /deliveries/{id}", &[("do", "nothing")],      "401 400 400 400 403 404"),
    ("GET /attempts/{id}", &[],                          "303 404 404 404 404 404"),
    ("GET /dead", &[],                                   "303 200 200 200 200 200"),
    ("GET /endpoints", &[],                              "303 200 200 200 200 200"),
    ("GET /endpoints/{id}", &[],                         "303 200 200 200 200 404"),
    ("POST /endpoints/{id}", &[("do", "nothing")],       "401 400 400 400 403 404"),
    ("POST /endpoints/{id}/secret", &[("do", "nothing")], "401 400 403 400 403 404"),
    ("GET /accounts", &[],                               "303 200 200 403 403 403"),
    ("GET /accounts/{id}", &[],                          "303 200 200 403 403 403"),
    ("GET /replays", &[],                                "303 200 200 200 200 200"),
    ("POST /replays", &[("status", "dead")],             "401 422 422 422 403 422"),
    // An operator names the account.
    ("GET /replays/new", &[],                            "303 400 400 422 422 422"),
    ("GET /replays/{id}", &[],                           "303 404 404 404 404 404"),
    ("POST /replays/{id}", &[("do", "cancel")],          "401 404 404 404 403 404"),
    ("GET /audit", &[],                                  "303 200 403 403 403 403"),
    ("GET /system", &[],                                 "303 200 200 403 403 403"),
    // It would never end: a filter that is none answers whoever is let in.
    ("GET /live", &[],                                   "303 400 400 400 400 400"),
    ("GET /find", &[],                                   "303 303 303 303 303 303"),
    ("GET /sign-in", &[],                                "200 200 200 200 200 200"),
    ("POST /sign-in", &[("key", "x")],                   "401 401 401 401 401 401"),
    ("POST /theme", &[("theme", "dark")],                "303 303 303 303 303 303"),
    ("GET /static/{file}", &[],                          "404 404 404 404 404 404"),
    // Last: the session is over then.
    ("POST /sign-out", &[],                              "303 303 303 303 303 303"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_for_whom_the_table_says() {
    let world = World::new().await;
    let (account, other) = (world.account("A").await, world.account("B").await);
    let [endpoint, event, delivery] = world.held(&account).await;
    let people = People::of(&world, &account).await;
    let (_, other) = world.key(json!({ "role": "account", "account_id": other })).await;
    let other = sign_in(&world, &other).await;
    let nobody = Session { cookie: String::new(), csrf: String::new() };
    let all = [&nobody, &people.operator, &people.support, &people.account, &people.reads, &other];

    let mut known: Vec<_> = TABLE.iter().map(|(route, ..)| (*route).to_owned()).collect();
    // Customers' pages have a table of their own, in `portal_pages`.
    let console = hooklog::pages::routes().into_iter().filter(|(_, path)| !path.starts_with("/portal"));
    let mut there: Vec<_> = console.map(|(method, path)| format!("{method} {path}")).collect();
    known.sort();
    there.sort();
    assert_eq!(known, there, "the table of this test and the router's differ");

    let mut wrong = Vec::new();
    for (route, fields, expected) in TABLE {
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let id = match path.split('/').nth(1) {
            Some("endpoints") => &endpoint,
            Some("deliveries") => &delivery,
            Some("accounts") => &account,
            _ => &event,
        };
        let path = path.replace("{id}", id).replace("{file}", "none.css").replace("/live", "/live?status=x");
        let mut seen = Vec::new();
        for person in all {
            let page = match method {
                "GET" => read(&world, &person.cookie, &path).await,
                _ => {
                    let with: Vec<_> = [fields, &[("csrf", person.csrf.as_str())][..]].concat();
                    submit(&world, &person.cookie, &path, &with).await
                }
            };
            if page.status >= 400 {
                assert_eq!(page.header("content-type"), "text/html; charset=utf-8", "{route} {page:?}");
            }
            seen.push(page.status.to_string());
        }
        if seen.join(" ") != *expected {
            wrong.push(format!("{route}\n  wanted {expected}\n  was    {}", seen.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_exchanged_for_a_session_that_holds_as_long_as_it_does() {
    let world = World::new().await;
    let (id, key) = world.key(json!({ "role": "operator" })).await;
    let first = read(&world, "", "/events/evt_x?account_id=y").await;
    assert_eq!(first.header("location"), "/sign-in?next=%2Fevents%2Fevt_x%3Faccount_id%3Dy");
    let form = read(&world, "", first.header("location")).await;
    assert!(form.html.contains("name=\"next\" value=\"/events/evt_x?account_id=y\""), "{}", form.html);

    let fields = [("key", key.as_str()), ("next", "//evil.example/")];
    let signed = submit(&world, "", "/sign-in", &fields).await;
    assert_eq!((signed.status, signed.header("location")), (303, "/"));
    let cookie = signed.header("set-cookie").to_owned();
    assert!(cookie.starts_with("hooklog-console="), "{cookie}");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "plain http: {cookie}");
    let cookie = cookie.split_once(';').expect("rules").0;
    assert_eq!(read(&world, cookie, "/").await.status, 200);
    // It is for pages alone.
    assert_eq!(read(&world, cookie, "/v1/status").await.status, 401);

    for wrong in ["", "hl_op_x", &key[..60]] {
        let refused = submit(&world, "", "/sign-in", &[("key", wrong)]).await;
        assert_eq!((refused.status, refused.header("set-cookie")), (401, ""));
        assert!(!refused.html.contains(&key[..60]));
    }
    let (_, ingest) = world.key(json!({ "role": "ingest" })).await;
    assert_eq!(submit(&world, "", "/sign-in", &[("key", &ingest)]).await.status, 403);

    world.locally("DELETE", &format!("/v1/keys/{id}"), Value::Null).await.ok(200);
    assert_eq!(read(&world, cookie, "/").await.status, 303, "revoked: at the next request");

    let (_, key) = world.key(json!({ "role": "support" })).await;
    let session = sign_in(&world, &key).await;
    assert_eq!(read(&world, &session.cookie, "/").await.status, 200);
    submit(&world, &session.cookie, "/sign-out", &[("csrf", &session.csrf)]).await;
    assert_eq!(read(&world, &session.cookie, "/").await.status, 303, "signed out");
    let session = sign_in(&world, &key).await;
    world.clock.advance(Millis::from_secs(31 * 60));
    assert_eq!(read(&world, &session.cookie, "/").await.status, 303, "idle");
}

/// Rule A16: a form counts only from our own pages, and only with their token.
#[tokio::test(flavor = "multi_thread")]
async fn a_form_from_elsewhere_does_nothing() {
    let world = World::new().await;
    let account = world.account("A").await;
    let [_, _, delivery] = world.held(&account).await;
    let (_, key) = world.key(json!({ "role": "operator" })).await;
    let (ours, theirs) = (sign_in(&world, &key).await, sign_in(&world, &key).await);
    let path = format!("/deliveries/{delivery}");
    let good = [("csrf", ours.csrf.as_str()), ("do", "cancel")];
    let pending = async || {
        let path = format!("/v1/deliveries/{delivery}");
        text(&world.locally("GET", &path, Value::Null).await.ok(200)["status"])
    };
    for (headers, fields) in [
        (&[("origin", ORIGIN)][..], &[("do", "cancel")][..]),
        (&[("origin", ORIGIN)], &[("csrf", theirs.csrf.as_str()), ("do", "cancel")]),
        (&[("origin", ORIGIN)], &[("csrf", "AAAA"), ("do", "cancel")]),
        (&[("origin", "https://evil.example")], &good),
        (&[("origin", "null")], &good),
        (&[], &good),
        (&[("origin", ORIGIN), ("sec-fetch-site", "cross-site")], &good),
    ] {
        let refused = post(&world, &ours.cookie, &path, headers, fields).await;
        assert_eq!(refused.status, 403, "{headers:?} {fields:?}");
        assert_eq!(pending().await, "pending");
    }
    for (route, place) in hooklog::pages::routes() {
        let open = ["/sign-in", "/theme", "/sign-out"].contains(&place) || place.starts_with("/portal");
        if route == "POST" && !open {
            let path = place.replace("{id}", &delivery);
            assert_eq!(submit(&world, &ours.cookie, &path, &[]).await.status, 403, "{place} without a token");
        }
    }
    let done = submit(&world, &ours.cookie, &path, &good).await;
    assert_eq!((done.status, pending().await.as_str()), (303, "cancelled"));
    assert!(done.header("location").ends_with("?done=cancelled"), "{}", done.header("location"));
    // A second time it is told, and nothing is done twice.
    assert_eq!(submit(&world, &ours.cookie, &path, &good).await.status, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_forbids_what_is_not_ours() {
    let world = World::new().await;
    let account = world.account("A").await;
    let [_, event, _] = world.held(&account).await;
    let people = People::of(&world, &account).await;
    for path in ["/", &format!("/events/{event}"), "/nowhere", "/sign-in", "/find?q=evt_none"] {
        let page = read(&world, &people.operator.cookie, path).await;
        let policy = page.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self' 'nonce-",
            "style-src 'self';",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        for (name, value) in [
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(page.header(name), value, "{path}: {name}");
        }
        for loads in ["http://", "https://fonts", "style=\"", " onclick", "<style", "src=\"//", "javascript:"]
        {
            assert!(!page.html.contains(loads), "{path}: {loads}");
        }
        // Every script is a file of ours.
        for script in page.html.split("<script").skip(1) {
            assert!(script.contains("src=\"/static/") && script.contains("nonce=\""), "{script}");
        }
    }
    let again = [read(&world, "", "/sign-in").await, read(&world, "", "/sign-in").await];
    assert_ne!(again[0].header("content-security-policy"), again[1].header("content-security-policy"));
}

fn files(page: &Seen) -> Vec<String> {
    let found = page.html.split('"').filter(|part| part.starts_with("/static/"));
    found.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_kept_by_their_hash_and_are_small() {
    let world = World::new().await;
    let (_, key) = world.key(json!({ "role": "operator" })).await;
    let page = read(&world, &sign_in(&world, &key).await.cookie, "/").await;
    let (mut scripts, mut seen) = (0, 0);
    for path in files(&page) {
        let file = read(&world, "", &path).await;
        assert_eq!(file.status, 200, "{path}");
        assert_eq!(file.header("cache-control"), "public, max-age=31536000, immutable");
        assert_eq!(file.header("x-content-type-options"), "nosniff");
        seen += 1;
        if path.ends_with(".js") {
            assert_eq!(file.header("content-type"), "text/javascript; charset=utf-8");
            scripts += gzip(&file.reply.body);
        }
    }
    assert_eq!(seen, 5, "{:?}", files(&page));
    assert!(scripts <= 20 * 1024, "{scripts} bytes of scripts");
}

/// Scripts of others are as they were published.
#[test]
fn what_others_wrote_is_as_they_published_it() {
    let sums = include_str!("../src/pages/assets/vendor/SHA256SUMS");
    let mut seen = 0;
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").expect("a sum and a name");
        let bytes = std::fs::read(format!("src/pages/assets/vendor/{name}")).expect("a file");
        let is: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(is, sum, "{name}");
        seen += 1;
    }
    let there = std::fs::read_dir("src/pages/assets/vendor").expect("a folder");
    let scripts = there
        .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().extension() == Some("js".as_ref())));
    assert_eq!(scripts.count(), seen, "a script without a sum");
}

/// Nothing yet, then the answer; the sentence is the API's.
#[tokio::test(flavor = "multi_thread")]
async fn the_answer_page_says_what_the_api_says() {
    let world = World::new().await;
    let account = world.account("Acme & Söhne").await;
    let people = People::of(&world, &account).await;
    let first = read(&world, &people.operator.cookie, "/").await.words();
    assert!(first.contains("Nothing was sent yet") && first.contains("hooklog send --account"), "{first}");
    let theirs = read(&world, &people.account.cookie, "/").await.words();
    assert!(!theirs.contains("hooklog send"), "{theirs}");

    let [_, event, delivery] = world.held(&account).await;
    let told = world.locally("GET", &format!("/v1/explain/{event}"), Value::Null).await.ok(200);
    for path in [format!("/events/{event}"), format!("/deliveries/{delivery}"), format!("/find?q={event}")] {
        let mut page = read(&world, &people.operator.cookie, &path).await;
        if page.status == 303 {
            page = read(&world, &people.operator.cookie, page.header("location")).await;
        }
        let words = page.words();
        assert!(words.contains(&text(&told["sentence"])), "{path}: {words}");
        assert!(words.contains("Acme & Söhne"), "{words}");
        for part in
            ["Taken in", "Enqueued", "Try 1 of 6", "Try 6 of 6", "SHA-256", "hooks.customer.example.com"]
        {
            assert!(words.contains(part), "{path} lacks {part}: {words}");
        }
    }
    // A customer is shown no place in the log.
    let path = format!("/events/{event}");
    assert!(read(&world, &people.operator.cookie, &path).await.words().contains("#"));
    assert!(!read(&world, &people.account.cookie, &path).await.html.contains("Place in the log"));
    // Who only looks is told why a button does nothing.
    let looks = read(&world, &people.reads.cookie, &path).await.words();
    assert!(looks.contains("Your key only looks."), "{looks}");
    // Before it was taken in.
    let then = read(&world, &people.operator.cookie, &format!("{path}?at=2020-01-01T00:00")).await;
    assert!(then.words().contains("had not been taken in"), "{}", then.words());
    assert_eq!(read(&world, &people.operator.cookie, &format!("{path}?at=soon")).await.status, 400);

    // Support says why.
    let cancel = format!("/deliveries/{delivery}");
    let support = [("csrf", people.support.csrf.as_str()), ("do", "cancel")];
    assert_eq!(submit(&world, &people.support.cookie, &cancel, &support).await.status, 400);
    let support = [support[0], support[1], ("reason", "the customer <b>asked</b>")];
    assert_eq!(submit(&world, &people.support.cookie, &cancel, &support).await.status, 303);
    let page = read(&world, &people.operator.cookie, &path).await;
    assert!(page.words().contains("No. It was cancelled"), "{}", page.words());
    assert!(page.html.contains("the customer &lt;b&gt;asked&lt;/b&gt;") && !page.html.contains("<b>asked"));
}

/// What attackers write (rules of hostile text): markup, breaks out of attributes, schemes, directions, controls.
const HOSTILE: [&str; 10] = [
    "<script>window.__pwn=1</script>",
    "<img src=x onerror=window.__pwn=1>",
    "\"><svg onload=window.__pwn=1>",
    "javascript:window.__pwn=1",
    "{{7*7}}",
    "</pre><script>window.__pwn=1</script>",
    "\u{202e}gpj.exe",
    "\u{1b}]0;x\u{7}",
    "=HYPERLINK(\"http://evil.example\")",
    "' onmouseover='window.__pwn=1",
];

/// Marks that no page may have got from a stranger.
#[track_caller]
fn is_tame(page: &Seen, path: &str) {
    let html = &page.html;
    for tag in ["<script>", "<img", "<svg onload", "</pre><script", "{{49}}"] {
        assert!(!html.contains(tag), "{path}: {tag}");
    }
    // Within a tag a quote of theirs would end the value.
    for part in html.split('<').skip(1) {
        let tag = part.split_once('>').map_or(part, |(tag, _)| tag);
        let bare: String = tag.split('"').step_by(2).collect();
        assert!(
            !bare.contains("onerror") && !bare.contains("onload") && !bare.contains("onmouseover"),
            "{path}: <{tag}>"
        );
        assert!(
            !tag.contains("href=\"javascript:") && !tag.contains("http://evil.example"),
            "{path}: <{tag}>"
        );
    }
    for unseen in ['\u{202e}', '\u{1b}', '\u{7}'] {
        assert!(!html.contains(unseen), "{path}: {unseen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_strangers_write_is_shown_and_never_obeyed() {
    let world = World::new().await;
    let all = HOSTILE.join(" ");
    // The answer's head holds what a head may; its body everything.
    let plain = HOSTILE[..6].join(" ");
    let (head, body) =
        (format!("location: /{plain}\r\nserver: {plain}\r\n"), format!("{all}{}", "<".repeat(16 << 10)));
    let receiver = Receiver::answering(move |_| answer(500, &head, &body)).await;
    let account = text(&world.locally("POST", "/v1/accounts", json!({ "name": plain })).await.ok(201)["id"]);
    let people = People::of(&world, &account).await;
    let url = receiver.url("/hook?q=%22%3E%3Csvg%20onload=window.__pwn=1%3E&x=javascript:window.__pwn=1");
    let endpoint = json!({ "account_id": account, "url": url, "description": plain,
        "headers": { "x-own": "TOPSECRET\"><script>window.__pwn=1</script>" } });
    let endpoint = text(&world.locally("POST", "/v1/endpoints", endpoint).await.ok(201)["id"]);
    let event = json!({ "account_id": account, "type": "pwn.all", "data": { "texts": HOSTILE, "all": all },
        "max_tries": 1 });
    let event = world.locally("POST", "/v1/events", event).await.ok(202);
    let (id, delivery) = (text(&event["id"]), text(&event["deliveries"][0]["id"]));
    let raw = Request::post(format!("/v1/events/raw?account_id={account}&type=pwn.raw"))
        .header("content-type", "text/html;\"><script>")
        .body(Body::from([all.as_bytes(), b"\xff\xfe\x00"].concat()));
    let off = json!({ "signature_schemes": ["ledger"] });
    world.locally("PATCH", &format!("/v1/endpoints/{endpoint}"), off).await.ok(200);
    let raw = World::send(&world.local, raw.expect("a request")).await.ok(202);
    let raw = text(&raw["id"]);
    world.dead(&delivery).await;
    let pause = format!("/v1/endpoints/{endpoint}/pause");
    world.locally("POST", &pause, json!({ "reason": plain })).await.ok(200);

    for person in [&people.operator, &people.support, &people.account] {
        for path in [
            "/".into(),
            format!("/events?account_id={account}"),
            format!("/events/{id}"),
            format!("/events/{raw}"),
            format!("/deliveries/{delivery}"),
            format!("/deliveries?account_id={account}&event_type={}", "%22%3E%3Csvg%20onload%3D1%3E"),
            "/deliveries".into(),
            "/dead".into(),
            "/endpoints".into(),
            format!("/endpoints/{endpoint}"),
            "/accounts".into(),
            format!("/accounts/{account}"),
            "/audit".into(),
            format!("/replays/new?account_id={account}&status=dead"),
            "/find?q=%3Cscript%3Ewindow.__pwn%3D1%3C%2Fscript%3E".into(),
            "/deliveries?status=%3Cscript%3Ewindow.__pwn%3D1%3C%2Fscript%3E".into(),
            "/nowhere/%3Cscript%3E".into(),
        ] {
            let page = read(&world, &person.cookie, &path).await;
            assert!(page.status < 500, "{path}: {}", page.words());
            is_tame(&page, &path);
            assert!(!page.html.contains("TOPSECRET"), "{path}");
        }
        let answered = read(&world, &person.cookie, &format!("/deliveries/{delivery}")).await;
        for part in ["&lt;script&gt;window.__pwn=1", "U+202E", "HTTP 500", "[redacted]", "␛"] {
            assert!(answered.html.contains(part), "{part}");
        }
        assert!(read(&world, &person.cookie, &format!("/events/{raw}")).await.html.contains("\\xff"));
    }
}

/// A page of fifty rows goes out within the weight that it may have.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_rows_are_light() {
    let world = World::new().await;
    let account = world.account("Acme").await;
    let people = People::of(&world, &account).await;
    world.held(&account).await;
    let due = (jiff::Timestamp::now() + jiff::Span::new().hours(48)).to_string();
    for n in 1..60 {
        let event =
            json!({ "account_id": account, "type": "held.back", "data": { "n": n }, "deliver_at": due });
        world.locally("POST", "/v1/events", event).await.ok(202);
    }
    for path in ["/", "/deliveries", &format!("/events?account_id={account}")] {
        let page = read(&world, &people.operator.cookie, path).await;
        let rows = page.html.matches("class=\"row\"").count();
        let weight = gzip(&page.reply.body);
        assert!(rows >= 20 && weight <= 60 * 1024, "{path}: {rows} rows, {weight} bytes");
    }
    // Page by page, with the filter kept, every delivery once.
    let (mut path, mut seen) = ("/deliveries?status=pending&limit=25".to_owned(), Vec::new());
    loop {
        let page = read(&world, &people.operator.cookie, &path).await;
        seen.extend(page.html.split("href=\"/deliveries/").skip(1).map(|rest| rest[..30].to_owned()));
        let Some((before, _)) = page.html.split_once("\" rel=\"next\"") else { break };
        path = before.rsplit_once("href=\"").expect("an address").1.replace("&amp;", "&");
        assert!(path.contains("status=pending"), "{path}");
    }
    assert_eq!(seen.len(), 60);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 60, "each once");
}

/// Lists: nothing yet, nothing that matches, and the way out of it.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_says_why_it_is_empty() {
    let world = World::new().await;
    let account = world.account("Acme").await;
    let people = People::of(&world, &account).await;
    for (path, yet) in [
        ("/deliveries", "No deliveries yet"),
        ("/events", "No events yet"),
        ("/dead", "No dead letters yet"),
        ("/endpoints", "No endpoints yet"),
        ("/replays", "No bulk replays yet"),
    ] {
        let words = read(&world, &people.operator.cookie, path).await.words();
        assert!(words.contains(yet), "{path}: {words}");
    }
    let none = read(&world, &people.operator.cookie, "/deliveries?status=dead&event_type=x.y").await;
    assert!(none.words().contains("No deliveries match"), "{}", none.words());
    assert!(none.html.contains("href=\"/deliveries?event_type=x.y\""), "a chip takes its filter away");
    // A moment as a browser's field gives it.
    let since = read(&world, &people.operator.cookie, "/deliveries?since=2026-01-01T00:00").await;
    assert_eq!(since.status, 200, "{}", since.words());
    assert_eq!(read(&world, &people.operator.cookie, "/deliveries?since=soon").await.status, 400);
    assert_eq!(read(&world, &people.operator.cookie, "/deliveries?colour=red").await.status, 400);
}

/// Pausing, replaying and calling off, all with forms.
#[tokio::test(flavor = "multi_thread")]
async fn forms_do_what_the_api_does() {
    let world = World::new().await;
    let receiver = Receiver::answering(|_| answer(410, "", "gone")).await;
    let account = world.account("Acme").await;
    let people = People::of(&world, &account).await;
    let made = json!({ "account_id": account, "url": receiver.url("/hook") });
    let endpoint = text(&world.locally("POST", "/v1/endpoints", made).await.ok(201)["id"]);
    let event = json!({ "account_id": account, "type": "a.b", "data": 1, "max_tries": 1 });
    let event = world.locally("POST", "/v1/events", event).await.ok(202);
    let delivery = text(&event["deliveries"][0]["id"]);
    world.dead(&delivery).await;
    let operator = &people.operator;
    let csrf = operator.csrf.as_str();

    // 410 disabled it: a replay says so and is not offered.
    let page = read(&world, &operator.cookie, &format!("/deliveries/{delivery}")).await.words();
    assert!(page.contains("The endpoint is disabled; resume it first."), "{page}");
    let path = format!("/endpoints/{endpoint}");
    let resumed = submit(&world, &operator.cookie, &path, &[("csrf", csrf), ("do", "resume")]).await;
    assert_eq!(resumed.status, 303);
    let page = read(&world, &operator.cookie, resumed.header("location")).await.words();
    assert!(page.contains("It runs again"), "{page}");
    assert_eq!(
        submit(&world, &operator.cookie, &path, &[("csrf", csrf), ("do", "resume")]).await.status,
        409
    );

    // The plan shows what would go where; nothing is sent by looking at it.
    let plan = format!("/replays/new?account_id={account}&status=dead&endpoint_id={endpoint}");
    let page = read(&world, &operator.cookie, &plan).await;
    assert!(page.words().contains("Send 1 again") && page.words().contains("the same"), "{}", page.words());
    let mut fields =
        vec![("csrf", csrf), ("account_id", account.as_str()), ("status", "dead"), ("rate_per_second", "10")];
    let refused = submit(&world, &operator.cookie, "/replays", &fields).await;
    assert_eq!(refused.status, 422, "without a reason: {}", refused.words());
    fields.push(("reason", "their server is back"));
    let begun = submit(&world, &operator.cookie, "/replays", &fields).await;
    assert_eq!(begun.status, 303, "{}", begun.words());
    let page = read(&world, &operator.cookie, begun.header("location")).await.words();
    assert!(page.contains("their server is back") && page.contains("of 1 begun"), "{page}");
    let listed = read(&world, &operator.cookie, "/replays").await.words();
    assert!(listed.contains("their server is back"), "{listed}");
}
